/* planner/local_search/moves.c - the table of moves. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/local_search/internal.h"
#include "planner/schedule/refine.h"
#include "sim/collective/price.h"

/* --- gradient buckets --- */

static bool has_buckets(const struct local_search *x)
{
    return x->plan.n_replicas > 1 && !space_awaits(x->s);
}

static int32_t count_buckets(const struct local_search *x) { return has_buckets(x) ? REFINE_BUCKETS : 0; }

static bool make_buckets(const struct local_search *x, struct plan *p, int32_t variant)
{
    refine_buckets(x->s, p, refine_bucket_parts[variant]);
    return true;
}

/* --- stages of groups --- */

static int32_t stages_of(const struct local_search *x, int32_t group)
{
    return x->plan.replicas[x->example[group]].n_stages;
}

/* Boundaries between stages of all groups. */
static int32_t count_boundaries(const struct local_search *x)
{
    int32_t n = 0;
    for (int32_t g = 0; g < x->n_groups; g++) n += stages_of(x, g) - 1;
    return n;
}

/* Returns the group of the at-th of them; *at becomes the index of the stage before it. */
static int32_t find_boundary(const struct local_search *x, int32_t *at)
{
    int32_t g = 0;
    for (; *at >= stages_of(x, g) - 1; g++) *at -= stages_of(x, g) - 1;
    return g;
}

/* Twice, and half the bucket of a group's first or last stage: the first ends its backward last, the last has the output's matrix. Other
 * stages' sums have the backwards of the stages before to hide behind. variant = 4 · group + 2 · last + twice */
static int32_t count_stage_buckets(const struct local_search *x)
{
    return has_buckets(x) ? 4 * x->n_groups : 0;
}

static bool make_stage_bucket(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t g = variant / 4, i = variant / 2 % 2 ? stages_of(x, g) - 1 : 0;
    if (i == 0 && variant / 2 % 2) return false; /* its only stage */
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_stage *y = &p->replicas[r].stages[i];
        if (x->group[r] != g) continue;
        int64_t all = group_stage(x->s, y)->parameter_bytes,
                now = y->bucket_bytes ? y->bucket_bytes : all,
                next = variant % 2 ? now * 2 : now / 2;
        if (next < 1 || now > all || (variant % 2 && !y->bucket_bytes)) return false;
        y->bucket_bytes = next >= all ? 0 : next;
    }
    return true;
}

static int64_t slowest_stage(const struct local_search *x, const struct plan_replica *r)
{
    int64_t most = 0;
    for (int32_t i = 0; i < r->n_stages; i++)
        most = units_max(most, group_stage_ns(x->s, &r->stages[i]));
    return most;
}

/* One layer over the boundary behind a stage, up or down, unless the slowest stage of the pipeline gets slower. The time of stages of
 * measured layers includes messages that block them, so it is not compared. */
static int32_t count_layers(const struct local_search *x) { return 2 * count_boundaries(x); }

static bool make_layers(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t i = variant / 2, up = variant % 2 ? -1 : 1, g = find_boundary(x, &i);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        if (x->group[r] != g) continue;
        struct plan_stage *a = &p->replicas[r].stages[i], *b = a + 1;
        const struct plan_stage *gives = up > 0 ? b : a;
        if (gives->first_layer == gives->last_layer) return false;
        int64_t before = slowest_stage(x, &p->replicas[r]);
        a->last_layer += up, b->first_layer += up;
        if (!x->s->job->model.measured && r == x->example[g] &&
            slowest_stage(x, &p->replicas[r]) > before) return false;
    }
    return true;
}

/* --- orders --- */

/* group -1: all replicas. */
static bool set_schedule(const struct local_search *x, struct plan *p, int32_t group, int32_t k)
{
    bool set = true;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (group < 0 || x->group[r] == group) set &= refine_schedule(&p->replicas[r], k);
    return set;
}

static int32_t count_schedules(const struct local_search *x)
{
    return x->task->named && !x->s->job->model.measured ? REFINE_SCHEDULES : 0;
}

static bool make_schedules(const struct local_search *x, struct plan *p, int32_t variant)
{
    return set_schedule(x, p, -1, variant);
}

static int32_t count_group_schedules(const struct local_search *x)
{
    return x->n_groups > 1 ? x->n_groups * count_schedules(x) : 0;
}

static bool make_group_schedule(const struct local_search *x, struct plan *p, int32_t variant)
{
    return set_schedule(x, p, variant / REFINE_SCHEDULES, variant % REFINE_SCHEDULES);
}

static int32_t count_warmups(const struct local_search *x)
{
    for (int32_t r = 0; r < x->plan.n_replicas; r++)
        if (x->plan.replicas[r].schedule) return 0; /* which sets them */
    return REFINE_WARMUPS;
}

static bool make_warmups(const struct local_search *x, struct plan *p, int32_t variant)
{
    refine_warmups(x->s, p, variant);
    return true;
}

/* --- shares of the batch --- */

static int32_t count_shares(const struct local_search *x) { return x->n_groups * x->n_groups; }

/* One microbatch of each replica of a group to another group, evenly distributed. */
static bool make_shares(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t from = variant / x->n_groups, to = variant % x->n_groups, moved = 0;
    if (from == to) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (x->group[r] == from && p->replicas[r].microbatches > 1)
            p->replicas[r].microbatches--, moved++;
    if (!moved) return false;
    while (moved)
        for (int32_t r = 0; r < p->n_replicas && moved; r++)
            if (x->group[r] == to) p->replicas[r].microbatches++, moved--;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].warmup > p->replicas[r].microbatches)
                p->replicas[r].stages[i].warmup = p->replicas[r].microbatches;
    return true;
}

/* --- algorithms of gradient all-reduces --- */

static const enum collective_algorithm all_reduces[] = {ALGORITHM_RING, ALGORITHM_HIERARCHICAL, ALGORITHM_HALVING_DOUBLING,
                                                        ALGORITHM_DOUBLE_TREE};
#define ALL_REDUCES ((int32_t)(sizeof all_reduces / sizeof *all_reduces))

/* Whether all-reduces over the devices of the first layer have a measured price, or that of NCCL's model, by which NCCL chooses among its
 * own algorithms: the others' prices, of messages on links, are not comparable. */
static bool has_prices(const struct local_search *x)
{
    int32_t n = 0, *device = ARENA_ARRAY(x->arena, int32_t, (size_t)x->s->n_devices);
    for (int32_t r = 0; r < x->plan.n_replicas; r++)
        for (int32_t k = 0; k < plan_stage_devices(x->plan.replicas[r].stages); k++)
            device[n++] = plan_stage_device(x->plan.replicas[r].stages, k);
    int64_t bytes = group_stage(x->s, x->plan.replicas->stages)->parameter_bytes;
    return x->s->cluster->nccl ||
           collective_price_devices_ns(x->s->cost, COLLECTIVE_ALL_REDUCE, ALGORITHM_RING, device, n, bytes, NULL) >= 0;
}

/* On clusters that the exact search covers: on larger ones the evaluations spent on algorithms end other moves earlier (GPT on 16 GPUs:
 * 13.5 in place of 13.2 ms). Of all layers, or of those of one stage: variant = stages · algorithm + stage, stage 0 for all, else counted from 1. ZeRO 1 is left for an
 * algorithm that it does not have. */
static int32_t count_all_reduces(const struct local_search *x)
{
    bool sums = x->plan.n_replicas > 1, few = x->s->n_devices <= SPACE_TABLES_MAX;
    for (int32_t i = 0; i < x->plan.replicas->n_stages; i++) sums |= plan_stage_devices(&x->plan.replicas->stages[i]) > 1;
    return few && sums && !space_awaits(x->s) && !x->plan.deterministic && !has_prices(x) ? ALL_REDUCES * (1 + x->plan.replicas->n_stages) : 0;
}

static bool make_all_reduce(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t n = p->replicas->n_stages, i = variant % (n + 1) - 1;
    enum collective_algorithm w = all_reduces[variant / (n + 1)];
    bool any = false;
    if (i >= 0 && n == 1) return false;
    if (w == ALGORITHM_HIERARCHICAL && x->s->cluster->n_nodes < 2) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t k = 0; k < p->replicas[r].n_stages; k++) {
            struct plan_stage *y = &p->replicas[r].stages[k];
            const struct plan_stage *first = &p->replicas->stages[i < 0 ? 0 : i];
            if (i >= 0 && (y->last_layer < first->first_layer || y->first_layer > first->last_layer)) continue;
            if (i >= 0 && (y->first_layer != first->first_layer || y->last_layer != first->last_layer)) return false;
            if (y->zero > 1 && !y->hybrid_shard) return false;
            if (w != ALGORITHM_RING && !y->hybrid_shard) y->zero = 0; /* whose reduce-scatter is a ring */
            any |= y->all_reduce != w;
            y->all_reduce = w;
        }
    return any;
}

static const struct local_search_move moves[] = {
    {"buckets", count_buckets, make_buckets, .repeats = false},
    {"schedules", count_schedules, make_schedules, .repeats = false},
    {"warm-up counts", count_warmups, make_warmups, .repeats = false},
    {"shares", count_shares, make_shares, .repeats = true},
    {"layers", count_layers, make_layers, .repeats = true},
    {"buckets of an end", count_stage_buckets, make_stage_bucket, .repeats = true},
    {"schedule of a group", count_group_schedules, make_group_schedule, .repeats = false},
    {"ZeRO level", stage_rows_count_zero, stage_rows_zero, .stages = true},
    {"recomputation", stage_rows_count_recompute, stage_rows_recompute, .stages = true},
    {"microbatch size", stage_rows_count_sizes, stage_rows_size, .stages = true, .sizes = true},
    {"stages merged", stage_rows_count_merges, stage_rows_merge, .stages = true},
    {"stages split", stage_rows_count_splits, stage_rows_split, .stages = true},
    {"replicas joined", stage_rows_count_joins, stage_rows_join, .stages = true, .sizes = true},
    {"replicas divided", stage_rows_count_divisions, stage_rows_divide, .stages = true, .sizes = true},
    {"idle devices used", stage_rows_count_idle, stage_rows_idle, .stages = true},
    {"devices moved", stage_rows_count_devices, stage_rows_device, .stages = true},
    {"stages exchanged", stage_rows_count_swaps, stage_rows_swap, .stages = true},
    {"sequences moved", stage_rows_count_sequences, stage_rows_sequence, .repeats = true, .stages = true},
    /* 1 %: less is below the simulator's accuracy, and a ring is what every library has */
    {"all-reduce algorithms", count_all_reduces, make_all_reduce, .repeats = false, .last = true, .least_percent = 1},
};

const struct local_search_move *local_search_moves(int32_t *n)
{
    *n = sizeof moves / sizeof *moves;
    return moves;
}
