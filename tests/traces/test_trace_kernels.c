/* Kernels inside operators: contents of a trace of schema 2, and the breakdown of operator time, by hand and by brute force. */
#include "traces/compare.h"
#include "traces/kernels.h"
#include "traces/stats.h"

#include "tests/support/suites.h"
#include "tests/support/traces.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *arena;
static struct error err;
static char path[] = "/tmp/musher-kernels-XXXXXX";
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}
static void teardown(void)
{
    unlink(path);
    arena_free(arena);
}

/* Inside the operator, or between operators. */
static struct span kernel(const struct span *o, const char *name, int64_t begin, int64_t end)
{
    struct span s = *o;
    s.kind = SPAN_KERNEL, s.stream = STREAM_kernel, s.key = 0, s.bytes = 0;
    s.name = name, s.begin_ns = begin, s.end_ns = end;
    return s;
}

static struct span loose(int32_t device, int32_t step, const char *name, int64_t begin, int64_t end)
{
    struct span s = traces_compute(device, 'S', step, -1, begin, end);
    s.stage = -1, s.op = -1;
    return kernel(&s, name, begin, end);
}

static struct span of_kind(const char *kind, int32_t op, struct span s)
{
    s.name = kind, s.op = op;
    return s;
}

/* Step 0 is the first and does not count. Two products of 100 and 60 with kernels for 70 and 60 (of which 20 twice at a time), a norm of
 * 50 without any, a copy between. */
static struct trace *by_hand(void)
{
    struct trace *t = traces_empty(arena, "cuda");
    struct span warm = traces_compute(0, 'F', 0, 0, 0, 10),
                a = traces_compute(0, 'F', 1, 0, 100, 200),
                b = traces_compute(1, 'F', 1, 0, 300, 360),
                c = of_kind("layer_norm", 2, traces_compute(0, 'F', 1, 0, 200, 250));
    t->kernels = true;
    t->kernels_lost = 3;
    trace_add(t, warm);
    trace_add(t, kernel(&warm, "gemm", 2, 9));
    trace_add(t, a);
    trace_add(t, kernel(&a, "gemm", 120, 180));
    trace_add(t, kernel(&a, "bias", 185, 195));
    trace_add(t, b);
    trace_add(t, kernel(&b, "gemm", 300, 340));
    trace_add(t, kernel(&b, "bias", 320, 360));
    trace_add(t, c);
    trace_add(t, loose(0, 1, "copy to host", 252, 260));
    trace_add(t, traces_step_end(0, 90));
    trace_add(t, traces_step_end(1, 400));
    t->iteration_ns = 310;
    trace_sort(t);
    return t;
}

START_TEST(the_time_of_operators_is_that_of_kernels_and_that_of_none)
{
    struct kernels k;
    kernels_of_trace(arena, by_hand(), &k);
    ck_assert_int_eq(k.lost, 3);
    ck_assert_uint_eq(k.n_kinds, 3);
    const struct kernels_kind *m = &k.kinds[0], *n = &k.kinds[1], *o = &k.kinds[2];
    ck_assert_str_eq(m->kind, "matmul");
    ck_assert(m->operators == 2 && m->ns == 160 && m->kernels == 4 && m->busy_ns == 130);
    ck_assert_uint_eq(m->n_named, 2);
    ck_assert_str_eq(m->named[0].name, "gemm");
    ck_assert(m->named[0].n == 2 && m->named[0].ns == 100);
    ck_assert(m->named[1].n == 2 && m->named[1].ns == 50);
    ck_assert_str_eq(n->kind, "layer_norm");
    ck_assert(n->operators == 1 && n->ns == 50 && n->kernels == 0 && n->busy_ns == 0);
    ck_assert(!o->kind && o->kernels == 1 && o->busy_ns == 8 && o->operators == 0);
}
END_TEST

START_TEST(operators_of_devices_that_tell_no_kernels_count_where_nobody_does)
{
    struct trace *t = traces_empty(arena, "cuda");
    struct span a = traces_compute(0, 'F', 0, 0, 0, 10);
    struct kernels k;
    trace_add(t, a);
    trace_add(t, traces_compute(1, 'F', 0, 0, 0, 30));
    kernels_of_trace(arena, t, &k);
    ck_assert(k.kinds[0].operators == 2 && k.kinds[0].ns == 40);
    t->kernels = true;
    trace_add(t, kernel(&a, "gemm", 1, 9));
    kernels_of_trace(arena, t, &k);
    ck_assert(k.kinds[0].operators == 1 && k.kinds[0].ns == 10 && k.kinds[0].busy_ns == 8);
}
END_TEST

/* The clocks of events and of kernels differ by some us: kernel time is clipped to the operator's span. */
START_TEST(kernels_that_stick_out_fill_their_operator_and_no_more)
{
    struct trace *t = traces_empty(arena, "cuda");
    struct span a = traces_compute(0, 'F', 0, 0, 100, 200);
    struct kernels k;
    t->kernels = true;
    trace_add(t, a);
    trace_add(t, kernel(&a, "gemm", 95, 230));
    kernels_of_trace(arena, t, &k);
    ck_assert(k.n_kinds == 1 && k.kinds[0].busy_ns == 100 && k.kinds[0].named[0].ns == 135);
}
END_TEST

/* Operators side by side, each with kernels anywhere inside: busy is the number of instants covered by any of them. */
START_TEST(random_kernels_cover_what_counting_instants_says)
{
    enum { OPERATORS = 6, LENGTH = 40 };
    for (uint64_t k = 0; k < 200; k++) {
        struct trace *t = traces_empty(arena, "cuda");
        struct kernels x;
        int64_t busy = 0, n = 0;
        for (int32_t i = 0; i < OPERATORS; i++) {
            bool covered[LENGTH] = {false};
            struct span o =
                of_kind("add", i, traces_compute(0, 'F', 0, 0, i * LENGTH, (i + 1) * LENGTH));
            trace_add(t, o);
            for (uint64_t j = rng_below(3, k, (uint64_t)i, 5); j > 0; j--) {
                int64_t from = (int64_t)rng_below(4, k, (uint64_t)i * 8 + j, LENGTH),
                        to = from + (int64_t)rng_below(5, k, (uint64_t)i * 8 + j,
                                                       (uint64_t)(LENGTH - from) + 1);
                trace_add(t,
                          kernel(&o, j % 2 ? "odd" : "even", o.begin_ns + from, o.begin_ns + to));
                for (int64_t at = from; at < to; at++) covered[at] = true;
                n++;
            }
            for (int32_t at = 0; at < LENGTH; at++) busy += covered[at];
        }
        kernels_of_trace(arena, t, &x);
        ck_assert_uint_eq(x.n_kinds, 1);
        ck_assert(x.kinds[0].busy_ns == busy && x.kinds[0].kernels == n);
        ck_assert(x.kinds[0].ns == OPERATORS * LENGTH && x.kinds[0].operators == OPERATORS);
    }
}
END_TEST

/* ---- files ------------------------------------------------------------------------------------ */

START_TEST(a_trace_with_kernels_comes_back_as_it_was_written)
{
    struct trace *t = by_hand(), *back = NULL;
    ck_assert_msg(trace_write(t, path, &err) == OK, "%s", err.text);
    ck_assert_msg(trace_read(arena, path, &back, &err) == OK, "%s", err.text);
    ck_assert(back->kernels && back->kernels_lost == 3);
    ck_assert_uint_eq(back->n_spans, t->n_spans);
    for (size_t i = 0; i < t->n_spans; i++) {
        ck_assert_int_eq(back->spans[i].kind, t->spans[i].kind);
        ck_assert_int_eq(back->spans[i].op, t->spans[i].op);
        ck_assert_int_eq(back->spans[i].begin_ns, t->spans[i].begin_ns);
        ck_assert_str_eq(back->spans[i].name, t->spans[i].name);
    }
}
END_TEST

START_TEST(kernels_change_nothing_that_others_add_up)
{
    struct trace *t = by_hand(), *bare = by_hand();
    struct stats with, without;
    struct comparison c;
    size_t n = 0;
    for (size_t i = 0; i < bare->n_spans; i++)
        if (bare->spans[i].kind != SPAN_KERNEL) bare->spans[n++] = bare->spans[i];
    bare->n_spans = n;
    ck_assert_int_eq(trace_iteration(t), trace_iteration(bare));
    stats_of_trace(arena, t, &with);
    stats_of_trace(arena, bare, &without);
    ck_assert_mem_eq(with.devices, without.devices, 2 * sizeof *with.devices);
    ck_assert_int_eq(compare_traces(arena, bare, t, &c, &err), OK);
    ck_assert(c.only_run == 0 && c.only_sim == 0 && c.joined == 3);
}
END_TEST

/* A header that is right but for what is told, and one span. */
#define HEADER(schema, more)                                                                       \
    "{\"schema\":" schema ",\"kind\":\"musher-trace\",\"source\":\"cuda\",\"plan\":\"p\","         \
    "\"plan_hash\":\"0123456789abcdef\",\"clock\":\"wall\",\"iteration_ns\":1,\"steps\":1,"        \
    "\"stages\":1,\"spans\":1," more "\"devices\":[{\"id\":\"a\",\"type\":\"t\"}]}\n"
#define SPAN(kind, stream, stage, op)                                                              \
    "{\"kind\":\"" kind "\",\"stream\":\"" stream "\",\"device\":0,\"stage\":" stage               \
    ",\"phase\":\"F\",\"step\":0,\"microbatch\":0,\"op\":" op                                     \
    ",\"begin_ns\":0,\"end_ns\":1,\"name\":\"x\"}\n"
static const struct {
    const char *text, *message; /* NULL: it is fine */
} cases[] = {
    {HEADER("2", "\"kernels_lost\":0,") SPAN("kernel", "kernel", "0", "0"), NULL},
    {HEADER("2", "\"kernels_lost\":0,") SPAN("kernel", "kernel", "-1", "-1"), NULL},
    {HEADER("2", "\"kernels_lost\":0,") SPAN("compute", "compute", "0", "0"), NULL},
    {HEADER("1", "") SPAN("kernel", "kernel", "0", "0"),
     ":2: a kernel span in a trace of schema 1"},
    {HEADER("2", "") SPAN("kernel", "kernel", "0", "0"), "kernels_lost"},
    {HEADER("1", "\"kernels_lost\":0,") SPAN("compute", "compute", "0", "0"),
     "only schema 2 has kernels"},
    {HEADER("2", "\"kernels_lost\":-1,") SPAN("kernel", "kernel", "0", "0"), "kernels_lost"},
    {HEADER("2", "\"kernels_lost\":0,") SPAN("kernel", "kernel", "0", "-1"),
     "a stage and no operator, or no stage"},
    {HEADER("2", "\"kernels_lost\":0,") SPAN("kernel", "kernel", "-1", "3"),
     "a stage and no operator, or no stage"},
    {HEADER("2", "\"kernels_lost\":0,") SPAN("kernel", "compute", "0", "0"),
     "a kernel span on stream compute"},
    {HEADER("2", "\"kernels_lost\":0,") SPAN("compute", "kernel", "0", "0"),
     "a compute span on stream kernel"},
    {HEADER("3", "\"kernels_lost\":0,") SPAN("kernel", "kernel", "0", "0"),
     "schema 3 of traces is unknown to this version, which reads 1 and 2"},
};

START_TEST(a_file_with_kernels_where_none_may_be_is_refused)
{
    struct trace *t = NULL;
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(cases[_i].text, f);
    fclose(f);
    enum status st = trace_read(arena, path, &t, &err);
    ck_assert_msg(st == (cases[_i].message ? ERR_INPUT : OK), "%s", err.text);
    if (cases[_i].message)
        ck_assert_msg(strstr(err.text, cases[_i].message) != NULL, "'%s' is not in: %s",
                      cases[_i].message, err.text);
}
END_TEST

Suite *trace_kernels_suite(void)
{
    Suite *s = suite_create("trace_kernels");
    TCase *c = tcase_create("kernels in traces");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, the_time_of_operators_is_that_of_kernels_and_that_of_none);
    tcase_add_test(c, operators_of_devices_that_tell_no_kernels_count_where_nobody_does);
    tcase_add_test(c, kernels_that_stick_out_fill_their_operator_and_no_more);
    tcase_add_test(c, random_kernels_cover_what_counting_instants_says);
    tcase_add_test(c, a_trace_with_kernels_comes_back_as_it_was_written);
    tcase_add_test(c, kernels_change_nothing_that_others_add_up);
    tcase_add_loop_test(c, a_file_with_kernels_where_none_may_be_is_refused, 0,
                        sizeof cases / sizeof *cases);
    suite_add_tcase(s, c);
    return s;
}
