/* A thread that waits for each of its small requests beside threads with many large ones, all on one
 * core and through one switchboard: until standard input ends, and for some rounds at least, each
 * writes to blocks of its own and reads what it wrote. Prints a line for each so many rounds: its
 * driver may kill the target meanwhile. */
#include "common.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

enum {
    BULK_THREADS = 6,
    THREADS = BULK_THREADS + 1,
    DEPTH = 8,
    SMALL = 4096,
    LARGE = 65536,
    AREA = 2 << 20,
    ROUNDS_MIN = 40,
};

static sw_namespace *disk;
static sw_switchboard *board;
static int over;
static pthread_barrier_t opened;

struct worker {
    pthread_t thread;
    int number;
    int seed;
    int rounds;
};

static int is_latency(const struct worker *worker) { return worker->number == 0; }

static sw_queue *open_queue(const struct worker *worker) {
    sw_queue *queue;
    sw_queue_options options = {
        .size = sizeof options,
        .request_class = is_latency(worker) ? SW_CLASS_LATENCY : SW_CLASS_THROUGHPUT,
        .switchboard = board,
        .request_bytes = is_latency(worker) ? SMALL : LARGE,
        .flags = SW_STEERED,
    };
    OK(sw_queue_create(disk, DEPTH, &options, &queue));
    IS(DEPTH, sw_queue_depth(queue));
    return queue;
}

/* Waits for all requests of a queue. */
static void wait_for_all(sw_queue *queue) {
    sw_completion done[DEPTH];
    while (sw_queue_outstanding(queue) > 0) {
        int count = sw_queue_reap(queue, done, 1, DEPTH, -1);
        CHECK(count > 0);
        for (int i = 0; i < count; i++)
            OK(done[i].result);
    }
}

/* Writes, and reads the same with as many requests at once as there are. */
static void round_of(struct worker *worker, sw_queue *queue, unsigned char *data,
                     unsigned char *back) {
    size_t length = is_latency(worker) ? SMALL : LARGE;
    int depth = is_latency(worker) ? 1 : DEPTH;
    uint64_t area = (uint64_t)worker->number * AREA;
    int turn = worker->rounds % (int)(AREA / (length * depth));
    uint64_t offset = area + (uint64_t)turn * length * depth;
    worker->seed = worker->rounds * THREADS + worker->number + 1;
    fill(data, length * depth, (unsigned)worker->seed);
    for (int i = 0; i < depth; i++)
        OK(sw_queue_write(queue, data + i * length, length, offset + i * length,
                          worker->rounds % 4 == 0 ? SW_FUA : 0, NULL));
    wait_for_all(queue);
    if (worker->rounds % 16 == 0) {
        OK(sw_queue_flush(queue, NULL));
        wait_for_all(queue);
    }
    memset(back, 0, length * depth);
    for (int i = 0; i < depth; i++)
        OK(sw_queue_read(queue, back + i * length, length, offset + i * length, NULL));
    wait_for_all(queue);
    CHECK(!memcmp(data, back, length * depth));
    worker->rounds++;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    unsigned char *data = malloc(DEPTH * LARGE), *back = malloc(DEPTH * LARGE);
    CHECK(data && back);
    sw_queue *queue = open_queue(worker);
    pthread_barrier_wait(&opened);
    while (worker->rounds < ROUNDS_MIN || !__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        round_of(worker, queue, data, back);
        if (is_latency(worker) && worker->rounds % 20 == 0) {
            printf("%d rounds\n", worker->rounds);
            fflush(stdout);
        }
    }
    OK(sw_queue_destroy(queue));
    free(data);
    free(back);
    return NULL;
}

/* Connections of this machine to a port, established ones. */
static int connections_to(const char *address) {
    char line[512];
    unsigned port = atoi(strrchr(address, ':') + 1), remote, state;
    int count = 0;
    FILE *file = fopen("/proc/net/tcp", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, " %*d: %*x:%*x %*x:%x %x", &remote, &state) == 2)
            count += remote == port && state == 1;
    fclose(file);
    return count;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    static struct worker workers[THREADS];
    cpu_set_t allowed;
    unsigned core = 0;
    OK(sched_getaffinity(0, sizeof allowed, &allowed));
    while (!CPU_ISSET(core, &allowed))
        core++;
    CPU_ZERO(&allowed);
    CPU_SET(core, &allowed);
    OK(sched_setaffinity(0, sizeof allowed, &allowed));

    sw_target *target;
    sw_options options = {.size = sizeof options, .loss_timeout_ms = SW_NEVER};
    sw_switchboard_options on = {.size = sizeof on, .cores = &core, .core_count = 1};
    OK(sw_connect(argv[1], NQN, &options, &target));
    OK(sw_open(target, 1, &disk));
    OK(sw_switchboard_create(&on, &board));
    int before = connections_to(argv[1]);
    OK(pthread_barrier_init(&opened, NULL, THREADS + 1));
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        OK(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    pthread_barrier_wait(&opened);
    /* The queues keep what they need. */
    OK(sw_switchboard_destroy(board));
    IS(-EBADF, sw_switchboard_destroy(board));
    struct pollfd input = {.fd = 0, .events = POLLIN};
    CHECK(poll(&input, 1, -1) > 0);
    /* A lane for each class, and that of the thread that is alone with its class; with a queue each,
       the threads had one more each. */
    int more = connections_to(argv[1]) - before;
    CHECK(more < THREADS);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        OK(pthread_join(workers[i].thread, NULL));

    /* What the last round of each wrote is there for others. */
    unsigned char *data = malloc(DEPTH * LARGE), *back = malloc(DEPTH * LARGE);
    CHECK(data && back);
    for (int i = 0; i < THREADS; i++) {
        size_t length = is_latency(&workers[i]) ? SMALL : DEPTH * LARGE;
        int turn = (workers[i].rounds - 1) % (int)(AREA / length);
        fill(data, length, (unsigned)workers[i].seed);
        OK(sw_read(disk, back, length, (uint64_t)i * AREA + (uint64_t)turn * length));
        CHECK(!memcmp(data, back, length));
    }
    free(data);
    free(back);
    OK(sw_close(disk));
    OK(sw_disconnect(target));
    printf("verified\n");
    return 0;
}
