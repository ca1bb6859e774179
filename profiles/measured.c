#include "profiles/measured.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *measured_base(char buffer[MEASURED_BASE_MAX], const char *catalogue, int32_t tp)
{
    int n =
        snprintf(buffer, MEASURED_BASE_MAX, tp > 1 ? "%.120s x%" PRId32 : "%.120s", catalogue, tp);
    if (n < 0 || n >= MEASURED_BASE_MAX) BUG("base of %d bytes", n);
    return buffer;
}

bool measured_on(const struct profile *p, const char *catalogue, int32_t tp)
{
    char base[MEASURED_BASE_MAX];
    measured_base(base, catalogue, tp);
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == OP_measured_forward && !strcmp(p->ops[i].base, base)) return true;
    return false;
}

/* --- layers ---------------------------------------------------------------------------------- */

struct point {
    double x, y;
};

/* The row of one layer with this number of sequences. */
static const struct op_row *row_of(const struct profile *p, const char *base, enum op_kind kind,
                                   int64_t row, int64_t sequences)
{
    struct op_attrs attrs = {.row = row, .sequences = sequences};
    struct op_shapes none = {0};
    return profile_row(p, base, op_key(kind, &attrs, &none, DTYPE_fp32));
}

/* The nearest measured sizes below and above, at most two each, nearest first. O(sizes tried · log rows). */
static void neighbours(const struct profile *p, const char *base, enum op_kind kind, int64_t row,
                       int64_t sequences, struct point below[2], int *n_below,
                       struct point above[2], int *n_above)
{
    *n_below = *n_above = 0;
    for (int64_t m = sequences - 1; m >= 1 && *n_below < 2; m--) {
        const struct op_row *r = row_of(p, base, kind, row, m);
        if (r) below[(*n_below)++] = (struct point){(double)m, r->seconds};
    }
    for (int64_t m = sequences + 1; m <= MEASURED_SEQUENCES_MAX && *n_above < 2; m++) {
        const struct op_row *r = row_of(p, base, kind, row, m);
        if (r) above[(*n_above)++] = (struct point){(double)m, r->seconds};
    }
}

static double on_line(struct point a, struct point b, double x)
{
    return a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x);
}

static bool layer_seconds(const struct profile *p, const char *base, enum op_kind kind, int64_t row,
                          int64_t sequences, double *out)
{
    struct point below[2], above[2];
    int n_below, n_above;
    double x = (double)sequences;
    const struct op_row *there = row_of(p, base, kind, row, sequences);
    if (there) return *out = there->seconds, true;
    neighbours(p, base, kind, row, sequences, below, &n_below, above, &n_above);
    if (!n_below && !n_above) return false;
    if (n_below && n_above) {
        *out = on_line(below[0], above[0], x);
    } else if (n_below) { /* larger than all: at least as long as the largest */
        *out = n_below > 1 ? on_line(below[1], below[0], x) : below[0].y * x / below[0].x;
        *out = fmax(*out, below[0].y);
    } else { /* smaller than all: between its proportional share of the smallest and all of it */
        *out = n_above > 1 ? on_line(above[0], above[1], x) : above[0].y * x / above[0].x;
        *out = fmin(fmax(*out, above[0].y * x / above[0].x), above[0].y);
    }
    return true;
}

enum measured_reach measured_reach(const struct profile *p, const char *catalogue, int32_t tp,
                                   int64_t row, int64_t sequences)
{
    struct point below[2], above[2];
    int n_below, n_above;
    char base[MEASURED_BASE_MAX];
    measured_base(base, catalogue, tp);
    if (row_of(p, base, OP_measured_forward, row, sequences)) return MEASURED_THERE;
    neighbours(p, base, OP_measured_forward, row, sequences, below, &n_below, above, &n_above);
    return n_below && n_above   ? MEASURED_BETWEEN
           : n_below || n_above ? MEASURED_BEYOND
                                : MEASURED_NOT;
}

/* --- curves ---------------------------------------------------------------------------------- */

const char *measured_curve_row(struct arena *a, bool same_node, const char *catalogue, int32_t tp,
                               int64_t bytes)
{
    return arena_printf(a, "%s/%s/%" PRId32 "@%" PRId64, same_node ? "intra" : "inter", catalogue,
                        tp, bytes);
}

/* "inter/A100/4@1048576": number of GPUs if the row is of this kind and type, else 0. */
static int32_t tp_of_row(const char *name, const char *prefix, size_t length, int64_t *bytes)
{
    char *end;
    if (strncmp(name, prefix, length) != 0) return 0;
    long tp = strtol(name + length, &end, 10);
    if (*end != '@' || tp < 1 || tp > 1 << 16) return 0;
    *bytes = strtoll(end + 1, NULL, 10);
    return (int32_t)tp;
}

static int by_bytes(const void *x, const void *y)
{
    const struct link_point *a = x, *b = y;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The curve for this number of GPUs, else for the next smaller, else for the smallest; points ascend. */
static bool find_curve(const struct profile *p, bool same_node, const char *catalogue, int32_t tp,
                       struct link_model *out)
{
    char prefix[MEASURED_BASE_MAX + 16];
    int32_t best = 0;
    int64_t bytes;
    size_t length = (size_t)snprintf(prefix, sizeof prefix, "%s/%.120s/",
                                     same_node ? "intra" : "inter", catalogue);
    for (size_t i = 0; i < p->n_links; i++) {
        int32_t n = tp_of_row(p->links[i].name, prefix, length, &bytes);
        if (!n) continue;
        if (!best || (n <= tp ? best > tp || n > best : best > tp && n < best)) best = n;
    }
    *out = (struct link_model){.source = SOURCE_MEASURED};
    for (size_t i = 0; i < p->n_links && best; i++)
        if (tp_of_row(p->links[i].name, prefix, length, &bytes) == best &&
            out->n_points < LINK_POINTS_MAX / 2)
            out->points[out->n_points++] =
                (struct link_point){(double)bytes, p->links[i].model.bandwidth_Bps};
    if (!out->n_points) return false;
    qsort(out->points, (size_t)out->n_points, sizeof *out->points, by_bytes);
    out->bandwidth_Bps = out->points[out->n_points - 1].Bps;
    out->min_bytes = (int64_t)out->points[0].bytes;
    out->max_bytes = (int64_t)out->points[out->n_points - 1].bytes;
    return true;
}

static bool curve_of_type(const struct profile *p, const struct device_type *t, int32_t gpus,
                          bool same_node, struct link_model *out)
{
    int32_t n = gpus > 1 ? gpus : 1;
    if (!find_curve(p, same_node, t->catalogue, n, out)) return false;
    for (int32_t i = 0; i < out->n_points; i++) out->points[i].bytes *= n;
    return true;
}

/* One of the messages. */
static void divide(struct link_model *m, const struct link_ends *e)
{
    int32_t most = e->gpus[0] > e->gpus[1] ? e->gpus[0] : e->gpus[1];
    for (int32_t i = 0; i < m->n_points && most > 1; i++)
        m->points[i].bytes /= most, m->points[i].Bps /= e->at_once;
}

bool measured_link(const struct profile *p, const struct cluster *c, const struct link_ends *e,
                   bool same_node, struct link_model *out)
{
    struct link_model one, other;
    if (!curve_of_type(p, &c->types[e->type[0]], e->gpus[0], same_node, &one) ||
        !curve_of_type(p, &c->types[e->type[1]], e->gpus[1], same_node, &other))
        return false;
    *out = (struct link_model){.min_bytes = one.min_bytes, .max_bytes = one.max_bytes};
    for (int32_t i = 0, k = 0; i < one.n_points || k < other.n_points;) {
        double x = i < one.n_points ? one.points[i].bytes : INFINITY,
               y = k < other.n_points ? other.points[k].bytes : INFINITY, bytes = fmin(x, y);
        i += x <= y, k += y <= x;
        if (out->n_points == LINK_POINTS_MAX) break;
        out->points[out->n_points++] = (struct link_point){
            bytes, fmin(link_model_Bps(&one, bytes), link_model_Bps(&other, bytes))};
    }
    divide(out, e);
    out->source = SOURCE_MEASURED;
    out->bandwidth_Bps = out->points[out->n_points - 1].Bps;
    return true;
}

/* --- operators ------------------------------------------------------------------------------- */

static enum status assemble_seconds(const struct profile *p, const struct device_type *t, int32_t n,
                                    const struct op_shapes *shapes, enum dtype dtype, double *out,
                                    struct error *err)
{
    double bytes = (double)(shape_elements(&shapes->input[0]) * dtype_bytes(dtype));
    struct link_model m;
    *out = 0;
    for (size_t i = 0; i < p->n_fits; i++)
        if (p->fits[i].kind == OP_assemble && !strcmp(p->fits[i].base, t->catalogue))
            *out = p->fits[i].constant_s + p->fits[i].s_per_byte * bytes;
    if (n < 2) return OK;
    if (!find_curve(p, true, t->catalogue, n, &m))
        return error_set(err, ERR_INPUT, "no curve of the links among the GPUs of a node of %s",
                         t->catalogue);
    *out += bytes * (n - 1) / n / link_model_Bps(&m, bytes);
    return OK;
}

/* "1, 2, 4": numbers of GPUs on which any microbatch of the layer was measured; false: none. */
static bool measured_degrees(const struct profile *p, const char *catalogue, int64_t row,
                             char out[64])
{
    size_t n = 0;
    *out = '\0';
    for (int32_t tp = 1; tp <= MEASURED_GPUS_MAX && n < 56; tp++)
        if (measured_reach(p, catalogue, tp, row, 1) != MEASURED_NOT)
            n += (size_t)snprintf(out + n, 64 - n, "%s%" PRId32, n ? ", " : "", tp);
    return n > 0;
}

enum status measured_op_seconds(const struct profile *p, const struct device_type *t,
                                enum op_kind kind, const struct op_attrs *attrs,
                                const struct op_shapes *shapes, enum dtype dtype, double *out,
                                enum source *source, struct error *err)
{
    char base[MEASURED_BASE_MAX], others[64];
    int32_t tp = attrs->tp > 1 ? attrs->tp : 1;
    *source = SOURCE_MEASURED;
    if (kind == OP_assemble) return assemble_seconds(p, t, tp, shapes, dtype, out, err);
    if (kind == OP_message) BUG("a message is priced by its link");
    measured_base(base, t->catalogue, tp);
    if (layer_seconds(p, base, kind, attrs->row, attrs->sequences, out)) return OK;
    if (!measured_degrees(p, t->catalogue, attrs->row, others))
        return error_set(err, ERR_INPUT,
                         "no microbatch of this layer was measured on %s; import a profile with it "
                         "(musher import)",
                         base);
    return error_set(
        err, ERR_INPUT,
        "no microbatch of this layer was measured on %s; of %s it was measured on %s GPUs", base,
        t->catalogue, others);
}
