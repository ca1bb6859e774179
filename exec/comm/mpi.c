/* exec/comm/mpi.c - ranks over MPI; the only file that includes mpi.h.
 *
 * MPI is initialised once per process and finalised at its exit, so that several runs may follow one another. Its
 * blocking calls spin, which would starve ranks that share a core: it is configured to yield, and a run calls only
 * Isend, Irecv and Testsome. Open MPI's shared-memory transport needs both ends to poll: the receiver's poll moves
 * the bytes, the sender's next poll completes the send. Doorbells (exec/comm/comm.c) make both poll at once.
 *
 * Between hosts messages of more than one piece are sent in pieces that MPI sends without asking the receiver (eager protocol), once the
 * receiver has granted the message by an empty one, which it sends as soon as it has a buffer. MPI's own protocol for such messages
 * (rendezvous) asks when the message is ready, and its answer waits in the one TCP connection of two ranks behind all bytes of the opposite
 * direction: two messages in opposite directions then take almost as long as one after the other (docs/decisions/35-messages-between-hosts.md).
 */
#include "exec/comm/transport.h"

#include "core/base/arena.h"
#include "exec/clock.h"
#include "exec/comm/launch.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define LEAKS_ARE_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAKS_ARE_WATCHED 1
#endif
#endif
#ifdef LEAKS_ARE_WATCHED
/* MPI leaks thousands of blocks from modules that are unloaded at exit, so suppressions cannot match them. Leak
 * checks are therefore disabled in a process that has initialised it. */
static int mpi_was_started;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return mpi_was_started; }
#define NOTE_MPI() (mpi_was_started = 1)
#else
#define NOTE_MPI() ((void)0)
#endif

#define BROADCAST_BYTES (1 << 30) /* counts of MPI are int */
#define ROUND_TRIPS 50            /* for the clock offset; the fastest counts */
#define PIECE_BYTES 64512         /* 63 KiB: with MPI's header below 64 KiB, the eager limit of Open MPI's TCP */
#define PIECES_AT_ONCE 16         /* of a message: 1 MiB, which 10 Gbit/s move in 16 polls */
#define GRANT_TAG (1 << 28)       /* of the grant of a message, on top of the message's own tag */
#define CONTROL_TAG (GRANT_TAG - 1) /* of calls of all ranks together, while receives of messages may be posted */

struct message {
    struct comm_ended what;
    char *data;
    int64_t bytes, piece_bytes;
    int32_t peer, tag;
    int32_t n, begun; /* pieces */
    int32_t running;  /* requests of it */
    bool granted;
    struct message *next;
};

struct mpi {
    MPI_Comm world;
    size_t n, capacity;
    MPI_Request *requests; /* (n) */
    struct message **of;   /* (n) */
    int *indices; /* (capacity) for Testsome */
    struct message *first, *spare; /* in order of their beginning */
    MPI_Request agreement;
    int64_t agreed; /* by it */
};

static struct mpi *mpi_of(const struct comm *c) { return c->state; }

/* ---- start and end ----------------------------------------------------------------------------
 */

/* Waits for the other ranks too. */
static void end_mpi(void)
{
    static struct comm nobody = {.phase = ""};
    int started = 0, ended = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (!started || ended) return;
    nobody.rank = launch_rank();
    nobody.limit_ns = comm_limit_ns();
    comm_watch_begin(&nobody, "ending MPI");
    MPI_Finalize();
    comm_watch_end(&nobody);
}

enum { KEPT_MAX = 8 };
struct kept {
    int n;
    char path[KEPT_MAX][4096];
};

static int note_module(struct dl_phdr_info *about, size_t size, void *owner)
{
    struct kept *k = owner;
    (void)size;
    if (k->n < KEPT_MAX && strstr(about->dlpi_name, "mca_pmix"))
        snprintf(k->path[k->n++], sizeof k->path[0], "%s", about->dlpi_name);
    return 0;
}

/* MPI_Finalize of Open MPI 4.1 unloads the module that communicates with its launcher, whose library may call back
 * into it from a thread of its own: about one process in some hundred thousand crashed at exit. The modules stay
 * loaded. */
static void keep_modules(struct arena *a)
{
    struct kept *k = ARENA_ARRAY(a, struct kept, 1);
    dl_iterate_phdr(note_module, k);
    for (int i = 0; i < k->n; i++)
        (void)dlopen(k->path[i], RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static enum status start_mpi(struct arena *a, struct error *err)
{
    int started = 0, level = 0;
    MPI_Initialized(&started);
    if (started) return OK;
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    NOTE_MPI();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return error_set(err, ERR_RANK, "rank %" PRId32 ": MPI cannot be initialised", launch_rank());
    keep_modules(a);
    atexit(end_mpi);
    if (level < MPI_THREAD_SERIALIZED)
        return error_set(err, ERR_RESOURCE, "this MPI library does not support threads");
    return OK;
}

static int64_t max(struct comm *c, int64_t value)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, mpi_of(c)->world);
    return value;
}

static enum status join(struct comm *c, struct error *err)
{
    struct mpi *x = c->state = ARENA_ARRAY(c->a, struct mpi, 1);
    TRY(start_mpi(c->a, err));
    c->started = true;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &x->world) != MPI_SUCCESS)
        return error_set(err, ERR_RANK, "rank %" PRId32 ": MPI_Comm_dup failed", launch_rank());
    int rank, size, here;
    MPI_Comm_rank(x->world, &rank);
    MPI_Comm_size(x->world, &size);
    if (size != launch_size())
        return error_set(err, ERR_RANK,
                         "rank %" PRId32 ": %" PRId32 " ranks were started, but MPI knows of %d: this MPI cannot speak to the launcher (with Slurm: srun --mpi=pmix, or mpirun "
                         "inside the allocation)",
                         launch_rank(), launch_size(), size);
    MPI_Comm host;
    MPI_Comm_split_type(x->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    c->rank = rank;
    c->size = size;
    /* All or none: the ranks must agree. */
    c->one_host = -max(c, -(int64_t)(here == size)) == 1;
    return OK;
}

static void leave(struct comm *c)
{
    struct mpi *x = mpi_of(c);
    for (size_t i = 0; i < x->n;
         i++) { /* receives posted for a step that did not come */
        MPI_Cancel(&x->requests[i]);
        MPI_Wait(&x->requests[i], MPI_STATUS_IGNORE);
    }
    x->n = 0;
    x->first = NULL;
    MPI_Comm_free(&x->world);
}

static void end_all(struct comm *c, int code) { MPI_Abort(mpi_of(c)->world, code); }

/* ---- all together -----------------------------------------------------------------------------
 */

static void barrier(struct comm *c) { MPI_Barrier(mpi_of(c)->world); }

static void broadcast(struct comm *c, void *p, int64_t bytes, int32_t root)
{
    for (int64_t at = 0; at < bytes; at += BROADCAST_BYTES) {
        int64_t n = bytes - at < BROADCAST_BYTES ? bytes - at : BROADCAST_BYTES;
        MPI_Bcast((char *)p + at, (int)n, MPI_BYTE, root, mpi_of(c)->world);
    }
}

static void max_begin(struct comm *c, int64_t value)
{
    struct mpi *x = mpi_of(c);
    x->agreed = value;
    MPI_Iallreduce(MPI_IN_PLACE, &x->agreed, 1, MPI_INT64_T, MPI_MAX, x->world, &x->agreement);
}

static bool max_ended(struct comm *c, int64_t *value)
{
    int done = 0;
    MPI_Test(&mpi_of(c)->agreement, &done, MPI_STATUS_IGNORE);
    *value = mpi_of(c)->agreed;
    return done;
}

static void sum(struct comm *c, double *values, int64_t n)
{
    for (int64_t at = 0; at < n; at += BROADCAST_BYTES) {
        int count = (int)(n - at < BROADCAST_BYTES ? n - at : BROADCAST_BYTES);
        MPI_Reduce(c->rank ? values + at : MPI_IN_PLACE, values + at, count, MPI_DOUBLE, MPI_SUM, 0,
                   mpi_of(c)->world);
    }
}

/* One rank after the other, in pieces, because a trace may exceed an int count. */
static void *gather(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total)
{
    MPI_Comm world = mpi_of(c)->world;
    int64_t *sizes = ARENA_ARRAY(a, int64_t, (size_t)c->size);
    sizes[0] = bytes;
    MPI_Gather(&bytes, 1, MPI_INT64_T, sizes, 1, MPI_INT64_T, 0, world);
    *total = 0;
    if (c->rank == 0)
        for (int32_t r = 0; r < c->size; r++) *total += sizes[r];
    char *all = c->rank == 0 ? arena_alloc(a, (size_t)*total + 1, 1) : NULL, *to = all;
    if (all && bytes) memcpy(to, p, (size_t)bytes);
    if (all) to += bytes;
    for (int32_t r = 1; r < c->size; r++)
        for (int64_t at = 0, n, of = c->rank ? bytes : sizes[r]; at < of; at += n) {
            n = of - at < BROADCAST_BYTES ? of - at : BROADCAST_BYTES;
            if (c->rank == r) MPI_Send((const char *)p + at, (int)n, MPI_BYTE, 0, CONTROL_TAG, world);
            if (c->rank != 0) continue;
            MPI_Recv(to, (int)n, MPI_BYTE, r, CONTROL_TAG, world, MPI_STATUS_IGNORE);
            to += n;
        }
    return all;
}

static int64_t clock_offset(struct comm *c)
{
    MPI_Comm world = mpi_of(c)->world;
    int64_t offset = 0;
    for (int32_t r = 1; r < c->size; r++) {
        int64_t best = INT64_MAX, theirs, sent;
        for (int i = 0; i < ROUND_TRIPS; i++) {
            if (c->rank == 0) {
                MPI_Recv(&theirs, 1, MPI_INT64_T, r, CONTROL_TAG, world, MPI_STATUS_IGNORE);
                theirs = clock_wall_ns();
                MPI_Send(&theirs, 1, MPI_INT64_T, r, CONTROL_TAG, world);
            } else if (c->rank == r) {
                sent = clock_wall_ns();
                MPI_Send(&sent, 1, MPI_INT64_T, 0, CONTROL_TAG, world);
                MPI_Recv(&theirs, 1, MPI_INT64_T, 0, CONTROL_TAG, world, MPI_STATUS_IGNORE);
                int64_t trip = clock_wall_ns() - sent;
                if (trip >= best) continue;
                best = trip;
                offset = sent + trip / 2 - theirs;
            }
        }
    }
    return offset;
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static MPI_Request *new_request(struct comm *c, struct message *m)
{
    struct mpi *x = mpi_of(c);
    if (x->n == x->capacity) {
        size_t capacity = x->capacity ? 2 * x->capacity : 64;
        MPI_Request *requests = ARENA_ARRAY(c->a, MPI_Request, capacity);
        struct message **of = ARENA_ARRAY(c->a, struct message *, capacity);
        if (x->n) memcpy(requests, x->requests, x->n * sizeof *requests);
        if (x->n) memcpy(of, x->of, x->n * sizeof *of);
        x->requests = requests;
        x->of = of;
        x->indices = ARENA_ARRAY(c->a, int, capacity);
        x->capacity = capacity;
    }
    m->running++;
    x->of[x->n] = m;
    return &x->requests[x->n++];
}

/* MPI matches messages of one tag in the order of their requests, so all pieces of one message begin before those of the next. */
static bool has_turn(const struct mpi *x, const struct message *m)
{
    for (const struct message *k = x->first; k != m; k = k->next)
        if (k->peer == m->peer && k->tag == m->tag && k->what.sent == m->what.sent && k->begun < k->n) return false;
    return true;
}

static void begin_pieces(struct comm *c, struct message *m)
{
    if (!m->granted || m->begun == m->n || !has_turn(mpi_of(c), m)) return;
    for (; m->begun < m->n && m->running < PIECES_AT_ONCE; m->begun++) {
        int64_t at = m->begun * m->piece_bytes, bytes = m->bytes - at < m->piece_bytes ? m->bytes - at : m->piece_bytes;
        MPI_Request *request = new_request(c, m);
        if (m->what.sent)
            MPI_Isend(m->data + at, (int)bytes, MPI_BYTE, m->peer, m->tag, mpi_of(c)->world, request);
        else
            MPI_Irecv(m->data + at, (int)bytes, MPI_BYTE, m->peer, m->tag, mpi_of(c)->world, request);
    }
}

static void begin(struct comm *c, struct message what)
{
    struct mpi *x = mpi_of(c);
    struct message *m = x->spare, **last = &x->first;
    if (m)
        x->spare = m->next;
    else
        m = ARENA_ARRAY(c->a, struct message, 1);
    while (*last) last = &(*last)->next;
    *last = m;
    *m = what;
    m->piece_bytes = c->one_host ? INT32_MAX : PIECE_BYTES;
    m->n = m->bytes > 0 ? (int32_t)((m->bytes + m->piece_bytes - 1) / m->piece_bytes) : 1;
    m->granted = m->n == 1 || !m->what.sent;
    if (m->n > 1 && m->what.sent)
        MPI_Irecv(NULL, 0, MPI_BYTE, m->peer, GRANT_TAG + m->tag, x->world, new_request(c, m));
    if (m->n > 1 && !m->what.sent)
        MPI_Isend(NULL, 0, MPI_BYTE, m->peer, GRANT_TAG + m->tag, x->world, new_request(c, m));
    begin_pieces(c, m);
}

static void send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag,
                 struct comm_ended what)
{
    begin(c, (struct message){.what = what, .data = (char *)(uintptr_t)p, .bytes = bytes, .peer = to, .tag = tag});
}

static void receive(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag,
                    struct comm_ended what)
{
    begin(c, (struct message){.what = what, .data = p, .bytes = bytes, .peer = from, .tag = tag});
}

/* Completed requests are null; the others are compacted. */
static void close_ranks(struct mpi *x)
{
    size_t kept = 0;
    for (size_t i = 0; i < x->n; i++) {
        if (x->requests[i] == MPI_REQUEST_NULL) continue;
        x->requests[kept] = x->requests[i];
        x->of[kept++] = x->of[i];
    }
    x->n = kept;
}

/* Open MPI's Testsome tests first and progresses afterwards: the next call reports what its own progress completed. */
enum { LOOKS = 2 };

static enum status look_at_slice(struct comm *c, size_t first, int count, int *done, struct error *err)
{
    struct mpi *x = mpi_of(c);
    *done = 0;
    for (int look = 0; look < LOOKS && !*done; look++) {
        if (MPI_Testsome(count, x->requests + first, done, x->indices, MPI_STATUSES_IGNORE) !=
            MPI_SUCCESS)
            return error_set(err, ERR_RANK, "rank %" PRId32 ": a message failed", c->rank);
        if (*done == MPI_UNDEFINED) *done = 0;
    }
    for (int i = 0; i < *done; i++) {
        struct message *m = x->of[first + (size_t)x->indices[i]];
        m->running--;
        m->granted = true;
    }
    return OK;
}

/* Begins pieces, and reports messages that have ended, at most `most`. */
static void go_on(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n)
{
    struct mpi *x = mpi_of(c);
    for (struct message **at = &x->first, *m; (m = *at);) {
        begin_pieces(c, m);
        if (m->running || m->begun < m->n || *n == most) {
            at = &m->next;
            continue;
        }
        ended[(*n)++] = m->what;
        *at = m->next;
        m->next = x->spare;
        x->spare = m;
    }
}

enum { SLICE = 64 }; /* requests of one Testsome */

static enum status poll_all(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                            struct error *err)
{
    struct mpi *x = mpi_of(c);
    int done = 0;
    for (size_t first = 0; first < x->n && !done; first += SLICE)
        TRY(look_at_slice(c, first, x->n - first < SLICE ? (int)(x->n - first) : SLICE, &done, err));
    if (done) close_ranks(x);
    go_on(c, ended, most, n);
    return OK;
}

const struct comm_transport comm_by_mpi = {.name = "MPI",
                                     .join = join,
                                     .leave = leave,
                                     .end_all = end_all,
                                     .end = end_mpi,
                                     .barrier = barrier,
                                     .broadcast = broadcast,
                                     .max = max,
                                     .max_begin = max_begin,
                                     .max_ended = max_ended,
                                     .sum = sum,
                                     .gather = gather,
                                     .clock_offset = clock_offset,
                                     .send = send,
                                     .receive = receive,
                                     .poll = poll_all};
