/* tests/programs/exec_ranks.c - one rank of a test of the executor; started by mpirun.
 *
 * exec_ranks collectives            rings and chains of all ranks: sums bit for bit, virtual times
 * to the nanosecond
 * exec_ranks wires                  messages from each rank to the next over
 * emulated links: α + βn exactly
 * exec_ranks run STEPS [--data F] [--save D] [--every N] [--resume D] [--no-trace] [--late lazy|threads | --cuda] [--on 01…] PROGRAM...
 * runs program files one after the other; rank 0 prints the losses. --late: devices are tests/support/deferred.h's, --cuda: the
 * plugin's; all of them, or those that the digits say
 * LATE_FAILS_AT=N: the N-th call of a late device fails
 * exec_ranks fail HOW RANK          a pipeline of messages in which RANK ends by kill | segv | exit | stop | sleep
 * exec_ranks launch N ARGUMENTS...  starts N ranks with these arguments by launch_ranks; says how
 * they ended. exec_ranks local N ...: N forked
 * ranks, without MPI, do any of these. Rank 0 says "ok" at the end; any rank that is not content says why and ends with 1.
 */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/program/program.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"
#include "exec/host_transport/comm_thread.h"
#include "exec/worker/worker.h"
#include "tests/support/deferred.h"
#include "tests/support/slowdown.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "rank %d, line %d: ", (int)launch_rank(), __LINE__);                       \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        abort();                                                                                   \
    } while (0)

static const double bandwidth_Bps = 1e9, latency_s = 50e-6;

/* n devices in a circle, a link from each to the next and (back) to the one before. */
static struct program circle(struct arena *a, int32_t n, bool emulated, int32_t sharing)
{
    struct program p = {.name = "circle",
                        .dtype = DTYPE_fp32,
                        .emulated = emulated,
                        .microbatches = n,
                        .n_devices = n,
                        .n_links = n,
                        .n_stages = n,
                        .n_orders = 1};
    p.devices = ARENA_ARRAY(a, struct program_device, (size_t)n);
    p.links = ARENA_ARRAY(a, struct program_link, (size_t)n);
    p.stages = ARENA_ARRAY(a, struct program_stage, (size_t)n);
    p.lanes = ARENA_ARRAY(a, struct lane, (size_t)n); /* without stages: the rig calls the communication thread itself */
    p.orders = ARENA_ARRAY(a, struct order, 1);
    for (int32_t i = 0; i < n; i++) {
        p.devices[i] = (struct program_device){.name = arena_printf(a, "a.%d", (int)i)};
        p.links[i] = (struct program_link){.name = "link",
                                           .bandwidth_Bps = bandwidth_Bps,
                                           .latency_s = latency_s,
                                           .emulated = emulated,
                                           .sharing = sharing};
        p.stages[i] = (struct program_stage){
            .replica = i, .device = i, .microbatches = 2, .first_microbatch = i};
    }
    return p;
}

struct rig {
    struct arena *a;
    struct comm *comm;
    struct comm_thread comm_thread;
    int32_t rank, n;
};

static void start(struct rig *r, struct arena *a, const struct program *p)
{
    struct error e;
    void *shared = NULL;
    int64_t zero;
    *r = (struct rig){.a = a, .n = p->n_devices};
    NEED(comm_open(a, p->n_devices, &r->comm, &e) == OK, "%s", e.text);
    r->rank = comm_rank(r->comm);
    if (wires_shared_bytes(p))
        NEED(comm_share(r->comm, wires_shared_bytes(p), &shared, &e) == OK, "%s", e.text);
    comm_thread_init(&r->comm_thread, a, p, r->comm, shared, true);
    comm_barrier(r->comm);
    zero = clock_wall_ns() + 1000000;
    comm_broadcast(r->comm, &zero, sizeof zero);
    r->comm_thread.wires.zero_ns = zero;
}

static void go(struct rig *r)
{
    struct error e;
    NEED(comm_thread_start(&r->comm_thread, &e) == OK, "%s", e.text);
}

static void stop(struct rig *r)
{
    comm_thread_stop(&r->comm_thread);
    comm_close(r->comm);
}

/* ---- collectives ------------------------------------------------------------------------------
 */

static struct collective make_group(struct arena *a, int32_t n, enum collective_algorithm algorithm,
                               int64_t elements)
{
    struct collective g = {.name = "g",
                      .algorithm = algorithm,
                      .n_members = n,
                      .dtype = DTYPE_fp32,
                      .elements = elements};
    g.members = ARENA_ARRAY(a, struct collective_member, (size_t)n);
    g.link = ARENA_ARRAY(a, int32_t, (size_t)n), g.direction = ARENA_ARRAY(a, int32_t, (size_t)n);
    g.back_link = ARENA_ARRAY(a, int32_t, (size_t)n),
    g.back_direction = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        g.members[i] = (struct collective_member){.stage = i, .chain_ring = -1};
        g.link[i] = i;
        g.back_link[i] = (i + n - 1) % n, g.back_direction[i] = 1;
    }
    return g;
}

static float value(int32_t rank, int32_t buffer, int64_t i)
{
    return (float)((double)((i * 7919 + rank * 104729 + buffer * 1299709) % 1000003) / 1000003.0 -
                   0.3);
}

/* What member 0 … n-1 in the order of the algorithm give for element i. */
static float expected(const struct collective *g, bool per_microbatch, int64_t i)
{
    int32_t n = g->n_members, first_member = 0;
    if (g->algorithm == ALGORITHM_CHAIN) {
        float sum = 0;
        for (int32_t m = 0; m < n; m++) {
            if (!per_microbatch || m == 0) sum += value(m, 0, i);
            for (int32_t b = 0; per_microbatch && m > 0 && b < 2; b++) sum += value(m, b, i);
        }
        return sum;
    }
    for (int32_t c = 0; c < n;
         c++) { /* chunk c starts at member c and is added to by c+1, c+2, … */
        int64_t first, last;
        collective_chunk(g, c, &first, &last);
        if (i >= first && i < last) first_member = c;
    }
    float sum = value(first_member, 0, i);
    for (int32_t k = 1; k < n; k++) sum = value((first_member + k) % n, 0, i) + sum;
    return sum;
}

static int64_t hop_ns(int64_t bytes)
{
    return bytes ? units_ns_from_s((double)bytes / bandwidth_Bps) + units_ns_from_s(latency_s) : 0;
}

/* All ranks ready at 0, chunks of equal size: every step takes one hop. Chain: n-1 hops forth and
 * back; a member has ended when it has its copy and has sent it on. */
static void check_time(const struct rig *r, const struct collective *g, int64_t end_ns)
{
    int32_t n = g->n_members;
    if (g->algorithm == ALGORITHM_RING && g->elements % n == 0)
        NEED(end_ns == 2 * (n - 1) * hop_ns(g->elements / n * 4),
             "ring of %d, %" PRId64 " elements: %" PRId64 " ns", (int)n, g->elements, end_ns);
    if (g->algorithm == ALGORITHM_CHAIN) {
        int64_t hop = hop_ns(g->elements * 4), back = (2 * (n - 1) - r->rank) * hop;
        if (r->rank > 0) back += hop - units_ns_from_s(latency_s);
        NEED(end_ns == back, "chain of %d: %" PRId64 " ns instead of %" PRId64, (int)n, end_ns,
             back);
    }
}

static void collective(enum collective_algorithm algorithm, int64_t elements, int32_t segments,
                       bool per_microbatch, bool emulated)
{
    struct arena *a = arena_new();
    struct error e;
    int32_t n = launch_size();
    struct program p = circle(a, n, emulated, LINK_FIFO);
    struct collective g = make_group(a, n, algorithm, elements);
    struct rig r;
    int64_t end_ns = 0;
    p.n_collectives = 1, p.collectives = &g;
    start(&r, a, &p);
    struct collective_end m = {.group = 0, .member = r.rank, .microbatches = 2};
    m.pieces = ARENA_ARRAY(a, struct piece, (size_t)segments), m.n_pieces = segments;
    m.chain_pieces = ARENA_ARRAY(a, struct piece, (size_t)segments),
    m.n_chain_pieces = per_microbatch && r.rank ? segments : 0;
    m.buffer_ring_count = 2, m.buffer_ring_stride = elements * 4,
    m.buffer_ring = arena_alloc(a, (size_t)elements * 8 + 1, 1);
    for (int32_t k = 0; k < segments; k++) {
        int64_t first = elements * k / segments, count = elements * (k + 1) / segments - first;
        m.pieces[k] = (struct piece){arena_alloc(a, (size_t)count * 4 + 64, 1), count};
        m.chain_pieces[k] = (struct piece){(char *)(intptr_t)(first * 4), count};
        for (int64_t i = 0; i < count; i++)
            ((float *)m.pieces[k].data)[i] = value(r.rank, 0, first + i);
    }
    for (int64_t i = 0; i < 2 * elements; i++)
        ((float *)m.buffer_ring)[i] = value(r.rank, (int32_t)(i / elements), i % elements);
    comm_thread_member(&r.comm_thread, m, arena_alloc(a, 2 * ((size_t)elements * 4 + 64), 1));
    go(&r);
    comm_thread_order(&r.comm_thread, (struct comm_thread_order){.kind = ORDER_REDUCE, .index = 0, .number = 0});
    NEED(comm_thread_wait_group(&r.comm_thread, 0, 0, &end_ns, &e) == OK, "%s", e.text);
    stop(&r);
    for (int32_t k = 0, at = 0; k < segments; at += (int32_t)m.pieces[k++].elements)
        for (int64_t i = 0; i < m.pieces[k].elements; i++) {
            float is = ((float *)m.pieces[k].data)[i], should = expected(&g, per_microbatch, at + i);
            NEED(!memcmp(&is, &should, 4), "element %" PRId64 " is %.9g, not %.9g", at + i, is,
                 should);
        }
    if (emulated) check_time(&r, &g, end_ns);
    arena_free(a);
}

static void collectives(void)
{
    static const int64_t sizes[] = {1, 2, 5, 7, 12, 1200, 100003, 600000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int emulated = 0; emulated < 2; emulated++) {
            collective(ALGORITHM_RING, sizes[i], 1, false, emulated);
            collective(ALGORITHM_RING, sizes[i], 3, false, emulated);
            collective(ALGORITHM_CHAIN, sizes[i], 1, false, emulated);
            collective(ALGORITHM_CHAIN, sizes[i], 3, true, emulated);
        }
}

/* ---- wires ------------------------------------------------------------------------------------
 */

enum { MESSAGES = 40 };
static int64_t message_bytes(int32_t k) { return k % 5 == 0 ? 4 : k % 5 * 50000; }

/* Rank i sends to i+1; message k is ready at k · 20 µs, all are posted: each starts when it is
 * ready and the one before has left, so that the times follow by hand. */
static void wires(int32_t sharing)
{
    struct arena *a = arena_new();
    struct error e;
    int32_t n = launch_size();
    struct program p = circle(a, n, true, sharing);
    struct rig r;
    p.n_channels = n, p.channels = ARENA_ARRAY(a, struct channel, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        p.channels[i] = (struct channel){.from_stage = i,
                                         .to_stage = (i + 1) % n,
                                         .link = i,
                                         .bytes = 4,
                                         .receive_ahead = MESSAGES};
        p.stages[i].microbatches = MESSAGES;
    }
    start(&r, a, &p);
    go(&r);
    int32_t in = (r.rank + n - 1) % n;
    char *out_data = arena_alloc(a, 200000, 1), *in_data = arena_alloc(a, MESSAGES, 200000);
    for (int32_t k = 0; k < 200000; k++) out_data[k] = (char)(k * 31 + r.rank);
    for (int32_t k = 0; k < MESSAGES; k++)
        comm_thread_order(&r.comm_thread, (struct comm_thread_order){.kind = ORDER_POST,
                                                   .index = in,
                                                   .number = k,
                                                   .data = in_data + k * 200000,
                                                   .bytes = message_bytes(k)});
    for (int32_t k = 0; k < MESSAGES; k++)
        comm_thread_order(&r.comm_thread, (struct comm_thread_order){.kind = ORDER_HAND,
                                                   .index = r.rank,
                                                   .number = k,
                                                   .data = out_data,
                                                   .bytes = message_bytes(k),
                                                   .at_ns = k * 20000});
    int64_t left = 0, is;
    for (int32_t k = 0; k < MESSAGES; k++) {
        left = (left > k * 20000 ? left : k * 20000) +
               units_ns_from_s((double)message_bytes(k) / bandwidth_Bps);
        NEED(comm_thread_wait_channel(&r.comm_thread, in, k, &is, &e) == OK, "%s", e.text);
        NEED(is == left + units_ns_from_s(latency_s), "message %d arrives at %" PRId64 ", not %" PRId64,
             (int)k, is, left + units_ns_from_s(latency_s));
        NEED(comm_thread_wait_channel(&r.comm_thread, r.rank, k, &is, &e) == OK, "%s", e.text);
        NEED(is == left, "message %d leaves at %" PRId64 ", not %" PRId64, (int)k, is, left);
        for (int32_t i = 0; i < message_bytes(k); i++)
            NEED(in_data[k * 200000 + i] == (char)(i * 31 + in), "message %d, byte %d", (int)k,
                 (int)i);
    }
    stop(&r);
    arena_free(a);
}

/* Two messages of 32 KiB from rank 0 to rank 1, ready at once, on one link that is shared fairly:
 * each has about half of it, so both end near the end of the two. */
static void fair_share(void)
{
    enum { BYTES = 32768, FLOWS = 2 };
    const double slow_Bps = 1e6 / TEST_SLOWDOWN; /* both are asked for while the first is in flight */
    struct arena *a = arena_new();
    struct error e;
    int32_t n = launch_size();
    struct program p = circle(a, n, true, LINK_FAIR);
    struct rig r;
    p.links[0].bandwidth_Bps = slow_Bps;
    p.n_channels = FLOWS, p.channels = ARENA_ARRAY(a, struct channel, FLOWS);
    for (int32_t i = 0; i < FLOWS; i++)
        p.channels[i] = (struct channel){.to_stage = 1, .bytes = BYTES, .receive_ahead = 1};
    start(&r, a, &p);
    go(&r);
    char *data = arena_alloc(a, FLOWS, BYTES);
    enum comm_thread_order_kind kind = r.rank ? ORDER_POST : ORDER_HAND;
    int64_t whole = units_ns_from_s(FLOWS * BYTES / slow_Bps), left;
    for (int32_t i = 0; i < FLOWS && r.rank < 2; i++)
        comm_thread_order(
            &r.comm_thread,
            (struct comm_thread_order){
                .kind = kind, .index = i, .number = 0, .data = data + i * BYTES, .bytes = BYTES});
    for (int32_t i = 0; i < FLOWS && r.rank < 2; i++) {
        NEED(comm_thread_wait_channel(&r.comm_thread, i, 0, &left, &e) == OK, "%s", e.text);
        if (r.rank == 1) left -= units_ns_from_s(latency_s);
        NEED(left > whole * 3 / 4 && left <= whole + 1000,
             "flow %d left after %" PRId64 " of %" PRId64 " ns", (int)i, left, whole);
    }
    stop(&r);
    arena_free(a);
}

/* ---- programs ---------------------------------------------------------------------------------
 */

/* By how much the wall's last step ended after the devices' own clocks. */
static int64_t lateness_ns(const struct trace *t)
{
    int64_t own = 0, wall = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        int64_t *end = t->spans[i].kind == SPAN_STEP ? &wall : &own;
        if (t->spans[i].end_ns > *end) *end = t->spans[i].end_ns;
    }
    return wall - own;
}

/* which: digit i is 1 where device i is late; "": all are. */
static void make_late(struct program *p, const char *which)
{
    size_t n = strlen(which);
    for (int32_t i = 0; i < p->n_devices; i++)
        if (n ? which[(size_t)i % n] == '1' : true)
            p->devices[i].kind = "cuda", p->devices[i].gpu = "", p->devices[i].memory_bytes = 1;
}

static void run_file(struct arena *a, const char *path, const struct run_options *o,
                     const char *late)
{
    struct program p;
    struct run_result result;
    struct error e;
    enum status status = program_read(a, path, &p, &e);
    if (status == OK && late) make_late(&p, late);
    if (status == OK) status = worker_run(a, &p, o, &result, &e);
    if (status != OK) {
        if (launch_rank() == 0) fprintf(stderr, "%s\n", e.text);
        exit((int)status);
    }
    if (launch_rank() != 0) return;
    printf("%s %" PRId64 " ns from step %" PRId64 "%s, wall behind clock %" PRId64 " ns:", path,
           result.iteration_ns, result.first_step, result.real_time ? ", real-time" : "",
           result.trace ? lateness_ns(result.trace) : 0);
    for (int64_t s = 0; s < result.steps; s++) printf(" %.17g", result.losses[s]);
    printf("\n");
}

static void run_all(int argc, char **argv)
{
    struct run_options o = {
        .steps = strtol(argv[2], NULL, 10), .keep_trace = true, .backends = deferred_backends};
    const char *late = NULL, *data = NULL;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--data") && i + 1 < argc)
            data = argv[++i];
        else if (!strcmp(argv[i], "--save") && i + 1 < argc)
            o.save = argv[++i];
        else if (!strcmp(argv[i], "--resume") && i + 1 < argc)
            o.resume = argv[++i];
        else if (!strcmp(argv[i], "--every") && i + 1 < argc)
            o.save_every = strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--late") && i + 1 < argc) {
            late = "";
            if (getenv("LATE_FAILS_AT"))
                deferred_options.fail_at = strtol(getenv("LATE_FAILS_AT"), NULL, 10);
            deferred_options.mode =
                strcmp(argv[++i], "lazy") != 0 ? DEFERRED_THREADS : DEFERRED_LAZY;
        } else if (!strcmp(argv[i], "--cuda")) {
            late = "";
            o.backends = NULL;
        } else if (!strcmp(argv[i], "--on") && i + 1 < argc)
            late = argv[++i];
        else if (!strcmp(argv[i], "--no-trace"))
            o.keep_trace = false;
        else {
            struct arena *a = arena_new();
            o.data = data_source_of(a, data, DATA_AUTO);
            run_file(a, argv[i], &o, late);
            arena_free(a);
        }
    }
}

/* ---- failures ---- */

static void end_by(const char *how)
{
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "segv")) raise(SIGSEGV);
    if (!strcmp(how, "exit")) _exit(3);
    if (!strcmp(how, "stop")) raise(SIGSTOP);
    if (!strcmp(how, "sleep")) sleep(3600);
}

/* Rank 0 waits for a message that never comes. */
static void fail(const char *how, int32_t rank)
{
    struct arena *a = arena_new();
    struct error e;
    int32_t n = launch_size();
    struct program p = circle(a, n, false, LINK_FIFO);
    struct rig r;
    int64_t is;
    p.n_channels = n, p.channels = ARENA_ARRAY(a, struct channel, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        p.channels[i] = (struct channel){
            .from_stage = i, .to_stage = (i + 1) % n, .link = i, .bytes = 4, .receive_ahead = 1};
    start(&r, a, &p);
    go(&r);
    if (r.rank == rank) end_by(how);
    int32_t in = (r.rank + n - 1) % n;
    comm_thread_order(&r.comm_thread, (struct comm_thread_order){.kind = ORDER_POST,
                                               .index = in,
                                               .number = 0,
                                               .data = arena_alloc(a, 4, 1),
                                               .bytes = 4});
    enum status status = comm_thread_wait_channel(&r.comm_thread, in, 0, &is, &e);
    fprintf(stderr, "rank %d: %s\n", (int)r.rank, e.text);
    comm_thread_abort(&r.comm_thread, (int)status);
}

static int launch(int32_t n, char **argv)
{
    struct error e;
    enum status status =
        launch_ranks(n, NULL, argv + 2, false, &e); /* argv[2] stands where a program's name would */
    printf("%d %s\n", (int)status, status == OK ? "" : e.text);
    return (int)status;
}

static int be_rank(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "fail")) fail(argv[2], (int32_t)strtol(argv[3], NULL, 10));
    if (argc > 1 && !strcmp(argv[1], "collectives")) {
        collectives();
    } else if (argc > 1 && !strcmp(argv[1], "wires")) {
        wires(LINK_FIFO);
        wires(LINK_FAIR);
        if (launch_size() > 1) fair_share();
    } else if (argc > 3 && !strcmp(argv[1], "run")) {
        run_all(argc, argv);
    } else {
        fprintf(stderr, "usage: see the head of this file\n");
        return 2;
    }
    if (launch_rank() == 0) puts("ok");
    return 0;
}

struct arguments {
    int argc;
    char **argv;
};

/* Its arguments begin behind "local N", which stands for the program's name. */
static int be_local_rank(void *owner, int32_t rank)
{
    const struct arguments *x = owner;
    (void)rank;
    return be_rank(x->argc - 2, x->argv + 2);
}

int main(int argc, char **argv)
{
    int32_t n = argc > 3 ? (int32_t)strtol(argv[2], NULL, 10) : 0;
    struct arguments x = {argc, argv};
    struct error err;
    if (n && !strcmp(argv[1], "launch")) return launch(n, argv);
    if (!n || strcmp(argv[1], "local") != 0) return be_rank(argc, argv);
    enum status status = launch_local(n, be_local_rank, &x, 120, &err);
    if (status != OK) fprintf(stderr, "%s\n", err.text);
    return status;
}
