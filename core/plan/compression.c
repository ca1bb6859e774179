/* core/plan/compression.c - `compression` of a plan file: read, checked and written. */
#include "core/document/canonical.h"
#include "core/plan/internal.h"
#include "core/plan/keys.h"

static const char *const names[] = {"none", "bf16", "fp16", NULL};

static enum status read_one(const struct node *map, const char *key, enum compression *out, struct error *err)
{
    const struct node *n = node_get(map, key);
    int kind = COMPRESSION_NONE;
    if (n) TRY(node_choice(n, names, &kind, err));
    *out = (enum compression)kind;
    return OK;
}

enum status plan_read_compression(const struct node *root, struct plan *p, struct error *err)
{
    const struct node *map = node_get(root, "compression");
    if (!map || map->kind == NODE_NULL) return OK;
    TRY(document_keys(map, plan_compression_keys, err));
    TRY(read_one(map, "gradients", &p->compression.gradients, err));
    return read_one(map, "outer", &p->compression.outer, err);
}

enum status plan_check_compression(const struct plan *p, struct error *err)
{
    const struct plan_compression *x = &p->compression;
    struct plan_place whole = {p, -1, -1, err};
    if (!x->gradients && !x->outer) return OK;
    if (p->job.precision == DTYPE_fp64)
        return plan_complain(&whole, "compression: sums of fp64 gradients are fp64; it takes precision: fp32, bf16 or fp16");
    if (p->deterministic)
        return plan_complain(&whole, "compression: a deterministic plan's sums keep every bit; leave one of the two out");
    if (x->outer && !p->local_sgd.outer.every)
        return plan_complain(&whole, "compression.outer: there is no local_sgd whose exchanges it is for");
    return OK;
}

void plan_write_compression(FILE *out, const struct plan *p)
{
    const struct plan_compression *x = &p->compression;
    if (x->gradients || x->outer)
        fprintf(out, "compression: {gradients: %s, outer: %s}\n", names[x->gradients], names[x->outer]);
}
