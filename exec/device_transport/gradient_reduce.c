/* exec/device_transport/gradient_reduce.c - gradient all-reduces on the collective stream: all-reduce, ZeRO's
 * reduce-scatter and all-gather, chains, rounds.
 *
 * A reduction is one call for every run of segments that are adjacent on all members, all calls in one NCCL group.
 * Cut segments, and those with another dtype than the wire's, are packed or cast into scratch and back; members may
 * store their elements differently, only number and order must agree. All groups share one scratch, because the
 * collective stream runs them one after the other.
 */
#include "exec/device_transport/internal.h"

#include "exec/device_transport/device_region.h"

#include <inttypes.h>

/* ---- before time 0 ---------------------------------------------------------------------------- */

static const struct collective_member *member_of(const struct device_transport *t, int32_t group)
{
    return &t->p->collectives[group].members[t->groups[group].member];
}

static char *segment_at(const struct device_transport *t, int32_t group, int32_t k)
{
    return lane_memory_slot(t->groups[group].memory, member_of(t, group)->segments[k], 0);
}

static int64_t segment_elements(const struct device_transport *t, int32_t group, int32_t k)
{
    const struct collective_member *m = member_of(t, group);
    return program_collective_segment_elements(m, &t->p->stages[m->stage], k);
}

/* A cut segment of one contiguous run needs no packing. */
static char *in_place(const struct device_transport *t, int32_t group, int32_t k)
{
    const struct collective_member *m = member_of(t, group);
    int64_t first = 0;
    if (plan_segment(t->p, m, k)->dtype != t->p->collectives[group].dtype) return NULL;
    if (plan_segment_is_cut(m, k) && !device_region_in_one(&m->within[k], &first))
        return NULL;
    return segment_at(t, group, k) + first * dtype_bytes(t->p->collectives[group].dtype);
}

static void plan_calls(struct device_transport *t, int32_t group)
{
    struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    int32_t n = member_of(t, group)->n_segments;
    int64_t scratch = 0;
    e->calls = ARENA_ARRAY(t->a, struct reduce_call, (size_t)n + 1);
    if (program_collective_in_rounds(g)) { /* one vector */
        e->n_calls = 1;
        e->calls[0] = (struct reduce_call){g->elements, n == 1 ? in_place(t, group, 0) : NULL, 0, 0, n};
        return;
    }
    for (int32_t k = 0; k < n; k++) {
        int64_t elements = segment_elements(t, group, k);
        if (k && !program_collective_divides(g) && plan_segments_join(t->p, g, k - 1)) {
            e->calls[e->n_calls - 1].elements += elements;
            e->calls[e->n_calls - 1].last = k + 1;
            continue;
        }
        char *at = in_place(t, group, k);
        e->calls[e->n_calls++] = (struct reduce_call){
            .elements = elements, .at = at, .scratch = scratch, .first = k, .last = k + 1};
        if (!at) scratch += plan_align(elements * dtype_bytes(g->dtype));
    }
    e->packed = device_memory_group_wire(t->p, g, e->member);
}

static enum status check_types(const struct device_transport *t, int32_t group, struct error *err)
{
    const struct collective *g = &t->p->collectives[group];
    const struct collective_member *m = member_of(t, group);
    for (int32_t k = 0; k < m->n_segments; k++) {
        enum dtype d = plan_segment(t->p, m, k)->dtype;
        if (d == g->dtype || (g->algorithm != ALGORITHM_CHAIN && t->b->cast)) continue;
        return error_set(err, ERR_INPUT, "collective %s is %s on the wire and %s in memory; %s",
                         g->name, dtype_name(g->dtype), dtype_name(d),
                         g->algorithm == ALGORITHM_CHAIN ? "a chain does not convert"
                                                         : "this backend does not convert");
    }
    return OK;
}

static enum status open_group(struct device_transport *t, int32_t group, int32_t member,
                              struct error *err)
{
    const struct collective *g = &t->p->collectives[group];
    struct group_end *e = &t->groups[group];
    *e = (struct group_end){.member = member,
                            .communicator = t->talks.talk_of[group],
                            .rank = t->talks.rank_of[group] ? t->talks.rank_of[group][member] : 0,
                            .weight = t->o.weight ? t->o.weight[group] : 0,
                            .memory = t->o.memory[g->members[member].stage]};
    for (int i = 0; i < 2; i++) TRY(t->b->event_make(t->b, false, &e->ended[i], err));
    if (collective_of_tensor(g)) {
        device_transport_tensor_collective_open(t, group);
        return OK;
    }
    if (e->weight != 0 && (g->algorithm == ALGORITHM_CHAIN || program_collective_in_rounds(g)))
        return error_set(err, ERR_INPUT, "collective %s: algorithm %s does not support weights", g->name,
                         collective_algorithm_name(g->algorithm));
    TRY(check_types(t, group, err));
    plan_calls(t, group);
    return OK;
}

void device_transport_sums_init(struct device_transport *t)
{
    t->ready = t->at_hand = -1;
    t->groups = ARENA_ARRAY(t->a, struct group_end, (size_t)t->p->n_collectives + 1);
    for (int32_t g = 0; g < t->p->n_collectives; g++) t->groups[g].member = -1;
}

enum status device_transport_reduces_open(struct device_transport *t, struct error *err)
{
    int64_t scratch = 0, zeros = 0;
    void *p;
    TRY(t->b->event_make(t->b, false, &t->ready, err));
    for (int32_t g = 0; g < t->p->n_collectives; g++)
        for (int32_t i = 0; t->o.group[g] == TRANSPORT_DEVICE && i < t->p->collectives[g].n_members;
             i++) {
            if (t->p->stages[t->p->collectives[g].members[i].stage].device != t->o.rank) continue;
            TRY(open_group(t, g, i, err));
            int64_t s = device_memory_group_scratch(t->p, &t->p->collectives[g], i),
                    z = device_memory_group_zeros(t->p, &t->p->collectives[g], i);
            if (s > scratch) scratch = s;
            if (z > zeros) zeros = z;
        }
    if (scratch) {
        TRY(t->b->allocate(t->b, plan_align(scratch), &p, err));
        t->scratch = p;
    }
    if (zeros) {
        TRY(t->b->allocate(t->b, plan_align(zeros), &p, err));
        t->zeros = p;
    }
    return OK;
}

void device_transport_sums_close(struct device_transport *t)
{
    if (t->scratch) t->b->release(t->b, t->scratch);
    if (t->zeros) t->b->release(t->b, t->zeros);
    t->scratch = t->zeros = NULL;
}

/* ---- segments to and from scratch ------------------------------------------------------------- */

/* Packs a segment's elements, cast to the wire's dtype, at `wire`; or back. */
static enum status pass_segment(struct device_transport *t, int32_t group, int32_t k, char *wire,
                                enum region_copy how, struct error *err)
{
    const struct collective_member *m = member_of(t, group);
    enum dtype own = plan_segment(t->p, m, k)->dtype, type = t->p->collectives[group].dtype;
    int64_t n = segment_elements(t, group, k);
    char *at = segment_at(t, group, k), *packed = wire;
    bool cut = plan_segment_is_cut(m, k), casts = own != type, pack = how == REGION_PACK;
    if (!cut)
        return paced_stream_convert(&t->stream, pack ? wire : at, pack ? type : own,
                                    pack ? at : wire, pack ? own : type, n, err);
    if (casts) packed = t->scratch + t->groups[group].packed;
    if (casts && !pack) TRY(paced_stream_convert(&t->stream, packed, own, wire, type, n, err));
    TRY(paced_stream_region(&t->stream, &m->within[k], own, at, packed, how, err));
    return casts && pack ? paced_stream_convert(&t->stream, wire, type, packed, own, n, err) : OK;
}

static enum status pass_call(struct device_transport *t, int32_t group, const struct reduce_call *c,
                             enum region_copy how, struct error *err)
{
    char *wire = t->scratch + c->scratch;
    for (int32_t k = c->first; !c->at && k < c->last; k++) {
        TRY(pass_segment(t, group, k, wire, how, err));
        wire += segment_elements(t, group, k) * dtype_bytes(t->p->collectives[group].dtype);
    }
    return OK;
}

static enum status pass_all(struct device_transport *t, int32_t group, enum region_copy how,
                            struct error *err)
{
    const struct group_end *e = &t->groups[group];
    for (int32_t i = 0; i < e->n_calls; i++) TRY(pass_call(t, group, &e->calls[i], how, err));
    return OK;
}

static char *call_at(const struct device_transport *t, const struct reduce_call *c)
{
    return c->at ? c->at : t->scratch + c->scratch;
}

/* ---- ring: an all-reduce ---------------------------------------------------------------------- */

static enum status reduce_calls(struct device_transport *t, int32_t group, struct error *err)
{
    const struct group_end *e = &t->groups[group];
    enum dtype type = t->p->collectives[group].dtype;
    bool silent = member_of(t, group)->silent;
    for (int32_t i = 0; i < e->n_calls; i++) {
        char *at = call_at(t, &e->calls[i]);
        if (e->calls[i].elements)
            TRY(t->comm->all_reduce(t->b, communicators_handle(&t->communicators, e->communicator),
                                    t->collective, silent ? t->zeros : at, at, e->calls[i].elements,
                                    type, e->weight, err));
    }
    return OK;
}

typedef enum status calls_of(struct device_transport *t, int32_t group, struct error *err);

/* All calls in one group, which is ended also after an error. */
static enum status together(struct device_transport *t, int32_t group, calls_of *calls,
                            struct error *err)
{
    struct error later;
    TRY(t->comm->group_begin(t->b, err));
    enum status status = calls(t, group, err);
    enum status ended = t->comm->group_end(t->b, status == OK ? err : &later);
    return status == OK ? ended : status;
}

static enum status reduce_round(struct device_transport *t, int32_t group, struct error *err)
{
    if (!member_of(t, group)->silent) TRY(pass_all(t, group, REGION_PACK, err));
    TRY(together(t, group, reduce_calls, err));
    return pass_all(t, group, REGION_UNPACK, err);
}

/* ---- ZeRO: reduce-scatter and all-gather ------------------------------------------------------ */

/* The shard of a call's elements that this member owns, of n. */
static char *own_part(const struct device_transport *t, int32_t group, const struct reduce_call *c)
{
    const struct collective *g = &t->p->collectives[group];
    return call_at(t, c) +
           t->groups[group].rank * (c->elements / g->n_members) * dtype_bytes(g->dtype);
}

static enum status scatter_calls(struct device_transport *t, int32_t group, struct error *err)
{
    const struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    for (int32_t i = 0; i < e->n_calls; i++)
        if (e->calls[i].elements)
            TRY(t->comm->reduce_scatter(
                t->b, communicators_handle(&t->communicators, e->communicator), t->collective,
                call_at(t, &e->calls[i]), own_part(t, group, &e->calls[i]),
                e->calls[i].elements / g->n_members, g->dtype, e->weight, err));
    return OK;
}

static enum status gather_calls(struct device_transport *t, int32_t group, struct error *err)
{
    const struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    for (int32_t i = 0; i < e->n_calls; i++)
        if (e->calls[i].elements)
            TRY(t->comm->all_gather(t->b, communicators_handle(&t->communicators, e->communicator),
                                    t->collective, own_part(t, group, &e->calls[i]),
                                    call_at(t, &e->calls[i]), e->calls[i].elements / g->n_members,
                                    g->dtype, err));
    return OK;
}

static char *own_at(const struct device_transport *t, int32_t group, int32_t k, enum dtype *type)
{
    const struct collective_member *m = member_of(t, group);
    *type = t->p->stages[m->stage].slots[m->own[k]].dtype;
    return lane_memory_slot(t->groups[group].memory, m->own[k], 0);
}

/* Writes the member's shard of the sum into its segment, or adds it to its own slots if it has some. */
static enum status local_slice(struct device_transport *t, int32_t group, int32_t i,
                               struct error *err)
{
    const struct reduce_call *c = &t->groups[group].calls[i];
    const struct collective *g = &t->p->collectives[group];
    const struct collective_member *m = member_of(t, group);
    enum dtype own, segment = plan_segment(t->p, m, i)->dtype;
    int64_t n = c->elements / g->n_members,
            first = t->groups[group].rank * n * dtype_bytes(segment);
    char *part = own_part(t, group, c), *there = segment_at(t, group, i) + first;
    if (!c->at) TRY(paced_stream_convert(&t->stream, there, segment, part, g->dtype, n, err));
    if (!m->own) return OK;
    char *to = own_at(t, group, i, &own);
    if (own != segment)
        return error_set(err, ERR_INPUT, "collective %s: own parts are %s, segments %s", g->name,
                         dtype_name(own), dtype_name(segment));
    return paced_stream_add(&t->stream, to, there, n, own, err);
}

static enum status scatter(struct device_transport *t, int32_t group, struct error *err)
{
    TRY(pass_all(t, group, REGION_PACK, err));
    TRY(together(t, group, scatter_calls, err));
    for (int32_t i = 0; i < t->groups[group].n_calls; i++) TRY(local_slice(t, group, i, err));
    return OK;
}

static enum status gather(struct device_transport *t, int32_t group, struct error *err)
{
    const struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    const struct collective_member *m = member_of(t, group);
    if (!m->own) TRY(pass_all(t, group, REGION_PACK, err));
    for (int32_t i = 0; m->own && i < e->n_calls; i++) {
        enum dtype own;
        const char *from = own_at(t, group, i, &own);
        TRY(paced_stream_convert(&t->stream, own_part(t, group, &e->calls[i]), g->dtype, from, own,
                                 e->calls[i].elements / g->n_members, err));
    }
    TRY(together(t, group, gather_calls, err));
    return pass_all(t, group, REGION_UNPACK, err);
}

/* ---- rounds ----------------------------------------------------------------------------------- */

static enum status reduce_in_rounds(struct device_transport *t, int32_t group, struct error *err)
{
    const struct group_end *e = &t->groups[group];
    TRY(pass_all(t, group, REGION_PACK, err));
    TRY(device_transport_rounds(t, group, call_at(t, &e->calls[0]), e->memory->staging, err));
    return pass_all(t, group, REGION_UNPACK, err);
}

/* ---- chain ------------------------------------------------------------------------------------ */

/* Adds this member's microbatches, one after the other, to the running sum. */
static enum status add_own(struct device_transport *t, int32_t group, int64_t step, char *sum,
                           struct error *err)
{
    const struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    const struct collective_member *m = member_of(t, group);
    const struct program_stage *s = &t->p->stages[m->stage];
    int64_t times = m->chain_ring >= 0 ? s->microbatches : 1;
    for (int64_t b = 0; b < times; b++) {
        int64_t at = 0;
        for (int32_t k = 0; k < m->n_segments; k++) {
            int32_t slot = m->chain_ring >= 0 ? m->chain_segments[k] : m->segments[k];
            int64_t n = shape_elements(&s->slots[slot].shape);
            TRY(paced_stream_add(&t->stream, sum + at,
                                 lane_memory_slot(e->memory, slot, step * s->microbatches + b), n,
                                 g->dtype, err));
            at += n * dtype_bytes(g->dtype);
        }
    }
    return OK;
}

static enum status spread_out(struct device_transport *t, int32_t group, const char *sum,
                              struct error *err)
{
    int64_t at = 0;
    for (int32_t k = 0; k < member_of(t, group)->n_segments; k++) {
        int64_t bytes = segment_elements(t, group, k) * dtype_bytes(t->p->collectives[group].dtype);
        TRY(paced_stream_copy(&t->stream, segment_at(t, group, k), sum + at, bytes, err));
        at += bytes;
    }
    return OK;
}

static enum status chain(struct device_transport *t, int32_t group, int64_t step, struct error *err)
{
    const struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    const int32_t *rank = t->talks.rank_of[group];
    void *communicator =
        e->communicator >= 0 ? communicators_handle(&t->communicators, e->communicator) : NULL;
    char *sum = e->memory->staging;
    int32_t i = e->member, s = t->collective;
    bool last = i == g->n_members - 1;
    if (!g->elements) return OK;
    if (i > 0)
        TRY(t->comm->receive(t->b, communicator, s, sum, g->elements, g->dtype, rank[i - 1], err));
    else
        TRY(paced_stream_zero(&t->stream, sum, g->elements, g->dtype, err));
    TRY(add_own(t, group, step, sum, err));
    if (!last) {
        TRY(t->comm->send(t->b, communicator, s, sum, g->elements, g->dtype, rank[i + 1], err));
        TRY(t->comm->receive(t->b, communicator, s, sum, g->elements, g->dtype, rank[i + 1], err));
    }
    TRY(spread_out(t, group, sum, err));
    if (i == 0) return OK;
    return t->comm->send(t->b, communicator, s, sum, g->elements, g->dtype, rank[i - 1], err);
}

enum status device_reduce(struct device_transport *t, int32_t group, int64_t step,
                          struct error *err)
{
    const struct collective *g = &t->p->collectives[group];
    if (g->algorithm == ALGORITHM_CHAIN) return chain(t, group, step, err);
    if (g->n_members < 2) return OK;
    if (program_collective_in_rounds(g)) return reduce_in_rounds(t, group, err);
    if (program_collective_scatters(g)) return scatter(t, group, err);
    if (program_collective_gathers(g)) return gather(t, group, err);
    return reduce_round(t, group, err);
}

/* ---- launches --------------------------------------------------------------------------------- */

/* Bytes that this member sends in a ring: the reference for bandwidth. */
static int64_t bytes_sent(const struct collective *g)
{
    const struct collective *m = g;
    int64_t n = g->n_members, all = g->elements * dtype_bytes(g->dtype);
    bool twice = m ? m->kind == COLLECTIVE_ALL_REDUCE
                   : !program_collective_divides(g) && g->algorithm != ALGORITHM_CHAIN;
    if (g->algorithm == ALGORITHM_CHAIN && !m) return all;
    return n ? all / n * (n - 1) * (twice ? 2 : 1) : 0;
}

enum status device_transport_reduce(struct device_transport *t, int32_t group, int64_t number,
                                    int64_t step, int32_t times, int64_t seq, enum phase phase,
                                    struct error *err)
{
    struct group_end *e = &t->groups[group];
    const struct collective *g = &t->p->collectives[group];
    int32_t begin, end;
    TRY(communicators_live(&t->communicators, err));
    if (e->member < 0 || number != e->issued)
        BUG("collective %d: launch %lld after %lld", group, (long long)number, (long long)e->issued - 1);
    TRY(t->b->event_record(t->b, t->ready, STREAM_COMPUTE, err));
    TRY(t->b->event_wait(t->b, t->collective, t->ready, err));
    TRY(timed_spans_record(&t->spans, t->collective, &begin, err));
    t->at_hand = group;
    TRY(collective_of_tensor(g) ? device_transport_tensor_collective(t, group, seq, err)
                                : device_reduce(t, group, step, err));
    t->at_hand = -1;
    TRY(timed_spans_record(&t->spans, t->collective, &end, err));
    TRY(t->b->event_record(t->b, e->ended[number % 2], t->collective, err));
    e->issued = number + 1;
    watchdog_progress(&t->watchdog);
    timed_spans_keep(&t->spans, begin, end,
                     (struct span){.kind = SPAN_REDUCE,
                                   .stream = STREAM_collective,
                                   .device = t->o.rank,
                                   .peer = -1,
                                   .stage = g->members[e->member].stage,
                                   .phase = phase,
                                   .step = (int32_t)step,
                                   .microbatch = program_collective_repeats(g) ? times : -1,
                                   .op = group,
                                   .collective = collective_of_tensor(g) ? 1 + (int32_t)g->kind : 0,
                                   .bytes = bytes_sent(g)});
    return OK;
}

/* An earlier launch whose event was reused has ended when the later one has. */
enum status device_transport_await(struct device_transport *t, int32_t group, int64_t number,
                                   struct error *err)
{
    const struct group_end *e = &t->groups[group];
    TRY(communicators_live(&t->communicators, err));
    if (number >= e->issued)
        return error_set(err, ERR_INPUT, "%s: collective %s is waited for before its launch %" PRId64,
                         t->p->devices[t->o.rank].name, t->p->collectives[group].name, number);
    return t->b->event_wait(t->b, STREAM_COMPUTE, e->ended[number % 2], err);
}

/* ---- looked at -------------------------------------------------------------------------------- */

enum status device_transport_sums_count(struct device_transport *t, bool *in_flight,
                                        struct error *err)
{
    *in_flight |= t->at_hand >= 0;
    for (int32_t i = 0; i < t->p->n_collectives; i++) {
        struct group_end *g = &t->groups[i];
        if (g->member < 0) continue;
        TRY(watchdog_count(&t->watchdog, t->b, g->issued, &g->done, g->ended, 2, err));
        *in_flight |= g->done < g->issued;
    }
    return OK;
}

void device_transport_sums_blame(const struct device_transport *t, struct error *why)
{
    for (int32_t i = 0; i < t->p->n_collectives; i++) {
        const struct group_end *g = &t->groups[i];
        if (g->member < 0 || (g->done == g->issued && i != t->at_hand) || g->communicator < 0)
            continue;
        error_set(why, ERR_RANK,
                  "%s: collective %s %s has not ended for %.0f s: a member is gone",
                  program_device_label(t->p, t->o.rank).text, t->p->collectives[i].name,
                  t->talks.talk[g->communicator].name, (double)t->o.limit_ns / 1e9);
        return;
    }
}
