#include "profiles/op_prior.h"

#include <math.h>
#include <string.h>

/* Bus bandwidth of rings of 2 to 8 A100 between 4 and 32 MiB as a share of NVLink, and their latency: nccl-tests
 * all_reduce (VIA-Research/vTrain, trace/a100, 2 GPUs 61 µs at 4 MiB, 230 at 32; 4 GPUs 77, 284; 8 GPUs 96, 358). */
static const double wire_efficiency = 0.7, wire_s = 45e-6, wire_rank_s = 4e-6;

/* Kernels of eager attention in Megatron-LM: q·k, masked softmax, dropout, p·v and two transposes; in the backward four
 * products, dropout, softmax and three transposes. */
enum { EAGER_KERNELS = 6, EAGER_GRAD_KERNELS = 9 };
/* Its fused softmax requires sequences x heads divisible by four (fused_softmax.py, is_kernel_available); otherwise separate
 * kernels: to fp32, scale, mask, softmax, back, and the same number in the backward. */
enum { SOFTMAX_BATCH = 4, SOFTMAX_STEPS = 5 };

struct op_prior op_prior_default(const char *base)
{
    return (struct op_prior){.base = base,
                             .fit = "catalogue",
                             .flops_efficiency = CATALOGUE_FLOPS_EFFICIENCY,
                             .memory_efficiency = CATALOGUE_MEMORY_EFFICIENCY,
                             .operator_s = CATALOGUE_OPERATOR_S,
                             .wire_efficiency = wire_efficiency,
                             .wire_s = wire_s,
                             .wire_rank_s = wire_rank_s};
}

/* Rows and columns of an operator's matrix product; false if it is none. Convolutions: positions × output channels, positions of
 * x × input channels, and output channels × receptive field. Experts: with the expected number of rows. */
static bool product_of(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *s,
                       double *rows, double *columns)
{
    const struct shape *y = &s->output[0];
    *rows = (double)shape_rows(y), *columns = (double)shape_last(y);
    if (kind == OP_expert_matmul)
        *rows = attrs->trans_a ? (double)y->dim[1] : op_expert_rows(kind, attrs, s);
    if (kind == OP_conv2d || kind == OP_conv2d_grad) {
        *rows = (double)y->dim[0] * (double)y->dim[2] * (double)y->dim[3];
        *columns = (double)y->dim[1];
    }
    if (kind == OP_conv2d_weight_grad) {
        *rows = (double)y->dim[0];
        *columns = (double)y->dim[1] * (double)y->dim[2] * (double)y->dim[3];
    }
    return kind == OP_matmul || kind == OP_expert_matmul || kind == OP_conv2d ||
           kind == OP_conv2d_grad || kind == OP_conv2d_weight_grad;
}

double op_prior_seconds(const struct op_prior *p, const struct catalogue_device *d,
                        enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, enum dtype t)
{
    double peak = catalogue_peak_flops(d, t), rate = d->memory_Bps.value;
    if (!(peak > 0) || !(rate > 0)) return NAN;
    double bytes = (double)op_bytes_read(kind, attrs, shapes, t) +
                   (double)op_bytes_written(kind, attrs, shapes, t);
    double efficiency = p->flops_efficiency, seconds = p->operator_s;
    double rows, columns;
    if (product_of(kind, attrs, shapes, &rows, &columns))
        efficiency /= 1 + p->half_rows / rows + p->half_rows / columns;
    return seconds + fmax(op_flops(kind, attrs, shapes) / (peak * efficiency),
                          bytes / (rate * p->memory_efficiency));
}

double op_prior_hosted_seconds(const struct op_prior *p, const struct catalogue_device *d, enum op_kind kind,
                               const struct op_attrs *attrs, const struct op_shapes *shapes, enum dtype t)
{
    int64_t read, written;
    op_bytes_hosted(kind, attrs, shapes, t, &read, &written);
    if (!(read + written) || !strcmp(d->backend, "host")) return 0;
    if (!(d->pcie_Bps.value > 0)) return NAN;
    return fmax((double)read, (double)written) / (d->pcie_Bps.value * p->wire_efficiency);
}

static int32_t softmax_steps(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return s->input[0].dim[0] * attrs->heads % SOFTMAX_BATCH ? SOFTMAX_STEPS : 0;
}

double op_prior_issue_seconds(const struct op_prior *p, enum op_kind kind,
                              const struct op_attrs *attrs, const struct op_shapes *shapes)
{
    if (kind == OP_attention && attrs->eager)
        return (EAGER_KERNELS + softmax_steps(attrs, shapes)) * p->issue_s;
    if (kind == OP_attention_grad && attrs->eager)
        return (EAGER_GRAD_KERNELS + softmax_steps(attrs, shapes)) * p->issue_s;
    return p->issue_s;
}
