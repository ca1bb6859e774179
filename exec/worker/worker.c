/* exec/worker/worker.c - one rank's run, from the check of the program to the result.
 *
 * Order: join the other ranks; check that this host and device can run the lane; allocate memory, initialise it or
 * load a checkpoint; agree on time 0; run the steps (exec/worker/steps.c) while the communication thread
 * (exec/host_transport/comm_thread.c) moves messages; gather spans and losses on rank 0, which writes the results
 * while the others wait.
 *
 * Errors before time 0 are agreed: every rank returns the same one. Later no such point exists: a rank that fails
 * prints its error and ends all ranks, because others may wait for it for ever.
 *
 * Emulated devices: all ranks are on this host. The compute thread's clock is virtual (clock.h), messages carry
 * virtual instants (exec/host_transport/wire.h), and the thread sleeps until wall time reaches its virtual time
 * before it hands anything over and at the end of each call. Steps are measured in wall time. The run's clock stops
 * while all ranks write a checkpoint, and goes on while they copy one that a thread writes.
 */
#include "exec/worker/internal.h"

#include "core/base/log.h"
#include "core/program/device_memory.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/continued.h"
#include "exec/worker/early_stop.h"
#include "exec/worker/faults.h"
#include "exec/worker/preflight.h"
#include "exec/worker/preload.h"
#include "exec/worker/prepare.h"
#include "exec/worker/resume.h"
#include "exec/worker/run_board.h"

#include <inttypes.h>
#include <string.h>

/* ---- before time 0 ----------------------------------------------------------------------------
 */

static enum status open_device(struct worker *w, struct error *err)
{
    struct rank *r = &w->rank;
    TRY(preflight_place(r, err));
    TRY(preflight_program(r, &w->chunks, err));
    TRY(rank_find_backend(r, err));
    TRY(preflight_device(r, err));
    TRY(kernel_spans_open(&w->kernels, r, err));
    return rank_open_device(r, err);
}

/* Allocates all memory that operators need besides slots, so that a step allocates nothing. */
static enum status prepare_device(struct rank *r, struct error *err)
{
    if (!r->backend.prepare) return OK;
    struct device_memory *m =
        ARENA_ARRAY(r->run, struct device_memory, (size_t)r->p->n_devices + 1);
    device_memory_of(r->run, r->p, m);
    return r->backend.prepare(&r->backend, m[r->index].scratch, m[r->index].workspace, err);
}

/* Pinned memory, streams and events. */
static enum status open_discrete(struct worker *w, struct error *err)
{
    struct rank *r = &w->rank;
    if (!r->discrete) return OK;
    TRY(pinned_open(&w->pinned, r, &w->transports, err));
    TRY(transports_open_bounce(&w->transports, r, &w->chunks, w->pinned.channels, err));
    TRY(async_issue_open(&w->ahead, w->pinned.async_issue, err));
    return inputs_open_discrete(&w->inputs, w->pinned.inputs, err);
}

static enum status open_lanes(struct worker *w, struct error *err)
{
    struct rank *r = &w->rank;
    TRY(inputs_open(&w->inputs, r, &w->chunks, &w->progress, &w->ahead, &w->clock, err));
    TRY(prepare_device(r, err));
    for (int32_t i = 0; i < w->chunks.n; i++) {
        struct chunk *k = &w->chunks.at[i];
        bool staging = transports_stage_on_device(&w->transports, r, k->index);
        TRY(chunks_open_memory(k, r, staging, err));
        if (r->discrete && transports_use_devices(&w->transports, r->p)) {
            TRY(preload_chunk(r, &w->chunks, k, err));
            TRY(chunks_open_memory(k, r, staging, err));
        }
        if (!r->o->resume)
            TRY(lane_memory_init(&k->memory, r->p->seed, rank_threads(r), err));
    }
    return open_discrete(w, err);
}

/* Initialising a large model takes long. */
static enum status open_mine(struct worker *w, struct error *err)
{
    comm_working(w->rank.comm, true);
    enum status status = open_lanes(w, err);
    comm_working(w->rank.comm, false);
    return status;
}

/* Emulated ranks on one GPU take turns: the lowest of them holds the shared clock. */
static enum status share_devices(struct worker *w, void *shared, struct error *err)
{
    struct rank *r = &w->rank;
    const struct program_device *d = r->p->devices, *mine = rank_device(r);
    struct link_clock *turns = shared;
    int32_t first = 0, failed = 0;
    for (int32_t i = 0; r->index == 0 && i < r->p->n_devices && !failed; i++)
        failed = link_clock_init(&turns[i]);
    TRY(comm_agree(
        r->comm,
        failed ? error_set(err, ERR_RESOURCE, "cannot create a lock shared by ranks: %s", strerror(failed))
               : OK,
        err));
    while (strcmp(d[first].kind, mine->kind) != 0 || d[first].index != mine->index) first++;
    async_issue_share(&w->ahead, &turns[first]);
    return OK;
}

/* Resolves every index of the program to an address, an event or a queue. */
static enum status prepare_lane(struct worker *w, struct error *err)
{
    struct rank *r = &w->rank;
    struct transports *t = &w->transports;
    chunks_prepare(&w->chunks, r);
    channel_ends_open(&w->ends, r, &w->chunks, t, &w->ahead, &w->clock, &w->progress);
    TRY(offloads_open(&w->offloads, r, &w->chunks, &w->ahead, &w->clock, &w->spans, err));
    local_sums_open(&w->reduces, r);
    worker_open_steps(w);
    for (int32_t g = 0; g < r->p->n_collectives; g++) {
        const struct collective_end *first = &t->comm_thread.collectives.members[g];
        TRY(prepare_members(r, &w->chunks, t, &w->pinned, g, err));
        if (r->discrete && t->group[g] == TRANSPORT_LOCAL && first->member >= 0)
            local_sums_add(&w->reduces, r, g, first);
    }
    return OK;
}

static enum status open_shared(struct worker *w, struct error *err)
{
    struct rank *r = &w->rank;
    void *shared = NULL;
    int64_t bytes = wires_shared_bytes(r->p),
            turns = (int64_t)sizeof(struct link_clock) * r->p->n_devices;
    if (bytes && comm_size(r->comm) > 1) {
        TRY(comm_share(r->comm, bytes + turns, &shared, err));
        TRY(share_devices(w, (char *)shared + bytes, err));
    }
    transports_open_host(&w->transports, r, shared);
    reports_open(&w->reports, r, &w->transports.comm_thread, &w->progress, &w->clock, &w->log, &w->scales, &w->noise);
    w->transports.comm_thread.stragglers = w->stragglers;
    TRY(comm_agree(r->comm, prepare_lane(w, err), err));
    return transports_open_devices(&w->transports, r, &w->chunks, err);
}

/* Sets the references between modules; nothing is open yet. */
static void connect_modules(struct worker *w)
{
    const struct async_issue_uses u = {.r = &w->rank,
                                       .chunks = &w->chunks,
                                       .progress = &w->progress,
                                       .t = &w->transports,
                                       .clock = &w->clock,
                                       .spans = &w->spans,
                                       .stragglers = &w->stragglers,
                                       .routing = &w->routing,
                                       .kernels = &w->kernels,
                                       .log = &w->log,
                                       .scales = &w->scales,
                                       .noise = &w->noise};
    async_issue_init(&w->ahead, &u);
    saver_init(&w->saver, &w->rank, &w->chunks, &w->progress, &w->inputs, &w->scales, &w->log, &w->serve, NULL);
    saver_init(&w->memory, &w->rank, &w->chunks, &w->progress, &w->inputs, &w->scales, &w->log, &w->serve, &w->transports.comm_thread.wires);
}

/* The output folder is locked before the checkpoint to resume is searched. */
static enum status find_position(struct worker *w, struct error *err)
{
    struct rank *r = &w->rank;
    progress_start(&w->progress, r->p);
    if (r->o->save || r->o->resume) TRY(inputs_identify(&w->inputs, err));
    if (r->o->save) TRY(saver_enter(&w->saver, err));
    if (r->o->memory) TRY(saver_enter(&w->memory, err));
    if (r->o->resume) {
        comm_phase(r->comm, "resuming from a checkpoint");
        TRY(resume_from_checkpoint(r, &w->chunks, &w->inputs, &w->progress, &w->scales, &w->serve, err));
        comm_phase(r->comm, "");
    } else if (r->o->init) {
        comm_phase(r->comm, "loading weights");
        TRY(resume_begin_with_weights(r, &w->chunks, err));
        comm_phase(r->comm, "");
    }
    if (r->o->memory) TRY(saver_follow(&w->memory, err));
    return r->o->save ? saver_follow(&w->saver, err) : OK;
}

static enum status set_up(struct worker *w, const struct program *p, const struct run_options *o,
                          struct error *err)
{
    struct rank *r = &w->rank;
    TRY(rank_join(r, arena_new(), p, o, err));
    int64_t continued_step = 0;
    if (o->continues) TRY(continued_from(r, &w->continued, &w->complete, &continued_step, err));
    progress_resume(&w->progress, continued_step, 0);
    if (w->complete) return OK;
    p = r->p, o = r->o;
    chunks_find(&w->chunks, r);
    TRY(comm_agree(r->comm, open_device(w, err), err));
    transports_choose(&w->transports, r);
    TRY(comm_agree(r->comm, preflight_memory(r, &w->transports, err), err));
    TRY(comm_agree(r->comm, open_mine(w, err), err));
    if (r->index == 0) preflight_warn_if_crowded(p);
    serve_open(&w->serve, r, &w->chunks);
    run_board_joined(worker_board(w));
    TRY(find_position(w, err));
    run_board_loaded(worker_board(w));
    TRY(comm_agree(r->comm, serve_follow(&w->serve, r, w->progress.first_step, err), err));
    chunks_set_optimizer(&w->chunks, p, w->rank.index);
    TRY(comm_agree(r->comm, scale_log_open(&w->scales, r, &w->chunks, err), err));
    step_log_open(&w->log, r);
    noise_log_open(&w->noise, r);
    if (o->keep_trace) w->spans.a = arena_new();
    w->stragglers = straggler_open(r->run, p, r->index, o->stragglers);
    routing_open(&w->routing, w->spans.a, w->rank.p);
    TRY(open_shared(w, err));
    TRY(evaluate_open(w, err));
    return reports_begin(&w->reports, err);
}

/* ---- time ------------------------------------------------------------------------------------- */

/* The next step of this run behind which all ranks meet. */
static int64_t next_stop(const struct worker *w)
{
    int64_t stop = saver_next(&w->saver), memory = saver_next(&w->memory);
    if (memory < stop) stop = memory;
    return stop < w->rank.o->steps ? stop : w->rank.o->steps;
}

/* One step, or a server's work until the next stop. */
static enum status next_step(struct worker *w, struct error *err)
{
    if (!w->serve.by_arrival) return worker_step(w, err);
    int64_t stop = next_stop(w);
    TRY(worker_serve(w, stop, err));
    w->progress.step = stop - 1;
    return OK;
}

/* Receives of the next step are open; nothing else is under way. */
static enum status end_early(struct worker *w, struct error *err)
{
    TRY(worker_stop_lane(w, err));
    comm_thread_give_up(&w->transports.comm_thread);
    comm_thread_resume(&w->transports.comm_thread, w->clock.zero_ns);
    w->asked = w->rank.o->steps;
    w->shorter = *w->rank.o;
    w->shorter.steps = w->progress.step;
    w->rank.o = &w->shorter;
    return OK;
}

/* Ranks of MPI have no common memory: before each step they begin to agree on the step behind it, which hides the latency; so no rank is
 * more than a step in front of another. */
static enum status agree_to_stop(struct worker *w, const struct early_stop *stop, bool *stops, struct error *err)
{
    struct comm_thread *m = &w->transports.comm_thread;
    int64_t step = w->progress.step, requested = 0;
    if (step) TRY(comm_thread_wait_agreement(m, step - 1, &requested, err));
    *stops = requested != 0;
    if (!*stops && step + 1 < w->rank.o->steps)
        comm_thread_order(m, (struct comm_thread_order){.kind = ORDER_AGREE, .number = step, .index = early_stop_requested(stop)});
    return OK;
}

static enum status stops_early(struct worker *w, bool *stops, struct error *err)
{
    struct early_stop *stop = w->rank.o->stop;
    *stops = false;
    if (!stop || parameter_server_by_arrival(&w->rank.p->server)) return OK;
    if (comm_size(w->rank.comm) > 1 && launch_local_rank() < 0) return agree_to_stop(w, stop, stops, err);
    *stops = !early_stop_begins(stop, w->rank.index, w->progress.step);
    return OK;
}

static enum status run_steps(struct worker *w, int64_t offset_ns, struct error *err)
{
    const struct run_options *o = w->rank.o;
    const struct fault_side side = {.f = o->faults, .p = w->rank.p, .board = o->board, .rank = w->rank.index, .clock = &w->clock,
                                    .wires = &w->transports.comm_thread.wires};
    if (w->rank.index == 0 && !(o->board && o->board->zero_ns)) preflight_warn_of_schedule(w->rank.p, w->progress.first_step, o->steps);
    run_board_begun(worker_board(w), w->progress.first_step);
    TRY(worker_first_pass(w, err));
    for (; w->progress.step < o->steps; progress_next_step(&w->progress)) {
        bool stops, best;
        faults_before_step(&side, progress_number(&w->progress));
        TRY(stops_early(w, &stops, err));
        if (stops && o->survives) TRY(worker_save_to_end(w, offset_ns, &stops, err));
        if (stops) return end_early(w, err);
        int64_t begin_ns = clock_wall_ns();
        TRY(next_step(w, err));
        run_board_step(worker_board(w), progress_number(&w->progress), clock_wall_ns() - begin_ns, faults_disturb(o->faults));
        int64_t done = w->progress.step + 1;
        if (w->rank.index == 0 && !o->observer) log_progress("step %" PRId64 " of %" PRId64, done, o->steps);
        reports_step(&w->reports, w->rank.discrete ? done - 1 : done);
        TRY(worker_look_at_save(w, false, err));
        TRY(evaluate_now(w, offset_ns, &best, err));
        if (done < o->steps && done == saver_next(&w->memory)) TRY(worker_snapshot_between(w, &w->memory, err));
        if (done < o->steps && (best || done == saver_next(&w->saver)))
            TRY(o->save_mode == SAVE_SYNC ? worker_save_between(w, offset_ns, err) : worker_snapshot_between(w, &w->saver, err));
    }
    if (w->rank.discrete) TRY(async_issue_finish(&w->ahead, err));
    return offloads_finish(&w->offloads, err);
}

static enum status train(struct worker *w, struct error *err)
{
    int64_t offset_ns = comm_clock_offset(w->rank.comm), zero_ns = worker_agree_on_zero(w, offset_ns, 0);
    w->transports.comm_thread.wires.zero_ns = zero_ns;
    TRY(comm_thread_start(&w->transports.comm_thread, err));
    clock_sleep_sharply();
    worker_take_priority(w, true);
    TRY(channel_ends_post_first(&w->ends, err));
    clock_sleep_until(zero_ns);
    device_clock_start(&w->clock, rank_device(&w->rank)->slowdown, zero_ns);
    int64_t cpu_ns = clock_cpu_ns();
    enum status status = run_steps(w, offset_ns, err);
    if (status == OK) status = worker_look_at_save(w, true, err);
    if (status == OK) status = reports_finish(&w->reports, w->rank.o->steps, err);
    w->cpu_ns = clock_cpu_ns() - cpu_ns;
    worker_take_priority(w, false);
    return status;
}

/* ---- afterwards -------------------------------------------------------------------------------
 */

static void report_arrivals(struct worker *w, struct run_result *out)
{
    int64_t bytes;
    if (!parameter_server_by_arrival(&w->rank.p->server)) return;
    out->arrivals.list = comm_gather(w->rank.comm, w->a, w->serve.noted.list, w->serve.noted.n * (int64_t)sizeof *out->arrivals.list, &bytes);
    out->arrivals.n = bytes / (int64_t)sizeof *out->arrivals.list;
    int32_t n = w->rank.p->n_stages - w->rank.p->server.n;
    out->ended_workers = ARENA_ARRAY(w->a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        if (comm_gone(w->rank.comm, w->rank.p->stages[i].device)) out->ended_workers[out->n_ended_workers++] = i;
}

/* Of workers at different speeds: server_order_iteration_ns. On rank 0; 0: all ranks end a step together. */
static int64_t served_iteration(struct worker *w)
{
    const struct program *p = w->rank.p;
    int32_t n = p->n_stages - p->server.n;
    int64_t steps = w->rank.o->steps;
    if (!parameter_server_by_arrival(&p->server)) return 0;
    const int64_t *of_rank = comm_gather_each(w->rank.comm, w->rank.run, w->log.end_ns, steps * (int64_t)sizeof *of_rank);
    if (!of_rank) return 0;
    int64_t *ends = ARENA_ARRAY(w->rank.run, int64_t, (size_t)n * (size_t)steps);
    int32_t *microbatches = ARENA_ARRAY(w->rank.run, int32_t, (size_t)n);
    int32_t left = 0;
    for (int32_t i = 0; i < n; i++) {
        if (comm_gone(w->rank.comm, p->stages[i].device)) continue;
        memcpy(ends + left * steps, of_rank + p->stages[i].device * steps, (size_t)steps * sizeof *ends);
        microbatches[left++] = p->stages[i].microbatches;
    }
    return server_order_iteration_ns(ends, microbatches, left, steps);
}

static void report(struct worker *w, struct run_result *out)
{
    const struct program *p = w->rank.p;
    double blas_s =
        w->rank.backend.blas_seconds ? w->rank.backend.blas_seconds(&w->rank.backend) : -1;
    bool granted = w->real_time &&
                   (!w->transports.comm_thread.threaded || w->transports.comm_thread.real_time);
    const struct span_list lists[] = {w->spans, w->transports.comm_thread.spans, w->kernels.spans, w->saver.spans};
    *out = (struct run_result){.first_step = w->progress.first_step, .steps = w->rank.o->steps};
    out->real_time = p->emulated && !comm_max(w->rank.comm, !granted);
    out->blas_share = w->cpu_ns > 0 && blas_s >= 0 ? blas_s * 1e9 / (double)w->cpu_ns : -1;
    step_log_sum(&w->log, &w->rank);
    scale_log_report(&w->scales, &w->rank, &w->progress, w->a, out);
    saver_report(&w->saver, &out->saves);
    saver_report(&w->memory, &out->memory);
    noise_log_report(&w->noise, &w->rank, &w->scales, w->a, out);
    out->n_evaluations = w->evaluation.n, out->evaluations = w->evaluation.done;
    out->best_step = w->evaluation.best.step, out->best_loss = w->evaluation.best.loss;
    struct trace *t = spans_gather(w->a, w->rank.comm, p, lists, 4,
                                   w->rank.o->keep_kernels ? &w->kernels.names : NULL,
                                   w->log.end_ns, w->rank.o->steps);
    routing_gather(&w->routing, w->a, w->rank.comm, w->rank.o->steps, t);
    out->losses = step_log_means(&w->log, &w->rank, w->a);
    report_arrivals(w, out);
    int64_t served_ns = served_iteration(w);
    if (p->emulated && !out->real_time && w->rank.index == 0)
        log_info("no real-time priority: waits of emulated devices are too long, and their "
                 "times have a wider spread");
    if (!t) return;
    for (int32_t i = 0; i < p->n_devices; i++)
        if (!program_device_is_host(&p->devices[i])) t->source = p->devices[i].kind;
    for (int32_t i = 0; i < p->n_devices; i++) t->devices[i].peak_bytes = program_lane_bytes(p, i);
    t->emulated = p->emulated;
    t->real_time = out->real_time;
    t->clock = p->emulated ? "virtual" : "wall";
    t->iteration_ns = out->iteration_ns = served_ns ? served_ns : trace_iteration(t);
    out->tokens_per_s = (double)(p->microbatches * p->microbatch * p->sequence_length) /
                        ((double)out->iteration_ns / 1e9);
    if (w->rank.o->keep_trace) out->trace = t;
}

static enum status conclude(struct worker *w, struct run_result *out, struct error *err)
{
    comm_working(w->rank.comm, true);
    report(w, out);
    comm_working(w->rank.comm, false);
    return w->rank.o->conclude
               ? comm_at_root(w->rank.comm, w->rank.o->conclude, w->rank.o->owner, err)
               : OK;
}

/* The checkpoint is already of the last step. */
static enum status conclude_complete(struct worker *w, struct run_result *out, struct error *err)
{
    *out = (struct run_result){.first_step = w->progress.first_step};
    return w->rank.o->conclude ? comm_at_root(w->rank.comm, w->rank.o->conclude, w->rank.o->owner, err) : OK;
}

/* Failure of one rank while others run. */
static enum status fail_alone(struct worker *w, enum status status, struct error *err)
{
    struct error own = *err;
    if (comm_size(w->rank.comm) == 1) {
        comm_thread_give_up(&w->transports.comm_thread);
        return status;
    }
    if (!w->agreed)
        error_set(&own, status, "rank %" PRId32 " (%s): %s", w->rank.index,
                  program_device_label(w->rank.p, w->rank.index).text, err->text);
    launch_report_alone(&own);
    comm_thread_abort(&w->transports.comm_thread, (int)status);
}

static enum status run(struct worker *w, const struct program *p, const struct run_options *o,
                       struct run_result *out, struct error *err)
{
    TRY(set_up(w, p, o, err));
    if (w->complete) return conclude_complete(w, out, err);
    enum status status = train(w, err);
    if (status != OK) status = fail_alone(w, status, err);
    log_progress_end();
    transports_stop_host(&w->transports);
    comm_phase(w->rank.comm, "at the end of the run");
    if (status == OK)
        status = comm_agree(w->rank.comm,
                            kernel_spans_collect(&w->kernels, &w->rank, &w->spans, err), err);
    if (status == OK) status = scale_log_agreed(&w->scales, &w->rank, &w->chunks, err);
    if (status == OK) (void)step_log_finite(&w->log, &w->rank, w->progress.first_step);
    if (status == OK && w->rank.o->save && !w->saved) {
        int64_t begin_ns = clock_wall_ns();
        status = saver_save(&w->saver, w->progress.first_step + w->rank.o->steps, err);
        run_board_saved(worker_board(w), false, clock_wall_ns() - begin_ns);
    }
    if (status == OK) status = conclude(w, out, err);
    if (status == OK && w->asked)
        status = error_set(err, ERR_INTERRUPTED, "interrupted after step %" PRId64 " of %" PRId64 "; its checkpoint is in %s",
                           w->progress.first_step + w->rank.o->steps, w->progress.first_step + w->asked, w->rank.o->save);
    return status;
}

static void close_all(struct worker *w, enum status status)
{
    struct rank *r = &w->rank;
    transports_stop_host(&w->transports);
    saver_leave(&w->saver);
    saver_leave(&w->memory);
    if (status != OK) transports_give_up_devices(&w->transports);
    comm_close(
        r->comm); /* first: open receives still point into memory */
    comm_parting(r->comm, true);
    if (r->open && r->discrete) (void)r->backend.finish(&r->backend, NULL);
    transports_close_devices(&w->transports);
    comm_parting(r->comm, false);
    chunks_close(&w->chunks);
    saver_close(&w->saver);
    saver_close(&w->memory);
    pinned_close(&w->pinned, r);
    inputs_close(&w->inputs);
    rank_close_device(r);
    kernel_spans_close(&w->kernels);
    arena_free(w->spans.a);
    arena_free(r->run);
    transports_close(&w->transports);
}

enum status worker_run(struct arena *a, const struct program *p, const struct run_options *o,
                       struct run_result *out, struct error *err)
{
    struct error own;
    struct worker w = {.a = a};
    connect_modules(&w);
    enum status status = run(&w, p, o, out, err ? err : &own);
    close_all(&w, status);
    return status;
}
