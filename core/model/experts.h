/* core/model/experts.h - experts in model families (core/model/model.h); for core/model/model*.c alone. */
#ifndef CORE_MODEL_EXPERTS_H
#define CORE_MODEL_EXPERTS_H

#include "core/document/json.h"
#include "core/model/build.h"

/* Nothing where the family has no experts. */
MUST_CHECK enum status model_read_experts(const struct node *c, struct model *m, struct error *err);
void model_write_experts(struct json *j, const struct model *m);

/* Modules of one block: the router, the experts together, and their projections; up NULL: gelu in between, else
 * silu(in)·up. */
struct expert_names {
    const char *gate, *experts, *in, *up, *out;
};
/* x (b,T,d) -> y (b,T,d), before the residual stream */
int32_t experts_build(struct build *b, const struct expert_names *names, int32_t x);

#endif
