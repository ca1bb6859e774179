/* The laws and their draws. jitter_fit.c estimates the parameters. */
#include "sim/jitter.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/cost.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of Z = exp(0.6 N): mean exp(s²/2), variance (exp(s²) − 1) exp(s²). */
#define Z_MEAN 1.1972173631218102
#define Z_SD 0.7881013869316227
/* sd Z ÷ (1.4826 · MAD of Z ÷ median of Z); tests/sim/test_jitter.c recomputes it. */
#define CV_OF_SPREAD 1.3731
/* Standard error of a median is sqrt(π/2) that of a mean. */
#define MEDIAN_ERROR 1.2533141373155003
#define PARTS_MAX_NS ((int64_t)1000000000000000) /* links share fairly up to twelve days */

enum domain { DOMAIN_OP, DOMAIN_CALL, DOMAIN_STEP, DOMAIN_STRAGGLER, DOMAIN_MESSAGE, DOMAIN_HOP };

struct unique { /* operators of one key on one type */
    uint64_t key;
    int32_t type;
    double own_cv,
        error; /* error: of the cost; negative: of the prior, shared by all operators of the base device */
};
struct lane_laws {
    int32_t n_chunks;
    const struct jitter_type *type;
    const int32_t *n_ops;        /* (n_chunks) */
    const int32_t *const *which; /* (n_chunks, n_ops) into uniques */
};
struct jitter {
    const struct program *program;
    const struct profile *profile;
    const struct cluster *cluster;
    const struct jitter_model *model;
    uint64_t seed;
    uint32_t key[2];
    double all; /* factor of every operator, for the model's own error */
    size_t n_uniques, unique_capacity;
    struct unique *uniques;
    const double *known;     /* (n_uniques) factors of their costs; NULL before a sample is drawn */
    size_t n_slots;          /* a power of two */
    int32_t *slots;          /* open hash: index into uniques + 1 */
    struct lane_laws *lanes; /* (n_devices) */
    float *message_cv;       /* (n_channels) */
};

double jitter_factor(double cv, double normal)
{
    const double widest = Z_SD / Z_MEAN;
    if (!(cv > 0)) return 1;
    if (cv <= widest) return 1 + cv * (exp(JITTER_SHAPE * normal) - Z_MEAN) / Z_SD;
    return jitter_even_factor(cv, normal);
}

double jitter_even_factor(double cv, double normal)
{
    double variance = cv > 0 ? log1p(cv * cv) : 0;
    return exp(sqrt(variance) * normal - variance / 2);
}

double jitter_cv_of_spread(double spread) { return spread > 0 ? CV_OF_SPREAD * spread : 0; }

/* --- parameters from a profile ---------------------------------------------------------------- */

static const struct op_row *row_of(const struct profile *p, const struct device_type *t,
                                   uint64_t key)
{
    char own[256];
    int length = snprintf(own, sizeof own, "type:%s", t->name);
    const struct op_row *row = length < (int)sizeof own ? profile_row(p, own, key) : NULL;
    return row ? row : profile_row(p, t->catalogue, key);
}

static bool of_type(const struct op_row *row, const struct device_type *t)
{
    return !strcmp(row->base, t->catalogue) ||
           (!strncmp(row->base, "type:", 5) && !strcmp(row->base + 5, t->name));
}

/* Median CV of the rows of a type and a kind (-1: all); NAN of none. */
static double typical(struct arena *scratch, const struct profile *p, const struct device_type *t,
                      int32_t kind)
{
    double *values = ARENA_ARRAY(scratch, double, p->n_ops);
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct op_row *row = &p->ops[i];
        if (row->samples < 2 || !of_type(row, t) || (kind >= 0 && (int32_t)row->kind != kind))
            continue;
        values[n++] = jitter_cv_of_spread(row->spread);
    }
    return n ? quantile_median_double(values, n) : NAN;
}

static double without(double total, double part)
{
    return total > part ? sqrt(total * total - part * part) : 0;
}

/* A row's spread contains all levels. The type's typical spread is attributed to what its operators have in common, the excess of
 * a kind or a row to its own level. */
static void type_defaults(struct arena *scratch, const struct profile *p,
                          const struct device_type *t, struct jitter_type *out)
{
    double all = typical(scratch, p, t, -1);
    if (isnan(all)) {
        out->call_cv = JITTER_CALL_CV;
        return;
    }
    out->common_cv = all;
    out->step_cv = all * sqrt(JITTER_STEP_SHARE);
    out->call_cv = all * sqrt(1 - JITTER_STEP_SHARE);
    for (int32_t k = 0; k < OP_KIND_COUNT; k++) {
        double kind = typical(scratch, p, t, k);
        out->own_cv[k] = isnan(kind) ? 0 : without(kind, all);
    }
}

void jitter_defaults(struct arena *a, const struct profile *p, const struct cluster *c,
                     struct jitter_model *out)
{
    struct arena *scratch = arena_new();
    *out = (struct jitter_model){.n_types = c->n_types,
                                 .n_links = c->n_links,
                                 .types = ARENA_ARRAY(a, struct jitter_type, (size_t)c->n_types),
                                 .link_cv = ARENA_ARRAY(a, double, (size_t)c->n_links),
                                 .straggler_factor = 1,
                                 .straggler_steps = 1,
                                 .start_factor = 1};
    for (int32_t t = 0; t < c->n_types; t++)
        type_defaults(scratch, p, &c->types[t], &out->types[t]);
    for (int32_t i = 0; i < c->n_links && !c->emulated; i++) {
        out->link_cv[i] = JITTER_LINK_CV;
        for (size_t k = 0; k < p->n_links; k++)
            if (!strcmp(p->links[k].name, c->links[i].name) && p->links[k].model.residual > 0)
                out->link_cv[i] = p->links[k].model.residual;
    }
    double *copy = ARENA_ARRAY(scratch, double, (size_t)c->n_links);
    if (c->n_links) memcpy(copy, out->link_cv, (size_t)c->n_links * sizeof *copy);
    out->hop_cv = quantile_median_double(copy, (size_t)c->n_links);
    arena_free(scratch);
}

/* --- binding ---------------------------------------------------------------------------------- */

static double link_cv(const struct jitter *j, int32_t link)
{
    const struct cluster *c = j->cluster;
    for (int32_t i = 0; i < c->n_links; i++)
        if (!strcmp(c->links[i].name, j->program->links[link].name)) return j->model->link_cv[i];
    return JITTER_LINK_CV;
}

static double own_cv(const struct jitter *j, int32_t type, const struct program_op *op)
{
    const struct jitter_type *t = &j->model->types[type];
    if (op->kind == OP_message) return link_cv(j, op->attrs.link);
    const struct op_row *row =
        t->fitted ? NULL : row_of(j->profile, &j->cluster->types[type], op->key);
    if (row && row->samples > 1) return without(jitter_cv_of_spread(row->spread), t->common_cv);
    return t->own_cv[op->kind];
}

static double fit_residual(const struct profile *f, const struct device_type *t,
                           const struct program_op *op)
{
    for (size_t i = 0; i < f->n_fits; i++)
        if (f->fits[i].kind == op->kind && f->fits[i].dtype == op->dtype &&
            !strcmp(f->fits[i].base, t->catalogue))
            return f->fits[i].residual;
    return JITTER_PRIOR_ERROR;
}

static enum status cost_error(const struct jitter *j, int32_t type, const struct program_op *op,
                              double *out, struct error *err)
{
    double seconds;
    enum source source;
    const struct device_type *t = &j->cluster->types[type];
    *out = 0;
    if (op->kind == OP_message) return OK; /* priced by its link, like other messages */
    TRY(profile_op_seconds(j->profile, j->cluster, type, op->kind, &op->attrs, &op->shapes,
                           op->dtype, op->key, &seconds, &source, err));
    const struct op_row *row = row_of(j->profile, t, op->key);
    if (row && row->samples > 0)
        *out = MEDIAN_ERROR * jitter_cv_of_spread(row->spread) / sqrt(row->samples);
    else if (source == SOURCE_FITTED)
        *out = fit_residual(j->profile, t, op);
    else
        *out = source == SOURCE_MEASURED ? 0 : -JITTER_PRIOR_ERROR;
    return OK;
}

static int32_t *slot_of(const struct jitter *j, int32_t type, uint64_t key)
{
    size_t at = (size_t)((key + (uint64_t)type) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    for (;; at++) {
        int32_t *slot = &j->slots[at & (j->n_slots - 1)];
        const struct unique *u = *slot ? &j->uniques[*slot - 1] : NULL;
        if (!u || (u->type == type && u->key == key)) return slot;
    }
}

static void more_slots(struct arena *a, struct jitter *j)
{
    j->n_slots = j->n_slots ? 2 * j->n_slots : 256;
    j->slots = ARENA_ARRAY(a, int32_t, j->n_slots);
    for (size_t i = 0; i < j->n_uniques; i++)
        *slot_of(j, j->uniques[i].type, j->uniques[i].key) = (int32_t)i + 1;
}

static enum status find_unique(struct arena *a, struct jitter *j, int32_t type,
                               const struct program_op *op, int32_t *out, struct error *err)
{
    if (2 * (j->n_uniques + 1) > j->n_slots) more_slots(a, j);
    int32_t *slot = slot_of(j, type, op->key);
    if (!*slot) {
        struct unique u = {.key = op->key, .type = type, .own_cv = own_cv(j, type, op)};
        if (j->model->cost_error) TRY(cost_error(j, type, op, &u.error, err));
        j->uniques =
            arena_grow(a, j->uniques, j->n_uniques, &j->unique_capacity, sizeof *j->uniques);
        j->uniques[j->n_uniques++] = u;
        *slot = (int32_t)j->n_uniques;
    }
    *out = *slot - 1;
    return OK;
}

static enum status bind_lane(struct arena *a, struct jitter *j, int32_t lane, struct error *err)
{
    const struct program *p = j->program;
    int32_t type = p->devices[lane].type_index, n = 0;
    if (type < 0 || type >= j->model->n_types)
        return error_set(err, ERR_INPUT, "device %s is of unknown type %d", p->devices[lane].name,
                         (int)type);
    for (int32_t s = 0; s < p->n_stages; s++) n += p->stages[s].device == lane;
    const int32_t **which = ARENA_ARRAY(a, const int32_t *, (size_t)n);
    int32_t *n_ops = ARENA_ARRAY(a, int32_t, (size_t)n);
    j->lanes[lane] = (struct lane_laws){n, &j->model->types[type], n_ops, which};
    n = 0;
    for (int32_t k = 0; k < p->n_stages; k++) {
        const struct program_stage *s = &p->stages[k];
        if (s->device != lane) continue;
        int32_t *x = ARENA_ARRAY(a, int32_t, (size_t)s->n_ops);
        for (int32_t i = 0; i < s->n_ops; i++) TRY(find_unique(a, j, type, &s->ops[i], &x[i], err));
        n_ops[n] = s->n_ops;
        which[n++] = x;
    }
    return OK;
}

enum status jitter_new(struct arena *a, const struct program *p, const struct profile *f,
                       const struct cluster *c, const struct jitter_model *m, uint64_t seed,
                       struct jitter **out, struct error *err)
{
    struct jitter *j = *out = ARENA_ARRAY(a, struct jitter, 1);
    *j = (struct jitter){
        .program = p, .profile = f, .cluster = c, .model = m, .seed = seed, .all = 1};
    j->lanes = ARENA_ARRAY(a, struct lane_laws, (size_t)p->n_devices);
    j->message_cv = ARENA_ARRAY(a, float, (size_t)p->n_channels);
    for (int32_t i = 0; i < p->n_devices; i++) TRY(bind_lane(a, j, i, err));
    for (int32_t i = 0; i < p->n_channels; i++)
        j->message_cv[i] = p->channels[i].link < 0 ? 0 : (float)link_cv(j, p->channels[i].link);
    return OK;
}

/* Errors of operators of one key on one base device are equal: emulated types share the rows of their base. */
static double draw_known(const struct jitter *j, const struct unique *u, int64_t sample)
{
    uint64_t what = u->error < 0 ? 0 : u->key;
    uint64_t stream =
        rng_hash_bytes(rng_hash_text(1, j->cluster->types[u->type].catalogue), &what, sizeof what);
    double normal = u->error != 0 ? rng_normal(j->seed, stream, (uint64_t)sample) : 0;
    return jitter_even_factor(fabs(u->error), normal);
}

const struct jitter *jitter_sample(struct arena *a, const struct jitter *j, int64_t sample)
{
    struct jitter *out = ARENA_ARRAY(a, struct jitter, 1);
    uint64_t key = rng_u64(j->seed, 0, (uint64_t)sample);
    double normal = rng_normal(j->seed, 1, (uint64_t)sample);
    double *known = ARENA_ARRAY(a, double, j->n_uniques);
    for (size_t i = 0; i < j->n_uniques; i++) known[i] = draw_known(j, &j->uniques[i], sample);
    *out = *j;
    out->key[0] = (uint32_t)key, out->key[1] = (uint32_t)(key >> 32);
    out->all = jitter_even_factor(j->model->model_error, normal);
    out->known = known;
    return out;
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* 64 bits of a block are two uniform numbers of 32 bits: 1 - u is never 0. */
static void draw(const struct jitter *j, const uint32_t counter[4], double *uniform, double *normal)
{
    uint32_t out[4];
    rng_philox(counter, j->key, out);
    uint64_t x = out[0] | (uint64_t)out[1] << 32, y = out[2] | (uint64_t)out[3] << 32;
    *uniform = (double)(x >> 11) * 0x1p-53;
    if (normal)
        *normal =
            sqrt(-2 * log(1 - *uniform)) * cos(6.283185307179586 * ((double)(y >> 11) * 0x1p-53));
}

static double factor(const struct jitter *j, double cv, uint32_t x, uint32_t y, uint32_t z,
                     uint32_t w, enum domain domain)
{
    double uniform, normal;
    if (!(cv > 0)) return 1;
    draw(j, (const uint32_t[4]){x, y, z, w | (uint32_t)domain << 29}, &uniform, &normal);
    return jitter_factor(cv, normal);
}

/* The slow periods of different lanes begin at different steps. */
static double step_factor(const struct jitter *j, int32_t lane, int32_t step)
{
    const struct jitter_model *m = j->model;
    double f = 1, cv = j->lanes[lane].type->step_cv, uniform, normal;
    const uint32_t x = (uint32_t)lane, y = (uint32_t)step;
    if (cv > 0) {
        draw(j, (const uint32_t[4]){x, y, 0, (uint32_t)DOMAIN_STEP << 29}, &uniform, &normal);
        f = jitter_even_factor(cv, normal);
    }
    if (step < m->start_steps) f *= m->start_factor;
    if (m->straggler_share > 0) {
        uint32_t length = m->straggler_steps > 1 ? (uint32_t)m->straggler_steps : 1;
        uint32_t stretch = (y + x * 7919u % length) / length;
        draw(j, (const uint32_t[4]){x, stretch, 0, (uint32_t)DOMAIN_STRAGGLER << 29}, &uniform,
             NULL);
        if (uniform < m->straggler_share) f *= m->straggler_factor;
    }
    return f;
}

static int64_t scaled(int64_t ns, double factor_)
{
    double x = (double)ns * factor_;
    return x < (double)COST_MAX_NS ? llround(x) : COST_MAX_NS;
}

int64_t jitter_op_ns(const struct jitter *j, int32_t lane, int32_t step, int32_t chunk,
                     int32_t procedure, int32_t microbatch, int32_t instr, int64_t ns)
{
    const struct lane_laws *l = &j->lanes[lane];
    int32_t k = chunk >= 0 && chunk < l->n_chunks ? chunk : 0;
    bool known = l->n_chunks > 0 && instr >= 0 && instr < l->n_ops[k];
    uint32_t call = ((uint32_t)chunk & 63) << 23 | ((uint32_t)procedure & 127) << 16;
    double f = step_factor(j, lane, step) * j->all;
    f *= factor(j, l->type->call_cv, (uint32_t)lane, (uint32_t)step, (uint32_t)(microbatch + 1),
                call, DOMAIN_CALL);
    if (known) {
        int32_t which = l->which[k][instr];
        f *= factor(j, j->uniques[which].own_cv, (uint32_t)lane, (uint32_t)step,
                    (uint32_t)(microbatch + 1), call | ((uint32_t)instr & 65535), DOMAIN_OP);
        if (j->known) f *= j->known[which];
    }
    return scaled(ns, f);
}

int64_t jitter_message_ns(const struct jitter *j, int32_t channel, int64_t seq,
                          int64_t occupancy_ns)
{
    int64_t ns =
        scaled(occupancy_ns, factor(j, j->message_cv[channel], (uint32_t)channel, (uint32_t)seq,
                                    (uint32_t)((uint64_t)seq >> 32), 0, DOMAIN_MESSAGE));
    return ns > occupancy_ns && ns > PARTS_MAX_NS
               ? (occupancy_ns > PARTS_MAX_NS ? occupancy_ns : PARTS_MAX_NS)
               : ns;
}

int64_t jitter_hop_ns(const struct jitter *j, int32_t hop, int32_t step, int32_t part, int64_t ns)
{
    int64_t x = scaled(ns, factor(j, j->model->hop_cv, (uint32_t)hop, (uint32_t)step,
                                  (uint32_t)part, 0, DOMAIN_HOP));
    return x > ns && x > PARTS_MAX_NS ? (ns > PARTS_MAX_NS ? ns : PARTS_MAX_NS) : x;
}
