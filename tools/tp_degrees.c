#include "tools/tp_degrees.h"

#include "profiles/measured.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum status degrees_parse(const char *text, struct degrees *out, struct error *err)
{
    *out = (struct degrees){0};
    for (const char *at = text; at && *at; at += *at == ',') {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || n < 1 || n > DEGREE_MAX ||
            out->n == DEGREES_MAX)
            return error_set(err, ERR_USAGE,
                             "--tensor-parallel needs degrees, for example 1,2,4; found "
                             "'%.60s'",
                             text);
        out->tp[out->n++] = (int32_t)n;
        at = end;
    }
    return OK;
}

static bool is_possible(const struct model *m, const struct profile *p, const struct device_type *t,
                        int32_t tp)
{
    return m->measured ? measured_on(p, t->catalogue, tp) : model_allows_tp(m, tp);
}

static enum status refuse(const struct model *m, const struct profile *p,
                          const struct device_type *t, int32_t tp, int32_t on_node,
                          struct error *err)
{
    char list[200] = "";
    size_t used = 0;
    for (int32_t n = 1; n <= on_node && used < sizeof list - 8; n++)
        if (is_possible(m, p, t, n))
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRId32,
                                     used ? ", " : "", n);
    if (m->measured)
        return error_set(err, ERR_INPUT,
                         "--tensor-parallel %" PRId32 ": no layers were measured on %" PRId32
                         " GPUs of %s together; measured: %s",
                         tp, tp, t->catalogue, used ? list : "none (give --db)");
    struct error why = {0};
    if (model_check_tp(m, tp, &why) == OK) BUG("degree %d is possible", (int)tp);
    return error_set(err, ERR_INPUT,
                     "--tensor-parallel %" PRId32 ": %s; possible on GPUs of type %s: %s", tp,
                     why.text, t->name, list);
}

enum status degrees_check(const struct degrees *d, const struct model *m, const struct cluster *c,
                          const struct profile *p, struct error *err)
{
    for (int32_t t = 0; t < c->n_types && d->n; t++) {
        int32_t on_node = cluster_most_on_node(c, t);
        if (c->types[t].tensor_parallel > 1) continue;
        for (int32_t i = 0; i < d->n; i++)
            if (d->tp[i] > 1 && d->tp[i] <= on_node &&
                !is_possible(m, p, &c->types[t], d->tp[i]))
                return refuse(m, p, &c->types[t], d->tp[i], on_node, err);
    }
    return OK;
}
