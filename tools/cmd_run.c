#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/clock.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/early_stop.h"
#include "exec/worker/worker.h"
#include "tools/adapt.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/early_end.h"
#include "tools/mpi_hosts.h"
#include "tools/observe.h"
#include "tools/print/run.h"
#include "tools/restart.h"
#include "tools/saves.h"
#include "tools/train_data.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct request {
    const char *plan, *trace, *arrivals, *save_every, *mtbf;
    const char *agent;
    int launcher;
    struct train_data data;
    struct observe observe;
    struct run_options run;
    struct restart restart;
    struct adapt adapt;
    bool deterministic;
    int64_t seed;
};

static enum status load(struct arena *a, const struct request *q, struct plan *plan,
                        struct program *program, bool *is_plan, struct error *err)
{
    *is_plan = !common_is_program(q->plan);
    if (!*is_plan) return program_read(a, q->plan, program, err);
    TRY(common_plan(a, q->plan, plan, err));
    const char *why = common_never_run(a, plan);
    if (why) return error_set(err, ERR_INPUT, "%s: %s", q->plan, why);
    if (q->deterministic && !plan->deterministic)
        for (int32_t r = 0; r < plan->n_replicas; r++) /* sums in order have an algorithm of their own */
            for (int32_t i = 0; i < plan->replicas[r].n_stages; i++) plan->replicas[r].stages[i].all_reduce = ALGORITHM_RING;
    plan->deterministic |= q->deterministic;
    if (q->seed) plan->seed = plan->job.seed = (uint64_t)q->seed;
    return common_lower(a, plan, true, program, err);
}

/* Output of rank 0. */
struct outputs {
    struct arena *a;
    const char *trace, *arrivals; /* NULL: no --trace, no --arrivals */
    struct program *program;
    struct plan *plan; /* NULL: a program was run */
    struct run_options *options;
    struct run_result r;
    bool as_json;
    struct restart *restart;
    struct adapt *adapt;
    struct shared *shared; /* by forked ranks and their parent; else NULL */
    /* CLOCK_MONOTONIC. asked: for the checkpoint of another start, 0: not, or the ranks go on without; again: when to ask again */
    int64_t asked_ns, again_ns;
};

/* While the checkpoint of another start cannot be written, its tries take at most one part in RETRY_PARTS of the time, with a warning every
 * RETRY_NS at most. */
enum { RETRY_PARTS = 20 };
#define RETRY_NS INT64_C(5000000000)

struct shared {
    bool printed; /* the object of --json, by rank 0 */
    bool returns; /* a lost node is back, or another plan is taken: the ranks end early and start again */
    struct early_stop stop;
};

/* With --continue: the checkpoint has all steps, and nothing was run. */
static enum status print_complete(struct outputs *x, struct error *err)
{
    struct json j;
    if (x->as_json) {
        common_json_begin(&j);
        json_put_text(&j, "plan", x->program->name);
        json_put_int(&j, "first_step", x->r.first_step);
        json_put_list(&j, "losses");
        json_close(&j);
        common_json_end(&j);
    } else {
        printf("%s: the training is complete: the checkpoint in %s is of step %" PRId64 "\n", x->program->name, x->options->save, x->r.first_step);
    }
    enum status status = common_flush(err);
    if (x->shared && x->as_json && status == OK) x->shared->printed = true;
    return status;
}

static enum status write_outputs(void *owner, struct error *err)
{
    struct outputs *x = owner;
    if (x->shared && x->shared->returns && x->r.first_step + x->r.steps < x->restart->end) return OK; /* a later start prints */
    if (!x->r.steps) return print_complete(x, err);
    common_warn_of_period(&x->program->outer, x->r.steps);
    if (x->trace) {
        if (x->plan) x->r.trace->plan_text = common_plan_text(x->a, x->plan);
        if (x->shared) restart_trace(x->restart, x->r.trace);
        if (x->shared) adapt_trace(x->adapt, x->r.trace);
        TRY(trace_write(x->r.trace, x->trace, err));
    }
    if (x->arrivals) TRY(arrivals_write(x->arrivals, &x->r.arrivals, x->program->plan_hash, x->r.first_step, err));
    const struct run_report report = {x->program, x->plan, &x->r, x->options, x->restart, x->adapt};
    if (x->as_json)
        print_run_json(&report);
    else
        print_run(&report);
    errno = 0;
    enum status status = common_flush(err);
    if (x->shared && x->as_json && status == OK) x->shared->printed = true;
    if (x->shared && errno == EPIPE) return OK;
    return status != OK && x->trace ? error_wrap(err, status, "the trace %s is complete", x->trace) : status;
}

static int run_rank(void *owner, int32_t rank)
{
    struct outputs *x = owner;
    struct error err = {0};
    (void)rank;
    signal(SIGPIPE, SIG_IGN); /* a reader that has closed ends no rank, so that the others complete their files */
    enum status status = worker_run(x->a, x->program, x->options, &x->r, &err);
    if (status != OK) (void)launch_report(&err);
    return (int)status;
}

/* SIGINT, SIGTERM, SIGHUP and SIGUSR1 end a run with --save after a step. */
static void stop_early(void *owner)
{
    struct outputs *x = owner;
    early_stop_request(&x->shared->stop, x->program->n_devices, true);
    x->shared->returns = false; /* no other start follows, and this one prints */
    log_warn("interrupted: the run ends after this step with a checkpoint; a second signal ends it at once");
}

static int64_t look(void *owner, const pid_t *pid)
{
    struct outputs *x = owner;
    int64_t due_ns, now_ns = clock_wall_ns();
    bool leaves = restart_look(x->restart, x->program, pid, &due_ns), asks = adapt_look(x->adapt) || leaves;
    if (!asks && x->shared->returns && !early_stop_requested(&x->shared->stop)) {
        if (x->asked_ns) {
            int64_t pause_ns = RETRY_PARTS * (now_ns - x->asked_ns);
            x->again_ns = now_ns + (pause_ns > RETRY_NS ? pause_ns : RETRY_NS);
            x->asked_ns = 0;
            adapt_postpone(x->adapt, true);
        }
        asks = now_ns >= x->again_ns;
        if (asks) adapt_postpone(x->adapt, false);
    }
    if (!asks) return due_ns;
    x->asked_ns = now_ns;
    x->shared->returns = true;
    early_stop_request(&x->shared->stop, x->program->n_devices, false);
    return due_ns;
}

/* With ssp and asp, rank 0 is a server, whose results are printed even if a worker has ended. */
static enum status start_ranks(struct outputs *x, struct launch_faults *faults, struct error *err)
{
    const struct program *p = x->program;
    bool by_arrival = parameter_server_by_arrival(&p->server), stops = x->options->save && !by_arrival;
    void *shared = mmap(NULL, sizeof *x->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return error_set(err, ERR_RESOURCE, "cannot share memory with the ranks: %s", strerror(errno));
    x->shared = shared;
    if (stops) x->options->stop = &x->shared->stop;
    const struct launch_hooks hooks = {.stop = stops ? stop_early : NULL, .look = restart_watches(x->restart) || x->adapt->shared ? look : NULL};
    restart_start(x->restart, p);
    adapt_start(x->adapt, x->plan, p, x->options);
    enum status status = launch_local_run(p->n_devices, by_arrival ? p->server.n : p->n_devices, run_rank, &hooks, x, faults, err);
    adapt_end(x->adapt);
    if (x->shared->printed) common_json_by_another();
    munmap(shared, sizeof *x->shared);
    return status;
}

static enum status run_forked(struct outputs *x, struct error *err)
{
    struct launch_faults faults;
    struct error failure;
    enum status status;
    x->restart->counts = x->adapt->mode;
    TRY(restart_begin(x->restart, x->plan, x->program, x->options, err));
    TRY(restart_memory_begin(&x->restart->memory, x->program, x->plan ? x->restart->plan.cluster.n_devices : x->program->n_devices, x->options, err));
    TRY(adapt_begin(x->adapt, x->restart, x->plan, err));
    x->options->survives |= x->adapt->mode == ADAPT_ON;
    while ((status = start_ranks(x, &faults, &failure)) != OK)
        if (!restart_again(x->restart, &faults, &failure, x->plan, x->program, x->options, err)) break;
    adapt_store(x->adapt);
    restart_memory_end(&x->restart->memory);
    restart_end(x->restart);
    return status == OK ? OK : err->code;
}

enum { LAUNCHER_AUTO, LAUNCHER_FORK, LAUNCHER_MPIRUN };
static const char *const adapt_modes[] = {"off", "advise", "on", NULL};
static const char *const save_modes[] = {"async", "sync", NULL}; /* enum save_mode */
static const char *const launchers[] = {"auto", "fork", "mpirun", NULL};

/* Whether the ranks are forked. */
static enum status choose_launcher(const struct request *q, int32_t n_ranks, bool *forked, struct error *err)
{
    if (q->agent && q->launcher == LAUNCHER_FORK) return error_set(err, ERR_USAGE, "--agent starts ranks through mpirun; leave --launcher fork out");
    *forked = q->agent ? false : q->launcher == LAUNCHER_AUTO ? n_ranks <= LOCAL_RANKS_MAX : q->launcher == LAUNCHER_FORK;
    if (*forked && n_ranks > LOCAL_RANKS_MAX)
        return error_set(err, ERR_USAGE, "--launcher fork: this plan has %" PRId32 " devices, at most %d can be forked; use --launcher mpirun", n_ranks,
                         LOCAL_RANKS_MAX);
    if (!*forked && !strcmp(q->plan, "-"))
        return error_set(err, ERR_USAGE, "run -: each of the %" PRId32 " ranks of mpirun reads the plan; pass it as a file", n_ranks);
    return OK;
}

/* On this host, or with an agent on the hosts of the program's devices. */
static enum status run_by_mpirun(struct arena *a, const struct request *q, const struct program *p, char *const *argv, struct error *err)
{
    struct launch_hosts on = {0};
    if (q->agent) TRY(mpi_hosts_write(a, p, q->agent, &on, err));
    enum status st = launch_ranks(p->n_devices, q->agent ? &on : NULL, argv, q->run.save != NULL, err);
    mpi_hosts_remove(&on);
    return st;
}

static enum status run(struct arena *a, void *request, const struct common *common,
                       struct error *err)
{
    struct request *q = request;
    bool as_json = common->json;
    struct plan plan;
    struct program program;
    bool is_plan = false;
    q->seed = common->seed;
    TRY(common_not_stdout(as_json, "--trace", q->trace, err));
    TRY(common_not_stdout(as_json, "--arrivals", q->arrivals, err));
    if (q->run.keep_kernels && !q->trace)
        return error_set(err, ERR_USAGE,
                         "--kernels needs --trace FILE, which receives the kernels");
    if (q->trace && q->run.resume && file_within(q->trace, q->run.resume))
        return error_set(err, ERR_USAGE,
                         "--trace %.200s would be written into the checkpoints of --resume %.200s",
                         q->trace, q->run.resume);
    TRY(load(a, q, &plan, &program, &is_plan, err));
    TRY(saves_choose(a, q->save_every, q->mtbf, program.n_devices, &q->run, err));
    TRY(train_data_choose(a, &q->data, &program, is_plan ? &plan : NULL, &q->run, err));
    if (q->arrivals && !parameter_server_by_arrival(&program.server))
        return error_set(err, ERR_USAGE, "--arrivals: this plan has no parameter server that handles gradients by arrival (mode: ssp or asp)");
    TRY(observe_check(&q->observe, &program, &q->run, err));
    if (launch_rank() == 0) TRY(common_writable(q->trace, err));
    if (launch_rank() == 0) TRY(common_writable(q->arrivals, err));
    bool is_rank = launch_is_rank(), forked = false;
    if (is_rank && program.n_devices > 1 && !strcmp(q->plan, "-"))
        return error_set(err, ERR_USAGE, "run -: each of the %" PRId32 " ranks reads the plan; pass it as a file", program.n_devices);
    if (!is_rank && program.n_devices > 1) TRY(choose_launcher(q, program.n_devices, &forked, err));
    if (q->restart.db && !q->restart.elastic && !q->adapt.mode) return error_set(err, ERR_USAGE, "--db is for the new plans of --elastic and --adapt");
    if (q->restart.db && is_plan) { /* not at the first failure */
        struct profile profile;
        TRY(common_profile(a, &plan.cluster, q->restart.db, 0, &profile, err));
    }
    if (q->adapt.mode == ADAPT_ON && !q->run.save) return error_set(err, ERR_USAGE, "--adapt on stops with a checkpoint: pass --save DIR, or --adapt advise");
    if (q->run.steps == 0) q->run.steps = program.steps > 1 ? program.steps : 10;
    q->run.keep_trace = q->trace != NULL;
    struct outputs x = {.a = a,
                        .trace = q->trace,
                        .arrivals = q->arrivals,
                        .program = &program,
                        .plan = is_plan ? &plan : NULL,
                        .options = &q->run,
                        .restart = &q->restart,
                        .adapt = &q->adapt,
                        .as_json = as_json};
    q->restart.a = a;
    q->observe.a = a;
    if (!parameter_server_by_arrival(&program.server))
        q->run.observer = observe_with(&q->observe, &program, is_plan ? &plan : NULL, !is_rank && (forked || program.n_devices < 2));
    q->run.conclude = write_outputs;
    q->run.owner = &x;
    if (is_rank && (q->adapt.mode || q->restart.max || q->restart.script))
        return error_set(err, ERR_USAGE, "--adapt, --faults and --max-restarts are for forked ranks, not for those of mpirun or srun");
    if (is_rank) {
        early_end_rank(&q->run);
        return worker_run(a, &program, &q->run, &x.r, err);
    }
    if (q->restart.script && !forked) return error_set(err, ERR_USAGE, "--faults is for several forked ranks (two devices or more, --launcher fork)");
    if (!forked && q->adapt.mode) return error_set(err, ERR_USAGE, "--adapt is for forked ranks (two devices or more, --launcher fork)");
    if (!forked && q->run.memory_every) return error_set(err, ERR_USAGE, "--memory-every is for several forked ranks (two devices or more, --launcher fork)");
    if (program.n_devices < 2) {
        early_end_alone(&q->run);
        return worker_run(a, &program, &q->run, &x.r, err);
    }
    if (!forked && q->restart.max) return error_set(err, ERR_USAGE, "--max-restarts is for forked ranks (--launcher fork)");
    enum status status = forked ? run_forked(&x, err) : run_by_mpirun(a, q, &program, common->argv - 1, err);
    if (status != OK && q->run.save) checkpoint_clear(q->run.save);
    return status;
}

static const struct option options[] = {
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, or a program file of lower"},
    {.name = "steps",
     INT_AT(run.steps),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .help = "number of optimizer steps, e.g. 100",
     .preset = "0: the plan's `steps` if above 1, else 10"},
    {.name = "data",
     TEXT_AT(data.data),
     .unit = "FILE",
     .help = "training data, e.g. text.txt or train.bin",
     .preset = "the job's `data`"},
    {.name = "init",
     TEXT_AT(data.init),
     .unit = "DIR",
     .help = "weights that a new training starts from: a folder as transformers writes it, or a checkpoint, e.g. gpt2",
     .preset = "the job's `init`, or random ones"},
    {.name = "data-form",
     CHOICE_AT(data.form),
     .choices = data_form_names,
     .help = "layout of --data; auto: from the file's magic number, else bytes",
     .preset = "auto"},
    {.name = "validation",
     TEXT_AT(data.validation),
     .unit = "PART",
     .help = "validation samples, which training never reads: a file of the same form, or a fraction of the data, e.g. 0.05",
     .preset = "the job's `validation`"},
    {.name = "eval-every",
     INT_AT(run.eval_every), .unit = "N", .min = 1, .max = 1e9,
     .help = "steps between evaluations on the validation samples, e.g. 100; one comes after the last step. With --save the checkpoint with the lowest "
             "validation loss is kept too",
     .preset = "none"},
    {.name = "eval-batches",
     INT_AT(run.eval_batches), .unit = "N", .min = 1, .max = 1e9, .needs = "eval-every",
     .help = "most global batches of an evaluation, e.g. 20",
     .preset = "all whole ones of the validation samples"},
    {.name = "log",
     TEXT_AT(observe.log),
     .unit = "FILE",
     .writes = true,
     .help = "log with an object (a line) for each step and each evaluation, e.g. run.jsonl; a resumed run goes on with it"},
    {.name = "tensorboard",
     TEXT_AT(observe.tensorboard),
     .unit = "DIR",
     .help = "folder for a TensorBoard event file of the same numbers, e.g. events"},
    {.name = "trace",
     TEXT_AT(trace),
     .unit = "TRACE",
     .writes = true,
     .help = "trace file to write, e.g. run.trace; compressed if it ends in .gz"},
    {.name = "arrivals",
     TEXT_AT(arrivals),
     .unit = "LOG",
     .writes = true,
     .help = "file for the order in which parameter servers handled gradients, e.g. run.arrivals"},
    {.name = "replay",
     TEXT_AT(run.replay),
     .unit = "LOG",
     .help = "handle gradients in the order of a file of --arrivals: the same bits as that run"},
    {.name = "kernels",
     FLAG_AT(run.keep_kernels),
     .help = "record the CUDA kernels of each operator in the trace, by CUPTI; show TRACE lists them"},
    {.name = "save", TEXT_AT(run.save), .unit = "DIR", .help = "folder for checkpoints, e.g. ckpt"},
    {.name = "save-every",
     TEXT_AT(save_every),
     .unit = "N",
     .needs = "save",
     .help = "steps between checkpoints, e.g. 50; auto: by Daly's formula from their measured cost",
     .preset = "0: one at the end"},
    {.name = "save-mode",
     CHOICE_AT(run.save_mode),
     .unit = "NAME",
     .choices = save_modes,
     .needs = "save-every",
     .help = "how checkpoints between steps are written: async (a copy in host memory is written while training goes on), or sync"},
    {.name = "memory-every",
     INT_AT(run.memory_every),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .needs = "max-restarts",
     .help = "steps between checkpoints in host memory, which another node has a copy of (Gemini) and restarts prefer, e.g. 5",
     .preset = "0: none"},
    {.name = "mtbf",
     TEXT_AT(mtbf),
     .unit = "TIME",
     .needs = "save-every",
     .help = "mean time between failures of the whole job for --save-every auto, e.g. 12h",
     .preset = "that of as many of Llama 3's GPUs"},
    {.name = "keep",
     INT_AT(run.save_keep),
     .unit = "N",
     .min = 1,
     .max = CHECKPOINTS_KEPT_MAX,
     .needs = "save",
     .help = "checkpoints kept in the folder of --save; older ones of this run are removed"},
    {.name = "resume",
     TEXT_AT(run.resume),
     .unit = "DIR",
     .help = "folder whose newest checkpoint the run starts from; it may be of another plan"},
    {.name = "continue",
     FLAG_AT(run.continues),
     .needs = "save",
     .excludes = "resume",
     .help = "start from the newest checkpoint of --save if there is one; --steps then counts the "
             "steps before it too"},
    {.name = "any-host",
     FLAG_AT(run.any_host),
     .help = "take the hosts on which the ranks were started, in the order of the plan's nodes, in "
             "place of those that the plan names"},
    {.name = "deterministic",
     FLAG_AT(deterministic),
     .help = "sum gradients in the global order of microbatches: bitwise equal results for every "
             "plan, at the cost of a serial reduction"},
    {.name = "max-restarts",
     INT_AT(restart.max),
     .unit = "N",
     .min = 0,
     .max = 1e6,
     .needs = "save",
     .help = "times that all ranks start again from the newest checkpoint after a rank has failed, e.g. 3"},
    {.name = "elastic",
     FLAG_AT(restart.elastic),
     .needs = "max-restarts",
     .help = "plan again without the devices of the ranks that failed, before they start again"},
    {.name = "hostfile",
     TEXT_AT(restart.hostfile),
     .unit = "FILE",
     .needs = "elastic",
     .help = "file with the nodes and devices of the plan's cluster that the run may use, one a line; another program writes it anew when they change: "
             "a device that it no longer lists is left out, one that it lists is taken in if that pays, e.g. hosts.txt",
     .preset = "all of the cluster's"},
    {.name = "min-devices",
     INT_AT(restart.min_devices),
     .unit = "N",
     .min = 1,
     .max = LOCAL_RANKS_MAX,
     .needs = "elastic",
     .help = "number of devices below which the run ends in place of starting again, with its checkpoint and exit code 75, e.g. 4"},
    {.name = "max-lost",
     TEXT_AT(restart.max_lost),
     .unit = "TIME",
     .needs = "max-restarts",
     .help = "time that failures may take in all (steps lost, detection, planning, launch and load): after the failure that exceeds it the run ends with "
             "its checkpoint and exit code 75, e.g. 30min",
     .preset = "no limit"},
    {.name = "db",
     TEXT_AT(restart.db),
     .unit = "DB",
     .help = "profile database for the new plans of --elastic and --adapt, e.g. profiles.db",
     .preset = "costs estimated from the device catalogue"},
    {.name = "adapt",
     CHOICE_AT(adapt.mode),
     .unit = "MODE",
     .choices = adapt_modes,
     .help = "name devices and links that become slower or faster; on: take a new plan if its predicted gain exceeds the time of a change; advise: "
             "only print it",
     .preset = "off"},
    {.name = "faults",
     TEXT_AT(restart.script),
     .unit = "FILE",
     .help = "fault script whose faults are injected, e.g. faults.yaml"},
    {.name = "launcher",
     CHOICE_AT(launcher),
     .unit = "NAME",
     .choices = launchers,
     .help = "how the ranks of this host start: fork (joined by shared memory), or mpirun (MPI)",
     .preset = "auto: fork up to 64 devices"},
    {.name = "agent",
     TEXT_AT(agent),
     .unit = "COMMAND",
     .help = "command that starts a program on the `host:` of a node, e.g. ssh or \"ssh -p 2222\": mpirun starts the ranks there; every host has "
             "this program and the files of the other options under the same names",
     .preset = "none: all ranks run on this host"},
    {0}};

const struct verb cmd_run = {
    .name = "run",
    .summary = "train a plan on real devices",
    .about =
        "A plan of several devices runs as one process (rank) per device, all on this host, or with --agent on the plan's hosts. Under mpirun or "
        "srun these start the ranks, one per device, in the order of the plan's replicas, stages and their devices.",
    .options = options,
    .examples = {"musher run plan.yaml --steps 20 --data text.txt --trace run.trace",
                 "musher run plan.yaml --resume ckpt --save ckpt --save-every 50",
                 "# on the hosts of the plan's nodes",
                 "musher run plan.yaml --agent ssh --data text.txt"},
    REQUEST(.run.save_keep = CHECKPOINTS_KEPT, .save_every = "0", .restart.min_devices = 1),
    .run = run,
};
