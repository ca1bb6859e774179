#include "exec/worker/local_sums.h"

#include "core/base/arena.h"
#include "exec/host_transport/collective.h"
#include "exec/worker/rank.h"

struct pairing {
    struct local_reduce *to;
    struct arena *a;
    size_t capacity;
    int64_t size; /* of an element */
};

static void add_piece(struct pairing *v, char *to, char *from, int64_t elements, bool adds)
{
    struct local_reduce *s = v->to;
    s->pieces = arena_grow(v->a, s->pieces, (size_t)s->n, &v->capacity, sizeof *s->pieces);
    struct local_piece *x = &s->pieces[s->n++];
    *x = (struct local_piece){to, from, elements, adds, {.n_inputs = 1, .n_outputs = 1}};
    x->shapes.input[0] = x->shapes.output[0] = (struct shape){1, {elements}};
}

/* y += x, or x = y, over two lists of pieces with equal numbers of elements. */
static void pair_up(struct pairing *v, const struct collective_end *y,
                    const struct collective_end *x, bool adds)
{
    int64_t at_x = 0, at_y = 0;
    for (int32_t i = 0, k = 0; i < y->n_pieces && k < x->n_pieces;) {
        int64_t left_y = y->pieces[i].elements - at_y, left_x = x->pieces[k].elements - at_x,
                n = left_y < left_x ? left_y : left_x;
        char *sum = y->pieces[i].data + at_y * v->size, *other = x->pieces[k].data + at_x * v->size;
        if (n) add_piece(v, adds ? sum : other, adds ? other : sum, n, adds);
        at_y = n == left_y ? 0 : at_y + n, i += n == left_y;
        at_x = n == left_x ? 0 : at_x + n, k += n == left_x;
    }
}

void local_sums_open(struct local_sums *s, const struct rank *r)
{
    s->at = ARENA_ARRAY(r->run, struct local_reduce, (size_t)r->p->n_collectives + 1);
}

void local_sums_add(struct local_sums *s, const struct rank *r, int32_t group,
                    const struct collective_end *first)
{
    struct pairing v = {&s->at[group], r->run, 0,
                        dtype_bytes(dtype_master(r->p->collectives[group].dtype))};
    for (const struct collective_end *m = first->also; m; m = m->also)
        pair_up(&v, first, m, true);
    for (const struct collective_end *m = first->also; m; m = m->also)
        pair_up(&v, first, m, false);
}

enum status local_sums_run(const struct local_sums *sums, struct rank *r, int32_t group,
                           struct error *err)
{
    struct backend *b = &r->backend;
    const struct local_reduce *s = &sums->at[group];
    static const struct op_attrs none;
    enum dtype t = dtype_master(r->p->collectives[group].dtype);
    for (int32_t i = 0; i < s->n; i++) {
        const struct local_piece *x = &s->pieces[i];
        struct op_call add = {.kind = OP_accumulate,
                              .dtype = t,
                              .attrs = &none,
                              .shapes = &x->shapes,
                              .input = {x->from},
                              .output = {x->to}};
        if (x->adds)
            TRY(b->run(b, STREAM_COMPUTE, &add, err));
        else
            TRY(b->copy(b, STREAM_COMPUTE, x->to, x->from, x->elements * dtype_bytes(t), err));
    }
    return OK;
}
