#include "sim/engine/code.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/collective/rounds.h"
#include "sim/collective/price.h"
#include "core/program/offload.h"
#include "sim/engine/sim.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct writer {
    struct arena *a;
    const struct code_pricing *by;
    const struct program *p;
    const struct program_stage *s;
    int32_t device;
    int32_t n;
    struct code *code; /* capacity: the longest procedure of the stage */
    /* The stretch since the last synchronisation of host and GPU. */
    int32_t stretch;
    int64_t kernels_ns, issue_ns;
    int64_t collectives_ns; /* on otherwise idle links; 0 where launches take no time */
    int64_t alone_ns; /* operators since the call began or since the last collective */
};

static void put(struct writer *w, enum code_kind kind, int32_t arg, int64_t amount)
{
    w->code[w->n++] = (struct code){kind, arg, amount};
}

int32_t code_room(const struct program *p, int32_t channel)
{
    const struct channel *c = &p->channels[channel];
    const struct program_stage *s = &p->stages[c->from_stage];
    int32_t buffer_ring = s->slots[c->from_slot].buffer_ring;
    return buffer_ring >= 0 && s->buffer_rings[buffer_ring].sent == channel
               ? s->buffer_rings[buffer_ring].count
               : 0;
}

static bool put_room(struct writer *w, const struct procedure *f)
{
    bool any = false;
    for (int32_t r = 0; r < w->s->n_buffer_rings; r++) {
        const struct buffer_ring *buffer_ring = &w->s->buffer_rings[r];
        if (buffer_ring->sent < 0 || !procedure_writes_buffer_ring(w->s, f, r)) continue;
        put(w, CODE_ROOM, buffer_ring->sent, buffer_ring->count);
        any = true;
    }
    return any;
}

/* Buffers allocated by a call of this phase, and those it releases; buffers that live until the update are released at once. */
static int64_t born_bytes(const struct program_stage *s, enum phase phase)
{
    int64_t bytes = 0;
    for (int32_t r = 0; r < s->n_buffer_rings; r++)
        if (s->buffer_rings[r].birth == phase) bytes += s->buffer_rings[r].stride_bytes;
    return bytes;
}

static int64_t dead_bytes(const struct program_stage *s, enum phase phase)
{
    int64_t bytes = 0;
    for (int32_t r = 0; r < s->n_buffer_rings; r++)
        if (s->buffer_rings[r].death == phase)
            bytes += s->buffer_rings[r].stride_bytes * (phase == PHASE_U ? s->microbatches : 1);
    return bytes;
}

static enum status stretch(const struct writer *w, const char *name, double factor,
                           int64_t *ns, struct error *err)
{
    if (factor == 1) return OK;
    double longer = (double)*ns * factor;
    if (!(longer >= 0 && longer <= (double)COST_MAX_NS))
        return error_set(err, ERR_INPUT, "operator %s: factor %g on %s gives no duration of 0 s to ten years", name,
                         factor, w->p->devices[w->device].name);
    *ns = (int64_t)llround(longer);
    return OK;
}

/* A message: occupancy of its slowest link plus all latencies of its route. It is link time, so the device's speed does not scale
 * it. name: for messages of errors. */
static enum status price_bytes(const struct writer *w, const char *name, int32_t link,
                               int64_t bytes, int64_t *out_ns, struct error *err)
{
    if (link < 0 || link >= w->p->n_links)
        return error_set(err, ERR_INPUT, "operator %s: unknown link %d", name, (int)link);
    const struct program_link *l = &w->p->links[link];
    int64_t slowest = 0;
    *out_ns = 0;
    for (int32_t i = 0; i < (l->n_hops ? l->n_hops : 1); i++) {
        int32_t hop = l->n_hops ? l->hop[i] : link;
        double factor = w->by->scale && w->by->scale->link ? w->by->scale->link[hop] : 1;
        struct cost_link c;
        TRY(cost_program_link(w->by->cost, &w->p->links[hop], hop, &c, err));
        int64_t ns = cost_occupancy_ns(&c, bytes);
        TRY(stretch(w, name, factor, &ns, err));
        TRY(stretch(w, name, factor, &c.latency_ns, err));
        if (ns > slowest) slowest = ns;
        *out_ns += c.latency_ns;
        if (*out_ns > COST_MAX_NS)
            return error_set(err, ERR_INPUT,
                             "route %s: its latencies add up to more than ten years", l->name);
    }
    *out_ns += slowest;
    return OK;
}

static enum status price(const struct writer *w, const struct program_op *op, int64_t *out_ns,
                         struct error *err)
{
    const struct sim_scale *s = w->by->scale;
    double kind = s && s->kind ? s->kind[op->kind] : 1;
    if (op->kind == OP_message) {
        int64_t bytes = shape_elements(&op->shapes.input[0]) * dtype_bytes(op->dtype);
        TRY(price_bytes(w, op->name, op->attrs.link, bytes, out_ns, err));
        return stretch(w, op->name, kind, out_ns, err);
    }
    TRY(cost_op(w->by->cost, w->p->devices[w->device].type_index, op, out_ns, err));
    return stretch(w, op->name, kind * (s && s->device ? s->device[w->device] : 1), out_ns, err);
}

static enum status put_operator(struct writer *w, struct code_procedure *out, int32_t index,
                                struct error *err)
{
    int64_t ns = 0;
    TRY(price(w, &w->s->ops[index], &ns, err));
    out->n_operators++;
    out->busy_ns += ns;
    const struct program_op *op = &w->s->ops[index];
    if (op->kind == OP_message) out->message_ns += ns;
    w->kernels_ns += ns;
    w->alone_ns += ns;
    w->issue_ns += cost_issue(w->by->cost, w->p->devices[w->device].type_index, &w->s->ops[index]);
    if (out->busy_ns > COST_MAX_NS)
        return error_set(err, ERR_INPUT,
                         "the operators of one procedure of stage %d take more than ten years",
                         (int)w->s->stage);
    struct code *last = w->n ? &w->code[w->n - 1] : NULL;
    if (!w->by->each_operator && last && last->kind == CODE_COMPUTE)
        last->amount += ns, last->arg = -1;
    else
        put(w, CODE_COMPUTE, index, ns);
    return OK;
}

/* If the host is slower than the GPU over a stretch (launch bound), operators are spread in proportion, so that operators priced
 * together and separately end at the same time (profiles/op_prior.h). The host launches on while a collective of the call is
 * under way. */
static void end_stretch(struct writer *w, struct code_procedure *out)
{
    int64_t launches_ns = w->issue_ns - w->collectives_ns;
    if (launches_ns > w->kernels_ns && w->kernels_ns > 0) {
        double slower = (double)launches_ns / (double)w->kernels_ns;
        int64_t before = 0, ended = 0;
        for (int32_t i = w->stretch; i < w->n; i++) {
            if (w->code[i].kind != CODE_COMPUTE) continue;
            before += w->code[i].amount;
            int64_t ends = llround((double)before * slower);
            w->code[i].amount = ends - ended;
            ended = ends;
        }
        out->busy_ns += ended - before;
    }
    w->stretch = w->n;
    w->kernels_ns = w->issue_ns = w->collectives_ns = 0;
}

/* A collective of the call on otherwise idle links: a member's own messages one after the other, which is exact among equal members
 * and links. */
static enum status price_collective(const struct writer *w, int32_t group, int64_t *out_ns,
                                    struct error *err)
{
    const struct collective *g = &w->p->collectives[group];
    int64_t priced = collective_price_ns(w->by->cost, w->p, g, NULL);
    int32_t self = 0;
    *out_ns = collective_of_tensor(g) ? priced : w->by->folded_ns[group];
    if (*out_ns >= 0) return OK;
    while (self + 1 < g->n_members && &w->p->stages[g->members[self].stage] != w->s) self++;
    self = collective_like(g, self);
    *out_ns = 0;
    for (int32_t k = 0; k < collective_steps(g); k++) {
        struct collective_round x = collective_round(g, self, k);
        int32_t link, direction;
        int64_t ns;
        if (x.to < 0) continue;
        program_collective_link(g, self, x.to, &link, &direction);
        TRY(price_bytes(w, g->name, link, x.send * dtype_bytes(g->dtype), &ns, err));
        *out_ns = units_min(*out_ns + ns, COST_MAX_NS);
    }
    return OK;
}

static enum status put_tensor_collective(struct writer *w, int32_t group, struct error *err)
{
    const struct collective *g = &w->p->collectives[group];
    int64_t ns, issue_ns = cost_issue(w->by->cost, w->p->devices[w->device].type_index,
                                      &(struct program_op){.kind = OP_group_all_reduce});
    if (issue_ns > 0) {
        TRY(price_collective(w, group, &ns, err));
        w->issue_ns += issue_ns, w->collectives_ns += ns;
    }
    if (collective_of_tensor(g))
        put(w, CODE_COLLECTIVE, group, cost_late_ns(w->by->cost, g->n_members, w->alone_ns));
    else
        put(w, CODE_FOLDED_COLLECTIVE, group, w->by->folded_ns[group]);
    w->alone_ns = 0;
    return OK;
}

static enum status write_procedure(struct writer *w, const struct procedure *f,
                                   struct code_procedure *out, struct error *err)
{
    int64_t born = born_bytes(w->s, f->phase), dead = dead_bytes(w->s, f->phase);
    if (f->phase == PHASE_U && *f->variant)
        dead = 0; /* the update that follows releases these buffers */
    *out = (struct code_procedure){.phase = f->phase};
    w->n = w->stretch = 0;
    w->kernels_ns = w->issue_ns = w->collectives_ns = w->alone_ns = 0;
    out->messages = put_room(w, f);
    int64_t copy_ns = 0;
    if (w->s->offload.count) TRY(cost_host_copy_ns(w->by->cost, w->p->devices[w->device].type_index, offload_bytes(w->s), &copy_ns, err));
    int32_t parts = offload_parts(w->s);
    if (offload_has(f, INSTR_OFFLOAD)) put(w, CODE_OFFLOAD_ROOM, 0, 0);
    for (int32_t i = 0; i < f->n_instrs; i++) {
        const struct instr *x = &f->instrs[i];
        /* A call that still waits for its message has not allocated yet. */
        if (born && x->kind != INSTR_RECEIVE && x->kind != INSTR_FETCH) put(w, CODE_BORN, -1, born), born = 0;
        if (x->kind == INSTR_RECEIVE || x->kind == INSTR_COLLECTIVE_WAIT || x->kind == INSTR_FETCH) end_stretch(w, out);
        if (x->kind == INSTR_COMPUTE) TRY(put_operator(w, out, x->arg, err));
        if (x->kind == INSTR_RECEIVE) put(w, CODE_RECEIVE, x->arg, 0);
        if (x->kind == INSTR_SEND) put(w, CODE_SEND, x->arg, 0);
        if (x->kind == INSTR_COLLECTIVE_START) put(w, CODE_COLLECTIVE_START, x->arg, 0);
        if (x->kind == INSTR_COLLECTIVE_WAIT) put(w, CODE_COLLECTIVE_WAIT, x->arg, 0);
        if (x->kind == INSTR_COLLECTIVE) TRY(put_tensor_collective(w, x->arg, err));
        if (x->kind == INSTR_OFFLOAD) put(w, CODE_OFFLOAD, x->arg, copy_ns);
        if (x->kind == INSTR_OFFLOAD && x->arg + 1 < parts) put(w, CODE_OFFLOAD_ROOM, x->arg + 1, 0);
        if (x->kind == INSTR_FETCH) put(w, CODE_FETCH, x->arg, copy_ns);
        if (x->kind == INSTR_RECEIVE || x->kind == INSTR_SEND || x->kind == INSTR_OFFLOAD || x->kind == INSTR_FETCH) out->messages = true;
    }
    end_stretch(w, out);
    if (born) put(w, CODE_BORN, -1, born);
    for (int32_t i = 0; i < f->n_instrs; i++)
        if (f->instrs[i].kind == INSTR_RECEIVE) put(w, CODE_CONSUMED, f->instrs[i].arg, 0);
    if (offload_consumes(f)) put(w, CODE_OFFLOADED, -1, copy_ns);
    if (dead) put(w, CODE_DEAD, -1, dead);
    put(w, CODE_END, -1, 0);
    out->code = ARENA_ARRAY(w->a, struct code, (size_t)w->n);
    memcpy(out->code, w->code, (size_t)w->n * sizeof *w->code);
    return OK;
}

enum status code_stage(struct arena *a, const struct code_pricing *by, int32_t stage,
                       int32_t device, struct code *scratch, struct code_procedure **out,
                       struct error *err)
{
    const struct program_stage *s = &by->program->stages[stage];
    struct writer w = {
        .a = a, .by = by, .p = by->program, .s = s, .device = device, .code = scratch};
    *out = ARENA_ARRAY(a, struct code_procedure, (size_t)s->n_procedures);
    for (int32_t i = 0; i < s->n_procedures; i++)
        TRY(write_procedure(&w, &s->procedures[i], &(*out)[i], err));
    return OK;
}

size_t code_max(const struct program *p)
{
    size_t most = 0;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t i = 0; i < p->stages[s].n_procedures; i++) {
            const struct procedure *f = &p->stages[s].procedures[i];
            size_t n = 2 * (size_t)f->n_instrs + (size_t)p->stages[s].n_buffer_rings + 3;
            if (n > most) most = n;
        }
    return most;
}
