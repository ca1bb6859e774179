#include "planner/exact/repair.h"

#include "core/base/arena.h"
#include "planner/exact/candidate.h"

/* The rest of a pipeline: usable devices, first layer, device of the stage before. */
struct cell {
    /* excess bytes of the fullest device, negative if it has free memory; MAX: impossible */
    int64_t worst;
    int32_t device, last; /* the next stage */
};

struct table {
    const struct space *s;
    int32_t n_stages;   /* of the pipeline; 0: any */
    struct cell *cells; /* (1 << n_devices, n_layers, n_devices + 1), by number of devices */
};

static struct cell *cell(const struct table *t, uint32_t mask, int32_t first, int32_t above)
{
    int64_t row = (int64_t)mask * t->s->n_layers + first;
    return &t->cells[row * (t->s->n_devices + 1) + above];
}

static int64_t over(const struct space *s, int32_t d, int32_t first, int32_t last)
{
    const struct stage_cost *c = space_stage(s, d, first, last);
    return c->parameter_bytes + c->gradient_bytes + c->state_bytes + c->activation_bytes -
           s->cluster->types[s->cluster->devices[d].type].memory_bytes;
}

static void fill(struct table *t, uint32_t mask, int32_t first, int32_t above)
{
    const struct space *s = t->s;
    struct cell best = {INT64_MAX, -1, -1};
    int32_t used = s->n_devices + 1 - __builtin_popcount(mask); /* this stage included */
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (!(mask >> d & 1)) continue;
        bool linked =
            above == s->n_devices || (space_linked(s, above, d) && space_linked(s, d, above));
        for (int32_t last = first; last < s->n_layers && linked; last++) {
            int64_t worst = over(s, d, first, last), rest = INT64_MIN;
            if (worst >= best.worst) break; /* bytes grow with the layers */
            if (last + 1 < s->n_layers) rest = cell(t, mask & ~(1u << d), last + 1, d)->worst;
            bool ends = last + 1 == s->n_layers;
            if (ends && t->n_stages && used != t->n_stages) continue;
            if (rest > worst) worst = rest;
            if (worst < best.worst) best = (struct cell){worst, d, last};
        }
    }
    *cell(t, mask, first, above) = best;
}

/* The pipeline of n stages (0: any) whose fullest device lacks the fewest bytes, by tensors alone. false: no route between
 * stages. */
static bool nearest(struct arena *a, const struct space *s, int32_t n_stages, struct candidate *out)
{
    int32_t n = s->n_devices, first = 0, above = n;
    uint32_t mask = (1u << n) - 1;
    struct table t = {.s = s, .n_stages = n_stages};
    t.cells =
        ARENA_ARRAY(a, struct cell, ((size_t)mask + 1) * (size_t)s->n_layers * ((size_t)n + 1));
    for (uint32_t m = 0; m <= mask; m++)
        for (int32_t l = 0; l < s->n_layers; l++)
            for (int32_t d = 0; d <= n; d++) fill(&t, m, l, d);
    *out = (struct candidate){.s = s, .n_replicas = 1, .share = {s->microbatches}};
    if (cell(&t, mask, 0, n)->worst == INT64_MAX) return false;
    while (first < s->n_layers) {
        const struct cell *c = cell(&t, mask, first, above);
        int32_t i = out->n_stages[0]++;
        out->device[0][i] = (int8_t)c->device;
        out->last[0][i] = (int16_t)c->last;
        mask &= ~(1u << c->device), above = c->device, first = c->last + 1;
    }
    return true;
}

enum status repair_try(struct search_context *t, struct arena *a, const struct space *s,
                       struct error *err)
{
    struct hash_map memo = {.arena = a};
    struct candidate x;
    struct plan p;
    int64_t ns;
    if (!nearest(a, s, 0, &x)) return OK;
    struct error why = {0};
    candidate_plan(&x, scorer_arena(t->scorer), &p);
    enum status st =
        scorer_fit(t->scorer, s, &p, &ns, &why); /* reported if even one microbatch does not fit */
    if (st != OK && st != ERR_INPUT) return error_set(err, st, "%s", why.text);
    for (int32_t n = 1; n <= s->n_devices && n <= s->n_layers && !search_context_over(t); n++)
        if (nearest(a, s, n, &x) && candidate_bound(&x) < INT64_MAX)
            TRY(candidate_score(&x, &memo, t, &ns, err));
    return OK;
}
