#include "exec/worker/preload.h"

#include "exec/worker/chunks.h"

/* One key may stand for several kernels: in half precision the dtypes of operands depend on their slots. */
static bool was_before(const struct rank *r, const struct chunks *c, const struct chunk *k,
                       int32_t op)
{
    const struct program_op *ops = k->stage->ops;
    struct prepared_op mine = chunks_op(c, r, k, op);
    for (int32_t i = 0; i < op; i++) {
        if (ops[i].key != ops[op].key) continue;
        struct prepared_op other = chunks_op(c, r, k, i);
        if (other.call.dtype == mine.call.dtype && other.call.wide_input == mine.call.wide_input &&
            other.call.wide_output == mine.call.wide_output)
            return true;
    }
    return false;
}

static enum status preload_op(struct rank *r, const struct chunks *c, const struct chunk *k,
                              int32_t op, struct error *err)
{
    const struct program_op *x = &k->stage->ops[op];
    struct prepared_op o = chunks_op(c, r, k, op);
    for (int32_t i = 0; i < x->n_inputs; i++) o.call.input[i] = place_at(&o.input[i], 0);
    for (int32_t i = 0; i < x->n_outputs; i++) o.call.output[i] = place_at(&o.output[i], 0);
    if (r->backend.run(&r->backend, STREAM_COMPUTE, &o.call, err) != OK)
        return error_wrap(err, err ? err->code : ERR_RESOURCE, "operator %s", x->name);
    return OK;
}

/* Chains add, and members without a contribution send zeros, in the wire's dtype. */
static enum status preload_flat(struct backend *b, enum op_kind kind, enum dtype t, void *x,
                                void *y, int64_t n, struct error *err)
{
    static const struct op_attrs none;
    const struct shape run = {.rank = 1, .dim = {n}};
    const struct op_shapes shapes = {
        .n_inputs = kind == OP_accumulate, .n_outputs = 1, .input = {run}, .output = {run}};
    const struct op_call c = {
        .kind = kind, .dtype = t, .attrs = &none, .shapes = &shapes, .input = {x}, .output = {y}};
    TRY(b->run(b, STREAM_COMPUTE, &c, err));
    return b->finish(b, err); /* shapes must live until the device has read them */
}

static enum status preload_reduce(struct backend *b, enum dtype t, void *x, void *y, int64_t n,
                                  struct error *err)
{
    TRY(preload_flat(b, OP_zero, t, NULL, x, n, err));
    TRY(preload_flat(b, OP_zero, t, NULL, y, n, err));
    return preload_flat(b, OP_accumulate, t, x, y, n, err);
}

/* Kernels of reductions besides operators: addition, zeros, and casts between half precision and fp32, both ways. */
static enum status preload_reduces(struct rank *r, struct error *err)
{
    enum { ELEMENTS = 8, BYTES = 256 };
    struct backend *b = &r->backend;
    enum dtype narrow = r->p->dtype, wide = dtype_master(narrow);
    void *room = NULL;
    TRY(b->allocate(b, BYTES, &room, err));
    char *other = (char *)room + BYTES / 2;
    enum status st = preload_reduce(b, wide, room, other, ELEMENTS, err);
    if (st == OK && narrow != wide) st = preload_reduce(b, narrow, room, other, ELEMENTS, err);
    if (st == OK && narrow != wide)
        st = b->cast(b, STREAM_COMPUTE, room, wide, other, narrow, ELEMENTS, err);
    if (st == OK && narrow != wide)
        st = b->cast(b, STREAM_COMPUTE, other, narrow, room, wide, ELEMENTS, err);
    if (st == OK) st = b->finish(b, err);
    b->release(b, room);
    return st;
}

enum status preload_chunk(struct rank *r, const struct chunks *c, const struct chunk *k,
                          struct error *err)
{
    for (int32_t i = 0; i < k->stage->n_ops; i++)
        if (k->stage->ops[i].kind != OP_message && !was_before(r, c, k, i))
            TRY(preload_op(r, c, k, i, err));
    TRY(preload_reduces(r, err));
    return r->backend.finish(&r->backend, err);
}
