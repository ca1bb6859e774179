/* core/program/io_shards.c - reads which shards of operators and tensors a device has. */
#include "core/base/arena.h"
#include "core/program/words.h"

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

enum status program_read_tensor_shard(struct reader *r, struct program_stage *s)
{
    int32_t slot;
    struct tensor_shard *x = ARENA_ARRAY(r->a, struct tensor_shard, 1);
    TRY(words_start(r, "of"));
    TRY(words_int(r, 0, s->n_slots - 1, &slot));
    TRY(words_int(r, 1, CUTS_MAX, &x->n_cuts));
    for (int32_t c = 0; c < x->n_cuts; c++) {
        TRY(words_int(r, 0, SHAPE_RANK_MAX - 1, &x->cut[c].dim));
        TRY(words_int64(r, 0, ELEMENTS_MAX, &x->cut[c].whole));
        TRY(words_int(r, 1, RUNS_MAX, &x->cut[c].n_runs));
        TRY(read_runs(r, x->cut[c].run, x->cut[c].n_runs));
    }
    s->slots[slot].shard = x;
    return OK;
}
