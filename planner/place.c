#include "planner/place.h"

#include "core/arena.h"
#include "planner/baseline.h"

#include <string.h>

static int32_t least32(int32_t a, int32_t b) { return a < b ? a : b; }

/* Replicas of a template that walk side by side. */
static int32_t block_of(const struct template_maker *m, const struct template *t,
                        enum placement how)
{
    int32_t block = how == PLACEMENT_STAGES ? INT32_MAX : 1;
    for (int32_t i = 0; i < t->n_stages && how == PLACEMENT_STAGES; i++)
        block = least32(block, m->g->kinds[t->stages[i].kind].per_node);
    return block;
}

static void fill_replica(const struct template *t, int32_t microbatches, struct plan_replica *r)
{
    bool usual = true;
    r->microbatches = microbatches;
    for (int32_t i = 0; i < t->n_stages; i++) {
        const struct template_stage *x = &t->stages[i];
        r->stages[i].first_layer = x->first, r->stages[i].last_layer = x->last;
        r->stages[i].recompute = x->recompute ? RECOMPUTE_STAGE : RECOMPUTE_NONE;
        usual &= least32(x->warmup, microbatches) == least32(t->n_stages - i, microbatches);
    }
    for (int32_t i = 0; i < t->n_stages && !usual; i++)
        r->stages[i].warmup = least32(t->stages[i].warmup, microbatches);
}

void place_plan(struct arena *a, const struct template_maker *m, const struct mix *x,
                enum placement how, struct plan *out)
{
    int32_t n = 0, r = 0;
    for (int32_t i = 0; i < x->n; i++) n += x->count[i];
    int32_t *n_stages = ARENA_ARRAY(a, int32_t, (size_t)n);
    int32_t *next = ARENA_ARRAY(a, int32_t, (size_t)m->g->n_kinds);
    for (int32_t i = 0; i < x->n; i++)
        for (int32_t c = 0; c < x->count[i]; c++) n_stages[r++] = x->templates[i].n_stages;
    plan_skeleton(a, m->s, "found", n, n_stages, out);
    r = 0;
    for (int32_t i = 0; i < x->n; i++) {
        const struct template *t = &x->templates[i];
        int32_t block = block_of(m, t, how);
        for (int32_t c = 0; c < x->count[i]; c++)
            fill_replica(t, x->least[i] + (c < x->more[i]), &out->replicas[r + c]);
        for (int32_t c = 0; c < x->count[i]; c += block)
            for (int32_t s = 0; s < t->n_stages; s++)
                for (int32_t k = c; k < c + block && k < x->count[i]; k++) {
                    int32_t kind = t->stages[s].kind;
                    out->replicas[r + k].stages[s].device = m->g->kinds[kind].devices[next[kind]++];
                }
        r += x->count[i];
    }
    plan_share(out);
}

int64_t place_estimate(const struct template_maker *m, const struct mix *x, enum placement how)
{
    double sync = 0, traffic = 0;
    int32_t replicas = 0, n = m->g->n_kinds;
    for (int32_t i = 0; i < x->n; i++) replicas += x->count[i];
    for (int32_t i = 0; i < x->n; i++) {
        const struct template *t = &x->templates[i];
        int32_t block = block_of(m, t, how);
        for (int32_t s = 0; s < t->n_stages; s++) {
            int32_t k = t->stages[s].kind;
            const struct kind *kind = &m->g->kinds[k];
            const struct cost_link *far = m->far[k * n + k];
            if (!far) continue;
            double bytes =
                (double)space_stage_type(m->s, kind->type, t->stages[s].first, t->stages[s].last)
                    ->parameter_bytes;
            /* Devices of a node whose sums go through its link at once. */
            double at_once =
                block > 1 ? (double)kind->per_node / block : least32(kind->per_node, t->use[k]);
            double ns = 2 * bytes * at_once / far->bandwidth_Bps * 1e9;
            if (replicas > 1 && ns > sync) sync = ns;
            if (s + 1 == t->n_stages || block < 2) continue;
            double moved = 2.0 * block * (double)m->s->cut_bytes[t->stages[s].last] *
                           (x->least[i] + 1) / far->bandwidth_Bps * 1e9;
            if (moved > traffic) traffic = moved;
        }
    }
    int64_t t_ns = x->t_ns > (int64_t)traffic ? x->t_ns : (int64_t)traffic;
    return t_ns + (int64_t)sync;
}
