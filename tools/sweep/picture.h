/* tools/sweep/picture.h - a sweep as a picture: iteration time, rate and cost over the axis with the most values, a line for each
 * combination of the others. With --allow and one line also the effective samples/s of every strategy, and the ranges in which each is the best. */
#ifndef TOOLS_SWEEP_PICTURE_H
#define TOOLS_SWEEP_PICTURE_H

#include "tools/sweep/table.h"

/* path: as plot_image's. */
MUST_CHECK enum status picture_sweep(struct arena *a, const struct sweep_table *t, const char *path,
                                     struct error *err);

#endif
