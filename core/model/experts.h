/* core/model/experts.h - experts in model families (core/model/model.h); private to core/model/model*.c. */
#ifndef CORE_MODEL_EXPERTS_H
#define CORE_MODEL_EXPERTS_H

#include "core/document/json.h"
#include "core/model/build.h"

/* No effect for families without experts. */
MUST_CHECK enum status model_read_experts(const struct node *c, struct model *m, struct error *err);
void model_write_experts(struct json *j, const struct model *m);

/* Modules of one block: router, experts, and their projections; up NULL: gelu between in and out, else
 * silu(in)·up. */
struct expert_names {
    const char *gate, *experts, *in, *up, *out;
};
/* x (b,T,d) -> y (b,T,d), before it is added to the residual stream */
int32_t experts_build(struct build *b, const struct expert_names *names, int32_t x);

#endif
