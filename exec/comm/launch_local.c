#include "exec/comm/launch_local.h"

#include "exec/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_NS 2000000

static struct {
    int32_t rank, size;
    int fd; /* of the inherited file */
} self = {.rank = -1, .fd = -1};

int32_t launch_local_rank(void) { return self.rank; }
int32_t launch_local_size(void) { return self.size; }

int launch_local_open(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", self.fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

struct children {
    int32_t n, running;
    pid_t pid[LOCAL_RANKS_MAX];    /* 0: ended */
    bool stopped[LOCAL_RANKS_MAX]; /* by a signal: it cannot end by itself */
    int32_t failed;           /* rank, -1 */
    int how;                  /* of that one */
    int32_t expendable; /* ranks from here on may end before the others */
    int32_t n_lost, lost, how_lost; /* of those: how many, the first one, and how it ended */
    int32_t other; /* a rank that failed neither because of a peer nor like `failed`; -1 */
};

static void become_rank(int32_t rank, int32_t n, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    self.rank = rank;
    self.size = n;
    self.fd = fd;
}

static void kill_all(const struct children *c)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->pid[i]) kill(c->pid[i], SIGKILL);
}

/* ERR_RANK is the exit code of a rank that lost a peer: any other failure is the cause, even if it is seen later. */
static bool lost_a_peer(int how) { return WIFEXITED(how) && WEXITSTATUS(how) == ERR_RANK; }

static void reap(struct children *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        int how = 0;
        if (!c->pid[i] || waitpid(c->pid[i], &how, WNOHANG | WUNTRACED | WCONTINUED) != c->pid[i])
            continue;
        c->stopped[i] = WIFSTOPPED(how);
        if (WIFSTOPPED(how) || WIFCONTINUED(how)) continue;
        c->pid[i] = 0;
        c->running--;
        if (WIFEXITED(how) && WEXITSTATUS(how) == 0) continue;
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
    int64_t until_ns = clock_wall_ns() + (int64_t)(limit_s * 1e9);
    bool patient = true;
    while (c->running) {
        reap(c);
        if (c->failed >= 0 && patient) {
            int64_t soon_ns = clock_wall_ns() + LOCAL_PATIENCE_S * INT64_C(1000000000);
            if (soon_ns < until_ns) until_ns = soon_ns;
            patient = false;
        }
        if (rest_is_stopped(c) || (c->running && clock_wall_ns() > until_ns)) break;
        if (c->running) clock_sleep_until(clock_wall_ns() + LOOK_NS);
    }
    bool in_time = c->running == 0;
    kill_all(c);
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
    for (int32_t i = 0; i < c->n && !*others && rest_is_stopped(c); i++)
        if (c->pid[i]) snprintf(others, sizeof others, "; rank %" PRId32 " is stopped", i);
    if (c->failed < 0 && *others) return error_set(err, ERR_RANK, "%s", others + 2);
    if (c->failed < 0 && in_time && c->n_lost) return lost(c, err);
    if (c->failed < 0)
        return in_time ? OK
                       : error_set(err, ERR_RANK,
                                   "%" PRId32 " of %" PRId32 " ranks had not ended after %.0f s",
                                   c->running, c->n, limit_s);
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

static enum status launch(int32_t n, int32_t expendable, local_rank *body, void *owner, double limit_s, bool *others,
                          struct error *err)
{
    struct children c = {.n = n, .failed = -1, .other = -1, .expendable = expendable};
    if (n < 1 || n > LOCAL_RANKS_MAX)
        return error_set(err, ERR_INPUT, "%" PRId32 " ranks: 1 to %d can be forked", n, LOCAL_RANKS_MAX);
    int fd = memfd_create("musher-ranks", MFD_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_RESOURCE, "cannot create the shared file of the ranks: %s",
                         strerror(errno));
    fflush(NULL);
    int why = 0;
    for (int32_t i = 0; i < n && !why; i++) {
        c.pid[i] = fork();
        if (c.pid[i] == 0) {
            become_rank(i, n, fd);
            int code = body(owner, i);
            fflush(NULL);
            _exit(code); /* exit() could block on unfinished work (comm_end) */
        }
        if (c.pid[i] < 0) why = errno, c.pid[i] = 0;
        c.running += c.pid[i] > 0;
    }
    if (why) kill_all(&c);
    bool in_time = follow(&c, limit_s);
    close(fd);
    if (others) *others = !why && in_time && c.failed < 0;
    if (why) return error_set(err, ERR_RESOURCE, "cannot fork a rank: %s", strerror(why));
    return judge(&c, in_time, limit_s, err);
}

enum status launch_local(int32_t n, local_rank *body, void *owner, double limit_s, struct error *err)
{
    return launch(n, n, body, owner, limit_s, NULL, err);
}

enum status launch_local_expendable(int32_t n, int32_t expendable, local_rank *body, void *owner, bool *others, struct error *err)
{
    return launch(n, expendable, body, owner, 1e9, others, err);
}
