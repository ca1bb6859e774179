/* exec/device_transport/device_transport.c - opens, checks, aborts and closes the device transport.
 *
 * Invariant: everything on a stream of this module is between two events. A message waits for the compute stream's
 * work at the time of its order, and records an event that the compute stream waits for when the program requires it.
 * The host only counts operations: ordered, issued, known to have ended.
 */
#include "exec/device_transport/internal.h"

#include "exec/clock.h"

#include <inttypes.h>

#define LOOK_NS 50000 /* between two looks of drain */

/* ---- watching --------------------------------------------------------------------------------- */

void device_transport_give_up(struct device_transport *t)
{
    if (t) communicators_give_up(&t->communicators, NULL);
}

static enum status look(struct device_transport *t, bool *in_flight, struct error *err)
{
    TRY(device_channels_count(&t->channels, in_flight, err));
    return device_transport_sums_count(t, in_flight, err);
}

/* A collective that does not end delays every message after it, so it is named first; then an incoming message. */
static void name_silent(const struct device_transport *t, struct error *why)
{
    device_transport_sums_blame(t, why);
    if (why->code == OK) device_channels_blame(&t->channels, why);
}

static enum status give_up_for(struct device_transport *t, struct error *why, struct error *err)
{
    communicators_peer_lost(&t->communicators, why);
    communicators_give_up(&t->communicators, why);
    return error_set(err, why->code, "%s", why->text);
}

enum status device_transport_check(struct device_transport *t, struct error *err)
{
    struct error why = {.code = OK};
    bool in_flight = false;
    TRY(communicators_live(&t->communicators, err));
    comm_alive(t->o.comm);
    communicators_check(&t->communicators, &why);
    if (why.code == OK) (void)look(t, &in_flight, &why);
    if (why.code == OK && watchdog_rank_ended(&t->watchdog, t->o.comm))
        error_set(&why, ERR_RANK, "%s: a peer is gone", program_device_label(t->p, t->o.rank).text);
    if (why.code == OK && watchdog_expired(&t->watchdog, in_flight)) name_silent(t, &why);
    return why.code == OK ? OK : give_up_for(t, &why, err);
}

static enum status check(void *owner, struct error *err)
{
    return device_transport_check(owner, err);
}

enum status device_transport_drain(struct device_transport *t, struct error *err)
{
    for (;;) {
        TRY(device_transport_check(t, err));
        if (!watchdog_under_algorithm(&t->watchdog)) return OK;
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
    }
}

/* ---- messages and spans ----------------------------------------------------------------------- */

enum status device_transport_post(struct device_transport *t, int32_t channel, int64_t seq,
                                  struct error *err)
{
    return device_channels_order(&t->channels, channel, seq, err);
}

enum status device_transport_send(struct device_transport *t, int32_t channel, int64_t seq,
                                  struct error *err)
{
    return device_channels_order(&t->channels, channel, seq, err);
}

enum status device_transport_receive(struct device_transport *t, int32_t channel, int64_t seq,
                                     struct error *err)
{
    return device_channels_wait(&t->channels, channel, seq, err);
}

enum status device_transport_room(struct device_transport *t, int32_t channel, int64_t seq,
                                  struct error *err)
{
    return device_channels_wait(&t->channels, channel, seq, err);
}

enum status device_transport_spans(struct device_transport *t, int64_t step, int64_t zero_ns,
                                   struct span_list *out, struct error *err)
{
    return timed_spans_report(&t->spans, step, zero_ns, out, err);
}

void device_transport_restart(struct device_transport *t, int64_t begun, bool timed)
{
    device_channels_restart(&t->channels, begun);
    t->spans.kept = timed;
}

/* ---- open and close --------------------------------------------------------------------------- */

static bool takes_part(const struct device_transport *t)
{
    for (int32_t i = 0; i < t->talks.n; i++)
        for (int32_t k = 0; k < t->talks.talk[i].n; k++)
            if (t->talks.talk[i].device[k] == t->o.rank) return true;
    for (int32_t g = 0; g < t->p->n_collectives; g++) /* of one member */
        for (int32_t i = 0; t->o.group[g] == TRANSPORT_DEVICE && i < t->p->collectives[g].n_members;
             i++)
            if (t->p->stages[t->p->collectives[g].members[i].stage].device == t->o.rank)
                return true;
    return false;
}

static enum status open_mine(struct device_transport *t, struct error *err)
{
    if (!takes_part(t)) return OK;
    if (!t->o.backend || !t->o.backend->comm)
        return error_set(err, ERR_RESOURCE, "%s: its backend has no communication between devices",
                         t->p->devices[t->o.rank].name);
    t->comm = t->b->comm;
    TRY(t->b->stream_make(t->b, &t->collective, err));
    TRY(paced_stream_open(&t->stream, t->a, t->b, t->collective, &t->watchdog, check, t, err));
    TRY(device_channels_open(&t->channels, err));
    return device_transport_reduces_open(t, err);
}

enum status device_transport_open(struct arena *a, const struct device_transport_options *o,
                                  struct device_transport **out, struct error *err)
{
    struct device_transport *t = ARENA_ARRAY(a, struct device_transport, 1);
    *t = (struct device_transport){.a = a, .o = *o, .b = o->backend, .p = o->p};
    t->collective = -1;
    t->watchdog.limit_ns = o->limit_ns;
    t->spans = (struct timed_spans){.a = a, .backend = t->b, .kept = o->timed};
    plan_talks(a, o->p, o->channel, o->group, &t->talks);
    communicators_init(&t->communicators, a, &t->o, &t->talks);
    device_channels_init(&t->channels, a, &t->o, &t->communicators, &t->spans, &t->watchdog);
    device_transport_sums_init(t);
    enum status status = comm_agree(o->comm, open_mine(t, err), err);
    if (status == OK) status = communicators_open(&t->communicators, t->comm, t->collective, err);
    if (status == OK)
        *out = t;
    else {
        device_transport_give_up(t);
        device_transport_close(t);
    }
    return status;
}

void device_transport_close(struct device_transport *t)
{
    if (!t) return;
    communicators_close(&t->communicators);
    device_transport_sums_close(t);
}
