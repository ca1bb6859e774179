/* core/program/io_shards.c - which shards of operators and tensors a device has, and orders of experts. */
#include "core/base/arena.h"
#include "core/program/lines.h"
#include "core/program/words.h"

#include <inttypes.h>

#define ELEMENTS_MAX (INT64_C(1) << 40)

static enum status read_runs(struct reader *r, struct run *run, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        TRY(words_int64(r, 0, ELEMENTS_MAX, &run[i].first));
        TRY(words_int64(r, 0, ELEMENTS_MAX, &run[i].n));
    }
    return OK;
}

static enum status read_exchange(struct reader *r, struct op_attrs *a)
{
    struct exchange *e = ARENA_ARRAY(r->a, struct exchange, 1);
    struct division *d = ARENA_ARRAY(r->a, struct division, 1);
    TRY(words_int(r, 0, SHAPE_RANK_MAX - 1, &e->dim));
    TRY(words_count(r, &e->n));
    TRY(words_int(r, 0, (int64_t)e->n - 1, &e->self));
    TRY(words_int64(r, 0, ELEMENTS_MAX, &d->whole));
    TRY(words_int(r, 1, RUNS_MAX, &d->n_runs));
    struct run *run = ARENA_ARRAY(r->a, struct run, (size_t)e->n * (size_t)d->n_runs);
    TRY(read_runs(r, run, e->n * d->n_runs));
    for (int32_t i = 0; i < e->n * d->n_runs; i++)
        if (run[i].n > d->whole - run[i].first)
            return words_broken(r, "a run beyond the dimension's end");
    d->n = e->n, d->run = run;
    e->shards = d;
    a->exchange = e;
    return OK;
}

enum status program_read_local(struct reader *r, struct program_stage *s)
{
    int32_t op;
    bool exchange;
    TRY(words_start(r, "local"));
    TRY(words_int(r, 0, s->n_ops - 1, &op));
    struct op_attrs *a = &s->ops[op].attrs;
    TRY(words_int64(r, 0, ELEMENTS_MAX, &a->start));
    TRY(words_int64(r, 0, ELEMENTS_MAX, &a->whole));
    TRY(words_int64(r, 0, ELEMENTS_MAX, &a->mean_rows));
    TRY(words_bool(r, &exchange));
    return exchange ? read_exchange(r, a) : OK;
}

static enum status read_op_shard(struct reader *r, struct op_shard *p)
{
    TRY(words_int64(r, 0, ELEMENTS_MAX, &p->first));
    TRY(words_int64(r, 0, ELEMENTS_MAX, &p->n));
    return words_int64(r, 0, ELEMENTS_MAX, &p->of);
}

enum status program_read_within(struct reader *r, struct program_stage *s)
{
    int32_t op;
    TRY(words_start(r, "within"));
    TRY(words_int(r, 0, s->n_ops - 1, &op));
    TRY(read_op_shard(r, &s->ops[op].attrs.lines));
    return read_op_shard(r, &s->ops[op].attrs.columns);
}

enum status program_read_tensor_shard(struct reader *r, const struct program *p, struct program_stage *s)
{
    int32_t slot, block;
    struct tensor_shard *x = ARENA_ARRAY(r->a, struct tensor_shard, 1);
    TRY(words_start(r, "of"));
    TRY(words_int(r, 0, s->n_slots - 1, &slot));
    TRY(words_int(r, 0, CUTS_MAX, &x->n_cuts));
    const struct shape *shape = &s->slots[slot].shape;
    int64_t rows = shape->rank ? shape->dim[0] : 0;
    for (int32_t c = 0; c < x->n_cuts; c++) {
        TRY(words_int(r, 0, SHAPE_RANK_MAX - 1, &x->cut[c].dim));
        TRY(words_int64(r, 0, ELEMENTS_MAX, &x->cut[c].whole));
        TRY(words_int(r, 1, RUNS_MAX, &x->cut[c].n_runs));
        TRY(read_runs(r, x->cut[c].run, x->cut[c].n_runs));
        if (!x->cut[c].dim) rows = x->cut[c].whole;
    }
    TRY(words_int(r, -1, INT32_MAX, &block));
    for (int32_t i = 0; i < p->n_expert_blocks; i++)
        if (p->expert_blocks[i].block == block) x->order = p->expert_blocks[i].order;
    if (block >= 0 && (!x->order || rows != p->n_experts))
        return words_broken(r, "no order of %" PRId64 " experts of block %" PRId32, rows, block);
    s->slots[slot].shard = x;
    return OK;
}

/* --- orders of experts --- */

static enum status read_order(struct reader *r, int32_t n, struct expert_block *out)
{
    int32_t *order = ARENA_ARRAY(r->a, int32_t, (size_t)n);
    bool *seen = ARENA_ARRAY(r->a, bool, (size_t)n);
    TRY(words_start(r, "expert_order"));
    TRY(words_int(r, 0, INT32_MAX, &out->block));
    for (int32_t i = 0; i < n; i++) {
        TRY(words_int(r, 0, n - 1, &order[i]));
        if (seen[order[i]]) return words_broken(r, "expert %" PRId32 " has two places", order[i]);
        seen[order[i]] = true;
    }
    out->order = order;
    return OK;
}

enum status program_read_experts(struct reader *r, struct program *p)
{
    struct expert_block *blocks = NULL;
    size_t capacity = 0;
    if (!words_next_is(r, "experts")) return OK;
    TRY(words_start(r, "experts"));
    TRY(words_count(r, &p->n_experts));
    while (words_next_is(r, "expert_order")) {
        blocks = arena_grow(r->a, blocks, (size_t)p->n_expert_blocks, &capacity, sizeof *blocks);
        blocks[p->n_expert_blocks] = (struct expert_block){0};
        TRY(read_order(r, p->n_experts, &blocks[p->n_expert_blocks++]));
    }
    p->expert_blocks = blocks;
    return OK;
}

void program_write_experts(struct lines *out, const struct program *p)
{
    if (!p->n_experts) return;
    lines_text(out, "\nexperts"), lines_int(out, p->n_experts);
    for (int32_t i = 0; i < p->n_expert_blocks; i++) {
        const struct expert_block *x = &p->expert_blocks[i];
        if (!x->order) continue;
        lines_text(out, "\nexpert_order"), lines_int(out, x->block);
        for (int32_t k = 0; k < p->n_experts; k++) lines_int(out, x->order[k]);
    }
}

void program_write_tensor_shard(struct lines *out, const struct program *p, int32_t slot, const struct tensor_shard *x)
{
    int32_t block = -1;
    for (int32_t i = 0; x->order && i < p->n_expert_blocks; i++)
        if (p->expert_blocks[i].order == x->order) block = p->expert_blocks[i].block;
    lines_text(out, "of"), lines_int(out, slot), lines_int(out, x->n_cuts);
    for (int32_t c = 0; c < x->n_cuts; c++) {
        lines_int(out, x->cut[c].dim), lines_int(out, x->cut[c].whole), lines_int(out, x->cut[c].n_runs);
        for (int32_t k = 0; k < x->cut[c].n_runs; k++)
            lines_int(out, x->cut[c].run[k].first), lines_int(out, x->cut[c].run[k].n);
    }
    lines_int(out, block), lines_char(out, '\n');
}
