#include "exec/device_transport/device_region.h"

struct copying {
    struct backend *b;
    int32_t stream;
    const struct region *r;
    int64_t size; /* of an element */
    char *operand, *packed;
    enum region_copy how;
    struct error *err;
    int64_t row; /* elements of the last cut dimension and all after it, in the operand … */
    int64_t packed_row; /* … and packed */
};

static int64_t behind(const struct region *r, int32_t dimension)
{
    int64_t n = 1;
    for (int32_t i = dimension + 1; i < r->shape.rank; i++) n *= r->shape.dim[i];
    return n;
}

static enum status copy_rows(const struct copying *c, int64_t at, int64_t packed, int64_t elements,
                             int64_t rows)
{
    bool pack = c->how == REGION_PACK;
    char *mine = c->operand + at * c->size, *other = c->packed + packed * c->size;
    int64_t stride = c->row * c->size, packed_stride = c->packed_row * c->size,
            bytes = elements * c->size;
    char *to = pack ? other : mine, *from = pack ? mine : other;
    int64_t to_stride = pack ? packed_stride : stride, from_stride = pack ? stride : packed_stride;
    if (!bytes || !rows) return OK;
    if (rows == 1) return c->b->copy(c->b, c->stream, to, from, bytes, c->err);
    if (to_stride == bytes && from_stride == bytes)
        return c->b->copy(c->b, c->stream, to, from, bytes * rows, c->err);
    if (c->b->copy_rows)
        return c->b->copy_rows(c->b, c->stream, to, to_stride, from, from_stride, bytes, rows,
                               c->err);
    for (int64_t i = 0; i < rows; i++)
        TRY(c->b->copy(c->b, c->stream, to + i * to_stride, from + i * from_stride, bytes, c->err));
    return OK;
}

/* Copies all runs of the last cut dimension, each in `rows` rows. */
static enum status copy_runs(const struct copying *c, int64_t at, int64_t packed, int64_t rows)
{
    const struct region *r = c->r;
    int32_t last = r->n_dims - 1;
    int64_t inner = behind(r, r->dim[last].dimension);
    for (int32_t k = 0; k < r->dim[last].n_runs; k++) {
        int64_t n = r->dim[last].count[k] * inner;
        TRY(copy_rows(c, at + r->dim[last].first[k] * inner, packed, n, rows));
        packed += n;
    }
    return OK;
}

/* Dimensions from d on, of which number `cut` is cut next, at an element of the operand and one of the packed buffer;
 * *packed: packed elements done. Before the last cut dimension, a run of indices with only that cut after it is rows
 * of one stride. */
static enum status copy_from(const struct copying *c, int32_t d, int32_t cut, int64_t at,
                             int64_t *packed)
{
    const struct region *r = c->r;
    int32_t last = r->dim[r->n_dims - 1].dimension;
    int64_t rows = 1;
    if (cut == r->n_dims - 1) {
        for (int32_t i = d; i < last; i++) rows *= r->shape.dim[i];
        TRY(copy_runs(c, at, *packed, rows));
        *packed += rows * c->packed_row;
        return OK;
    }
    bool here = r->dim[cut].dimension == d, rows_follow = here && cut + 2 == r->n_dims;
    int64_t stride = behind(r, d);
    if (rows_follow) {
        for (int32_t i = d + 1; i < last; i++) rows *= r->shape.dim[i];
        for (int32_t k = 0; k < r->dim[cut].n_runs; k++) {
            int64_t n = r->dim[cut].count[k] * rows;
            TRY(copy_runs(c, at + r->dim[cut].first[k] * stride, *packed, n));
            *packed += n * c->packed_row;
        }
        return OK;
    }
    for (int64_t i = 0; !here && i < r->shape.dim[d]; i++)
        TRY(copy_from(c, d + 1, cut, at + i * stride, packed));
    for (int32_t k = 0; here && k < r->dim[cut].n_runs; k++)
        for (int64_t i = 0; i < r->dim[cut].count[k]; i++)
            TRY(copy_from(c, d + 1, cut + 1, at + (r->dim[cut].first[k] + i) * stride, packed));
    return OK;
}

enum status device_region_copy(struct backend *b, int32_t stream, const struct region *r,
                               enum dtype t, void *operand, void *packed, enum region_copy how,
                               struct error *err)
{
    int64_t all = region_elements(r), passed = 0;
    struct copying c = {.b = b,
                        .stream = stream,
                        .r = r,
                        .size = dtype_bytes(t),
                        .operand = operand,
                        .packed = packed,
                        .how = how,
                        .err = err};
    if (how == REGION_ADD) BUG("device regions support pack and unpack only; sums use operators");
    if (!all) return OK;
    c.row = c.packed_row = shape_elements(&r->shape);
    if (!r->n_dims) return copy_rows(&c, 0, 0, all, 1);
    int32_t last = r->n_dims - 1;
    c.row = behind(r, r->dim[last].dimension);
    c.packed_row = 0;
    for (int32_t k = 0; k < r->dim[last].n_runs; k++) c.packed_row += r->dim[last].count[k] * c.row;
    c.row *= r->shape.dim[r->dim[last].dimension];
    return copy_from(&c, 0, 0, 0, &passed);
}

struct seen {
    int64_t first, next;
    bool any, scattered;
};

static void see_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct seen *s = owner;
    (void)packed;
    if (!s->any) s->first = first;
    s->scattered |= s->any && first != s->next;
    s->any = true;
    s->next = first + n;
}

bool device_region_in_one(const struct region *r, int64_t *first)
{
    struct seen s = {0};
    region_walk(r, see_run, &s);
    *first = s.first;
    return !s.scattered;
}
