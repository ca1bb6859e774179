/* exec/worker/worker.c - one rank's run from its first look at the program to the result.
 *
 * Order of life: join the other ranks; look whether this host and device can run the lane; memory,
 * first values or a checkpoint; agree on when time is 0; step after step (exec/worker/steps.c) while the
 * communication thread (exec/host_transport/comm_thread.c) moves messages; gather spans and losses on rank 0, which
 * writes what is wanted of them while the others wait for it.
 * Until time 0 an error is agreed upon: every rank returns the same one. Later there is no such
 * moment: a rank that fails says why and ends all ranks, because others may wait for it for ever.
 *
 * Emulated devices. All ranks are on this host. The compute thread's clock is virtual (clock.h),
 * messages carry virtual instants (exec/host_transport/wire.h), and the thread sleeps until the wall has come to
 * its virtual time before it hands anything over and at the end of each call. Steps are measured in
 * wall time. While a checkpoint is written the run's clock stands still.
 */
#include "exec/checkpoint/checkpoint.h"
#include "exec/comm/launch.h"
#include "exec/device_transport/nccl_env.h"
#include "exec/plugin.h"
#include "exec/worker/internal.h"

#include "core/base/log.h"
#include "core/collective/part.h"
#include "core/program/device_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_DELAY_NS                                                                             \
    20000000 /* from the barrier to time 0: long enough for every rank to be asleep */
#define PRIORITY 1

/* ---- before time 0 ----------------------------------------------------------------------------
 */

static enum status open_data(struct worker *w, struct error *err)
{
    const struct program *p = w->p;
    if (p->pixels)
        return data_open_images(w->o->data, p->seed, p->pixels, p->vocabulary, &w->data, err);
    return data_open(w->o->data, p->seed, p->sequence_length, p->vocabulary, &w->data, err);
}

static enum status open_device(struct worker *w, struct error *err)
{
    const struct program_device *d = &w->p->devices[w->rank];
    TRY(worker_check_place(w, err));
    TRY(worker_check_program(w, err));
    nccl_env_before(w->p);
    TRY((w->o->backends ? w->o->backends : plugin_open_backend)(d->kind, &w->backend, err));
    TRY(worker_check_device(w, err));
    TRY(worker_activity_open(w, err));
    w->backend.multiprocessors = d->multiprocessors;
    TRY(w->backend.open(&w->backend, d->index, err));
    w->backend_open = true;
    w->apart = w->backend.apart;
    return OK;
}

/* Collectives that the host runs for a lane apart have their staging there. */
static bool needs_staging(const struct worker *w, int32_t stage)
{
    for (int32_t g = 0; w->apart && g < w->p->n_collectives; g++)
        for (int32_t i = 0; i < w->p->collectives[g].n_members; i++)
            if (w->p->collectives[g].members[i].stage == stage &&
                w->group_by[g] == TRANSPORT_DEVICE)
                return true;
    return !w->apart;
}

/* All that operators will take beside slots, now: a step asks for nothing. */
static enum status prepare_device(struct worker *w, struct error *err)
{
    if (!w->backend.prepare) return OK;
    struct device_memory *m =
        ARENA_ARRAY(w->run, struct device_memory, (size_t)w->p->n_devices + 1);
    device_memory_of(w->run, w->p, m);
    return w->backend.prepare(&w->backend, m[w->rank].scratch, m[w->rank].workspace, err);
}

static enum status open_memory(struct worker *w, struct chunk *k, struct error *err)
{
    return lane_memory_open(&k->memory, w->run, w->p, k->index, &w->backend,
                            needs_staging(w, k->index), err);
}

static enum status open_lanes(struct worker *w, struct error *err)
{
    TRY(open_data(w, err));
    TRY(prepare_device(w, err));
    for (int32_t i = 0; i < w->n_chunks; i++) {
        struct chunk *k = &w->chunks[i];
        TRY(open_memory(w, k, err));
        if (w->apart && worker_goes_by_devices(w)) {
            TRY(worker_preload(w, k, err));
            lane_memory_close(&k->memory);
            TRY(open_memory(w, k, err));
        }
        if (!w->o->resume) TRY(lane_memory_init(&k->memory, w->p->seed, err));
    }
    return worker_open_apart(w, err);
}

/* First values of a large model take long. */
static enum status open_mine(struct worker *w, struct error *err)
{
    comm_working(w->comm, true);
    enum status status = open_lanes(w, err);
    comm_working(w->comm, false);
    return status;
}

/* Emulated ranks on one card take turns: the lowest of them has the turns of all in its place. */
static enum status share_cards(struct worker *w, void *shared, struct error *err)
{
    const struct program_device *d = w->p->devices, *mine = &d[w->rank];
    struct link_clock *cards = shared;
    int32_t first = 0, failed = 0;
    for (int32_t i = 0; w->rank == 0 && i < w->p->n_devices && !failed; i++)
        failed = link_clock_init(&cards[i]);
    TRY(comm_agree(
        w->comm,
        failed ? error_set(err, ERR_RESOURCE, "no lock that ranks share: %s", strerror(failed))
               : OK,
        err));
    while (strcmp(d[first].kind, mine->kind) != 0 || d[first].index != mine->index) first++;
    w->ahead.card = &cards[first];
    return OK;
}

static enum status open_shared(struct worker *w, struct error *err)
{
    void *shared = NULL;
    int64_t bytes = wires_shared_bytes(w->p),
            cards = (int64_t)sizeof(struct link_clock) * w->p->n_devices;
    if (bytes && comm_size(w->comm) > 1) {
        TRY(comm_share(w->comm, bytes + cards, &shared, err));
        TRY(share_cards(w, (char *)shared + bytes, err));
    }
    comm_thread_init(&w->comm_thread, w->moving, w->p, w->comm, shared, w->o->keep_trace);
    w->comm_thread_made = true;
    if (w->apart) comm_thread_bounce(&w->comm_thread, &w->bounce);
    TRY(comm_agree(w->comm, worker_prepare(w, err), err));
    return worker_open_transport(w, err);
}

/* What is loaded at once: a sequence, or an image, whole even where the device has a part of it. */
static int64_t row_bytes(const struct slot *s)
{
    struct shape whole = part_whole(&s->shape, s->part);
    int64_t rows = input_is_of_images(s->input) ? whole.dim[0] : shape_rows(&whole);
    return rows ? shape_elements(&whole) * dtype_bytes(s->dtype) / rows : 0;
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

/* What ranks are called in errors. */
static void call_ranks(struct worker *w)
{
    const char **names = ARENA_ARRAY(w->run, const char *, (size_t)w->p->n_devices);
    for (int32_t i = 0; i < w->p->n_devices; i++)
        names[i] = arena_strdup(w->run, program_device_told(w->p, i).text);
    comm_call_ranks(w->comm, names);
}

static enum status know_data(void *owner, struct error *err)
{
    struct worker *w = owner;
    return data_crc(&w->data, &w->data_crc, err);
}

static enum status set_up(struct worker *w, struct error *err)
{
    TRY(comm_open(w->run, w->p->n_devices, &w->comm, err));
    w->rank = comm_rank(w->comm);
    call_ranks(w);
    nccl_env_set(w->p, w->rank); /* before the backend, whose library is NCCL */
    find_chunks(w);
    TRY(comm_agree(w->comm, open_device(w, err), err));
    worker_choose_transports(w);
    TRY(comm_agree(w->comm, worker_check_memory(w, err), err));
    TRY(comm_agree(w->comm, open_mine(w, err), err));
    if (w->rank == 0) worker_warn_if_crowded(w);
    w->global_batch = w->p->microbatches * w->p->microbatch;
    if (w->o->save || w->o->resume) TRY(comm_at_root(w->comm, know_data, w, err));
    if (w->o->save) TRY(worker_enter(w, err));
    if (w->o->resume) {
        comm_phase(w->comm, "going on from a checkpoint");
        TRY(worker_resume(w, err));
        comm_phase(w->comm, "");
    }
    if (w->o->save) TRY(worker_follow(w, err));
    const struct optimizer *x = &w->p->optimizer;
    w->optimizer = (struct optimizer_step){x->lr, x->beta1, x->beta2, x->eps, x->weight_decay, 0};
    TRY(comm_agree(w->comm, worker_scale_open(w, err), err));
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
    if (w->apart) TRY(async_issue_drain(w, err));
    TRY(comm_thread_pause(&w->comm_thread, err));
    take_priority(w, false);
    int64_t now_ns = comm_max(w->comm, device_clock_now(&w->clock));
    enum status status = worker_save(w, w->first_step + w->step + 1, err);
    w->agreed = status != OK;
    w->clock.zero_ns = agree_on_zero(w, offset_ns, now_ns);
    comm_thread_resume(&w->comm_thread, w->clock.zero_ns);
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
    return w->apart ? async_issue_finish(w, err) : OK;
}

static enum status train(struct worker *w, struct error *err)
{
    int64_t offset_ns = comm_clock_offset(w->comm), zero_ns = agree_on_zero(w, offset_ns, 0);
    w->comm_thread.wires.zero_ns = zero_ns;
    TRY(comm_thread_start(&w->comm_thread, err));
    clock_sleep_sharply();
    take_priority(w, true);
    TRY(worker_post_first(w, err));
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
    bool granted = w->real_time && (!w->comm_thread.threaded || w->comm_thread.real_time);
    const struct span_list lists[] = {w->spans, w->comm_thread.spans, w->activity.spans};
    *out = (struct run_result){.first_step = w->first_step, .steps = w->o->steps};
    out->real_time = p->emulated && !comm_max(w->comm, !granted);
    out->blas_share = w->cpu_ns > 0 && blas_s >= 0 ? blas_s * 1e9 / (double)w->cpu_ns : -1;
    comm_sum(w->comm, w->losses, w->o->steps * p->microbatches);
    worker_scale_report(w, out);
    struct trace *t =
        spans_gather(w->a, w->comm, p, lists, 3, w->o->keep_kernels ? &w->activity.names : NULL,
                     w->step_end_ns, w->o->steps);
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
    for (int32_t i = 0; i < p->n_devices; i++)
        if (strcmp(p->devices[i].kind, "cuda") == 0) t->source = TRACE_CUDA;
    for (int32_t i = 0; i < p->n_devices; i++) t->devices[i].peak_bytes = program_lane_bytes(p, i);
    t->emulated = p->emulated;
    t->real_time = out->real_time;
    t->clock = p->emulated ? "virtual" : "wall";
    t->iteration_ns = out->iteration_ns = trace_iteration(t);
    out->tokens_per_s = (double)(p->microbatches * p->microbatch * p->sequence_length) /
                        ((double)out->iteration_ns / 1e9);
    if (w->o->keep_trace) out->trace = t;
}

static enum status conclude(struct worker *w, struct run_result *out, struct error *err)
{
    comm_working(w->comm, true);
    report(w, out);
    comm_working(w->comm, false);
    return w->o->conclude ? comm_at_root(w->comm, w->o->conclude, w->o->owner, err) : OK;
}

/* A rank that failed while others run. */
static enum status fail_alone(struct worker *w, enum status status, struct error *err)
{
    struct error own = *err;
    if (comm_size(w->comm) == 1) {
        comm_thread_give_up(&w->comm_thread);
        return status;
    }
    if (!w->agreed)
        error_set(&own, status, "rank %" PRId32 " (%s): %s", w->rank,
                  program_device_told(w->p, w->rank).text, err->text);
    launch_report_alone(&own);
    comm_thread_abort(&w->comm_thread, (int)status);
}

static enum status run(struct worker *w, struct run_result *out, struct error *err)
{
    TRY(set_up(w, err));
    enum status status = train(w, err);
    if (status != OK) status = fail_alone(w, status, err);
    log_progress_end();
    comm_thread_stop(&w->comm_thread);
    w->comm_thread_made = false;
    comm_phase(w->comm, "at the end of the run");
    if (status == OK) status = comm_agree(w->comm, worker_activity_collect(w, err), err);
    if (status == OK) status = worker_scale_agreed(w, err);
    if (status == OK) (void)worker_losses_finite(w);
    if (status == OK && w->o->save) status = worker_save(w, w->first_step + w->o->steps, err);
    if (status == OK) status = conclude(w, out, err);
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
                       .store = {.lock = -1}};
    enum status status = run(&w, out, err ? err : &own);
    if (w.comm_thread_made) comm_thread_stop(&w.comm_thread);
    checkpoint_leave(&w.store);
    if (status != OK && w.transport) device_transport_give_up(w.transport);
    comm_close(w.comm); /* first: receives that nobody waits for any more still point into memory */
    comm_parting(w.comm, true);
    if (w.backend_open && w.apart) (void)w.backend.finish(&w.backend, NULL);
    device_transport_close(w.transport);
    comm_parting(w.comm, false);
    for (int32_t i = 0; i < w.n_chunks; i++) lane_memory_close(&w.chunks[i].memory);
    if (w.pinned) w.backend.release_pinned(&w.backend, w.pinned);
    data_close(&w.data);
    if (w.backend_open && w.backend.unfinished && w.backend.unfinished(&w.backend))
        comm_note_unfinished();
    if (w.backend_open) w.backend.close(&w.backend);
    worker_activity_close(&w);
    arena_free(w.spans.a);
    arena_free(w.run);
    arena_free(w.moving);
    return status;
}
