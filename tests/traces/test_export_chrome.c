/* The Chrome export: threads that nest, arrows with both ends, steps. */
#include "traces/export_chrome.h"

#include "core/document/document.h"
#include "tests/support/suites.h"
#include "tests/support/traces.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static struct error err;
static char folder[] = "/tmp/musher-trace-XXXXXX", file_a[64];

static void set_up(void)
{
    a = arena_new();
    memcpy(strrchr(folder, '-') + 1, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file_a, sizeof file_a, "%s/a", folder);
}

static void tear_down(void)
{
    unlink(file_a);
    rmdir(folder);
    arena_free(a);
}

static int64_t number(const struct node *event, const char *key, double scale)
{
    const struct node *value = NULL;
    double x = 0;
    ck_assert_int_eq(node_need(event, key, &value, &err), OK);
    ck_assert_int_eq(node_double(value, -1e18, 1e18, &x, &err), OK);
    return (int64_t)(x * scale + 0.5);
}

static bool is(const struct node *event, const char *key, const char *text)
{
    const struct node *value = node_get(event, key);
    return value && !strcmp(value->text, text);
}

static const struct node *chrome_events(struct trace *t)
{
    struct node *root = NULL;
    const struct node *list = NULL;
    ck_assert_msg(export_chrome(t, file_a, &err) == OK, "%s", err.text);
    ck_assert_msg(document_read(a, file_a, &root, &err) == OK, "%s", err.text);
    ck_assert_int_eq(node_need(root, "traceEvents", &list, &err), OK);
    return list;
}

START_TEST(messages_that_overlap_get_threads_of_their_own_in_chrome)
{
    struct trace *t = traces_empty(a, TRACE_SIM);
    trace_add(t, traces_compute(0, 'F', 0, 0, 0, 10));
    trace_add(t, traces_compute(1, 'F', 0, 0, 30, 41));
    traces_add_message(t, 0, 10, 20,
                30); /* the second one starts when the first has left, before it has arrived */
    traces_add_message(t, 1, 20, 30, 40);
    traces_add_message(t, 2, 31, 40, 50);
    trace_add(t, traces_step_end(0, 60));
    const struct node *events = chrome_events(t);
    int x = 0, arrows = 0, instants = 0, names = 0, sorts = 0;
    for (size_t i = 0; i < events->count; i++) {
        const struct node *e = events->members[i];
        names += is(e, "name", "thread_name");
        sorts += is(e, "name", "thread_sort_index") || is(e, "name", "process_sort_index");
        instants += is(e, "ph", "i");
        arrows += is(e, "ph", "s");
        if (!is(e, "ph", "X")) continue;
        x++;
        int64_t begin = number(e, "ts", 1000), end = begin + number(e, "dur", 1000);
        for (size_t k = 0; k < i; k++) {
            const struct node *f = events->members[k];
            if (!is(f, "ph", "X") || number(f, "pid", 1) != number(e, "pid", 1) ||
                number(f, "tid", 1) != number(e, "tid", 1))
                continue;
            ck_assert(number(f, "ts", 1000) >= end ||
                      number(f, "ts", 1000) + number(f, "dur", 1000) <= begin);
        }
    }
    ck_assert_int_eq(x, 8);
    ck_assert_int_eq(
        names,
        5); /* two computes, one send, two receives (the third message fits behind the first) */
    ck_assert_int_eq(sorts, 7);
    ck_assert_int_eq(arrows, 3);
    ck_assert_int_eq(instants, 1);
}
END_TEST

START_TEST(an_arrow_has_both_ends_in_chrome)
{
    struct trace *t = traces_random(a, 6, 400);
    const struct node *events = chrome_events(t);
    for (size_t i = 0; i < events->count; i++) {
        const struct node *e = events->members[i];
        if (!is(e, "ph", "s") && !is(e, "ph", "f")) continue;
        bool found = false;
        for (size_t k = 0; k < events->count && !found; k++)
            found = is(events->members[k], "ph", is(e, "ph", "s") ? "f" : "s") &&
                    number(events->members[k], "id", 1) == number(e, "id", 1);
        ck_assert(found);
    }
}
END_TEST

START_TEST(on_a_virtual_clock_a_step_ends_with_its_last_update_in_chrome)
{
    struct trace *t = traces_empty(a, "host");
    trace_add(t, traces_compute(0, 'U', 0, -1, 5, 7));
    trace_add(t, traces_compute(1, 'U', 0, -1, 5, 9));
    trace_add(t, traces_step_end(0, 123456));
    const struct node *events = chrome_events(t);
    for (size_t i = 0; i < events->count; i++)
        if (is(events->members[i], "ph", "i"))
            ck_assert_int_eq(number(events->members[i], "ts", 1000), 9);
}
END_TEST

START_TEST(a_collective_is_called_by_its_kind_in_chrome_and_names_no_link)
{
    struct trace *t = traces_empty(a, TRACE_SIM);
    struct span s = {.kind = SPAN_REDUCE,
                     .stream = STREAM_collective,
                     .peer = -1,
                     .phase = PHASE_F,
                     .collective = 1 + COLLECTIVE_ALL_TO_ALL,
                     .end_ns = 5,
                     .name = "h.0.ln_1.group_all_to_all"};
    trace_add(t, s);
    s.collective = 0, s.begin_ns = 5, s.end_ns = 7, s.name = "bus";
    trace_add(t, s);
    const struct node *events = chrome_events(t);
    int collectives = 0, sums = 0;
    for (size_t i = 0; i < events->count; i++) {
        const struct node *e = events->members[i], *args = node_get(e, "args");
        if (!is(e, "ph", "X")) continue;
        bool collective = is(e, "name", "all_to_all");
        ck_assert(is(e, "cat", collective ? "all_to_all" : "reduce"));
        ck_assert(!node_get(args, collective ? "link" : "collective"));
        ck_assert(
            is(args, collective ? "collective" : "link", collective ? "h.0.ln_1.group_all_to_all" : "bus"));
        collectives += collective, sums += !collective;
    }
    ck_assert(collectives == 1 && sums == 1);
}
END_TEST

Suite *export_chrome_suite(void)
{
    Suite *s = suite_create("export_chrome");
    TCase *c = tcase_create("export_chrome");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, messages_that_overlap_get_threads_of_their_own_in_chrome);
    tcase_add_test(c, an_arrow_has_both_ends_in_chrome);
    tcase_add_test(c, on_a_virtual_clock_a_step_ends_with_its_last_update_in_chrome);
    tcase_add_test(c, a_collective_is_called_by_its_kind_in_chrome_and_names_no_link);
    suite_add_tcase(s, c);
    return s;
}
