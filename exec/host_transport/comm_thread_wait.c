/* exec/host_transport/comm_thread_wait.c - waits of the compute thread for the communication thread. */
#include "exec/host_transport/comm_thread.h"

#include "exec/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define LIFE_NS INT64_C(100000000) /* interval of a waiting rank's signs of life */

/* false: no progress for the whole limit. The mutex is held. */
static bool wait_changed(struct comm_thread *m, int64_t deadline_ns)
{
    int64_t until_ns = clock_wall_ns() + LIFE_NS;
    if (until_ns > deadline_ns) until_ns = deadline_ns;
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};
    comm_alive(m->comm);
    return pthread_cond_timedwait(&m->changed, &m->mutex, &until) != ETIMEDOUT ||
           clock_wall_ns() < deadline_ns;
}

static bool wait_ended(struct comm_thread *m, struct comm_thread_ended *e, int64_t number,
                       int64_t *at_ns)
{
    int64_t deadline_ns = clock_wall_ns() + m->timeout_ns;
    pthread_mutex_lock(&m->mutex);
    while (m->threaded && e->count <= number && m->failed == OK)
        if (!wait_changed(m, deadline_ns)) break;
    bool ended = e->count > number;
    if (ended) *at_ns = e->at_ns[number % e->capacity];
    pthread_mutex_unlock(&m->mutex);
    return ended;
}

/* The failure that ended the thread, if any. */
static enum status failure(struct comm_thread *m, struct error *err)
{
    pthread_mutex_lock(&m->mutex);
    enum status status = m->failed;
    if (status != OK) error_set(err, status, "%s", m->failure.text);
    pthread_mutex_unlock(&m->mutex);
    return status;
}

/* The peer it waited for may itself wait for another. */
static enum status silent(struct comm_thread *m, int32_t peer, const char *what, struct error *err)
{
    char who[160];
    TRY(failure(m, err));
    int32_t lost = comm_lost(m->comm, m->timeout_ns / 2, who, sizeof who);
    return error_set(err, ERR_RANK,
                     "rank %" PRId32 " (%s) did not respond for %.0f s: %s makes no progress%s%s", peer,
                     program_device_label(m->p, peer).text, (double)m->timeout_ns / 1e9, what,
                     lost >= 0 ? ": " : "", who);
}

enum status comm_thread_wait_channel(struct comm_thread *m, int32_t channel, int64_t number,
                                     int64_t *at_ns, struct error *err)
{
    if (wait_ended(m, &m->channels[channel], number, at_ns)) return OK;
    char what[96];
    snprintf(what, sizeof what, "message %" PRId64 " of channel %" PRId32, number, channel);
    return silent(m, wires_peer(&m->wires, channel), what, err);
}

enum status comm_thread_wait_group(struct comm_thread *m, int32_t group, int64_t number,
                                   int64_t *at_ns, struct error *err)
{
    if (wait_ended(m, &m->groups[group], number, at_ns)) return OK;
    pthread_mutex_lock(&m->mutex);
    int32_t peer = m->awaited_peer, running = peer < 0 ? group : m->awaited_group;
    pthread_mutex_unlock(&m->mutex);
    char what[160];
    snprintf(what, sizeof what, "collective %s", m->p->collectives[running].name);
    return silent(m, peer < 0 ? m->rank : peer, what, err);
}

enum status comm_thread_wait_agreement(struct comm_thread *m, int64_t number, int64_t *value, struct error *err)
{
    if (wait_ended(m, &m->agreements, number, value)) return OK;
    char what[64];
    snprintf(what, sizeof what, "the agreement about step %" PRId64, number + 1);
    return silent(m, m->rank, what, err);
}

void comm_thread_report(struct comm_thread *m, int32_t rank, void *data, int64_t bytes)
{
    comm_thread_order(m, (struct comm_thread_order){.kind = ORDER_REPORT, .index = rank, .data = data, .bytes = bytes});
}

int64_t comm_thread_reported(struct comm_thread *m, int32_t rank)
{
    pthread_mutex_lock(&m->mutex);
    int64_t n = m->reported[rank];
    pthread_mutex_unlock(&m->mutex);
    return n;
}

bool comm_thread_has_ended(struct comm_thread *m, int32_t channel, int64_t number, int64_t *at_ns)
{
    const struct comm_thread_ended *e = &m->channels[channel];
    pthread_mutex_lock(&m->mutex);
    bool ended = e->count > number;
    if (ended) *at_ns = e->at_ns[number % e->capacity];
    pthread_mutex_unlock(&m->mutex);
    return ended;
}

void comm_thread_wait_any(struct comm_thread *m, int64_t wall_ns)
{
    pthread_mutex_lock(&m->mutex);
    (void)wait_changed(m, wall_ns);
    pthread_mutex_unlock(&m->mutex);
}

bool comm_thread_wait_stopped(struct comm_thread *m, int64_t deadline_ns)
{
    pthread_mutex_lock(&m->mutex);
    while (!m->stopped && wait_changed(m, deadline_ns)) {
    }
    bool stopped = m->stopped;
    pthread_mutex_unlock(&m->mutex);
    return stopped;
}

enum status comm_thread_pause(struct comm_thread *m, struct error *err)
{
    if (!m->threaded) return OK;
    int64_t deadline_ns = clock_wall_ns() + m->timeout_ns;
    pthread_mutex_lock(&m->mutex);
    m->want_pause = true;
    comm_ring(m->comm, m->rank);
    while (!m->parked && m->failed == OK && wait_changed(m, deadline_ns)) {
    }
    bool parked = m->parked;
    pthread_mutex_unlock(&m->mutex);
    if (parked) return OK;
    TRY(failure(m, err));
    return error_set(err, ERR_RANK, "rank %" PRId32 ": its messages could not be sent for %.0f s",
                     m->rank, (double)m->timeout_ns / 1e9);
}

void comm_thread_flush(struct comm_thread *m, bool flushes)
{
    pthread_mutex_lock(&m->mutex);
    m->flushes = flushes;
    pthread_mutex_unlock(&m->mutex);
}

void comm_thread_restart(struct comm_thread *m, int64_t begun, int64_t now_ns)
{
    for (int32_t i = 0; i < m->p->n_channels; i++) m->channels[i].count = 0;
    wires_restart(&m->wires, m->p->n_channels, now_ns);
    m->begun = begun;
}

void comm_thread_resume(struct comm_thread *m, int64_t zero_ns)
{
    m->wires.zero_ns = zero_ns;
    if (!m->threaded) return;
    pthread_mutex_lock(&m->mutex);
    m->want_pause = m->parked = false;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
}
