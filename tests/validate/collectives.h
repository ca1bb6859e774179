/* tests/validate/collectives.h - NCCL's model as a prior, and our interpolation, against all-reduces that others measured.
 *
 * tests/validate/published/nccl_allreduce_vtrain_lut_pow2.csv (A100, V100, 2 to 8 GPUs, powers of two) and tests/validate/published/nccl_busbw_measured.csv (bus
 * bandwidths of several sources); each row keeps its source. Nothing in the model was fitted to them. Rows that the
 * model cannot speak of are listed with the reason: devices that are not said, sizes not said, bandwidths of
 * so few digits that they say nothing.
 */
#ifndef TESTS_VALIDATE_COLLECTIVES_H
#define TESTS_VALIDATE_COLLECTIVES_H

#include "core/base/error.h"
#include "core/collective/algorithm.h"
#include "profiles/nccl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct published_collective {
    const char *file, *gpu, *algorithm, *source; /* file: without its folder */
    int line;
    enum collective_kind kind;
    int32_t n_ranks, n_nodes;
    int64_t bytes;
    double seconds;           /* measured */
    bool of_a_table;          /* one of many sizes of one machine */
    const char *left_out;     /* why the model cannot speak of it; NULL: it can */
    struct nccl_choice prior; /* where it can */
};
/* one GPU type, ranks and nodes; ranks 0: all rows of the type; gpu NULL: all rows */
struct published_group {
    const char *gpu;
    int32_t n_ranks, n_nodes;
    size_t n;
    double mape, p90, bias; /* of predicted ÷ measured − 1 */
    double large;           /* mean error of 64 MiB and more, where bandwidth is all; NaN of none */
    double rank; /* Spearman's correlation of predicted and measured seconds; NaN of fewer than 3 */
    /* rows that name their algorithm; of these the model takes the same */
    size_t n_known, n_chosen;
    /* mean error of rows left out of a table of the others; NaN where there is no table */
    double between;
};

/* Both tables of the folder, or one file of either format (*.csv), which its header tells. ERR_INPUT with file:line. */
MUST_CHECK enum status validate_collectives_read(struct arena *a, const char *folder_or_table,
                                                 struct published_collective **out, size_t *n,
                                                 struct error *err);
/* Groups in order of appearance, then one for each type, then all together. */
struct published_group *validate_collectives_groups(struct arena *a,
                                                    const struct published_collective *rows,
                                                    size_t n, size_t *n_groups);
/* Prints rows and groups on stdout; with json one object. */
MUST_CHECK enum status validate_collectives(struct arena *a, const char *folder_or_table, bool json,
                                            struct error *err);

#endif
