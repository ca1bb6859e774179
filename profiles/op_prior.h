/* profiles/op_prior.h - what an operator takes where no row of it was measured: a roofline with few constants.
 *
 *   matrix product   operator_s + max(FLOPs / (peak · flops_efficiency / (1 + half_rows/M + half_rows/N)),
 *                                     bytes / (bandwidth · memory_efficiency))
 *                    M, N: rows and columns of the result; small products leave multiprocessors idle in their last wave
 *   others           operator_s + max(FLOPs / (peak · flops_efficiency), bytes / (bandwidth · memory_efficiency))
 *   update           the same + update_s: overflow check, norm of the gradients, the host's own work of a step
 *   collectives      wire_s + wire_rank_s · (ranks - 1) + op_wire_bytes / (NVLink or PCIe · wire_efficiency)   (ring)
 * (Williams et al. 2009 for the roofline.) A host that issues kernels one by one takes issue_s for each; where it is
 * slower than the card, it sets the pace. Over a stretch without waiting K seconds of kernels and L of issuing take
 *   (K^join + L^join)^(1/join)
 * the longer of both for a large exponent; a small one says that each waits for the other now and then. issue_s 0: none.
 *
 * The defaults are the catalogue's. A row with another `fit` was fitted on published measurements: the rows that it was
 * trained on are named in it (published/fits.csv). Ownership: the caller's; plain data.
 */
#ifndef PROFILES_OP_PRIOR_H
#define PROFILES_OP_PRIOR_H

#include "profiles/catalogue.h"

/*      constant           unit     */
#define OP_PRIOR_CONSTANTS(X)                                                                      \
    X(flops_efficiency)  /* share of peak that large matrix products reach */                      \
    X(half_rows)         /* rows */                                                                \
    X(memory_efficiency) /* share of bandwidth */                                                  \
    X(operator_s)        /* of every kernel */                                                     \
    X(update_s)          /* of every flat update */                                                \
    X(wire_efficiency)   /* share of NVLink or PCIe */                                             \
    X(wire_s)            /* of every collective */                                                 \
    X(wire_rank_s)       /* and for every rank but the first */                                    \
    X(issue_s)           /* of the host, for every kernel */                                       \
    X(issue_rank_s)      /* and of a collective for every rank but the first: all come together */ \
    X(join)              /* exponent, >= 1 */

struct op_prior {
    const char *base; /* catalogue id */
    const char *fit;  /* "catalogue", or the id of a fit */
#define X(name) double name;
    OP_PRIOR_CONSTANTS(X)
#undef X
};

/* The catalogue's constants for a device, no host in the way. */
struct op_prior op_prior_default(const char *base);
/* NaN where the catalogue has no source for a rate that is needed. O(1). */
double op_prior_seconds(const struct op_prior *p, const struct catalogue_device *d,
                        enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, enum dtype t);
/* What the host takes to issue the kernels of one operator: eager attention has several. */
double op_prior_issue_seconds(const struct op_prior *p, enum op_kind kind,
                              const struct op_attrs *attrs);

#endif
