#include "profiles/team.h"

#include "core/base/arena.h"
#include "profiles/catalogue.h"
#include "profiles/nccl.h"

#include <inttypes.h>
#include <stdio.h>
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

static void set_stated(struct catalogue_value *v, double stated)
{
    if (stated > 0)
        *v = (struct catalogue_value){
            .value = stated, .source = TEAM_STATED, .date = "", .confidence = "stated"};
}

enum status team_device(const struct device_type *t, struct catalogue_device *room,
                        const struct catalogue_device **out, struct error *err)
{
    const struct device_rates *r = &t->stated;
    bool any = r->memory_Bps > 0 || r->power_w > 0;
    for (int p = 0; p < DEVICE_PEAK_COUNT; p++) any |= r->peak_flops[p] > 0;
    TRY(catalogue_find(t->catalogue, out, err));
    if (!any) return OK;
    *room = **out;
    *out = room;
#define X(name) set_stated(&room->name##_flops, r->peak_flops[DEVICE_PEAK_##name]);
    DEVICE_PEAKS(X)
#undef X
    set_stated(&room->memory_Bps, r->memory_Bps);
    set_stated(&room->power_w, r->power_w);
    return OK;
}

double team_peak_flops(const struct device_type *t, enum dtype precision)
{
    struct catalogue_device room;
    const struct catalogue_device *d = NULL;
    return team_device(t, &room, &d, NULL) == OK ? catalogue_peak_flops(d, precision) : 0;
}

/* A GPU of our backend computes in what its hardware has, whatever the file states. */
static bool lacks(const struct catalogue_device *d, enum dtype t)
{
    return t == DTYPE_bf16 && d->compute_capability > 0 && d->compute_capability < 80;
}

static enum status complete_type(struct device_type *type, struct error *err)
{
    struct catalogue_device room;
    const struct catalogue_device *d = NULL;
    struct error why;
    enum status st = team_device(type, &room, &d, &why);
    if (st != OK)
        return type->where ? node_error(type->where, err, "%s", why.text)
                           : error_set(err, st, "%s", why.text);
    TRY(check_part(type, d, err));
    if (type->stated.peak_flops[DEVICE_PEAK_bf16] > 0 && lacks(d, DTYPE_bf16))
        return error_set(err, ERR_INPUT,
                         "device type '%s': a peak of bf16 is stated, but %s has none (compute "
                         "capability %d.%d; from 8.0 on)",
                         type->name, d->id, (int)(d->compute_capability / 10),
                         (int)(d->compute_capability % 10));
    type->backend = d->backend;
    type->power_w = d->power_w.value;
    type->list_price_per_h = d->price_per_h.value;
    if (d->context_bytes.value > 0) {
        type->context_bytes = (int64_t)d->context_bytes.value;
        type->communicator_bytes = (int64_t)d->communicator_bytes.value;
    }
    if (type->memory_bytes > 0) return OK;
    if (d->memory_bytes.value <= 0)
        return error_set(
            err, ERR_INPUT,
            "device type '%s': the catalogue has no memory size of %s: state `memory:`", type->name,
            d->id);
    type->memory_bytes = (int64_t)d->memory_bytes.value;
    return OK;
}

enum status team_complete(struct cluster *c, struct error *err)
{
    for (int32_t t = 0; t < c->n_types; t++) TRY(complete_type(&c->types[t], err));
    return c->nccl ? check_nccl(c, err) : OK;
}

/* "fp32, fp16 and bf16" */
static const char *computes_in(const struct catalogue_device *d, char *text, size_t room)
{
    static const enum dtype all[] = {DTYPE_fp32, DTYPE_fp64, DTYPE_fp16, DTYPE_bf16};
    const char *names[4];
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (catalogue_peak_flops(d, all[i]) > 0) names[n++] = dtype_name(all[i]);
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, room - used, "%s%s",
                 i == 0       ? ""
                 : i == n - 1 ? " and "
                              : ", ",
                 names[i]);
    }
    return text;
}

static bool computes(const struct device_type *type, enum dtype t)
{
    struct catalogue_device room;
    const struct catalogue_device *d = NULL;
    return team_device(type, &room, &d, NULL) == OK && !lacks(d, t) && catalogue_peak_flops(d, t) > 0;
}

/* The half precision that every type of the cluster computes in; none: fp32. */
static enum dtype common_precision(const struct cluster *c)
{
    static const enum dtype half[] = {DTYPE_bf16, DTYPE_fp16};
    for (size_t i = 0; i < sizeof half / sizeof *half; i++) {
        bool all = true;
        for (int32_t t = 0; t < c->n_types; t++) all = all && computes(&c->types[t], half[i]);
        if (all) return half[i];
    }
    return DTYPE_fp32;
}

enum status team_precision(const struct cluster *c, enum dtype t, struct error *err)
{
    for (int32_t i = 0; i < c->n_types; i++) {
        struct catalogue_device room;
        const struct catalogue_device *d = NULL;
        char list[64];
        TRY(team_device(&c->types[i], &room, &d, err));
        bool planned = !strcmp(d->backend, "none") && !(catalogue_peak_flops(d, t) > 0);
        if (lacks(d, t) || planned)
            return error_set(err, ERR_INPUT, "precision %s: device type '%s' (%s) computes in %s; `precision: %s` of the job "
                             "suits every device type of the cluster%s",
                             dtype_name(t), c->types[i].name, d->id,
                             computes_in(d, list, sizeof list), dtype_name(common_precision(c)),
                             planned ? ", and `peak:` of the type may state another" : "");
    }
    return OK;
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
