/* tests/support/compare_kernels.h - a device's kernels beside the host's in fp64.
 *
 * A problem (tests/support/kernel_problem.h) is run on a device three times: outputs begin as NaN or as what is added to; the second run
 * must give the same bytes, and so must the third, whose operands lie one element further in memory. Then
 * ‖out - ref‖ / ‖ref‖ must be within the limit of the output's number: rounding of the result once, and what is added up in between.
 * Memory behind outputs and all inputs must be as they were.
 * Errors: ERR_TOLERANCE with the call's key, the output and the figures.
 */
#ifndef TESTS_SUPPORT_COMPARE_KERNELS_H
#define TESTS_SUPPORT_COMPARE_KERNELS_H

#include "exec/backend.h"
#include "tests/support/kernel_problem.h"

struct kernel_comparison {
    struct backend *device; /* open */
    struct problem_maker maker;
    /* What stands here is used where not 0: */
    bool any_address;          /* ask for the same bytes at another address too */
    int64_t n_calls;           /* compared so far */
    double worst[DTYPE_COUNT]; /* distance ÷ limit, by what the output is */
    char worst_call[DTYPE_COUNT][200];
    uint64_t digest; /* of all bytes of all outputs so far */
};

/* The device is open and stays the caller's. */
void kernel_comparison_begin(struct kernel_comparison *c, struct backend *device, struct arena *arena,
                      struct host_context *host, uint64_t seed);
MUST_CHECK enum status kernel_comparison_problem(struct kernel_comparison *c, struct kernel_problem *p,
                                       struct error *err);
/* The row and its gradient operators, adding to their outputs or not. */
MUST_CHECK enum status kernel_comparison_row(struct kernel_comparison *c, const struct kernel_row *row, enum dtype t,
                                   bool accumulate, struct error *err);
/* The largest ‖out - ref‖ / ‖ref‖ that is right of an output of this kind, of number `out`, in a call in t. */
double kernel_comparison_limit(enum op_kind kind, enum dtype t, enum dtype out);

#endif
