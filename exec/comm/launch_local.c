#include "exec/comm/launch_local.h"

#include "core/base/log.h"
#include "exec/clock.h"
#include "exec/comm/comm.h"
#include "exec/comm/end_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_NS INT64_C(1000000000) /* between two looks at the children if none ends or stops, no signal comes and nothing wakes the parent */
#define GRACE_NS INT64_C(5000000000) /* from SIGQUIT to SIGKILL */

/* The first failure that a rank reported, in memory shared with the parent. */
struct said {
    atomic_int state;
    struct error what;
};
enum { SAID_NOTHING, SAID_BEGUN, SAID_ALL };

static struct {
    int32_t rank, size;
    int fd;            /* of the inherited file */
    struct said *said; /* NULL: the parent takes no reports */
} self = {.rank = -1, .fd = -1};
static int wake_fd = -1; /* eventfd, inherited by ranks; open until the process ends, because a thread may write to it at any time */

void launch_local_wake(void)
{
    const uint64_t one = 1;
    int why = errno;
    if (wake_fd >= 0 && write(wake_fd, &one, sizeof one) < 0) errno = why; /* full: the parent is awake */
    errno = why;
}

static void child_changed(int signal_number) { (void)signal_number, launch_local_wake(); }

/* Until the instant, or until something wakes this process. */
static void pause_until(int64_t at_ns)
{
    struct pollfd fd = {.fd = wake_fd, .events = POLLIN};
    int64_t ns = at_ns - clock_wall_ns();
    uint64_t count;
    if (ns < 0) ns = 0;
    const struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    if (ppoll(&fd, 1, &time, NULL) > 0 && read(wake_fd, &count, sizeof count) < 0) return;
}

bool launch_local_reports(void) { return self.said != NULL; }

bool launch_local_report(const struct error *err)
{
    int state = SAID_NOTHING;
    if (!self.said) return false;
    if (atomic_compare_exchange_strong(&self.said->state, &state, SAID_BEGUN)) {
        self.said->what = *err;
        atomic_store(&self.said->state, SAID_ALL);
    } else if (err->code == ERR_RANK) {
        log_debug("%s", err->text); /* another rank's end, seen from here too */
    } else if (state != SAID_ALL || strcmp(self.said->what.text, err->text) != 0) {
        log_error("%s", err->text);
    }
    return true;
}

int32_t launch_local_rank(void) { return self.rank; }
int32_t launch_local_size(void) { return self.size; }

/* The file under a number above those of the standard streams, any of which may be closed here. */
static int above_standard_streams(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
    close(fd);
    errno = why;
    return above;
}

int launch_local_open(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", self.fd);
    return above_standard_streams(open(path, O_RDWR | O_CLOEXEC));
}

struct children {
    int32_t n, running;
    pid_t pid[LOCAL_RANKS_MAX];    /* 0: ended */
    bool stopped[LOCAL_RANKS_MAX]; /* by a signal: it cannot end by itself */
    int64_t stopped_ns[LOCAL_RANKS_MAX]; /* since when */
    int32_t failed;           /* rank, -1 */
    int how;                  /* of that one */
    int32_t expendable; /* ranks from here on may end before the others */
    int32_t n_lost, lost, how_lost; /* of those: how many, the first one, and how it ended */
    int32_t other; /* a rank that failed neither because of a peer nor like `failed`; -1 */
    struct said *said; /* NULL: no reports, and signals end this process */
    pid_t parent;
    struct sigaction old[END_SIGNALS], old_child;
    struct launch_faults *faults;
    struct launch_hooks hooks;
    void *owner;
};

static void become_rank(const struct children *c, int32_t rank, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != c->parent) _exit(ERR_RANK); /* it had died before the call */
    sigaction(SIGCHLD, &c->old_child, NULL);
    if (c->said) end_signals_inherit(c->old, c->hooks.stop != NULL);
    self.rank = rank;
    self.size = c->n;
    self.fd = fd;
    self.said = rank < c->expendable ? c->said : NULL;
}

static void kill_all(const struct children *c, int signal_number)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->pid[i]) kill(c->pid[i], signal_number);
}

/* By a signal that the ranks do not answer by themselves. */
static bool is_interrupted(const struct children *c) { return c->said && end_signals_caught() > (c->hooks.stop ? 1 : 0); }

/* ERR_RANK is the exit code of a rank that lost a peer: any other failure is the cause, even if it is seen later. */
static bool lost_a_peer(int how) { return WIFEXITED(how) && WEXITSTATUS(how) == ERR_RANK; }

static void note_fault(const struct children *c, int32_t rank)
{
    if (c->faults) c->faults->rank[c->faults->n++] = rank;
}

static void reap(struct children *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        int how = 0;
        if (!c->pid[i] || waitpid(c->pid[i], &how, WNOHANG | WUNTRACED | WCONTINUED) != c->pid[i])
            continue;
        c->stopped[i] = WIFSTOPPED(how);
        c->stopped_ns[i] = clock_wall_ns();
        bool well = WIFCONTINUED(how) || (WIFEXITED(how) && WEXITSTATUS(how) == 0);
        if (c->faults && !c->faults->first_ns && !well) c->faults->first_ns = c->stopped_ns[i];
        if (WIFSTOPPED(how) || WIFCONTINUED(how)) continue;
        c->pid[i] = 0;
        c->running--;
        if (WIFEXITED(how) && WEXITSTATUS(how) == 0) continue;
        if (!lost_a_peer(how)) note_fault(c, i);
        if (i >= c->expendable) {
            if (!c->n_lost++) c->lost = i, c->how_lost = how;
            continue;
        }
        if (c->failed >= 0 && !lost_a_peer(c->how) && !lost_a_peer(how) && how != c->how)
            c->other = i;
        if (c->failed >= 0 && (!lost_a_peer(c->how) || lost_a_peer(how))) continue;
        c->failed = i;
        c->how = how;
    }
}

/* The others wait for an expendable rank that is stopped as long as for any other, so it ends before that. Returns when to look next. */
static int64_t kill_stopped(const struct children *c)
{
    int64_t limit_ns = comm_limit_ns() / 2, now_ns = clock_wall_ns(), due_ns = now_ns + LOOK_NS;
    for (int32_t i = c->expendable; i < c->n; i++) {
        if (!c->pid[i] || !c->stopped[i]) continue;
        if (now_ns - c->stopped_ns[i] > limit_ns)
            kill(c->pid[i], SIGKILL);
        else if (c->stopped_ns[i] + limit_ns < due_ns)
            due_ns = c->stopped_ns[i] + limit_ns + 1;
    }
    return due_ns;
}

/* All remaining ranks are stopped, so waiting is useless. */
static bool rest_is_stopped(const struct children *c)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->pid[i] && !c->stopped[i]) return false;
    return c->running > 0 && c->running < c->n;
}

/* Returns whether all ended in time. */
static bool follow(struct children *c, double limit_s)
{
    int64_t begin_ns = clock_wall_ns(), until_ns = begin_ns + (int64_t)(limit_s * 1e9);
    bool patient = true, told = false, asked = false;
    while (c->running) {
        reap(c);
        int64_t due_ns = kill_stopped(c), hook_ns = c->hooks.look ? c->hooks.look(c->owner, c->pid) : 0;
        if (c->hooks.stop && end_signals_caught() && !asked) {
            c->hooks.stop(c->owner);
            asked = true;
        }
        if (is_interrupted(c) && !told) {
            kill_all(c, SIGQUIT);
            until_ns = clock_wall_ns() + GRACE_NS;
            told = true;
        }
        if (c->failed >= 0 && patient) {
            int64_t soon_ns = clock_wall_ns() + LOCAL_PATIENCE_S * INT64_C(1000000000);
            if (soon_ns < until_ns) until_ns = soon_ns;
            patient = false;
        }
        if (rest_is_stopped(c) || (c->running && clock_wall_ns() > until_ns)) break;
        if (!c->running) break;
        if (hook_ns && hook_ns < due_ns) due_ns = hook_ns;
        pause_until(until_ns < due_ns ? until_ns : due_ns);
    }
    bool in_time = c->running == 0;
    for (int32_t i = 0; i < c->n && !is_interrupted(c); i++)
        if (c->pid[i]) note_fault(c, i);
    kill_all(c, SIGKILL);
    for (int32_t i = 0; i < c->n; i++)
        while (c->pid[i] && waitpid(c->pid[i], NULL, 0) < 0 && errno == EINTR) continue;
    return in_time;
}

static enum status lost(const struct children *c, struct error *err)
{
    char more[48] = "";
    if (c->n_lost > 1) snprintf(more, sizeof more, ", and %" PRId32 " more", c->n_lost - 1);
    if (WIFSIGNALED(c->how_lost))
        return error_set(err, ERR_RANK, "rank %" PRId32 " was killed by signal %d (%s)%s; the run went on without it", c->lost,
                         WTERMSIG(c->how_lost), strsignal(WTERMSIG(c->how_lost)), more);
    return error_set(err, ERR_RANK, "rank %" PRId32 " ended with exit code %d%s; the run went on without it", c->lost,
                     WEXITSTATUS(c->how_lost), more);
}

static enum status judge(const struct children *c, bool in_time, double limit_s, struct error *err)
{
    char others[64] = "";
    const struct error *said = c->said && atomic_load(&c->said->state) == SAID_ALL ? &c->said->what : NULL;
    if (is_interrupted(c)) return error_set(err, ERR_INTERRUPTED, "interrupted");
    for (int32_t i = 0; i < c->n && !*others && rest_is_stopped(c); i++)
        if (c->pid[i]) snprintf(others, sizeof others, "; rank %" PRId32 " is stopped", i);
    if (c->failed < 0 && *others) return error_set(err, ERR_RANK, "%s", others + 2);
    if (c->failed < 0 && in_time && c->n_lost) return lost(c, err);
    if (c->failed < 0)
        return in_time ? OK
                       : error_set(err, ERR_RANK,
                                   "%" PRId32 " of %" PRId32 " ranks had not ended after %.0f s",
                                   c->running, c->n, limit_s);
    if (said && (said->code != ERR_RANK || lost_a_peer(c->how))) return error_set(err, said->code, "%s", said->text);
    if (said) log_debug("%s", said->text);
    if (!in_time && !*others) snprintf(others, sizeof others, "; the others had to be killed");
    if (c->other >= 0 && !*others)
        snprintf(others, sizeof others, "; rank %" PRId32 " failed with another error", c->other);
    if (WIFSIGNALED(c->how))
        return error_set(err, ERR_RANK, "rank %" PRId32 " was killed by signal %d (%s)%s",
                         c->failed, WTERMSIG(c->how), strsignal(WTERMSIG(c->how)), others);
    int code = WEXITSTATUS(c->how);
    bool documented = code >= ERR_USAGE && code <= ERR_NO_DEVICE;
    return error_set(err, documented ? (enum status)code : ERR_RANK,
                     "rank %" PRId32 " ended with exit code %d%s", c->failed, code, others);
}

static enum status launch(struct children *c, local_rank *body, void *owner, double limit_s, struct error *err)
{
    if (c->n < 1 || c->n > LOCAL_RANKS_MAX)
        return error_set(err, ERR_INPUT, "%" PRId32 " ranks: 1 to %d can be forked", c->n, LOCAL_RANKS_MAX);
    int fd = above_standard_streams(memfd_create("musher-ranks", MFD_CLOEXEC));
    if (fd < 0)
        return error_set(err, ERR_RESOURCE, "cannot create the shared file of the ranks: %s",
                         strerror(errno));
    if (wake_fd < 0) wake_fd = above_standard_streams(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (wake_fd < 0) {
        int reason = errno;
        close(fd);
        return error_set(err, ERR_RESOURCE, "cannot create an event of the ranks: %s", strerror(reason));
    }
    const struct sigaction changed = {.sa_handler = child_changed, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &changed, &c->old_child);
    c->parent = getpid();
    fflush(NULL);
    int why = 0;
    for (int32_t i = 0; i < c->n && !why; i++) {
        c->pid[i] = fork();
        if (c->pid[i] == 0) {
            become_rank(c, i, fd);
            int code = body(owner, i);
            fflush(NULL);
            _exit(code); /* exit() could block on unfinished work (comm_end) */
        }
        if (c->pid[i] < 0) why = errno, c->pid[i] = 0;
        c->running += c->pid[i] > 0;
    }
    if (why) kill_all(c, SIGKILL);
    bool in_time = follow(c, limit_s);
    sigaction(SIGCHLD, &c->old_child, NULL);
    close(fd);
    if (why) return error_set(err, ERR_RESOURCE, "cannot fork a rank: %s", strerror(why));
    return judge(c, in_time, limit_s, err);
}

enum status launch_local(int32_t n, local_rank *body, void *owner, double limit_s, struct error *err)
{
    struct children c = {.n = n, .expendable = n, .failed = -1, .other = -1};
    return launch(&c, body, owner, limit_s, err);
}

enum status launch_local_run(int32_t n, int32_t expendable, local_rank *body, const struct launch_hooks *hooks, void *owner, struct launch_faults *faults,
                             struct error *err)
{
    struct children c = {.n = n, .expendable = expendable, .failed = -1, .other = -1, .faults = faults, .owner = owner};
    if (hooks) c.hooks = *hooks;
    if (faults) faults->n = 0, faults->first_ns = 0;
    void *said = mmap(NULL, sizeof *c.said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (said == MAP_FAILED) return error_set(err, ERR_RESOURCE, "cannot share memory with the ranks: %s", strerror(errno));
    c.said = said;
    end_signals_watch(c.old);
    enum status status = launch(&c, body, owner, 1e9, err);
    if (faults) faults->signalled = end_signals_caught() > 0;
    end_signals_unwatch(c.old);
    munmap(said, sizeof *c.said);
    return status;
}
