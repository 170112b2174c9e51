/* The preset, the knobs and the counters of a switchboard: what is chosen when it is made, what is
 * changed while it runs, and what a knob does to requests. */
#include "common.h"

#include <sched.h>

enum { ROUNDS = 8, COUNTERS_MAX = 256 };

static unsigned char data[4096];
static unsigned core;

static const char *knob(sw_switchboard *board, const char *name) {
    static char value[32];
    OK(sw_switchboard_get_knob(board, name, value, sizeof value));
    return value;
}

#define KNOB_IS(expected, board, name) CHECK(!strcmp(expected, knob(board, name)))

static uint64_t counter(sw_switchboard *board, unsigned of, const char *name) {
    static sw_counter all[COUNTERS_MAX];
    int count = sw_switchboard_counters(board, of, all, COUNTERS_MAX);
    CHECK(count > 0 && count <= COUNTERS_MAX);
    for (int i = 0; i < count; i++)
        if (!strcmp(all[i].name, name))
            return all[i].value;
    fprintf(stderr, "no counter is %s\n", name);
    exit(1);
}

static void refused(const char *preset, const char *knobs, const char *possible) {
    sw_switchboard *board = NULL;
    sw_switchboard_options options = {.size = sizeof options, .preset = preset, .knobs = knobs};
    IS(-EINVAL, sw_switchboard_create(&options, &board));
    CHECK(strstr(sw_error_message(), possible));
    CHECK(board == NULL);
}

static void chosen_when_made(void) {
    refused("windows", NULL, "use one of switchyard, linux, nvme-tcp");
    refused("\xff", NULL, "UTF-8");
    refused(NULL, "dorbell=fixed", "use one of lanes, ");
    refused(NULL, "doorbell=loud", "immediate or fixed or adaptive");
    refused("linux", "doorbell_max_hold_us=30", "doorbell=adaptive");
    refused("linux", "doorbell", "NAME=VALUE");
    refused("linux", "doorbell=fixed,doorbell=fixed", "twice");

    sw_switchboard *board;
    sw_switchboard_options options = {.size = sizeof options, .cores = &core, .core_count = 1};
    options.preset = "linux";
    options.knobs = "direct_submitters=2,doorbell=immediate";
    OK(sw_switchboard_create(&options, &board));
    KNOB_IS("shared", board, "lanes");
    KNOB_IS("off", board, "prioritisation");
    KNOB_IS("immediate", board, "doorbell");
    KNOB_IS("2", board, "direct_submitters");
    OK(sw_switchboard_destroy(board));

    /* A program that was compiled before there were presets: what follows is not the structure's. */
    options.size = offsetof(sw_switchboard_options, preset);
    options.preset = options.knobs = (const char *)1;
    OK(sw_switchboard_create(&options, &board));
    KNOB_IS("per-class", board, "lanes");
    OK(sw_switchboard_destroy(board));
}

static void refused_later(sw_switchboard *board, const char *name, const char *value,
                          const char *possible) {
    IS(-EINVAL, sw_switchboard_set_knob(board, name, value));
    CHECK(strstr(sw_error_message(), possible));
}

static void changed_later(sw_switchboard *board) {
    char value[32] = "as before";
    refused_later(board, "dorbell", "fixed", "use one of lanes, ");
    refused_later(board, "doorbell", "loud", "immediate or fixed or adaptive");
    refused_later(board, "direct_submitters", "-1", "0 to ");
    refused_later(board, "doorbell_delay_us", "50", "doorbell=fixed");
    refused_later(board, "polling", "never", "after the start of a switchboard");
    IS(-EFAULT, sw_switchboard_set_knob(board, NULL, "1"));
    IS(-EFAULT, sw_switchboard_set_knob(board, "doorbell", NULL));
    KNOB_IS("adaptive", board, "doorbell");
    IS(-EINVAL, sw_switchboard_get_knob(board, "dorbell", value, sizeof value));
    IS(-EINVAL, sw_switchboard_get_knob(board, "doorbell_delay_us", value, sizeof value));
    IS(-EFAULT, sw_switchboard_get_knob(board, "doorbell", NULL, 32));
    IS(-ENOSPC, sw_switchboard_get_knob(board, "doorbell", value, sizeof "adaptive" - 1));
    CHECK(strstr(sw_error_message(), "9 are needed"));
    CHECK(!strcmp(value, "as before"));
    OK(sw_switchboard_get_knob(board, "doorbell", value, sizeof "adaptive"));
    CHECK(!strcmp(value, "adaptive"));

    OK(sw_switchboard_set_knob(board, "doorbell", "fixed"));
    OK(sw_switchboard_set_knob(board, "doorbell_delay_us", "50"));
    KNOB_IS("50", board, "doorbell_delay_us");
    OK(sw_switchboard_set_knob(board, "doorbell", "adaptive"));
}

static void counters(sw_switchboard *board) {
    sw_counter some[2] = {{.name = "", .value = 0}, {.name = "kept", .value = 7}};
    int all = sw_switchboard_counters(board, SW_ALL_CORES, NULL, 0);
    CHECK(all > 2);
    CHECK(sw_switchboard_counters(board, core, NULL, 0) > 2);
    IS(all, sw_switchboard_counters(board, SW_ALL_CORES, some, 1));
    CHECK(!strcmp(some[0].name, "direct_requests"));
    CHECK(!strcmp(some[1].name, "kept") && some[1].value == 7);
    IS(-EFAULT, sw_switchboard_counters(board, SW_ALL_CORES, NULL, 1));
    IS(-EINVAL, sw_switchboard_counters(board, 1023, some, 2));
    CHECK(strstr(sw_error_message(), "has no core 1023"));
}

static void read_some(sw_queue *queue) {
    sw_completion done;
    for (int i = 0; i < ROUNDS; i++) {
        OK(sw_queue_read(queue, data, sizeof data, 0, NULL));
        IS(1, sw_queue_reap(queue, &done, 1, 1, -1));
        OK(done.result);
    }
}

/* A thread that is alone with its class sends for itself, unless direct_submitters says otherwise: then
 * its requests go through the ingress of the core, which counts them. */
static void a_knob_has_an_effect(sw_switchboard *board, sw_namespace *disk) {
    sw_queue *queue;
    sw_queue_options options = {
        .size = sizeof options,
        .request_class = SW_CLASS_LATENCY,
        .switchboard = board,
        .request_bytes = sizeof data,
    };
    OK(sw_queue_create(disk, 4, &options, &queue));
    /* Its lane may not be open at first. */
    while (counter(board, core, "direct_requests") < ROUNDS)
        read_some(queue);
    OK(sw_switchboard_set_knob(board, "direct_submitters", "0"));
    uint64_t direct = counter(board, core, "direct_requests");
    uint64_t passed = counter(board, core, "latency_requests");
    read_some(queue);
    while (counter(board, core, "latency_requests") < passed + ROUNDS)
        sched_yield();
    IS(direct, counter(board, core, "direct_requests"));
    IS(direct, counter(board, SW_ALL_CORES, "direct_requests"));
    IS(0, counter(board, SW_ALL_CORES, "throughput_requests"));
    OK(sw_switchboard_set_knob(board, "direct_submitters", "1"));
    while (counter(board, core, "direct_requests") == direct)
        read_some(queue);

    /* The queue goes on without the handle, which says no more. */
    char value[32];
    sw_counter some[2];
    OK(sw_switchboard_destroy(board));
    IS(-EBADF, sw_switchboard_set_knob(board, "direct_submitters", "0"));
    IS(-EBADF, sw_switchboard_get_knob(board, "direct_submitters", value, sizeof value));
    IS(-EBADF, sw_switchboard_counters(board, core, some, 2));
    CHECK(strstr(sw_error_message(), "switchboard"));
    read_some(queue);
    OK(sw_queue_destroy(queue));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    cpu_set_t allowed;
    OK(sched_getaffinity(0, sizeof allowed, &allowed));
    while (!CPU_ISSET(core, &allowed))
        core++;
    chosen_when_made();

    sw_target *target;
    sw_namespace *disk;
    sw_switchboard *board;
    sw_switchboard_options on = {.size = sizeof on, .cores = &core, .core_count = 1};
    OK(sw_connect(argv[1], NQN, NULL, &target));
    OK(sw_open(target, 1, &disk));
    OK(sw_switchboard_create(&on, &board));
    changed_later(board);
    counters(board);
    a_knob_has_an_effect(board, disk);
    OK(sw_close(disk));
    OK(sw_disconnect(target));
    return 0;
}
