/* tests/exec/test_standin_fails.c - the stand-in's failing calls, lost devices, absent drivers and what was not given back. */
#include "tests/standin/standin.h"

#include "tests/standin/kernels_try.h"

#include "tests/support/suites.h"

#include <stdlib.h>

static void good(cudaError_t e) { ck_assert_msg(e == cudaSuccess, "%s", cudaGetErrorString(e)); }

START_TEST(what_is_not_given_back_is_told)
{
    char text[160];
    void *device, *pinned;
    ck_assert_int_eq(standin_left(text, sizeof text), 0);
    ck_assert_str_eq(text, "");
    cudaStream_t s;
    cudaEvent_t e;
    good(cudaStreamCreate(&s));
    good(cudaEventCreate(&e));
    good(cudaMalloc(&device, 5));
    good(cudaMallocHost(&pinned, 5));
    ck_assert_int_eq(standin_left(text, sizeof text), 4);
    ck_assert_str_eq(text, "1 x device memory, 1 x pinned memory, 1 x stream, 1 x event");
    good(cudaFree(device));
    good(cudaFreeHost(pinned));
    good(cudaStreamDestroy(s));
    good(cudaEventDestroy(e));
    ck_assert_int_eq(standin_left(text, sizeof text), 0);
}
END_TEST

/* Up, twice, down on two streams, all given back whatever fails. The first error, or OK with what came out. */
static cudaError_t round_trip(float *out)
{
    cudaStream_t s[2] = {NULL, NULL};
    cudaEvent_t event = NULL;
    void *a = NULL;
    float in = 3;
    cudaError_t e = cudaStreamCreateWithFlags(&s[0], cudaStreamNonBlocking);
    if (!e) e = cudaStreamCreateWithFlags(&s[1], cudaStreamNonBlocking);
    if (!e) e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (!e) e = cudaMalloc(&a, sizeof in);
    if (!e) e = cudaMemcpyAsync(a, &in, sizeof in, cudaMemcpyHostToDevice, s[0]);
    if (!e) e = try_add(a, a, 1, s[0]);
    if (!e) e = cudaEventRecord(event, s[0]);
    if (!e) e = cudaStreamWaitEvent(s[1], event, 0);
    if (!e) e = cudaMemcpyAsync(out, a, sizeof in, cudaMemcpyDeviceToHost, s[1]);
    if (!e) e = cudaStreamSynchronize(s[1]);
    cudaError_t given[4] = {
        a ? cudaFree(a) : cudaSuccess, event ? cudaEventDestroy(event) : cudaSuccess,
        s[0] ? cudaStreamDestroy(s[0]) : cudaSuccess, s[1] ? cudaStreamDestroy(s[1]) : cudaSuccess};
    for (int i = 0; i < 4 && !e; i++) e = given[i];
    return e;
}

enum { CALLS_OF_ROUND_TRIP = 14 };

START_TEST(each_call_can_be_made_to_fail_alone)
{
    for (int n = 1; n <= CALLS_OF_ROUND_TRIP; n++) {
        float got = 0;
        standin_fail_at(n, cudaErrorMemoryAllocation);
        ck_assert_int_eq(round_trip(&got), cudaErrorMemoryAllocation);
        ck_assert_ptr_nonnull(standin_failed_call());
        ck_assert_int_eq(standin_left(NULL, 0), 0);
        standin_fail_at(0, cudaSuccess);
        got = 0;
        ck_assert_int_eq(round_trip(&got), cudaSuccess);
        ck_assert_float_eq(got, 6);
    }
    standin_fail_at(0, cudaSuccess);
    float got;
    good(round_trip(&got));
    ck_assert_int_eq(standin_calls(), CALLS_OF_ROUND_TRIP);
    ck_assert_ptr_null(standin_failed_call());
}
END_TEST

START_TEST(a_lost_device_says_so_in_every_call_and_leaves_nothing)
{
    float got = 0;
    standin_fail_at(_i, cudaErrorIllegalAddress);
    ck_assert_int_eq(round_trip(&got), cudaErrorIllegalAddress);
    ck_assert_int_eq(round_trip(&got), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
    ck_assert_int_eq(standin_left(NULL, 0), 0);
    /* Down, the ninth call, is the last that can bring a number back. */
    if (_i <= 9) ck_assert_float_eq(got, 0);
}
END_TEST

START_TEST(a_device_lost_while_it_works_tells_who_waits)
{
    enum { WORKS = 3 }; /* up, add, down */
    for (int n = 1; n <= WORKS + 1; n++) {
        /* Another device a time: a lost one stays lost. */
        if (n == 1) setenv("STANDIN_DEVICES", "4", 1);
        good(cudaSetDevice(n - 1));
        float got = 0;
        standin_lose_at(n, cudaErrorECCUncorrectable);
        ck_assert_int_eq(round_trip(&got), n <= WORKS ? cudaErrorECCUncorrectable : cudaSuccess);
        ck_assert_float_eq(got, n <= WORKS ? 0 : 6);
        ck_assert_int_eq(standin_left(NULL, 0), 0);
    }
}
END_TEST

START_TEST(the_environment_names_the_call_that_fails)
{
    setenv("STANDIN_FAIL_AT", "2:46", 1);
    cudaStream_t s;
    good(cudaStreamCreate(&s));
    ck_assert_int_eq(cudaStreamCreate(&s), cudaErrorDevicesUnavailable);
    ck_assert_str_eq(standin_failed_call(), "cudaStreamCreateWithPriority");
    ck_assert_int_eq(cudaStreamCreate(&s), cudaErrorDevicesUnavailable);
}
END_TEST

START_TEST(without_a_device_or_a_driver_the_count_says_why)
{
    static const struct {
        const char *name, *value;
        cudaError_t e;
        int driver;
    } cases[] = {{"STANDIN_DEVICES", "0", cudaErrorNoDevice, 13000},
                 {"STANDIN_DRIVER", "35", cudaErrorInsufficientDriver, 0},
                 {"STANDIN_DRIVER", "34", cudaErrorStubLibrary, 13000}};
    int n = -7, driver = -7;
    setenv(cases[_i].name, cases[_i].value, 1);
    ck_assert_int_eq(cudaGetDeviceCount(&n), cases[_i].e);
    ck_assert_int_eq(n, -7);
    good(cudaDriverGetVersion(&driver));
    ck_assert_int_eq(driver, cases[_i].driver);
    void *p;
    ck_assert_int_eq(cudaMalloc(&p, 4), cases[_i].e);
}
END_TEST

START_TEST(devices_are_of_the_generations_that_were_named)
{
    setenv("STANDIN_DEVICES", "3", 1);
    setenv("STANDIN_CAPABILITY", "75,80", 1);
    static const int expected[3] = {75, 80, 80};
    for (int i = 0; i < 3; i++) {
        struct cudaDeviceProp p;
        int major, minor;
        good(cudaGetDeviceProperties(&p, i));
        good(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i));
        good(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i));
        ck_assert_int_eq(p.major * 10 + p.minor, expected[i]);
        ck_assert_int_eq(major * 10 + minor, expected[i]);
    }
    int linked;
    good(cudaDeviceGetP2PAttribute(&linked, cudaDevP2PAttrAccessSupported, 0, 1));
    ck_assert_int_eq(linked, 1);
    good(cudaDeviceGetP2PAttribute(&linked, cudaDevP2PAttrAccessSupported, 1, 2));
    ck_assert_int_eq(linked, 0);
}
END_TEST

Suite *standin_fails_suite(void)
{
    Suite *suite = suite_create("standin_fails");
    TCase *c = tcase_create("standin_fails");
    tcase_add_test(c, what_is_not_given_back_is_told);
    tcase_add_test(c, each_call_can_be_made_to_fail_alone);
    tcase_add_test(c, a_device_lost_while_it_works_tells_who_waits);
    tcase_add_test(c, the_environment_names_the_call_that_fails);
    tcase_add_test(c, devices_are_of_the_generations_that_were_named);
    tcase_add_loop_test(c, a_lost_device_says_so_in_every_call_and_leaves_nothing, 1,
                        CALLS_OF_ROUND_TRIP + 1);
    tcase_add_loop_test(c, without_a_device_or_a_driver_the_count_says_why, 0, 3);
    suite_add_tcase(suite, c);
    return suite;
}
