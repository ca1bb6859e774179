/* Tensor-parallel degrees of grid families, and the prices of their stages, which are those of the coarse search. */
#include "planner/baseline/baseline.h"

#include "core/base/arena.h"
#include "planner/coarse/internal.h"
#include "planner/spmd_stage/tp_options.h"

/* Groups of tp consecutive GPUs of a node; n 0: a node's GPUs cannot be divided so, or a group would have several types. */
static struct baseline_degree degree_of(const struct baseline_task *k, int32_t tp)
{
    const struct cluster *c = k->cluster;
    int32_t *first = ARENA_ARRAY(k->arena, int32_t, (size_t)c->n_devices);
    const struct baseline_degree none = {tp, 0, NULL};
    struct baseline_degree out = {tp, 0, first};
    for (int32_t node = 0; node < c->n_nodes; node++) {
        const struct node_spec *x = &c->nodes[node];
        int32_t used = 0;
        for (int32_t d = x->first_device; d < x->first_device + x->n_devices; d++) {
            if (k->idle && k->idle[d]) continue;
            if (used % tp == 0) first[out.n++] = d;
            int32_t of = first[out.n - 1];
            if (d != of + used++ % tp || c->devices[d].type != c->devices[of].type) return none;
        }
        if (used % tp) return none;
    }
    return out;
}

static void list_degrees(struct baseline_task *k)
{
    int32_t numbers[TP_NUMBERS_MAX];
    int32_t n = tp_options_numbers(k->job, k->cluster, k->profile, k->t->o->no_sharding, numbers);
    struct baseline_degree *degrees = ARENA_ARRAY(k->arena, struct baseline_degree, (size_t)n + 1);
    degrees[k->n_degrees++] = degree_of(k, 1);
    for (int32_t i = 0; i < n; i++) {
        struct baseline_degree x = degree_of(k, numbers[i]);
        if (x.tp > 1 && x.n) degrees[k->n_degrees++] = x;
    }
    k->degrees = degrees;
}

enum status baseline_degrees(struct baseline_task *k, struct error *err)
{
    const struct coarse *q = k->coarse;
    struct space *s;
    int32_t *class_of = ARENA_ARRAY(k->arena, int32_t, (size_t)k->cluster->n_devices);
    k->spaces = ARENA_ARRAY(k->arena, struct space, (size_t)k->n_sizes);
    TRY(coarse_priced(k->coarse, 0, k->n_grouped > 0, &s, err));
    for (int32_t c = q->n_classes - 1; c >= 0; c--)
        for (int32_t d = 0; d < k->cluster->n_devices; d++)
            if (k->cluster->devices[d].type == q->classes[c].type) class_of[d] = c;
    for (int32_t c = 0; c < q->n_classes; c++)
        for (int32_t i = 0; i < q->classes[c].n; i++) class_of[q->classes[c].device[i]] = c;
    k->class_of = class_of;
    list_degrees(k);
    return OK;
}

static bool is_kept(const struct search_context *t, int64_t microbatch)
{
    for (int32_t i = 0; i < t->n_presets; i++)
        if (t->preset[i]->microbatch == microbatch) return true;
    return false;
}

enum status baseline_space(struct baseline_task *k, int32_t size, struct space **out,
                           struct error *err)
{
    struct space *s = *out = &k->spaces[size], *priced;
    if (s->arena) return OK;
    TRY(coarse_priced(k->coarse, size, size < k->n_grouped, &priced, err));
    *s = *priced;
    s->cluster = k->cluster; /* of the plans */
    if (!is_kept(k->t, s->microbatch) && k->t->n_presets < PRESET_SPACES_MAX)
        k->t->preset[k->t->n_presets++] = arena_copy(k->t->arena, s, sizeof *s);
    return OK;
}

/* Parameters are sharded as in Megatron; measured layers as they were measured. */
int32_t baseline_class_degree(const struct baseline_task *k, const struct baseline_setting *x,
                              int32_t device)
{
    const struct coarse_class *c = &k->coarse->classes[k->class_of[device]];
    enum group_rules kind = k->job->model.measured ? 0 : GROUP_RULES_PARAMETERS;
    for (int32_t d = 1; d < c->n_degrees; d++)
        if (c->degree[d].n == k->degrees[x->degree].tp && c->degree[d].kind == kind) return d;
    return 0;
}

int32_t baseline_type(const struct baseline_task *k, const struct baseline_setting *x,
                      int32_t device)
{
    const struct space *s = &k->spaces[x->size];
    if (k->degrees[x->degree].tp == 1) return k->cluster->devices[device].type;
    int32_t d = baseline_class_degree(k, x, device);
    int32_t type = k->coarse->classes[k->class_of[device]].degree[d].type;
    return d && s->groups && s->groups[type] ? type : -1;
}

const struct sharding *baseline_sharding(const struct baseline_task *k,
                                         const struct baseline_setting *x, int32_t device)
{
    int32_t d = baseline_class_degree(k, x, device);
    return k->coarse->classes[k->class_of[device]].degree[d].sharding;
}
