/* profiles/op_fits.h - from the measured rows of operators to fits of their kinds.
 *
 * A product with a transposed operand is another loop of BLAS than one without: each of the three orientations (none, the
 * first, the second operand transposed) has a fit of its own where enough rows make one, beside the fit of all rows of the
 * kind, which serves the others. Rows of some of the experts are in no fit: what they take hangs on the rows that a router
 * sends there.
 */
#ifndef PROFILES_OP_FITS_H
#define PROFILES_OP_FITS_H

#include "core/base/error.h"
#include "profiles/profile.h"

/* Sorts the op rows, makes fits of them (robust, per base, kind, dtype, and orientation) and the scales; kinds whose rows make
 * no line get no fit. O(rows log rows). */
MUST_CHECK enum status op_fits_fit(struct arena *a, struct profile *p, struct error *err);
/* The fit of an operator's orientation, else that of its kind, else NULL. attrs may be NULL. */
const struct op_fit *op_fits_of(const struct profile *p, const char *base, enum op_kind kind,
                                const struct op_attrs *attrs, enum dtype t);
/* Kinds whose FLOPs grow with more than their bytes; of the others the bytes say all. */
bool op_fits_kind_is_dense(enum op_kind kind);
/* Not an empty share of a dense kind, which takes what a call takes. */
bool op_fits_row_has_work(const struct op_row *row);

/* How far fits are from shapes that they have not seen: medians of |fitted − measured| ÷ measured over a kind's rows that
 * count in fits, each predicted by fits of all others. */
struct fit_error {
    enum op_kind kind;
    int32_t rows;
    double by_kind;        /* one fit for all of a kind */
    double by_orientation; /* as op_fits_of has it */
};
/* Of the kinds that have orientations and whose rows can do without one, into *out (a's); returns how many. O(rows) fits. */
size_t op_fits_errors(struct arena *a, const struct profile *p, struct fit_error **out);

#endif
