#include "exec/worker/accumulated.h"

#include "core/program/period.h"
#include "exec/worker/chunks.h"
#include "exec/worker/rank.h"
#include "exec/worker/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char GRADIENTS[] = "gradients#x";

int64_t accumulated_bytes(const struct program *p, const struct program_stage *s, int64_t steps)
{
    return steps % period_of_update(&p->outer, s->island) ? s->class_bytes[SLOT_GRADIENT] : 0;
}

/* The region as one tensor of the gradients' dtype. */
static struct checkpoint_tensor tensor_of(const struct program *p, const struct program_stage *s, int64_t steps)
{
    enum dtype t = dtype_master(p->dtype);
    int64_t bytes = accumulated_bytes(p, s, steps);
    struct checkpoint_tensor x = {.shape = {1, {bytes / dtype_bytes(t)}}, .dtype = (int32_t)t, .bytes = bytes};
    snprintf(x.name, sizeof x.name, "%s%016" PRIx64 "/%" PRId32, GRADIENTS, p->plan_hash, (int32_t)(s - p->stages));
    return x;
}

/* Of the region's numbers those of gradients, because codes in it are bits. */
static void require_finite(struct snapshot *to, const struct program_stage *s, const char *region)
{
    for (int32_t i = 0; i < s->n_parameters; i++)
        for (int k = 0; k < 2; k++) {
            const struct slot *x = s->parameters[i].gradient[k] < 0 ? NULL : &s->slots[s->parameters[i].gradient[k]];
            if (x) snapshot_require_finite(to, region + program_slot_offset(s, x), x->dtype, shape_elements(&x->shape));
        }
}

enum status accumulated_collect(struct snapshot *s, const struct chunk *k, int64_t steps, struct feedback *out, struct error *err)
{
    struct checkpoint_tensor x = tensor_of(s->r->p, k->stage, steps);
    void *copy;
    if (!x.bytes) return OK;
    TRY(snapshot_copy(s, k->memory.region[SLOT_GRADIENT], x.bytes, &copy, err));
    require_finite(s, k->stage, copy);
    out->tensors[out->n] = x, out->data[out->n++] = copy;
    return OK;
}

enum status accumulated_load(struct rank *r, struct arena *a, const struct checkpoint *c, const struct chunk *k, struct error *err)
{
    struct checkpoint_tensor x = tensor_of(r->p, k->stage, c->step);
    if (!x.bytes || !checkpoint_has(c, x.name)) return OK;
    char *copy = arena_alloc(a, (size_t)x.bytes, 1);
    TRY(checkpoint_load(c, x.name, &x.shape, (enum dtype)x.dtype, copy, err));
    return r->backend.upload(&r->backend, k->memory.region[SLOT_GRADIENT], copy, x.bytes, err);
}

bool accumulated_lost(const struct checkpoint *c, const struct program *p)
{
    int32_t had = 0, found = 0, wanted = 0;
    for (int32_t i = 0; i < c->n_tensors; i++) had += !strncmp(c->tensors[i].name, GRADIENTS, sizeof GRADIENTS - 1);
    for (const struct program_stage *s = p->stages; s < p->stages + p->n_stages; s++) {
        struct checkpoint_tensor x = tensor_of(p, s, c->step);
        if (x.bytes) wanted++, found += checkpoint_has(c, x.name);
    }
    return found < wanted || found < had;
}
