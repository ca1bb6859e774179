/* profiles/measured.h - prices of what was measured whole: layers by their number of GPUs and microbatch, links by
 * the size of a message.
 *
 * Layers. An op row of kind measured_forward or measured_backward has the base of its device type, "A100-SXM4-40" for one
 * GPU, "A100-SXM4-40 x4" for four that share the layer, and the key of (layer, microbatch). A microbatch that was not
 * measured lies on the line between its two measured neighbours; beyond them on the line through the nearest two, and
 * never below the nearest where it is larger. What was measured with no microbatch at all on so many GPUs is an error.
 *
 * Links. A curve is a run of link rows "inter/A100-SXM4-40/4@67108864": the bandwidth, summed over so many GPUs of a node
 * that send at once, of messages of so many bytes a GPU. Between sizes it is linear in log2(bytes), outside constant.
 * inter: from node to node; intra: among the GPUs of a node. Two types that meet go at the slower one's pace.
 *
 * assemble: a message of S bytes that came in one part a GPU is gathered by all GPUs of the node, (n-1)/n · S at the
 * intra curve's pace, after the time that the type's fit says (host memory that the framework goes through).
 */
#ifndef PROFILES_MEASURED_H
#define PROFILES_MEASURED_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "profiles/profile.h"

enum { MEASURED_BASE_MAX = 160, MEASURED_SEQUENCES_MAX = 1024 };
const char *measured_base(char buffer[MEASURED_BASE_MAX], const char *catalogue, int32_t tp);

/* How a microbatch of so many sequences stands to those that were measured. */
enum measured_reach { MEASURED_NOT, MEASURED_THERE, MEASURED_BETWEEN, MEASURED_BEYOND };
enum measured_reach measured_reach(const struct profile *p, const char *catalogue, int32_t tp,
                                   int64_t row, int64_t sequences);

/* Seconds of a kind that nothing computes (message excepted: sim/cost prices it by its link). */
MUST_CHECK enum status measured_op_seconds(const struct profile *p, const struct device_type *t,
                                           enum op_kind kind, const struct op_attrs *attrs,
                                           const struct op_shapes *shapes, enum dtype dtype,
                                           double *out, enum source *source, struct error *err);

/* The curve of the two types' GPUs; false where one of them has none. Bytes are of all GPUs of one end together. */
bool measured_link(const struct profile *p, const struct device_type *from,
                   const struct device_type *to, bool same_node, struct link_model *out);
/* A row of a curve for profile_set_link. */
const char *measured_curve_row(struct arena *a, bool same_node, const char *catalogue, int32_t tp,
                               int64_t bytes);

#endif
