/* exec/clock.h - what time it is on a device and on a link.
 *
 * A run has one time axis in nanoseconds; 0 is an instant that all ranks agreed on (zero_ns, each
 * in its own CLOCK_MONOTONIC). On a real device the time is the wall's. On an emulated one it is
 * virtual: an operator lasts slowdown × the CPU time that the compute thread spent on it, whatever
 * else the machine was doing meanwhile, and waits move the clock forward to the instant that was
 * waited for. Pacing ties the two together: the thread sleeps until the wall has come to the
 * virtual time, so that ranks meet each other in the order of their virtual times. A wall that is
 * late stays late and is visible in the wall time of the whole step; virtual time does not absorb
 * it.
 */
#ifndef EXEC_CLOCK_H
#define EXEC_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

int64_t clock_wall_ns(void);             /* CLOCK_MONOTONIC */
int64_t clock_cpu_ns(void);              /* CPU time of the calling thread */
void clock_sleep_until(int64_t wall_ns); /* CLOCK_MONOTONIC; returns at once where it is past */
void clock_sleep_sharply(void);          /* the calling thread's timers fire without slack */
bool clock_real_time(bool wanted,
                     int level); /* SCHED_FIFO at 10 + level, or back; false where not allowed */

struct device_clock {
    double slowdown; /* 0: real, the clock is the wall */
    int64_t zero_ns; /* CLOCK_MONOTONIC at time 0 */
    int64_t now_ns;  /* emulated: virtual time */
    int64_t cpu_ns;  /* CPU time of the thread that is accounted for */
    int64_t owed_ns; /* CPU time spent before a wait, charged to the next operator */
};

/* By the compute thread: the CPU time it spent so far is nobody's. */
void device_clock_start(struct device_clock *c, double slowdown, int64_t zero_ns);
int64_t device_clock_now(const struct device_clock *c);
/* Around one operator. Emulated: begin is the end of the one before (or of a wait). */
int64_t device_clock_begin(const struct device_clock *c);
int64_t device_clock_end(struct device_clock *c);
/* Around a wait: its CPU time is not charged; afterwards it is at least until_ns (0: no instant).
 */
void device_clock_wait(struct device_clock *c);
void device_clock_waited(struct device_clock *c, int64_t until_ns);
/* An operator that took ns on the device itself has ended; virtual time then. */
int64_t device_clock_lasted(struct device_clock *c, int64_t ns);
void device_clock_pace(
    struct device_clock *c); /* sleeps until the wall has come to the virtual time */

/* When an emulated link is free again; in memory that all ranks share. */
struct link_clock {
    pthread_mutex_t mutex; /* robust, shared between processes */
    int64_t free_ns;
};
int link_clock_init(struct link_clock *c); /* 0 or errno */
/* Whoever has it alone, whatever else its owner did with it; one that died with it is forgotten. */
void link_clock_lock(struct link_clock *c);
void link_clock_unlock(struct link_clock *c);
/* Occupies the link for occupancy_ns from the first instant ≥ earliest_ns at which it is free; that
 * instant. */
int64_t link_clock_reserve(struct link_clock *c, int64_t earliest_ns, int64_t occupancy_ns);

#endif
