#include "core/lower/equal_stages.h"

#include "core/lower/cells.h"
#include "core/lower/channels.h"
#include "core/lower/groups.h"
#include "core/lower/memo.h"
#include "core/lower/orders.h"
#include "core/lower/procedures.h"
#include "core/lower/stage_key.h"
#include "core/lower/tensor_collectives.h"
#include "core/lower/zero_slots.h"

#include <string.h>

struct patch { /* an instruction whose argument is entry `local` of the stage's numbers */
    int32_t procedure, instr, local;
};

struct counted { /* numbers of buffers of a stage with these calls, in one lowering */
    int64_t lowering;
    const struct stage_calls *calls;
    int32_t receive_ahead;
    int32_t *count; /* (n_buffer_rings) */
};

struct kept_stage { /* a lowered stage, in its own numbers */
    const int64_t *key;
    size_t n_key;
    uint64_t hash;
    struct program_stage s; /* its rings name entries of the stage's numbers; its procedures those of the program it was made in */
    struct stage_procedures procedures;
    struct patch *patches;
    int32_t n_patches, n_numbers;
    int32_t *slot;                     /* of its messages, edge by edge */
    struct collective_member *members; /* of its groups */
    struct kept_collectives collectives;
    struct counted counted;
    struct kept_stage *next; /* in the same place */
};

struct stage_table {
    struct arena *arena; /* of its stages */
    size_t n_first;      /* a power of two */
    struct kept_stage **first;
};

struct equal_stages {
    struct lowering *l;
    int64_t number;                   /* of the lowering, among those with its memo */
    struct stage_table *own, *shared; /* of this lowering; of all with the memo, NULL */
    struct stage_key key;             /* of the current stage */
    int32_t *numbers, *local_of_channel, *local_of_collective; /* work space */
    size_t n_numbers, n_channels, n_collectives;
};

/* --- stages by key --- */

static struct stage_table *new_table(struct arena *a, struct arena *contents, size_t at_least)
{
    struct stage_table *t = ARENA_ARRAY(a, struct stage_table, 1);
    *t = (struct stage_table){.arena = contents, .n_first = 64};
    while (t->n_first < at_least) t->n_first *= 2;
    t->first = ARENA_ARRAY(a, struct kept_stage *, t->n_first);
    return t;
}

struct equal_stages *equal_stages_new(struct lowering *l)
{
    enum { KEPT = 4096 }; /* stages of a full memo, of which some hundred fill it */
    struct equal_stages *x = ARENA_ARRAY(l->tables, struct equal_stages, 1);
    struct lower_memo *m = l->o->memo;
    *x = (struct equal_stages){.l = l, .key = {.arena = l->tables}};
    x->own = new_table(l->tables, l->a, (size_t)l->p->n_stages);
    if (!m) return x;
    if (!m->stages) m->stages = new_table(m->stages_arena, m->stages_arena, KEPT);
    x->shared = m->stages, x->number = m->lowerings;
    return x;
}

/* A stage whose graph ends with this lowering is equal to none of another. */
static struct stage_table *table_of(const struct equal_stages *x, const struct stage_build *b)
{
    return x->shared && b->v->kept ? x->shared : x->own;
}

static struct kept_stage **list_of(const struct stage_table *t, uint64_t hash)
{
    return &t->first[(size_t)(hash >> 20) & (t->n_first - 1)];
}

static struct kept_stage *find(const struct stage_table *t, const struct stage_key *k)
{
    struct kept_stage *s = *list_of(t, k->hash);
    while (s && (s->hash != k->hash || s->n_key != k->n ||
                 memcmp(s->key, k->list, k->n * sizeof *k->list) != 0))
        s = s->next;
    return s;
}

struct arena *equal_stages_arena(const struct equal_stages *x, const struct stage_build *b)
{
    return table_of(x, b)->arena;
}

/* --- numbers of channels and collectives --- */

static int32_t *room(struct arena *a, int32_t **array, size_t *capacity, size_t n)
{
    if (n > *capacity) *array = ARENA_ARRAY(a, int32_t, *capacity = 2 * n);
    return *array;
}

static int32_t n_chunks_of(const struct lowering *l, const struct stage_build *b)
{
    return l->lanes[b->s->device].n_stages;
}

static int32_t n_channels_of(const struct stage_build *b)
{
    int32_t n = 0;
    for (int e = 0; e < EDGE_COUNT; e++) n += b->edge[e].n;
    return n;
}

/* In one order on equal stages: channels by edge, groups by chunk, collectives of tensors as they are made. */
static int32_t numbers_of(struct equal_stages *x, const struct stage_build *b)
{
    int32_t n = n_channels_of(b), n_chunks = n_chunks_of(x->l, b), n_calls,
            *calls = lower_collectives_of(b, &n_calls);
    for (int32_t c = 0; c < n_chunks; c++) n += stage_key_chunk(x->l, b, c)->groups->n;
    int32_t *out = room(x->l->tables, &x->numbers, &x->n_numbers, (size_t)(n + n_calls) + 1);
    n = 0;
    for (int e = 0; e < EDGE_COUNT; e++)
        for (int32_t i = 0; i < b->edge[e].n; i++) out[n++] = b->edge[e].list[i].channel;
    for (int32_t c = 0; c < n_chunks; c++) {
        const struct stage_groups *g = stage_key_chunk(x->l, b, c)->groups;
        if (g->n) memcpy(out + n, g->group, (size_t)g->n * sizeof *out);
        n += g->n;
    }
    if (n_calls) memcpy(out + n, calls, (size_t)n_calls * sizeof *out);
    return n + n_calls;
}

static bool names_channel(const struct instr *i)
{
    return i->kind == INSTR_SEND || i->kind == INSTR_RECEIVE;
}

static bool names_collective(const struct instr *i)
{
    return i->kind == INSTR_COLLECTIVE || i->kind == INSTR_COLLECTIVE_START ||
           i->kind == INSTR_COLLECTIVE_WAIT;
}

/* The first entry of each number. The arrays keep entries of other stages, which the instructions of this one never name. */
static void index_numbers(struct equal_stages *x, const struct stage_build *b, int32_t n)
{
    const struct program *p = x->l->p;
    int32_t n_channels = n_channels_of(b);
    int32_t *channel =
                room(x->l->tables, &x->local_of_channel, &x->n_channels, (size_t)p->n_channels + 1),
            *collective = room(x->l->tables, &x->local_of_collective, &x->n_collectives,
                               (size_t)p->n_collectives + 1);
    for (int32_t i = n; i-- > 0;)
        *(i < n_channels ? &channel[x->numbers[i]] : &collective[x->numbers[i]]) = i;
}

static void find_patches(struct equal_stages *x, const struct stage_build *b, struct arena *a,
                         struct kept_stage *s)
{
    size_t n = 0, at = 0;
    for (int32_t q = 0; q < s->s.n_procedures; q++)
        for (int32_t i = 0; i < s->s.procedures[q].n_instrs; i++)
            n += names_channel(&s->s.procedures[q].instrs[i]) ||
                 names_collective(&s->s.procedures[q].instrs[i]);
    s->n_numbers = numbers_of(x, b), s->n_patches = (int32_t)n;
    index_numbers(x, b, s->n_numbers);
    s->patches = ARENA_ARRAY(a, struct patch, n + 1);
    for (int32_t q = 0; q < s->s.n_procedures; q++)
        for (int32_t i = 0; i < s->s.procedures[q].n_instrs; i++) {
            const struct instr *y = &s->s.procedures[q].instrs[i];
            if (names_channel(y))
                s->patches[at++] = (struct patch){q, i, x->local_of_channel[y->arg]};
            if (names_collective(y))
                s->patches[at++] = (struct patch){q, i, x->local_of_collective[y->arg]};
        }
}

/* --- what is kept of a stage --- */

static void keep_rings(const struct equal_stages *x, struct arena *a, struct program_stage *s)
{
    s->buffer_rings =
        arena_copy(a, s->buffer_rings, (size_t)s->n_buffer_rings * sizeof *s->buffer_rings);
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        struct buffer_ring *r = &s->buffer_rings[i];
        if (r->sent >= 0) r->sent = x->local_of_channel[r->sent];
        if (r->received >= 0) r->received = x->local_of_channel[r->received];
    }
}

static void keep_ends(const struct lowering *l, struct arena *a, const struct stage_build *b,
                      struct kept_stage *s)
{
    int32_t n = 0;
    s->slot = ARENA_ARRAY(a, int32_t, (size_t)n_channels_of(b));
    for (int e = 0; e < EDGE_COUNT; e++)
        for (int32_t i = 0; i < b->edge[e].n; i++) s->slot[n++] = b->edge[e].list[i].slot;
    s->members = ARENA_ARRAY(a, struct collective_member, (size_t)b->groups->n);
    for (int32_t i = 0; i < b->groups->n; i++)
        s->members[i] = l->p->collectives[b->groups->group[i]].members[b->groups->member[i]];
}

static void keep_counts(const struct equal_stages *x, const struct stage_build *b, struct kept_stage *s)
{
    for (int32_t i = 0; i < b->s->n_buffer_rings; i++)
        s->counted.count[i] = b->s->buffer_rings[i].count;
    s->counted.lowering = x->number, s->counted.calls = b->order->calls;
    s->counted.receive_ahead = b->plan->receive_ahead;
}

void equal_stages_add(struct equal_stages *x, const struct stage_build *b)
{
    if (x->key.unique) return;
    struct stage_table *t = table_of(x, b);
    struct arena *a = t->arena;
    struct kept_stage **list = list_of(t, x->key.hash), *s = ARENA_ARRAY(a, struct kept_stage, 1);
    *s = (struct kept_stage){.key = arena_copy(a, x->key.list, x->key.n * sizeof *x->key.list),
                             .n_key = x->key.n,
                             .hash = x->key.hash,
                             .s = *b->s,
                             .procedures = *b->procedures,
                             .collectives = lower_keep_collectives(a, b),
                             .next = *list};
    find_patches(x, b, a, s);
    keep_rings(x, a, &s->s);
    keep_ends(x->l, a, b, s);
    s->counted.count = ARENA_ARRAY(a, int32_t, (size_t)b->s->n_buffer_rings);
    keep_counts(x, b, s);
    *list = s;
}

/* --- copies --- */

static void copy_instrs(struct equal_stages *x, const struct kept_stage *s, struct program_stage *to)
{
    struct arena *a = x->l->a;
    to->procedures =
        arena_copy(a, to->procedures, (size_t)to->n_procedures * sizeof *to->procedures);
    int32_t copied = -1;
    for (int32_t i = 0; i < s->n_patches; i++) {
        struct procedure *q = &to->procedures[s->patches[i].procedure];
        if (copied != s->patches[i].procedure)
            q->instrs = arena_copy(a, q->instrs, (size_t)q->n_instrs * sizeof *q->instrs);
        copied = s->patches[i].procedure;
        q->instrs[s->patches[i].instr].arg = x->numbers[s->patches[i].local];
    }
}

static bool is_counted(const struct equal_stages *x, const struct counted *c, const struct stage_build *b)
{
    return c->lowering == x->number && c->calls == b->order->calls &&
           c->receive_ahead == b->plan->receive_ahead;
}

static void copy_rings(const struct equal_stages *x, struct kept_stage *kept, struct stage_build *b)
{
    struct program_stage *s = b->s;
    bool counted = is_counted(x, &kept->counted, b);
    s->buffer_rings =
        arena_copy(x->l->a, s->buffer_rings, (size_t)s->n_buffer_rings * sizeof *s->buffer_rings);
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        struct buffer_ring *r = &s->buffer_rings[i];
        if (r->sent >= 0) r->sent = x->numbers[r->sent];
        if (r->received >= 0) r->received = x->numbers[r->received];
        if (counted) r->count = kept->counted.count[i];
    }
    if (counted)
        lower_sent_ring_counts(x->l, b);
    else
        lower_buffer_ring_counts(x->l, b), keep_counts(x, b, kept);
}

static void copy_ends(struct lowering *l, const struct kept_stage *kept, struct stage_build *b)
{
    int32_t n = 0;
    for (int e = 0; e < EDGE_COUNT; e++)
        for (int32_t i = 0; i < b->edge[e].n; i++) b->edge[e].list[i].slot = kept->slot[n++];
    lower_join_channels(l, b);
    for (int32_t i = 0; i < b->groups->n; i++) {
        int32_t group = b->groups->group[i], member = b->groups->member[i];
        const struct cells *cells = lower_group_plan(l, group)->cells;
        struct collective_member *to = &l->p->collectives[group].members[member], own = *to;
        *to = kept->members[i];
        to->stage = own.stage, to->silent = own.silent;
        if (cells) to->within = cells_within(cells, member);
    }
}

static void copy_stage(struct equal_stages *x, struct kept_stage *s, struct stage_build *b)
{
    const struct program_stage *from = &s->s;
    struct program_stage *to = b->s;
    to->n_slots = from->n_slots, to->slots = from->slots;
    to->n_ops = from->n_ops, to->ops = from->ops;
    to->n_parameters = from->n_parameters, to->parameters = from->parameters;
    to->n_buffer_rings = from->n_buffer_rings, to->buffer_rings = from->buffer_rings, to->offload = from->offload;
    to->n_procedures = from->n_procedures, to->procedures = from->procedures;
    memcpy(to->squares_slot, from->squares_slot, sizeof to->squares_slot);
    to->clip_slot = from->clip_slot, to->scale_slot = from->scale_slot, to->buffer_bytes = from->buffer_bytes;
    memcpy(to->class_bytes, from->class_bytes, sizeof to->class_bytes);
    b->procedures = &s->procedures;
    lower_zero_chunks(x->l, b);
    lower_copy_collectives(x->l, &s->collectives, b);
    if (numbers_of(x, b) != s->n_numbers) BUG("equal stages differ in collectives");
    copy_instrs(x, s, to);
    copy_rings(x, s, b);
    copy_ends(x->l, s, b);
}

bool equal_stages_copy(struct equal_stages *x, struct stage_build *b)
{
    stage_key_set(&x->key, x->l, b);
    struct kept_stage *s = x->key.unique ? NULL : find(table_of(x, b), &x->key);
    if (s) copy_stage(x, s, b);
    return s != NULL;
}
