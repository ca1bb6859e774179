/* core/graph/op_kind.c - names and classes of kinds. */
#include "core/base/rng.h"
#include "core/graph/op.h"

#include <string.h>

static const char *const kind_names[OP_KIND_COUNT] = {
#define OP_EVERY(name, ...) #name,
#include "core/graph/op_rows.inc"
};

const char *op_kind_name(enum op_kind kind) { return kind_names[kind]; }

/* Their rows stand together. */
bool op_is_measured(enum op_kind kind)
{
    return kind >= OP_measured_forward && kind <= OP_assemble;
}
bool op_is_group(enum op_kind kind)
{
    return kind >= OP_group_all_gather && kind <= OP_group_all_to_all;
}

int64_t op_measured_row(const char *model, const char *layer)
{
    uint64_t hash = rng_hash_text(rng_hash_text(0, model), layer);
    return (int64_t)(hash >> 2) + 1; /* positive, and no double is ever made of it */
}

bool op_kind_parse(const char *name, enum op_kind *out)
{
    for (int i = 0; i < OP_KIND_COUNT; i++)
        if (!strcmp(name, kind_names[i])) return *out = (enum op_kind)i, true;
    return false;
}
