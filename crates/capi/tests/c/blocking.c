/* Blocking calls: every function, and what comes of it. */
#include "common.h"

static void all_calls(const char *address, const char *path) {
    sw_options options = {
        .size = sizeof options,
        .host_nqn = "nqn.2026-11.io.switchyard:c-test",
        .request_class = SW_CLASS_LATENCY,
        .flags = SW_HEADER_DIGEST | SW_DATA_DIGEST,
        .connect_timeout_ms = 10000,
        .loss_timeout_ms = SW_NEVER,
        .path = path,
    };
    sw_target *target = NULL;
    OK(sw_connect(address, NQN, &options, &target));
    sw_namespace *disk = NULL;
    OK(sw_open(target, 1, &disk));
    /* The connection stays while the namespace does. */
    OK(sw_disconnect(target));

    sw_info info = {.size = sizeof info};
    OK(sw_namespace_info(disk, &info));
    IS(16 << 20, info.bytes);
    CHECK(info.block_bytes == 512 || info.block_bytes == 4096);
    CHECK(info.max_request_bytes >= 4096);
    IS(1, info.nsid);
    IS(0, info.read_only);

    /* More than one request, and from the end of the namespace. */
    size_t length = 5 << 20;
    unsigned char *data = malloc(length), *back = malloc(length);
    CHECK(data && back);
    fill(data, length, 3);
    uint64_t end = info.bytes - length;
    OK(sw_write(disk, data, length, end, 0));
    OK(sw_read(disk, back, length, end));
    CHECK(!memcmp(data, back, length));
    OK(sw_write(disk, data, 4096, 0, SW_FUA));
    OK(sw_flush(disk));

    /* Parts of any length that are whole blocks together. */
    struct iovec parts[] = {{data, 100}, {data + 100, 0}, {data + 100, 8092}};
    OK(sw_writev(disk, parts, 3, 8192, SW_FUA));
    memset(back, 0, 8192);
    struct iovec into[] = {{back, 8191}, {back + 8191, 1}};
    OK(sw_readv(disk, into, 2, 8192));
    CHECK(!memcmp(data, back, 8192));

    OK(sw_write_zeroes(disk, 8192, 4096));
    OK(sw_discard(disk, 12288, 4096));
    OK(sw_read(disk, back, 8192, 8192));
    for (size_t i = 0; i < 8192; i++)
        CHECK(back[i] == 0);
    OK(sw_read(disk, NULL, 0, 0));

    OK(sw_close(disk));
    free(data);
    free(back);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    IS(SWITCHYARD_ABI_VERSION, sw_abi_version());
    CHECK(strlen(sw_version()) > 0);
    all_calls(argv[1], NULL);
    all_calls(argv[1], "sync");
    all_calls(argv[1], "stm");
    return 0;
}
