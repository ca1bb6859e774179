/* profiles/device_speed.h - speeds of single devices in a profile, relative to their types: what a run has recalibrated (`run --adapt --db`).
 *
 * A factor row of type "device:NAME" and every kind: each operator of that device of the cluster takes so many times as long as its type's. Operator
 * costs are of types, so a cluster in which these devices have types of their own is made for a search or a simulation; the plan keeps the cluster as
 * it is stated. Calibration passes the rows on. */
#ifndef PROFILES_DEVICE_SPEED_H
#define PROFILES_DEVICE_SPEED_H

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "profiles/profile.h"

/* *out: the cluster at the profile's speeds; *c if it has none of its devices. May be the same struct. */
void device_speed_apply(struct arena *a, const struct profile *p, const struct cluster *c, struct cluster *out);
/* The plan on such a cluster; the plan itself if the profile states nothing. */
const struct plan *device_speed_plan(struct arena *a, const struct plan *p, const struct profile *profile);
/* Multiplies the device's factor. A factor near 1 (within `least` of it, as a ratio) removes its row. Rows and texts are the arena's and the
 * caller's. */
void device_speed_scale(struct arena *a, struct profile *p, const char *device, double factor, double least, const char *provenance);
/* Messages on the cluster's link take so many times as long. ERR_INPUT: its bandwidth is not known. */
MUST_CHECK enum status device_speed_scale_link(struct arena *a, struct profile *p, const struct cluster *c, int32_t link, double factor, struct error *err);

#endif
