/* core/sharding/sharding.c - ratios to units, rules to choices and back.
 *
 * Reading and writing stand in sharding_text.c. A rule is for an operator that it matches by name and that has its index on
 * every axis. sharding_set_choices writes operators that differ from most of their class first, by their own names, then classes
 * by their patterns, and the most frequent choice last, "*". Patterns are right for every operator that no earlier rule names, so
 * their order among themselves does not matter.
 */
#include "core/sharding/sharding.h"

#include "core/base/arena.h"
#include "core/collective/rounds.h"

#include <stdio.h>
#include <string.h>

enum {
    DUES_KEPT = 256
}; /* of more members each due is worked out again whenever it is looked at */

void sharding_extents(int64_t n_units, const double *ratios, int32_t n, int64_t *out)
{
    double sum = 0, due[DUES_KEPT];
    int64_t left = n_units;
    for (int32_t i = 0; i < n; i++) sum += ratios[i];
    for (int32_t i = 0; i < n; i++) {
        double mine = sum > 0 ? (double)n_units * (ratios[i] / sum) : 0;
        if (i < DUES_KEPT) due[i] = mine;
        out[i] = (int64_t)mine;
        if (out[i] > left) out[i] = left; /* a due that rounding made an integer too large */
        left -= out[i];
    }
    for (; left > 0; left--) {
        int32_t most = -1;
        double deficit = 0;
        for (int32_t i = 0; i < n; i++) {
            double mine = i < DUES_KEPT ? due[i]
                          : sum > 0     ? (double)n_units * (ratios[i] / sum)
                                        : 0;
            double d = sum > 0 ? mine - (double)out[i] : 0;
            if (ratios[i] > 0 && (most < 0 || d > deficit)) most = i, deficit = d;
        }
        out[most < 0 ? 0 : most]++;
    }
}

int32_t sharding_place(const struct sharding *s, int32_t device, int32_t axis)
{
    if (axis >= s->n_axes) return 0;
    return axis + 1 == s->n_axes ? device % s->mesh[axis] : device / s->mesh[1];
}

void sharding_axis_ratios(const struct sharding *s, int32_t ratio, int32_t axis, double *out)
{
    const double *of = &s->ratios[ratio * s->n_devices];
    int32_t columns = s->mesh[s->n_axes - 1], rows = s->n_devices / columns;
    bool inner = axis + 1 == s->n_axes;
    for (int32_t k = 0; k < s->mesh[axis]; k++) out[k] = 0;
    for (int32_t i = 0; i < rows; i++)
        for (int32_t k = 0; k < columns; k++) out[inner ? k : i] += *of++;
}

void sharding_group(const struct sharding *s, int32_t device, int32_t axis, int32_t *out)
{
    int32_t step = axis + 1 == s->n_axes ? 1 : s->mesh[1];
    int32_t first = device - sharding_place(s, device, axis) * step;
    for (int32_t k = 0; k < s->mesh[axis]; k++) out[k] = first + k * step;
}

static const struct sharding_rule *copy_rules(struct arena *a, const struct sharding_rule *r,
                                              int32_t n)
{
    struct sharding_rule *copy = ARENA_ARRAY(a, struct sharding_rule, (size_t)n);
    for (int32_t k = 0; k < n; k++) {
        copy[k] = r[k];
        copy[k].match = arena_strdup(a, r[k].match), copy[k].node = NULL;
    }
    return copy;
}

const struct sharding *sharding_copy(struct arena *a, const struct sharding *s)
{
    struct sharding *copy = arena_copy(a, s, sizeof *s);
    size_t n = (size_t)(s->n_ratios * s->n_devices);
    copy->ratios = arena_copy(a, s->ratios, n * sizeof *s->ratios);
    copy->operators = copy_rules(a, s->operators, s->n_operators);
    copy->parameters = copy_rules(a, s->parameters, s->n_parameters);
    struct sharding_algorithm *algorithms =
        ARENA_ARRAY(a, struct sharding_algorithm, (size_t)s->n_algorithms);
    for (int32_t k = 0; k < s->n_algorithms; k++) {
        algorithms[k] = s->algorithms[k];
        algorithms[k].match = arena_strdup(a, s->algorithms[k].match), algorithms[k].node = NULL;
    }
    copy->algorithms = algorithms;
    return copy;
}

static bool same_choice(const struct op_choice *x, const struct op_choice *y)
{
    bool same = x->sufficient_factors == y->sufficient_factors;
    for (int k = 0; k < MESH_AXES_MAX; k++)
        same &= x->index[k] == y->index[k] && x->ratio[k] == y->ratio[k];
    return same;
}

static bool same_rules(const struct sharding_rule *x, const struct sharding_rule *y, int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        if (x[k].sharded != y[k].sharded ||
            x[k].reshard_after_forward != y[k].reshard_after_forward ||
            !same_choice(&x[k].choice, &y[k].choice) || strcmp(x[k].match, y[k].match) != 0)
            return false;
    return true;
}

bool sharding_equal(const struct sharding *x, const struct sharding *y)
{
    if (x == y) return true;
    if (x->n_devices != y->n_devices || x->n_axes != y->n_axes || x->n_ratios != y->n_ratios ||
        x->n_operators != y->n_operators || x->n_parameters != y->n_parameters ||
        x->n_algorithms != y->n_algorithms || memcmp(x->mesh, y->mesh, sizeof x->mesh) != 0)
        return false;
    for (int32_t k = 0; k < x->n_ratios * x->n_devices; k++)
        if (x->ratios[k] < y->ratios[k] || x->ratios[k] > y->ratios[k]) return false;
    for (int32_t k = 0; k < x->n_algorithms; k++) {
        const struct sharding_algorithm *a = &x->algorithms[k], *b = &y->algorithms[k];
        if (a->kind != b->kind || a->algorithm != b->algorithm || strcmp(a->match, b->match) != 0)
            return false;
    }
    return same_rules(x->operators, y->operators, x->n_operators) &&
           same_rules(x->parameters, y->parameters, x->n_parameters);
}

struct sharding *sharding_of_index(struct arena *a, enum op_index index, const double *ratios,
                                   int32_t n_devices)
{
    struct sharding *s = ARENA_ARRAY(a, struct sharding, 1);
    struct sharding_rule *all = ARENA_ARRAY(a, struct sharding_rule, 1);
    double *all_ratios = ARENA_ARRAY(a, double, (size_t)n_devices);
    for (int32_t d = 0; d < n_devices; d++) all_ratios[d] = ratios ? ratios[d] : 1;
    *all = (struct sharding_rule){.match = "*", .choice.index = {index}};
    *s = (struct sharding){.n_devices = n_devices,
                           .n_axes = 1,
                           .mesh = {n_devices, 1},
                           .n_ratios = 1,
                           .ratios = all_ratios,
                           .n_operators = 1,
                           .operators = all};
    return s;
}

/* --- rules to choices --- */

/* Greedy, with one step of backtracking. */
bool sharding_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name) {
        if (*pattern == '*')
            star = ++pattern, retry = name;
        else if (*pattern == *name)
            pattern++, name++;
        else if (star)
            pattern = star, name = ++retry;
        else
            return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

int32_t sharding_algorithm_for(const struct sharding *s, const char *name,
                               enum collective_kind kind, int32_t n, bool tiers)
{
    for (int32_t k = 0; k < s->n_algorithms; k++) {
        const struct sharding_algorithm *w = &s->algorithms[k];
        bool can =
            collective_in_calls(kind, w->algorithm) && !collective_misfit(w->algorithm, n, tiers);
        if (can && (w->kind == kind || w->kind == COLLECTIVE_CALL_KINDS) &&
            sharding_matches(w->match, name))
            return k;
    }
    return -1;
}

/* Shards of one size go round in a ring that wastes nothing; others from each to each. */
enum collective_algorithm sharding_default_algorithm(enum collective_kind kind, bool even)
{
    if (kind == COLLECTIVE_ALL_REDUCE) return ALGORITHM_RING;
    return kind == COLLECTIVE_ALL_TO_ALL || !even ? ALGORITHM_PAIRS : ALGORITHM_RING;
}

/* Does nobody else in the graph read it? */
static bool read_once(const struct graph *g, int32_t tensor)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_forward && n < 2; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) n += g->ops[i].input[k] == tensor;
    return n == 1;
}

uint8_t sharding_factor_axes(const struct sharding *s, const struct graph *g,
                             const struct graph_op *op, const struct grain *grains,
                             const struct op_choice *choice)
{
    uint8_t axes = 0;
    if (op->kind != OP_matmul || g->tensors[op->input[1]].role != TENSOR_PARAMETER) return 0;
    for (int32_t x = 0; x < s->n_axes; x++) {
        struct op_sharding sharded;
        struct error none = {0};
        if (s->mesh[x] < 2) continue;
        if (op_sharding_by(g, op, grains, choice->index[x], &sharded, &none) != OK) return 0;
        if (sharded.input[1].gradient_partial) axes |= (uint8_t)(1 << x);
    }
    return axes && read_once(g, op->input[1]) ? axes : 0;
}

/* Has the operator what the choice says? Then *out says it in the operator's own words. */
static bool applies(const struct sharding *s, const struct graph *g, const struct graph_op *op,
                    const struct grain *grains, const struct op_choice *choice,
                    struct op_choice *out)
{
    *out = *choice;
    for (int32_t x = 0; x < s->n_axes; x++) {
        out->index[x] = op_index_meant(g, op, grains, choice->index[x]);
        if (out->index[x] == INDEX_COUNT) return false;
    }
    return !choice->sufficient_factors || sharding_factor_axes(s, g, op, grains, out);
}

static enum status rule_error(const struct sharding_rule *r, struct error *err, const char *text)
{
    if (r->node) return node_error(r->node, err, "%s", text);
    return error_set(err, ERR_INPUT, "sharding, rule \"%s\": %s", r->match, text);
}

/* No operator can be sharded by the index of the rule: lists the indices by which the matching operators can be. */
static enum status useless(struct arena *a, const struct sharding *s, const struct graph *g,
                           const struct grain *grains, const struct sharding_rule *r,
                           struct error *err)
{
    const char *wanted = op_index_name(r->choice.index[0]);
    if (s->n_axes > 1)
        wanted = arena_printf(a, "[%s, %s]", wanted, op_index_name(r->choice.index[1]));
    if (r->choice.sufficient_factors)
        wanted = arena_printf(a,
                              "%s with sufficient factors (only matmuls by an unshared parameter "
                              "sharded by batch or positions have them)",
                              wanted);
    int32_t n = 0;
    const struct graph_op *first = NULL, *last = NULL;
    uint32_t set = 0, common = UINT32_MAX;
    for (int32_t i = 0; i < g->n_forward; i++) {
        if (!sharding_matches(r->match, g->ops[i].name)) continue;
        last = &g->ops[i], n++;
        if (!first) first = last;
        set |= op_index_set(g, last, grains), common &= op_index_set(g, last, grains);
    }
    if (n) {
        const char *list = "none";
        for (int k = 1; k < INDEX_COUNT; k++)
            if (set >> k & 1)
                list = arena_printf(a, "%s, %s", list, op_index_name((enum op_index)k));
        const char *who = arena_printf(a, "'%s' (%s)", first->name, op_kind_name(first->kind));
        if (n > 1) who = arena_printf(a, "its %d, '%s' … '%s',", (int)n, first->name, last->name);
        return rule_error(r, err,
                          arena_printf(a,
                                       "no operator that \"%s\" matches can be sharded by %s; %s "
                                       "can%s by %s",
                                       r->match, wanted, who,
                                       set != common ? ", one or another," : "", list));
    }
    return rule_error(r, err,
                      arena_printf(a, "\"%s\" matches no operator; their names are '%s' … '%s'",
                                   r->match, g->ops[0].name, g->ops[g->n_forward - 1].name));
}

bool sharding_reshards(const struct sharding *s, const char *parameter)
{
    for (int32_t r = 0; r < s->n_parameters; r++)
        if (sharding_matches(s->parameters[r].match, parameter))
            return s->parameters[r].reshard_after_forward;
    return false;
}

static enum status resolve_parameters(struct arena *a, const struct sharding *s,
                                      const struct graph *g, bool *gathered, struct error *err)
{
    for (int32_t t = 0; t < g->n_tensors; t++)
        for (int32_t r = 0; r < s->n_parameters && g->tensors[t].role == TENSOR_PARAMETER; r++) {
            if (!sharding_matches(s->parameters[r].match, g->tensors[t].name)) continue;
            gathered[t] = s->parameters[r].sharded;
            break;
        }
    for (int32_t r = 0; r < s->n_parameters; r++) {
        bool any = false;
        const char *first = NULL;
        for (int32_t t = 0; t < g->n_tensors; t++) {
            if (g->tensors[t].role != TENSOR_PARAMETER) continue;
            if (!first) first = g->tensors[t].name;
            any = any || sharding_matches(s->parameters[r].match, g->tensors[t].name);
        }
        if (!any)
            return rule_error(&s->parameters[r], err,
                              arena_printf(a, "\"%s\" matches no parameter; their names are '%s' …",
                                           s->parameters[r].match, first ? first : ""));
    }
    return OK;
}

enum status sharding_resolve(struct arena *a, const struct sharding *s, const struct graph *g,
                             const struct op_choice **choices, const bool **gathered,
                             struct error *err)
{
    const struct grain *grains = graph_grains(a, g);
    struct op_choice *out = ARENA_ARRAY(a, struct op_choice, (size_t)g->n_forward);
    bool *used = ARENA_ARRAY(a, bool, (size_t)s->n_operators);
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t r = 0, taken = 0; r < s->n_operators; r++) {
            struct op_choice choice;
            if (taken && used[r]) continue;
            if (!sharding_matches(s->operators[r].match, g->ops[i].name)) continue;
            if (!applies(s, g, &g->ops[i], grains, &s->operators[r].choice, &choice)) continue;
            if (!taken) out[i] = choice;
            used[r] = true, taken = 1;
        }
    for (int32_t r = 0; r < s->n_operators; r++)
        if (!used[r]) return useless(a, s, g, grains, &s->operators[r], err);
    bool *g_out = ARENA_ARRAY(a, bool, (size_t)g->n_tensors);
    TRY(resolve_parameters(a, s, g, g_out, err));
    *choices = out, *gathered = g_out;
    return OK;
}

/* --- choices to rules --- */

const char *sharding_pattern(struct arena *a, const char *name)
{
    char *out = arena_strdup(a, name), *to = out;
    for (const char *p = name; *p;) {
        size_t n = strspn(p, "0123456789");
        bool number = n && (p == name || p[-1] == '.') && (p[n] == '.' || !p[n]);
        if (number)
            *to++ = '*', p += n;
        else
            *to++ = *p++;
    }
    *to = '\0';
    return out;
}

bool op_choice_equal(const struct op_choice *x, const struct op_choice *y, int32_t n_axes)
{
    if (x->sufficient_factors != y->sufficient_factors) return false;
    for (int32_t k = 0; k < n_axes; k++) {
        bool dealt = x->index[k] != INDEX_none && x->index[k] != INDEX_partial;
        if (x->index[k] != y->index[k] || (dealt && x->ratio[k] != y->ratio[k])) return false;
    }
    return true;
}

static bool is_none(const struct sharding *s, const struct op_choice *x)
{
    return op_choice_equal(x, &(struct op_choice){0}, s->n_axes);
}

struct classes { /* operators whose names have one pattern */
    int32_t n;
    int32_t *of;          /* (n_forward) */
    const char **pattern; /* (n) */
    int32_t *first;       /* (n) operator */
    int32_t *usual;       /* (n) the first operator with the choice of most of them */
    bool *
        agree; /* (n) no operator of another class that the pattern is for has another choice than the usual one */
};

/* The first operator of the class with the choice of most of them. */
static int32_t usual_of(const struct sharding *s, const struct classes *c, int32_t k, int32_t n_ops,
                        const struct op_choice *choices)
{
    int32_t best = c->first[k], most = 0;
    for (int32_t i = c->first[k]; i < n_ops; i++) {
        int32_t n = 0;
        if (c->of[i] != k || (most && op_choice_equal(&choices[i], &choices[best], s->n_axes)))
            continue;
        for (int32_t j = i; j < n_ops; j++)
            n += c->of[j] == k && op_choice_equal(&choices[i], &choices[j], s->n_axes);
        if (n > most) best = i, most = n;
    }
    return best;
}

static struct classes classes_of(struct arena *a, const struct sharding *s, const struct graph *g,
                                 const struct grain *grains, const struct op_choice *choices)
{
    size_t n = (size_t)g->n_forward;
    struct classes c = {.of = ARENA_ARRAY(a, int32_t, n),
                        .pattern = ARENA_ARRAY(a, const char *, n),
                        .first = ARENA_ARRAY(a, int32_t, n),
                        .usual = ARENA_ARRAY(a, int32_t, n),
                        .agree = ARENA_ARRAY(a, bool, n)};
    for (int32_t i = 0; i < g->n_forward; i++) {
        const char *pattern = sharding_pattern(a, g->ops[i].name);
        int32_t k = 0;
        while (k < c.n && strcmp(c.pattern[k], pattern) != 0) k++;
        if (k == c.n) c.pattern[k] = pattern, c.first[k] = i, c.agree[k] = true, c.n++;
        c.of[i] = k;
    }
    for (int32_t k = 0; k < c.n; k++) {
        const struct op_choice *usual =
            &choices[c.usual[k] = usual_of(s, &c, k, g->n_forward, choices)];
        for (int32_t i = 0; i < g->n_forward && c.agree[k]; i++) {
            struct op_choice said;
            if (c.of[i] == k || !sharding_matches(c.pattern[k], g->ops[i].name)) continue;
            if (applies(s, g, &g->ops[i], grains, usual, &said))
                c.agree[k] = op_choice_equal(&choices[i], usual, s->n_axes);
        }
    }
    return c;
}

/* The choice of most classes; ties to the earlier. */
static struct op_choice usual(const struct sharding *s, const struct classes *c,
                              const struct op_choice *choices)
{
    int32_t best = 0, most = 0;
    for (int32_t k = 0; k < c->n; k++) {
        int32_t n = 0;
        for (int32_t j = 0; j < c->n; j++)
            n += op_choice_equal(&choices[c->first[j]], &choices[c->first[k]], s->n_axes);
        if (n > most) best = k, most = n;
    }
    return choices[c->first[best]];
}

/* Whether the last rule, "*" by the choice `rest`, gives operator i its choice. */
static bool covered_by(const struct sharding *s, const struct graph *g, int32_t i,
                       const struct grain *grains, const struct op_choice *rest,
                       const struct op_choice *choices)
{
    struct op_choice said;
    return applies(s, g, &g->ops[i], grains, rest, &said)
               ? op_choice_equal(&said, &choices[i], s->n_axes)
               : is_none(s, &choices[i]);
}

/* Rules of the gathered parameters: a pattern where all parameters that it matches are gathered, else the name. */
static void set_parameters(struct arena *a, struct sharding *s, const struct graph *g,
                           const bool *gathered)
{
    struct sharding_rule *rules = ARENA_ARRAY(a, struct sharding_rule, (size_t)g->n_tensors);
    int32_t n = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const char *match = sharding_pattern(a, g->tensors[t].name);
        bool all = true, known = false;
        if (!gathered[t]) continue;
        for (int32_t k = 0; k < n && !known; k++) known = !strcmp(rules[k].match, match);
        for (int32_t u = 0; u < g->n_tensors && all && !known; u++)
            all = gathered[u] || g->tensors[u].role != TENSOR_PARAMETER ||
                  !sharding_matches(match, g->tensors[u].name);
        if (known) continue;
        rules[n++] =
            (struct sharding_rule){.match = all ? match : g->tensors[t].name, .sharded = true};
    }
    s->n_parameters = n, s->parameters = rules;
}

void sharding_set_choices(struct arena *a, struct sharding *s, const struct graph *g,
                          const struct op_choice *choices, const bool *gathered)
{
    const struct grain *grains = graph_grains(a, g);
    struct classes c = classes_of(a, s, g, grains, choices);
    struct op_choice rest = usual(s, &c, choices);
    struct sharding_rule *rules = ARENA_ARRAY(a, struct sharding_rule, (size_t)g->n_forward + 1);
    bool *named = ARENA_ARRAY(a, bool, (size_t)g->n_forward),
         *needed = ARENA_ARRAY(a, bool, (size_t)c.n);
    int32_t n = 0;
    /* Rules of single operators first: of those that differ from the usual choice of their class. */
    for (int32_t i = 0; i < g->n_forward; i++) {
        int32_t k = c.of[i];
        bool covered = covered_by(s, g, i, grains, &rest, choices);
        named[i] =
            c.agree[k] ? !op_choice_equal(&choices[i], &choices[c.usual[k]], s->n_axes) : !covered;
        /* may differ within a class only by what an operator can do */
        needed[k] = needed[k] || (c.agree[k] && !named[i] && !covered);
    }
    for (int32_t i = 0; i < g->n_forward; i++)
        if (named[i] &&
            (needed[c.of[i]] || !c.agree[c.of[i]] || !covered_by(s, g, i, grains, &rest, choices)))
            rules[n++] = (struct sharding_rule){.match = g->ops[i].name, .choice = choices[i]};
    for (int32_t k = 0; k < c.n; k++)
        if (needed[k])
            rules[n++] =
                (struct sharding_rule){.match = c.pattern[k], .choice = choices[c.usual[k]]};
    if (!is_none(s, &rest) || !n) rules[n++] = (struct sharding_rule){.match = "*", .choice = rest};
    s->n_operators = n, s->operators = rules;
    s->n_parameters = 0;
    if (gathered) set_parameters(a, s, g, gathered);
}
