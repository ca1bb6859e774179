/* exec/cuda/ops.c - the table of operators: one row a kind.
 *
 * A kind that a device runs has a function in one of the ops_*.c files. One that it does not is none, and says why: whoever asks
 * for it is told so. A new kind of core/graph/op.h that stands in neither list does not compile.
 */
#include "exec/cuda/ops.h"

#include "exec/cuda/operands.h"

/* clang-format off */
#define RUNS(X) \
    X(matmul) X(linear) X(linear_gelu) X(matmul_gelu_grad) X(logits) X(logits_grad) X(logits_weight_grad) X(bias) X(bias_grad) X(add) X(multiply) \
    X(gelu) X(gelu_grad) X(silu) X(silu_grad) X(bias_gelu) X(bias_gelu_grad) X(swiglu) X(swiglu_grad) \
    X(layer_norm) X(layer_norm_grad) X(layer_norm_grad_add) X(layer_norm_weight_grad) \
    X(rms_norm) X(rms_norm_grad) X(rms_norm_weight_grad) \
    X(embedding) X(embedding_grad) X(rotary) X(attention) X(attention_grad) X(cross_entropy) X(cross_entropy_grad) \
    X(conv2d) X(conv2d_grad) X(conv2d_weight_grad) X(relu) X(relu_grad) \
    X(max_pool2d) X(max_pool2d_grad) X(avg_pool2d) X(avg_pool2d_grad) \
    X(group_norm) X(group_norm_grad) X(group_norm_weight_grad) X(to_rows) X(prepend) \
    X(accumulate) X(zero) X(adamw) X(flat_adamw) X(sgd) X(flat_sgd) X(overflow) X(rescale) X(slice) X(paste) \
    X(local_slice) X(add_to_slice) X(cross_entropy_part) X(cross_entropy_join) \
    X(dropout) X(gating) X(gating_grad) X(dispatch) X(combine) X(gates_grad) X(expert_matmul)

#define CARDS "a device of several cards is planned and simulated, never run"
#define MEASURED "a layer that was only measured has nothing to compute"
#define TOGETHER "devices do this together, by messages"
#define RUNS_NOT(X) \
    X(all_reduce, CARDS) X(all_gather, CARDS) X(reduce_scatter, CARDS) \
    X(measured_forward, MEASURED) X(measured_backward, MEASURED) X(message, MEASURED) X(assemble, MEASURED) \
    X(group_all_gather, TOGETHER) X(group_reduce_scatter, TOGETHER) X(group_all_reduce, TOGETHER) X(group_all_to_all, TOGETHER)
/* clang-format on */

#define X(name) +1
#define Y(name, why) +1
_Static_assert(RUNS(X) RUNS_NOT(Y) == OP_KIND_COUNT, "a kind of core/graph/op.h stands in neither list");
#undef X
#undef Y

#define X(name) cuda_op cuda_op_##name;
RUNS(X)
#undef X

cuda_op *const cuda_ops[OP_KIND_COUNT] = {
#define X(name) [OP_##name] = cuda_op_##name,
    RUNS(X)
#undef X
};

const char *const cuda_ops_why_not[OP_KIND_COUNT] = {
#define X(name, why) [OP_##name] = why,
    RUNS_NOT(X)
#undef X
};

enum status cuda_major_number(const struct op_call *c, uint32_t in, uint32_t out,
                              enum cuda_number *number, struct error *err)
{
    int32_t n_in = c->shapes->n_inputs, n_out = c->shapes->n_outputs;
    int32_t wide = 0, narrow = 0, minor_narrow = 0;
    for (int32_t i = 0; i < n_in; i++) {
        if (op_input_is_int32(c->kind, i)) continue;
        bool is_wide = cuda_input_is_wide(c, i), major = in >> i & 1;
        wide += major && is_wide, narrow += major && !is_wide, minor_narrow += !major && !is_wide;
    }
    for (int32_t i = 0; i < n_out; i++) {
        bool is_wide = cuda_output_is_wide(c, i), major = out >> i & 1;
        wide += major && is_wide, narrow += major && !is_wide, minor_narrow += !major && !is_wide;
    }
    *number = cuda_number_of(wide ? DTYPE_fp32 : c->dtype);
    if (!wide || (!narrow && !minor_narrow)) return OK;
    return error_set(err, ERR_INPUT,
                     "%s in %s: no kernel where operands of inputs %x and outputs %x are fp32",
                     op_kind_name(c->kind), dtype_name(c->dtype), (unsigned)c->wide_input,
                     (unsigned)c->wide_output);
}
