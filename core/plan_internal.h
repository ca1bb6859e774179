/* core/plan_internal.h - what the files of the plan share; for core/plan*.c alone. */
#ifndef CORE_PLAN_INTERNAL_H
#define CORE_PLAN_INTERNAL_H

#include "core/plan.h"

/* The canonical text from `microbatch:` on: all that is executed but the seed. */
void plan_write_executed(FILE *out, struct arena *a, const struct plan *p);

#endif
