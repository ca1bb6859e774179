/* exec/worker/prepare.c - before the first step: every index of the program becomes an address, an event or a queue. */
#include "exec/worker/internal.h"

#include "core/base/arena.h"

#include <string.h>

/* In half precision some operands are fp32: statistics, gradients, masters. What is fp32 throughout is called so. */
static void prepare_dtypes(const struct program_stage *s, const struct program_op *x,
                           struct op_call *c)
{
    uint32_t wide_input = 0, wide_output = 0;
    enum dtype half = DTYPE_COUNT;
    for (int32_t i = 0; i < x->n_inputs; i++) {
        enum dtype t = s->slots[x->input[i]].dtype;
        if (dtype_is_half(t)) half = t;
        wide_input |= (uint32_t)(t == DTYPE_fp32) << i;
    }
    for (int32_t i = 0; i < x->n_outputs; i++) {
        enum dtype t = s->slots[x->output[i]].dtype;
        if (dtype_is_half(t)) half = t;
        wide_output |= (uint32_t)(t == DTYPE_fp32) << i;
    }
    if (half == DTYPE_COUNT) {
        if (dtype_is_half(c->dtype)) c->dtype = DTYPE_fp32;
        return;
    }
    c->dtype = half, c->wide_input = wide_input, c->wide_output = wide_output;
}

struct prepared_op worker_prepared_op(const struct worker *w, const struct chunk *k, int32_t op)
{
    const struct program_op *x = &k->stage->ops[op];
    struct prepared_op o = {.call = {.kind = x->kind,
                                     .dtype = x->dtype,
                                     .attrs = &x->attrs,
                                     .shapes = &x->shapes,
                                     .optimizer = x->phase == PHASE_U ? &w->optimizer : NULL,
                                     .seed = w->p->seed,
                                     .scale = x->attrs.scaled && w->p->loss_scale.initial > 0
                                                  ? worker_scale_at(k)
                                                  : NULL}};
    prepare_dtypes(k->stage, x, &o.call);
    for (int32_t i = 0; i < x->n_inputs; i++)
        o.input[i] = lane_memory_place(&k->memory, x->input[i]);
    for (int32_t i = 0; i < x->n_outputs; i++)
        o.output[i] = lane_memory_place(&k->memory, x->output[i]);
    return o;
}

static bool reads_input(const struct program_stage *s, const struct program_op *x)
{
    for (int32_t i = 0; i < x->n_inputs; i++)
        if (s->slots[x->input[i]].input >= 0) return true;
    return false;
}

static void prepare_procedure(struct worker *w, struct chunk *k, int32_t procedure)
{
    const struct program_stage *s = k->stage;
    const struct procedure *f = &s->procedures[procedure];
    struct prepared_procedure *x = &k->procedures[procedure];
    x->rooms = ARENA_ARRAY(w->run, int32_t, (size_t)s->n_rings + 1);
    x->receives = ARENA_ARRAY(w->run, int32_t, (size_t)f->n_instrs + 1);
    for (int32_t r = 0; r < s->n_rings; r++)
        if (s->rings[r].sent >= 0 && procedure_writes_ring(s, f, r)) x->rooms[x->n_rooms++] = r;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind == INSTR_RECEIVE) x->receives[x->n_receives++] = f->instrs[i].arg;
        if (f->instrs[i].kind == INSTR_COMPUTE && reads_input(s, &s->ops[f->instrs[i].arg]))
            x->reads_inputs = true;
    }
}

struct chunk *worker_chunk(const struct worker *w, int32_t stage)
{
    for (int32_t i = 0; i < w->n_chunks; i++)
        if (w->chunks[i].index == stage) return &w->chunks[i];
    return NULL;
}

static int64_t *unknown(struct worker *w, int64_t n)
{
    int64_t *at = ARENA_ARRAY(w->run, int64_t, (size_t)n);
    for (int64_t i = 0; i < n; i++) at[i] = -1;
    return at;
}

static void prepare_end(struct worker *w, int32_t channel)
{
    const struct channel *c = &w->p->channels[channel];
    const struct chunk *from = worker_chunk(w, c->from_stage), *to = worker_chunk(w, c->to_stage);
    struct channel_end *e = &w->ends[channel];
    if (!from && !to) return;
    e->window = 2 * (int64_t)(from ? from : to)->stage->microbatches + c->receive_ahead;
    e->place = from ? lane_memory_place(&from->memory, c->from_slot)
                    : lane_memory_place(&to->memory, c->to_slot);
    if (!from || !to) {
        e->at_ns = unknown(w, e->window);
        if (w->apart) e->after = ARENA_ARRAY(w->run, int32_t, (size_t)e->window);
        return;
    }
    e->to = lane_memory_place(&to->memory, c->to_slot);
    e->handed = unknown(w, e->window), e->posted = unknown(w, e->window);
    for (int64_t seq = 0; seq < c->receive_ahead; seq++) e->posted[seq] = seq;
}

static bool mirrored(const struct worker *w, int32_t group)
{
    return w->apart && w->group_by[group] == TRANSPORT_HOST;
}

static enum status prepare_meeting(struct worker *w, const struct chunk *k, int32_t group,
                                   int32_t member, struct error *err)
{
    const struct collective *m = &w->p->collectives[group];
    struct meeting_operands *o = ARENA_ARRAY(w->run, struct meeting_operands, 1);
    struct bounce_group b = {0};
    o->in = lane_memory_place(&k->memory, m->in[member]);
    o->out = lane_memory_place(&k->memory, m->out[member]);
    if (mirrored(w, group)) {
        worker_staging_meeting(w, k, group, member, &b);
        o->in = (struct place){b.in_pinned, 0, 1};
        o->out = (struct place){b.out_pinned, 0, 1};
        TRY(bounce_add_group(&w->bounce, group, b, err));
    }
    o->from = ARENA_ARRAY(w->run, struct region, (size_t)m->n_members);
    o->into = ARENA_ARRAY(w->run, struct region, (size_t)m->n_members);
    for (int32_t i = 0; m->kind != COLLECTIVE_ALL_REDUCE && i < m->n_members; i++) {
        o->from[i] = meeting_from(w->run, m, member, i);
        o->into[i] = meeting_into(w->run, m, i, member);
    }
    comm_thread_member(&w->comm_thread,
                       (struct collective_end){.group = group, .member = member, .meeting = o},
                       w->apart ? w->staging : k->memory.staging);
    return OK;
}

enum { ALIGN = 64 }; /* of what a mirror has */

struct joining { /* pieces of a member, neighbours in memory joined */
    struct collective_end *x;
    size_t capacity;
    struct arena *a;
    char *slot;
    int64_t size; /* of an element */
    bool apart;   /* not joined */
};

static void add_piece(void *owner, int64_t first, int64_t packed, int64_t n)
{
    (void)packed;
    struct joining *j = owner;
    struct collective_end *x = j->x;
    char *data = j->slot + first * j->size;
    struct piece *last = x->n_pieces ? &x->pieces[x->n_pieces - 1] : NULL;
    if (last && !j->apart && last->data + last->elements * j->size == data) {
        last->elements += n;
        return;
    }
    x->pieces = arena_grow(j->a, x->pieces, (size_t)x->n_pieces, &j->capacity, sizeof *x->pieces);
    x->pieces[x->n_pieces++] = (struct piece){data, n};
}

/* The pieces of the segments of a member, in the lane's memory or in its mirror. */
static void add_pieces(struct worker *w, const struct chunk *k, const struct collective *g,
                       const struct collective_member *m, char *mirror, struct collective_end *x)
{
    const struct program_stage *s = k->stage;
    enum dtype t = collective_gathers(g) ? g->dtype : dtype_master(g->dtype);
    struct joining j = {
        x, (size_t)m->n_segments + 1, w->run, NULL, dtype_bytes(t), collective_divides(g)};
    x->pieces = ARENA_ARRAY(w->run, struct piece, j.capacity);
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

static void add_own(struct worker *w, const struct chunk *k, const struct collective_member *m,
                    char *mirror, struct collective_end *x)
{
    x->own = ARENA_ARRAY(w->run, char *, (size_t)m->n_segments + 1);
    for (int32_t i = 0; i < m->n_segments; i++) {
        x->own[i] = mirror ? mirror : lane_memory_slot(&k->memory, m->own[i], 0);
        if (mirror) mirror += (k->stage->slots[m->own[i]].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static void add_apart(struct worker *w, const struct chunk *k, const struct collective_member *m,
                      char *mirror, struct collective_end *x)
{
    const struct program_stage *s = k->stage;
    x->ring = mirror ? mirror : k->memory.ring[m->apart];
    x->ring_count = s->rings[m->apart].count;
    x->ring_stride = s->rings[m->apart].stride_bytes;
    x->apart = ARENA_ARRAY(w->run, struct piece, (size_t)m->n_segments + 1);
    for (int32_t i = 0; i < m->n_segments; i++) {
        const struct slot *slot = &s->slots[m->apart_segments[i]];
        x->apart[x->n_apart++] =
            (struct piece){(char *)(intptr_t)slot->offset_bytes, shape_elements(&slot->shape)};
    }
}

static enum status prepare_group(struct worker *w, const struct chunk *k, int32_t group,
                                 int32_t member, struct error *err)
{
    const struct collective *g = &w->p->collectives[group];
    const struct collective_member *m = &g->members[member];
    struct collective_end x = {
        .group = group, .member = member, .microbatches = k->stage->microbatches};
    struct worker_staging mirror = {0};
    if (mirrored(w, group)) {
        struct bounce_group b = {0};
        mirror = worker_staging_of(w, k, group, member);
        worker_staging_group(w, k, group, member, &b);
        TRY(bounce_add_group(&w->bounce, group, b, err));
    }
    add_pieces(w, k, g, m, mirror.segments, &x);
    if (m->own) add_own(w, k, m, mirror.own, &x);
    if (m->apart >= 0) add_apart(w, k, m, mirror.ring, &x);
    comm_thread_member(&w->comm_thread, x, w->apart ? w->staging : k->memory.staging);
    return OK;
}

static void prepare_chunk(struct worker *w, struct chunk *k)
{
    const struct program_stage *s = k->stage;
    k->ops = ARENA_ARRAY(w->run, struct prepared_op, (size_t)s->n_ops + 1);
    k->procedures = ARENA_ARRAY(w->run, struct prepared_procedure, (size_t)s->n_procedures + 1);
    for (int32_t i = 0; i < s->n_ops; i++) k->ops[i] = worker_prepared_op(w, k, i);
    for (int32_t i = 0; i < s->n_procedures; i++) prepare_procedure(w, k, i);
}

static enum status prepare_member(struct worker *w, int32_t group, int32_t member,
                                  struct error *err)
{
    const struct collective *g = &w->p->collectives[group];
    const struct chunk *k = worker_chunk(w, g->members[member].stage);
    if (!k || w->group_by[group] == TRANSPORT_DEVICE) return OK;
    return collective_of_tensor(g) ? prepare_meeting(w, k, group, member, err)
                                   : prepare_group(w, k, group, member, err);
}

enum status worker_prepare(struct worker *w, struct error *err)
{
    w->ends = ARENA_ARRAY(w->run, struct channel_end, (size_t)w->p->n_channels + 1);
    w->launches = ARENA_ARRAY(w->run, struct launches, (size_t)w->p->n_collectives + 1);
    w->sums = ARENA_ARRAY(w->run, struct local_sum, (size_t)w->p->n_collectives + 1);
    for (int32_t i = 0; i < w->n_chunks; i++) prepare_chunk(w, &w->chunks[i]);
    for (int32_t i = 0; i < w->p->n_channels; i++) prepare_end(w, i);
    for (int32_t g = 0; g < w->p->n_collectives; g++) {
        for (int32_t i = 0; i < w->p->collectives[g].n_members; i++)
            TRY(prepare_member(w, g, i, err));
        if (w->apart && w->group_by[g] == TRANSPORT_LOCAL &&
            w->comm_thread.collectives.members[g].member >= 0)
            worker_local_prepare(w, g);
    }
    return OK;
}
