/* exec/comm/comm.c - common to all transports: choice of the transport, shared memory, doorbells.
 *
 * Ranks forked by the program (exec/comm/launch_local.h) use a shared mapping; all others use MPI, which a program
 * may be linked without.
 */
#include "exec/comm/transport.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PARTING_LIMITS 3

/* ---- start and end ---------------------------------------------------------------------------- */

/* Ranks in separate containers cannot share memory and have no bells. All ranks or none. */
static void map_bells(struct comm *c)
{
    void *p;
    struct error why;
    if (comm_share(c, (int64_t)sizeof *c->bells * c->size, &p, &why) == OK) {
        comm_watch_board(c, p);
        c->shared = NULL; /* now free for the caller's share */
    } else if (c->rank == 0) {
        log_debug("no doorbells: %s", why.text);
    }
}

static enum status choose(struct comm *c, struct error *err)
{
    c->transport = launch_local_rank() >= 0 ? &comm_by_local : &comm_by_mpi;
    if (c->transport) return OK;
    return error_set(err, ERR_RESOURCE, "this program was built without MPI");
}

enum status comm_open(struct arena *a, int32_t wanted, struct comm **out, struct error *err)
{
    if (launch_size() != wanted)
        return error_set(err, ERR_INPUT,
                         "the program needs %" PRId32 " ranks, %" PRId32 " were started", wanted,
                         launch_size());
    struct comm *c = ARENA_ARRAY(a, struct comm, 1);
    c->a = a;
    c->size = 1, c->expendable = INT32_MAX;
    c->one_host = true;
    c->limit_ns = comm_limit_ns();
    c->phase = "";
    *out = c;
    if (wanted < 2) return OK;
    TRY(choose(c, err));
    comm_watch_begin(c, "joining the other ranks");
    enum status status = c->transport->join(c, err);
    if (status == OK) comm_watch_met(c);
    if (status == OK && c->one_host) map_bells(c);
    comm_watch_end(c);
    return status;
}

void comm_close(struct comm *c)
{
    if (!c || !c->started) return;
    comm_barrier(c);
    struct bell *bells = c->bells;
    comm_watch_board(c, NULL);
    if (bells) munmap(bells, sizeof *bells * (size_t)c->size);
    if (c->shared) munmap(c->shared, c->shared_bytes);
    comm_watch_begin(c, "parting");
    c->transport->leave(c);
    comm_watch_end(c);
    c->started = false;
}

void comm_parting(struct comm *c, bool begins)
{
    if (!c || c->size < 2) return;
    if (!begins) {
        comm_watch_end(c);
        return;
    }
    c->limit_ns = PARTING_LIMITS * comm_limit_ns();
    comm_watch_begin(c, "freeing device resources");
}

void comm_expendable(struct comm *c, int32_t first)
{
    c->expendable = first;
    c->gone = ARENA_ARRAY(c->a, _Atomic bool, (size_t)c->size);
}

bool comm_gone(const struct comm *c, int32_t rank) { return c->gone && atomic_load(&c->gone[rank]); }

/* Each rank's bytes with its number in front. */
void *comm_gather_each(struct comm *c, struct arena *a, const void *p, int64_t bytes)
{
    int64_t total, each = bytes + (int64_t)sizeof(int64_t), rank = c->rank;
    char *mine = arena_alloc(a, (size_t)each, 8);
    memcpy(mine, &rank, sizeof rank);
    if (bytes) memcpy(mine + sizeof rank, p, (size_t)bytes);
    const char *all = comm_gather(c, a, mine, each, &total);
    if (!all) return NULL;
    char *out = arena_alloc(a, (size_t)(bytes * c->size) + 1, 8);
    for (int64_t at = 0; at + each <= total; at += each) {
        memcpy(&rank, all + at, sizeof rank);
        if (bytes) memcpy(out + rank * bytes, all + at + sizeof rank, (size_t)bytes);
    }
    return out;
}

int32_t comm_rank(const struct comm *c) { return c->rank; }
int32_t comm_size(const struct comm *c) { return c->size; }
bool comm_one_host(const struct comm *c) { return c->one_host; }
bool comm_has_bells(const struct comm *c) { return c->bells != NULL; }

void comm_abort(struct comm *c, int code)
{
    if (c->started) c->transport->end_all(c, code);
    _exit(code);
}

static atomic_bool unfinished;

void comm_note_unfinished(void) { atomic_store(&unfinished, true); }

int comm_end(int code)
{
    if (!atomic_load(&unfinished)) return code;
    fflush(NULL);
    if (&comm_by_mpi) comm_by_mpi.end();
    _exit(code);
}

/* ---- all together ----------------------------------------------------------------------------- */

#define WATCHED(c, what, call)                                                                     \
    do {                                                                                           \
        comm_watch_begin(c, what);                                                                 \
        call;                                                                                      \
        comm_watch_end(c);                                                                         \
    } while (0)

void comm_barrier(struct comm *c)
{
    if (c->started) WATCHED(c, "a barrier", c->transport->barrier(c));
}

static void broadcast_from(struct comm *c, void *p, int64_t bytes, int32_t root)
{
    WATCHED(c, "a broadcast", c->transport->broadcast(c, p, bytes, root));
}

void comm_broadcast(struct comm *c, void *p, int64_t bytes)
{
    if (c->started) broadcast_from(c, p, bytes, 0);
}

int64_t comm_max(struct comm *c, int64_t value)
{
    if (c->started) WATCHED(c, "an agreement", value = c->transport->max(c, value));
    return value;
}

void comm_max_begin(struct comm *c, int64_t value) { c->transport->max_begin(c, value); }
bool comm_max_ended(struct comm *c, int64_t *value) { return c->transport->max_ended(c, value); }

void comm_sum(struct comm *c, double *values, int64_t n)
{
    if (c->started) WATCHED(c, "a sum", c->transport->sum(c, values, n));
}

void *comm_gather(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total)
{
    char *all = NULL;
    if (c->started) {
        WATCHED(c, "a gathering", all = c->transport->gather(c, a, p, bytes, total));
        return all;
    }
    all = arena_alloc(a, (size_t)bytes + 1, 1);
    if (bytes) memcpy(all, p, (size_t)bytes);
    *total = bytes;
    return all;
}

enum status comm_agree(struct comm *c, enum status mine, struct error *err)
{
    if (!c->started) return mine;
    int32_t first = -(int32_t)comm_max(c, mine == OK ? -(int64_t)c->size : -(int64_t)c->rank);
    if (first == c->size) return OK;
    struct error news = {.code = mine};
    if (err && mine != OK) news = *err;
    broadcast_from(c, &news, (int64_t)sizeof news, first);
    return error_set(err, news.code, "%s", news.text);
}

enum status comm_at_root(struct comm *c, comm_work *work, void *owner, struct error *err)
{
    enum status status = OK;
    comm_watch_patiently(c, true);
    if (c->rank == 0) {
        comm_working(c, true);
        status = work(owner, err);
        comm_working(c, false);
    }
    status = comm_agree(c, status, err);
    comm_watch_patiently(c, false);
    return status;
}

int64_t comm_clock_offset(struct comm *c)
{
    int64_t offset_ns = 0;
    if (c->started && !c->one_host)
        WATCHED(c, "setting clocks", offset_ns = c->transport->clock_offset(c));
    return offset_ns;
}

/* An unnamed file held open by rank 0; the others open it through /proc, so that nothing remains however a run ends. */
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

/* ---- messages --------------------------------------------------------------------------------- */

void comm_send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag, int32_t owner,
               int64_t number)
{
    if (bytes > INT32_MAX) BUG("comm_send: %" PRId64 " bytes", bytes);
    c->n_sends++;
    c->transport->send(c, p, bytes, to, tag, (struct comm_ended){owner, number, true});
}

void comm_receive(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag, int32_t owner,
                  int64_t number)
{
    if (bytes > INT32_MAX) BUG("comm_receive: %" PRId64 " bytes", bytes);
    c->transport->receive(c, p, bytes, from, tag, (struct comm_ended){owner, number, false});
}

enum status comm_poll(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                      struct error *err)
{
    *n = 0;
    if (c->started) TRY(c->transport->poll(c, ended, most, n, err));
    for (int32_t i = 0; i < *n; i++) c->n_sends -= ended[i].sent;
    return OK;
}

bool comm_sending(const struct comm *c) { return c->n_sends > 0; }

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
    if (atomic_load(&b->rung) == seen) /* _BITSET: the time is absolute */
        syscall(SYS_futex, &b->rung, FUTEX_WAIT_BITSET, seen, &until, NULL, FUTEX_BITSET_MATCH_ANY);
    atomic_store(&b->asleep, 0);
}
