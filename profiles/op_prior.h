/* profiles/op_prior.h - cost of an operator without a measured row: a roofline with few constants.
 *
 *   matrix product   operator_s + max(FLOPs / (peak · flops_efficiency / (1 + half_rows/M + half_rows/N)),
 *                                     bytes / (bandwidth · memory_efficiency))
 *                    M, N: rows and columns of the result; small products leave multiprocessors idle in their last wave.
 *                    Products of experts are priced as one grouped kernel for all of them (as in MegaBlocks), at the
 *                    efficiency of the rows that one expert is expected to get: assumed, not measured
 *   convolution      as its matrix product (implicit GEMM, Chetlur et al. 2014, cuDNN): M and N are those of the product with
 *                    all columns materialised, which stay on the chip. An assumption: nothing here was fitted on
 *                    convolutions, and kernels with few channels (a first layer's three) are slower
 *   others           operator_s + max(FLOPs / (peak · flops_efficiency), bytes / (bandwidth · memory_efficiency))
 *   all-reduce among the GPUs of a node, for link models (tests/validate/published.h)
 *                    wire_s + wire_rank_s · (ranks - 1) + 2 (ranks - 1)/ranks · bytes / (scale-up link · wire_efficiency)   (ring)
 * (Williams et al. 2009 for the roofline.) Kernel launches: the host takes issue_s per kernel. If it is slower than the GPU, a
 * stretch without synchronisation takes the longer of its kernels and their launches (launch bound). Collectives of a sharded
 * stage are kernels of their stretch.
 * issue_s 0: launches are never the bottleneck.
 *
 * The defaults are the catalogue's. A row with another `fit` was fitted on published measurements; tests/validate/published/fits.csv
 * names its training rows. Ownership: the caller's; plain data.
 */
#ifndef PROFILES_OP_PRIOR_H
#define PROFILES_OP_PRIOR_H

#include "profiles/catalogue.h"

/*      constant           unit     */
#define OP_PRIOR_CONSTANTS(X)                                                                      \
    X(flops_efficiency)  /* share of peak that large matrix products reach */                      \
    X(half_rows)         /* rows */                                                                \
    X(memory_efficiency) /* share of bandwidth */                                                  \
    X(operator_s)        /* of every operator */                                                   \
    X(wire_efficiency)   /* share of the scale-up link or PCIe */                                             \
    X(wire_s)            /* of every collective */                                                 \
    X(wire_rank_s)       /* and for every rank but the first */                                    \
    X(issue_s)           /* of the host, for every kernel */

struct op_prior {
    const char *base; /* catalogue id */
    const char *fit;  /* "catalogue", or the id of a fit */
#define X(name) double name;
    OP_PRIOR_CONSTANTS(X)
#undef X
};

/* The catalogue's constants for a device, without launch time. */
struct op_prior op_prior_default(const char *base);
/* NaN if the catalogue has no source for a required rate. O(1). */
double op_prior_seconds(const struct op_prior *p, const struct catalogue_device *d,
                        enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, enum dtype t);
/* Host seconds to launch the kernels of one operator: eager attention has several. */
/* Time of the bytes of an update that cross to host memory, both directions at once, at wire_efficiency of PCIe; 0: none cross,
 * or the device is a host. NAN: the catalogue has no PCIe bandwidth of it. */
double op_prior_hosted_seconds(const struct op_prior *p, const struct catalogue_device *d, enum op_kind kind,
                               const struct op_attrs *attrs, const struct op_shapes *shapes, enum dtype t);
double op_prior_issue_seconds(const struct op_prior *p, enum op_kind kind,
                              const struct op_attrs *attrs, const struct op_shapes *shapes);

#endif
