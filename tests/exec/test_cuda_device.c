/* The CUDA plugin's device on the stand-in's threads: memory, streams, events, times, what is refused, and every single call
 * that can fail. The plugin is opened as the real one is. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "exec/clock.h"
#include "exec/plugin.h"

#include "tests/standin/standin.h"
#include "tests/support/suites.h"

#include <stdio.h>

static struct backend device;
static struct error err;

static void need(enum status st) { ck_assert_msg(st == OK, "%s", err.text); }

static void find_plugin(void)
{
    const char *b = getenv("BUILD");
    char path[512];
    snprintf(path, sizeof path, "%s/libmusher_cuda_standin.so", b && *b ? b : "build");
    setenv("MUSHER_CUDA_PLUGIN", path, 1);
    need(plugin_open_backend("cuda", &device, &err));
}

static void begin(void)
{
    find_plugin();
    need(device.open(&device, 0, &err));
}

static void end(void)
{
    char left[200];
    device.close(&device);
    ck_assert_ptr_null(device.state);
    ck_assert_msg(standin_left(left, sizeof left) == 0, "not given back: %s", left);
}

static void says(enum status st, enum status wanted, const char *text)
{
    ck_assert_msg(st == wanted, "status %d: %s", st, err.text);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
}

/* ---- before one is open ---------------------------------------------------------------------- */

START_TEST(devices_are_counted_and_described)
{
    struct backend_device d;
    int32_t n = 0;
    setenv("STANDIN_DEVICES", "2", 1);
    setenv("STANDIN_CAPABILITY", "90,75", 1);
    setenv("STANDIN_MEMORY", "1000000", 1);
    find_plugin();
    need(device.count(&device, &n, &err));
    ck_assert_int_eq(n, 2);
    need(device.describe(&device, 0, &d, &err));
    ck_assert_int_eq(d.capability, 90);
    ck_assert_int_eq(d.memory_bytes, 1000000);
    ck_assert_uint_eq(d.dtypes,
                      1u << DTYPE_fp32 | 1u << DTYPE_fp64 | 1u << DTYPE_fp16 | 1u << DTYPE_bf16);
    need(device.describe(&device, 1, &d, &err));
    ck_assert_int_eq(d.capability, 75);
    ck_assert_uint_eq(d.dtypes, 1u << DTYPE_fp32 | 1u << DTYPE_fp64 | 1u << DTYPE_fp16);
    says(device.describe(&device, 2, &d, &err), ERR_NO_DEVICE, "no CUDA device 2: there are 2");
    says(device.open(&device, -1, &err), ERR_NO_DEVICE, "no CUDA device -1");
    ck_assert_ptr_null(device.state);
}
END_TEST

static const struct {
    const char *name, *value, *text;
} absences[] = {
    {"STANDIN_DRIVER", "35", "no CUDA device: no NVIDIA driver is loaded (35)"},
    {"STANDIN_DRIVER", "34", "no CUDA device: libcuda is the toolkit's stub"},
    {"STANDIN_DEVICES", "0", "reports no GPU; is CUDA_VISIBLE_DEVICES set? (100)"},
};

START_TEST(without_driver_or_gpu_there_is_no_device_and_its_reason)
{
    int32_t n = 7;
    setenv(absences[_i].name, absences[_i].value, 1);
    find_plugin();
    says(device.count(&device, &n, &err), ERR_NO_DEVICE, absences[_i].text);
    ck_assert_int_eq(n, 7);
    says(device.open(&device, 0, &err), ERR_NO_DEVICE, absences[_i].text);
}
END_TEST

START_TEST(a_gpu_older_than_the_kernels_is_refused_by_name)
{
    setenv("STANDIN_CAPABILITY", "60", 1);
    find_plugin();
    says(device.open(&device, 0, &err), ERR_NO_DEVICE, "sm_60) is older than the kernels");
    ck_assert_ptr_null(device.state);
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------------- */

START_TEST(memory_begins_as_zeros_and_is_aligned)
{
    for (int i = 0; i < 20; i++) {
        int64_t n = (int64_t)rng_below(1, 1, (uint64_t)i, 5000);
        void *d = NULL, *p = NULL;
        unsigned char *back = malloc((size_t)n + 1);
        need(device.allocate(&device, n, &d, &err));
        need(device.allocate_pinned(&device, n, &p, &err));
        ck_assert_uint_eq((uintptr_t)d % 64, 0);
        ck_assert_uint_eq((uintptr_t)p % 64, 0);
        memset(back, 0xff, (size_t)n + 1);
        need(device.download(&device, back, d, n, &err));
        for (int64_t k = 0; k < n; k++) ck_assert(back[k] == 0 && ((unsigned char *)p)[k] == 0);
        ck_assert_int_eq(back[n], 0xff);
        free(back);
        device.release(&device, d);
        device.release_pinned(&device, p);
    }
}
END_TEST

START_TEST(what_goes_up_comes_down)
{
    for (int i = 0; i < 20; i++) {
        int64_t n = (int64_t)rng_below(2, 1, (uint64_t)i, 9000);
        unsigned char *up = malloc((size_t)n + 1), *down = malloc((size_t)n + 1);
        void *d = NULL;
        for (int64_t k = 0; k < n; k++) up[k] = (unsigned char)rng_below(2, 2, (uint64_t)k, 256);
        need(device.allocate(&device, n, &d, &err));
        need(device.upload(&device, d, up, n, &err));
        need(device.download(&device, down, d, n, &err));
        ck_assert(!memcmp(up, down, (size_t)n));
        device.release(&device, d);
        free(up);
        free(down);
    }
}
END_TEST

START_TEST(too_much_memory_is_refused_with_what_is_left)
{
    void *d = NULL;
    says(device.allocate(&device, (int64_t)1 << 40, &d, &err), ERR_RESOURCE,
         "no 1099511627776 bytes by cudaMalloc: ");
    ck_assert_ptr_null(d);
    need(device.allocate(&device, 64, &d, &err)); /* it was no loss of the device */
    device.release(&device, d);
}
END_TEST

/* ---- streams and events ---------------------------------------------------------------------- */

enum { STREAMS = 4, PLACES = 6, BYTES = 256, STEPS = 120 };

/* Random copies between places on random streams, each behind an event of whoever touched its places last, and the same on
 * the host one after the other: the same bytes in the end. */
START_TEST(events_order_streams)
{
    int32_t stream[STREAMS] = {0}, done[STEPS];
    int last[PLACES];
    unsigned char *place[PLACES], model[PLACES][BYTES];
    void *p = NULL;
    for (int i = 1; i < STREAMS; i++) need(device.stream_make(&device, &stream[i], &err));
    for (int i = 0; i < PLACES; i++) {
        if (i % 2)
            need(device.allocate(&device, BYTES, &p, &err));
        else
            need(device.allocate_pinned(&device, BYTES, &p, &err));
        place[i] = p;
        for (int k = 0; k < BYTES; k++) model[i][k] = (unsigned char)(31 * i + k);
        if (i % 2)
            need(device.upload(&device, place[i], model[i], BYTES, &err));
        else
            memcpy(place[i], model[i], BYTES);
        last[i] = -1;
    }
    for (int i = 0; i < STEPS; i++) {
        int s = (int)rng_below(3, 1, (uint64_t)i, STREAMS);
        int from = (int)rng_below(3, 2, (uint64_t)i, PLACES),
            to = (from + 1 + (int)rng_below(3, 3, (uint64_t)i, PLACES - 1)) % PLACES;
        int64_t at = (int64_t)rng_below(3, 4, (uint64_t)i, BYTES),
                n = (int64_t)rng_below(3, 5, (uint64_t)i, (uint64_t)(BYTES - at) + 1);
        for (int w = 0; w < 2; w++) {
            int of = last[w ? from : to];
            if (of >= 0) need(device.event_wait(&device, stream[s], done[of], &err));
        }
        need(device.copy(&device, stream[s], place[to] + at, place[from] + at, n, &err));
        need(device.event_make(&device, false, &done[i], &err));
        need(device.event_record(&device, done[i], stream[s], &err));
        last[from] = last[to] = i;
        memcpy(model[to] + at, model[from] + at, (size_t)n);
    }
    need(device.finish(&device, &err));
    for (int i = 0; i < PLACES; i++) {
        unsigned char back[BYTES];
        if (i % 2)
            need(device.download(&device, back, place[i], BYTES, &err));
        else
            memcpy(back, place[i], BYTES);
        ck_assert_msg(!memcmp(back, model[i], BYTES), "place %d", i);
        (i % 2 ? device.release : device.release_pinned)(&device, place[i]);
    }
}
END_TEST

START_TEST(an_event_that_was_never_recorded_is_done_and_holds_nobody_up)
{
    int32_t event = 0;
    bool done = false;
    need(device.event_make(&device, false, &event, &err));
    need(device.event_wait(&device, STREAM_COMPUTE, event, &err));
    need(device.event_done(&device, event, &done, &err));
    ck_assert(done);
    need(device.event_wait_here(&device, event, &err));
}
END_TEST

static void copy_rows_between_strides(void)
{
    unsigned char from[7 * 20], to[7 * 13];
    void *d = NULL, *e = NULL;
    for (int i = 0; i < 7 * 20; i++) from[i] = (unsigned char)i;
    need(device.allocate(&device, sizeof from, &d, &err));
    need(device.allocate(&device, sizeof to, &e, &err));
    need(device.upload(&device, d, from, sizeof from, &err));
    need(device.copy_rows(&device, STREAM_COMPUTE, e, 13, d, 20, 11, 7, &err));
    need(device.copy_rows(&device, STREAM_COMPUTE, e, 13, d, 20, 11, 0, &err));
    need(device.download(&device, to, e, sizeof to, &err));
    for (int r = 0; r < 7; r++)
        for (int c = 0; c < 13; c++) ck_assert_int_eq(to[13 * r + c], c < 11 ? 20 * r + c : 0);
    device.release(&device, d);
    device.release(&device, e);
}

START_TEST(rows_are_copied_between_strides) { copy_rows_between_strides(); }
END_TEST

/* Beyond 2 GiB on a GPU; of 15 bytes here. */
START_TEST(rows_are_copied_where_they_are_longer_than_copies_of_rows_may_be)
{
    setenv("STANDIN_PITCH", "15", 1);
    begin();
    copy_rows_between_strides();
    end();
}
END_TEST

/* An event's time lies between the host's readings around its record and around its wait; later events are not earlier. The
 * bounds are the anchors': those of an idle stream, so a few microseconds, and here what a thread's turn takes. */
START_TEST(events_tell_the_hosts_time)
{
    enum { N = 20, SLACK_NS = 2000000 };
    int64_t before[N], after[N], at = 0, previous = 0;
    int32_t event[N];
    for (int i = 0; i < N; i++) {
        need(device.event_make(&device, true, &event[i], &err));
        before[i] = clock_wall_ns();
        need(device.event_record(&device, event[i], STREAM_COMPUTE, &err));
        need(device.event_wait_here(&device, event[i], &err));
        after[i] = clock_wall_ns();
    }
    for (int i = 0; i < N; i++) {
        need(device.event_at(&device, event[i], &at, &err));
        ck_assert_msg(at >= before[i] - SLACK_NS && at <= after[i] + SLACK_NS,
                      "event %d: %lld is outside %lld … %lld", i, (long long)at,
                      (long long)before[i], (long long)after[i]);
        ck_assert_int_ge(at, previous);
        previous = at;
    }
}
END_TEST

/* ---- what is refused ------------------------------------------------------------------------- */

static enum status run_add(enum dtype t, void *x, void *y, int64_t n)
{
    const struct op_attrs attrs = {0};
    struct op_shapes shapes = {.n_inputs = 2, .input = {{1, {n}}, {1, {n}}}};
    struct op_call c = {.kind = OP_add,
                        .dtype = t,
                        .attrs = &attrs,
                        .shapes = &shapes,
                        .input = {x, x},
                        .output = {y}};
    need(op_infer(OP_add, &attrs, &shapes, &err));
    return device.run(&device, STREAM_COMPUTE, &c, &err);
}

START_TEST(bf16_on_an_older_gpu_is_refused_by_name)
{
    void *x = NULL;
    setenv("STANDIN_CAPABILITY", "75", 1);
    begin();
    need(device.allocate(&device, 64, &x, &err));
    says(run_add(DTYPE_bf16, x, x, 8), ERR_INPUT,
         "(sm_75) does not compute in bf16; it does in fp32, fp64, fp16");
    device.release(&device, x);
    end();
}
END_TEST

START_TEST(a_kind_that_no_device_runs_alone_is_refused)
{
    const struct op_attrs attrs = {0};
    const struct op_shapes shapes = {.n_inputs = 1, .input = {{1, {4}}}};
    const struct op_call c = {
        .kind = OP_message, .dtype = DTYPE_fp32, .attrs = &attrs, .shapes = &shapes};
    says(device.run(&device, STREAM_COMPUTE, &c, &err), ERR_INPUT, "message: ");
}
END_TEST

Suite *cuda_device_suite(void)
{
    Suite *s = suite_create("cuda_device");
    TCase *closed = tcase_create("before one is open");
    tcase_add_test(closed, devices_are_counted_and_described);
    tcase_add_loop_test(closed, without_driver_or_gpu_there_is_no_device_and_its_reason, 0,
                        sizeof absences / sizeof *absences);
    tcase_add_test(closed, a_gpu_older_than_the_kernels_is_refused_by_name);
    tcase_add_test(closed, bf16_on_an_older_gpu_is_refused_by_name);
    tcase_add_test(closed, rows_are_copied_where_they_are_longer_than_copies_of_rows_may_be);
    suite_add_tcase(s, closed);
    TCase *open = tcase_create("open");
    tcase_add_checked_fixture(open, begin, end);
    tcase_add_test(open, memory_begins_as_zeros_and_is_aligned);
    tcase_add_test(open, what_goes_up_comes_down);
    tcase_add_test(open, too_much_memory_is_refused_with_what_is_left);
    tcase_add_test(open, events_order_streams);
    tcase_add_test(open, an_event_that_was_never_recorded_is_done_and_holds_nobody_up);
    tcase_add_test(open, rows_are_copied_between_strides);
    tcase_add_test(open, events_tell_the_hosts_time);
    tcase_add_test(open, a_kind_that_no_device_runs_alone_is_refused);
    suite_add_tcase(s, open);
    return s;
}
