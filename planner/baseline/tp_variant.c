/* The cluster at each tensor-parallel degree, and its spaces. */
#include "planner/baseline/baseline.h"

#include "core/base/arena.h"
#include "core/cluster/group.h"
#include "core/sharding/sharding.h"
#include "profiles/team.h"

enum status baseline_space(struct baseline_task *k, int32_t tp_variant, int32_t size,
                           struct space **out, struct error *err)
{
    struct tp_variant *b = &k->tp_variants[tp_variant];
    if (!b->spaces[size]) {
        struct space *s = ARENA_ARRAY(k->arena, struct space, 1);
        TRY(space_make_on(k->arena, &b->job, &b->cluster, b->cost, b->graph, k->sizes[size],
                          k->t->lower, s, err));
        b->spaces[size] = s;
        if (k->t->n_presets < PRESET_SPACES_MAX) k->t->preset[k->t->n_presets++] = s;
    }
    *out = b->spaces[size];
    return OK;
}

/* Groups each node's GPUs by tp in the order of the file; 0 groups if some remain or types differ. */
static int32_t group_gpus(struct arena *a, const struct cluster *c, int32_t tp,
                          struct cluster_group *groups)
{
    int32_t n = 0;
    for (int32_t node = 0; node < c->n_nodes; node++) {
        const struct node_spec *x = &c->nodes[node];
        if (x->n_devices % tp) return 0;
        for (int32_t first = x->first_device; first < x->first_device + x->n_devices; first += tp) {
            int32_t *member = ARENA_ARRAY(a, int32_t, (size_t)tp), type = c->devices[first].type;
            for (int32_t d = 0; d < tp; d++) {
                member[d] = first + d;
                if (c->devices[first + d].type != type || c->types[type].tensor_parallel > 1)
                    return 0;
            }
            groups[n++] = (struct cluster_group){tp, member, false};
        }
    }
    return n;
}

static enum status make_tp_variant(struct baseline_task *k, struct tp_variant *b, int32_t tp,
                                   struct error *err)
{
    const struct cluster *c = k->cluster;
    *b = (struct tp_variant){.tp = tp, .possible = true, .cluster = *c, .job = *k->job};
    b->spaces = ARENA_ARRAY(k->arena, struct space *, (size_t)k->n_sizes);
    if (tp > 1) {
        struct cluster_group *groups =
            ARENA_ARRAY(k->arena, struct cluster_group, (size_t)c->n_devices);
        int32_t n = group_gpus(k->arena, c, tp, groups);
        b->possible = n > 0;
        if (!n) return OK;
        TRY(cluster_group(k->arena, c, groups, n, &b->cluster, NULL, err));
        team_share(&b->cluster, &b->job.model);
    }
    b->cost = cost_new(k->arena, k->profile, &b->cluster);
    return device_graph_new(k->arena, &b->cluster, b->cost, &b->graph, err);
}

/* Checks that the model supports this tensor-parallel degree. */
static enum status try_tp_variant(struct baseline_task *k, int32_t tp_variant, struct error *err)
{
    struct space *s;
    struct error why = {0};
    if (!k->tp_variants[tp_variant].possible) return OK;
    enum status st = baseline_space(k, tp_variant, 0, &s, &why);
    if (st == ERR_INPUT && tp_variant > 0)
        k->tp_variants[tp_variant].possible = false;
    else if (st != OK) {
        if (err) *err = why;
        return st;
    }
    return OK;
}

enum status baseline_tp_variants(struct baseline_task *k, struct error *err)
{
    const struct search_options *o = k->t->o;
    k->tp_variants = ARENA_ARRAY(k->arena, struct tp_variant, (size_t)o->n_tensor + 1);
    TRY(make_tp_variant(k, &k->tp_variants[k->n_tp_variants++], 1, err));
    for (int32_t i = 0; o->tensor && i < o->n_tensor; i++)
        if (o->tensor[i] > 1)
            TRY(make_tp_variant(k, &k->tp_variants[k->n_tp_variants++], o->tensor[i], err));
    for (int32_t i = 0; i < k->n_tp_variants; i++) TRY(try_tp_variant(k, i, err));
    return OK;
}

enum status baseline_shard(struct baseline_task *k, const struct baseline_setting *x,
                           struct arena *a, struct plan *p, struct space **s, struct error *err)
{
    struct tp_variant *b = &k->tp_variants[x->tp_variant];
    if (!k->job->model.measured || b->tp < 2) return OK;
    if (!b->sharding) b->sharding = sharding_of_index(k->arena, INDEX_tensor, NULL, b->tp);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *y = &p->replicas[r].stages[i];
            int32_t *device = ARENA_ARRAY(a, int32_t, (size_t)b->tp), first = y->device * b->tp;
            for (int32_t d = 0; d < b->tp; d++) device[d] = first + d; /* group_gpus */
            y->device = first, y->devices = device;
            y->n_shards = b->tp, y->sharding = b->sharding;
        }
    p->cluster = *k->cluster;
    return baseline_space(k, 0, x->size, s, err);
}
