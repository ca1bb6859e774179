/* planner/fleet/template_enum.h - exhaustive enumeration of short templates and of mixes of two or three, for few device
 * classes.
 *
 * Column generation (planner/fleet/mix) finds only templates of extreme dual prices. With few classes (GPUs of two types, with
 * one, two or four of them a stage) all orders of up to TEMPLATE_ENUM_STAGES classes can be balanced: 1F1B warm-ups, no
 * recomputation, messages that block compute streams and their assembly counted as work. A linear program over the best
 * template of each use of GPUs gives dual prices of GPUs. Templates whose value is close to their price are combined in pairs,
 * in all sensible counts, and the remaining GPUs go to a third.
 * The gradient all-reduce of a template is estimated by its largest stage on the link of its class, which favours short stages.
 * O(classes^TEMPLATE_ENUM_STAGES · stages · log), then O(chosen² · counts).
 */
#ifndef PLANNER_FLEET_TEMPLATE_ENUM_H
#define PLANNER_FLEET_TEMPLATE_ENUM_H

#include "planner/fleet/mix.h"

/* From TEMPLATE_ENUM_LARGE devices on orders are longer, because there are more replicas and longer gradient all-reduces. */
enum { TEMPLATE_ENUM_STAGES = 4, TEMPLATE_ENUM_LARGE = 128, TEMPLATE_ENUM_ORDERS_MAX = 4000 };

/* At most `most` mixes for the batch, by rising estimate; in the maker's arena. None if there are too many classes. */
void template_enum_mixes(struct template_maker *m, int32_t microbatches, int32_t most,
                         struct mix **out, int32_t *n);

#endif
