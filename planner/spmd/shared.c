/* planner/spmd/shared.c - decisions that concern several operators: the home of shared parameters (priced once it is known),
 * and the placement of the stage's inputs. */
#include "planner/spmd/rules.h"

#include "core/base/arena.h"

#include <string.h>

struct home { /* cost of a shared parameter's home */
    int32_t tensor, placement;
    uint8_t partial;
    int64_t ns, *bytes;
    struct home *next;
};
struct shared_user {
    struct builder *b;
    struct home *homes;
};

void spmd_join(const void *user, int32_t *home, uint8_t *partial, int32_t need,
               uint8_t need_partial)
{
    const struct shared_user *u = user;
    struct spmd_price *y = u->b->t->price;
    *partial |= need_partial;
    if (*home < 0 || *home == need) {
        *home = need;
        return;
    }
    struct placement p = *spmd_placement_of(y, *home), n = *spmd_placement_of(y, need);
    for (int32_t x = 0; x < u->b->q->s->n_axes; x++) {
        if (on_axis_said_alike(&p.axis[x], &n.axis[x])) continue;
        if (p.axis[x].how == PLACED_SHARDED || n.axis[x].how == PLACED_SHARDED)
            *partial |=
                (uint8_t)(1 << x); /* a reader of a shard contributes a partial gradient */
        p.axis[x] = (struct on_axis){.how = PLACED_REPLICATED};
    }
    *home = spmd_placement(y, &p);
}

int64_t spmd_home_ns(const void *user, int32_t tensor, int32_t home, uint8_t partial,
                     const int64_t **bytes)
{
    struct shared_user *u = (struct shared_user *)user;
    struct builder *b = u->b;
    for (struct home *h = u->homes; h; h = h->next)
        if (h->tensor == tensor && h->placement == home && h->partial == partial)
            return *bytes = h->bytes, h->ns;
    struct home *h = ARENA_ARRAY(b->a, struct home, 1);
    int64_t *ns = ARENA_ARRAY(b->a, int64_t, (size_t)b->n_devices), most = 0;
    struct error err = {0};
    *h = (struct home){.tensor = tensor, .placement = home, .partial = partial, .next = u->homes};
    h->bytes = ARENA_ARRAY(b->a, int64_t, (size_t)b->n_devices);
    if (spmd_parameter(b, tensor, home, partial, &h->ns, ns, h->bytes, &err) != OK)
        h->ns = INT64_MAX / 8; /* impossible: its rules were priced */
    for (int32_t d = 0; d < b->n_devices; d++) most = ns[d] > most ? ns[d] : most;
    h->ns += most;
    u->homes = h;
    return *bytes = h->bytes, h->ns;
}

const void *spmd_shared_user(struct builder *b)
{
    struct shared_user *u = ARENA_ARRAY(b->a, struct shared_user, 1);
    u->b = b;
    return u;
}

/* --- what comes into the stage --- */

void spmd_entry_rules(struct builder *b, struct spmd_op *op)
{
    const struct sharding *s = b->q->s;
    size_t capacity = 0;
    struct spmd_rule *rules = NULL;
    int32_t algorithms = 1 + s->n_ratios; /* along an axis: replicated, or sharded by batch with a vector */
    int64_t *ns = ARENA_ARRAY(b->a, int64_t, (size_t)b->n_devices);
    for (int32_t w = 0; w < algorithms * (s->n_axes > 1 ? algorithms : 1); w++) {
        struct spmd_rule r = {0};
        for (int32_t k = 0; k < op->n_outputs; k++) {
            struct placement p = {0};
            for (int32_t x = 0; x < s->n_axes; x++) {
                int32_t v = x ? w / algorithms : w % algorithms;
                int64_t rows = b->g->tensors[op->output[k]].shape.dim[0];
                if (v && s->mesh[x] > 1)
                    p.axis[x] = (struct on_axis){
                        PLACED_SHARDED, 0, v - 1, {.n_units = rows, .n_sections = 1, .unit = {1}}};
            }
            r.give[k] = spmd_placement(b->t->price, &p);
        }
        r.tag = spmd_meaning_new(b, &(struct spmd_meaning){.device_ns = ns});
        rules = arena_grow(b->a, rules, (size_t)op->n_rules, &capacity, sizeof r);
        rules[op->n_rules++] = r;
    }
    op->rules = rules;
}
