#include "planner/candidate/scorer.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/program/program.h"
#include "planner/candidate/fitting.h"
#include "sim/engine/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fitted to 1,200 lowerings of the searches of eight questions of 8 to 10,240 GPUs (2026-11-27): 0.8 to 1.2 of the CPU time of a search's
 * lowerings. Operators and graphs of most stages are those of the memo (lower_options.memo), which depends on what a thread lowered before and
 * therefore does not count. Simulations count by a law of their own (sim/engine/work.h). */
enum {
    LOWER_NS = 20000,
    LOWER_OP_NS = 950,   /* of a stage that is unlike the plan's others */
    SHARD_OP_NS = 650,   /* more for a sharded stage, because each device has its own graph */
    LOWER_INSTR_NS = 25, /* of every stage, which is copied if it is not new */
    LOWER_CALL_NS = 100  /* of a stage, for orders */
};

struct scorer {
    struct lower_options lower; /* without the check of memory */
    struct scorer **helper;     /* (n_helpers) of other threads; NULL: not needed yet */
    int32_t n_helpers;
    bool quick, deterministic;
    int64_t work_end; /* a simulation beyond it is given up; 0: no limit */
    struct arena *own, *candidate,
        *program; /* own: this struct; candidate: its plan; program: lowering and simulation */
    int64_t runs, work_ns, calls, min_missing;
    const struct program *lowered; /* the last one, until the next lowering; NULL: refused */
    enum status refusal; /* why the last plan was not lowered */
    char refused[ERROR_TEXT];
    char why[sizeof((struct error *)0)->text];
};

static const char nothing[] = "by estimate no layout fits in the memory of the devices, so none was simulated";

struct scorer *scorer_new(const struct lower_options *lower)
{
    struct arena *own = arena_new();
    struct scorer *w = ARENA_ARRAY(own, struct scorer, 1);
    *w = (struct scorer){.lower = *lower,
                         .own = own,
                         .candidate = arena_new(),
                         .program = arena_new(),
                         .min_missing = INT64_MAX};
    snprintf(w->why, sizeof w->why, "%s", nothing);
    w->lower.timed_only = w->lower.unproved = true;
    w->lower.memo = lower_memo_new();
    w->lower.check_memory = false;
    return w;
}

struct scorer *scorer_helper(struct scorer *w, int32_t thread)
{
    if (thread >= w->n_helpers) {
        struct scorer **more = ARENA_ARRAY(w->own, struct scorer *, 2 * (size_t)thread);
        if (w->n_helpers) memcpy(more, w->helper, (size_t)w->n_helpers * sizeof(struct scorer *));
        w->helper = more, w->n_helpers = 2 * thread;
    }
    if (!w->helper[thread]) w->helper[thread] = scorer_new(&w->lower), w->helper[thread]->deterministic = w->deterministic;
    return w->helper[thread];
}

void scorer_free(struct scorer *w)
{
    for (int32_t i = 0; i < w->n_helpers; i++)
        if (w->helper[i]) scorer_free(w->helper[i]);
    lower_memo_free(w->lower.memo);
    arena_free(w->candidate);
    arena_free(w->program);
    arena_free(w->own);
}

struct arena *scorer_arena(struct scorer *w)
{
    arena_reset(w->candidate);
    return w->candidate;
}

int64_t scorer_runs(const struct scorer *w) { return w->runs; }
int64_t scorer_work(const struct scorer *w) { return w->work_ns; }
int64_t scorer_calls(const struct scorer *w) { return w->calls; }
void scorer_charge(struct scorer *w, int64_t ns) { w->work_ns += ns; }
const char *scorer_why(const struct scorer *w) { return w->why; }

void scorer_take_miss(struct scorer *w, struct scorer_miss *out)
{
    out->missing = w->min_missing;
    snprintf(out->why, sizeof out->why, "%s", w->why);
    w->min_missing = INT64_MAX;
    snprintf(w->why, sizeof w->why, "%s", nothing);
}

void scorer_note(struct scorer *w, const struct scorer_miss *miss, int64_t runs, int64_t work_ns)
{
    w->runs += runs, w->work_ns += work_ns;
    if (!strcmp(miss->why, nothing)) return;
    if (miss->missing > w->min_missing ||
        (miss->missing == w->min_missing && miss->missing < INT64_MAX))
        return;
    w->min_missing = miss->missing;
    snprintf(w->why, sizeof w->why, "%s", miss->why);
}

/* Bytes missing on the fullest device; 0: all fit. */
static int64_t worst_of(const struct program *p)
{
    int64_t worst = 0;
    for (int32_t i = 0; i < p->n_devices; i++)
        if (fitting_missing(p, i) > worst) worst = fitting_missing(p, i);
    return worst;
}

/* Records the text of the nearest miss. */
static void note_missing(struct scorer *w, const struct plan *p, const struct program *program,
                         int64_t worst)
{
    if (!worst || worst >= w->min_missing) return;
    struct arena *scratch = arena_new();
    struct error why = {0};
    if (lower_check_memory(scratch, p, program, &why) != OK) {
        w->min_missing = worst;
        snprintf(w->why, sizeof w->why, "%s (the nearest miss: %s)", why.text,
                 plan_describe(scratch, p));
    }
    arena_free(scratch);
}

struct lowered { /* a stage of a device */
    const struct program_op *ops;
    int64_t n, shared;
};

static int by_address(const void *x, const void *y)
{
    uintptr_t a = (uintptr_t)((const struct lowered *)x)->ops,
              b = (uintptr_t)((const struct lowered *)y)->ops;
    return (a > b) - (a < b);
}

/* Stages that differ in their devices only share their operators, and are lowered once (core/lower/equal_stages.h). */
static void charge_lowering(struct scorer *w, const struct plan *p, const struct program *program)
{
    struct lowered *stages = ARENA_ARRAY(w->program, struct lowered, (size_t)program->n_stages);
    int64_t calls = 0;
    int32_t at = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) { /* forward and backward */
        calls += 2 * (int64_t)p->replicas[r].microbatches * p->replicas[r].n_stages;
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = plan_stage_devices(&p->replicas[r].stages[i]); k > 0; k--, at++) {
                int64_t n = program->stages[at].n_ops;
                bool sharded = p->replicas[r].stages[i].sharding;
                stages[at] = (struct lowered){program->stages[at].ops, n, sharded ? n : 0};
            }
    }
    qsort(stages, (size_t)at, sizeof *stages, by_address);
    w->calls += calls;
    scorer_charge(w, LOWER_CALL_NS * calls + LOWER_INSTR_NS * program_instrs(program));
    for (int32_t i = 0; i < at; i++)
        if (!i || stages[i].ops != stages[i - 1].ops)
            scorer_charge(w, LOWER_OP_NS * stages[i].n + SHARD_OP_NS * stages[i].shared);
}

/* A plan that does not fit, or is too large to simulate, is skipped. */
static bool left_out(const struct scorer *w, enum status st)
{
    return st == ERR_INFEASIBLE || st == ERR_RESOURCE || (w->deterministic && st == ERR_INPUT);
}

/* Sets w->lowered. *missing: bytes on the fullest device; INT64_MAX: lowering rejects the plan. */
static enum status lower(struct scorer *w, const struct space *s, const struct plan *p,
                         int64_t *missing, struct error *err)
{
    arena_reset(w->program);
    struct program *program = ARENA_ARRAY(w->program, struct program, 1);
    struct plan lowered = *p;
    lowered.deterministic |= w->deterministic;
    w->lowered = NULL;
    scorer_charge(w, LOWER_NS);
    enum status st = lower_plan_graphs(w->program, &lowered, &s->graphs, &w->lower, program, err);
    if (st == OK) {
        charge_lowering(w, p, program);
        *missing = worst_of(program);
        note_missing(w, p, program, *missing);
        w->lowered = program;
    } else {
        w->refusal = st;
        snprintf(w->refused, sizeof w->refused, "%s", err->text);
        if (w->min_missing == INT64_MAX) snprintf(w->why, sizeof w->why, "%s", err->text);
    }
    if (!left_out(w, st)) return st;
    *err = (struct error){0};
    *missing = INT64_MAX;
    return OK;
}

void scorer_quick(struct scorer *w, bool quick) { w->quick = quick; }
void scorer_deterministic(struct scorer *w, bool deterministic) { w->deterministic = deterministic; }

void scorer_limit(struct scorer *w, int64_t work_ns)
{
    w->work_end = work_ns ? w->work_ns + work_ns : 0;
}

const struct program *scorer_last(const struct scorer *w, enum status *refusal)
{
    *refusal = w->lowered ? OK : w->refusal;
    return w->lowered;
}

int64_t scorer_last_miss(struct scorer *w, const struct plan *p, char why[ERROR_TEXT])
{
    if (!w->lowered) return snprintf(why, ERROR_TEXT, "%s", w->refused), INT64_MAX;
    struct arena *scratch = arena_new();
    struct error err = {0};
    enum status st = lower_check_memory(scratch, p, w->lowered, &err);
    snprintf(why, ERROR_TEXT, "%s", st == OK ? "" : err.text);
    arena_free(scratch);
    return worst_of(w->lowered);
}

static enum status simulate(struct scorer *w, const struct space *s, int64_t *iteration_ns,
                            struct error *err)
{
    const struct program *program = w->lowered;
    struct sim_result result;
    struct sim_options o = {.steps = 0, .fold = true};
    if (w->quick) o.steps = 1, o.detail = SIM_STAGE;
    if (w->work_end) o.most_work_ns = units_max(w->work_end - w->work_ns, 1);
    w->runs++;
    enum status st = sim_run(w->program, program, s->cost, &o, &result, err);
    if (st == ERR_RESOURCE && w->work_end) {
        scorer_charge(w, o.most_work_ns);
        if (w->min_missing == INT64_MAX) snprintf(w->why, sizeof w->why, "%s", err->text);
        return *err = (struct error){0}, OK;
    }
    if (st != OK) return st;
    *iteration_ns = result.iteration_ns;
    scorer_charge(w, result.work_ns);
    return OK;
}

static enum status run(struct scorer *w, const struct space *s, const struct plan *p, int64_t *iteration_ns, struct error *err)
{
    int64_t missing;
    *iteration_ns = INT64_MAX;
    TRY(lower(w, s, p, &missing, err));
    return missing ? OK : simulate(w, s, iteration_ns, err);
}

enum status scorer_program(struct scorer *w, const struct space *s, const struct plan *p,
                           const struct program **out, struct error *err)
{
    int64_t missing;
    TRY(lower(w, s, p, &missing, err));
    *out = w->lowered;
    return OK;
}

/* --- making it fit --- */

/* Repairs until the plan fits, if it can. */
static enum status repair(struct scorer *w, const struct space *s, struct arena *scratch, struct plan *p, int64_t *iteration_ns,
                          struct error *err)
{
    int64_t missing;
    *iteration_ns = INT64_MAX;
    fitting_bound_blocks(s, p);
    TRY(lower(w, s, p, &missing, err));
    struct fitting *f = fitting_new(scratch, p);
    while (missing && w->lowered && fitting_next(f, scratch, s, w->lowered, p)) TRY(lower(w, s, p, &missing, err));
    return missing ? OK : simulate(w, s, iteration_ns, err);
}

/* Where stages may offload activations, those that would recompute, or all if nothing fits, are also tried offloading: the faster plan. */
static enum status fit(struct scorer *w, const struct space *s, struct plan *p,
                       int64_t *iteration_ns, struct error *err)
{
    struct arena *scratch = arena_new();
    bool offers = fitting_offers(s);
    struct plan other = offers ? scorer_copy_plan(scratch, p) : *p;
    int64_t ns = INT64_MAX, missing;
    enum status st = repair(w, s, scratch, p, iteration_ns, err);
    if (st == OK && offers && fitting_offload(s, p, *iteration_ns == INT64_MAX, &other)) {
        st = repair(w, s, scratch, &other, &ns, err);
        if (ns < *iteration_ns)
            fitting_take(p, &other), *iteration_ns = ns;
        else if (st == OK)
            st = lower(w, s, p, &missing, err); /* the last plan is p */
    }
    arena_free(scratch);
    return st;
}

/* fitted: p, to be modified until it fits; NULL: it is not modified. The simulation finds a deadlock as the check does (core/program/check.c),
 * which takes as long; only the check repairs it, by buffers. */
static enum status score(struct scorer *w, const struct space *s, const struct plan *p,
                         struct plan *fitted, int64_t *iteration_ns, struct error *err)
{
    struct error why;
    enum status st = ERR_INPUT;
    for (int checked = 0; checked < 2 && st == ERR_INPUT; checked++) {
        why = (struct error){0};
        w->lower.unproved = !checked;
        st = fitted ? fit(w, s, fitted, iteration_ns, &why) : run(w, s, p, iteration_ns, &why);
    }
    w->lower.unproved = true;
    if (st != OK && err) *err = why;
    return st;
}

enum status scorer_run(struct scorer *w, const struct space *s, const struct plan *p,
                       int64_t *iteration_ns, struct error *err)
{
    return score(w, s, p, NULL, iteration_ns, err);
}

enum status scorer_fit(struct scorer *w, const struct space *s, struct plan *p,
                       int64_t *iteration_ns, struct error *err)
{
    return score(w, s, p, p, iteration_ns, err);
}
