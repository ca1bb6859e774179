#include "profiles/device_speed.h"
#include "tools/predict.h"

#include "core/base/arena.h"
#include "sim/engine/representatives.h"
#include "tools/common.h"

/* Steps of an explanation of one replica of each class, whose spans all stay in memory. The first differs from a steady one where it
 * overlaps with its neighbours: on 10 classes of 203 devices (112 replicas on 10,240 GPUs) by 0.1 % of the iteration in the shares of
 * the waits and by nothing on the critical path; four steps take 2.5 GB, two 1.4 GB, one 0.9 GB. */
enum { EXPLAINED_STEPS = 1 };

static enum status explain_replicas(struct arena *a, struct cost *k, const struct sim_options *o,
                                    const bool *keep, struct prediction *out, struct error *err)
{
    struct program *some = ARENA_ARRAY(a, struct program, 1);
    struct sim_options one = *o;
    one.trace_path = NULL, one.fold = false;
    if (!one.steps) one.steps = EXPLAINED_STEPS;
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

/* The program of one replica of each class, and how many each of its devices represents; false: not possible, or not worth it. */
static bool reduce(struct arena *a, const struct plan *plan, const struct program *p,
                   struct cost *k, struct program *some, int32_t **stands_for)
{
    struct plan_class *x;
    int32_t n = common_classes(a, plan, &x);
    int32_t *size = ARENA_ARRAY(a, int32_t, (size_t)plan->n_replicas + 1);
    bool *keep = ARENA_ARRAY(a, bool, (size_t)plan->n_replicas + 1);
    for (int32_t i = 0; i < n; i++)
        keep[x[i].replicas[0]] = true, size[x[i].replicas[0]] = x[i].n;
    if (n == plan->n_replicas || !representatives_make(a, p, k, keep, some)) return false;
    *stands_for = ARENA_ARRAY(a, int32_t, (size_t)some->n_devices + 1);
    for (int32_t i = 0; i < some->n_devices; i++)
        (*stands_for)[i] = size[some->stages[some->lanes[i].stages[0]].replica];
    return true;
}

/* unproved: a deadlock is found by the simulation. */
static enum status metrics_in(struct arena *scratch, struct arena *a, const struct plan *plan,
                              const struct profile *profile, bool unproved, struct metrics_input *in,
                              struct metrics *out, struct error *err)
{
    struct program whole, some;
    struct sim_result r = {0};
    int32_t *stands_for = NULL;
    struct sim_options o = {.fold = true};
    TRY(common_lower_with(scratch, plan, (struct lower_options){.unproved = unproved}, &whole, err));
    in->program = &whole;
    if (!profile && !in->iteration_ns)
        return error_set(err, ERR_INPUT, "the plan states no predicted time");
    if (profile) {
        struct cost *k = cost_new(scratch, profile, &device_speed_plan(scratch, plan, profile)->cluster);
        if (in->iteration_ns && reduce(scratch, plan, &whole, k, &some, &stands_for))
            in->program = &some, in->stands_for = stands_for;
        TRY(sim_run(scratch, in->program, k, &o, &r, err));
        in->devices = r.devices, in->simulated_ns = r.iteration_ns, in->applied = r.applied;
        if (!in->iteration_ns) in->iteration_ns = r.iteration_ns;
    }
    return metrics_of(a, in, out, err);
}

void predict_metrics(struct arena *a, const struct plan *plan, const struct profile *profile,
                     int64_t known_ns, int64_t tokens, struct metrics *out)
{
    struct arena *scratch = arena_new();
    struct metrics_input in = {.plan = plan, .iteration_ns = known_ns, .tokens = tokens};
    struct error err = {0};
    bool known = profile && known_ns;
    enum status st = metrics_in(scratch, a, plan, profile, known, &in, out, &err);
    if (st == ERR_INPUT && known) /* only the check gives it more buffers */
        st = metrics_in(scratch, a, plan, profile, false, &in, out, &err);
    if (st != OK)
        *out = (struct metrics){.failed = arena_strdup(a, err.text)};
    arena_free(scratch);
}

static void explain_all(struct prediction *out)
{
    out->explained_result = out->result;
    out->explained = out->result.traced ? out->result.traced : &out->program;
    if (out->result.traced) out->explained_result.devices = out->result.traced_devices;
}

static enum status within_memory(struct arena *a, const struct plan *plan, struct cost *k,
                                 const struct sim_options *o, bool explains, int64_t known_ns,
                                 struct prediction *out, struct error *err)
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
    if (out->by_replicas && known_ns) {
        out->result.iteration_ns = known_ns;
        return OK;
    }
    out->reduced = o->trace_path != NULL;
    return trace_replicas(a, k, o, keep, of, out, &other) == OK ? OK : st;
}

enum status predict(struct arena *a, const struct plan *plan, const struct profile *profile,
                    const struct sim_options *o, bool explains, int64_t known_ns,
                    struct prediction *out, struct error *err)
{
    *out = (struct prediction){0};
    const struct plan *now = device_speed_plan(a, plan, profile);
    TRY(common_lower(a, now, true, &out->program, err));
    TRY(within_memory(a, plan, cost_new(a, profile, &now->cluster), o, explains, known_ns, out,
                      err));
    struct trace *const traces[] = {out->result.trace,
                                    explains ? out->explained_result.trace : NULL};
    for (int i = 0; i < 2; i++) {
        if (!traces[i]) continue;
        traces[i]->profile_id = profile->id;
        traces[i]->plan_text = common_plan_text(a, plan);
    }
    return OK;
}
