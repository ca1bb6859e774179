/* Tables of a reconstructed simulation: the trace's spans of messages and collectives. */
#include "sim/collective/price.h"
#include "sim/explain/internal.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct explained_part *explain_part_at(const struct explanation *t, int32_t group, int32_t launch,
                                       int32_t member, int32_t part)
{
    const struct explained_group *g = &t->groups[group];
    size_t row = (size_t)launch * (size_t)t->program->collectives[group].n_members + (size_t)member;
    return &g->parts[row * (size_t)g->n_parts + (size_t)part];
}

size_t *explain_run_at(const struct explanation *t, int32_t group, int32_t launch, int32_t member)
{
    return &t->groups[group].run[(size_t)launch * (size_t)t->program->collectives[group].n_members +
                                 (size_t)member];
}

int32_t explain_member(const struct explanation *t, int32_t group, int32_t lane)
{
    const struct collective *g = &t->program->collectives[group];
    for (int32_t m = 0; m < g->n_members; m++)
        if (t->lane_of_stage[g->members[m].stage] == lane) return m;
    return -1;
}

static enum status use_link(struct explanation *t, int32_t link, struct error *err)
{
    if (link < 0 || t->links[link].bandwidth_Bps > 0) return OK;
    const struct program_link *l = &t->program->links[link];
    if (!l->n_hops) return cost_program_link(t->cost, l, link, &t->links[link], err);
    if (l->n_hops == 1) { /* of a folded program: a link */
        TRY(use_link(t, l->hop[0], err));
        t->links[link] = t->links[l->hop[0]];
        return OK;
    }
    /* A route: bandwidth of its slowest link, sum of all latencies. */
    struct cost_link all = {.bandwidth_Bps = INFINITY};
    for (int32_t i = 0; i < l->n_hops; i++) {
        TRY(use_link(t, l->hop[i], err));
        all.bandwidth_Bps = fmin(all.bandwidth_Bps, t->links[l->hop[i]].bandwidth_Bps);
        all.latency_ns += t->links[l->hop[i]].latency_ns;
    }
    t->links[link] = all;
    return OK;
}

static enum status use_links(struct explanation *t, struct error *err)
{
    const struct program *p = t->program;
    t->links = ARENA_ARRAY(t->arena, struct cost_link, (size_t)p->n_links);
    for (int32_t i = 0; i < p->n_channels; i++) TRY(use_link(t, p->channels[i].link, err));
    for (int32_t i = 0; i < p->n_collectives; i++)
        for (int32_t m = 0; m < p->collectives[i].n_members && p->collectives[i].n_members > 1;
             m++) {
            const struct collective *g = &p->collectives[i];
            for (int32_t k = 0; program_collective_in_rounds(g) && k < g->n_members; k++) {
                int32_t link, direction;
                program_collective_link(g, m, k, &link, &direction);
                TRY(use_link(t, link, err));
            }
            if (program_collective_in_rounds(g)) continue;
            bool ring = program_collective_rings(g), chain = g->algorithm == ALGORITHM_CHAIN;
            if (ring || (chain && m + 1 < g->n_members)) TRY(use_link(t, g->link[m], err));
            if (chain && m > 0 && g->back_link) TRY(use_link(t, g->back_link[m], err));
        }
    return OK;
}

static void make_channels(struct explanation *t)
{
    const struct program *p = t->program;
    t->channels = ARENA_ARRAY(t->arena, struct explained_channel, (size_t)p->n_channels);
    for (int32_t i = 0; i < p->n_channels; i++) {
        const struct channel *x = &p->channels[i];
        struct explained_channel *c = &t->channels[i];
        bool half = x->link >= 0 && p->links[x->link].half_duplex;
        *c = (struct explained_channel){
            .from_lane = t->lane_of_stage[x->from_stage],
            .to_lane = t->lane_of_stage[x->to_stage],
            .resource = x->link < 0 ? -1 : 2 * x->link + (half ? 0 : x->direction),
            .ahead = x->receive_ahead > 1 ? x->receive_ahead : 1,
            .n_messages = (int64_t)t->steps * program_channel_messages(p, x),
            .alone_ns = x->link < 0 ? 0 : cost_occupancy_ns(&t->links[x->link], x->bytes),
            .last_handed = -1,
            .head = -1};
        c->messages = ARENA_ARRAY(t->arena, struct explained_message, (size_t)c->n_messages);
        for (int64_t m = 0; m < c->n_messages; m++)
            c->messages[m] = (struct explained_message){-1, -1, -1, -1, -1, -1, -1, 0, 0};
    }
}

static int32_t launches_of(const struct program *p, const struct procedure *f, int32_t group)
{
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_instrs; i++)
        n += instr_launches(p, &f->instrs[i]) && f->instrs[i].arg == group;
    return n;
}

/* Launches per step; equal for all members, so the first one's lane is counted. */
static void count_launches(struct explanation *t)
{
    const struct program *p = t->program;
    for (int32_t i = 0; i < p->n_collectives; i++) {
        t->groups[i].times = 1;
        if (!program_collective_repeats(&p->collectives[i])) continue;
        int32_t stage = p->collectives[i].members[0].stage, lane = t->lane_of_stage[stage], n = 0;
        struct cursor c;
        struct call call;
        cursor_start(&c, &p->orders[p->lanes[lane].order]);
        while (cursor_next(&c, &call)) {
            const struct program_stage *s = program_called(p, lane, &call);
            n += launches_of(p, &s->procedures[call.procedure], i);
        }
        t->groups[i].times = n > 1 ? n : 1;
    }
}

static void make_groups(struct explanation *t)
{
    const struct program *p = t->program;
    t->groups = ARENA_ARRAY(t->arena, struct explained_group, (size_t)p->n_collectives);
    for (size_t i = 0; i < t->trace->n_spans; i++) {
        const struct span *s = &t->trace->spans[i];
        if (s->kind != SPAN_REDUCE || s->op < 0 || s->op >= p->n_collectives) continue;
        if (s->part >= t->groups[s->op].n_parts) t->groups[s->op].n_parts = s->part + 1;
    }
    count_launches(t);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        struct explained_group *g = &t->groups[i];
        collective_price_ns(t->cost, p, &p->collectives[i], &g->price);
        size_t rows = (size_t)t->steps * (size_t)g->times * (size_t)p->collectives[i].n_members;
        g->launched = ARENA_ARRAY(t->arena, int32_t, (size_t)p->collectives[i].n_members);
        g->parts = ARENA_ARRAY(t->arena, struct explained_part, rows * (size_t)g->n_parts);
        g->run = ARENA_ARRAY(t->arena, size_t, rows);
        for (size_t k = 0; k < rows * (size_t)g->n_parts; k++) g->parts[k].begin_ns = -1;
        for (size_t k = 0; k < rows; k++) g->run[k] = SIZE_MAX;
    }
}

static enum status stranger(struct error *err, const struct span *s)
{
    return error_set(err, ERR_INPUT,
                     "the trace is not of this program: a %s of step %" PRId32 " on device %" PRId32
                     " that it does not have",
                     span_kind_name(s->kind), s->step, s->device);
}

static enum status take_message(struct explanation *t, const struct span *s, struct error *err)
{
    if (s->op < 0 || s->op >= t->program->n_channels) return stranger(err, s);
    struct explained_channel *c = &t->channels[s->op];
    const struct channel *x = &t->program->channels[s->op];
    int64_t seq = (int64_t)s->step * program_channel_messages(t->program, x) + (x->by_step ? 0 : s->microbatch);
    if (seq < 0 || seq >= c->n_messages || c->resource < 0) return stranger(err, s);
    c->messages[seq].start_ns = s->begin_ns;
    *(s->kind == SPAN_SEND ? &c->messages[seq].left_ns : &c->messages[seq].arrival_ns) = s->end_ns;
    return OK;
}

static enum status take_spans(struct explanation *t, struct error *err)
{
    for (size_t i = 0; i < t->trace->n_spans; i++) {
        const struct span *s = &t->trace->spans[i];
        if (s->kind == SPAN_SEND || s->kind == SPAN_RECEIVE) TRY(take_message(t, s, err));
        if (s->kind != SPAN_REDUCE) continue;
        int32_t member = s->op >= 0 && s->op < t->program->n_collectives
                             ? explain_member(t, s->op, s->device)
                             : -1;
        if (member < 0 || s->step < 0 || s->step >= t->steps) return stranger(err, s);
        int32_t times = t->groups[s->op].times, before = s->microbatch > 0 ? s->microbatch : 0;
        if (before >= times) return stranger(err, s);
        *explain_part_at(t, s->op, s->step * times + before, member, s->part) =
            (struct explained_part){s->begin_ns, s->end_ns, s->bytes};
    }
    return OK;
}

/* Messages on each direction of each link, by start; messages of zero duration first within their instant. */
static int by_start(const void *a, const void *b)
{
    const struct on_resource *x = a, *y = b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    if (x->left_ns != y->left_ns) return x->left_ns < y->left_ns ? -1 : 1;
    if (x->channel != y->channel) return x->channel < y->channel ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static void make_lines(struct explanation *t)
{
    size_t n = 2 * (size_t)t->program->n_links;
    t->line = ARENA_ARRAY(t->arena, struct on_resource *, n);
    t->n_line = ARENA_ARRAY(t->arena, size_t, n);
    for (int32_t i = 0; i < t->program->n_channels; i++)
        if (t->channels[i].resource >= 0)
            t->n_line[t->channels[i].resource] += (size_t)t->channels[i].n_messages;
    for (size_t i = 0; i < n; i++)
        t->line[i] = ARENA_ARRAY(t->arena, struct on_resource, t->n_line[i]), t->n_line[i] = 0;
    for (int32_t i = 0; i < t->program->n_channels; i++) {
        const struct explained_channel *c = &t->channels[i];
        for (int64_t m = 0; c->resource >= 0 && m < c->n_messages; m++) {
            if (c->messages[m].start_ns < 0) continue;
            size_t *used = &t->n_line[c->resource];
            t->line[c->resource][(*used)++] =
                (struct on_resource){i, m, c->messages[m].start_ns, c->messages[m].left_ns};
        }
    }
    for (size_t i = 0; i < n; i++)
        if (t->n_line[i]) qsort(t->line[i], t->n_line[i], sizeof **t->line, by_start);
}

enum status explain_label(struct explanation *t, struct error *err)
{
    const struct program *p = t->program;
    t->lanes = ARENA_ARRAY(t->arena, struct explained_lane, (size_t)p->n_devices);
    t->lane_of_stage = ARENA_ARRAY(t->arena, int32_t, (size_t)p->n_stages);
    for (int32_t i = 0; i < p->n_devices; i++)
        for (int32_t c = 0; c < p->lanes[i].n_stages; c++)
            t->lane_of_stage[p->lanes[i].stages[c]] = i;
    TRY(use_links(t, err));
    make_channels(t);
    make_groups(t);
    TRY(take_spans(t, err));
    explain_memory_start(t);
    TRY(explain_label_lanes(t, err));
    make_lines(t);
    return OK;
}
