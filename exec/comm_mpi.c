/* exec/comm_mpi.c - ranks by MPI; the only file that includes it.
 *
 * MPI is started once a process and ended at its exit, so that several runs may follow one another.
 * Its blocking calls spin, which would starve the ranks that share a core: it is told to yield, and
 * during a run nothing but Isend, Irecv and Testsome is called. Open MPI's messages in shared
 * memory need both ends to look: the receiver's look moves the bytes, the sender's next look sees
 * that they are gone. Doorbells in memory shared by the ranks of a host (futex) make both look at
 * once.
 */
#include "exec/comm.h"

#include "core/arena.h"
#include "core/log.h"
#include "exec/clock.h"
#include "exec/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define LEAKS_ARE_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAKS_ARE_WATCHED 1
#endif
#endif
#ifdef LEAKS_ARE_WATCHED
/* MPI leaves thousands of blocks behind, from modules that are unloaded at exit and so escape any list of
 * suppressions: in a process that has started it, the leak check would speak of nothing else. */
static int mpi_was_started;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return mpi_was_started; }
#define NOTE_MPI() (mpi_was_started = 1)
#else
#define NOTE_MPI() ((void)0)
#endif

#define BROADCAST_BYTES (1 << 30) /* counts of MPI are int */
#define ROUND_TRIPS 50            /* for the clock offset; the fastest is believed */

struct bell {
    _Atomic uint32_t rung;
    _Atomic uint32_t asleep;
    char padding[56]; /* a cache line each */
};

struct comm {
    struct arena *a;
    MPI_Comm world;
    int32_t rank, size, n_sends;
    bool one_host, started;
    struct bell own, *bells; /* (size) shared, or NULL */
    void *shared;
    size_t shared_bytes;
    size_t n, capacity;
    MPI_Request *requests; /* (n) */
    struct comm_ended *ended;
    int *indices; /* (capacity) for Testsome */
};

/* ---- start and end ----------------------------------------------------------------------------
 */

static void end_mpi(void)
{
    int started = 0, ended = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (started && !ended) MPI_Finalize();
}

static enum status start_mpi(struct error *err)
{
    int started = 0, level = 0;
    MPI_Initialized(&started);
    if (started) return OK;
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    NOTE_MPI();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return error_set(err, ERR_RANK, "rank %" PRId32 ": MPI does not start", launch_rank());
    atexit(end_mpi);
    if (level < MPI_THREAD_SERIALIZED)
        return error_set(err, ERR_RESOURCE, "this MPI library does not support threads");
    return OK;
}

/* Ranks in containers of their own cannot share memory: they do without bells. All or none. */
static void map_bells(struct comm *c)
{
    void *p;
    struct error why;
    if (comm_share(c, (int64_t)sizeof *c->bells * c->size, &p, &why) == OK) {
        c->bells = p;
        c->shared = NULL; /* the room for the user's share */
    } else if (c->rank == 0) {
        log_debug("no doorbells: %s", why.text);
    }
}

static enum status join(struct comm *c, struct error *err)
{
    TRY(start_mpi(err));
    c->started = true;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &c->world) != MPI_SUCCESS)
        return error_set(err, ERR_RANK, "rank %" PRId32 ": MPI_Comm_dup fails", launch_rank());
    int rank, size, here;
    MPI_Comm_rank(c->world, &rank);
    MPI_Comm_size(c->world, &size);
    MPI_Comm host;
    MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    c->rank = rank;
    c->size = size;
    /* All or none: a rank that sits alone must not believe what the others do not. */
    c->one_host = -comm_max(c, -(int64_t)(here == size)) == 1;
    if (c->one_host) map_bells(c);
    return OK;
}

enum status comm_open(struct arena *a, int32_t wanted, struct comm **out, struct error *err)
{
    if (launch_size() != wanted)
        return error_set(err, ERR_INPUT,
                         "the program needs %" PRId32 " ranks, %" PRId32 " were started", wanted,
                         launch_size());
    struct comm *c = ARENA_ARRAY(a, struct comm, 1);
    c->a = a;
    c->size = 1;
    c->one_host = true;
    *out = c;
    return wanted > 1 ? join(c, err) : OK;
}

void comm_close(struct comm *c)
{
    if (!c || !c->started) return;
    MPI_Barrier(c->world);
    if (c->bells) munmap(c->bells, sizeof *c->bells * (size_t)c->size);
    if (c->shared) munmap(c->shared, c->shared_bytes);
    for (size_t i = 0; i < c->n;
         i++) { /* receives that were posted ahead of a step that never came */
        MPI_Cancel(&c->requests[i]);
        MPI_Wait(&c->requests[i], MPI_STATUS_IGNORE);
    }
    c->n = 0;
    MPI_Comm_free(&c->world);
    c->started = false;
}

int32_t comm_rank(const struct comm *c) { return c->rank; }
int32_t comm_size(const struct comm *c) { return c->size; }
bool comm_one_host(const struct comm *c) { return c->one_host; }
bool comm_has_bells(const struct comm *c) { return c->bells != NULL; }

void comm_abort(struct comm *c, int code)
{
    if (c->started) MPI_Abort(c->world, code);
    _exit(code);
}

/* ---- all together -----------------------------------------------------------------------------
 */

void comm_barrier(struct comm *c)
{
    if (c->started) MPI_Barrier(c->world);
}

void comm_broadcast(struct comm *c, void *p, int64_t bytes)
{
    if (!c->started) return;
    for (int64_t at = 0; at < bytes; at += BROADCAST_BYTES) {
        int64_t n = bytes - at < BROADCAST_BYTES ? bytes - at : BROADCAST_BYTES;
        MPI_Bcast((char *)p + at, (int)n, MPI_BYTE, 0, c->world);
    }
}

int64_t comm_max(struct comm *c, int64_t value)
{
    if (c->started) MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, c->world);
    return value;
}

void comm_sum(struct comm *c, double *values, int64_t n)
{
    if (!c->started) return;
    for (int64_t at = 0; at < n; at += BROADCAST_BYTES) {
        int count = (int)(n - at < BROADCAST_BYTES ? n - at : BROADCAST_BYTES);
        MPI_Reduce(c->rank ? values + at : MPI_IN_PLACE, values + at, count, MPI_DOUBLE, MPI_SUM, 0,
                   c->world);
    }
}

/* One rank after the other, in pieces: a trace may be larger than an int. */
void *comm_gather(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total)
{
    int64_t *sizes = ARENA_ARRAY(a, int64_t, (size_t)c->size);
    sizes[0] = bytes;
    if (c->started) MPI_Gather(&bytes, 1, MPI_INT64_T, sizes, 1, MPI_INT64_T, 0, c->world);
    *total = 0;
    if (c->rank == 0)
        for (int32_t r = 0; r < c->size; r++) *total += sizes[r];
    char *all = c->rank == 0 ? arena_alloc(a, (size_t)*total + 1, 1) : NULL, *to = all;
    if (all && bytes) memcpy(to, p, (size_t)bytes);
    if (all) to += bytes;
    for (int32_t r = 1; r < c->size; r++)
        for (int64_t at = 0, n, of = c->rank ? bytes : sizes[r]; at < of; at += n) {
            n = of - at < BROADCAST_BYTES ? of - at : BROADCAST_BYTES;
            if (c->rank == r) MPI_Send((const char *)p + at, (int)n, MPI_BYTE, 0, 0, c->world);
            if (c->rank != 0) continue;
            MPI_Recv(to, (int)n, MPI_BYTE, r, 0, c->world, MPI_STATUS_IGNORE);
            to += n;
        }
    return all;
}

enum status comm_agree(struct comm *c, enum status mine, struct error *err)
{
    if (!c->started) return mine;
    int32_t first = -(int32_t)comm_max(c, mine == OK ? -(int64_t)c->size : -(int64_t)c->rank);
    if (first == c->size) return OK;
    struct error news = {.code = mine};
    if (err && mine != OK) news = *err;
    MPI_Bcast(&news, (int)sizeof news, MPI_BYTE, first, c->world);
    return error_set(err, news.code, "%s", news.text);
}

int64_t comm_clock_offset(struct comm *c)
{
    if (!c->started || c->one_host) return 0;
    int64_t offset = 0;
    for (int32_t r = 1; r < c->size; r++) {
        int64_t best = INT64_MAX, theirs, sent;
        for (int i = 0; i < ROUND_TRIPS; i++) {
            if (c->rank == 0) {
                MPI_Recv(&theirs, 1, MPI_INT64_T, r, 0, c->world, MPI_STATUS_IGNORE);
                theirs = clock_wall_ns();
                MPI_Send(&theirs, 1, MPI_INT64_T, r, 0, c->world);
            } else if (c->rank == r) {
                sent = clock_wall_ns();
                MPI_Send(&sent, 1, MPI_INT64_T, 0, 0, c->world);
                MPI_Recv(&theirs, 1, MPI_INT64_T, 0, 0, c->world, MPI_STATUS_IGNORE);
                int64_t trip = clock_wall_ns() - sent;
                if (trip >= best) continue;
                best = trip;
                offset = sent + trip / 2 - theirs;
            }
        }
    }
    return offset;
}

/* A file without a name that rank 0 holds open; the others reach it through /proc, so that nothing
 * is left behind however a run ends. */
enum status comm_share(struct comm *c, int64_t bytes, void **out, struct error *err)
{
    char path[64] = "";
    int fd = -1;
    enum status status = OK;
    if (c->rank == 0) {
        fd = memfd_create("musher", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, bytes))
            status =
                error_set(err, ERR_RESOURCE, "cannot make %" PRId64 " bytes of shared memory: %s",
                          bytes, strerror(errno));
        snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), fd);
    }
    comm_broadcast(c, path, sizeof path);
    status = comm_agree(c, status, err);
    if (status == OK && c->rank) fd = open(path, O_RDWR | O_CLOEXEC);
    void *p = MAP_FAILED;
    if (status == OK) {
        if (fd >= 0) p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            status = error_set(err, ERR_RESOURCE,
                               "rank %" PRId32 " cannot map the shared memory of rank 0: %s",
                               c->rank, strerror(errno));
        status = comm_agree(c, status, err);
    }
    if (fd >= 0) close(fd);
    if (status != OK) return status;
    c->shared = *out = p;
    c->shared_bytes = (size_t)bytes;
    return OK;
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static MPI_Request *new_request(struct comm *c, struct comm_ended what)
{
    if (c->n == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        MPI_Request *requests = ARENA_ARRAY(c->a, MPI_Request, capacity);
        struct comm_ended *ended = ARENA_ARRAY(c->a, struct comm_ended, capacity);
        if (c->n) memcpy(requests, c->requests, c->n * sizeof *requests);
        if (c->n) memcpy(ended, c->ended, c->n * sizeof *ended);
        c->requests = requests;
        c->ended = ended;
        c->indices = ARENA_ARRAY(c->a, int, capacity);
        c->capacity = capacity;
    }
    c->ended[c->n] = what;
    return &c->requests[c->n++];
}

void comm_send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag, int32_t owner,
               int64_t number)
{
    if (bytes > INT_MAX) BUG("comm_send: %" PRId64 " bytes", bytes);
    MPI_Isend(p, (int)bytes, MPI_BYTE, to, tag, c->world,
              new_request(c, (struct comm_ended){owner, number, true}));
    c->n_sends++;
}

void comm_receive(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag, int32_t owner,
                  int64_t number)
{
    if (bytes > INT_MAX) BUG("comm_receive: %" PRId64 " bytes", bytes);
    MPI_Irecv(p, (int)bytes, MPI_BYTE, from, tag, c->world,
              new_request(c, (struct comm_ended){owner, number, false}));
}

bool comm_sending(const struct comm *c) { return c->n_sends > 0; }

/* Requests that ended are null now; the others move together. */
static void close_ranks(struct comm *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->requests[i] == MPI_REQUEST_NULL) continue;
        c->requests[kept] = c->requests[i];
        c->ended[kept++] = c->ended[i];
    }
    c->n = kept;
}

/* Open MPI's Testsome looks first and moves bytes afterwards: what its own look completed is seen
 * by the next call. */
enum { LOOKS = 2 };

static enum status look_at_slice(struct comm *c, size_t first, int count, struct comm_ended *ended,
                                 int32_t *n, struct error *err)
{
    int done = 0;
    for (int look = 0; look < LOOKS && !done; look++) {
        if (MPI_Testsome(count, c->requests + first, &done, c->indices, MPI_STATUSES_IGNORE) !=
            MPI_SUCCESS)
            return error_set(err, ERR_RANK, "rank %" PRId32 ": a message broke", c->rank);
        if (done == MPI_UNDEFINED) done = 0;
    }
    for (int i = 0; i < done; i++) {
        ended[*n] = c->ended[first + (size_t)c->indices[i]];
        if (ended[(*n)++].sent) c->n_sends--;
    }
    return OK;
}

enum status comm_poll(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                      struct error *err)
{
    *n = 0;
    for (size_t first = 0; first < c->n && *n == 0; first += (size_t)most) {
        int count = c->n - first < (size_t)most ? (int)(c->n - first) : most;
        TRY(look_at_slice(c, first, count, ended, n, err));
    }
    if (*n) close_ranks(c);
    return OK;
}

/* ---- doorbells --------------------------------------------------------------------------------
 */

static struct bell *bell_of(struct comm *c, int32_t rank)
{
    return c->bells ? &c->bells[rank] : rank == c->rank ? &c->own : NULL;
}

void comm_ring(struct comm *c, int32_t rank)
{
    struct bell *b = bell_of(c, rank);
    if (!b) return;
    atomic_fetch_add(&b->rung, 1);
    if (atomic_load(&b->asleep)) syscall(SYS_futex, &b->rung, FUTEX_WAKE, 1, NULL, NULL, 0);
}

uint32_t comm_rung(const struct comm *c)
{
    return atomic_load(c->bells ? &c->bells[c->rank].rung : &c->own.rung);
}

void comm_sleep(struct comm *c, uint32_t seen, int64_t wall_ns)
{
    struct bell *b = bell_of(c, c->rank);
    const struct timespec until = {.tv_sec = wall_ns / 1000000000, .tv_nsec = wall_ns % 1000000000};
    atomic_store(&b->asleep, 1);
    if (atomic_load(&b->rung) == seen) /* _BITSET: the time is an instant, not a duration */
        syscall(SYS_futex, &b->rung, FUTEX_WAIT_BITSET, seen, &until, NULL, FUTEX_BITSET_MATCH_ANY);
    atomic_store(&b->asleep, 0);
}
