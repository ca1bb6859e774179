/* core/lower_channels.c - what stages send to one another: whole tensors, or the sequences that both ends have.
 *
 * What leaves a stage of the plan is divided over its devices in one way and wanted by the next stage's
 * devices in another. Both are intervals of the microbatch's sequences, so each pair of devices whose intervals meet
 * has, for every tensor of the cut between them, a channel forwards or back and a crossing at both of its ends.
 */
#include "core/lower_internal.h"

/* A route blocks where one of its hops does. */
static bool is_blocking(const struct lowering *l, int32_t link)
{
    const struct cluster *c = &l->plan->cluster;
    const struct program_link *k = &l->p->links[link];
    bool any =
        (link < c->n_links && c->links[link].blocking) || (k->paired && c->links[k->of].blocking);
    for (int32_t i = 0; i < k->n_hops; i++) any |= c->links[k->hop[i]].blocking;
    return any;
}

static int64_t bytes_of(const struct stage_build *b, const struct rows *rows,
                        const struct crossing *x)
{
    return graph_tensor_bytes(b->v->g, x->tensor) / rows->n * x->n;
}

/* What the stage has of what crosses to the one behind it, or (backwards) before it. */
static const struct rows *rows_at(const struct stage_build *b, bool front)
{
    return front ? &b->front : &b->back;
}

static enum status make_channel(struct lowering *l, const struct stage_build *from,
                                const struct stage_build *to, bool gradient, struct crossing *sent,
                                struct crossing *received, struct error *err)
{
    int64_t out = bytes_of(from, rows_at(from, gradient), sent),
            in = bytes_of(to, rows_at(to, !gradient), received);
    struct channel c = {.from_stage = from->index,
                        .to_stage = to->index,
                        .gradient = gradient,
                        .bytes = out > in ? out : in,
                        .receive_ahead = to->plan->receive_ahead > 0 ? to->plan->receive_ahead : 1};
    if (out != in) l->p->uneven = true;
    sent->link = received->link = -1;
    if (from->s->device == to->s->device)
        c.link = -1;
    else
        TRY(lower_link(l, from, to, &c.link, &c.direction, err));
    if (c.link >= 0 && is_blocking(l, c.link)) sent->link = received->link = c.link, c.link = -1;
    sent->channel = received->channel = l->p->n_channels;
    l->p->channels[l->p->n_channels++] = c;
    return OK;
}

/* Most edges have one tensor and one neighbour: room for no more than can come. */
static void make_room(struct lowering *l, struct crossings *c, int32_t n_tensors,
                      const struct stage_build *other)
{
    if (c->list || !n_tensors) return;
    c->list = ARENA_ARRAY(l->a, struct crossing, (size_t)n_tensors * (size_t)other->n_shards);
}

/* Sequences that both stages have, of which a stands before b; none: *n <= 0. */
static int64_t in_common(const struct stage_build *a, const struct stage_build *b, int64_t *n)
{
    const struct rows *x = &a->back, *y = &b->front;
    int64_t first = x->first > y->first ? x->first : y->first, end_x = x->first + x->n,
            end_y = y->first + y->n;
    *n = (end_x < end_y ? end_x : end_y) - first;
    return first;
}

/* Tensors of the two views' cuts are the same ones, in one order. */
static enum status make_edge(struct lowering *l, struct stage_build *from, struct stage_build *to,
                             const struct cut *sent, const struct cut *received, bool gradient,
                             struct error *err)
{
    enum edge out = gradient ? GRADIENTS_OUT : ACTIVATIONS_OUT,
              in = gradient ? GRADIENTS_IN : ACTIVATIONS_IN;
    const struct rows *mine = rows_at(from, gradient), *others = rows_at(to, !gradient);
    int64_t n, first = gradient ? in_common(to, from, &n) : in_common(from, to, &n);
    if (sent->n != received->n) BUG("two ways to compute differ in what crosses a cut");
    make_room(l, &from->edge[out], sent->n, to);
    make_room(l, &to->edge[in], sent->n, from);
    for (int32_t i = 0; i < sent->n; i++) {
        struct crossing x = {sent->tensor[i], -1, first - mine->first, n, -1, -1, n == mine->n},
                        y = {received->tensor[i], -1, first - others->first, n, -1, -1,
                             n == others->n};
        TRY(make_channel(l, from, to, gradient, &x, &y, err));
        from->edge[out].list[from->edge[out].n++] = x;
        to->edge[in].list[to->edge[in].n++] = y;
    }
    return OK;
}

/* a stands before b. */
static enum status join(struct lowering *l, struct stage_build *a, struct stage_build *b,
                        struct error *err)
{
    int32_t k = a->plan->last_layer;
    if (lower_shard_gives(a, b, false))
        TRY(make_edge(l, a, b, &a->v->g->cut[k], &b->v->g->cut[k], false, err));
    if (!lower_shard_gives(b, a, true)) return OK;
    return make_edge(l, b, a, &b->v->gradient_cut[k], &a->v->gradient_cut[k], true, err);
}

enum status lower_channels(struct lowering *l, struct error *err)
{
    size_t n_channels = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) l->p->channels = ARENA_ARRAY(l->a, struct channel, n_channels);
        for (int32_t i = 0; i < l->p->n_stages; i++) {
            struct stage_build *a = &l->stages[i];
            int32_t next = i - a->shard + a->n_shards, k = a->plan->last_layer;
            if (next >= l->p->n_stages || l->stages[next].replica != a->replica) continue;
            for (int32_t s = 0; s < l->stages[next].n_shards; s++) {
                struct stage_build *b = &l->stages[next + s];
                int64_t n;
                (void)in_common(a, b, &n);
                if (n > 0) n_channels += (size_t)(a->v->g->cut[k].n + a->v->gradient_cut[k].n);
                if (n > 0 && pass) TRY(join(l, a, b, err));
            }
        }
    }
    return OK;
}

void lower_join_channels(struct lowering *l, const struct stage_build *b)
{
    for (int32_t e = 0; e < EDGE_COUNT; e++) {
        bool gives = e == ACTIVATIONS_OUT || e == GRADIENTS_OUT;
        for (int32_t i = 0; i < b->edge[e].n; i++) {
            const struct crossing *x = &b->edge[e].list[i];
            struct channel *c = &l->p->channels[x->channel];
            *(gives ? &c->from_slot : &c->to_slot) = x->slot;
        }
    }
}
