/* core/lower/procedures.h - a stage's operators and procedures. */
#ifndef CORE_LOWER_PROCEDURES_H
#define CORE_LOWER_PROCEDURES_H

#include <stdint.h>

struct stage_scratch;

struct stage_procedures { /* indices into program_stage.procedures; -1: none */
    int32_t f, back, w, last;
    int32_t ahead;    /* F of the next step; core/lower/orders.h */
    int32_t reduce; /* launches of the gradient all-reduces of a stage that does not update in every step, instead of `last` */
    int32_t u, check; /* update.c */
    int32_t exchange; /* outer.c: the first of a fragment's procedures, which follow each other, fragment by fragment */
};

void lower_procedures(struct stage_scratch *h);

#endif
