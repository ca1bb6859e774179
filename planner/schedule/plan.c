/* planner/schedule/plan.c - replica → pipeline → orders → plan. */
#include "planner/schedule/plan.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/schedule/find.h"
#include "planner/schedule/order_text.h"

#include <string.h>

enum {
    OPERATIONS = 200000, /* timed for the orders of a replica: about 6 ms */
    EAGER_TIMINGS = 100  /* of a replica's order, below which the eager order is taken and not searched (docs/tuning.md) */
};

/* A plan's variants that are ordered, each with more memory for microbatches in flight where the ones before filled it: without recomputation,
 * though the plan's named schedule, which may hold more of them than orders do, takes some; with the optimizer state divided over the holders
 * of a parameter; with the plan's own recomputation; if none of these fits, with the backward of these stages undivided, so that no
 * activation waits for W; and with stages recomputed as a whole. */
enum variant { VARIANT_PLAIN, VARIANT_ZERO_1, VARIANT_OWN, VARIANT_UNDIVIDED, VARIANT_RECOMPUTE, VARIANTS };

struct memory { /* of a stage's device */
    int64_t resident_bytes, limit_bytes;
    struct shop_rings rings;
};

struct ordering {
    struct arena *arena, *scratch;
    struct scorer *scorer;
    const struct space *space;
    struct plan *plan; /* the variant that receives the orders */
    const volatile sig_atomic_t *stop;
    bool *lacks; /* (stages of all replicas) whether memory was full with some order tried */
    bool undivided, found_any; /* the backward of those; orders that fit */
    struct pipeline *pipeline;    /* (n_replicas) n_stages 0: unchanged */
    struct shop_rings **rings;    /* (n_replicas, n_stages) */
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

/* twin: a replica that has them already, or NULL. */
static void write_orders(struct ordering *x, struct plan_replica *r, const struct schedule *s,
                         const struct plan_replica *twin)
{
    r->schedule = NULL, r->split = false;
    for (int32_t i = 0; i < r->n_stages; i++) {
        r->stages[i].order = twin ? twin->stages[i].order : order_text_of(x->arena, &s->lanes[i]);
        r->stages[i].warmup = 0;
    }
}

/* --- memory of a microbatch --- */

static struct shop_rings rings_of(const struct program *p, const struct program_stage *s)
{
    struct shop_rings x = {{0}};
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        bool back = r->birth == PHASE_I || r->birth == PHASE_B ||
                    (r->birth == PHASE_RECEIVE && p->channels[r->received].gradient);
        if ((r->death == PHASE_I || r->death == PHASE_B) && !back) x.bytes[SHOP_F_TO_I] += r->stride_bytes;
        if (r->death == PHASE_W) x.bytes[back ? SHOP_I_TO_W : SHOP_F_TO_W] += r->stride_bytes;
    }
    return x;
}

/* --- replicas as pipelines --- */

static int64_t part(int64_t ns, int64_t sequences, int64_t of)
{
    return (ns * sequences + of - 1) / of;
}

static bool is_undivided(const struct ordering *x, int32_t replica, int32_t stage)
{
    int32_t lane = stage;
    for (int32_t r = 0; r < replica; r++) lane += x->plan->replicas[r].n_stages;
    return x->undivided && x->lacks[lane];
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
        m.rings = rings_of(program, &program->stages[k]);
        m.resident_bytes = program_lane_bytes(program, lane) - shop_rings_needed(&m.rings, made);
        int64_t forward = m.rings.bytes[SHOP_F_TO_I] + m.rings.bytes[SHOP_F_TO_W];
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
    x->rings[replica] = ARENA_ARRAY(x->scratch, struct shop_rings, n);
    for (int32_t i = 0; i < r->n_stages; i++) {
        int32_t devices = plan_stage_devices(&r->stages[i]);
        struct pipeline_stage *stage = &p->stages[i];
        price_stage(x, &r->stages[i], stage);
        if (is_undivided(x, replica, i)) stage->fused_ns = stage->input_ns + stage->weight_ns;
        if (i + 1 < r->n_stages)
            price_link(x->space, &r->stages[i], &r->stages[i + 1], &p->links[i]);
        struct memory m = {0};
        measure_memory(program, at, devices, &made->lanes[i], &m);
        stage->forward_bytes = m.rings.bytes[SHOP_F_TO_I] + m.rings.bytes[SHOP_F_TO_W];
        stage->input_bytes = m.rings.bytes[SHOP_I_TO_W] - m.rings.bytes[SHOP_F_TO_I];
        stage->weight_bytes = -m.rings.bytes[SHOP_F_TO_W] - m.rings.bytes[SHOP_I_TO_W];
        x->rings[replica][i] = m.rings;
        p->devices[i] = (struct pipeline_device){m.resident_bytes, m.limit_bytes};
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
        for (int32_t i = 0; i < replica->n_stages; i++)
            if (is_undivided(x, r, i)) order_text_undivide(&made[r].lanes[i]);
        write_orders(x, replica, &made[r], NULL);
        *possible = true;
    }
    if (!*possible) return OK;
    TRY(scorer_program(x->scorer, x->space, p, &program, err));
    *possible = program != NULL;
    x->pipeline = ARENA_ARRAY(x->scratch, struct pipeline, (size_t)p->n_replicas);
    x->rings = ARENA_ARRAY(x->scratch, struct shop_rings *, (size_t)p->n_replicas);
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
            same_pipeline(&x->pipeline[k], &x->pipeline[r]) &&
            !memcmp(x->rings[k], x->rings[r],
                    (size_t)x->pipeline[r].n_stages * sizeof *x->rings[r]))
            return k;
    return -1;
}

static enum status order_replica(struct ordering *x, int32_t r, bool *fits, struct error *err)
{
    struct plan_replica *replica = &x->plan->replicas[r];
    int64_t nodes = 3 * (int64_t)replica->n_stages * replica->microbatches;
    struct schedule_find_options o = {.seed = 1,
                                      .operations = OPERATIONS,
                                      .cheap = true,
                                      .eager = OPERATIONS < EAGER_TIMINGS * nodes,
                                      .rings = x->rings[r],
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

/* Bytes missing on a stage's fullest device; at: index of its first device among the program's stages. */
static int64_t missing_of(const struct program *program, const struct plan_stage *x, int32_t at)
{
    int64_t most = 0;
    for (int32_t k = at; k < at + plan_stage_devices(x); k++) {
        int32_t device = program->stages[k].device;
        most = units_max(most, program_lane_bytes(program, device) -
                                   program->devices[device].memory_bytes);
    }
    return most;
}

/* Bytes that the order found takes on a stage's device; 0: none was found. */
static int64_t taken(const struct ordering *x, int32_t r, int32_t i)
{
    const struct schedule_lane *lanes = x->found[r].schedule.lanes;
    if (!lanes) return 0;
    return x->pipeline[r].devices[i].resident_bytes + shop_rings_needed(&x->rings[r][i], &lanes[i]);
}

/* Marks the stages whose memory has no room for one more microbatch beside the order found. */
static void mark_full(struct ordering *x)
{
    for (int32_t r = 0, lane = 0; r < x->plan->n_replicas; r++)
        for (int32_t i = 0; i < x->plan->replicas[r].n_stages; i++, lane++) {
            const struct pipeline *p = &x->pipeline[r];
            if (p->n_stages && taken(x, r, i) + p->stages[i].forward_bytes > p->devices[i].limit_bytes)
                x->lacks[lane] = true;
        }
}

/* Lowers the memory limits of stages whose program takes more than its rings: by the missing bytes times the number of attempts. false:
 * no stage exceeds memory, or no limit can be lowered. */
static bool tighten(struct ordering *x, const struct program *program, int attempts)
{
    bool lower = false;
    for (int32_t r = 0, lane = 0, at = 0; r < x->plan->n_replicas; r++)
        for (int32_t i = 0; i < x->plan->replicas[r].n_stages; i++, lane++) {
            const struct plan_stage *stage = &x->plan->replicas[r].stages[i];
            int64_t over = missing_of(program, stage, at);
            at += plan_stage_devices(stage);
            if (over <= 0) continue;
            x->lacks[lane] = true;
            int64_t *limit = &x->pipeline[r].devices[i].limit_bytes, rings = taken(x, r, i), less = rings - attempts * over;
            lower |= rings && less < *limit;
            if (rings) *limit = less;
        }
    return lower;
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
        mark_full(x);
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

static bool has_holders(const struct plan *p, const struct plan_stage *x)
{
    return plan_stage_replicated(p, x) && !p->deterministic && !optimizer_needs_norms(&p->job.optimizer);
}

/* ZeRO 1 for all stages whose parameters have several holders, if memory was full on one of them and the plan has none. */
static bool shard_state(struct ordering *x)
{
    struct plan *p = x->plan;
    bool full = false;
    for (int32_t r = 0, lane = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++, lane++) {
            if (p->replicas[r].stages[i].zero) return false;
            full |= x->lacks[lane] && has_holders(p, &p->replicas[r].stages[i]);
        }
    for (int32_t r = 0, lane = 0; r < p->n_replicas && full; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++, lane++) {
            p->replicas[r].stages[i].zero = has_holders(p, &p->replicas[r].stages[i]);
            x->lacks[lane] = false;
        }
    return full;
}

/* Recomputation of the variant. false: as in the one before. */
static bool set_recompute(struct ordering *x, const struct plan *own, enum variant k,
                          int64_t best_ns)
{
    bool changed = false;
    for (int32_t r = 0, lane = 0; r < own->n_replicas; r++)
        for (int32_t i = 0; i < own->replicas[r].n_stages; i++, lane++) {
            const struct plan_stage *plain = &own->replicas[r].stages[i];
            struct plan_stage *stage = &x->plan->replicas[r].stages[i], before = *stage;
            bool none = k == VARIANT_PLAIN || !x->lacks[lane], whole = k == VARIANT_RECOMPUTE;
            stage->recompute = none ? RECOMPUTE_NONE : whole ? RECOMPUTE_STAGE : plain->recompute;
            stage->recompute_blocks = none || whole ? 0 : plain->recompute_blocks;
            stage->offload = plain->offload && (none || !whole);
            if (!none && whole && stage_too_slow(x, &x->plan->replicas[r], i, best_ns))
                *stage = before;
            changed |= stage->recompute != before.recompute ||
                       stage->recompute_blocks != before.recompute_blocks;
        }
    return changed || k == VARIANT_PLAIN;
}

static bool any_lacks(const struct ordering *x)
{
    for (int32_t r = 0, lane = 0; r < x->plan->n_replicas; r++)
        for (int32_t i = 0; i < x->plan->replicas[r].n_stages; i++)
            if (x->lacks[lane++]) return true;
    return false;
}

static bool set_variant(struct ordering *x, const struct plan *own, enum variant k, int64_t best_ns)
{
    x->undivided = k == VARIANT_UNDIVIDED;
    if (k == VARIANT_ZERO_1) return shard_state(x);
    bool changed = set_recompute(x, own, k, best_ns);
    return x->undivided ? !x->found_any && any_lacks(x) : changed;
}

static enum status order_and_score(struct ordering *x, struct plan *best, int64_t *best_ns,
                                   int64_t *evaluations_left, struct error *err)
{
    int64_t ns;
    if (*evaluations_left <= 0 || stop_requested(x)) return OK;
    TRY(search_orders(x, *best_ns, &ns, err));
    if (ns < INT64_MAX) --*evaluations_left, x->found_any = true;
    if (ns < *best_ns) *best = scorer_copy_plan(x->arena, x->plan), *best_ns = ns;
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
                          const volatile sig_atomic_t *stop, struct error *err)
{
    /* Measured layers have a fused backward, so they have no orders of I and W. */
    if (s->job->model.measured) return OK;
    struct plan best = *plan, variant = scorer_copy_plan(a, plan),
                whole = scorer_copy_plan(a, plan);
    struct ordering x = {.arena = a,
                         .scratch = arena_new(),
                         .scorer = w,
                         .space = s,
                         .plan = &variant,
                         .stop = stop};
    int32_t stages = 0;
    for (int32_t r = 0; r < plan->n_replicas; r++) stages += plan->replicas[r].n_stages;
    x.lacks = ARENA_ARRAY(x.scratch, bool, (size_t)stages);
    enum status st = OK;
    bool possible = SCHEDULE_ELITE * operations_of(plan) <= OPERATIONS && one_stage_a_device(plan);
    for (int k = 0; k < VARIANTS && possible && st == OK; k++)
        if (set_variant(&x, plan, (enum variant)k, *iteration_ns)) {
            st = order_and_score(&x, &best, iteration_ns, evaluations_left, err);
            if (st == ERR_INPUT && k == VARIANT_ZERO_1) /* replicas shard parameters differently */
                x.plan = &whole, *err = (struct error){0}, st = OK;
        }
    if (st == OK) *plan = best;
    arena_free(x.scratch);
    return st;
}
