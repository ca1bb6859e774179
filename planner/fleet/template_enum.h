/* planner/fleet/template_enum.h - every short order of classes balanced, and mixes of two or three of them: for few device classes.
 *
 * Column generation (planner/fleet/mix) meets the templates that prices ask for. Where classes are few (GPUs of two types, shared by
 * one, two or four) all orders of up to TEMPLATE_ENUM_STAGES of them can be balanced: 1F1B warm-ups, nothing recomputed, messages that
 * keep compute streams busy and their assembling counted as work. A linear program over the best template of each use of GPUs
 * then says what a GPU is worth; those templates that earn nearly their price are taken by twos, in all sensible numbers,
 * and GPUs that are left by a third.
 * Of a gradient all-reduce a template knows what its largest stage takes on its own class's link, so that orders with short stages
 * get their due. O(classes^TEMPLATE_ENUM_STAGES · stages · log), then O(chosen² · counts).
 */
#ifndef PLANNER_FLEET_TEMPLATE_ENUM_H
#define PLANNER_FLEET_TEMPLATE_ENUM_H

#include "planner/fleet/mix.h"

/* Longer orders in teams of so many devices: there are more replicas to wait for, and longer gradient all-reduces. */
enum { TEMPLATE_ENUM_STAGES = 4, TEMPLATE_ENUM_LARGE = 128, TEMPLATE_ENUM_ORDERS_MAX = 4000 };

/* At most `most` mixes for the batch, the best by estimate first; in the maker's arena. 0 where classes are too many. */
void template_enum_mixes(struct template_maker *m, int32_t microbatches, int32_t most,
                         struct mix **out, int32_t *n);

#endif
