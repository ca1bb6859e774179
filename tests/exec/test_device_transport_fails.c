/* Devices' messages where something fails: a peer that ends, one that is silent, every call of the library in turn. */
#include "tests/standin/standin.h"
#include "tests/support/device_ranks.h"

#include <signal.h>
#include <sys/mman.h>

int __lsan_do_recoverable_leak_check(void) __attribute__((weak)); /* where leaks are watched */

enum { ELEMENTS = 50, RANKS = 2 };

enum how {
    DIES_OWING_A_MESSAGE,
    DIES_OWING_A_REDUCE,
    DIES_OWING_BOTH,
    OWES_A_MESSAGE,
    OWES_A_REDUCE,
    OWES_BOTH,
    HOW_COUNT
};

struct pair { /* two stages, a message from the second to the first, a sum of both */
    struct arena *a;
    struct program p;
    enum how how;
    int fail_at;
    bool of_cuda;       /* the call that fails */
    void (*closes)(struct device_rank *r); /* what rank 0 does when it has given up; NULL: nothing */
    struct error *said; /* (RANKS) shared with the ranks */
    _Atomic int *left;  /* (1) ranks that left something behind */
    _Atomic int *closed; /* (1) ranks that closed what they had given up */
};

static void make(struct pair *x, struct arena *a)
{
    struct program *p = &x->p;
    *x = (struct pair){.a = a};
    size_t room = sizeof *x->said * RANKS + sizeof *x->left + sizeof *x->closed;
    x->said = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(x->said != MAP_FAILED);
    x->left = (_Atomic int *)(x->said + RANKS);
    x->closed = x->left + 1;
    p->n_devices = p->n_stages = RANKS;
    p->n_channels = p->n_collectives = 1;
    p->devices = ARENA_ARRAY(a, struct program_device, RANKS);
    p->stages = ARENA_ARRAY(a, struct program_stage, RANKS);
    p->channels = ARENA_ARRAY(a, struct channel, 1);
    p->collectives = ARENA_ARRAY(a, struct collective, 1);
    p->collectives[0] = (struct collective){
        .name = "gradients", .n_members = RANKS, .dtype = DTYPE_fp32, .elements = ELEMENTS};
    p->collectives[0].members = ARENA_ARRAY(a, struct collective_member, RANKS);
    for (int32_t i = 0; i < RANKS; i++) {
        struct program_stage *s = &p->stages[i];
        p->devices[i] = (struct program_device){
            .name = arena_printf(a, "gpu.%d", (int)i), .host = "h", .kind = "cuda", .index = i};
        *s = (struct program_stage){.stage = i, .device = i, .microbatches = 1, .n_slots = 2};
        s->slots = ARENA_ARRAY(a, struct slot, 2);
        s->slots[0] = (struct slot){.name = "g",
                                    .class = SLOT_GRADIENT,
                                    .dtype = DTYPE_fp32,
                                    .shape = {1, {ELEMENTS}},
                                    .buffer_ring = -1,
                                    .bytes = ELEMENTS * 4,
                                    .parameter = -1,
                                    .input = -1};
        s->slots[1] = s->slots[0]; /* the message's */
        s->slots[1].offset_bytes = 256;
        s->class_bytes[SLOT_GRADIENT] = 512;
        s->buffer_bytes = 512;
        int32_t *segments = ARENA_ARRAY(a, int32_t, 1);
        p->collectives[0].members[i] =
            (struct collective_member){.stage = i, .n_segments = 1, .segments = segments, .chain_ring = -1};
    }
    p->channels[0] = (struct channel){.from_stage = 1,
                                      .to_stage = 0,
                                      .from_slot = 1,
                                      .to_slot = 1,
                                      .bytes = ELEMENTS * 4,
                                      .receive_ahead = 1};
}

/* ---- a peer that ends, or is silent ----------------------------------------------------------- */

static enum status expect_from_peer(struct device_rank *r, enum how how)
{
    bool message = how != DIES_OWING_A_REDUCE && how != OWES_A_REDUCE,
         sum = how != DIES_OWING_A_MESSAGE && how != OWES_A_MESSAGE;
    if (message) TRY(device_transport_post(r->t, 0, 0, &r->err));
    if (sum) TRY(device_transport_reduce(r->t, 0, 0, 0, 0, -1, 'U', &r->err));
    if (message) TRY(device_transport_receive(r->t, 0, 0, &r->err));
    if (sum) TRY(device_transport_await(r->t, 0, 0, &r->err));
    return device_rank_wait(r);
}

/* Nothing of the device is waited for or taken back while the library is in an abort of what still runs there. */
static void close_abandoned(struct device_rank *r)
{
    NEED(r->backend.unfinished(&r->backend), "who ends the process would wait");
    NEED(r->backend.finish(&r->backend, &r->err) == ERR_RESOURCE, "it waited");
    r->backend.close(&r->backend);
    NEED(standin_left(NULL, 0) > 0, "it waited");
}

/* All is taken back, ours at once and the library's by itself. */
static void close_at_rest(struct device_rank *r)
{
    NEED(r->backend.unfinished(&r->backend), "who ends the process would wait");
    NEED(r->backend.finish(&r->backend, &r->err) == OK, "%s", r->err.text);
    device_transport_close(r->t);
    lane_memory_close(&r->memory[r->rank]);
    r->backend.close(&r->backend);
    while (standin_left(NULL, 0)) clock_sleep_until(clock_wall_ns() + 1000000);
}

/* Rank 1 owes; rank 0 finds out. The silent one looks on until it sees that rank 0 has given up. */
static int owe(void *owner, int32_t rank)
{
    struct pair *x = owner;
    struct arena *a = arena_new();
    struct device_rank r;
    bool silent = x->how >= OWES_A_MESSAGE;
    NEED(device_rank_open(&r, a, &x->p, -1) == OK, "%s", r.err.text);
    struct device_transport_options o = device_rank_options(&r);
    if (silent && rank == 0) o.limit_ns = 300000000;
    NEED(device_transport_open(a, &o, &r.t, &r.err) == OK, "%s", r.err.text);
    if (rank == 1 && !silent) raise(SIGKILL);
    enum status status = OK;
    if (rank == 0) {
        status = expect_from_peer(&r, x->how);
        x->said[0] = r.err;
        NEED(status == ERR_RANK, "status %d", (int)status);
        NEED(device_transport_check(r.t, &r.err) == ERR_RANK, "it goes on");
        NEED(device_transport_post(r.t, 0, 0, &r.err) == ERR_RANK, "it goes on");
    }
    if (silent && rank == 1) x->said[1].code = comm_max(r.comm, 0) == 0 ? OK : ERR_INTERNAL;
    if (silent && rank == 0) (void)comm_max(r.comm, 0);
    if (silent) device_rank_close(&r);
    if (x->closes) x->closes(&r), ++*x->closed;
    arena_free(a);
    return status;
}

/* In the second round by a library whose groups cannot give up communicators. */
START_TEST(a_peer_that_ends_or_is_silent_is_named)
{
    if (_i >= HOW_COUNT)
        setenv("STANDIN_NCCL_VERSION", "21805", 1);
    else
        unsetenv("STANDIN_NCCL_VERSION");
    static const char *const words[HOW_COUNT][2] = {
        {"gpu.1 to gpu.0", "a peer is gone"},
        {"gpu.0, gpu.1", "a peer is gone"},
        {"gpu.1", "a peer is gone"},
        {"message 0 from gpu.1", "gpu.1 is gone"},
        {"collective gradients of gpu.0, gpu.1", "a member is gone"},
        {"collective gradients of gpu.0, gpu.1", "a member is gone"}};
    struct arena *a = arena_new();
    struct error err = {.code = OK};
    struct pair x;
    make(&x, a);
    x.how = (enum how)(_i % HOW_COUNT);
    device_ranks_environment(RANKS);
    enum status status = launch_local(RANKS, owe, &x, DEVICE_RANKS_LIMIT_S, &err);
    ck_assert_int_eq(status, ERR_RANK);
    bool dies = x.how < OWES_A_MESSAGE;
    ck_assert_msg(strstr(err.text, dies ? "rank 1 was killed by signal 9"
                                        : "rank 0 ended with exit code 7") != NULL,
                  "%s", err.text);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(x.said[0].text, words[x.how][i]) != NULL, "'%s' has no '%s'",
                      x.said[0].text, words[x.how][i]);
    arena_free(a);
}
END_TEST

START_TEST(a_peer_on_another_host_is_named_with_it)
{
    static const char *const words[HOW_COUNT][2] = {
        [OWES_A_MESSAGE] = {"gpu.0 on h: message 0 from gpu.1", "gpu.1 on k is gone"},
        [OWES_A_REDUCE] = {"gpu.0 on h: collective gradients of gpu.0 on h, gpu.1 on k", "a member is gone"}};
    struct arena *a = arena_new();
    struct error err = {.code = OK};
    struct pair x;
    make(&x, a);
    x.p.devices[1].host = "k";
    x.how = _i ? OWES_A_REDUCE : OWES_A_MESSAGE;
    device_ranks_environment(RANKS);
    ck_assert_int_eq(launch_local(RANKS, owe, &x, DEVICE_RANKS_LIMIT_S, &err), ERR_RANK);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(x.said[0].text, words[x.how][i]) != NULL, "'%s' has no '%s'",
                      x.said[0].text, words[x.how][i]);
    arena_free(a);
}
END_TEST

/* Between GPUs of one machine the library may neither see that a peer has ended nor come back from an abort then. */
START_TEST(a_peer_that_ends_unheard_of_is_named_and_nobody_waits_for_the_library)
{
    struct arena *a = arena_new();
    struct error err = {.code = OK};
    struct pair x;
    make(&x, a);
    x.how = DIES_OWING_BOTH;
    x.closes = close_abandoned;
    device_ranks_environment(RANKS);
    setenv("STANDIN_NCCL_DEAF", "1", 1);
    setenv("STANDIN_NCCL_STUCK", "1", 1);
    setenv("STANDIN_NCCL_LINGER", "1", 1);
    ck_assert_int_eq(launch_local(RANKS, owe, &x, DEVICE_RANKS_LIMIT_S, &err), ERR_RANK);
    ck_assert_str_eq(err.text, "rank 1 was killed by signal 9 (Killed)");
    ck_assert_int_eq(*x.closed, 1);
    ck_assert_msg(strstr(x.said[0].text, "gpu.0: a peer is gone; rank 1") != NULL, "%s", x.said[0].text);
    arena_free(a);
}
END_TEST

/* A group of aborts may say that it is in progress, and then there is nobody to ask: what runs on the device ends when the library comes
 * to it, or, in the second round, never does. In either the stand-in ends whoever uses a communicator once more. */
START_TEST(a_library_that_gives_up_behind_our_back_is_waited_for_by_the_device)
{
    struct arena *a = arena_new();
    struct error err = {.code = OK};
    struct pair x;
    make(&x, a);
    x.how = DIES_OWING_BOTH;
    x.closes = _i ? close_abandoned : close_at_rest;
    device_ranks_environment(RANKS);
    setenv("STANDIN_NCCL_ASIDE", _i ? "never" : "1", 1);
    setenv("STANDIN_NCCL_LINGER", "1", 1);
    ck_assert_int_eq(launch_local(RANKS, owe, &x, DEVICE_RANKS_LIMIT_S, &err), ERR_RANK);
    ck_assert_str_eq(err.text, "rank 1 was killed by signal 9 (Killed)");
    ck_assert_int_eq(*x.closed, 1);
    ck_assert_msg(strstr(x.said[0].text, "a peer is gone") != NULL, "%s", x.said[0].text);
    arena_free(a);
}
END_TEST

/* ---- every call, once ------------------------------------------------------------------------- */

static enum status everything(struct device_rank *r)
{
    TRY(device_rank_join(r));
    if (r->rank == 0) TRY(device_transport_post(r->t, 0, 0, &r->err));
    if (r->rank == 1) TRY(device_transport_send(r->t, 0, 0, &r->err));
    TRY(device_transport_reduce(r->t, 0, 0, 0, 0, -1, 'U', &r->err));
    if (r->rank == 0) TRY(device_transport_receive(r->t, 0, 0, &r->err));
    TRY(device_transport_await(r->t, 0, 0, &r->err));
    return device_rank_wait(r);
}

static int have_one_fail(void *owner, int32_t rank)
{
    struct pair *x = owner;
    struct arena *a = arena_new();
    struct device_rank r;
    char left[200], text[16];
    snprintf(text, sizeof text, "%d", x->fail_at);
    if (rank == 1 && !x->of_cuda) setenv("STANDIN_NCCL_FAIL_AT", text, 1);
    enum status status = device_rank_open(&r, a, &x->p, -1);
    NEED(status == OK, "%s", r.err.text);
    if (rank == 1 && x->of_cuda) standin_fail_at(x->fail_at, cudaErrorMemoryAllocation);
    status = everything(&r);
    if (status != OK) {
        x->said[rank] = r.err;
        NEED(r.err.code == status && r.err.text[0], "no reason");
        device_transport_give_up(r.t);
    }
    comm_barrier(
        r.comm); /* as a run whose ranks report first: who parts does not disturb who works */
    device_rank_close(&r);
    arena_free(a);
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) ++*x->left;
    if (standin_left(left, sizeof left)) {
        fprintf(stderr, "call %d: left %s\n", x->fail_at, left);
        ++*x->left;
    }
    return status;
}

/* Until a run in which nothing has failed: there are no more calls. */
static void fail_in_turn(bool of_cuda, int stride)
{
    struct arena *a = arena_new();
    struct error err;
    struct pair x;
    make(&x, a);
    x.of_cuda = of_cuda;
    device_ranks_environment(RANKS);
    enum status status = ERR_RANK;
    for (x.fail_at = 1; status != OK; x.fail_at += stride) {
        ck_assert_int_lt(x.fail_at, 2000);
        x.said[1].text[0] = 0;
        status = launch_local(RANKS, have_one_fail, &x, DEVICE_RANKS_LIMIT_S, &err);
        ck_assert_msg(status == OK || status == ERR_RANK || status == ERR_RESOURCE, "call %d: %s",
                      x.fail_at, err.text);
        ck_assert_int_eq(*x.left, 0);
        if (status != OK)
            ck_assert_msg(x.said[1].text[0], "call %d: rank 1 had no reason", x.fail_at);
    }
    ck_assert_int_gt(x.fail_at, 10);
    arena_free(a);
}

START_TEST(each_call_of_the_library_may_fail_and_both_ranks_end) { fail_in_turn(false, 1); }
END_TEST

START_TEST(calls_of_the_device_may_fail_and_both_ranks_end)
{
    fail_in_turn(true, suites_long() ? 1 : 9);
}
END_TEST

Suite *device_transport_fails_suite(void)
{
    Suite *s = suite_create("device_transport_fails");
    TCase *t = tcase_create("device_transport_fails");
    tcase_add_loop_test(t, a_peer_that_ends_or_is_silent_is_named, 0, 2 * HOW_COUNT);
    tcase_add_loop_test(t, a_peer_on_another_host_is_named_with_it, 0, 2);
    tcase_add_test(t, a_peer_that_ends_unheard_of_is_named_and_nobody_waits_for_the_library);
    tcase_add_loop_test(t, a_library_that_gives_up_behind_our_back_is_waited_for_by_the_device, 0, 2);
    tcase_add_test(t, each_call_of_the_library_may_fail_and_both_ranks_end);
    tcase_add_test(t, calls_of_the_device_may_fail_and_both_ranks_end);
    suite_add_tcase(s, t);
    return s;
}
