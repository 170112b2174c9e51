/* Writes and reads with many requests at once until standard input ends, then checks everything.
 * Prints a line for each so many requests: its driver kills the target meanwhile. */
#include "common.h"

#include <poll.h>
#include <unistd.h>

#define DEPTH 16
#define BLOCK 4096
#define BLOCKS 512

struct request {
    unsigned char data[BLOCK];
    unsigned block;
    int busy;
};

static unsigned version[BLOCKS];
static unsigned char expected[BLOCK];

static void pattern(unsigned char *data, unsigned block) {
    fill(data, BLOCK, version[block] * 2 + 1);
    memcpy(data, &block, sizeof block);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    static struct request requests[DEPTH];
    sw_target *target;
    sw_namespace *disk;
    sw_queue *queue;
    sw_options options = {.size = sizeof options, .loss_timeout_ms = SW_NEVER};
    OK(sw_connect(argv[1], NQN, &options, &target));
    OK(sw_open(target, 1, &disk));
    OK(sw_queue_create(disk, DEPTH, NULL, &queue));
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned next = 0;
    int outstanding = 0, ends = 0;
    long done = 0;
    while (!ends || outstanding > 0) {
        for (int i = 0; i < DEPTH && !ends; i++) {
            struct request *request = &requests[i];
            if (request->busy)
                continue;
            request->block = next++ % BLOCKS;
            version[request->block]++;
            pattern(request->data, request->block);
            OK(sw_queue_write(queue, request->data, BLOCK, (uint64_t)request->block * BLOCK, 0,
                              request));
            request->busy = 1;
            outstanding++;
        }
        sw_completion finished[DEPTH];
        int count = sw_queue_reap(queue, finished, 1, DEPTH, -1);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            OK(finished[i].result);
            ((struct request *)finished[i].user)->busy = 0;
            if (++done % 500 == 0) {
                printf("%ld done\n", done);
                fflush(stdout);
            }
        }
        outstanding -= count;
        ends = ends || poll(&input, 1, 0) > 0;
    }
    for (unsigned block = 0; block < BLOCKS && block < next; block++) {
        unsigned char back[BLOCK];
        pattern(expected, block);
        OK(sw_read(disk, back, BLOCK, (uint64_t)block * BLOCK));
        CHECK(!memcmp(back, expected, BLOCK));
    }
    OK(sw_queue_destroy(queue));
    OK(sw_close(disk));
    OK(sw_disconnect(target));
    printf("verified\n");
    return 0;
}
