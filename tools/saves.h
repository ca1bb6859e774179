/* tools/saves.h - checkpoints between the steps of a run: when, and what they cost. */
#ifndef TOOLS_SAVES_H
#define TOOLS_SAVES_H

#include "exec/worker/worker.h"
#include "traces/trace.h"

struct json;

/* --save-every N or auto, --mtbf TIME or NULL: sets save_every, save_auto and mtbf_s; without a time that of n_devices of Llama 3's GPUs
 * (sim/goodput). ERR_USAGE. */
MUST_CHECK enum status saves_choose(struct arena *a, const char *every, const char *mtbf, int32_t n_devices, struct run_options *o,
                                    struct error *err);
/* "  checkpoints 4, every 20 steps: ..."; json: the key "checkpoints" instead. Nothing if none is complete. */
void saves_print(const struct run_result *r, const struct run_options *o, struct json *json);
/* The same of a trace with spans of checkpoints, which asynchronous ones have. */
void saves_print_trace(const struct trace *t, struct json *json);

#endif
