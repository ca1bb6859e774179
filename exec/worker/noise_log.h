/* exec/worker/noise_log.h - squared norms of gradients of each step (core/lower/noise.h), from which the run's gradient noise scale
 * follows, and the norm by which each step's gradients are clipped (core/lower/clip.h). Like losses they are this rank's terms, summed over the ranks at the end. */
#ifndef EXEC_WORKER_NOISE_LOG_H
#define EXEC_WORKER_NOISE_LOG_H

#include "core/base/error.h"

#include <stdint.h>

struct arena;
struct chunks;
struct program;
struct rank;
struct run_result;
struct scale_log;

enum { NOISE_LOG_VALUE = 8 }; /* bytes of a value's place among those of a step */

/* All fields belong to noise_log.c. */
struct noise_log {
    double *squares; /* (steps, 2), of exec/gradient_noise.h; NULL: the program does not measure them */
    double *norms;   /* (steps) of the gradients, on device 0; NULL: the program does not clip */
};

void noise_log_open(struct noise_log *l, const struct rank *r);
/* Places of a step's values, of all chunks; 0: the program measures nothing. */
int64_t noise_log_bytes(const struct program *p, int32_t n_chunks);
/* Copies the step's values to these places: behind all work of the compute stream, or at once from host memory. */
MUST_CHECK enum status noise_log_copy(struct rank *r, const struct chunks *c, char *values, struct error *err);
/* The values of a step that has ended. */
void noise_log_note(struct noise_log *l, const struct rank *r, const struct chunks *c, int64_t step, const char *values);
/* A lane whose step ends with its calls. */
MUST_CHECK enum status noise_log_see(struct noise_log *l, struct rank *r, const struct chunks *c, int64_t step, struct error *err);
/* All ranks together: fills noise, and gradient_norms in a. */
void noise_log_report(struct noise_log *l, const struct rank *r, const struct scale_log *s, struct arena *a, struct run_result *out);

#endif
