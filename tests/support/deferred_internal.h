/* tests/support/deferred_internal.h - a late device inside; for tests/support/deferred.c and deferred_streams.c alone. */
#ifndef TESTS_SUPPORT_DEFERRED_INTERNAL_H
#define TESTS_SUPPORT_DEFERRED_INTERNAL_H

#include "exec/host/kernels_host.h"
#include "tests/support/deferred.h"

#include <pthread.h>

enum { STREAMS_MAX = 64, EVENTS_MAX = 1 << 20, PIECES_MAX = 4096 };

enum task_kind { TASK_OP, TASK_COPY, TASK_RECORD, TASK_WAIT };
struct task {
    enum task_kind kind;
    struct op_call call; /* real addresses */
    struct optimizer_step optimizer;
    void *to;
    const void *from;
    size_t bytes;
    int32_t event;
    int64_t ticket;
    struct task *next;
};

struct deferred_event {
    pthread_mutex_t mutex;
    pthread_cond_t reached;
    int64_t wanted, done, at_ns; /* records asked for, records reached */
    int32_t stream;              /* of the last record */
};

struct stream {
    pthread_mutex_t mutex;
    pthread_cond_t more;
    struct task *first, *last;
    int64_t asked, ended; /* tasks */
    bool stop, busy;
    pthread_t thread;
    struct host_context context;
    struct deferred *of;
};

struct deferred_piece {
    char *shown, *real; /* the same where pinned */
    size_t bytes;
};

struct deferred {
    struct deferred_options o;
    pthread_mutex_t mutex; /* tables; LAZY: everything */
    struct stream *streams[STREAMS_MAX];
    int32_t n_streams, n_events;
    struct deferred_event **events;
    struct deferred_piece pieces[PIECES_MAX];
    int32_t n_pieces;
    enum status failed;
    struct error error;
};

struct deferred_event *deferred_event(struct deferred *d, int32_t event);
struct stream *deferred_stream(struct deferred *d, int32_t stream);
bool deferred_reached(struct deferred_event *e, int64_t ticket);
void deferred_await(struct deferred_event *e, int64_t ticket);
void *deferred_stream_main(void *argument); /* THREADS: a stream's thread */
/* LAZY: one task of the stream, or of one that it waits for. False: there is none. */
bool deferred_one_task(struct deferred *d, struct stream *s);
void deferred_post(struct deferred *d, int32_t stream, const struct task *like); /* copied */
void deferred_drain(struct deferred *d,
                    struct stream *s); /* until all that it was asked so far is done */

#endif
