/* CUPTI records on the stand-in: they have the id that their thread had entered and instants of CLOCK_MONOTONIC; lost
 * records are counted; each CUPTI call fails once and is reported. Whole runs: test_activity_run.c. */
#include "core/base/rng.h"
#include "exec/activity.h"
#include "exec/clock.h"
#include "exec/kernel_name.h"
#include "exec/plugin.h"

#include "tests/standin/activity.h"
#include "tests/standin/standin.h"
#include "tests/support/activity.h"
#include "tests/support/suites.h"

#include <unistd.h>

static struct error err;

static void need(enum status st) { ck_assert_msg(st == OK, "%s", err.text); }

/* ---- names ------------------------------------------------------------------------------------ */

static void called(const char *symbol, const char *wanted)
{
    char out[KERNEL_NAME_MAX];
    ck_assert_str_eq(kernel_name(symbol, out, sizeof out), wanted);
}

START_TEST(a_symbol_is_told_by_its_name_and_what_is_plain_of_its_arguments)
{
    called("_Z4rowsIfLi4EEvPKf", "rows<float, 4>");
    called("_Z4rowsI13__nv_bfloat166__halfLb1ELin2EEvv", "rows<__nv_bfloat16, __half, true, -2>");
    called("_Z11row_kernelsI7of_biasIfEEv12row_operandsIT_Ellb", "row_kernels<of_bias<float>>");
    called("_ZN7cutlass7Kernel2I5tilesEEvNT_6ParamsE", "cutlass::Kernel2<tiles>");
    called("_ZN42_GLOBAL__N__0123abcd_4_k_cu_0123abcd_123454plusEv", "plus");
    called("_ZL4copyPf", "copy");
    called("_Z4packIJfPKdiEEvv", "pack<float, double*, int>");
    called("_Z4kindIL3way2EEvv", "kind<way 2>");
    called("sm90_xmma_gemm_bf16_tn", "sm90_xmma_gemm_bf16_tn");
    called("(rows<T, 4>)", "rows<T, 4>");
}
END_TEST

START_TEST(what_is_not_plain_is_left_and_what_is_no_symbol_is_told_as_it_is)
{
    called("_Z4castI6__halfS0_EvPKT_PT0_l", "cast<__half, ...");
    called("_Z99short", "_Z99short");
    called("_Z", "_Z");
    called("_ZN", "_ZN");
    called("_Z0", "_Z0");
    called("", "");
    called("a\x1b[2J", "a?[2J");
    char out[8];
    ck_assert_str_eq(kernel_name("_Z15a_long_one_trulyv", out, sizeof out), "a_long_");
}
END_TEST

/* Whatever bytes come: an end inside `out`, printable. */
START_TEST(any_text_ends_in_a_name)
{
    static const char letters[] = "_ZNILEJKPSf0123456789bad";
    for (uint64_t k = 0; k < 20000; k++) {
        char symbol[48] = "_Z", out[24];
        size_t n = 2 + (size_t)rng_below(7, 1, k, 44);
        for (size_t i = 2; i < n; i++)
            symbol[i] = letters[rng_below(7, 2, k * 64 + i, sizeof letters - 1)];
        symbol[n] = 0;
        memset(out, 'x', sizeof out);
        kernel_name(symbol, out, sizeof out);
        ck_assert_uint_lt(strnlen(out, sizeof out), sizeof out);
        ck_assert(out[0] != 0);
    }
}
END_TEST

/* ---- the plugin's file ------------------------------------------------------------------------ */

static void refused(const char *text)
{
    const struct activity *a = NULL;
    err = (struct error){0};
    ck_assert_int_eq(activity_plugin("cupti", &a, &err), ERR_NO_DEVICE);
    ck_assert_ptr_null(a);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
}

START_TEST(a_cupti_plugin_that_is_not_there_or_is_another_is_refused_with_why)
{
    setenv("MUSHER_CUPTI_PLUGIN", "/nowhere/libmusher_cupti.so", 1);
    refused("no CUPTI plugin: MUSHER_CUPTI_PLUGIN names /nowhere/libmusher_cupti.so");
    setenv("MUSHER_CUPTI_PLUGIN", "Makefile", 1);
    refused("(is CUPTI installed here?)");
    activity_choose("MUSHER_CUPTI_PLUGIN", "tests/plugins/no_entry.so");
    refused("does not export musher_activity");
    activity_choose("MUSHER_CUPTI_PLUGIN", "tests/plugins/old_activity.so");
    refused("has ABI 99, this program 1");
    activity_choose("MUSHER_CUPTI_PLUGIN", "tests/plugins/other_activity.so");
    refused("has other record sizes than this program");
    unsetenv("MUSHER_CUPTI_PLUGIN");
    refused("libmusher_cupti.so is neither beside this program nor in ../lib/musher; `make` builds");
}
END_TEST

/* The one that ships, where this build has it: on a machine without a driver CUPTI says why it has nothing to tell. `make tests` builds it
 * where it can be built, so one of other sources is not of this build. */
START_TEST(the_real_plugin_opens_a_session_or_says_why_there_is_none)
{
    const char *b = getenv("BUILD");
    char path[PATH_MAX];
    const struct activity *a = NULL;
    struct activity_log log;
    snprintf(path, sizeof path, "%s/libmusher_cupti.so", b && *b ? b : "build");
    if (access(path, R_OK)) {
        printf("not tried: the real CUPTI plugin: this build has none (no nvcc, no CUPTI, or a sanitizer)\n");
        return;
    }
    activity_choose("MUSHER_CUPTI_PLUGIN", "libmusher_cupti.so");
    enum status st = activity_plugin("cupti", &a, &err);
    ck_assert_msg(st == OK, "%s is not what these sources make; make it again, or remove it where it cannot be made: %s", path,
                  err.text);
    st = a->open(&err);
    if (st != OK) {
        ck_assert_int_eq(st, ERR_RESOURCE);
        ck_assert_msg(strstr(err.text, "kernels cannot be traced: cupti") != NULL, "%s", err.text);
        return;
    }
    need(a->collect(&log, &err));
    a->close();
}
END_TEST

/* ---- a session -------------------------------------------------------------------------------- */

enum { N = 600, ADDS = 40 };

static const struct activity *activity;
static struct backend device;

static void open_all(void)
{
    activity_choose_standins();
    need(activity_plugin("cupti", &activity, &err));
    need(plugin_open_backend("cuda", &device, &err));
}

static enum status add(float *x)
{
    const struct op_attrs attrs = {0};
    struct op_shapes shapes = {.n_inputs = 2, .input = {{2, {1, N}}, {2, {1, N}}}};
    struct op_call c = {.kind = OP_add,
                        .dtype = DTYPE_fp32,
                        .attrs = &attrs,
                        .shapes = &shapes,
                        .input = {x, x},
                        .output = {x + N}};
    TRY(op_infer(OP_add, &attrs, &shapes, &err));
    return device.run(&device, STREAM_COMPUTE, &c, &err);
}

/* Additions 1 … ADDS, each under its number, and one copy under none. */
static enum status work(float *x)
{
    float host[N] = {1};
    TRY(device.upload(&device, x, host, sizeof host, &err));
    for (uint64_t i = 1; i <= ADDS; i++) {
        TRY(activity->enter(i, &err));
        TRY(add(x));
        TRY(activity->leave(&err));
    }
    return device.finish(&device, &err);
}

static enum status on_device(struct activity_log *log)
{
    void *memory = NULL;
    TRY(device.open(&device, 0, &err));
    enum status st = device.allocate(&device, 2 * N * (int64_t)sizeof(float), &memory, &err);
    if (st == OK) st = work(memory);
    if (st == OK) st = activity->collect(log, &err);
    device.release(&device, memory);
    device.close(&device);
    return st;
}

/* The log is the session's, which the caller closes. */
static enum status session(struct activity_log *log)
{
    *log = (struct activity_log){0};
    err = (struct error){0};
    TRY(activity->open(&err));
    return on_device(log);
}

static size_t kernels_under(const struct activity_log *log, uint64_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < log->n; i++)
        n += log->records[i].under == id && strstr(log->records[i].name, "kernel") != NULL;
    return n;
}

static const struct activity_record *named(const struct activity_log *log, const char *name,
                                           int64_t bytes)
{
    for (size_t i = 0; i < log->n; i++)
        if (!strcmp(log->records[i].name, name) && log->records[i].bytes == bytes)
            return &log->records[i];
    return NULL;
}

START_TEST(what_is_asked_between_enter_and_leave_comes_back_under_its_number)
{
    struct activity_log log;
    open_all();
    int64_t before = clock_wall_ns(), end = before;
    need(session(&log));
    int64_t after = clock_wall_ns();
    for (uint64_t id = 1; id <= ADDS; id++) ck_assert_uint_eq(kernels_under(&log, id), 1);
    for (size_t i = 0; i < log.n; i++) {
        const struct activity_record *r = &log.records[i];
        ck_assert_int_ge(r->begin_ns, before);
        ck_assert_int_ge(r->end_ns, r->begin_ns);
        ck_assert_int_le(r->end_ns, after);
        ck_assert_uint_le(r->under, ADDS);
        if (r->under) ck_assert_int_ge(r->begin_ns, end);
        if (r->under) end = r->end_ns; /* one stream */
    }
    ck_assert_int_eq(log.lost, 0);
    activity->close();
}
END_TEST

START_TEST(copies_and_fills_are_told_with_their_bytes)
{
    struct activity_log log;
    open_all();
    need(session(&log));
    const struct activity_record *up = named(&log, "copy to device", N * sizeof(float)),
                                 *fill = named(&log, "fill", 2 * N * sizeof(float));
    ck_assert_ptr_nonnull(up);
    ck_assert_ptr_nonnull(fill);
    ck_assert(up->under == 0 && fill->under == 0);
    activity->close();
}
END_TEST

/* 512 bytes hold two records of kernels: most buffers come back full, on another thread than those that launch. */
START_TEST(however_small_buffers_are_nothing_is_lost)
{
    struct activity_log log;
    setenv("STANDIN_CUPTI_BUFFER", "512", 1);
    open_all();
    for (int turn = 0; turn < 3; turn++) {
        need(session(&log));
        for (uint64_t id = 1; id <= ADDS; id++) ck_assert_uint_eq(kernels_under(&log, id), 1);
        ck_assert_int_eq(log.lost, 0);
        activity->close();
    }
}
END_TEST

/* A buffer that no record fits into is as good as none. */
START_TEST(records_that_find_no_room_are_counted)
{
    struct activity_log log;
    setenv("STANDIN_CUPTI_BUFFER", "16", 1);
    open_all();
    need(session(&log));
    ck_assert_uint_eq(log.n, 0);
    ck_assert_int_ge(log.lost, ADDS);
    activity->close();
}
END_TEST

START_TEST(what_cupti_drops_or_cannot_time_is_counted)
{
    struct activity_log log;
    setenv(_i ? "STANDIN_CUPTI_UNTIMED" : "STANDIN_CUPTI_DROP", "4", 1);
    open_all();
    need(session(&log));
    size_t there = 0;
    for (uint64_t id = 1; id <= ADDS; id++) there += kernels_under(&log, id);
    ck_assert_int_eq(log.lost, ADDS / 4);
    ck_assert_uint_eq(there, ADDS - ADDS / 4);
    activity->close();
}
END_TEST

START_TEST(every_single_call_of_cupti_that_fails_is_told_and_leaves_nothing)
{
    struct activity_log log;
    char left[200], call[64];
    int64_t n = 0, told = 0;
    open_all();
    for (;;) {
        standin_cupti_fail_at(++n, 999);
        enum status st = session(&log);
        bool ended = st == OK && !standin_cupti_failed_call();
        activity->close();
        const char *failed = standin_cupti_failed_call();
        snprintf(call, sizeof call, "%s", failed ? failed : "");
        standin_cupti_fail_at(0, 0);
        ck_assert_msg(standin_left(left, sizeof left) == 0, "%s: not given back: %s", call, left);
        if (!*call) break;
        if (ended || activity_may_pass(call, st)) continue;
        ck_assert_msg(st == ERR_RESOURCE, "%s: status %d", call, (int)st);
        ck_assert_msg(strstr(err.text, call) && strstr(err.text, "CUPTI_ERROR_UNKNOWN (999)"),
                      "%s: %s", call, err.text);
        told++;
    }
    /* two registrations, six kinds, both ends of every addition, a flush, a buffer's first record and its count of dropped ones */
    ck_assert_int_ge(told, 2 + 6 + 2 * ADDS + 1 + 2);
    need(session(&log));
    ck_assert_uint_eq(kernels_under(&log, ADDS), 1);
    activity->close();
}
END_TEST

START_TEST(a_driver_that_forbids_it_is_told_with_what_would_allow_it)
{
    struct activity_log log;
    open_all();
    standin_cupti_fail_at(3, 35);
    ck_assert_int_eq(session(&log), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35); "
                                   "the driver lets only administrators profile") != NULL,
                  "%s", err.text);
    standin_cupti_fail_at(4, 39);
    ck_assert_int_eq(session(&log), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "another profiler") != NULL, "%s", err.text);
}
END_TEST

Suite *activity_suite(void)
{
    Suite *s = suite_create("activity");
    TCase *c = tcase_create("kernels of a device");
    tcase_add_test(c, a_symbol_is_told_by_its_name_and_what_is_plain_of_its_arguments);
    tcase_add_test(c, what_is_not_plain_is_left_and_what_is_no_symbol_is_told_as_it_is);
    tcase_add_test(c, any_text_ends_in_a_name);
    tcase_add_test(c, a_cupti_plugin_that_is_not_there_or_is_another_is_refused_with_why);
    tcase_add_test(c, the_real_plugin_opens_a_session_or_says_why_there_is_none);
    tcase_add_test(c, what_is_asked_between_enter_and_leave_comes_back_under_its_number);
    tcase_add_test(c, copies_and_fills_are_told_with_their_bytes);
    tcase_add_test(c, however_small_buffers_are_nothing_is_lost);
    tcase_add_test(c, records_that_find_no_room_are_counted);
    tcase_add_loop_test(c, what_cupti_drops_or_cannot_time_is_counted, 0, 2);
    tcase_add_test(c, every_single_call_of_cupti_that_fails_is_told_and_leaves_nothing);
    tcase_add_test(c, a_driver_that_forbids_it_is_told_with_what_would_allow_it);
    suite_add_tcase(s, c);
    return s;
}
