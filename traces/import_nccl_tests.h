/* traces/import_nccl_tests.h - what a run of nccl-tests says: text of its three generations, or the JSON of -J.
 *
 * Text: lines `#  Rank … Pid … on HOST device …` (with Group since 2.13), a header of columns, rows; what launchers write before a
 * line (`[1,0]<stdout>:`) is taken off, lines of logs between are skipped. The columns are those of the header: without root and
 * with `error` (before 2022), with root and `#wrong`, and those of -I after each half. Older all_gather rows have no redop.
 * Rows of no bytes are skipped (they are counted). Sizes are bytes, times microseconds, GB/s 1e9.
 * Which collective: the program's name in the file, else in the file's own name, else it must be an all-reduce by its bandwidths.
 * Every row's bus bandwidth must follow from its size, time and number of ranks.
 * CSV: vTrain's tables of all-reduces, size(B),count,type,time(ns),busbw(GB/s),… twice, with the ranks in the file's name.
 * JSON: the same; `env` is the whole environment of whoever ran it and is never looked at.
 */
#ifndef TRACES_IMPORT_NCCL_TESTS_H
#define TRACES_IMPORT_NCCL_TESTS_H

#include "core/base/error.h"
#include "core/collective/algorithm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct nccl_sample {
    int64_t bytes;  /* > 0 */
    double seconds; /* > 0 */
    bool in_place;
};
struct nccl_tests {
    enum collective_kind kind;
    int32_t n_ranks, n_nodes; /* of one group; nodes are host names */
    /* "NVIDIA A100-SXM4-80GB"; "" where the file does not tell; of several the first */
    const char *device;
    const char *version; /* of NCCL, "2.19.3"; "" where the file does not tell */
    bool mixed;          /* devices of several names */
    bool complete;       /* the closing lines are there */
    int32_t empty_rows;  /* skipped: no bytes */
    size_t n;
    struct nccl_sample *samples; /* in the order of the file */
};

/* ERR_INPUT with file:line (text) or field path (JSON): no such table, ranks unknown, CPU times (-C), wrong results, a row
 * that is cut off or contradicts itself, a collective that is not in core/collective/algorithm.h. */
MUST_CHECK enum status import_nccl_tests_read(struct arena *a, const char *path,
                                              struct nccl_tests *out, struct error *err);

#endif
