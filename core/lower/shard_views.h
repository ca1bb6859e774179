/* core/lower/shard_views.h - sharded stages: the training graph of each device (its view), made once for equal stages.
 *
 * Views of a stage depend on its layers, its sharding, the job and the size of a microbatch, and, if the stage has a loss, on the global
 * batch that weights it. Stages with equal ones share them within a plan, and over all plans that are lowered with one memo
 * (lower_options.memo).
 */
#ifndef CORE_LOWER_SHARD_VIEWS_H
#define CORE_LOWER_SHARD_VIEWS_H

#include "core/base/arena.h"
#include "core/lower/stages.h"

struct lowering;
struct lower_memo;

/* The whole forward graph, and the views made so far. */
struct shard_views;
struct shard_views *shard_views_new(const struct lowering *l); /* the memo's, if there is one */
void shard_views_end(struct shard_views *x);                   /* frees what only new views need */
/* Sets the view of the stage, and its share of the loss. ERR_INPUT. O(operators of the stage) for a new view, else O(1). */
MUST_CHECK enum status shard_views_set(const struct lowering *l, struct shard_views *x,
                                       struct stage_build *b, struct error *err);
/* The number of views that a memo keeps; for tests. */
int32_t shard_views_kept(const struct lower_memo *m);

#endif
