/* The simulation of one run. sim/goodput/study.c repeats it, sim/goodput/read.c reads the tables. */
#include "sim/goodput/internal.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define HORIZON_MAX_NS (INT64_MAX / 8) /* 36 years */
#define FAILURES_MAX 1e7
#define CHECKPOINTS_MAX 1e8
#define STEP_PART 1e-3 /* of a step, for the rounding of work to ns: steps that have ended are counted */

enum event { END, DURABLE, COPIED, PHASE, CHANGE, REPAIR, FAILURE, MEMORY_DUE, DUE, SCRIPT };

/* --- failures --------------------------------------------------------------------------------- */

/* Weibull of the cause's mean: scale · (−ln(1 − u))^(1/shape), scale = mean ÷ Γ(1 + 1/shape). */
static void draw_next(struct walk *w, size_t cause)
{
    const struct goodput_cause *c = &w->job->causes[cause];
    if (!isfinite(c->mtbf_s)) {
        w->next[cause] = INFINITY;
        return;
    }
    double u = rng_uniform(w->seed, w->stream + cause, w->drawn[cause]++);
    double x = -log1p(-u);
    if (c->shape != 1) x = pow(x, 1 / c->shape) / tgamma(1 + 1 / c->shape);
    w->next[cause] += x * c->mtbf_s * NS_PER_S;
}

static void find_soonest(struct walk *w)
{
    w->soonest = w->job->n_causes;
    for (size_t i = 0; i < w->job->n_causes; i++)
        if (isfinite(w->next[i]) &&
            (w->soonest == w->job->n_causes || w->next[i] < w->next[w->soonest]))
            w->soonest = i;
}

static double pace(const struct walk *w)
{
    if (w->state == WAIT || (w->job->calm && w->state != RUN && w->state != WRITE && w->state != MEMORY)) return 0;
    return w->exposure;
}

static int64_t failure_ns(const struct walk *w)
{
    double rate = pace(w);
    if (w->soonest == w->job->n_causes || !(rate > 0)) return NEVER;
    double wait = ceil((w->next[w->soonest] - w->clock) / rate);
    return wait < (double)HORIZON_MAX_NS ? w->now_ns + (wait > 0 ? (int64_t)wait : 0) : NEVER;
}

/* --- devices ---------------------------------------------------------------------------------- */

static int64_t had(const struct walk *w, int32_t t)
{
    return w->there[t] > w->broken[t] ? w->there[t] - w->broken[t] : 0;
}

static double speed_of_wanted(const struct walk *w, int64_t *wanted)
{
    for (int32_t t = 0; t < w->job->n_types; t++)
        wanted[t] = had(w, t) < w->job->devices[t] ? had(w, t) : w->job->devices[t];
    double s = w->job->speed(w->job->user, wanted);
    return s > 0 ? s : 0;
}

static void enter(struct walk *w, enum state s, int64_t duration_ns)
{
    w->state = s;
    w->phase_end_ns = w->now_ns + duration_ns;
    w->then_change = false;
}

/* Continues with the available devices, or waits. */
static void choose(struct walk *w)
{
    int64_t wanted[GOODPUT_TYPES_MAX], all = 0, used = 0;
    double speed = speed_of_wanted(w, wanted);
    size_t bytes = (size_t)w->job->n_types * sizeof *wanted;
    if (!(speed > 0)) {
        enter(w, WAIT, 0);
        return;
    }
    bool same = !memcmp(wanted, w->used, bytes);
    memcpy(w->used, wanted, bytes);
    for (int32_t t = 0; t < w->job->n_types; t++) all += w->job->devices[t], used += wanted[t];
    w->speed = speed;
    w->exposure = (double)used / (double)all;
    if (!same) w->out->replans++;
    bool first = w->job->n_events && used == all; /* the first plan is known */
    enter(w, REPLAN, same || first ? 0 : w->job->replan_ns);
}

/* Devices have returned or are new: a running job stops for them only if it pays. */
void goodput_maybe_grow(struct walk *w)
{
    const struct goodput_job *j = w->job;
    int64_t wanted[GOODPUT_TYPES_MAX];
    double faster = speed_of_wanted(w, wanted);
    if (w->state == WAIT && faster > 0) choose(w);
    if (w->state != RUN || faster <= w->speed || 1 - w->speed / faster < j->gain_min) return;
    int64_t write = w->work > w->safe ? j->checkpoint_ns + j->background_ns : 0;
    int64_t left = j->horizon_ns - w->now_ns;
    double outlook = (double)(j->outlook_ns > 0 && j->outlook_ns < left ? j->outlook_ns : left);
    if (j->work_ns) outlook = fmin(outlook, ((double)j->work_ns - w->work) / goodput_work_pace(w));
    double cost = (double)(write + j->replan_ns + j->restart_ns);
    if (faster * (outlook - cost) <= w->speed * outlook) return;
    w->out->reconfigurations++;
    w->blame = j->n_causes;
    w->durable_ns = NEVER; /* a pending background write is lost and repeated with the rest */
    enter(w, WRITE, write);
    w->then_change = true;
}

/* --- stops ------------------------------------------------------------------------------------ */

static void lose_until(struct walk *w, double kept)
{
    double lost = w->work - kept;
    if (w->job->step_ns) w->out->lost_steps += floor(lost / (double)w->job->step_ns + STEP_PART);
    w->out->part_ns[GOODPUT_useful] -= lost;
    w->out->part_ns[GOODPUT_lost] += lost;
    w->out->cause_ns[w->blame] += lost;
    w->work = kept;
    w->durable_ns = NEVER;
}

static void lose(struct walk *w, bool node) { lose_until(w, memory_kept(w, node)); }

void goodput_stop(struct walk *w, int64_t detect_ns, bool node)
{
    w->blame = w->job->n_causes;
    lose(w, node);
    enter(w, DETECT, detect_ns);
}

/* Chooses the device type in proportion to the devices in use. */
static void break_devices(struct walk *w, size_t cause)
{
    const struct goodput_job *j = w->job;
    int64_t all = 0, at, n = j->causes[cause].devices;
    int32_t t = 0;
    if (!n || !j->repair_ns) return;
    for (int32_t i = 0; i < j->n_types; i++) all += w->used[i];
    if (!all) return;
    at = (int64_t)rng_below(w->seed, w->stream + j->n_causes + cause, w->drawn[cause],
                            (uint64_t)all);
    while (at >= w->used[t]) at -= w->used[t++];
    if (n > w->used[t]) n = w->used[t];
    w->broken[t] += n;
    w->repairs = arena_grow(w->arena, w->repairs, w->first_repair + w->n_repairs,
                            &w->repair_capacity, sizeof *w->repairs);
    w->repairs[w->first_repair + w->n_repairs++] = (struct repair){w->now_ns + j->repair_ns, n, t};
}

static void fail(struct walk *w)
{
    size_t cause = w->blame = w->soonest;
    w->out->failures[cause]++;
    draw_next(w, cause);
    find_soonest(w);
    lose(w, w->job->causes[cause].devices > 0);
    break_devices(w, cause);
    enter(w, DETECT, w->job->detect_ns);
}

static void repaired(struct walk *w)
{
    struct repair r = w->repairs[w->first_repair++];
    if (!--w->n_repairs) w->first_repair = 0;
    w->broken[r.type] -= r.devices;
    goodput_maybe_grow(w);
}

/* Devices in use are withdrawn. With a long enough warning the last of the running time was used for a checkpoint. */
static void withdrawn(struct walk *w)
{
    const struct goodput_job *j = w->job;
    w->out->preemptions++;
    w->blame = j->n_causes;
    if (w->state != RUN || j->notice_ns < j->checkpoint_ns + j->background_ns || !j->notice_ns) {
        w->memory_safe = 0; /* and its copies are of the withdrawn nodes */
        lose(w, true);
        enter(w, DETECT, j->detect_ns);
        return;
    }
    double write = w->speed * (double)(j->checkpoint_ns + j->background_ns);
    if (write > w->work - w->safe) write = w->work - w->safe;
    w->out->part_ns[GOODPUT_useful] -= write;
    w->out->part_ns[GOODPUT_checkpoint] += write;
    w->safe = w->work -= write;
    w->durable_ns = NEVER;
    choose(w);
}

static void changed(struct walk *w)
{
    const struct goodput_change *c = &w->job->changes[w->change++];
    bool short_of = false;
    memcpy(w->there, c->devices, (size_t)w->job->n_types * sizeof *w->there);
    for (int32_t t = 0; t < w->job->n_types; t++) short_of |= w->used[t] > had(w, t);
    if (short_of && w->state != DETECT && w->state != WAIT)
        withdrawn(w);
    else
        goodput_maybe_grow(w);
}

/* Steps count, if the job has them, because a run writes after a number of steps. */
static void set_due(struct walk *w)
{
    w->due_ns = w->now_ns + w->interval_ns;
    w->due_work = w->work + (double)w->interval_ns;
}

static void written(struct walk *w)
{
    if (w->then_change) {
        w->safe = w->work;
        choose(w);
        return;
    }
    w->out->checkpoints++;
    if (script_writes(w)) {
        w->pending = w->work;
        w->durable_ns = w->now_ns + w->job->background_ns;
        if (!w->job->background_ns) w->safe = w->work, w->durable_ns = NEVER;
    }
    enter(w, RUN, 0);
    set_due(w);
    goodput_maybe_grow(w); /* devices may have arrived meanwhile, and all work is now safe */
}

static void phase_over(struct walk *w)
{
    switch (w->state) {
    case WRITE:
        written(w);
        return;
    case MEMORY:
        memory_written(w);
        enter(w, RUN, 0);
        return;
    case DETECT:
        choose(w);
        return;
    case REPLAN:
        enter(w, RESTART, w->from_memory ? w->job->memory_restart_ns : w->job->restart_ns);
        return;
    case RESTART:
        enter(w, RUN, 0);
        w->from_memory = false;
        memory_set_due(w);
        set_due(w);
        goodput_maybe_grow(w);
        return;
    case RUN:
    case WAIT:
        break;
    }
    BUG("goodput: a phase without an end is over");
}

/* --- time ------------------------------------------------------------------------------------- */

double goodput_work_pace(const struct walk *w)
{
    return w->speed * w->slowed * (w->durable_ns == NEVER ? 1 : 1 - w->job->background_slow);
}

/* A checkpoint waits until the previous one is safe; the last one is written when all work is done. */
static int64_t due_ns(const struct walk *w)
{
    int64_t due = w->due_ns;
    if (w->job->step_ns) {
        double wait = ceil((w->due_work - w->work) / goodput_work_pace(w));
        due = wait < (double)HORIZON_MAX_NS ? w->now_ns + (wait > 0 ? (int64_t)wait : 0) : NEVER;
    }
    if (w->durable_ns != NEVER && w->durable_ns > due) due = w->durable_ns;
    if (w->job->work_ns) {
        double left = ceil(((double)w->job->work_ns - w->work) / goodput_work_pace(w));
        if (left < 0) left = 0;
        if (left < (double)(due - w->now_ns)) due = w->now_ns + (int64_t)left;
        if (w->durable_ns != NEVER && w->durable_ns > due) due = w->durable_ns;
    }
    return due > w->now_ns ? due : w->now_ns;
}

static enum event next_event(const struct walk *w, int64_t *when)
{
    enum event e = END;
    *when = w->job->horizon_ns;
#define CONSIDER(event, time)                                                                      \
    do {                                                                                           \
        int64_t time_ = (time);                                                                    \
        if (time_ < *when) *when = time_, e = (event);                                             \
    } while (0)
    CONSIDER(DURABLE, w->durable_ns);
    CONSIDER(COPIED, w->memory_durable_ns);
    if (w->state != RUN && w->state != WAIT) CONSIDER(PHASE, w->phase_end_ns);
    if (w->change < w->job->n_changes) CONSIDER(CHANGE, w->job->changes[w->change].time_ns);
    if (w->n_repairs) CONSIDER(REPAIR, w->repairs[w->first_repair].time_ns);
    CONSIDER(FAILURE, failure_ns(w));
    if (w->state == RUN) CONSIDER(MEMORY_DUE, memory_due_ns(w)); /* in front of one on storage after the same step */
    if (w->state == RUN) CONSIDER(DUE, due_ns(w));
    if (w->job->n_events) CONSIDER(SCRIPT, script_next_ns(w)); /* behind a checkpoint after the same step */
#undef CONSIDER
    return e;
}

static void advance(struct walk *w, int64_t when)
{
    static const enum goodput_part part[] = {[WRITE] = GOODPUT_checkpoint,
                                             [MEMORY] = GOODPUT_checkpoint,
                                             [DETECT] = GOODPUT_detection,
                                             [REPLAN] = GOODPUT_replan,
                                             [RESTART] = GOODPUT_restart,
                                             [WAIT] = GOODPUT_waiting};
    double passed = (double)(when - w->now_ns);
    w->clock += pace(w) * passed;
    w->now_ns = when;
    if (w->state != RUN) {
        w->out->part_ns[part[w->state]] += passed;
        if ((w->state != WRITE && w->state != MEMORY) || w->then_change) w->out->cause_ns[w->blame] += passed;
        return;
    }
    double work = goodput_work_pace(w) * passed;
    w->work += work;
    w->out->part_ns[GOODPUT_useful] += work;
    w->out->part_ns[GOODPUT_checkpoint] += w->speed * w->slowed * passed - work;
    w->out->part_ns[GOODPUT_fewer] += passed - w->speed * passed;
    w->out->part_ns[GOODPUT_slow] += w->speed * (passed - w->slowed * passed);
    script_worked(w, work);
}

static void happen(struct walk *w, enum event e)
{
    switch (e) {
    case DURABLE:
        w->safe = w->pending;
        w->durable_ns = NEVER;
        return;
    case COPIED:
        memory_copied(w);
        return;
    case PHASE:
        phase_over(w);
        return;
    case CHANGE:
        changed(w);
        return;
    case REPAIR:
        repaired(w);
        return;
    case FAILURE:
        fail(w);
        return;
    case MEMORY_DUE:
        enter(w, MEMORY, w->job->memory_ns);
        return;
    case DUE:
        enter(w, WRITE, w->job->checkpoint_ns);
        return;
    case SCRIPT:
        script_happen(w);
        return;
    case END:
        return;
    }
}

/* --- one walk --------------------------------------------------------------------------------- */

static enum status check_times(const struct goodput_job *j, struct error *err)
{
    const struct {
        const char *name;
        int64_t ns;
    } times[] = {{"checkpoint", j->checkpoint_ns},
                 {"background write", j->background_ns},
                 {"detection", j->detect_ns},
                 {"restart", j->restart_ns},
                 {"re-planning", j->replan_ns},
                 {"repair", j->repair_ns},
                 {"outlook", j->outlook_ns},
                 {"notice", j->notice_ns},
                 {"checkpoint interval in memory", j->memory_interval_ns},
                 {"checkpoint in memory", j->memory_ns},
                 {"copy to a peer", j->memory_copy_ns},
                 {"restart from memory", j->memory_restart_ns},
                 {"work", j->work_ns}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i].ns < 0 || times[i].ns > HORIZON_MAX_NS)
            return error_set(err, ERR_INPUT, "%s of %g s: not between 0 and 36 years",
                             times[i].name, units_s_from_ns(times[i].ns));
    if (!(j->background_slow >= 0 && j->background_slow < 1))
        return error_set(err, ERR_INPUT,
                         "a background write takes %g of the speed: not in [0, 1)",
                         j->background_slow);
    if (j->horizon_ns <= 0 || j->horizon_ns > HORIZON_MAX_NS)
        return error_set(err, ERR_INPUT, "a run of %g s: not between 0 and 36 years",
                         units_s_from_ns(j->horizon_ns));
    return OK;
}

static enum status check(const struct goodput_job *j, int64_t interval_ns, struct error *err)
{
    int64_t devices = 0;
    double failures = 0;
    TRY(check_times(j, err));
    if (interval_ns <= 0 || interval_ns > HORIZON_MAX_NS)
        return error_set(err, ERR_INPUT, "a checkpoint every %g s: not between 0 and 36 years",
                         units_s_from_ns(interval_ns));
    if (j->n_types < 1 || j->n_types > GOODPUT_TYPES_MAX)
        return error_set(err, ERR_INPUT, "%" PRId32 " device types: must be 1 to %d",
                         j->n_types, GOODPUT_TYPES_MAX);
    for (int32_t t = 0; t < j->n_types; t++) {
        if (j->devices[t] < 0 || (j->spares && j->spares[t] < 0))
            return error_set(err, ERR_INPUT, "fewer than 0 devices of type %s", j->types[t]);
        devices += j->devices[t];
    }
    if (!devices) return error_set(err, ERR_INPUT, "a job needs at least one device");
    for (size_t i = 0; i < j->n_causes; i++) {
        const struct goodput_cause *c = &j->causes[i];
        if (!(c->mtbf_s > 0) || !(c->shape >= 0.1 && c->shape <= 100) || c->devices < 0)
            return error_set(
                err, ERR_INPUT,
                "%s: mean time between failures %g s, shape %g, %" PRId64
                " devices: the first must be > 0, the second in 0.1 ... 100, the third >= 0",
                c->name, c->mtbf_s, c->shape, c->devices);
        failures += units_s_from_ns(j->horizon_ns) / c->mtbf_s;
    }
    if (failures > FAILURES_MAX)
        return error_set(err, ERR_INPUT,
                         "%.3g failures in %g s: more than the limit of a simulation (%g)", failures,
                         units_s_from_ns(j->horizon_ns), FAILURES_MAX);
    double writes = (double)(j->step_ns ? j->work_ns : j->horizon_ns) / ((double)interval_ns + (double)j->checkpoint_ns);
    if (j->memory_interval_ns) writes += (double)(j->step_ns ? j->work_ns : j->horizon_ns) / ((double)j->memory_interval_ns + (double)j->memory_ns);
    if (writes > CHECKPOINTS_MAX)
        return error_set(err, ERR_INPUT,
                         "%.3g checkpoints in %g s: more than the limit of a simulation (%g)", writes,
                         units_s_from_ns(j->horizon_ns), CHECKPOINTS_MAX);
    return OK;
}

static void set_out(struct walk *w, int64_t sample)
{
    const struct goodput_job *j = w->job;
    size_t types = (size_t)j->n_types;
    w->there = ARENA_ARRAY(w->arena, int64_t, types);
    w->broken = ARENA_ARRAY(w->arena, int64_t, types);
    w->used = ARENA_ARRAY(w->arena, int64_t, types);
    w->next = ARENA_ARRAY(w->arena, double, j->n_causes);
    w->drawn = ARENA_ARRAY(w->arena, uint64_t, j->n_causes);
    w->stream = rng_hash_bytes(1, &sample, sizeof sample);
    w->durable_ns = w->memory_durable_ns = NEVER;
    w->blame = j->n_causes;
    for (size_t i = 0; i < j->n_causes; i++) draw_next(w, i);
    find_soonest(w);
    for (int32_t t = 0; t < j->n_types; t++)
        w->there[t] = j->devices[t] + (j->spares ? j->spares[t] : 0);
    for (; w->change < j->n_changes && j->changes[w->change].time_ns <= 0; w->change++)
        memcpy(w->there, j->changes[w->change].devices, types * sizeof *w->there);
    choose(w); /* the first plan and the first start are not attributed to a failure */
    w->out->replans = 0;
    if (w->state != WAIT) enter(w, RUN, 0);
    set_due(w);
    memory_set_due(w);
    script_open(w);
}

enum status goodput_walk(struct arena *a, const struct goodput_job *job, int64_t interval_ns,
                         uint64_t seed, int64_t sample, struct goodput_tally *out,
                         struct error *err)
{
    TRY(check(job, interval_ns, err));
    *out = (struct goodput_tally){.failures = ARENA_ARRAY(a, double, job->n_causes),
                                  .cause_ns = ARENA_ARRAY(a, double, job->n_causes + 1)};
    struct walk w = {.arena = a, .job = job, .out = out, .seed = seed, .interval_ns = interval_ns};
    set_out(&w, sample);
    for (enum event e = DUE; e != END;) {
        int64_t when;
        if (out->ended_early || (job->work_ns && w.safe >= (double)job->work_ns - 0.5)) break;
        e = next_event(&w, &when);
        advance(&w, when);
        happen(&w, e);
    }
    out->elapsed_ns = (double)w.now_ns;
    return OK;
}
