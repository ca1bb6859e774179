/* profiles/collective_table.h - measured durations of collectives (nccl-tests), with interpolation over message size.
 *
 * Rows of one (kind, ranks, nodes, device, algorithm, protocol) form a table, sorted by bytes. Between rows, log(seconds) is Steffen's
 * interpolant over log(bytes) (Steffen, Astronomy & Astrophysics 239, 1990): it has no extremum between two rows, so it is as
 * monotone as the measurements. Below the first row its seconds apply (latency bound); beyond the last, the bandwidth between the
 * last two rows applies. A table of one row: its seconds, then its bandwidth.
 * A table takes precedence over NCCL's model (profiles/nccl.h).
 * bytes are those of core/collective/algorithm.h. Ownership: the caller's arena.
 */
#ifndef PROFILES_COLLECTIVE_TABLE_H
#define PROFILES_COLLECTIVE_TABLE_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/collective/algorithm.h"

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
    const char *device;     /* of all ranks (collective_table_device); NULL or "": unknown, matches any */
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
/* The table that begins at row *at of sorted rows; *at advances past it. false at the end. */
bool collective_table_next(const struct collective_row *rows, size_t n, size_t *at,
                           struct collective_table *out);
/* The `device` of a row measured on these devices of the cluster (n): the catalogue id, "A100-SXM4-80"; for several types all of
 * them in the cluster's order, "A100-SXM4-80+V100-SXM2-16". O(n + types). */
const char *collective_table_device(struct arena *a, const struct cluster *c, const int32_t *device,
                                    int32_t n);
/* Finds a table among sorted rows: this kind, number of ranks and of nodes, measured on this device, else on an unknown one.
 * algorithm NULL: the table of the library's own choice, else the fastest for `bytes`; otherwise the table of the named algorithm
 * with the fastest protocol. false: none. O(n). */
bool collective_table_find(const struct collective_row *rows, size_t n, enum collective_kind kind,
                           int32_t n_ranks, int32_t n_nodes, const char *device,
                           const char *algorithm, int64_t bytes, struct collective_table *out);
/* Whether a table applies, and its seconds: a table that names the algorithm (as core/collective/algorithm.h does), else, for
 * what a library does in one call, the table of the library's own choice. bytes must lie between its first and last row. O(n). */
bool collective_table_holds(const struct collective_row *rows, size_t n, enum collective_kind kind,
                            enum collective_algorithm algorithm, int32_t n_ranks, int32_t n_nodes,
                            const char *device, int64_t bytes, double *seconds);
double collective_table_seconds(const struct collective_table *t, int64_t bytes); /* O(log n) */
/* Leave-one-out prediction: seconds of row i from the table without it; i neither first nor last. */
double collective_table_left_out(const struct collective_table *t, size_t i);

#endif
