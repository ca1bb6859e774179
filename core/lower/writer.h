/* core/lower/writer.h - a procedure being written; for core/lower/procedures.c, update.c and scale.c alone. */
#ifndef CORE_LOWER_WRITER_H
#define CORE_LOWER_WRITER_H

#include "core/lower/stage_scratch.h"

struct writer {
    struct stage_scratch *h;
    struct lowering *l;           /* h's */
    struct stage_build *b;        /* h's */
    int32_t *missing, scattering; /* see scatter_gradient; scattering: group in flight, + 1 */
    struct instr *instrs;
    size_t n, capacity;
    size_t op_capacity; /* of the stage's operators: kept from one procedure to the next */
};

void writer_emit(struct writer *w, enum instr_kind kind, int32_t arg);
/* The procedure is written: its index; the writer is as new. */
int32_t writer_finish(struct writer *w, enum phase phase, const char *variant);
/* Completes and appends the operator and its instruction. */
struct program_op *writer_op(struct writer *w, struct program_op op);
/* x added to y; plain arithmetic that no operator of the graph stands for. */
void writer_accumulate(struct writer *w, enum phase phase, int32_t layer, const char *name,
                       int32_t x, int32_t y);
void writer_zero(struct writer *w, enum phase phase, int32_t layer, const char *name, int32_t y);

/* core/lower/update.c: waits for the gradient all-reduces, exchanges tied ones, updates. */
void lower_update_procedure(struct writer *w);
/* The gradient that stands where the parameter stands; a second use's lies behind. */
int32_t lower_primary_gradient(const struct stage_build *b, const struct program_parameter *p);

/* core/lower/scale.c: whether this stage's gradients are finite; whether all are, and the loss scale that follows. */
void lower_scale_look(struct writer *w);
void lower_scale_agree(struct writer *w);

#endif
