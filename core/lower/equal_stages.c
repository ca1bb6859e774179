#include "core/lower/equal_stages.h"

#include "core/lower/channels.h"
#include "core/lower/groups.h"
#include "core/lower/launches.h"
#include "core/lower/orders.h"
#include "core/lower/procedures.h"
#include "core/lower/scale.h"
#include "core/lower/tensor_collectives.h"
#include "core/lower/zero_slots.h"

#include <string.h>

/* Lowered stages of one key (view, settings, numbers of messages and groups) that a new stage is compared with, the latest first. Few
 * of one key are distinct; a plan whose stages all differ pays this many comparisons, of some hundred integers each, in place of
 * a search among all of them. */
enum { COMPARED_MAX = 8 };

struct patch { /* an instruction whose argument is entry `local` of the stage's numbers */
    int32_t procedure, instr, local;
};

struct lowered {
    const struct stage_build *b;
    uint64_t key;
    struct patch *patches; /* NULL: not found yet */
    int32_t n_patches, n_numbers;
    struct lowered *next; /* in the same place */
};

struct equal_stages {
    struct lowering *l;
    struct lowered **first; /* (n_first) by key, a power of two */
    size_t n_first;
    int32_t *numbers, *local_of_channel, *local_of_collective; /* work space */
    size_t n_numbers, n_channels, n_collectives;
};

/* --- comparison --- */

static const struct lane_build *lane_of(const struct lowering *l, const struct stage_build *b)
{
    return &l->lanes[b->s->device];
}

static int32_t copies_on(const struct lowering *l, const struct stage_build *b)
{
    const struct cluster *c = &l->plan->cluster;
    return c->types[c->devices[b->device].type].parameter_copies;
}

static uint64_t mixed(uint64_t h, int64_t x)
{
    h = (h ^ (uint64_t)x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t key_of(const struct lowering *l, const struct stage_build *b)
{
    const int64_t numbers[] = {b->v - l->uses->views,
                               b->plan->first_layer,
                               b->plan->last_layer,
                               b->plan->recompute,
                               b->plan->receive_ahead,
                               b->shard,
                               b->chunk,
                               b->s->microbatches,
                               b->first_sequence,
                               b->sequences,
                               b->edge[ACTIVATIONS_IN].n,
                               b->edge[ACTIVATIONS_OUT].n,
                               b->edge[GRADIENTS_IN].n,
                               b->edge[GRADIENTS_OUT].n,
                               b->groups->n};
    uint64_t h = 1;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) h = mixed(h, numbers[i]);
    return h;
}

struct equal_stages *equal_stages_new(struct lowering *l)
{
    struct equal_stages *x = ARENA_ARRAY(l->tables, struct equal_stages, 1);
    *x = (struct equal_stages){.l = l, .n_first = 64};
    while (x->n_first < (size_t)l->p->n_stages) x->n_first *= 2;
    x->first = ARENA_ARRAY(l->tables, struct lowered *, x->n_first);
    return x;
}

static struct lowered **list_of(const struct equal_stages *x, uint64_t key)
{
    return &x->first[(size_t)(key >> 20) & (x->n_first - 1)];
}

void equal_stages_add(struct equal_stages *x, struct stage_build *b)
{
    uint64_t key = key_of(x->l, b);
    struct lowered **list = list_of(x, key), *s = ARENA_ARRAY(x->l->tables, struct lowered, 1);
    *s = (struct lowered){.b = b, .key = key, .next = *list};
    *list = s;
}

static bool same_settings(const struct lowering *l, const struct stage_build *a,
                          const struct stage_build *b)
{
    const struct plan_stage *x = a->plan, *y = b->plan;
    return x->first_layer == y->first_layer && x->last_layer == y->last_layer &&
           x->recompute == y->recompute && x->zero == y->zero &&
           x->receive_ahead == y->receive_ahead && a->shard == b->shard &&
           a->n_shards == b->n_shards && a->chunk == b->chunk &&
           lane_of(l, a)->n_stages == lane_of(l, b)->n_stages &&
           a->s->microbatches == b->s->microbatches && a->first_sequence == b->first_sequence &&
           a->sequences == b->sequences && a->s->first_sequence == b->s->first_sequence &&
           a->s->sequences == b->s->sequences &&
           copies_on(l, a) == copies_on(l, b);
}

static bool same_edges(const struct stage_build *a, const struct stage_build *b)
{
    for (int e = 0; e < EDGE_COUNT; e++) {
        if (a->edge[e].n != b->edge[e].n) return false;
        for (int32_t i = 0; i < a->edge[e].n; i++) {
            const struct crossing *x = &a->edge[e].list[i], *y = &b->edge[e].list[i];
            if (x->tensor != y->tensor || x->first != y->first || x->n != y->n ||
                x->link != y->link || x->whole != y->whole || x->part != y->part ||
                x->parts != y->parts || x->rounds != y->rounds)
                return false;
        }
    }
    return true;
}

/* Index of a group among the stage's; -1. */
static int32_t index_of(const struct stage_build *b, int32_t group)
{
    int32_t low = 0, high = b->groups->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (b->groups->group[middle] < group)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->groups->n && b->groups->group[low] == group ? low : -1;
}

static bool same_zero(const struct lowering *l, const struct stage_build *a, int32_t group,
                      const struct stage_build *b, int32_t other)
{
    const struct group_plan *p = lower_group_plan(l, group);
    const struct zero_group *x = lower_zero_group(l, group), *y = lower_zero_group(l, other);
    bool same = x->n_flat_params == y->n_flat_params && (x->gathered < 0) == (y->gathered < 0) &&
                (x->owner_group < 0) == (y->owner_group < 0) &&
                !strcmp(l->p->collectives[group].name, l->p->collectives[other].name);
    if (same && x->gathered >= 0) same = index_of(a, x->gathered) == index_of(b, y->gathered);
    if (same && x->owner_group >= 0)
        same = index_of(a, x->owner_group) == index_of(b, y->owner_group);
    for (int k = 0; same && k < PHASE_INDICES; k++)
        same = (x->gather[k] < 0) == (y->gather[k] < 0) &&
               (x->gather[k] < 0 || index_of(a, x->gather[k]) == index_of(b, y->gather[k]));
    for (int32_t k = 0; same && k < x->n_flat_params; k++)
        same = x->flat_param[k].decay == y->flat_param[k].decay &&
               x->flat_param[k].elements == y->flat_param[k].elements;
    for (int32_t u = 0; same && x->gathered < 0 && u <= p->last_use - p->first_use; u++)
        same = x->places[u].flat_param == y->places[u].flat_param &&
               x->places[u].first == y->places[u].first;
    return same;
}

/* Members of one number in groups of the same cells have equal regions. Exchanges within a device concern two of its chunks: they are
 * lowered each time. So are overflow checks of gradient shards, because they leave out the padding in the member's chunk. */
static bool same_group(const struct lowering *l, const struct stage_build *a,
                       const struct stage_build *b, int32_t i)
{
    int32_t group = a->groups->group[i], other = b->groups->group[i];
    const struct group_plan *x = lower_group_plan(l, group), *y = lower_group_plan(l, other);
    const struct collective *g = &l->p->collectives[group], *h = &l->p->collectives[other];
    if (x->first_use != y->first_use || x->last_use != y->last_use || x->bucketed != y->bucketed ||
        x->tied != y->tied || x->overflow != y->overflow || x->zero != y->zero ||
        x->cells != y->cells || (x->cells && a->groups->member[i] != b->groups->member[i]))
        return false;
    if (g->kind != h->kind || g->algorithm != h->algorithm || g->n_members != h->n_members ||
        g->dtype != h->dtype || g->elements != h->elements ||
        (x->tied && (g->algorithm == ALGORITHM_LOCAL || h->algorithm == ALGORITHM_LOCAL)))
        return false;
    if (!x->zero) return true;
    bool checked = lower_scales(l) && x->zero > 1;
    return same_zero(l, a, group, b, other) &&
           (!checked || a->groups->member[i] == b->groups->member[i]);
}

static bool same_groups(const struct lowering *l, const struct stage_build *a,
                        const struct stage_build *b)
{
    if (a->groups->n != b->groups->n) return false;
    for (int32_t i = 0; i < a->groups->n; i++)
        if (!same_group(l, a, b, i)) return false;
    return true;
}

/* The k-th chunk of the device, the stage itself first. */
static const struct stage_build *chunk_of(const struct lowering *l, const struct stage_build *b,
                                          int32_t k)
{
    int32_t chunk = !k ? b->chunk : k <= b->chunk ? k - 1 : k;
    return &l->stages[lane_of(l, b)->stages[chunk]];
}

/* The first chunk with the group, and its index there. */
static bool chunk_with(const struct lowering *l, const struct stage_build *b, int32_t group,
                       int32_t *chunk, int32_t *index)
{
    for (*chunk = 0; *chunk < lane_of(l, b)->n_stages; ++*chunk)
        if ((*index = index_of(chunk_of(l, b, *chunk), group)) >= 0) return true;
    return false;
}

static bool same_launches(const struct lowering *l, const struct stage_build *a,
                          const struct stage_build *b)
{
    const struct stage_launches *x = a->launches, *y = b->launches;
    if (x->n != y->n || x->late != y->late) return false;
    for (int32_t i = 0; i < x->n; i++) {
        int32_t chunk[2], index[2];
        if (!chunk_with(l, a, x->group[i], &chunk[0], &index[0]) ||
            !chunk_with(l, b, y->group[i], &chunk[1], &index[1]) || chunk[0] != chunk[1] ||
            index[0] != index[1])
            return false;
    }
    return true;
}

static bool equal(const struct lowering *l, const struct stage_build *a,
                  const struct stage_build *b)
{
    return same_settings(l, a, b) && same_edges(a, b) && lower_same_calls(a, b) &&
           same_groups(l, a, b) && same_launches(l, a, b) && lower_same_teams(l, a, b);
}

/* --- numbers of channels and collectives --- */

static int32_t *room(struct arena *a, int32_t **array, size_t *capacity, size_t n)
{
    if (n > *capacity) *array = ARENA_ARRAY(a, int32_t, *capacity = 2 * n);
    return *array;
}

/* In one order on equal stages: channels by edge, groups by chunk, collectives of tensors as they are made. */
static int32_t numbers_of(struct equal_stages *x, const struct stage_build *b)
{
    int32_t n = 0, n_chunks = lane_of(x->l, b)->n_stages, n_calls,
            *calls = lower_collectives_of(b, &n_calls);
    for (int e = 0; e < EDGE_COUNT; e++) n += b->edge[e].n;
    for (int32_t c = 0; c < n_chunks; c++) n += chunk_of(x->l, b, c)->groups->n;
    int32_t *out = room(x->l->tables, &x->numbers, &x->n_numbers, (size_t)(n + n_calls) + 1);
    n = 0;
    for (int e = 0; e < EDGE_COUNT; e++)
        for (int32_t i = 0; i < b->edge[e].n; i++) out[n++] = b->edge[e].list[i].channel;
    for (int32_t c = 0; c < n_chunks; c++) {
        const struct stage_groups *g = chunk_of(x->l, b, c)->groups;
        if (g->n) memcpy(out + n, g->group, (size_t)g->n * sizeof *out);
        n += g->n;
    }
    if (n_calls) memcpy(out + n, calls, (size_t)n_calls * sizeof *out);
    return n + n_calls;
}

static bool names_channel(const struct instr *i)
{
    return i->kind == INSTR_SEND || i->kind == INSTR_RECEIVE;
}

static bool names_collective(const struct instr *i)
{
    return i->kind == INSTR_COLLECTIVE || i->kind == INSTR_COLLECTIVE_START ||
           i->kind == INSTR_COLLECTIVE_WAIT;
}

/* The first entry of each number. The arrays keep entries of other stages, which the instructions of this one never name. */
static void index_numbers(struct equal_stages *x, const struct stage_build *b, int32_t n)
{
    const struct program *p = x->l->p;
    int32_t n_channels = 0;
    for (int e = 0; e < EDGE_COUNT; e++) n_channels += b->edge[e].n;
    int32_t *channel =
                room(x->l->tables, &x->local_of_channel, &x->n_channels, (size_t)p->n_channels + 1),
            *collective = room(x->l->tables, &x->local_of_collective, &x->n_collectives,
                               (size_t)p->n_collectives + 1);
    for (int32_t i = n; i-- > 0;)
        *(i < n_channels ? &channel[x->numbers[i]] : &collective[x->numbers[i]]) = i;
}

static void find_patches(struct equal_stages *x, struct lowered *s)
{
    const struct program_stage *of = s->b->s;
    size_t n = 0, at = 0;
    s->n_numbers = numbers_of(x, s->b);
    index_numbers(x, s->b, s->n_numbers);
    for (int32_t q = 0; q < of->n_procedures; q++)
        for (int32_t i = 0; i < of->procedures[q].n_instrs; i++)
            n += names_channel(&of->procedures[q].instrs[i]) ||
                 names_collective(&of->procedures[q].instrs[i]);
    s->patches = ARENA_ARRAY(x->l->tables, struct patch, n + 1);
    for (int32_t q = 0; q < of->n_procedures; q++)
        for (int32_t i = 0; i < of->procedures[q].n_instrs; i++) {
            const struct instr *y = &of->procedures[q].instrs[i];
            if (names_channel(y))
                s->patches[at++] = (struct patch){q, i, x->local_of_channel[y->arg]};
            if (names_collective(y))
                s->patches[at++] = (struct patch){q, i, x->local_of_collective[y->arg]};
        }
    s->n_patches = (int32_t)at;
}

/* --- copies --- */

static void copy_instrs(struct equal_stages *x, const struct lowered *s, struct program_stage *to)
{
    struct arena *a = x->l->a;
    to->procedures =
        arena_copy(a, to->procedures, (size_t)to->n_procedures * sizeof *to->procedures);
    int32_t copied = -1;
    for (int32_t i = 0; i < s->n_patches; i++) {
        struct procedure *q = &to->procedures[s->patches[i].procedure];
        if (copied != s->patches[i].procedure)
            q->instrs = arena_copy(a, q->instrs, (size_t)q->n_instrs * sizeof *q->instrs);
        copied = s->patches[i].procedure;
        q->instrs[s->patches[i].instr].arg = x->numbers[s->patches[i].local];
    }
}

/* The entry of the channel among those of the stage's edge, on the equal stage. */
static int32_t channel_like(const struct stage_build *a, const struct stage_build *b,
                            int32_t channel)
{
    for (int e = 0; e < EDGE_COUNT; e++)
        for (int32_t i = 0; i < a->edge[e].n; i++)
            if (a->edge[e].list[i].channel == channel) return b->edge[e].list[i].channel;
    return -1;
}

static void copy_rings(struct lowering *l, const struct stage_build *from, struct stage_build *b)
{
    struct program_stage *s = b->s;
    s->buffer_rings =
        arena_copy(l->a, s->buffer_rings, (size_t)s->n_buffer_rings * sizeof *s->buffer_rings);
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        struct buffer_ring *r = &s->buffer_rings[i];
        if (r->sent >= 0) r->sent = channel_like(from, b, r->sent);
        if (r->received >= 0) r->received = channel_like(from, b, r->received);
    }
    lower_sent_ring_counts(l, b);
}

static void copy_ends(struct lowering *l, const struct stage_build *from, struct stage_build *b)
{
    for (int e = 0; e < EDGE_COUNT; e++)
        for (int32_t i = 0; i < b->edge[e].n; i++)
            b->edge[e].list[i].slot = from->edge[e].list[i].slot;
    lower_join_channels(l, b);
    for (int32_t i = 0; i < b->groups->n; i++) {
        const struct collective *g = &l->p->collectives[from->groups->group[i]];
        struct collective_member *to =
            &l->p->collectives[b->groups->group[i]].members[b->groups->member[i]];
        int32_t stage = to->stage;
        bool silent = to->silent;
        *to = g->members[from->groups->member[i]];
        to->stage = stage, to->silent = silent;
    }
}

static void copy_stage(struct equal_stages *x, const struct lowered *s, struct stage_build *b)
{
    const struct program_stage *from = s->b->s;
    struct program_stage *to = b->s;
    to->n_slots = from->n_slots, to->slots = from->slots;
    to->n_ops = from->n_ops, to->ops = from->ops;
    to->n_parameters = from->n_parameters, to->parameters = from->parameters;
    to->n_buffer_rings = from->n_buffer_rings, to->buffer_rings = from->buffer_rings;
    to->n_procedures = from->n_procedures, to->procedures = from->procedures;
    to->scale_slot = from->scale_slot, to->buffer_bytes = from->buffer_bytes;
    memcpy(to->class_bytes, from->class_bytes, sizeof to->class_bytes);
    b->procedures = s->b->procedures;
    lower_zero_chunks(x->l, b);
    lower_copy_collectives(x->l, s->b, b);
    if (numbers_of(x, b) != s->n_numbers) BUG("equal stages differ in collectives");
    copy_instrs(x, s, to);
    copy_rings(x->l, s->b, b);
    copy_ends(x->l, s->b, b);
}

bool equal_stages_copy(struct equal_stages *x, struct stage_build *b)
{
    int32_t n = 0;
    uint64_t key = key_of(x->l, b);
    for (struct lowered *s = *list_of(x, key); s && n < COMPARED_MAX; s = s->next) {
        if (s->key != key) continue;
        n++;
        if (!equal(x->l, s->b, b)) continue;
        if (!s->patches) find_patches(x, s);
        copy_stage(x, s, b);
        return true;
    }
    return false;
}
