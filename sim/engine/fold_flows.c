/* Paths of messages: links and routes by direction; the messages of channels and collectives on them. */
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

/* --- paths --- */

/* The profile's cost of one message; a link without a price has its own colour. */
static uint64_t link_cost(struct folding *f, int32_t link)
{
    const struct program_link *l = &f->p->links[link];
    struct cost_link c;
    uint64_t h = fold_mix(6, (uint64_t)l->sharing << 1 | l->half_duplex);
    h = fold_mix_double(h, l->compute_slowdown);
    if (cost_program_link(f->cost, l, link, &c, NULL) != OK) return rng_hash_text(h, l->name);
    h = fold_mix(fold_mix_double(h, c.bandwidth_Bps), (uint64_t)c.latency_ns);
    for (int32_t i = 0; c.curve && i < c.curve->n_points; i++)
        h = fold_mix_double(fold_mix_double(h, c.curve->points[i].bytes), c.curve->points[i].Bps);
    return f->scale && f->scale->link ? fold_mix_double(h, f->scale->link[link]) : h;
}

static int32_t new_path(struct folding *f, int32_t link, int32_t direction)
{
    f->paths =
        arena_grow(f->scratch, f->paths, (size_t)f->n_paths, &f->path_capacity, sizeof *f->paths);
    f->paths[f->n_paths] = (struct folding_path){.link = link, .direction = direction, .other = -1};
    f->path_of[2 * link + direction] = f->n_paths + 1;
    return f->n_paths++;
}

static void make_link(struct folding *f, int32_t link)
{
    int32_t a = new_path(f, link, 0), b = -1;
    f->paths[a].cost = link_cost(f, link);
    if (f->p->links[link].half_duplex)
        f->path_of[2 * link + 1] = a + 1;
    else
        b = new_path(f, link, 1), f->paths[b].other = a, f->paths[b].cost = f->paths[a].cost;
    f->paths[a].other = b;
}

static void make_route(struct folding *f, int32_t link, int32_t direction)
{
    const struct program_link *l = &f->p->links[link];
    int32_t at = new_path(f, link, direction);
    int32_t *hop = ARENA_ARRAY(f->scratch, int32_t, (size_t)l->n_hops);
    uint64_t h = fold_mix(fold_mix(8, (uint64_t)l->sharing), (uint64_t)l->n_hops);
    h = fold_mix_double(fold_mix_double(h, l->compute_slowdown), l->pace_Bps);
    for (int32_t k = 0; k < l->n_hops; k++) {
        int32_t i = direction ? l->n_hops - 1 - k : k;
        hop[k] = fold_path(f, l->hop[i], l->hop_direction[i] ^ direction);
    }
    f->paths[at].hop = hop, f->paths[at].n_hops = l->n_hops;
    f->paths[at].messages = l->hop_messages;
    for (int32_t k = 0; k < l->n_hops; k++) {
        uint64_t cost = f->paths[hop[k]].cost;
        h = l->hop_messages ? h + fold_mix(cost, (uint64_t)l->hop_messages[k]) : fold_mix(h, cost);
    }
    f->paths[at].cost = h;
}

int32_t fold_path(struct folding *f, int32_t link, int32_t direction)
{
    if (link < 0) return -1;
    if (!f->path_of[2 * link + direction]) {
        if (f->p->links[link].n_hops)
            make_route(f, link, direction);
        else
            make_link(f, link);
    }
    return f->path_of[2 * link + direction] - 1;
}

int32_t fold_member_path(struct folding *f, const struct collective *g, int32_t i, int32_t k)
{
    bool pairs = program_collective_in_rounds(g) && g->algorithm != ALGORITHM_RING;
    bool back = g->algorithm == ALGORITHM_CHAIN && k < i;
    int32_t at = pairs ? i * g->n_members + k : i;
    const int32_t *link = pairs ? g->pair_link : back ? g->back_link : g->link;
    const int32_t *direction = pairs ? g->pair_direction : back ? g->back_direction : g->direction;
    return link ? fold_path(f, link[at], direction[at]) : -1;
}

/* --- messages --- */

static void pass(struct folding *f, int32_t group, int32_t i, int32_t k, uint64_t colour,
                 fold_visit *visit, void *with)
{
    const struct collective *g = &f->p->collectives[group];
    struct folding_flow x = {.colour = colour,
                             .path = fold_member_path(f, g, i, k),
                             .group = group,
                             .sender = i,
                             .receiver = k,
                             .from_lane = fold_lane_of(f, g, i),
                             .to_lane = fold_lane_of(f, g, k)};
    if (x.path >= 0) visit(f, &x, with);
}

void fold_visit_group(struct folding *f, int32_t group, fold_visit *visit, void *with)
{
    const struct collective *g = &f->p->collectives[group];
    const struct folding_rounds *r = f->rounds[group];
    int32_t n = g->n_members;
    const uint64_t *colour = &f->traffic[f->first_traffic[group]];
    if (!fold_moves(f, group)) return;
    if (g->flow_link) {
        int32_t lane = fold_lane_of(f, g, 0);
        struct folding_flow x = {.colour = fold_group_colour(f, group),
                                 .path = fold_path(f, g->flow_link - 1, 0),
                                 .group = group,
                                 .from_lane = lane,
                                 .to_lane = lane};
        visit(f, &x, with);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        uint64_t own = colour[i];
        if (!r && g->algorithm == ALGORITHM_RING) pass(f, group, i, (i + 1) % n, own, visit, with);
        if (g->algorithm == ALGORITHM_CHAIN && i + 1 < n)
            pass(f, group, i, i + 1, fold_mix(own, 1), visit, with);
        if (g->algorithm == ALGORITHM_CHAIN && i > 0)
            pass(f, group, i, i - 1, fold_mix(own, 2), visit, with);
        for (int32_t k = r ? r->first_to[i] : 0; r && k < r->first_to[i + 1]; k++)
            pass(f, group, i, r->to[k], fold_mix(own, (uint64_t)(k - r->first_to[i])), visit, with);
    }
}

void fold_visit_channel(struct folding *f, int32_t channel, fold_visit *visit, void *with)
{
    const struct channel *c = &f->p->channels[channel];
    struct folding_flow x = {.colour = f->channel[channel],
                             .path = fold_path(f, c->link, c->direction),
                             .group = -1,
                             .sender = channel,
                             .from_lane = f->lane_of_stage[c->from_stage],
                             .to_lane = f->lane_of_stage[c->to_stage]};
    if (x.path >= 0) visit(f, &x, with);
}

void fold_visit_all(struct folding *f, fold_visit *visit, void *with)
{
    for (int32_t i = 0; i < f->p->n_channels; i++) fold_visit_channel(f, i, visit, with);
    for (int32_t i = 0; i < f->p->n_collectives; i++)
        if (f->first_alike[i] == i) fold_visit_group(f, i, visit, with);
}

/* A route shares its links fairly. */
static void use(struct folding *f, const struct folding_flow *x, void *with)
{
    struct folding_path *at = &f->paths[x->path];
    (void)with;
    for (int32_t i = 0; i < fold_path_links(f, x->path); i++) {
        struct folding_path *l = &f->paths[fold_path_link(f, x->path, i)];
        l->fair |= at->n_hops || f->p->links[l->link].sharing != LINK_FIFO;
        if (l->other >= 0) f->paths[l->other].fair |= l->fair;
    }
}

/* Those of one link are few. */
static void note_sender(struct folding *f, const struct folding_flow *x, void *with)
{
    struct folding_path *at = &f->paths[x->path];
    (void)with;
    if (at->n_hops || at->fair) return;
    int32_t k = at->n_senders;
    while (k > 0 && at->senders[k - 1] > x->from_lane) k--;
    if (k > 0 && at->senders[k - 1] == x->from_lane) return;
    at->senders = arena_grow(f->scratch, at->senders, (size_t)at->n_senders, &at->capacity,
                             sizeof *at->senders);
    memmove(at->senders + k + 1, at->senders + k,
            (size_t)(at->n_senders++ - k) * sizeof *at->senders);
    at->senders[k] = x->from_lane;
}

uint64_t fold_sent_on(const struct folding *f, int32_t path, int32_t lane)
{
    const struct folding_path *x = &f->paths[path];
    int32_t k = 0;
    while (k < x->n_senders && x->senders[k] != lane) k++;
    return fold_mix(x->colour, (uint64_t)k);
}

void fold_paths(struct folding *f)
{
    f->path_of = ARENA_ARRAY(f->scratch, int32_t, 2 * (size_t)f->p->n_links);
    fold_visit_all(f, use, NULL);
    fold_visit_all(f, note_sender, NULL);
}
