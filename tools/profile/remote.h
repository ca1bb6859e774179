/* tools/profile/remote.h - benches of `musher profile` that another machine runs: one with a GPU, and little else.
 *
 * A folder carries them. Here benches are written into it instead of run: bench.N.program, and their names, a line each, in
 * `benches`. There gpu-run (tests/gpu/run.c) runs them as the worker runs every program and writes bench.N.trace, and `copies`: a
 * line "bytes up_s up_spread down_s down_spread" a size. Back here the same request makes the same benches again, and each
 * one's trace is read where it would have been run: what becomes of samples is the same code either way. A trace that lacks a
 * sample of its bench is refused.
 * Discarded: a file of medians made there. It would be a second place that says what a median and a spread are.
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
    const char *emit, *from; /* folders; one of them at most, NULL: benches run here */
    int32_t n;               /* benches so far */
};

static inline bool profile_is_away(const struct profile_away *x) { return x->emit || x->from; }

/* Makes the folder and an empty list. ERR_RESOURCE. */
MUST_CHECK enum status profile_away_begin(struct arena *a, struct profile_away *x,
                                          struct error *err);
/* The next bench: written, with *out NULL; or its trace. ERR_RESOURCE; ERR_INPUT: not the trace of this program. */
MUST_CHECK enum status profile_away_bench(struct arena *a, struct profile_away *x,
                                          const struct program *p, struct trace **out,
                                          struct error *err);
/* What copies took there; none where the folder has no such file. ERR_INPUT: it says something else. */
MUST_CHECK enum status profile_away_copies(struct arena *a, const struct profile_away *x,
                                           struct copy_sample **out, int32_t *n, struct error *err);
/* What was written, for who asked. */
void profile_away_report(const struct profile_away *x, size_t operators, bool as_json);

#endif
