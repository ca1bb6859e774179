/* planner/join_lineup.c - groups of a lineup as members of a line: asked of planner/join once, split over layers. */
#include "core/arena.h"
#include "planner/join_groups_internal.h"

#include <math.h>

enum { SPLIT_STEP_NS = 6 }; /* as measured */
#define ROOM 1.3            /* of what all layers take, for what cannot be divided evenly */

const int32_t *groups_devices(struct groups *g, const struct lineup *l, int32_t first, int32_t last,
                              int32_t copy, int32_t *n)
{
    *n = 0;
    for (int32_t u = first; u <= last; u++) *n += l->n[u];
    int32_t *out = ARENA_ARRAY(g->arena, int32_t, (size_t)*n), at = 0;
    for (int32_t u = first; u <= last; u++)
        for (int32_t k = 0; k < l->n[u]; k++) out[at++] = l->device[u][copy * l->n[u] + k];
    return out;
}

struct lineup *groups_lineup(struct groups *g, int32_t n_units, int32_t copies)
{
    if (g->n_lineups == LINEUPS_MOST || n_units > JOIN_LINE_MAX) return NULL;
    struct lineup *l = &g->lineup[g->n_lineups++];
    *l = (struct lineup){.n_units = n_units, .copies = copies, .together = 1};
    l->pipe = ARENA_ARRAY(g->arena, struct pipe *, (size_t)JOIN_LINE_MAX * JOIN_LINE_MAX * MASKS);
    return l;
}

/* --- members --- */

static const struct device_type *type_of(const struct groups *g, int32_t device)
{
    return &g->cluster->types[g->cluster->devices[device].type];
}

/* What tensors may take of a device in a group of n. */
static int64_t room_of(const struct groups *g, int32_t device, int32_t n)
{
    const struct device_type *t = type_of(g, device);
    int64_t room = t->memory_bytes - join_reserve(t, n > 1, g->cluster->emulated);
    return room > 0 ? room : 0;
}

/* Of a layer on device k of n. */
static int64_t bytes_of(const struct join_layers *x, int32_t layer, int32_t n, int32_t k,
                        int32_t in_flight)
{
    int64_t at = (int64_t)layer * n + k;
    return x->fixed_bytes[at] + in_flight * x->kept_bytes[at];
}

/* How far memory reaches from each layer on. */
static const int32_t *far_of(struct groups *g, int32_t n, const int32_t *device,
                             const struct join_layers *x, int32_t in_flight)
{
    int32_t layers = g->s->n_layers;
    int32_t *far = ARENA_ARRAY(g->arena, int32_t, (size_t)layers);
    for (int32_t l = 0; l < layers; l++) far[l] = layers - 1;
    for (int32_t k = 0; k < n; k++) {
        int64_t room = room_of(g, device[k], n), had = 0;
        int32_t last = -1;
        for (int32_t l = 0; l < layers; l++) {
            for (; last + 1 < layers; last++) {
                int64_t more = bytes_of(x, last + 1, n, k, in_flight);
                if (had + more > room) break;
                had += more;
            }
            if (last < far[l]) far[l] = last;
            if (last >= l)
                had -= bytes_of(x, l, n, k, in_flight);
            else
                last = l;
        }
    }
    return far;
}

/* Prefix sums of an answer's layers, and how far memory reaches. */
static struct join_mode mode_of(struct groups *g, int32_t n, const int32_t *device,
                                const struct join_layers *x)
{
    int32_t layers = g->s->n_layers;
    int64_t *call = ARENA_ARRAY(g->arena, int64_t, (size_t)layers + 1),
            *step = ARENA_ARRAY(g->arena, int64_t, (size_t)layers + 1);
    for (int32_t l = 0; l < layers; l++)
        call[l + 1] = call[l] + x->call_ns[l], step[l + 1] = step[l] + x->step_ns[l];
    struct join_mode m = {.call_ns = call, .step_ns = step, .whole = x->whole};
    for (int32_t i = 0; i < JOIN_LINE_MAX; i++) m.far[i] = far_of(g, n, device, x, i + 1);
    return m;
}

/* One device computes its layers as stages of one device do. */
static struct join_mode mode_alone(struct groups *g, int32_t device)
{
    size_t layers = (size_t)g->s->n_layers;
    int64_t *call = ARENA_ARRAY(g->arena, int64_t, layers),
            *step = ARENA_ARRAY(g->arena, int64_t, layers),
            *fixed = ARENA_ARRAY(g->arena, int64_t, layers),
            *kept = ARENA_ARRAY(g->arena, int64_t, layers);
    for (int32_t l = 0; l < g->s->n_layers; l++) {
        const struct stage_cost *x = space_stage(g->s, device, l, l);
        call[l] = x->forward_ns + x->input_ns + x->weight_ns, step[l] = x->update_ns;
        fixed[l] = x->parameter_bytes + x->gradient_bytes + x->state_bytes;
        kept[l] = x->activation_bytes;
    }
    struct join_layers all = {call, step, fixed, kept, NULL};
    return mode_of(g, 1, &device, &all);
}

/* Whether its devices could hold all layers as they are shared. */
static bool holds(const struct groups *g, const struct join_mode *m)
{
    return m->far[0][0] == g->s->n_layers - 1;
}

/* What the devices have; where all layers need more, as much more as they need beside the reserve. */
static const int64_t *memory_of(struct groups *g, const struct join_team *t, bool *large)
{
    int64_t *out = ARENA_ARRAY(g->arena, int64_t, (size_t)t->n), has = 0, needs = 0;
    for (int32_t k = 0; k < t->n; k++) has += out[k] = room_of(g, t->device[k], t->n);
    for (int32_t l = 0; l < g->s->n_layers; l++) {
        const struct stage_cost *x = space_stage(g->s, t->device[0], l, l);
        needs += x->parameter_bytes + x->gradient_bytes + x->state_bytes + x->activation_bytes;
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

static enum status ask_mode(struct groups *g, const struct join_team *t, struct join_member *out,
                            struct error *err)
{
    struct join_answer x;
    TRY(join_stage(g->t->join, g->t->scorer, t, false, &x, err));
    if (x.ns < INT64_MAX) out->mode[out->n_modes++] = mode_of(g, t->n, t->device, x.layers);
    return OK;
}

/* As memory does not count, and where it then does not hold all layers as it does. */
static enum status ask_member(struct groups *g, struct join_team *t, struct join_member *out,
                              struct error *err)
{
    if (t->n == 1) {
        out->mode[out->n_modes++] = mode_alone(g, t->device[0]);
        return OK;
    }
    bool large; /* what all parameters need alone is more than they have */
    const int64_t *memory = memory_of(g, t, &large);
    if (!large) TRY(ask_mode(g, t, out, err));
    if (!large && (!out->n_modes || holds(g, &out->mode[0]))) return OK;
    t->memory = memory;
    return ask_mode(g, t, out, err);
}

/* The microbatches that devices of so much of all speed get of the batch. */
static int32_t microbatches_of(const struct groups *g, const int32_t *device, int32_t n)
{
    double power = 0;
    for (int32_t k = 0; k < n; k++) power += g->power[device[k]];
    int32_t m = (int32_t)lround(g->s->microbatches * power / g->all);
    return m < 1 ? 1 : m;
}

static enum status member_of(struct groups *g, struct lineup *l, int32_t first, int32_t last,
                             const struct join_member **out, struct error *err)
{
    *out = l->member[first][last];
    if (l->asked[first][last]) return OK;
    struct join_team t = {.s = g->s,
                          .last_layer = g->s->n_layers - 1,
                          .in_flight = 1,
                          .rough = true,
                          .together = l->together};
    t.device = groups_devices(g, l, first, last, 0, &t.n);
    t.microbatches = microbatches_of(g, t.device, t.n);
    uint64_t key = join_key(&t, false);
    struct member_known *k = g->known;
    while (k && k->key != key) k = k->next;
    if (!k) {
        if (scorer_work(g->t->scorer) >= g->tables_end && t.n > 1)
            return OK; /* asked, another time */
        struct join_member *x = ARENA_ARRAY(g->arena, struct join_member, 1);
        TRY(ask_member(g, &t, x, err));
        k = ARENA_ARRAY(g->arena, struct member_known, 1);
        *k = (struct member_known){key, x->n_modes ? x : NULL, g->known};
        g->known = k;
    }
    l->asked[first][last] = true;
    *out = l->member[first][last] = k->member;
    return OK;
}

/* --- pipes --- */

/* Whether a member may have what crosses after a layer whole on every device, in its cheapest mode. */
static bool whole_at(const struct join_member *x, int32_t layer)
{
    return x->mode[0].whole && x->mode[0].whole[layer];
}

/* What crosses after each layer from units that end at u to those behind it: every receiver gets all of what is whole, a part of
 * what is split by batch; copies of which messages leave the same node wait for one another. */
static const int64_t *cross_of(struct groups *g, const struct lineup *l, int32_t u, int32_t n,
                               const struct join_member *x, const struct join_member *y)
{
    int64_t *ns = ARENA_ARRAY(g->arena, int64_t, (size_t)g->s->n_layers);
    const struct cost_link *link = space_link(g->s, l->device[u][0], l->device[u + 1][0]);
    for (int32_t k = 0; k + 1 < g->s->n_layers; k++) {
        int32_t times = (whole_at(x, k) || whole_at(y, k) ? n : 1) * l->together;
        ns[k] = link ? cost_occupancy_ns(link, g->s->cut_bytes[k] * times) + link->latency_ns
                     : INT64_MAX / 16;
    }
    return ns;
}

enum status groups_pipe(struct groups *g, struct lineup *l, int32_t first, int32_t last,
                        int32_t mask, const struct pipe **out, struct error *err)
{
    struct pipe **at = &l->pipe[(first * JOIN_LINE_MAX + last) * MASKS + mask];
    *out = *at && (*at)->cut.ns < INT64_MAX ? *at : NULL;
    if (*at) return OK;
    struct pipe *p = *at = ARENA_ARRAY(g->arena, struct pipe, 1);
    struct join_line line = {.n_layers = g->s->n_layers};
    int32_t n;
    const int32_t *device = groups_devices(g, l, first, last, 0, &n);
    p->microbatches = line.microbatches = microbatches_of(g, device, n);
    p->cut.ns = INT64_MAX;
    for (int32_t u = first, begin = first; u <= last; u++) {
        if (u < last && !(mask >> (u - first) & 1)) continue;
        TRY(member_of(g, l, begin, u, &line.member[p->n], err));
        if (!line.member[p->n]) return OK;
        p->first[p->n] = (int8_t)begin, p->last[p->n++] = (int8_t)u;
        begin = u + 1;
    }
    for (int32_t k = 0; k + 1 < p->n; k++) {
        int32_t n_next = 0;
        for (int32_t u = p->first[k + 1]; u <= p->last[k + 1]; u++) n_next += l->n[u];
        line.cross_ns[k] = p->cross_ns[k] =
            cross_of(g, l, p->last[k], n_next, line.member[k], line.member[k + 1]);
    }
    line.n = p->n;
    join_split(&line, &p->cut);
    scorer_charge(g->t->scorer, SPLIT_STEP_NS * p->cut.steps);
    if (p->cut.ns < INT64_MAX) *out = p;
    return OK;
}
