/* tests/support/deferred_streams.c - the streams and events of a late device: what is asked stands in queues until a thread, or somebody
 * who waits, does it. */
#include "tests/support/deferred_internal.h"

#include "exec/clock.h"

#include <stdlib.h>
#include <string.h>

static void keep_failure(struct deferred *d, enum status status, const struct error *e)
{
    pthread_mutex_lock(&d->mutex);
    if (d->failed == OK) d->failed = status, d->error = *e;
    pthread_mutex_unlock(&d->mutex);
}

/* ---- doing ------------------------------------------------------------------------------------
 */

struct deferred_event *deferred_event(struct deferred *d, int32_t event)
{
    pthread_mutex_lock(&d->mutex);
    if (event < 0 || event >= d->n_events) BUG("no event %d", (int)event);
    struct deferred_event *e = d->events[event];
    pthread_mutex_unlock(&d->mutex);
    return e;
}

struct stream *deferred_stream(struct deferred *d, int32_t stream)
{
    pthread_mutex_lock(&d->mutex);
    if (stream < 0 || stream >= d->n_streams) BUG("no stream %d", (int)stream);
    struct stream *s = d->streams[stream];
    pthread_mutex_unlock(&d->mutex);
    return s;
}

static void reach(struct deferred_event *e, int64_t ticket)
{
    pthread_mutex_lock(&e->mutex);
    e->done = ticket;
    e->at_ns = clock_wall_ns();
    pthread_cond_broadcast(&e->reached);
    pthread_mutex_unlock(&e->mutex);
}

bool deferred_reached(struct deferred_event *e, int64_t ticket)
{
    pthread_mutex_lock(&e->mutex);
    bool is = e->done >= ticket;
    pthread_mutex_unlock(&e->mutex);
    return is;
}

void deferred_await(struct deferred_event *e, int64_t ticket)
{
    pthread_mutex_lock(&e->mutex);
    while (e->done < ticket) pthread_cond_wait(&e->reached, &e->mutex);
    pthread_mutex_unlock(&e->mutex);
}

static void carry_out(struct stream *s, struct task *t)
{
    struct deferred *d = s->of;
    struct error e;
    if (t->kind == TASK_OP) {
        enum status status = kernels_host_run(&s->context, &t->call, &e);
        if (status != OK) keep_failure(d, status, &e);
    } else if (t->kind == TASK_COPY) {
        memcpy(t->to, t->from, t->bytes);
    } else if (t->kind == TASK_RECORD) {
        reach(deferred_event(d, t->event), t->ticket);
    } else {
        deferred_await(deferred_event(d, t->event), t->ticket);
    }
}

void *deferred_stream_main(void *argument)
{
    struct stream *s = argument;
    pthread_mutex_lock(&s->mutex);
    while (!s->stop || s->first) {
        struct task *t = s->first;
        if (!t) {
            pthread_cond_wait(&s->more, &s->mutex);
            continue;
        }
        pthread_mutex_unlock(&s->mutex);
        carry_out(s, t);
        pthread_mutex_lock(&s->mutex);
        s->first = t->next;
        if (!s->first) s->last = NULL;
        s->ended++;
        pthread_cond_broadcast(&s->more);
        free(t);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* LAZY: one task of the stream, or of one that it waits for. False: there is none. Tasks are taken under the stream's mutex, which
 * is held while the task runs: whoever comes second finds it done. */
bool deferred_one_task(struct deferred *d, struct stream *s)
{
    pthread_mutex_lock(&s->mutex);
    struct task *t = s->first;
    if (t && t->kind == TASK_WAIT && !deferred_reached(deferred_event(d, t->event), t->ticket)) {
        struct deferred_event *e = deferred_event(d, t->event);
        pthread_mutex_unlock(&s->mutex);
        pthread_mutex_lock(&e->mutex);
        int32_t other = e->stream;
        pthread_mutex_unlock(&e->mutex);
        return deferred_one_task(d, deferred_stream(d, other));
    }
    if (t) {
        carry_out(s, t);
        s->first = t->next;
        if (!s->first) s->last = NULL;
        s->ended++;
        free(t);
    }
    pthread_mutex_unlock(&s->mutex);
    return t != NULL;
}

/* ---- asking -----------------------------------------------------------------------------------
 */

void deferred_post(struct deferred *d, int32_t stream, const struct task *like)
{
    struct stream *s = deferred_stream(d, stream);
    struct task *t = malloc(sizeof *t);
    if (!t) abort();
    *t = *like;
    t->next = NULL;
    if (t->kind == TASK_OP && t->call.optimizer) t->call.optimizer = &t->optimizer;
    pthread_mutex_lock(&s->mutex);
    if (s->last)
        s->last->next = t;
    else
        s->first = t;
    s->last = t;
    s->asked++;
    pthread_cond_broadcast(&s->more);
    pthread_mutex_unlock(&s->mutex);
}

/* Until the stream has done what it was asked so far. */
void deferred_drain(struct deferred *d, struct stream *s)
{
    pthread_mutex_lock(&s->mutex);
    int64_t until = s->asked;
    while (d->o.mode == DEFERRED_THREADS && s->ended < until)
        pthread_cond_wait(&s->more, &s->mutex);
    bool over = s->ended >= until;
    pthread_mutex_unlock(&s->mutex);
    while (!over) {
        deferred_one_task(d, s);
        pthread_mutex_lock(&s->mutex);
        over = s->ended >= until;
        pthread_mutex_unlock(&s->mutex);
    }
}
