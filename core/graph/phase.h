/* core/graph/phase.h - the phase of an operator, of a procedure, of a call: forward (F), backward as one (B) or as the gradients of
 * inputs (I) and of weights (W), update (U).
 *
 * Its value is the letter in plans, programs and traces. RECEIVE and SEND begin and end the lifetimes of buffers
 * (core/program/program.h), HOST those of buffers that are copied to and from host memory; spans outside calls have SEND's letter.
 */
#ifndef CORE_GRAPH_PHASE_H
#define CORE_GRAPH_PHASE_H

#include <stdbool.h>

enum phase {
    PHASE_F = 'F',
    PHASE_B = 'B',
    PHASE_I = 'I',
    PHASE_W = 'W',
    PHASE_U = 'U',
    PHASE_RECEIVE = 'R',
    PHASE_SEND = 'S',
    PHASE_HOST = 'H'
};

static inline bool phase_is_valid(enum phase p) /* F, B, I, W or U */
{
    return p == PHASE_F || p == PHASE_B || p == PHASE_I || p == PHASE_W || p == PHASE_U;
}

/* Index in arrays by phase (PHASE_INDICES): F, the backward (B or I), W, U. */
enum { PHASE_INDICES = 4 };
static inline int phase_index(enum phase p)
{
    return p == PHASE_F ? 0 : p == PHASE_W ? 2 : p == PHASE_U ? 3 : 1;
}

#endif
