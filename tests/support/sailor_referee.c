#include "tests/support/sailor_referee.h"

#include "core/base/arena.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STAGES_MAX = 32, REPLICAS_MAX = 512, LAYERS_MAX = 64 };

struct spot {
    const char *gpu;
    int64_t tp, node_gpus;
};

struct pipe {
    int32_t n_stages, n_replicas;
    int32_t first[STAGES_MAX], last[STAGES_MAX];
    struct spot *spot;     /* (n_replicas, n_stages) */
    int64_t *microbatches; /* (n_replicas) */
};

struct referee {
    struct arena *a;
    const struct node *times, *sizes, *curves; /* of the model; "inter" */
    int64_t mbs, gbs;
    int32_t n_pipes;
    struct pipe *pipes;
    struct error *err;
};

static const char *digits(struct referee *r, int64_t n)
{
    return arena_printf(r->a, "%lld", (long long)n);
}

/* --- reading the plan ------------------------------------------------------------------------ */

static enum status list_of(const struct node *map, const char *key, size_t least,
                           const struct node **out, struct error *err)
{
    TRY(node_need(map, key, out, err));
    TRY(node_is(*out, NODE_LIST, err));
    return (*out)->count >= least ? OK : node_error(*out, err, "has %zu members", (*out)->count);
}

static enum status read_layers(struct referee *r, const struct node *n, struct pipe *p)
{
    int64_t layer, next = 0;
    p->n_stages = (int32_t)n->count;
    if (p->n_stages > STAGES_MAX) return node_error(n, r->err, "too many stages");
    for (int32_t s = 0; s < p->n_stages; s++) {
        const struct node *list = n->members[s];
        p->first[s] = (int32_t)next;
        for (size_t i = 0; i < list->count; i++, next++) {
            TRY(node_int(list->members[i], 0, LAYERS_MAX, &layer, r->err));
            if (layer != next) return node_error(list->members[i], r->err, "out of order");
        }
        p->last[s] = (int32_t)next - 1;
    }
    const struct node *one = r->sizes->members[0];
    return next == (int64_t)one->count ? OK : node_error(n, r->err, "not all layers");
}

/* [[["V100-16", 4, "zone"]], 2] */
static enum status read_spot(struct referee *r, const struct node *n, struct spot *out)
{
    TRY(node_is(n, NODE_LIST, r->err));
    if (n->count != 2 || n->members[0]->count != 1 || n->members[0]->members[0]->count != 3)
        return node_error(n, r->err, "not [[[GPU, GPUs, zone]], GPUs]");
    const struct node *vm = n->members[0]->members[0];
    TRY(node_text(vm->members[0], &out->gpu, r->err));
    TRY(node_int(vm->members[1], 1, 64, &out->node_gpus, r->err));
    return node_int(n->members[1], 1, 64, &out->tp, r->err);
}

static enum status read_pipe(struct referee *r, const struct node *n, struct pipe *p)
{
    const struct node *layers, *diverse_starts, *shares;
    TRY(list_of(n, "layers_per_stage", 1, &layers, r->err));
    TRY(list_of(n, "tmp_per_stage", layers->count, &diverse_starts, r->err));
    TRY(read_layers(r, layers, p));
    p->n_replicas = (int32_t)diverse_starts->members[0]->count;
    TRY(list_of(n, "microbatches", (size_t)p->n_replicas, &shares, r->err));
    if (p->n_replicas < 1 || p->n_replicas > REPLICAS_MAX)
        return node_error(diverse_starts, r->err, "%d replicas", (int)p->n_replicas);
    p->spot = ARENA_ARRAY(r->a, struct spot, (size_t)p->n_replicas * (size_t)p->n_stages);
    p->microbatches = ARENA_ARRAY(r->a, int64_t, (size_t)p->n_replicas);
    for (int32_t k = 0; k < p->n_replicas; k++) {
        TRY(node_int(shares->members[k], 1, 1 << 24, &p->microbatches[k], r->err));
        for (int32_t s = 0; s < p->n_stages; s++) {
            if (diverse_starts->members[s]->count != (size_t)p->n_replicas)
                return node_error(diverse_starts->members[s], r->err, "stages differ in replicas");
            TRY(read_spot(r, diverse_starts->members[s]->members[k], &p->spot[k * p->n_stages + s]));
        }
    }
    return OK;
}

static enum status read_plan(struct referee *r, const struct node *plan)
{
    const struct node *list, *n;
    TRY(list_of(plan, "pipeline_list", 1, &list, r->err));
    TRY(node_need(plan, "mbs", &n, r->err));
    TRY(node_int(n, 1, 1 << 20, &r->mbs, r->err));
    TRY(node_need(plan, "gbs", &n, r->err));
    TRY(node_int(n, 1, 1 << 24, &r->gbs, r->err));
    r->n_pipes = (int32_t)list->count;
    r->pipes = ARENA_ARRAY(r->a, struct pipe, list->count);
    int64_t all = 0;
    for (int32_t i = 0; i < r->n_pipes; i++) {
        TRY(read_pipe(r, list->members[i], &r->pipes[i]));
        for (int32_t k = 0; k < r->pipes[i].n_replicas; k++) all += r->pipes[i].microbatches[k];
    }
    return all * r->mbs == r->gbs ? OK : node_error(plan, r->err, "the shares are no batch");
}

/* --- the tables ------------------------------------------------------------------------------ */

static enum status layer_seconds(struct referee *r, const struct spot *x, int32_t layer,
                                 double *compute, double *update)
{
    const struct node *n;
    double forward, backward;
    TRY(node_need(r->times, x->gpu, &n, r->err));
    TRY(node_need(n, digits(r, r->mbs), &n, r->err));
    TRY(node_need(n, digits(r, x->tp), &n, r->err));
    TRY(node_need(n, digits(r, layer), &n, r->err));
    TRY(node_double(n->members[0], 0, 1e6, &forward, r->err));
    TRY(node_double(n->members[1], 0, 1e6, &backward, r->err));
    TRY(node_double(n->members[2], 0, 1e6, update, r->err));
    *compute = forward + backward;
    return OK;
}

static enum status size_of(struct referee *r, int64_t tp, int32_t layer, const char *key,
                           double *out)
{
    const struct node *n;
    TRY(node_need(r->sizes, digits(r, tp), &n, r->err));
    TRY(node_need(n, digits(r, layer), &n, r->err));
    TRY(node_need(n, key, &n, r->err));
    return node_double(n, 0, 1e15, out, r->err);
}

struct curve {
    double c[3], most;
};

static enum status one_curve(struct referee *r, const char *gpu, int64_t tp, struct curve *out)
{
    const struct node *n;
    TRY(node_need(r->curves, gpu, &n, r->err));
    TRY(node_need(n, digits(r, tp), &n, r->err));
    for (int i = 0; i < 3; i++)
        TRY(node_double(n->members[0]->members[i], -1e3, 1e3, &out->c[i], r->err));
    return node_double(n->members[1], 1, 1e15, &out->most, r->err);
}

static double seconds_of(const struct curve *k, double bytes)
{
    double y = log2(bytes / 1e6);
    return bytes / 1e9 / (k->c[0] * y * y + k->c[1] * y + k->c[2]);
}

static enum status curve_of(struct referee *r, const struct spot *x, int64_t x_gpus,
                            const struct spot *y, int64_t y_gpus, struct curve *out)
{
    struct curve other;
    TRY(one_curve(r, x->gpu, x_gpus, out));
    TRY(one_curve(r, y->gpu, y_gpus, &other));
    if (other.most < out->most) *out = other;
    return OK;
}

static int64_t port_gpus(const struct spot *x)
{
    return x->tp < x->node_gpus ? x->tp : x->node_gpus;
}

/* --- the form -------------------------------------------------------------------------------- */

static const struct spot *spot_of(const struct pipe *p, int32_t replica, int32_t stage)
{
    return &p->spot[replica * p->n_stages + stage];
}

static enum status compute_of(struct referee *r, const struct pipe *p, int32_t k, int32_t s,
                              double *compute, double *update)
{
    *compute = 0;
    for (int32_t l = p->first[s]; l <= p->last[s]; l++) {
        double seconds;
        TRY(layer_seconds(r, spot_of(p, k, s), l, &seconds, update));
        *compute += seconds;
    }
    return OK;
}

/* One way between neighbouring stages of a replica; the bytes of `layer`'s output. */
static enum status send(struct referee *r, const struct pipe *p, int32_t k, int32_t from,
                        int32_t to, int32_t layer, double *out)
{
    const struct spot *x = spot_of(p, k, from), *y = spot_of(p, k, to);
    struct curve c;
    double floats;
    TRY(size_of(r, 1, layer, "act_output_floats", &floats));
    TRY(curve_of(r, x, port_gpus(x), y, port_gpus(y), &c));
    *out = seconds_of(&c, floats * 4 * (double)r->mbs);
    return OK;
}

static double messages(const struct pipe *p, int32_t s, double activation, double gradient)
{
    if (p->n_stages == 1) return 0;
    if (s == p->n_stages - 1) return 2 * gradient;
    if (s == 0) return p->n_stages <= 3 ? activation : 2 * activation;
    return activation + gradient;
}

/* Its formula takes the output of a stage's first layer for the gradient it hands back: equal for all but the head alone. */
static enum status messages_of(struct referee *r, const struct pipe *p, int32_t k, int32_t s,
                               double *activation, double *gradient)
{
    *activation = *gradient = 0;
    if (s + 1 < p->n_stages) TRY(send(r, p, k, s, s + 1, p->last[s], activation));
    if (s > 0) TRY(send(r, p, k, s, s - 1, p->first[s], gradient));
    return OK;
}

struct parts {
    double compute, messages, worst, update;
};

/* Replicas first … last of a pipeline as one: the slowest of each stage. */
static enum status pipe_parts(struct referee *r, const struct pipe *p, int32_t first, int32_t last,
                              struct parts *out)
{
    *out = (struct parts){0};
    for (int32_t s = 0; s < p->n_stages; s++) {
        double slowest = 0, there = 0, back = 0;
        for (int32_t k = first; k <= last; k++) {
            double compute, update, activation, gradient;
            TRY(compute_of(r, p, k, s, &compute, &update));
            TRY(messages_of(r, p, k, s, &activation, &gradient));
            slowest = fmax(slowest, compute), out->update = fmax(out->update, update);
            there = fmax(there, activation), back = fmax(back, gradient);
        }
        double m = messages(p, s, there, back);
        out->compute += slowest, out->messages += m;
        out->worst = fmax(out->worst, slowest + m);
    }
    return OK;
}

static double ring(const struct curve *c, double bytes, int32_t members)
{
    double seconds = 0;
    for (; members > 1 && bytes > 0; bytes -= 5e8)
        seconds += 2 * (members - 1) * seconds_of(c, fmin(bytes, 5e8) / members);
    return seconds;
}

static enum status stage_bytes(struct referee *r, const struct pipe *p, int32_t s, double *out)
{
    *out = 0;
    for (int32_t l = p->first[s]; l <= p->last[s]; l++) {
        double floats;
        TRY(size_of(r, 1, l, "params_floats", &floats));
        *out += 4 * floats;
    }
    return OK;
}

static int64_t least_tp(const struct pipe *p, int32_t s)
{
    int64_t least = 4;
    for (int32_t k = 0; k < p->n_replicas; k++)
        if (spot_of(p, k, s)->tp < least) least = spot_of(p, k, s)->tp;
    return least;
}

/* Neighbours of a ring over one stage's replicas, one GPU each. */
static enum status reduce_inside(struct referee *r, const struct pipe *p, int32_t s,
                                 int32_t members, double *out)
{
    double bytes;
    TRY(stage_bytes(r, p, s, &bytes));
    for (int32_t k = 0; k + 1 < p->n_replicas || k == 0; k++) {
        struct curve c;
        int32_t next = k + 1 < p->n_replicas ? k + 1 : k;
        TRY(curve_of(r, spot_of(p, k, s), 1, spot_of(p, next, s), 1, &c));
        *out = fmax(*out, ring(&c, bytes / (double)least_tp(p, s), members));
    }
    return OK;
}

static enum status reduce_between(struct referee *r, double *out)
{
    const struct pipe *p = &r->pipes[0];
    for (int32_t i = 1; i < r->n_pipes; i++)
        if (r->pipes[i].n_stages > p->n_stages) p = &r->pipes[i];
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t k = 0; k < p->n_replicas; k++) {
            struct curve c;
            double bytes;
            TRY(stage_bytes(r, p, s, &bytes));
            TRY(one_curve(r, spot_of(p, k, s)->gpu, 1, &c));
            *out = fmax(*out, ring(&c, bytes, r->n_pipes));
        }
    return OK;
}

static enum status reduce_of(struct referee *r, bool own_shares, double *out)
{
    double inside = 0, between = 0;
    int32_t members = 0;
    for (int32_t i = 0; i < r->n_pipes; i++) members += r->pipes[i].n_replicas;
    for (int32_t i = 0; i < r->n_pipes; i++)
        for (int32_t s = 0; s < r->pipes[i].n_stages; s++)
            TRY(reduce_inside(r, &r->pipes[i], s, own_shares ? members : r->pipes[i].n_replicas,
                              &inside));
    if (!own_shares) TRY(reduce_between(r, &between));
    *out = inside + between;
    return OK;
}

static void take(struct sailor_score *out, const struct parts *x, int64_t m)
{
    double straggler = (double)(m - 1) * x->worst, sum = x->compute + x->messages + x->update;
    if (sum + straggler <= out->total_s) return;
    *out = (struct sailor_score){.total_s = sum + straggler,
                                 .compute_s = x->compute,
                                 .messages_s = x->messages,
                                 .straggler_s = straggler,
                                 .update_s = x->update};
}

static enum status memory(struct referee *r, const struct pipe *p, int32_t k, int32_t s,
                          double *over)
{
    const struct spot *x = spot_of(p, k, s);
    double parameters = 0, kept = 0, floats;
    for (int32_t l = p->first[s]; l <= p->last[s]; l++) {
        TRY(size_of(r, x->tp, l, "params_floats", &floats));
        parameters += floats;
        TRY(size_of(r, x->tp, l, "act_mem_floats", &floats));
        kept += floats;
    }
    double room = (strcmp(x->gpu, "V100-16") == 0 ? 16 : 40) * 0x1p30;
    *over = fmax(*over, 24 * parameters + 4 * kept * (double)r->mbs * (p->n_stages - s) +
                            (x->tp == 1 ? 2e9 : 3e9) - room);
    return OK;
}

static enum status judge(struct referee *r, bool own_shares, struct sailor_score *out)
{
    double reduce, over = -INFINITY;
    struct parts x;
    /* Its number of replicas is the last pipeline's. */
    int64_t each = r->mbs * r->pipes[r->n_pipes - 1].n_replicas * r->n_pipes;
    *out = (struct sailor_score){0};
    for (int32_t i = 0; i < r->n_pipes; i++) {
        const struct pipe *p = &r->pipes[i];
        for (int32_t k = 0; k < p->n_replicas; k++)
            for (int32_t s = 0; s < p->n_stages; s++) TRY(memory(r, p, k, s, &over));
        for (int32_t k = 0; own_shares && k < p->n_replicas; k++) {
            TRY(pipe_parts(r, p, k, k, &x));
            take(out, &x, p->microbatches[k]);
        }
        if (own_shares) continue;
        TRY(pipe_parts(r, p, 0, p->n_replicas - 1, &x));
        take(out, &x, (r->gbs + each - 1) / each);
    }
    TRY(reduce_of(r, own_shares, &reduce));
    out->reduce_s = reduce, out->total_s += reduce;
    out->worst_bytes_over = over, out->fits = over <= 0;
    return OK;
}

static enum status open_table(struct referee *r, const char *folder, const char *file,
                              const char *member, const struct node **out)
{
    struct node *root;
    TRY(document_read(r->a, arena_printf(r->a, "%s/%s", folder, file), &root, r->err));
    return node_need(root, member, out, r->err);
}

enum status sailor_referee(struct arena *a, const char *folder, const char *model,
                           const struct node *plan, bool own_shares, struct sailor_score *out,
                           struct error *err)
{
    struct referee r = {.a = a, .err = err};
    TRY(open_table(&r, folder, "profiles_tmp.json", model, &r.times));
    TRY(open_table(&r, folder, "llm_info.json", model, &r.sizes));
    TRY(open_table(&r, folder, "network_coeffs_all_homo.json", "inter", &r.curves));
    TRY(read_plan(&r, plan));
    return judge(&r, own_shares, out);
}
