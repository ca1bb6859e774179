/* exec/worker/preload.c - each operator once, before the first message is asked for.
 *
 * The first launch of a kernel may load it, make a library's plan or grow scratch, and each of these may wait until nothing runs on the
 * device. A receive that was posted ahead runs there until its peer has sent; where the peer waits for what we were about to
 * launch, nobody ever goes on. So lanes whose devices talk among themselves run each operator of their program once, on memory
 * of zeros that is thrown away afterwards: every id is 0, which every vocabulary has, and what updates make of a step number 0 is
 * nobody's number. Nothing is measured, nothing is kept.
 * Discarded: waiting until the first step is through before receives are posted ahead; another schedule than the plan's.
 */
#include "exec/worker/internal.h"

#include "core/base/arena.h"

/* One key may stand for several kernels: in half precision operands are narrow or wide by their slots. */
static bool was_before(const struct worker *w, const struct chunk *k, int32_t op)
{
    const struct program_op *ops = k->stage->ops;
    struct prepared_op mine = worker_prepared_op(w, k, op);
    for (int32_t i = 0; i < op; i++) {
        if (ops[i].key != ops[op].key) continue;
        struct prepared_op other = worker_prepared_op(w, k, i);
        if (other.call.dtype == mine.call.dtype && other.call.wide_input == mine.call.wide_input &&
            other.call.wide_output == mine.call.wide_output)
            return true;
    }
    return false;
}

static enum status preload_op(struct worker *w, const struct chunk *k, int32_t op,
                              struct error *err)
{
    const struct program_op *x = &k->stage->ops[op];
    struct prepared_op o = worker_prepared_op(w, k, op);
    for (int32_t i = 0; i < x->n_inputs; i++) o.call.input[i] = place_at(&o.input[i], 0);
    for (int32_t i = 0; i < x->n_outputs; i++) o.call.output[i] = place_at(&o.output[i], 0);
    if (w->backend.run(&w->backend, STREAM_COMPUTE, &o.call, err) != OK)
        return error_wrap(err, err ? err->code : ERR_RESOURCE, "operator %s", x->name);
    return OK;
}

/* Chains add, and silent members give zeros, in the type that goes over the wire. */
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
    return b->finish(b, err); /* shapes are gone afterwards */
}

static enum status preload_sum(struct backend *b, enum dtype t, void *x, void *y, int64_t n,
                               struct error *err)
{
    TRY(preload_flat(b, OP_zero, t, NULL, x, n, err));
    TRY(preload_flat(b, OP_zero, t, NULL, y, n, err));
    return preload_flat(b, OP_accumulate, t, x, y, n, err);
}

/* What sums do beside operators: adding, zeros, and between half precision and fp32, there and back. */
static enum status preload_sums(struct worker *w, struct error *err)
{
    enum { ELEMENTS = 8, BYTES = 256 };
    struct backend *b = &w->backend;
    enum dtype narrow = w->p->dtype, wide = dtype_master(narrow);
    void *room = NULL;
    TRY(b->allocate(b, BYTES, &room, err));
    char *other = (char *)room + BYTES / 2;
    enum status st = preload_sum(b, wide, room, other, ELEMENTS, err);
    if (st == OK && narrow != wide) st = preload_sum(b, narrow, room, other, ELEMENTS, err);
    if (st == OK && narrow != wide)
        st = b->cast(b, STREAM_COMPUTE, room, wide, other, narrow, ELEMENTS, err);
    if (st == OK && narrow != wide)
        st = b->cast(b, STREAM_COMPUTE, other, narrow, room, wide, ELEMENTS, err);
    if (st == OK) st = b->finish(b, err);
    b->release(b, room);
    return st;
}

enum status worker_preload(struct worker *w, const struct chunk *k, struct error *err)
{
    for (int32_t i = 0; i < k->stage->n_ops; i++)
        if (k->stage->ops[i].kind != OP_message && !was_before(w, k, i))
            TRY(preload_op(w, k, i, err));
    TRY(preload_sums(w, err));
    return w->backend.finish(&w->backend, err);
}
