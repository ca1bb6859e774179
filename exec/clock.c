#include "exec/clock.h"

#include "core/base/units.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#define NS 1000000000LL
#define PRIORITY_BASE                                                                              \
    10 /* of SCHED_FIFO's 1 … 99: above ordinary threads, below the kernel's own */

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * NS + t.tv_nsec;
}

int64_t clock_wall_ns(void) { return read_clock(CLOCK_MONOTONIC); }
int64_t clock_cpu_ns(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void clock_sleep_until(int64_t wall_ns)
{
    if (clock_wall_ns() >= wall_ns) return;
    const struct timespec until = {.tv_sec = wall_ns / NS, .tv_nsec = wall_ns % NS};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

void clock_sleep_sharply(void) { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

bool clock_real_time(bool wanted, int level)
{
    struct sched_param p = {.sched_priority = wanted ? PRIORITY_BASE + level : 0};
    return !pthread_setschedparam(pthread_self(), wanted ? SCHED_FIFO : SCHED_OTHER, &p);
}

/* ---- device -----------------------------------------------------------------------------------
 */

void device_clock_start(struct device_clock *c, double slowdown, int64_t zero_ns)
{
    *c = (struct device_clock){.slowdown = slowdown, .zero_ns = zero_ns, .cpu_ns = clock_cpu_ns()};
}

int64_t device_clock_now(const struct device_clock *c)
{
    return c->slowdown > 0 ? c->now_ns : clock_wall_ns() - c->zero_ns;
}

int64_t device_clock_begin(const struct device_clock *c) { return device_clock_now(c); }

int64_t device_clock_end(struct device_clock *c)
{
    if (!(c->slowdown > 0)) return clock_wall_ns() - c->zero_ns;
    int64_t cpu_ns = clock_cpu_ns();
    c->now_ns += units_ns_from_s(c->slowdown * units_s_from_ns(cpu_ns - c->cpu_ns + c->owed_ns));
    c->cpu_ns = cpu_ns;
    c->owed_ns = 0;
    return c->now_ns;
}

void device_clock_wait(struct device_clock *c)
{
    if (c->slowdown > 0) c->owed_ns += clock_cpu_ns() - c->cpu_ns;
}

void device_clock_waited(struct device_clock *c, int64_t until_ns)
{
    if (!(c->slowdown > 0)) return;
    c->cpu_ns = clock_cpu_ns();
    if (until_ns > c->now_ns) c->now_ns = until_ns;
}

void device_clock_set(struct device_clock *c, int64_t now_ns)
{
    if (!(c->slowdown > 0)) return;
    c->now_ns = now_ns;
    c->cpu_ns = clock_cpu_ns();
    c->owed_ns = 0;
}

int64_t device_clock_lasted(struct device_clock *c, int64_t ns)
{
    c->now_ns += units_ns_from_s(c->slowdown * units_s_from_ns(ns));
    return c->now_ns;
}

void device_clock_pace(struct device_clock *c)
{
    if (!(c->slowdown > 0) || clock_wall_ns() >= c->zero_ns + c->now_ns) return;
    device_clock_wait(c);
    clock_sleep_until(c->zero_ns + c->now_ns);
    device_clock_waited(c, 0);
}

/* ---- link -------------------------------------------------------------------------------------
 */

int link_clock_init(struct link_clock *c)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    int failed = pthread_mutex_init(&c->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    c->free_ns = 0;
    return failed;
}

/* free_ns is valid even if a rank died with the lock: it is written once, last. */
void link_clock_lock(struct link_clock *c)
{
    if (pthread_mutex_lock(&c->mutex) == EOWNERDEAD) pthread_mutex_consistent(&c->mutex);
}

void link_clock_unlock(struct link_clock *c) { pthread_mutex_unlock(&c->mutex); }

int64_t link_clock_reserve(struct link_clock *c, int64_t earliest_ns, int64_t occupancy_ns)
{
    link_clock_lock(c);
    int64_t start_ns = earliest_ns > c->free_ns ? earliest_ns : c->free_ns;
    c->free_ns = start_ns + occupancy_ns;
    link_clock_unlock(c);
    return start_ns;
}
