/* tests/preload/cpu_clock.c - CPU time that does not depend on the machine: LD_PRELOAD replaces clock_gettime.
 *
 * A thread's CPU time advances by CPU_CLOCK_NS (ns) at each reading. Operators of emulated devices last slowdown x the CPU time between two
 * readings (exec/clock.h), so that each lasts slowdown x CPU_CLOCK_NS whatever else the machine is running.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t)
{
    static _Thread_local long long now_ns;
    const char *step = getenv("CPU_CLOCK_NS");
    if (id != CLOCK_THREAD_CPUTIME_ID || !step) return (int)syscall(SYS_clock_gettime, id, t);
    now_ns += strtoll(step, NULL, 10);
    *t = (struct timespec){.tv_sec = now_ns / 1000000000, .tv_nsec = now_ns % 1000000000};
    return 0;
}
