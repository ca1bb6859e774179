/* exec/worker/transport.c - how each channel and each group of a program moves, and the pinned memory that a lane apart needs.
 *
 * LOCAL is within a device; DEVICE between devices of one backend that can talk themselves; HOST is everything else: the
 * communication thread and the message library, from and to memory of the host. All ranks choose alike, from what all of
 * them can. Emulated devices go by the host always, since messages on emulated links take virtual time there.
 * MUSHER_TRANSPORT=host leaves everything to the host. */
#include "exec/worker/internal.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/settings.h"
#include "exec/plugin.h"

#include <inttypes.h>
#include <string.h>

enum { ALIGN = 64 };
static int64_t align(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- which way --------------------------------------------------------------------------------
 */

/* talks: (n_devices) 1 where the device's backend can. */
static bool among_themselves(const struct program *p, const double *talks, int32_t a, int32_t b)
{
    return talks[a] > 0 && talks[b] > 0 && !strcmp(p->devices[a].kind, p->devices[b].kind);
}

static enum transport way_of_group(const struct program *p, const double *talks,
                                   const struct collective *g)
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

static void tell(const struct worker *w)
{
    int32_t c = w->p->n_channels, g = w->p->n_collectives;
    log_debug("channels: %" PRId32 " inside a device, %" PRId32 " by the host, %" PRId32
              " between devices; groups: %" PRId32 ", %" PRId32 ", %" PRId32,
              count(w->channel_by, c, TRANSPORT_LOCAL), count(w->channel_by, c, TRANSPORT_HOST),
              count(w->channel_by, c, TRANSPORT_DEVICE), count(w->group_by, g, TRANSPORT_LOCAL),
              count(w->group_by, g, TRANSPORT_HOST), count(w->group_by, g, TRANSPORT_DEVICE));
}

/* Cards that could talk among themselves and do not, for want of their library: everything is slower, and nothing else tells. The first
 * such rank says so. */
static void warn_of_host(const struct worker *w, const double *talks)
{
    const struct program *p = w->p;
    const struct plugin *plugin;
    struct error why = {.code = OK};
    int32_t cards = 0, first = -1;
    for (int32_t i = 0; i < p->n_devices; i++) {
        if (strcmp(p->devices[i].kind, "cuda") != 0) continue;
        cards++;
        if (first < 0 && !(talks[i] > 0)) first = i;
    }
    if (cards < 2 || first != w->rank || p->emulated || settings_host_transport()) return;
    if (plugin_cuda(&plugin, &why) == OK) (void)plugin->comm(&why);
    log_warn("%s: messages between cards go through the host%s%s", p->devices[first].name,
             *why.text ? ": " : "", why.text);
}

void worker_choose_transports(struct worker *w)
{
    const struct program *p = w->p;
    double *talks = ARENA_ARRAY(w->run, double, (size_t)p->n_devices);
    talks[w->rank] = w->apart && w->backend.comm && !p->emulated && !settings_host_transport();
    comm_sum(w->comm, talks, p->n_devices);
    comm_broadcast(w->comm, talks, (int64_t)sizeof *talks * p->n_devices);
    w->channel_by = ARENA_ARRAY(w->run, unsigned char, (size_t)p->n_channels + 1);
    w->group_by = ARENA_ARRAY(w->run, unsigned char, (size_t)p->n_collectives + 1);
    for (int32_t i = 0; i < p->n_channels; i++) {
        int32_t from = p->stages[p->channels[i].from_stage].device,
                to = p->stages[p->channels[i].to_stage].device;
        w->channel_by[i] = from == to                             ? TRANSPORT_LOCAL
                           : among_themselves(p, talks, from, to) ? TRANSPORT_DEVICE
                                                                  : TRANSPORT_HOST;
    }
    for (int32_t i = 0; i < p->n_collectives; i++)
        w->group_by[i] = (unsigned char)way_of_group(p, talks, &p->collectives[i]);
    if (w->rank == 0) tell(w);
    warn_of_host(w, talks);
}

bool worker_goes_by_devices(const struct worker *w)
{
    for (int32_t i = 0; i < w->p->n_channels; i++)
        if (w->channel_by[i] == TRANSPORT_DEVICE) return true;
    for (int32_t i = 0; i < w->p->n_collectives; i++)
        if (w->group_by[i] == TRANSPORT_DEVICE) return true;
    return false;
}

enum status worker_open_transport(struct worker *w, struct error *err)
{
    if (!worker_goes_by_devices(w)) return OK;
    const struct lane_memory **memory =
        ARENA_ARRAY(w->run, const struct lane_memory *, (size_t)w->p->n_stages);
    for (int32_t i = 0; i < w->n_chunks; i++) memory[w->chunks[i].index] = &w->chunks[i].memory;
    const struct device_transport_options o = {.backend = &w->backend,
                                               .comm = w->comm,
                                               .p = w->p,
                                               .rank = w->rank,
                                               .channel = w->channel_by,
                                               .group = w->group_by,
                                               .memory = memory,
                                               .steps = w->o->steps,
                                               .timed = w->o->keep_trace,
                                               .limit_ns = comm_limit_ns()};
    return device_transport_open(w->run, &o, &w->transport, err);
}

/* ---- pinned memory ----------------------------------------------------------------------------
 */

/* What a device's lane has in pinned memory, part by part. */
struct pinned {
    int64_t channels, staging, mirror, ahead, inputs;
};

static int64_t place_count(const struct program_stage *s, int32_t slot)
{
    const struct slot *x = &s->slots[slot];
    return x->class == SLOT_RING ? s->rings[x->ring].count : 1;
}

static int64_t channel_bytes(const struct program *p, const struct channel *c, int32_t device)
{
    const struct program_stage *from = &p->stages[c->from_stage], *to = &p->stages[c->to_stage];
    int64_t n = from->device == device ? place_count(from, c->from_slot)
                : to->device == device ? place_count(to, c->to_slot)
                                       : 0;
    return n * bounce_stride(c);
}

static void add_groups(const struct worker *w, int32_t device, struct pinned *out)
{
    for (int32_t g = 0; g < w->p->n_collectives; g++)
        for (int32_t i = 0; i < w->p->collectives[g].n_members; i++) {
            const struct collective_member *m = &w->p->collectives[g].members[i];
            const struct program_stage *s = &w->p->stages[m->stage];
            if (s->device != device || w->group_by[g] != TRANSPORT_HOST) continue;
            int64_t mirror = worker_staging_bytes(w->p, g, i),
                    staging = align(collective_staging_bytes(&w->p->collectives[g], m, s));
            if (mirror > out->mirror) out->mirror = mirror;
            if (staging > out->staging) out->staging = staging;
        }
}

static struct pinned pinned_of(const struct worker *w, int32_t device)
{
    const struct lane *lane = &w->p->lanes[device];
    struct pinned x = {.ahead = align(async_issue_pinned_bytes(w, device))};
    for (int32_t i = 0; i < w->p->n_channels; i++)
        if (w->channel_by[i] == TRANSPORT_HOST)
            x.channels += channel_bytes(w->p, &w->p->channels[i], device);
    add_groups(w, device, &x);
    for (int32_t i = 0; i < lane->n_stages; i++) {
        const struct program_stage *s = &w->p->stages[lane->stages[i]];
        for (int32_t k = 0; k < s->n_slots; k++)
            if (s->slots[k].input >= 0) x.inputs += INPUT_BUFFERS * align(s->slots[k].bytes);
    }
    return x;
}

int64_t worker_pinned_bytes(const struct worker *w, int32_t device)
{
    struct pinned x = pinned_of(w, device);
    return x.channels + x.staging + x.mirror + x.ahead + x.inputs;
}

/* ---- a lane apart -----------------------------------------------------------------------------
 */

static enum status open_channels(struct worker *w, char **pinned, struct error *err)
{
    for (int32_t i = 0; i < w->p->n_channels; i++) {
        const struct channel *c = &w->p->channels[i];
        const struct chunk *from = worker_chunk(w, c->from_stage),
                           *to = worker_chunk(w, c->to_stage);
        if (w->channel_by[i] != TRANSPORT_HOST || (!from && !to)) continue;
        struct place slot = from ? lane_memory_place(&from->memory, c->from_slot)
                                 : lane_memory_place(&to->memory, c->to_slot);
        TRY(bounce_add_channel(&w->bounce, w->run, i, slot, *pinned, from != NULL, err));
        *pinned += channel_bytes(w->p, c, w->rank);
    }
    return OK;
}

/* Events of the calls that read inputs, for the longest ring of one. */
static enum status open_reads(struct worker *w, struct chunk *k, struct error *err)
{
    k->read = ARENA_ARRAY(w->run, int32_t, (size_t)k->reading + 1);
    k->read_seq = ARENA_ARRAY(w->run, int64_t, (size_t)k->reading + 1);
    for (int64_t i = 0; i < k->reading; i++) {
        k->read_seq[i] = -1;
        TRY(w->backend.event_make(&w->backend, false, &k->read[i], err));
    }
    return OK;
}

static enum status open_inputs(struct worker *w, struct chunk *k, char **pinned, struct error *err)
{
    const struct program_stage *s = k->stage;
    k->inputs = ARENA_ARRAY(w->run, struct prepared_input, (size_t)s->n_slots + 1);
    for (int32_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].input < 0) continue;
        struct prepared_input *x = &k->inputs[k->n_inputs++];
        *x = (struct prepared_input){.slot = i, .place = lane_memory_place(&k->memory, i)};
        if (x->place.count > k->reading) k->reading = x->place.count;
        for (int b = 0; b < INPUT_BUFFERS; b++) {
            x->pinned[b] = *pinned;
            *pinned += align(s->slots[i].bytes);
            TRY(w->backend.event_make(&w->backend, false, &x->copied[b], err));
        }
    }
    return open_reads(w, k, err);
}

enum status worker_open_apart(struct worker *w, struct error *err)
{
    if (!w->apart) return OK;
    struct pinned x = pinned_of(w, w->rank);
    struct backend *b = &w->backend;
    void *all = NULL;
    int64_t bytes = worker_pinned_bytes(w, w->rank);
    if (bytes) TRY(b->allocate_pinned(b, bytes, &all, err));
    char *at = w->pinned = all;
    log_debug("%s: %.1f MiB of pinned memory", w->p->devices[w->rank].name,
              (double)bytes / (1 << 20));
    TRY(bounce_open(&w->bounce, w->run, w->p, b, w->o->keep_trace, err));
    TRY(b->stream_make(b, &w->loading, err));
    TRY(open_channels(w, &at, err));
    w->staging = at, at += x.staging;
    w->mirror = at, at += x.mirror;
    TRY(async_issue_open(w, at, err));
    at += x.ahead;
    for (int32_t i = 0; i < w->n_chunks; i++) TRY(open_inputs(w, &w->chunks[i], &at, err));
    return OK;
}
