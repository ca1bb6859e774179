/* planner/spmd/labels.c - the hash table of labels, and dominance within a chain.
 *
 * A new label is compared with those of its state only: it is discarded if one of them costs no more in time and in every memory column, and it
 * marks those that it dominates. O(labels of the state) each; tables grow by doubling.
 */
#include "planner/spmd/labels.h"

#include "core/base/arena.h"

#include <string.h>

static uint64_t hash_state(int32_t place, int32_t run, const int32_t *state, int32_t n)
{
    uint64_t h = ((uint64_t)(uint32_t)place << 32 | (uint32_t)run) * UINT64_C(0x9E3779B97F4A7C15);
    for (int32_t k = 0; k < n; k++) {
        h = (h ^ (uint64_t)(uint32_t)state[k]) * UINT64_C(0xD6E8FEB86659FD93);
        h ^= h >> 32;
    }
    return h;
}

int32_t spmd_live_at(const struct search *q, int32_t place)
{
    return place == q->p->n_ops ? 0 : q->s->live[place].n;
}

static size_t bucket_of(const struct search *q, int32_t place, int32_t run, const int32_t *state)
{
    int32_t n = spmd_live_at(q, place);
    for (size_t at = (size_t)hash_state(place, run, state, n);; at++) {
        int32_t id = q->table[at & (q->n_table - 1)] - 1;
        if (id < 0) return at & (q->n_table - 1);
        const struct label *l = &q->labels[id];
        if (l->place == place && l->run == run &&
            !memcmp(q->states + l->state, state, (size_t)n * sizeof *state))
            return at & (q->n_table - 1);
    }
}

static void grow_table(struct search *q)
{
    int32_t *old = q->table;
    size_t n = q->n_table;
    q->n_table *= 4;
    q->table = ARENA_ARRAY(q->a, int32_t, q->n_table);
    for (size_t i = 0; i < n; i++) {
        if (!old[i]) continue;
        const struct label *l = &q->labels[old[i] - 1];
        q->table[bucket_of(q, l->place, l->run, q->states + l->state)] = old[i];
    }
}

/* Whether x dominates y. */
static bool beats(const struct search *q, int32_t x, int32_t y)
{
    int32_t n = q->p->n_columns;
    if (q->labels[x].ns > q->labels[y].ns) return false;
    for (int32_t c = 0; q->least_bytes && c < n; c++)
        if (q->bytes[(int64_t)x * n + c] > q->bytes[(int64_t)y * n + c]) return false;
    return true;
}

/* Inserts the last label into the table, or removes it if dominated. */
int32_t spmd_settle_label(struct search *q, const int32_t *state)
{
    int32_t id = q->n_labels;
    struct label *l = &q->labels[id];
    size_t at = bucket_of(q, l->place, l->run, state);
    int32_t *link = &q->table[at], first = *link - 1;
    for (int32_t k = first; k >= 0; k = q->labels[k].next)
        if (!q->labels[k].beaten && beats(q, k, id)) return -1;
    for (int32_t k = first; k >= 0; k = q->labels[k].next)
        if (!q->labels[k].beaten && beats(q, id, k)) q->labels[k].beaten = true;
    while (first >= 0 && q->labels[first].beaten) first = q->labels[first].next;
    l->next = first;
    *link = id + 1;
    q->n_states += (size_t)spmd_live_at(q, l->place);
    if (2 * (size_t)++q->n_labels > q->n_table) grow_table(q);
    return id;
}

void spmd_room(struct search *q)
{
    size_t n = (size_t)q->n_labels, c = (size_t)q->p->n_columns;
    q->labels = arena_grow(q->a, q->labels, n, &q->label_capacity, sizeof *q->labels);
    while (q->n_states + SPMD_LIVE_MAX > q->state_capacity)
        q->states =
            arena_grow(q->a, q->states, q->state_capacity, &q->state_capacity, sizeof *q->states);
    while (q->least_bytes && (n + 1) * c > q->byte_capacity)
        q->bytes =
            arena_grow(q->a, q->bytes, q->byte_capacity, &q->byte_capacity, sizeof *q->bytes);
}

/* Sets to 0 the bytes of devices whose cap can no longer be exceeded. false: a cap is exceeded. */
bool spmd_bound_bytes(const struct search *q, int32_t place, int64_t *bytes)
{
    int32_t n = q->p->n_columns;
    for (int32_t c = 0; c < n; c++) {
        int64_t now = bytes[c];
        if (now + q->least_bytes[(int64_t)place * n + c] > q->p->cap[c]) return false;
        if (now + q->most_bytes[(int64_t)place * n + c] <= q->p->cap[c]) bytes[c] = 0;
    }
    return true;
}

/* Lower bounds of the solutions with this prefix. */
static void bound_label(const struct search *q, struct label *l, const int32_t *state)
{
    int64_t least = l->least_ns; /* of the parent label */
    if (q->relax) {
        int64_t ns = l->ns + spmd_relax_min(q->relax, l->place, state);
        if (ns > least) least = ns;
    }
    l->least_ns = least;
}

/* Extends by a rule of the next operator. -1: impossible, or dominated. */
int32_t spmd_extend(struct search *q, int32_t from, int32_t rule)
{
    spmd_room(q);
    int32_t n = q->p->n_columns, place = q->labels[from].place, id = q->n_labels;
    struct label *l = &q->labels[id];
    bool counts = q->least_bytes || q->price;
    *l = q->labels[from];
    l->place = place + 1, l->rule = rule, l->parent = from, l->via = -1, l->beaten = false;
    l->state = q->n_states;
    int64_t *more = counts ? memset(q->spare, 0, (size_t)n * sizeof *more) : NULL;
    q->n_applied++;
    const int32_t *in = q->states + q->labels[from].state;
    int32_t *out = q->states + l->state;
    if (!spmd_apply(q->s, place, &q->p->ops[place].rules[rule], in, out, &l->ns, more)) return -1;
    if (q->price) l->ns += spmd_relax_priced(q->p, q->price, more);
    bound_label(q, l, out);
    if (l->least_ns >= q->enough_ns) return -1;
    if (q->least_bytes) {
        int64_t *bytes = q->bytes + (int64_t)id * n;
        const int64_t *had = q->bytes + (int64_t)from * n;
        for (int32_t c = 0; c < n; c++) bytes[c] = had[c] + more[c];
        if (!spmd_bound_bytes(q, place + 1, bytes)) return -1;
    }
    return spmd_settle_label(q, out);
}

int32_t spmd_new_root(struct search *q, int32_t place, int32_t run, const int32_t *state)
{
    spmd_room(q);
    int32_t n = spmd_live_at(q, place), id = q->n_labels;
    q->labels[id] = (struct label){
        .place = place, .rule = -1, .parent = -1, .via = -1, .run = run, .state = q->n_states};
    if (n) memcpy(q->states + q->n_states, state, (size_t)n * sizeof *state);
    if (q->least_bytes)
        memset(q->bytes + (int64_t)id * q->p->n_columns, 0,
               (size_t)q->p->n_columns * sizeof *q->bytes);
    return spmd_settle_label(q, q->states + q->labels[id].state);
}

double spmd_price_max(const struct spmd_problem *p)
{
    double full = 1;
    for (int32_t c = 0; c < p->n_columns; c++) {
        double bytes = 0;
        for (int32_t i = 0; i < p->n_ops; i++) {
            const struct spmd_rule *r = p->ops[i].rules;
            int64_t most = 0;
            for (int32_t k = 0; k < p->ops[i].n_rules; k++)
                if (r[k].bytes && r[k].bytes[c] > most) most = r[k].bytes[c];
            bytes += (double)most;
        }
        for (int32_t t = 0; t < p->n_tensors; t++) {
            const int64_t *const *b = p->tensors[t].of ? p->tensors[t].of->bytes : NULL;
            int64_t most = 0;
            for (int32_t k = 0; b && k < p->n_placements; k++)
                if (b[k] && b[k][c] > most) most = b[k][c];
            bytes += (double)most * (double)(p->n_placements + 1); /* upper bound of its versions */
        }
        full += bytes / (double)(p->cap[c] > 0 ? p->cap[c] : 1);
    }
    return 1e17 / full;
}
