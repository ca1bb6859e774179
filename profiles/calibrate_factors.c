/* Factors: ratio of a type to its base, per kind and overall. */
#include "profiles/calibrate_internal.h"

#include "traces/quantile.h"

#include <string.h>

/* Kinds below this share of a type's time are no evidence of a wrong run: e.g. a copy of 20 us with cold operands. */
static const double share_known = 0.01;

static void put_factor(struct calibrating *s, struct factor_row f)
{
    struct profile *next = &s->out->next;
    for (size_t i = 0; i < next->n_factors; i++) {
        if (next->factors[i].kind != f.kind || strcmp(next->factors[i].type, f.type) != 0) continue;
        next->factors[i] = f;
        return;
    }
    next->factors = arena_grow(s->a, next->factors, next->n_factors, &s->factor_capacity,
                               sizeof *next->factors);
    next->factors[next->n_factors++] = f;
}

static void leave_out(struct calibrating *s, int32_t type, int32_t kind)
{
    for (size_t i = 0; i < s->n_ratios; i++) {
        struct ratio *r = &s->ratios[i];
        if ((type < 0 || r->type == type) && (kind < 0 || (int32_t)r->kind == kind))
            r->left_out = true;
    }
    s->out->n_kinds_left_out += type >= 0;
}

/* The factor of a type (-1: any) and a kind (-1: any); none if none of its keys ran. */
static enum status make_factor(struct calibrating *s, int32_t type, int32_t kind)
{
    double *values = ARENA_ARRAY(s->scratch, double, s->n_ratios);
    double seconds = 0, all = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->n_ratios; i++) {
        const struct ratio *r = &s->ratios[i];
        if (r->left_out || (type >= 0 && r->type != type)) continue;
        all += r->seconds;
        if (kind >= 0 && (int32_t)r->kind != kind) continue;
        values[n++] = r->value;
        seconds += r->seconds;
    }
    if (!n) return OK;
    struct factor_row f = {.type = type < 0 ? "*" : s->cluster->types[type].name,
                           .kind = kind,
                           .factor = quantile_median_double(values, n),
                           .samples = (int32_t)n,
                           .provenance = s->provenance};
    bool accepted = s->force || calibrate_credible(f.factor);
    if (!accepted && seconds < share_known * all) {
        leave_out(s, type, kind);
        return OK;
    }
    if (!accepted)
        return error_set(s->err, ERR_INPUT,
                         "%s on type %s took %.3g times the cost measured on %s before any calibration, outside %g ... %g: "
                         "check that the run belongs to the measurements in profile %lld (--force takes it as it is)",
                         kind < 0 ? "every kind" : op_kind_name((enum op_kind)kind), f.type, f.factor,
                         type < 0 ? "their bases" : s->cluster->types[type].catalogue, 1 / credible_most, credible_most, (long long)s->parent->id);
    put_factor(s, f);
    return OK;
}

enum status calibrate_factors(struct calibrating *s)
{
    for (size_t i = 0; i < s->parent->n_factors; i++) put_factor(s, s->parent->factors[i]);
    /* single types and kinds first, so that an error names both */
    for (int32_t t = 0; t <= s->cluster->n_types; t++)
        for (int32_t k = 0; k <= OP_KIND_COUNT; k++)
            TRY(make_factor(s, t < s->cluster->n_types ? t : -1, k < OP_KIND_COUNT ? k : -1));
    return OK;
}
