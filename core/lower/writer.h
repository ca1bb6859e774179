/* core/lower/writer.h - a procedure under construction; private to core/lower/procedures.c, update.c and scale.c. */
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
    size_t op_capacity; /* of the stage's operators; kept between procedures */
    bool ahead;         /* F "ahead": reads the latest parameters */
    int32_t turn;       /* 1 + the fragment whose exchange this is (core/lower/outer.c), else 0 */
};

void writer_emit(struct writer *w, enum instr_kind kind, int32_t arg);
/* Ends the procedure and resets the writer. Returns the procedure's index. */
int32_t writer_finish(struct writer *w, enum phase phase, const char *variant);
/* Completes the operator, appends it and its instruction. */
void writer_op(struct writer *w, const struct program_op *op);
/* y += x, an addition without an operator in the graph. */
void writer_accumulate(struct writer *w, enum phase phase, int32_t layer, const char *name,
                       int32_t x, int32_t y);
void writer_zero(struct writer *w, enum phase phase, int32_t layer, const char *name, int32_t y);

/* core/lower/update.c: writer_finish of an update or of what belongs to it, in the steps in which the stage's island updates. */
int32_t writer_finish_update(struct writer *w, const char *variant);
/* Waits for gradient all-reduces, exchanges tied gradients, updates. */
void lower_update_procedure(struct writer *w);
/* One update of a parameter or of a flat run; slot: (UPDATE_SLOTS). */
void lower_write_update(struct writer *w, bool flat, const char *name, bool decay, const int32_t *slot);
/* Exchanges tied gradients, in an exchange of local SGD those of its fragment; the groups of the device's other stage with a use are awaited first, by `await` with COLLECTIVE_WAIT. */
void lower_exchange_ties(struct writer *w,
                         void (*await)(struct writer *, const struct stage_build *, enum instr_kind));
/* The gradient at the parameter's position; that of a second use follows. */
int32_t lower_primary_gradient(const struct stage_build *b, const struct program_parameter *p);

/* core/lower/scale.c: this stage's overflow flag; the all-reduces of flags and sums of squares, the loss scale's update, the factor of clip. */
void lower_scale_look(struct writer *w);
void lower_scale_agree(struct writer *w);

#endif
