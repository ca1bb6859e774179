/* core/lower/fragments.c - the intervals of layers that local SGD exchanges in turns (core/plan/plan.h, struct plan_local_sgd).
 *
 * A tied parameter belongs to the layer of its first use. The size of the largest interval is found by bisection: whether a limit
 * suffices is decided by filling one interval after the other. The division depends on the job alone, not on the stages of the plan.
 */
#include "core/lower/outer.h"
#include "core/program/period.h"

#include <inttypes.h>

/* Elements of each layer, and how many layers have some. */
static int64_t *layer_elements(struct lowering *l, int32_t *n_filled)
{
    int64_t *of = ARENA_ARRAY(l->tables, int64_t, (size_t)l->n_layers);
    for (int32_t u = 0; u < l->uses->n_param_uses; u++) {
        const struct use_place *x = lower_param_use(l, u);
        bool first = (x->uses[0] < 0 || u <= x->uses[0]) && (x->uses[1] < 0 || u <= x->uses[1]);
        if (first) of[x->layer] += x->elements;
    }
    *n_filled = 0;
    for (int32_t k = 0; k < l->n_layers; k++) *n_filled += of[k] > 0;
    return of;
}

/* Fills intervals of at most `limit` elements; an interval ends early where each one left needs one of the layers left. Whether n
 * suffice. */
static bool fill(const int64_t *elements, int32_t n_layers, int32_t left, int32_t n, int64_t limit, int32_t *fragment)
{
    int32_t at = 0;
    int64_t here = 0;
    for (int32_t k = 0; k < n_layers; k++) {
        bool full = elements[k] && here && (here + elements[k] > limit || left <= n - 1 - at);
        if (full && ++at == n) return false;
        here = (full ? 0 : here) + elements[k];
        if (here > limit) return false;
        left -= elements[k] > 0;
        fragment[k] = at;
    }
    return true;
}

/* An exchange computes changes in the gradients' slots, so islands that accumulate gradients for several steps must have used them. */
static enum status check_cycle(const struct lowering *l, struct error *err)
{
    const struct outer_optimizer *o = &l->plan->local_sgd.outer;
    int32_t cycle = period_cycle(o);
    for (int32_t f = 0; f < o->fragments; f++)
        for (int late = 0; late < 2; late++)
            if ((period_first(o, f) + late * o->delay) % cycle)
                return error_set(err, ERR_INPUT,
                                 "%s: local_sgd.%s: fragment %" PRId32 " is %s in step %" PRId32 ", but all islands have updated in multiples of %" PRId32
                                 " steps only: `every` / `fragments` and `delay` must be multiples of it",
                                 l->plan->file ? l->plan->file : l->plan->name, late && o->delay ? "delay" : "fragments", f,
                                 late ? "applied" : "exchanged", period_first(o, f) + late * o->delay, cycle);
    return OK;
}

enum status lower_fragments(struct lowering *l, struct error *err)
{
    int32_t n = l->plan->local_sgd.outer.fragments, n_filled;
    if (!lower_is_local(l)) return OK;
    TRY(check_cycle(l, err));
    int32_t *fragment = ARENA_ARRAY(l->tables, int32_t, (size_t)l->n_layers);
    const int64_t *elements = layer_elements(l, &n_filled);
    int64_t low = 0, high = 0; /* low does not suffice */
    if (n > n_filled)
        return error_set(err, ERR_INPUT, "%s: local_sgd.fragments: must be at most %" PRId32 ", because so many layers have parameters; found %" PRId32,
                         l->plan->file ? l->plan->file : l->plan->name, n_filled, n);
    for (int32_t k = 0; k < l->n_layers; k++) high += elements[k];
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(fill(elements, l->n_layers, n_filled, n, middle, fragment) ? &high : &low) = middle;
    }
    (void)fill(elements, l->n_layers, n_filled, n, high, fragment);
    l->fragment_of_layer = fragment;
    return OK;
}
