#include "exec/comm/launch_agent.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "exec/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANNOT_EXEC 127
#define FILE_MAX ((size_t)1 << 24) /* of hosts; bytes */
#define ANSWER_NS INT64_C(10000000000) /* ssh's connection to a host that drops packets takes minutes to fail */

struct answer {
    int code; /* exit code; -1: none in time */
    char line[256];
    size_t n;
    bool full; /* the first line is complete */
};

/* The agent's words, as mpirun divides them. */
static char **words_of(struct arena *a, const char *agent, const char *host)
{
    size_t n = 0, most = strlen(agent) / 2 + 5;
    char **argv = ARENA_ARRAY(a, char *, most);
    for (const char *at = agent; *(at += strspn(at, " "));) {
        size_t length = strcspn(at, " ");
        argv[n++] = arena_strndup(a, at, length);
        at += length;
    }
    argv[n++] = arena_strdup(a, host);
    argv[n++] = arena_strdup(a, "mpirun");
    argv[n++] = arena_strdup(a, "--version");
    return argv;
}

static void be_agent(char *const *argv, int err_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDWR);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO), dup2(nothing, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
    _exit(CANNOT_EXEC);
}

/* false: the stream has ended. */
static bool take(struct answer *x, int fd)
{
    char block[512];
    ssize_t n = read(fd, block, sizeof block);
    for (ssize_t i = 0; i < n && !x->full; i++) {
        x->full = (block[i] == '\n' || block[i] == '\r') && x->n;
        if (!x->full && block[i] != '\n' && block[i] != '\r' && x->n < sizeof x->line - 1) x->line[x->n++] = block[i];
    }
    return n > 0 || (n < 0 && errno == EINTR);
}

static void ask(char *const *argv, struct answer *x)
{
    int ends[2], how = 0;
    *x = (struct answer){.code = -1};
    if (pipe2(ends, O_CLOEXEC)) return;
    pid_t child = fork();
    if (child == 0) be_agent(argv, ends[1]);
    close(ends[1]);
    int64_t end_ns = clock_wall_ns() + ANSWER_NS, left_ns = ANSWER_NS;
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    bool open = child > 0;
    while (open && (left_ns = end_ns - clock_wall_ns()) > 0)
        if (poll(&p, 1, (int)(left_ns / 1000000) + 1) > 0) open = take(x, ends[0]);
    if (child > 0 && left_ns <= 0) kill(-child, SIGKILL);
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && left_ns > 0) x->code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    close(ends[0]);
}

static enum status check_host(struct arena *a, const struct launch_hosts *on, const char *host, struct error *err)
{
    struct answer x;
    char safe[4 * sizeof x.line];
    ask(words_of(a, on->agent, host), &x);
    if (!x.code) return OK;
    const char *said = x.n ? arena_printf(a, ": %s", log_safe(safe, sizeof safe, x.line)) : "";
    if (x.code < 0) return error_set(err, ERR_RANK, "host %s: '%s' does not answer within 10 s%s", host, on->agent, said);
    return error_set(err, ERR_RANK, "host %s: '%s' cannot start Open MPI there (exit code %d)%s", host, on->agent, x.code, said);
}

enum status launch_agent_check(const struct launch_hosts *on, struct error *err)
{
    struct arena *a = arena_new();
    char *text;
    size_t n;
    enum status st = file_read(a, on->file, FILE_MAX, &text, &n, err);
    const char *before = "";
    for (char *line, *rest = NULL; st == OK && (line = strtok_r(rest ? NULL : text, "\n", &rest));) {
        if (strcmp(line, before) != 0 && !launch_host_is_here(line)) st = check_host(a, on, line, err);
        before = line;
    }
    arena_free(a);
    return st;
}
