#include "core/program/replicas.h"

#include "core/base/arena.h"

#include <string.h>

static bool names_channel(enum instr_kind k) { return k == INSTR_RECEIVE || k == INSTR_SEND; }
static bool names_collective(enum instr_kind k)
{
    return k == INSTR_COLLECTIVE_START || k == INSTR_COLLECTIVE_WAIT || k == INSTR_COLLECTIVE;
}

/* ---- some replicas ---------------------------------------------------------------------------- */

/* New numbers, -1 for what is left out. */
struct numbers {
    int32_t *stage, *channel, *collective;
};

static void take_stage(struct arena *a, struct program_stage *s, const struct numbers *to)
{
    s->buffer_rings =
        arena_copy(a, s->buffer_rings, (size_t)s->n_buffer_rings * sizeof *s->buffer_rings);
    s->procedures = arena_copy(a, s->procedures, (size_t)s->n_procedures * sizeof *s->procedures);
    for (int32_t r = 0; r < s->n_buffer_rings; r++) {
        struct buffer_ring *b = &s->buffer_rings[r];
        if (b->sent >= 0) b->sent = to->channel[b->sent];
        if (b->received >= 0) b->received = to->channel[b->received];
    }
    for (int32_t i = 0; i < s->n_procedures; i++) {
        struct procedure *q = &s->procedures[i];
        q->instrs = arena_copy(a, q->instrs, (size_t)q->n_instrs * sizeof *q->instrs);
        for (int32_t k = 0; k < q->n_instrs; k++) {
            struct instr *in = &q->instrs[k];
            if (names_channel(in->kind)) in->arg = to->channel[in->arg];
            if (names_collective(in->kind)) in->arg = to->collective[in->arg];
        }
    }
}

static int32_t *of_members(struct arena *a, const int32_t *all, const int32_t *member, int32_t n)
{
    int32_t *out = all ? ARENA_ARRAY(a, int32_t, (size_t)n) : NULL;
    for (int32_t i = 0; all && i < n; i++) out[i] = all[member[i]];
    return out;
}

static void take_collective(struct arena *a, const struct collective *g, const struct numbers *to,
                            struct collective *out)
{
    int32_t *member = ARENA_ARRAY(a, int32_t, (size_t)g->n_members), n = 0;
    *out = *g;
    out->members = ARENA_ARRAY(a, struct collective_member, (size_t)g->n_members);
    for (int32_t m = 0; m < g->n_members; m++) {
        if (to->stage[g->members[m].stage] < 0) continue;
        out->members[n] = g->members[m];
        out->members[n].stage = to->stage[g->members[m].stage];
        member[n++] = m;
    }
    if (n == g->n_members) return;
    out->n_members = n;
    out->link = of_members(a, g->link, member, n);
    out->direction = of_members(a, g->direction, member, n);
    out->back_link = of_members(a, g->back_link, member, n);
    out->back_direction = of_members(a, g->back_direction, member, n);
}

static bool has_member(const struct collective *g, const struct numbers *to)
{
    for (int32_t m = 0; m < g->n_members; m++)
        if (to->stage[g->members[m].stage] >= 0) return true;
    return false;
}

static void take_lanes(struct arena *a, const struct program *p, const bool *keep,
                       const struct numbers *to, struct program *out)
{
    for (int32_t s = 0; s < p->n_stages; s++) to->stage[s] = -1;
    for (int32_t i = 0; i < p->n_devices; i++) {
        if (!keep[p->stages[p->lanes[i].stages[0]].replica]) continue;
        struct lane *l = &out->lanes[out->n_devices];
        *l = p->lanes[i];
        l->stages = ARENA_ARRAY(a, int32_t, (size_t)l->n_stages);
        for (int32_t c = 0; c < l->n_stages; c++) {
            int32_t old = p->lanes[i].stages[c];
            l->stages[c] = to->stage[old] = out->n_stages;
            out->stages[out->n_stages] = p->stages[old];
            out->stages[out->n_stages++].device = out->n_devices;
        }
        out->devices[out->n_devices++] = p->devices[i];
    }
}

void program_keep_replicas(struct arena *a, const struct program *p, const bool *keep,
                           struct program *out, int32_t **collective_of)
{
    const struct numbers to = {ARENA_ARRAY(a, int32_t, (size_t)p->n_stages + 1),
                               ARENA_ARRAY(a, int32_t, (size_t)p->n_channels + 1),
                               ARENA_ARRAY(a, int32_t, (size_t)p->n_collectives + 1)};
    int32_t *of = ARENA_ARRAY(a, int32_t, (size_t)p->n_collectives + 1);
    *out = *p;
    out->n_devices = out->n_stages = out->n_channels = out->n_collectives = 0;
    out->devices = ARENA_ARRAY(a, struct program_device, (size_t)p->n_devices);
    out->lanes = ARENA_ARRAY(a, struct lane, (size_t)p->n_devices);
    out->stages = ARENA_ARRAY(a, struct program_stage, (size_t)p->n_stages);
    take_lanes(a, p, keep, &to, out);
    for (int32_t i = 0; i < p->n_channels; i++) {
        const struct channel *c = &p->channels[i];
        bool kept = to.stage[c->from_stage] >= 0 && to.stage[c->to_stage] >= 0;
        to.channel[i] = kept ? out->n_channels++ : -1;
    }
    out->channels = ARENA_ARRAY(a, struct channel, (size_t)out->n_channels + 1);
    for (int32_t i = 0; i < p->n_channels; i++) {
        if (to.channel[i] < 0) continue;
        struct channel *c = &out->channels[to.channel[i]];
        *c = p->channels[i];
        c->from_stage = to.stage[c->from_stage], c->to_stage = to.stage[c->to_stage];
    }
    for (int32_t i = 0; i < p->n_collectives; i++) {
        to.collective[i] = has_member(&p->collectives[i], &to) ? out->n_collectives++ : -1;
        if (to.collective[i] >= 0) of[to.collective[i]] = i;
    }
    out->collectives = ARENA_ARRAY(a, struct collective, (size_t)out->n_collectives + 1);
    for (int32_t i = 0; i < out->n_collectives; i++)
        take_collective(a, &p->collectives[of[i]], &to, &out->collectives[i]);
    for (int32_t s = 0; s < out->n_stages; s++) take_stage(a, &out->stages[s], &to);
    if (collective_of) *collective_of = of;
}

/* ---- replicas that do the same ---------------------------------------------------------------- */

/* Kept replicas that a replica is compared with, the latest first: replicas of one kind usually follow one another. */
enum { COMPARED_MAX = 8 };

struct likeness {
    const struct program *p;
    int32_t n_replicas, *first; /* (n_replicas + 1) stages */
    int32_t *from,
        *collective; /* memberships of stage s: from[s] … from[s + 1] - 1, of these collectives, ascending */
    /* What a number of the one replica is in the other, and the reverse; of this comparison if stamped with its number. */
    struct twin {
        int32_t of, stamp;
    } * channel[2], *inside[2];
    int32_t stamp;
    int32_t one, other; /* replicas that are compared */
};

static bool pair_up(struct twin *const *twins, int32_t x, int32_t y, int32_t stamp, bool *new)
{
    struct twin *a = &twins[0][x], *b = &twins[1][y];
    *new = a->stamp != stamp && b->stamp != stamp;
    if (*new) *a = (struct twin){y, stamp}, *b = (struct twin){x, stamp};
    return a->stamp == stamp && b->stamp == stamp && a->of == y && b->of == x;
}

/* Stage y of the other replica is in the place of stage x. */
static bool twins(const struct likeness *k, int32_t x, int32_t y)
{
    return x >= k->first[k->one] && x < k->first[k->one + 1] &&
           y - k->first[k->other] == x - k->first[k->one];
}

/* Two slots of messages; of all others only the operators know. */
static bool same_ring(const struct likeness *k, int32_t x, int32_t slot, int32_t y, int32_t other)
{
    return slot == other &&
           k->p->stages[x].slots[slot].buffer_ring == k->p->stages[y].slots[other].buffer_ring;
}

static bool same_channel(const struct likeness *k, int32_t x, int32_t y)
{
    bool new;
    if (x < 0 || y < 0) return x == y;
    if (!pair_up(k->channel, x, y, k->stamp, &new)) return false;
    const struct channel *a = &k->p->channels[x], *b = &k->p->channels[y];
    return !new || (twins(k, a->from_stage, b->from_stage) && twins(k, a->to_stage, b->to_stage) &&
                    same_ring(k, a->from_stage, a->from_slot, b->from_stage, b->from_slot) &&
                    same_ring(k, a->to_stage, a->to_slot, b->to_stage, b->to_slot) &&
                    a->receive_ahead == b->receive_ahead);
}

/* One collective, or one inside each replica. */
static bool same_collective(const struct likeness *k, int32_t x, int32_t y)
{
    bool new;
    if (x == y) return true;
    if (!pair_up(k->inside, x, y, k->stamp, &new)) return false;
    const struct collective *a = &k->p->collectives[x], *b = &k->p->collectives[y];
    if (!new) return true;
    bool same = a->kind == b->kind && a->algorithm == b->algorithm &&
                a->n_members == b->n_members && a->each_call == b->each_call &&
                collective_of_tensor(a) == collective_of_tensor(b);
    for (int32_t i = 0; same && i < a->n_members; i++)
        same = twins(k, a->members[i].stage, b->members[i].stage);
    return same;
}

static bool same_instr(const struct likeness *k, const struct instr *x, const struct instr *y)
{
    if (x->kind != y->kind) return false;
    if (names_channel(x->kind)) return same_channel(k, x->arg, y->arg);
    if (x->kind == INSTR_OFFLOAD || x->kind == INSTR_FETCH) return x->arg == y->arg;
    return !names_collective(x->kind) || same_collective(k, x->arg, y->arg);
}

static bool same_stage(const struct likeness *k, int32_t s, int32_t t)
{
    const struct program_stage *x = &k->p->stages[s], *y = &k->p->stages[t];
    const struct lane *l = &k->p->lanes[x->device], *m = &k->p->lanes[y->device];
    bool same = x->n_procedures == y->n_procedures && x->n_buffer_rings == y->n_buffer_rings &&
                x->microbatches == y->microbatches && x->offload.count == y->offload.count && l->order == m->order &&
                l->n_stages == m->n_stages &&
                k->from[s + 1] - k->from[s] == k->from[t + 1] - k->from[t];
    for (int32_t i = 0; same && i < l->n_stages; i++) same = twins(k, l->stages[i], m->stages[i]);
    for (int32_t i = 0; same && i < k->from[s + 1] - k->from[s]; i++)
        same = same_collective(k, k->collective[k->from[s] + i], k->collective[k->from[t] + i]);
    for (int32_t i = 0; same && i < x->n_buffer_rings; i++) {
        const struct buffer_ring *a = &x->buffer_rings[i], *b = &y->buffer_rings[i];
        same = a->count == b->count && a->birth == b->birth && a->death == b->death &&
               same_channel(k, a->sent, b->sent) && same_channel(k, a->received, b->received);
    }
    for (int32_t i = 0; same && i < x->n_procedures; i++) {
        const struct procedure *a = &x->procedures[i], *b = &y->procedures[i];
        same =
            a->phase == b->phase && !strcmp(a->variant, b->variant) && a->n_instrs == b->n_instrs;
        for (int32_t n = 0; same && n < a->n_instrs; n++)
            same = same_instr(k, &a->instrs[n], &b->instrs[n]);
    }
    return same;
}

static bool alike(struct likeness *k, int32_t one, int32_t other)
{
    int32_t n = k->first[one + 1] - k->first[one];
    bool same = n == k->first[other + 1] - k->first[other];
    k->one = one, k->other = other, k->stamp++;
    for (int32_t i = 0; same && i < n; i++)
        same = same_stage(k, k->first[one] + i, k->first[other] + i);
    return same;
}

/* false: the stages of a replica are not together. */
static bool find_replicas(struct arena *a, struct likeness *k)
{
    const struct program *p = k->p;
    k->first = ARENA_ARRAY(a, int32_t, (size_t)p->n_stages + 1);
    for (int32_t s = 0; s < p->n_stages; s++) {
        if (p->stages[s].replica == k->n_replicas) k->first[k->n_replicas++] = s;
        if (p->stages[s].replica != k->n_replicas - 1) return false;
    }
    k->first[k->n_replicas] = p->n_stages;
    return true;
}

static void find_memberships(struct arena *a, struct likeness *k)
{
    const struct program *p = k->p;
    k->from = ARENA_ARRAY(a, int32_t, (size_t)p->n_stages + 2);
    for (int32_t i = 0; i < p->n_collectives; i++)
        for (int32_t m = 0; m < p->collectives[i].n_members; m++)
            k->from[p->collectives[i].members[m].stage + 2]++;
    for (int32_t s = 2; s < p->n_stages + 2; s++) k->from[s] += k->from[s - 1];
    k->collective = ARENA_ARRAY(a, int32_t, (size_t)k->from[p->n_stages + 1] + 1);
    for (int32_t i = 0; i < p->n_collectives; i++)
        for (int32_t m = 0; m < p->collectives[i].n_members; m++)
            k->collective[k->from[p->collectives[i].members[m].stage + 1]++] = i;
}

bool program_unlike_replicas(struct arena *a, const struct program *p, bool *keep)
{
    struct likeness k = {.p = p};
    if (p->outer.every || p->server.n) return false; /* replicas of two islands are in different gradient all-reduces, and each worker has channels of its own */
    if (!find_replicas(a, &k) || k.n_replicas < 2) return false;
    find_memberships(a, &k);
    for (int i = 0; i < 2; i++) {
        k.channel[i] = ARENA_ARRAY(a, struct twin, (size_t)p->n_channels + 1);
        k.inside[i] = ARENA_ARRAY(a, struct twin, (size_t)p->n_collectives + 1);
    }
    bool fewer = false;
    for (int32_t r = 0; r < k.n_replicas; r++) {
        keep[r] = true;
        for (int32_t q = r - 1, compared = 0; q >= 0 && compared < COMPARED_MAX && keep[r]; q--) {
            if (!keep[q]) continue;
            compared++;
            keep[r] = !alike(&k, q, r);
        }
        fewer |= !keep[r];
    }
    return fewer;
}
