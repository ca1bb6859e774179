/* tools/routing.h - the popularity of experts: from a run's trace to a job, and as a table. */
#ifndef TOOLS_ROUTING_H
#define TOOLS_ROUTING_H

#include "core/base/error.h"
#include "core/model/job.h"
#include "traces/trace.h"

struct json;

/* Tokens of the experts of the job's blocks, counted by a run whose trace is at path; what the job stated before is dropped. ERR_INPUT: no
 * trace, a trace without counts, counts of other experts or blocks than the model's. */
MUST_CHECK enum status routing_read(struct arena *a, const char *path, struct job *j, struct error *err);
/* A line for each block: the share of its hottest experts, and the largest share over an equal one. out: the list "routing" of the open
 * object instead. Nothing for a trace without counts. */
void routing_print(struct arena *a, const struct trace *t, struct json *out);

#endif
