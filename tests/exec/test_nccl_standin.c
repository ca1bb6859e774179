/* NCCL's twin keeps what a caller of the real library can get wrong. Both ranks are this process's, on two stand-in GPUs. */
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "tests/standin/dies.h"
#include "tests/support/device_ranks.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* clang-format off */
#define CALLS(X)                                                                                   \
    X(ncclGetUniqueId) X(ncclCommInitRankConfig) X(ncclCommFinalize) X(ncclCommDestroy)            \
    X(ncclCommAbort) X(ncclCommGetAsyncError) X(ncclAllReduce) X(ncclSend) X(ncclRecv)             \
    X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy) X(ncclGroupStart) X(ncclGroupEnd)
/* clang-format on */
static struct {
#define X(name) __typeof__(name) *name;
    CALLS(X)
#undef X
} lib;

enum { N = 2, ELEMENTS = 100 };

static ncclComm_t comm[N];
static cudaStream_t stream[N];
static float *memory[N]; /* 2 · ELEMENTS, the GPU's */

static void find_twin(void)
{
    device_ranks_environment(N);
    void *handle = dlopen(getenv("MUSHER_NCCL"), RTLD_NOW), *at;
    ck_assert_msg(handle != NULL, "%s", dlerror());
#define X(name)                                                                                    \
    at = dlsym(handle, #name);                                                                     \
    ck_assert_ptr_nonnull(at);                                                                     \
    memcpy(&lib.name, &at, sizeof at);
    CALLS(X)
#undef X
}

static void tp(void)
{
    for (int i = 0; i < N; i++) {
        float host[2 * ELEMENTS];
        void *p;
        for (int k = 0; k < 2 * ELEMENTS; k++) host[k] = (float)(i + 1);
        ck_assert_int_eq(cudaSetDevice(i), cudaSuccess);
        ck_assert_int_eq(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), cudaSuccess);
        ck_assert_int_eq(cudaMalloc(&p, sizeof host), cudaSuccess);
        memory[i] = p;
        ck_assert_int_eq(cudaMemcpy(p, host, sizeof host, cudaMemcpyHostToDevice), cudaSuccess);
    }
}

static ncclResult_t state(ncclComm_t c)
{
    ncclResult_t r;
    ck_assert_int_eq(lib.ncclCommGetAsyncError(c, &r), ncclSuccess);
    return r;
}

static ncclResult_t settled(ncclComm_t c)
{
    ncclResult_t r;
    while ((r = state(c)) == ncclInProgress) sched_yield();
    return r;
}

static void begin(ncclUniqueId id, int rank, int device)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ck_assert_int_eq(cudaSetDevice(device), cudaSuccess);
    ck_assert_int_eq(lib.ncclCommInitRankConfig(&comm[rank], N, id, rank, &config), ncclInProgress);
}

static void join_both(void)
{
    ncclUniqueId id;
    ck_assert_int_eq(lib.ncclGetUniqueId(&id), ncclSuccess);
    begin(id, 0, 0);
    ck_assert_int_eq(state(comm[0]), ncclInProgress); /* the other is missing */
    begin(id, 1, 1);
    for (int i = 0; i < N; i++) ck_assert_int_eq(settled(comm[i]), ncclSuccess);
}

static void part(void)
{
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(lib.ncclCommFinalize(comm[i]), ncclInProgress);
        ck_assert_int_eq(settled(comm[i]), ncclSuccess);
        ck_assert_int_eq(lib.ncclCommDestroy(comm[i]), ncclSuccess);
    }
}

static float first_of(int i)
{
    float value;
    ck_assert_int_eq(cudaStreamSynchronize(stream[i]), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(&value, memory[i], sizeof value, cudaMemcpyDeviceToHost),
                     cudaSuccess);
    return value;
}

static ncclResult_t sum(int i, size_t n, ncclRedOp_t op)
{
    return lib.ncclAllReduce(memory[i], memory[i], n, ncclFloat32, op, comm[i], stream[i]);
}

START_TEST(work_is_on_the_stream_only_when_the_call_is_through)
{
    find_twin();
    tp();
    join_both();
    ck_assert_int_eq(sum(1, ELEMENTS, ncclSum), ncclInProgress);
    ck_assert_int_eq(settled(comm[1]), ncclSuccess);
    ck_assert_int_eq(sum(0, ELEMENTS, ncclSum), ncclInProgress);
    /* An event recorded now would come before the work. */
    ck_assert(first_of(0) == 1.0F);
    ck_assert_int_eq(sum(0, ELEMENTS, ncclSum), ncclInvalidArgument);
    ck_assert_int_eq(settled(comm[0]), ncclSuccess);
    ck_assert(first_of(0) == 3.0F);
    ck_assert(first_of(1) == 3.0F);
    part();
}
END_TEST

START_TEST(each_rank_weighs_its_own_summand)
{
    find_twin();
    tp();
    join_both();
    ncclRedOp_t op[N];
    const float weight[N] = {0.25F, 0.75F};
    for (int i = 0; i < N; i++) {
        float w = weight[i];
        ck_assert_int_eq(
            lib.ncclRedOpCreatePreMulSum(&op[i], &w, ncclFloat32, ncclScalarHostImmediate, comm[i]),
            ncclSuccess);
        ck_assert_int_eq(sum(i, ELEMENTS, op[i]), ncclInProgress);
        ck_assert_int_eq(settled(comm[i]), ncclSuccess);
        ck_assert_int_eq(lib.ncclRedOpDestroy(op[i], comm[i]), ncclSuccess);
    }
    for (int i = 0; i < N; i++) ck_assert(first_of(i) == 0.25F + 2 * 0.75F);
    ck_assert_int_eq(sum(0, ELEMENTS, op[0]), ncclInvalidArgument); /* destroyed */
    part();
}
END_TEST

static ncclResult_t both_directions(int i)
{
    ncclResult_t r = lib.ncclGroupStart();
    if (r == ncclSuccess)
        r = lib.ncclSend(memory[i], ELEMENTS, ncclFloat32, 1 - i, comm[i], stream[i]);
    if (r == ncclSuccess)
        r = lib.ncclRecv(memory[i] + ELEMENTS, ELEMENTS, ncclFloat32, 1 - i, comm[i], stream[i]);
    ck_assert_int_eq(r, ncclSuccess); /* noted; the group's end tells */
    return lib.ncclGroupEnd();
}

START_TEST(calls_of_a_group_go_together)
{
    find_twin();
    tp();
    join_both();
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(both_directions(i), ncclInProgress);
        ck_assert_int_eq(settled(comm[i]), ncclSuccess);
    }
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(cudaStreamSynchronize(stream[i]), cudaSuccess);
        memory[i] += ELEMENTS;
        ck_assert(first_of(i) == (float)(2 - i));
    }
    part();
}
END_TEST

/* Sums that do not match: the second rank's has fewer elements, or another operator. */
static void post_separately(size_t fewer, ncclRedOp_t op)
{
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(sum(i, ELEMENTS - (i ? fewer : 0), i ? op : ncclSum), ncclInProgress);
        ck_assert_int_eq(settled(comm[i]), ncclSuccess);
    }
}

START_TEST(a_sum_that_weighs_does_not_match_a_plain_one)
{
    float one = 1;
    ncclRedOp_t op;
    find_twin();
    tp();
    join_both();
    ck_assert_int_eq(
        lib.ncclRedOpCreatePreMulSum(&op, &one, ncclFloat32, ncclScalarHostImmediate, comm[1]),
        ncclSuccess);
    post_separately(0, op);
    for (int k = 0; k < 20000; k++) /* long enough for one that matches */
        ck_assert_int_eq(cudaStreamQuery(stream[k % N]), cudaErrorNotReady);
    for (int i = 0; i < N; i++) ck_assert_int_eq(lib.ncclCommAbort(comm[i]), ncclSuccess);
}
END_TEST

START_TEST(calls_that_do_not_match_wait_until_they_are_aborted)
{
    find_twin();
    tp();
    join_both();
    post_separately(1, ncclSum);
    for (int i = 0; i < N; i++) ck_assert_int_eq(cudaStreamQuery(stream[i]), cudaErrorNotReady);
    ck_assert_int_eq(lib.ncclCommAbort(comm[0]), ncclSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(stream[0]), cudaSuccess);
    ck_assert_int_eq(state(comm[1]),
                     ncclRemoteError); /* the other learns of it, and goes on waiting */
    ck_assert_int_eq(cudaStreamQuery(stream[1]), cudaErrorNotReady);
    ck_assert_int_eq(lib.ncclCommAbort(comm[1]), ncclSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(stream[1]), cudaSuccess);
}
END_TEST

/* Nothing tells when that is; the device does. */
START_TEST(a_group_of_aborts_may_go_on_in_a_thread_of_its_own)
{
    setenv("STANDIN_NCCL_ASIDE", "1", 1);
    find_twin();
    tp();
    join_both();
    post_separately(1, ncclSum);
    ck_assert_int_eq(lib.ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < N; i++) ck_assert_int_eq(lib.ncclCommAbort(comm[i]), ncclSuccess);
    for (int i = 0; i < N; i++) ck_assert_int_eq(cudaStreamQuery(stream[i]), cudaErrorNotReady);
    ck_assert_int_eq(lib.ncclGroupEnd(), ncclInProgress);
    for (int i = 0; i < N; i++) ck_assert_int_eq(cudaStreamSynchronize(stream[i]), cudaSuccess);
}
END_TEST

static void request_once_more(int rank)
{
    ncclResult_t r;
    lib.ncclCommGetAsyncError(comm[rank], &r);
}

START_TEST(whoever_asks_of_what_was_given_up_is_ended)
{
    char said[200];
    find_twin();
    tp();
    join_both();
    ck_assert(!aborts_saying(request_once_more, 0, said, sizeof said));
    for (int i = 0; i < N; i++) ck_assert_int_eq(lib.ncclCommAbort(comm[i]), ncclSuccess);
    ck_assert(aborts_saying(request_once_more, 1, said, sizeof said));
    ck_assert_str_eq(said, "ncclCommGetAsyncError of a communicator that was given up\n");
}
END_TEST

START_TEST(two_ranks_of_one_gpu_are_refused_unless_they_say_that_their_hosts_differ)
{
    ncclUniqueId id;
    find_twin();
    for (int named = 0; named < 2; named++) {
        ck_assert_int_eq(lib.ncclGetUniqueId(&id), ncclSuccess);
        for (int i = 0; i < N; i++) {
            char host[16];
            snprintf(host, sizeof host, "rank-%d", i);
            if (named) setenv("NCCL_HOSTID", host, 1);
            begin(id, i, 0);
        }
        for (int i = 0; i < N; i++)
            ck_assert_int_eq(settled(comm[i]), named ? ncclSuccess : ncclInvalidUsage);
        for (int i = 0; i < N; i++) ck_assert_int_eq(lib.ncclCommAbort(comm[i]), ncclSuccess);
    }
}
END_TEST

/* The child joins and ends; only its end, no time, is what the parent sees. */
START_TEST(a_rank_that_ended_shows_as_an_error_and_its_work_never_ends)
{
    ncclUniqueId id;
    find_twin();
    ck_assert_int_eq(lib.ncclGetUniqueId(&id), ncclSuccess);
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char c;
        begin(id, 1, 1);
        if (settled(comm[1]) != ncclSuccess || read(ends[0], &c, 1) != 1) _exit(1);
        _exit(0);
    }
    tp();
    begin(id, 0, 0);
    ck_assert_int_eq(settled(comm[0]), ncclSuccess);
    ck_assert_int_eq(sum(0, ELEMENTS, ncclSum), ncclInProgress);
    ck_assert_int_eq(settled(comm[0]), ncclSuccess);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_int_eq(state(comm[0]), ncclRemoteError);
    ck_assert_int_eq(cudaStreamQuery(stream[0]), cudaErrorNotReady);
    ck_assert_int_eq(lib.ncclCommAbort(comm[0]), ncclSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(stream[0]), cudaSuccess);
}
END_TEST

SUITE_OF(nccl_standin, work_is_on_the_stream_only_when_the_call_is_through,
         each_rank_weighs_its_own_summand, calls_of_a_group_go_together,
         a_sum_that_weighs_does_not_match_a_plain_one,
         calls_that_do_not_match_wait_until_they_are_aborted,
         a_group_of_aborts_may_go_on_in_a_thread_of_its_own,
         whoever_asks_of_what_was_given_up_is_ended,
         two_ranks_of_one_gpu_are_refused_unless_they_say_that_their_hosts_differ,
         a_rank_that_ended_shows_as_an_error_and_its_work_never_ends)
