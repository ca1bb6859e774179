#include "tools/export/sailor.h"

#include "core/base/units.h"
#include "core/document/json.h"
#include "tools/import/sailor_tables.h"

#include <string.h>

/* --- pipelines: replicas of equal cuts ------------------------------------------------------- */

static bool same_cuts(const struct plan_replica *x, const struct plan_replica *y)
{
    if (x->n_stages != y->n_stages) return false;
    for (int32_t s = 0; s < x->n_stages; s++)
        if (x->stages[s].last_layer != y->stages[s].last_layer) return false;
    return true;
}

/* Whether r is the first replica of its pipeline. */
static bool begins(const struct plan *p, int32_t r)
{
    for (int32_t i = 0; i < r; i++)
        if (same_cuts(&p->replicas[i], &p->replicas[r])) return false;
    return true;
}

static int32_t count(const struct plan *p, int32_t r)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_replicas; i++) n += same_cuts(&p->replicas[i], &p->replicas[r]);
    return n;
}

bool export_sailor_equal(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int32_t difference = p->replicas[r].microbatches - p->replicas[0].microbatches;
        /* If the number of replicas does not divide the batch, some have one microbatch more: Sailor rounds up. */
        if (difference < -1 || difference > 1 || count(p, r) != count(p, 0)) return false;
    }
    return true;
}

/* --- limits of the format -------------------------------------------------------------------- */

static const struct device_type *type_of(const struct plan *p, const struct plan_stage *s)
{
    return &p->cluster.types[p->cluster.devices[s->device].type];
}

static enum status check_stage(const struct plan *p, int32_t replica, int32_t stage,
                               struct error *err)
{
    const struct plan_stage *s = &p->replicas[replica].stages[stage];
    const struct device_type *t = type_of(p, s);
    const char *what = s->n_shards > 1 && sharding_tensor_degree(s->sharding) < 2
                           ? "is on several devices"
                       : s->zero                      ? "shards optimizer state"
                       : s->recompute                 ? "recomputes"
                       : s->offload                   ? "offloads activations"
                       : !sailor_gpu_of(t->catalogue) ? "is on a type outside Sailor's tables"
                                                      : NULL;
    if (!what) return OK;
    return error_set(
        err, ERR_INPUT, "replica %d, stage %d on %s (%s) %s: Sailor's format cannot express that",
        (int)replica, (int)stage, p->cluster.devices[s->device].name, t->catalogue, what);
}

/* Two stages of a replica have no device in common. */
static enum status check_apart(const struct plan *p, int32_t replica, const struct plan_stage *x,
                               const struct plan_stage *y, struct error *err)
{
    for (int32_t i = 0; i < plan_stage_devices(x); i++)
        for (int32_t k = 0; k < plan_stage_devices(y); k++)
            if (plan_stage_device(x, i) == plan_stage_device(y, k))
                return error_set(
                    err, ERR_INPUT,
                    "replica %d has several stages on %s: Sailor's format cannot express that",
                    (int)replica, p->cluster.devices[plan_stage_device(y, k)].name);
    return OK;
}

static enum status check(const struct plan *p, struct error *err)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        for (int32_t s = 0; s < x->n_stages; s++) {
            TRY(check_stage(p, r, s, err));
            for (int32_t i = 0; i < s; i++)
                TRY(check_apart(p, r, &x->stages[i], &x->stages[s], err));
        }
    }
    return OK;
}

/* --- output ---------------------------------------------------------------------------------- */

static void put_spot(struct json *j, const struct plan *p, const struct plan_stage *s,
                     const char *zone)
{
    const struct device_type *t = type_of(p, s);
    json_put_list_line(j, NULL);
    json_put_list(j, NULL);
    json_put_list(j, NULL);
    json_put_text(j, NULL, sailor_gpu_of(t->catalogue)->name);
    json_put_int(j, NULL, p->cluster.nodes[p->cluster.devices[s->device].node].n_devices);
    json_put_text(j, NULL, zone);
    json_close(j);
    json_close(j);
    json_put_int(j, NULL, plan_stage_devices(s));
    json_close(j);
}

static void put_layers(struct json *j, const struct plan_replica *x)
{
    json_put_list(j, "layers_per_stage");
    for (int32_t s = 0; s < x->n_stages; s++) {
        json_put_list_line(j, NULL);
        for (int32_t l = x->stages[s].first_layer; l <= x->stages[s].last_layer; l++)
            json_put_int(j, NULL, l);
        json_close(j);
    }
    json_close(j);
}

static void put_pipeline(struct json *j, const struct plan *p, int32_t first, const char *zone)
{
    const struct plan_replica *x = &p->replicas[first];
    json_put_object(j, NULL);
    json_put_int(j, "num_stages", x->n_stages);
    put_layers(j, x);
    json_put_list(j, "tmp_per_stage");
    for (int32_t s = 0; s < x->n_stages; s++) {
        json_put_list(j, NULL);
        for (int32_t r = first; r < p->n_replicas; r++)
            if (same_cuts(&p->replicas[r], x)) put_spot(j, p, &p->replicas[r].stages[s], zone);
        json_close(j);
    }
    json_close(j);
    json_put_list_line(j, "dp");
    for (int32_t s = 0; s < x->n_stages; s++) json_put_int(j, NULL, count(p, first));
    json_close(j);
    json_put_list_line(j, "microbatches");
    for (int32_t r = first; r < p->n_replicas; r++)
        if (same_cuts(&p->replicas[r], x)) json_put_int(j, NULL, p->replicas[r].microbatches);
    json_close(j);
    json_close(j);
}

enum status export_sailor(FILE *out, const struct plan *p, const struct export_request *q,
                          struct export_note *note, struct error *err)
{
    struct json j;
    const char *zone = q->zone ? q->zone : SAILOR_ZONE;
    TRY(check(p, err));
    *note =
        (struct export_note){"equal_shares", export_sailor_equal(p),
                             "the replicas' shares or numbers differ: Sailor's simulator, which "
                             "assumes equal ones, times another plan"};
    json_begin(&j, out, JSON_INDENTED);
    json_put_object(&j, NULL);
    json_put_text(&j, "zone", zone);
    json_put_list(&j, "pipeline_list");
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (begins(p, r)) put_pipeline(&j, p, r, zone);
    json_close(&j);
    json_put_int(&j, "mbs", p->microbatch);
    json_put_int(&j, "gbs", p->job.global_batch);
    json_put_bool(&j, note->key, note->holds);
    if (p->predicted_ns) json_put_double(&j, "iteration_s", units_s_from_ns(p->predicted_ns));
    json_close(&j);
    json_end(&j);
    return OK;
}
