/* core/sharding/shard_measured.c - measured layers on several devices: what was measured for this tensor-parallel degree. */
#include "core/sharding/shard_internal.h"

#include <inttypes.h>

int32_t shard_tensor_axis(const struct shard_view *v, int32_t i)
{
    for (int32_t x = 0; x < v->s->n_axes; x++)
        if (shard_choice_of(v, i)->index[x] == INDEX_tensor) return x;
    return -1;
}

enum status shard_measured_attrs(const struct shard_view *v, int32_t i, struct op_attrs *attrs,
                                 struct error *err)
{
    const struct graph_op *op = &v->whole->ops[i];
    const struct shares *kept = v->whole->tensors[op->output[1]].shares;
    int32_t x = shard_tensor_axis(v, i), tp = v->s->mesh[x];
    const double *ratios = v->s->ratios + shard_choice_of(v, i)->ratio[x] * v->s->n_devices;
    for (int32_t d = 1; d < v->s->n_devices; d++)
        if (ratios[d] < ratios[0] || ratios[d] > ratios[0])
            return error_set(err, ERR_INPUT,
                             "operator '%s': a measured layer is sharded in equal parts, so its "
                             "ratios must be equal",
                             op->name);
    if (tp < v->s->n_devices)
        return error_set(err, ERR_INPUT,
                         "operator '%s': a measured layer is sharded over all %" PRId32
                         " devices of its stage, not over an axis of %" PRId32,
                         op->name, v->s->n_devices, tp);
    if (shares_at(kept, tp) < 0)
        return error_set(err, ERR_INPUT,
                         "operator '%s' was measured on %" PRId32 " GPU%s only, not on %" PRId32,
                         op->name, kept->tp[0], kept->tp[0] > 1 ? "s" : "", tp);
    attrs->tp = tp;
    attrs->kept = shares_at(kept, tp);
    return OK;
}
