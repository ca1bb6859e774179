/* profiles/op_fits.h - cost fits per operator kind from measured rows.
 *
 * A matrix product with a transposed operand runs a different BLAS kernel: each of the three orientations (none, the
 * first, the second operand transposed) has its own fit if it has enough rows, in addition to the fit of all rows of the
 * kind, which serves the others. Rows on a shard of the experts are excluded, because their time depends on the rows that a
 * router sends there.
 */
#ifndef PROFILES_OP_FITS_H
#define PROFILES_OP_FITS_H

#include "core/base/error.h"
#include "profiles/profile.h"

/* Sorts the op rows, computes their fits (robust, per base, kind, dtype and orientation) and the scales; a kind whose rows do
 * not determine a line gets no fit. O(rows log rows). */
MUST_CHECK enum status op_fits_fit(struct arena *a, struct profile *p, struct error *err);
/* The fit of an operator's orientation, else that of its kind, else NULL. attrs may be NULL. */
const struct op_fit *op_fits_of(const struct profile *p, const char *base, enum op_kind kind,
                                const struct op_attrs *attrs, enum dtype t);
/* Kinds whose FLOPs are not proportional to their bytes; for the others bytes alone determine the cost. */
bool op_fits_kind_is_dense(enum op_kind kind);
/* false: an empty shard of a dense kind, whose time is call overhead only. */
bool op_fits_row_has_work(const struct op_row *row);

/* Generalisation error of the fits: medians of |fitted − measured| ÷ measured over a kind's usable rows, each predicted by
 * fits of all others (leave-one-out). */
struct fit_error {
    enum op_kind kind;
    int32_t rows;
    double by_kind;        /* one fit for all of a kind */
    double by_orientation; /* as op_fits_of selects */
};
/* For the kinds with orientations and enough rows for leave-one-out, into *out (in a); returns their number. O(rows) fits. */
size_t op_fits_errors(struct arena *a, const struct profile *p, struct fit_error **out);

#endif
