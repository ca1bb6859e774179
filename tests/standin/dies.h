/* tests/standin/dies.h - runs a function in a child process that is expected to abort, and captures its message. */
#ifndef TESTS_STANDIN_DIES_H
#define TESTS_STANDIN_DIES_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether run(argument) aborted; its stderr, cut to `bytes`. The caller must have no other thread. */
static inline bool aborts_saying(void (*run)(int), int argument, char *out, size_t bytes)
{
    int ends[2], status = 0;
    if (pipe(ends)) abort();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) abort();
    if (!child) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        run(argument);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    char rest[256];
    for (ssize_t got; (got = read(ends[0], n + 1 < bytes ? out + n : rest,
                                  n + 1 < bytes ? bytes - 1 - n : sizeof rest)) > 0;)
        if (n + 1 < bytes) n += (size_t)got;
    out[n] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#endif
