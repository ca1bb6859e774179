#include "tools/sweep/axis.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "tools/team/edit.h"

#include <math.h>
#include <string.h>

static const struct kind {
    const char *word;
    bool names, whole;
    double min, max;
    const char *unit, *example;
} kinds[AXIS_KIND_COUNT] = {
#define X(id, word, names, whole, min, max, unit, example)                                         \
    {word, names, whole, min, max, unit, example},
    AXIS_KINDS(X)
#undef X
};

/* --- values --- */

static bool parse_value(const struct axis *x, const char *text, double *out)
{
    const struct kind *k = &kinds[x->kind];
    bool good = x->kind == AXIS_LINK    ? units_parse_bytes_per_s(text, out)
                : x->kind == AXIS_PRICE ? cluster_parse_price(text, out)
                                        : units_parse_number(text, out);
    return good && *out >= k->min && *out <= k->max && (!k->whole || *out == floor(*out));
}

static const char *value_text(struct arena *a, const struct axis *x, double value)
{
    char text[32];
    if (x->kind == AXIS_LINK) return arena_strdup(a, units_print_bytes_per_s(text, value));
    if (x->kind == AXIS_PRICE) return arena_printf(a, "%g/h", value);
    return arena_printf(a, "%.0f", value);
}

static enum status too_many(const struct axis *x, struct error *err)
{
    return error_set(err, ERR_USAGE, "--vary %s: more than %d values", x->name, AXIS_VALUES_MAX);
}

static enum status add(struct arena *a, struct axis *x, size_t *capacity, double value,
                       struct error *err)
{
    if (kinds[x->kind].whole) value = round(value);
    for (int32_t i = 0; i < x->n; i++)
        if (!(x->values[i] < value) && !(x->values[i] > value)) return OK;
    if (x->n == AXIS_VALUES_MAX) return too_many(x, err);
    x->values = arena_grow(a, x->values, (size_t)x->n, capacity, sizeof *x->values);
    x->values[x->n++] = value;
    return OK;
}

/* "whole number of 1 to 16777216" */
static const char *range_text(struct arena *a, const struct axis *x)
{
    const struct kind *k = &kinds[x->kind];
    char first[32], last[32];
    if (x->kind == AXIS_LINK)
        return arena_printf(a, "bandwidth of %s to %s", units_print_bytes_per_s(first, k->min),
                            units_print_bytes_per_s(last, k->max));
    return arena_printf(a, "whole number of %.0f to %.0f", k->min, k->max);
}

static enum status not_a_value(struct arena *a, const struct axis *x, const char *text, struct error *err)
{
    const struct kind *k = &kinds[x->kind];
    char hint[UNITS_HINT] = "", price[CLUSTER_PRICE_HINT];
    if (x->kind == AXIS_PRICE)
        return error_set(err, ERR_USAGE, "--vary %s: '%.60s' is not a price per hour: %s", x->name,
                         text, cluster_price_hint(price, text));
    if (x->kind == AXIS_LINK) units_hint(hint, QUANTITY_BYTES_PER_S, text);
    return error_set(err, ERR_USAGE,
                     "--vary %s: '%.60s' is not a %s, as in --vary %s%s", x->name, text,
                     range_text(a, x), k->example, hint);
}

/* FIRST..LAST, FIRST..LAST:N, FIRST..LAST:xF; `last` is the text behind the dots. */
static enum status add_range(struct arena *a, struct axis *x, size_t *capacity, const char *item,
                             const char *first, char *last, struct error *err)
{
    char *step = strchr(last, ':');
    double from, to, n = 0, factor = 0;
    if (step) *step++ = 0;
    if (!parse_value(x, first, &from)) return not_a_value(a, x, first, err);
    if (!parse_value(x, last, &to)) return not_a_value(a, x, last, err);
    if (from > to)
        return error_set(err, ERR_USAGE, "--vary %s: range %.60s ends before it begins", x->name,
                         item);
    if (!step && !kinds[x->kind].whole)
        return error_set(err, ERR_USAGE,
                         "--vary %s: range %.60s needs a number of values, %.60s:5, or a factor, "
                         "%.60s:x2",
                         x->name, item, item, item);
    if (step && *step == 'x') {
        if (!units_parse_number(step + 1, &factor) || !(factor > 1) || !(from > 0))
            return error_set(err, ERR_USAGE,
                             "--vary %s: range %.60s: a factor is a number above 1 behind x, and "
                             "the first value is above 0",
                             x->name, item);
        /* many of them may round to one whole number */
        if (log(to / from) / log(factor) > AXIS_VALUES_MAX) return too_many(x, err);
        /* a last value missed by rounding is still meant */
        for (double v = from; v <= to * (1 + 1e-9); v *= factor) TRY(add(a, x, capacity, v, err));
        return OK;
    }
    if (step && (!units_parse_number(step, &n) || n != floor(n) || n < 2 || n > AXIS_VALUES_MAX))
        return error_set(err, ERR_USAGE,
                         "--vary %s: range %.60s: '%.40s' is neither a number of values from 2 to "
                         "%d nor a factor such as x2",
                         x->name, item, step, AXIS_VALUES_MAX);
    if (!step) n = to - from + 1;
    if (n > AXIS_VALUES_MAX) return too_many(x, err);
    for (double i = 0; i < n; i++)
        TRY(add(a, x, capacity, n > 1 ? from + (to - from) * i / (n - 1) : from, err));
    return OK;
}

static enum status no_axis(const char *text, const char *word, struct error *err)
{
    static const char *const words[] = {
#define X(id, word, names, whole, min, max, unit, example) word,
        AXIS_KINDS(X)
#undef X
            NULL};
    char hint[NEAREST_HINT];
    return error_set(err, ERR_USAGE,
                     "--vary '%.80s': expected one of"
#define X(id, word, names, whole, min, max, unit, example) " " example
                     AXIS_KINDS(X)
#undef X
                         "%s",
                     text, nearest_name_hint(word, words, hint));
}

enum status axis_parse(struct arena *a, const char *text, struct axis *out, struct error *err)
{
    char *words = arena_strdup(a, text), *list = strrchr(words, '='), *colon;
    struct axis x = {.kind = AXIS_KIND_COUNT};
    size_t capacity = 0;
    double value;
    if (!list) return no_axis(text, words, err);
    *list++ = 0;
    x.name = arena_strdup(a, words);
    colon = strchr(words, ':');
    if (colon) *colon++ = 0, x.object = colon;
    for (int k = 0; k < AXIS_KIND_COUNT; k++)
        if (!strcmp(words, kinds[k].word)) x.kind = (enum axis_kind)k;
    if (x.kind == AXIS_KIND_COUNT) return no_axis(text, words, err);
    if (kinds[x.kind].names != (x.object && *x.object))
        return error_set(err, ERR_USAGE, "--vary '%.80s': %s %s, as in --vary %s", text, words,
                         kinds[x.kind].names ? "needs a name behind ':'" : "takes no name",
                         kinds[x.kind].example);
    x.unit = kinds[x.kind].unit;
    for (char *at = list, *comma; at; at = comma) {
        comma = strchr(at, ',');
        if (comma) *comma++ = 0;
        const char *item = arena_strdup(a, at);
        char *dots = strstr(at, "..");
        if (dots) {
            *dots = 0;
            TRY(add_range(a, &x, &capacity, item, at, dots + 2, err));
        } else {
            if (!parse_value(&x, at, &value)) return not_a_value(a, &x, at, err);
            TRY(add(a, &x, &capacity, value, err));
        }
    }
    x.texts = ARENA_ARRAY(a, const char *, (size_t)x.n);
    for (int32_t i = 0; i < x.n; i++) x.texts[i] = value_text(a, &x, x.values[i]);
    *out = x;
    return OK;
}

/* --- their effect --- */

enum { NODES_ADDED_MAX = 256 }; /* each is one edit of the cluster, O(devices + links) of memory */

static bool node_of_type(const struct cluster *c, int32_t node, const char *type)
{
    const struct node_spec *n = &c->nodes[node];
    for (int32_t i = 0; i < n->n_devices; i++)
        if (strcmp(c->types[c->devices[n->first_device + i].type].name, type) != 0) return false;
    return n->n_devices > 0;
}

/* The nodes of the axis: by name, else by family, else by type. Returns their number. */
static int32_t find_nodes(const struct cluster *c, const char *name, int32_t *out)
{
    int32_t n = 0;
    for (int how = 0; how < 3 && !n; how++)
        for (int32_t i = 0; i < c->n_nodes; i++)
            if (how == 0   ? !strcmp(c->nodes[i].name, name)
                : how == 1 ? team_in_family(c->nodes[i].name, name)
                           : node_of_type(c, i, name))
                out[n++] = i;
    return n;
}

static enum status keep_devices(struct arena *a, const bool *keep, struct cluster *c,
                                const struct axis *x, struct error *err)
{
    int32_t left = 0;
    for (int32_t d = 0; d < c->n_devices; d++) left += keep[d];
    if (!left) return error_set(err, ERR_INFEASIBLE, "%s=0 leaves no device", x->name);
    team_part(a, c, keep, c);
    return OK;
}

static bool *all_devices(struct arena *a, const struct cluster *c)
{
    bool *keep = ARENA_ARRAY(a, bool, (size_t)c->n_devices);
    for (int32_t d = 0; d < c->n_devices; d++) keep[d] = true;
    return keep;
}

static enum status some_nodes(struct arena *a, const struct axis *x, int32_t wanted,
                              const struct profile *profile, struct cluster *c, struct error *err)
{
    int32_t *nodes = ARENA_ARRAY(a, int32_t, (size_t)c->n_nodes),
            n = find_nodes(c, x->object, nodes);
    if (!n)
        return error_set(
            err, ERR_INPUT,
            "--vary %s: no node, no nodes %.80s0, %.80s1 ... and no device type '%.80s'; "
            "nodes are: %s",
            x->name, x->object, x->object, x->object, team_node_names(a, c));
    if (wanted > n + NODES_ADDED_MAX)
        return error_set(err, ERR_INPUT,
                         "--vary %s=%d: the cluster has %d, and at most %d are added", x->name,
                         (int)wanted, (int)n, NODES_ADDED_MAX);
    if (wanted > n) {
        const char *model = c->nodes[nodes[n - 1]].name;
        TRY(team_state_links(a, profile, c, err));
        for (; n < wanted; n++)
            TRY(team_edit(a, c, &(struct team_change){TEAM_ADD, model, NULL}, c, err));
        return OK;
    }
    bool *keep = all_devices(a, c);
    for (int32_t i = wanted; i < n; i++)
        for (int32_t k = 0; k < c->nodes[nodes[i]].n_devices; k++)
            keep[c->nodes[nodes[i]].first_device + k] = false;
    return wanted < n ? keep_devices(a, keep, c, x, err) : OK;
}

static int32_t find_type(const struct cluster *c, const char *name)
{
    int32_t t = 0;
    while (t < c->n_types && strcmp(c->types[t].name, name) != 0) t++;
    return t < c->n_types ? t : -1;
}

static const char *type_names(struct arena *a, const struct cluster *c)
{
    const char *list = "";
    for (int32_t t = 0; t < c->n_types; t++)
        list = arena_printf(a, "%s%s%s", list, t ? ", " : "", c->types[t].name);
    return list;
}

static enum status some_devices(struct arena *a, const struct axis *x, int32_t wanted,
                                struct cluster *c, struct error *err)
{
    int32_t type = find_type(c, x->object), node = team_node(c, x->object), n = 0;
    bool *keep = all_devices(a, c);
    if (type < 0 && node < 0)
        return error_set(err, ERR_INPUT,
                         "--vary %s: no device type or node '%.80s'; types are: %s; nodes are: %s",
                         x->name, x->object, type_names(a, c), team_node_names(a, c));
    for (int32_t d = 0; d < c->n_devices; d++)
        if (type >= 0 ? c->devices[d].type == type : c->devices[d].node == node)
            keep[d] = n++ < wanted;
    if (n < wanted)
        return error_set(err, ERR_INPUT,
                         "--vary %s=%d: the cluster has %d; --vary nodes:NAME adds nodes", x->name,
                         (int)wanted, (int)n);
    return wanted < n ? keep_devices(a, keep, c, x, err) : OK;
}

static enum status set_price(struct arena *a, const struct axis *x, double price, struct cluster *c,
                             struct error *err)
{
    int32_t type = find_type(c, x->object);
    if (type < 0)
        return error_set(err, ERR_INPUT, "--vary %s: no device type '%.80s'; types are: %s",
                         x->name, x->object, type_names(a, c));
    struct device_type *types = ARENA_ARRAY(a, struct device_type, (size_t)c->n_types);
    memcpy(types, c->types, (size_t)c->n_types * sizeof *types);
    types[type].price_per_h = price, types[type].priced = true;
    c->types = types;
    return OK;
}

static enum status set_bandwidth(struct arena *a, const struct axis *x, double Bps,
                                 const struct profile *profile, struct cluster *c,
                                 struct error *err)
{
    const struct team_change change = {TEAM_LINK, arena_printf(a, "%s=%.17gB/s", x->object, Bps),
                                       NULL};
    return team_relink(a, profile, c, &change, c, err);
}

static enum status set_sequence(int64_t length, struct job *j, struct error *err)
{
    if (model_pixels(&j->model))
        return error_set(err, ERR_INPUT, "--vary sequence: model %.80s is of images",
                         j->model.name);
    if (length > j->model.max_positions)
        return error_set(err, ERR_INPUT,
                         "--vary sequence: %lld is longer than the %lld positions of model %.80s",
                         (long long)length, (long long)j->model.max_positions, j->model.name);
    j->sequence_length = length;
    return OK;
}

/* The job's microbatch sizes that divide the batch remain. */
static enum status set_batch(int64_t batch, struct job *j, struct error *err)
{
    int32_t n = 0;
    j->global_batch = batch;
    for (int32_t i = 0; i < j->n_microbatches_sizes; i++)
        if (batch % j->microbatch_sizes[i] == 0) j->microbatch_sizes[n++] = j->microbatch_sizes[i];
    bool none = j->n_microbatches_sizes && !n;
    if (none)
        return error_set(err, ERR_INFEASIBLE,
                         "no microbatch size of the job divides a batch of %lld (%lld does not)",
                         (long long)batch, (long long)j->microbatch_sizes[0]);
    j->n_microbatches_sizes = n;
    return OK;
}

enum status axis_apply(struct arena *a, const struct axis *x, int32_t at,
                       const struct profile *profile, struct job *j, struct cluster *c,
                       struct error *err)
{
    double value = x->values[at];
    switch (x->kind) {
    case AXIS_NODES:
        return some_nodes(a, x, (int32_t)value, profile, c, err);
    case AXIS_DEVICES:
        return some_devices(a, x, (int32_t)value, c, err);
    case AXIS_LINK:
        return set_bandwidth(a, x, value, profile, c, err);
    case AXIS_PRICE:
        return set_price(a, x, value, c, err);
    case AXIS_SEQUENCE:
        return set_sequence((int64_t)value, j, err);
    case AXIS_BATCH:
        return set_batch((int64_t)value, j, err);
    case AXIS_KIND_COUNT:
        break;
    }
    return OK;
}
