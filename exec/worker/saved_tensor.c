#include "exec/worker/saved_tensor.h"

#include "core/graph/half.h"
#include "core/program/period.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/chunks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const SUFFIX[] = {"", "#m", "#v", "#anchor", "#velocity", "#sum", "#previous"};
static const char VERSIONS[] = "parameter_server#";

int32_t saved_tensor_slot(const struct program_parameter *p, int which)
{
    const struct program_shard *x = p->shard;
    if (x && which == SAVED_PREVIOUS) return -1; /* weight versions exclude ZeRO */
    if (x) return which == 0 ? (x->master >= 0 ? x->master : x->slot) : which < 3 ? x->state[which - 1] : x->outer[which - 3] - 1;
    if (which == 0) return p->master >= 0 ? p->master : p->slot;
    if (which == SAVED_PREVIOUS) return p->previous - 1;
    return which < 3 ? p->state[which - 1] : p->outer[which - 3] - 1;
}

bool saved_tensor_kept(const struct program *p, const struct program_parameter *x, int32_t island, int which,
                       int64_t steps)
{
    if (saved_tensor_slot(x, which) < 0) return false;
    if (which == 5 && !period_in_flight(&p->outer, x->fragment, steps)) return false;
    return which < 3 || !island;
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

static void add_weighted(enum dtype t, const void *from, double weight, int64_t n, double *sum)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += weight * (t == DTYPE_fp64 ? ((const double *)from)[i] : (double)((const float *)from)[i]);
}

static void round_to(enum dtype t, const double *from, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++)
        if (t == DTYPE_fp64)
            ((double *)to)[i] = from[i];
        else
            ((float *)to)[i] = (float)from[i];
}

static enum status load_mean(struct arena *a, const struct checkpoint *c, const struct program_parameter *x, int which,
                             const struct shape *whole, enum dtype t, void *out, struct error *err)
{
    int64_t n = shape_elements(whole);
    double all = 0, *sum = ARENA_ARRAY(a, double, (size_t)n + 1);
    char name[256];
    for (int32_t i = 0; i < c->n_islands; i++) all += (double)c->island_sequences[i];
    for (int32_t i = 0; i < c->n_islands; i++) {
        TRY(saved_tensor_name(name, sizeof name, x, i, which, err));
        TRY(checkpoint_load(c, name, whole, t, out, err));
        add_weighted(t, out, (double)c->island_sequences[i] / all, n, sum);
    }
    round_to(t, sum, n, out);
    return OK;
}

enum status saved_tensor_load(struct arena *a, const struct checkpoint *c, const struct program *p,
                              const struct program_parameter *x, int32_t island, int which,
                              const struct shape *whole, enum dtype t, void *out, struct error *err)
{
    char name[256];
    bool one = c->n_islands < 2;
    if (c->weights && (which == 1 || which == 2)) return OK;
    if (island && saved_tensor_serves(c, p)) {
        TRY(saved_tensor_name(name, sizeof name, x, island, which, err));
        if (checkpoint_has(c, name)) return checkpoint_load(c, name, whole, t, out, err);
    }
    TRY(saved_tensor_name(name, sizeof name, x, one ? 0 : island, which, err));
    bool has = which < 3 || checkpoint_has(c, name);
    if (!has && which > 3 && which != SAVED_PREVIOUS) return OK;
    if (!has) which = 0;
    if (which < 3 && !one && c->n_islands != program_islands(p)) return load_mean(a, c, x, which, whole, t, out, err);
    TRY(saved_tensor_name(name, sizeof name, x, one ? 0 : island, which, err));
    return checkpoint_load(c, name, whole, t, out, err);
}

void saved_tensor_versions(char *out, size_t n, int32_t server, int64_t numbers)
{
    snprintf(out, n, "%s%" PRId32 "/%" PRId64, VERSIONS, server, numbers);
}

const struct checkpoint_tensor *saved_tensor_find_versions(const struct checkpoint *c, int32_t server)
{
    char name[64];
    int n = snprintf(name, sizeof name, "%s%" PRId32 "/", VERSIONS, server);
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (!strncmp(c->tensors[i].name, name, (size_t)n)) return &c->tensors[i];
    return NULL;
}

bool saved_tensor_is_versions(const char *name) { return !strncmp(name, VERSIONS, sizeof VERSIONS - 1); }

bool saved_tensor_serves(const struct checkpoint *c, const struct program *p)
{
    const struct checkpoint_tensor *last = saved_tensor_find_versions(c, p->server.n);
    return parameter_server_by_arrival(&p->server) && last && !saved_tensor_find_versions(c, p->server.n + 1) &&
           shape_elements(&last->shape) == 1 + p->n_stages - p->server.n;
}

static bool is_of(const char *name, int which)
{
    const char *at = strrchr(name, '#');
    return at && !strcmp(at, SUFFIX[which]);
}

bool saved_tensor_is_sum(const char *name) { return is_of(name, 5); }

bool saved_tensor_is_previous(const char *name) { return is_of(name, SAVED_PREVIOUS); }

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
