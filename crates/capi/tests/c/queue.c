/* A queue, with connections of its own and through a switchboard: every operation, vectors, registered
 * buffers, and an event loop over its descriptor. */
#include "common.h"

#include <poll.h>

#define DEPTH 32
#define BLOCK 4096
#define AREA (64 << 20)

static sw_queue *queue;

/* Waits for one completion, which must have this pointer. */
static int one(void *user) {
    sw_completion done;
    IS(1, sw_queue_reap(queue, &done, 1, 1, -1));
    CHECK(done.user == user);
    CHECK(done.reserved == 0);
    return done.result;
}

static void operations(void) {
    static unsigned char data[8 * BLOCK], back[8 * BLOCK];
    int user;
    fill(data, sizeof data, 5);
    OK(sw_queue_write(queue, data, sizeof data, BLOCK, SW_FUA, &user));
    OK(one(&user));
    OK(sw_queue_flush(queue, &user));
    OK(one(&user));
    OK(sw_queue_read(queue, back, sizeof back, BLOCK, &user));
    OK(one(&user));
    CHECK(!memcmp(data, back, sizeof data));

    struct iovec parts[] = {{data, 1}, {data + 1, 4095}, {data + 4096, 4096}};
    OK(sw_queue_writev(queue, parts, 3, 64 * BLOCK, 0, &user));
    OK(one(&user));
    memset(back, 0, sizeof back);
    struct iovec into[] = {{back, 5000}, {back + 5000, 3192}};
    OK(sw_queue_readv(queue, into, 2, 64 * BLOCK, &user));
    /* The vector itself is copied. */
    memset(into, 0, sizeof into);
    OK(one(&user));
    CHECK(!memcmp(data, back, 2 * BLOCK));

    OK(sw_queue_write_zeroes(queue, 64 * BLOCK, BLOCK, &user));
    OK(one(&user));
    OK(sw_queue_discard(queue, 65 * BLOCK, BLOCK, NULL));
    OK(one(NULL));
    OK(sw_queue_read(queue, back, 2 * BLOCK, 64 * BLOCK, &user));
    OK(one(&user));
    for (int i = 0; i < 2 * BLOCK; i++)
        CHECK(back[i] == 0);
}

static void registered(void) {
    void *first, *second;
    int user;
    OK(sw_buffer_alloc(queue, 2 * BLOCK, &first));
    OK(sw_buffer_alloc(queue, BLOCK, &second));
    CHECK((uintptr_t)first % 4096 == 0);
    fill(first, 2 * BLOCK, 9);
    OK(sw_queue_write(queue, first, 2 * BLOCK, 0, 0, &user));
    OK(one(&user));
    for (int round = 0; round < 3; round++) {
        /* The second block alone, by an address within the buffer and into another one. */
        memset(second, 0, BLOCK);
        OK(sw_queue_read(queue, second, BLOCK, BLOCK, &user));
        OK(one(&user));
        CHECK(!memcmp(second, (char *)first + BLOCK, BLOCK));
        OK(sw_queue_write(queue, (char *)first + BLOCK, BLOCK, BLOCK, 0, &user));
        OK(one(&user));
    }
    /* A vector of one part uses the buffer itself, so it cannot be freed meanwhile. */
    struct iovec part = {second, BLOCK};
    memset(second, 0, BLOCK);
    OK(sw_queue_readv(queue, &part, 1, BLOCK, &user));
    IS(-EBUSY, sw_buffer_free(queue, second));
    OK(one(&user));
    CHECK(!memcmp(second, (char *)first + BLOCK, BLOCK));
    OK(sw_queue_writev(queue, &part, 1, 0, 0, &user));
    IS(-EBUSY, sw_buffer_free(queue, second));
    OK(one(&user));
    part.iov_base = first;
    OK(sw_queue_readv(queue, &part, 1, 0, &user));
    OK(one(&user));
    CHECK(!memcmp(second, first, BLOCK));
    OK(sw_buffer_free(queue, first));
    OK(sw_buffer_free(queue, second));
    /* Much larger than a request: as many ranges of it at once as the queue has room for. */
    unsigned char *area;
    OK(sw_buffer_alloc(queue, AREA, (void **)&area));
    fill(area, DEPTH * BLOCK, 11);
    for (int i = 0; i < DEPTH; i++)
        OK(sw_queue_write(queue, area + i * BLOCK, BLOCK, i * BLOCK, 0, NULL));
    for (int i = 0; i < DEPTH; i++)
        OK(one(NULL));
    for (int i = 0; i < DEPTH; i++)
        OK(sw_queue_read(queue, area + AREA - (i + 1) * BLOCK, BLOCK, i * BLOCK, NULL));
    IS(-EBUSY, sw_buffer_free(queue, area));
    for (int i = 0; i < DEPTH; i++)
        OK(one(NULL));
    for (int i = 0; i < DEPTH; i++)
        CHECK(!memcmp(area + AREA - (i + 1) * BLOCK, area + i * BLOCK, BLOCK));
    OK(sw_buffer_free(queue, area));
    IS(-EINVAL, sw_buffer_free(queue, second));
}

/* Reads blocks in an event loop, with two completions at most from each look. */
static void event_loop(void) {
    static unsigned char data[DEPTH][BLOCK];
    struct pollfd fd = {.fd = sw_queue_fd(queue), .events = POLLIN};
    CHECK(fd.fd >= 0);
    IS(fd.fd, sw_queue_fd(queue));
    int started = 0, done = 0, total = 5000;
    while (done < total) {
        while (started < total && started - done < DEPTH / 2) {
            unsigned char *to = data[started % DEPTH];
            OK(sw_queue_read(queue, to, BLOCK, (uint64_t)(started % 100) * BLOCK, to));
            started++;
        }
        OK(sw_queue_kick(queue));
        IS(1, poll(&fd, 1, 30000));
        sw_completion some[2];
        int count = sw_queue_reap(queue, some, 0, 2, 0);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++)
            OK(some[i].result);
        done += count;
    }
    IS(0, sw_queue_outstanding(queue));
    /* A wait for nothing ends at once, and one for more than there is with what there is. */
    sw_completion some[2];
    IS(0, sw_queue_reap(queue, some, 1, 2, 1000));
    OK(sw_queue_read(queue, data[0], BLOCK, 0, NULL));
    IS(1, sw_queue_reap(queue, some, 2, 2, -1));
}

static void all(const char *address, sw_queue_options options) {
    sw_target *target;
    sw_namespace *disk;
    OK(sw_connect(address, NQN, NULL, &target));
    OK(sw_open(target, 1, &disk));
    OK(sw_queue_create(disk, DEPTH, &options, &queue));
    /* The queue keeps what it needs. */
    OK(sw_close(disk));
    OK(sw_disconnect(target));
    if (options.switchboard)
        OK(sw_switchboard_destroy(options.switchboard));
    CHECK(sw_queue_depth(queue) >= 1);
    operations();
    registered();
    event_loop();
    OK(sw_queue_destroy(queue));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    sw_queue_options options = {
        .size = sizeof options,
        .connections = 2,
        .request_class = SW_CLASS_THROUGHPUT,
    };
    all(argv[1], options);
    for (int class = SW_CLASS_DEFAULT; class <= SW_CLASS_THROUGHPUT; class++) {
        options = (sw_queue_options){
            .size = sizeof options,
            .request_class = class,
            /* Room for no buffer, for one of a block, and for all. */
            .buffer_bytes = (uint64_t[]){0, BLOCK, AREA + 3 * BLOCK}[class],
        };
        OK(sw_switchboard_create(NULL, &options.switchboard));
        all(argv[1], options);
    }
    return 0;
}
