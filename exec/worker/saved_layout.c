#include "exec/worker/saved_layout.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "core/collective/tensor_shard.h"
#include "exec/worker/accumulated.h"
#include "exec/worker/saved_tensor.h"

#include <string.h>

/* Shape and dtype as exec/worker/saving, divided and shards write them. */
static void describe(const struct program_stage *s, const struct program_parameter *x, int which, struct checkpoint_tensor *t)
{
    const struct slot *slot = &s->slots[saved_tensor_slot(x, which)], *whole = x->slot >= 0 ? &s->slots[x->slot] : NULL;
    bool held = whole && whole->shard;
    t->dtype = (int32_t)(x->shard || held ? slot->dtype : dtype_master(slot->dtype));
    t->shape = x->shard ? tensor_shard_whole(&x->shape, held ? whole->shard : NULL) : held ? tensor_shard_whole(&slot->shape, slot->shard) : x->shape;
}

enum status saved_layout_make(struct arena *a, const struct program *p, int64_t steps, struct checkpoint_layout *out, struct error *err)
{
    struct hash_map seen = {.arena = a};
    struct checkpoint_tensor *all = NULL;
    size_t capacity = 0;
    int32_t n = 0;
    for (const struct program_stage *s = p->stages; s < p->stages + p->n_stages; s++)
        for (int32_t k = 0; !s->island && k < s->n_parameters; k++) {
            const struct program_parameter *x = &s->parameters[k];
            struct hash_entry *e = hash_map_at(&seen, hash_map_key(0, x->name, strlen(x->name)));
            if (e->number) continue;
            e->number = 1;
            for (int which = 0; which < SAVED_TENSORS; which++) {
                if (!saved_tensor_kept(p, x, 0, which, steps)) continue;
                all = arena_grow(a, all, (size_t)n, &capacity, sizeof *all);
                struct checkpoint_tensor *t = &all[n++];
                *t = (struct checkpoint_tensor){0};
                TRY(saved_tensor_name(t->name, sizeof t->name, x, 0, which, err));
                describe(s, x, which, t);
            }
        }
    return checkpoint_layout_make(a, all, n, CHECKPOINT_SHARD_BYTES, out, err);
}

static int64_t feedback_bytes(const struct program_stage *s, const struct program_parameter *p)
{
    int64_t bytes = 0;
    for (int k = 0; k < FEEDBACK_SLOTS; k++) bytes += p->feedback[k] ? s->slots[p->feedback[k] - 1].bytes : 0;
    return bytes;
}

int64_t saved_layout_bytes(const struct program *p)
{
    int64_t bytes = 0;
    for (const struct program_stage *s = p->stages; s < p->stages + p->n_stages; s++) {
        bytes += accumulated_bytes(p, s, 1);
        for (int32_t k = 0; k < s->n_parameters; k++) {
            const struct program_parameter *x = &s->parameters[k];
            const int32_t *state = x->shard ? x->shard->state : x->state, *outer = x->shard ? x->shard->outer : x->outer;
            bytes += feedback_bytes(s, x);
            if (!saved_tensor_owned(p, s, x->name)) continue;
            struct shape whole =
                tensor_shard_whole(&x->shape, x->slot >= 0 ? s->slots[x->slot].shard : NULL);
            bytes += shape_elements(&whole) * dtype_bytes(dtype_master(p->dtype)) *
                     (1 + (state[0] >= 0) + (state[1] >= 0) + (x->previous > 0) +
                      (s->island ? 0 : (outer[0] > 0) + (outer[1] > 0) + (outer[2] > 0)));
        }
    }
    return bytes;
}
