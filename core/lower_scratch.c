/* core/lower_scratch.c - tensors that live inside one procedure share bytes: first fit by lifetimes. */
#include "core/lower_internal.h"

#include <string.h>

struct life {
    int32_t first, last; /* instructions of the procedure */
};

static void touch(struct life *life, const struct program_stage *s, int32_t slot, int32_t at)
{
    if (s->slots[slot].class != SLOT_SCRATCH) return;
    if (life[slot].first < 0) life[slot].first = at;
    life[slot].last = at;
}

/* Lowest offset at which the slot meets none of the living, which stand by ascending offset. */
static int32_t first_fit(const struct program_stage *s, const int32_t *live, int32_t n,
                         int64_t bytes, int64_t *offset)
{
    *offset = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct slot *x = &s->slots[live[i]];
        if (*offset + bytes <= x->offset_bytes) return i;
        *offset = x->offset_bytes + slot_align(x->bytes);
    }
    return n;
}

static int64_t lay_procedure(struct program_stage *s, const struct procedure *p, struct life *life,
                             int32_t *live)
{
    int32_t n_live = 0;
    int64_t top = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind != INSTR_COMPUTE) continue;
        const struct program_op *op = &s->ops[p->instrs[i].arg];
        for (int32_t k = 0; k < op->n_outputs; k++) {
            struct slot *x = &s->slots[op->output[k]];
            if (x->class != SLOT_SCRATCH || life[op->output[k]].first != i) continue;
            int32_t at = first_fit(s, live, n_live, slot_align(x->bytes), &x->offset_bytes);
            memmove(&live[at + 1], &live[at], (size_t)(n_live - at) * sizeof *live);
            live[at] = op->output[k], n_live++;
            if (x->offset_bytes + slot_align(x->bytes) > top)
                top = x->offset_bytes + slot_align(x->bytes);
        }
        int32_t kept = 0;
        for (int32_t k = 0; k < n_live; k++)
            if (life[live[k]].last > i) live[kept++] = live[k];
        n_live = kept;
    }
    return top;
}

void lower_scratch(struct lowering *l, struct stage_build *b)
{
    struct program_stage *s = b->s;
    struct life *life = ARENA_ARRAY(l->a, struct life, (size_t)s->n_slots);
    int32_t *live = ARENA_ARRAY(l->a, int32_t, (size_t)s->n_slots + 1);
    for (int32_t i = 0; i < s->n_slots; i++) life[i].first = -1;
    for (int32_t k = 0; k < s->n_procedures; k++) {
        const struct procedure *p = &s->procedures[k];
        if (*p->variant) continue; /* the same operators as the plain one */
        for (int32_t i = 0; i < p->n_instrs; i++) {
            const struct instr *x = &p->instrs[i];
            if (x->kind == INSTR_LOSS) touch(life, s, x->arg, i);
            if (x->kind != INSTR_COMPUTE) continue;
            const struct program_op *op = &s->ops[x->arg];
            for (int32_t j = 0; j < op->n_inputs; j++) touch(life, s, op->input[j], i);
            for (int32_t j = 0; j < op->n_outputs; j++) touch(life, s, op->output[j], i);
        }
        int64_t top = lay_procedure(s, p, life, live);
        if (top > s->class_bytes[SLOT_SCRATCH]) s->class_bytes[SLOT_SCRATCH] = top;
    }
}
