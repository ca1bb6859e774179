/* core/lower/memo.h - what lowerings of one job keep for the next one (lower_options.memo); private to core/lower. */
#ifndef CORE_LOWER_MEMO_H
#define CORE_LOWER_MEMO_H

#include "core/base/arena.h"

#include <stdint.h>

struct lower_memo {
    struct arena *own, *contents;
    size_t most; /* bytes of contents */
    struct arena *stages_arena; /* what refers to the contents, and is dropped with them */
    size_t most_of_stages;
    int64_t lowerings;
    struct shard_views *views;   /* core/lower/shard_views.c, by job and microbatch */
    struct stage_table *stages;  /* core/lower/equal_stages.c */
    struct arena *tables, *work; /* memory of the next lowering's tables, of its current stage */
};

/* At the start of a lowering: what was kept is dropped if it is too large. */
void lower_memo_begin(struct lower_memo *m);

#endif
