/* core/plan/weight_versions.c - `weight_versions` of a plan file: checked and described (core/plan/plan.h). */
#include "core/base/arena.h"
#include "core/plan/internal.h"

#include <inttypes.h>

static enum status check_stage(const struct plan_place *at)
{
    const struct plan_stage *s = &at->p->replicas[at->replica].stages[at->stage];
    if (s->n_shards > 0)
        return plan_complain(at, "devices: weight_versions: 2 has stages of one device, this one has %" PRId32, plan_stage_devices(s));
    if (s->zero) return plan_complain(at, "zero: weight_versions: 2 keeps two whole versions on every device; it needs zero: 0");
    if (s->offload)
        return plan_complain(at, "offload: activations with weight_versions: 2, whose forwards of the next step are called before this step's last backwards; remove one");
    if (s->order) return plan_complain(at, "order: weight_versions: 2 has the order of 1F1B without a flush; it takes warmup in its place");
    return OK;
}

enum status plan_check_versions(const struct plan *p, struct error *err)
{
    struct plan_place whole = {p, -1, -1, err};
    if (!plan_delays_gradients(p)) return OK;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_place at = {p, r, -1, err};
        if (p->replicas[r].schedule || p->replicas[r].orders)
            return plan_complain(&at, "%s: weight_versions: 2 has the order of 1F1B without a flush; it takes the stages' warmup in its place",
                                 p->replicas[r].schedule ? "schedule" : "orders");
        for (at.stage = 0; at.stage < p->replicas[r].n_stages; at.stage++) TRY(check_stage(&at));
    }
    if (p->local_sgd.outer.every)
        return plan_complain(&whole, "weight_versions: 2 with local_sgd, whose exchanges would change the version that calls of the next step have read; remove one");
    if (p->servers.rule.n)
        return plan_complain(&whole, "weight_versions: 2 with parameter_server, whose workers pull their versions; remove one");
    if (p->compression.forward.kind || p->compression.backward.kind)
        return plan_complain(&whole, "compression.pipeline: weight_versions: 2 sends activations as they are; remove one");
    if (p->job.loss_scale.initial > 0 && !p->job.model.measured)
        return plan_complain(&whole, "weight_versions: 2 in fp16, whose loss scale may skip an update; it takes bf16, fp32 or fp64");
    return OK;
}

const char *plan_describe_versions(struct arena *a, const struct plan *p)
{
    return plan_delays_gradients(p) ? arena_printf(a, "no flush, %" PRId32 " weight versions (PipeDream-2BW)", p->weight_versions) : NULL;
}
