/* tests/standin/books.c - the tables' lock, and tickets.
 *
 * The thread sanitizer orders two threads if one unlocks a mutex that the other locks. A runtime with tables behind a
 * lock would thereby order everything, and no missing event could be detected. So the lock is hidden from it; only
 * tickets and the hand-over of work (streams.c) release and acquire.
 */
#include "tests/standin/internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

#ifdef TSAN
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

void hidden_begin(void)
{
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void hidden_end(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
#else
void hidden_begin(void) {}
void hidden_end(void) {}
#endif

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;

void books_open(void)
{
    hidden_begin();
    pthread_mutex_lock(&books);
}

void books_close(void)
{
    pthread_mutex_unlock(&books);
    hidden_end();
}

/* Tickets are used again, never freed: to free one would order its last two holders. */
static struct ticket *unused;

struct ticket *ticket_new(void)
{
    books_open();
    struct ticket *t = unused;
    if (t)
        unused = t->next;
    else if (!(t = malloc(sizeof *t)))
        abort();
    t->held = 1;
    t->at_ns = 0;
    t->next = NULL;
    __atomic_store_n(&t->done, 0, __ATOMIC_RELAXED);
    books_close();
    return t;
}

void ticket_hold(struct ticket *t)
{
    books_open();
    t->held++;
    books_close();
}

void ticket_drop(struct ticket *t)
{
    if (!t) return;
    books_open();
    if (!--t->held) {
        t->next = unused;
        unused = t;
    }
    books_close();
}

void ticket_finish(struct ticket *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    hidden_begin();
    t->at_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    hidden_end();
    __atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &t->done, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool ticket_done(struct ticket *t) { return __atomic_load_n(&t->done, __ATOMIC_ACQUIRE); }

void ticket_wait(struct ticket *t)
{
    while (!ticket_done(t)) syscall(SYS_futex, &t->done, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

int64_t ticket_at_ns(struct ticket *t)
{
    hidden_begin();
    int64_t at = t->at_ns;
    hidden_end();
    return at;
}
