/* Requests that are given up, against a target that stands still for a while: its process is in the
   environment. */
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { BLOCK = 4096, SHORT_US = 50000 };

/* Returns the letter that Linux has for the state of a process. */
static char state_of(pid_t process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    CHECK(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *end = strrchr(text, ')');
    CHECK(end && end[1] == ' ');
    return end[2];
}

static void stop(pid_t target) {
    CHECK(kill(target, SIGSTOP) == 0);
    while (state_of(target) != 'T')
        usleep(1000);
}

static void go_on(pid_t target) { CHECK(kill(target, SIGCONT) == 0); }

static void blocking(sw_namespace *disk, pid_t target) {
    static unsigned char data[BLOCK], back[BLOCK];
    fill(data, BLOCK, 1);
    OK(sw_write(disk, data, BLOCK, 0, 0));
    stop(target);
    OK(sw_set_timeout(disk, SHORT_US));
    IS(-ETIMEDOUT, sw_read(disk, back, BLOCK, 0));
    IS(-ETIMEDOUT, sw_write(disk, back, BLOCK, BLOCK, 0));
    OK(sw_set_timeout(disk, 0));
    IS(-ETIMEDOUT, sw_flush(disk));
    go_on(target);
    OK(sw_set_timeout(disk, -1));
    /* Behind the one that was given up. */
    OK(sw_write(disk, data, BLOCK, BLOCK, 0));
    OK(sw_read(disk, back, BLOCK, BLOCK));
    CHECK(!memcmp(data, back, BLOCK));
    IS(-EBADF, sw_set_timeout(NULL, 1));
}

static void *read_until_cancelled(void *handle) {
    unsigned char data[BLOCK];
    IS(-ECANCELED, sw_read(handle, data, BLOCK, 0));
    return NULL;
}

static void cancelled(sw_namespace *disk, pid_t target) {
    sw_namespace *theirs;
    pthread_t threads[2];
    unsigned char data[BLOCK];
    IS(-EINVAL, sw_cancel(disk));
    CHECK(strstr(sw_error_message(), "sw_cancellable"));
    OK(sw_cancellable(disk, &theirs));
    OK(sw_read(theirs, data, BLOCK, 0));
    stop(target);
    for (int i = 0; i < 2; i++)
        OK(pthread_create(&threads[i], NULL, read_until_cancelled, theirs));
    usleep(SHORT_US);
    OK(sw_cancel(theirs));
    for (int i = 0; i < 2; i++)
        OK(pthread_join(threads[i], NULL));
    IS(-ECANCELED, sw_flush(theirs));
    go_on(target);
    IS(-ECANCELED, sw_read(theirs, data, BLOCK, 0));
    OK(sw_close(theirs));
    IS(-EBADF, sw_cancel(theirs));
    OK(sw_read(disk, data, BLOCK, 0));
}

static sw_completion one(sw_queue *queue) {
    sw_completion done;
    IS(1, sw_queue_reap(queue, &done, 1, 1, -1));
    return done;
}

static void queued(sw_namespace *disk, pid_t target, const sw_queue_options *options) {
    enum { READS = 8 };
    sw_queue *queue;
    unsigned char *own, *buffer;
    unsigned char data[BLOCK], expected[BLOCK];
    int write, later, flush;
    OK(sw_queue_create(disk, 32, options, &queue));
    OK(sw_buffer_alloc(queue, READS * BLOCK, (void **)&buffer));
    fill(expected, BLOCK, 1);
    OK(sw_queue_read(queue, data, BLOCK, 0, &data));
    IS(0, one(queue).result);
    CHECK(!memcmp(data, expected, BLOCK));

    stop(target);
    OK(sw_queue_set_timeout(queue, SHORT_US));
    for (int i = 0; i < READS; i++)
        OK(sw_queue_read(queue, buffer + i * BLOCK, BLOCK, 0, buffer + i * BLOCK));
    own = malloc(BLOCK);
    CHECK(own);
    OK(sw_queue_read(queue, own, BLOCK, 0, own));
    for (int i = 0; i <= READS; i++)
        IS(-ETIMEDOUT, one(queue).result);
    /* The memory is ours again: what the target says later must not come here. */
    free(own);
    memset(buffer, 0x5a, READS * BLOCK);

    OK(sw_queue_set_timeout(queue, -1));
    fill(data, BLOCK, 2);
    OK(sw_queue_write(queue, data, BLOCK, 2 * BLOCK, 0, &write));
    OK(sw_queue_flush(queue, &flush));
    IS(0, sw_queue_reap(queue, NULL, 0, 0, 0));
    OK(sw_queue_cancel(queue, &write));
    OK(sw_queue_cancel(queue, &flush));
    for (int i = 0; i < 2; i++)
        IS(-ECANCELED, one(queue).result);
    IS(-ENOENT, sw_queue_cancel(queue, &write));
    CHECK(strstr(sw_error_message(), "no outstanding request"));
    fill(data, BLOCK, 3);
    OK(sw_queue_write(queue, data, BLOCK, 2 * BLOCK, 0, &later));
    go_on(target);
    sw_completion done = one(queue);
    CHECK(done.user == &later);
    IS(0, done.result);
    memset(data, 0, BLOCK);
    OK(sw_queue_read(queue, data, BLOCK, 2 * BLOCK, NULL));
    IS(0, one(queue).result);
    fill(expected, BLOCK, 3);
    CHECK(!memcmp(data, expected, BLOCK));
    for (int i = 0; i < READS * BLOCK; i++)
        CHECK(buffer[i] == 0x5a);
    OK(sw_buffer_free(queue, buffer));
    OK(sw_queue_destroy(queue));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *process = getenv("TARGET_PROCESS");
    CHECK(process);
    pid_t target = atoi(process);
    sw_target *connected;
    sw_namespace *disk;
    OK(sw_connect(argv[1], NQN, NULL, &connected));
    OK(sw_open(connected, 1, &disk));
    blocking(disk, target);
    cancelled(disk, target);
    queued(disk, target, NULL);
    sw_queue_options options = {.size = sizeof options, .buffer_bytes = 1 << 20};
    OK(sw_switchboard_create(NULL, &options.switchboard));
    for (int class = SW_CLASS_LATENCY; class <= SW_CLASS_THROUGHPUT; class++) {
        options.request_class = class;
        queued(disk, target, &options);
    }
    OK(sw_switchboard_destroy(options.switchboard));
    OK(sw_close(disk));
    OK(sw_disconnect(connected));
    return 0;
}
