/* exec/clock.h - real and virtual time of devices and links.
 *
 * A run has one time axis in ns. Time 0 is an instant that all ranks agreed on (zero_ns, each in its own
 * CLOCK_MONOTONIC). On a real device time is wall time. On an emulated device time is virtual: an operator lasts
 * slowdown × the CPU time that the compute thread spent on it, whatever else the host was running, and a wait moves
 * the clock forward to the end of the wait. Pacing makes the thread sleep until wall time reaches virtual time, so
 * that ranks interact in the order of their virtual times. If wall time falls behind, it stays behind and shows in
 * the step's wall time; virtual time does not absorb the delay.
 */
#ifndef EXEC_CLOCK_H
#define EXEC_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

int64_t clock_wall_ns(void);             /* CLOCK_MONOTONIC */
int64_t clock_cpu_ns(void);              /* CPU time of the calling thread */
void clock_sleep_until(int64_t wall_ns); /* CLOCK_MONOTONIC; returns at once if it is past */
void clock_sleep_sharply(void);          /* removes the timer slack of the calling thread */
bool clock_real_time(bool wanted,
                     int level); /* SCHED_FIFO at 10 + level, or back to normal; false if not permitted */

struct device_clock {
    double slowdown; /* 0: real, wall time */
    int64_t zero_ns; /* CLOCK_MONOTONIC at time 0 */
    int64_t now_ns;  /* emulated: virtual time */
    int64_t cpu_ns;  /* CPU time of the thread already charged */
    int64_t owed_ns; /* CPU time spent before a wait, charged to the next operator */
};

/* Called by the compute thread: CPU time spent before is not charged. */
void device_clock_start(struct device_clock *c, double slowdown, int64_t zero_ns);
int64_t device_clock_now(const struct device_clock *c);
/* Around one operator. Emulated: begin is the end of the previous operator or wait. */
int64_t device_clock_begin(const struct device_clock *c);
int64_t device_clock_end(struct device_clock *c);
/* Around a wait, whose CPU time is not charged. Afterwards the clock is at least at until_ns (0: no bound). */
void device_clock_wait(struct device_clock *c);
void device_clock_waited(struct device_clock *c, int64_t until_ns);
void device_clock_set(struct device_clock *c, int64_t now_ns); /* emulated: back to an instant before work that does not count */
/* An operator that took ns on the device has ended; returns the virtual time. */
int64_t device_clock_lasted(struct device_clock *c, int64_t ns);
void device_clock_pace(
    struct device_clock *c); /* sleeps until wall time reaches virtual time */

/* The instant at which an emulated link is free; in memory shared by all ranks. */
struct link_clock {
    pthread_mutex_t mutex; /* robust, shared between processes */
    int64_t free_ns;
};
int link_clock_init(struct link_clock *c); /* 0 or errno */
/* Exclusive access. A mutex whose holder died is recovered. */
void link_clock_lock(struct link_clock *c);
void link_clock_unlock(struct link_clock *c);
/* Occupies the link for occupancy_ns from the first free instant ≥ earliest_ns; returns that instant. */
int64_t link_clock_reserve(struct link_clock *c, int64_t earliest_ns, int64_t occupancy_ns);

#endif
