/* tests/support/kernel_rows_random.c - rows of products, attention, losses and experts, drawn. */
#include "tests/support/kernel_rows_products.h"

#include "core/base/rng.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct draw {
    uint64_t number, at;
};

/* From least to most, both included. */
static int64_t between(struct draw *d, int64_t least, int64_t most)
{
    return least + (int64_t)rng_below(31, d->number, d->at++, (uint64_t)(most - least + 1));
}

/* Up to `few`; of every four one up to `most`. */
static int64_t size(struct draw *d, int64_t few, int64_t most)
{
    return between(d, 1, between(d, 0, 3) ? few : most);
}

static const struct kernel_rule matmul_rules[RULES_MAX] = MATMUL, packed_rules[RULES_MAX] = PACKED,
                                separate_rules[RULES_MAX] = SEPARATE,
                                combine_rules[RULES_MAX] = COMBINE,
                                expert_rules[RULES_MAX] = EXPERTS,
                                loss_rules[RULES_MAX] = {{OP_cross_entropy_grad, 0, "abB", "0"}};

PRINTF_LIKE(4, 5)
static void fill(struct arena *a, struct kernel_row *row, const struct kernel_rule *rules,
                 const char *fmt, ...)
{
    enum { TEXT = 160 };
    char *text = ARENA_ARRAY(a, char, TEXT);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, TEXT, fmt, ap);
    va_end(ap);
    row->inputs = text;
    memcpy(row->rules, rules, sizeof row->rules);
}

static void a_matmul(struct arena *a, struct draw *d, struct kernel_row *row)
{
    int64_t m = size(d, 20, 90), k = size(d, 20, 90), n = size(d, 20, 90);
    row->kind = OP_matmul;
    fill(a, row, matmul_rules, "%" PRId64 ",%" PRId64 " x %" PRId64 ",%" PRId64, m, k, k, n);
}

static void an_attention(struct arena *a, struct draw *d, struct kernel_row *row)
{
    static const int32_t head_dims[] = {1, 3, 8, 24, 64, 65, 72, 128};
    int32_t kv = (int32_t)between(d, 1, 2), heads = kv * (int32_t)between(d, 1, 2);
    int32_t head_dim = head_dims[between(d, 0, 7)];
    int64_t b = between(d, 1, 2), t = size(d, 40, 140), q = (int64_t)heads * head_dim,
            k = (int64_t)kv * head_dim;
    row->kind = OP_attention;
    row->attrs = (struct op_attrs)ATTENTION(heads, kv, head_dim, 0);
    row->attrs.bidirectional = between(d, 0, 2) == 0;
    if (!row->attrs.bidirectional && between(d, 0, 2) == 0)
        row->attrs.window = (int32_t)between(d, 1, t);
    int64_t first = between(d, 0, t - 1), n = between(d, 1, t - first);
    if (between(d, 0, 1)) {
        if (between(d, 0, 1)) row->attrs.lines = (struct op_shard){first, n, t};
        fill(a, row, packed_rules, "%" PRId64 ",%" PRId64 ",%" PRId64, b, t, q + 2 * k);
        return;
    }
    row->attrs.start = first;
    fill(a, row, separate_rules,
         "%" PRId64 ",%" PRId64 ",%" PRId64 " x %" PRId64 ",%" PRId64 ",%" PRId64 " x %" PRId64
         ",%" PRId64 ",%" PRId64,
         b, n, q, b, t, k, b, t, k);
}

static void a_loss(struct arena *a, struct draw *d, struct kernel_row *row)
{
    int64_t b = between(d, 1, 3), t = size(d, 6, 40), v = size(d, 50, 2500);
    row->kind = OP_cross_entropy;
    row->attrs.scale = (double)between(d, 1, 9) / 10;
    if (between(d, 0, 1)) row->attrs.counted = between(d, 1, t);
    fill(a, row, loss_rules, "%" PRId64 ",%" PRId64 ",%" PRId64 " x %" PRId64 ",%" PRId64, b, t, v,
         b, t);
}

static void some_experts(struct arena *a, struct draw *d, struct kernel_row *row)
{
    int64_t b = between(d, 1, 3), t = size(d, 12, 90), e = size(d, 5, 40), width = size(d, 9, 70);
    int64_t slots = between(d, 1, t), first = between(d, 0, 3) ? 0 : between(d, 0, t - 1);
    if (between(d, 0, 1)) width *= 8;
    row->attrs.capacity = slots;
    row->attrs.columns = (struct op_shard){first, slots, first ? first + slots : 0};
    if (between(d, 0, 1)) {
        row->kind = OP_combine;
        row->attrs.weighted = true;
        fill(a, row, combine_rules,
             "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " x %" PRId64 ",%" PRId64 ",%" PRId64, b,
             e, slots, width, b, t, e);
        return;
    }
    int64_t n = 8 * between(d, 1, 4);
    row->kind = OP_expert_matmul;
    fill(a, row, expert_rules,
         "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " x %" PRId64 ",%" PRId64 ",%" PRId64
         " x %" PRId64 ",%" PRId64 ",%" PRId64,
         b, e, slots, width, e, width, n, b, t, e);
}

void kernel_rows_products_random(struct arena *a, enum random_row kind, uint64_t number,
                        struct kernel_row *out)
{
    void (*const make[])(struct arena *, struct draw *, struct kernel_row *) = {
        an_attention, a_matmul, a_loss, some_experts};
    struct draw d = {number * RANDOM_ROWS + (uint64_t)kind, 0};
    *out = (struct kernel_row){0};
    make[kind](a, &d, out);
}
