/* tests/programs/delay_switch.c - an Ethernet switch with latency between network namespaces, for kernels without netem; started by
 * tests/support/namespaces.inc.
 *
 * delay_switch MICROSECONDS MBIT_PER_S NAMESPACE...
 * Each namespace (a name of `ip netns`) gets a TAP interface eth0, whose frames the switch delivers to the namespace from which it has
 * seen the frame's destination, or else to all others: the delay after their last bit has arrived at this rate. tc limits the interfaces to
 * the rate; but its token buckets let the first frame pass at once, and without its transmission time short messages would be too fast.
 * Order is kept. Prints "ok" once the interfaces exist; they are gone when the process ends.
 * One thread at real-time priority, if that is permitted, because a late delivery would count as latency.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { PORTS_MAX = 64, FRAME_MAX = 16384, HELD_MAX = 1024, PRIORITY = 20, MAC = 6 };

struct frame {
    int64_t due_ns;
    ssize_t n;
    unsigned char bytes[FRAME_MAX]; /* destination, source … */
};

static struct {
    int n;
    struct pollfd ready[PORTS_MAX];
    struct port {
        int fd;
        unsigned char mac[MAC]; /* the last source seen there */
        int64_t sent_ns;        /* end of the last frame's transmission */
        int64_t first, next;    /* frames held: [first, next) mod HELD_MAX */
        struct frame *held;
    } port[PORTS_MAX];
    int64_t delay_ns;
    double ns_per_byte;
} sw;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

__attribute__((noreturn)) static void give_up(const char *what)
{
    fprintf(stderr, "delay_switch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_tap(const char *space)
{
    char path[256];
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI, .ifr_name = "eth0"};
    snprintf(path, sizeof path, "/run/netns/%s", space);
    int in = open(path, O_RDONLY | O_CLOEXEC);
    if (in < 0 || setns(in, CLONE_NEWNET)) give_up(path);
    close(in);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) give_up("/dev/net/tun");
    if (ioctl(fd, TUNSETIFF, &r)) give_up(space);
    return fd;
}

/* While all places are taken, frames wait in the interface. */
static void take(struct port *p)
{
    while (p->next - p->first < HELD_MAX) {
        struct frame *f = &p->held[p->next % HELD_MAX];
        f->n = read(p->fd, f->bytes, sizeof f->bytes);
        if (f->n < 2 * MAC) return;
        int64_t now = now_ns();
        p->sent_ns = (p->sent_ns > now ? p->sent_ns : now) + (int64_t)((double)f->n * sw.ns_per_byte);
        f->due_ns = p->sent_ns + sw.delay_ns;
        memcpy(p->mac, f->bytes + MAC, MAC);
        p->next++;
    }
}

/* An interface that is down, or a full queue, loses the frame, as a real one does. */
static void send_to(const struct port *p, const struct frame *f)
{
    if (write(p->fd, f->bytes, (size_t)f->n) < 0 && errno != EIO && errno != EAGAIN) give_up("write");
}

static void deliver(const struct port *from, const struct frame *f)
{
    for (int i = 0; i < sw.n; i++)
        if (&sw.port[i] != from && !memcmp(sw.port[i].mac, f->bytes, MAC)) {
            send_to(&sw.port[i], f);
            return;
        }
    for (int i = 0; i < sw.n; i++)
        if (&sw.port[i] != from) send_to(&sw.port[i], f);
}

/* Delivers what is due; the next instant at which a frame is. */
static int64_t release(struct port *p)
{
    for (; p->first < p->next; p->first++) {
        const struct frame *f = &p->held[p->first % HELD_MAX];
        if (f->due_ns > now_ns()) return f->due_ns;
        deliver(p, f);
    }
    return INT64_MAX;
}

int main(int argc, char **argv)
{
    sw.n = argc - 3;
    double rate = argc > 2 ? strtod(argv[2], NULL) : 0;
    if (sw.n < 1 || sw.n > PORTS_MAX || !(rate > 0)) {
        fprintf(stderr, "usage: delay_switch MICROSECONDS MBIT_PER_S NAMESPACE...   at most %d\n", PORTS_MAX);
        return 2;
    }
    sw.delay_ns = strtoll(argv[1], NULL, 10) * 1000;
    sw.ns_per_byte = 8e3 / rate;
    for (int i = 0; i < sw.n; i++) {
        sw.port[i].fd = open_tap(argv[3 + i]);
        sw.port[i].held = calloc(HELD_MAX, sizeof *sw.port[i].held);
        if (!sw.port[i].held) give_up("memory");
        sw.ready[i] = (struct pollfd){.fd = sw.port[i].fd, .events = POLLIN};
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_TIMERSLACK, 1);
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = PRIORITY}))
        fputs("delay_switch: no real-time priority: latencies are longer while the machine is loaded\n", stderr);
    puts("ok");
    fflush(stdout);
    for (;;) {
        int64_t next_ns = INT64_MAX;
        for (int i = 0; i < sw.n; i++) {
            int64_t due_ns = release(&sw.port[i]);
            if (due_ns < next_ns) next_ns = due_ns;
        }
        int64_t left_ns = next_ns == INT64_MAX ? 1000000000 : next_ns - now_ns();
        if (left_ns < 0) left_ns = 0;
        ppoll(sw.ready, (nfds_t)sw.n, &(struct timespec){.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000}, NULL);
        for (int i = 0; i < sw.n; i++)
            if (sw.ready[i].revents) take(&sw.port[i]);
    }
}
