/* core/lower/scratch.c - shared memory for tensors that live within one procedure: first fit by lifetimes. */
#include "core/lower/scratch.h"

#include "core/lower/slots.h"
#include "core/lower/zero.h"
#include "core/lower/zero_slots.h"

#include <string.h>

struct life {
    int32_t first, last; /* instructions of the procedure */
    int32_t whole;       /* the slot that contains this one, or itself */
    bool placed;
};

static void touch(struct life *life, const struct program_stage *s, int32_t slot, int32_t at)
{
    if (s->slots[slot].class != SLOT_SCRATCH) return;
    slot = life[slot].whole;
    if (life[slot].first < 0) life[slot].first = at;
    life[slot].last = at;
}

struct live { /* a slot's bytes [first, end) */
    int64_t first, end;
    int32_t slot;
};

/* Lowest offset at which the slot overlaps no live slot; live slots are in order of offsets. */
static int32_t first_fit(const struct live *live, int32_t n, int64_t bytes, int64_t *offset)
{
    *offset = 0;
    for (int32_t i = 0; i < n; i++) {
        if (*offset + bytes <= live[i].first) return i;
        *offset = live[i].end;
    }
    return n;
}

struct laying {
    const struct stage_scratch *h;
    struct life *life;
    struct live *live;
    int32_t n_live;
    int64_t top;
};

/* A slot is placed at the beginning of its lifetime. */
static void lay_slot(struct laying *y, int32_t slot, int32_t at)
{
    slot = y->life[slot].whole;
    struct slot *x = &y->h->b->s->slots[slot];
    struct life *life = &y->life[slot];
    if (x->class != SLOT_SCRATCH || life->first != at || life->placed) return;
    int64_t bytes = slot_align(x->bytes);
    int32_t k = first_fit(y->live, y->n_live, bytes, &x->offset_bytes);
    int64_t end = x->offset_bytes + bytes;
    memmove(&y->live[k + 1], &y->live[k], (size_t)(y->n_live - k) * sizeof *y->live);
    y->live[k] = (struct live){x->offset_bytes, end, slot};
    y->n_live++, life->placed = true;
    if (end > y->top) y->top = end;
}

/* Operands of a collective that the stage is a member of. */
static int32_t operands(const struct laying *y, const struct instr *x, int32_t out[2])
{
    const struct collective *g = &y->h->l->p->collectives[x->arg];
    for (int32_t i = 0; i < g->n_members; i++)
        if (g->members[i].stage == y->h->b->index) {
            out[0] = g->out[i], out[1] = g->in[i];
            return 2;
        }
    return 0;
}

static void lay_procedure(struct laying *y, const struct procedure *p)
{
    int32_t whole[FLAT_PARAMS_MAX];
    y->n_live = 0, y->top = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct instr *x = &p->instrs[i];
        bool op = x->kind == INSTR_COMPUTE;
        if (!op && x->kind != INSTR_COLLECTIVE_START && x->kind != INSTR_COLLECTIVE_WAIT &&
            x->kind != INSTR_COLLECTIVE)
            continue;
        int32_t n = op                         ? y->h->b->s->ops[x->arg].n_outputs
                    : x->kind == INSTR_COLLECTIVE ? operands(y, x, whole)
                                               : lower_zero_scratch(y->h, x->arg, whole);
        for (int32_t k = 0; k < n; k++)
            lay_slot(y, op ? y->h->b->s->ops[x->arg].output[k] : whole[k], i);
        int32_t kept = 0;
        for (int32_t k = 0; k < y->n_live; k++)
            if (y->life[y->live[k].slot].last > i) y->live[kept++] = y->live[k];
        y->n_live = kept;
    }
}

static void find_lives(struct laying *y, const struct procedure *p)
{
    const struct program_stage *s = y->h->b->s;
    int32_t whole[FLAT_PARAMS_MAX];
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct instr *x = &p->instrs[i];
        if (x->kind == INSTR_LOSS) touch(y->life, s, x->arg, i);
        if (x->kind == INSTR_COLLECTIVE)
            for (int32_t k = operands(y, x, whole); k-- > 0;) touch(y->life, s, whole[k], i);
        if (x->kind == INSTR_COLLECTIVE_START || x->kind == INSTR_COLLECTIVE_WAIT)
            for (int32_t k = lower_zero_scratch(y->h, x->arg, whole); k-- > 0;)
                touch(y->life, s, whole[k], i);
        if (x->kind != INSTR_COMPUTE) continue;
        const struct program_op *op = &s->ops[x->arg];
        for (int32_t j = 0; j < op->n_inputs; j++) touch(y->life, s, op->input[j], i);
        for (int32_t j = 0; j < op->n_outputs; j++) touch(y->life, s, op->output[j], i);
    }
}

void lower_scratch(const struct stage_scratch *h)
{
    struct program_stage *s = h->b->s;
    const struct stage_flats *f = h->flat_shards;
    struct laying y = {.h = h,
                       .life = ARENA_ARRAY(h->work, struct life, (size_t)s->n_slots),
                       .live = ARENA_ARRAY(h->work, struct live, (size_t)s->n_slots + 1)};
    for (int32_t i = 0; i < s->n_slots; i++) y.life[i].first = -1, y.life[i].whole = i;
    for (int32_t i = 0; i < f->n_inner; i++) y.life[f->inner[i].slot].whole = f->inner[i].whole;
    for (int32_t k = 0; k < s->n_procedures; k++) {
        const struct procedure *p = &s->procedures[k];
        if (*p->variant) continue; /* the same operators as the plain one */
        find_lives(&y, p);
        lay_procedure(&y, p);
        if (y.top > s->class_bytes[SLOT_SCRATCH]) s->class_bytes[SLOT_SCRATCH] = y.top;
    }
    for (int32_t i = 0; i < f->n_inner; i++)
        s->slots[f->inner[i].slot].offset_bytes =
            s->slots[f->inner[i].whole].offset_bytes + f->inner[i].offset_bytes;
}
