/* The folded program: representative lanes with their channels, collectives and links. */
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"

struct quotient {
    struct folding *f;
    struct folding_links *links;
    struct folding_names channels, groups;
    int32_t *index; /* (n_stages) of a representative's stage in the folded program */
    int32_t *channel_of, *group_of; /* of each: one of the full program */
};

static int32_t new_stage(const struct quotient *q, int32_t stage)
{
    const struct folding *f = q->f;
    int32_t rep = f->rep[f->lane_of_stage[stage]];
    return q->index[f->p->lanes[rep].stages[f->chunk_of_stage[stage]]];
}

/* --- lanes --- */

static void take_lanes(struct quotient *q)
{
    struct folding *f = q->f;
    const struct program *p = f->p;
    struct program *out = &f->out->program;
    size_t n = (size_t)fold_classes(f);
    double *scale = ARENA_ARRAY(f->arena, double, n);
    int32_t n_stages = 0;
    for (int32_t i = 0; i < p->n_devices; i++)
        if (f->rep[i] == i) n_stages += p->lanes[i].n_stages;
    out->devices = ARENA_ARRAY(f->arena, struct program_device, n);
    out->lanes = ARENA_ARRAY(f->arena, struct lane, n);
    out->stages = ARENA_ARRAY(f->arena, struct program_stage, (size_t)n_stages);
    for (int32_t i = 0; i < p->n_devices; i++) {
        f->out->of[i] = f->rep[i] == i ? out->n_devices : f->out->of[f->rep[i]];
        if (f->rep[i] != i) continue;
        if (f->scale && f->scale->device) scale[out->n_devices] = f->scale->device[i];
        struct lane *l = &out->lanes[out->n_devices];
        *l = p->lanes[i];
        l->stages = ARENA_ARRAY(f->arena, int32_t, (size_t)l->n_stages);
        for (int32_t s = 0; s < l->n_stages; s++) {
            int32_t old = p->lanes[i].stages[s];
            l->stages[s] = q->index[old] = out->n_stages;
            out->stages[out->n_stages] = p->stages[old];
            out->stages[out->n_stages++].device = out->n_devices;
        }
        out->devices[out->n_devices++] = p->devices[i];
    }
    if (f->scale && f->scale->device) f->out->scale.device = scale;
}

/* A channel is represented by that of its sender's representative, a collective by any. */
static int32_t name_channel(struct quotient *q, int32_t channel)
{
    struct folding *f = q->f;
    int32_t before = q->channels.count, at = fold_name(&q->channels, f->channel[channel]);
    int32_t from = f->lane_of_stage[f->p->channels[channel].from_stage];
    if (at == before || f->rep[from] == from) q->channel_of[at] = channel;
    return at;
}

static int32_t name_group(struct quotient *q, int32_t group)
{
    int32_t before = q->groups.count;
    int32_t at = fold_name(&q->groups, fold_group_colour(q->f, group));
    if (at == before) q->group_of[at] = group;
    return at;
}

static void take_stage(struct quotient *q, struct program_stage *x)
{
    struct arena *a = q->f->arena;
    x->buffer_rings =
        arena_copy(a, x->buffer_rings, (size_t)x->n_buffer_rings * sizeof *x->buffer_rings);
    x->procedures = arena_copy(a, x->procedures, (size_t)x->n_procedures * sizeof *x->procedures);
    for (int32_t i = 0; i < x->n_procedures; i++) {
        struct procedure *c = &x->procedures[i];
        c->instrs = arena_copy(a, c->instrs, (size_t)c->n_instrs * sizeof *c->instrs);
        for (int32_t k = 0; k < c->n_instrs; k++) {
            struct instr *in = &c->instrs[k];
            if (fold_names_channel(in->kind)) in->arg = name_channel(q, in->arg);
            if (fold_names_group(in->kind)) in->arg = name_group(q, in->arg);
        }
    }
    for (int32_t r = 0; r < x->n_buffer_rings; r++) {
        struct buffer_ring *b = &x->buffer_rings[r];
        if (b->sent >= 0) b->sent = name_channel(q, b->sent);
        if (b->received >= 0) b->received = name_channel(q, b->received);
    }
}

/* Operators that move messages name links of the folded program. */
static void take_operators(struct quotient *q, struct program_stage *x)
{
    struct folding *f = q->f;
    struct program_op *own = NULL;
    for (int32_t i = 0; i < x->n_ops; i++) {
        int32_t link = x->ops[i].kind == OP_message ? x->ops[i].attrs.link : -1, direction;
        if (link < 0 || link >= f->p->n_links) continue;
        if (!own) own = arena_copy(f->arena, x->ops, (size_t)x->n_ops * sizeof *own);
        own[i].attrs.link = fold_links_get(f, q->links, 0, fold_path(f, link, 0), &direction);
    }
    if (own) x->ops = own;
}

/* --- collectives --- */

/* The first members of a ring until they repeat; all members of another collective. */
static int32_t period(const struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    const uint64_t *colour = &f->member[f->first_member[group]];
    int32_t n = 1;
    if (!program_collective_rings(g) || fold_meets(f, group)) return g->n_members;
    while (n < g->n_members && colour[n] != colour[0]) n++;
    return n;
}

static const int32_t *likes(struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    const uint64_t *colour = &f->member[f->first_member[group]];
    int32_t *like = ARENA_ARRAY(f->arena, int32_t, (size_t)g->n_members);
    for (int32_t i = 0; i < g->n_members; i++)
        while (colour[like[i]] != colour[i]) like[i]++;
    return like;
}

static int32_t *unknown(struct arena *a, const int32_t *old, size_t n)
{
    int32_t *new = old ? ARENA_ARRAY(a, int32_t, n) : NULL;
    for (size_t i = 0; old && i < n; i++) new[i] = -1;
    return new;
}

struct taking { /* links of one collective */
    struct quotient *q;
    struct collective *out;
    int32_t n; /* the first members, whose links are taken */
};

static void take_hop(struct folding *f, const struct folding_flow *x, void *with)
{
    struct taking *t = with;
    struct collective *g = t->out;
    bool pairs = g->pair_link, back = g->back_link && x->receiver < x->sender;
    int32_t at = pairs ? x->sender * g->n_members + x->receiver : x->sender, direction;
    if (x->sender >= t->n || collective_like(g, x->sender) != x->sender) return;
    int32_t link = fold_links_get(f, t->q->links, x->colour, x->path, &direction);
    (pairs ? g->pair_link : back ? g->back_link : g->link)[at] = link;
    (pairs ? g->pair_direction : back ? g->back_direction : g->direction)[at] = direction;
}

/* A link that only has a price. */
static void take_price(struct quotient *q, const int32_t *old, const int32_t *old_direction,
                       int32_t *link, int32_t *direction, int32_t n)
{
    for (int32_t i = 0; old && i < n; i++) {
        int32_t path = fold_path(q->f, old[i], old[i] < 0 ? 0 : old_direction[i]);
        if (path >= 0) link[i] = fold_links_get(q->f, q->links, 0, path, &direction[i]);
    }
}

static void take_links(struct quotient *q, int32_t group, int32_t n, struct collective *out)
{
    struct folding *f = q->f;
    const struct collective *g = &f->p->collectives[group];
    size_t one = (size_t)n, all = one * one;
    struct taking t = {q, out, n};
    out->back_link = unknown(f->arena, g->back_link, one);
    out->back_direction = unknown(f->arena, g->back_direction, one);
    out->pair_link = unknown(f->arena, g->pair_link, all);
    out->pair_direction = unknown(f->arena, g->pair_direction, all);
    if (fold_moves(f, group)) {
        fold_visit_group(f, group, take_hop, &t);
    } else if (!program_collective_in_rounds(g)) {
        take_price(q, g->link, g->direction, out->link, out->direction, n);
        take_price(q, g->back_link, g->back_direction, out->back_link, out->back_direction, n);
    }
}

/* One member of each colour, with its link; inside calls the links of all members have prices. */
static void meet(struct quotient *q, int32_t group, struct collective *out)
{
    struct folding *f = q->f;
    const struct collective *g = &f->p->collectives[group];
    int32_t direction;
    out->n_members = 0;
    for (int32_t m = 0; m < g->n_members; m++) {
        int32_t stage = new_stage(q, g->members[m].stage), at = 0;
        while (at < out->n_members && out->members[at].stage != stage) at++;
        if (at < out->n_members) continue;
        out->members[at] = g->members[m];
        out->members[at].stage = stage;
        out->n_members++;
        int32_t path =
            g->link ? fold_path(f, g->link[m], g->link[m] < 0 ? 0 : g->direction[m]) : -1;
        if (path >= 0 && !g->each_call)
            out->link[at] = fold_links_get(f, q->links, 0, path, &out->direction[at]);
    }
    if (g->each_call) take_price(q, g->link, g->direction, out->link, out->direction, g->n_members);
    out->back_link = out->back_direction = NULL; /* no messages */
    if (g->flow_link)
        out->flow_link = 1 + fold_links_get(f, q->links, fold_group_colour(f, group),
                                            fold_path(f, g->flow_link - 1, 0), &direction);
}

static void take_group(struct quotient *q, int32_t group, struct collective *out)
{
    struct folding *f = q->f;
    const struct collective *g = &f->p->collectives[group];
    int32_t n = period(f, group);
    *out = *g;
    out->stands_for = g->n_members;
    out->stands_ns = f->price_ns[group];
    out->members = ARENA_ARRAY(f->arena, struct collective_member, (size_t)n);
    out->link = unknown(f->arena, g->link, (size_t)n);
    out->direction = unknown(f->arena, g->direction, (size_t)n);
    if (fold_meets(f, group)) {
        meet(q, group, out);
        return;
    }
    for (int32_t m = 0; m < n; m++) {
        out->members[m] = g->members[m];
        out->members[m].stage = new_stage(q, g->members[m].stage);
    }
    out->n_members = n;
    if (program_collective_in_rounds(g)) out->like = likes(f, group);
    take_links(q, group, n, out);
}

/* --- all --- */

static void take_channels(struct quotient *q)
{
    struct folding *f = q->f;
    struct program *out = &f->out->program;
    out->n_channels = q->channels.count;
    out->channels = ARENA_ARRAY(f->arena, struct channel, (size_t)out->n_channels);
    for (int32_t i = 0; i < out->n_channels; i++) {
        const struct channel *c = &f->p->channels[q->channel_of[i]];
        int32_t path = fold_path(f, c->link, c->direction);
        struct channel *x = &out->channels[i];
        *x = *c;
        x->from_stage = new_stage(q, c->from_stage), x->to_stage = new_stage(q, c->to_stage);
        if (path >= 0)
            x->link =
                fold_links_get(f, q->links, f->channel[q->channel_of[i]], path, &x->direction);
    }
}

static void announce(struct quotient *q)
{
    struct folding *f = q->f;
    size_t most = (size_t)q->channels.count + 1;
    for (int32_t i = 0; i < q->groups.count; i++) {
        const struct collective *g = &f->p->collectives[q->group_of[i]];
        const struct folding_rounds *r = f->rounds[q->group_of[i]];
        if (!fold_moves(f, q->group_of[i])) continue;
        most += g->flow_link ? 1 : r ? (size_t)r->first_to[g->n_members] : 2 * (size_t)g->n_members;
    }
    q->links = fold_links_new(f, most);
    for (int32_t i = 0; i < q->channels.count; i++)
        fold_visit_channel(f, q->channel_of[i], fold_links_want, q->links);
    for (int32_t i = 0; i < q->groups.count; i++)
        fold_visit_group(f, q->group_of[i], fold_links_want, q->links);
    fold_links_count(f, q->links);
}

void fold_quotient(struct folding *f)
{
    const struct program *p = f->p;
    struct program *out = &f->out->program;
    struct quotient q = {.f = f,
                         .index = ARENA_ARRAY(f->scratch, int32_t, (size_t)p->n_stages),
                         .channel_of = ARENA_ARRAY(f->scratch, int32_t, (size_t)p->n_channels),
                         .group_of = ARENA_ARRAY(f->scratch, int32_t, (size_t)p->n_collectives)};
    fold_names_new(f->scratch, (size_t)p->n_channels, &q.channels);
    fold_names_new(f->scratch, (size_t)p->n_collectives, &q.groups);
    out->n_devices = out->n_stages = 0;
    take_lanes(&q);
    for (int32_t s = 0; s < out->n_stages; s++) take_stage(&q, &out->stages[s]);
    announce(&q);
    take_channels(&q);
    out->n_collectives = q.groups.count;
    out->collectives = ARENA_ARRAY(f->arena, struct collective, (size_t)out->n_collectives);
    for (int32_t i = 0; i < out->n_collectives; i++)
        take_group(&q, q.group_of[i], &out->collectives[i]);
    for (int32_t s = 0; s < out->n_stages; s++) take_operators(&q, &out->stages[s]);
    fold_links_done(f, q.links);
}
