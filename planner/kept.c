#include "planner/kept.h"

#include "core/arena.h"
#include "core/rng.h"
#include "planner/score.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t layout_of(const struct plan *p)
{
    struct arena *scratch = arena_new();
    uint64_t *replica = ARENA_ARRAY(scratch, uint64_t, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        replica[r] = hash_bytes(0, &x->microbatches, sizeof x->microbatches);
        for (int32_t i = 0; i < x->n_stages; i++) {
            int32_t stage[2] = {x->stages[i].device, x->stages[i].last_layer};
            replica[r] = hash_bytes(replica[r], stage, sizeof stage);
            for (int32_t k = 0; k < x->stages[i].n_shards; k++) {
                int64_t part[2] = {x->stages[i].devices[k], x->stages[i].sequences[k]};
                replica[r] = hash_bytes(replica[r], part, sizeof part);
            }
        }
    }
    qsort(replica, (size_t)p->n_replicas, sizeof *replica, by_value);
    uint64_t hash =
        hash_bytes((uint64_t)p->microbatch, replica, (size_t)p->n_replicas * sizeof *replica);
    arena_free(scratch);
    return hash;
}

void kept_init(struct kept *k, struct arena *a, int32_t most)
{
    *k = (struct kept){.arena = a, .most = most};
    k->plans = ARENA_ARRAY(a, struct search_plan, (size_t)most);
    k->layout = ARENA_ARRAY(a, uint64_t, (size_t)most);
}

int64_t kept_limit(const struct kept *k)
{
    return k->n < k->most ? INT64_MAX : k->plans[k->n - 1].iteration_ns;
}

void kept_add(struct kept *k, const struct plan *p, int64_t iteration_ns)
{
    if (iteration_ns >= kept_limit(k)) return;
    uint64_t layout = layout_of(p);
    int32_t at = 0;
    while (at < k->n && k->layout[at] != layout) at++;
    if (at < k->n && k->plans[at].iteration_ns <= iteration_ns) return;
    if (at == k->n && k->n < k->most) k->n++;
    if (at == k->most) at--;
    for (; at > 0 && k->plans[at - 1].iteration_ns > iteration_ns; at--) {
        k->plans[at] = k->plans[at - 1];
        k->layout[at] = k->layout[at - 1];
    }
    k->plans[at] =
        (struct search_plan){.plan = score_copy_plan(k->arena, p), .iteration_ns = iteration_ns};
    k->plans[at].plan.predicted_ns = iteration_ns;
    k->layout[at] = layout;
}
