/* Tensor-parallel degrees of grid families, and the spaces that price their stages. */
#include "planner/baseline/baseline.h"

#include "core/base/arena.h"

/* Groups of tp consecutive GPUs of a node; n 0: a node's GPUs cannot be divided so, or a group would have several types. */
static struct baseline_degree degree_of(struct arena *a, const struct cluster *c, int32_t tp)
{
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)c->n_devices);
    struct baseline_degree out = {tp, 0, first};
    for (int32_t node = 0; node < c->n_nodes; node++) {
        const struct node_spec *x = &c->nodes[node];
        if (x->n_devices % tp) return (struct baseline_degree){tp, 0, NULL};
        for (int32_t d = 0; d < x->n_devices; d++) {
            const struct device *gpu = &c->devices[x->first_device + d];
            if (d % tp == 0) first[out.n++] = x->first_device + d;
            if (gpu->type != c->devices[first[out.n - 1]].type)
                return (struct baseline_degree){tp, 0, NULL};
        }
    }
    return out;
}

enum status baseline_degrees(struct baseline_task *k, struct error *err)
{
    int32_t numbers[TP_NUMBERS_MAX];
    int32_t n = tp_options_numbers(k->job, k->cluster, k->profile, k->t->o->no_sharding, numbers);
    struct baseline_degree *degrees = ARENA_ARRAY(k->arena, struct baseline_degree, (size_t)n + 1);
    struct tp_options *o = ARENA_ARRAY(k->arena, struct tp_options, 1);
    degrees[k->n_degrees++] = degree_of(k->arena, k->cluster, 1);
    for (int32_t i = 0; i < n; i++) {
        struct baseline_degree x = degree_of(k->arena, k->cluster, numbers[i]);
        if (x.tp > 1 && x.n) degrees[k->n_degrees++] = x;
    }
    for (int32_t i = 0; i < k->n_degrees; i++) numbers[i] = degrees[i].tp;
    TRY(tp_options_make(k->t, k->arena, k->job, k->cluster, k->profile, numbers, k->n_degrees, o,
                        err));
    k->degrees = degrees, k->options = o;
    k->spaces = ARENA_ARRAY(k->arena, struct space *, (size_t)k->n_sizes);
    k->usable = ARENA_ARRAY(k->arena, bool *, (size_t)k->n_sizes);
    return OK;
}

enum status baseline_space(struct baseline_task *k, int32_t size, struct space **out,
                           struct error *err)
{
    if (!k->spaces[size]) {
        struct space *s = ARENA_ARRAY(k->arena, struct space, 1);
        k->usable[size] = ARENA_ARRAY(k->arena, bool, (size_t)k->options->priced.n_types);
        TRY(tp_options_space(k->arena, k->options, k->sizes[size], k->t->lower, s, k->usable[size],
                             err));
        s->cluster = k->cluster; /* of the plans */
        k->spaces[size] = s;
        if (k->t->n_presets < PRESET_SPACES_MAX) k->t->preset[k->t->n_presets++] = s;
    }
    *out = k->spaces[size];
    return OK;
}

int32_t baseline_type(const struct baseline_task *k, const struct baseline_setting *x,
                      int32_t device)
{
    int32_t base = k->cluster->devices[device].type, tp = k->degrees[x->degree].tp;
    int32_t type = tp > 1 ? tp_options_type(k->options, base, tp) : base;
    return tp == 1 || k->usable[x->size][type] ? type : -1;
}
