/* core/lower/lower.c - plan → program: the order of the steps, channels, memory, the deadlock check.
 *
 * The plan and these rules determine all lanes; equal plans give
 * equal programs. The token game executes every result before it is returned. If it deadlocks
 * while a lane waits for a message to leave a buffer, the buffer rings concerned get more buffers, up to one for
 * each microbatch; if that does not help, the plan's orders themselves deadlock, and the error
 * names the blocked lanes.
 */
#include "core/lower/channels.h"
#include "core/lower/equal_stages.h"
#include "core/lower/groups.h"
#include "core/lower/launches.h"
#include "core/lower/layer_classes.h"
#include "core/lower/links.h"
#include "core/lower/memo.h"
#include "core/lower/orders.h"
#include "core/lower/outer.h"
#include "core/lower/param_uses.h"
#include "core/lower/procedures.h"
#include "core/lower/scratch.h"
#include "core/lower/servers.h"
#include "core/lower/slots.h"
#include "core/lower/tensor_collectives.h"
#include "core/lower/uses.h"

#include "core/base/stop.h"
#include "core/base/units.h"
#include "core/graph/gradient.h"
#include "core/program/device_memory.h"
#include "core/program/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PRINTF_LIKE(7, 0)
static enum status stage_verror(const struct plan *p, const struct plan_stage *x, int32_t replica,
                                int32_t stage, struct error *err, enum status code,
                                const char *fmt, va_list ap)
{
    char message[sizeof err->text], place[160] = "";
    error_format(message, sizeof message, fmt, ap);
    if (p->file && x->line)
        snprintf(place, sizeof place, "%s:%" PRId32 ":%" PRId32 ": ", p->file, x->line, x->column);
    return error_set(err, code, "%sreplicas[%" PRId32 "].stages[%" PRId32 "]: %s", place, replica,
                     stage, message);
}

PRINTF_LIKE(7, 8)
static enum status stage_error(const struct plan *p, const struct plan_stage *x, int32_t replica,
                               int32_t stage, struct error *err, enum status code, const char *fmt,
                               ...)
{
    va_list ap;
    va_start(ap, fmt);
    enum status st = stage_verror(p, x, replica, stage, err, code, fmt, ap);
    va_end(ap);
    return st;
}

enum status lower_error(const struct lowering *l, const struct stage_build *b, struct error *err,
                        enum status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    enum status st = stage_verror(l->plan, b->plan, b->replica, b->stage, err, code, fmt, ap);
    va_end(ap);
    return st;
}

/* --- devices, links --- */

static void copy_cluster(struct lowering *l)
{
    const struct cluster *c = &l->plan->cluster;
    struct program *p = l->p;
    p->devices = ARENA_ARRAY(l->a, struct program_device, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++) p->devices[i] = lower_device(c, l->lanes[i].device);
    l->links = links_new(l->a, c, p);
}

static void make_head(struct lowering *l)
{
    const struct plan *plan = l->plan;
    *l->p = (struct program){.name = plan->name ? plan->name : "",
                             .plan_hash = l->o->timed_only ? 0 : plan_hash(l->a, plan),
                             .seed = plan->seed,
                             .dtype = plan->job.precision,
                             .emulated = plan->cluster.emulated,
                             .deterministic = plan->deterministic,
                             .steps = plan->steps > 0 ? plan->steps : 1,
                             .microbatch = plan->microbatch,
                             .sequence_length = plan->job.sequence_length,
                             .vocabulary = plan->job.model.vocabulary,
                             .n_experts = (int32_t)plan->job.model.experts,
                             .n_expert_blocks = plan->job.model.n_expert_blocks,
                             .expert_blocks = plan->job.model.expert_blocks,
                             .pixels = model_pixels(&plan->job.model),
                             .loss_scale = plan->job.model.measured ? (struct loss_scale){0}
                                                                    : plan->job.loss_scale,
                             .optimizer = optimizer_of_batch(&plan->job.optimizer, plan->job.global_batch),
                             .outer = plan->local_sgd.outer,
                             .gradient_noise = plan->gradient_noise_scale,
                             .server = plan->servers.rule};
}

/* --- memory --- */

static void buffer_ring_bytes(struct program_stage *s)
{
    s->class_bytes[SLOT_BUFFER_RING] = 0;
    for (int32_t i = 0; i < s->n_buffer_rings; i++)
        s->class_bytes[SLOT_BUFFER_RING] +=
            s->buffer_rings[i].count * s->buffer_rings[i].stride_bytes;
}

struct holder {
    const char *name;
    int64_t bytes;
};

/* Memory of all stages of a device, the largest part first. */
static const char *holders_text(struct arena *a, const struct program *p, const struct lane *lane)
{
    int64_t bytes[SLOT_CLASS_COUNT + 1] = {0}, reserve = 0;
    int32_t most = 0;
    for (int32_t c = 0; c < lane->n_stages; c++) {
        const struct program_stage *s = &p->stages[lane->stages[c]];
        for (int32_t i = 0; i <= SLOT_CLASS_COUNT; i++) bytes[i] += program_class_bytes(s, i);
        reserve = s->reserve_bytes;
        for (int32_t i = 0; i < s->n_buffer_rings; i++)
            most = s->buffer_rings[i].count > most ? s->buffer_rings[i].count : most;
    }
    struct holder h[] = {
        {arena_printf(a, "activations (%" PRId32 " buffers)", most), bytes[SLOT_BUFFER_RING]},
        {"parameters", bytes[SLOT_PARAMETER]},
        {"gradients", bytes[SLOT_GRADIENT]},
        {"optimizer state", bytes[SLOT_STATE]},
        {"compression feedback", bytes[SLOT_FEEDBACK]},
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
        text = arena_printf(a, "%s%s%s %s", text, i ? ", " : "", h[i].name,
                            units_print_bytes(one, (double)h[i].bytes));
    return text;
}

/* In one unit, with enough digits to distinguish the values. */
static void print_distinct(char x[32], char y[32], int64_t a, int64_t b)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    double scale = 1;
    units_print_bytes(x, (double)a), units_print_bytes(y, (double)b);
    for (; (double)b >= 1024 * scale && unit < 6; unit++) scale *= 1024;
    for (int digits = 4; !strcmp(x, y) && a != b && digits < 18; digits++) {
        snprintf(x, 32, "%.*g %s", digits, (double)a / scale, names[unit]);
        snprintf(y, 32, "%.*g %s", digits, (double)b / scale, names[unit]);
    }
}

static enum status too_big(struct arena *a, const struct plan *plan, const struct program *p,
                           int32_t device, struct error *err)
{
    const struct lane *lane = &p->lanes[device];
    const struct program_stage *first = &p->stages[lane->stages[0]];
    const struct plan_stage *stage = &plan->replicas[first->replica].stages[first->server ? 0 : first->stage];
    char needs[32], has[32], one[32], stated[64], *bracket;
    int64_t need = program_lane_bytes(p, device), have = p->devices[device].memory_bytes;
    print_distinct(needs, has, need, have);
    /* A capacity stated in GB is also printed as stated. */
    units_print_capacity(stated, (double)have);
    if ((bracket = strchr(stated, '(')))
        snprintf(bracket, sizeof stated - (size_t)(bracket - stated), "(%s)", has);
    else
        snprintf(stated, sizeof stated, "%s", has);
    return stage_error(plan, stage, first->replica, first->stage, err, ERR_INFEASIBLE,
                       "%s: needs %s, has %s, lacks %s: %s", p->devices[device].name, needs,
                       stated, units_print_bytes(one, (double)(need - have)),
                       holders_text(a, p, lane));
}

/* Memory of a GPU beside slots: counted, and from the catalogue for what only libraries determine. */
static void reserve_devices(struct lowering *l)
{
    const struct program *p = l->p;
    const struct cluster *c = &l->plan->cluster;
    if (l->plan->job.model.measured) return;
    struct device_memory *m = ARENA_ARRAY(l->a, struct device_memory, (size_t)p->n_devices + 1);
    device_memory_of(l->a, p, m);
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct device_type *t = &c->types[p->devices[i].type_index];
        int64_t bytes = device_memory_known(&m[i]) + t->context_bytes +
                        m[i].communicators * t->communicator_bytes;
        if (t->context_bytes < 0) continue;
        for (int32_t k = 0; k < p->lanes[i].n_stages; k++) {
            struct program_stage *s = &p->stages[p->lanes[i].stages[k]];
            if (bytes > s->reserve_bytes) s->reserve_bytes = bytes;
        }
    }
}

enum status lower_check_memory(struct arena *a, const struct plan *plan, const struct program *p,
                               struct error *err)
{
    int64_t most = 0; /* of the device with the largest deficit */
    int32_t fullest = -1;
    for (int32_t i = 0; i < p->n_devices; i++) {
        int64_t lacks = program_lane_bytes(p, i) - p->devices[i].memory_bytes;
        if (lacks > most) most = lacks, fullest = i;
    }
    return fullest < 0 ? OK : too_big(a, plan, p, fullest, err);
}

/* --- the deadlock check --- */

static bool more_buffers(struct lowering *l, const struct blocked_buffer_ring *blocked, int32_t n)
{
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        struct program_stage *s = &l->p->stages[blocked[i].stage];
        struct buffer_ring *r = &s->buffer_rings[blocked[i].buffer_ring];
        if (r->count >= s->microbatches) continue;
        r->count = 2 * r->count < s->microbatches ? 2 * r->count : s->microbatches;
        any = true;
        buffer_ring_bytes(s);
    }
    return any;
}

static enum status prove(struct lowering *l, struct error *err)
{
    for (;;) {
        struct blocked_buffer_ring *blocked;
        int32_t n;
        struct error why = {0};
        TRY(stop_check(err));
        enum status status = program_play(l->tables, l->p, &blocked, &n, &why);
        if (status == OK) return OK;
        if (!more_buffers(l, blocked, n))
            return error_set(err, status, "%s%s%s", l->plan->file ? l->plan->file : "",
                             l->plan->file ? ": " : "", why.text);
    }
}

/* Measured layers cannot be split into I and W. */
static enum status check_measured(const struct lowering *l, const struct stage_build *b,
                                  struct error *err)
{
    const struct graph *g = b->v->g;
    for (int32_t i = 0; i < g->n_forward; i++) {
        if (g->ops[i].kind != OP_measured_forward || !lower_owns(b, g->ops[i].layer)) continue;
        if (b->order->split)
            return lower_error(l, b, err, ERR_INPUT,
                               "a measured layer has a fused backward: its order needs F and B");
        const struct shares *s = g->tensors[g->ops[i].output[1]].shares;
        if (s && shares_at(s, 1) < 0)
            return lower_error(l, b, err, ERR_INPUT, "layer %s was not measured on one GPU",
                               g->layer_name[g->ops[i].layer]);
    }
    return OK;
}

static void lower_stage(struct stage_scratch *h, struct equal_stages *known, struct stage_build *b)
{
    if (equal_stages_copy(known, b)) {
        buffer_ring_bytes(b->s);
        return;
    }
    struct arena *of_program = h->l->a;
    h->l->a = equal_stages_arena(known, b);
    stage_scratch_begin(h, b);
    lower_find_uses(h);
    lower_slots(h);
    lower_procedures(h);
    lower_scratch(h);
    lower_buffer_ring_counts(h->l, b);
    buffer_ring_bytes(b->s);
    lower_join_channels(h->l, b);
    lower_group_segments(h);
    stage_scratch_end(h);
    equal_stages_add(known, b);
    h->l->a = of_program;
}

static enum status run_steps(struct lowering *l, const struct lower_graphs *s, struct error *err)
{
    struct program *p = l->p;
    TRY(plan_check(l->plan, l->n_layers, err));
    make_head(l);
    TRY(lower_stages(l, s, err));
    copy_cluster(l);
    TRY(param_uses_find(l->uses, l->tables, l->n_layers, err));
    TRY(lower_shard_teams(l, err));
    TRY(lower_channels(l, err));
    TRY(lower_orders(l, err));
    for (int32_t i = 0; i < p->n_stages; i++) TRY(check_measured(l, &l->stages[i], err));
    TRY(lower_fragments(l, err));
    TRY(lower_groups(l, err));
    lower_launches(l);
    struct stage_scratch *at_hand = stage_scratch_new(l);
    struct equal_stages *known = equal_stages_new(l);
    enum status st = OK;
    for (int32_t i = 0; i < p->n_stages && st == OK; i++)
        if ((st = stop_check(err)) == OK) lower_stage(at_hand, known, &l->stages[i]);
    stage_scratch_free(at_hand);
    TRY(st);
    lower_share_orders(l);
    TRY(lower_servers(l, err));
    if (!l->o->unproved) TRY(prove(l, err));
    reserve_devices(l);
    return l->o->check_memory ? lower_check_memory(l->a, l->plan, p, err) : OK;
}

static enum status lower_with(struct arena *a, const struct plan *p, const struct lower_graphs *s,
                              const struct lower_options *o, struct program *out, struct error *err)
{
    if (o->memo) lower_memo_begin(o->memo);
    struct lowering l = {.a = a,
                         .tables = o->memo ? o->memo->tables : arena_new(),
                         .plan = p,
                         .o = o,
                         .p = out,
                         .n_layers = s->graphs[0]->n_layers};
    enum status status = run_steps(&l, s, err);
    if (!o->memo) arena_free(l.tables);
    return status;
}

/* Whether a stage ends between padded logits and their loss, in a plan with sharded operators. Those may
 * shard logits by the vocabulary, without padding, and both ends must have the same layout. */
static bool long_rows_cross(const struct plan *p, const struct graph *g)
{
    bool shared = false, crosses = false;
    int32_t loss = g->n_forward - 1, product = loss;
    while (product >= 0 && g->ops[product].kind != OP_logits) product--;
    for (int32_t r = 0; r < p->n_replicas && product >= 0; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[r].stages[s];
            shared |= x->sharding != NULL;
            crosses |= x->last_layer >= g->ops[product].layer && x->last_layer < g->ops[loss].layer;
        }
    return shared && crosses;
}

static struct lower_options without(struct arena *a, const struct lower_options *o,
                                    enum op_kind kind)
{
    struct lower_options out = *o;
    enum op_kind *list = ARENA_ARRAY(a, enum op_kind, (size_t)o->n_fused);
    out.n_fused = 0;
    for (int32_t i = 0; i < o->n_fused; i++)
        if (o->fused[i] != kind) list[out.n_fused++] = o->fused[i];
    out.fused = list;
    out.memo = NULL; /* of the graph with the kind */
    return out;
}

enum status lower_plan_graphs(struct arena *a, const struct plan *p, const struct lower_graphs *s,
                              const struct lower_options *o, struct program *out, struct error *err)
{
    struct graph *g;
    if (!long_rows_cross(p, s->graphs[0])) return lower_with(a, p, s, o, out, err);
    struct lower_options plain = without(a, o, OP_logits);
    TRY(lower_training_graph(a, &p->job, p->microbatch, &plain, &g, err));
    const struct lower_graphs only = {.n = 1, .graphs = &g, .capacity = 1};
    return lower_with(a, p, &only, &plain, out, err);
}

enum status lower_plan_graph(struct arena *a, const struct plan *p, const struct graph *g,
                             const struct lower_options *o, struct program *out, struct error *err)
{
    struct graph *only = (struct graph *)(uintptr_t)g; /* read-only */
    const struct lower_graphs s = {.n = 1, .graphs = &only, .capacity = 1};
    return lower_plan_graphs(a, p, &s, o, out, err);
}

/* More blocks to recompute than the stage has; a search bounds them itself (planner/candidate/scorer.c). */
static enum status check_recompute_blocks(struct arena *a, const struct plan *p,
                                          const struct graph *g, struct error *err)
{
    struct layer_classes c = {.n_layers = g->n_layers};
    layer_classes_number_blocks(a, g, &c);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            if (!x->recompute_blocks) continue;
            int32_t n = layer_classes_blocks(&c, x->first_layer, x->last_layer);
            if (x->recompute_blocks > n)
                return stage_error(p, x, r, i, err, ERR_INPUT,
                                   "recompute_blocks: %" PRId32
                                   ", but its layers have %" PRId32 " block%s; without the key all are "
                                   "recomputed",
                                   x->recompute_blocks, n, n == 1 ? "" : "s");
        }
    return OK;
}

enum status lower_plan(struct arena *a, const struct plan *p, const struct lower_options *o,
                       struct program *out, struct error *err)
{
    struct graph *g = NULL;
    TRY(lower_training_graph(a, &p->job, p->microbatch, o, &g, err));
    TRY(lower_plan_graph(a, p, g, o, out, err));
    return check_recompute_blocks(a, p, g, err);
}
