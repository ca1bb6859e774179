/* profiles/measured.h - costs from coarse measurements: full layers by GPU count and microbatch, links by message size.
 *
 * Layers. An op row of kind measured_forward or measured_backward has the base of its device type, "A100-SXM4-40" for one
 * GPU, "A100-SXM4-40 x4" for four that share the layer, and the key of (layer, microbatch). A microbatch without a row is
 * interpolated linearly between its two measured neighbours; beyond them it is extrapolated from the nearest two, and
 * never below the nearest if it is larger. A layer without any measured microbatch on this GPU count is an error.
 *
 * Links. A curve is a series of link rows "inter/A100-SXM4-40/4@67108864": the total bandwidth of this many GPUs of a node
 * that send concurrently, for messages of this many bytes per GPU. Between sizes it is linear in log2(bytes), outside constant.
 * inter: from node to node; intra: among the GPUs of a node. Between two types the slower curve applies.
 *
 * assemble: a message of S bytes that arrived as one shard per GPU is all-gathered by the GPUs of the node, (n-1)/n · S at the
 * bandwidth of the intra curve, plus the time of the type's fit (host memory in the framework's path).
 */
#ifndef PROFILES_MEASURED_H
#define PROFILES_MEASURED_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "profiles/profile.h"

enum { MEASURED_BASE_MAX = 160, MEASURED_SEQUENCES_MAX = 1024, MEASURED_GPUS_MAX = 64 };
const char *measured_base(char buffer[MEASURED_BASE_MAX], const char *catalogue, int32_t tp);

/* Whether any layer was measured on tp GPUs of a type. O(rows). */
bool measured_on(const struct profile *p, const char *catalogue, int32_t tp);

/* Position of a microbatch of `sequences` sequences relative to the measured ones. */
enum measured_reach { MEASURED_NOT, MEASURED_THERE, MEASURED_BETWEEN, MEASURED_BEYOND };
enum measured_reach measured_reach(const struct profile *p, const char *catalogue, int32_t tp,
                                   int64_t row, int64_t sequences);

/* Seconds of a measured kind (except message, which sim/cost prices by its link). */
MUST_CHECK enum status measured_op_seconds(const struct profile *p, const struct device_type *t,
                                           enum op_kind kind, const struct op_attrs *attrs,
                                           const struct op_shapes *shapes, enum dtype dtype,
                                           double *out, enum source *source, struct error *err);

/* The curve between the two types' GPUs; false if one of them has none. Bytes are those of one of the messages into which the larger
 * end divides a tensor, one for each of its GPUs; the GPUs that send at once share the bandwidth of all GPUs of an end. */
bool measured_link(const struct profile *p, const struct cluster *c, const struct link_ends *ends,
                   bool same_node, struct link_model *out);
/* A row of a curve for profile_set_link. */
const char *measured_curve_row(struct arena *a, bool same_node, const char *catalogue, int32_t tp,
                               int64_t bytes);

#endif
