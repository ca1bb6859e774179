#include "tools/print/sharding.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/units.h"
#include "core/collective/tensor_shard.h"
#include "tools/common.h"
#include "tools/print/classes.h"

#include <stdio.h>
#include <string.h>

struct printed { /* rules of a stage */
    int32_t replica, stage;
    const char *rules;
};

struct sharding_report {
    struct arena *a;
    bool all;
    struct printed *printed; /* (sharded stages) distinct rules, in the order printed */
    int32_t n_printed;
    const struct plan *plan;
    const struct program *program; /* NULL: lowering failed, see why */
    const char *why;
};

/* One stage of the plan that shards operators. */
struct shared {
    int32_t replica, stage;
    const struct plan_stage *x;
    int64_t whole;  /* bytes of all parameters of the stage; each once */
    int64_t *bytes; /* (devices) of them on each device */
};

static const char *device_of(const struct sharding_report *t, const struct shared *x, int32_t k)
{
    return t->plan->cluster.devices[x->x->devices[k]].name;
}

/* With ZeRO the shape of a parameter is that before sharding. A program counts the used devices only. */
static void measure(const struct sharding_report *t, struct shared *x)
{
    x->bytes = ARENA_ARRAY(t->a, int64_t, (size_t)x->x->n_shards);
    x->whole = 0;
    for (int32_t i = 0; t->program && i < t->program->n_stages; i++) {
        const struct program_stage *s = &t->program->stages[i];
        int32_t k = 0;
        if (s->replica != x->replica || s->stage != x->stage) continue;
        const char *name = t->program->devices[s->device].name;
        while (k < x->x->n_shards && strcmp(device_of(t, x, k), name) != 0) k++;
        if (k == x->x->n_shards) continue;
        int64_t whole = 0;
        for (int32_t q = 0; q < s->n_parameters; q++) {
            const struct program_parameter *w = &s->parameters[q];
            const struct slot *slot = w->slot >= 0 ? &s->slots[w->slot] : NULL;
            int64_t size = dtype_bytes(slot ? slot->dtype : t->plan->job.precision);
            struct shape all = tensor_shard_whole(&w->shape, slot ? slot->shard : NULL);
            x->bytes[k] += shape_elements(&w->shape) * size;
            whole += shape_elements(&all) * size;
        }
        if (whole > x->whole) x->whole = whole;
    }
}

/* --- text --- */

/* "heads", "batch x heads", with the index of the ratio vector unless it is the first. */
static const char *choice_text(struct arena *a, const struct sharding *s, const struct op_choice *c)
{
    const char *text = "";
    for (int32_t k = 0; k < s->n_axes; k++) {
        text = arena_printf(a, "%s%s%s", text, k ? " x " : "", op_index_name(c->index[k]));
        if (c->ratio[k]) text = arena_printf(a, "%s (ratios %d)", text, (int)c->ratio[k]);
    }
    return c->sufficient_factors ? arena_printf(a, "%s, sufficient factors", text) : text;
}

enum { MATCHES_SHOWN = 3, RUNS_SHOWN = 6 };

/* "layers.*.w1, layers.*.w3, layers.*.silu and 4 more" of patterns with the same choice. */
static const char *matches_text(const struct sharding_report *t, const struct sharding *s,
                                const char *const *choices, int32_t first)
{
    const char *text = "";
    int32_t n = 0;
    for (int32_t k = first; k < s->n_operators; k++) {
        if (strcmp(choices[k], choices[first]) != 0) continue;
        if (t->all || n < MATCHES_SHOWN)
            text = arena_printf(t->a, "%s%s%s", text, n ? ", " : "", s->operators[k].match);
        n++;
    }
    if (t->all || n <= MATCHES_SHOWN) return text;
    return arena_printf(t->a, "%s and %d more", text, (int)(n - MATCHES_SHOWN));
}

/* Patterns with the same choice on one line, in the order of the first of each. */
static const char *operators_text(const struct sharding_report *t, const struct sharding *s)
{
    const char **choices = ARENA_ARRAY(t->a, const char *, (size_t)s->n_operators), *text = "";
    for (int32_t r = 0; r < s->n_operators; r++)
        choices[r] = choice_text(t->a, s, &s->operators[r].choice);
    for (int32_t r = 0; r < s->n_operators; r++) {
        int32_t first = 0;
        while (strcmp(choices[first], choices[r]) != 0) first++;
        if (first < r) continue;
        text = arena_printf(t->a, "%s    %-22s %s\n", text, choices[r],
                            matches_text(t, s, choices, r));
    }
    return text;
}

static const char *devices_text(const struct sharding_report *t, const struct shared *x)
{
    const char **names = ARENA_ARRAY(t->a, const char *, (size_t)x->x->n_shards);
    for (int32_t k = 0; k < x->x->n_shards; k++) names[k] = device_of(t, x, k);
    return ranges_of_names(t->a, names, (size_t)x->x->n_shards, RUNS_SHOWN);
}

/* "12.5 % each", or "n.0 75 %, n.1 25 %" with equal shares of several devices together; part: (n_shards) of whole. */
static const char *shares_text(const struct sharding_report *t, const struct shared *x,
                               const double *part, double whole)
{
    const int32_t n = x->x->n_shards;
    const char **shares = ARENA_ARRAY(t->a, const char *, (size_t)n), *text = "";
    const char **names = ARENA_ARRAY(t->a, const char *, (size_t)n);
    for (int32_t k = 0; k < n; k++)
        shares[k] = arena_printf(t->a, "%.3g %%", whole > 0 ? 100 * part[k] / whole : 0.0);
    for (int32_t k = 0; k < n; k++) {
        int32_t first = 0, found = 0;
        while (strcmp(shares[first], shares[k]) != 0) first++;
        if (first < k) continue;
        for (int32_t i = k; i < n; i++)
            if (!strcmp(shares[i], shares[k])) names[found++] = device_of(t, x, i);
        if (found == n && n > 1) return arena_printf(t->a, "%s each", shares[k]);
        text = arena_printf(t->a, "%s%s%s %s%s", text, k ? ", " : "",
                            ranges_of_names(t->a, names, (size_t)found, RUNS_SHOWN), shares[k],
                            found > 1 ? " each" : "");
    }
    return text;
}

static const char *ratios_text(const struct sharding_report *t, const struct shared *x)
{
    const struct sharding *s = x->x->sharding;
    const char *text = "";
    for (int32_t v = 0; v < s->n_ratios; v++) {
        const double *ratio = &s->ratios[v * s->n_devices];
        double sum = 0;
        for (int32_t d = 0; d < s->n_devices; d++) sum += ratio[d];
        text = arena_printf(t->a, "%s    %-22s %s\n", text,
                            v ? arena_printf(t->a, "ratios %d", (int)v) : "ratios",
                            shares_text(t, x, ratio, sum));
    }
    return text;
}

static const char *storage_text(struct arena *a, const struct sharding *s)
{
    const char *text = "";
    for (int32_t r = 0; r < s->n_parameters; r++)
        text = arena_printf(a, "%s    %-22s %s\n", text,
                            !s->parameters[r].sharded                ? "replicated"
                            : s->parameters[r].reshard_after_forward ? "reshard after forward"
                                                                     : "sharded",
                            s->parameters[r].match);
    for (int32_t r = 0; r < s->n_algorithms; r++) {
        const struct sharding_algorithm *w = &s->algorithms[r];
        bool kind = w->kind < COLLECTIVE_CALL_KINDS;
        text = arena_printf(
            a, "%s    %-22s %s%s%s\n", text,
            arena_printf(a, "by %s", collective_algorithm_name(w->algorithm)),
            kind ? collective_kind_word(w->kind) : "", kind ? " " : "", w->match);
    }
    return text;
}

static void print_parameters(const struct sharding_report *t, const struct shared *x)
{
    char text[32];
    double *bytes = ARENA_ARRAY(t->a, double, (size_t)x->x->n_shards);
    printf("    %-22s ", "parameters");
    if (!t->program) printf("not known: %s\n", t->why);
    if (!t->program) return;
    for (int32_t k = 0; k < x->x->n_shards; k++) bytes[k] = (double)x->bytes[k];
    printf("%s of %s\n", shares_text(t, x, bytes, (double)x->whole),
           units_print_bytes(text, (double)x->whole));
}

/* Stages with the rules of an earlier one name it. */
static void print_one(struct sharding_report *t, const struct shared *x)
{
    const struct sharding *s = x->x->sharding;
    int32_t k = 0;
    const char *rules = arena_printf(t->a, "%s%s%s", ratios_text(t, x), operators_text(t, s),
                                     storage_text(t->a, s));
    printf("  replica %d, stage %d: layers %d-%d on %s", (int)x->replica, (int)x->stage,
           (int)x->x->first_layer, (int)x->x->last_layer, devices_text(t, x));
    if (s->n_axes > 1) printf(", a mesh of %d x %d", (int)s->mesh[0], (int)s->mesh[1]);
    puts("");
    while (k < t->n_printed && strcmp(t->printed[k].rules, rules) != 0) k++;
    if (k < t->n_printed)
        printf("    %-22s replica %d, stage %d\n", "ratios, operators as",
               (int)t->printed[k].replica, (int)t->printed[k].stage);
    else
        printf("%s", rules);
    if (k == t->n_printed) t->printed[t->n_printed++] = (struct printed){x->replica, x->stage, rules};
    print_parameters(t, x);
}

/* --- JSON --- */

static void put_rules(struct json *j, const struct sharding *s)
{
    json_put_list(j, "operators");
    for (int32_t r = 0; r < s->n_operators; r++) {
        const struct sharding_rule *x = &s->operators[r];
        json_put_object_line(j, NULL);
        json_put_text(j, "match", x->match);
        json_put_list_line(j, "shard");
        for (int32_t k = 0; k < s->n_axes; k++)
            json_put_text(j, NULL, op_index_name(x->choice.index[k]));
        json_close(j);
        json_put_list_line(j, "ratio");
        for (int32_t k = 0; k < s->n_axes; k++) json_put_int(j, NULL, x->choice.ratio[k]);
        json_close(j);
        json_put_bool(j, "sufficient_factors", x->choice.sufficient_factors);
        json_close(j);
    }
    json_close(j);
    json_put_list(j, "parameters");
    for (int32_t r = 0; r < s->n_parameters; r++) {
        json_put_object_line(j, NULL);
        json_put_text(j, "match", s->parameters[r].match);
        json_put_bool(j, "sharded", s->parameters[r].sharded);
        json_put_bool(j, "reshard_after_forward", s->parameters[r].reshard_after_forward);
        json_close(j);
    }
    json_close(j);
    json_put_list(j, "collectives");
    for (int32_t r = 0; r < s->n_algorithms; r++) {
        const struct sharding_algorithm *w = &s->algorithms[r];
        json_put_object_line(j, NULL);
        json_put_text(j, "match", w->match);
        json_put_text(j, "kind",
                      w->kind < COLLECTIVE_CALL_KINDS ? collective_kind_word(w->kind) : NULL);
        json_put_text(j, "algorithm", collective_algorithm_name(w->algorithm));
        json_close(j);
    }
    json_close(j);
}

static void put_one(const struct sharding_report *t, const struct shared *x, struct json *j)
{
    const struct sharding *s = x->x->sharding;
    json_put_object(j, NULL);
    json_put_int(j, "replica", x->replica);
    json_put_int(j, "stage", x->stage);
    json_put_list_line(j, "devices");
    for (int32_t k = 0; k < x->x->n_shards; k++) json_put_text(j, NULL, device_of(t, x, k));
    json_close(j);
    json_put_list_line(j, "mesh");
    for (int32_t k = 0; k < s->n_axes; k++) json_put_int(j, NULL, s->mesh[k]);
    json_close(j);
    json_put_list(j, "ratios");
    for (int32_t v = 0; v < s->n_ratios; v++) {
        json_put_list_line(j, NULL);
        for (int32_t d = 0; d < s->n_devices; d++)
            json_put_double(j, NULL, s->ratios[v * s->n_devices + d]);
        json_close(j);
    }
    json_close(j);
    put_rules(j, s);
    if (t->program) {
        json_put_int(j, "bytes_parameters", x->whole);
        json_put_list_line(j, "bytes_parameters_of");
        for (int32_t k = 0; k < x->x->n_shards; k++) json_put_int(j, NULL, x->bytes[k]);
        json_close(j);
    } else {
        json_put_text(j, "why", t->why);
    }
    json_close(j);
}

/* --- folded text --- */

/* "ratios 25 %, 75 %; heads: *.attn.*; batch: *": a stage's sharding without the names of its devices. */
static const char *kind_text(struct arena *a, const struct plan_stage *stage)
{
    const struct sharding *s = stage->sharding;
    const char *text = s->n_axes > 1
                           ? arena_printf(a, "a mesh of %d x %d", (int)s->mesh[0], (int)s->mesh[1])
                           : arena_printf(a, "%d devices", (int)s->n_devices);
    for (int32_t v = 0; v < s->n_ratios; v++) {
        double sum = 0;
        for (int32_t d = 0; d < s->n_devices; d++) sum += s->ratios[v * s->n_devices + d];
        for (int32_t d = 0; d < s->n_devices; d++)
            text = arena_printf(a, "%s%s %.3g %%", text, d ? "," : "; ratios",
                                100 * s->ratios[v * s->n_devices + d] / sum);
    }
    for (int32_t r = 0; r < s->n_operators; r++)
        text = arena_printf(a, "%s; %s: %s", text, choice_text(a, s, &s->operators[r].choice),
                            s->operators[r].match);
    for (int32_t r = 0; r < s->n_parameters; r++)
        text = arena_printf(a, "%s; parameters %s %s", text,
                            s->parameters[r].sharded ? "sharded" : "replicated",
                            s->parameters[r].match);
    return text;
}

enum { KIND_MAX = 160 };

/* One line for the stages of one kind of sharding, of all replicas: how many they are. */
static void print_kinds(struct arena *a, const struct plan *p, int32_t n_stages)
{
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)n_stages + 1);
    const char **names = ARENA_ARRAY(a, const char *, (size_t)n_stages + 1);
    struct print_class *x;
    int32_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            if (!p->replicas[r].stages[i].sharding) continue;
            names[n] = arena_printf(a, "%d.%d", (int)r, (int)i);
            texts[n++] = kind_text(a, &p->replicas[r].stages[i]);
        }
    int32_t kinds = print_classes(a, n, names, texts, false, &x);
    for (int32_t k = 0; k < kinds && k < PRINT_CLASSES_MOST; k++)
        printf("  %d sharded stage%s: %s\n", (int)x[k].n, x[k].n > 1 ? "s" : "",
               print_cut(a, x[k].text, KIND_MAX));
    if (kinds > PRINT_CLASSES_MOST)
        printf("  and sharded stages of %d more kinds (--all)\n",
               (int)(kinds - PRINT_CLASSES_MOST));
}

static int32_t sharded_stages(const struct plan *p)
{
    int32_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            n += p->replicas[r].stages[i].sharding != NULL;
    return n;
}

void print_sharding(struct arena *a, const struct plan *p, bool all, struct json *out)
{
    struct sharding_report t = {.a = a, .plan = p, .all = all};
    struct program *program = ARENA_ARRAY(a, struct program, 1);
    struct error why = {0};
    int32_t stages = sharded_stages(p);
    if (!out && !all && stages > PRINT_ROWS_ONE_BY_ONE) {
        print_kinds(a, p, stages);
        return;
    }
    if (out) json_put_list(out, "sharding");
    t.printed = ARENA_ARRAY(a, struct printed, (size_t)stages + 1);
    if (stages && common_lower(a, p, false, program, &why) == OK) t.program = program;
    t.why = arena_strdup(a, why.text);
    struct plan_class *classes;
    int32_t n = all ? p->n_replicas : plan_classes(a, p, &classes);
    for (int32_t k = 0; k < n; k++) {
        int32_t r = all ? k : classes[k].replicas[0];
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct shared x = {.replica = r, .stage = i, .x = &p->replicas[r].stages[i]};
            if (!x.x->sharding) continue;
            measure(&t, &x);
            if (out)
                put_one(&t, &x, out);
            else
                print_one(&t, &x);
        }
    }
    if (out) json_close(out);
}

/* --- shards of ZeRO inside nodes --- */

static bool has_hybrid_shard(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
            if (p->replicas[r].stages[s].hybrid_shard) return true;
    return false;
}

static bool of_hybrid_shard(const struct plan *p, const struct program *g, const struct collective *c)
{
    const struct program_stage *s = &g->stages[c->members[0].stage];
    return c->kind == COLLECTIVE_REDUCE_SCATTER && !c->whole.rank && p->replicas[s->replica].stages[s->stage].hybrid_shard;
}

/* Groups of all parts of the cluster that hold a shard each have the name of the first one. */
static int32_t named(const struct plan *p, const struct program *g, const char *name)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_collectives; i++)
        n += of_hybrid_shard(p, g, &g->collectives[i]) && !strcmp(g->collectives[i].name, name);
    return n;
}

void print_shard_groups(struct arena *a, const struct plan *p, struct json *out)
{
    struct program g;
    struct error why = {0};
    if (!has_hybrid_shard(p)) return;
    if (out) json_put_list(out, "shard_groups");
    bool lowered = common_lower(a, p, false, &g, &why) == OK;
    if (!lowered && !out) printf("  hybrid_shard: %s\n", why.text);
    for (int32_t i = 0; lowered && i < g.n_collectives; i++) {
        const struct collective *c = &g.collectives[i];
        bool known = !of_hybrid_shard(p, &g, c);
        for (int32_t k = 0; k < i && !known; k++)
            known = of_hybrid_shard(p, &g, &g.collectives[k]) && g.collectives[k].n_members == c->n_members;
        if (known) continue;
        int32_t groups = named(p, &g, c->name);
        if (out) {
            json_put_object_line(out, NULL);
            json_put_int(out, "devices", c->n_members);
            json_put_int(out, "groups", groups);
            json_close(out);
        } else
            printf("  hybrid_shard: the %d GPUs of a shard group hold everything once; gradients are all-reduced between %d group%s\n",
                   (int)c->n_members, (int)groups, groups == 1 ? "" : "s");
    }
    if (out) json_close(out);
}
