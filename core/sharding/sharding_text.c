/* core/sharding/sharding_text.c - `sharding:` of plan.yaml, read and written. */
#include "core/collective/rounds.h"
#include "core/sharding/sharding.h"

#include "core/base/arena.h"
#include "core/sharding/keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RATIOS_MAX = 4096, RULES_MAX = 1 << 16 }; /* a vector for each block of experts that popularity places */

static enum status read_mesh(const struct node *n, struct sharding *s, struct error *err)
{
    int64_t size, all = 1;
    s->n_axes = 1, s->mesh[0] = s->n_devices, s->mesh[1] = 1;
    if (!n) return OK;
    TRY(node_is(n, NODE_LIST, err));
    if (n->count < 1 || n->count > MESH_AXES_MAX)
        return node_error(n, err, "a mesh has one or two axes, not %zu", n->count);
    for (size_t i = 0; i < n->count; i++) {
        TRY(node_int(n->members[i], 1, s->n_devices, &size, err));
        s->mesh[i] = (int32_t)size;
        all *= size;
    }
    if (all != s->n_devices)
        return node_error(n, err, "a mesh of %" PRId64 " positions does not match the stage's %d devices", all,
                          s->n_devices);
    s->n_axes = (int32_t)n->count;
    return OK;
}

static enum status read_ratios(struct arena *a, const struct node *n, struct sharding *s,
                               struct error *err)
{
    size_t devices = (size_t)s->n_devices, vectors = 1;
    if (n) {
        TRY(node_is(n, NODE_LIST, err));
        if (n->count < 1 || n->count > RATIOS_MAX)
            return node_error(n, err, "%zu vectors; 1 to %d are possible", n->count, RATIOS_MAX);
        vectors = n->count;
    }
    double *ratios = ARENA_ARRAY(a, double, vectors *devices);
    s->n_ratios = (int32_t)vectors, s->ratios = ratios;
    for (size_t v = 0; v < vectors; v++) {
        double sum = 0;
        const struct node *vector = n ? n->members[v] : NULL;
        if (vector) TRY(node_is(vector, NODE_LIST, err));
        if (vector && vector->count != devices)
            return node_error(vector, err, "%zu ratios for %zu devices", vector->count, devices);
        for (size_t d = 0; d < devices; d++) {
            ratios[v * devices + d] = 1;
            if (vector)
                TRY(node_double(vector->members[d], 0, 1e12, &ratios[v * devices + d], err));
            sum += ratios[v * devices + d];
        }
        if (!(sum > 0)) return node_error(vector, err, "at least one ratio must be above 0");
    }
    return OK;
}

static enum status read_index(const struct node *n, enum op_index *out, struct error *err)
{
    const char *known[INDEX_COUNT + 1] = {0};
    int which;
    for (int i = 0; i < INDEX_COUNT; i++) known[i] = op_index_name((enum op_index)i);
    TRY(node_choice(n, known, &which, err));
    *out = (enum op_index)which;
    return OK;
}

/* One value for each axis, or, where that says the same, one for all. */
static enum status read_by_axis(const struct node *n, const struct sharding *s, struct error *err)
{
    if (n->kind == NODE_LIST && n->count != (size_t)s->n_axes)
        return node_error(n, err, "%zu value%s, the mesh has %d ax%s", n->count,
                          n->count == 1 ? "" : "s", s->n_axes, s->n_axes == 1 ? "is" : "es");
    return OK;
}

static const struct node *of_axis(const struct node *n, int32_t axis)
{
    return n->kind == NODE_LIST ? n->members[axis] : n;
}

static enum status read_match(const struct node *rule, const char **out, struct error *err)
{
    const struct node *n;
    TRY(node_need(rule, "match", &n, err));
    TRY(node_text(n, out, err));
    for (const char *c = *out; *c; c++)
        if (*c < ' ' || *c > '~') return node_error(n, err, "names have printable characters only");
    return OK;
}

static enum status read_operator(const struct node *n, const struct sharding *s,
                                 struct sharding_rule *out, struct error *err)
{
    const struct node *sharded, *ratio, *sufficient_factors;
    TRY(document_keys(n, sharding_operator_keys, err));
    TRY(read_match(n, &out->match, err));
    TRY(node_need(n, "shard", &sharded, err));
    TRY(read_by_axis(sharded, s, err));
    if ((ratio = node_get(n, "ratio"))) TRY(read_by_axis(ratio, s, err));
    for (int32_t x = 0; x < s->n_axes; x++) {
        int64_t number = 0;
        TRY(read_index(of_axis(sharded, x), &out->choice.index[x], err));
        if (ratio) TRY(node_int(of_axis(ratio, x), 0, s->n_ratios - 1, &number, err));
        out->choice.ratio[x] = (int32_t)number;
    }
    if (s->n_axes > 1 && sharded->kind != NODE_LIST && out->choice.index[0] != INDEX_none)
        return node_error(sharded, err,
                          "the mesh has two axes: write [%s, none], [none, %s] or another index for each",
                          op_index_name(out->choice.index[0]), op_index_name(out->choice.index[0]));
    if ((sufficient_factors = node_get(n, "sufficient_factors")))
        TRY(node_bool(sufficient_factors, &out->choice.sufficient_factors, err));
    out->node = n;
    return OK;
}

static enum status read_parameter(const struct node *n, struct sharding_rule *out,
                                  struct error *err)
{
    const struct node *sharded, *reshard;
    TRY(document_keys(n, sharding_parameter_keys, err));
    TRY(read_match(n, &out->match, err));
    out->sharded = true;
    if ((sharded = node_get(n, "sharded"))) TRY(node_bool(sharded, &out->sharded, err));
    reshard = node_get(n, "reshard_after_forward");
    if (!out->sharded && reshard)
        return node_error(reshard, err,
                          "a parameter that is not sharded has no reshard_after_forward");
    if (out->sharded) {
        TRY(node_need(n, "reshard_after_forward", &reshard, err));
        TRY(node_bool(reshard, &out->reshard_after_forward, err));
    }
    out->node = n;
    return OK;
}

static enum status read_rules(struct arena *a, const struct node *n, const struct sharding *s,
                              bool operators, const struct sharding_rule **out, int32_t *n_out,
                              struct error *err)
{
    *out = NULL, *n_out = 0;
    if (!n) return OK;
    TRY(node_is(n, NODE_LIST, err));
    if (n->count > RULES_MAX)
        return node_error(n, err, "%zu rules; %d are possible", n->count, RULES_MAX);
    struct sharding_rule *rules = ARENA_ARRAY(a, struct sharding_rule, n->count);
    for (size_t i = 0; i < n->count; i++)
        TRY(operators ? read_operator(n->members[i], s, &rules[i], err)
                      : read_parameter(n->members[i], &rules[i], err));
    *out = rules, *n_out = (int32_t)n->count;
    return OK;
}

enum status sharding_read_algorithm(const struct node *n, enum collective_kind kind, enum collective_algorithm *out, struct error *err)
{
    const char *algorithms[COLLECTIVE_ALGORITHM_COUNT + 1] = {NULL};
    int which, n_algorithms = 0;
    if (!n) return OK;
    for (int k = 0; k < COLLECTIVE_ALGORITHM_COUNT; k++)
        if (kind < COLLECTIVE_CALL_KINDS ? collective_in_calls(kind, (enum collective_algorithm)k)
                                         : collective_rounds_of((enum collective_algorithm)k)->round != NULL)
            algorithms[n_algorithms++] = collective_algorithm_names[k];
    TRY(node_choice(n, algorithms, &which, err));
    (void)collective_algorithm_parse(algorithms[which], out);
    return OK;
}

static enum status read_algorithm(const struct node *n, struct sharding_algorithm *out, struct error *err)
{
    const char *kinds[COLLECTIVE_CALL_KINDS + 1] = {NULL};
    const struct node *kind, *algorithm;
    int which;
    for (int k = 0; k < COLLECTIVE_CALL_KINDS; k++)
        kinds[k] = collective_kind_word((enum collective_kind)k);
    TRY(document_keys(n, sharding_collective_keys, err));
    TRY(read_match(n, &out->match, err));
    out->kind = COLLECTIVE_CALL_KINDS;
    if ((kind = node_get(n, "kind"))) {
        TRY(node_choice(kind, kinds, &which, err));
        out->kind = (enum collective_kind)which;
    }
    TRY(node_need(n, "algorithm", &algorithm, err));
    TRY(sharding_read_algorithm(algorithm, COLLECTIVE_CALL_KINDS, &out->algorithm, err));
    if (kind && !collective_in_calls(out->kind, out->algorithm))
        return node_error(algorithm, err, "%s does not support algorithm %s", collective_kind_word(out->kind),
                          collective_algorithm_name(out->algorithm));
    out->node = n;
    return OK;
}

static enum status read_algorithms(struct arena *a, const struct node *n, struct sharding *s,
                             struct error *err)
{
    if (!n) return OK;
    TRY(node_is(n, NODE_LIST, err));
    if (n->count > RULES_MAX)
        return node_error(n, err, "%zu rules; %d are possible", n->count, RULES_MAX);
    struct sharding_algorithm *algorithms = ARENA_ARRAY(a, struct sharding_algorithm, n->count);
    for (size_t i = 0; i < n->count; i++) TRY(read_algorithm(n->members[i], &algorithms[i], err));
    s->algorithms = algorithms, s->n_algorithms = (int32_t)n->count;
    return OK;
}

enum status sharding_read(struct arena *a, const struct node *node, int32_t n_devices,
                          struct sharding **out, struct error *err)
{
    struct sharding *s = ARENA_ARRAY(a, struct sharding, 1);
    s->n_devices = n_devices;
    TRY(document_keys(node, sharding_keys, err));
    TRY(read_mesh(node_get(node, "mesh"), s, err));
    TRY(read_ratios(a, node_get(node, "ratios"), s, err));
    TRY(read_rules(a, node_get(node, "operators"), s, true, &s->operators, &s->n_operators, err));
    TRY(read_rules(a, node_get(node, "parameters"), s, false, &s->parameters, &s->n_parameters,
                   err));
    TRY(read_algorithms(a, node_get(node, "collectives"), s, err));
    *out = s;
    return OK;
}

/* --- writing --- */

/* In quotes, so that "*" and numbers stay text. */
static const char *quoted(struct arena *a, const char *s)
{
    char *out = arena_alloc(a, 2 * strlen(s) + 3, 1), *to = out;
    *to++ = '"';
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') *to++ = '\\';
        *to++ = *s;
    }
    *to++ = '"', *to = '\0';
    return out;
}

/* The shortest digits that read back to the same. */
static const char *number(struct arena *a, double x)
{
    for (int digits = 1; digits < 17; digits++) {
        const char *text = arena_printf(a, "%.*g", digits, x);
        if (strtod(text, NULL) == x) return text;
    }
    return arena_printf(a, "%.17g", x);
}

static const char *operator_line(struct arena *a, const struct sharding *s,
                                 const struct sharding_rule *r)
{
    const struct op_choice *c = &r->choice;
    const char *x = op_index_name(c->index[0]), *text;
    if (s->n_axes > 1 && (c->index[0] != INDEX_none || c->index[1] != INDEX_none))
        x = arena_printf(a, "[%s, %s]", x, op_index_name(c->index[1]));
    text = arena_printf(a, "{match: %s, shard: %s", quoted(a, r->match), x);
    bool two = s->n_axes > 1 && c->ratio[0] != c->ratio[1];
    if (two)
        text = arena_printf(a, "%s, ratio: [%d, %d]", text, c->ratio[0], c->ratio[1]);
    else if (c->ratio[0])
        text = arena_printf(a, "%s, ratio: %d", text, c->ratio[0]);
    return arena_printf(a, "%s%s}", text, c->sufficient_factors ? ", sufficient_factors: true" : "");
}

const char *sharding_write(struct arena *a, const struct sharding *s, int32_t indent)
{
    const char *text = "", *all;
    if (s->n_axes > 1)
        text = arena_printf(a, "%*smesh: [%d, %d]\n", indent, "", s->mesh[0], s->mesh[1]);
    all = "";
    for (int32_t v = 0; v < s->n_ratios; v++) {
        const char *vector = "";
        for (int32_t d = 0; d < s->n_devices; d++)
            vector = arena_printf(a, "%s%s%s", vector, d ? ", " : "",
                                  number(a, s->ratios[v * s->n_devices + d]));
        all = arena_printf(a, "%s%s[%s]", all, v ? ", " : "", vector);
    }
    text = arena_printf(a, "%s%*sratios: [%s]\n", text, indent, "", all);
    if (s->n_operators) text = arena_printf(a, "%s%*soperators:\n", text, indent, "");
    for (int32_t r = 0; r < s->n_operators; r++)
        text = arena_printf(a, "%s%*s  - %s\n", text, indent, "",
                            operator_line(a, s, &s->operators[r]));
    if (s->n_parameters) text = arena_printf(a, "%s%*sparameters:\n", text, indent, "");
    for (int32_t r = 0; r < s->n_parameters; r++)
        text = arena_printf(
            a, "%s%*s  - {match: %s, %s}\n", text, indent, "", quoted(a, s->parameters[r].match),
            !s->parameters[r].sharded                ? "sharded: false"
            : s->parameters[r].reshard_after_forward ? "reshard_after_forward: true"
                                                     : "reshard_after_forward: false");
    if (s->n_algorithms) text = arena_printf(a, "%s%*scollectives:\n", text, indent, "");
    for (int32_t r = 0; r < s->n_algorithms; r++) {
        const struct sharding_algorithm *w = &s->algorithms[r];
        text = arena_printf(a, "%s%*s  - {match: %s, ", text, indent, "", quoted(a, w->match));
        if (w->kind != COLLECTIVE_CALL_KINDS)
            text = arena_printf(a, "%skind: %s, ", text, collective_kind_word(w->kind));
        text = arena_printf(a, "%salgorithm: %s}\n", text, collective_algorithm_name(w->algorithm));
    }
    return text;
}
