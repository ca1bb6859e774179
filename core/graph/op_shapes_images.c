/* core/graph/op_shapes_images.c - shape rules of image kinds, (b, channels, height, width).
 *
 * A kernel may extend into the padding, but must cover at least one element of x.
 */
#include "core/graph/op_shapes.h"

/* A device that has no lines of y has none of x. */
static bool nothing(const struct stencil *k, const int64_t kernel[2], const int64_t size[2], int i)
{
    return i == 0 && size[0] == 0 && kernel[0] == k->stride[0];
}

static enum status need_stencil(enum op_kind kind, const struct op_attrs *attrs,
                                const int64_t kernel[2], const int64_t size[2], struct error *err)
{
    const struct stencil *k = &attrs->stencil;
    for (int i = 0; i < 2; i++)
        if (kernel[i] < 1 || k->stride[i] < 1 || k->padding[i] < 0 || k->padding[i] >= kernel[i] ||
            (size[i] + 2 * (int64_t)k->padding[i] < kernel[i] && !nothing(k, kernel, size, i)))
            return error_set(err, ERR_INPUT,
                             "%s: a kernel of %lld with stride %d and padding %d does not fit on a "
                             "%s of %lld",
                             op_kind_name(kind), (long long)kernel[i], k->stride[i], k->padding[i],
                             i ? "width" : "height", (long long)size[i]);
    return OK;
}

/* How often a kernel of `kernel` fits, step after step. */
static int64_t steps(const struct stencil *k, int i, int64_t kernel, int64_t size)
{
    return (size + 2 * k->padding[i] - kernel) / k->stride[i] + 1;
}

static struct shape image(int64_t b, int64_t c, int64_t h, int64_t w)
{
    return (struct shape){.rank = 4, .dim = {b, c, h, w}};
}

enum status op_shapes_lines(enum op_kind kind, const struct op_attrs *attrs, int64_t all, int64_t *n,
                         struct error *err)
{
    const struct op_shard *p = &attrs->lines;
    *n = p->of ? p->n : all;
    if (!p->of || (p->of == all && p->first >= 0 && p->n >= 0 && p->n <= all - p->first)) return OK;
    return error_set(err, ERR_INPUT, "%s: %lld lines from %lld on, of %lld, are no part of %lld",
                     op_kind_name(kind), (long long)p->n, (long long)p->first, (long long)p->of,
                     (long long)all);
}

static enum status need_image(enum op_kind kind, const struct shape *x, struct error *err)
{
    char text[SHAPE_TEXT_MAX];
    if (x->rank == 4) return OK;
    return error_set(err, ERR_INPUT, "%s: %s is not (b, channels, height, width)",
                     op_kind_name(kind), op_shapes_text(text, x));
}

enum status shapes_conv2d(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct shape *x = &s->input[0], *weight = &s->input[1];
    TRY(need_image(kind, x, err));
    if (weight->rank != 4 || weight->dim[1] != x->dim[1])
        return op_shapes_misfit(kind, x, weight, "the weight must be (out, channels, height, width)",
                             err);
    TRY(need_stencil(kind, attrs, &weight->dim[2], &x->dim[2], err));
    s->output[0] =
        image(x->dim[0], weight->dim[0], steps(&attrs->stencil, 0, weight->dim[2], x->dim[2]),
                steps(&attrs->stencil, 1, weight->dim[3], x->dim[3]));
    return op_shapes_lines(kind, attrs, s->output[0].dim[2], &s->output[0].dim[2], err);
}

/* dy must be what x of (b, c, size) gives. */
static enum status need_steps(enum op_kind kind, const struct op_attrs *attrs,
                              const struct shape *dy, const int64_t kernel[2],
                              const int64_t size[2], struct error *err)
{
    TRY(need_image(kind, dy, err));
    TRY(need_stencil(kind, attrs, kernel, size, err));
    struct shape want =
        image(dy->dim[0], dy->dim[1], steps(&attrs->stencil, 0, kernel[0], size[0]),
                steps(&attrs->stencil, 1, kernel[1], size[1]));
    TRY(op_shapes_lines(kind, attrs, want.dim[2], &want.dim[2], err));
    return shape_equal(&want, dy) ? OK
                                  : op_shapes_misfit(kind, &want, dy, "gradient of another size", err);
}

enum status shapes_conv2d_grad(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                               struct error *err)
{
    const struct shape *weight = &s->input[0], *dy = &s->input[1];
    int64_t size[2] = {attrs->stencil.size[0], attrs->stencil.size[1]};
    if (weight->rank != 4 || dy->rank != 4 || dy->dim[1] != weight->dim[0])
        return op_shapes_misfit(kind, weight, dy, "one channel of gradient for each of the weight",
                             err);
    TRY(need_steps(kind, attrs, dy, &weight->dim[2], size, err));
    s->output[0] = image(dy->dim[0], weight->dim[1], size[0], size[1]);
    return OK;
}

enum status shapes_conv2d_weight_grad(enum op_kind kind, const struct op_attrs *attrs,
                                      struct op_shapes *s, struct error *err)
{
    const struct shape *x = &s->input[0], *dy = &s->input[1];
    int64_t kernel[2] = {attrs->stencil.kernel[0], attrs->stencil.kernel[1]};
    TRY(need_image(kind, x, err));
    TRY(need_steps(kind, attrs, dy, kernel, &x->dim[2], err));
    if (x->dim[0] != dy->dim[0]) return op_shapes_misfit(kind, x, dy, "other images", err);
    s->output[0] = image(dy->dim[1], x->dim[1], kernel[0], kernel[1]);
    return OK;
}

enum status shapes_pool2d(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct shape *x = &s->input[0];
    const struct stencil *k = &attrs->stencil;
    int64_t kernel[2] = {k->kernel[0], k->kernel[1]};
    TRY(need_image(kind, x, err));
    TRY(need_stencil(kind, attrs, kernel, &x->dim[2], err));
    struct shape y = image(x->dim[0], x->dim[1], steps(k, 0, kernel[0], x->dim[2]),
                             steps(k, 1, kernel[1], x->dim[3]));
    TRY(op_shapes_lines(kind, attrs, y.dim[2], &y.dim[2], err));
    for (int32_t i = 0; i < s->n_outputs; i++) s->output[i] = y;
    return OK;
}

enum status shapes_pool2d_grad(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                               struct error *err)
{
    const struct stencil *k = &attrs->stencil;
    int64_t kernel[2] = {k->kernel[0], k->kernel[1]}, size[2] = {k->size[0], k->size[1]};
    const struct shape *dy = &s->input[s->n_inputs - 1];
    TRY(need_steps(kind, attrs, dy, kernel, size, err));
    if (!shape_equal(&s->input[0], dy))
        return op_shapes_misfit(kind, &s->input[0], dy, "shapes must be equal", err);
    s->output[0] = image(dy->dim[0], dy->dim[1], size[0], size[1]);
    return OK;
}

/* --- group_norm --- */

static enum status need_groups(enum op_kind kind, const struct op_attrs *attrs,
                               const struct shape *x, struct error *err)
{
    char text[SHAPE_TEXT_MAX];
    /* a device that has no channels has no groups */
    bool none = attrs->groups == 0 && x->rank >= 2 && x->dim[1] == 0;
    if (none || (x->rank >= 2 && attrs->groups >= 1 && x->dim[1] % attrs->groups == 0)) return OK;
    return error_set(err, ERR_INPUT, "%s: the channels of %s do not divide into %d groups",
                     op_kind_name(kind), op_shapes_text(text, x), attrs->groups);
}

static struct shape group_stats(const struct op_attrs *attrs, const struct shape *x)
{
    return (struct shape){.rank = 2, .dim = {x->dim[0] * attrs->groups, 2}};
}

static struct shape channels(const struct shape *x)
{
    return (struct shape){.rank = 1, .dim = {x->dim[1]}};
}

static enum status need_equal(enum op_kind kind, const struct shape *want, const struct shape *s,
                              const char *why, struct error *err)
{
    return shape_equal(want, s) ? OK : op_shapes_misfit(kind, want, s, why, err);
}

enum status shapes_group_norm(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                              struct error *err)
{
    const struct shape *x = &s->input[0];
    TRY(need_groups(kind, attrs, x, err));
    struct shape c = channels(x);
    for (int i = 1; i < 3; i++)
        TRY(need_equal(kind, &c, &s->input[i], "one weight for each channel", err));
    s->output[0] = *x;
    s->output[1] = group_stats(attrs, x);
    return OK;
}

enum status shapes_group_norm_grad(enum op_kind kind, const struct op_attrs *attrs,
                                   struct op_shapes *s, struct error *err)
{
    const struct shape *x = &s->input[0];
    TRY(need_groups(kind, attrs, x, err));
    struct shape c = channels(x), stats = group_stats(attrs, x);
    TRY(need_equal(kind, &c, &s->input[1], "one weight for each channel", err));
    TRY(need_equal(kind, &stats, &s->input[2], "statistics of another shape", err));
    TRY(need_equal(kind, x, &s->input[3], "shapes must be equal", err));
    s->output[0] = *x;
    return OK;
}

enum status shapes_group_norm_weight_grad(enum op_kind kind, const struct op_attrs *attrs,
                                          struct op_shapes *s, struct error *err)
{
    const struct shape *x = &s->input[0];
    TRY(need_groups(kind, attrs, x, err));
    struct shape stats = group_stats(attrs, x);
    TRY(need_equal(kind, &stats, &s->input[1], "statistics of another shape", err));
    TRY(need_equal(kind, x, &s->input[2], "shapes must be equal", err));
    for (int i = 0; i < 2; i++) s->output[i] = channels(x);
    return OK;
}

/* --- from images to rows --- */

static enum status back_to_images(enum op_kind kind, const struct op_attrs *attrs,
                                    struct op_shapes *s, struct error *err)
{
    const struct shape *x = &s->input[0];
    int64_t h = attrs->stencil.size[0], w = attrs->stencil.size[1], places = h * w;
    bool fits = h >= 0 && w > 0 && /* a device may have no lines */
                (attrs->flat ? places && x->rank == 2 && x->dim[1] % places == 0
                             : x->rank == 3 && x->dim[1] == places);
    char text[SHAPE_TEXT_MAX];
    if (!fits)
        return error_set(err, ERR_INPUT, "%s: %s are not rows of images of %lld x %lld",
                         op_kind_name(kind), op_shapes_text(text, x), (long long)h, (long long)w);
    s->output[0] = image(x->dim[0], attrs->flat ? x->dim[1] / places : x->dim[2], h, w);
    return OK;
}

enum status shapes_to_rows(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                           struct error *err)
{
    const struct shape *x = &s->input[0];
    if (attrs->inverse) return back_to_images(kind, attrs, s, err);
    TRY(need_image(kind, x, err));
    int64_t places = x->dim[2] * x->dim[3];
    s->output[0] = attrs->flat ? (struct shape){.rank = 2, .dim = {x->dim[0], x->dim[1] * places}}
                               : (struct shape){.rank = 3, .dim = {x->dim[0], places, x->dim[1]}};
    return OK;
}

enum status shapes_prepend(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                           struct error *err)
{
    (void)attrs;
    const struct shape *x = &s->input[0], *token = &s->input[1];
    if (x->rank != 3 || token->rank != 2 || token->dim[1] != x->dim[2])
        return op_shapes_misfit(kind, x, token,
                             "the token must be rows of the sequence's length of row", err);
    s->output[0] = *x;
    s->output[0].dim[1] += token->dim[0];
    return OK;
}
