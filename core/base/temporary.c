#include "core/base/temporary.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* An entry is written before it is marked live and never moves, so a signal handler may read the
 * table at any time. A forked child inherits the table but must not remove files: owner identifies the creator. */
enum { SLOT_FREE, SLOT_FILLING, SLOT_LIVE };
static struct slot {
    atomic_int state;
    pid_t owner;
    char path[4096];
    char back[4096]; /* what path is renamed to; empty: path is removed */
} slots[32];

#define N_SLOTS (sizeof slots / sizeof *slots)

void temporary_remember(const char *path, const char *back)
{
    for (size_t i = 0; i < N_SLOTS; i++) {
        int expected = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_FILLING)) continue;
        slots[i].owner = getpid();
        snprintf(slots[i].path, sizeof slots[i].path, "%s", path);
        snprintf(slots[i].back, sizeof slots[i].back, "%s", back);
        atomic_store(&slots[i].state, SLOT_LIVE);
        return;
    }
}

void temporary_forget(const char *path)
{
    for (size_t i = 0; i < N_SLOTS; i++)
        if (atomic_load(&slots[i].state) == SLOT_LIVE && !strcmp(slots[i].path, path))
            atomic_store(&slots[i].state, SLOT_FREE);
}

void temporary_undo(const char *path, const char *back)
{
    /* Two names of one file are no rename; what cannot go back stays beside its place. */
    if (!*back || !rename(path, back)) unlink(path);
}

static atomic_int changes; /* in progress, over all threads */
static atomic_bool ended;  /* no other begins */
static _Thread_local bool ends_program;

void temporary_begin_change(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
    atomic_fetch_add(&changes, 1);
    if (!atomic_load(&ended) || ends_program) return;
    atomic_fetch_sub(&changes, 1);
    for (;;) pause();
}

void temporary_end_change(const sigset_t *before)
{
    atomic_fetch_sub(&changes, 1);
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

void temporary_remove_all(void)
{
    /* A change is a few system calls; a file system that does not answer is not waited for. */
    static const struct timespec millisecond = {.tv_nsec = 1000000};
    ends_program = true;
    atomic_store(&ended, true);
    for (int i = 0; i < 1000 && atomic_load(&changes); i++) nanosleep(&millisecond, NULL);
    for (size_t i = 0; i < N_SLOTS; i++)
        if (atomic_load(&slots[i].state) == SLOT_LIVE && slots[i].owner == getpid())
            temporary_undo(slots[i].path, slots[i].back);
}
