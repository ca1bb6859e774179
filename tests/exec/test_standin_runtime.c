/* tests/exec/test_standin_runtime.c - streams, events and memory of the stand-in are CUDA's. */
#include "tests/standin/kernels_try.h"

#include "tests/support/suites.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static void good(cudaError_t e) { ck_assert_msg(e == cudaSuccess, "%s", cudaGetErrorString(e)); }

/* A host function that holds a stream until the test lets it go. */
struct gate {
    int ends[2];
};

static void gate_make(struct gate *g) { ck_assert_int_eq(pipe(g->ends), 0); }

static void hold(void *p)
{
    char c;
    if (read(((struct gate *)p)->ends[0], &c, 1) != 1) abort();
}

static void gate_open(struct gate *g) { ck_assert_int_eq((int)write(g->ends[1], "x", 1), 1); }

static float *device_numbers(int n, float first)
{
    float *host = malloc((size_t)n * sizeof *host);
    void *p;
    good(cudaMalloc(&p, (size_t)n * sizeof *host));
    for (int i = 0; i < n; i++) host[i] = first + (float)i;
    good(cudaMemcpy(p, host, (size_t)n * sizeof *host, cudaMemcpyHostToDevice));
    free(host);
    return p;
}

static cudaStream_t stream_new(void)
{
    cudaStream_t s;
    good(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static cudaEvent_t event_new(unsigned flags)
{
    cudaEvent_t e;
    good(cudaEventCreateWithFlags(&e, flags));
    return e;
}

/* --- streams and events --- */

START_TEST(a_stream_does_what_it_was_asked_in_order_and_later)
{
    enum { N = 100 };
    struct gate g;
    gate_make(&g);
    cudaStream_t s = stream_new();
    float *a = device_numbers(N, 0), *b = device_numbers(N, 0);
    void *out;
    good(cudaMallocHost(&out, N * sizeof(float)));
    float before = ((float *)out)[0];
    good(cudaLaunchHostFunc(s, hold, &g));
    good(cudaMemcpyAsync(b, a, N * sizeof(float), cudaMemcpyDeviceToDevice, s));
    for (int i = 0; i < 3; i++) good(try_add(a, b, N, s));
    good(cudaMemcpyAsync(out, b, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    ck_assert_int_eq(cudaStreamQuery(s), cudaErrorNotReady);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess); /* not ready is no error to remember */
    ck_assert(isnan(before) && isnan(((float *)out)[0]));
    gate_open(&g);
    good(cudaStreamSynchronize(s));
    good(cudaStreamQuery(s));
    for (int i = 0; i < N; i++) ck_assert_float_eq(((float *)out)[i], 4 * (float)i);
}
END_TEST

START_TEST(a_stream_waits_for_an_event_of_another_and_no_further)
{
    struct gate first, second;
    gate_make(&first);
    gate_make(&second);
    cudaStream_t a = stream_new(), b = stream_new();
    cudaEvent_t reached = event_new(cudaEventDisableTiming);
    float *x = device_numbers(1, 1), *y = device_numbers(1, 0);
    good(cudaLaunchHostFunc(a, hold, &first));
    good(try_add(x, x, 1, a)); /* 2 */
    good(cudaEventRecord(reached, a));
    good(cudaLaunchHostFunc(a, hold, &second));
    good(cudaStreamWaitEvent(b, reached, 0));
    good(cudaMemcpyAsync(y, x, sizeof *x, cudaMemcpyDeviceToDevice, b));
    ck_assert_int_eq(cudaEventQuery(reached), cudaErrorNotReady);
    ck_assert_int_eq(cudaStreamQuery(b), cudaErrorNotReady);
    gate_open(&first);
    good(cudaStreamSynchronize(b)); /* while a is held again */
    good(cudaEventQuery(reached));
    ck_assert_int_eq(cudaStreamQuery(a), cudaErrorNotReady);
    float got;
    cudaStream_t c = stream_new();
    good(cudaMemcpyAsync(&got, y, sizeof got, cudaMemcpyDeviceToHost, c)); /* pageable: done here */
    ck_assert_float_eq(got, 2);
    gate_open(&second);
    good(cudaDeviceSynchronize());
    good(cudaStreamQuery(a));
}
END_TEST

START_TEST(an_event_never_recorded_is_done_and_waits_for_nothing)
{
    cudaStream_t s = stream_new();
    cudaEvent_t e = event_new(cudaEventDefault), f = event_new(cudaEventDefault);
    float ms = -1;
    good(cudaEventQuery(e));
    good(cudaEventSynchronize(e));
    good(cudaStreamWaitEvent(s, e, 0));
    good(cudaStreamSynchronize(s));
    ck_assert_int_eq(cudaEventElapsedTime(&ms, e, f), cudaErrorInvalidResourceHandle);
    good(cudaEventRecord(e, s));
    good(cudaEventSynchronize(e));
    ck_assert_int_eq(cudaEventElapsedTime(&ms, e, f), cudaErrorInvalidResourceHandle);
    ck_assert_float_eq(ms, -1);
}
END_TEST

START_TEST(times_between_events_ascend_along_a_stream)
{
    enum { N = 5 };
    cudaStream_t s = stream_new();
    cudaEvent_t at[N];
    struct gate g;
    gate_make(&g);
    for (int i = 0; i < N; i++) at[i] = event_new(cudaEventDefault);
    good(cudaEventRecord(at[0], s));
    good(cudaLaunchHostFunc(s, hold, &g));
    for (int i = 1; i < N; i++) good(cudaEventRecord(at[i], s));
    float ms = -1;
    good(cudaEventSynchronize(at[0]));
    ck_assert_int_eq(cudaEventElapsedTime(&ms, at[0], at[1]), cudaErrorNotReady);
    gate_open(&g);
    good(cudaEventSynchronize(at[N - 1]));
    for (int i = 1; i < N; i++) {
        good(cudaEventElapsedTime(&ms, at[i - 1], at[i]));
        ck_assert_float_ge(ms, 0);
    }
    cudaEvent_t untimed = event_new(cudaEventDisableTiming);
    good(cudaEventRecord(untimed, s));
    good(cudaEventSynchronize(untimed));
    ck_assert_int_eq(cudaEventElapsedTime(&ms, at[0], untimed), cudaErrorInvalidResourceHandle);
}
END_TEST

START_TEST(an_event_stands_for_its_last_record)
{
    struct gate g;
    gate_make(&g);
    cudaStream_t s = stream_new(), other = stream_new();
    cudaEvent_t e = event_new(cudaEventDisableTiming);
    good(cudaEventRecord(e, other));
    good(cudaLaunchHostFunc(s, hold, &g));
    good(cudaStreamWaitEvent(other, e, 0)); /* of the first record: passes */
    good(cudaEventRecord(e, s));
    good(cudaStreamSynchronize(other));
    ck_assert_int_eq(cudaEventQuery(e), cudaErrorNotReady);
    gate_open(&g);
    good(cudaEventSynchronize(e));
}
END_TEST

START_TEST(the_default_stream_orders_itself_with_streams_that_block_alone)
{
    struct gate g;
    gate_make(&g);
    cudaStream_t blocking, free_one = stream_new();
    good(cudaStreamCreate(&blocking));
    float *a = device_numbers(1, 1), *b = device_numbers(1, 1);
    good(cudaLaunchHostFunc(blocking, hold, &g));
    good(try_add(a, a, 1, blocking)); /* 2 */
    good(try_add(a, b, 1, NULL));     /* after it: 3 */
    good(try_add(b, a, 1, blocking)); /* after that: 5 */
    good(cudaLaunchHostFunc(free_one, hold, &g));
    ck_assert_int_eq(cudaStreamQuery(NULL), cudaErrorNotReady);
    gate_open(&g);
    gate_open(&g);
    good(cudaDeviceSynchronize());
    float got[2];
    good(cudaMemcpy(&got[0], a, 4, cudaMemcpyDeviceToHost));
    good(cudaMemcpy(&got[1], b, 4, cudaMemcpyDeviceToHost));
    ck_assert_float_eq(got[0], 5);
    ck_assert_float_eq(got[1], 3);
    struct gate h;
    gate_make(&h);
    good(cudaLaunchHostFunc(free_one, hold, &h));
    good(cudaStreamSynchronize(NULL)); /* does not wait for the non-blocking one */
    ck_assert_int_eq(cudaStreamQuery(free_one), cudaErrorNotReady);
    gate_open(&h);
    good(cudaStreamSynchronize(free_one));
}
END_TEST

START_TEST(a_destroyed_stream_finishes_what_it_was_asked)
{
    struct gate g;
    gate_make(&g);
    cudaStream_t s = stream_new();
    cudaEvent_t e = event_new(cudaEventDisableTiming);
    float *a = device_numbers(1, 21), got;
    good(cudaLaunchHostFunc(s, hold, &g));
    good(try_add(a, a, 1, s));
    good(cudaEventRecord(e, s));
    good(cudaStreamDestroy(s));
    ck_assert_int_eq(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
    gate_open(&g);
    good(cudaEventSynchronize(e));
    good(cudaMemcpy(&got, a, 4, cudaMemcpyDeviceToHost));
    ck_assert_float_eq(got, 42);
    good(cudaEventDestroy(e));
    ck_assert_int_eq(cudaEventRecord(e, NULL), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaEventDestroy(e), cudaErrorInvalidResourceHandle);
}
END_TEST

static _Atomic int asked;

static void ask(void *p)
{
    (void)p;
    void *q;
    asked = cudaMalloc(&q, 8);
}

START_TEST(a_host_function_may_not_ask_the_runtime)
{
    cudaStream_t s = stream_new();
    good(cudaLaunchHostFunc(s, ask, NULL));
    good(cudaStreamSynchronize(s));
    ck_assert_int_eq(asked, cudaErrorNotPermitted);
}
END_TEST

START_TEST(streams_and_events_belong_to_their_device)
{
    setenv("STANDIN_DEVICES", "2", 1);
    unsigned *count;
    void *p;
    cudaStream_t s0 = stream_new();
    cudaEvent_t e0 = event_new(cudaEventDisableTiming);
    int n;
    good(cudaGetDeviceCount(&n));
    ck_assert_int_eq(n, 2);
    good(cudaMalloc(&p, 4));
    count = p;
    good(cudaSetDevice(1));
    ck_assert_int_eq(try_count(count, 1, 1, s0), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaEventRecord(e0, s0), cudaErrorInvalidResourceHandle);
    cudaStream_t s1 = stream_new();
    ck_assert_int_eq(cudaEventRecord(e0, s1), cudaErrorInvalidResourceHandle);
    good(cudaStreamWaitEvent(s1, e0, 0));
    good(cudaStreamSynchronize(s0));
    ck_assert_int_eq(cudaSetDevice(2), cudaErrorInvalidDevice);
}
END_TEST

/* --- memory --- */

START_TEST(copies_that_leave_an_allocation_or_miss_its_kind_are_refused)
{
    float host[4] = {0}, *device = device_numbers(4, 0);
    void *pinned;
    good(cudaMallocHost(&pinned, 16));
    static const struct {
        size_t offset, bytes;
        bool fine;
    } cases[] = {{0, 16, true}, {0, 17, false}, {4, 12, true}, {4, 13, false}, {15, 1, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cudaError_t expected = cases[i].fine ? cudaSuccess : cudaErrorInvalidValue;
        ck_assert_int_eq(cudaMemcpy(pinned, (char *)device + cases[i].offset, cases[i].bytes,
                                    cudaMemcpyDeviceToHost),
                         expected);
        ck_assert_int_eq(cudaMemsetAsync((char *)device + cases[i].offset, 0, cases[i].bytes, NULL),
                         expected);
    }
    ck_assert_int_eq(cudaMemcpy(device, host, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(host, device, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(host, device, 16, cudaMemcpyHostToHost), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(pinned, host, 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemsetAsync(host, 0, 16, NULL), cudaErrorInvalidValue);
    good(cudaMemcpy(pinned, host, 16, cudaMemcpyHostToHost));
    good(cudaMemcpy(device, pinned, 16, cudaMemcpyDefault));
    ck_assert_int_eq(cudaFree(host), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaFree(pinned), cudaErrorInvalidValue);
    good(cudaFreeHost(pinned));
    good(cudaFree(device));
    ck_assert_int_eq(cudaFree(device), cudaErrorInvalidValue);
    good(cudaFree(NULL));
}
END_TEST

START_TEST(rows_are_copied_and_set_by_their_strides)
{
    float host[5][7], back[5][3];
    for (int i = 0; i < 35; i++) host[i / 7][i % 7] = (float)i;
    float *device = device_numbers(5 * 4, 100);
    good(cudaMemcpy2DAsync(device, 16, &host[0][2], 28, 12, 5, cudaMemcpyHostToDevice, NULL));
    good(cudaMemset2DAsync(device + 1, 16, 0, 4, 5, NULL));
    good(cudaMemcpy2DAsync(back, 12, device, 16, 12, 5, cudaMemcpyDeviceToHost, NULL));
    for (int r = 0; r < 5; r++)
        for (int c = 0; c < 3; c++)
            ck_assert_float_eq(back[r][c], c == 1 ? 0 : (float)(r * 7 + 2 + c));
    /* Past the last row's end nothing is touched: 4 · 16 + 12 bytes suffice, one more row does not. */
    ck_assert_int_eq(cudaMemset2DAsync(device, 16, 0, 16, 6, NULL), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemset2DAsync(device, 8, 0, 12, 2, NULL), cudaErrorInvalidValue);
}
END_TEST

START_TEST(a_device_has_no_more_memory_than_it_says)
{
    setenv("STANDIN_MEMORY", "4096", 1);
    size_t free_bytes, total;
    void *a, *b, *c;
    good(cudaMalloc(&a, 3000));
    ck_assert_int_eq(cudaMalloc(&b, 2000), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    good(cudaMalloc(&c, 1000));
    good(cudaMemGetInfo(&free_bytes, &total));
    ck_assert_uint_eq(total, 4096);
    ck_assert_uint_eq(free_bytes, 96);
    good(cudaFree(a));
    good(cudaMalloc(&b, 2000));
}
END_TEST

START_TEST(memory_given_back_on_a_stream_serves_what_was_asked_before)
{
    struct gate g;
    gate_make(&g);
    cudaStream_t s = stream_new();
    void *p;
    float *out = device_numbers(1, 0), got;
    good(cudaMallocAsync(&p, 4, s));
    good(cudaLaunchHostFunc(s, hold, &g));
    good(cudaMemsetAsync(p, 0, 4, s));
    good(cudaMemcpyAsync(out, p, 4, cudaMemcpyDeviceToDevice, s));
    good(cudaFreeAsync(p, s));
    ck_assert_int_eq(cudaMemsetAsync(p, 0, 4, s), cudaErrorInvalidValue);
    gate_open(&g);
    good(cudaStreamSynchronize(s));
    good(cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost));
    ck_assert_float_eq(got, 0);
}
END_TEST

START_TEST(what_a_stream_gets_back_is_of_a_pool)
{
    void *p;
    good(cudaMalloc(&p, 4));
    ck_assert_int_eq(cudaFreeAsync(p, stream_new()), cudaErrorInvalidValue);
    good(cudaFree(p));
    good(cudaMallocAsync(&p, 4, stream_new()));
    good(cudaFree(p));
}
END_TEST

START_TEST(rows_that_lie_too_far_apart_are_refused)
{
    void *p;
    good(cudaMalloc(&p, 64));
    size_t far = (size_t)1 << 31;
    ck_assert_int_eq(cudaMemcpy2DAsync(p, far, p, 16, 4, 2, cudaMemcpyDeviceToDevice, NULL), cudaErrorInvalidPitchValue);
    ck_assert_int_eq(cudaMemcpy2DAsync(p, 16, p, far, 4, 2, cudaMemcpyDeviceToDevice, NULL), cudaErrorInvalidPitchValue);
    ck_assert_int_eq(cudaMemset2DAsync(p, far, 0, 4, 2, NULL), cudaErrorInvalidPitchValue);
    good(cudaMemset2DAsync(p, 32, 0, 4, 2, NULL));
}
END_TEST

static void set_flag(void *p) { *(_Atomic int *)p = 1; }

enum { MANY_TURNS = 2000 };

static void *open_later(void *p)
{
    for (int i = 0; i < MANY_TURNS; i++) sched_yield();
    gate_open(p);
    return NULL;
}

START_TEST(memory_is_given_when_nothing_runs)
{
    for (int pinned = 0; pinned < 2; pinned++) {
        static _Atomic int ran;
        struct gate g;
        gate_make(&g);
        cudaStream_t s = stream_new();
        pthread_t opener;
        void *p;
        ran = 0;
        good(cudaLaunchHostFunc(s, hold, &g));
        good(cudaLaunchHostFunc(s, set_flag, &ran));
        ck_assert_int_eq(pthread_create(&opener, NULL, open_later, &g), 0);
        good(pinned ? cudaHostAlloc(&p, 4, cudaHostAllocDefault) : cudaMalloc(&p, 4));
        ck_assert_int_eq(ran, 1);
        pthread_join(opener, NULL);
    }
}
END_TEST

struct asking {
    cudaStream_t stream;
    _Atomic int asked, opened, was_opened;
};

static void *request_much(void *p)
{
    struct asking *x = p;
    static _Atomic int ran;
    for (int i = 0; i < 10; i++) {
        if (cudaLaunchHostFunc(x->stream, set_flag, &ran) != cudaSuccess) abort();
        x->asked++;
    }
    x->was_opened = x->opened;
    return NULL;
}

START_TEST(who_asks_a_stream_for_more_than_it_takes_waits)
{
    setenv("STANDIN_QUEUE", "4", 1);
    struct asking x = {.stream = stream_new()};
    struct gate g;
    pthread_t asker;
    gate_make(&g);
    good(cudaLaunchHostFunc(x.stream, hold, &g));
    ck_assert_int_eq(pthread_create(&asker, NULL, request_much, &x), 0);
    while (x.asked < 4) sched_yield();
    for (int i = 0; i < MANY_TURNS; i++) sched_yield(); /* it goes as far as it can */
    ck_assert_int_le(x.asked, 5);
    x.opened = 1;
    gate_open(&g);
    pthread_join(asker, NULL);
    ck_assert_int_eq(x.was_opened, 1);
    good(cudaStreamSynchronize(x.stream));
}
END_TEST

SUITE_OF(standin_runtime, a_stream_does_what_it_was_asked_in_order_and_later,
         a_stream_waits_for_an_event_of_another_and_no_further,
         an_event_never_recorded_is_done_and_waits_for_nothing,
         times_between_events_ascend_along_a_stream, an_event_stands_for_its_last_record,
         the_default_stream_orders_itself_with_streams_that_block_alone,
         a_destroyed_stream_finishes_what_it_was_asked, a_host_function_may_not_ask_the_runtime,
         streams_and_events_belong_to_their_device,
         copies_that_leave_an_allocation_or_miss_its_kind_are_refused,
         rows_are_copied_and_set_by_their_strides, a_device_has_no_more_memory_than_it_says,
         memory_given_back_on_a_stream_serves_what_was_asked_before,
         what_a_stream_gets_back_is_of_a_pool, rows_that_lie_too_far_apart_are_refused,
         memory_is_given_when_nothing_runs, who_asks_a_stream_for_more_than_it_takes_waits)
