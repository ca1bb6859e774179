/* tools/print/explain.h - an explanation for people and as JSON. */
#ifndef TOOLS_PRINT_EXPLAIN_H
#define TOOLS_PRINT_EXPLAIN_H

#include "core/document/json.h"
#include "sim/explain/explain.h"

void print_explain(struct arena *a, const struct program *p, const struct sim_result *r,
                   const struct explain *x);
/* Member "explain" of the object that is open. */
void print_explain_json(struct json *j, const struct program *p, const struct sim_result *r,
                        const struct explain *x);

#endif
