#include "tests/standin/nccl_wire.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PIPE_BYTES 16384
#define WAIT_NS 3000000

enum { NOT_YET, HERE, LEFT, BROKEN };

struct member {
    _Atomic int state;
    _Atomic uint32_t bell;
    uint64_t host;
    int device;
};

struct pipe {
    _Atomic uint64_t put, taken; /* bytes so far */
    unsigned char bytes[PIPE_BYTES];
};

struct shared {
    _Atomic int n;      /* ranks, as the first one said */
    _Atomic int joined; /* how many */
    _Atomic int kept;   /* the maker's file descriptor is closed */
    struct member member[WIRE_RANKS_MAX];
    struct pipe pipe[]; /* (n, n) from, to */
};

struct wire {
    struct shared *s;
    size_t bytes;
    int fd, n, rank;
    int maker_fd; /* in this process; -1 */
};

bool wire_make_id(char *out, size_t n)
{
    int fd = memfd_create("standin-nccl", MFD_CLOEXEC);
    if (fd < 0) return false;
    snprintf(out, n, "/proc/%ld/fd/%d", (long)getpid(), fd);
    return true;
}

static bool hold_lock(int fd, int rank)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

static bool map(struct wire *w)
{
    w->bytes = sizeof(struct shared) + (size_t)w->n * (size_t)w->n * sizeof(struct pipe);
    if (ftruncate(w->fd, (off_t)w->bytes)) return false;
    void *p = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    if (p == MAP_FAILED) return false;
    w->s = p;
    int none = 0;
    return atomic_compare_exchange_strong(&w->s->n, &none, w->n) || none == w->n;
}

static int fd_of_maker(const char *id)
{
    long pid = 0;
    int fd = -1;
    return sscanf(id, "/proc/%ld/fd/%d", &pid, &fd) == 2 && pid == (long)getpid() ? fd : -1;
}

struct wire *wire_open(const char *id, int n, int rank, uint64_t host, int device)
{
    struct wire *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->n = n, w->rank = rank, w->maker_fd = fd_of_maker(id);
    w->fd = n > 0 && n <= WIRE_RANKS_MAX ? open(id, O_RDWR | O_CLOEXEC) : -1;
    if (w->fd < 0 || !map(w) || !hold_lock(w->fd, rank)) {
        wire_close(w);
        return NULL;
    }
    struct member *m = &w->s->member[rank];
    m->host = host, m->device = device;
    atomic_store(&m->state, HERE);
    atomic_fetch_add(&w->s->joined, 1);
    return w;
}

void wire_close(struct wire *w)
{
    if (w->s) munmap(w->s, w->bytes);
    if (w->fd >= 0) close(w->fd);
    free(w);
}

bool wire_joined(struct wire *w)
{
    if (atomic_load(&w->s->joined) < w->n) return false;
    if (w->maker_fd >= 0 && !atomic_exchange(&w->s->kept, 1)) close(w->maker_fd);
    w->maker_fd = -1;
    return true;
}

bool wire_shares_device(const struct wire *w)
{
    const struct member *m = w->s->member;
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < i; k++)
            if (m[i].host == m[k].host && m[i].device == m[k].device) return true;
    return false;
}

void wire_leave(struct wire *w, bool in_order)
{
    int here = HERE;
    if (!atomic_compare_exchange_strong(&w->s->member[w->rank].state, &here,
                                        in_order ? LEFT : BROKEN))
        return;
    struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = w->rank, .l_len = 1};
    fcntl(w->fd, F_OFD_SETLK, &l);
    for (int i = 0; i < w->n; i++) wire_ring(w, i);
}

int wire_dead(const struct wire *w)
{
    for (int i = 0; i < w->n; i++) {
        int state = atomic_load(&w->s->member[i].state);
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};
        if (i == w->rank || state == NOT_YET || state == LEFT) continue;
        if (state == BROKEN) return i;
        bool free_now = fcntl(w->fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK;
        if (free_now && atomic_load(&w->s->member[i].state) != LEFT) return i;
    }
    return -1;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

static struct pipe *pipe_of(struct wire *w, int from, int to)
{
    return &w->s->pipe[from * w->n + to];
}

static void pass(unsigned char *ring, uint64_t at, void *p, size_t bytes, bool in)
{
    size_t first = (size_t)(at % PIPE_BYTES), n = PIPE_BYTES - first;
    if (n > bytes) n = bytes;
    unsigned char *other = p;
    memcpy(in ? ring + first : other, in ? other : ring + first, n);
    memcpy(in ? ring : other + n, in ? other + n : ring, bytes - n);
}

size_t wire_put(struct wire *w, int to, const void *p, size_t bytes)
{
    struct pipe *x = pipe_of(w, w->rank, to);
    uint64_t put = atomic_load_explicit(&x->put, memory_order_relaxed),
             room = PIPE_BYTES - (put - atomic_load(&x->taken));
    if (bytes > room) bytes = (size_t)room;
    if (!bytes) return 0;
    pass(x->bytes, put, (void *)(uintptr_t)p, bytes, true);
    atomic_store(&x->put, put + bytes);
    wire_ring(w, to);
    return bytes;
}

size_t wire_take(struct wire *w, int from, void *p, size_t bytes)
{
    struct pipe *x = pipe_of(w, from, w->rank);
    uint64_t taken = atomic_load_explicit(&x->taken, memory_order_relaxed),
             there = atomic_load(&x->put) - taken;
    if (bytes > there) bytes = (size_t)there;
    if (!bytes) return 0;
    pass(x->bytes, taken, p, bytes, false);
    atomic_store(&x->taken, taken + bytes);
    wire_ring(w, from);
    return bytes;
}

uint32_t wire_rung(const struct wire *w) { return atomic_load(&w->s->member[w->rank].bell); }

void wire_ring(struct wire *w, int rank)
{
    atomic_fetch_add(&w->s->member[rank].bell, 1);
    syscall(SYS_futex, &w->s->member[rank].bell, FUTEX_WAKE, 64, NULL, NULL, 0);
}

void wire_wait(struct wire *w, uint32_t seen)
{
    const struct timespec at_most = {.tv_nsec = WAIT_NS};
    syscall(SYS_futex, &w->s->member[w->rank].bell, FUTEX_WAIT, seen, &at_most, NULL, 0);
}
