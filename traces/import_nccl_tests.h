/* traces/import_nccl_tests.h - reader of nccl-tests output: the text of three generations, the JSON of -J, and CSV.
 *
 * Text: lines `#  Rank … Pid … on HOST device …` (with Group since 2.13), a header of columns, rows. Prefixes added by launchers
 * (`[1,0]<stdout>:`) are removed, log lines in between are skipped. The header defines the columns: without root and with
 * `error` (before 2022), with root and `#wrong`, and those of -I after each half. Older all_gather rows have no redop.
 * Rows of 0 bytes are skipped and counted. Sizes are bytes, times microseconds, GB/s 1e9.
 * The collective is identified by the program's name in the file, else by the file's own name, else it must be an all-reduce
 * by its bandwidths. Every row's bus bandwidth must follow from its size, time and number of ranks.
 * CSV: vTrain's tables of all-reduces, size(B),count,type,time(ns),busbw(GB/s),… twice, with the ranks in the file's name.
 * JSON: the same content; `env`, the full environment of the run, is ignored.
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
    int32_t n_ranks, n_nodes; /* of one communicator; nodes are distinct host names */
    /* "NVIDIA A100-SXM4-80GB"; "" if the file does not contain it; the first of several */
    const char *device;
    const char *version; /* of NCCL, "2.19.3"; "" if the file does not contain it */
    bool mixed;          /* devices of several names */
    bool complete;       /* the closing lines are present */
    int32_t empty_rows;  /* skipped: 0 bytes */
    size_t n;
    struct nccl_sample *samples; /* in the order of the file */
};

/* ERR_INPUT with file:line (text) or field path (JSON): no such table, ranks unknown, CPU times (-C), wrong results, a row
 * that is truncated or inconsistent, a collective that core/collective/algorithm.h does not have. */
MUST_CHECK enum status import_nccl_tests_read(struct arena *a, const char *path,
                                              struct nccl_tests *out, struct error *err);

#endif
