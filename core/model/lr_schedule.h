/* core/model/lr_schedule.h - `optimizer.schedule` of a job: the learning rate of each step.
 *
 *   schedule: {kind: cosine, warmup: 100, steps: 10000, min_lr: 1e-4}
 *   schedule: {kind: wsd, warmup: 100, steps: 10000, decay_steps: 2000, decay: linear}
 *
 * Of step s = 1, 2, ... with peak rate L, floor m, W warm-up steps, S steps in all; p = (s - W) / (S - W), at most 1:
 *   s <= W        L s / W, of every kind
 *   constant      L
 *   linear        m + (L - m) (1 - p)
 *   cosine        m + (L - m) (1 + cos(pi p)) / 2                        Loshchilov and Hutter 2016, "SGDR" (arXiv 1608.03983), one period
 *   wsd           L up to S - D, then m + (L - m) f(q), q = (s - S + D) / D:  warmup-stable-decay, Hu et al. 2024, "MiniCPM" (arXiv 2404.06395)
 *                 f linear: 1 - q; cosine: (1 + cos(pi q)) / 2; sqrt: 1 - sqrt(q), Haegele et al. 2024 (arXiv 2405.18392)
 *   inverse_sqrt  max(m, L sqrt(W / s))                                  Vaswani et al. 2017, section 5.3
 * After S the rate is m. The first step of a schedule that counts from 0, such as transformers' get_cosine_schedule_with_warmup, has rate 0; step s
 * here is its step s.
 */
#ifndef CORE_MODEL_LR_SCHEDULE_H
#define CORE_MODEL_LR_SCHEDULE_H

#include "core/base/error.h"
#include "core/document/document.h"

#include <stdint.h>
#include <stdio.h>

struct arena;

#define LR_SCHEDULES(X) X(CONSTANT, constant) X(LINEAR, linear) X(COSINE, cosine) X(WSD, wsd) X(INVERSE_SQRT, inverse_sqrt)
#define LR_DECAYS(X) X(LINEAR, linear) X(COSINE, cosine) X(SQRT, sqrt)
enum lr_schedule_kind {
#define X(name, text) LR_SCHEDULE_##name,
    LR_SCHEDULES(X)
#undef X
        LR_SCHEDULE_COUNT
};
enum lr_decay {
#define X(name, text) LR_DECAY_##name,
    LR_DECAYS(X)
#undef X
        LR_DECAY_COUNT
};
struct lr_schedule { /* zero: a constant rate without warm-up */
    enum lr_schedule_kind kind;
    int64_t warmup, steps, decay_steps; /* W, S, D; S > W of linear, cosine and wsd */
    double min_lr;                      /* m */
    enum lr_decay decay;                /* of wsd */
};
enum { LR_STEPS_MAX = 1000000000 };

/* `schedule` of the optimizer's map; zero if absent. lr: the peak, for the check of min_lr. ERR_INPUT. */
MUST_CHECK enum status lr_schedule_read(const struct node *optimizer, double lr, struct lr_schedule *out, struct error *err);
void lr_schedule_write(FILE *out, const struct lr_schedule *x); /* ", schedule: {...}", or nothing */
/* The rate of step, from 1. */
double lr_schedule_rate(const struct lr_schedule *x, double lr, int64_t step);
/* "cosine from 0.001 to 0.0001 in 10000 steps, 100 of warm-up"; NULL: a constant rate without warm-up. */
const char *lr_schedule_describe(struct arena *a, const struct lr_schedule *x, double lr);
extern const char *const lr_schedule_kinds[], *const lr_schedule_decays[]; /* NULL-ended, by enum */

#endif
