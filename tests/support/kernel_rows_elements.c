/* tests/support/kernel_rows_elements.c - rows of what memory bounds, drawn. */
#include "tests/support/kernel_rows_elements.h"

#include "core/base/rng.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct draw {
    struct arena *arena;
    uint64_t number, at;
};

/* From least to most, both included. */
static int64_t between(struct draw *d, int64_t least, int64_t most)
{
    return least + (int64_t)rng_below(47, d->number, d->at++, (uint64_t)(most - least + 1));
}

/* Up to `few`; of every four one up to `most`; of every eight one a multiple of 8. */
static int64_t size(struct draw *d, int64_t few, int64_t most)
{
    int64_t n = between(d, 1, between(d, 0, 3) ? few : most);
    return between(d, 0, 7) ? n : (n + 7) / 8 * 8;
}

/* "b,c x d", a dimension after the other; negative ones begin an operand. */
static void fill(struct draw *d, struct kernel_row *row, int32_t n, const int64_t *dim)
{
    enum { TEXT = 200 };
    char *text = ARENA_ARRAY(d->arena, char, TEXT);
    for (int32_t i = 0, used = 0; i < n; i++)
        used += snprintf(text + used, (size_t)(TEXT - used), "%s%" PRId64,
                         i == 0       ? ""
                         : dim[i] < 0 ? " x "
                                      : ",",
                         dim[i] < 0 ? -dim[i] : dim[i]);
    row->inputs = text;
}
#define FILL(d, row, ...)                                                                          \
    fill(d, row, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
#define RULES(row, ...)                                                                            \
    memcpy((row)->rules, (struct kernel_rule[RULES_MAX])__VA_ARGS__, sizeof(row)->rules)

static void an_activation(struct draw *d, struct kernel_row *row)
{
    int64_t n = size(d, 300, 9000);
    row->attrs.gelu_erf = between(d, 0, 1);
    switch (between(d, 0, 3)) {
    case 0:
        row->kind = OP_gelu;
        RULES(row, {{OP_gelu_grad, 0, "ad", "0"}});
        break;
    case 1:
        row->kind = OP_silu;
        RULES(row, {{OP_silu_grad, 0, "ad", "0"}});
        break;
    case 2:
        row->kind = OP_relu;
        RULES(row, {{OP_relu_grad, 0, "Ad", "0"}});
        break;
    default:
        row->kind = OP_swiglu;
        RULES(row, {{OP_swiglu_grad, 0, "abd", "01"}});
        FILL(d, row, n, -n);
        return;
    }
    FILL(d, row, n);
}

static void a_sum(struct draw *d, struct kernel_row *row)
{
    int64_t n = size(d, 300, 9000);
    row->kind = between(d, 0, 1) ? OP_add : OP_multiply;
    RULES(row, {{OP_multiply, 0, "db", "0"}, {OP_accumulate, ACC, "d", "0"}});
    FILL(d, row, n, -n);
}

static void a_bias(struct draw *d, struct kernel_row *row)
{
    int64_t rows = size(d, 20, 300), n = size(d, 40, 700);
    row->kind = between(d, 0, 1) ? OP_bias : OP_bias_gelu;
    row->attrs.gelu_erf = between(d, 0, 1);
    if (row->kind == OP_bias) RULES(row, {{OP_bias_grad, ACC, "d", "1"}});
    if (row->kind == OP_bias_gelu) RULES(row, BIAS_GELU);
    FILL(d, row, rows, n, -n);
}

static void a_channel_bias(struct draw *d, struct kernel_row *row)
{
    int64_t b = size(d, 5, 40), c = size(d, 5, 20), h = size(d, 5, 9), w = size(d, 5, 20);
    row->kind = OP_bias;
    row->attrs.dim = (int32_t)between(d, 1, 3);
    row->attrs.dims = 1;
    RULES(row, {{OP_bias_grad, ACC, "d", "1"}});
    FILL(d, row, b, c, h, w, -(row->attrs.dim == 1 ? c : row->attrs.dim == 2 ? h : w));
}

static void a_layer_norm(struct draw *d, struct kernel_row *row)
{
    int64_t rows = size(d, 20, 200), n = size(d, 90, 1500);
    row->kind = OP_layer_norm, row->attrs.eps = 1e-5;
    RULES(row, LAYER_NORM);
    FILL(d, row, rows, n, -n, -n);
}

static void an_rms_norm(struct draw *d, struct kernel_row *row)
{
    int64_t rows = size(d, 20, 200), n = size(d, 90, 700), k = between(d, 0, 2) ? 1 : 3;
    row->kind = OP_rms_norm, row->attrs.eps = 1e-6;
    RULES(row, RMS_NORM);
    FILL(d, row, rows, k * n, -n);
}

static void an_embedding(struct draw *d, struct kernel_row *row)
{
    int64_t n = size(d, 60, 300), entries = size(d, 9, 5000), width = size(d, 20, 40);
    row->kind = OP_embedding, row->attrs.vocabulary = entries;
    if (between(d, 0, 1)) {
        row->attrs.start = between(d, 0, 9);
        row->attrs.whole = row->attrs.start + entries + between(d, 0, 9);
    }
    RULES(row, {{OP_embedding_grad, ACC, "ad", "1"}});
    FILL(d, row, n, -entries, width);
}

static void a_rotary(struct draw *d, struct kernel_row *row)
{
    int64_t heads = between(d, 1, 4), half = size(d, 9, 40);
    row->kind = OP_rotary;
    row->attrs = (struct op_attrs){.heads = (int32_t)heads,
                                   .head_dim = (int32_t)(2 * half),
                                   .theta = 10000,
                                   .start = between(d, 0, 3000),
                                   .rope = {between(d, 0, 1) ? 8 : 0, 1, 4, 8192}};
    RULES(row, {{OP_rotary, TURN_BACK, "d", "0"}});
    FILL(d, row, between(d, 1, 3), size(d, 5, 30), heads * 2 * half);
}

static void a_dropout(struct draw *d, struct kernel_row *row)
{
    int64_t n = size(d, 20, 300);
    row->kind = OP_dropout;
    row->attrs.rate = (double)between(d, 0, 9) / 10;
    row->attrs.stream = between(d, 0, 5);
    if (between(d, 0, 1)) {
        int64_t first = between(d, 0, 9);
        row->attrs.columns = (struct op_shard){first, n, first + n + between(d, 0, 9)};
    }
    RULES(row, {{OP_dropout, 0, "d", "0"}});
    FILL(d, row, between(d, 1, 3), size(d, 3, 9), n);
}

/* A kernel that fits on x with its padding. */
static void an_image(struct draw *d, struct kernel_row *row)
{
    int64_t b = size(d, 2, 4), c = size(d, 3, 9), size_[2] = {size(d, 9, 17), size(d, 9, 17)};
    struct stencil *k = &row->attrs.stencil;
    for (int i = 0; i < 2; i++) {
        k->kernel[i] = (int32_t)between(d, 1, size_[i] < 4 ? size_[i] : 4);
        k->stride[i] = (int32_t)between(d, 1, 3);
        k->padding[i] = (int32_t)between(d, 0, k->kernel[i] - 1);
        k->size[i] = (int32_t)size_[i];
    }
    int64_t lines = (size_[0] + 2 * k->padding[0] - k->kernel[0]) / k->stride[0] + 1;
    if (between(d, 0, 2) == 0) {
        int64_t first = between(d, 0, lines - 1);
        row->attrs.lines = (struct op_shard){first, between(d, 0, lines - first), lines};
    }
    switch (between(d, 0, 2)) {
    case 0: {
        row->kind = OP_conv2d;
        RULES(row, CONV);
        int64_t o = size(d, 4, 9);
        FILL(d, row, b, c, size_[0], size_[1], -o, c, k->kernel[0], k->kernel[1]);
        return;
    }
    case 1:
        row->kind = OP_max_pool2d;
        RULES(row, MAX_POOL);
        break;
    default:
        row->kind = OP_avg_pool2d;
        RULES(row, AVG_POOL);
        break;
    }
    FILL(d, row, b, c, size_[0], size_[1]);
}

static void a_group_norm(struct draw *d, struct kernel_row *row)
{
    int64_t groups = between(d, 1, 4), c = groups * between(d, 1, 4);
    row->kind = OP_group_norm, row->attrs.eps = 1e-5, row->attrs.groups = (int32_t)groups;
    RULES(row, GROUP_NORM);
    FILL(d, row, between(d, 1, 4), c, size(d, 5, 30), size(d, 5, 30), -c, -c);
}

static void a_move(struct draw *d, struct kernel_row *row)
{
    int64_t dim[3] = {size(d, 5, 20), size(d, 5, 20), size(d, 9, 100)};
    int32_t cut = (int32_t)between(d, 0, 2);
    switch (between(d, 0, 2)) {
    case 0:
        row->kind = OP_slice, row->attrs.dim = cut;
        row->attrs.start = between(d, 0, dim[cut]);
        row->attrs.sequences = between(d, 0, dim[cut] - row->attrs.start);
        RULES(row, {{OP_paste, BLANK, "d", "0"}});
        FILL(d, row, dim[0], dim[1], dim[2]);
        return;
    case 1:
        row->kind = OP_prepend, row->attrs.dim = 1, row->attrs.dims = 2;
        row->attrs.start = between(d, 1, 4), row->attrs.sequences = dim[1] + row->attrs.start;
        FILL(d, row, dim[0], dim[1], dim[2], -row->attrs.start, dim[2]);
        return;
    default:
        row->kind = OP_to_rows;
        row->attrs.stencil.size[0] = (int32_t)dim[1], row->attrs.stencil.size[1] = (int32_t)dim[2];
        RULES(row, TO_ROWS);
        FILL(d, row, 2, dim[0], dim[1], dim[2]);
    }
}

void kernel_rows_elements_random(struct arena *a, uint64_t number, struct kernel_row *out)
{
    static void (*const make[N_ELEMENT_MAKERS])(struct draw *, struct kernel_row *) = {
        an_activation, a_sum,    a_bias,    a_channel_bias, a_layer_norm, an_rms_norm,
        an_embedding,  a_rotary, a_dropout, an_image,      a_group_norm, a_move};
    struct draw d = {a, number, 0};
    *out = (struct kernel_row){0};
    make[number % N_ELEMENT_MAKERS](&d, out);
}
