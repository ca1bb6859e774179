#include "sim/engine/representatives.h"

#include "core/base/arena.h"
#include "sim/collective/price.h"

/* New numbers, -1 for what is left out. */
struct numbers {
    int32_t *stage, *channel, *group;
};

static bool names_channel(enum instr_kind k) { return k == INSTR_RECEIVE || k == INSTR_SEND; }
static bool names_group(enum instr_kind k)
{
    return k == INSTR_COLLECTIVE_START || k == INSTR_COLLECTIVE_WAIT || k == INSTR_COLLECTIVE;
}

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
            if (names_group(in->kind)) in->arg = to->group[in->arg];
        }
    }
}

static int32_t *of_members(struct arena *a, const int32_t *all, const int32_t *member, int32_t n)
{
    int32_t *out = all ? ARENA_ARRAY(a, int32_t, (size_t)n) : NULL;
    for (int32_t i = 0; all && i < n; i++) out[i] = all[member[i]];
    return out;
}

/* What one message takes, as late as all links of a route together and as fast as the slowest of them; 0: no price. */
static double link_ns(const struct program *p, struct cost *k, int32_t link, int64_t bytes)
{
    const struct program_link *l = link < 0 ? NULL : &p->links[link];
    double latency = 0, longest = 0;
    for (int32_t i = 0; l && (i < l->n_hops || i < 1); i++) {
        int32_t at = l->n_hops ? l->hop[i] : link;
        struct cost_link c;
        if (cost_program_link(k, &p->links[at], at, &c, NULL) != OK) return 0;
        double ns = (double)cost_occupancy_ns(&c, bytes);
        latency += (double)c.latency_ns;
        if (ns > longest) longest = ns;
    }
    return latency + longest;
}

/* A hop of a ring stands for those of the members behind it that are left out: it is the slowest of them. */
static void take_slowest(const struct program *p, struct cost *k, const struct collective *g,
                         const int32_t *member, struct collective *out)
{
    int64_t bytes = g->elements / g->n_members * dtype_bytes(g->dtype);
    for (int32_t i = 0; g->link && i < out->n_members; i++) {
        int32_t next = member[(i + 1) % out->n_members], m = member[i];
        double most = -1;
        do {
            double ns = link_ns(p, k, g->link[m], bytes);
            if (ns > most) most = ns, out->link[i] = g->link[m], out->direction[i] = g->direction[m];
            m = (m + 1) % g->n_members;
        } while (m != next);
    }
}

static bool take_group(struct arena *a, const struct program *p, struct cost *k,
                       const struct collective *g, const struct numbers *to, struct collective *out)
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
    if (n == g->n_members) return true;
    if (collective_of_tensor(g)) return false;
    out->n_members = n;
    out->link = of_members(a, g->link, member, n);
    out->direction = of_members(a, g->direction, member, n);
    out->back_link = of_members(a, g->back_link, member, n);
    out->back_direction = of_members(a, g->back_direction, member, n);
    if (program_collective_rings(g)) take_slowest(p, k, g, member, out);
    if (!out->stands_for) out->stands_ns = collective_price_ns(k, p, g, NULL);
    if (!out->stands_for) out->stands_for = g->n_members;
    return true;
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

bool representatives_make(struct arena *a, const struct program *p, struct cost *k,
                          const bool *keep, struct program *out)
{
    const struct numbers to = {ARENA_ARRAY(a, int32_t, (size_t)p->n_stages + 1),
                               ARENA_ARRAY(a, int32_t, (size_t)p->n_channels + 1),
                               ARENA_ARRAY(a, int32_t, (size_t)p->n_collectives + 1)};
    *out = *p;
    out->n_devices = out->n_stages = out->n_channels = out->n_collectives = 0;
    out->devices = ARENA_ARRAY(a, struct program_device, (size_t)p->n_devices);
    out->lanes = ARENA_ARRAY(a, struct lane, (size_t)p->n_devices);
    out->stages = ARENA_ARRAY(a, struct program_stage, (size_t)p->n_stages);
    out->channels = ARENA_ARRAY(a, struct channel, (size_t)p->n_channels + 1);
    out->collectives = ARENA_ARRAY(a, struct collective, (size_t)p->n_collectives + 1);
    take_lanes(a, p, keep, &to, out);
    for (int32_t i = 0; i < p->n_channels; i++) {
        struct channel c = p->channels[i];
        c.from_stage = to.stage[c.from_stage], c.to_stage = to.stage[c.to_stage];
        to.channel[i] = c.from_stage < 0 || c.to_stage < 0 ? -1 : out->n_channels;
        if (to.channel[i] >= 0) out->channels[out->n_channels++] = c;
    }
    for (int32_t i = 0; i < p->n_collectives; i++) {
        to.group[i] = has_member(&p->collectives[i], &to) ? out->n_collectives++ : -1;
        if (to.group[i] >= 0 &&
            !take_group(a, p, k, &p->collectives[i], &to, &out->collectives[to.group[i]]))
            return false;
    }
    for (int32_t s = 0; s < out->n_stages; s++) take_stage(a, &out->stages[s], &to);
    return true;
}
