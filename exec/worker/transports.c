#include "exec/worker/transports.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/settings.h"
#include "exec/plugin.h"
#include "exec/worker/chunks.h"

#include <inttypes.h>
#include <string.h>

/* ---- choice ----------------------------------------------------------------------------------- */

/* talks: (n_devices) 1 if the device's backend has a communication library. */
static bool among_themselves(const struct program *p, const double *talks, int32_t a, int32_t b)
{
    return talks[a] > 0 && talks[b] > 0 && !strcmp(p->devices[a].kind, p->devices[b].kind);
}

static enum transport of_group(const struct program *p, const double *talks, const struct collective *g)
{
    if (g->algorithm == ALGORITHM_LOCAL && !collective_of_tensor(g)) return TRANSPORT_LOCAL;
    int32_t first = p->stages[g->members[0].stage].device;
    for (int32_t i = 0; i < g->n_members; i++)
        if (!among_themselves(p, talks, first, p->stages[g->members[i].stage].device))
            return TRANSPORT_HOST;
    return g->n_members > 1 ? TRANSPORT_DEVICE : TRANSPORT_HOST;
}

static int32_t count(const unsigned char *by, int32_t n, enum transport t)
{
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) found += by[i] == t;
    return found;
}

static void report(const struct transports *t, const struct program *p)
{
    int32_t c = p->n_channels, g = p->n_collectives;
    log_debug("channels: %" PRId32 " within a device, %" PRId32 " through the host, %" PRId32
              " between devices; groups: %" PRId32 ", %" PRId32 ", %" PRId32,
              count(t->channel, c, TRANSPORT_LOCAL), count(t->channel, c, TRANSPORT_HOST),
              count(t->channel, c, TRANSPORT_DEVICE), count(t->group, g, TRANSPORT_LOCAL),
              count(t->group, g, TRANSPORT_HOST), count(t->group, g, TRANSPORT_DEVICE));
}

/* Warns once, on the first such rank, that GPUs with direct links lack the communication library, because nothing
 * else reports the slowdown. */
static void warn_of_host(const struct rank *r, const double *talks)
{
    const struct program *p = r->p;
    const struct plugin *plugin;
    struct error why = {.code = OK};
    int32_t gpus = 0, first = -1;
    for (int32_t i = 0; i < p->n_devices; i++) {
        if (program_device_is_host(&p->devices[i])) continue;
        gpus++;
        if (first < 0 && !(talks[i] > 0)) first = i;
    }
    if (gpus < 2 || first != r->index || p->emulated || settings_host_transport()) return;
    if (plugin_of(p->devices[first].kind, &plugin, &why) == OK && plugin->comm)
        (void)plugin->comm(&why);
    log_warn("%s: messages between GPUs go through the host%s%s", p->devices[first].name,
             *why.text ? ": " : "", why.text);
}

void transports_choose(struct transports *t, const struct rank *r)
{
    const struct program *p = r->p;
    double *talks = ARENA_ARRAY(r->run, double, (size_t)p->n_devices);
    talks[r->index] = r->discrete && r->backend.comm && !p->emulated && !settings_host_transport();
    comm_sum(r->comm, talks, p->n_devices);
    comm_broadcast(r->comm, talks, (int64_t)sizeof *talks * p->n_devices);
    t->channel = ARENA_ARRAY(r->run, unsigned char, (size_t)p->n_channels + 1);
    t->group = ARENA_ARRAY(r->run, unsigned char, (size_t)p->n_collectives + 1);
    for (int32_t i = 0; i < p->n_channels; i++) {
        int32_t from = p->stages[p->channels[i].from_stage].device,
                to = p->stages[p->channels[i].to_stage].device;
        t->channel[i] = from == to                             ? TRANSPORT_LOCAL
                        : among_themselves(p, talks, from, to) ? TRANSPORT_DEVICE
                                                               : TRANSPORT_HOST;
    }
    for (int32_t i = 0; i < p->n_collectives; i++)
        t->group[i] = (unsigned char)of_group(p, talks, &p->collectives[i]);
    if (r->index == 0) report(t, p);
    warn_of_host(r, talks);
}

bool transports_use_devices(const struct transports *t, const struct program *p)
{
    for (int32_t i = 0; i < p->n_channels; i++)
        if (t->channel[i] == TRANSPORT_DEVICE) return true;
    for (int32_t i = 0; i < p->n_collectives; i++)
        if (t->group[i] == TRANSPORT_DEVICE) return true;
    return false;
}

/* Collectives that the host runs for a discrete device have their staging in pinned memory. */
bool transports_stage_on_device(const struct transports *t, const struct rank *r, int32_t stage)
{
    for (int32_t g = 0; r->discrete && g < r->p->n_collectives; g++)
        for (int32_t i = 0; i < r->p->collectives[g].n_members; i++)
            if (r->p->collectives[g].members[i].stage == stage && t->group[g] == TRANSPORT_DEVICE)
                return true;
    return !r->discrete;
}

/* ---- by the host ------------------------------------------------------------------------------ */

static int64_t place_count(const struct program_stage *s, int32_t slot)
{
    const struct slot *x = &s->slots[slot];
    return x->class == SLOT_BUFFER_RING ? s->buffer_rings[x->buffer_ring].count : 1;
}

static int64_t channel_bytes(const struct program *p, const struct channel *c, int32_t device)
{
    const struct program_stage *from = &p->stages[c->from_stage], *to = &p->stages[c->to_stage];
    int64_t n = from->device == device ? place_count(from, c->from_slot)
                : to->device == device ? place_count(to, c->to_slot)
                                       : 0;
    return n * bounce_stride(c);
}

int64_t transports_pinned_bytes(const struct transports *t, const struct program *p, int32_t device)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->n_channels; i++)
        if (t->channel[i] == TRANSPORT_HOST) bytes += channel_bytes(p, &p->channels[i], device);
    return bytes;
}

enum status transports_open_bounce(struct transports *t, struct rank *r, const struct chunks *c,
                                   char *pinned, struct error *err)
{
    TRY(bounce_open(&t->bounce, r->run, r->p, &r->backend, r->o->keep_trace, err));
    for (int32_t i = 0; i < r->p->n_channels; i++) {
        const struct channel *x = &r->p->channels[i];
        const struct chunk *from = chunks_of_stage(c, x->from_stage),
                           *to = chunks_of_stage(c, x->to_stage);
        if (t->channel[i] != TRANSPORT_HOST || (!from && !to)) continue;
        struct place slot = from ? lane_memory_place(&from->memory, x->from_slot)
                                 : lane_memory_place(&to->memory, x->to_slot);
        TRY(bounce_add_channel(&t->bounce, r->run, i, slot, pinned, from != NULL, err));
        pinned += channel_bytes(r->p, x, r->index);
    }
    return OK;
}

void transports_open_host(struct transports *t, const struct rank *r, void *shared)
{
    t->moving = arena_new();
    comm_thread_init(&t->comm_thread, t->moving, r->p, r->comm, shared, r->o->keep_trace);
    t->host_open = true;
    if (r->discrete) comm_thread_bounce(&t->comm_thread, &t->bounce);
}

void transports_stop_host(struct transports *t)
{
    if (t->host_open) comm_thread_stop(&t->comm_thread);
    t->host_open = false;
}

enum status transports_mark(struct transports *t, struct rank *r, int32_t *after, struct error *err)
{
    int32_t event;
    *after = 0;
    if (!r->discrete) return OK;
    TRY(comm_thread_take_event(&t->comm_thread, &event, err));
    *after = event + 1;
    return r->backend.event_record(&r->backend, event, STREAM_COMPUTE, err);
}

/* ---- between devices -------------------------------------------------------------------------- */

enum status transports_open_devices(struct transports *t, struct rank *r, const struct chunks *c,
                                    struct error *err)
{
    if (!transports_use_devices(t, r->p)) return OK;
    const struct lane_memory **memory =
        ARENA_ARRAY(r->run, const struct lane_memory *, (size_t)r->p->n_stages);
    for (int32_t i = 0; i < c->n; i++) memory[c->at[i].index] = &c->at[i].memory;
    const struct device_transport_options o = {.backend = &r->backend,
                                               .comm = r->comm,
                                               .p = r->p,
                                               .rank = r->index,
                                               .channel = t->channel,
                                               .group = t->group,
                                               .memory = memory,
                                               .steps = r->o->steps,
                                               .timed = r->o->keep_trace,
                                               .limit_ns = comm_limit_ns()};
    return device_transport_open(r->run, &o, &t->device, err);
}

void transports_give_up_devices(struct transports *t)
{
    if (t->device) device_transport_give_up(t->device);
}

void transports_close_devices(struct transports *t)
{
    device_transport_close(t->device);
    t->device = NULL;
}

void transports_close(struct transports *t)
{
    arena_free(t->moving);
    t->moving = NULL;
}
