/* planner/near.h - where nothing fits: the plan that lacks least, for the message. */
#ifndef PLANNER_NEAR_H
#define PLANNER_NEAR_H

#include "planner/score.h"

/* Gives the scorer the one pipeline whose worst device lacks least by the bytes of space_stage_time. */
MUST_CHECK enum status near_try(struct arena *a, struct scorer *w, const struct space *s,
                                struct error *err);

#endif
