/* core/lower/uses.c - readers of each tensor of a stage, and the operators that the backward recomputes. */
#include "core/lower/uses.h"

#include "core/base/arena.h"
#include "core/lower/orders.h"
#include "core/lower/stage_scratch.h"

#include <string.h>

/* A block's name is its operators' name up to the second dot ("h.0"); embedding and head are in no block. */
static size_t block_name(const char *op)
{
    const char *number = strchr(op, '.');
    const char *end =
        number && number[1] >= '0' && number[1] <= '9' ? strchr(number + 1, '.') : NULL;
    return end ? (size_t)(end - op) : 0;
}

/* Conversions are named after their operand; they belong to the block of their reader, the next operator. */
static const char *name_of(const struct graph *g, int32_t op)
{
    while (op + 1 < g->n_forward &&
           (op_is_group(g->ops[op].kind) || g->ops[op].kind == OP_local_slice))
        op++;
    return g->ops[op].name;
}

bool lower_in_block(const struct graph *g, int32_t op) { return block_name(name_of(g, op)) > 0; }

bool lower_in_same_block(const struct graph *g, int32_t op, int32_t other)
{
    const char *a = name_of(g, op), *b = name_of(g, other);
    size_t n = block_name(a);
    return n && n == block_name(b) && !strncmp(a, b, n);
}

int32_t lower_third_block(const struct graph *g, int32_t last)
{
    int32_t block = last, others = 0;
    for (int32_t i = last + 1; i < g->n_forward; i++) {
        if (lower_in_block(g, i) && !lower_in_same_block(g, block, i)) block = i, others++;
        if (others == 3) return i;
    }
    return g->n_forward - 1;
}

/* Numbers of the operators' blocks. first: (n_blocks) an operator of each. */
static void number_blocks(struct stage_scratch *h)
{
    const struct graph *g = h->v->g;
    int32_t n = 0, *first = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_forward + 1);
    h->block = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_forward + 1);
    for (int32_t i = 0; i < g->n_forward; i++) {
        int32_t k = n - 1; /* mostly that of the operator before */
        while (k >= 0 && !lower_in_same_block(g, first[k], i)) k--;
        if (k < 0 && lower_in_block(g, i)) first[k = n++] = i;
        h->block[i] = k;
    }
    h->kept_from = n;
}

/* Only the stage's first blocks are recomputed. */
static void keep_later_blocks(struct stage_scratch *h)
{
    int32_t n = 0, before = -1;
    for (int32_t i = 0; i < h->v->g->n_forward && n <= h->b->plan->recompute_blocks; i++) {
        if (h->block[i] <= before || !lower_owns(h->b, h->v->g->ops[i].layer)) continue;
        before = h->block[i];
        if (n++ == h->b->plan->recompute_blocks) h->kept_from = before;
    }
}

bool lower_same_block(const struct stage_scratch *h, int32_t op, int32_t other)
{
    return h->block[op] >= 0 && h->block[op] == h->block[other];
}

/* Whether the backward finds the tensor as F made it, kept or recomputed. */
bool lower_kept(const struct stage_scratch *h, int32_t tensor)
{
    const struct graph *g = h->v->g;
    int32_t producer = g->tensors[tensor].producer, first;
    if (g->ops[producer].reshard_after_forward) return false;
    switch (h->b->plan->recompute) {
    case RECOMPUTE_NONE:
        return true;
    case RECOMPUTE_STAGE:
        return false;
    case RECOMPUTE_SELECTIVE:
        return g->ops[producer].kind != OP_attention || g->ops[producer].output[1] != tensor;
    case RECOMPUTE_BLOCKS:
        break;
    }
    if (h->block[producer] < 0 || h->block[producer] >= h->kept_from) return true;
    for (first = producer; first + 1 < g->n_forward && lower_same_block(h, producer, first + 1);)
        first++;
    /* Read in the next block: its input. Operators in no block, with their conversions, are skipped. */
    for (int32_t i = first + 1; i < g->n_forward; i++) {
        if (h->block[i] >= 0 && !lower_same_block(h, first + 1, i)) break;
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++)
            if (g->ops[i].input[k] == tensor) return true;
    }
    return false;
}

/* Forward operators whose outputs the backward reads, directly or through recomputed ones. */
static void find_reruns(struct stage_scratch *h)
{
    const struct graph *g = h->v->g;
    for (int32_t i = g->n_forward - 1; i >= 0; i--) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(h->b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_outputs; k++)
            if (h->uses_back[op->output[k]] && !lower_kept(h, op->output[k])) h->rerun[i] = true;
        if (!h->rerun[i]) continue;
        for (int32_t k = 0; k < op->n_inputs; k++) h->uses_back[op->input[k]] |= 1 << phase_index(PHASE_I);
    }
}

void lower_find_uses(struct stage_scratch *h)
{
    const struct stage_build *b = h->b;
    const struct graph *g = h->v->g;
    if (b->plan->recompute == RECOMPUTE_BLOCKS) number_blocks(h);
    if (b->plan->recompute_blocks) keep_later_blocks(h);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(b, op->layer)) continue;
        enum phase phase = orders_op_phase(b, op);
        uint8_t *uses = phase == PHASE_F ? h->uses_forward : h->uses_back;
        for (int32_t k = 0; k < op->n_inputs; k++) uses[op->input[k]] |= (uint8_t)(1 << phase_index(phase));
    }
    bool again = b->s->recompute;
    for (int32_t i = 0; i < g->n_forward; i++)
        again |= g->ops[i].reshard_after_forward && lower_owns(b, g->ops[i].layer);
    if (again) find_reruns(h);
}
