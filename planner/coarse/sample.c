#include "planner/coarse/sample.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/candidate/plan_set.h"
#include "planner/coarse/internal.h"

#include <string.h>

enum { FEWEST = 2 }; /* microbatches for each stage, in the shorter simulation */

bool coarse_sample_thins(const struct plan *p) { return p->n_replicas > COARSE_SAMPLE_REPLICAS; }

/* The least part of its microbatches that fills every replica twice, and in which all warm-ups are in flight. */
static double part_of(const struct plan *p)
{
    double part = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        int32_t least = FEWEST * x->n_stages;
        for (int32_t i = 0; i < x->n_stages; i++)
            if (x->stages[i].warmup > least) least = x->stages[i].warmup;
        double here = (double)least / x->microbatches;
        if (here > part) part = here;
    }
    return part;
}

/* *total: its microbatches. */
static struct plan shorten(struct arena *a, const struct plan *p, double part, int64_t *total)
{
    struct plan x = scorer_copy_plan(a, p);
    *total = 0;
    for (int32_t r = 0; r < x.n_replicas && part < 1; r++) {
        int32_t all = x.replicas[r].microbatches;
        x.replicas[r].microbatches = (int32_t)units_max(1, (int64_t)(part * all + 0.5));
    }
    for (int32_t r = 0; r < x.n_replicas; r++) *total += x.replicas[r].microbatches;
    x.job.global_batch = *total * x.microbatch;
    return x;
}

struct kind { /* of equal replicas */
    uint64_t hash;
    int32_t n, kept, seen, first; /* first: index of its first replica among the kept ones */
};

/* Returns the number of kinds; of: (n_replicas) the kind of each. */
static int32_t find_kinds(const struct plan *p, struct kind *kinds, int32_t *of)
{
    int32_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        uint64_t h = plan_set_replica_hash(p, &p->replicas[r]);
        int32_t k = r && kinds[of[r - 1]].hash == h ? of[r - 1] : 0;
        while (k < n && kinds[k].hash != h) k++;
        if (k == n) kinds[n++] = (struct kind){.hash = h};
        kinds[k].n++, of[r] = k;
    }
    return n;
}

/* What ZeRO divides over the replicas. */
static int64_t divided_bytes(const struct space *s, const struct plan_stage *x)
{
    const struct stage_cost *c = group_stage(s, x);
    int32_t type = group_type_of(s, x);
    int64_t state = group_zero_bytes(s, type, x->first_layer, x->last_layer, 1) -
                    group_zero_bytes(s, type, x->first_layer, x->last_layer, INT32_MAX);
    return (x->zero >= 1 ? state : 0) + (x->zero >= 2 ? c->gradient_bytes : 0) +
           (x->zero >= 3 ? c->parameter_bytes : 0);
}

/* ZeRO shards the optimizer state over fewer replicas in the sample than in the plan: the least excess of the stages on a device type is
 * added to the memory of its devices. */
static void add_memory(struct arena *a, const struct space *s, int32_t all, struct plan *p)
{
    struct cluster *c = &p->cluster;
    struct device_type *types = arena_copy(a, c->types, (size_t)c->n_types * sizeof *types);
    int64_t *excess = ARENA_ARRAY(a, int64_t, (size_t)c->n_types);
    for (int32_t t = 0; t < c->n_types; t++) excess[t] = INT64_MAX;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            int64_t state = divided_bytes(s, x);
            int64_t *least = &excess[c->devices[x->device].type];
            *least = units_min(*least, state / p->n_replicas - state / all);
        }
    for (int32_t t = 0; t < c->n_types; t++)
        if (excess[t] < INT64_MAX) types[t].memory_bytes += excess[t];
    c->types = types;
}

int64_t coarse_sample_replicas(const struct plan *p)
{
    int64_t n = 0, most = COARSE_SAMPLE_REPLICAS * COARSE_GPUS;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            n += plan_stage_devices(&p->replicas[r].stages[i]);
    return units_min(COARSE_SAMPLE_REPLICAS, most * p->n_replicas / n);
}

/* The plan with the first replicas of each kind, in its own proportion. */
static struct plan thin(struct arena *a, const struct space *s, const struct plan *p,
                        int32_t *stands_for)
{
    struct plan x = *p;
    int32_t all = p->n_replicas, *of = ARENA_ARRAY(a, int32_t, (size_t)all);
    struct kind *kinds = ARENA_ARRAY(a, struct kind, (size_t)all);
    int32_t n = find_kinds(p, kinds, of);
    int64_t replicas = coarse_sample_replicas(p);
    for (int32_t k = 0; k < n; k++)
        kinds[k].kept = (int32_t)units_max(1, (kinds[k].n * replicas + all / 2) / all);
    x.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)all);
    x.n_replicas = 0;
    for (int32_t r = 0; r < all; r++) {
        struct kind *k = &kinds[of[r]];
        if (k->seen == 0) k->first = x.n_replicas;
        stands_for[r] = k->seen < k->kept ? x.n_replicas : k->first;
        if (k->seen++ < k->kept) x.replicas[x.n_replicas++] = p->replicas[r];
    }
    add_memory(a, s, all, &x);
    return x;
}

int32_t coarse_sample_make(struct arena *a, const struct space *s, const struct plan *p, bool steady,
                           bool all_replicas, struct parallel_score_item *item,
                           struct coarse_sample *out)
{
    struct plan x = *p;
    *out = (struct coarse_sample){.item = item};
    out->stands_for = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas);
    if (all_replicas || !coarse_sample_thins(p))
        for (int32_t r = 0; r < p->n_replicas; r++) out->stands_for[r] = r;
    else
        x = thin(a, s, p, out->stands_for);
    double part = part_of(&x);
    out->whole = steady || 2 * part > 0.5;
    int32_t n = out->whole ? 1 : 2;
    for (int32_t i = 0; i < n; i++)
        item[i] = (struct parallel_score_item){
            .plan = shorten(a, &x, out->whole ? 1 : (i + 1) * part, &out->n[i]),
            .space = *s,
            .quick = !steady};
    for (int32_t r = 0; r < x.n_replicas; r++) out->all += x.replicas[r].microbatches;
    return n;
}

bool coarse_sample_goes_on(struct arena *a, struct coarse_sample *x)
{
    if (x->whole || x->item[0].ns == INT64_MAX) return false;
    for (int32_t r = 0; r < x->item[1].plan.n_replicas; r++) {
        const struct plan_replica *from = &x->item[0].plan.replicas[r];
        x->item[1].plan.replicas[r].stages =
            arena_copy(a, from->stages, (size_t)from->n_stages * sizeof *from->stages);
    }
    return true;
}

enum status coarse_sample_score(struct search_context *t, const struct profile *profile, struct arena *a,
                                struct coarse_sample *samples, int32_t n, struct error *err)
{
    struct parallel_score_item *items = ARENA_ARRAY(a, struct parallel_score_item, (size_t)n);
    int32_t *of = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t k = 0; k < 2; k++) {
        int32_t used = 0;
        for (int32_t i = 0; i < n; i++)
            if (k == 0 || coarse_sample_goes_on(a, &samples[i]))
                of[used] = i, items[used++] = samples[i].item[k];
        TRY(parallel_score(t, profile, items, used, err));
        for (int32_t i = 0; i < used; i++) samples[of[i]].item[k] = items[i];
    }
    return OK;
}

int64_t coarse_sample_ns(const struct coarse_sample *x)
{
    int64_t ns = x->item[0].ns;
    if (x->whole || ns == INT64_MAX) return ns;
    int64_t more = x->item[1].ns;
    if (more == INT64_MAX || x->n[1] == x->n[0]) return more;
    double each = (double)(more - ns) / (double)(x->n[1] - x->n[0]);
    return more + (int64_t)(each * (double)(x->all - x->n[1]));
}

void coarse_sample_adopt(struct arena *a, const struct coarse_sample *x, struct plan *p)
{
    const struct plan *fitted = &x->item[x->whole ? 0 : 1].plan;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_replica *y = &p->replicas[r];
        struct plan_stage *own = y->stages;
        size_t n = (size_t)y->n_stages;
        y->stages = arena_copy(a, fitted->replicas[x->stands_for[r]].stages, n * sizeof *own);
        for (size_t i = 0; i < n; i++)
            y->stages[i].device = own[i].device, y->stages[i].devices = own[i].devices;
    }
}
