/* exec/comm/local.c - ranks of one host over a shared mapping, without a message library.
 *
 * Every pair of ranks has a byte pipe in each direction (exec/comm/local_messages.c), which moves when either end
 * polls: comm_poll, or a call that waits. Collective calls are messages with a reserved tag through rank 0, because
 * ranks are few and the calls are rare.
 *
 * A rank holds a lock on its own byte of the file while it lives; the others test the locks from time to time. A call
 * with a status then returns ERR_RANK, unless the rank is expendable; one without (barrier, broadcast) ends this process with that exit code, as
 * MPI's launcher would.
 */
#include "exec/comm/local_internal.h"

#include "core/base/arena.h"
#include "exec/clock.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TOGETHER_TAG INT32_MAX    /* reserved for collective calls */
#define LIFE_NS INT64_C(10000000) /* between two tests of the locks */
#define SLEEP_NS INT64_C(5000000) /* maximum, while waiting */

static void send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag,
                 struct comm_ended what)
{
    local_send(c, p, bytes, to, tag, &what);
}

static void receive(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag,
                    struct comm_ended what)
{
    local_receive(c, p, bytes, from, tag, &what, NULL);
}

/* ---- who is alive ----------------------------------------------------------------------------- */

static struct flock byte_of(int32_t rank, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

/* What was to be sent to it counts as sent. */
static void note_gone(struct comm *c, int32_t rank)
{
    atomic_store(&c->gone[rank], true);
    local_drop(c, rank);
}

static void look_for_dead(struct comm *c)
{
    struct local *x = local_of(c);
    int64_t now_ns = clock_wall_ns();
    if (x->dead >= 0 || now_ns - x->looked_ns < LIFE_NS) return;
    x->looked_ns = now_ns;
    for (int32_t i = 0; i < c->size && x->dead < 0; i++) {
        struct flock l = byte_of(i, F_WRLCK);
        if (i == c->rank || comm_gone(c, i) || atomic_load(&x->room->state[i]) != LOCAL_HERE) continue;
        bool unlocked = fcntl(x->fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK;
        if (!unlocked || atomic_load(&x->room->state[i]) != LOCAL_HERE) continue;
        if (i >= c->expendable)
            note_gone(c, i);
        else
            x->dead = i;
    }
}

static enum status report_dead(const struct comm *c, struct error *err)
{
    int32_t dead = local_of(c)->dead;
    return error_set(err, ERR_RANK, "rank %" PRId32 ": rank %" PRId32 "%s%s%s has ended", c->rank,
                     dead, c->names ? " (" : "", c->names ? c->names[dead] : "",
                     c->names ? ")" : "");
}

/* Messages that a rank sent before its end are received first. */
static enum status poll_all(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                            struct error *err)
{
    struct local *x = local_of(c);
    bool any = local_progress(c);
    while (*n < most && x->ended_first < x->ended_n) ended[(*n)++] = x->ended[x->ended_first++];
    if (any || *n) return OK;
    look_for_dead(c);
    return x->dead >= 0 ? report_dead(c, err) : OK;
}

/* ---- all together ----------------------------------------------------------------------------- */

__attribute__((noreturn)) static void die(struct comm *c)
{
    struct error err;
    (void)report_dead(c, &err);
    launch_report_alone(&err);
    _exit(ERR_RANK);
}

static bool all_out(const struct local *x, int32_t size)
{
    for (int32_t i = 0; i < size; i++)
        if (x->peers[i].first) return false;
    return true;
}

/* Until *over, or until all outgoing messages have left (NULL). false: rank `from` is gone before. */
static bool wait_until(struct comm *c, const bool *over, int32_t from)
{
    for (;;) {
        uint32_t seen = comm_rung(c);
        bool any = local_progress(c);
        if (over ? *over : all_out(local_of(c), c->size)) return true;
        if (any) continue;
        if (over && comm_gone(c, from)) return false;
        look_for_dead(c);
        if (local_of(c)->dead >= 0) die(c);
        comm_sleep(c, seen, clock_wall_ns() + SLEEP_NS);
    }
}

static void give(struct comm *c, int32_t to, const void *p, int64_t bytes)
{
    local_send(c, p, bytes, to, TOGETHER_TAG, NULL);
    (void)wait_until(c, NULL, -1);
}

/* false: the rank is gone; *p is zero. Its receive is never matched, and the memory that it refers to must not end with this call. */
static bool get(struct comm *c, int32_t from, void *p, int64_t bytes)
{
    struct local *x = local_of(c);
    memset(p, 0, (size_t)bytes);
    if (comm_gone(c, from)) return false;
    bool *over = from >= c->expendable ? ARENA_ARRAY(x->a, bool, 1) : &(bool){false};
    void *to = from >= c->expendable ? arena_alloc(x->a, (size_t)bytes + 1, 8) : p;
    local_receive(c, to, bytes, from, TOGETHER_TAG, NULL, over);
    if (!wait_until(c, over, from)) return false;
    if (to != p) memcpy(p, to, (size_t)bytes);
    return true;
}

static void broadcast(struct comm *c, void *p, int64_t bytes, int32_t root)
{
    if (c->rank != root) {
        (void)get(c, root, p, bytes);
        return;
    }
    for (int32_t i = 0; i < c->size; i++)
        if (i != root) local_send(c, p, bytes, i, TOGETHER_TAG, NULL);
    (void)wait_until(c, NULL, -1);
}

static int64_t max(struct comm *c, int64_t value)
{
    if (c->rank) give(c, 0, &value, sizeof value);
    for (int32_t i = 1; c->rank == 0 && i < c->size; i++) {
        int64_t other;
        if (get(c, i, &other, sizeof other) && other > value) value = other;
    }
    broadcast(c, &value, sizeof value, 0);
    return value;
}

static void barrier(struct comm *c) { (void)max(c, 0); }

static void sum(struct comm *c, double *values, int64_t n)
{
    struct arena *a = arena_new();
    double *others = ARENA_ARRAY(a, double, (size_t)n + 1);
    int64_t bytes = n * (int64_t)sizeof *values;
    if (c->rank) give(c, 0, values, bytes);
    for (int32_t r = 1; c->rank == 0 && r < c->size; r++) {
        (void)get(c, r, others, bytes);
        for (int64_t i = 0; i < n; i++) values[i] += others[i];
    }
    arena_free(a);
}

static void *gather(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total)
{
    *total = 0;
    if (c->rank) {
        give(c, 0, &bytes, sizeof bytes);
        give(c, 0, p, bytes);
        return NULL;
    }
    int64_t *sizes = ARENA_ARRAY(a, int64_t, (size_t)c->size);
    sizes[0] = bytes;
    for (int32_t r = 1; r < c->size; r++) (void)get(c, r, &sizes[r], sizeof *sizes);
    for (int32_t r = 0; r < c->size; r++) *total += sizes[r];
    char *all = arena_alloc(a, (size_t)*total + 1, 1), *to = all;
    if (bytes) memcpy(to, p, (size_t)bytes);
    to += bytes;
    for (int32_t r = 1; r < c->size; to += sizes[r++]) (void)get(c, r, to, sizes[r]);
    return all;
}

/* ---- start and end ---------------------------------------------------------------------------- */

static enum status cannot(const struct comm *c, const char *what, struct error *err)
{
    return error_set(err, ERR_RANK, "rank %" PRId32 " cannot %s the shared file of the ranks: %s",
                     c->rank, what, strerror(errno));
}

static enum status enter(struct comm *c, struct local *x, struct error *err)
{
    int32_t none = 0;
    x->room_bytes = sizeof(struct room) + (size_t)c->size * (size_t)c->size * sizeof(struct pipe);
    x->fd = launch_local_open();
    if (x->fd < 0) return cannot(c, "open", err);
    if (ftruncate(x->fd, (off_t)x->room_bytes)) return cannot(c, "enlarge", err);
    void *p = mmap(NULL, x->room_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, x->fd, 0);
    if (p == MAP_FAILED) return cannot(c, "map", err);
    x->room = p;
    if (!atomic_compare_exchange_strong(&x->room->size, &none, c->size) && none != c->size)
        return error_set(err, ERR_INPUT,
                         "rank %" PRId32 " was started with %" PRId32 " ranks, others with %" PRId32,
                         c->rank, c->size, none);
    struct flock l = byte_of(c->rank, F_WRLCK);
    if (fcntl(x->fd, F_OFD_SETLK, &l)) return cannot(c, "lock its byte in", err);
    atomic_store(&x->room->state[c->rank], LOCAL_HERE);
    atomic_fetch_add(&x->room->joined, 1);
    return OK;
}

static void leave(struct comm *c)
{
    struct local *x = local_of(c);
    if (x->room) atomic_store(&x->room->state[c->rank], LOCAL_LEFT);
    if (x->room) munmap(x->room, x->room_bytes);
    if (x->fd >= 0) close(x->fd);
    arena_free(x->a);
    x->room = NULL;
    x->a = NULL;
}

/* Runs may follow one another: ranks enter again after all have left. */
static void wait_for_all(struct comm *c, struct local *x, int32_t round)
{
    while (atomic_load(&x->room->joined) < round * c->size) {
        look_for_dead(c);
        if (x->dead >= 0) die(c);
        clock_sleep_until(clock_wall_ns() + LIFE_NS / 10);
    }
}

static enum status join(struct comm *c, struct error *err)
{
    static int32_t rounds;
    struct local *x = c->state = ARENA_ARRAY(c->a, struct local, 1);
    c->rank = launch_rank();
    c->size = launch_size();
    if (c->size > LOCAL_RANKS_MAX || c->rank >= c->size)
        return error_set(err, ERR_INPUT,
                         "rank %" PRId32 " of %" PRId32 ": at most %d can meet here", c->rank,
                         c->size, LOCAL_RANKS_MAX);
    *x = (struct local){.a = arena_new(), .fd = -1, .dead = -1};
    x->peers = ARENA_ARRAY(x->a, struct peer, (size_t)c->size);
    for (int32_t i = 0; i < c->size; i++) {
        struct peer *p = &x->peers[i];
        p->last = &p->first, p->posted_last = &p->posted, p->aside_last = &p->aside;
    }
    enum status status = enter(c, x, err);
    if (status != OK) {
        leave(c);
        return status;
    }
    c->started = c->one_host = true;
    wait_for_all(c, x, ++rounds);
    return OK;
}

/* The others notice that this rank's lock is gone. */
static void end_all(struct comm *c, int code) { (void)c, (void)code; }

static int64_t clock_offset(struct comm *c)
{
    (void)c;
    return 0; /* one host, one clock */
}

const struct comm_transport comm_by_local = {.name = "shared memory",
                                       .join = join,
                                       .leave = leave,
                                       .end_all = end_all,
                                       .barrier = barrier,
                                       .broadcast = broadcast,
                                       .max = max,
                                       .sum = sum,
                                       .gather = gather,
                                       .clock_offset = clock_offset,
                                       .send = send,
                                       .receive = receive,
                                       .poll = poll_all};
