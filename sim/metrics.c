#include "sim/metrics.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "profiles/team.h"

#include <math.h>
#include <string.h>

enum { SECONDS_OF_DAY = 86400, SECONDS_OF_HOUR = 3600 };

static const struct device_type *type_of(const struct metrics_input *in, int32_t device)
{
    return &in->plan->cluster.types[in->program->devices[device].type_index];
}

/* --- FLOPs --- */

static enum status add_up(struct arena *scratch, const struct job *j, struct metrics_flops *out,
                          struct error *err)
{
    struct graph *g;
    TRY(lower_graph(scratch, j, 1, &g, err));
    TRY(gradient_build(g, 1, err));
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct op_shapes shapes;
        graph_op_shapes(g, &g->ops[i], &shapes);
        double flops = op_model_flops(g->ops[i].kind, &g->ops[i].attrs, &shapes);
        if (g->ops[i].phase == PHASE_U) continue;
        *(g->ops[i].phase == PHASE_F ? &out->forward : &out->backward) += flops;
    }
    return OK;
}

enum status metrics_model_flops(const struct job *j, struct metrics_flops *out, struct error *err)
{
    *out = (struct metrics_flops){0};
    if (j->model.measured) return OK;
    struct arena *scratch = arena_new();
    enum status st = add_up(scratch, j, out, err);
    arena_free(scratch);
    return st;
}

/* By one GPU. */
static double procedure_flops(const struct program_stage *s, const struct procedure *f)
{
    double flops = 0;
    for (int32_t i = 0; f->phase != PHASE_U && i < f->n_instrs; i++) {
        const struct program_op *op = &s->ops[f->instrs[i].arg];
        if (f->instrs[i].kind == INSTR_COMPUTE)
            flops += op_flops(op->kind, &op->attrs, &op->shapes);
    }
    return flops;
}

/* Executed by one GPU of a device in a step. */
static double lane_flops(struct arena *scratch, const struct program *p, int32_t lane)
{
    const struct lane *l = &p->lanes[lane];
    const struct order *o = &p->orders[l->order];
    double **of = ARENA_ARRAY(scratch, double *, (size_t)l->n_stages), flops = 0;
    for (int32_t c = 0; c < l->n_stages; c++) {
        const struct program_stage *s = &p->stages[l->stages[c]];
        of[c] = ARENA_ARRAY(scratch, double, (size_t)s->n_procedures);
        for (int32_t i = 0; i < s->n_procedures; i++)
            of[c][i] = procedure_flops(s, &s->procedures[i]);
    }
    for (int32_t r = 0; r < o->n_runs; r++)
        for (int32_t i = 0; i < o->runs[r].n_calls; i++) {
            const struct call *x = &o->runs[r].calls[i];
            flops += o->runs[r].repeat * of[x->chunk][x->procedure];
        }
    return flops;
}

/* --- devices --- */

static int64_t peak_of(const struct metrics_input *in, int32_t device)
{
    return in->devices ? in->devices[device].peak_bytes : program_lane_bytes(in->program, device);
}

static void add_device(const struct metrics_input *in, int32_t device, struct metrics_class *x)
{
    const struct device_type *t = type_of(in, device);
    int32_t n = in->stands_for ? in->stands_for[device] : 1;
    x->devices += n;
    x->memory_bytes = t->memory_bytes;
    x->peak_bytes = units_max(x->peak_bytes, peak_of(in, device));
    if (!in->devices || in->simulated_ns <= 0) return;
    const struct sim_device *d = &in->devices[device];
    double share = (double)n / (double)in->simulated_ns;
    x->busy += share * (double)(d->busy_ns - d->carried_ns);
    for (int w = 0; w < SIM_WAIT_COUNT; w++) x->wait[w] += share * (double)d->wait_ns[w];
}

static void note(const char **why, const char *text)
{
    if (!*why) *why = text;
}

/* Currencies are not mixed: the catalogue's prices apply to a cluster that states none. */
static bool states_price(const struct cluster *c)
{
    for (int32_t t = 0; t < c->n_types; t++)
        if (c->types[t].priced) return true;
    return false;
}

/* Means of a class; price, power and peak of its GPUs. */
static void add_class(struct arena *a, const struct device_type *t, enum dtype dtype,
                      struct metrics_class *x, struct metrics *out)
{
    double price = out->listed ? t->list_price_per_h : t->price_per_h;
    double n = (double)x->devices, slower = (t->slowdown > 0 ? t->slowdown : 1) * team_slower(t),
           peak = team_peak_flops(t, dtype) / slower;
    x->busy /= n;
    for (int w = 0; w < SIM_WAIT_COUNT; w++) x->wait[w] /= n;
    out->devices += x->devices;
    out->peak_flops += n * peak;
    out->power_w += n * t->power_w;
    out->price_per_h += n * price;
    out->priced |= t->priced;
    out->powered |= t->power_w > 0;
    if (!(peak > 0))
        note(&out->no_peak,
             arena_printf(a, "no %s peak of %s is known", dtype_name(dtype), x->type));
    if (out->listed ? !(price > 0) : !t->priced) note(&out->no_price, arena_printf(a, "no price of %s", x->type));
    if (!(t->power_w > 0)) note(&out->no_power, arena_printf(a, "no power of %s", x->type));
}

static void add_classes(struct arena *a, const struct metrics_input *in, struct metrics *out)
{
    const struct cluster *c = &in->plan->cluster;
    out->classes = ARENA_ARRAY(a, struct metrics_class, (size_t)c->n_types + 1);
    for (int32_t i = 0; i < in->program->n_devices; i++)
        add_device(in, i, &out->classes[in->program->devices[i].type_index]);
    for (int32_t t = 0; t < c->n_types; t++) {
        struct metrics_class *x = &out->classes[out->n_classes];
        if (!out->classes[t].devices) continue;
        *x = out->classes[t];
        x->type = c->types[t].name;
        add_class(a, &c->types[t], in->plan->job.precision, x, out);
        out->n_classes++;
    }
}

/* --- all --- */

static void fill_run(int64_t tokens, double seconds, struct metrics *out)
{
    double step = out->applied * (double)out->samples * (out->images ? 1 : out->tokens_per_s / out->samples_per_s);
    if (tokens <= 0) return;
    double steps = ceil((double)tokens / step), hours = steps * seconds / SECONDS_OF_HOUR;
    out->run = (struct metrics_run){.tokens = tokens,
                                    .steps = steps,
                                    .days = steps * seconds / SECONDS_OF_DAY,
                                    .cost = hours * out->price_per_h,
                                    .kwh = hours * out->power_w / 1000};
}

struct metrics_rate metrics_rate(const struct job *j, int64_t iteration_ns)
{
    struct metrics_rate r = {.images = model_pixels(&j->model) > 0};
    if (iteration_ns > 0)
        r.samples_per_s = (double)j->global_batch / units_s_from_ns(iteration_ns);
    if (!r.images) r.tokens_per_s = r.samples_per_s * (double)j->sequence_length;
    return r;
}

enum status metrics_of(struct arena *a, const struct metrics_input *in, struct metrics *out,
                       struct error *err)
{
    const struct job *j = &in->plan->job;
    double seconds = units_s_from_ns(in->iteration_ns);
    struct metrics_flops flops;
    TRY(metrics_model_flops(j, &flops, err));
    const struct metrics_rate rate = metrics_rate(j, in->iteration_ns);
    const double applied = in->applied > 0 ? in->applied : 1;
    *out = (struct metrics){.images = rate.images,
                            .simulated = in->devices != NULL,
                            .by_replicas = in->stands_for != NULL,
                            .precision = dtype_name(j->precision),
                            .iteration_ns = in->iteration_ns,
                            .samples = j->global_batch,
                            .samples_per_s = applied * rate.samples_per_s,
                            .tokens_per_s = applied * rate.tokens_per_s,
                            .applied = applied,
                            .listed = !states_price(&in->plan->cluster)};
    out->model_flops = (flops.forward + flops.backward) * (double)j->global_batch;
    if (j->model.measured) out->no_flops = "measured layers have no FLOPs";
    struct arena *scratch = arena_new();
    for (int32_t i = 0; !out->no_flops && i < in->program->n_devices; i++) {
        out->hardware_flops += (in->stands_for ? in->stands_for[i] : 1) *
                               lane_flops(scratch, in->program, i);
        arena_reset(scratch);
    }
    arena_free(scratch);
    add_classes(a, in, out);
    out->cost = out->price_per_h * (seconds / SECONDS_OF_HOUR);
    if (!out->no_flops && !out->no_peak) {
        out->mfu = applied * out->model_flops / (seconds * out->peak_flops);
        out->hfu = out->hardware_flops / (seconds * out->peak_flops);
    }
    fill_run(in->tokens ? in->tokens : j->run_tokens, seconds, out);
    return OK;
}
