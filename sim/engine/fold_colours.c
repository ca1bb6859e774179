/* Colour refinement: lanes, channels, collectives and links by their neighbours, until nothing changes. */
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"

/* --- channels --- */

static void colour_channel(struct folding *f, int32_t channel)
{
    const struct channel *c = &f->p->channels[channel];
    int32_t sent = f->sent_at[channel], received = f->received_at[channel],
            path = fold_path(f, c->link, c->direction);
    uint64_t h = fold_mix(f->colour[f->lane_of_stage[c->from_stage]], (uint64_t)sent);
    h = fold_mix(fold_mix(h, f->colour[f->lane_of_stage[c->to_stage]]), (uint64_t)received);
    h = fold_mix(fold_mix(h, (uint64_t)c->bytes), (uint64_t)c->receive_ahead);
    if (path >= 0) h = fold_mix(h, fold_sent_on(f, path, f->lane_of_stage[c->from_stage]));
    /* Without one of its ends: the channel itself, so that the other end waits alone. */
    if (sent < 0 || received < 0) h = fold_mix(fold_mix(h, 3), (uint64_t)channel);
    f->channel[channel] = h;
}

/* --- collectives --- */

/* Sums over a ring: the polynomial of its colours from each member on, modulo a prime, so that each follows from the one before
 * it (Karp and Rabin 1987). */
#define PRIME ((UINT64_C(1) << 61) - 1)
#define POINT UINT64_C(1234567890123456789)

static uint64_t times(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide x = (wide)a * b;
    uint64_t low = (uint64_t)(x & PRIME) + (uint64_t)(x >> 61);
    return low >= PRIME ? low - PRIME : low;
}

static void see_round_a_ring(uint64_t fixed, const uint64_t *base, int32_t n, uint64_t *out)
{
    uint64_t all = 0, power = 1;
    for (int32_t i = n - 1; i >= 0; i--)
        all = (times(all, POINT) + base[i] % PRIME) % PRIME, power = times(power, POINT);
    /* From member i on: base[i] + POINT · base[i + 1] + …; one member further back is added in front and one taken off the end. */
    for (int32_t i = n - 1; i >= 0; i--) {
        uint64_t own = base[i] % PRIME;
        all = (times(all, POINT) + own + PRIME - times(own, power)) % PRIME;
        out[i] = fold_mix(fixed, all);
    }
}

static bool repeats(const uint64_t *colour, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        if (colour[i] == colour[0]) return true;
    return false;
}

/* Unequal chunks belong to the places of a ring; among equal members they count as equal (fold.h). */
static void see_ring(const struct collective *g, uint64_t fixed, const uint64_t *base,
                     uint64_t *out)
{
    int32_t n = g->n_members;
    see_round_a_ring(fixed, base, n, out);
    if (g->elements % n == 0 || repeats(out, n)) return;
    for (int32_t i = 0; i < n; i++) out[i] = fold_mix(out[i], (uint64_t)i);
}

static void see_partners(const struct collective *g, const struct folding_rounds *r, uint64_t fixed,
                         const uint64_t *receives, const uint64_t *base, uint64_t *out)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        uint64_t h = fold_mix(fold_mix(fold_mix(fixed, base[i]), r->colour[i]), receives[i]);
        for (int32_t k = r->first_to[i]; k < r->first_to[i + 1]; k++)
            h = fold_mix(h, base[r->to[k]]);
        for (int32_t k = r->first_from[i]; k < r->first_from[i + 1]; k++)
            h = fold_mix(h, base[r->from[k]]);
        out[i] = h;
    }
}

/* All members in their order, or in any. */
static void see_all(const struct collective *g, bool ordered, uint64_t fixed, const uint64_t *base,
                    uint64_t *out)
{
    uint64_t all = fixed;
    for (int32_t i = 0; i < g->n_members; i++)
        all = ordered ? fold_mix(all, base[i]) : all + fold_mix(10, base[i]);
    for (int32_t i = 0; i < g->n_members; i++)
        out[i] = fold_mix(fold_mix(all, base[i]), ordered ? (uint64_t)i : 0);
}

static uint64_t with_path(struct folding *f, const struct collective *g, int32_t i, int32_t k,
                          uint64_t h)
{
    int32_t path = fold_member_path(f, g, i, k);
    return path < 0 ? h : fold_mix(h, fold_sent_on(f, path, fold_lane_of(f, g, i)));
}

static uint64_t base_of(struct folding *f, int32_t group, int32_t i)
{
    const struct collective *g = &f->p->collectives[group];
    int32_t n = g->n_members;
    uint64_t h = fold_mix(f->colour[fold_lane_of(f, g, i)],
                          (uint64_t)f->member_at[f->first_member[group] + i]);
    if (g->each_call && !collective_of_tensor(g) && g->link && n > 1) {
        int32_t path = fold_path(f, g->link[i], 0);
        return path < 0 ? h : fold_mix(h, f->paths[path].cost);
    }
    if (!fold_moves(f, group) || g->flow_link) return h;
    if (g->algorithm == ALGORITHM_CHAIN) {
        if (i + 1 < n) h = with_path(f, g, i, i + 1, h);
        return i > 0 ? with_path(f, g, i, i - 1, h) : h;
    }
    return fold_mix(h, f->sends[f->first_traffic[group] + i]);
}

/* The links between members and their partners. */
static void colour_partners(struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    const struct folding_rounds *r = f->rounds[group];
    uint64_t *sends = &f->sends[f->first_traffic[group]],
             *receives = &f->receives[f->first_traffic[group]];
    if (!fold_moves(f, group) || g->flow_link || g->algorithm == ALGORITHM_CHAIN) return;
    for (int32_t i = 0; i < g->n_members; i++) {
        sends[i] = r ? 0 : with_path(f, g, i, (i + 1) % g->n_members, 0);
        receives[i] = 0;
        for (int32_t k = r ? r->first_to[i] : 0; r && k < r->first_to[i + 1]; k++)
            sends[i] = with_path(f, g, i, r->to[k], sends[i]);
        for (int32_t k = r ? r->first_from[i] : 0; r && k < r->first_from[i + 1]; k++)
            receives[i] = with_path(f, g, r->from[k], i, receives[i]);
    }
}

static void colour_group(struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    uint64_t *base = f->base, *out = &f->member[f->first_member[group]], fixed = f->fixed[group];
    for (int32_t i = 0; i < g->n_members; i++) base[i] = base_of(f, group, i);
    if (g->flow_link) fixed = fold_mix(fixed, f->paths[fold_path(f, g->flow_link - 1, 0)].colour);
    if (f->rounds[group])
        see_partners(g, f->rounds[group], fixed, &f->receives[f->first_traffic[group]], base, out);
    else if (fold_meets(f, group))
        see_all(g, false, fixed, base, out);
    else if (g->algorithm == ALGORITHM_RING)
        see_ring(g, fixed, base, out);
    else
        see_all(g, true, fixed, base, out);
}

/* Equal for all members of a collective, and for all collectives that one represents. */
uint64_t fold_group_colour(const struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    uint64_t all = 0;
    for (int32_t i = 0; i < g->n_members; i++)
        all += fold_mix(11, f->member[f->first_member[group] + i]);
    return fold_mix(f->fixed[group], all);
}

static void fix_groups(struct folding *f)
{
    for (int32_t i = 0; i < f->p->n_collectives; i++) {
        const struct collective *g = &f->p->collectives[i];
        uint64_t h = fold_mix(fold_mix(4, (uint64_t)g->kind), (uint64_t)g->algorithm);
        h = fold_mix(fold_mix(h, (uint64_t)g->n_members), (uint64_t)g->elements);
        h = fold_mix(fold_mix(h, (uint64_t)g->dtype), (uint64_t)f->price_ns[i]);
        f->fixed[i] = fold_mix(h, (uint64_t)collective_of_tensor(g) << 1 | (uint64_t)g->each_call);
    }
}

/* --- paths --- */

static void add_message(struct folding *f, const struct folding_flow *x, void *with)
{
    (void)with;
    f->paths[x->path].sum += fold_mix(5, x->colour);
}

static void colour_paths(struct folding *f)
{
    struct folding_path *paths = f->paths;
    for (int32_t i = 0; i < f->n_paths; i++) paths[i].sum = paths[i].load = 0;
    fold_visit_all(f, add_message, NULL);
    for (int32_t i = 0; i < f->n_paths; i++)
        for (int32_t k = 0; k < fold_path_links(f, i) && paths[i].sum; k++)
            paths[fold_path_link(f, i, k)].load +=
                paths[i].sum * (uint64_t)fold_path_messages(f, i, k);
    for (int32_t i = 0; i < f->n_paths; i++) {
        struct folding_path *x = &paths[i];
        uint64_t own = fold_mix(x->colour, x->load);
        x->next = own;
        /* Both directions of a link fold together or not at all. */
        if (x->other >= 0)
            x->next = fold_mix(own, fold_mix(paths[x->other].colour, paths[x->other].load));
    }
    for (int32_t i = 0; i < f->n_paths; i++) paths[i].colour = paths[i].next;
    for (int32_t i = 0; i < f->n_paths; i++) {
        if (!paths[i].n_hops) continue;
        paths[i].colour = paths[i].cost;
        for (int32_t k = 0; k < paths[i].n_hops; k++) {
            uint64_t hop = paths[paths[i].hop[k]].colour;
            paths[i].colour = paths[i].messages
                                  ? paths[i].colour + fold_mix(hop, (uint64_t)paths[i].messages[k])
                                  : fold_mix(paths[i].colour, hop);
        }
    }
}

/* --- refinement --- */

/* Channels and collectives by the lanes' and paths' colours. */
static void colour_names(struct folding *f)
{
    for (int32_t i = 0; i < f->p->n_channels; i++) colour_channel(f, i);
    for (int32_t i = 0; i < f->p->n_collectives; i++) {
        int32_t first = f->first_alike[i];
        const uint64_t *colour = &f->member[f->first_member[i]];
        uint64_t *traffic = &f->traffic[f->first_traffic[i]];
        if (first == i) colour_partners(f, i);
        colour_group(f, i);
        for (int32_t m = 0; m < f->p->collectives[i].n_members; m++)
            traffic[m] = (first == i ? 0 : traffic[m]) + fold_mix(13, colour[m]);
    }
}

static uint64_t colour_lane(const struct folding *f, int32_t lane)
{
    uint64_t h = f->colour[lane];
    for (int32_t i = f->first_ref[lane]; i < f->first_ref[lane + 1]; i++) {
        int32_t ref = f->refs[i];
        h = fold_mix(h, ref < 0 ? f->member[-1 - ref]
                                : fold_mix(f->channel[ref / 2], (uint64_t)(ref % 2)));
    }
    return h;
}

static int32_t count_lanes(struct folding *f)
{
    int32_t n = f->p->n_devices, *first = f->rep + n;
    fold_names_clear(&f->colours);
    for (int32_t i = 0; i < n; i++) {
        int32_t before = f->colours.count, c = fold_name(&f->colours, f->colour[i]);
        if (c == before) first[c] = i;
        f->rep[i] = first[c];
    }
    return f->colours.count;
}

static int32_t count_links(struct folding *f)
{
    fold_names_clear(&f->colours);
    for (int32_t i = 0; i < f->n_paths; i++)
        if (!f->paths[i].n_hops) fold_name(&f->colours, f->paths[i].colour);
    return f->colours.count;
}

void fold_refine(struct folding *f)
{
    size_t n = (size_t)f->p->n_devices;
    fix_groups(f);
    for (int32_t i = 0; i < f->n_paths; i++) f->paths[i].colour = f->paths[i].cost;
    int32_t lanes = -1, links = -1, before = -1;
    for (bool first = true; first || lanes + links != before; first = false) {
        before = lanes + links;
        colour_names(f);
        for (size_t i = 0; i < n; i++) f->next[i] = colour_lane(f, (int32_t)i);
        colour_paths(f);
        memcpy(f->colour, f->next, n * sizeof *f->colour);
        lanes = count_lanes(f), links = count_links(f);
        if (lanes == f->p->n_devices) break;
    }
    colour_names(f);
}
