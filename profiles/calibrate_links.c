/* Links: models of real links, fitted again from the messages of runs. */
#include "core/base/units.h"
#include "profiles/calibrate_internal.h"

#include <string.h>

enum { LINK_SAMPLES_MIN = 8 };

static const struct link_model *link_of(const struct profile *p, const char *name)
{
    for (size_t i = 0; i < p->n_links; i++)
        if (!strcmp(p->links[i].name, name)) return &p->links[i].model;
    return NULL;
}

static double message_s(const struct link_model *m, int64_t bytes)
{
    return m->latency_s + (double)bytes / link_model_Bps(m, (double)bytes);
}

/* Compares the smallest and the largest measured message with their times in the parent. */
static enum status check_link(const struct calibrating *s, const char *name)
{
    const struct link_model *now = link_of(&s->out->next, name), *before = link_of(s->parent, name);
    const int64_t ends[] = {now->min_bytes, now->max_bytes};
    for (int i = 0; i < 2 && before && !s->force; i++) {
        double ratio = message_s(now, ends[i]) / message_s(before, ends[i]);
        if (!calibrate_credible(ratio))
            return error_set(s->err, ERR_INPUT,
                             "messages of %lld bytes on link %s took %.3g times the time in profile %lld, outside %g ... %g: check "
                             "that the run belongs to this profile (--force takes it as it is)",
                             (long long)ends[i], name, ratio, (long long)s->parent->id, 1 / credible_most, credible_most);
    }
    return OK;
}

/* A link whose messages do not determine a line (e.g. one size only) keeps the parent's model. */
static enum status fit_one_link(struct calibrating *s, const char *name)
{
    size_t n = 0, total = 0;
    for (size_t r = 0; r < s->n_runs; r++) total += s->runs[r]->n_spans;
    int64_t *bytes = ARENA_ARRAY(s->scratch, int64_t, total);
    double *seconds = ARENA_ARRAY(s->scratch, double, total);
    for (size_t r = 0; r < s->n_runs; r++) {
        const struct trace *t = s->runs[r];
        int32_t from = trace_first_counted_step(t);
        for (size_t i = 0; i < t->n_spans; i++) {
            const struct span *x = &t->spans[i];
            if (t->emulated || x->kind != SPAN_SEND || x->step < from || strcmp(x->name, name) != 0)
                continue;
            if (x->end_ns <= x->begin_ns) {
                s->out->spans_dropped++;
                continue;
            }
            bytes[n] = x->bytes;
            seconds[n++] = units_s_from_ns(x->end_ns - x->begin_ns);
        }
    }
    if (n < LINK_SAMPLES_MIN || profile_fit_link(s->a, &s->out->next, name, bytes, seconds, n, NULL) != OK) return OK;
    s->out->spans_used += (int64_t)n;
    return check_link(s, name);
}

enum status calibrate_links(struct calibrating *s)
{
    struct profile *next = &s->out->next;
    next->links = ARENA_ARRAY(s->a, struct link_row,
                              s->parent->n_links); /* a copy: a fit replaces rows in place */
    next->n_links = s->parent->n_links;
    if (next->n_links) memcpy(next->links, s->parent->links, next->n_links * sizeof *next->links);
    for (int32_t i = 0; i < s->cluster->n_links && !s->cluster->emulated; i++) TRY(fit_one_link(s, s->cluster->links[i].name));
    return OK;
}
