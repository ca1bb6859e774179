/* exec/comm/launch.c - mpirun as a child process, and detection of another launcher.
 *
 * mpirun's own messages (blocks between dashed lines) are parsed and suppressed: they contain the rank that failed
 * and its exit code in many lines. Everything else on stderr passes through. stdout is relayed, so that lost output
 * is detected; the ranks go on, because their files are still valuable. mpirun has its own process group, so that
 * Ctrl-C reaches it once, from this process, and its ranks through it.
 */
#include "exec/comm/launch.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/settings.h"
#include "exec/comm/end_signals.h"
#include "exec/comm/launch_agent.h"
#include "exec/comm/launch_local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANNOT_EXEC 127
#define RANKS_MAX 4096
/* Time for mpirun to end its ranks after SIGTERM, before SIGKILL; and to end itself without ranks. */
#define WATCHDOG_MS 5000
#define START_MS 60000 /* time for mpirun to start its ranks */
#define LOOK_MS 500

/* ---- who we are -------------------------------------------------------------------------------
 */

static int32_t number(const char *name, int32_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return otherwise;
    errno = 0;
    long n = strtol(text, &end, 10);
    return *end || errno || n < 0 || n > INT32_MAX ? otherwise : (int32_t)n;
}

/* A batch script has SLURM_PROCID too; only a step started by srun has a task count of its own. */
static bool in_step(void)
{
    return getenv("SLURM_PROCID") && getenv("SLURM_STEP_NUM_TASKS") &&
           number("SLURM_STEP_ID", -1) >= 0;
}

#define LAUNCHED "MUSHER_LAUNCHED"
#define LAUNCH_FAILURE "musher rank failure: "

static bool tell_launcher(const struct error *err)
{
    char safe[4 * sizeof err->text]; /* one line, whatever the message quotes */
    if (launch_local_rank() >= 0) return launch_local_report(err);
    if (!launch_is_ours()) return false;
    fprintf(stderr, LAUNCH_FAILURE "%d %s\n", (int)err->code, log_safe(safe, sizeof safe, err->text));
    return true;
}

bool launch_report(const struct error *err)
{
    if (!launch_is_rank()) return false;
    return launch_rank() != 0 || tell_launcher(err);
}

void launch_report_alone(const struct error *err)
{
    if (!tell_launcher(err)) log_error("%s", err->text);
}

bool launch_is_ours(void) { return launch_local_reports() || (launch_is_rank() && settings_on(LAUNCHED)); }

bool launch_is_rank(void)
{
    return launch_local_rank() >= 0 || number("OMPI_COMM_WORLD_RANK", -1) >= 0 || in_step();
}

int32_t launch_rank(void)
{
    int32_t rank = launch_local_rank();
    if (rank < 0) rank = number("OMPI_COMM_WORLD_RANK", -1);
    return rank >= 0 ? rank : in_step() ? number("SLURM_PROCID", 0) : 0;
}

int32_t launch_size(void)
{
    int32_t size = launch_local_size();
    if (size < 1) size = number("OMPI_COMM_WORLD_SIZE", -1);
    if (size > 0) return size;
    size = in_step() ? number("SLURM_STEP_NUM_TASKS", 1) : 1;
    return size > 0 ? size : 1;
}

/* ---- mpirun's talk ----------------------------------------------------------------------------
 */

struct talk {
    char line[4 * ERROR_TEXT + 64]; /* a failure with every byte escaped */
    size_t n;
    bool inside; /* between two dashed lines */
    bool noted;  /* a rank's end is known */
    bool alone;  /* mpirun has lost its ranks and does not end */
    int32_t rank;
    int code, signal; /* exit code or signal of that rank, 0 */
    char first[200], last[200]; /* first line of all blocks, and last one, for unknown messages */
    struct error said; /* the failure that a rank reported; text "": none */
};

static bool is_dashes(const char *line)
{
    size_t n = strspn(line, "-");
    return n >= 40 && (line[n] == 0 || line[n] == '\n');
}

static void understand(struct talk *t)
{
    const char *line = t->line, *at;
    int rank, code, pid;
    if ((at = strstr(line, "process rank ")) &&
        sscanf(at, "process rank %d with PID %d", &rank, &pid) == 2) {
        t->rank = rank;
        t->noted = true;
        if ((at = strstr(line, "on signal "))) t->signal = (int)strtol(at + 10, NULL, 10);
    }
    if ((at = strstr(line, "on signal "))) t->signal = (int)strtol(at + 10, NULL, 10);
    if ((at = strstr(line, "MPI_ABORT was invoked on rank ")) &&
        sscanf(at + 30, "%d", &rank) == 1 && !t->noted) {
        t->rank = rank;
        t->noted = true;
    }
    if ((at = strstr(line, "with errorcode ")) && sscanf(at + 15, "%d", &code) == 1 && !t->code)
        t->code = code;
    if ((at = strstr(line, "Process name: [[")) && (at = strstr(at, "],")) &&
        sscanf(at + 2, "%d", &rank) == 1 && !t->noted) {
        t->rank = rank;
        t->noted = true;
    }
    if ((at = strstr(line, "Exit code:")) && sscanf(at + 10, "%d", &code) == 1 && !t->code)
        t->code = code;
    if (t->n > 1) snprintf(t->last, sizeof t->last, "%.*s", (int)strcspn(line, "\n"), line);
    if (!t->first[0]) memcpy(t->first, t->last, sizeof t->first);
}

static bool is_chatter(const char *line)
{
    return strstr(line, "more process has sent help message") ||
           strstr(line, "more processes have sent help message") ||
           strstr(line, "orte_base_help_aggregate") || strstr(line, "mpirun: killing job") ||
           strstr(line, "mpirun: abort is already in progress") ||
           strstr(line, "ORTE_ERROR_LOG:") || strstr(line, "FORCE-TERMINATE AT") || strstr(line, "mpirun: Forwarding signal") || strstr(line, "plm:rsh: Warning: setpgid");
}

/* The first failure counts; later ones follow from it, or are common to all ranks. */
static void hear_failure(struct talk *t, char *line)
{
    char *text;
    long code = strtol(line, &text, 10);
    text += *text == ' ';
    text[strcspn(text, "\n")] = 0;
    if (!*t->said.text)
        error_set(&t->said, code > OK && (code <= ERR_NO_DEVICE || code == ERR_INTERRUPTED) ? (enum status)code : ERR_RANK,
                  "%s", text);
    else if (strcmp(text, t->said.text) != 0)
        log_error("%s", text);
}

static void take_line(struct talk *t)
{
    t->line[t->n] = 0;
    if (is_dashes(t->line)) {
        t->inside = !t->inside;
    } else if (!strncmp(t->line, LAUNCH_FAILURE, strlen(LAUNCH_FAILURE))) {
        hear_failure(t, t->line + strlen(LAUNCH_FAILURE));
    } else if (t->inside) {
        understand(t);
        if (log_shows(LOG_LEVEL_DEBUG)) fputs(t->line, stderr);
    } else if (!is_chatter(t->line)) {
        fwrite(t->line, 1, t->n, stderr);
    }
    t->n = 0;
}

/* Whether the partial line may be a rank's failure report, which is not passed on. */
static bool may_be_ours(const struct talk *t)
{
    size_t most = strlen(LAUNCH_FAILURE);
    return t->inside || t->line[0] == '-' ||
           !strncmp(t->line, LAUNCH_FAILURE, t->n < most ? t->n : most);
}

/* false at the end of the stream. A line longer than the buffer passes in pieces. */
static bool listen_to(struct talk *t, int fd)
{
    char block[4096];
    ssize_t n = read(fd, block, sizeof block);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    for (ssize_t i = 0; i < n; i++) {
        t->line[t->n++] = block[i];
        if (block[i] == '\n' || t->n == sizeof t->line - 1) take_line(t);
    }
    if (t->n && !may_be_ours(t)) take_line(t); /* an unfinished line: a progress display */
    return true;
}

/* ---- the child --------------------------------------------------------------------------------
 */

/* on NULL: this host only, through shared memory. mpirun passes variables on to other hosts by name: musher's own, too. */
static char **arguments(struct arena *a, int32_t n, const struct launch_hosts *on, char *const *argv)
{
    static const char *const head[] = {"mpirun", "--oversubscribe", "--bind-to", "none", "-x", "OPENBLAS_NUM_THREADS", "-x", "OMP_NUM_THREADS",
                                       "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1", "-np"};
    static const char *const here[] = {"--mca", "plm", "isolated", "--mca", "btl", "self,vader", "--host"};
    static const char *const there[] = {"-x", "PATH", "-x", LAUNCHED, "--mca", "plm", "rsh", "--map-by", "seq", "--mca", "plm_rsh_agent"};
    enum { HEAD = sizeof head / sizeof *head, HERE = sizeof here / sizeof *here, THERE = sizeof there / sizeof *there };
    static char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    size_t count = 0, given = 0;
    size_t variables = 0;
    while (argv[given]) given++;
    while (environ[variables]) variables++;
    char **out = ARENA_ARRAY(a, char *, HEAD + HERE + THERE + given + 2 * variables + 6);
    for (size_t i = 0; i < HEAD; i++) out[count++] = arena_strdup(a, head[i]);
    out[count++] = arena_printf(a, "%" PRId32, n);
    for (size_t i = 0; !on && i < HERE; i++) out[count++] = arena_strdup(a, here[i]);
    if (!on) out[count++] = arena_printf(a, "localhost:%" PRId32, n);
    for (size_t i = 0; on && i < THERE; i++) out[count++] = arena_strdup(a, there[i]);
    if (on) {
        out[count++] = arena_strdup(a, on->agent);
        out[count++] = arena_strdup(a, "--hostfile");
        out[count++] = arena_strdup(a, on->file);
    }
    for (size_t i = 0; on && i < variables; i++) {
        if (strncmp(environ[i], "MUSHER_", 7) != 0 || !strncmp(environ[i], LAUNCHED, strlen(LAUNCHED))) continue;
        out[count++] = arena_strdup(a, "-x");
        out[count++] = arena_strndup(a, environ[i], strcspn(environ[i], "="));
    }
    out[count++] = self;
    for (size_t i = 1; i < given; i++) out[count++] = argv[i];
    return out;
}

static void be_mpirun(char **argv, int out_fd, int err_fd)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv(LAUNCHED, "1", 1);
    execvp("mpirun", argv);
    _exit(CANNOT_EXEC);
}

/* ---- the ranks' stdout ------------------------------------------------------------------------
 */

struct output {
    int why;   /* errno of the write that failed, 0 */
    bool gone; /* the reader has closed; the rest is dropped */
};

static void pass_block(struct output *o, const char *block, size_t n)
{
    for (size_t at = 0; at < n && !o->why && !o->gone;) {
        ssize_t written = write(STDOUT_FILENO, block + at, n - at);
        if (written > 0) at += (size_t)written;
        if (written >= 0 || errno == EINTR) continue;
        if (errno == EAGAIN)
            poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, -1);
        else if (errno == EPIPE)
            o->gone = true;
        else
            o->why = errno;
    }
}

/* false at the end of the stream. */
static bool pass_on(struct output *o, int fd)
{
    char block[4096];
    ssize_t n = read(fd, block, sizeof block);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    pass_block(o, block, (size_t)n);
    return n > 0;
}

/* ---- ranks ------------------------------------------------------------------------------------
 */

/* A live process of another program: the agent that started mpirun's daemon on another host. */
static bool is_agent(int pid)
{
    char path[64], its[PATH_MAX], own[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t n = readlink(path, its, sizeof its), m = readlink("/proc/self/exe", own, sizeof own);
    return n > 0 && m > 0 && (n != m || memcmp(its, own, (size_t)n) != 0);
}

/* Adds to `children` the child processes of one of mpirun's threads, and those alive; false if the system does not
 * report them. agents: some may be agents, which do not count. */
static bool count_of_thread(const char *task, const char *thread, bool agents, int *children, int *alive)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/children", task, thread);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    for (int pid; fscanf(f, "%d", &pid) == 1;) {
        bool lives = !launch_process_ended(launch_process_state(pid));
        if (agents && lives && is_agent(pid)) continue;
        ++*children;
        *alive += lives;
    }
    fclose(f);
    return true;
}

/* mpirun may wait for itself for ever if a rank dies while it registers (PMIx 4.2). looks: number of looks without a
 * live rank; *began: whether it ever had one. No effect if the system does not report children. */
static int look_for_ranks(pid_t mpirun, bool agents, int looks, bool *began)
{
    char task[64];
    int children = 0, alive = 0;
    bool reported = true;
    snprintf(task, sizeof task, "/proc/%ld/task", (long)mpirun);
    DIR *d = opendir(task);
    if (!d) return 0;
    for (struct dirent *e; reported && (e = readdir(d));)
        if (e->d_name[0] != '.') reported = count_of_thread(task, e->d_name, agents, &children, &alive);
    closedir(d);
    *began |= children > 0;
    return alive || !reported ? 0 : looks + 1;
}

/* Until mpirun has closed its pipes, or did not end in time after a signal, or has lost its ranks and does not end. */
static void follow(struct talk *t, struct output *o, pid_t child, const int fd[2], const struct launch_hosts *on, bool stops)
{
    bool reported = false, began = false, asked = false;
    int looks = 0;
    struct pollfd p[2] = {{.fd = fd[0], .events = POLLIN}, {.fd = fd[1], .events = POLLIN}};
    while (p[0].fd >= 0 || p[1].fd >= 0) {
        if (end_signals_caught() && stops && !asked) {
            kill(child, SIGUSR1); /* mpirun passes it on */
            asked = true;
        }
        if (end_signals_caught() > stops && !reported) {
            kill(child, SIGTERM);
            reported = true;
        }
        int n = poll(p, 2, reported ? WATCHDOG_MS : LOOK_MS);
        if (n == 0 && !reported && (!on || on->here)) looks = look_for_ranks(child, on, looks, &began);
        t->alone = n == 0 && !reported && looks * LOOK_MS >= (began ? WATCHDOG_MS : START_MS);
        if (n == 0 && (reported || t->alone)) {
            kill(-child, SIGKILL); /* mpirun; its ranks end when they lose it */
            return;
        }
        if (n <= 0) continue;
        if (p[0].revents && !pass_on(o, fd[0])) p[0].fd = -1;
        if (p[1].revents && !listen_to(t, fd[1])) p[1].fd = -1;
    }
}

static enum status judge(const struct talk *t, const struct output *o, int how, const struct launch_hosts *on, struct error *err)
{
    if (t->said.code == ERR_INTERRUPTED) return error_set(err, ERR_INTERRUPTED, "%s", t->said.text);
    if (end_signals_caught()) return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return o->why ? error_set(err, ERR_RESOURCE, "cannot write to stdout: %s", strerror(o->why))
                      : OK;
    int code = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
    if (on && !t->noted && !*t->said.text && WIFEXITED(how)) TRY(launch_agent_check(on, err));
    if (code == CANNOT_EXEC && !t->noted)
        return error_set(err, ERR_RESOURCE,
                         "mpirun cannot be started: install openmpi-bin (tools/setup.sh installs it)");
    if (*t->said.text && t->said.code != ERR_RANK)
        return error_set(err, t->said.code, "%s", t->said.text);
    if (t->signal && *t->said.text) log_error("%s", t->said.text);
    if (t->signal)
        return error_set(err, ERR_RANK, "rank %" PRId32 " was killed by signal %d (%s)", t->rank,
                         t->signal, strsignal(t->signal));
    if (t->code == ERR_INTERRUPTED || code == ERR_INTERRUPTED)
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (t->alone && !t->noted)
        return error_set(err, ERR_RANK, "no rank is left, and mpirun did not end%s%s",
                         *t->said.text ? ": " : "", t->said.text);
    if (*t->said.text) return error_set(err, ERR_RANK, "%s", t->said.text);
    if (t->noted && ((code >= ERR_USAGE && code <= ERR_RESOURCE) || code == ERR_NO_DEVICE))
        return error_set(err, (enum status)code, "rank %" PRId32 " ended with exit code %d",
                         t->rank, code);
    if (t->noted && (t->code ? t->code : code) == ERR_RANK)
        return error_set(err, ERR_RANK,
                         "rank %" PRId32 " ended because another rank or MPI failed", t->rank);
    if (t->noted)
        return error_set(err, ERR_RANK, "rank %" PRId32 " failed with exit code %d", t->rank,
                         t->code ? t->code : code);
    if (WIFSIGNALED(how))
        return error_set(err, ERR_RANK, "mpirun was killed by signal %d (%s)", WTERMSIG(how),
                         strsignal(WTERMSIG(how)));
    if (on)
        return error_set(err, ERR_RANK, "mpirun failed with exit code %d, although the agent reaches all hosts; -vv prints its messages%s%s", code,
                         t->first[0] ? ": " : "", t->first);
    return error_set(err, ERR_RANK, "mpirun failed with exit code %d%s%s", code,
                     t->last[0] ? ": " : "", t->last);
}

/* Two pipes outside 0 … 2, which may be closed here and are replaced in the child. */
static enum status open_pipes(int from[2], int to[2], struct error *err)
{
    int ends[4] = {-1, -1, -1, -1}, why = 0;
    for (int i = 0; i < 4 && !why; i += 2) {
        int two[2];
        if (pipe(two)) {
            why = errno;
            break;
        }
        for (int k = 0; k < 2; k++) {
            ends[i + k] = fcntl(two[k], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
            if (ends[i + k] < 0) why = errno;
            close(two[k]);
        }
    }
    from[0] = ends[0], to[0] = ends[1], from[1] = ends[2], to[1] = ends[3];
    if (!why) return OK;
    for (int i = 0; i < 4; i++)
        if (ends[i] >= 0) close(ends[i]);
    return error_set(err, ERR_RESOURCE, "cannot create a pipe: %s", strerror(why));
}

enum status launch_ranks(int32_t n, const struct launch_hosts *on, char *const *argv, bool stops, struct error *err)
{
    if (n < 1 || n > RANKS_MAX)
        return error_set(err, ERR_INPUT, "%" PRId32 " ranks: 1 to %d can be started on one host", n,
                         RANKS_MAX);
    int from[2], to[2], how = 0; /* of stdout, of stderr */
    TRY(open_pipes(from, to, err));
    struct arena *a = arena_new();
    struct sigaction old[END_SIGNALS];
    char **arguments_of_mpirun = arguments(a, n, on, argv);
    fflush(NULL);
    end_signals_watch(old);
    pid_t child = fork();
    if (child == 0) be_mpirun(arguments_of_mpirun, to[0], to[1]);
    int why = errno;
    close(to[0]);
    close(to[1]);
    struct talk t = {0};
    struct output o = {0};
    if (child > 0) {
        follow(&t, &o, child, from, on, stops);
        if (t.n) take_line(&t);
        while (waitpid(child, &how, 0) < 0 && errno == EINTR)
            if (end_signals_caught() > stops) kill(child, SIGTERM);
    }
    close(from[0]);
    close(from[1]);
    end_signals_unwatch(old);
    arena_free(a);
    if (child < 0) return error_set(err, ERR_RESOURCE, "cannot start mpirun: %s", strerror(why));
    return judge(&t, &o, how, on, err);
}
