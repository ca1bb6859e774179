/* tools/print/stated.h - what of a prediction does not come from vendors' documents: peaks, memory bandwidths and powers that the
 * cluster file states, values of the catalogue that were derived or are from memory (profiles/catalogue.h), and the load of experts.
 */
#ifndef TOOLS_PRINT_STATED_H
#define TOOLS_PRINT_STATED_H

#include "core/cluster/cluster.h"

struct arena;
struct job;
struct json;

/* Prints what a model with experts assumes (model_experts_assumed), and nothing of others. json: the key "experts" instead. */
void print_experts(struct arena *a, const struct job *job, struct json *json);
/* Prints the job's line of experts, a line for each device type that states something ("  rtx: peak bf16 165 TFLOP/s and memory
 * bandwidth 768 GB/s stated by the cluster file") and one for each derived or unverified value that costs in the job's precision
 * depend on. job NULL: of every precision but fp64, tf32 and fp8, and stated prices too.
 * json: the key "experts" and the lists "stated", "derived" and "unverified" of the open object instead. Nothing where there is
 * nothing to say. */
void print_stated(struct arena *a, const struct cluster *c, const struct job *job,
                  struct json *json);

#endif
