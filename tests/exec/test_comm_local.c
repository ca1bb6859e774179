/* Forked ranks that talk without MPI. What cannot be checked by a test's own process is checked by the ranks, which say so by
 * how they end. tests/cli/ranks.sh runs what MPI's ranks run, on forked ones. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "exec/clock.h"
#include "exec/comm/comm.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"

#include "tests/support/suites.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { LIMIT_S = 100 * TEST_SLOWDOWN, MESSAGES = 60, MOST = 400000 };

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "rank %d, line %d: ", (int)launch_rank(), __LINE__);                       \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        fflush(stderr);                                                                            \
        _exit(1);                                                                                  \
    } while (0)

static struct comm *join(struct arena *a)
{
    struct comm *c;
    struct error err;
    NEED(comm_open(a, launch_size(), &c, &err) == OK, "%s", err.text);
    NEED(comm_rank(c) == launch_rank() && comm_size(c) == launch_size(), "who am I?");
    NEED(comm_one_host(c) && comm_has_bells(c), "ranks of one host have bells");
    return c;
}

static void run(local_rank *body, int32_t n)
{
    struct error err = {.code = OK};
    ck_assert_msg(launch_local(n, body, NULL, LIMIT_S, &err) == OK, "%s", err.text);
}

/* ---- messages --------------------------------------------------------------------------------- */

/* What rank `from` sends to `to`, known to both: message k has a tag, and of one tag an order. */
static int64_t size_of(int32_t from, int32_t to, int64_t k)
{
    uint64_t kind = rng_below(1, (uint64_t)(from * 64 + to), (uint64_t)k, 8);
    return (int64_t)rng_below(2, (uint64_t)(from * 64 + to), (uint64_t)k,
                              kind == 0  ? MOST
                              : kind < 3 ? 1
                                         : 3000);
}
static int32_t tag_of(int32_t from, int32_t to, int64_t k)
{
    return (int32_t)rng_below(3, (uint64_t)(from * 64 + to), (uint64_t)k, 4);
}
static unsigned char byte_of(int32_t from, int64_t k, int64_t i)
{
    return (unsigned char)(from * 31 + k * 7 + i + i / 255);
}

/* Receives of one tag are posted in order, those of different tags in turns that nobody sends in. */
static int64_t post_all(struct arena *a, struct comm *c, int32_t from, unsigned char **to)
{
    int64_t n = 0;
    for (int32_t tag = 3; tag >= 0; tag--)
        for (int64_t k = 0; k < MESSAGES; k++) {
            if (tag_of(from, comm_rank(c), k) != tag) continue;
            int64_t bytes = size_of(from, comm_rank(c), k);
            to[k] = ARENA_ARRAY(a, unsigned char, (size_t)bytes + 1);
            comm_receive(c, to[k], bytes, from, tag, from, k);
            n++;
        }
    return n;
}

static int64_t send_all(struct arena *a, struct comm *c, int32_t to)
{
    for (int64_t k = 0; k < MESSAGES; k++) {
        int64_t bytes = size_of(comm_rank(c), to, k);
        unsigned char *p = ARENA_ARRAY(a, unsigned char, (size_t)bytes + 1);
        for (int64_t i = 0; i < bytes; i++) p[i] = byte_of(comm_rank(c), k, i);
        comm_send(c, p, bytes, to, tag_of(comm_rank(c), to, k), to, k);
    }
    return MESSAGES;
}

static void wait_for(struct comm *c, int64_t n)
{
    struct comm_ended ended[16];
    struct error err;
    for (int64_t seen = 0; seen < n;) {
        int32_t now = 0;
        uint32_t rung = comm_rung(c);
        NEED(comm_poll(c, ended, 16, &now, &err) == OK, "%s", err.text);
        if (!now) comm_sleep(c, rung, clock_wall_ns() + 1000000);
        seen += now;
    }
    NEED(!comm_sending(c), "all is out");
}

static int exchange(void *owner, int32_t rank)
{
    struct arena *a = arena_new();
    struct comm *c = join(a);
    int32_t n = comm_size(c);
    unsigned char *to[4][MESSAGES];
    (void)owner;
    for (int round = 0; round < 2; round++) { /* posted before anything is sent, and afterwards */
        int64_t wanted = 0;
        for (int32_t r = 0; round == 0 && r < n; r++)
            if (r != rank) wanted += post_all(a, c, r, to[r]);
        for (int32_t r = 0; r < n; r++)
            if (r != rank) wanted += send_all(a, c, r);
        if (round == 1) comm_barrier(c);
        for (int32_t r = 0; round == 1 && r < n; r++)
            if (r != rank) wanted += post_all(a, c, r, to[r]);
        wait_for(c, wanted);
        for (int32_t r = 0; r < n; r++)
            for (int64_t k = 0; r != rank && k < MESSAGES; k++)
                for (int64_t i = 0; i < size_of(r, rank, k); i++)
                    NEED(to[r][k][i] == byte_of(r, k, i),
                         "round %d, message %" PRId64 " of rank %d, byte %" PRId64, round, k,
                         (int)r, i);
        comm_barrier(c);
    }
    comm_close(c);
    arena_free(a);
    return 0;
}

START_TEST(messages_of_any_size_and_tag_arrive_whole_and_in_order) { run(exchange, 3); }
END_TEST

/* ---- all together ----------------------------------------------------------------------------- */

static void check_gather(struct arena *a, struct comm *c)
{
    int64_t total, mine = 100000 * (comm_rank(c) % 3);
    unsigned char *p = ARENA_ARRAY(a, unsigned char, (size_t)mine + 1);
    memset(p, comm_rank(c), (size_t)mine);
    const unsigned char *all = comm_gather(c, a, p, mine, &total), *at = all;
    NEED((all != NULL) == (comm_rank(c) == 0), "only rank 0 gets it");
    for (int32_t r = 0; all && r < comm_size(c); r++)
        for (int64_t i = 0; i < 100000 * (r % 3); i++)
            NEED(*at++ == (unsigned char)r, "byte %" PRId64 " of rank %d", i, (int)r);
    NEED(!all || at - all == total, "%" PRId64 " bytes", total);
}

static void check_agree(struct comm *c)
{
    struct error err = {.code = OK};
    int32_t n = comm_size(c), rank = comm_rank(c);
    NEED(comm_agree(c, OK, &err) == OK, "all are content");
    enum status mine = OK;
    if (rank >= n - 2)
        mine = error_set(&err, rank == n - 2 ? ERR_INPUT : ERR_RANK, "rank %d", (int)rank);
    char text[32];
    snprintf(text, sizeof text, "rank %d", (int)n - 2);
    NEED(comm_agree(c, mine, &err) == ERR_INPUT && !strcmp(err.text, text), "'%s'", err.text);
}

static int together(void *owner, int32_t rank)
{
    (void)owner;
    for (int run_number = 0; run_number < 2; run_number++) { /* runs may follow one another */
        struct arena *a = arena_new();
        struct comm *c = join(a);
        enum { N = 100000 };
        double *values = ARENA_ARRAY(a, double, N);
        void *shared;
        struct error err;
        for (int32_t i = rank; i < N; i += comm_size(c)) values[i] = i + 1;
        comm_sum(c, values, N);
        for (int32_t i = 0; rank == 0 && i < N; i++)
            NEED(values[i] == i + 1, "%d: %g", (int)i, values[i]);
        NEED(comm_max(c, -5 * (rank + 1)) == -5, "the largest");
        for (int32_t i = 0; i < N; i++) values[i] = rank ? 0 : 3 * i;
        comm_broadcast(c, values, N * (int64_t)sizeof *values);
        for (int32_t i = 0; i < N; i++) NEED(values[i] == 3 * i, "%d: %g", (int)i, values[i]);
        check_gather(a, c);
        check_agree(c);
        NEED(comm_clock_offset(c) == 0, "one host, one clock");
        NEED(comm_share(c, 64, &shared, &err) == OK, "%s", err.text);
        if (rank == 1) ((int *)shared)[3] = 17;
        comm_barrier(c);
        NEED(((int *)shared)[3] == 17, "not shared");
        comm_close(c);
        arena_free(a);
    }
    return 0;
}

START_TEST(what_ranks_do_together_is_what_mpi_would) { run(together, 2 + _i); }
END_TEST

/* ---- ends ------------------------------------------------------------------------------------- */

/* Rank 1 dies; the others are told by what they wait for, or lose the other that was told. */
static int lose_one(void *owner, int32_t rank)
{
    struct arena *a = arena_new();
    struct comm *c = join(a);
    struct comm_ended ended;
    struct error err = {.code = OK};
    char byte;
    int32_t n = 0;
    (void)owner;
    comm_barrier(c);
    if (rank == 1) raise(SIGKILL);
    comm_receive(c, &byte, 1, 1, 0, 0, 0);
    while (comm_poll(c, &ended, 1, &n, &err) == OK)
        comm_sleep(c, comm_rung(c), clock_wall_ns() + 1000000);
    NEED(err.code == ERR_RANK && strstr(err.text, "has ended"), "'%s'", err.text);
    comm_barrier(c); /* cannot be; ends the process with exit code 7 */
    _exit(1);
}

START_TEST(a_rank_that_is_killed_is_named_and_takes_the_others_with_it)
{
    struct error err;
    ck_assert_int_eq(launch_local(3, lose_one, NULL, LIMIT_S, &err), ERR_RANK);
    ck_assert_msg(strstr(err.text, "rank 1 was killed by signal 9") != NULL, "%s", err.text);
}
END_TEST

/* Rank 2 of four ends between two calls of all ranks, rank 3 in the middle of a message to rank 0. */
static int go_on(void *owner, int32_t rank)
{
    static char large[MOST];
    struct arena *a = arena_new();
    struct comm *c = join(a);
    struct comm_ended ended[4];
    struct error err;
    int32_t n = 0;
    int64_t value = 10 + rank, total;
    double sum[4] = {0};
    (void)owner;
    comm_expendable(c, 2);
    comm_barrier(c);
    if (rank == 2) raise(SIGKILL);
    if (rank == 3) {
        comm_send(c, large, MOST, 0, 1, 0, 0);
        NEED(comm_poll(c, ended, 4, &n, &err) == OK, "%s", err.text);
        _exit(5);
    }
    NEED(comm_max(c, value) == 11, "the largest of ranks 0 and 1");
    NEED(comm_max(c, -value) == -10, "also of negative values");
    sum[rank] = 1;
    comm_sum(c, sum, 4);
    NEED(rank || (sum[0] == 1 && sum[1] == 1 && sum[2] == 0 && sum[3] == 0), "a sum");
    int64_t *all = comm_gather(c, a, &value, sizeof value, &total), *each = comm_gather_each(c, a, &value, sizeof value);
    NEED(rank || (total == 16 && all[1] == 11), "values of two ranks, %" PRId64 " bytes", total);
    NEED(rank || (each[0] == 10 && each[1] == 11 && each[2] == 0 && each[3] == 0), "a value of each");
    NEED(!comm_gone(c, 0) && !comm_gone(c, 1) && (rank || (comm_gone(c, 2) && comm_gone(c, 3))), "who is gone");
    if (!rank) { /* messages to them count as sent */
        for (int32_t to = 2; to < 4; to++) comm_send(c, large, MOST, to, 1, to, 0);
        for (int32_t sent = 0; sent < 2; sent += n, n = 0) NEED(comm_poll(c, ended, 4, &n, &err) == OK, "%s", err.text);
    }
    comm_barrier(c);
    comm_close(c);
    arena_free(a);
    return 0;
}

START_TEST(expendable_ranks_may_end_before_the_others)
{
    struct error err;
    struct launch_faults f;
    ck_assert_int_eq(launch_local_run(4, 2, go_on, NULL, NULL, &f, &err), ERR_RANK);
    ck_assert(f.n == 2 && f.rank[0] + f.rank[1] == 2 + 3);
    ck_assert_msg(strstr(err.text, ", and 1 more; the run went on without it") != NULL, "%s", err.text);
    ck_assert_int_eq(launch_local_run(3, 2, lose_one, NULL, NULL, &f, &err), ERR_RANK); /* rank 1 is none */
    ck_assert(f.n == 1 && f.rank[0] == 1);
    ck_assert_msg(strstr(err.text, "rank 1 was killed by signal 9") != NULL, "%s", err.text);
}
END_TEST

static int end_with(void *owner, int32_t rank)
{
    const int *code = owner;
    return rank == 2 ? *code : 0;
}

START_TEST(how_a_rank_ends_is_how_the_launch_ends)
{
    static const int codes[] = {0, ERR_INPUT, ERR_RESOURCE, ERR_RANK, 1, 77};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct error err = {.code = OK};
        int code = codes[i], known = code >= ERR_USAGE && code <= ERR_RANK;
        enum status status = launch_local(3, end_with, &code, LIMIT_S, &err);
        ck_assert_int_eq(status, code == 0 ? OK : known ? (enum status)code : ERR_RANK);
        if (code)
            ck_assert_msg(strstr(err.text, "rank 2 ended with exit code") != NULL, "%s", err.text);
    }
}
END_TEST

/* The first one to end is killed; another one then ends as the owner says. */
static int end_after(void *owner, int32_t rank)
{
    const int *code = owner;
    struct comm *c = join(arena_new());
    if (rank == 0) raise(SIGKILL);
    while (comm_ended(c) < 0) comm_sleep(c, comm_rung(c), clock_wall_ns() + 1000000);
    _exit(*code);
}

START_TEST(one_that_fails_otherwise_than_for_want_of_a_killed_one_is_told)
{
    static const int codes[] = {0, ERR_RANK, 1};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct error err;
        int code = codes[i];
        ck_assert_int_eq(launch_local(2, end_after, &code, LIMIT_S, &err), ERR_RANK);
        /* which of both is seen to end first is chance */
        ck_assert_msg((strstr(err.text, "failed with another error") != NULL) == (code == 1), "%s",
                      err.text);
        if (code != 1)
            ck_assert_msg(strstr(err.text, "rank 0 was killed by signal 9") != NULL, "%s",
                          err.text);
    }
}
END_TEST

static int never_end(void *owner, int32_t rank)
{
    (void)owner;
    while (rank) pause();
    return 0;
}

START_TEST(ranks_that_do_not_end_are_ended)
{
    struct error err;
    ck_assert_int_eq(launch_local(3, never_end, NULL, 0.05, &err), ERR_RANK);
    ck_assert_msg(strstr(err.text, "2 of 3 ranks had not ended") != NULL, "%s", err.text);
}
END_TEST

static int request_too_many(void *owner, int32_t rank)
{
    struct arena *a = arena_new();
    struct comm *c;
    struct error err;
    (void)owner, (void)rank;
    enum status status = comm_open(a, launch_size() + 1, &c, &err);
    NEED(status == ERR_INPUT && strstr(err.text, "needs 3 ranks, 2 were started"), "'%s'",
         err.text);
    arena_free(a);
    return 0;
}

START_TEST(a_program_of_other_ranks_is_refused) { run(request_too_many, 2); }
END_TEST

Suite *comm_local_suite(void)
{
    Suite *s = suite_create("comm_local");
    TCase *t = tcase_create("comm_local");
    tcase_add_test(t, messages_of_any_size_and_tag_arrive_whole_and_in_order);
    tcase_add_loop_test(t, what_ranks_do_together_is_what_mpi_would, 0, 3);
    tcase_add_test(t, a_rank_that_is_killed_is_named_and_takes_the_others_with_it);
    tcase_add_test(t, expendable_ranks_may_end_before_the_others);
    tcase_add_test(t, how_a_rank_ends_is_how_the_launch_ends);
    tcase_add_test(t, one_that_fails_otherwise_than_for_want_of_a_killed_one_is_told);
    tcase_add_test(t, ranks_that_do_not_end_are_ended);
    tcase_add_test(t, a_program_of_other_ranks_is_refused);
    suite_add_tcase(s, t);
    return s;
}
