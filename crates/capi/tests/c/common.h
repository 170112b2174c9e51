/* What the test programs share: checks that end the program with the reason. */
#ifndef COMMON_H
#define COMMON_H

#include "switchyard.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,      \
                    sw_error_message());                                                         \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

/* The call must answer exactly this. */
#define IS(expected, call)                                                                       \
    do {                                                                                         \
        long long got_ = (call);                                                                 \
        if (got_ != (long long)(expected)) {                                                     \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld (last error: %s)\n", __FILE__,          \
                    __LINE__, #call, got_, (long long)(expected), sw_error_message());           \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define OK(call) IS(0, call)

#define NQN "nqn.2026-11.io.switchyard:default"

static inline void fill(unsigned char *data, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        data[i] = (unsigned char)(i / 7 * seed + i);
}

#endif
