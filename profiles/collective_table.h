/* profiles/collective_table.h - measured durations of collectives (nccl-tests), with interpolation over message size.
 *
 * Rows of one (kind, ranks, nodes, algorithm, protocol) form a table, sorted by bytes. Between rows, log(seconds) is Steffen's
 * interpolant over log(bytes) (Steffen, Astronomy & Astrophysics 239, 1990): it has no extremum between two rows, so it is as
 * monotone as the measurements. Below the first row its seconds apply (latency bound); beyond the last, the bandwidth between the
 * last two rows applies. A table of one row: its seconds, then its bandwidth.
 * A table takes precedence over NCCL's model (profiles/nccl.h).
 * bytes are those of core/collective/algorithm.h. Ownership: the caller's arena.
 */
#ifndef PROFILES_COLLECTIVE_TABLE_H
#define PROFILES_COLLECTIVE_TABLE_H

#include "core/base/error.h"
#include "core/collective/algorithm.h"
#include "profiles/link_model.h"
#include "profiles/nccl.h"

#include <stddef.h>
#include <stdint.h>

struct arena;

struct collective_row {
    enum collective_kind kind;
    int32_t n_ranks, n_nodes;
    /* "Ring", "LL128"; "" if the library chose and did not report its choice */
    const char *algorithm, *protocol;
    int64_t bytes;          /* > 0 */
    double seconds, spread; /* median > 0; relative, 1.4826 · MAD / median */
    int32_t samples;
    const char *provenance; /* "nccl-tests FILE, NCCL 2.19.3, A100-SXM4-80GB" */
};

struct collective_table {
    const struct collective_row *rows; /* ascending bytes, each once; at least one */
    size_t n;
};

/* Sorts rows by table and bytes. ERR_INPUT: bytes or seconds not above 0, n_ranks not a multiple of n_nodes, the same bytes twice. */
MUST_CHECK enum status collective_table_sort(struct collective_row *rows, size_t n,
                                             struct error *err);
/* Merges sorted: all new rows, and the old rows of tables without new rows. */
MUST_CHECK enum status collective_table_merge(struct arena *a, const struct collective_row *old,
                                              size_t n_old, const struct collective_row *add,
                                              size_t n_add, struct collective_row **out, size_t *n,
                                              struct error *err);
/* The table of sorted rows at *at, which advances behind it; false at the end. */
bool collective_table_next(const struct collective_row *rows, size_t n, size_t *at,
                           struct collective_table *out);
/* Table of sorted rows for this kind, ranks and nodes. algorithm NULL: the table of the library's own choice, else the
 * fastest one for these bytes; otherwise the named algorithm (any protocol: the fastest). false: none. O(n). */
bool collective_table_find(const struct collective_row *rows, size_t n, enum collective_kind kind,
                           int32_t n_ranks, int32_t n_nodes, const char *algorithm, int64_t bytes,
                           struct collective_table *out);
/* Seconds of a collective by this algorithm if a table covers it: a table that names the algorithm (as core/collective/algorithm.h
 * does), else, for an algorithm that a library runs in one call, the table of the library's own choice. bytes between its first
 * row and its last. O(n). */
bool collective_table_holds(const struct collective_row *rows, size_t n, enum collective_kind kind,
                            enum collective_algorithm algorithm, int32_t n_ranks, int32_t n_nodes,
                            int64_t bytes, double *seconds);
double collective_table_seconds(const struct collective_table *t, int64_t bytes); /* O(log n) */
/* Leave-one-out prediction: seconds of row i from the table without it; i neither first nor last. */
double collective_table_left_out(const struct collective_table *t, size_t i);

struct collective_estimate {
    double seconds, spread;    /* spread: of the nearest measured row; NaN of a prior */
    enum source source;        /* SOURCE_MEASURED or SOURCE_CATALOGUE (NCCL's model) */
    struct nccl_choice choice; /* of a prior */
};
/* A table's seconds, NCCL's model without a table; s NULL: no model. ERR_INPUT: neither. */
MUST_CHECK enum status collective_estimate(const struct collective_row *rows, size_t n,
                                           const char *nccl_version, const struct nccl_system *s,
                                           enum collective_kind kind, int32_t n_ranks,
                                           int32_t n_nodes, int64_t bytes,
                                           struct collective_estimate *out, struct error *err);

#endif
