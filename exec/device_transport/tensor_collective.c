/* exec/device_transport/tensor_collective.c - collectives inside calls on the collective stream, in the forms of
 * device_form.
 *
 *   PADDED   shards are chunks of the largest shard's size, in the order of ranks; the library's all-gather or
 *            reduce-scatter. Padding is never read. If all shards are equal and the operand is laid out in chunks, it works
 *            in place. An all-reduce is the library's own.
 *   ROOTS    one broadcast, or one reduction, per shard, grouped.
 *   PAIRS    one send and one receive per other member, grouped; partial values are then added in the host's order: a
 *            member's own, then those of i−1, i−2, …
 *   ROUNDS   the steps of core/collective/collective.h, each a group of one send and one receive.
 *
 * A shard that is contiguous in its operand is sent and received in place; else it is packed.
 */
#include "exec/device_transport/internal.h"

#include "exec/device_transport/device_region.h"

struct collective_places { /* of this member */
    struct place in, out;
    struct region *from, *into; /* (n) from: what of `in` goes to member k; into: what of `out` comes from it */
    int64_t *from_first,
        *into_first;            /* (n) first element of a contiguous region; -1: it is packed */
    int64_t *from_at, *into_at; /* (n) byte offsets in scratch */
    int64_t *from_n, *into_n;   /* (n) elements */
    char *chunks, *outgoing, *incoming;
    bool direct; /* PADDED: the whole operand has the chunks' layout */
};

/* ---- before time 0 ---------------------------------------------------------------------------- */

static int64_t align_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t *numbers(struct device_transport *t, int32_t n)
{
    return ARENA_ARRAY(t->a, int64_t, (size_t)n);
}

/* Whether the operand of a padded form has the layout of the chunks in the order of ranks. */
static bool is_direct(const struct collective *m, const struct collective_places *o,
                      const int32_t *rank)
{
    const int64_t *first = m->kind == COLLECTIVE_ALL_GATHER ? o->into_first : o->from_first,
                  *n = m->kind == COLLECTIVE_ALL_GATHER ? o->into_n : o->from_n;
    for (int32_t k = 0; k < m->n_members; k++)
        if (first[k] != rank[k] * m->most || n[k] != m->most) return false;
    return true;
}

static void find_regions(struct device_transport *t, const struct collective *m, int32_t i,
                         struct collective_places *o, int64_t size)
{
    int64_t at = 0;
    for (int32_t k = 0; k < m->n_members; k++) {
        o->from[k] = collective_from(t->a, m, i, k), o->into[k] = collective_into(t->a, m, k, i);
        o->from_n[k] = region_elements(&o->from[k]), o->into_n[k] = region_elements(&o->into[k]);
        if (!device_region_in_one(&o->from[k], &o->from_first[k])) o->from_first[k] = -1;
        if (!device_region_in_one(&o->into[k], &o->into_first[k])) o->into_first[k] = -1;
        o->from_at[k] = at, at += plan_align(collective_elements(m, i, k) * size);
        o->into_at[k] = at, at += plan_align(collective_elements(m, k, i) * size);
    }
}

void device_transport_tensor_collective_open(struct device_transport *t, int32_t group)
{
    struct group_end *e = &t->groups[group];
    const struct collective *m = &t->p->collectives[group];
    struct collective_places *o = e->collective = ARENA_ARRAY(t->a, struct collective_places, 1);
    int64_t size = dtype_bytes(t->p->collectives[group].dtype);
    struct collective_tensor_staging s = collective_tensor_staging(m);
    o->in = lane_memory_place(e->memory, m->in[e->member]);
    o->out = lane_memory_place(e->memory, m->out[e->member]);
    o->chunks = e->memory->staging;
    o->outgoing = o->chunks + align_64(s.chunks * size);
    o->incoming = o->outgoing + align_64(s.outgoing * size);
    if (m->kind == COLLECTIVE_ALL_REDUCE) return;
    o->from = ARENA_ARRAY(t->a, struct region, (size_t)m->n_members);
    o->into = ARENA_ARRAY(t->a, struct region, (size_t)m->n_members);
    o->from_first = numbers(t, m->n_members), o->into_first = numbers(t, m->n_members);
    o->from_at = numbers(t, m->n_members), o->into_at = numbers(t, m->n_members);
    o->from_n = numbers(t, m->n_members), o->into_n = numbers(t, m->n_members);
    find_regions(t, m, e->member, o, size);
    o->direct = m->n_members > 1 && device_form(m) == DEVICE_FORM_PADDED &&
                is_direct(m, o, t->talks.rank_of[group]);
}

/* ---- the running collective ------------------------------------------------------------------- */

struct at_hand {
    struct device_transport *t;
    const struct collective *m;
    const struct collective_places *o;
    const int32_t *rank; /* of each member */
    void *communicator;
    enum dtype dtype;
    int32_t i; /* this member */
    int64_t size;
    char *in, *out;
};

static enum status pack(const struct at_hand *h, int32_t k, char *packed, struct error *err)
{
    return paced_stream_region(&h->t->stream, &h->o->from[k], h->dtype, h->in, packed, REGION_PACK,
                               err);
}

static enum status unpack(const struct at_hand *h, int32_t k, char *packed, struct error *err)
{
    return paced_stream_region(&h->t->stream, &h->o->into[k], h->dtype, h->out, packed,
                               REGION_UNPACK, err);
}

static enum status copy(const struct at_hand *h, char *to, const char *from, int64_t elements,
                        struct error *err)
{
    return paced_stream_copy(&h->t->stream, to, from, elements * h->size, err);
}

static enum status add(const struct at_hand *h, char *to, const char *from, int64_t elements,
                       struct error *err)
{
    return paced_stream_add(&h->t->stream, to, from, elements, h->dtype, err);
}

/* Source of the data for k: in the operand, or packed. */
static char *goes_from(const struct at_hand *h, int32_t k)
{
    const struct collective_places *o = h->o;
    return o->from_first[k] >= 0 ? h->in + o->from_first[k] * h->size
                                 : h->t->scratch + o->from_at[k];
}

/* Destination of the data from k: in the operand, or packed. Partial values are received beside it. */
static char *comes_to(const struct at_hand *h, int32_t k)
{
    const struct collective_places *o = h->o;
    bool there = h->m->kind != COLLECTIVE_REDUCE_SCATTER && o->into_first[k] >= 0;
    return there ? h->out + o->into_first[k] * h->size : h->t->scratch + o->into_at[k];
}

static enum status pack_all(const struct at_hand *h, struct error *err)
{
    for (int32_t k = 0; k < h->m->n_members; k++)
        if (h->o->from_first[k] < 0) TRY(pack(h, k, h->t->scratch + h->o->from_at[k], err));
    return OK;
}

static enum status unpack_all(const struct at_hand *h, struct error *err)
{
    for (int32_t k = 0; k < h->m->n_members; k++)
        if (k != h->i && h->o->into_first[k] < 0)
            TRY(unpack(h, k, h->t->scratch + h->o->into_at[k], err));
    return OK;
}

static int64_t own_elements(const struct at_hand *h)
{
    struct shape s = collective_out(h->m, h->i);
    return shape_elements(&s);
}

/* Copies this member's own data from `in` to `out`. */
static enum status keep_own(const struct at_hand *h, struct error *err)
{
    char *packed = goes_from(h, h->i);
    if (h->m->kind == COLLECTIVE_REDUCE_SCATTER)
        return copy(h, h->out, packed, own_elements(h), err);
    return unpack(h, h->i, packed, err);
}

typedef enum status calls_of(const struct at_hand *h, struct error *err);

static enum status together(const struct at_hand *h, calls_of *calls, struct error *err)
{
    const struct device_comm *comm = h->t->comm;
    struct error later;
    TRY(comm->group_begin(h->t->b, err));
    enum status status = calls(h, err);
    enum status ended = comm->group_end(h->t->b, status == OK ? err : &later);
    return status == OK ? ended : status;
}

/* ---- PADDED ----------------------------------------------------------------------------------- */

static char *chunk(const struct at_hand *h, int32_t k)
{
    return h->o->chunks + h->rank[k] * h->m->most * h->size;
}

static enum status gather_padded(const struct at_hand *h, struct error *err)
{
    struct device_transport *t = h->t;
    char *chunks = h->o->direct ? h->out : h->o->chunks, *own = h->in;
    if (!h->o->direct) TRY(pack(h, h->i, own = chunk(h, h->i), err));
    TRY(t->comm->all_gather(t->b, h->communicator, t->collective, own, chunks, h->m->most, h->dtype,
                            err));
    for (int32_t k = 0; !h->o->direct && k < h->m->n_members; k++)
        TRY(unpack(h, k, chunk(h, k), err));
    return OK;
}

static enum status scatter_padded(const struct at_hand *h, struct error *err)
{
    struct device_transport *t = h->t;
    char *chunks = h->o->direct ? h->in : h->o->chunks,
         *own = h->o->direct ? h->out : chunk(h, h->i);
    for (int32_t k = 0; !h->o->direct && k < h->m->n_members; k++)
        TRY(pack(h, k, chunk(h, k), err));
    TRY(t->comm->reduce_scatter(t->b, h->communicator, t->collective, chunks, own, h->m->most,
                                h->dtype, 0, err));
    return h->o->direct ? OK : copy(h, h->out, own, own_elements(h), err);
}

static enum status run_padded(const struct at_hand *h, struct error *err)
{
    struct device_transport *t = h->t;
    if (h->m->kind == COLLECTIVE_ALL_REDUCE)
        return t->comm->all_reduce(t->b, h->communicator, t->collective, h->in, h->out,
                                   shape_elements(&h->m->whole), h->dtype, 0, err);
    if (!h->m->most) return OK;
    return h->m->kind == COLLECTIVE_ALL_GATHER ? gather_padded(h, err) : scatter_padded(h, err);
}

/* ---- ROOTS ------------------------------------------------------------------------------------ */

static enum status root_calls(const struct at_hand *h, struct error *err)
{
    struct device_transport *t = h->t;
    const struct device_comm *comm = t->comm;
    for (int32_t k = 0; k < h->m->n_members; k++) {
        bool gathers = h->m->kind == COLLECTIVE_ALL_GATHER;
        int64_t n = gathers ? h->o->into_n[k] : h->o->from_n[k];
        if (!n) continue;
        char *part = goes_from(h, k);
        if (gathers)
            TRY(comm->broadcast(t->b, h->communicator, t->collective,
                                k == h->i ? part : comes_to(h, k), comes_to(h, k), n, h->dtype,
                                h->rank[k], err));
        else
            TRY(comm->reduce(t->b, h->communicator, t->collective, part, k == h->i ? h->out : part,
                             n, h->dtype, 0, h->rank[k], err));
    }
    return OK;
}

static enum status run_by_roots(const struct at_hand *h, struct error *err)
{
    TRY(pack_all(h, err));
    TRY(together(h, root_calls, err));
    if (h->m->kind != COLLECTIVE_ALL_GATHER) return OK;
    TRY(unpack_all(h, err));
    return h->o->into_first[h->i] >= 0 ? OK : keep_own(h, err);
}

/* ---- PAIRS ------------------------------------------------------------------------------------ */

static enum status pair_calls(const struct at_hand *h, struct error *err)
{
    struct device_transport *t = h->t;
    for (int32_t d = 1; d < h->m->n_members; d++) {
        int32_t to = (h->i + d) % h->m->n_members,
                from = (h->i - d + h->m->n_members) % h->m->n_members;
        int64_t out = collective_elements(h->m, h->i, to), in = collective_elements(h->m, from, h->i);
        if (out)
            TRY(t->comm->send(t->b, h->communicator, t->collective, goes_from(h, to), out, h->dtype,
                              h->rank[to], err));
        if (in)
            TRY(t->comm->receive(t->b, h->communicator, t->collective, comes_to(h, from), in,
                                 h->dtype, h->rank[from], err));
    }
    return OK;
}

static enum status run_in_pairs(const struct at_hand *h, struct error *err)
{
    TRY(pack_all(h, err));
    TRY(together(h, pair_calls, err));
    TRY(keep_own(h, err));
    if (h->m->kind != COLLECTIVE_REDUCE_SCATTER) return unpack_all(h, err);
    for (int32_t d = 1; d < h->m->n_members; d++) {
        int32_t from = (h->i - d + h->m->n_members) % h->m->n_members;
        TRY(add(h, h->out, comes_to(h, from), own_elements(h), err));
    }
    return OK;
}

/* ---- ROUNDS ----------------------------------------------------------------------------------- */

static char *piece_at(const struct at_hand *h, int64_t first)
{
    return (h->m->kind == COLLECTIVE_ALL_REDUCE ? h->out : h->o->chunks) + first * h->size;
}

static char *place_of(const struct at_hand *h, int32_t k)
{
    return piece_at(h, collective_chunk_first(h->m, k));
}

static enum status begin_rounds(const struct at_hand *h, struct error *err)
{
    if (h->m->kind == COLLECTIVE_ALL_REDUCE)
        return copy(h, h->out, h->in, shape_elements(&h->m->whole), err);
    if (h->m->kind == COLLECTIVE_ALL_GATHER) return pack(h, h->i, place_of(h, h->i), err);
    for (int32_t k = 0; k < h->m->n_members; k++) TRY(pack(h, k, place_of(h, k), err));
    return OK;
}

static enum status end_rounds(const struct at_hand *h, struct error *err)
{
    for (int32_t k = 0; h->m->kind == COLLECTIVE_ALL_GATHER && k < h->m->n_members; k++)
        TRY(unpack(h, k, place_of(h, k), err));
    if (h->m->kind != COLLECTIVE_REDUCE_SCATTER) return OK;
    return copy(h, h->out, place_of(h, h->i), own_elements(h), err);
}

static enum status take_step(struct device_transport *t, int32_t group, const struct collective_round *s, char *vector,
                             char *incoming, struct error *err)
{
    const int32_t *rank = t->talks.rank_of[group];
    void *communicator = communicators_handle(&t->communicators, t->groups[group].communicator);
    enum dtype dtype = t->p->collectives[group].dtype;
    struct error later;
    char *there = vector + s->in_first * dtype_bytes(dtype), *landing = s->adds > 0 ? incoming : there;
    enum status status = t->comm->group_begin(t->b, err);
    if (status != OK) return status;
    if (s->to >= 0)
        status = t->comm->send(t->b, communicator, t->collective, vector + s->out_first * dtype_bytes(dtype), s->send, dtype,
                               rank[s->to], err);
    if (s->from >= 0 && status == OK)
        status = t->comm->receive(t->b, communicator, t->collective, landing, s->receive, dtype, rank[s->from], err);
    enum status ended = t->comm->group_end(t->b, status == OK ? err : &later);
    if (status != OK || ended != OK) return status != OK ? status : ended;
    return s->from >= 0 && s->adds > 0 ? paced_stream_add(&t->stream, there, landing, s->adds, dtype, err) : OK;
}

enum status device_transport_rounds(struct device_transport *t, int32_t group, char *vector, char *incoming, struct error *err)
{
    const struct collective *g = &t->p->collectives[group];
    for (int32_t step = 0; step < collective_steps(g); step++) {
        struct collective_round s = collective_round(g, t->groups[group].member, step);
        if (s.to >= 0 || s.from >= 0) TRY(take_step(t, group, &s, vector, incoming, err));
    }
    return OK;
}

static enum status run_by_rounds(const struct at_hand *h, int32_t group, struct error *err)
{
    TRY(begin_rounds(h, err));
    TRY(device_transport_rounds(h->t, group, piece_at(h, 0), h->o->incoming, err));
    return end_rounds(h, err);
}

/* ---- all -------------------------------------------------------------------------------------- */

/* A collective of one member: copies its operand in the order of its cuts. */
static enum status run_alone(const struct at_hand *h, struct error *err)
{
    struct shape whole = collective_out(h->m, h->i);
    return copy(h, h->out, h->in, shape_elements(&whole), err);
}

enum status device_transport_tensor_collective(struct device_transport *t, int32_t group, int64_t seq, struct error *err)
{
    const struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    struct at_hand h = {
        .t = t,
        .m = g,
        .o = e->collective,
        .rank = t->talks.rank_of[group],
        .communicator =
            e->communicator >= 0 ? communicators_handle(&t->communicators, e->communicator) : NULL,
        .dtype = g->dtype,
        .i = e->member,
        .size = dtype_bytes(g->dtype),
        .in = place_at(&e->collective->in, seq),
        .out = place_at(&e->collective->out, seq)};
    if (g->n_members < 2) return run_alone(&h, err);
    switch (device_form(g)) {
    case DEVICE_FORM_PADDED:
        return run_padded(&h, err);
    case DEVICE_FORM_ROOTS:
        return run_by_roots(&h, err);
    case DEVICE_FORM_PAIRS:
        return run_in_pairs(&h, err);
    case DEVICE_FORM_ROUNDS:
        return run_by_rounds(&h, group, err);
    }
    BUG("form of collective %d", group);
}
