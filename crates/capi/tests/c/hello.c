/* Writes a block and reads it back by blocking calls. */
#include <stdio.h>
#include <string.h>
#include <switchyard.h>

int main(int argc, char **argv) {
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:4420";
    sw_target *target;
    sw_namespace *disk;
    char data[4096], back[4096];

    if (sw_connect(address, "nqn.2026-11.io.switchyard:default", NULL, &target) < 0 ||
        sw_open(target, 1, &disk) < 0)
        goto failed;
    memset(data, 7, sizeof data);
    if (sw_write(disk, data, sizeof data, 0, 0) < 0 || sw_flush(disk) < 0 ||
        sw_read(disk, back, sizeof back, 0) < 0)
        goto failed;
    puts(memcmp(data, back, sizeof data) ? "other data" : "the same data");
    sw_close(disk);
    sw_disconnect(target);
    return 0;
failed:
    fprintf(stderr, "%s\n", sw_error_message());
    return 1;
}
