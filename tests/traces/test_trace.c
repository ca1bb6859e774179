/* Traces: writing and reading of files, order, and the iteration. */
#include "traces/trace.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "tests/support/suites.h"
#include "tests/support/traces.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static struct error err;
static char folder[] = "/tmp/musher-trace-XXXXXX", file_a[64], file_b[64];

static void set_up(void)
{
    a = arena_new();
    memcpy(strrchr(folder, '-') + 1, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file_a, sizeof file_a, "%s/a", folder);
    snprintf(file_b, sizeof file_b, "%s/b", folder);
}

static void tear_down(void)
{
    unlink(file_a);
    unlink(file_b);
    rmdir(folder);
    arena_free(a);
}

static char *content(const char *path)
{
    char *text = NULL;
    ck_assert_msg(file_read(a, path, 1 << 26, &text, NULL, &err) == OK, "%s", err.text);
    return text;
}

static void put(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "w");
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void assert_same_span(const struct span *x, const struct span *y)
{
    ck_assert_int_eq(x->kind, y->kind);
    ck_assert_int_eq(x->stream, y->stream);
    ck_assert_int_eq(x->device, y->device);
    ck_assert_int_eq(x->peer, y->peer);
    ck_assert_int_eq(x->stage, y->stage);
    ck_assert_int_eq(x->phase, y->phase);
    ck_assert_int_eq(x->step, y->step);
    ck_assert_int_eq(x->microbatch, y->microbatch);
    ck_assert_int_eq(x->op, y->op);
    ck_assert_int_eq(x->part, y->part);
    ck_assert_int_eq(x->uneven_ppm, y->uneven_ppm);
    ck_assert_int_eq(x->begin_ns, y->begin_ns);
    ck_assert_int_eq(x->end_ns, y->end_ns);
    ck_assert_int_eq(x->bytes, y->bytes);
    ck_assert_uint_eq(x->key, y->key);
    ck_assert_str_eq(x->name, y->name);
    ck_assert_int_eq(x->collective, y->collective);
}

START_TEST(what_is_written_reads_back_the_same)
{
    struct trace *t = traces_random(a, 1, 3000), *back = NULL;
    t->plan_text = "version: 1\nname: \"x\"\n";
    t->iteration_ns = 123456789;
    t->profile_id = 7;
    t->real_time = true;
    t->devices[1].peak_bytes = INT64_MAX;
    const int64_t tokens[] = {3, 0, INT64_MAX};
    const struct trace_routing routings[] = {{0, 3, tokens}, {4, 2, tokens}};
    t->n_routings = 2, t->routings = routings;
    t->spans[5].uneven_ppm = 1, t->spans[7].uneven_ppm = INT32_MAX;
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    ck_assert_msg(trace_read(a, file_a, &back, &err) == OK, "%s", err.text);
    ck_assert_str_eq(back->source, "host");
    ck_assert_str_eq(back->plan, "a \"plan\"");
    ck_assert_str_eq(back->plan_text, t->plan_text);
    ck_assert_uint_eq(back->plan_hash, 0xfedcba9876543210);
    ck_assert_int_eq(back->profile_id, 7);
    ck_assert(back->emulated && back->real_time);
    ck_assert_str_eq(back->clock, "virtual");
    ck_assert_int_eq(back->iteration_ns, 123456789);
    ck_assert_int_eq(back->steps, 3);
    ck_assert_int_eq(back->n_stages, 2);
    ck_assert_int_eq(back->n_devices, 2);
    ck_assert_str_eq(back->devices[1].type, "slow");
    ck_assert_double_eq(back->devices[0].slowdown, 1.5);
    ck_assert_int_eq(back->devices[1].peak_bytes, INT64_MAX);
    ck_assert_int_eq(back->n_routings, 2);
    ck_assert(back->routings[1].block == 4 && back->routings[1].n_experts == 2 && back->routings[1].tokens[0] == 3);
    ck_assert_int_eq(back->routings[0].tokens[2], INT64_MAX);
    ck_assert_uint_eq(back->n_spans, 3000);
    trace_sort(t);
    for (size_t i = 0; i < t->n_spans; i++) assert_same_span(&t->spans[i], &back->spans[i]);
    ck_assert_int_eq(trace_write(back, file_b, &err), OK);
    ck_assert_str_eq(content(file_a), content(file_b));
}
END_TEST

START_TEST(a_compressed_file_reads_back_the_same_and_a_broken_one_is_refused)
{
    struct trace *t = traces_random(a, 1, 3000), *back = NULL;
    const char *packed = arena_printf(a, "%s.gz", file_a);
    t->devices[1].stands_for = 3, t->devices[1].alike = "n[0,2].0, m.1", t->equal_shape = true;
    ck_assert_int_eq(trace_write(t, packed, &err), OK);
    ck_assert_msg(trace_read(a, packed, &back, &err) == OK, "%s", err.text);
    ck_assert(trace_folded(back) && back->devices[1].stands_for == 3 && back->equal_shape);
    ck_assert_int_eq(trace_weight(back, 0) + trace_weight(back, 1), 4);
    ck_assert_str_eq(back->devices[1].alike, "n[0,2].0, m.1");
    ck_assert_int_eq(trace_write(back, file_b, &err), OK);
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    ck_assert_str_eq(content(file_a), content(file_b));
    FILE *f = fopen(packed, "rb");
    ck_assert_ptr_nonnull(f);
    char *bytes = arena_alloc(a, 1 << 20, 1);
    size_t n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    ck_assert_uint_lt(n, strlen(content(file_a)) / 3);
    for (size_t cut = 2; cut < n; cut += 97) {
        put(file_b, bytes, cut);
        ck_assert_int_eq(trace_read(a, file_b, &back, &err), ERR_INPUT);
    }
    remove(packed);
}
END_TEST

START_TEST(of_some_devices_the_others_are_left_out)
{
    struct trace *t = traces_random(a, 1, 300);
    size_t own = 0;
    trace_sort(t);
    for (size_t i = 0; i < t->n_spans; i++)
        own += t->spans[i].kind == SPAN_STEP || (t->spans[i].device == 1 && t->spans[i].peer < 0);
    trace_keep_devices(t, (const bool[]){false, true});
    ck_assert_int_eq(t->n_devices, 1);
    ck_assert_str_eq(t->devices[0].type, "slow");
    for (size_t i = 0; i < t->n_spans; i++) ck_assert_int_eq(t->spans[i].device, 0);
    ck_assert_uint_ge(t->n_spans, own);
    ck_assert(trace_sorted(t));
}
END_TEST

/* The same file through the disk, of all devices and of some. */
START_TEST(spans_on_disk_come_in_the_same_order)
{
    const bool some[2][2] = {{true, true}, {false, true}};
    for (size_t window = 1; window < 5000; window *= 7)
        for (int k = 0; k < 2; k++) {
            struct trace *t = traces_random(a, window, 3000), *s = traces_empty(a, "host");
            trace_stream(s, file_b, window);
            for (size_t i = 0; i < t->n_spans; i++) {
                if (t->spans[i].kind == SPAN_STEP) t->spans[i].kind = SPAN_COMPUTE;
                trace_add(s, t->spans[i]);
            }
            ck_assert_uint_le(s->n_spans, window);
            trace_keep_devices(t, some[k]);
            trace_keep_devices(s, some[k]);
            ck_assert_int_eq(trace_write(t, file_a, &err), OK);
            ck_assert_msg(trace_write(s, file_b, &err) == OK, "%s", err.text);
            trace_stream_end(s);
            ck_assert_str_eq(content(file_a), content(file_b));
        }
}
END_TEST

START_TEST(a_collective_is_its_kinds_name_and_everything_else_says_nothing_of_it)
{
    struct trace *t = traces_random(a, 1, 10), *back = NULL;
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    ck_assert_ptr_null(strstr(content(file_a), "\"collective\":"));
    for (int32_t k = 0; k < COLLECTIVE_CALL_KINDS; k++) {
        trace_add(t, (struct span){.kind = SPAN_REDUCE,
                                   .stream = STREAM_collective,
                                   .peer = -1,
                                   .phase = PHASE_F,
                                   .collective = 1 + k,
                                   .name = "h.0.ln_1.group"});
        ck_assert_str_eq(span_title(&t->spans[t->n_spans - 1]),
                         collective_kind_word((enum collective_kind)k));
    }
    trace_sort(t);
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    ck_assert_ptr_nonnull(strstr(content(file_a), "\"collective\":\"all_to_all\""));
    ck_assert_msg(trace_read(a, file_a, &back, &err) == OK, "%s", err.text);
    for (size_t i = 0; i < t->n_spans; i++) assert_same_span(&t->spans[i], &back->spans[i]);
}
END_TEST

START_TEST(equal_names_are_one_copy)
{
    struct trace *t = traces_random(a, 2, 500), *back = NULL;
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    ck_assert_int_eq(trace_read(a, file_a, &back, &err), OK);
    for (size_t i = 1; i < back->n_spans; i++)
        if (!strcmp(back->spans[i].name, back->spans[0].name))
            ck_assert_ptr_eq(back->spans[i].name, back->spans[0].name);
}
END_TEST

START_TEST(sorting_keeps_the_order_of_equals)
{
    struct trace *t = traces_empty(a, TRACE_SIM);
    for (int32_t i = 0; i < 4000; i++) trace_add(t, traces_compute(i % 2, 'F', 0, i, i % 7, 10));
    trace_sort(t);
    ck_assert(trace_sorted(t));
    for (size_t i = 1; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i - 1], *y = &t->spans[i];
        if (x->device == y->device && x->begin_ns == y->begin_ns)
            ck_assert_int_lt(x->microbatch, y->microbatch);
    }
}
END_TEST

START_TEST(the_clock_tells_which_machine_wrote)
{
    ck_assert_str_eq(traces_empty(a, TRACE_SIM)->clock, "simulated");
    ck_assert_str_eq(traces_empty(a, "host")->clock, "virtual");
    struct program real = {.name = "p"};
    ck_assert_str_eq(trace_new(a, "cuda", &real)->clock, "wall");
}
END_TEST

/* Ends in any order; -1 ends the list. */
static const struct {
    int64_t ends[8], iteration;
} iterations[] = {
    {{-1}, 0},
    {{70, -1}, 70},
    {{100, 130, -1}, 30},
    {{500, 530, 560, 600, -1}, 30},           /* 30 30 40 */
    {{500, 520, 550, -1}, 25},                /* 20 30 */
    {{1000, 1010, 1500, 1510, 1521, -1}, 10}, /* 10 490 10 11: (10 + 11) / 2, rounded down */
};
START_TEST(the_iteration_is_the_median_of_the_steps_after_the_first)
{
    struct trace *t = traces_empty(a, "host");
    int n = 0;
    while (iterations[_i].ends[n] >= 0) n++;
    for (int s = n; s-- > 0;)
        trace_add(t,
                  traces_step_end(s + 3, iterations[_i].ends[s])); /* a resumed run starts at 3 */
    trace_add(t, traces_compute(0, 'F', 0, 0, 0, 100000));
    ck_assert_int_eq(trace_iteration(t), iterations[_i].iteration);
}
END_TEST

START_TEST(of_a_step_told_twice_the_later_end_counts)
{
    struct trace *t = traces_empty(a, "host");
    trace_add(t, traces_step_end(0, 100));
    trace_add(t, traces_step_end(1, 150));
    trace_add(t, traces_step_end(1, 140));
    ck_assert_int_eq(trace_iteration(t), 50);
}
END_TEST

/* --- bad files ------------------------------------------------------------------------------- */

#define HEAD                                                                                       \
    "{\"schema\":1,\"kind\":\"musher-trace\",\"source\":\"sim\",\"plan\":\"p\",\"plan_hash\":"     \
    "\"00000000000000ff\",\"clock\":\"simulated\","
#define DEVICES "\"devices\":[{\"id\":\"d\",\"type\":\"t\",\"slowdown\":0,\"peak_bytes\":0}]"
#define HEADER HEAD "\"iteration_ns\":1,\"steps\":1,\"stages\":1,\"spans\":1," DEVICES "}\n"
#define SPAN                                                                                       \
    "{\"kind\":\"compute\",\"stream\":\"compute\",\"device\":0,\"stage\":0,\"phase\":\"F\","      \
    "\"step\":0,\"microbatch\":0,\"op\":0,\"begin_ns\":1,\"end_ns\":2,\"name\":\"add\"}\n"
#define REST ",\"phase\":\"F\",\"step\":0,\"microbatch\":0,\"op\":0,\"name\":\"add\"}\n"
#define PLACE "{\"kind\":\"compute\",\"stream\":\"compute\",\"device\":0,\"stage\":0"

static const struct {
    const char *text, *message;
} bad[] = {
    {"", "the file is empty"},
    {"hello\n", ":1: not a musher trace"},
    {"{\"schema\":1}\n", ":1: not a musher trace (no kind"},
    {"{\"schema\":1,\n", ":1:"},
    {"{\"schema\":3,\"kind\":\"musher-trace\",\"news\":1}\n", ":1: schema 3 of traces is unknown"},
    {HEAD "\"iteration_ns\":-1,\"steps\":1,\"stages\":1,\"spans\":0," DEVICES "}\n",
     ":1: iteration_ns"},
    {HEAD "\"iteration_ns\":1,\"steps\":1,\"stages\":1,\"spans\":0,\"extra\":1," DEVICES "}\n",
     "extra"},
    {HEAD "\"iteration_ns\":1,\"steps\":1,\"stages\":1,\"spans\":0}\n",
     "the key 'devices' is missing"},
    {HEADER, ":1: the file ends after 0 spans of the 1"},
    {HEADER SPAN SPAN, ":3: the file ends after 2 spans of the 1"},
    {HEADER HEADER, ":2: a second header"},
    {HEADER "\n", ":2: the line ends where a span"},
    {HEADER "[]\n", ":2: column 1: a span"},
    {HEADER "{\"kind\":\"compute\"}\n", ":2: the key 'stream' is missing"},
    {HEADER PLACE ",\"begin_ns\":5,\"end_ns\":4" REST,
     ":2: the span ends (4 ns) before it begins (5 ns)"},
    {HEADER PLACE ",\"begin_ns\":-5,\"end_ns\":4" REST, ":2: begin_ns -5 is outside 0"},
    {HEADER PLACE ",\"begin_ns\":1.5,\"end_ns\":4" REST, ":2: column"},
    {HEADER PLACE ",\"begin_ns\":9223372036854775808,\"end_ns\":4" REST, "an integer of 64 bits"},
    {HEADER PLACE ",\"begin_ns\":01,\"end_ns\":4" REST, "an integer"},
    {HEADER PLACE ",\"begin_ns\":1,\"begin_ns\":1,\"end_ns\":4" REST,
     "the key 'begin_ns' is given twice"},
    {HEADER PLACE ",\"begin_ns\":1,\"end_ns\":4,\"colour\":4" REST, "unknown key 'colour'"},
    {HEADER "{\"kind\":\"compute\",\"stream\":\"compute\",\"device\":1,\"stage\":0,\"begin_ns\":1,"
            "\"end_ns\":2" REST,
     ":2: device 1 is outside 0 ... 0"},
    {HEADER "{\"kind\":\"dance\",\"stream\":\"compute\",\"device\":0,\"stage\":0,\"begin_ns\":1,"
            "\"end_ns\":2" REST,
     "unknown kind 'dance'"},
    {HEADER "{\"kind\":\"compute\",\"stream\":\"river\",\"device\":0,\"stage\":0,\"begin_ns\":1,"
            "\"end_ns\":2" REST,
     "unknown stream 'river'"},
    {HEADER PLACE ",\"begin_ns\":1,\"end_ns\":4,\"peer\":1" REST, "peer 1 is outside -1 ... 0"},
    {HEADER PLACE ",\"begin_ns\":1,\"end_ns\":4,\"key\":\"ABC\"" REST, "16 hexadecimal digits"},
    {HEADER PLACE ",\"begin_ns\":1,\"end_ns\":4" REST "x", ":3: the last line has no end"},
    {HEADER "{\"kind\":\"compute\",\"stream\":\"compute\",\"device\":0,\"stage\":-1,\"begin_ns\":1,"
            "\"end_ns\":2" REST,
     "has no stage"},
    {HEADER "{\"name\":\"\xff\"}\n", "printable UTF-8"},
    {HEADER "{\"name\":\"\\x\"}\n", ":2: name"},
    {HEADER "{\"name\":\"a\x7f\"}\n", ":2: column 11: a printable UTF-8"},
    {HEADER "{\"name\":\"\xc2\x9b\"}\n", ":2: column 10: a printable UTF-8"},
    {HEADER "{\"name\":\"\xe2\x80\xae\"}\n", ":2: column 10: a printable UTF-8"},
    {HEADER "{\"name\":\"\\u001b[2J\"}\n", ":2: name: [0]: must not contain control characters"},
    {HEADER "{\"kind\":\"\\u001b\"}\n", ":2: unknown kind"},
    {HEAD "\"iteration_ns\":1,\"steps\":1,\"stages\":1,\"spans\":0,\"devices\":[{\"id\":"
          "\"a\\u0007\",\"type\":"
          "\"t\"}]}\n",
     ":1: devices[0].id: must not contain control characters (found one at byte 2)"},
    {HEAD "\"iteration_ns\":1,\"steps\":1,\"stages\":1,\"spans\":0,\"devices\":[{\"id\":\"a\","
          "\"type\":\"\\n\"}]}\n",
     ":1: devices[0].type: must not contain control characters"},
    {"{\"schema\":1,\"kind\":\"musher-trace\",\"source\":\"sim\",\"plan\":\"\\u202e\",\"clock\":"
     "\"wall\"}\n",
     ":1: plan: must not contain control characters"},
};
START_TEST(a_malformed_file_is_refused_with_its_line)
{
    struct trace *t = NULL;
    put(file_a, bad[_i].text, strlen(bad[_i].text));
    ck_assert_int_eq(trace_read(a, file_a, &t, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad[_i].message) != NULL, "'%s' does not say '%s'", err.text,
                  bad[_i].message);
    ck_assert_msg(strstr(err.text, file_a) != NULL, "'%s' does not name the file", err.text);
    ck_assert_int_eq(trace_read(a, file_a, &t, NULL), ERR_INPUT);
}
END_TEST

START_TEST(fields_come_in_any_order_and_with_spaces)
{
    static const char text[] = HEADER "{ \"name\" : \"a\\u00e9\\\"\" ,\t\"end_ns\": 2, "
                                      "\"begin_ns\": 1, \"op\": 0, \"microbatch\": -1, \"step\": 0,"
                                      "\"phase\":\"U\",\"stage\":0,\"device\":0,\"stream\":"
                                      "\"compute\",\"kind\":\"compute\" } \r\n";
    struct trace *t = NULL;
    put(file_a, text, sizeof text - 1);
    ck_assert_msg(trace_read(a, file_a, &t, &err) == OK, "%s", err.text);
    ck_assert_str_eq(t->spans[0].name, "a\xc3\xa9\"");
    ck_assert_int_eq(t->spans[0].peer, -1);
    ck_assert_int_eq(t->spans[0].microbatch, -1);
}
END_TEST

START_TEST(a_file_cut_anywhere_is_refused)
{
    struct trace *t = traces_random(a, 3, 6), *back = NULL;
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    char *text = content(file_a);
    size_t n = strlen(text);
    for (size_t cut = 0; cut < n; cut++) {
        put(file_b, text, cut);
        ck_assert_int_eq(trace_read(a, file_b, &back, &err), ERR_INPUT);
    }
}
END_TEST

START_TEST(a_file_with_changed_bytes_never_breaks_the_reader)
{
    struct trace *t = traces_random(a, 4, 8), *back = NULL;
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    char *text = content(file_a);
    size_t n = strlen(text);
    uint64_t rounds = suites_long() ? 20000 : 1500;
    for (uint64_t i = 0; i < rounds; i++) {
        char *copy = arena_strndup(a, text, n);
        for (uint64_t k = 0; k <= rng_below(5, 1, i, 3); k++)
            copy[rng_below(5, 2 + k, i, n)] = (char)rng_below(5, 9 + k, i, 256);
        put(file_b, copy, n);
        enum status st = trace_read(a, file_b, &back, &err);
        ck_assert(st == OK || st == ERR_INPUT);
        if (st == OK) ck_assert_uint_eq(back->n_spans, 8);
    }
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    struct trace *t = NULL;
    ck_assert_int_eq(trace_read(a, folder, &t, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "a folder"));
    ck_assert_int_eq(trace_read(a, "/nowhere/at/all", &t, &err), ERR_INPUT);
    ck_assert_int_eq(trace_write(traces_empty(a, TRACE_SIM), "/nowhere/at/all", &err),
                     ERR_RESOURCE);
}
END_TEST

START_TEST(a_line_longer_than_the_buffer_is_read)
{
    struct trace *t = traces_empty(a, TRACE_SIM), *back = NULL;
    char *plan = arena_alloc(a, 3000001, 1);
    memset(plan, 'x', 3000000);
    t->plan_text = plan;
    trace_add(t, traces_compute(0, 'F', 0, 0, 1, 2));
    ck_assert_int_eq(trace_write(t, file_a, &err), OK);
    ck_assert_msg(trace_read(a, file_a, &back, &err) == OK, "%s", err.text);
    ck_assert_str_eq(back->plan_text, plan);
    ck_assert_uint_eq(back->n_spans, 1);
}
END_TEST

Suite *trace_suite(void)
{
    Suite *s = suite_create("trace");
    TCase *c = tcase_create("trace");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, what_is_written_reads_back_the_same);
    tcase_add_test(c, a_compressed_file_reads_back_the_same_and_a_broken_one_is_refused);
    tcase_add_test(c, of_some_devices_the_others_are_left_out);
    tcase_add_test(c, spans_on_disk_come_in_the_same_order);
    tcase_add_test(c, a_collective_is_its_kinds_name_and_everything_else_says_nothing_of_it);
    tcase_add_test(c, equal_names_are_one_copy);
    tcase_add_test(c, sorting_keeps_the_order_of_equals);
    tcase_add_test(c, the_clock_tells_which_machine_wrote);
    tcase_add_loop_test(c, the_iteration_is_the_median_of_the_steps_after_the_first, 0,
                        sizeof iterations / sizeof *iterations);
    tcase_add_test(c, of_a_step_told_twice_the_later_end_counts);
    tcase_add_loop_test(c, a_malformed_file_is_refused_with_its_line, 0, sizeof bad / sizeof *bad);
    tcase_add_test(c, fields_come_in_any_order_and_with_spaces);
    tcase_add_test(c, a_file_cut_anywhere_is_refused);
    tcase_add_test(c, a_file_with_changed_bytes_never_breaks_the_reader);
    tcase_add_test(c, what_is_no_file_is_refused);
    tcase_add_test(c, a_line_longer_than_the_buffer_is_read);
    suite_add_tcase(s, c);
    return s;
}
