/* Use of the window by devices and links: message time and exposed waits. */
#include "sim/explain/internal.h"

#include "core/base/arena.h"
#include "traces/quantile.h"

#include <string.h>

/* The length of [begin, end] inside the window. */
static int64_t inside(const struct explain *x, int64_t begin_ns, int64_t end_ns)
{
    if (begin_ns < x->begin_ns) begin_ns = x->begin_ns;
    if (end_ns > x->end_ns) end_ns = x->end_ns;
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

static int64_t overlap(const struct explain *x, int64_t b1, int64_t e1, int64_t b2, int64_t e2)
{
    return inside(x, b1 > b2 ? b1 : b2, e1 < e2 ? e1 : e2);
}

/* --- devices --- */

/* A device with several stages is compared by its first. */
static int32_t stage_of(const struct explanation *t, int32_t device)
{
    return t->program->lanes[device].stages[0];
}

static void find_peers(const struct explanation *t, struct explain *x, int32_t device,
                       int64_t *scratch)
{
    const struct program *p = t->program;
    const struct program_stage *me = &p->stages[stage_of(t, device)];
    struct explain_device *d = &x->devices[device];
    for (int32_t among = 0; among < 2 && !d->n_peers; among++)
        for (int32_t i = 0; i < p->n_devices; i++) {
            const struct program_stage *s = &p->stages[stage_of(t, i)];
            bool peer = among == 0 ? s->replica != me->replica && s->stage == me->stage
                                   : s->replica == me->replica;
            if (i == device || !peer) continue;
            scratch[d->n_peers++] = x->devices[i].busy_ns;
            d->replica_peers = among == 0;
        }
    d->peers_ns = quantile_median_ns(scratch, (size_t)d->n_peers);
}

static void use_devices(const struct explanation *t, struct explain *x)
{
    int32_t n = t->program->n_devices;
    int64_t *scratch = ARENA_ARRAY(t->arena, int64_t, (size_t)n);
    x->devices = ARENA_ARRAY(t->arena, struct explain_device, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        const struct sim_device *d = &t->result->devices[i];
        x->devices[i].busy_ns = d->busy_ns - d->carried_ns;
        memcpy(x->devices[i].wait_ns, d->wait_ns, sizeof d->wait_ns);
    }
    for (int32_t i = 0; i < n; i++) {
        find_peers(t, x, i, scratch);
        if (x->devices[i].busy_ns > x->devices[x->busiest].busy_ns) x->busiest = i;
    }
}

/* --- links --- */

static void use_messages(const struct explanation *t, struct explain *x, int32_t channel)
{
    const struct explained_channel *c = &t->channels[channel];
    struct explain_link *l = &x->links[c->resource / 2];
    for (int64_t i = 0; i < c->n_messages; i++) {
        const struct explained_message *m = &c->messages[i];
        if (m->start_ns < 0) continue;
        int64_t posted = i < c->ahead ? 0 : c->messages[i - c->ahead].consumed_ns;
        int64_t ready = m->handed_ns > posted ? m->handed_ns : posted;
        l->carried_ns += inside(x, m->start_ns, m->arrival_ns);
        l->queued_ns += inside(x, ready, m->start_ns);
        if (m->start_ns < x->begin_ns || m->start_ns >= x->end_ns) continue;
        l->messages++;
        l->bytes += t->program->channels[channel].bytes;
    }
}

/* The receiver was idle from the record's begin; the message was in flight for a share of that. */
static void use_waits(const struct explanation *t, struct explain *x,
                      const struct explained_lane *l)
{
    for (size_t i = 0; i < l->n_records; i++) {
        const struct record *r = &l->records[i];
        if (r->kind != RECORD_RECEIVE || t->channels[r->arg].resource < 0) continue;
        const struct explained_message *m = &t->channels[r->arg].messages[r->seq];
        x->links[t->channels[r->arg].resource / 2].exposed_ns +=
            overlap(x, r->begin_ns, r->end_ns, m->start_ns, m->arrival_ns);
    }
}

/* Link and receiver of a part that sends. */
static int32_t part_link(const struct collective *g, int32_t member, int32_t part,
                         int32_t *receiver)
{
    if (program_collective_in_rounds(g)) {
        int32_t link, direction;
        *receiver = collective_round(g, member, part).to;
        if (*receiver < 0) return -1;
        program_collective_link(g, member, *receiver, &link, &direction);
        *receiver = collective_like(g, *receiver);
        return link;
    }
    bool back = g->algorithm == ALGORITHM_CHAIN && part >= 2;
    *receiver = back ? member - 1 : (member + 1) % g->n_members;
    return back ? g->back_link[member] : g->link[member];
}

static void use_group(const struct explanation *t, struct explain *x, int32_t group)
{
    const struct collective *g = &t->program->collectives[group];
    if (t->groups[group].price != COLLECTIVE_PRICE_LINKS) return; /* on no link */
    for (int32_t launch = 0; launch < t->steps * t->groups[group].times; launch++)
        for (int32_t m = 0; m < g->n_members; m++)
            for (int32_t k = 0; k < t->groups[group].n_parts; k++) {
                const struct explained_part *part = explain_part_at(t, group, launch, m, k);
                int32_t receiver;
                if (part->begin_ns < 0 || !part->bytes) continue;
                int32_t link = part_link(g, m, k, &receiver);
                size_t run = link < 0 ? SIZE_MAX : *explain_run_at(t, group, launch, receiver);
                if (run == SIZE_MAX) continue;
                const struct collective_run *r =
                    &t->lanes[t->lane_of_stage[g->members[receiver].stage]].runs[run];
                struct explain_link *l = &x->links[link];
                l->carried_ns += inside(x, part->begin_ns, part->end_ns);
                l->exposed_ns +=
                    overlap(x, part->begin_ns, part->end_ns, r->wait_begin_ns, r->wait_end_ns);
                if (part->begin_ns < x->begin_ns || part->begin_ns >= x->end_ns) continue;
                l->messages++;
                l->bytes += part->bytes;
            }
}

void explain_use(const struct explanation *t, struct explain *x)
{
    const struct program *p = t->program;
    use_devices(t, x);
    x->links = ARENA_ARRAY(t->arena, struct explain_link, (size_t)p->n_links);
    for (int32_t i = 0; i < p->n_collectives; i++) x->prices[t->groups[i].price]++;
    for (int32_t i = 0; i < p->n_channels; i++)
        if (t->channels[i].resource >= 0) use_messages(t, x, i);
    for (int32_t i = 0; i < p->n_devices; i++) use_waits(t, x, &t->lanes[i]);
    for (int32_t i = 0; i < p->n_collectives; i++) use_group(t, x, i);
    for (size_t i = 0; i < x->n_pieces; i++) {
        const struct explain_piece *c = &x->pieces[i];
        int64_t ns = c->end_ns - c->begin_ns;
        if (c->kind <= EXPLAIN_update) x->devices[c->device].path_ns += ns;
        if (c->link >= 0) x->links[c->link].path_ns += ns;
    }
}
