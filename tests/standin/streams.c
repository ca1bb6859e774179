/* tests/standin/streams.c - streams as in-order queues, each on its own thread; events.
 *
 * A stream's thread takes what was asked of it, in order. Work carries the only thing that orders two threads: the asking
 * thread releases it, the stream acquires it; the return path goes by tickets (an event's record, a wait for a stream).
 * Everything else, the queue's lock too, is hidden from the thread sanitizer (books.c).
 * A lost device does nothing any more, but its waits and records pass, so nothing hangs.
 * A stream takes no more than STANDIN_QUEUE at once; who asks for more waits inside the call, and looks at nothing meanwhile.
 * The default stream is CUDA's legacy one: it waits for the streams that were not made non-blocking, and they for it.
 */
#include "tests/standin/activity.h"
#include "tests/standin/internal.h"

#include <pthread.h>
#include <stdlib.h>

struct CUstream_st {
    int device;
    unsigned flags;
    bool named; /* made by a call, not a default stream */
    int *of;    /* a green context's streams, under the books; NULL */
    pthread_mutex_t lock;
    pthread_cond_t more, room;
    struct work *first, *last;
    int64_t pushed, queued; /* all so far; those that the thread has not taken */
    int64_t finished; /* released by the thread, acquired by queries */
    struct CUstream_st *next;
};

struct CUevent_st {
    int device;
    bool timed;
    struct ticket *record; /* the last one; NULL: none yet */
    struct CUevent_st *next;
};

static struct CUstream_st *streams; /* alive; under the books */
static struct CUevent_st *events;
static struct CUstream_st *defaults[STANDIN_DEVICES_MAX];

void *work_new(size_t bytes, void (*run)(struct work *w))
{
    struct work *w = calloc(1, bytes);
    if (!w) abort();
    w->run = run;
    return w;
}

/* --- the thread --- */

static struct work *take(struct CUstream_st *s)
{
    hidden_begin();
    pthread_mutex_lock(&s->lock);
    while (!s->first) pthread_cond_wait(&s->more, &s->lock);
    struct work *w = s->first;
    s->first = w->next;
    if (!s->first) s->last = NULL;
    s->queued--;
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->lock);
    hidden_end();
    (void)__atomic_load_n(&w->handed, __ATOMIC_ACQUIRE);
    return w;
}

static void end(struct work *w) { (void)w; } /* its address marks a stream's last work */

static void *stream_main(void *p)
{
    struct CUstream_st *s = p;
    for (bool ends = false; !ends;) {
        struct work *w = take(s);
        ends = w->run == end;
        bool runs = w->run && !ends && (w->always || standin_may_work(s->device));
        uint64_t begin = w->noted ? activity_now() : 0;
        if (runs) w->run(w);
        if (w->noted) activity_ended(w->noted, begin, runs);
        if (w->drop) w->drop(w);
        struct ticket *t = w->ticket;
        free(w);
        __atomic_store_n(&s->finished, s->finished + 1, __ATOMIC_RELEASE);
        if (t) ticket_finish(t);
        ticket_drop(t);
    }
    hidden_begin();
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->room);
    pthread_mutex_destroy(&s->lock);
    hidden_end();
    free(s);
    return NULL;
}

static struct CUstream_st *stream_make(int device, unsigned flags, bool named)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s) abort();
    *s = (struct CUstream_st){.device = device, .flags = flags, .named = named};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->room, NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, stream_main, s)) abort();
    pthread_detach(thread);
    return s;
}

/* --- pushing --- */

static void append(struct CUstream_st *s, struct work *w)
{
    __atomic_store_n(&w->handed, 1, __ATOMIC_RELEASE);
    hidden_begin();
    pthread_mutex_lock(&s->lock);
    if (s->last)
        s->last->next = w;
    else
        s->first = w;
    s->last = w;
    s->pushed++;
    s->queued++;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
    hidden_end();
}

static void wait_for_room(struct CUstream_st *s)
{
    hidden_begin();
    pthread_mutex_lock(&s->lock);
    while (s->queued >= standin_queue()) pthread_cond_wait(&s->room, &s->lock);
    pthread_mutex_unlock(&s->lock);
    hidden_end();
}

/* Done when the stream has come here; the caller drops it. */
static struct ticket *mark(struct CUstream_st *s)
{
    struct ticket *t = ticket_new();
    ticket_hold(t);
    struct work *w = work_new(sizeof *w, NULL);
    w->ticket = t;
    append(s, w);
    return t;
}

struct wait_work {
    struct work w;
    struct ticket *until;
};

static void run_wait(struct work *w) { ticket_wait(((struct wait_work *)w)->until); }
static void drop_wait(struct work *w) { ticket_drop(((struct wait_work *)w)->until); }

/* Takes the caller's hold of t. */
static void append_wait(struct CUstream_st *s, struct ticket *t)
{
    struct wait_work *w = work_new(sizeof *w, run_wait);
    w->w.drop = drop_wait;
    w->w.always = true;
    w->until = t;
    append(s, &w->w);
}

/* Up to n streams of a device for which `which` holds; nobody destroys them while they are looked at but their owner. */
static int streams_of(int device, bool blocking_alone, struct CUstream_st **out, int n)
{
    int found = 0;
    books_open();
    for (struct CUstream_st *s = streams; s && found < n; s = s->next)
        if (s->device == device && (!blocking_alone || !(s->flags & cudaStreamNonBlocking)))
            out[found++] = s;
    books_close();
    return found;
}

enum { STREAMS_MAX = 4096 };

static struct CUstream_st *default_if_any(int device)
{
    books_open();
    struct CUstream_st *s = defaults[device];
    books_close();
    return s;
}

void stream_push(cudaStream_t s, struct work *w)
{
    wait_for_room(s);
    if (!s->named) {
        struct CUstream_st *others[STREAMS_MAX];
        int n = streams_of(s->device, true, others, STREAMS_MAX);
        for (int i = 0; i < n; i++)
            if (others[i] != s) append_wait(s, mark(others[i]));
    } else if (!(s->flags & cudaStreamNonBlocking)) {
        struct CUstream_st *before = default_if_any(s->device);
        if (before) append_wait(s, mark(before));
    }
    append(s, w);
}

void stream_wait(cudaStream_t s)
{
    struct ticket *t = mark(s);
    ticket_wait(t);
    ticket_drop(t);
}

int stream_device(cudaStream_t s) { return s->device; }

void streams_wait(int device)
{
    struct CUstream_st *all[STREAMS_MAX];
    struct ticket *marks[STREAMS_MAX];
    int n = streams_of(device, false, all, STREAMS_MAX);
    for (int i = 0; i < n; i++) marks[i] = mark(all[i]);
    for (int i = 0; i < n; i++) {
        ticket_wait(marks[i]);
        ticket_drop(marks[i]);
    }
}

/* --- handles --- */

static struct CUstream_st *default_of(int device)
{
    struct CUstream_st *s = default_if_any(device);
    if (s) return s;
    s = stream_make(device, 0, false);
    books_open();
    if (!defaults[device]) {
        defaults[device] = s;
        s->next = streams;
        streams = s;
    }
    s = defaults[device];
    books_close();
    return s;
}

cudaError_t stream_find(cudaStream_t handle, bool here, cudaStream_t *out)
{
    if (!handle || handle == cudaStreamLegacy) {
        *out = default_of(standin_device());
        return cudaSuccess;
    }
    books_open();
    struct CUstream_st *s = streams;
    while (s && s != handle) s = s->next;
    books_close();
    if (!s || (here && s->device != standin_device())) return cudaErrorInvalidResourceHandle;
    *out = s;
    return cudaSuccess;
}

static cudaStream_t keep_stream(struct CUstream_st *s)
{
    books_open();
    s->next = streams;
    streams = s;
    books_close();
    standin_keep(KEPT_STREAM, 1);
    return s;
}

cudaStream_t stream_make_green_context(int device, int *of)
{
    struct CUstream_st *s = stream_make(device, cudaStreamNonBlocking, true);
    s->of = of;
    return keep_stream(s);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority; /* out of range is moved into it; order of streams is left to the machine */
    ENTER();
    if (flags > cudaStreamNonBlocking) return standin_leave(cudaErrorInvalidValue);
    *out = keep_stream(stream_make(standin_device(), flags, true));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

/* What was asked of it is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t e = standin_enter(__func__);
    books_open();
    struct CUstream_st **at = &streams;
    while (*at && (*at != stream || !(*at)->named)) at = &(*at)->next;
    struct CUstream_st *s = *at;
    if (s) *at = s->next;
    if (s && s->of) --*s->of;
    books_close();
    if (!s) return standin_leave(e ? e : cudaErrorInvalidResourceHandle);
    standin_keep(KEPT_STREAM, -1);
    struct work *w = work_new(sizeof *w, end);
    append(s, w);
    return standin_leave(e);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    cudaStream_t s;
    cudaError_t e = stream_find(stream, false, &s);
    if (e != cudaSuccess) return standin_leave(e);
    stream_wait(s);
    return standin_leave(standin_lost(s->device));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaStream_t s;
    cudaError_t e = standin_enter_uncounted();
    if (e == cudaSuccess) e = stream_find(stream, false, &s);
    if (e != cudaSuccess) return standin_leave(e);
    hidden_begin();
    pthread_mutex_lock(&s->lock);
    int64_t pushed = s->pushed;
    pthread_mutex_unlock(&s->lock);
    hidden_end();
    if (__atomic_load_n(&s->finished, __ATOMIC_ACQUIRE) < pushed) return cudaErrorNotReady;
    return standin_leave(standin_lost(s->device));
}

/* --- events --- */

static bool event_known(cudaEvent_t e)
{
    struct CUevent_st *i = events;
    while (i && i != e) i = i->next;
    return i != NULL;
}

/* Its last record, held for the caller; NULL: none. */
static cudaError_t event_record_of(cudaEvent_t e, struct ticket **out)
{
    books_open();
    bool known = event_known(e);
    *out = known ? e->record : NULL;
    if (*out) (*out)->held++;
    books_close();
    return known ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    ENTER();
    if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
        return standin_leave(cudaErrorInvalidValue);
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e) abort();
    e->device = standin_device();
    e->timed = !(flags & cudaEventDisableTiming);
    books_open();
    e->next = events;
    events = e;
    books_close();
    standin_keep(KEPT_EVENT, 1);
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t e = standin_enter(__func__);
    books_open();
    struct CUevent_st **at = &events;
    while (*at && *at != event) at = &(*at)->next;
    struct CUevent_st *found = *at;
    if (found) *at = found->next;
    books_close();
    if (!found) return standin_leave(e ? e : cudaErrorInvalidResourceHandle);
    ticket_drop(found->record);
    hidden_begin();
    free(found);
    hidden_end();
    standin_keep(KEPT_EVENT, -1);
    return standin_leave(e);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    cudaStream_t s;
    cudaError_t e = stream_find(stream, true, &s);
    if (e != cudaSuccess) return standin_leave(e);
    struct ticket *t = ticket_new(), *old = NULL;
    books_open();
    bool known = event_known(event) && event->device == s->device;
    if (known) {
        old = event->record;
        event->record = t;
        t->held++;
    }
    books_close();
    if (!known) {
        ticket_drop(t);
        return standin_leave(cudaErrorInvalidResourceHandle);
    }
    ticket_drop(old);
    struct work *w = work_new(sizeof *w, NULL);
    w->ticket = t;
    stream_push(s, w);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    ENTER();
    cudaStream_t s;
    struct ticket *t;
    if (flags) return standin_leave(cudaErrorInvalidValue);
    cudaError_t e = stream_find(stream, false, &s);
    if (e == cudaSuccess) e = event_record_of(event, &t);
    if (e != cudaSuccess) return standin_leave(e);
    if (t) append_wait(s, t);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    struct ticket *t;
    cudaError_t e = standin_enter_uncounted();
    if (e == cudaSuccess) e = event_record_of(event, &t);
    if (e != cudaSuccess) return standin_leave(e);
    bool done = !t || ticket_done(t);
    ticket_drop(t);
    return done ? standin_leave(standin_lost(event->device)) : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    struct ticket *t;
    cudaError_t e = event_record_of(event, &t);
    if (e != cudaSuccess) return standin_leave(e);
    if (t) ticket_wait(t);
    ticket_drop(t);
    return standin_leave(standin_lost(event->device));
}

cudaError_t cudaEventElapsedTime(float *out_ms, cudaEvent_t from, cudaEvent_t to)
{
    ENTER();
    struct ticket *a = NULL, *b = NULL;
    cudaError_t e = event_record_of(from, &a);
    if (e == cudaSuccess) e = event_record_of(to, &b);
    if (e == cudaSuccess && (!a || !b || !from->timed || !to->timed))
        e = cudaErrorInvalidResourceHandle;
    if (e == cudaSuccess && !(ticket_done(a) && ticket_done(b))) e = cudaErrorNotReady;
    if (e == cudaSuccess) *out_ms = (float)((double)(ticket_at_ns(b) - ticket_at_ns(a)) * 1e-6);
    ticket_drop(a);
    ticket_drop(b);
    return standin_leave(e);
}
