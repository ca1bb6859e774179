/* core/graph/loss_scale.h - by what a loss is multiplied so that its gradients fit half precision, and the rule by which that changes.
 *
 * fp16 ends at 65,504 and begins to lose digits below 6e-5, where gradients are. So the gradient of the loss is multiplied by a
 * scale, and every accumulated gradient divided by it before an update (Micikevicius et al. 2018, Mixed Precision Training). Where an
 * element of any gradient of the step is not finite nobody updates anything and the scale is halved; after grows_after finite
 * steps in a row it is doubled. Which scale is right is nobody's guess then.
 * The numbers below stand on every device, one copy a stage. They change by this one rule, on the host and in a kernel alike, from
 * what all devices have agreed upon (core/lower/scale.c), so that all copies are alike to the bit and no host need be asked.
 * Adam's corrections count updates, not steps: how often a step was skipped is part of the numbers, and so are they.
 */
#ifndef CORE_GRAPH_LOSS_SCALE_H
#define CORE_GRAPH_LOSS_SCALE_H

#include <math.h>
#include <stdint.h>

struct loss_scale {
    double initial; /* > 0; 0: the program has none */
    int64_t
        grows_after; /* finite steps until it doubles; 0: it stays as it is, and steps are skipped all the same */
};
#define LOSS_SCALE_INITIAL 65536.0
#define LOSS_SCALE_GROWS_AFTER 2000
#define LOSS_SCALE_MIN 0x1p-24f /* it is halved no further, and doubled no further than … */
#define LOSS_SCALE_MAX 0x1p96f

/* The numbers of a stage, fp32. FACTOR is what gradients are multiplied by in the step's updates: 1 / scale, NaN where the step is
 * skipped. RATE and ROOT are adamw's, of the update at hand. */
enum {
    LOSS_SCALE_NOW,     /* for the step to come */
    LOSS_SCALE_GOOD,    /* finite steps since it changed last */
    LOSS_SCALE_SKIPPED, /* steps since the beginning of training */
    LOSS_SCALE_FACTOR,
    LOSS_SCALE_RATE,
    LOSS_SCALE_ROOT,
    LOSS_SCALE_NUMBERS = 8
};

/* A kernel's compiler says what else a function must be called. */
#ifndef LOSS_SCALE_FUNCTION
#define LOSS_SCALE_FUNCTION static inline
#endif

/* The step is over but for its updates; overflow: of somebody's gradients, not 0 where one is not finite. step: 1 for the first,
 * skipped ones counted. */
LOSS_SCALE_FUNCTION void loss_scale_step(float x[LOSS_SCALE_NUMBERS], float overflow,
                                         int64_t grows_after, double lr, double beta1, double beta2,
                                         int64_t step)
{
    float now = x[LOSS_SCALE_NOW];
    if (overflow == 0) {
        double updates = (double)step - (double)x[LOSS_SCALE_SKIPPED];
        x[LOSS_SCALE_FACTOR] = 1 / now;
        x[LOSS_SCALE_RATE] = (float)(lr / (1 - pow(beta1, updates)));
        x[LOSS_SCALE_ROOT] = (float)sqrt(1 - pow(beta2, updates));
        x[LOSS_SCALE_GOOD] += 1;
        if (grows_after && x[LOSS_SCALE_GOOD] >= (float)grows_after) {
            x[LOSS_SCALE_NOW] = 2 * now < LOSS_SCALE_MAX ? 2 * now : LOSS_SCALE_MAX;
            x[LOSS_SCALE_GOOD] = 0;
        }
        return;
    }
    x[LOSS_SCALE_FACTOR] = nanf("");
    x[LOSS_SCALE_SKIPPED] += 1;
    x[LOSS_SCALE_GOOD] = 0;
    if (grows_after) x[LOSS_SCALE_NOW] = now / 2 > LOSS_SCALE_MIN ? now / 2 : LOSS_SCALE_MIN;
}

#endif
