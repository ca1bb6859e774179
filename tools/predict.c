#include "tools/predict.h"

#include "core/base/arena.h"
#include "sim/engine/representatives.h"
#include "tools/common.h"

static enum status explain_replicas(struct arena *a, struct cost *k, const struct sim_options *o,
                                    const bool *keep, struct prediction *out, struct error *err)
{
    struct program *some = ARENA_ARRAY(a, struct program, 1);
    struct sim_options one = *o;
    one.trace_path = NULL, one.fold = false;
    if (!representatives_make(a, &out->program, k, keep, some))
        return error_set(err, ERR_RESOURCE, "replicas share the tensors of a collective");
    TRY(sim_run(a, some, k, &one, &out->explained_result, err));
    out->explained = some;
    out->by_replicas = true;
    return OK;
}

/* All devices, with the trace of one replica of each class. */
static enum status trace_replicas(struct arena *a, struct cost *k, const struct sim_options *o,
                                  const bool *keep, const int32_t *of, struct prediction *out,
                                  struct error *err)
{
    struct sim_options one = *o;
    one.beside_trace = NULL, one.keep_trace = o->trace_path != NULL;
    one.trace_one_step = one.fold = true, one.trace_replicas = keep;
    TRY(sim_run(a, &out->program, k, &one, &out->result, err));
    if (out->result.trace && !out->result.traced)
        common_keep_classes(a, &out->program, keep, of, out->result.trace);
    return OK;
}

static void explain_all(struct prediction *out)
{
    out->explained_result = out->result;
    out->explained = out->result.traced ? out->result.traced : &out->program;
    if (out->result.traced) out->explained_result.devices = out->result.traced_devices;
}

static enum status within_memory(struct arena *a, const struct plan *plan, struct cost *k,
                                 const struct sim_options *o, bool explains, struct prediction *out,
                                 struct error *err)
{
    int32_t *of = ARENA_ARRAY(a, int32_t, (size_t)plan->n_replicas + 1);
    const bool *keep = common_one_of_each(a, plan, of);
    struct sim_options all = *o;
    struct error other;
    if (explains) all.trace_path = NULL;
    if (o->fold && !explains) return trace_replicas(a, k, o, keep, of, out, err);
    enum status st = sim_run(a, &out->program, k, &all, &out->result, err);
    if (st == OK && explains) explain_all(out);
    if (st != ERR_RESOURCE || !o->keep_trace) return st;
    if (explains && explain_replicas(a, k, o, keep, out, &other) != OK) return st;
    out->reduced = o->trace_path != NULL;
    return trace_replicas(a, k, o, keep, of, out, &other) == OK ? OK : st;
}

enum status predict(struct arena *a, const struct plan *plan, const struct profile *profile,
                    const struct sim_options *o, bool explains, struct prediction *out,
                    struct error *err)
{
    *out = (struct prediction){0};
    TRY(common_lower(a, plan, true, &out->program, err));
    TRY(within_memory(a, plan, cost_new(a, profile, &plan->cluster), o, explains, out, err));
    struct trace *const traces[] = {out->result.trace,
                                    explains ? out->explained_result.trace : NULL};
    for (int i = 0; i < 2; i++) {
        if (!traces[i]) continue;
        traces[i]->profile_id = profile->id;
        traces[i]->plan_text = common_plan_text(a, plan);
    }
    return OK;
}
