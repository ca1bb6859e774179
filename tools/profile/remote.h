/* tools/profile/remote.h - benchmarks of `musher profile` that run on another machine, which has a GPU but not this program.
 *
 * A folder carries the files. `--emit` writes bench.N.program instead of running it, and the list of names, one per line, in
 * `benches`. On the GPU machine gpu-run (tests/gpu/run.c) runs them with the worker and writes bench.N.trace, and `copies`: a
 * line "bytes up_s up_spread down_s down_spread" per size. `--from` generates the same benchmarks again and reads each trace in place
 * of a run, so that samples are evaluated by the same code. A trace that lacks a sample of its benchmark is refused.
 * Rejected: a file of medians computed on the GPU machine, because it would be a second definition of median and spread.
 */
#ifndef TOOLS_PROFILE_REMOTE_H
#define TOOLS_PROFILE_REMOTE_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "exec/bench/copies.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct profile_away {
    const char *emit, *from; /* folders, at most one of them; both NULL: benchmarks run here */
    int32_t n;               /* benchmarks so far */
};

static inline bool profile_is_away(const struct profile_away *x) { return x->emit || x->from; }

/* Creates the folder and an empty list. ERR_RESOURCE. */
MUST_CHECK enum status profile_away_begin(struct arena *a, struct profile_away *x,
                                          struct error *err);
/* Writes the next benchmark (*out NULL), or reads its trace. ERR_RESOURCE; ERR_INPUT: not the trace of this program. */
MUST_CHECK enum status profile_away_bench(struct arena *a, struct profile_away *x,
                                          const struct program *p, struct trace **out,
                                          struct error *err);
/* Times of copies on the GPU machine; *n 0 if the folder has no such file. ERR_INPUT: malformed. */
MUST_CHECK enum status profile_away_copies(struct arena *a, const struct profile_away *x,
                                           struct copy_sample **out, int32_t *n, struct error *err);
/* Prints what --emit wrote. */
void profile_away_report(const struct profile_away *x, size_t operators, bool as_json);

#endif
