/* tools/print/metrics.h - the block of figures that plan, simulate, whatif and show print: rate, utilisation, cost, run, use of devices.
 *
 * sim/metrics.h defines each figure. The text has one line a figure and one a device type, whatever the size of the cluster; JSON has
 * the same figures unrounded.
 */
#ifndef TOOLS_PRINT_METRICS_H
#define TOOLS_PRINT_METRICS_H

#include "core/document/json.h"
#include "core/model/job.h"
#include "sim/metrics.h"

struct arena;

void print_metrics(struct arena *a, const struct metrics *m);
void print_metrics_json(struct json *j, const struct metrics *m); /* the member `metrics` */
/* "45.9k tokens/s", "1.2k images/s" of a job's step of this duration. The arena's. */
const char *print_rate(struct arena *a, const struct job *job, int64_t iteration_ns);
void print_rate_json(struct json *j, const struct job *job, int64_t iteration_ns); /* a member */

/* The options --tokens and --images of these verbs, members of a request. */
struct run_length {
    const char *tokens, *images;
};
#define OPTION_TOKENS(member)                                                                      \
    {                                                                                              \
        .name = "tokens", TEXT_AT(member.tokens), .unit = "COUNT",                                 \
        .help =                                                                                    \
            "tokens of the whole training run, e.g. 1T: its days, cost and energy are printed",    \
        .preset = "`tokens:` of the job"                                                           \
    }
#define OPTION_IMAGES(member)                                                                      \
    {                                                                                              \
        .name = "images", TEXT_AT(member.images), .unit = "COUNT",                                 \
        .help = "images of the whole training run of an image model, e.g. 90M",                    \
        .preset = "`images:` of the job"                                                           \
    }
/* *out: the number of tokens or images of the run; 0: the job's own. ERR_USAGE: no count, or not of this kind of model. */
MUST_CHECK enum status print_run_length(const struct run_length *r, const struct job *job,
                                        int64_t *out, struct error *err);

#endif
