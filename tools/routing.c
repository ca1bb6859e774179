#include "tools/routing.h"

#include "core/base/arena.h"
#include "core/document/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOTTEST = 3 }; /* experts of a line */

static int64_t sum_of(const struct trace_routing *x)
{
    double sum = 0;
    for (int32_t e = 0; e < x->n_experts; e++) sum += (double)x->tokens[e];
    return sum < 9e18 ? (int64_t)sum : INT64_MAX;
}

static enum status check_block(const char *path, const struct trace_routing *x, const struct model *m, struct error *err)
{
    if (x->block >= m->layers || !model_has_experts(m, x->block))
        return error_set(err, ERR_INPUT, "%s: counts of experts of block %" PRId32 ", which has none in model '%s'", path, x->block, m->name);
    if (x->n_experts != m->experts)
        return error_set(err, ERR_INPUT, "%s: counts of %" PRId32 " experts in block %" PRId32 ", of which model '%s' has %" PRId64, path,
                         x->n_experts, x->block, m->name, m->experts);
    for (int32_t e = 0; e < x->n_experts; e++)
        if (x->tokens[e] > (INT64_C(1) << 53) / x->n_experts)
            return error_set(err, ERR_INPUT, "%s: %" PRId64 " tokens of one expert are too many", path, x->tokens[e]);
    return OK;
}

enum status routing_read(struct arena *a, const char *path, struct job *j, struct error *err)
{
    struct trace *t;
    struct model *m = &j->model;
    TRY(trace_read(a, path, &t, err));
    if (!m->experts || m->measured)
        return error_set(err, ERR_USAGE, "--routing is for models with experts; '%s' has none", m->name);
    if (!t->n_routings)
        return error_set(err, ERR_INPUT, "%s: no tokens of experts are counted in it; musher run --trace of a model with experts counts them", path);
    struct expert_block *blocks = ARENA_ARRAY(a, struct expert_block, (size_t)t->n_routings);
    m->n_expert_blocks = 0, m->expert_blocks = blocks;
    for (int32_t i = 0; i < t->n_routings; i++) {
        const struct trace_routing *x = &t->routings[i];
        TRY(check_block(path, x, m, err));
        if (sum_of(x)) blocks[m->n_expert_blocks++] = (struct expert_block){x->block, NULL, x->tokens};
    }
    return OK;
}

struct counted {
    int64_t tokens;
    int32_t expert;
};

static int hottest_first(const void *x, const void *y)
{
    const struct counted *a = x, *b = y;
    if (a->tokens != b->tokens) return a->tokens > b->tokens ? -1 : 1;
    return a->expert - b->expert;
}

static const struct counted *sorted(struct arena *a, const struct trace_routing *x)
{
    struct counted *by = ARENA_ARRAY(a, struct counted, (size_t)x->n_experts + 1);
    for (int32_t e = 0; e < x->n_experts; e++) by[e] = (struct counted){x->tokens[e], e};
    qsort(by, (size_t)x->n_experts, sizeof *by, hottest_first);
    return by;
}

static void print_line(const struct trace_routing *x, const struct counted *by)
{
    double sum = (double)sum_of(x), largest = (double)by[0].tokens * x->n_experts / sum;
    printf("  block %-3" PRId32 " hottest experts", x->block);
    for (int32_t i = 0; i < HOTTEST && i < x->n_experts; i++)
        printf("%s %" PRId32 " (%.1f %%)", i ? "," : "", by[i].expert, 100 * (double)by[i].tokens / sum);
    printf(" of %" PRId32 "; largest load %.2f x the even one\n", x->n_experts, largest);
}

void routing_print(struct arena *a, const struct trace *t, struct json *out)
{
    if (!t->n_routings) return;
    if (out) json_put_list(out, "routing");
    for (int32_t i = 0; i < t->n_routings; i++) {
        const struct trace_routing *x = &t->routings[i];
        const struct counted *by = sorted(a, x);
        if (!out && sum_of(x)) print_line(x, by);
        if (!out) continue;
        json_put_object_line(out, NULL);
        json_put_int(out, "block", x->block);
        json_put_list_line(out, "tokens");
        for (int32_t e = 0; e < x->n_experts; e++) json_put_int(out, NULL, x->tokens[e]);
        json_close(out);
        json_close(out);
    }
    if (out) json_close(out);
}
