#include "exec/worker/prepare.h"

#include "exec/worker/chunks.h"
#include "exec/worker/pinned.h"
#include "exec/worker/staging.h"
#include "exec/worker/transports.h"

/* Inputs of the preparation. */
struct preparing {
    struct rank *r;
    const struct chunks *chunks;
    struct transports *t;
    const struct pinned *pinned;
};

static bool mirrored(const struct preparing *w, int32_t group)
{
    return w->r->discrete && w->t->group[group] == TRANSPORT_HOST;
}

static enum status prepare_tensor_collective(const struct preparing *w, const struct chunk *k, int32_t group,
                                   int32_t member, struct error *err)
{
    const struct collective *m = &w->r->p->collectives[group];
    struct tensor_operands *o = ARENA_ARRAY(w->r->run, struct tensor_operands, 1);
    struct bounce_group b = {0};
    o->in = lane_memory_place(&k->memory, m->in[member]);
    o->out = lane_memory_place(&k->memory, m->out[member]);
    if (mirrored(w, group)) {
        staging_tensor(w->pinned->staging, w->r->p, k, group, member, &b);
        o->in = (struct place){b.in_pinned, 0, 1};
        o->out = (struct place){b.out_pinned, 0, 1};
        TRY(bounce_add_group(&w->t->bounce, group, b, err));
    }
    o->from = ARENA_ARRAY(w->r->run, struct region, (size_t)m->n_members);
    o->into = ARENA_ARRAY(w->r->run, struct region, (size_t)m->n_members);
    for (int32_t i = 0; m->kind != COLLECTIVE_ALL_REDUCE && i < m->n_members; i++) {
        o->from[i] = collective_from(w->r->run, m, member, i);
        o->into[i] = collective_into(w->r->run, m, i, member);
    }
    comm_thread_member(&w->t->comm_thread,
                       (struct collective_end){.group = group, .member = member, .collective = o},
                       w->r->discrete ? w->pinned->scratch : k->memory.staging);
    return OK;
}

enum { ALIGN = 64 }; /* of staging */

struct joining { /* pieces of a member, adjacent ones joined */
    struct collective_end *x;
    size_t capacity;
    struct arena *a;
    char *slot;
    int64_t size; /* of an element */
    bool separate;   /* not joined */
};

static void add_piece(void *owner, int64_t first, int64_t packed, int64_t n)
{
    (void)packed;
    struct joining *j = owner;
    struct collective_end *x = j->x;
    char *data = j->slot + first * j->size;
    struct piece *last = x->n_pieces ? &x->pieces[x->n_pieces - 1] : NULL;
    if (last && !j->separate && last->data + last->elements * j->size == data) {
        last->elements += n;
        return;
    }
    x->pieces = arena_grow(j->a, x->pieces, (size_t)x->n_pieces, &j->capacity, sizeof *x->pieces);
    x->pieces[x->n_pieces++] = (struct piece){data, n};
}

/* The pieces of a member's segments, in the lane's memory or in staging. */
static void add_pieces(const struct preparing *w, const struct chunk *k, const struct collective *g,
                       const struct collective_member *m, char *mirror, struct collective_end *x)
{
    const struct program_stage *s = k->stage;
    enum dtype t = program_collective_gathers(g) ? g->dtype : dtype_master(g->dtype);
    struct joining j = {
        x, (size_t)m->n_segments + 1, w->r->run, NULL, dtype_bytes(t), program_collective_divides(g)};
    x->pieces = ARENA_ARRAY(w->r->run, struct piece, j.capacity);
    for (int32_t i = 0; i < m->n_segments; i++) {
        const struct slot *slot = &s->slots[m->segments[i]];
        j.slot = mirror ? mirror : lane_memory_slot(&k->memory, m->segments[i], 0);
        if (mirror) mirror += (slot->bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (m->within && m->within[i].n_dims)
            region_walk(&m->within[i], add_piece, &j);
        else
            add_piece(&j, 0, 0, shape_elements(&slot->shape));
    }
}

static void add_own(const struct preparing *w, const struct chunk *k, const struct collective_member *m,
                    char *mirror, struct collective_end *x)
{
    x->own = ARENA_ARRAY(w->r->run, char *, (size_t)m->n_segments + 1);
    for (int32_t i = 0; i < m->n_segments; i++) {
        x->own[i] = mirror ? mirror : lane_memory_slot(&k->memory, m->own[i], 0);
        if (mirror) mirror += (k->stage->slots[m->own[i]].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static void add_chain_pieces(const struct preparing *w, const struct chunk *k,
                      const struct collective_member *m, char *mirror, struct collective_end *x)
{
    const struct program_stage *s = k->stage;
    x->buffer_ring = mirror ? mirror : k->memory.buffer_ring[m->chain_ring];
    x->buffer_ring_count = s->buffer_rings[m->chain_ring].count;
    x->buffer_ring_stride = s->buffer_rings[m->chain_ring].stride_bytes;
    x->chain_pieces = ARENA_ARRAY(w->r->run, struct piece, (size_t)m->n_segments + 1);
    for (int32_t i = 0; i < m->n_segments; i++) {
        const struct slot *slot = &s->slots[m->chain_segments[i]];
        x->chain_pieces[x->n_chain_pieces++] =
            (struct piece){(char *)(intptr_t)program_slot_offset(s, slot), shape_elements(&slot->shape)};
    }
}

static enum status prepare_group(const struct preparing *w, const struct chunk *k, int32_t group,
                                 int32_t member, struct error *err)
{
    const struct collective *g = &w->r->p->collectives[group];
    const struct collective_member *m = &g->members[member];
    struct collective_end x = {
        .group = group, .member = member, .microbatches = k->stage->microbatches};
    struct staging mirror = {0};
    if (mirrored(w, group)) {
        struct bounce_group b = {0};
        mirror = staging_at(w->pinned->staging, w->r->p, group, member);
        staging_group(w->pinned->staging, w->r->run, w->r->p, k, group, member, &b);
        TRY(bounce_add_group(&w->t->bounce, group, b, err));
    }
    add_pieces(w, k, g, m, mirror.segments, &x);
    if (m->own) add_own(w, k, m, mirror.own, &x);
    if (m->chain_ring >= 0) add_chain_pieces(w, k, m, mirror.buffer_ring, &x);
    comm_thread_member(&w->t->comm_thread, x,
                       w->r->discrete ? w->pinned->scratch : k->memory.staging);
    return OK;
}

static enum status prepare_member(const struct preparing *w, int32_t group, int32_t member,
                                  struct error *err)
{
    const struct collective *g = &w->r->p->collectives[group];
    const struct chunk *k = chunks_of_stage(w->chunks, g->members[member].stage);
    if (!k || w->t->group[group] == TRANSPORT_DEVICE) return OK;
    return collective_of_tensor(g) ? prepare_tensor_collective(w, k, group, member, err)
                                   : prepare_group(w, k, group, member, err);
}

enum status prepare_members(struct rank *r, const struct chunks *c, struct transports *t,
                            const struct pinned *pinned, int32_t group, struct error *err)
{
    const struct preparing w = {r, c, t, pinned};
    for (int32_t i = 0; i < r->p->collectives[group].n_members; i++)
        TRY(prepare_member(&w, group, i, err));
    return OK;
}
