/* planner/spmd/state.c - records of live tensors, and what a rule does to them.
 *
 * A rule reshards the operands that are not in the placement it needs, once for each placement, and records which versions got a partial
 * gradient. At its last reader a tensor is settled: sums and duals of its versions are charged. O(operands · versions) for a transition.
 */
#include "planner/spmd/state.h"

#include "core/base/arena.h"

#include <string.h>

/* --- live tensors --- */

static void find_readers(struct spmd_states *s, int32_t *first)
{
    const struct spmd_problem *p = s->p;
    for (int32_t t = 0; t < p->n_tensors; t++) s->last_reader[t] = first[t] = -1;
    for (int32_t i = 0; i < p->n_ops; i++) {
        for (int32_t k = 0; k < p->ops[i].n_inputs; k++) {
            int32_t t = p->ops[i].input[k];
            s->last_reader[t] = i;
            if (first[t] < 0) first[t] = i;
        }
        for (int32_t k = 0; k < p->ops[i].n_outputs; k++) {
            int32_t t = p->ops[i].output[k];
            first[t] = i;
            if (p->leaves && p->leaves[(int64_t)t * p->n_placements] != -2)
                s->last_reader[t] = p->n_ops;
        }
    }
    for (int32_t t = 0; t < p->n_tensors; t++)
        if (p->tensors[t].kind == SPMD_SOURCE) s->last_reader[t] = -1;
}

static int32_t place_in(const struct spmd_live *l, int32_t tensor)
{
    for (int32_t k = 0; k < l->n; k++)
        if (l->tensor[k] == tensor) return k;
    return -1;
}

int32_t spmd_live_place(const struct spmd_states *s, int32_t place, int32_t tensor)
{
    return place_in(&s->live[place], tensor);
}

/* Live tensors after operator i: earlier ones that are still read, then those it reads first, then its outputs. */
static void step_live(struct spmd_states *s, int32_t i, const int32_t *first)
{
    const struct spmd_op *op = &s->p->ops[i];
    const struct spmd_live *before = &s->live[i];
    struct spmd_live *l = &s->live[i + 1];
    size_t most = (size_t)(before->n + op->n_inputs + op->n_outputs);
    l->tensor = ARENA_ARRAY(s->a, int32_t, most), l->from = ARENA_ARRAY(s->a, int32_t, most);
    for (int32_t k = 0; k < before->n; k++)
        if (s->last_reader[before->tensor[k]] > i)
            l->tensor[l->n] = before->tensor[k], l->from[l->n++] = k;
    for (int32_t k = 0; k < op->n_inputs; k++) {
        int32_t t = op->input[k];
        if (first[t] == i && s->last_reader[t] > i && place_in(l, t) < 0)
            l->tensor[l->n] = t, l->from[l->n++] = -1 - OP_OPERANDS_MAX - k;
    }
    for (int32_t k = 0; k < op->n_outputs; k++)
        if (s->last_reader[op->output[k]] > i)
            l->tensor[l->n] = op->output[k], l->from[l->n++] = -1 - k;
}

struct spmd_states *spmd_states_new(struct arena *a, const struct spmd_problem *p)
{
    struct spmd_states *s = ARENA_ARRAY(a, struct spmd_states, 1);
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)p->n_tensors);
    *s = (struct spmd_states){.a = a, .p = p, .n_buckets = 1024};
    s->live = ARENA_ARRAY(a, struct spmd_live, (size_t)p->n_ops + 1);
    s->last_reader = ARENA_ARRAY(a, int32_t, (size_t)p->n_tensors);
    s->buckets = ARENA_ARRAY(a, int32_t, s->n_buckets);
    find_readers(s, first);
    for (int32_t i = 0; i < p->n_ops; i++) step_live(s, i, first);
    return s;
}

/* --- records --- */

static uint64_t hash_record(const struct spmd_record *r)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int32_t k = 0; k < r->n; k++) {
        uint64_t word;
        memcpy(&word, &r->version[k], sizeof word);
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

static void put(struct spmd_states *s, int32_t id)
{
    size_t at = (size_t)hash_record(&s->records[id]);
    while (s->buckets[at & (s->n_buckets - 1)]) at++;
    s->buckets[at & (s->n_buckets - 1)] = id + 1;
}

static int32_t intern(struct spmd_states *s, const struct spmd_record *r)
{
    size_t bytes = (size_t)r->n * sizeof r->version[0];
    for (size_t at = (size_t)hash_record(r);; at++) {
        int32_t id = s->buckets[at & (s->n_buckets - 1)] - 1;
        if (id < 0) break;
        const struct spmd_record *x = &s->records[id];
        if (x->n == r->n && !memcmp(x->version, r->version, bytes)) return id;
    }
    s->records =
        arena_grow(s->a, s->records, (size_t)s->n_records, &s->record_capacity, sizeof *s->records);
    s->records[s->n_records] = *r;
    if (2 * (size_t)++s->n_records > s->n_buckets) {
        s->n_buckets *= 4;
        s->buckets = ARENA_ARRAY(s->a, int32_t, s->n_buckets);
        for (int32_t id = 0; id < s->n_records; id++) put(s, id);
    } else
        put(s, s->n_records - 1);
    return s->n_records - 1;
}

/* --- costs --- */

struct account {
    struct spmd_states *s;
    int64_t *ns, *bytes;
    int32_t op;
};

static void add_bytes(struct account *y, const int64_t *bytes)
{
    for (int32_t c = 0; y->bytes && bytes && c < y->s->p->n_columns; c++) y->bytes[c] += bytes[c];
}

static void tell(struct account *y, int32_t tensor, int32_t from, const struct spmd_step *step,
                 bool partial)
{
    struct spmd_states *s = y->s;
    if (!s->listen) return;
    s->events = arena_grow(s->a, s->events, s->n_events, &s->event_capacity, sizeof *s->events);
    s->events[s->n_events++] = (struct spmd_event){
        .op = -1, .tensor = tensor, .from = from, .step = *step, .partial = partial};
}

static int32_t find_version(const struct spmd_record *r, int32_t placement)
{
    for (int32_t k = 0; k < r->n; k++)
        if (r->version[k].placement == placement) return k;
    return -1;
}

static const struct spmd_reshard *reshard_of(const struct spmd_states *s, int32_t tensor, int32_t from,
                                     int32_t to)
{
    return s->p->tensors[tensor].of->reshard[(int64_t)from * s->p->n_placements + to];
}

/* The version of `tensor` in a placement, created on demand. -1: impossible. */
static int32_t version_in(struct account *y, int32_t tensor, struct spmd_record *r, int32_t to)
{
    int32_t at = find_version(r, to), made = r->version[0].placement;
    if (at >= 0) return at;
    const struct spmd_reshard *reshard = reshard_of(y->s, tensor, made, to);
    if (!reshard || reshard->n < 0) return -1;
    at = 0;
    for (int32_t k = 0; k < reshard->n; k++) {
        int32_t found = find_version(r, reshard->step[k].after);
        if (found < 0) {
            if (r->n == SPMD_VERSIONS_MAX) return -1;
            struct spmd_step forward = reshard->step[k];
            *y->ns += forward.forward_ns;
            forward.back_ns = forward.back_partial_ns = 0;
            tell(y, tensor, r->version[at].placement, &forward, false);
            r->version[r->n] = (struct spmd_version){.placement = (uint16_t)reshard->step[k].after,
                                                     .target = (uint16_t)to,
                                                     .parent = (uint8_t)at,
                                                     .step = (uint8_t)k};
            found = r->n++;
        }
        at = found;
    }
    return at;
}

/* One all-reduce over an axis in this placement. */
static void sum_back(struct account *y, int32_t tensor, int32_t placement, int8_t axis)
{
    int64_t ns = y->s->p->tensors[tensor].of->sum_ns[placement][axis];
    struct spmd_step event = {.after = -1, .axis = axis, .back_ns = ns};
    *y->ns += ns;
    tell(y, tensor, placement, &event, true);
}

/* Reduces all partial values: those over both axes are reduced over one and added to those over the other
 * (core/graph/gradient). */
static void reduce_partials(struct account *y, int32_t tensor, int32_t placement, uint8_t set)
{
    bool first = set >> 1 & 1, second = set >> 2 & 1;
    if (set >> 3 & 1) {
        bool over_second = first || !second;
        sum_back(y, tensor, placement, over_second);
        if (over_second)
            first = true;
        else
            second = true;
    }
    if (second) sum_back(y, tensor, placement, 1);
    if (first) sum_back(y, tensor, placement, 0);
}

/* Backward cost of all versions, the latest first. */
static void settle(struct account *y, int32_t tensor, struct spmd_record *r)
{
    const struct spmd_tensor *t = &y->s->p->tensors[tensor];
    for (int32_t v = r->n - 1; v >= 0; v--) {
        struct spmd_version *x = &r->version[v];
        const struct spmd_step *step =
            v ? &reshard_of(y->s, tensor, r->version[0].placement, x->target)->step[x->step] : NULL;
        struct spmd_version *source = &r->version[x->parent];
        int32_t from = source->placement;
        if (!t->wanted || !x->partial) continue; /* no gradient */
        struct spmd_step back = {0};
        if (step) back = *step, back.forward_ns = 0;
        if (step && step->gather) {
            for (int32_t m = 0; m < 4; m++) {
                if (!(x->partial >> m & 1)) continue;
                bool owed = m >> step->axis & 1;
                *y->ns += owed ? step->back_partial_ns : step->back_ns;
                source->partial |= (uint8_t)(1 << (m & ~(1 << step->axis)));
                tell(y, tensor, from, &back, owed);
            }
            continue;
        }
        reduce_partials(y, tensor, x->placement, x->partial);
        if (!step) continue;
        source->partial |= 1;
        *y->ns += step->back_ns;
        tell(y, tensor, from, &back, false);
    }
}

/* A parameter of several operators: the record is its home so far. */
static void read_shared(const struct account *y, const struct spmd_tensor *t, struct spmd_record *r,
                        int32_t need, uint8_t partial)
{
    int32_t home = r->n ? r->version[0].placement : -1;
    uint8_t owed = r->version[0].partial;
    t->join(y->s->p->user, &home, &owed, need, partial);
    r->n = 1;
    r->version[0] = (struct spmd_version){.placement = (uint16_t)home, .partial = owed};
}

static void settle_shared(struct account *y, int32_t tensor, const struct spmd_record *r)
{
    const struct spmd_problem *p = y->s->p;
    const int64_t *bytes = NULL;
    *y->ns += p->tensors[tensor].home_ns(p->user, tensor, r->version[0].placement,
                                         r->version[0].partial, &bytes);
    add_bytes(y, bytes);
}

static void store_parameter(struct account *y, int32_t tensor, struct spmd_version *v)
{
    const struct spmd_tensor_class *of = y->s->p->tensors[tensor].of;
    if (v->kept || !y->bytes) return; /* does not separate states if bytes do not count */
    v->kept = 1;
    if (of->bytes) add_bytes(y, of->bytes[v->placement]);
}

/* After the last operator: resharding to the output placement, then the backward cost. */
static bool leave(struct account *y, int32_t tensor, struct spmd_record *r)
{
    const struct spmd_problem *p = y->s->p;
    int32_t to = p->leaves[(int64_t)tensor * p->n_placements + r->version[0].placement];
    int32_t v = to >= 0 ? version_in(y, tensor, r, to) : 0;
    if (v < 0) return false;
    r->version[v].partial |= 1;
    settle(y, tensor, r);
    return true;
}

/* --- one rule --- */

struct
    held { /* records of the operator's inputs and outputs, by index in live before, or operand */
    struct spmd_record before[SPMD_LIVE_MAX], fresh[OP_OPERANDS_MAX], made[OP_OPERANDS_MAX];
    bool changed[SPMD_LIVE_MAX];
};

static bool read_operands(struct account *y, const struct spmd_rule *rule, const int32_t *in,
                          struct held *h)
{
    const struct spmd_states *s = y->s;
    const struct spmd_op *op = &s->p->ops[y->op];
    const struct spmd_live *live = &s->live[y->op];
    for (int32_t k = 0; k < op->n_inputs; k++) {
        int32_t t = op->input[k], at = place_in(live, t);
        const struct spmd_tensor *x = &s->p->tensors[t];
        if (x->kind == SPMD_SOURCE) continue;
        if (at >= 0 && !h->changed[at]) h->before[at] = s->records[in[at]], h->changed[at] = true;
        int32_t first = 0;
        while (op->input[first] != t) first++;
        struct spmd_record *r = at >= 0 ? &h->before[at] : &h->fresh[first];
        if (x->kind == SPMD_SHARED) {
            read_shared(y, x, r, rule->need[k], rule->partial[k]);
            continue;
        }
        if (!r->n) BUG("tensor %d is read before it is made", t);
        int32_t v = version_in(y, t, r, rule->need[k]);
        if (v < 0) return false;
        if (!(op->silent >> k & 1)) r->version[v].partial |= (uint8_t)(1 << rule->partial[k]);
        if (op->keeps_input >> k & 1) store_parameter(y, t, &r->version[v]);
    }
    return true;
}

static void settle_read(struct account *y, struct held *h)
{
    const struct spmd_states *s = y->s;
    const struct spmd_op *op = &s->p->ops[y->op];
    for (int32_t k = 0; k < op->n_inputs; k++) {
        int32_t t = op->input[k], at = place_in(&s->live[y->op], t);
        bool again = false;
        for (int32_t j = 0; j < k; j++) again = again || op->input[j] == t;
        if (again || s->last_reader[t] != y->op || s->p->tensors[t].kind == SPMD_SOURCE) continue;
        struct spmd_record *r = at >= 0 ? &h->before[at] : &h->fresh[k];
        if (s->p->tensors[t].kind == SPMD_SHARED)
            settle_shared(y, t, r);
        else
            settle(y, t, r);
    }
}

bool spmd_apply(struct spmd_states *s, int32_t op, const struct spmd_rule *rule, const int32_t *in,
                int32_t *out, int64_t *ns, int64_t *bytes)
{
    const struct spmd_op *o = &s->p->ops[op];
    const struct spmd_live *before = &s->live[op], *after = &s->live[op + 1];
    struct account y = {s, ns, bytes, op};
    struct held h;
    if (before->n > SPMD_LIVE_MAX || after->n > SPMD_LIVE_MAX) return false;
    memset(h.changed, 0, sizeof h.changed);
    for (int32_t k = 0; k < o->n_inputs; k++) h.fresh[k].n = 0, h.fresh[k].version[0].partial = 0;
    *ns += rule->ns;
    add_bytes(&y, rule->bytes);
    if (!read_operands(&y, rule, in, &h)) return false;
    settle_read(&y, &h);
    for (int32_t k = 0; k < o->n_outputs; k++) {
        h.made[k].n = 1;
        h.made[k].version[0] = (struct spmd_version){.placement = (uint16_t)rule->give[k]};
        if (o->keeps_output >> k & 1) store_parameter(&y, o->output[k], &h.made[k].version[0]);
    }
    for (int32_t k = 0; k < after->n; k++) {
        int32_t from = after->from[k];
        struct spmd_record *r = from >= 0                  ? &h.before[from]
                                : from >= -OP_OPERANDS_MAX ? &h.made[-1 - from]
                                                           : &h.fresh[-1 - OP_OPERANDS_MAX - from];
        bool same = from >= 0 && !h.changed[from];
        if (op + 1 == s->p->n_ops) { /* all remaining tensors are outputs */
            if (same) *r = s->records[in[from]];
            if (!leave(&y, after->tensor[k], r)) return false;
            out[k] = 0;
        } else
            out[k] = same ? in[from] : intern(s, r);
    }
    return true;
}
