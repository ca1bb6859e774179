/* tests/support/kernel_problem.h - one call of an operator with random operands, as the host's fp64 kernels see it and as a device does.
 *
 * Operands are drawn, then rounded to what the device holds, so that both start from the same numbers: what differs afterwards is
 * what the device's kernel did. The reference is the host's kernel in fp64. A forward operator brings its gradient operators, which
 * read what the reference made (statistics, outputs), rounded again.
 * Knows no Check: the suites use it, and so does a program that runs where there is a GPU and nothing else.
 * Ownership: everything is the arena's. Errors: ERR_INPUT where shapes do not fit, which is a mistake in a case.
 */
#ifndef TESTS_SUPPORT_KERNEL_PROBLEM_H
#define TESTS_SUPPORT_KERNEL_PROBLEM_H

#include "core/base/arena.h"
#include "exec/host/kernels_host.h"
#include "tests/support/kernel_rows.h"

struct kernel_problem {
    struct op_call call; /* in fp64, outputs holding what the host made */
    struct op_attrs attrs;
    struct op_shapes shapes;
    struct optimizer_step step;
    enum dtype dtype;                 /* the device's */
    uint32_t wide_input, wide_output; /* of the device's call */
    bool in_place;                    /* an update: inputs are the outputs */
    double *begin[OP_OPERANDS_MAX];   /* what an output held before; NULL: poison */
};
/* What the device holds of an operand. */
enum dtype kernel_problem_input_type(const struct kernel_problem *p, int32_t i);
enum dtype kernel_problem_output_type(const struct kernel_problem *p, int32_t i);
int64_t kernel_problem_input_size(const struct kernel_problem *p, int32_t i); /* elements */
int64_t kernel_problem_output_size(const struct kernel_problem *p, int32_t i);

struct problem_maker {
    struct arena *arena;
    struct host_context *host;
    uint64_t seed, stream; /* of random numbers; the stream moves on with every operand */
};

enum { PROBLEMS_MAX = 1 + RULES_MAX };
/* A row's operator and its gradient operators, run by the host. accumulate: those that can add to their outputs do.
 * Returns how many in *n. */
MUST_CHECK enum status kernel_problem_of_row(struct problem_maker *m, const struct kernel_row *row,
                                             enum dtype t, bool accumulate,
                                             struct kernel_problem *out[PROBLEMS_MAX], int32_t *n,
                                             struct error *err);
/* Which operands of a call in bf16 or fp16 are fp32. Some are always (statistics, losses, weight gradients, what updates
 * work on); weights that are read elementwise may be or not, and are where a bit of `choice` is set. */
void kernel_problem_wide(enum op_kind kind, const struct op_attrs *attrs, int32_t n_inputs,
                         uint32_t choice, uint32_t *wide_input, uint32_t *wide_output);

#endif
