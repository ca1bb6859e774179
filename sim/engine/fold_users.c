/* Link directions with a single user. */
#include "sim/engine/fold_internal.h"

static int32_t *users_of(const struct folding *f, int32_t link, int32_t direction)
{
    return &f->users[2 * link + (f->p->links[link].half_duplex ? 0 : direction)];
}

static void use(struct folding *f, int32_t link, int32_t direction)
{
    const struct program_link *l = &f->p->links[link];
    ++*users_of(f, link, direction);
    /* A route shares its hops fairly: no user owns them. */
    for (int32_t i = 0; i < l->n_hops; i++)
        for (int32_t d = 0; d < 2; d++) *users_of(f, l->hop[i], d) += 2;
}

/* A lane has one collective stream, so messages of its different gradient all-reduces never overlap. */
static void use_for_reduce(struct folding *f, int32_t lane, int32_t link, int32_t direction)
{
    int32_t *last = &f->user[users_of(f, link, direction) - f->users];
    if (*last == lane + 1 && !f->p->links[link].n_hops) return;
    *last = lane + 1;
    use(f, link, direction);
}

/* Members are pinned, therefore other users of their links must be known. */
static void use_for_collective(struct folding *f, const struct collective *g)
{
    int32_t n = g->n_members, link, direction;
    for (int32_t i = 0; i < n * n; i++) {
        program_collective_link(g, i / n, i % n, &link, &direction);
        if (link >= 0)
            use_for_reduce(f, f->lane_of_stage[g->members[i / n].stage], link, direction);
    }
}

void fold_count_users(struct folding *f)
{
    const struct program *p = f->p;
    for (int32_t i = 0; i < p->n_channels; i++)
        if (p->channels[i].link >= 0) use(f, p->channels[i].link, p->channels[i].direction);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        for (int32_t m = 0; !g->each_call && g->link && m < g->n_members; m++)
            if (g->link[m] >= 0)
                use_for_reduce(f, f->lane_of_stage[g->members[m].stage], g->link[m],
                               g->direction[m]);
        if (collective_of_tensor(g)) use_for_collective(f, g);
    }
}

bool fold_alone(const struct folding *f, int32_t link, int32_t direction)
{
    if (link < 0) return true;
    const struct program_link *l = &f->p->links[link];
    return *users_of(f, link, direction) == 1 && l->sharing == LINK_FIFO && !l->n_hops &&
           !(l->compute_slowdown > 0);
}
