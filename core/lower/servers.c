/* core/lower/servers.c - parameter servers: their stages, and the messages of their workers.
 *
 * A server has the slots of its parameters and their optimizer state, and for each worker an inbox: a slot for each gradient, from which the
 * copy of the parameters is sent back. A worker sends no gradient before it has received them, so both use one slot. With one update a
 * clock the parameters are sent from their own slots: no gradient arrives, and no update begins, before every worker has them.
 * A worker receives into the slots of its parameters, which no operator reads between its push and its pull.
 */
#include "core/lower/servers.h"

#include "core/lower/links.h"
#include "core/lower/procedures.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int64_t lower_state_tensors(const struct lowering *l)
{
    return lower_is_served(l) ? 0 : optimizer_state_tensors(&l->p->optimizer);
}

void lower_worker_update(struct writer *w)
{
    const struct program_stage *s = w->b->s;
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *p = &s->parameters[i];
        writer_zero(w, PHASE_U, s->first_layer, arena_join(w->l->a, p->name, ".zero"), lower_primary_gradient(w->b, p));
    }
}

/* --- which server has which parameter --- */

struct servers {
    struct lowering *l;
    const struct program_stage *like; /* the first worker's: all have equal parameters */
    int32_t n_workers;
    int32_t *server;  /* (parameters) */
    int32_t *push, *pull; /* (n_workers, parameters) channels */
};

struct sized {
    int64_t bytes;
    int32_t index;
};

static int by_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void divide(struct servers *v)
{
    int32_t n = v->like->n_parameters, n_servers = v->l->plan->servers.rule.n;
    struct sized *list = ARENA_ARRAY(v->l->tables, struct sized, (size_t)n + 1);
    int64_t *bytes = ARENA_ARRAY(v->l->tables, int64_t, (size_t)n_servers);
    v->server = ARENA_ARRAY(v->l->tables, int32_t, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) list[i] = (struct sized){v->like->slots[v->like->parameters[i].slot].bytes, i};
    qsort(list, (size_t)n, sizeof *list, by_size);
    for (int32_t i = 0; i < n; i++) {
        int32_t least = 0;
        for (int32_t k = 1; k < n_servers; k++)
            if (bytes[k] < bytes[least]) least = k;
        v->server[list[i].index] = least;
        bytes[least] += list[i].bytes;
    }
}

/* --- a server's stage --- */

static int32_t add_slot(struct stage_scratch *h, const char *name, enum slot_class class, const struct slot *like, int32_t parameter)
{
    return lower_last_slot(h, (struct slot){.name = name, .class = class, .dtype = like->dtype, .shape = like->shape, .parameter = parameter});
}

/* inbox: (n_workers) slots of the gradient. */
static void add_parameter(const struct servers *v, struct stage_scratch *h, int32_t index, int32_t *inbox)
{
    struct arena *a = v->l->a;
    struct program_stage *s = h->b->s;
    const struct program_parameter *of = &v->like->parameters[index];
    const struct slot *like = &v->like->slots[of->slot];
    struct program_parameter *p = &s->parameters[s->n_parameters];
    *p = (struct program_parameter){.name = of->name,
                                    .shape = of->shape,
                                    .init = of->init,
                                    .init_std = of->init_std,
                                    .decay = of->decay,
                                    .gradient = {-1, -1},
                                    .state = {-1, -1},
                                    .master = -1};
    p->slot = add_slot(h, of->name, SLOT_PARAMETER, like, s->n_parameters);
    for (int64_t k = 0; k < optimizer_state_tensors(&v->l->p->optimizer); k++)
        p->state[k] = add_slot(h, arena_join(a, of->name, k ? ".v" : ".m"), SLOT_STATE, like, s->n_parameters);
    for (int32_t w = 0; w < v->n_workers; w++)
        inbox[w] = add_slot(h, arena_printf(a, "%s.grad.%" PRId32, of->name, w), SLOT_GRADIENT, like, s->n_parameters);
    p->gradient[0] = inbox[0];
    s->n_parameters++;
}

static void write_updates(struct writer *w, int32_t n_workers, const int32_t *inboxes, int32_t worker)
{
    const struct program_stage *s = w->b->s;
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *p = &s->parameters[i];
        int32_t slot[UPDATE_SLOTS] = {p->slot, inboxes[i * n_workers + worker], p->state[0], p->state[1], -1};
        lower_write_update(w, false, arena_join(w->l->a, p->name, ".update"), p->decay, slot);
    }
}

static void each_channel(struct writer *w, const struct servers *v, int32_t worker, const int32_t *channels, enum instr_kind kind)
{
    int32_t server = w->b->s->server - 1, n = v->like->n_parameters;
    for (int32_t i = 0; i < n; i++)
        if (v->server[i] == server) writer_emit(w, kind, channels[worker * n + i]);
}

/* One update a clock: the sum is in the first worker's inbox. */
static void write_by_clock(struct writer *w, const struct servers *v, const int32_t *inboxes)
{
    const struct program_stage *s = w->b->s;
    for (int32_t k = 0; k < v->n_workers; k++) each_channel(w, v, k, v->push, INSTR_RECEIVE);
    for (int32_t i = 0; i < s->n_parameters; i++)
        for (int32_t k = 1; k < v->n_workers; k++)
            writer_accumulate(w, PHASE_U, s->first_layer, arena_printf(w->l->a, "%s.sum.%" PRId32, s->parameters[i].name, k),
                              inboxes[i * v->n_workers + k], inboxes[i * v->n_workers]);
    write_updates(w, v->n_workers, inboxes, 0);
    for (int32_t k = 0; k < v->n_workers; k++) each_channel(w, v, k, v->pull, INSTR_SEND);
    (void)writer_finish(w, PHASE_U, "");
}

static void write_by_arrival(struct writer *w, const struct servers *v, const int32_t *inboxes, int32_t worker)
{
    const struct program_stage *s = w->b->s;
    each_channel(w, v, worker, v->push, INSTR_RECEIVE);
    write_updates(w, v->n_workers, inboxes, worker);
    (void)writer_finish(w, PHASE_U, "push");
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *p = &s->parameters[i];
        writer_op(w, &(struct program_op){.kind = OP_slice,
                                         .phase = PHASE_U,
                                         .attrs = {.sequences = p->shape.dim[0]},
                                         .name = arena_join(w->l->a, p->name, ".pull"),
                                         .layer = s->first_layer,
                                         .n_inputs = 1,
                                         .n_outputs = 1,
                                         .input = {p->slot},
                                         .output = {inboxes[i * v->n_workers + worker]}});
    }
    each_channel(w, v, worker, v->pull, INSTR_SEND);
    (void)writer_finish(w, PHASE_U, "pull");
}

/* Its channels' slots on this side. */
static void join_channels(const struct servers *v, const int32_t *of, const struct program_stage *s, const int32_t *inboxes)
{
    bool by_arrival = parameter_server_by_arrival(&v->l->plan->servers.rule);
    for (int32_t i = 0; i < s->n_parameters; i++)
        for (int32_t w = 0; w < v->n_workers; w++) {
            int32_t at = w * v->like->n_parameters + of[i], inbox = inboxes[i * v->n_workers + w];
            v->l->p->channels[v->push[at]].to_slot = inbox;
            v->l->p->channels[v->pull[at]].from_slot = by_arrival ? inbox : s->parameters[i].slot;
        }
}

static void make_stage(const struct servers *v, struct stage_scratch *h, struct stage_build *b)
{
    struct program_stage *s = b->s;
    int32_t n = v->like->n_parameters;
    stage_scratch_begin(h, b);
    lower_slots_begin(h);
    int32_t *inboxes = ARENA_ARRAY(h->work, int32_t, (size_t)n * (size_t)v->n_workers),
            *of = ARENA_ARRAY(h->work, int32_t, (size_t)n);
    s->parameters = ARENA_ARRAY(h->work, struct program_parameter, (size_t)n);
    s->procedures = ARENA_ARRAY(h->work, struct procedure, 2 * (size_t)v->n_workers);
    for (int32_t i = 0; i < n; i++) {
        if (v->server[i] != s->server - 1) continue;
        of[s->n_parameters] = i;
        add_parameter(v, h, i, inboxes + s->n_parameters * v->n_workers);
    }
    struct writer w = {.h = h, .l = v->l, .b = b};
    bool by_arrival = parameter_server_by_arrival(&v->l->plan->servers.rule);
    if (!by_arrival) write_by_clock(&w, v, inboxes);
    for (int32_t k = 0; by_arrival && k < v->n_workers; k++) write_by_arrival(&w, v, inboxes, k);
    join_channels(v, of, s, inboxes);
    stage_scratch_end(h);
}

/* --- channels --- */

static enum status add_channel(struct servers *v, const struct stage_build *worker, const struct stage_build *server, int32_t parameter,
                               struct error *err)
{
    struct program *p = v->l->p;
    const struct program_parameter *x = &worker->s->parameters[parameter];
    struct channel push = {.from_stage = worker->index,
                           .to_stage = server->index,
                           .from_slot = lower_primary_gradient(worker, x),
                           .bytes = worker->s->slots[x->slot].bytes,
                           .receive_ahead = 1,
                           .gradient = true,
                           .by_step = true};
    struct channel pull = {.from_stage = server->index,
                           .to_stage = worker->index,
                           .to_slot = x->slot,
                           .bytes = push.bytes,
                           .receive_ahead = 1,
                           .by_step = true};
    TRY(lower_link(v->l, worker, server, &push.link, &push.direction, err));
    TRY(lower_link(v->l, server, worker, &pull.link, &pull.direction, err));
    if (lower_blocking(v->l, push.link))
        return lower_error(v->l, worker, err, ERR_INPUT, "parameter_server: link %s blocks compute streams; its messages would need a stream",
                           p->links[push.link].name);
    int32_t at = worker->index * v->like->n_parameters + parameter;
    v->push[at] = p->n_channels, p->channels[p->n_channels++] = push;
    v->pull[at] = p->n_channels, p->channels[p->n_channels++] = pull;
    return OK;
}

static enum status make_channels(struct servers *v, const struct stage_build *servers, struct error *err)
{
    struct program *p = v->l->p;
    size_t n = (size_t)v->n_workers * (size_t)v->like->n_parameters;
    struct channel *channels = ARENA_ARRAY(v->l->a, struct channel, (size_t)p->n_channels + 2 * n);
    if (p->n_channels) memcpy(channels, p->channels, (size_t)p->n_channels * sizeof *channels);
    p->channels = channels;
    v->push = ARENA_ARRAY(v->l->tables, int32_t, n), v->pull = ARENA_ARRAY(v->l->tables, int32_t, n);
    for (int32_t w = 0; w < v->n_workers; w++) {
        const struct stage_build *b = &v->l->stages[w];
        if (b->s->n_parameters != v->like->n_parameters) BUG("workers with different parameters");
        for (int32_t i = 0; i < v->like->n_parameters; i++) TRY(add_channel(v, b, &servers[v->server[i]], i, err));
    }
    return OK;
}

/* The messages of a worker's U stand before its last operators, which zero the gradients. */
static void insert_messages(const struct servers *v, struct program_stage *s, int32_t worker, int32_t u)
{
    int32_t n = v->like->n_parameters;
    s->procedures = arena_copy(v->l->a, s->procedures, (size_t)s->n_procedures * sizeof *s->procedures);
    struct procedure *f = &s->procedures[u];
    struct instr *instrs = ARENA_ARRAY(v->l->a, struct instr, (size_t)f->n_instrs + 2 * (size_t)n), *at = instrs;
    int32_t before = f->n_instrs - n;
    for (int32_t i = 0; i < before; i++) *at++ = f->instrs[i];
    for (int32_t i = 0; i < n; i++) *at++ = (struct instr){INSTR_SEND, v->push[worker * n + i]};
    for (int32_t i = 0; i < n; i++) *at++ = (struct instr){INSTR_RECEIVE, v->pull[worker * n + i]};
    for (int32_t i = before; i < f->n_instrs; i++) *at++ = f->instrs[i];
    f->instrs = instrs, f->n_instrs += 2 * n;
}

/* --- devices and lanes, servers first --- */

static void make_order(struct lowering *l, const struct program_stage *s, struct order *out)
{
    struct call *calls = ARENA_ARRAY(l->tables, struct call, (size_t)s->n_procedures);
    for (int32_t i = 0; i < s->n_procedures; i++) calls[i] = (struct call){i, -1, 0};
    order_code(l->a, calls, s->n_procedures, out);
}

static void make_lanes(struct servers *v, const struct stage_build *servers)
{
    struct lowering *l = v->l;
    struct program *p = l->p;
    int32_t n = l->plan->servers.rule.n, n_devices = p->n_devices + n;
    struct program_device *devices = ARENA_ARRAY(l->a, struct program_device, (size_t)n_devices);
    struct lane *lanes = ARENA_ARRAY(l->a, struct lane, (size_t)n_devices);
    struct order *orders = ARENA_ARRAY(l->a, struct order, (size_t)(p->n_orders + n));
    memcpy(devices + n, p->devices, (size_t)p->n_devices * sizeof *devices);
    memcpy(lanes + n, p->lanes, (size_t)p->n_devices * sizeof *lanes);
    memcpy(orders, p->orders, (size_t)p->n_orders * sizeof *orders);
    for (int32_t i = 0; i < n; i++) {
        int32_t *stages = ARENA_ARRAY(l->a, int32_t, 1);
        stages[0] = servers[i].index;
        devices[i] = lower_device(&l->plan->cluster, servers[i].device);
        lanes[i] = (struct lane){p->n_orders + i, 1, stages};
        make_order(l, &p->stages[servers[i].index], &orders[p->n_orders + i]);
        p->stages[servers[i].index].device = i;
    }
    for (int32_t i = 0; i < v->n_workers; i++) p->stages[i].device += n;
    p->devices = devices, p->lanes = lanes, p->orders = orders;
    p->n_devices = n_devices, p->n_orders += n;
}

/* The servers' stages behind the workers'; the builds of both then refer to the longer list. */
static struct stage_build *add_stages(struct servers *v)
{
    struct lowering *l = v->l;
    struct program *p = l->p;
    int32_t n = l->plan->servers.rule.n;
    const struct cluster *c = &l->plan->cluster;
    struct program_stage *stages = ARENA_ARRAY(l->a, struct program_stage, (size_t)(p->n_stages + n));
    struct stage_build *servers = ARENA_ARRAY(l->tables, struct stage_build, (size_t)n);
    memcpy(stages, p->stages, (size_t)p->n_stages * sizeof *stages);
    p->stages = stages;
    for (int32_t i = 0; i < p->n_stages; i++) l->stages[i].s = &stages[i];
    v->like = &stages[0];
    for (int32_t i = 0; i < n; i++) {
        int32_t index = p->n_stages++, device = l->plan->servers.devices[i];
        stages[index] = (struct program_stage){.server = i + 1,
                                               .stage = i,
                                               .first_layer = v->like->first_layer,
                                               .last_layer = v->like->last_layer,
                                               .microbatches = 1,
                                               .reserve_bytes = c->types[c->devices[device].type].reserve_bytes};
        servers[i] = (struct stage_build){.s = &stages[index],
                                          .plan = l->stages[0].plan,
                                          .index = index,
                                          .device = device,
                                          .n_shards = 1,
                                          .v = l->stages[0].v};
    }
    return servers;
}

enum status lower_servers(struct lowering *l, struct error *err)
{
    struct servers v = {.l = l, .n_workers = l->p->n_stages};
    int32_t n = l->plan->servers.rule.n;
    if (!n) return OK;
    struct stage_build *servers = add_stages(&v);
    if (v.like->n_parameters < n)
        return lower_error(l, &l->stages[0], err, ERR_INPUT, "parameter_server: %" PRId32 " servers, but the model has %" PRId32 " parameters", n,
                           v.like->n_parameters);
    divide(&v);
    TRY(make_channels(&v, servers, err));
    struct stage_scratch *h = stage_scratch_new(l);
    for (int32_t i = 0; i < n; i++) make_stage(&v, h, &servers[i]);
    stage_scratch_free(h);
    for (int32_t w = 0; w < v.n_workers; w++)
        insert_messages(&v, l->stages[w].s, w, l->stages[w].procedures->u);
    make_lanes(&v, servers);
    return OK;
}
