/* tools/tp_degrees.h - the list of tensor-parallel degrees of --tensor-parallel: "1,2,4". */
#ifndef TOOLS_TP_DEGREES_H
#define TOOLS_TP_DEGREES_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "profiles/profile.h"

#include <stdint.h>

enum { DEGREES_MAX = 16, DEGREE_MAX = 1024 };

struct degrees {
    int32_t n, tp[DEGREES_MAX]; /* in the order given; n 0: option absent */
};

/* text may be NULL. ERR_USAGE: anything but integers from 1 to DEGREE_MAX between commas. */
MUST_CHECK enum status degrees_parse(const char *text, struct degrees *out, struct error *err);
/* Each degree for which a node has enough GPUs must be possible there: it divides the model's heads and features, or the profile
 * has layers measured at this degree. ERR_INPUT names the degree and the possible ones.
 * O(devices + degrees · types · rows of the profile). */
MUST_CHECK enum status degrees_check(const struct degrees *d, const struct model *m,
                                     const struct cluster *c, const struct profile *p,
                                     struct error *err);

#endif
