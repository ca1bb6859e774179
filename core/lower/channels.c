/* core/lower/channels.c - messages between stages: full tensors, or the sequences common to both ends.
 *
 * Each device of a stage has an interval of the microbatch's sequences, and so has each device of the next stage. Each pair of
 * devices whose intervals overlap has, for every tensor of the cut between them, a channel forwards or back and a crossing at
 * both of its ends.
 */
#include "core/lower/channels.h"

#include "core/lower/links.h"
#include "core/lower/lowering.h"
#include "core/lower/param_uses.h"
#include "core/lower/shards.h"

#include <inttypes.h>

static int64_t bytes_of(const struct stage_build *b, const struct crossing *x)
{
    const struct tensor *t = &b->v->g->tensors[x->tensor];
    if (x->parts > 1) {
        int64_t n, row = shape_last(&t->shape);
        lower_part(x, row, &n);
        return graph_tensor_bytes(b->v->g, x->tensor) / row * n;
    }
    return graph_tensor_bytes(b->v->g, x->tensor) / t->shape.dim[0] * x->n;
}

/* Of the plan's compression.pipeline: of numbers, between devices, or between nodes only. */
static struct encoding code_of(const struct lowering *l, const struct stage_build *from, const struct stage_build *to, bool gradient,
                               int32_t tensor)
{
    enum compression_of of = gradient ? COMPRESSION_OF_BACKWARD : COMPRESSION_OF_FORWARD;
    const struct device *d = l->plan->cluster.devices;
    enum dtype t = from->v->g->tensors[tensor].dtype;
    bool near = plan_compressor(&l->plan->compression, of)->between && d[from->device].node == d[to->device].node;
    if (t == DTYPE_int32 || from->s->device == to->s->device || near) return (struct encoding){0};
    return plan_compressor_code(&l->plan->compression, of, t);
}

static enum status make_channel(struct lowering *l, const struct stage_build *from,
                                const struct stage_build *to, bool gradient, struct crossing *sent,
                                struct crossing *received, struct error *err)
{
    int64_t out = bytes_of(from, sent), in = bytes_of(to, received);
    struct channel c = {.from_stage = from->index,
                        .to_stage = to->index,
                        .gradient = gradient,
                        .bytes = out,
                        .receive_ahead = to->plan->receive_ahead > 0 ? to->plan->receive_ahead : 1};
    if (out != in) BUG("a message of %" PRId64 " bytes is received as %" PRId64, out, in);
    if (sent->code.kind)
        c.bytes = 4 * encoding_words(&sent->code, out / dtype_bytes(from->v->g->tensors[sent->tensor].dtype));
    sent->link = received->link = -1;
    if (from->s->device == to->s->device)
        c.link = -1;
    else
        TRY(lower_link(l, from, to, &c.link, &c.direction, err));
    if (c.link >= 0 && sent->code.kind && lower_blocking(l, c.link))
        return lower_error(l, from, err, ERR_INPUT,
                           "compression.pipeline: link %s stops the computation at both ends, so its messages are operators, which have no codes",
                           l->p->links[c.link].name);
    if (c.link >= 0 && lower_blocking(l, c.link)) sent->link = received->link = c.link, c.link = -1;
    sent->channel = received->channel = l->p->n_channels;
    l->p->channels[l->p->n_channels++] = c;
    return OK;
}

/* Exact capacity, because most edges have one tensor and one neighbour. */
static void make_room(struct lowering *l, struct crossings *c, int32_t n_tensors,
                      const struct stage_build *other)
{
    if (c->list || !n_tensors) return;
    c->list = ARENA_ARRAY(l->tables, struct crossing, (size_t)n_tensors * (size_t)other->n_shards);
}

/* A cut between two stages of the plan, and the direction of its tensors. */
struct crossing_over {
    struct stage_build *from, *to; /* their first devices */
    bool gradient;
    int32_t layer;                /* the layer before the cut */
    int32_t n;                    /* tensors that cross */
    int32_t parts, rounds;        /* of each tensor, 1: not divided; struct crossing */
    int32_t *out, *in;            /* (n) of the two stages' cuts: indices, see tensor_at */
    struct rows *sent, *received; /* (n_shards) rows of the current tensor on each device */
};

static bool is_shared(const struct crossing_over *x)
{
    return x->from->plan->sharding || x->to->plan->sharding;
}

/* The k-th crossing tensor. Gradients of sharded stages are identified by their activations. */
static int32_t tensor_at(const struct stage_build *b, const struct crossing_over *x, int32_t k)
{
    if (!x->gradient) return b->v->g->cut[x->layer].tensor[k];
    return is_shared(x) ? lower_shard_back(b->v, k, x->layer)
                        : b->v->gradient_cut[x->layer].tensor[k];
}

static enum status find_rows(const struct lowering *l, const struct crossing_over *x,
                             struct stage_build *first, int32_t k, struct rows *out,
                             struct error *err)
{
    for (int32_t d = 0; d < first->n_shards; d++) {
        const struct stage_build *b = &first[d];
        int32_t t = is_shared(x) ? b->v->g->cut[x->layer].tensor[k] : tensor_at(b, x, k);
        TRY(lower_shard_rows(l, b, t, &out[d], err));
    }
    return OK;
}

/* Common sequences. */
static struct rows in_common(const struct rows *x, const struct rows *y)
{
    int64_t first = x->first > y->first ? x->first : y->first, end_x = x->first + x->n,
            end_y = y->first + y->n;
    return (struct rows){first, (end_x < end_y ? end_x : end_y) - first};
}

/* Whether a measured layer's activation crosses in parts, one for each GPU of the larger end, which the receiving GPUs then exchange
 * (OP_assemble; Megatron-LM's scatter/gather optimisation, Narayanan et al. 2021): where messages keep compute streams busy, on links
 * of every two devices, which are measured by the number of GPUs that send together. */
static enum status find_parts(struct lowering *l, struct crossing_over *x, struct error *err)
{
    const struct stage_build *a = x->from, *b = x->to;
    bool whole = (a->n_shards == 1 || a->plan->sharding) && (b->n_shards == 1 || b->plan->sharding);
    int32_t link, direction;
    x->parts = x->rounds = 1;
    if (!l->plan->job.model.measured || !whole || !is_shared(x) || a->s->device == b->s->device)
        return OK;
    TRY(lower_link(l, a, b, &link, &direction, err));
    if (!l->p->links[link].paired || !lower_blocking(l, link)) return OK;
    bool more = a->n_shards > b->n_shards;
    int32_t fewest = more ? b->n_shards : a->n_shards;
    x->parts = more ? a->n_shards : b->n_shards;
    x->rounds = (x->parts + fewest - 1) / fewest;
    return OK;
}

/* The part that one device sends the other; -1: none. */
static int32_t part_between(const struct crossing_over *x, const struct stage_build *from,
                            const struct stage_build *to)
{
    int32_t part = from->n_shards == x->parts ? from->shard : to->shard;
    return part * from->n_shards / x->parts == from->shard &&
                   part * to->n_shards / x->parts == to->shard
               ? part
               : -1;
}

/* At one end, whose rows are `own`. */
static struct crossing crossing_of(const struct crossing_over *x, const struct rows *own, const struct rows *both, int32_t tensor,
                                   int32_t part)
{
    bool cut = both->n != own->n;
    return (struct crossing){.tensor = tensor,
                             .channel = -1,
                             .first = both->first - own->first,
                             .n = both->n,
                             .link = -1,
                             .slot = -1,
                             .whole = !cut && x->parts == 1,
                             .cut = cut,
                             .values = -1,
                             .part = part,
                             .parts = x->parts,
                             .rounds = x->rounds};
}

/* One tensor of the cut, from one device to another. */
static enum status cross(struct lowering *l, const struct crossing_over *x, int32_t i,
                         struct stage_build *from, struct stage_build *to, struct error *err)
{
    const struct rows *mine = &x->sent[from->shard], *others = &x->received[to->shard];
    struct rows both = in_common(mine, others);
    int32_t part = x->parts > 1 ? part_between(x, from, to) : 0;
    if (both.n <= 0 || part < 0 || (x->parts == 1 && !lower_shard_gives(from, to, x->sent)))
        return OK;
    enum edge out = x->gradient ? GRADIENTS_OUT : ACTIVATIONS_OUT,
              in = x->gradient ? GRADIENTS_IN : ACTIVATIONS_IN;
    make_room(l, &from->edge[out], x->n, to);
    make_room(l, &to->edge[in], x->n, from);
    struct crossing s = crossing_of(x, mine, &both, tensor_at(from, x, x->out[i]), part),
                    r = crossing_of(x, others, &both, tensor_at(to, x, x->in[i]), part);
    s.code = r.code = code_of(l, from, to, x->gradient, s.tensor);
    s.whole &= !s.code.kind, r.whole &= !r.code.kind;
    TRY(make_channel(l, from, to, x->gradient, &s, &r, err));
    from->edge[out].list[from->edge[out].n++] = s;
    to->edge[in].list[to->edge[in].n++] = r;
    return OK;
}

static size_t max_channels(const struct lowering *l)
{
    size_t n = 0;
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        const struct stage_build *a = &l->stages[i];
        int32_t next = i - a->shard + a->n_shards, k = a->plan->last_layer;
        if (next < l->p->n_stages && l->stages[next].replica == a->replica)
            n += (size_t)l->stages[next].n_shards *
                 (size_t)(2 * a->v->g->cut[k].n + a->v->gradient_cut[k].n);
    }
    return n;
}

static void note_pair(struct crossing_over *x, int32_t out, int32_t in)
{
    x->out[x->n] = out, x->in[x->n++] = in;
}

/* Both cuts have the same activations in the same order, unless conversions produced some. A tensor that the other end has as
 * one gradient of two activations is sent once; one that it has as two is sent twice. */
static enum status pair_shared(struct lowering *l, struct crossing_over *x, struct error *err)
{
    const struct cut *received = &x->to->v->g->cut[x->layer];
    for (int32_t k = 0; k < received->n; k++) {
        int32_t i = lower_shard_same(x->to->v, k, x->from->v, x->layer);
        bool known = x->gradient && tensor_at(x->to, x, k) < 0; /* not read */
        for (int32_t m = 0; m < x->n; m++)
            known |= tensor_at(x->to, x, x->in[m]) == tensor_at(x->to, x, k);
        if (known) continue;
        if (i < 0 || tensor_at(x->from, x, i) < 0)
            return lower_error(l, x->from, err, ERR_INPUT,
                               "sharding: tensor '%s', which the next stage reads, is not produced by this stage",
                               x->to->v->g->tensors[received->tensor[k]].name);
        note_pair(x, i, k);
    }
    return OK;
}

static enum status pair_up(struct lowering *l, struct crossing_over *x, struct error *err)
{
    const struct lower_view *from = x->from->v, *to = x->to->v;
    x->layer = x->gradient ? x->to->plan->last_layer : x->from->plan->last_layer;
    int32_t sent = x->gradient ? from->gradient_cut[x->layer].n : from->g->cut[x->layer].n,
            received = x->gradient ? to->gradient_cut[x->layer].n : to->g->cut[x->layer].n;
    size_t most = (size_t)sent + (size_t)to->g->cut[x->layer].n;
    x->out = ARENA_ARRAY(l->tables, int32_t, most), x->in = ARENA_ARRAY(l->tables, int32_t, most);
    if (is_shared(x)) return pair_shared(l, x, err);
    if (sent != received) BUG("two variants differ in what crosses a cut");
    for (int32_t i = 0; i < sent; i++) note_pair(x, i, i);
    return OK;
}

/* Rows of every tensor that crosses, on every device of the two stages. */
static enum status all_rows(struct lowering *l, struct crossing_over *x, struct rows **sent,
                            struct rows **received, struct error *err)
{
    TRY(pair_up(l, x, err));
    TRY(find_parts(l, x, err));
    *sent = ARENA_ARRAY(l->tables, struct rows, (size_t)x->n * (size_t)x->from->n_shards);
    *received = ARENA_ARRAY(l->tables, struct rows, (size_t)x->n * (size_t)x->to->n_shards);
    for (int32_t i = 0; i < x->n; i++) {
        TRY(find_rows(l, x, x->from, x->out[i], *sent + i * x->from->n_shards, err));
        TRY(find_rows(l, x, x->to, x->in[i], *received + i * x->to->n_shards, err));
    }
    return OK;
}

/* a precedes b. Device by device, forwards and back. */
static enum status join(struct lowering *l, struct stage_build *a, struct stage_build *b,
                        struct error *err)
{
    struct crossing_over crossing[2] = {{.from = a, .to = b}, {.from = b, .to = a, .gradient = true}};
    struct rows *sent[2], *received[2];
    for (int g = 0; g < 2; g++) TRY(all_rows(l, &crossing[g], &sent[g], &received[g], err));
    for (int32_t i = 0; i < a->n_shards; i++)
        for (int32_t k = 0; k < b->n_shards; k++)
            for (int g = 0; g < 2; g++)
                for (int32_t t = 0; t < crossing[g].n; t++) {
                    crossing[g].sent = sent[g] + t * crossing[g].from->n_shards;
                    crossing[g].received = received[g] + t * crossing[g].to->n_shards;
                    TRY(cross(l, &crossing[g], t, g ? b + k : a + i, g ? a + i : b + k, err));
                }
    return OK;
}

enum status lower_channels(struct lowering *l, struct error *err)
{
    l->p->channels = ARENA_ARRAY(l->a, struct channel, max_channels(l));
    struct crossings *edges =
        ARENA_ARRAY(l->tables, struct crossings, (size_t)l->p->n_stages * EDGE_COUNT);
    for (int32_t i = 0; i < l->p->n_stages; i++) l->stages[i].edge = &edges[i * EDGE_COUNT];
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        struct stage_build *a = &l->stages[i];
        int32_t next = i + a->n_shards;
        if (a->shard || next >= l->p->n_stages || l->stages[next].replica != a->replica) continue;
        TRY(join(l, a, &l->stages[next], err));
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
