/* Names that LLVM's ThreadSanitizer has and GCC's has not, of functions that both watch: linked with
 * the programs where the library was built by the one and they by the other. */
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t length);
void *__tsan_memmove(void *to, const void *from, size_t length);
void *__tsan_memset(void *to, int value, size_t length);

void *__tsan_memcpy(void *to, const void *from, size_t length) { return memcpy(to, from, length); }
void *__tsan_memmove(void *to, const void *from, size_t length) {
    return memmove(to, from, length);
}
void *__tsan_memset(void *to, int value, size_t length) { return memset(to, value, length); }
