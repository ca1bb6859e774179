#include "exec/worker/evaluate.h"

#include "core/base/log.h"
#include "core/program/ahead.h"
#include "exec/worker/internal.h"
#include "exec/worker/observer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- before the first step -------------------------------------------------------------------- */

/* The parameter's latest version in place of the one before the last update. */
static int32_t latest(const struct program_stage *s, int32_t slot)
{
    for (int32_t i = 0; i < s->n_parameters; i++)
        if (s->parameters[i].previous > 0 && s->parameters[i].previous == slot) return s->parameters[i].slot;
    return slot;
}

static void prepare(struct worker *w, struct chunk *k)
{
    const struct program_stage *s = k->stage;
    k->evaluated = ARENA_ARRAY(w->rank.run, struct prepared_op, (size_t)s->n_ops + 1);
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct program_op *x = &s->ops[i];
        struct prepared_op *o = &k->evaluated[i];
        if (x->phase != PHASE_F) continue;
        *o = k->ops[i];
        for (int32_t n = 0; n < x->n_inputs; n++) o->input[n] = lane_memory_place(&k->memory, latest(s, x->input[n]));
        if (x->kind != OP_dropout) continue;
        struct op_attrs *attrs = ARENA_ARRAY(w->rank.run, struct op_attrs, 1);
        *attrs = x->attrs;
        attrs->rate = 0;
        o->call.attrs = attrs;
    }
}

/* The step behind which the next evaluation comes, or the last one. */
static int64_t next(const struct worker *w, int64_t step)
{
    int64_t every = w->rank.o->eval_every, last = w->rank.o->steps;
    if (!w->evaluation.batches) return last;
    int64_t at = ((w->progress.first_step + step) / every + 1) * every - w->progress.first_step;
    return at < last ? at : last;
}

/* The batch is filled with samples of the next permutation of them. */
static void warn_of_few(int64_t samples, int64_t batch)
{
    if (2 * samples >= batch)
        log_warn("%" PRId64 " validation samples are fewer than a global batch of %" PRId64 ": %" PRId64 " of them count%s twice", samples, batch, batch - samples,
                 batch - samples == 1 ? "s" : "");
    else
        log_warn("%" PRId64 " validation samples are fewer than a global batch of %" PRId64 ": each counts %" PRId64 " times or more", samples, batch, batch / samples);
}

enum status evaluate_open(struct worker *w, struct error *err)
{
    struct evaluation *x = &w->evaluation;
    const struct run_options *o = w->rank.o;
    struct rank *r = &w->rank;
    if (o->eval_every) {
        int64_t whole = w->inputs.validation.n_samples / w->progress.global_batch;
        x->batches = whole < 1 ? 1 : o->eval_batches > 0 && o->eval_batches < whole ? o->eval_batches : whole;
        if (r->index == 0 && whole < 1) warn_of_few(w->inputs.validation.n_samples, w->progress.global_batch);
        x->losses = ARENA_ARRAY(r->run, double, (size_t)(x->batches * r->p->microbatches));
        x->done = ARENA_ARRAY(w->a, struct evaluated, (size_t)(o->steps / o->eval_every) + 2);
        for (int32_t i = 0; i < w->chunks.n; i++) prepare(w, &w->chunks.at[i]);
        TRY(comm_agree(r->comm, r->discrete ? r->backend.event_make(&r->backend, false, &x->event, err) : OK, err));
        if (o->save) x->best = w->saver.store.best;
    }
    comm_broadcast(r->comm, &x->best, sizeof x->best);
    w->progress.until = next(w, 0);
    return OK;
}

/* ---- one evaluation --------------------------------------------------------------------------- */

enum status evaluate_loss(struct worker *w, int64_t batch, const struct step_loss *l, const void *from, struct error *err)
{
    struct backend *b = &w->rank.backend;
    char value[sizeof(double)];
    bool finite;
    if (w->rank.discrete) {
        TRY(async_issue_settle(&w->ahead, err));
        TRY(b->event_record(b, w->evaluation.event, STREAM_COMPUTE, err));
        TRY(async_issue_see(&w->ahead, w->evaluation.event, err));
    }
    TRY(b->download(b, value, from, dtype_bytes(l->dtype), err));
    w->evaluation.losses[batch * w->rank.p->microbatches + l->stage->first_microbatch + l->microbatch] = step_log_value(&w->rank, l, value, &finite);
    return OK;
}

/* F of the microbatches whose calls are ahead of their step, or of the others. */
static enum status forwards(struct worker *w, int64_t batch, bool ahead, struct error *err)
{
    struct cursor cursor;
    struct call call;
    cursor_start(&cursor, &w->rank.p->orders[w->rank.p->lanes[w->rank.index].order]);
    while (cursor_next(&cursor, &call)) {
        const struct program_stage *s = w->chunks.at[call.chunk].stage;
        const struct procedure *f = &s->procedures[call.procedure];
        if (f->phase != PHASE_F || (ahead_steps(f) > 0) != ahead) continue;
        call.procedure = program_procedure(s, PHASE_F, "");
        TRY(worker_call(w, &call, batch, false, err));
    }
    return OK;
}

static enum status all_batches(struct worker *w, struct error *err)
{
    TRY(channel_ends_post_first(&w->ends, err));
    for (int64_t b = 0; b < w->evaluation.batches; b++) {
        TRY(forwards(w, b, true, err));
        TRY(forwards(w, b, false, err));
    }
    return OK;
}

/* All ranks have no message under way. Spans and stragglers are those of training alone. */
static enum status renumber(struct worker *w, bool evaluates, int64_t begun, int64_t until, int64_t now_ns, struct error *err)
{
    struct comm_thread *m = &w->transports.comm_thread;
    w->progress.evaluates = evaluates, w->progress.begun = begun, w->progress.until = until;
    channel_ends_restart(&w->ends);
    inputs_restart(&w->inputs);
    TRY(offloads_restart(&w->offloads, begun, err));
    if (w->transports.device) device_transport_restart(w->transports.device, begun, !evaluates && w->rank.o->keep_trace);
    comm_thread_restart(m, begun, now_ns);
    return OK;
}

/* What is not recorded meanwhile. */
struct unrecorded {
    struct arena *spans, *messages;
    struct straggler_watch *stragglers;
};

static struct unrecorded stop_records(struct worker *w)
{
    struct comm_thread *m = &w->transports.comm_thread;
    struct unrecorded u = {w->spans.a, m->spans.a, w->stragglers};
    w->spans.a = m->spans.a = NULL;
    w->stragglers = m->stragglers = NULL;
    return u;
}

static void go_on_recording(struct worker *w, struct unrecorded u)
{
    w->spans.a = u.spans, w->transports.comm_thread.spans.a = u.messages;
    w->stragglers = w->transports.comm_thread.stragglers = u.stragglers;
}

/* All messages of all ranks have arrived. */
static enum status flush(struct worker *w, int64_t *now_ns, struct error *err)
{
    struct rank *r = &w->rank;
    comm_thread_flush(&w->transports.comm_thread, true);
    enum status status = worker_begin_pause(w, now_ns, err);
    comm_thread_flush(&w->transports.comm_thread, false);
    TRY(status);
    if (w->transports.device) TRY(device_transport_drain(w->transports.device, err));
    return r->discrete ? r->backend.finish(&r->backend, err) : OK;
}

static double mean(const struct worker *w)
{
    int64_t n = w->evaluation.batches * w->rank.p->microbatches;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += w->evaluation.losses[i];
    return sum / (double)n;
}

/* On rank 0, and to all. */
static void conclude(struct worker *w, int64_t step, int64_t begin_ns, bool *best)
{
    struct evaluation *x = &w->evaluation;
    const struct run_observer *o = w->rank.o->observer;
    comm_sum(w->rank.comm, x->losses, x->batches * w->rank.p->microbatches);
    double loss = mean(w);
    comm_broadcast(w->rank.comm, &loss, sizeof loss);
    *best = isfinite(loss) && (!x->best.step || loss < x->best.loss);
    if (*best) x->best = (struct checkpoint_best){step, loss};
    if (w->rank.index) return;
    x->done[x->n++] = (struct evaluated){step, loss};
    const struct evaluation_report report = {
        .step = step, .samples = x->batches * w->progress.global_batch, .loss = loss, .ns = clock_wall_ns() - begin_ns, .best = *best};
    if (o) o->evaluated(o->owner, &report);
}

/* The next checkpoint is the best one; the thread that writes checkpoints reads which that is. */
static enum status keep(struct worker *w, struct error *err)
{
    TRY(worker_look_at_save(w, true, err));
    w->saver.store.next = w->evaluation.best;
    return OK;
}

enum status evaluate_now(struct worker *w, int64_t offset_ns, bool *best, struct error *err)
{
    int64_t begin_ns = clock_wall_ns(), done = w->progress.step + 1, now_ns, later_ns;
    *best = false;
    if (!w->evaluation.batches || done != w->progress.until) return OK;
    if (w->rank.discrete) TRY(async_issue_drain(&w->ahead, err));
    TRY(reports_finish(&w->reports, done, err));
    memset(w->evaluation.losses, 0, (size_t)(w->evaluation.batches * w->rank.p->microbatches) * sizeof *w->evaluation.losses);
    comm_phase(w->rank.comm, "evaluating");
    TRY(flush(w, &now_ns, err));
    int64_t mine_ns = device_clock_now(&w->clock);
    struct unrecorded u = stop_records(w);
    TRY(renumber(w, true, 0, w->evaluation.batches, now_ns, err));
    worker_end_pause(w, offset_ns, now_ns);
    TRY(all_batches(w, err));
    TRY(flush(w, &later_ns, err));
    conclude(w, w->progress.first_step + done, begin_ns, best);
    TRY(renumber(w, false, done, next(w, done), now_ns, err));
    go_on_recording(w, u);
    device_clock_set(&w->clock, mine_ns);
    comm_phase(w->rank.comm, "");
    worker_end_pause(w, offset_ns, now_ns);
    if (done < w->rank.o->steps) TRY(channel_ends_post_first(&w->ends, err));
    if (done < w->rank.o->steps) TRY(worker_first_pass(w, err));
    *best &= w->rank.o->save != NULL;
    return *best ? keep(w, err) : OK;
}
