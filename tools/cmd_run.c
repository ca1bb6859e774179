#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/program/server_order.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/early_stop.h"
#include "exec/worker/worker.h"
#include "tools/adapt.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/restart.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct request {
    const char *plan, *trace, *arrivals;
    int launcher;
    struct run_options run;
    struct restart restart;
    struct adapt adapt;
    bool deterministic;
    int64_t seed;
};

/* Share of the samples whose gradients no server has dropped. */
static double applied(const struct program *p, const struct run_result *r)
{
    int64_t all = 0, dropped = 0;
    for (int64_t i = 0; i < r->arrivals.n; i++) {
        const struct arrival *x = &r->arrivals.list[i];
        all += p->stages[x->worker].microbatches;
        dropped += x->dropped ? p->stages[x->worker].microbatches : 0;
    }
    return all ? 1 - (double)dropped / (double)all : 1;
}

/* Unit of throughput: tokens, or images; of applied gradients. */
static double samples_per_s(const struct program *p, const struct run_result *r)
{
    return applied(p, r) * (p->pixels ? r->tokens_per_s / (double)p->sequence_length : r->tokens_per_s);
}

static void print_training(const struct program *p, const struct plan *plan, const struct run_result *r, struct json *json)
{
    struct arena *a = arena_new();
    struct server_counts counts = {0};
    for (int64_t i = 0; i < r->arrivals.n; i++)
        server_order_count(&counts, &p->server, r->arrivals.list[i].staleness, r->arrivals.list[i].dropped);
    if (plan) {
        common_print_training(a, plan, &counts, json);
    } else { /* what a program file states */
        common_print_local_sgd(a, &p->outer, &p->optimizer, program_islands(p), json);
        common_print_servers(a, &p->server, &counts, json);
    }
    arena_free(a);
}

static void print_noise_json(const struct program *p, const struct gradient_noise *x, struct json *j)
{
    json_put_object(j, "gradient_noise");
    json_put_int(j, "steps", x->steps);
    json_put_int(j, "batch", p->microbatches * p->microbatch);
    json_put_double(j, "variance", x->variance);
    json_put_double(j, "square", x->square);
    if (x->scale > 0) {
        json_put_double(j, "scale", x->scale);
        json_put_double(j, "standard_error", x->error);
        json_put_int(j, "recommended_batch", (int64_t)fmax(1, round(x->scale)));
    }
    json_close(j);
}

/* McCandlish et al. 2018, equations 2.11 and 5.1: to reach a loss, B sequences a step take 1 + scale / B times the minimum number of steps,
 * and 1 + B / scale times the minimum number of samples. */
static void print_noise(const struct program *p, const struct gradient_noise *x)
{
    double batch = (double)(p->microbatches * p->microbatch);
    const char *unit = p->pixels ? "images" : "sequences";
    if (!x->steps) {
        printf("  gradient noise scale: no step had finite gradients\n");
    } else if (x->steps < GRADIENT_NOISE_STEPS_MIN) {
        printf("  gradient noise scale: not known after %lld step%s; run %d or more\n", (long long)x->steps, x->steps > 1 ? "s" : "",
               GRADIENT_NOISE_STEPS_MIN);
    } else if (!(x->scale > 0)) {
        printf("  gradient noise scale: not known after %lld steps, because |G|^2 is within two standard errors of 0; run more steps\n",
               (long long)x->steps);
    } else {
        printf("  gradient noise scale %.3g %s, standard error %.2g: the critical batch size (B_simple): at this batch, training needs twice the "
               "minimum number of steps and twice the minimum number of samples\n",
               x->scale, unit, x->error);
        printf("  the batch of %g takes %.3g times the minimum number of steps and %.3g times the minimum number of samples: %s\n", batch,
               1 + x->scale / batch, 1 + batch / x->scale,
               batch > 2 * x->scale   ? "a smaller batch costs few steps and saves training"
               : 2 * batch < x->scale ? "a larger batch, with more replicas, costs little and saves time"
                                      : "it is about right");
    }
}

static void print_json(const struct program *p, const struct plan *plan, const struct run_result *r, struct restart *restart,
                       const struct adapt *adapt)
{
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "plan", p->name);
    json_put_bool(&j, "emulated", p->emulated);
    json_put_bool(&j, "real_time", r->real_time);
    json_put_int(&j, "iteration_ns", r->iteration_ns);
    json_put_int(&j, "first_step", r->first_step);
    json_put_int(&j, "steps", r->steps);
    struct arena *a = arena_new(); /* print_training prints a rate of a rule */
    if (!plan || !optimizer_describe_lr(a, &plan->job.optimizer, plan->job.global_batch)) json_put_double(&j, "learning_rate", p->optimizer.lr);
    arena_free(a);
    print_training(p, plan, r, &j);
    restart_print(restart, &j);
    adapt_print(adapt, &j);
    if (r->n_ended_workers) {
        json_put_list_line(&j, "ended_workers");
        for (int32_t i = 0; i < r->n_ended_workers; i++) json_put_int(&j, NULL, r->ended_workers[i]);
        json_close(&j);
    }
    json_put_list_line(&j, "losses");
    for (int64_t i = 0; i < r->steps; i++) json_put_double(&j, NULL, r->losses[i]);
    json_close(&j);
    if (r->loss_scale > 0) {
        json_put_double(&j, "loss_scale", r->loss_scale);
        json_put_list_line(&j, "skipped");
        for (int64_t i = 0; i < r->n_skipped; i++) json_put_int(&j, NULL, r->skipped[i]);
        json_close(&j);
    }
    if (p->gradient_noise) print_noise_json(p, &r->noise, &j);
    json_put_double(&j, p->pixels ? "images_per_s" : "tokens_per_s", samples_per_s(p, r));
    if (applied(p, r) < 1) json_put_double(&j, "applied", applied(p, r));
    if (r->blas_share > 0) json_put_double(&j, "blas_share", r->blas_share);
    common_json_end(&j);
}

static const char *loss_text(char buffer[32], double loss)
{
    if (isfinite(loss))
        snprintf(buffer, 32, "%.6f", loss);
    else
        snprintf(buffer, 32, "not finite");
    return buffer;
}

static void print_scale(const struct run_result *r)
{
    enum { NAMED = 8 };
    printf("  loss scale %g at the end", r->loss_scale);
    for (int64_t i = 0; i < r->n_skipped && i < NAMED; i++)
        printf("%s%lld", i ? ", " : "; steps skipped because gradients overflowed: ",
               (long long)r->skipped[i]);
    if (r->n_skipped > NAMED) printf(" and %lld more", (long long)r->n_skipped - NAMED);
    putchar('\n');
}

static void print_text(const struct program *p, const struct plan *plan, const struct run_result *r, struct restart *restart,
                       const struct adapt *adapt)
{
    char text[32], first[32], last[32];
    const char *of = r->steps < 2 ? "" : parameter_server_by_arrival(&p->server) ? "mean of each worker's " : "median of ";
    printf("%s: %s per iteration (measured, %s%lld step%s%s), %.0f %s/s%s\n", p->name,
           units_print_ns(text, r->iteration_ns), of, (long long)r->steps, r->steps > 1 ? "s" : "",
           p->emulated ? ", emulated devices" : "", samples_per_s(p, r),
           p->pixels ? "images" : "tokens", applied(p, r) < 1 ? " of applied gradients" : "");
    printf("  loss %s at step %lld, %s at step %lld\n", loss_text(first, r->losses[0]),
           (long long)r->first_step + 1, loss_text(last, r->losses[r->steps - 1]),
           (long long)(r->first_step + r->steps));
    if (r->loss_scale > 0) print_scale(r);
    if (p->gradient_noise) print_noise(p, &r->noise);
    print_training(p, plan, r, NULL);
    for (int32_t i = 0; i < r->n_ended_workers; i++)
        printf(i ? ", %d" : "  workers that ended before the others: %d", (int)r->ended_workers[i]);
    if (r->n_ended_workers) puts("; losses of all steps leave them out");
    restart_print(restart, NULL);
    adapt_print(adapt, NULL);
    if (p->emulated && !r->real_time) log_warn("no real-time priority: measured times are noisier");
}

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
};

struct shared {
    bool printed; /* the object of --json, by rank 0 */
    bool returns; /* a lost node is back, or another plan is taken: the ranks end early and start again */
    struct early_stop stop;
};

static enum status write_outputs(void *owner, struct error *err)
{
    struct outputs *x = owner;
    if (x->shared && x->shared->returns && x->r.first_step + x->r.steps < x->restart->end) return OK; /* a later start prints */
    common_warn_of_period(&x->program->outer, x->r.steps);
    if (x->trace) {
        if (x->plan) x->r.trace->plan_text = common_plan_text(x->a, x->plan);
        TRY(trace_write(x->r.trace, x->trace, err));
    }
    if (x->arrivals) TRY(arrivals_write(x->arrivals, &x->r.arrivals, x->program->plan_hash, x->r.first_step, err));
    if (x->as_json)
        print_json(x->program, x->plan, &x->r, x->restart, x->adapt);
    else
        print_text(x->program, x->plan, &x->r, x->restart, x->adapt);
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

/* SIGINT, SIGTERM and SIGHUP end a run with --save after a step. */
static void stop_early(void *owner)
{
    struct outputs *x = owner;
    early_stop_request(&x->shared->stop, x->program->n_devices);
    log_warn("interrupted: the run ends after this step with a checkpoint; a second signal ends it at once");
}

static void look(void *owner, const pid_t *pid)
{
    struct outputs *x = owner;
    bool back = restart_look(x->restart, x->program, pid);
    if (!adapt_look(x->adapt) && !back) return;
    x->shared->returns = true;
    early_stop_request(&x->shared->stop, x->program->n_devices);
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
    const struct launch_hooks hooks = {.stop = stops ? stop_early : NULL, .look = x->restart->script || x->adapt->mode ? look : NULL};
    restart_start(x->restart);
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
    TRY(adapt_begin(x->adapt, x->restart, x->plan, err));
    while ((status = start_ranks(x, &faults, &failure)) != OK)
        if (!restart_again(x->restart, &faults, &failure, x->plan, x->program, x->options, err)) break;
    restart_end(x->restart);
    return status == OK ? OK : err->code;
}

static struct early_stop alone;
static void stop_alone(int signal_number)
{
    static const char text[] = "musher: interrupted: the run ends after this step with a checkpoint; a second signal ends it at once\n";
    if (alone.requested) raise(SIGQUIT);
    early_stop_request(&alone, 1);
    (void)signal_number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
}

/* A run of one device, in this process. */
static enum status run_alone(struct outputs *x, struct error *err)
{
    struct sigaction old;
    if (x->options->save) {
        sigaction(SIGTERM, NULL, &old);
        sigaction(SIGQUIT, &old, NULL);
        x->options->stop = &alone;
        common_on_end_signals(stop_alone);
    }
    return worker_run(x->a, x->program, x->options, &x->r, err);
}

enum { LAUNCHER_AUTO, LAUNCHER_FORK, LAUNCHER_MPIRUN };
static const char *const adapt_modes[] = {"off", "advise", "on", NULL};
static const char *const launchers[] = {"auto", "fork", "mpirun", NULL};

/* Whether the ranks are forked. */
static enum status choose_launcher(const struct request *q, int32_t n_ranks, bool *forked, struct error *err)
{
    *forked = q->launcher == LAUNCHER_AUTO ? n_ranks <= LOCAL_RANKS_MAX : q->launcher == LAUNCHER_FORK;
    if (*forked && n_ranks > LOCAL_RANKS_MAX)
        return error_set(err, ERR_USAGE, "--launcher fork: this plan has %" PRId32 " devices, at most %d can be forked; use --launcher mpirun", n_ranks,
                         LOCAL_RANKS_MAX);
    if (!*forked && !strcmp(q->plan, "-"))
        return error_set(err, ERR_USAGE, "run -: each of the %" PRId32 " ranks of mpirun reads the plan; pass it as a file", n_ranks);
    return OK;
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
    if (q->run.data == NULL && is_plan) q->run.data = plan.job.data;
    bool needed = q->run.data == NULL && !program.pixels; /* images may be random ones */
    if (needed && is_plan)
        return error_set(err, ERR_USAGE,
                         "no training text: expected --data FILE, or `data:` in the job");
    if (needed && program.plan_hash != 0)
        return error_set(err, ERR_USAGE, "no text to train on: --data FILE");
    if (q->arrivals && !parameter_server_by_arrival(&program.server))
        return error_set(err, ERR_USAGE, "--arrivals: this plan has no parameter server that handles gradients by arrival (mode: ssp or asp)");
    if (launch_rank() == 0) TRY(common_writable(q->trace, err));
    if (launch_rank() == 0) TRY(common_writable(q->arrivals, err));
    bool is_rank = launch_is_rank(), forked = false;
    if (is_rank && program.n_devices > 1 && !strcmp(q->plan, "-"))
        return error_set(err, ERR_USAGE, "run -: each of the %" PRId32 " ranks reads the plan; pass it as a file", program.n_devices);
    if (!is_rank && program.n_devices > 1) TRY(choose_launcher(q, program.n_devices, &forked, err));
    if (q->restart.db && !q->restart.elastic && !q->adapt.mode) return error_set(err, ERR_USAGE, "--db is for the new plans of --elastic and --adapt");
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
    q->run.conclude = write_outputs;
    q->run.owner = &x;
    if (is_rank) return worker_run(a, &program, &q->run, &x.r, err);
    if (q->restart.script && !forked) return error_set(err, ERR_USAGE, "--faults is for several forked ranks (two devices or more, --launcher fork)");
    if (program.n_devices < 2) return run_alone(&x, err);
    if (!forked && q->adapt.mode) return error_set(err, ERR_USAGE, "--adapt is for forked ranks (--launcher fork)");
    if (!forked && q->restart.max) return error_set(err, ERR_USAGE, "--max-restarts is for forked ranks (--launcher fork)");
    return forked ? run_forked(&x, err) : launch_ranks(program.n_devices, common->argv - 1, err);
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
     TEXT_AT(run.data),
     .unit = "FILE",
     .help = "training text, read as bytes, e.g. text.txt",
     .preset = "the job's `data`"},
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
     INT_AT(run.save_every),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .needs = "save",
     .help = "steps between checkpoints, e.g. 50",
     .preset = "0: one at the end"},
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
    {0}};

const struct verb cmd_run = {
    .name = "run",
    .summary = "train a plan on real devices",
    .about =
        "A plan of several devices runs as one process (rank) per device, all on this host. On several hosts mpirun or "
        "srun starts the ranks, one per device, in the order of the cluster's devices.",
    .options = options,
    .examples = {"musher run plan.yaml --steps 20 --data text.txt --trace run.trace",
                 "musher run plan.yaml --resume ckpt --save ckpt --save-every 50",
                 "mpirun -n 4 musher run plan.yaml --data text.txt"},
    REQUEST(.run.save_keep = CHECKPOINTS_KEPT),
    .run = run,
};
