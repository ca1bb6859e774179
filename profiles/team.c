#include "profiles/team.h"

#include "core/base/arena.h"
#include "profiles/catalogue.h"
#include "profiles/nccl.h"

#include <inttypes.h>
#include <string.h>

static bool runs(const struct catalogue_device *d, enum op_kind kind)
{
    for (int32_t i = 0; i < d->n_fused; i++)
        if (d->fused[i] == kind) return true;
    return false;
}

static enum status check_part(const struct device_type *t, const struct catalogue_device *d,
                              struct error *err)
{
    int32_t all = (int32_t)d->multiprocessors.value;
    if (t->multiprocessors <= all) return OK;
    if (!all)
        return error_set(err, ERR_INPUT,
                         "device type '%s': the catalogue has no number of multiprocessors for "
                         "%s: state `slowdown:` instead of `multiprocessors:`",
                         t->name, d->id);
    return error_set(err, ERR_INPUT,
                     "device type '%s': multiprocessors: %" PRId32 ", of which %s has %" PRId32,
                     t->name, t->multiprocessors, d->id, all);
}

double team_slower(const struct device_type *t)
{
    const struct catalogue_device *d = NULL;
    if (!t->multiprocessors || catalogue_find(t->catalogue, &d, NULL) != OK) return 1;
    double all = d->multiprocessors.value;
    return all > t->multiprocessors ? all / t->multiprocessors : 1;
}

double team_peak_flops(const struct device_type *t, enum dtype precision)
{
    const struct catalogue_device *d = NULL;
    if (catalogue_find(t->catalogue, &d, NULL) != OK) return 0;
    return catalogue_peak_flops(d, precision);
}

static enum status check_nccl(const struct cluster *c, struct error *err)
{
    struct error why;
    const char *text = why.text;
    bool known = nccl_known(c->nccl, &why) == OK, any = false;
    for (int32_t t = 0; t < c->n_types; t++)
        any |= c->types[t].backend && !strcmp(c->types[t].backend, "cuda");
    if (known && any) return OK;
    if (known) text = "nccl: no device type of the cluster is an NVIDIA GPU";
    return c->nccl_where ? node_error(c->nccl_where, err, "%s", text)
                         : error_set(err, ERR_INPUT, "%s", text);
}

enum status team_complete(struct cluster *c, struct error *err)
{
    for (int32_t t = 0; t < c->n_types; t++) {
        const struct device_type *type = &c->types[t];
        const struct catalogue_device *d = NULL;
        struct error why;
        enum status st = catalogue_find(type->catalogue, &d, &why);
        if (st != OK)
            return type->where ? node_error(type->where, err, "%s", why.text)
                               : error_set(err, st, "%s", why.text);
        TRY(check_part(type, d, err));
        c->types[t].backend = d->backend;
        if (d->context_bytes.value > 0) {
            c->types[t].context_bytes = (int64_t)d->context_bytes.value;
            c->types[t].communicator_bytes = (int64_t)d->communicator_bytes.value;
        }
        if (type->memory_bytes > 0) continue;
        if (d->memory_bytes.value <= 0)
            return error_set(
                err, ERR_INPUT,
                "device type '%s': the catalogue has no memory size of %s: state `memory:`",
                type->name, d->id);
        c->types[t].memory_bytes = (int64_t)d->memory_bytes.value;
    }
    return c->nccl ? check_nccl(c, err) : OK;
}

enum status team_precision(const struct cluster *c, enum dtype t, struct error *err)
{
    for (int32_t i = 0; i < c->n_types; i++) {
        const struct catalogue_device *d = NULL;
        TRY(catalogue_find(c->types[i].catalogue, &d, err));
        bool old = d->compute_capability > 0 && d->compute_capability < 80;
        if (old && t == DTYPE_bf16)
            return error_set(err, ERR_INPUT,
                             "precision %s: device type '%s' (%s) computes in fp32, fp64 and fp16",
                             dtype_name(t), c->types[i].name, d->id);
    }
    return OK;
}

void team_share(const struct cluster *c, struct model *m)
{
    if (m->measured) return; /* measured layers are per GPU count, not sharded by operator */
    m->tensor_parallel = c->types[0].tensor_parallel;
    m->sequence_parallel = c->types[0].sequence_parallel;
}

enum status team_fused(struct arena *a, const struct cluster *c, struct lower_options *out,
                       struct error *err)
{
    enum op_kind *list = ARENA_ARRAY(a, enum op_kind, OP_KIND_COUNT);
    int32_t n = 0;
    for (int32_t kind = 0; kind < OP_KIND_COUNT; kind++) {
        bool all = true;
        for (int32_t t = 0; t < c->n_types && all; t++) {
            const struct catalogue_device *d = NULL;
            TRY(catalogue_find(c->types[t].catalogue, &d, err));
            all = runs(d, (enum op_kind)kind);
        }
        if (all) list[n++] = (enum op_kind)kind;
    }
    out->n_fused = n;
    out->fused = list;
    return OK;
}
