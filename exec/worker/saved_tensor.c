#include "exec/worker/saved_tensor.h"

#include "core/graph/half.h"
#include "exec/worker/chunks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const SUFFIX[] = {"", "#m", "#v", "#anchor", "#velocity"};

int32_t saved_tensor_slot(const struct program_parameter *p, int which)
{
    if (which == 0) return p->master >= 0 ? p->master : p->slot;
    return which < 3 ? p->state[which - 1] : p->outer[which - 3] - 1;
}

const struct program_parameter *saved_tensor_parameter(const struct program_stage *s,
                                                       const char *name)
{
    for (int32_t k = 0; k < s->n_parameters; k++)
        if (!strcmp(s->parameters[k].name, name)) return &s->parameters[k];
    return NULL;
}

/* The devices of a stage are consecutive. */
bool saved_tensor_owned(const struct program *p, const struct program_stage *owner,
                        const char *name)
{
    for (const struct program_stage *s = p->stages; s < owner; s++)
        if (s->island == owner->island && saved_tensor_parameter(s, name)) return false;
    return true;
}

enum status saved_tensor_name(char *out, size_t n, const struct program_parameter *p, int32_t island,
                              int which, struct error *err)
{
    char of[16] = "";
    if (island && which < 3) snprintf(of, sizeof of, "@%" PRId32, island);
    if ((size_t)snprintf(out, n, "%s%s%s", p->name, SUFFIX[which], of) < n) return OK;
    return error_set(err, ERR_INPUT, "parameter %s: its name is too long for a checkpoint",
                     p->name);
}

bool saved_tensor_finite(const void *values, enum dtype t, int64_t n)
{
    if (t == DTYPE_fp64) {
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(((const double *)values)[i])) return false;
    } else if (t == DTYPE_fp32) {
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(((const float *)values)[i])) return false;
    }
    return true;
}

enum status saved_tensor_narrow(struct rank *r, struct arena *a, const struct chunk *k,
                                int32_t slot, int64_t at, const void *values, int64_t n,
                                struct error *err)
{
    enum dtype t = k->stage->slots[slot].dtype;
    uint16_t *narrow = ARENA_ARRAY(a, uint16_t, (size_t)n + 1);
    half_narrow(t, values, narrow, n);
    return r->backend.upload(&r->backend, (uint16_t *)lane_memory_slot(&k->memory, slot, 0) + at,
                             narrow, n * dtype_bytes(t), err);
}
