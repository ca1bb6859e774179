/* core/plan/activations.c - what becomes of a stage's activations between forward and backward: keys `recompute`, `recompute_blocks` and
 * `offload` of a stage. */
#include "core/document/document.h"
#include "core/plan/internal.h"

#include <inttypes.h>

static const char *const recomputes[] = {
#define X(name, text) text,
    RECOMPUTES(X)
#undef X
        NULL};

static const char *const offloads[] = {"none", "activations", NULL};

static enum status choose(const struct node *stage, const char *key, const char *const *names, int *out, struct error *err)
{
    const struct node *n = node_get(stage, key);
    *out = 0;
    return n && n->kind != NODE_NULL ? node_choice(n, names, out, err) : OK;
}

enum status plan_read_activations(const struct node *stage, struct plan_stage *s, struct error *err)
{
    int choice;
    int64_t blocks = 0;
    TRY(choose(stage, "recompute", recomputes, &choice, err));
    s->recompute = (enum recompute)choice;
    TRY(choose(stage, "offload", offloads, &choice, err));
    s->offload = choice;
    TRY(node_get_int(stage, "recompute_blocks", 1, RECOMPUTE_BLOCKS_MAX, &blocks, err));
    s->recompute_blocks = (int32_t)blocks;
    if (s->recompute_blocks && s->recompute != RECOMPUTE_BLOCKS)
        return node_error(stage, err, "`recompute_blocks` needs `recompute: blocks`");
    return OK;
}

static enum status check_stage(const struct plan_place *at, const struct plan_stage *s)
{
    if (s->recompute == RECOMPUTE_STAGE)
        return plan_complain(at, "offload: activations: with recompute: true none waits for the backward; recompute: blocks, selective or false");
    for (int32_t k = 0; k < plan_stage_devices(s) && at->p->cluster.emulated; k++) {
        const struct device_type *t = &at->p->cluster.types[at->p->cluster.devices[plan_stage_device(s, k)].type];
        if (!(t->host_Bps > 0))
            return plan_complain(at, "offload: activations: the emulated device type '%s' needs the bandwidth of copies to host memory "
                                 "(host_bandwidth: 24 GB/s)", t->name);
    }
    return OK;
}

enum status plan_check_activations(const struct plan *p, struct error *err)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].offload)
                TRY(check_stage(&(struct plan_place){p, r, i, err}, &p->replicas[r].stages[i]));
    return OK;
}

void plan_write_activations(FILE *out, const struct plan_stage *s, const char *before)
{
    if (s->recompute) fprintf(out, "%srecompute: %s", before, recomputes[s->recompute]);
    if (s->recompute_blocks) fprintf(out, "%srecompute_blocks: %" PRId32, before, s->recompute_blocks);
    if (s->offload) fprintf(out, "%soffload: %s", before, offloads[s->offload]);
}
