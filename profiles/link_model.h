/* profiles/link_model.h - duration of one message on an idle link.
 *
 * t(bytes) = latency_s + bytes / bandwidth_Bps   (the alpha-beta model; Hockney 1994)
 * Valid in the measured range, min_bytes to max_bytes; outside it the result is an extrapolation. A measured curve has
 * bandwidths at several sizes instead: t = latency_s + bytes / B(bytes), B linear in log2(bytes) between them and constant
 * outside. residual is the root mean square of (t - measured) / measured over that range.
 */
#ifndef PROFILES_LINK_MODEL_H
#define PROFILES_LINK_MODEL_H

#include "core/base/error.h"

#include <stdint.h>

enum source { SOURCE_MEASURED, SOURCE_FITTED, SOURCE_STATED, SOURCE_CATALOGUE };
const char *source_name(enum source s);

enum { LINK_POINTS_MAX = 48 };
struct link_point {
    double bytes, Bps;
};

struct link_model {
    double latency_s;     /* >= 0 */
    double bandwidth_Bps; /* > 0, bytes per second, one direction */
    double residual;      /* relative, 0.05 = 5 % */
    int64_t min_bytes, max_bytes;
    enum source source;
    int32_t n_points; /* > 0: a curve; bandwidth_Bps is then that of the largest messages */
    struct link_point points[LINK_POINTS_MAX]; /* ascending bytes */
};
double link_model_Bps(const struct link_model *m, double bytes);

#endif
