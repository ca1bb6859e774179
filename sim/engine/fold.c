/* Colours, then the quotient program. A lane's instructions are numbered through its stages and procedures; lanes of one colour
 * have the same numbers, so (colour, number) names the same channel or collective in all of them. */
#include "sim/collective/price.h"
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

#include <string.h>
static uint64_t mix(uint64_t h, uint64_t x) { return rng_hash_bytes(h, &x, sizeof x); }

static uint64_t mix_double(uint64_t h, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return mix(h, bits);
}

static bool names_channel(enum instr_kind k) { return k == INSTR_RECEIVE || k == INSTR_SEND; }
static bool names_reduce(enum instr_kind k)
{
    return k == INSTR_COLLECTIVE_START || k == INSTR_COLLECTIVE_WAIT;
}
static bool names_group(enum instr_kind k) { return names_reduce(k) || k == INSTR_COLLECTIVE; }

/* --- colour of a lane by itself --- */

/* A message on the compute stream is coloured by its bytes and its link's cost, not by the link. */
static uint64_t op_colour(const struct folding *f, const struct program_op *op, uint64_t h)
{
    bool known = op->kind == OP_message && op->attrs.link >= 0 && op->attrs.link < f->p->n_links;
    if (known) h = mix(h, f->link_colour[op->attrs.link]);
    return mix(h, known ? (uint64_t)shape_elements(&op->shapes.input[0]) : op->key);
}

static uint64_t stage_colour(const struct folding *f, const struct program_stage *s, uint64_t h)
{
    h = mix(mix(h, (uint64_t)s->microbatches), (uint64_t)s->n_procedures);
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        h = mix(mix(h, (uint64_t)r->count), (uint64_t)r->stride_bytes);
        h = mix(h, (uint64_t)(r->birth << 8 | r->death));
        h = mix(h, (uint64_t)((r->sent >= 0) << 1 | (r->received >= 0)));
    }
    for (int32_t i = 0; i < SLOT_CLASS_COUNT; i++) h = mix(h, (uint64_t)s->class_bytes[i]);
    for (int32_t i = 0; i < s->n_procedures; i++) {
        const struct procedure *x = &s->procedures[i];
        h = mix(mix(h, (uint64_t)x->phase), (uint64_t)x->n_instrs);
        for (int32_t k = 0; k < x->n_instrs; k++) {
            h = mix(h, (uint64_t)x->instrs[k].kind);
            if (x->instrs[k].kind == INSTR_COMPUTE) h = op_colour(f, &s->ops[x->instrs[k].arg], h);
        }
    }
    return mix(h, (uint64_t)s->buffer_bytes);
}

static void first_colours(struct folding *f)
{
    const struct program *p = f->p;
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct lane *l = &p->lanes[i];
        uint64_t h = mix(mix(1, (uint64_t)p->devices[i].type_index), (uint64_t)l->order);
        if (f->scale && f->scale->device) h = mix_double(h, f->scale->device[i]);
        h = mix(h, (uint64_t)l->n_stages);
        for (int32_t c = 0; c < l->n_stages; c++) h = stage_colour(f, &p->stages[l->stages[c]], h);
        f->colour[i] = h;
    }
}

/* The profile's cost of one message; a link without a price has its own colour. */
static uint64_t hash_link(struct folding *f, int32_t link, uint64_t h)
{
    const struct program_link *l = &f->p->links[link];
    struct cost_link c;
    if (cost_program_link(f->cost, l, link, &c, NULL) != OK) return rng_hash_text(h, l->name);
    h = mix(mix_double(h, c.bandwidth_Bps), (uint64_t)c.latency_ns);
    for (int32_t i = 0; c.curve && i < c.curve->n_points; i++)
        h = mix_double(mix_double(h, c.curve->points[i].bytes), c.curve->points[i].Bps);
    return f->scale && f->scale->link ? mix_double(h, f->scale->link[link]) : h;
}

static void colour_links(struct folding *f)
{
    for (int32_t i = 0; i < f->p->n_links; i++) {
        const struct program_link *l = &f->p->links[i];
        uint64_t h = mix(6, (uint64_t)l->n_hops);
        for (int32_t k = 0; k < l->n_hops || k < 1; k++)
            h = hash_link(f, l->n_hops ? l->hop[k] : i, h);
        f->link_colour[i] = h;
    }
}

static uint64_t link_colour(const struct folding *f, int32_t link, uint64_t h)
{
    return mix(h, link < 0 ? 0 : f->link_colour[link]);
}

static void pin(struct folding *f, int32_t stage)
{
    int32_t lane = f->lane_of_stage[stage];
    f->colour[lane] = mix(mix(2, (uint64_t)lane), 0);
    f->pinned[lane] = true;
}

/* Lanes that share a link, or a collective that does not fold, stay separate. */
static void pin_contended(struct folding *f)
{
    const struct program *p = f->p;
    for (int32_t i = 0; i < p->n_channels; i++) {
        const struct channel *c = &p->channels[i];
        if (fold_alone(f, c->link, c->direction)) continue;
        pin(f, c->from_stage), pin(f, c->to_stage);
    }
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        bool good = program_collective_rings(g) && !collective_of_tensor(g);
        for (int32_t m = 0; good && !g->each_call && g->n_members > 1 && m < g->n_members; m++)
            good = g->link && fold_alone(f, g->link[m], g->direction[m]);
        for (int32_t m = 0; !good && m < g->n_members; m++) pin(f, g->members[m].stage);
    }
}

/* --- numbers of instructions --- */

static void number_lane(struct folding *f, int32_t lane)
{
    const struct program *p = f->p;
    int64_t n = 0;
    for (int32_t s = 0; s < p->lanes[lane].n_stages; s++) {
        int32_t stage = p->lanes[lane].stages[s], last = -1;
        const struct program_stage *x = &p->stages[stage];
        for (int32_t q = 0; q < x->n_procedures; q++)
            for (int32_t k = 0; k < x->procedures[q].n_instrs; k++, n++) {
                const struct instr *in = &x->procedures[q].instrs[k];
                int64_t *at = in->kind == INSTR_SEND ? f->sent_at : f->received_at;
                if (names_channel(in->kind) && at[in->arg] < 0) at[in->arg] = n;
                if (!names_group(in->kind) || in->arg == last) continue;
                const struct collective *g = &p->collectives[last = in->arg];
                at = &f->member_at[f->first_member[last]];
                for (int32_t m = 0; m < g->n_members; m++)
                    if (g->members[m].stage == stage && at[m] < 0) at[m] = n;
            }
    }
}

static void number(struct folding *f)
{
    const struct program *p = f->p;
    int32_t n_members = 0;
    f->first_member = ARENA_ARRAY(f->a, int32_t, (size_t)p->n_collectives);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        f->first_member[i] = n_members;
        n_members += p->collectives[i].n_members;
    }
    int64_t *at = ARENA_ARRAY(f->a, int64_t, 2 * (size_t)p->n_channels + (size_t)n_members);
    memset(at, -1, (2 * (size_t)p->n_channels + (size_t)n_members) * sizeof *at);
    f->sent_at = at, f->received_at = at + p->n_channels, f->member_at = at + 2 * p->n_channels;
    for (int32_t i = 0; i < p->n_devices; i++) number_lane(f, i);
}

/* --- refinement --- */

enum mixture { ALL_ALIKE, ALL_DIFFERENT, MIXED };

static uint64_t member_colour(const struct folding *f, const struct collective *g, int32_t m)
{
    return f->colour[f->lane_of_stage[g->members[m].stage]];
}

static const int64_t *places(const struct folding *f, const struct collective *g)
{
    return &f->member_at[f->first_member[g - f->p->collectives]];
}

static enum mixture mixture_of(const struct folding *f, const struct collective *g)
{
    bool alike = true, different = true;
    const int64_t *at = places(f, g);
    for (int32_t m = 1; m < g->n_members; m++) {
        alike &= member_colour(f, g, m) == member_colour(f, g, 0) && at[m] == at[0];
        /* If members repeat in runs, comparing neighbours is enough; other repetitions are sought among few members only. */
        for (int32_t k = g->n_members > 64 ? m - 1 : 0; k < m; k++)
            different &= member_colour(f, g, m) != member_colour(f, g, k);
    }
    return alike ? ALL_ALIKE : different && g->n_members <= 64 ? ALL_DIFFERENT : MIXED;
}

static uint64_t group_colour(const struct folding *f, const struct collective *g, int32_t stage,
                             uint64_t h)
{
    int32_t n = g->n_members;
    enum mixture mixture = mixture_of(f, g);
    h = mix(mix(mix(h, (uint64_t)n), (uint64_t)g->elements), (uint64_t)g->dtype);
    for (int32_t m = 0; m < n; m++) {
        bool own = g->members[m].stage == stage;
        if (mixture != ALL_ALIKE)
            h = mix(mix(mix(h, member_colour(f, g, m)), (uint64_t)places(f, g)[m]), own);
        if (!g->link || n < 2) continue;
        if (own || g->each_call) h = link_colour(f, g->link[m], h);
        if (own) h = link_colour(f, g->link[(m + n - 1) % n], h);
    }
    return h;
}

static uint64_t neighbours(const struct folding *f, int32_t lane)
{
    const struct program *p = f->p;
    const struct lane *l = &p->lanes[lane];
    uint64_t h = f->colour[lane];
    for (int32_t s = 0; s < l->n_stages; s++) {
        const struct program_stage *x = &p->stages[l->stages[s]];
        int32_t last = -1; /* a run of collectives of one group adds no information */
        for (int32_t i = 0; i < x->n_procedures; i++)
            for (int32_t k = 0; k < x->procedures[i].n_instrs; k++) {
                const struct instr *in = &x->procedures[i].instrs[k];
                if (names_channel(in->kind)) {
                    const struct channel *c = &p->channels[in->arg];
                    bool out = in->kind == INSTR_SEND;
                    h = mix(h, f->colour[f->lane_of_stage[out ? c->to_stage : c->from_stage]]);
                    h = mix(h, (uint64_t)(out ? f->received_at : f->sent_at)[in->arg]);
                    h = mix(mix(h, (uint64_t)c->bytes), (uint64_t)c->receive_ahead);
                    h = link_colour(f, c->link, h);
                } else if (names_group(in->kind) && in->arg != last) {
                    h = group_colour(f, &p->collectives[in->arg], l->stages[s], h);
                    last = in->arg;
                }
            }
    }
    return h;
}

static int32_t count_colours(struct folding *f);

static void refine(struct folding *f)
{
    for (int32_t before = 0, now = count_colours(f); now != before;) {
        before = now;
        for (int32_t i = 0; i < f->p->n_devices; i++) f->next[i] = neighbours(f, i);
        memcpy(f->colour, f->next, (size_t)f->p->n_devices * sizeof *f->colour);
        now = count_colours(f);
    }
}

/* Separates rings in which some but not all members run in lockstep. */
static bool pin_mixed(struct folding *f)
{
    bool any = false;
    for (int32_t i = 0; i < f->p->n_collectives; i++) {
        const struct collective *g = &f->p->collectives[i];
        if (!program_collective_rings(g) || g->each_call || mixture_of(f, g) != MIXED) continue;
        for (int32_t m = 0; m < g->n_members; m++) {
            if (f->pinned[f->lane_of_stage[g->members[m].stage]]) continue;
            pin(f, g->members[m].stage);
            any = true;
        }
    }
    return any;
}

/* --- names --- */

/* The index of this key, or the next free one. */
static int32_t name(struct folding *f, uint64_t key, int32_t *count)
{
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 20);
    for (;; at++) {
        struct named *n = &f->names[at & (f->n_names - 1)];
        if (!n->index) *n = (struct named){key, ++*count};
        if (n->key == key) return n->index - 1;
    }
}

static int32_t count_colours(struct folding *f)
{
    int32_t n = 0, *first = ARENA_ARRAY(f->a, int32_t, (size_t)f->p->n_devices);
    memset(f->names, 0, f->n_names * sizeof *f->names);
    for (int32_t i = 0; i < f->p->n_devices; i++) {
        int32_t before = n, c = name(f, f->colour[i], &n);
        if (n > before) first[c] = i;
        f->rep[i] = first[c];
    }
    return n;
}

static uint64_t channel_key(const struct folding *f, int32_t channel)
{
    const struct channel *c = &f->p->channels[channel];
    uint64_t h = mix(3, f->colour[f->lane_of_stage[c->from_stage]]);
    /* No sender: the channel itself, so that its receiver waits alone. */
    if (f->sent_at[channel] < 0) return mix(mix(h, 1), (uint64_t)channel);
    return mix(h, (uint64_t)f->sent_at[channel] << 1);
}

static uint64_t group_key(const struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    int32_t least = 0;
    for (int32_t m = 1; m < g->n_members; m++)
        if (member_colour(f, g, m) < member_colour(f, g, least)) least = m;
    int64_t at = places(f, g)[least];
    /* No member of that colour: the collective itself. */
    return at < 0 ? mix(mix(5, 1), (uint64_t)group)
                  : mix(mix(4, member_colour(f, g, least)), (uint64_t)at);
}

/* --- the quotient --- */

static int32_t new_stage(const struct folding *f, const int32_t *index, int32_t stage)
{
    int32_t rep = f->rep[f->lane_of_stage[stage]];
    return index[f->p->lanes[rep].stages[f->chunk_of_stage[stage]]];
}

static void fold_group(struct folding *f, const int32_t *index, int32_t group,
                       struct collective *out)
{
    const struct collective *g = &f->p->collectives[group];
    bool alike = mixture_of(f, g) == ALL_ALIKE;
    *out = *g;
    out->stands_for = g->n_members;
    if (cost_has_collectives(f->cost)) out->stands_on = collective_nodes(f->cost, f->p, g);
    out->n_members = 0;
    out->members = ARENA_ARRAY(f->a, struct collective_member, (size_t)g->n_members);
    for (int32_t m = 0; m < (alike ? 1 : g->n_members); m++) {
        int32_t stage = new_stage(f, index, g->members[m].stage);
        bool known = false; /* a collective some of whose members are equal */
        for (int32_t k = 0; k < out->n_members && g->each_call; k++)
            known |= out->members[k].stage == stage;
        if (known) continue;
        out->members[out->n_members] = g->members[m];
        out->members[out->n_members++].stage = stage;
    }
}

static void fold_stage(struct folding *f, struct program_stage *x, int32_t *n_channels,
                       int32_t *n_groups, int32_t *channel_of, int32_t *group_of)
{
    x->buffer_rings =
        arena_copy(f->a, x->buffer_rings, (size_t)x->n_buffer_rings * sizeof *x->buffer_rings);
    x->procedures =
        arena_copy(f->a, x->procedures, (size_t)x->n_procedures * sizeof *x->procedures);
    for (int32_t i = 0; i < x->n_procedures; i++) {
        struct procedure *q = &x->procedures[i];
        q->instrs = arena_copy(f->a, q->instrs, (size_t)q->n_instrs * sizeof *q->instrs);
        for (int32_t k = 0; k < q->n_instrs; k++) {
            struct instr *in = &q->instrs[k];
            int32_t old = in->arg;
            if (names_channel(in->kind)) {
                in->arg = name(f, channel_key(f, old), n_channels);
                channel_of[in->arg] = old;
            } else if (names_group(in->kind)) {
                in->arg = name(f, group_key(f, old), n_groups);
                group_of[in->arg] = old;
            }
        }
    }
    for (int32_t r = 0; r < x->n_buffer_rings; r++) {
        int32_t *ends[2] = {&x->buffer_rings[r].sent, &x->buffer_rings[r].received};
        for (int k = 0; k < 2; k++) {
            if (*ends[k] < 0) continue;
            int32_t old = *ends[k];
            *ends[k] = name(f, channel_key(f, old), n_channels);
            channel_of[*ends[k]] = old;
        }
    }
}

static void make_program(struct folding *f)
{
    const struct program *p = f->p;
    struct program *q = &f->out->program;
    int32_t *index = ARENA_ARRAY(f->a, int32_t, (size_t)p->n_stages);
    int32_t *channel_of = ARENA_ARRAY(f->a, int32_t, (size_t)p->n_channels);
    int32_t *group_of = ARENA_ARRAY(f->a, int32_t, (size_t)p->n_collectives);
    double *scale = ARENA_ARRAY(f->a, double, (size_t)p->n_devices);
    *q = *p;
    q->n_devices = q->n_stages = q->n_channels = q->n_collectives = 0;
    q->devices = ARENA_ARRAY(f->a, struct program_device, (size_t)p->n_devices);
    q->lanes = ARENA_ARRAY(f->a, struct lane, (size_t)p->n_devices);
    q->stages = ARENA_ARRAY(f->a, struct program_stage, (size_t)p->n_stages);
    for (int32_t i = 0; i < p->n_devices; i++) {
        f->out->of[i] = f->rep[i] == i ? q->n_devices : f->out->of[f->rep[i]];
        if (f->rep[i] != i) continue;
        if (f->scale && f->scale->device) scale[q->n_devices] = f->scale->device[i];
        struct lane *l = &q->lanes[q->n_devices];
        *l = p->lanes[i];
        l->stages = ARENA_ARRAY(f->a, int32_t, (size_t)l->n_stages);
        for (int32_t s = 0; s < l->n_stages; s++) {
            int32_t old = p->lanes[i].stages[s];
            l->stages[s] = index[old] = q->n_stages;
            q->stages[q->n_stages] = p->stages[old];
            q->stages[q->n_stages++].device = q->n_devices;
        }
        q->devices[q->n_devices++] = p->devices[i];
    }
    memset(f->names, 0, f->n_names * sizeof *f->names);
    for (int32_t s = 0; s < q->n_stages; s++)
        fold_stage(f, &q->stages[s], &q->n_channels, &q->n_collectives, channel_of, group_of);
    q->channels = ARENA_ARRAY(f->a, struct channel, (size_t)q->n_channels);
    q->collectives = ARENA_ARRAY(f->a, struct collective, (size_t)q->n_collectives);
    for (int32_t i = 0; i < q->n_channels; i++) {
        q->channels[i] = p->channels[channel_of[i]];
        q->channels[i].from_stage = new_stage(f, index, q->channels[i].from_stage);
        q->channels[i].to_stage = new_stage(f, index, q->channels[i].to_stage);
    }
    for (int32_t i = 0; i < q->n_collectives; i++)
        fold_group(f, index, group_of[i], &q->collectives[i]);
    f->out->scale = f->scale ? *f->scale : (struct sim_scale){0};
    if (f->scale && f->scale->device) f->out->scale.device = scale;
}

void fold_make(struct arena *a, const struct program *p, struct cost *k,
               const struct sim_scale *scale, struct fold *out)
{
    size_t n = (size_t)p->n_devices;
    struct folding f = {.a = a, .p = p, .cost = k, .scale = scale, .out = out, .n_names = 16};
    size_t most = n + (size_t)p->n_channels + (size_t)p->n_collectives;
    while (f.n_names < 2 * most) f.n_names *= 2;
    f.names = ARENA_ARRAY(a, struct named, f.n_names);
    size_t links = (size_t)p->n_links, stages = (size_t)p->n_stages;
    f.lane_of_stage = ARENA_ARRAY(a, int32_t, stages);
    f.chunk_of_stage = ARENA_ARRAY(a, int32_t, stages);
    f.users = ARENA_ARRAY(a, int32_t, 2 * links), f.user = ARENA_ARRAY(a, int32_t, 2 * links);
    f.colour = ARENA_ARRAY(a, uint64_t, n), f.next = ARENA_ARRAY(a, uint64_t, n);
    f.link_colour = ARENA_ARRAY(a, uint64_t, links);
    f.rep = ARENA_ARRAY(a, int32_t, n), f.pinned = ARENA_ARRAY(a, bool, n);
    out->of = ARENA_ARRAY(a, int32_t, n);
    for (int32_t i = 0; i < p->n_devices; i++)
        for (int32_t c = 0; c < p->lanes[i].n_stages; c++) {
            f.lane_of_stage[p->lanes[i].stages[c]] = i;
            f.chunk_of_stage[p->lanes[i].stages[c]] = c;
        }
    fold_count_users(&f), colour_links(&f), number(&f), first_colours(&f), pin_contended(&f);
    do refine(&f);
    while (pin_mixed(&f));
    make_program(&f);
}
