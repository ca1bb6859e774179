/* core/plan/plan.c - validity and hash of a plan.
 *
 * core/plan/read.c has the file's grammar, this file its semantics; a plan made by the planner passes
 * the same checks as one edited by hand. Errors have the position in the file if there is one.
 * core/plan/orders.c validates orders and schedules.
 */
#include "core/plan/plan.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/plan/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum status plan_complain(const struct plan_place *at, const char *fmt, ...)
{
    char text[sizeof at->err->text], where[300] = "";
    const struct plan *p = at->p;
    va_list ap;
    va_start(ap, fmt);
    error_format(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct plan_replica *r = at->replica >= 0 ? &p->replicas[at->replica] : NULL;
    int32_t line = at->stage >= 0 ? r->stages[at->stage].line : r ? r->line : p->line;
    int32_t column = at->stage >= 0 ? r->stages[at->stage].column : r ? r->column : p->column;
    size_t length = p->file ? strlen(p->file) : 0;
    const char *file = length > 100 ? p->file + length - 100 : p->file;
    if (file && line)
        snprintf(where, sizeof where, "%s:%" PRId32 ":%" PRId32 ": ", file, line, column);
    else if (file)
        snprintf(where, sizeof where, "%s: ", file);
    char path[80] = "";
    if (at->stage >= 0)
        snprintf(path, sizeof path, "replicas[%" PRId32 "].stages[%" PRId32 "].", at->replica,
                 at->stage);
    else if (r)
        snprintf(path, sizeof path, "replicas[%" PRId32 "].", at->replica);
    return error_set(at->err, ERR_INPUT, "%s%s%s", where, path, text);
}

/* --- layers, devices, shares --- */

static enum status check_layers(struct plan_place *at, int32_t n_layers)
{
    const struct plan_replica *r = &at->p->replicas[at->replica];
    for (int32_t i = 0, expected = 0; i < r->n_stages; i++) {
        const struct plan_stage *s = &r->stages[i];
        at->stage = i;
        if (s->first_layer != expected && i)
            return plan_complain(at,
                                 "layers: starts at %" PRId32 ", expected %" PRId32
                                 " (stage %" PRId32 " ends at %" PRId32 ")",
                                 s->first_layer, expected, i - 1, expected - 1);
        if (s->first_layer != expected)
            return plan_complain(at, "layers: starts at %" PRId32 ", expected 0", s->first_layer);
        if (s->last_layer < s->first_layer)
            return plan_complain(at, "layers: ends at %" PRId32 ", before it starts at %" PRId32,
                                 s->last_layer, s->first_layer);
        if (s->last_layer >= n_layers)
            return plan_complain(at,
                                 "layers: ends at %" PRId32 ", but the model has %" PRId32
                                 " layers, 0 to %" PRId32,
                                 s->last_layer, n_layers, n_layers - 1);
        expected = s->last_layer + 1;
    }
    if (r->stages[r->n_stages - 1].last_layer == n_layers - 1) return OK;
    return plan_complain(at, "layers: the last stage ends at %" PRId32 ", expected %" PRId32,
                         r->stages[r->n_stages - 1].last_layer, n_layers - 1);
}

static bool same_devices(const struct plan_stage *x, const struct plan_stage *y)
{
    bool same = plan_stage_devices(x) == plan_stage_devices(y);
    for (int32_t k = 0; same && k < plan_stage_devices(x); k++)
        same = plan_stage_device(x, k) == plan_stage_device(y, k);
    return same;
}

/* The device already has a stage of this replica. */
static enum status check_again(const struct plan_place *at, int32_t device, int32_t other)
{
    const struct plan_replica *r = &at->p->replicas[at->replica];
    const char *name = at->p->cluster.devices[device].name;
    if (other == at->stage) return plan_complain(at, "devices: %s is listed twice", name);
    if (!same_devices(&r->stages[at->stage], &r->stages[other]))
        return plan_complain(at,
                             "devices: %s already has stages[%" PRId32
                             "], which is not on the same devices in the same order",
                             name, other);
    if (r->schedule || r->orders) return OK;
    return plan_complain(at,
                         "device: %s already has stages[%" PRId32
                         "]; a replica with several stages on a device needs `schedule:` or `orders:`",
                         name, other);
}

/* owner: (n_devices), 1 + index of the stage over all replicas that stands on the device; 0 none. */
static enum status check_device(const struct plan_place *at, int32_t device, int32_t *owner,
                                const int32_t *first_stage)
{
    const struct plan *p = at->p;
    if (device < 0 || device >= p->cluster.n_devices)
        return plan_complain(at, "device: there is no device %" PRId32 "; the cluster has %" PRId32,
                             device, p->cluster.n_devices);
    if (!owner[device]) {
        owner[device] = 1 + first_stage[at->replica] + at->stage;
        return OK;
    }
    int32_t stage = owner[device] - 1, other = at->replica;
    if (stage >= first_stage[other]) return check_again(at, device, stage - first_stage[other]);
    while (first_stage[other] > stage) other--;
    return plan_complain(at,
                         "device: %s already has replicas[%" PRId32 "].stages[%" PRId32
                         "]; a device belongs to one replica",
                         p->cluster.devices[device].name, other, stage - first_stage[other]);
}

/* Each device has at least one sequence of every microbatch, all of them have all. */
static enum status check_sequences(const struct plan_place *at, const struct plan_stage *s)
{
    int64_t sum = 0;
    if (s->n_shards < 1) return OK;
    if (s->sharding && s->sharding->n_devices != s->n_shards)
        return plan_complain(at, "sharding: for %" PRId32 " devices, the stage has %" PRId32,
                             s->sharding->n_devices, s->n_shards);
    if (s->sharding && s->zero > 2)
        return plan_complain(at, "zero: 3 with sharding; use its `parameters:` instead, "
                                 "with `reshard_after_forward: true` for the same effect");
    if (at->p->deterministic && s->sharding)
        return plan_complain(at, "sharding: sharded operators round differently, so "
                                 "the plan cannot be deterministic");
    if (at->p->deterministic && s->n_shards > 1)
        return plan_complain(at, "devices: the gradients of one microbatch are added over devices, so "
                                 "the plan cannot be deterministic");
    if (s->sharding) return OK;
    for (int32_t k = 0; k < s->n_shards; k++) {
        if (s->sequences[k] < 1 || s->sequences[k] > at->p->microbatch - sum)
            return plan_complain(at,
                                 "sequences: %" PRId64 " for %s; the devices of a stage share the "
                                 "%" PRId64 " sequences of a microbatch, each at least one",
                                 s->sequences[k], at->p->cluster.devices[s->devices[k]].name,
                                 at->p->microbatch);
        sum += s->sequences[k];
    }
    if (sum == at->p->microbatch) return OK;
    return plan_complain(at, "sequences: add up to %" PRId64 ", but a microbatch has %" PRId64, sum,
                         at->p->microbatch);
}

static enum status check_devices(struct plan_place *at, int32_t *owner, const int32_t *first_stage)
{
    const struct plan_replica *r = &at->p->replicas[at->replica];
    for (int32_t i = 0; i < r->n_stages; i++) {
        const struct plan_stage *s = &r->stages[i];
        at->stage = i;
        for (int32_t k = 0; k < plan_stage_devices(s); k++)
            TRY(check_device(at, plan_stage_device(s, k), owner, first_stage));
        if (s->n_shards > 0 && s->device != s->devices[0])
            BUG("a stage's device is not the first of its devices");
        TRY(check_sequences(at, s));
    }
    return OK;
}

static enum status check_shares(const struct plan_place *at)
{
    const struct plan *p = at->p;
    int64_t batch = p->job.global_batch, sum = 0;
    if (p->microbatch < 1 || batch % p->microbatch)
        return plan_complain(at, "microbatch: %" PRId64 " does not divide global_batch %" PRId64,
                             p->microbatch, batch);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_place here = {p, r, -1, at->err};
        if (p->replicas[r].microbatches < 1)
            return plan_complain(&here, "microbatches: must be at least 1, found %" PRId32,
                                 p->replicas[r].microbatches);
        if (p->replicas[r].n_stages < 1) return plan_complain(&here, "stages: must be at least 1");
        sum += p->replicas[r].microbatches;
    }
    if (sum == batch / p->microbatch) return OK;
    return plan_complain(at,
                         "replicas: have %" PRId64
                         " microbatches in total, but global_batch %" PRId64
                         " / microbatch %" PRId64 " is %" PRId64,
                         sum, batch, p->microbatch, batch / p->microbatch);
}

/* Operators of other optimizers have no price with state in host memory; anchors of local_sgd lie with the state; servers keep theirs. */
static enum status check_offload(const struct plan *p, struct error *err)
{
    bool norms = optimizer_needs_norms(&p->job.optimizer);
    if (!p->local_sgd.outer.every && !norms && !p->servers.rule.n) return OK;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++) {
                int32_t device = plan_stage_device(&p->replicas[r].stages[i], k);
                const struct device_type *t = &p->cluster.types[p->cluster.devices[device].type];
                if (t->offloads)
                    return plan_complain(&(struct plan_place){p, r, i, err},
                                         "%s: type '%s' has offload: optimizer, which cannot be combined with %s",
                                         p->replicas[r].stages[i].n_shards > 1 ? "devices" : "device", t->name,
                                         norms ? optimizer_name(p->job.optimizer.kind) : p->servers.rule.n ? "parameter_server" : "local_sgd");
            }
    return OK;
}

/* The noise scale needs each replica's whole gradient, in front of its all-reduce, and one number of sequences a step for all islands. */
static enum status check_noise(const struct plan *p, struct error *err)
{
    const char *key = "gradient_noise_scale: each replica's gradient is compared with the sum of all";
    struct plan_place whole = {p, -1, -1, err};
    if (!p->gradient_noise_scale) return OK;
    if (p->n_replicas < 2) return plan_complain(&whole, "%s; this plan has one replica, it must be 2 or more", key);
    if (p->deterministic)
        return plan_complain(&whole, "%s; a deterministic plan adds microbatches one by one and has no replica's gradient", key);
    if (p->local_sgd.outer.every) return plan_complain(&whole, "%s; with local_sgd gradients of islands are not summed", key);
    if (p->servers.rule.n) return plan_complain(&whole, "%s; with parameter_server no worker has the sum", key);
    if (p->compression.gradients.kind >= COMPRESSION_INT8)
        return plan_complain(&whole, "%s; compression changes the sum: bf16, fp16 or none", key);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *s = &p->replicas[r].stages[i];
            struct plan_place at = {p, r, i, err};
            if (s->zero) return plan_complain(&at, "zero: %s, and ZeRO's devices have shards of the sum; zero: 0", key);
            if (s->n_shards > 1) return plan_complain(&at, "devices: %s, and devices of one stage have terms or shards of it; one device", key);
            for (int32_t k = 0; k < i && p->job.loss_scale.initial > 0; k++)
                if (p->replicas[r].stages[k].device == s->device)
                    return plan_complain(&at, "device: %s, which precision fp16 allows with one stage on a device only; bf16 has no such limit", key);
        }
    return OK;
}

/* Trust ratios are of whole parameters. */
static enum status check_norms(const struct plan *p, struct error *err)
{
    const char *name = optimizer_name(p->job.optimizer.kind);
    if (!optimizer_needs_norms(&p->job.optimizer)) return OK;
    if (p->servers.rule.n)
        return plan_complain(&(struct plan_place){p, -1, -1, err}, "parameter_server: servers update with adamw and sgd, not with %s", name);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *s = &p->replicas[r].stages[i];
            struct plan_place at = {p, r, i, err};
            if (s->zero) return plan_complain(&at, "zero: optimizer %s needs the norm of each parameter, and ZeRO updates shards; zero: 0", name);
            if (s->sharding)
                return plan_complain(&at, "sharding: optimizer %s needs the norm of each parameter, of which a sharded stage's devices have shards", name);
        }
    return OK;
}

/* Servers handle gradients one by one; islands of one run have one loss scale, and each island has a norm of its own. */
static enum status check_clipping(const struct plan *p, struct error *err)
{
    struct plan_place whole = {p, -1, -1, err};
    if (!(p->job.optimizer.max_grad_norm > 0)) return OK;
    if (p->servers.rule.n)
        return plan_complain(&whole, "parameter_server: optimizer.max_grad_norm needs the norm of all gradients of a step before an update, and "
                                     "servers update each parameter on its own; leave one of them out");
    if (p->local_sgd.outer.every && p->job.loss_scale.initial > 0)
        return plan_complain(&whole, "local_sgd: with optimizer.max_grad_norm islands clip by norms of their own, which precision fp16 does not "
                                     "allow, because all islands have one loss scale; bf16 has none");
    return OK;
}

static enum status check(struct arena *a, const struct plan *p, int32_t n_layers, struct error *err)
{
    struct plan_place whole = {p, -1, -1, err};
    if (p->n_replicas < 1) return plan_complain(&whole, "replicas: must be at least 1");
    TRY(check_shares(&whole));
    int32_t *owner = ARENA_ARRAY(a, int32_t, (size_t)p->cluster.n_devices);
    int32_t *first_stage = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas + 1);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_place at = {p, r, -1, err};
        first_stage[r + 1] = first_stage[r] + p->replicas[r].n_stages;
        TRY(check_layers(&at, n_layers));
        TRY(check_devices(&at, owner, first_stage));
        TRY(plan_check_orders(a, &at));
    }
    TRY(plan_check_servers(p, owner, err));
    TRY(plan_check_compression(p, err));
    TRY(check_noise(p, err));
    TRY(check_norms(p, err));
    TRY(check_clipping(p, err));
    TRY(plan_check_local_sgd(p, err));
    TRY(plan_check_versions(p, err));
    TRY(plan_check_activations(p, err));
    TRY(plan_check_experts(p, err));
    return check_offload(p, err);
}

enum status plan_check(const struct plan *p, int32_t n_layers, struct error *err)
{
    struct arena *scratch = arena_new();
    enum status st = check(scratch, p, n_layers, err);
    arena_free(scratch);
    return st;
}

/* The seed is written under made_by and decides first values and the order of data, so it counts;
 * which files data and first parameters come from is, like run --data and --init, an input of the run and not of the plan. */
uint64_t plan_hash(struct arena *a, const struct plan *p)
{
    struct text text;
    size_t n = 0;
    struct plan executed = *p;
    executed.job.data = (struct data_source){0};
    executed.job.init = NULL;
    FILE *out = text_begin(&text);
    fprintf(out, "seed: %" PRIu64 "\n", p->seed);
    plan_write_executed(out, a, &executed);
    const char *bytes = text_end(a, &text, &n);
    return rng_hash_bytes(0, bytes, n);
}
