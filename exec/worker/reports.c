#include "exec/worker/reports.h"

#include "core/base/arena.h"
#include "exec/clock.h"
#include "exec/host_transport/comm_thread.h"
#include "exec/worker/noise_log.h"
#include "exec/worker/observer.h"
#include "exec/worker/progress.h"
#include "exec/worker/rank.h"
#include "exec/worker/scale_log.h"
#include "exec/worker/step_log.h"

#include <math.h>
#include <string.h>

enum { DATA, COMPUTE, SQUARE, LOSSES }; /* of a report */
enum { REPORTS_AHEAD = 8 }; /* receives that rank 0 has posted for each rank */
#define LOOK_NS INT64_C(100000000)

void reports_open(struct reports *x, struct rank *r, struct comm_thread *m, const struct progress *g, struct device_clock *clock, const struct step_log *log,
                  const struct scale_log *scales, const struct noise_log *noise)
{
    *x = (struct reports){.on = r->o->observer != NULL, .r = r, .m = m, .progress = g, .clock = clock, .log = log, .scales = scales, .noise = noise};
    if (!x->on) return;
    x->n = LOSSES + r->p->microbatches;
    if (r->index == 0) x->theirs = ARENA_ARRAY(r->run, double, (size_t)(r->p->n_devices * REPORTS_AHEAD * x->n));
    for (int32_t i = 0; i < r->p->n_devices; i++)
        if (program_lane_bytes(r->p, i) > x->memory_bytes) x->memory_bytes = program_lane_bytes(r->p, i);
}

static enum status begin(void *reports, struct error *err)
{
    const struct reports *x = reports;
    return x->r->o->observer->begin(x->r->o->observer->owner, x->progress->first_step, err);
}

enum status reports_begin(struct reports *x, struct error *err) { return x->on ? comm_at_root(x->r->comm, begin, x, err) : OK; }

static double *spent(struct reports *x) { return x->spent[x->progress->step % REPORTS_SPENT]; }

void reports_data(struct reports *x, int64_t ns)
{
    if (x->on) spent(x)[DATA] += (double)ns;
}

void reports_compute(struct reports *x, int64_t ns)
{
    if (x->on) spent(x)[COMPUTE] += (double)ns;
}

static double *of_rank(const struct reports *x, int32_t rank, int64_t number) { return x->theirs + (rank * REPORTS_AHEAD + number % REPORTS_AHEAD) * x->n; }

static void fill(struct reports *x, int64_t step, double *to)
{
    double *times = x->spent[step % REPORTS_SPENT];
    to[DATA] = times[DATA];
    to[COMPUTE] = x->r->discrete ? -1 : times[COMPUTE];
    times[DATA] = times[COMPUTE] = 0;
    to[SQUARE] = x->noise->squares ? x->noise->squares[GRADIENT_SQUARES * step + 1] : 0;
    memcpy(to + LOSSES, x->log->losses + step * x->r->p->microbatches, (size_t)(x->n - LOSSES) * sizeof *to);
}

/* A report that has not left keeps its memory: as many as are under way. */
static double *room(struct reports *x, int64_t number)
{
    int64_t left = comm_thread_reported(x->m, x->r->index);
    if (number - left >= x->capacity) {
        int64_t bigger = x->capacity ? 2 * x->capacity : REPORTS_AHEAD;
        double **to = ARENA_ARRAY(x->r->run, double *, (size_t)bigger);
        for (int64_t i = left; i < number; i++) to[i % bigger] = x->mine[i % x->capacity];
        x->mine = to, x->capacity = bigger;
    }
    double **at = &x->mine[number % x->capacity];
    if (!*at) *at = ARENA_ARRAY(x->r->run, double, (size_t)x->n);
    return *at;
}

static void send(struct reports *x, int64_t step)
{
    double *to = x->r->index ? room(x, step) : of_rank(x, 0, step);
    fill(x, step, to);
    if (x->r->index) comm_thread_report(x->m, x->r->index, to, x->n * (int64_t)sizeof *to);
}

/* ---- rank 0 ----------------------------------------------------------------------------------- */

static void post(struct reports *x)
{
    for (; x->posted < x->seen + REPORTS_AHEAD && x->posted < x->r->o->steps; x->posted++)
        for (int32_t i = 1; i < x->r->p->n_devices; i++) comm_thread_report(x->m, i, of_rank(x, i, x->posted), x->n * (int64_t)sizeof(double));
}

static bool complete(const struct reports *x)
{
    for (int32_t i = 1; i < x->r->p->n_devices; i++)
        if (comm_thread_reported(x->m, i) <= x->seen) return false;
    return x->seen < x->sent;
}

/* The scale that the step's loss had, and what became of it. */
static void add_scale(const struct reports *x, int64_t step, double *scaled, struct step_report *out)
{
    *scaled = 1;
    if (!x->scales->after) return;
    const float *now = x->scales->after + SCALE_LOG_NUMBERS * step, *was = step ? now - SCALE_LOG_NUMBERS : x->scales->before;
    *scaled = (double)was[LOSS_SCALE_NOW];
    out->loss_scale = (double)now[LOSS_SCALE_NOW];
    out->skipped = now[LOSS_SCALE_SKIPPED] > was[LOSS_SCALE_SKIPPED];
}

static void add_up(const struct reports *x, int64_t step, struct step_report *out)
{
    const struct program *p = x->r->p;
    double data = 0, compute = 0, square = 0, scale, loss = 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        const double *of = of_rank(x, i, step);
        data += of[DATA], square += of[SQUARE];
        compute = compute < 0 || of[COMPUTE] < 0 ? -1 : compute + of[COMPUTE];
    }
    for (int32_t k = 0; k < p->microbatches; k++) {
        double term = 0;
        for (int32_t i = 0; i < p->n_devices; i++) term += of_rank(x, i, step)[LOSSES + k];
        loss += term;
    }
    add_scale(x, step, &scale, out);
    out->loss = loss / p->microbatches;
    out->gradient_norm = x->noise->norms ? x->noise->norms[step] : x->noise->squares ? sqrt(square) / scale : NAN;
    out->data_ns = (int64_t)(data / p->n_devices);
    out->compute_ns = compute < 0 ? -1 : (int64_t)(compute / p->n_devices);
}

static void look(struct reports *x)
{
    const struct run_observer *to = x->r->o->observer;
    for (post(x); complete(x); post(x)) {
        int64_t step = x->seen;
        struct step_report s = {.step = x->progress->first_step + step + 1,
                                .of = x->progress->first_step + x->r->o->steps,
                                .samples = progress_sequences(x->progress, step + 1),
                                .ns = x->log->end_ns[step] - (step ? x->log->end_ns[step - 1] : 0),
                                .memory_bytes = x->memory_bytes};
        s.learning_rate = lr_schedule_rate(&x->r->p->optimizer.schedule, x->r->p->optimizer.lr, s.step);
        add_up(x, step, &s);
        x->seen++;
        to->step(to->owner, &s);
    }
}

/* ---- all -------------------------------------------------------------------------------------- */

void reports_step(struct reports *x, int64_t settled)
{
    if (!x->on) return;
    device_clock_wait(x->clock);
    for (; x->sent < settled && (x->r->index || x->sent < x->seen + REPORTS_AHEAD); x->sent++) {
        if (x->r->index == 0) post(x);
        send(x, x->sent);
    }
    if (x->r->index == 0) look(x);
    device_clock_waited(x->clock, 0);
}

enum status reports_finish(struct reports *x, int64_t settled, struct error *err)
{
    if (!x->on) return OK;
    int64_t limit_ns = comm_limit_ns(), until_ns = clock_wall_ns() + limit_ns;
    for (int64_t before = -1; reports_step(x, settled), true;) {
        int64_t now = x->r->index ? comm_thread_reported(x->m, x->r->index) : x->seen;
        if (now >= settled) return OK;
        if (now > before) until_ns = clock_wall_ns() + limit_ns;
        before = now;
        if (clock_wall_ns() > until_ns) return error_set(err, ERR_RANK, "rank %d: the reports of its last steps make no progress", (int)x->r->index);
        comm_thread_wait_any(x->m, clock_wall_ns() + LOOK_NS);
    }
}
