/* Everything that a caller may do wrong is answered with a code and a text, and changes nothing. */
#include "common.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

static sw_queue *queue;

static void *other_thread(void *argument) {
    (void)argument;
    IS(-EPERM, sw_queue_kick(queue));
    IS(-EPERM, sw_queue_destroy(queue));
    CHECK(strstr(sw_error_message(), "thread"));
    CHECK(strstr(sw_strerror(-EPERM), "thread"));
    return NULL;
}

static void connecting(const char *address) {
    sw_target *target = NULL;
    IS(-EFAULT, sw_connect(NULL, NQN, NULL, &target));
    IS(-EFAULT, sw_connect(address, NULL, NULL, &target));
    IS(-EFAULT, sw_connect(address, NQN, NULL, NULL));
    IS(-EINVAL, sw_connect("nowhere", NQN, NULL, &target));
    IS(-EINVAL, sw_connect(address, "", NULL, &target));
    IS(-ECONNREFUSED, sw_connect("127.0.0.1:1", NQN, NULL, &target));
    CHECK(strstr(sw_error_message(), "start the target"));
    IS(-EACCES, sw_connect(address, "nqn.2026-11.io.switchyard:other", NULL, &target));
    /* Its meaning on whatever thread; the system's text where the library has none; no number. */
    CHECK(strstr(sw_strerror(-EACCES), "denied"));
    CHECK(strstr(sw_strerror(-ECONNREFUSED), "refused"));
    CHECK(!strcmp(sw_strerror(0), "success"));
    CHECK(strstr(sw_strerror(SW_EPANIC), "internal error"));
    CHECK(!strcmp(sw_strerror(-100000), "unknown error"));
    CHECK(!strcmp(sw_strerror(INT_MIN), "unknown error"));

    sw_options options = {.size = sizeof options, .request_class = 9};
    IS(-EINVAL, sw_connect(address, NQN, &options, &target));
    options = (sw_options){.size = sizeof options, .flags = 64};
    IS(-EINVAL, sw_connect(address, NQN, &options, &target));
    options = (sw_options){.size = sizeof options, .path = "shortest"};
    IS(-EINVAL, sw_connect(address, NQN, &options, &target));
    CHECK(strstr(sw_error_message(), "sync"));
    options = (sw_options){.size = 0};
    IS(-EINVAL, sw_connect(address, NQN, &options, &target));
    options = (sw_options){.size = sizeof options, .host_nqn = "\xff"};
    IS(-EINVAL, sw_connect(address, NQN, &options, &target));
    CHECK(target == NULL);

    /* A program of a later version: what is not zero is refused, what is zero is fine. */
    struct {
        sw_options options;
        uint64_t later;
    } later = {.options = {.size = sizeof later}, .later = 1};
    IS(-E2BIG, sw_connect(address, NQN, &later.options, &target));
    later.later = 0;
    OK(sw_connect(address, NQN, &later.options, &target));
    OK(sw_disconnect(target));
    /* A program of an earlier version. */
    options = (sw_options){.size = sizeof(size_t), .flags = 64};
    OK(sw_connect(address, NQN, &options, &target));
    OK(sw_disconnect(target));
    IS(-EBADF, sw_disconnect(target));
    IS(-EBADF, sw_disconnect(NULL));
    sw_namespace *disk = NULL;
    IS(-EBADF, sw_open(target, 1, &disk));
}

static void blocking(sw_namespace *disk) {
    static unsigned char data[8192];
    IS(-EINVAL, sw_read(disk, data, 4096, 1));
    CHECK(strstr(sw_error_message(), "block size"));
    IS(-EINVAL, sw_write(disk, data, 100, 0, 0));
    IS(-ERANGE, sw_read(disk, data, 4096, 16 << 20));
    IS(-ERANGE, sw_write(disk, data, 8192, (16 << 20) - 4096, 0));
    IS(-ERANGE, sw_discard(disk, UINT64_MAX - 4095, 4096));
    IS(-EINVAL, sw_write(disk, data, 4096, 0, 2));
    IS(-EFAULT, sw_read(disk, NULL, 4096, 0));
    IS(-EINVAL, sw_read(disk, data, SIZE_MAX & ~4095ull, 0));
    struct iovec overlap[] = {{data, 4096}, {data + 4095, 4096}};
    IS(-EINVAL, sw_readv(disk, overlap, 2, 0));
    IS(-EINVAL, sw_readv(disk, overlap, -1, 0));
    IS(-EINVAL, sw_readv(disk, overlap, 1025, 0));
    IS(-EFAULT, sw_readv(disk, NULL, 1, 0));
    struct iovec null = {NULL, 4096};
    IS(-EFAULT, sw_writev(disk, &null, 1, 0, 0));
    IS(-EFAULT, sw_namespace_info(disk, NULL));
    sw_info info = {.size = 3};
    IS(-EINVAL, sw_namespace_info(disk, &info));
    IS(-EBADF, sw_read((sw_namespace *)data, data, 4096, 0));
}

static void queues(sw_namespace *disk) {
    static unsigned char data[2 << 20];
    sw_queue_options options = {.size = sizeof options, .poll = 7};
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    options = (sw_queue_options){.size = sizeof options, .reserved = 1};
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    options = (sw_queue_options){.size = sizeof options, .connections = 65};
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    options = (sw_queue_options){.size = sizeof options, .request_bytes = 4096};
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    CHECK(strstr(sw_error_message(), "switchboard"));
    options = (sw_queue_options){.size = sizeof options, .flags = SW_STEERED};
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    IS(-EINVAL, sw_queue_create(disk, 0, NULL, &queue));
    IS(-EINVAL, sw_queue_create(disk, 5000, NULL, &queue));
    IS(-EFAULT, sw_queue_create(disk, 8, NULL, NULL));
    OK(sw_queue_create(disk, 4, NULL, &queue));

    pthread_t thread;
    OK(pthread_create(&thread, NULL, other_thread, NULL));
    OK(pthread_join(thread, NULL));

    IS(-EFAULT, sw_queue_read(queue, NULL, 4096, 0, NULL));
    IS(-EINVAL, sw_queue_read(queue, data, 0, 0, NULL));
    IS(-EINVAL, sw_queue_read(queue, data, 4095, 0, NULL));
    IS(-EINVAL, sw_queue_read(queue, data, sizeof data, 0, NULL));
    CHECK(strstr(sw_error_message(), "split the request"));
    IS(-ERANGE, sw_queue_write(queue, data, 4096, 16 << 20, 0, NULL));
    IS(-EINVAL, sw_queue_write(queue, data, 4096, 0, 4, NULL));
    IS(0, sw_queue_outstanding(queue));

    for (int i = 0; i < sw_queue_depth(queue); i++)
        OK(sw_queue_read(queue, data + i * 4096, 4096, 0, NULL));
    IS(-EAGAIN, sw_queue_read(queue, data, 4096, 0, NULL));
    IS(-EFAULT, sw_queue_reap(queue, NULL, 1, 8, -1));
    sw_completion done[8];
    int left = sw_queue_outstanding(queue);
    while (left > 0) {
        int count = sw_queue_reap(queue, done, 1, 8, -1);
        CHECK(count > 0);
        left -= count;
    }
    IS(0, sw_queue_reap(queue, done, 1, 8, -1));
    IS(0, sw_queue_reap(queue, done, 8, 0, -1));

    void *buffer = NULL;
    IS(-EINVAL, sw_buffer_alloc(queue, 0, &buffer));
    IS(-ENOMEM, sw_buffer_alloc(queue, (size_t)1 << 60, &buffer));
    IS(-EFAULT, sw_buffer_alloc(queue, 4096, NULL));
    OK(sw_buffer_alloc(queue, 8192, &buffer));
    IS(-EINVAL, sw_buffer_free(queue, (char *)buffer + 1));
    IS(-EINVAL, sw_queue_read(queue, (char *)buffer + 4096, 8192, 0, NULL));
    OK(sw_queue_read(queue, buffer, 4096, 0, NULL));
    IS(-EBUSY, sw_buffer_free(queue, buffer));
    /* The queue goes with a request under way and a buffer. */
    OK(sw_queue_destroy(queue));
    IS(-EBADF, sw_queue_destroy(queue));
    IS(-EBADF, sw_queue_read(queue, data, 4096, 0, NULL));
    IS(-EBADF, sw_queue_fd(queue));
    IS(-EBADF, sw_queue_kick(NULL));
}

static void switchboards(sw_namespace *disk) {
    static unsigned char data[8192];
    unsigned processor, twice[2];
    sw_switchboard *board = NULL;
    getcpu(&processor, NULL);
    sw_switchboard_options on = {.size = sizeof on, .reserved = 1};
    IS(-EINVAL, sw_switchboard_create(&on, &board));
    unsigned none = 1023;
    on = (sw_switchboard_options){.size = sizeof on, .cores = &none, .core_count = 1};
    IS(-EINVAL, sw_switchboard_create(&on, &board));
    CHECK(strstr(sw_error_message(), "1023"));
    twice[0] = twice[1] = processor;
    on.cores = twice;
    on.core_count = 2;
    IS(-EINVAL, sw_switchboard_create(&on, &board));
    CHECK(strstr(sw_error_message(), "twice"));
    on.core_count = 0;
    IS(-EINVAL, sw_switchboard_create(&on, &board));
    on.core_count = 1025;
    IS(-EINVAL, sw_switchboard_create(&on, &board));
    on = (sw_switchboard_options){.size = sizeof on, .core_count = 1};
    IS(-EFAULT, sw_switchboard_create(&on, &board));
    IS(-EFAULT, sw_switchboard_create(NULL, NULL));
    CHECK(board == NULL);
    IS(-EBADF, sw_switchboard_destroy(NULL));
    IS(-EBADF, sw_switchboard_destroy((sw_switchboard *)disk));

    OK(sw_switchboard_create(NULL, &board));
    sw_queue_options options = {.size = sizeof options, .switchboard = board, .connections = 1};
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    options = (sw_queue_options){.size = sizeof options, .switchboard = board, .flags = 2};
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    options.flags = 0;
    IS(-EINVAL, sw_queue_create(disk, 0, &options, &queue));
    options.request_class = 9;
    IS(-EINVAL, sw_queue_create(disk, 8, &options, &queue));
    options.request_class = SW_CLASS_THROUGHPUT;
    options.request_bytes = 4096;
    OK(sw_queue_create(disk, 2, &options, &queue));
    OK(sw_switchboard_destroy(board));
    sw_queue *later;
    IS(-EBADF, sw_queue_create(disk, 2, &options, &later));
    CHECK(strstr(sw_error_message(), "switchboard"));

    pthread_t thread;
    OK(pthread_create(&thread, NULL, other_thread, NULL));
    OK(pthread_join(thread, NULL));
    IS(-EINVAL, sw_queue_read(queue, data, 8192, 0, NULL));
    IS(-ERANGE, sw_queue_read(queue, data, 4096, 16 << 20, NULL));
    OK(sw_queue_read(queue, data, 4096, 0, NULL));
    OK(sw_queue_read(queue, data + 4096, 4096, 0, NULL));
    IS(-EAGAIN, sw_queue_read(queue, data, 4096, 0, NULL));
    /* The last queue goes with requests under way, and the switchboard with it. */
    OK(sw_queue_destroy(queue));
    IS(-EBADF, sw_queue_reap(queue, NULL, 0, 0, 0));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    connecting(argv[1]);
    sw_target *target;
    sw_namespace *disk;
    OK(sw_connect(argv[1], NQN, NULL, &target));
    IS(-ENXIO, sw_open(target, 9, &disk));
    IS(-EFAULT, sw_open(target, 1, NULL));
    OK(sw_open(target, 1, &disk));
    OK(sw_disconnect(target));
    blocking(disk);
    queues(disk);
    switchboards(disk);
    OK(sw_close(disk));
    IS(-EBADF, sw_close(disk));
    IS(-EBADF, sw_flush(disk));
    IS(-EBADF, sw_queue_create(disk, 8, NULL, &queue));
    /* Left open: the end of the process closes it. */
    OK(sw_connect(argv[1], NQN, NULL, &target));
    OK(sw_open(target, 1, &disk));
    OK(sw_queue_create(disk, 8, NULL, &queue));
    sw_queue_options options = {.size = sizeof options};
    OK(sw_switchboard_create(NULL, &options.switchboard));
    OK(sw_queue_create(disk, 8, &options, &queue));
    return 0;
}
