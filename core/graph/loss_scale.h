/* core/graph/loss_scale.h - dynamic loss scaling for fp16.
 *
 * fp16 ends at 65,504 and loses digits below 6e-5, the range of gradients. The gradient of the loss is therefore multiplied by a
 * scale, and every accumulated gradient divided by it before an update (Micikevicius et al. 2018, Mixed Precision Training). If an
 * element of any gradient of the step is not finite, all devices skip the update and the scale is halved; after grows_after finite
 * steps in a row it is doubled. The scale thus needs no tuning.
 * Every stage keeps its own copy of the numbers below on its device. One rule changes them, the same on the host and in a kernel, from
 * a flag that all devices have reduced (core/lower/scale.c), so all copies are bitwise equal without a round trip to the host.
 * Adam's bias corrections count updates, not steps, so the number of skipped steps is one of the numbers.
 */
#ifndef CORE_GRAPH_LOSS_SCALE_H
#define CORE_GRAPH_LOSS_SCALE_H

#include <math.h>
#include <stdint.h>

struct loss_scale {
    double initial; /* > 0; 0: the program has none */
    int64_t
        grows_after; /* finite steps until it doubles; 0: constant scale, overflowing steps are still skipped */
};
#define LOSS_SCALE_INITIAL 65536.0
#define LOSS_SCALE_GROWS_AFTER 2000
#define LOSS_SCALE_MIN 0x1p-24f /* bounds of halving and doubling */
#define LOSS_SCALE_MAX 0x1p96f

/* The numbers of a stage, fp32. FACTOR multiplies gradients in the step's updates: 1 / scale, NaN if the step is
 * skipped. RATE and ROOT are adamw's bias-corrected factors of the current update. */
enum {
    LOSS_SCALE_NOW,     /* scale of the next step */
    LOSS_SCALE_GOOD,    /* finite steps since its last change */
    LOSS_SCALE_SKIPPED, /* steps since the beginning of training */
    LOSS_SCALE_FACTOR,
    LOSS_SCALE_RATE,
    LOSS_SCALE_ROOT,
    LOSS_SCALE_NUMBERS = 8
};

/* Function qualifiers; a CUDA file defines its own. */
#ifndef LOSS_SCALE_FUNCTION
#define LOSS_SCALE_FUNCTION static inline
#endif

/* Called once per step before its updates. overflow: reduced over all gradients; not 0 if an element is not finite. step: 1 for the
 * first, skipped ones counted. */
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
