/* tools/tp_degrees.h - how many GPUs may shard every operator, as --tensor-parallel names them: "1,2,4". */
#ifndef TOOLS_TP_DEGREES_H
#define TOOLS_TP_DEGREES_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "profiles/profile.h"

#include <stdint.h>

enum { DEGREES_MAX = 16, DEGREE_MAX = 1024 };

struct degrees {
    int32_t n, tp[DEGREES_MAX]; /* as written; none where the option was not given */
};

/* text may be NULL. ERR_USAGE: anything but whole numbers from 1 to DEGREE_MAX between commas. */
MUST_CHECK enum status degrees_parse(const char *text, struct degrees *out, struct error *err);
/* Numbers that some node has the GPUs for are to be possible on them: they divide the model, or its layers were measured so.
 * ERR_INPUT names the number and those that are possible. O(devices + degrees · types · rows of the profile). */
MUST_CHECK enum status degrees_check(const struct degrees *d, const struct model *m,
                                     const struct cluster *c, const struct profile *p,
                                     struct error *err);

#endif
