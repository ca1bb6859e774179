/* tools/print/replicas.h - the replicas of a plan: one line each, or a class of them where there are many. */
#ifndef TOOLS_PRINT_REPLICAS_H
#define TOOLS_PRINT_REPLICAS_H

#include "core/plan/plan.h"

struct arena;

/* Each line is indented by indent spaces. More classes than PRINT_CLASSES_MOST are cut, with their number, unless all. */
void print_replicas(struct arena *a, const struct plan *p, int indent, bool all);

#endif
