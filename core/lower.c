/* core/lower.c - a plan to its program: the order of the steps, channels, memory, the proof.
 *
 * Everything a lane does is decided by the plan and by these rules; two calls with equal plans give
 * equal programs. The token game plays the result through before anybody gets it. Where it stops
 * and somebody waits for a buffer of messages to leave, those rings get more buffers, up to one for
 * each microbatch; where that does not help, the plan's orders themselves block, and the error
 * names who.
 */
#include "core/lower_internal.h"

#include "core/gradient.h"
#include "core/program_internal.h"
#include "core/units.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status lower_error(const struct lowering *l, const struct stage_build *b, struct error *err,
                        enum status code, const char *fmt, ...)
{
    char message[sizeof err->text], place[160] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (l->plan->file && b->plan->line)
        snprintf(place, sizeof place, "%s:%" PRId32 ":%" PRId32 ": ", l->plan->file, b->plan->line,
                 b->plan->column);
    return error_set(err, code, "%sreplicas[%" PRId32 "].stages[%" PRId32 "]: %s", place,
                     b->replica, b->stage, message);
}

enum status lower_graph(struct arena *a, const struct job *j, int64_t microbatch,
                        struct graph **out, struct error *err)
{
    TRY(model_graph(a, &j->model, j->precision, microbatch, j->sequence_length, out, err));
    graph_find_layers(*out);
    return OK;
}

enum status lower_training_graph(struct arena *a, const struct job *j, int64_t microbatch,
                                 const struct lower_options *o, struct graph **out,
                                 struct error *err)
{
    struct graph *g;
    if (microbatch < 1 || j->global_batch % microbatch)
        return error_set(err, ERR_INPUT,
                         "microbatch %" PRId64 " does not divide global_batch %" PRId64, microbatch,
                         j->global_batch);
    TRY(lower_graph(a, j, microbatch, &g, err));
    g = graph_fuse(g, o->fused, o->n_fused);
    *out = g;
    return gradient_build(g, (double)microbatch / (double)j->global_batch, err);
}

/* --- devices, links, stages --- */

static void copy_cluster(struct lowering *l)
{
    const struct cluster *c = &l->plan->cluster;
    struct program *p = l->p;
    p->devices = ARENA_ARRAY(l->a, struct program_device, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++) p->devices[i] = lower_device(c, l->lanes[i].device);
    lower_links(l);
}

static const struct device_type *type_of(const struct lowering *l, int32_t device)
{
    const struct cluster *c = &l->plan->cluster;
    return &c->types[c->devices[device].type];
}

/* Of measured layers parameters are whole, and so many cards share them; other graphs are one card's already. */
static int32_t cards_of(const struct lowering *l, int32_t device)
{
    if (!l->plan->job.model.measured) return 1;
    int32_t cards = type_of(l, device)->tensor_parallel;
    return cards > 1 ? cards : 1;
}

static void make_stage(struct lowering *l, int32_t index, int32_t replica, int32_t stage,
                       int32_t first_microbatch)
{
    const struct plan_replica *r = &l->plan->replicas[replica];
    const struct plan_stage *plan = &r->stages[stage];
    struct program_stage *s = &l->p->stages[index];
    *s = (struct program_stage){.replica = replica,
                                .stage = stage,
                                .first_layer = plan->first_layer,
                                .last_layer = plan->last_layer,
                                .microbatches = r->microbatches,
                                .first_microbatch = first_microbatch,
                                .recompute = plan->recompute != RECOMPUTE_NONE,
                                .cards = cards_of(l, plan->device),
                                .reserve_bytes = type_of(l, plan->device)->reserve_bytes};
    l->stages[index] = (struct stage_build){.s = s,
                                            .plan = plan,
                                            .index = index,
                                            .replica = replica,
                                            .stage = stage,
                                            .link_before = -1,
                                            .link_behind = -1};
    for (int32_t k = plan->first_layer; k <= plan->last_layer; k++)
        l->stage_of_layer[replica * l->g->n_layers + k] = index;
}

/* Devices in the order in which the plan first names them. */
static void make_lanes(struct lowering *l, int32_t replica, int32_t first_stage)
{
    struct plan_lane *found;
    int32_t n = plan_lanes(l->a, &l->plan->replicas[replica], &found);
    for (int32_t i = 0; i < n; i++) {
        struct lane_build *lane = &l->lanes[l->p->n_devices];
        *lane = (struct lane_build){.device = found[i].device,
                                    .replica = replica,
                                    .n_stages = found[i].n_stages,
                                    .stages = found[i].stages};
        for (int32_t c = 0; c < lane->n_stages; c++) {
            struct stage_build *b = &l->stages[lane->stages[c] += first_stage];
            b->chunk = c;
            b->s->device = l->p->n_devices;
        }
        l->p->n_devices++;
    }
}

static void make_stages(struct lowering *l)
{
    const struct plan *plan = l->plan;
    struct program *p = l->p;
    for (int32_t r = 0; r < plan->n_replicas; r++) p->n_stages += plan->replicas[r].n_stages;
    p->stages = ARENA_ARRAY(l->a, struct program_stage, (size_t)p->n_stages);
    l->stages = ARENA_ARRAY(l->a, struct stage_build, (size_t)p->n_stages);
    l->lanes = ARENA_ARRAY(l->a, struct lane_build, (size_t)p->n_stages);
    l->stage_of_layer =
        ARENA_ARRAY(l->a, int32_t, (size_t)plan->n_replicas * (size_t)l->g->n_layers);
    int32_t index = 0;
    for (int32_t r = 0; r < plan->n_replicas; r++) {
        int32_t first = index;
        for (int32_t s = 0; s < plan->replicas[r].n_stages; s++)
            make_stage(l, index++, r, s, p->microbatches);
        make_lanes(l, r, first);
        p->microbatches += plan->replicas[r].microbatches;
    }
}

static void make_head(struct lowering *l)
{
    const struct plan *plan = l->plan;
    *l->p = (struct program){.name = plan->name ? plan->name : "",
                             .plan_hash = plan_hash(l->a, plan),
                             .seed = plan->seed,
                             .dtype = l->g->dtype,
                             .emulated = plan->cluster.emulated,
                             .deterministic = plan->deterministic,
                             .steps = plan->steps > 0 ? plan->steps : 1,
                             .microbatch = plan->microbatch,
                             .sequence_length = plan->job.sequence_length,
                             .vocabulary = plan->job.model.vocabulary,
                             .optimizer = plan->job.optimizer};
}

/* --- channels --- */

/* A route blocks where one of its hops does. */
static bool is_blocking(const struct lowering *l, int32_t link)
{
    const struct cluster *c = &l->plan->cluster;
    const struct program_link *k = &l->p->links[link];
    bool any =
        (link < c->n_links && c->links[link].blocking) || (k->paired && c->links[k->of].blocking);
    for (int32_t i = 0; i < k->n_hops; i++) any |= c->links[k->hop[i]].blocking;
    return any;
}

static enum status make_channel(struct lowering *l, const struct stage_build *from,
                                const struct stage_build *to, int32_t tensor, bool gradient,
                                int32_t *index, int32_t *blocking, struct error *err)
{
    const struct tensor *t = &l->g->tensors[tensor];
    struct channel c = {.from_stage = from->index,
                        .to_stage = to->index,
                        .gradient = gradient,
                        .bytes = shape_elements(&t->shape) * dtype_bytes(t->dtype),
                        .receive_ahead = to->plan->receive_ahead > 0 ? to->plan->receive_ahead : 1};
    *blocking = -1;
    if (from->s->device == to->s->device)
        c.link = -1;
    else
        TRY(lower_link(l, from, to, &c.link, &c.direction, err));
    if (c.link >= 0 && is_blocking(l, c.link)) *blocking = c.link, c.link = -1;
    l->p->channels[ *index = l->p->n_channels++] = c;
    return OK;
}

/* A channel for each tensor of a cut, from one stage to the next one in its direction. */
static enum status make_edge(struct lowering *l, struct stage_build *from, struct stage_build *to,
                             const struct cut *cut, bool gradient, int32_t *blocking,
                             struct error *err)
{
    enum edge out = gradient ? GRADIENTS_OUT : ACTIVATIONS_OUT,
              in = gradient ? GRADIENTS_IN : ACTIVATIONS_IN;
    for (int32_t side = 0; side < 2; side++) {
        struct crossings *c = side ? &to->edge[in] : &from->edge[out];
        *c = (struct crossings){cut->n, ARENA_ARRAY(l->a, struct crossing, (size_t)cut->n)};
    }
    for (int32_t i = 0; i < cut->n; i++) {
        struct crossing x = {.tensor = cut->tensor[i], .copy = -1};
        TRY(make_channel(l, from, to, x.tensor, gradient, &x.channel, blocking, err));
        from->edge[out].list[i] = to->edge[in].list[i] = x;
    }
    return OK;
}

static enum status make_channels(struct lowering *l, struct error *err)
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) l->p->channels = ARENA_ARRAY(l->a, struct channel, n);
        for (int32_t i = 0; i + 1 < l->p->n_stages; i++) {
            struct stage_build *a = &l->stages[i], *b = &l->stages[i + 1];
            if (a->replica != b->replica) continue;
            const struct cut *forward = &l->g->cut[a->plan->last_layer],
                             *back = &l->gradient_cut[a->plan->last_layer];
            n += (size_t)(forward->n + back->n);
            if (!pass) continue;
            TRY(make_edge(l, a, b, forward, false, &a->link_behind, err));
            b->link_before = a->link_behind;
            TRY(make_edge(l, b, a, back, true, &b->link_before, err));
        }
    }
    return OK;
}

static void join_channels(struct lowering *l, const struct stage_build *b)
{
    for (int32_t e = 0; e < EDGE_COUNT; e++) {
        bool gives = e == ACTIVATIONS_OUT || e == GRADIENTS_OUT;
        const int32_t *slot =
            e == GRADIENTS_IN || e == GRADIENTS_OUT ? l->slot_back : l->slot_forward;
        for (int32_t i = 0; i < b->edge[e].n; i++) {
            const struct crossing *x = &b->edge[e].list[i];
            struct channel *c = &l->p->channels[x->channel];
            int32_t at = x->copy >= 0 ? x->copy : slot[x->tensor];
            *(gives ? &c->from_slot : &c->to_slot) = at;
        }
    }
}

/* --- memory --- */

static void ring_bytes(struct program_stage *s)
{
    s->class_bytes[SLOT_RING] = 0;
    for (int32_t i = 0; i < s->n_rings; i++)
        s->class_bytes[SLOT_RING] += s->rings[i].count * s->rings[i].stride_bytes;
}

struct holder {
    const char *name;
    int64_t bytes;
};

/* What a device's stages hold together, the largest first. */
static const char *holders_text(const struct lowering *l, const struct lane_build *lane)
{
    int64_t bytes[SLOT_CLASS_COUNT + 1] = {0}, reserve = 0;
    int32_t most = 0;
    for (int32_t c = 0; c < lane->n_stages; c++) {
        const struct program_stage *s = &l->p->stages[lane->stages[c]];
        for (int32_t i = 0; i <= SLOT_CLASS_COUNT; i++) bytes[i] += program_card_bytes(s, i);
        reserve = s->reserve_bytes;
        for (int32_t i = 0; i < s->n_rings; i++)
            most = s->rings[i].count > most ? s->rings[i].count : most;
    }
    struct holder h[] = {
        {arena_printf(l->a, "activations (%" PRId32 " buffers)", most), bytes[SLOT_RING]},
        {"parameters", bytes[SLOT_PARAMETER]},
        {"gradients", bytes[SLOT_GRADIENT]},
        {"optimizer state", bytes[SLOT_STATE]},
        {"scratch", bytes[SLOT_SCRATCH]},
        {"reserve", reserve},
        {"collective buffers", bytes[SLOT_CLASS_COUNT]}};
    enum { N = sizeof h / sizeof *h };
    for (int i = 1; i < N; i++)
        for (int k = i; k > 0 && h[k].bytes > h[k - 1].bytes; k--) {
            struct holder t = h[k];
            h[k] = h[k - 1], h[k - 1] = t;
        }
    const char *text = "";
    char one[32];
    for (int i = 0; i < N && h[i].bytes > 0; i++)
        text = arena_printf(l->a, "%s%s%s %s", text, i ? ", " : "", h[i].name,
                            units_print_bytes(one, (double)h[i].bytes));
    return text;
}

static enum status too_big(const struct lowering *l, int32_t device, struct error *err)
{
    const struct lane_build *lane = &l->lanes[device];
    char needs[32], has[32], one[32];
    int64_t need = program_lane_bytes(l->p, device), have = l->p->devices[device].memory_bytes;
    units_print_bytes(needs, (double)need), units_print_bytes(has, (double)have);
    if (!strcmp(needs, has)) {
        snprintf(needs, sizeof needs, "%" PRId64 " B", need);
        snprintf(has, sizeof has, "%" PRId64 " B", have);
    }
    return lower_error(l, &l->stages[lane->stages[0]], err, ERR_INFEASIBLE,
                       "%s: needs %s of %s, lacks %s: %.256s", l->p->devices[device].name, needs,
                       has, units_print_bytes(one, (double)(need - have)), holders_text(l, lane));
}

static enum status check_memory(const struct lowering *l, struct error *err)
{
    int64_t most = 0; /* the device that lacks most is named */
    int32_t fullest = -1;
    for (int32_t i = 0; i < l->p->n_devices; i++) {
        int64_t lacks = program_lane_bytes(l->p, i) - l->p->devices[i].memory_bytes;
        if (lacks > most) most = lacks, fullest = i;
    }
    return fullest < 0 ? OK : too_big(l, fullest, err);
}

/* --- the proof --- */

static bool more_buffers(struct lowering *l, const struct blocked_ring *blocked, int32_t n)
{
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        struct program_stage *s = &l->p->stages[blocked[i].stage];
        struct ring *r = &s->rings[blocked[i].ring];
        if (r->count >= s->microbatches) continue;
        r->count = 2 * r->count < s->microbatches ? 2 * r->count : s->microbatches;
        any = true;
        ring_bytes(s);
    }
    return any;
}

static enum status prove(struct lowering *l, struct error *err)
{
    for (;;) {
        struct blocked_ring *blocked;
        int32_t n;
        struct error why = {0};
        enum status status = program_play(l->a, l->p, &blocked, &n, &why);
        if (status == OK) return OK;
        if (!more_buffers(l, blocked, n))
            return error_set(err, status, "%s%s%s", l->plan->file ? l->plan->file : "",
                             l->plan->file ? ": " : "", why.text);
    }
}

static void make_arrays(struct lowering *l)
{
    size_t n = (size_t)l->g->n_tensors, units = (size_t)l->n_units;
    l->slot_forward = ARENA_ARRAY(l->a, int32_t, n), l->slot_back = ARENA_ARRAY(l->a, int32_t, n);
    l->uses_forward = ARENA_ARRAY(l->a, uint8_t, n), l->uses_back = ARENA_ARRAY(l->a, uint8_t, n);
    l->apart_slot = ARENA_ARRAY(l->a, int32_t, units),
    l->sum_slot = ARENA_ARRAY(l->a, int32_t, units);
    l->done_at = ARENA_ARRAY(l->a, int32_t, units);
    l->rerun = ARENA_ARRAY(l->a, bool, (size_t)l->g->n_ops);
}

/* What was measured whole can neither be split nor be shared by any number of cards. */
static enum status check_measured(const struct lowering *l, const struct stage_build *b,
                                  struct error *err)
{
    const struct graph *g = l->g;
    for (int32_t i = 0; i < g->n_forward; i++) {
        if (g->ops[i].kind != OP_measured_forward || !lower_owns(b, g->ops[i].layer)) continue;
        if (b->split)
            return lower_error(l, b, err, ERR_INPUT,
                               "the backward of a measured layer is one: its order has F and B");
        const struct shares *s = g->tensors[g->ops[i].output[1]].shares;
        if (s && shares_at(s, b->s->cards) < 0)
            return lower_error(l, b, err, ERR_INPUT,
                               "layer %s was not measured on %" PRId32 " cards",
                               g->layer_name[g->ops[i].layer], b->s->cards);
    }
    return OK;
}

enum status lower_plan_graph(struct arena *a, const struct plan *p, const struct graph *g,
                             const struct lower_options *o, struct program *out, struct error *err)
{
    struct lowering l = {.a = a, .plan = p, .g = g, .o = o, .p = out};
    TRY(plan_check(p, g->n_layers, err));
    make_head(&l);
    make_stages(&l);
    copy_cluster(&l);
    l.gradient_cut = graph_gradient_cuts(a, g);
    TRY(lower_units(&l, err));
    make_arrays(&l);
    TRY(make_channels(&l, err));
    TRY(lower_orders(&l, err));
    for (int32_t i = 0; i < out->n_stages; i++) TRY(check_measured(&l, &l.stages[i], err));
    TRY(lower_groups(&l, err));
    lower_launches(&l);
    for (int32_t i = 0; i < out->n_stages; i++) {
        struct stage_build *b = &l.stages[i];
        lower_slots(&l, b);
        lower_procedures(&l, b);
        lower_scratch(&l, b);
        lower_ring_counts(&l, b);
        ring_bytes(b->s);
        join_channels(&l, b);
        lower_group_segments(&l, b);
    }
    lower_share_orders(&l);
    TRY(prove(&l, err));
    return o->check_memory ? check_memory(&l, err) : OK;
}

enum status lower_plan(struct arena *a, const struct plan *p, const struct lower_options *o,
                       struct program *out, struct error *err)
{
    struct graph *g = NULL;
    TRY(lower_training_graph(a, &p->job, p->microbatch, o, &g, err));
    return lower_plan_graph(a, p, g, o, out, err);
}
