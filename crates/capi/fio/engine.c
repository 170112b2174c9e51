/*
 * An ioengine for fio over libswitchyard: fio's queue, commit and getevents are a queue's submit,
 * kick and reap. Built by scripts/fio-engine against the headers of the fio that will load it.
 *
 *   fio --ioengine=external:PATH/switchyard-fio.so --sw_target=127.0.0.1:4420 --name=a \
 *       --rw=randread --bs=4k --iodepth=32
 *
 * A job makes its connection where it runs, after fio's fork; before that, one is made and closed
 * to learn the size. Each job has a queue of its own. With sw_switchboard=1 (and thread=1) the jobs of
 * the process share a switchboard, and those of one namespace its lanes.
 *
 * fio commits each request alone unless it is told otherwise, and asks for completions when its
 * queue is full. So requests leave together, when it asks or when they are a quarter of the queue,
 * which keeps both ends at work; but with each commit where a rate or a thinktime keeps the queue
 * from filling up, or with sw_gather=0.
 */
#include "config-host.h"

#include "fio.h"
#include "optgroup.h"

#include "switchyard.h"

struct engine_options {
    void *unused; /* fio keeps a pointer at offset 0. */
    char *target;
    char *nqn;
    char *host_nqn;
    char *tls_key_file;
    char *chap_secret_file;
    char *chap_controller_secret_file;
    unsigned int nsid;
    unsigned int request_class;
    unsigned int gather;
    unsigned int switchboard;
    char *cores;
    char *preset;
    char *knobs;
};

#define OFFSET(field) .off1 = offsetof(struct engine_options, field)
#define ENGINE_OPTION .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID

static struct fio_option engine_options[] = {
    {
        .name = "sw_target",
        .lname = "Target",
        .help = "HOST:PORT of the target",
        .type = FIO_OPT_STR_STORE,
        OFFSET(target),
        .def = "127.0.0.1:4420",
        ENGINE_OPTION,
    },
    {
        .name = "sw_nqn",
        .lname = "Subsystem",
        .help = "NQN of the subsystem",
        .type = FIO_OPT_STR_STORE,
        OFFSET(nqn),
        .def = "nqn.2026-11.io.switchyard:default",
        ENGINE_OPTION,
    },
    {
        .name = "sw_host_nqn",
        .lname = "Host",
        .help = "NQN of this host; without it, one that is made up",
        .type = FIO_OPT_STR_STORE,
        OFFSET(host_nqn),
        ENGINE_OPTION,
    },
    {
        .name = "sw_tls_key",
        .lname = "TLS key",
        .help = "File with TLS keys of this host; without it, no TLS",
        .type = FIO_OPT_STR_STORE,
        OFFSET(tls_key_file),
        ENGINE_OPTION,
    },
    {
        .name = "sw_chap_secret",
        .lname = "DH-HMAC-CHAP secret",
        .help = "File with the DH-HMAC-CHAP secret of this host",
        .type = FIO_OPT_STR_STORE,
        OFFSET(chap_secret_file),
        ENGINE_OPTION,
    },
    {
        .name = "sw_chap_controller_secret",
        .lname = "DH-HMAC-CHAP controller secret",
        .help = "File with the secret by which the target must prove itself",
        .type = FIO_OPT_STR_STORE,
        OFFSET(chap_controller_secret_file),
        ENGINE_OPTION,
    },
    {
        .name = "sw_nsid",
        .lname = "Namespace",
        .help = "Identifier of the namespace",
        .type = FIO_OPT_INT,
        OFFSET(nsid),
        .def = "1",
        ENGINE_OPTION,
    },
    {
        .name = "sw_class",
        .lname = "Class",
        .help = "Class of the requests",
        .type = FIO_OPT_STR,
        OFFSET(request_class),
        .def = "throughput",
        .posval =
            {
                {.ival = "latency", .oval = SW_CLASS_LATENCY, .help = "Few, and waited for"},
                {.ival = "throughput", .oval = SW_CLASS_THROUGHPUT, .help = "Many"},
            },
        ENGINE_OPTION,
    },
    {
        .name = "sw_gather",
        .lname = "Gather",
        .help = "Send requests when fio waits for completions, not one by one",
        .type = FIO_OPT_BOOL,
        OFFSET(gather),
        .def = "1",
        ENGINE_OPTION,
    },
    {
        .name = "sw_switchboard",
        .lname = "Switchboard",
        .help = "Jobs that are threads (thread=1) share lanes, requests of class latency first",
        .type = FIO_OPT_BOOL,
        OFFSET(switchboard),
        .def = "0",
        ENGINE_OPTION,
    },
    {
        .name = "sw_cores",
        .lname = "Cores",
        .help = "Processors of the switchboard, as 0,2; without it, all that the first job may use",
        .type = FIO_OPT_STR_STORE,
        OFFSET(cores),
        ENGINE_OPTION,
    },
    {
        .name = "sw_preset",
        .lname = "Preset",
        .help = "Position of the switchboard's knobs to begin with, as linux; switchyard by default",
        .type = FIO_OPT_STR_STORE,
        OFFSET(preset),
        ENGINE_OPTION,
    },
    {
        .name = "sw_knobs",
        .lname = "Knobs",
        .help = "Knobs that differ from the preset, as doorbell=immediate,completion_hold_us=0",
        .type = FIO_OPT_STR_STORE,
        OFFSET(knobs),
        ENGINE_OPTION,
    },
    {.name = NULL},
};

/* A namespace that jobs of this process share. */
struct shared {
    struct shared *next;
    char *name;
    sw_target *target;
    sw_namespace *disk;
    unsigned int users;
};

/* What jobs of this process share, and what protects it. */
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all_shared;
static sw_switchboard *board;
static char *board_options;

struct job {
    struct shared *shared; /* NULL: the target and the namespace are the job's own. */
    sw_target *target;
    sw_namespace *disk;
    sw_queue *queue;
    /* Requests of fio that the queue takes as several, each of at most so many bytes. */
    unsigned long long piece_bytes;
    /* Pieces that the queue takes, and room for the completions of as many. */
    unsigned int room;
    sw_completion *completions;
    /* Requests that are done, their number, the next of them to hand out, and those handed out last. */
    struct io_u **done;
    unsigned int found, next, handed_out;
    /* Pieces that leave together, and those that wait for it. */
    unsigned int together, waiting;
    /* A request of which the queue took the first pieces only, or NULL. */
    struct io_u *partial;
    /* Steps that were waited in vain after fio ended the job. */
    unsigned int steps_after_end;
};

/* What was submitted of a request, in bytes, and its pieces that are outstanding. */
struct progress {
    unsigned long long submitted;
    unsigned int outstanding;
};

/* Time after which a wait looks whether fio has ended the job, in microseconds, and number of such
 * times for which the target may still answer after that: 5 s. */
#define STEP_US 100000
#define STEPS_AFTER_END 50

static int complain(const char *what, int result) {
    fprintf(stderr, "switchyard: %s: %s\n", what, sw_error_message());
    return result;
}

static int open_disk(struct thread_data *td, sw_target **target, sw_namespace **disk) {
    struct engine_options *given = td->eo;
    sw_options options = {
        .size = sizeof options,
        .host_nqn = given->host_nqn,
        .request_class = given->request_class,
        .tls_key_file = given->tls_key_file,
        .chap_secret_file = given->chap_secret_file,
        .chap_controller_secret_file = given->chap_controller_secret_file,
    };
    int result = sw_connect(given->target, given->nqn, &options, target);
    if (result < 0)
        return complain(given->target, result);
    result = sw_open(*target, given->nsid, disk);
    if (result < 0) {
        complain("open the namespace", result);
        sw_disconnect(*target);
    }
    return result;
}

static int complain_of(const char *what) {
    fprintf(stderr, "switchyard: %s\n", what);
    return -EINVAL;
}

/* The options of the switchboard as one text, NULL where there is no memory for it. */
static char *describe_board(const struct engine_options *given) {
    char *text;
    int length = asprintf(&text, "%s %s %s", given->cores ? given->cores : "",
                          given->preset ? given->preset : "", given->knobs ? given->knobs : "");
    return length < 0 ? NULL : text;
}

/* Starts the switchboard for the first job of the process. */
static int start_board(const struct engine_options *given) {
    uint32_t numbers[1024];
    sw_switchboard_options options = {
        .size = sizeof options,
        .cores = given->cores ? numbers : NULL,
        .preset = given->preset,
        .knobs = given->knobs,
    };
    const char *next = given->cores;
    while (next && *next) {
        char *end;
        unsigned long number = strtoul(next, &end, 10);
        if (end == next || (*end && *end != ',') || number > UINT32_MAX ||
            options.core_count == 1024)
            return complain_of("sw_cores is a list of processors, as 0,2");
        numbers[options.core_count++] = number;
        next = *end ? end + 1 : end;
    }
    int result = sw_switchboard_create(&options, &board);
    return result < 0 ? complain("start the switchboard", result) : 0;
}

/* Finds the namespace of a job among those of other jobs, or opens it. */
static struct shared *find_shared(struct thread_data *td) {
    struct engine_options *given = td->eo;
    struct shared *shared;
    char *name;
    if (asprintf(&name, "%s %s %s %u", given->target, given->nqn,
                 given->host_nqn ? given->host_nqn : "", given->nsid) < 0)
        return NULL;
    for (shared = all_shared; shared; shared = shared->next)
        if (!strcmp(shared->name, name))
            break;
    if (shared) {
        free(name);
        return shared;
    }
    shared = calloc(1, sizeof *shared);
    if (!shared || open_disk(td, &shared->target, &shared->disk) < 0) {
        free(shared);
        free(name);
        return NULL;
    }
    shared->name = name;
    shared->next = all_shared;
    all_shared = shared;
    return shared;
}

/* Ends the switchboard where no job uses it, with the last one, or after one that found no namespace. */
static void end_unused_board(void) {
    if (!board || all_shared)
        return;
    sw_switchboard_destroy(board);
    free(board_options);
    board = NULL;
    board_options = NULL;
}

/* Opens what the job shares with others. */
static int join_others(struct thread_data *td, struct job *job) {
    struct engine_options *given = td->eo;
    char *wanted = describe_board(given);
    int result = wanted ? 0 : -ENOMEM;
    pthread_mutex_lock(&sharing);
    if (wanted && !board) {
        result = start_board(given);
        if (result == 0) {
            board_options = wanted;
            wanted = NULL;
        }
    } else if (wanted && strcmp(board_options, wanted))
        result = complain_of(
            "jobs that share a switchboard have the same sw_cores, sw_preset and sw_knobs");
    free(wanted);
    if (result == 0) {
        job->shared = find_shared(td);
        if (job->shared)
            job->shared->users++;
        else
            result = -EIO;
    }
    end_unused_board();
    pthread_mutex_unlock(&sharing);
    return result;
}

/* Closes it with the last job. */
static void leave_others(struct shared *shared) {
    pthread_mutex_lock(&sharing);
    if (--shared->users == 0) {
        struct shared **place = &all_shared;
        while (*place != shared)
            place = &(*place)->next;
        *place = shared->next;
        sw_close(shared->disk);
        sw_disconnect(shared->target);
        free(shared->name);
        free(shared);
    }
    end_unused_board();
    pthread_mutex_unlock(&sharing);
}

/* Before the fork: the one file of a job is the namespace. */
static int engine_setup(struct thread_data *td) {
    sw_target *target;
    sw_namespace *disk;
    sw_info info = {.size = sizeof info};
    struct engine_options *given = td->eo;

    if (given->switchboard && !td->o.use_thread) {
        complain_of("a switchboard is for threads of one process: add thread=1");
        return 1;
    }
    if ((given->cores || given->preset || given->knobs) && !given->switchboard) {
        complain_of("sw_cores, sw_preset and sw_knobs are of a switchboard: add sw_switchboard=1");
        return 1;
    }
    if (open_disk(td, &target, &disk) < 0)
        return 1;
    int result = sw_namespace_info(disk, &info);
    sw_close(disk);
    sw_disconnect(target);
    if (result < 0)
        return complain("ask for the size", 1);
    if (td->files_index == 0) {
        add_file(td, "switchyard", 0, 0);
        td->o.nr_files = 1;
        td->o.open_files++;
    }
    td->files[0]->filetype = FIO_TYPE_BLOCK;
    td->files[0]->real_file_size = info.bytes;
    fio_file_set_size_known(td->files[0]);
    return 0;
}

/* Whether fio asks for completions as soon as it has nothing else to do. */
static int fills_queue(const struct thread_data *td) {
    const struct thread_options *options = &td->o;
    for (int direction = 0; direction < DDIR_RWDIR_CNT; direction++)
        if (options->rate[direction] || options->rate_iops[direction])
            return 0;
    return !options->thinktime;
}

/* Opens the job's namespace and makes its queue. */
static int open_queue(struct thread_data *td, struct job *job) {
    struct engine_options *given = td->eo;
    sw_queue_options options = {.size = sizeof options, .request_class = given->request_class};
    sw_info info = {.size = sizeof info};
    int result = given->switchboard ? join_others(td, job) : open_disk(td, &job->target, &job->disk);
    if (result < 0)
        return result;
    sw_namespace *disk = job->shared ? job->shared->disk : job->disk;
    result = sw_namespace_info(disk, &info);
    if (result < 0)
        return complain("ask for the limits", result);
    job->piece_bytes = info.max_request_bytes;
    if (job->piece_bytes > td_max_bs(td))
        job->piece_bytes = td_max_bs(td);
    if (given->switchboard) {
        options.switchboard = board;
        options.request_bytes = job->piece_bytes;
        /* More than fio asks for. */
        options.buffer_bytes = (td_max_bs(td) + page_size) * td->o.iodepth + (4 << 20);
    }
    unsigned long long pieces = (td_max_bs(td) + job->piece_bytes - 1) / job->piece_bytes;
    unsigned long long depth = td->o.iodepth * pieces;
    result = sw_queue_create(disk, depth < 4095 ? depth : 4095, &options, &job->queue);
    if (result < 0)
        return complain("make a queue", result);
    result = sw_queue_depth(job->queue);
    if (result < 0)
        return complain("ask for the depth", result);
    job->room = result;
    job->completions = calloc(job->room, sizeof *job->completions);
    return job->completions ? 0 : -ENOMEM;
}

/* The queue first: on another thread than that of the job, the end of which closed it, that is
 * refused. What was not opened is, too. */
static void close_job(struct job *job) {
    sw_queue_destroy(job->queue);
    if (job->shared)
        leave_others(job->shared);
    sw_close(job->disk);
    sw_disconnect(job->target);
    free(job->completions);
    free(job->done);
    free(job);
}

/* After the fork, on the thread of the job. */
static int engine_init(struct thread_data *td) {
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return 1;
    job->done = calloc(td->o.iodepth, sizeof *job->done);
    if (!job->done || open_queue(td, job) < 0) {
        close_job(job);
        return 1;
    }
    job->together = 1;
    if (((struct engine_options *)td->eo)->gather && fills_queue(td))
        job->together = (job->room + 3) / 4;
    td->io_ops_data = job;
    return 0;
}

static void engine_cleanup(struct thread_data *td) {
    if (td->io_ops_data)
        close_job(td->io_ops_data);
    td->io_ops_data = NULL;
}

/* Submits one piece of a request, or the whole of one without data. */
static int submit_piece(struct thread_data *td, struct io_u *io_u, unsigned long long length) {
    struct job *job = td->io_ops_data;
    unsigned long long sent = ((struct progress *)io_u->engine_data)->submitted;
    void *data = (char *)io_u->xfer_buf + sent;
    unsigned long long offset = io_u->offset + sent;

    if (io_u->ddir == DDIR_READ)
        return sw_queue_read(job->queue, data, length, offset, io_u);
    if (io_u->ddir == DDIR_WRITE)
        /* Opened with O_SYNC or O_DSYNC, a file would have each write stable before it is done. */
        return sw_queue_write(job->queue, data, length, offset, td->o.sync_io ? SW_FUA : 0, io_u);
    if (io_u->ddir == DDIR_TRIM)
        return sw_queue_discard(job->queue, offset, length, io_u);
    if (ddir_sync(io_u->ddir))
        return sw_queue_flush(job->queue, io_u);
    return -EOPNOTSUPP;
}

/* Submits what is left of a request. After an error other than -EAGAIN nothing is left. */
static int submit(struct thread_data *td, struct io_u *io_u) {
    struct job *job = td->io_ops_data;
    struct progress *progress = io_u->engine_data;
    int has_data = io_u->ddir == DDIR_READ || io_u->ddir == DDIR_WRITE;

    do {
        unsigned long long length = io_u->xfer_buflen - progress->submitted;
        if (has_data && length > job->piece_bytes)
            length = job->piece_bytes;
        int result = submit_piece(td, io_u, length);
        if (result == -EAGAIN)
            return result;
        if (result < 0) {
            io_u->error = -result;
            progress->submitted = io_u->xfer_buflen;
            return complain("submit", result);
        }
        progress->submitted += length;
        progress->outstanding++;
        job->waiting++;
    } while (has_data && progress->submitted < io_u->xfer_buflen);
    return 0;
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u) {
    struct job *job = td->io_ops_data;
    struct progress *progress = io_u->engine_data;

    if (job->partial)
        return FIO_Q_BUSY;
    progress->submitted = 0;
    progress->outstanding = 0;
    int result = submit(td, io_u);
    if (result == 0 || (result != -EAGAIN && progress->outstanding))
        return FIO_Q_QUEUED;
    if (result != -EAGAIN)
        return FIO_Q_COMPLETED;
    if (progress->outstanding == 0)
        return FIO_Q_BUSY;
    job->partial = io_u;
    return FIO_Q_QUEUED;
}

static int engine_commit(struct thread_data *td) {
    struct job *job = td->io_ops_data;
    if (job->waiting < job->together)
        return 0;
    job->waiting = 0;
    return sw_queue_kick(job->queue);
}

/* Takes completions of pieces. A request is done when all of its pieces are. */
static void take(struct job *job, unsigned int count) {
    for (unsigned int index = 0; index < count; index++) {
        struct io_u *io_u = job->completions[index].user;
        struct progress *progress = io_u->engine_data;
        if (job->completions[index].result < 0 && !io_u->error)
            io_u->error = -job->completions[index].result;
        if (--progress->outstanding == 0 && io_u != job->partial)
            job->done[job->found++] = io_u;
    }
}

/* Submits what is left of the request for which the queue had too little room. */
static void go_on(struct thread_data *td) {
    struct job *job = td->io_ops_data;
    struct io_u *io_u = job->partial;
    if (!io_u || (!io_u->error && submit(td, io_u) == -EAGAIN))
        return;
    job->partial = NULL;
    if (((struct progress *)io_u->engine_data)->outstanding == 0)
        job->done[job->found++] = io_u;
}

/* Whether fio has ended the job, or would for its time if it were asked. */
static int has_ended(const struct thread_data *td) {
    unsigned long long time = td->o.timeout + td->o.ramp_time;
    return td->terminate || (td->o.timeout && utime_since_now(&td->epoch) >= time);
}

/* Gives up what is outstanding, if the job has ended for long enough: the target is gone. */
static void give_up_late(struct thread_data *td) {
    struct job *job = td->io_ops_data;
    struct io_u *io_u;
    int index;
    if (!has_ended(td) || ++job->steps_after_end < STEPS_AFTER_END)
        return;
    io_u_qiter(&td->io_u_all, io_u, index) {
        if (io_u == job->partial)
            io_u->error = ECANCELED;
        if (io_u->flags & IO_U_F_FLIGHT)
            sw_queue_cancel(job->queue, io_u);
    }
}

/* Waits in steps: that fio ends the job is seen between them. Takes all that is done at once, and
 * hands out what fio asks for: by default one at a time. */
static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max,
                            const struct timespec *timeout) {
    struct job *job = td->io_ops_data;
    int64_t limit = timeout ? timeout->tv_sec * 1000000LL + timeout->tv_nsec / 1000 : INT64_MAX;

    job->next += job->handed_out;
    job->handed_out = 0;
    unsigned int here = job->found - job->next;
    int looked = 0;
    while (here < min || (here == 0 && !looked)) {
        memmove(job->done, job->done + job->next, here * sizeof *job->done);
        job->next = 0;
        job->found = here;
        unsigned int missing = min - here;
        int64_t step = missing == 0 ? 0 : limit < STEP_US ? limit : STEP_US;
        job->waiting = 0;
        int count = sw_queue_reap(job->queue, job->completions, missing, job->room, step);
        if (count < 0)
            return complain("wait", count);
        looked = 1;
        take(job, count);
        go_on(td);
        here = job->found;
        if (count > 0 || missing == 0)
            continue;
        limit -= step;
        if (limit <= 0 || sw_queue_outstanding(job->queue) <= 0)
            break;
        give_up_late(td);
    }
    job->handed_out = here < max ? here : max;
    return job->handed_out;
}

static struct io_u *engine_event(struct thread_data *td, int event) {
    struct job *job = td->io_ops_data;
    return job->done[job->next + event];
}

/* fio waits for what it cancels: after an error of the job, all that is outstanding. */
static int engine_cancel(struct thread_data *td, struct io_u *io_u) {
    struct job *job = td->io_ops_data;
    sw_queue_cancel(job->queue, io_u);
    return 1;
}

static int engine_io_u_init(struct thread_data *td, struct io_u *io_u) {
    io_u->engine_data = calloc(1, sizeof(struct progress));
    return io_u->engine_data ? 0 : 1;
}

static void engine_io_u_free(struct thread_data *td, struct io_u *io_u) {
    free(io_u->engine_data);
    io_u->engine_data = NULL;
}

/* fio's memory for all requests of the job, after engine_init: not copied between fio and the queue. */
static int engine_iomem_alloc(struct thread_data *td, size_t bytes) {
    struct job *job = td->io_ops_data;
    void *memory;
    if (sw_buffer_alloc(job->queue, bytes, &memory) < 0)
        return complain("allocate memory for requests", 1);
    td->orig_buffer = memory;
    return 0;
}

static void engine_iomem_free(struct thread_data *td) {
    struct job *job = td->io_ops_data;
    if (job && td->orig_buffer)
        sw_buffer_free(job->queue, td->orig_buffer);
    td->orig_buffer = NULL;
}

static int engine_nothing(struct thread_data *td, struct fio_file *file) {
    return 0;
}

static struct ioengine_ops engine = {
    .name = "switchyard",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
    .setup = engine_setup,
    .init = engine_init,
    .cleanup = engine_cleanup,
    .queue = engine_queue,
    .commit = engine_commit,
    .getevents = engine_getevents,
    .event = engine_event,
    .cancel = engine_cancel,
    .io_u_init = engine_io_u_init,
    .io_u_free = engine_io_u_free,
    .open_file = engine_nothing,
    .close_file = engine_nothing,
    .invalidate = engine_nothing,
    .iomem_alloc = engine_iomem_alloc,
    .iomem_free = engine_iomem_free,
    .options = engine_options,
    .option_struct_size = sizeof(struct engine_options),
};

/* fio asks for the engine by this name. */
void get_ioengine(struct ioengine_ops **ops);
void get_ioengine(struct ioengine_ops **ops) {
    *ops = &engine;
}
