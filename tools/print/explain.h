/* tools/print/explain.h - output of `simulate --explain` as text and as JSON: critical path, idle time, links, what-if. */
#ifndef TOOLS_PRINT_EXPLAIN_H
#define TOOLS_PRINT_EXPLAIN_H

#include "core/document/json.h"
#include "core/plan/plan.h"
#include "sim/explain/explain.h"

/* p: the explained program, of the plan or of some of its replicas. all: a line for every device and link. */
void print_explain(struct arena *a, const struct plan *plan, const struct program *p,
                   const struct sim_result *r, const struct explain *x, bool all);
/* Adds member "explain" to the open object. */
void print_explain_json(struct json *j, const struct program *p, const struct sim_result *r,
                        const struct explain *x);

#endif
