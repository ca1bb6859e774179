/* planner/schedule/plan.c - replica → pipeline → orders → plan. */
#include "planner/schedule/plan.h"

#include "core/base/arena.h"
#include "planner/candidate/group.h"
#include "planner/schedule/find.h"

#include <string.h>

enum {
    /* Timings of a replica's order below which the eager order is taken and not searched. At 32 stages and 96 microbatches, searches
     * of 25 to 330 timings gave orders as short, which the simulation made 1 to 12 % slower; at 720 operations, 280 timings gained
     * 0.1 to 0.4 % (docs/measurements.md, 2026-11-23). */
    EAGER_TIMINGS = 100
};

/* Bytes alive from F to I, from F to W, from I to W. */
enum life { F_TO_I, F_TO_W, I_TO_W, LIVES };

/* Buffer rings have as many buffers as are ever alive at once, and each ring has its peak at another time. */
struct memory {
    int64_t resident_bytes, limit_bytes, buffer_bytes[LIVES];
};

struct ordering {
    struct arena *arena, *scratch;
    struct scorer *scorer;
    const struct space *space;
    struct plan *plan; /* the variant that receives the orders */
    int64_t operations;
    const volatile sig_atomic_t *stop;
    bool *lacks; /* (stages of all replicas) whether memory was short with some order tried */
    struct pipeline *pipeline;    /* (n_replicas) n_stages 0: unchanged */
    struct memory **memory;       /* (n_replicas, n_stages) */
    struct schedule_found *found; /* (n_replicas) the last orders; no lanes: none */
};

static bool stop_requested(void *user)
{
    const struct ordering *x = user;
    return x->stop && *x->stop;
}

static bool can_order(const struct plan_replica *r)
{
    return r->n_stages > 1 && r->microbatches > 1;
}

/* The program has each stage of the plan once per device, in order. */
static bool one_stage_a_device(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        if (x->orders) return false;
        for (int32_t i = 0; i < x->n_stages; i++)
            for (int32_t k = 0; k < i; k++)
                if (x->stages[i].device == x->stages[k].device) return false;
    }
    return true;
}

/* --- orders as text --- */

static char *put_number(char *to, int32_t x)
{
    char digits[12];
    int n = 0;
    do digits[n++] = (char)('0' + x % 10);
    while (x /= 10);
    while (n) *to++ = digits[--n];
    return to;
}

static const char *text_of(struct arena *a, const struct schedule_lane *l)
{
    char *text = arena_alloc(a, 13 * (size_t)l->n_ops + 1, 1), *to = text;
    for (int64_t i = 0; i < l->n_ops; i++) {
        if (i) *to++ = ' ';
        *to++ = l->ops[i].phase;
        to = put_number(to, l->ops[i].microbatch);
    }
    return text;
}

/* twin: a replica that has them already, or NULL. */
static void write_orders(struct ordering *x, struct plan_replica *r, const struct schedule *s,
                         const struct plan_replica *twin)
{
    r->schedule = NULL, r->split = false;
    for (int32_t i = 0; i < r->n_stages; i++) {
        r->stages[i].order = twin ? twin->stages[i].order : text_of(x->arena, &s->lanes[i]);
        r->stages[i].warmup = 0;
    }
}

/* --- memory of a microbatch --- */

static void lives_of(const struct program *p, const struct program_stage *s, int64_t bytes[LIVES])
{
    memset(bytes, 0, LIVES * sizeof *bytes);
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        bool back =
            r->birth == PHASE_I || (r->birth == PHASE_RECEIVE && p->channels[r->received].gradient);
        if (r->death == PHASE_I && !back) bytes[F_TO_I] += r->stride_bytes;
        if (r->death == PHASE_W) bytes[back ? I_TO_W : F_TO_W] += r->stride_bytes;
    }
}

/* Peak counts of each in an order. */
static void max_alive(const struct schedule_lane *l, int64_t most[LIVES])
{
    int64_t f = 0, i = 0, w = 0;
    memset(most, 0, LIVES * sizeof *most);
    for (int64_t k = 0; k < l->n_ops; k++) {
        enum phase phase = l->ops[k].phase;
        f += phase == PHASE_F, i += phase == PHASE_I, w += phase == PHASE_W;
        const int64_t now[LIVES] = {f - i + (phase == PHASE_I), f - w + (phase == PHASE_W),
                                    i - w + (phase == PHASE_W)};
        for (int life = 0; life < LIVES; life++)
            if (now[life] > most[life]) most[life] = now[life];
    }
}

static int64_t needed(const struct memory *x, const struct schedule_lane *l)
{
    int64_t most[LIVES], bytes = x->resident_bytes;
    max_alive(l, most);
    for (int life = 0; life < LIVES; life++) bytes += x->buffer_bytes[life] * most[life];
    return bytes;
}

/* --- replicas as pipelines --- */

static int64_t part(int64_t ns, int64_t sequences, int64_t of)
{
    return (ns * sequences + of - 1) / of;
}

/* The time of a stage on several devices is that of its slowest device. The devices of a sharded stage have one price. */
static void price_stage(const struct ordering *x, const struct plan_stage *g,
                        struct pipeline_stage *out)
{
    int64_t all = x->plan->microbatch;
    for (int32_t k = 0; k < (g->sharding ? 1 : plan_stage_devices(g)); k++) {
        const struct stage_cost *c = g->sharding ? group_stage(x->space, g)
                                                 : space_stage(x->space, plan_stage_device(g, k),
                                                               g->first_layer, g->last_layer);
        int64_t n = plan_stage_sequences(x->plan, g, k);
        int64_t f = part(c->forward_ns, n, all),
                i = part(c->input_ns + group_recompute_ns(x->space, g, c), n, all),
                w = part(c->weight_ns, n, all);
        if (f > out->forward_ns) out->forward_ns = f;
        if (i > out->input_ns) out->input_ns = i;
        if (w > out->weight_ns) out->weight_ns = w;
    }
}

static void price_link(const struct space *s, const struct plan_stage *x,
                       const struct plan_stage *y, struct pipeline_link *out)
{
    const struct cost_link *l = space_link(s, x->device, y->device);
    for (int k = 0; l && k < 2; k++) {
        out->occupancy_ns[k] = cost_occupancy_ns(l, s->cut_bytes[x->last_layer]);
        out->latency_ns[k] = l->latency_ns;
    }
}

/* The device that holds the fewest microbatches counts. at: index of the stage's first device among the program's stages;
 * made: the order of the program. */
static void measure_memory(const struct program *program, int32_t at, int32_t n,
                           const struct schedule_lane *made, struct memory *out)
{
    double fewest = 0;
    for (int32_t k = at; k < at + n; k++) {
        int32_t lane = program->stages[k].device;
        struct memory m = {.limit_bytes = program->devices[lane].memory_bytes};
        lives_of(program, &program->stages[k], m.buffer_bytes);
        m.resident_bytes = program_lane_bytes(program, lane) - needed(&m, made);
        int64_t forward = m.buffer_bytes[F_TO_I] + m.buffer_bytes[F_TO_W];
        double held =
            (double)(m.limit_bytes - m.resident_bytes) / (double)(forward > 0 ? forward : 1);
        if (k > at && held >= fewest) continue;
        fewest = held, *out = m;
    }
}

static void describe(struct ordering *x, const struct program *program, int32_t at, int32_t replica,
                     const struct schedule *made)
{
    const struct plan_replica *r = &x->plan->replicas[replica];
    struct pipeline *p = &x->pipeline[replica];
    size_t n = (size_t)r->n_stages;
    *p = (struct pipeline){.n_devices = r->n_stages, .n_stages = r->n_stages};
    p->stages = ARENA_ARRAY(x->scratch, struct pipeline_stage, n);
    p->links = ARENA_ARRAY(x->scratch, struct pipeline_link, n);
    p->devices = ARENA_ARRAY(x->scratch, struct pipeline_device, n);
    struct memory *m = x->memory[replica] = ARENA_ARRAY(x->scratch, struct memory, n);
    for (int32_t i = 0; i < r->n_stages; i++, m++) {
        int32_t devices = plan_stage_devices(&r->stages[i]);
        struct pipeline_stage *stage = &p->stages[i];
        price_stage(x, &r->stages[i], stage);
        if (i + 1 < r->n_stages)
            price_link(x->space, &r->stages[i], &r->stages[i + 1], &p->links[i]);
        measure_memory(program, at, devices, &made->lanes[i], m);
        stage->forward_bytes = m->buffer_bytes[F_TO_I] + m->buffer_bytes[F_TO_W];
        stage->input_bytes = m->buffer_bytes[I_TO_W] - m->buffer_bytes[F_TO_I];
        stage->weight_bytes = -m->buffer_bytes[F_TO_W] - m->buffer_bytes[I_TO_W];
        p->devices[i] = (struct pipeline_device){m->resident_bytes, m->limit_bytes};
        at += devices;
    }
}

/* Lowers every replica with the order of ZB-H1; the lifetimes of its buffer rings hold for any order with I and W. */
static enum status describe_all(struct ordering *x, bool *possible, struct error *err)
{
    struct plan *p = x->plan;
    struct schedule *made = ARENA_ARRAY(x->scratch, struct schedule, (size_t)p->n_replicas);
    const struct program *program;
    *possible = false;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_replica *replica = &p->replicas[r];
        struct schedule_spec spec = {.kind = SCHEDULE_ZB_H1,
                                     .n_devices = replica->n_stages,
                                     .n_microbatches = replica->microbatches};
        if (!can_order(replica)) continue;
        TRY(schedule_make(x->scratch, &spec, &made[r], err));
        write_orders(x, replica, &made[r], NULL);
        *possible = true;
    }
    if (!*possible) return OK;
    TRY(scorer_program(x->scorer, x->space, p, &program, err));
    *possible = program != NULL;
    x->pipeline = ARENA_ARRAY(x->scratch, struct pipeline, (size_t)p->n_replicas);
    x->memory = ARENA_ARRAY(x->scratch, struct memory *, (size_t)p->n_replicas);
    x->found = ARENA_ARRAY(x->scratch, struct schedule_found, (size_t)p->n_replicas);
    for (int32_t r = 0, at = 0; program && r < p->n_replicas; r++) {
        const struct plan_replica *replica = &p->replicas[r];
        if (made[r].n_devices) describe(x, program, at, r, &made[r]);
        for (int32_t i = 0; i < replica->n_stages; i++)
            at += plan_stage_devices(&replica->stages[i]);
    }
    return OK;
}

/* --- the search --- */

static bool same_pipeline(const struct pipeline *p, const struct pipeline *q)
{
    size_t n = (size_t)p->n_stages;
    return p->n_stages == q->n_stages && !memcmp(p->stages, q->stages, n * sizeof *p->stages) &&
           !memcmp(p->links, q->links, n * sizeof *p->links) &&
           !memcmp(p->devices, q->devices, n * sizeof *p->devices);
}

/* An earlier replica that needs the same order; -1: none. */
static int32_t twin(const struct ordering *x, int32_t r)
{
    for (int32_t k = 0; k < r; k++)
        if (x->plan->replicas[k].microbatches == x->plan->replicas[r].microbatches &&
            same_pipeline(&x->pipeline[k], &x->pipeline[r]))
            return k;
    return -1;
}

static enum status order_replica(struct ordering *x, int32_t r, bool *fits, struct error *err)
{
    struct plan_replica *replica = &x->plan->replicas[r];
    int64_t nodes = 3 * (int64_t)replica->n_stages * replica->microbatches;
    struct schedule_find_options o = {.seed = 1,
                                      .operations = x->operations,
                                      .cheap = true,
                                      .eager = x->operations < EAGER_TIMINGS * nodes,
                                      .stop = stop_requested,
                                      .user = x};
    struct schedule shape;
    schedule_shape(x->scratch, replica->n_stages, 1, replica->microbatches, false, &shape);
    enum status st = schedule_find(x->scratch, &x->pipeline[r], &shape, &o, &x->found[r], err);
    *fits = st == OK;
    if (st != ERR_INFEASIBLE) return st;
    *err = (struct error){0};
    return OK;
}

/* *fits false: some replica keeps its order. */
static enum status order_all(struct ordering *x, bool *fits, struct error *err)
{
    *fits = true;
    for (int32_t r = 0; r < x->plan->n_replicas; r++) {
        if (!x->pipeline[r].n_stages) continue;
        int32_t same = twin(x, r);
        if (same < 0) {
            bool one;
            TRY(order_replica(x, r, &one, err));
            *fits = *fits && one;
            continue;
        }
        x->found[r] = x->found[same];
    }
    return OK;
}

/* Writes the orders found; those of equal replicas are one text. */
static void write_all(struct ordering *x)
{
    for (int32_t r = 0; r < x->plan->n_replicas; r++) {
        const struct schedule *s = &x->found[r].schedule;
        struct plan_replica *replica = &x->plan->replicas[r];
        int32_t same = 0;
        if (!s->lanes) continue;
        while (x->found[same].schedule.lanes != s->lanes) same++;
        write_orders(x, replica, s, same < r ? &x->plan->replicas[same] : NULL);
    }
}

/* Bytes missing on a stage's fullest device; at: index of its first device among the program's stages. program NULL: by the buffer
 * rings measured, without lowering. */
static int64_t missing_of(const struct ordering *x, const struct program *program, int32_t r,
                          int32_t i, int32_t at)
{
    const struct memory *m = x->memory[r] ? &x->memory[r][i] : NULL;
    const struct schedule_lane *lanes = x->found[r].schedule.lanes;
    if (!program) return m && lanes ? needed(m, &lanes[i]) - m->limit_bytes : 0;
    int64_t most = 0;
    for (int32_t k = at; k < at + plan_stage_devices(&x->plan->replicas[r].stages[i]); k++) {
        int32_t device = program->stages[k].device;
        int64_t bytes = program_lane_bytes(program, device) - program->devices[device].memory_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Tightens the memory limits of stages that exceed memory below the joint peak of the order found: by the missing bytes times the
 * number of attempts, because the missing bytes alone often lead to an order that fills another ring. false: no stage exceeds memory. */
static bool tighten(struct ordering *x, const struct program *program, int attempts)
{
    bool missing = false;
    for (int32_t r = 0, lane = 0, at = 0; r < x->plan->n_replicas; r++)
        for (int32_t i = 0; i < x->plan->replicas[r].n_stages; i++, lane++) {
            int64_t over = missing_of(x, program, r, i, at);
            at += plan_stage_devices(&x->plan->replicas[r].stages[i]);
            if (over <= 0) continue;
            missing = x->lacks[lane] = true;
            if (!x->found[r].peak_bytes) continue;
            x->pipeline[r].devices[i].limit_bytes = x->found[r].peak_bytes[i] - attempts * over;
        }
    return missing;
}

/* Whether the work of a stage alone leaves nothing to gain. */
static bool stage_too_slow(const struct ordering *x, const struct plan_replica *r, int32_t i,
                           int64_t best_ns)
{
    struct pipeline_stage s = {0};
    price_stage(x, &r->stages[i], &s);
    int64_t ns = s.forward_ns + s.input_ns + s.weight_ns;
    return ns >= best_ns / r->microbatches;
}

static bool too_slow(const struct ordering *x, int64_t best_ns)
{
    for (int32_t r = 0; r < x->plan->n_replicas; r++)
        for (int32_t i = 0; i < x->plan->replicas[r].n_stages; i++)
            if (stage_too_slow(x, &x->plan->replicas[r], i, best_ns)) return true;
    return false;
}

/* Whether a replica's orders take so long that a simulation of them would not be faster either: it may be a few percent faster where
 * stages recompute. */
static bool too_long(const struct ordering *x, int64_t best_ns)
{
    for (int32_t r = 0; r < x->plan->n_replicas; r++)
        if (x->found[r].makespan_ns / 100 * 95 >= best_ns) return true;
    return false;
}

/* Searches orders of the variant that fit, and simulates them; *ns INT64_MAX: none. */
static enum status search_orders(struct ordering *x, int64_t best_ns, int64_t *ns,
                                 struct error *err)
{
    bool possible, fits = true;
    *ns = INT64_MAX;
    if (too_slow(x, best_ns)) return OK;
    TRY(describe_all(x, &possible, err));
    for (int k = 1; possible && fits; k++) {
        const struct program *program;
        enum status refusal;
        TRY(order_all(x, &fits, err));
        if (tighten(x, NULL, k)) continue;
        if (too_long(x, best_ns)) return OK;
        write_all(x);
        if (fits) {
            TRY(scorer_run(x->scorer, x->space, x->plan, ns, err));
            program = scorer_last(x->scorer, &refusal);
        } else {
            TRY(scorer_program(x->scorer, x->space, x->plan, &program, err));
        }
        if (!program || !tighten(x, program, k)) return OK;
    }
    return OK;
}

/* Sets recomputation for the stages that exceeded memory. false: all of them recompute already. */
static bool recompute_lacking(struct ordering *x, int64_t best_ns)
{
    bool changed = false;
    for (int32_t r = 0, lane = 0; r < x->plan->n_replicas; r++)
        for (int32_t i = 0; i < x->plan->replicas[r].n_stages; i++, lane++) {
            struct plan_stage *stage = &x->plan->replicas[r].stages[i];
            if (!x->lacks[lane] || stage->recompute == RECOMPUTE_STAGE) continue;
            struct plan_stage before = *stage;
            stage->recompute = RECOMPUTE_STAGE, stage->recompute_blocks = 0;
            if (stage_too_slow(x, &x->plan->replicas[r], i, best_ns)) {
                *stage = before;
                continue;
            }
            changed = true;
        }
    return changed;
}

static enum status order_and_score(struct ordering *x, struct plan *best, int64_t *best_ns,
                                   int64_t *evaluations_left, struct error *err)
{
    int64_t ns;
    if (*evaluations_left <= 0 || stop_requested(x)) return OK;
    TRY(search_orders(x, *best_ns, &ns, err));
    if (ns < INT64_MAX) --*evaluations_left;
    if (ns < *best_ns) *best = *x->plan, *best_ns = ns;
    return OK;
}

static int64_t operations_of(const struct plan *p)
{
    int64_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        n += 3 * (int64_t)p->replicas[r].n_stages * p->replicas[r].microbatches;
    return n;
}

enum status schedule_plan(struct arena *a, struct scorer *w, const struct space *s,
                          struct plan *plan, int64_t *iteration_ns, int64_t *evaluations_left,
                          int64_t operations, const volatile sig_atomic_t *stop, struct error *err)
{
    /* Measured layers have a fused backward, so they have no orders of I and W. */
    if (s->job->model.measured) return OK;
    struct plan best = *plan, variant = scorer_copy_plan(a, plan),
                again = scorer_copy_plan(a, plan);
    struct ordering x = {.arena = a,
                         .scratch = arena_new(),
                         .scorer = w,
                         .space = s,
                         .plan = &variant,
                         .operations = operations,
                         .stop = stop};
    int32_t stages = 0;
    for (int32_t r = 0; r < plan->n_replicas; r++) stages += plan->replicas[r].n_stages;
    x.lacks = ARENA_ARRAY(x.scratch, bool, (size_t)stages);
    enum status st = OK;
    if (operations_of(plan) <= SCHEDULE_PLAN_OPS_MAX && one_stage_a_device(plan)) {
        st = order_and_score(&x, &best, iteration_ns, evaluations_left, err);
        x.plan = &again;
        if (st == OK && recompute_lacking(&x, *iteration_ns))
            st = order_and_score(&x, &best, iteration_ns, evaluations_left, err);
    }
    if (st == OK) *plan = best;
    arena_free(x.scratch);
    return st;
}
