#include "exec/worker/shards.h"

#include "core/collective/tensor_shard.h"
#include "exec/worker/saved_tensor.h"
#include "exec/worker/snapshot.h"

bool shards_held(const struct program_stage *s, const struct program_parameter *x)
{
    return !x->shard && x->slot >= 0 && s->slots[x->slot].shard;
}

/* Whether the stage has a shard of a parameter whose first owner, a device of the same stage, has a shard of it too. */
static bool has_shard(const struct program_stage *owner, const struct program_stage *s,
                      const char *name)
{
    const struct program_parameter *x = saved_tensor_parameter(s, name);
    return x && s->replica == owner->replica && s->stage == owner->stage && shards_held(s, x);
}

/* This rank's shard of a tensor. */
static enum status my_shard(struct rank *r, const struct chunks *chunks, struct arena *a,
                            const struct program_stage *owner, const char *name, int part,
                            char **out, int64_t *bytes, struct error *err)
{
    *out = NULL, *bytes = 0;
    for (int32_t i = 0; i < chunks->n; i++) {
        const struct chunk *k = &chunks->at[i];
        if (!has_shard(owner, k->stage, name)) continue;
        int32_t slot = saved_tensor_slot(saved_tensor_parameter(k->stage, name), part);
        if (slot < 0) return OK;
        *bytes = k->stage->slots[slot].bytes;
        *out = arena_alloc(a, (size_t)*bytes + 1, 1);
        TRY(r->backend.download(&r->backend, *out, lane_memory_slot(&k->memory, slot, 0), *bytes,
                                err));
    }
    return OK;
}

/* Shards come in the order of ranks; the same shard may come twice. */
static void put_together(const struct rank *r, struct arena *a, const struct program_stage *owner,
                         const char *name, int part, char *all, char *to)
{
    for (int32_t d = 0; d < r->p->n_devices; d++)
        for (int32_t c = 0; c < r->p->lanes[d].n_stages; c++) {
            const struct program_stage *s = &r->p->stages[r->p->lanes[d].stages[c]];
            if (!has_shard(owner, s, name)) continue;
            const struct slot *slot =
                &s->slots[saved_tensor_slot(saved_tensor_parameter(s, name), part)];
            struct region region = tensor_shard_region(a, &slot->shape, slot->shard);
            region_copy(&region, slot->dtype, to, all, REGION_UNPACK);
            all += slot->bytes;
        }
}

static enum status collect_whole(struct snapshot *s, const struct chunks *chunks, struct arena *a, const struct program_stage *owner,
                                 const struct program_parameter *p, int part, struct shards *out, struct error *err)
{
    struct rank *r = s->r;
    const struct slot *slot = &owner->slots[saved_tensor_slot(p, part)];
    struct checkpoint_tensor *t = &out->rows[out->n];
    char *mine = NULL;
    int64_t bytes = 0, total;
    enum status status = saved_tensor_name(t->name, sizeof t->name, p, owner->island, part, err);
    if (status == OK) status = my_shard(r, chunks, a, owner, p->name, part, &mine, &bytes, err);
    TRY(comm_agree(r->comm, status, err));
    char *all = comm_gather(r->comm, a, mine, bytes, &total);
    if (r->index != 0) return OK;
    t->shape = tensor_shard_whole(&slot->shape, slot->shard);
    t->dtype = (int32_t)slot->dtype;
    t->bytes = shape_elements(&t->shape) * dtype_bytes(slot->dtype);
    char *data = arena_alloc(a, (size_t)t->bytes + 1, 1);
    put_together(r, a, owner, p->name, part, all, data);
    snapshot_require_finite(s, data, slot->dtype, shape_elements(&t->shape));
    out->data[out->n++] = data;
    return OK;
}

/* Maximum number of rows; 0: no tensor is sharded. */
static size_t max_rows(const struct program *p)
{
    bool any = false;
    size_t most = 0;
    for (int32_t i = 0; i < p->n_stages; i++) {
        most += SAVED_TENSORS * (size_t)p->stages[i].n_parameters;
        for (int32_t k = 0; k < p->stages[i].n_parameters; k++)
            any |= shards_held(&p->stages[i], &p->stages[i].parameters[k]);
    }
    return any ? most : 0;
}

/* All ranks visit the same tensors in the same order. */
enum status shards_collect(struct snapshot *s, const struct chunks *chunks, struct arena *a, int64_t steps, struct shards *out,
                           struct error *err)
{
    struct rank *r = s->r;
    size_t most = max_rows(r->p);
    *out = (struct shards){0};
    if (!most) return OK;
    out->rows = ARENA_ARRAY(a, struct checkpoint_tensor, most);
    out->data = ARENA_ARRAY(a, const void *, most);
    for (int32_t i = 0; i < r->p->n_stages; i++) {
        const struct program_stage *owner = &r->p->stages[i];
        for (int32_t k = 0; k < owner->n_parameters; k++) {
            const struct program_parameter *p = &owner->parameters[k];
            if (!shards_held(owner, p) || !saved_tensor_owned(r->p, owner, p->name)) continue;
            for (int part = 0; part < SAVED_TENSORS; part++)
                if (saved_tensor_kept(r->p, p, owner->island, part, steps))
                    TRY(collect_whole(s, chunks, a, owner, p, part, out, err));
        }
    }
    return OK;
}

enum status shards_write(struct arena *a, checkpoint_put *put, void *owner, const struct shards *p, struct error *err)
{
    return p->n ? put(owner, a, "parts.safetensors", p->rows, p->data, p->n, err) : OK;
}
