/* core/lower_channels.c - what stages send to one another: whole tensors, or the sequences that both ends have.
 *
 * The activation that leaves a stage of the plan is divided over its devices in one way and wanted by the next stage's
 * devices in another. Both are intervals of the microbatch's sequences, so each pair of devices whose intervals meet
 * has a port at both ends, with a channel forwards and one back.
 */
#include "core/lower_internal.h"

/* A route blocks where one of its hops does. */
static bool is_blocking(const struct lowering *l, int32_t link)
{
    const struct cluster *c = &l->plan->cluster;
    const struct program_link *k = &l->p->links[link];
    bool any = link < c->n_links && c->links[link].blocking;
    for (int32_t i = 0; i < k->n_hops; i++) any |= c->links[k->hop[i]].blocking;
    return any;
}

static int64_t bytes_of(const struct stage_build *b, int32_t tensor, int64_t sequences)
{
    const struct tensor *t = &b->v->g->tensors[tensor];
    return shape_elements(&t->shape) / b->sequences * sequences * dtype_bytes(t->dtype);
}

/* A tensor as both ends know it, and the port's part of it. */
struct crossing {
    struct stage_build *from, *to;
    int32_t sent, received; /* tensors */
    int64_t sequences;
    bool gradient;
};

static enum status make_channel(struct lowering *l, const struct crossing *x, int32_t *index,
                                int32_t *blocking, struct error *err)
{
    int64_t sent = bytes_of(x->from, x->sent, x->sequences),
            received = bytes_of(x->to, x->received, x->sequences);
    struct channel c = {.from_stage = x->from->index,
                        .to_stage = x->to->index,
                        .gradient = x->gradient,
                        .bytes = sent > received ? sent : received,
                        .receive_ahead =
                            x->to->plan->receive_ahead > 0 ? x->to->plan->receive_ahead : 1};
    if (sent != received) l->p->uneven = true;
    *blocking = -1;
    if (x->from->s->device == x->to->s->device)
        c.link = -1;
    else
        TRY(lower_link(l, x->from, x->to, &c.link, &c.direction, err));
    if (c.link >= 0 && is_blocking(l, c.link)) *blocking = c.link, c.link = -1;
    l->p->channels[ *index = l->p->n_channels++] = c;
    return OK;
}

static struct port *add_port(struct lowering *l, struct port **ports, int32_t *n, int32_t most,
                             struct port x)
{
    if (!*ports) *ports = ARENA_ARRAY(l->a, struct port, (size_t)most);
    (*ports)[*n] = x;
    return &(*ports)[(*n)++];
}

/* a stands before b. */
static enum status join(struct lowering *l, struct stage_build *a, struct stage_build *b,
                        struct error *err)
{
    int64_t first = a->first_sequence > b->first_sequence ? a->first_sequence : b->first_sequence,
            end_a = a->first_sequence + a->sequences, end_b = b->first_sequence + b->sequences,
            n = (end_a < end_b ? end_a : end_b) - first;
    int32_t cut = a->plan->last_layer;
    if (n <= 0) return OK;
    struct port *behind = add_port(l, &a->behind, &a->n_behind, b->n_shards,
                                   (struct port){.first = first - a->first_sequence, .n = n});
    struct port *before = add_port(l, &b->before, &b->n_before, a->n_shards,
                                   (struct port){.first = first - b->first_sequence, .n = n});
    a->activation_out = a->v->g->cut[cut], b->activation_in = b->v->g->cut[cut];
    a->gradient_in = a->v->gradient_cut[cut], b->gradient_out = b->v->gradient_cut[cut];
    behind->link = before->link = behind->gradient = before->gradient = -1;
    struct crossing x = {a, b, a->activation_out, b->activation_in, n, false};
    TRY(make_channel(l, &x, &behind->activation, &behind->link, err));
    before->activation = behind->activation, before->link = behind->link;
    if (a->gradient_in < 0) return OK;
    x = (struct crossing){b, a, b->gradient_out, a->gradient_in, n, true};
    TRY(make_channel(l, &x, &before->gradient, &before->link, err));
    behind->gradient = before->gradient;
    return OK;
}

enum status lower_channels(struct lowering *l, struct error *err)
{
    int32_t n = l->p->n_stages;
    /* Of two divisions into m and k intervals fewer than m + k pairs meet, each of them both ways. */
    l->p->channels = ARENA_ARRAY(l->a, struct channel, 4 * (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        struct stage_build *a = &l->stages[i];
        int32_t next = i - a->shard + a->n_shards;
        if (next >= n || l->stages[next].replica != a->replica) continue;
        for (int32_t k = 0; k < l->stages[next].n_shards; k++)
            TRY(join(l, a, &l->stages[next + k], err));
    }
    return OK;
}

void lower_join_channels(struct lowering *l, const struct stage_build *b)
{
    struct channel *c = l->p->channels;
    for (int32_t i = 0; i < b->n_before; i++) {
        const struct port *x = &b->before[i];
        c[x->activation].to_slot = x->activation_slot;
        if (x->gradient >= 0) c[x->gradient].from_slot = x->gradient_slot;
    }
    for (int32_t i = 0; i < b->n_behind; i++) {
        const struct port *x = &b->behind[i];
        c[x->activation].from_slot = x->activation_slot;
        if (x->gradient >= 0) c[x->gradient].to_slot = x->gradient_slot;
    }
}
