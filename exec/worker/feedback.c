#include "exec/worker/feedback.h"

#include "exec/worker/chunks.h"
#include "exec/worker/saved_tensor.h"
#include "exec/worker/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct slot *slot_of(const struct program_stage *s, const struct program_parameter *p, int which)
{
    return p && p->feedback[which] ? &s->slots[p->feedback[which] - 1] : NULL;
}

/* Of one feedback of one parameter on a stage. */
static enum status name_of(const struct program *p, const struct program_stage *own, const struct program_parameter *x,
                           int which, char *out, size_t size, struct error *err)
{
    int32_t index = 0, n = 0;
    for (const struct program_stage *s = p->stages; s < p->stages + p->n_stages; s++) {
        if (!slot_of(s, saved_tensor_parameter(s, x->name), which)) continue;
        index += s < own, n++;
    }
    const char *slot = slot_of(own, x, which)->name;
    if ((size_t)snprintf(out, size, "%s#%" PRId32 "/%" PRId32, slot, index, n) < size) return OK;
    return error_set(err, ERR_INPUT, "feedback %s: its name is too long for a checkpoint", slot);
}

static int32_t count(const struct program_stage *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_parameters; i++)
        for (int which = 0; which < FEEDBACK_SLOTS; which++) n += s->parameters[i].feedback[which] > 0;
    return n;
}

static enum status collect_one(struct snapshot *s, const struct chunk *k, const struct program_parameter *p, int which,
                               struct feedback *out, struct error *err)
{
    const struct slot *x = slot_of(k->stage, p, which);
    struct checkpoint_tensor *t = &out->tensors[out->n];
    void *copy;
    TRY(name_of(s->r->p, k->stage, p, which, t->name, sizeof t->name, err));
    t->shape = x->shape, t->dtype = (int32_t)x->dtype, t->bytes = x->bytes;
    TRY(snapshot_copy(s, lane_memory_slot(&k->memory, p->feedback[which] - 1, 0), x->bytes, &copy, err));
    snapshot_require_finite(s, copy, x->dtype, shape_elements(&x->shape));
    out->data[out->n++] = copy;
    return OK;
}

enum status feedback_collect(struct snapshot *s, struct arena *a, const struct chunk *k, struct feedback *out, struct error *err)
{
    size_t n = (size_t)count(k->stage);
    *out = (struct feedback){.tensors = ARENA_ARRAY(a, struct checkpoint_tensor, n + 2),
                             .data = ARENA_ARRAY(a, const void *, n + 2)};
    for (int32_t i = 0; i < k->stage->n_parameters; i++)
        for (int which = 0; which < FEEDBACK_SLOTS; which++)
            if (k->stage->parameters[i].feedback[which])
                TRY(collect_one(s, k, &k->stage->parameters[i], which, out, err));
    return OK;
}

bool feedback_saved(const struct checkpoint *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const char *place = strrchr(c->tensors[i].name, '#');
        if (place && place[1] >= '0' && place[1] <= '9' && !saved_tensor_is_versions(c->tensors[i].name)) return true;
    }
    return false;
}

bool feedback_kept(const struct program *p)
{
    for (const struct program_stage *s = p->stages; s < p->stages + p->n_stages; s++)
        if (count(s)) return true;
    return false;
}

static const struct checkpoint_tensor *find(const struct checkpoint *c, const char *name)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (!strcmp(c->tensors[i].name, name)) return &c->tensors[i];
    return NULL;
}

static enum status load_one(struct rank *r, struct arena *a, const struct checkpoint *c, const struct chunk *k,
                            const struct program_parameter *p, int which, int64_t *lacking, struct error *err)
{
    char name[sizeof c->tensors->name];
    const struct slot *x = slot_of(k->stage, p, which);
    TRY(name_of(r->p, k->stage, p, which, name, sizeof name, err));
    const struct checkpoint_tensor *t = find(c, name);
    if (!t || !shape_equal(&t->shape, &x->shape) || t->dtype != (int32_t)x->dtype) {
        ++*lacking;
        return OK;
    }
    char *copy = arena_alloc(a, (size_t)x->bytes + 1, 1);
    TRY(checkpoint_load(c, name, &x->shape, x->dtype, copy, err));
    return r->backend.upload(&r->backend, lane_memory_slot(&k->memory, p->feedback[which] - 1, 0), copy, x->bytes, err);
}

enum status feedback_load(struct rank *r, struct arena *a, const struct checkpoint *c, const struct chunk *k,
                          int64_t *lacking, struct error *err)
{
    for (int32_t i = 0; i < k->stage->n_parameters; i++)
        for (int which = 0; which < FEEDBACK_SLOTS; which++)
            if (k->stage->parameters[i].feedback[which])
                TRY(load_one(r, a, c, k, &k->stage->parameters[i], which, lacking, err));
    return OK;
}
