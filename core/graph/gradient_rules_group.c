/* core/graph/gradient_rules_group.c - gradient rules of the conversions between placements (core/sharding/shard).
 *
 * The gradient of a gathered tensor is reduce-scattered, or sliced if all devices have the same; the gradient
 * of a sliced tensor is gathered. For a parameter the last step accumulates into its gradient, which may stay partial until the
 * gradient all-reduce of the step.
 */
#include "core/graph/gradient_rules.h"

#include "core/base/arena.h"
#include "core/graph/gradient_use.h"

/* Gradients of the output: partial values separate if the tensor keeps them so, and only one left for a parameter. */
static void partials_back(const struct use *u, int32_t partials[GRADIENT_PARTIALS])
{
    int32_t y = u->op.output[0], n = 0;
    gradient_partials(u->b, y, partials);
    if (!gradient_is_of_parameter(u->b, u->op.input[0])) return;
    for (int32_t m = 0; m < GRADIENT_PARTIALS; m++) n += partials[m] >= 0;
    if (n < 2) return;
    int32_t sum = gradient_reduce_partials(u->b, u->i, y, partials);
    for (int32_t m = 1; m < GRADIENT_PARTIALS; m++) partials[m] = -1;
    partials[0] = sum;
}

/* Contributes grad, partial over `partial`, to the source: an activation directly, a parameter by W operator `kind`. */
static enum status hand_on(const struct use *u, int32_t grad, uint8_t partial, struct error *err)
{
    int32_t x = u->op.input[0];
    if (!use_is_parameter(u, 0)) return gradient_contribute_partial(u->b, x, grad, partial, err);
    int32_t sum = gradient_parameter_partial(u->b, x, partial);
    return gradient_emit(u->b, u->i, OP_accumulate, PHASE_W, "grad_accumulate",
                         &(struct op_attrs){.accumulate = true}, &grad, 1, &sum, 1, err);
}

/* This one's own kind of gradient operator, with the exchange of the forward operator. */
static enum status convert_back(const struct use *u, enum op_kind kind, const char *suffix,
                                const struct exchange *exchange, int32_t grad, int32_t *out,
                                struct error *err)
{
    struct op_attrs attrs = {.exchange = exchange};
    *out = -1;
    return gradient_emit(u->b, u->i, kind, PHASE_I, suffix, &attrs, INPUTS(grad), out, 1, err);
}

/* A replicated gradient is sliced; a partial one is reduce-scattered. */
enum status gradient_rule_group_all_gather(struct gradient_builder *g, int32_t op,
                                           struct error *err)
{
    static const char *const scatter[] = {"", "grad_scatter.0", "grad_scatter.1", "grad_scatter"};
    static const char *const shard[] = {"grad_shard", "grad_shard.0", "grad_shard.1", ""};
    struct use u = use_of(g, op);
    int32_t partials[GRADIENT_PARTIALS], axis = u.op.attrs.exchange->axis;
    if (!use_wants(&u, 0) && !use_is_parameter(&u, 0)) return OK;
    partials_back(&u, partials);
    for (int32_t m = GRADIENT_PARTIALS - 1; m >= 0; m--) {
        bool owed = m >> axis & 1;
        int32_t mine;
        if (partials[m] < 0) continue;
        TRY(convert_back(&u, owed ? OP_group_reduce_scatter : OP_local_slice,
                         owed ? scatter[m] : shard[m], u.op.attrs.exchange, partials[m], &mine, err));
        TRY(hand_on(&u, mine, (uint8_t)(m & ~(1 << axis)), err));
    }
    return OK;
}

/* For a parameter every device has the gradient of its own shard, which, zero-padded, is a partial value of the full one. */
static enum status shard_of_parameter(const struct use *u, struct error *err)
{
    const struct exchange *exchange = u->op.attrs.exchange;
    int32_t partials[GRADIENT_PARTIALS], out;
    partials_back(u, partials);
    for (int32_t m = 0; m < GRADIENT_PARTIALS; m++) {
        if (partials[m] < 0) continue;
        uint8_t owed = (uint8_t)(m | 1 << exchange->axis);
        if (!use_is_parameter(u, 0)) {
            TRY(convert_back(u, OP_add_to_slice, "grad_whole", exchange, partials[m], &out, err));
            return gradient_contribute_partial(u->b, u->op.input[0], out, owed, err);
        }
        out = gradient_parameter_partial(u->b, u->op.input[0], owed);
        struct op_attrs attrs = {.exchange = exchange, .accumulate = true};
        return gradient_emit(u->b, u->i, OP_add_to_slice, PHASE_W, "grad_weight", &attrs, &partials[m], 1,
                             &out, 1, err);
    }
    return OK;
}

enum status gradient_rule_local_slice(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t whole;
    if (gradient_is_of_parameter(g, u.op.input[0])) return shard_of_parameter(&u, err);
    if (!use_wants(&u, 0)) return OK;
    TRY(convert_back(&u, OP_group_all_gather, "grad_gather", u.op.attrs.exchange, u.dy, &whole,
                     err));
    return use_pass(&u, 0, whole, err);
}

enum status gradient_rule_group_reduce_scatter(struct gradient_builder *g, int32_t op,
                                               struct error *err)
{
    return gradient_rule_local_slice(g, op, err);
}

enum status gradient_rule_group_all_to_all(struct gradient_builder *g, int32_t op,
                                           struct error *err)
{
    struct use u = use_of(g, op);
    const struct exchange *e = u.op.attrs.exchange;
    int32_t partials[GRADIENT_PARTIALS];
    if (!use_wants(&u, 0) && !use_is_parameter(&u, 0)) return OK;
    struct exchange *back = arena_copy(gradient_graph(g)->arena, e, sizeof *back);
    back->dim = e->to_dim, back->to_dim = e->dim;
    back->shards = e->to, back->to = e->shards;
    partials_back(&u, partials);
    for (int32_t m = GRADIENT_PARTIALS - 1; m >= 0; m--) {
        static const char *const suffix[] = {"grad_back", "grad_back.0", "grad_back.1",
                                             "grad_back.2"};
        int32_t mine;
        if (partials[m] < 0) continue;
        TRY(convert_back(&u, OP_group_all_to_all, suffix[m], back, partials[m], &mine, err));
        TRY(hand_on(&u, mine, (uint8_t)m, err));
    }
    return OK;
}
