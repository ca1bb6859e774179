/* Links of the folded program: one for each colour, routes over them, and on each link the number of messages of one colour, for all of
 * which one of them stands. */
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"

struct want { /* messages of one colour, by the first of them */
    int32_t path;
    int32_t *messages; /* (links of the path) of this colour on each */
};

struct folding_links {
    struct folding_names flows, keys; /* by colour; links by what they are */
    struct want *wants;
    int32_t *crossing; /* (paths) of the flow that is counted: messages on each link */
    int32_t *place; /* of a link of the folded program, by direction, on the current route, + 1 */
    struct program_link *links;
    double *scale;
    int32_t n;
    size_t capacity;
};

struct folding_links *fold_links_new(struct folding *f, size_t most)
{
    struct folding_links *l = ARENA_ARRAY(f->scratch, struct folding_links, 1);
    fold_names_new(f->scratch, most, &l->flows);
    l->wants = ARENA_ARRAY(f->scratch, struct want, most);
    return l;
}

void fold_links_want(struct folding *f, const struct folding_flow *x, void *with)
{
    struct folding_links *l = with;
    struct want *w = &l->wants[fold_name(&l->flows, x->colour)];
    if (w->messages) return;
    w->path = x->path;
    w->messages = ARENA_ARRAY(f->scratch, int32_t, (size_t)fold_path_links(f, x->path));
}

static void count(struct folding *f, const struct folding_flow *x, void *with)
{
    struct folding_links *l = with;
    int32_t at = fold_find(&l->flows, x->colour);
    if (at < 0) return;
    struct want *w = &l->wants[at];
    int32_t n = fold_path_links(f, x->path);
    /* once, though a route may name a link twice */
    for (int32_t i = 0; i < n; i++)
        l->crossing[fold_path_link(f, x->path, i)] = fold_path_messages(f, x->path, i);
    for (int32_t k = 0; k < fold_path_links(f, w->path); k++)
        w->messages[k] += l->crossing[fold_path_link(f, w->path, k)];
    for (int32_t i = 0; i < n; i++) l->crossing[fold_path_link(f, x->path, i)] = 0;
}

void fold_links_count(struct folding *f, struct folding_links *l)
{
    /* Links of colours, and one route for each message of the folded program, or for the price of an operator. */
    fold_names_new(f->scratch, (size_t)f->n_paths + (size_t)l->flows.count, &l->keys);
    l->crossing = ARENA_ARRAY(f->scratch, int32_t, (size_t)f->n_paths);
    l->place = ARENA_ARRAY(f->scratch, int32_t, 2 * l->keys.capacity);
    fold_visit_all(f, count, l);
}

static struct program_link *add(struct folding *f, struct folding_links *l, int32_t path)
{
    size_t before = l->capacity;
    int32_t link = f->paths[path].link;
    l->links = arena_grow(f->arena, l->links, (size_t)l->n, &l->capacity, sizeof *l->links);
    if (l->capacity != before) {
        double *old = l->scale;
        l->scale = ARENA_ARRAY(f->arena, double, l->capacity);
        if (l->n) memcpy(l->scale, old, (size_t)l->n * sizeof *old);
    }
    l->scale[l->n] =
        f->scale && f->scale->link && !f->p->links[link].n_hops ? f->scale->link[link] : 1;
    l->links[l->n] = f->p->links[link];
    return &l->links[l->n++];
}

/* The link that represents this one, and the direction. */
static int32_t represent(struct folding *f, struct folding_links *l, int32_t path,
                         int32_t *direction)
{
    const struct folding_path *x = &f->paths[path];
    uint64_t low = x->colour, high = x->other < 0 ? low : f->paths[x->other].colour;
    *direction = low > high;
    if (low > high) low = high, high = x->colour;
    int32_t before = l->keys.count, at = fold_name(&l->keys, fold_mix(fold_mix(1, low), high));
    if (at < before) return at;
    struct program_link *new = add(f, l, path);
    if (f->paths[path].fair && new->sharing == LINK_FIFO) new->sharing = LINK_FAIR;
    return at;
}

int32_t fold_links_get(struct folding *f, struct folding_links *l, uint64_t colour, int32_t path,
                       int32_t *direction)
{
    int32_t all = fold_path_links(f, path), n = 0;
    int32_t want = colour ? fold_find(&l->flows, colour) : -1;
    int32_t *hop = ARENA_ARRAY(f->arena, int32_t, 3 * (size_t)all), *towards = hop + all,
            *messages = towards + all;
    bool several = false, each = !f->paths[path].messages;
    uint64_t key = fold_mix(2, f->paths[path].cost);
    /* The flow of a ring has its pace to itself: another ring over equal links has a route of its own. */
    if (f->p->links[f->paths[path].link].pace_Bps > 0) key = fold_mix(key, (uint64_t)path);
    for (int32_t i = 0; i < all; i++) {
        hop[n] = represent(f, l, fold_path_link(f, path, i), &towards[n]);
        int32_t *place = &l->place[2 * hop[n] + towards[n]];
        if (!each && *place) continue; /* one of the links that it represents suffices */
        messages[n] = want < 0 ? 1 : l->wants[want].messages[i];
        several |= messages[n] > 1;
        key = fold_mix(fold_mix(key, (uint64_t)hop[n] << 1 | (uint64_t)towards[n]),
                       (uint64_t)messages[n]);
        *place = ++n;
    }
    for (int32_t i = 0; i < n; i++) l->place[2 * hop[i] + towards[i]] = 0;
    *direction = towards[0];
    if (!f->paths[path].n_hops && !several) return hop[0];
    int32_t before = l->keys.count, at = fold_name(&l->keys, key);
    *direction = 0;
    if (at < before) return at;
    struct program_link *new = add(f, l, path);
    new->n_hops = n, new->hop = hop, new->hop_direction = towards;
    new->hop_messages = several ? messages : NULL;
    return at;
}

void fold_links_done(struct folding *f, struct folding_links *l)
{
    f->out->program.links = l->links;
    f->out->program.n_links = l->n;
    if (f->scale && f->scale->link) f->out->scale.link = l->scale;
}
