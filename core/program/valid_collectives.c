/* core/program/valid_collectives.c - validation of collectives: members, segments, links. */
#include "core/program/valid.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum status valid_complain(const struct valid *c, const char *fmt, ...)
{
    char message[sizeof c->err->text];
    va_list ap;
    va_start(ap, fmt);
    error_format(message, sizeof message, fmt, ap);
    va_end(ap);
    return error_set(c->err, ERR_INPUT, "%s", message);
}

static enum status check_links(const struct valid *c, const struct collective *g, int32_t i)
{
    bool chain = g->algorithm == ALGORITHM_CHAIN,
         alone = program_collective_in_rounds(g) || g->n_members == 1 || g->algorithm == ALGORITHM_LOCAL;
    bool on = !alone && !(chain && i == g->n_members - 1), back = chain && i > 0;
    NEED(valid_index_or_none(g->link[i], c->p->n_links) && valid_index(g->direction[i], 2) &&
             (g->link[i] >= 0 || !on),
         "collective %s: no link to the next member", g->name);
    if (!chain) return OK;
    NEED(valid_index_or_none(g->back_link[i], c->p->n_links) && valid_index(g->back_direction[i], 2) &&
             (g->back_link[i] >= 0 || !back),
         "collective %s: no link back", g->name);
    return OK;
}

/* Local SGD with a delay adds a parameter's sum in flight, which is a state slot of its own. */
static bool is_sum_in_flight(const struct valid *c, int32_t slot)
{
    const struct slot *x = &c->s->slots[slot];
    bool shard = false;
    if (x->class != SLOT_STATE) return false;
    if (valid_index(x->parameter, c->s->n_parameters)) return c->s->parameters[x->parameter].outer[2] == 1 + slot;
    for (int32_t i = 0; i < c->s->n_parameters && !shard; i++)
        shard = c->s->parameters[i].shard && c->s->parameters[i].shard->outer[2] == 1 + slot;
    return shard;
}

/* Class and dtype of a segment, and of the member's own shard. */
static enum status check_segment(const struct valid *c, const struct collective *g,
                                 const struct collective_member *m, int32_t k)
{
    const struct slot *x = &c->s->slots[m->segments[k]];
    bool gather = program_collective_gathers(g);
    enum slot_class class = gather && g->dtype != DTYPE_int32 ? SLOT_PARAMETER : SLOT_GRADIENT;
    enum dtype dtype = gather ? g->dtype : dtype_master(g->dtype);
    bool divides = program_collective_divides(g), sum = !gather && !divides && is_sum_in_flight(c, m->segments[k]);
    NEED((x->class == class || (divides && x->class == SLOT_SCRATCH) || sum) && x->dtype == dtype,
         "collective %s: segment %s is not a %s slot of its dtype", g->name, x->name,
         class == SLOT_PARAMETER ? "parameter" : "gradient");
    if (!divides) return OK;
    int64_t elements = shape_elements(&x->shape);
    NEED(elements % g->n_members == 0, "collective %s: segment %s cannot be divided evenly", g->name,
         x->name);
    if (!m->own) return OK;
    NEED(valid_index(m->own[k], c->s->n_slots), "collective %s: no slot %" PRId32, g->name, m->own[k]);
    const struct slot *own = &c->s->slots[m->own[k]];
    NEED(own->class == class && own->dtype == dtype &&
             shape_elements(&own->shape) == elements / g->n_members,
         "collective %s: %s is not a shard of segment %s", g->name, own->name, x->name);
    return OK;
}

/* Elements of the segment, or of its region. */
static enum status check_within(const struct valid *c, const struct collective *g,
                                const struct collective_member *m, int32_t k, int64_t *elements)
{
    const struct slot *x = &c->s->slots[m->segments[k]];
    *elements = x->bytes / dtype_bytes(x->dtype);
    NEED((!m->within && !m->silent) || (program_collective_rings(g) && !program_collective_divides(g)),
         "collective %s: only ring reduces regions", g->name);
    if (!m->within || !m->within[k].n_dims) return OK;
    NEED(shape_equal(&m->within[k].shape, &x->shape) && region_valid(&m->within[k]),
         "collective %s: %s has no such region", g->name, x->name);
    *elements = region_elements(&m->within[k]);
    return OK;
}

static enum status check_member(struct valid *c, const struct collective *g, int32_t i)
{
    const struct collective_member *m = &g->members[i];
    c->where.item = 1 + i;
    NEED(valid_index(m->stage, c->p->n_stages), "collective %s: no stage %" PRId32, g->name, m->stage);
    c->s = &c->p->stages[m->stage];
    NEED(m->n_segments == g->members[0].n_segments, "collective %s: members differ in segments",
         g->name);
    NEED(m->chain_ring == -1 || (g->algorithm == ALGORITHM_CHAIN && valid_index(m->chain_ring, c->s->n_buffer_rings) &&
                            c->s->buffer_rings[m->chain_ring].death == 'U' &&
                            c->s->buffer_rings[m->chain_ring].count >= c->s->microbatches),
         "collective %s: no per-microbatch buffer ring %" PRId32 "", g->name, m->chain_ring);
    NEED((m->chain_ring >= 0) == (m->chain_segments != NULL),
         "collective %s: per-microbatch slots without a buffer ring", g->name);
    int64_t elements = 0, offset = 0;
    for (int32_t k = 0; k < m->n_segments; k++) {
        NEED(valid_index(m->segments[k], c->s->n_slots), "collective %s: no slot %" PRId32, g->name,
             m->segments[k]);
        const struct slot *x = &c->s->slots[m->segments[k]];
        TRY(check_segment(c, g, m, k));
        int64_t own;
        TRY(check_within(c, g, m, k, &own));
        if (i > 0)
            NEED(own == program_collective_segment_elements(&g->members[0],
                                                    &c->p->stages[g->members[0].stage], k),
                 "collective %s: sizes of %s differ", g->name, x->name);
        NEED(!__builtin_add_overflow(elements, own, &elements), "collective %s: too large", g->name);
        if (m->chain_ring < 0) continue;
        NEED(valid_index(m->chain_segments[k], c->s->n_slots), "collective %s: no slot %" PRId32, g->name,
             m->chain_segments[k]);
        const struct slot *y = &c->s->slots[m->chain_segments[k]];
        NEED(y->buffer_ring == m->chain_ring && y->bytes == x->bytes && y->dtype == x->dtype &&
                 program_slot_offset(c->s, y) == offset,
             "collective %s: %s is not a per-microbatch slot at its offset", g->name, y->name);
        offset += (y->bytes + VALID_ALIGN_BYTES - 1) / VALID_ALIGN_BYTES * VALID_ALIGN_BYTES;
    }
    NEED(elements == g->elements,
         "collective %s: %" PRId64 " elements, not %" PRId64, g->name, elements, g->elements);
    NEED(elements < INT64_MAX / 4 / dtype_bytes(g->dtype) &&
             program_collective_staging_bytes(g, m, c->s) <= c->s->buffer_bytes,
         "collective %s: the staging buffer is too small", g->name);
    return check_links(c, g, i);
}

/* Links of all messages of a member in rounds. */
static enum status check_pair_links(const struct valid *c, const struct collective *g, int32_t i)
{
    for (int32_t k = 0; g->algorithm != ALGORITHM_RING && k < g->n_members; k++)
        NEED(valid_index_or_none(g->pair_link[i * g->n_members + k], c->p->n_links) &&
                 valid_index(g->pair_direction[i * g->n_members + k], 2) &&
                 (!collective_sends(g, i, k) || g->pair_link[i * g->n_members + k] >= 0),
             "collective %s: no link to member %" PRId32, g->name, k);
    return OK;
}

/* Slots of a collective's member: the shapes that its cuts give it; the links of its messages. */
static enum status check_participant(struct valid *c, const struct collective *g, int32_t i)
{
    const struct collective *m = g;
    c->where.item = 1 + i;
    NEED(valid_index(g->members[i].stage, c->p->n_stages), "collective %s: no stage %" PRId32, g->name,
         g->members[i].stage);
    const struct program_stage *s = c->s = &c->p->stages[g->members[i].stage];
    NEED(valid_index(m->in[i], s->n_slots) && valid_index(m->out[i], s->n_slots), "collective %s: no such slot",
         g->name);
    const struct slot *x = &s->slots[m->in[i]], *y = &s->slots[m->out[i]];
    struct shape in_shape = collective_in(m, i), out_shape = collective_out(m, i);
    NEED(x->dtype == g->dtype && y->dtype == g->dtype, "collective %s: %s and %s are not %s", g->name,
         x->name, y->name, dtype_name(g->dtype));
    NEED(shape_equal(&x->shape, &in_shape), "collective %s: %s does not have the shape of its member's input",
         g->name, x->name);
    NEED(shape_equal(&y->shape, &out_shape), "collective %s: %s does not have the shape of its member's output",
         g->name, y->name);
    NEED(m->in[i] != m->out[i] || m->kind == COLLECTIVE_ALL_REDUCE,
         "collective %s: %s cannot be written while it is read", g->name, x->name);
    NEED(collective_tensor_staging_bytes(m, g->dtype) <= s->buffer_bytes,
         "collective %s: the staging buffer is too small", g->name);
    NEED(valid_index_or_none(g->link[i], c->p->n_links) && valid_index(g->direction[i], 2) &&
             (g->link[i] >= 0 || m->n_members == 1 || m->algorithm != ALGORITHM_RING),
         "collective %s: no link to the next member", g->name);
    return check_pair_links(c, g, i);
}

static enum status check_pair(const struct valid *c, const struct collective *g, int32_t i,
                              int32_t k)
{
    const struct program_stage *s = c->p->stages;
    int32_t a = g->members[i].stage, b = g->members[k].stage;
    NEED(a != b, "collective %s: a member is listed twice", g->name);
    NEED((s[a].device == s[b].device) == (g->algorithm == ALGORITHM_LOCAL),
         "collective %s: members on one device need algorithm local, on several another", g->name);
    return OK;
}

static enum status check_tensor_collective(struct valid *c, const struct collective *g)
{
    const struct collective *m = g;
    struct error why = {0};
    NEED(valid_index(g->dtype, DTYPE_COUNT) && g->dtype != DTYPE_int32 && g->each_call,
         "collective %s: bad numbers", g->name);
    if (collective_valid(m, &why) != OK)
        return valid_complain(c, "collective %s: %s", g->name, why.text);
    NEED(g->elements == shape_elements(&m->whole) && m->most == collective_max(m),
         "collective %s: its sizes differ", g->name);
    for (int32_t i = 0; i < m->n_members; i++) {
        TRY(check_participant(c, g, i));
        for (int32_t k = 0; k < i && m->n_members <= 64; k++) TRY(check_pair(c, g, k, i));
    }
    return OK;
}

enum status valid_collective(struct valid *c, int32_t index)
{
    const struct collective *g = &c->p->collectives[index];
    c->where = (struct program_place){SECTION_COLLECTIVE, index, 0};
    if (collective_of_tensor(g)) return check_tensor_collective(c, g);
    NEED(valid_index(g->kind, COLLECTIVE_KIND_COUNT) && valid_index(g->algorithm, COLLECTIVE_ALGORITHM_COUNT) &&
             valid_index(g->dtype, DTYPE_COUNT) && g->n_members >= 1 && g->elements >= 0,
         "collective %s: bad numbers", g->name);
    NEED(program_collective_of_segments(g->kind, g->algorithm), "collective %s: %s of segments by %s does not exist",
         g->name, collective_kind_word(g->kind), collective_algorithm_name(g->algorithm));
    NEED(g->algorithm != ALGORITHM_CHAIN || !dtype_is_half(g->dtype),
         "collective %s: a chain needs a dtype that keeps every bit, not %s", g->name, dtype_name(g->dtype));
    bool rounds = program_collective_in_rounds(g);
    struct error why = {0};
    if (rounds && collective_rounds_valid(g, &why) != OK) return valid_complain(c, "collective %s: %s", g->name, why.text);
    NEED(!rounds || (g->pair_link && g->most == collective_max(g)), "collective %s: no pairs, or other sizes", g->name);
    for (int32_t i = 0; i < g->n_members; i++) {
        TRY(check_member(c, g, i));
        if (rounds) TRY(check_pair_links(c, g, i));
        for (int32_t k = 0; k < i && g->n_members <= 64; k++) TRY(check_pair(c, g, k, i));
    }
    return OK;
}
