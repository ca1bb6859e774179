/* core/graph/op_work.c - FLOPs and bytes of the kinds whose row has no constant for them.
 *
 * Conventions are those of the table's head (op_rows.inc): a multiply-add is 2, an elementary function 1.
 */
#include "core/graph/op_work.h"

/* (…,m rows) with k inner: 2 m n k. With trans_a the rows are what is summed over. */
double flops_matmul(const struct op_attrs *attrs, const struct op_shapes *s)
{
    (void)attrs;
    return 2.0 * (double)shape_elements(&s->input[0]) * (double)shape_last(&s->output[0]);
}

/* Tanh form 0.5x(1+tanh(c(x+ax³))) is 9, erf form 0.5x(1+erf(x/√2)) is 5. */
double flops_gelu(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return (attrs->gelu_erf ? 5.0 : 9.0) * (double)shape_elements(&s->input[0]);
}

/* The derivative of either form, times dy: 17 with tanh (x² shared), 11 with erf (one more exp). */
double flops_gelu_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return (attrs->gelu_erf ? 11.0 : 17.0) * (double)shape_elements(&s->input[0]);
}

double flops_linear(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return flops_matmul(attrs, s) + (double)shape_elements(&s->output[0]);
}

double flops_linear_gelu(const struct op_attrs *attrs, const struct op_shapes *s)
{
    const struct op_shapes z = {.n_inputs = 1, .input = {s->output[0]}};
    return flops_linear(attrs, s) + flops_gelu(&(struct op_attrs){0}, &z);
}

/* The product, gelu's derivative, and a sum of rows. */
double flops_matmul_gelu_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    const struct op_shapes z = {.n_inputs = 1, .input = {s->output[0]}};
    return flops_matmul(attrs, s) + flops_gelu_grad(&(struct op_attrs){0}, &z) +
           (double)shape_elements(&s->output[0]);
}

/* The padding behind the vocabulary is not counted. */
double flops_logits(const struct op_attrs *attrs, const struct op_shapes *s)
{
    (void)attrs;
    return 2.0 * (double)shape_elements(&s->input[0]) * (double)s->input[1].dim[0];
}

double flops_logits_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    (void)attrs;
    return 2.0 * (double)shape_rows(&s->input[0]) * (double)shape_elements(&s->input[1]);
}

double flops_logits_weight_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return 2.0 * (double)shape_elements(&s->input[1]) * (double)attrs->vocabulary;
}

double flops_bias_gelu(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return flops_gelu(attrs, s) + (double)shape_elements(&s->input[0]);
}

double flops_bias_gelu_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return flops_gelu_grad(attrs, s) + (double)shape_elements(&s->input[0]);
}

double flops_embedding_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    (void)attrs;
    return (double)shape_elements(&s->input[1]);
}

/* Keys of a sequence: those of k where it is an operand of its own (queries may be a part of the positions). */
static int64_t attention_keys(const struct op_shapes *s)
{
    return (s->n_inputs == 3 || s->n_inputs == 6 ? &s->input[1] : &s->input[0])->dim[1];
}

/* 0 where the window does not bind on sequences this long, so that the key does not see it. */
int64_t op_work_attention_window(const struct op_attrs *a, const struct op_shapes *s)
{
    return a->window > 0 && a->window < attention_keys(s) ? a->window : 0;
}

static double attention_queries(const struct op_attrs *a, const struct op_shapes *s)
{
    return (double)(a->lines.of ? a->lines.n : s->input[0].dim[1]);
}

/* All b·H·T·T of them. */
static double attention_scores(const struct op_attrs *a, const struct op_shapes *s)
{
    double t = attention_queries(a, s), keys = (double)attention_keys(s);
    return t * keys * (double)s->input[0].dim[0] * a->heads;
}

/* Σ_i min(i + 1, window), i < n; window 0 is none. */
static double attention_visible(double n, double window)
{
    if (window <= 0 || n < window) return n * (n + 1) / 2;
    return window * (window + 1) / 2 + (n - window) * window;
}

/* Pairs (query, visible key) over all sequences and heads, queries from the first one on; all of them in both directions. */
static double attention_pairs(const struct op_attrs *a, const struct op_shapes *s)
{
    double t = attention_queries(a, s), w = (double)op_work_attention_window(a, s);
    double before = (double)(a->start + a->lines.first);
    if (a->bidirectional) return attention_scores(a, s);
    double visible = attention_visible(before + t, w) - attention_visible(before, w);
    return visible * (double)s->input[0].dim[0] * a->heads;
}

/* q·k and p·v: two multiply-adds per feature and pair. Eager attention computes the masked half too. */
double flops_attention(const struct op_attrs *a, const struct op_shapes *s)
{
    return 4.0 * a->head_dim * (a->eager ? attention_scores(a, s) : attention_pairs(a, s));
}

/* Eager has its probabilities and computes four products; else scores again, dv, dp, dq, dk: five (Dao et al., FlashAttention, 2022, Algorithm 4). */
double flops_attention_grad(const struct op_attrs *a, const struct op_shapes *s)
{
    if (a->eager) return 8.0 * a->head_dim * attention_scores(a, s);
    return 10.0 * a->head_dim * attention_pairs(a, s);
}

/* As a matrix product: each element of y is a sum of c·kh·kw products. Padding counts. */
static double conv2d_products(const struct shape *y, const struct shape *weight)
{
    double taps = (double)weight->dim[1] * (double)weight->dim[2] * (double)weight->dim[3];
    return 2 * (double)shape_elements(y) * taps;
}

double flops_conv2d(const struct op_attrs *attrs, const struct op_shapes *s)
{
    (void)attrs;
    return conv2d_products(&s->output[0], &s->input[1]);
}

double flops_conv2d_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    (void)attrs;
    return conv2d_products(&s->input[1], &s->input[0]);
}

double flops_conv2d_weight_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    (void)attrs;
    return conv2d_products(&s->input[1], &s->output[0]);
}

/* A comparison, or an addition, for every element that a window sees. */
double flops_pool2d(const struct op_attrs *attrs, const struct op_shapes *s)
{
    const struct stencil *k = &attrs->stencil;
    return (double)k->kernel[0] * k->kernel[1] * (double)shape_elements(&s->output[0]);
}

/* dy over the area once, then an addition for every element of the window. */
double flops_avg_pool2d_grad(const struct op_attrs *attrs, const struct op_shapes *s)
{
    const struct stencil *k = &attrs->stencil;
    return ((double)k->kernel[0] * k->kernel[1] + 1) * (double)shape_elements(&s->input[0]);
}

/* m: 3, v: 4, bias corrections 2, sqrt + eps, divide, lr, subtract: 5; decay 2 more. */
double flops_adamw(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return (attrs->decay ? 16.0 : 14.0) * (double)shape_elements(&s->input[0]);
}

double flops_sgd(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return (attrs->decay ? 4.0 : 2.0) * (double)shape_elements(&s->input[0]);
}

/* m 2, p 2; decay 2, Nesterov 2 */
double flops_momentum(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return (attrs->decay ? 8.0 : 6.0) * (double)shape_elements(&s->input[0]);
}

/* m 3, the sign's argument 3, sign, p 2; decay 2 */
double flops_lion(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return (attrs->decay ? 11.0 : 9.0) * (double)shape_elements(&s->input[0]);
}

/* adamw's, squares of p and d 4, the change once more 5, p 2 */
double flops_lamb(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return flops_adamw(attrs, s) + 11.0 * (double)shape_elements(&s->input[0]);
}

/* squares of p and g 4, m 3, p 1, weight decay 2 */
double flops_lars(const struct op_attrs *attrs, const struct op_shapes *s)
{
    return (attrs->decay ? 10.0 : 8.0) * (double)shape_elements(&s->input[0]);
}

/* Each operand in two passes; LAMB's g in the first, and m and v are written there. */
static void bytes_trust(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b, int64_t reads, int64_t writes, int64_t *read,
                        int64_t *written)
{
    int64_t n = shape_elements(&s->input[0]);
    *read = reads * n * b;
    *written = writes * n * b + (attrs->narrows ? n * b / 2 : 0);
}

void bytes_lamb(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b, int64_t *read, int64_t *written)
{
    bytes_trust(attrs, s, b, 7, 5, read, written);
}

void bytes_lars(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b, int64_t *read, int64_t *written)
{
    bytes_trust(attrs, s, b, 5, 4, read, written);
}

/* Gathered rows only, whatever the size of the table. */
void bytes_embedding(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b,
                     int64_t *read, int64_t *written)
{
    (void)attrs;
    *written = b * shape_elements(&s->output[0]);
    *read = 4 * shape_elements(&s->input[0]) + *written;
}

/* Adding touches the rows that have an id (counted once an id); else the whole table is written. */
void bytes_embedding_grad(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b,
                          int64_t *read, int64_t *written)
{
    int64_t rows = b * shape_elements(&s->input[1]);
    *read = 4 * shape_elements(&s->input[0]) + rows + (attrs->accumulate ? rows : 0);
    *written = attrs->accumulate ? rows : b * shape_elements(&s->output[0]);
}

void bytes_accumulate(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b,
                      int64_t *read, int64_t *written)
{
    (void)attrs;
    *written = b * shape_elements(&s->output[0]);
    *read = b * shape_elements(&s->input[0]) + *written;
}

/* Only the sequences that are copied, of either operand; blank: the zeros too. */
void bytes_slice(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b, int64_t *read,
                 int64_t *written)
{
    (void)attrs;
    *read = *written = b * shape_elements(&s->output[0]);
}

void bytes_paste(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b, int64_t *read,
                 int64_t *written)
{
    *read = b * shape_elements(&s->input[0]);
    *written = attrs->blank ? b * shape_elements(&s->output[0]) : *read;
}

/* What passes over scores beyond the operands, each a read or a write of b·H·T² elements (Megatron-LM's eager
 * attention with its fused softmax): scores out, softmax in, dropout in and out, into p·v. */
enum { EAGER_PASSES = 5, EAGER_GRAD_PASSES = 8 };

static void operand_bytes(const struct op_shapes *s, int64_t b, int64_t *read, int64_t *written)
{
    *read = *written = 0;
    for (int32_t i = 0; i < s->n_inputs; i++) *read += b * shape_elements(&s->input[i]);
    for (int32_t i = 0; i < s->n_outputs; i++) *written += b * shape_elements(&s->output[i]);
}

/* Queries of a packed qkv that other devices compute are not read. */
static int64_t attention_unread(const struct op_attrs *a, const struct op_shapes *s, int64_t b)
{
    int64_t q = b * s->input[0].dim[0] * a->heads * a->head_dim;
    return a->lines.of ? q * (a->lines.of - a->lines.n) : 0;
}

void bytes_attention(const struct op_attrs *a, const struct op_shapes *s, int64_t b, int64_t *read,
                     int64_t *written)
{
    operand_bytes(s, b, read, written);
    *read -= attention_unread(a, s, b);
    if (!a->eager) return;
    int64_t pass = b * shape_elements(&s->output[1]);
    *written += 2 * pass, *read += (EAGER_PASSES - 2) * pass;
}

/* dp out, dropout's gradient in and out, softmax's in and out, into dq and dk, dropped p into dv. */
void bytes_attention_grad(const struct op_attrs *a, const struct op_shapes *s, int64_t b,
                          int64_t *read, int64_t *written)
{
    operand_bytes(s, b, read, written);
    *read -= attention_unread(a, s, b);
    if (!a->eager) return;
    int64_t pass = b * shape_elements(&s->input[s->n_inputs - 2]);
    *written += 3 * pass, *read += (EAGER_GRAD_PASSES - 3) * pass;
}

/* The logits are not read here. */
void bytes_cross_entropy_join(const struct op_attrs *a, const struct op_shapes *s, int64_t b,
                              int64_t *read, int64_t *written)
{
    (void)a;
    *read = b * shape_elements(&s->input[0]) + 4 * shape_elements(&s->input[2]);
    *written = b * (shape_elements(&s->output[0]) + shape_elements(&s->output[1]));
}

/* Adding touches the part alone; else all is written, zeros around it. */
void bytes_add_to_slice(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b,
                    int64_t *read, int64_t *written)
{
    int64_t part = b * shape_elements(&s->input[0]);
    *read = attrs->accumulate ? 2 * part : part;
    *written = attrs->accumulate ? part : b * shape_elements(&s->output[0]);
}
