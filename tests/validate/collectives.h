/* tests/validate/collectives.h - NCCL's cost model as a prior, and interpolation in tables, against published measurements of all-reduce.
 *
 * Data: tests/validate/published/nccl_allreduce_vtrain_lut_pow2.csv (A100, V100, 2 to 8 GPUs, powers of two) and
 * tests/validate/published/nccl_busbw_measured.csv (bus bandwidths of several sources); each row has its source. The model is not
 * fitted to them. Rows outside the model are listed with the reason: unstated devices or sizes, or too few digits.
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
    const char *left_out;     /* reason why the model does not apply; NULL: it applies */
    struct nccl_choice prior; /* the model's choice, if it applies */
};
/* one GPU type, ranks and nodes; ranks 0: all rows of the type; gpu NULL: all rows */
struct published_group {
    const char *gpu;
    int32_t n_ranks, n_nodes;
    size_t n;
    double mape, p90, bias; /* of predicted ÷ measured − 1 */
    double large;           /* mean error of 64 MiB and more, the bandwidth-bound sizes; NaN: no rows */
    double rank; /* Spearman's correlation of predicted and measured seconds; NaN: fewer than 3 rows */
    /* rows with a stated algorithm; those of them for which the model chooses the same */
    size_t n_known, n_chosen;
    /* mean leave-one-out error of a table; NaN: no table */
    double between;
};

/* Reads both tables of the folder, or one file (*.csv), whose header determines the format. ERR_INPUT with file:line. */
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
