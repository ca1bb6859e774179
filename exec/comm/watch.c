/* exec/comm/watch.c - time limit of collective calls: a thread detects ranks that do not respond.
 *
 * A dead rank is noticed by the launcher or by its lock. A rank that is stopped, or blocked in a driver, is not, and
 * collective calls have no time limit of their own. Therefore a thread of this process monitors it during such a
 * call. Ranks of one host share a board with each rank's last sign of life. Between two calls a rank updates it by
 * comm_alive, or, during one long operation (a file), this thread does so; SIGSTOP stops it too. The wait is over if
 * a rank gave no sign of life for the limit, or if all others have waited for the limit, which is a deadlock. Without
 * a board (several hosts, or before ranks have joined) only time counts: REMOTE_TIMES × the limit once ranks have
 * joined, and no limit while rank 0 writes files (comm_at_root), because a slow disk is not a failure; the launcher
 * notices a rank that ends. The call cannot return, so the process ends with ERR_RANK, and its peers notice that.
 * Rejected: calls with a time limit (the message library has none), and a thread that always updates the board, which
 * would hide a rank that hangs.
 */
#include "exec/comm/transport.h"

#include "core/base/settings.h"
#include "exec/clock.h"
#include "exec/comm/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REMOTE_TIMES 10
#define LOOK_NS INT64_C(20000000)
#define NS_PER_S 1e9

int64_t comm_limit_ns(void)
{
    return (int64_t)(settings_timeout_s() * NS_PER_S);
}

/* ---- who is there ----------------------------------------------------------------------------- */

void comm_alive(struct comm *c)
{
    if (c && c->bells)
        atomic_store_explicit(&c->bells[c->rank].life_ns, clock_wall_ns(), memory_order_relaxed);
}

static const char *name_of(const struct comm *c, int32_t rank)
{
    return c->names ? c->names[rank] : "";
}

/* 'X': gone; 'R': not yet started, and this rank itself */
static char state_of_rank(const struct comm *c, int32_t rank)
{
    int32_t pid = atomic_load(&c->bells[rank].pid);
    if (rank == c->rank || !pid) return 'R';
    return launch_process_state(pid);
}

int32_t comm_ended(const struct comm *c)
{
    for (int32_t i = 0; c && c->bells && i < c->size; i++)
        if (launch_process_ended(state_of_rank(c, i))) return i;
    return -1;
}

int32_t comm_lost(const struct comm *c, int64_t limit_ns, char *text, size_t n)
{
    int64_t now_ns = clock_wall_ns(), longest_ns = limit_ns;
    int32_t found = -1;
    if (n) text[0] = 0;
    for (int32_t i = 0; c && c->bells && i < c->size; i++) {
        int64_t life_ns = atomic_load(&c->bells[i].life_ns);
        char state = state_of_rank(c, i);
        bool over = launch_process_ended(state), stopped = state == 'T' || state == 't';
        if (i >= c->expendable && (over || stopped)) continue; /* the launcher ends a stopped one */
        if (i == c->rank || (!over && !stopped && now_ns - life_ns <= longest_ns)) continue;
        found = i;
        if (over || stopped) {
            snprintf(text, n, "rank %" PRId32 " (%s) %s", i, name_of(c, i),
                     over ? "has ended" : "is stopped");
            return i;
        }
        longest_ns = now_ns - life_ns;
        snprintf(text, n, "rank %" PRId32 " (%s) last responded %.1f s ago", i, name_of(c, i),
                 (double)longest_ns / NS_PER_S);
    }
    return found;
}

/* ---- the thread ------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pid_t of; /* owner of the thread: a fork has none */
    struct comm *c;
    const char *what;
    int64_t since_ns;
    int waits, works; /* nested calls; long operations */
} watch = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

__attribute__((noreturn)) static void end_process(const struct comm *c, const char *who,
                                                  int64_t waited_ns)
{
    int32_t rank = c->met ? c->rank : launch_rank(); /* before joining the rank is unknown */
    struct error err;
    error_set(&err, ERR_RANK, "rank %" PRId32 " (%s): %s: %s for %.1f s in %s", rank, name_of(c, rank),
              *c->phase ? c->phase : "all ranks together", who, (double)waited_ns / NS_PER_S,
              watch.what);
    launch_report_alone(&err);
    _exit(ERR_RANK);
}

static void judge_board(const struct comm *c, int64_t now_ns, int64_t waited_ns)
{
    int64_t limit_ns = c->limit_ns;
    bool all_wait = true;
    char who[160], text[200];
    for (int32_t i = 0; i < c->size; i++) {
        int64_t life_ns = atomic_load(&c->bells[i].life_ns),
                waits_ns = atomic_load(&c->bells[i].waits_ns);
        if (i == c->rank || (i >= c->expendable && launch_process_ended(state_of_rank(c, i)))) continue;
        all_wait &= waits_ns && now_ns - waits_ns > limit_ns;
        if (now_ns - life_ns <= limit_ns) continue;
        if (comm_lost(c, limit_ns / 2, who, sizeof who) < 0)
            snprintf(who, sizeof who, "rank %" PRId32 " (%s) does not respond", i, name_of(c, i));
        snprintf(text, sizeof text, "%s; waited", who);
        end_process(c, text, waited_ns);
    }
    if (all_wait) end_process(c, "deadlock: every rank waits for another", waited_ns);
}

static void judge(const struct comm *c, int64_t now_ns)
{
    int64_t waited_ns = now_ns - watch.since_ns,
            limit_ns = c->limit_ns * (c->met && !c->one_host ? REMOTE_TIMES : 1);
    if (waited_ns <= limit_ns || (c->patient && !c->bells)) return;
    if (c->bells)
        judge_board(c, now_ns, waited_ns);
    else
        end_process(c, "a rank does not respond; waited", waited_ns);
}

static void *watch_main(void *nothing)
{
    (void)nothing;
    pthread_mutex_lock(&watch.mutex);
    for (;;) {
        if (!watch.waits && !watch.works) {
            pthread_cond_wait(&watch.changed, &watch.mutex);
            continue;
        }
        comm_alive(watch.c);
        if (watch.waits) judge(watch.c, clock_wall_ns());
        pthread_mutex_unlock(&watch.mutex);
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
        pthread_mutex_lock(&watch.mutex);
    }
    return NULL;
}

/* A process that cannot create a thread is not monitored. */
static void start_thread(void)
{
    pthread_t thread;
    if (watch.of == getpid()) return;
    watch.of = getpid();
    watch.waits = watch.works = 0;
    if (pthread_create(&thread, NULL, watch_main, NULL) == 0) pthread_detach(thread);
}

static void note_waiting(struct comm *c, int64_t since_ns)
{
    if (!c->bells) return;
    atomic_store(&c->bells[c->rank].waits_ns, since_ns);
    comm_alive(c);
}

void comm_watch_begin(struct comm *c, const char *what)
{
    pthread_mutex_lock(&watch.mutex);
    start_thread();
    if (watch.waits++ == 0) {
        watch.c = c;
        watch.what = what;
        watch.since_ns = clock_wall_ns();
        note_waiting(c, watch.since_ns);
        pthread_cond_signal(&watch.changed);
    }
    pthread_mutex_unlock(&watch.mutex);
}

void comm_watch_end(struct comm *c)
{
    pthread_mutex_lock(&watch.mutex);
    if (--watch.waits == 0) note_waiting(c, 0);
    pthread_mutex_unlock(&watch.mutex);
}

void comm_working(struct comm *c, bool begins)
{
    if (!c->started) return;
    pthread_mutex_lock(&watch.mutex);
    start_thread();
    watch.c = c;
    watch.works += begins ? 1 : -1;
    if (begins) pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.mutex);
}

void comm_call_ranks(struct comm *c, const char *const *names)
{
    pthread_mutex_lock(&watch.mutex);
    c->names = names;
    pthread_mutex_unlock(&watch.mutex);
}

void comm_phase(struct comm *c, const char *phase)
{
    pthread_mutex_lock(&watch.mutex);
    c->phase = phase;
    pthread_mutex_unlock(&watch.mutex);
}

void comm_watch_met(struct comm *c)
{
    pthread_mutex_lock(&watch.mutex);
    c->met = true;
    pthread_mutex_unlock(&watch.mutex);
}

void comm_watch_patiently(struct comm *c, bool begins)
{
    pthread_mutex_lock(&watch.mutex);
    c->patient = begins;
    pthread_mutex_unlock(&watch.mutex);
}

void comm_watch_board(struct comm *c, struct bell *bells)
{
    pthread_mutex_lock(&watch.mutex);
    c->bells = bells;
    if (bells) {
        atomic_store(&bells[c->rank].pid, (int32_t)getpid());
        comm_alive(c);
        if (watch.waits) atomic_store(&bells[c->rank].waits_ns, watch.since_ns);
    }
    pthread_mutex_unlock(&watch.mutex);
}
