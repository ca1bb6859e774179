/* core/plan/experts.c - `experts` of a plan file: order and popularity of the experts of each block (core/plan/plan.h). */
#include "core/base/arena.h"
#include "core/plan/internal.h"
#include "core/plan/keys.h"

#include <inttypes.h>

#define TOKENS_MAX (INT64_C(1) << 53) /* exact as double */

/* A list of one number for each expert. */
static enum status read_numbers(struct arena *a, const struct node *n, int64_t experts, int64_t most, int64_t **out, struct error *err)
{
    *out = NULL;
    if (!n) return OK;
    TRY(node_is(n, NODE_LIST, err));
    if ((int64_t)n->count != experts)
        return node_error(n, err, "%zu numbers for the %" PRId64 " experts of a block", n->count, experts);
    *out = ARENA_ARRAY(a, int64_t, n->count);
    for (size_t i = 0; i < n->count; i++) TRY(node_int(n->members[i], 0, most, &(*out)[i], err));
    return OK;
}

static enum status read_order(struct arena *a, const struct node *n, int64_t experts, const int32_t **out, struct error *err)
{
    int64_t *given;
    TRY(read_numbers(a, n, experts, experts - 1, &given, err));
    if (!given) return OK;
    int32_t *order = ARENA_ARRAY(a, int32_t, (size_t)experts);
    bool *seen = ARENA_ARRAY(a, bool, (size_t)experts);
    for (int64_t i = 0; i < experts; i++) {
        if (seen[given[i]])
            return node_error(n->members[i], err, "expert %" PRId64 " has two places; an order has each expert once", given[i]);
        seen[given[i]] = true, order[i] = (int32_t)given[i];
    }
    *out = order;
    return OK;
}

static enum status read_tokens(struct arena *a, const struct node *n, int64_t experts, const int64_t **out, struct error *err)
{
    int64_t *tokens, sum = 0;
    TRY(read_numbers(a, n, experts, TOKENS_MAX / experts, &tokens, err));
    for (int64_t i = 0; tokens && i < experts; i++) sum += tokens[i];
    if (tokens && !sum) return node_error(n, err, "no expert has tokens; leave tokens out for equal shares");
    *out = tokens;
    return OK;
}

static enum status read_block(struct arena *a, const struct node *n, const struct model *m, int64_t least, struct expert_block *out,
                              struct error *err)
{
    const struct node *at;
    int64_t block;
    TRY(document_keys(n, plan_experts_keys, err));
    TRY(node_need(n, "block", &at, err));
    TRY(node_int(at, 0, m->layers - 1, &block, err));
    if (!model_has_experts(m, block)) return node_error(at, err, "block %" PRId64 " of the model has no experts", block);
    if (block < least) return node_error(at, err, "blocks are listed once each, in ascending order");
    out->block = (int32_t)block;
    TRY(read_order(a, node_get(n, "order"), m->experts, &out->order, err));
    return read_tokens(a, node_get(n, "tokens"), m->experts, &out->tokens, err);
}

enum status plan_read_experts(struct arena *a, const struct node *root, struct plan *p, struct error *err)
{
    const struct node *list = node_get(root, "experts");
    struct model *m = &p->job.model;
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, err));
    if (!m->experts || m->measured) return node_error(list, err, "the model has no experts");
    struct expert_block *blocks = ARENA_ARRAY(a, struct expert_block, list->count);
    for (size_t i = 0; i < list->count; i++)
        TRY(read_block(a, list->members[i], m, i ? blocks[i - 1].block + 1 : 0, &blocks[i], err));
    m->n_expert_blocks = (int32_t)list->count, m->expert_blocks = blocks;
    return OK;
}

/* What is kept of a parameter without its place in the named tensor. */
enum status plan_check_experts(const struct plan *p, struct error *err)
{
    const struct model *m = &p->job.model;
    bool ordered = false;
    for (int32_t i = 0; i < m->n_expert_blocks; i++) ordered |= m->expert_blocks[i].order != NULL;
    for (struct plan_place at = {p, 0, 0, err}; ordered && at.replica < p->n_replicas; at.replica++)
        for (at.stage = 0; at.stage < p->replicas[at.replica].n_stages; at.stage++)
            if (p->replicas[at.replica].stages[at.stage].zero > 2)
                return plan_complain(&at, "zero: 3 with an order of experts, which keeps no full parameter; take zero: 2, or leave order out");
    bool fed = p->compression.gradients.feedback || p->compression.outer.feedback;
    if (ordered && (fed || p->compression.gradients.kind == COMPRESSION_POWER_SGD))
        return plan_complain(&(struct plan_place){p, -1, -1, err},
                             "compression: feedback with an order of experts, which checkpoints do not know; take feedback: none, or leave order out");
    return OK;
}

void plan_write_experts(FILE *out, const struct plan *p)
{
    const struct model *m = &p->job.model;
    if (m->n_expert_blocks) fputs("experts:\n", out);
    for (int32_t i = 0; i < m->n_expert_blocks; i++) {
        const struct expert_block *x = &m->expert_blocks[i];
        fprintf(out, "  - {block: %" PRId32, x->block);
        for (int64_t k = 0; x->order && k < m->experts; k++) fprintf(out, "%s%" PRId32, k ? ", " : ", order: [", x->order[k]);
        if (x->order) fputc(']', out);
        for (int64_t k = 0; x->tokens && k < m->experts; k++) fprintf(out, "%s%" PRId64, k ? ", " : ", tokens: [", x->tokens[k]);
        fputs(x->tokens ? "]}\n" : "}\n", out);
    }
}
