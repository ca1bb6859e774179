/* exec/worker.c - one rank's run from its first look at the program to the result.
 *
 * Order of life: join the other ranks; look whether this host and device can run the lane; memory,
 * first values or a checkpoint; agree on when time is 0; step after step (worker_steps.c) while the
 * communication thread (worker_mover.c) moves messages; gather spans and losses on rank 0.
 * Until time 0 an error is agreed upon: every rank returns the same one. Later there is no such
 * moment: a rank that fails says why and ends all ranks, because others may wait for it for ever.
 *
 * Emulated devices. All ranks are on this host. The compute thread's clock is virtual (clock.h),
 * messages carry virtual instants (worker_wire.h), and the thread sleeps until the wall has come to
 * its virtual time before it hands anything over and at the end of each call. Steps are measured in
 * wall time. While a checkpoint is written the run's clock stands still.
 */
#include "exec/checkpoint.h"
#include "exec/worker_internal.h"

#include "core/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_DELAY_NS                                                                             \
    20000000 /* from the barrier to time 0: long enough for every rank to be asleep */
#define PRIORITY 1

/* ---- can this be run here? --------------------------------------------------------------------
 */

static bool same_host(const char *wanted)
{
    char here[256] = "";
    if (!wanted || !*wanted || !strcmp(wanted, "localhost")) return true;
    gethostname(here, sizeof here - 1);
    size_t n = strcspn(here, ".");
    return !strcmp(here, wanted) ||
           (!strncmp(here, wanted, n) && (wanted[n] == 0 || wanted[n] == '.'));
}

static enum status check_device(const struct worker *w, struct error *err)
{
    const struct program_device *d = &w->p->devices[w->rank];
    char here[256] = "";
    gethostname(here, sizeof here - 1);
    if (!same_host(d->host))
        return error_set(err, ERR_INPUT,
                         "device %s is on host '%s', but rank %" PRId32 " runs on '%s'", d->name,
                         d->host, w->rank, here);
    if (strcmp(d->kind, "host") != 0)
        return error_set(err, ERR_INPUT, "device %s is of kind '%s'; this build runs 'host'",
                         d->name, d->kind);
    if (w->p->emulated && !comm_one_host(w->comm))
        return error_set(err, ERR_INPUT, "emulated devices must all be on one host");
    return OK;
}

/* What the system could still give without swapping; all that it has where it does not say. */
static int64_t memory_here(void)
{
    int64_t kib = -1;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNd64, &kib) != 1) kib = -1;
    if (f) fclose(f);
    return kib >= 0 ? kib * 1024 : (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

/* All devices of this rank's host together, before any of them allocates. */
static enum status check_memory(const struct worker *w, struct error *err)
{
    const struct program *p = w->p;
    const char *host = p->devices[w->rank].host;
    int64_t needed = 0, there = memory_here();
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        const char *other = p->devices[i].host;
        if (!p->emulated && i != w->rank && (!host || !other || strcmp(host, other) != 0)) continue;
        n++;
        if (__builtin_add_overflow(needed, program_lane_bytes(p, i), &needed)) needed = INT64_MAX;
    }
    if (needed <= there) return OK;
    return error_set(err, ERR_RESOURCE,
                     "%" PRId32 " device%s on this host need%s %" PRId64
                     " bytes of memory; %" PRId64 " are available",
                     n, n == 1 ? "" : "s", n == 1 ? "s" : "", needed, there);
}

static enum status check_inputs(const struct worker *w, const struct program_stage *s,
                                struct error *err)
{
    for (int32_t i = 0; w->o->data && i < s->n_slots; i++)
        if (s->slots[i].input >= 0 && !input_is_of_pictures(s->slots[i].input) &&
            shape_last(&s->slots[i].shape) != w->p->sequence_length)
            return error_set(err, ERR_INPUT, "input %s is not of the program's sequence length",
                             s->slots[i].name);
    return OK;
}

static enum status check_kernels(const struct program_stage *s, struct error *err)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        if (op_is_measured(s->ops[i].kind))
            return error_set(err, ERR_INPUT,
                             "%s: layers that were only measured have no kernels: this program is "
                             "simulated, not run",
                             s->ops[i].name);
    return OK;
}

/* Whole tensors go into checkpoints, and parts of them stand on several ranks. */
static enum status check_divided(const struct worker *w, const struct program_stage *s,
                                 struct error *err)
{
    for (int32_t i = 0; i < s->n_parameters && (w->o->save || w->o->resume); i++)
        if (s->parameters[i].shard)
            return error_set(err, ERR_INPUT,
                             "parameter %s: its optimizer state is divided over replicas (zero); "
                             "checkpoints of such a plan are neither written nor read yet",
                             s->parameters[i].name);
    return OK;
}

static enum status check_program(const struct worker *w, struct error *err)
{
    for (int32_t i = 0; i < w->n_chunks; i++) TRY(check_divided(w, w->chunks[i].stage, err));
    if (w->p->uneven)
        return error_set(err, ERR_INPUT,
                         "its devices are different numbers of cards that share every operator: "
                         "such a plan is simulated, never run");
    for (int32_t i = 0; i < w->n_chunks; i++) TRY(check_inputs(w, w->chunks[i].stage, err));
    for (int32_t i = 0; i < w->n_chunks; i++) TRY(check_kernels(w->chunks[i].stage, err));
    for (int32_t i = 0; w->p->emulated && i < w->p->n_links; i++)
        if (w->p->links[i].n_hops)
            return error_set(err, ERR_INPUT,
                             "route %s goes through switches; those of an emulated cluster are "
                             "simulated only",
                             w->p->links[i].name);
    for (int32_t i = 0; i < w->p->n_channels; i++)
        if (w->p->channels[i].bytes > INT32_MAX)
            return error_set(err, ERR_INPUT,
                             "channel %" PRId32 ": a message of %" PRId64
                             " bytes; at most 2 GiB are moved at once",
                             i, w->p->channels[i].bytes);
    for (int32_t i = 0; i < w->p->n_groups; i++) {
        const struct group *g = &w->p->groups[i];
        if (g->dtype != DTYPE_fp32 && g->dtype != DTYPE_fp64)
            return error_set(err, ERR_INPUT, "group %s is %s; the executor sums fp32 and fp64",
                             g->name, dtype_name(g->dtype));
        if (group_incoming_bytes(g) > INT32_MAX)
            return error_set(err, ERR_INPUT,
                             "group %s: more than 2 GiB at once; use smaller buckets", g->name);
    }
    return OK;
}

/* Emulated devices compute for real, one after the other where cores are few: beyond this share of
 * the cores the wall falls behind the virtual clocks. */
static void warn_if_crowded(const struct worker *w)
{
    const double share = 0.8;
    double busy = 0, cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    for (int32_t i = 0; w->p->emulated && i < w->p->n_devices; i++)
        if (w->p->devices[i].slowdown > 0) busy += 1 / w->p->devices[i].slowdown;
    if (busy > share * cores)
        log_warn(
            "the emulated devices together are %.1f times a core of this machine, which has %.0f; "
            "measured times will be too long",
            busy, cores);
}

/* ---- before time 0 ----------------------------------------------------------------------------
 */

static enum status open_data(struct worker *w, struct error *err)
{
    const struct program *p = w->p;
    if (p->pixels)
        return data_open_pictures(w->o->data, p->seed, p->pixels, p->vocabulary, &w->data, err);
    return data_open(w->o->data, p->seed, p->sequence_length, p->vocabulary, &w->data, err);
}

static enum status open_mine(struct worker *w, struct error *err)
{
    TRY(check_device(w, err));
    TRY(check_program(w, err));
    backend_host(&w->backend);
    TRY(w->backend.open(&w->backend, w->p->devices[w->rank].index, err));
    w->backend_open = true;
    TRY(open_data(w, err));
    for (int32_t i = 0; i < w->n_chunks; i++) {
        struct chunk *k = &w->chunks[i];
        TRY(lane_memory_open(&k->memory, w->run, w->p, k->index, &w->backend, err));
        if (!w->o->resume) TRY(lane_memory_init(&k->memory, w->p->seed, err));
    }
    return OK;
}

static enum status open_shared(struct worker *w, struct error *err)
{
    void *shared = NULL;
    int64_t bytes = wires_shared_bytes(w->p);
    if (bytes && comm_size(w->comm) > 1) TRY(comm_share(w->comm, bytes, &shared, err));
    mover_init(&w->mover, w->moving, w->p, w->comm, shared, w->o->keep_trace);
    w->mover_made = true;
    worker_prepare(w);
    return OK;
}

/* What is loaded at once: a sequence, or a picture. */
static int64_t row_bytes(const struct slot *s)
{
    int64_t rows = input_is_of_pictures(s->input) ? s->shape.dim[0] : shape_rows(&s->shape);
    return rows ? s->bytes / rows : 0;
}

static void find_chunks(struct worker *w)
{
    const struct lane *lane = &w->p->lanes[w->rank];
    w->n_chunks = lane->n_stages;
    w->chunks = ARENA_ARRAY(w->run, struct chunk, (size_t)lane->n_stages);
    for (int32_t i = 0; i < lane->n_stages; i++) {
        struct chunk *k = &w->chunks[i];
        k->index = lane->stages[i];
        k->stage = &w->p->stages[k->index];
        for (int32_t s = 0; s < k->stage->n_slots; s++) {
            const struct slot *slot = &k->stage->slots[s];
            int64_t bytes = slot->input >= 0 ? row_bytes(slot) : 0;
            if (bytes > w->longest_bytes) w->longest_bytes = bytes;
        }
    }
    w->row = ARENA_ARRAY(w->run, double, (size_t)w->longest_bytes / sizeof(double) + 1);
}

static enum status set_up(struct worker *w, struct error *err)
{
    TRY(comm_open(w->run, w->p->n_devices, &w->comm, err));
    w->rank = comm_rank(w->comm);
    find_chunks(w);
    TRY(comm_agree(w->comm, check_memory(w, err), err));
    TRY(comm_agree(w->comm, open_mine(w, err), err));
    if (w->rank == 0) warn_if_crowded(w);
    w->global_batch = w->p->microbatches * w->p->microbatch;
    if (w->rank == 0 && (w->o->save || w->o->resume)) w->data_crc = data_crc(&w->data);
    if (w->o->resume) TRY(worker_resume(w, err));
    if (w->o->save) TRY(worker_lock(w, err));
    const struct optimizer *x = &w->p->optimizer;
    w->optimizer = (struct optimizer_step){x->lr, x->beta1, x->beta2, x->eps, x->weight_decay, 0};
    w->losses = ARENA_ARRAY(w->a, double, (size_t)(w->o->steps * w->p->microbatches) + 1);
    w->step_end_ns = ARENA_ARRAY(w->run, int64_t, (size_t)w->o->steps + 1);
    if (w->o->keep_trace) w->spans.a = arena_new();
    return open_shared(w, err);
}

/* ---- time -------------------------------------------------------------------------------------
 */

/* All ranks agree on the instant at which the run's clock shows now_ns. */
static int64_t agree_on_zero(struct worker *w, int64_t offset_ns, int64_t now_ns)
{
    int64_t zero = 0;
    comm_barrier(w->comm);
    if (w->rank == 0) zero = clock_wall_ns() + START_DELAY_NS - now_ns;
    comm_broadcast(w->comm, &zero, sizeof zero);
    return zero + offset_ns;
}

static void take_priority(struct worker *w, bool wanted)
{
    if (!w->p->emulated) return;
    bool granted = clock_real_time(wanted, PRIORITY);
    if (wanted) w->real_time = granted;
}

/* The run's clock stands still while everybody writes. */
static enum status save_between(struct worker *w, int64_t offset_ns, struct error *err)
{
    TRY(mover_pause(&w->mover, err));
    take_priority(w, false);
    int64_t now_ns = comm_max(w->comm, device_clock_now(&w->clock));
    enum status status = worker_save(w, w->first_step + w->step + 1, err);
    w->clock.zero_ns = agree_on_zero(w, offset_ns, now_ns);
    mover_resume(&w->mover, w->clock.zero_ns);
    take_priority(w, true);
    device_clock_waited(&w->clock, 0);
    clock_sleep_until(w->clock.zero_ns + now_ns);
    return status;
}

static enum status run_steps(struct worker *w, int64_t offset_ns, struct error *err)
{
    for (w->step = 0; w->step < w->o->steps; w->step++) {
        TRY(worker_step(w, err));
        if (w->rank == 0) log_progress("step %" PRId64 " of %" PRId64, w->step + 1, w->o->steps);
        bool last = w->step + 1 == w->o->steps;
        if (w->o->save && !last && w->o->save_every > 0 && (w->step + 1) % w->o->save_every == 0)
            TRY(save_between(w, offset_ns, err));
    }
    return OK;
}

static enum status train(struct worker *w, struct error *err)
{
    int64_t offset_ns = comm_clock_offset(w->comm), zero_ns = agree_on_zero(w, offset_ns, 0);
    w->mover.wires.zero_ns = zero_ns;
    TRY(mover_start(&w->mover, err));
    clock_sleep_sharply();
    take_priority(w, true);
    worker_post_first(w);
    clock_sleep_until(zero_ns);
    device_clock_start(&w->clock, w->p->devices[w->rank].slowdown, zero_ns);
    w->cpu_start_ns = clock_cpu_ns();
    enum status status = run_steps(w, offset_ns, err);
    w->cpu_ns = clock_cpu_ns() - w->cpu_start_ns;
    take_priority(w, false);
    return status;
}

/* ---- afterwards -------------------------------------------------------------------------------
 */

static void report(struct worker *w, struct run_result *out)
{
    const struct program *p = w->p;
    double blas_s = w->backend.blas_seconds ? w->backend.blas_seconds(&w->backend) : -1;
    bool granted = w->real_time && (!w->mover.threaded || w->mover.real_time);
    const struct span_list lists[] = {w->spans, w->mover.spans};
    *out = (struct run_result){.first_step = w->first_step, .steps = w->o->steps};
    out->real_time = p->emulated && !comm_max(w->comm, !granted);
    out->blas_share = w->cpu_ns > 0 && blas_s >= 0 ? blas_s * 1e9 / (double)w->cpu_ns : -1;
    comm_sum(w->comm, w->losses, w->o->steps * p->microbatches);
    struct trace *t = spans_gather(w->a, w->comm, p, lists, 2, w->step_end_ns, w->o->steps);
    out->losses = ARENA_ARRAY(w->a, double, (size_t)w->o->steps + 1);
    for (int64_t s = 0; s < w->o->steps; s++) {
        for (int32_t m = 0; m < p->microbatches; m++)
            out->losses[s] += w->losses[s * p->microbatches + m];
        out->losses[s] /= p->microbatches > 0 ? p->microbatches : 1;
    }
    if (p->emulated && !out->real_time && w->rank == 0)
        log_info("no real-time priority: emulated devices wait longer than they should; expect "
                 "wider times");
    if (!t) return;
    for (int32_t i = 0; i < p->n_devices; i++) t->devices[i].peak_bytes = program_lane_bytes(p, i);
    t->emulated = p->emulated;
    t->real_time = out->real_time;
    t->clock = p->emulated ? "virtual" : "wall";
    t->iteration_ns = out->iteration_ns = trace_iteration(t);
    out->tokens_per_s = (double)(p->microbatches * p->microbatch * p->sequence_length) /
                        ((double)out->iteration_ns / 1e9);
    if (w->o->keep_trace) out->trace = t;
}

/* A rank that failed while others run. */
static enum status fail_alone(struct worker *w, enum status status, struct error *err)
{
    if (!w->mover.threaded) return status;
    log_error("rank %" PRId32 " (%s): %s", w->rank, w->p->devices[w->rank].name, err->text);
    mover_abort(&w->mover, (int)status);
}

static enum status run(struct worker *w, struct run_result *out, struct error *err)
{
    TRY(set_up(w, err));
    enum status status = train(w, err);
    if (status != OK) status = fail_alone(w, status, err);
    log_progress_end();
    mover_stop(&w->mover);
    w->mover_made = false;
    if (status == OK) (void)worker_losses_finite(w);
    if (status == OK && w->o->save) status = worker_save(w, w->first_step + w->o->steps, err);
    if (status == OK) report(w, out);
    return status;
}

enum status worker_run(struct arena *a, const struct program *p, const struct run_options *o,
                       struct run_result *out, struct error *err)
{
    struct error own;
    struct worker w = {.a = a,
                       .run = arena_new(),
                       .moving = arena_new(),
                       .p = p,
                       .o = o,
                       .bad_step = -1,
                       .lock = -1};
    enum status status = run(&w, out, err ? err : &own);
    if (w.mover_made) mover_stop(&w.mover);
    checkpoint_unlock(w.lock);
    comm_close(w.comm); /* first: receives that nobody waits for any more still point into memory */
    for (int32_t i = 0; i < w.n_chunks; i++) lane_memory_close(&w.chunks[i].memory);
    data_close(&w.data);
    if (w.backend_open) w.backend.close(&w.backend);
    arena_free(w.spans.a);
    arena_free(w.run);
    arena_free(w.moving);
    return status;
}
