/* tools/print/stated.h - what of a prediction does not come from vendors' documents: peaks, memory bandwidths and powers that the
 * cluster file states, and values of the catalogue that were derived or are from memory (profiles/catalogue.h).
 */
#ifndef TOOLS_PRINT_STATED_H
#define TOOLS_PRINT_STATED_H

#include "core/cluster/cluster.h"

struct arena;
struct json;

enum { PRINT_STATED_EVERY_DTYPE = -1 };

/* Prints a line for each device type that states something ("  rtx: peak bf16 165 TFLOP/s and memory bandwidth 768 GB/s stated by
 * the cluster file") and for each derived or unverified value that costs in this precision depend on (enum dtype; PRINT_STATED_EVERY_DTYPE: all but
 * fp64, tf32 and fp8, and stated prices too).
 * json: the lists "stated", "derived" and "unverified" of the open object instead. Nothing where there is nothing to say. */
void print_stated(struct arena *a, const struct cluster *c, int precision, struct json *json);

#endif
