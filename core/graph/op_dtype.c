/* core/graph/op_dtype.c - element types. */
#include "core/graph/op.h"

#include <string.h>

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[DTYPE_COUNT] = {
#define X(name, bytes) {#name, bytes},
    DTYPES(X)
#undef X
};

const char *dtype_name(enum dtype t) { return dtypes[t].name; }
int64_t dtype_bytes(enum dtype t) { return dtypes[t].bytes; }
bool dtype_is_half(enum dtype t) { return t == DTYPE_bf16 || t == DTYPE_fp16; }
enum dtype dtype_master(enum dtype t) { return dtype_is_half(t) ? DTYPE_fp32 : t; }

bool dtype_parse(const char *name, enum dtype *out)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } others[] = {{"float32", DTYPE_fp32},
                  {"float64", DTYPE_fp64},
                  {"bfloat16", DTYPE_bf16},
                  {"float16", DTYPE_fp16}};
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!strcmp(name, dtypes[i].name)) return *out = (enum dtype)i, true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i].name)) return *out = others[i].dtype, true;
    return false;
}
