/* planner/spmd_stage/device_line.c - groups of a device line: each solved once by planner/spmd_stage/spmd_stage, and their
 * layers split. */
#include "core/base/arena.h"
#include "planner/spmd_stage/groups_internal.h"

#include <math.h>

enum { SPLIT_STEP_NS = 6 }; /* as measured */
#define ROOM 1.3            /* of the memory of all layers, for uneven divisions */

const int32_t *groups_devices(struct groups *g, const struct device_line *l, int32_t first,
                              int32_t last, int32_t copy, int32_t *n)
{
    *n = 0;
    for (int32_t u = first; u <= last; u++) *n += l->n[u];
    int32_t *out = ARENA_ARRAY(g->arena, int32_t, (size_t)*n), at = 0;
    for (int32_t u = first; u <= last; u++)
        for (int32_t k = 0; k < l->n[u]; k++) out[at++] = l->device[u][copy * l->n[u] + k];
    return out;
}

struct device_line *groups_device_line(struct groups *g, int32_t n_units, int32_t copies)
{
    if (g->n_lineups == DEVICE_LINES_MAX || n_units > SPMD_STAGE_LINE_MAX) return NULL;
    struct device_line *l = &g->device_line[g->n_lineups++];
    *l = (struct device_line){.n_units = n_units, .copies = copies, .together = 1};
    l->line_cut = ARENA_ARRAY(g->arena, struct line_cut *,
                              (size_t)SPMD_STAGE_LINE_MAX * SPMD_STAGE_LINE_MAX * MASKS);
    return l;
}

/* --- members --- */

static const struct device_type *type_of(const struct groups *g, int32_t device)
{
    return &g->cluster->types[g->cluster->devices[device].type];
}

/* Bytes for tensors on a device that is in n communicators. */
static int64_t room_of(const struct groups *g, int32_t device, int32_t communicators)
{
    const struct device_type *t = type_of(g, device);
    int64_t room = t->memory_bytes - spmd_stage_reserve(t, communicators, g->cluster->emulated);
    return room > 0 ? room : 0;
}

/* Longest ranges of layers within a group's memory in one of its modes. */
static const int32_t *reach_of(struct groups *g, struct device_group *x, int32_t mode,
                               int32_t in_flight, int32_t communicators)
{
    for (const struct reach *r = x->reach[mode]; r; r = r->next)
        if (r->in_flight == in_flight && r->communicators == communicators) return r->far;
    int64_t *room = ARENA_ARRAY(g->arena, int64_t, (size_t)x->n);
    for (int32_t k = 0; k < x->n; k++) room[k] = room_of(g, x->device[k], communicators);
    const int32_t *far =
        spmd_stage_far(g->arena, x->layers[mode], g->s->n_layers, x->n, room, in_flight);
    struct reach r = {in_flight, communicators, far, x->reach[mode]};
    x->reach[mode] = arena_copy(g->arena, &r, sizeof r);
    return far;
}

/* Prefix sums of an answer's layers. */
static void add_mode(struct groups *g, const struct spmd_stage_layers *layers,
                     struct device_group *out)
{
    int32_t n = g->s->n_layers;
    int64_t *call = ARENA_ARRAY(g->arena, int64_t, (size_t)n + 1),
            *step = ARENA_ARRAY(g->arena, int64_t, (size_t)n + 1);
    for (int32_t l = 0; l < n; l++)
        call[l + 1] = call[l] + layers->call_ns[l], step[l + 1] = step[l] + layers->step_ns[l];
    out->layers[out->member.n_modes] = layers;
    out->member.mode[out->member.n_modes++] = (struct spmd_stage_mode){
        .call_ns = call, .step_ns = step, .replicated = layers->replicated};
}

/* One device computes its layers as stages of one device do. */
static void add_alone(struct groups *g, struct device_group *out)
{
    size_t layers = (size_t)g->s->n_layers;
    int64_t *call = ARENA_ARRAY(g->arena, int64_t, layers),
            *step = ARENA_ARRAY(g->arena, int64_t, layers),
            *fixed = ARENA_ARRAY(g->arena, int64_t, layers),
            *kept = ARENA_ARRAY(g->arena, int64_t, layers);
    for (int32_t l = 0; l < g->s->n_layers; l++) {
        const struct stage_cost *x = space_stage(g->s, out->device[0], l, l);
        call[l] = x->forward_ns + x->input_ns + x->weight_ns, step[l] = x->update_ns;
        fixed[l] = x->parameter_bytes + x->gradient_bytes + x->state_bytes;
        kept[l] = x->activation_bytes;
    }
    struct spmd_stage_layers all = {call, step, fixed, kept, NULL};
    add_mode(g, arena_copy(g->arena, &all, sizeof all), out);
}

/* The fewest microbatches in flight at which the first mode cannot hold the most layers of a position (all but one per group
 * behind); 0: memory never binds. */
static int32_t full_at(struct groups *g, struct device_group *x, int32_t microbatches)
{
    for (int32_t f = 1; f <= SPMD_STAGE_LINE_MAX && f <= microbatches; f++) {
        int32_t last = g->s->n_layers - f,
                communicators = 1 + (f > 1 ? spmd_stage_beside(x->n, 1) : 0);
        if (last < 0) break;
        if (reach_of(g, x, 0, f, communicators)[0] < last) return f;
    }
    return 0;
}

/* Memory of the devices, raised to the need of all layers plus the reserve if that is larger. */
static const int64_t *memory_of(struct groups *g, const struct spmd_stage_team *t, bool *large)
{
    int64_t *out = ARENA_ARRAY(g->arena, int64_t, (size_t)t->n), has = 0, needs = 0;
    for (int32_t k = 0; k < t->n; k++) has += out[k] = room_of(g, t->device[k], 1 + t->beside);
    for (int32_t l = 0; l < g->s->n_layers; l++) {
        const struct stage_cost *x = space_stage(g->s, t->device[0], l, l);
        needs += x->parameter_bytes + x->gradient_bytes + x->state_bytes +
                 t->in_flight * x->activation_bytes;
    }
    double times = has > 0 ? ROOM * (double)needs / (double)has : 1;
    *large = times > 1;
    for (int32_t k = 0; k < t->n; k++) {
        int64_t reserve = type_of(g, t->device[k])->memory_bytes - out[k];
        if (*large) out[k] = (int64_t)(times * (double)out[k]);
        out[k] += reserve;
    }
    return out;
}

static enum status query_mode(struct groups *g, const struct spmd_stage_team *t,
                              struct device_group *out, struct error *err)
{
    struct spmd_stage_answer x;
    TRY(spmd_stage_solve(g->t->spmd_stage, g->t->scorer, t, false, &x, err));
    if (x.ns < INT64_MAX) add_mode(g, x.layers, out);
    return OK;
}

/* First mode without a memory limit; if it then fails at some position, a second mode with the limit. */
static enum status query_device_group(struct groups *g, struct spmd_stage_team *t,
                                      struct device_group *out, struct error *err)
{
    if (t->n == 1) return add_alone(g, out), OK;
    bool large; /* the parameters alone exceed the memory */
    t->beside = spmd_stage_beside(t->n, 1);
    const int64_t *memory = memory_of(g, t, &large);
    if (!large) TRY(query_mode(g, t, out, err));
    if (!large && out->member.n_modes) {
        t->in_flight = full_at(g, out, t->microbatches);
        if (!t->in_flight) return OK;
        memory = memory_of(g, t, &large);
    }
    t->memory = memory;
    return query_mode(g, t, out, err);
}

/* Microbatches of the batch in proportion to the devices' share of total speed. */
static int32_t microbatches_of(const struct groups *g, const int32_t *device, int32_t n)
{
    double power = 0;
    for (int32_t k = 0; k < n; k++) power += g->power[device[k]];
    int32_t m = (int32_t)lround(g->s->microbatches * power / g->all);
    return m < 1 ? 1 : m;
}

enum status groups_query(struct groups *g, struct device_line *l, int32_t first, int32_t last,
                         struct device_group **out, struct error *err)
{
    *out = l->device_group[first][last];
    if (l->queried[first][last]) return OK;
    struct spmd_stage_team t = {.s = g->s,
                                .last_layer = g->s->n_layers - 1,
                                .in_flight = 1,
                                .rough = true,
                                .together = l->together};
    t.device = groups_devices(g, l, first, last, 0, &t.n);
    t.microbatches = microbatches_of(g, t.device, t.n);
    uint64_t key = spmd_stage_key(&t, false);
    struct device_group_known *k = g->known;
    while (k && k->key != key) k = k->next;
    if (!k) {
        if (scorer_work(g->t->scorer) >= g->tables_end && t.n > 1)
            return OK; /* solved already */
        struct device_group x = {.n = t.n, .device = t.device};
        TRY(query_device_group(g, &t, &x, err));
        struct device_group_known known = {key, NULL, g->known};
        if (x.member.n_modes) known.device_group = arena_copy(g->arena, &x, sizeof x);
        g->known = k = arena_copy(g->arena, &known, sizeof known);
    }
    l->queried[first][last] = true;
    *out = l->device_group[first][last] = k->device_group;
    return OK;
}

/* --- line cuts --- */

/* Whether a member's output after a layer may be replicated on every device in its cheapest mode. */
static bool whole_at(const struct spmd_stage_member *x, int32_t layer)
{
    return x->mode[0].replicated && x->mode[0].replicated[layer];
}

/* Transfer time after each layer from the units up to u to those behind: every receiver gets a replicated tensor completely,
 * a tensor sharded by batch in part; copies whose messages leave the same node share its link. */
static const int64_t *cross_of(struct groups *g, const struct device_line *l, int32_t u, int32_t n,
                               const struct spmd_stage_member *x, const struct spmd_stage_member *y)
{
    int64_t *ns = ARENA_ARRAY(g->arena, int64_t, (size_t)g->s->n_layers);
    const struct cost_link *link = space_link(g->s, l->device[u][0], l->device[u + 1][0]);
    for (int32_t k = 0; k + 1 < g->s->n_layers; k++) {
        int32_t times = (whole_at(x, k) || whole_at(y, k) ? n : 1) * l->together;
        ns[k] = link ? cost_occupancy_ns(link, g->s->cut_bytes[k] * times) + link->latency_ns
                     : INT64_MAX;
    }
    return ns;
}

int32_t groups_size(const struct device_line *l, const struct line_cut *p, int32_t group)
{
    int32_t n = 0;
    if (group < 0 || group >= p->n) return 0;
    for (int32_t u = p->first[group]; u <= p->last[group]; u++) n += l->n[u];
    return n;
}

/* Memory limits at each position of a line, and transfers between positions. */
static void place_groups(struct groups *g, const struct device_line *l, struct line_cut *p,
                         struct device_group *const *device_group, struct spmd_stage_line *line)
{
    for (int32_t k = 0; k < p->n; k++) {
        int32_t n = device_group[k]->n, behind = p->n - k;
        int32_t in_flight = behind < p->microbatches ? behind : p->microbatches;
        int32_t communicators = (n > 1) + spmd_stage_beside(n, groups_size(l, p, k - 1)) +
                                spmd_stage_beside(n, groups_size(l, p, k + 1));
        line->member[k] = &device_group[k]->member;
        for (int32_t mode = 0; mode < device_group[k]->member.n_modes; mode++)
            line->far[k][mode] = reach_of(g, device_group[k], mode, in_flight, communicators);
        if (k + 1 < p->n)
            line->cross_ns[k] = p->cross_ns[k] =
                cross_of(g, l, p->last[k], groups_size(l, p, k + 1), &device_group[k]->member,
                         &device_group[k + 1]->member);
    }
}

enum status groups_line_cut(struct groups *g, struct device_line *l, int32_t first, int32_t last,
                            int32_t mask, const struct line_cut **out, struct error *err)
{
    struct line_cut **at = &l->line_cut[(first * SPMD_STAGE_LINE_MAX + last) * MASKS + mask];
    *out = *at && (*at)->cut.ns < INT64_MAX ? *at : NULL;
    if (*at) return OK;
    struct line_cut *p = *at = ARENA_ARRAY(g->arena, struct line_cut, 1);
    struct device_group *device_group[SPMD_STAGE_LINE_MAX];
    int32_t n;
    const int32_t *device = groups_devices(g, l, first, last, 0, &n);
    p->microbatches = microbatches_of(g, device, n);
    p->cut.ns = INT64_MAX;
    for (int32_t u = first, begin = first; u <= last; u++) {
        if (u < last && !(mask >> (u - first) & 1)) continue;
        TRY(groups_query(g, l, begin, u, &device_group[p->n], err));
        if (!device_group[p->n]) return OK;
        p->first[p->n] = (int8_t)begin, p->last[p->n++] = (int8_t)u;
        begin = u + 1;
    }
    struct spmd_stage_line line = {
        .n = p->n, .n_layers = g->s->n_layers, .microbatches = p->microbatches};
    place_groups(g, l, p, device_group, &line);
    spmd_stage_split(&line, &p->cut);
    scorer_charge(g->t->scorer, SPLIT_STEP_NS * p->cut.steps);
    if (p->cut.ns < INT64_MAX) *out = p;
    return OK;
}
