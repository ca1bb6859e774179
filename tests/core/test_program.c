/* Orders coded and walked; program files that are wrong in many ways; the token game on programs
 * that were broken by hand.
 */
#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct program *two_stages(int32_t microbatches, int32_t replicas)
{
    struct plan p = plans_new(arena, "gpt2", 1, 2 * replicas);
    for (int32_t r = 0; r < replicas; r++)
        plans_replica(arena, &p, microbatches, 2, (const int32_t[]){3, 5});
    return plans_lower(arena, &p, true);
}

/* --- orders --- */

static void expect_round_trip(const struct call *list, int64_t n)
{
    struct order o;
    struct cursor c;
    struct call x;
    int64_t i = 0;
    order_code(arena, list, n, &o);
    ck_assert_int_eq(o.n_calls, n);
    cursor_start(&c, &o);
    for (; cursor_next(&c, &x); i++) {
        ck_assert_int_lt(i, n);
        ck_assert_int_eq(x.procedure, list[i].procedure);
        ck_assert_int_eq(x.microbatch, list[i].microbatch);
        ck_assert_int_eq(x.chunk, list[i].chunk);
    }
    ck_assert_int_eq(i, n);
    ck_assert(!cursor_next(&c, &x));
}

START_TEST(what_is_coded_comes_back)
{
    struct plans_random r = {3, 0};
    struct call list[60] = {{0}};
    expect_round_trip(list, 0);
    for (int k = 0; k < 2000; k++) {
        int64_t n = plans_below(&r, 60);
        for (int64_t i = 0; i < n; i++) {
            bool go_on = i > 1 && list[i - 2].microbatch >= 0 && plans_below(&r, 4);
            if (go_on) {
                list[i] = list[i - 2];
                list[i].microbatch++;
                continue;
            }
            list[i].procedure = plans_below(&r, 3);
            list[i].microbatch = plans_below(&r, 4) - 1;
            list[i].chunk = plans_below(&r, 2);
        }
        expect_round_trip(list, n);
        if (k % 100 == 0) arena_reset(arena);
    }
}
END_TEST

static void expect_reported(const struct program *p, int32_t device, const char *text)
{
    ck_assert_str_eq(program_device_label(p, device).text, text);
}

START_TEST(devices_are_told_with_their_hosts_where_there_are_several)
{
    struct program_device d[] = {
        {.name = "a.0", .host = "h"}, {.name = "a.1", .host = "h"}, {.name = "b.0", .host = "h"}};
    struct program p = {.devices = d, .n_devices = 2};
    expect_reported(&p, 1, "a.1");
    p.n_devices = 3;
    expect_reported(&p, 2, "b.0");
    d[2].host = "k";
    expect_reported(&p, 0, "a.0 on h");
    expect_reported(&p, 2, "b.0 on k");
    d[1].host = NULL;
    expect_reported(&p, 1, "a.1");
}
END_TEST

START_TEST(updates_never_count_up)
{
    struct call list[] = {{2, -1, 0}, {2, -1, 1}, {0, 0, 0}, {2, -1, 0}, {0, 1, 1}, {2, -1, 0}};
    expect_round_trip(list, 6);
}
END_TEST

START_TEST(chunks_cover_all_elements)
{
    struct collective g = {.n_members = 4, .elements = 10};
    static const int64_t ends[] = {0, 2, 5, 7, 10}; /* c * 10 / 4 */
    for (int32_t c = 0; c < 4; c++) {
        int64_t first, last;
        collective_chunk(&g, c, &first, &last);
        ck_assert_int_eq(first, ends[c]);
        ck_assert_int_eq(last, ends[c + 1]);
    }
}
END_TEST

/* --- files --- */

static char *replaced(const char *text, const char *what, const char *by)
{
    const char *at = strstr(text, what);
    ck_assert_msg(at != NULL, "the text has no '%s'", what);
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, by, at + strlen(what));
}

static const struct {
    const char *what, *by, *message;
} hostile[] = {
    {"musher-program 14", "musher-program 2",
     "x:1: program version 2; this musher reads version 14: lower the plan again"},
    {"musher-program 14", "musher-program 99", "x:1: program version 99"},
    {"musher-program", "another-program", "x:1: 'musher-program' was expected"},
    {"counts 2", "counts 99999999999", "x:4: "},
    {"counts 2", "counts -1", "x:4: "},
    {"counts 2", "counts 3", ""},
    {"fp32 0 0 1", "fp99 0 0 1", "x:2: unknown dtype 'fp99'"},
    {"optimizer adamw", "optimizer none", "x:3: unknown word 'none'"},
    {"0.999", "nan", "x:3: 'nan' is not a number"},
    {"host 0 0 0", "host 0 0 -1", "x:5: "},
    {"device a.0", "device a%00", "x:5: a name with a byte"},
    {"device a.0", "device a%zz", "x:5: a name with a byte"},
    {"device a.1", "device", "x:6: "},
    {"link bus", "link bus bus", "x:7: "},
    {"stage 0 0 0 0 3 4", "stage 0 0 1 0 3 4", "x:5: device a.0: its lane"},
    {"stage 0 0 0 0 3 4", "stage 0 0 0 0 3 5", "x:8: 5 is not from 1 to 4"},
    {"gradient fp32 -1 0 ", "gradient fp32 -1 32 ", "outside of its region"},
    {"gradient fp32 -1 0 ", "gradient fp32 -1 -64 ", "x:10: "},
    {"gradient fp32 -1 0 ", "gradient fp32 -1 9223372036854775744 ", "outside of its region"},
    {"2 64 32\n", "2 9000000 32\n", "outside of its region"},
    {"2 64 32\n", "4 1000000000000 1000000000000 1000000000000 9\n", "too large"},
    {"2 64 32\n", "9 64 32\n", "x:9: 9 is not from 0 to 4"},
    {"buffer_ring F B 2", "buffer_ring F B 0", "0 is not from 1"},
    {"buffer_ring F B 2", "buffer_ring F B 2000000", "buffer rings need"},
    {"buffer_ring F B 2", "buffer_ring F X 2", "'X' is not one of"},
    {"buffer_ring F B 2", "buffer_ring R B 2", "R means a received channel"},
    {"COMPUTE 0", "COMPUTE 9999", "COMPUTE 9999: not this stage's"},
    {"RECEIVE 1", "RECEIVE 0", "RECEIVE 0: not this stage's"},
    {"COLLECTIVE_START 0", "COLLECTIVE_START 7", "COLLECTIVE_START 7: not this stage's"},
    {"LOAD -1", "LOAD 3", "LOAD 3: not this stage's"},
    {"LOAD -1", "JUMP -1", "unknown word 'JUMP'"},
    {"matmul F fp32", "conv9d F fp32", "unknown operator kind 'conv9d'"},
    {"matmul F fp32", "add F fp32", "operator h.0.attn.c_attn: "},
    {"channel 0 1", "channel 0 9", "no such stage"},
    {"channel 0 1", "channel 1 0", ""},
    {"channel 0 1", "channel 0 0", "no such stage"},
    {"collective tied", "collective % all_reduce ring step fp32 1 99999999\ncollective tied",
     "99999999 is not from 0"},
    {"run 4 2", "run 5 2", "this stage has 4"},
    {"run 4 2", "run 1000000000 2", "1000000000 is not from 1"},
    {"run 4 2", "run 4 1", "x:"},
    {"run 4 2 0 0 0", "run 4 2 0 0 1", "device a.1 has no chunk 1"},
    {" 0 1 0\ndevice", " 0 2 0 1\ndevice", "x:2: steps, microbatches, devices or stages"},
    {" 0 1 0\ndevice", " 0 1 1\ndevice", "x:5: device a.0: its lane has no order"},
    {" 0 1 0\ndevice", " 0 0\ndevice", "devices or stages out of range"},
    {"@0 all_reduce ring step fp32", "@0 all_reduce local step fp32", "need algorithm local"},
    {"\nend\n", "\nend\nmore\n", "nothing may follow"},
    {"\nend\n", "\nend", "nothing may follow"},
    {"\nend\n", "\n", "the file ends too soon"},
    {"program made", "program \xc3\x28\x01", "a name with a byte"},
};

START_TEST(a_wrong_file_is_refused_with_its_line)
{
    size_t n;
    char *text = plans_text(two_stages(4, 1), &n);
    char *bad = replaced(text, hostile[_i].what, hostile[_i].by);
    struct program p;
    struct error err = {0};
    ck_assert_int_eq(program_parse(arena, "x", bad, strlen(bad), &p, &err), ERR_INPUT);
    ck_assert_msg(!strncmp(err.text, "x:", 2) && strstr(err.text, hostile[_i].message),
                  "'%s' lacks '%s'", err.text, hostile[_i].message);
    free(text);
}
END_TEST

START_TEST(a_truncated_file_is_refused_wherever_it_ends)
{
    size_t n;
    char *text = plans_text(two_stages(2, 1), &n);
    for (size_t i = 0; i < n; i += suites_long() ? 1 : 17) {
        struct program p;
        struct error err = {0};
        ck_assert_msg(program_parse(arena, "x", text, i, &p, &err) == ERR_INPUT,
                      "cut after %zu bytes", i);
        arena_reset(arena);
    }
    free(text);
}
END_TEST

/* One byte changed: refused or read, never a crash; what is read may be checked. */
START_TEST(a_changed_byte_never_crashes)
{
    struct plans_random r = {11, 0};
    size_t n;
    char *text = plans_text(two_stages(2, 2), &n);
    plans_mangle(arena, &r, text, n, "0123456789 -\nFBRSUW", suites_long() ? 20000 : 1500);
    free(text);
}
END_TEST

START_TEST(names_may_have_any_bytes)
{
    struct program *p = two_stages(1, 1), again;
    struct error err = {0};
    size_t n;
    p->name = "a plan, 100% \"mine\"\n\tü";
    p->devices[0].name = "";
    char *text = plans_text(p, &n);
    ck_assert_msg(program_parse(arena, "x", text, n, &again, &err) == OK, "%s", err.text);
    ck_assert_str_eq(again.name, p->name);
    ck_assert_str_eq(again.devices[0].name, "");
    free(text);
}
END_TEST

/* Experts, dropout and hidden words: every attribute is in the file. */
START_TEST(a_program_of_experts_comes_back_from_its_file)
{
    static const char *const names[] = {"tiny-mixtral", "tiny-qwen3-moe", "tiny-bert-moe"};
    for (int i = 0; i < 3; i++) {
        struct plan p = plans_new(arena, "gpt2", 1, 1);
        struct error err = {0};
        struct program again;
        size_t n, n_again;
        p.job.model = plans_model_file(arena, names[i]);
        p.job.model.hidden_dropout = p.job.model.embedding_dropout = 0.3;
        plans_replica(arena, &p, 2, 1, (const int32_t[]){plans_layers(arena, &p) - 1});
        char *text = plans_text(plans_lower(arena, &p, true), &n);
        ck_assert_msg(program_parse(arena, "x", text, n, &again, &err) == OK, "%s", err.text);
        char *text_again = plans_text(&again, &n_again);
        ck_assert(n == n_again && !memcmp(text, text_again, n));
        const struct program_stage *s = &plans_lower(arena, &p, true)->stages[0];
        for (int32_t k = 0; k < s->n_ops; k++) {
            const struct op_attrs *a = &s->ops[k].attrs, *b = &again.stages[0].ops[k].attrs;
            ck_assert(a->chosen == b->chosen && a->experts == b->experts &&
                      a->capacity == b->capacity && a->weighted == b->weighted &&
                      a->renormalise == b->renormalise && a->counted == b->counted &&
                      a->stream == b->stream && a->rate == b->rate &&
                      a->bidirectional == b->bidirectional);
        }
        free(text);
        free(text_again);
    }
}
END_TEST

START_TEST(a_missing_file_is_an_input_error)
{
    struct program p;
    struct error err = {0};
    ck_assert_int_eq(program_read(arena, "tests/data/no-such.program", &p, &err), ERR_INPUT);
}
END_TEST

/* --- the game --- */

static void expect_refused(const struct program *p, const char *words)
{
    struct error err = {0};
    ck_assert_int_eq(program_check(arena, p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, words) != NULL, "'%s' lacks '%s'", err.text, words);
}

static struct buffer_ring *buffer_ring_of(struct program_stage *s, enum phase birth,
                                          enum phase death)
{
    for (int32_t i = 0; i < s->n_buffer_rings; i++)
        if (s->buffer_rings[i].birth == birth && s->buffer_rings[i].death == death)
            return &s->buffer_rings[i];
    ck_abort_msg("no buffer ring from %c to %c", birth, death);
    return NULL;
}

static void set_count(struct program_stage *s, struct buffer_ring *r, int32_t count)
{
    s->class_bytes[SLOT_BUFFER_RING] += (count - r->count) * r->stride_bytes;
    r->count = count;
}

START_TEST(one_buffer_too_few_is_seen)
{
    struct program *p = two_stages(4, 1);
    set_count(&p->stages[0], buffer_ring_of(&p->stages[0], 'F', 'B'), 1);
    expect_refused(p, "a.0: buffer ring 0 (F to B, 1 buffers): microbatch 1 overwrites microbatch "
                      "0 while it is alive");
}
END_TEST

START_TEST(one_received_buffer_too_few_is_seen)
{
    struct program *p = two_stages(4, 1);
    struct buffer_ring *r = buffer_ring_of(&p->stages[1], 'R', 'B');
    set_count(&p->stages[1], r, r->count - 1);
    expect_refused(p, "while it is alive");
}
END_TEST

/* Two lanes that launch two groups in opposite orders: each would wait for the other for ever. */
START_TEST(groups_in_opposite_orders_are_seen)
{
    struct program *p = two_stages(2, 2); /* groups 0 and 1 over replicas, 2 and 3 ties */
    struct plan plan = plans_new(arena, "gpt2", 1, 2);
    for (int r = 0; r < 2; r++)
        plans_replica(arena, &plan, 2, 1, (const int32_t[]){5})->stages[0].bucket_bytes = 16384;
    p = plans_lower(arena, &plan, true);
    ck_assert_int_gt(p->n_collectives, 1);
    struct program_stage *s = &p->stages[1];
    struct procedure *last = &s->procedures[program_procedure(s, PHASE_B, "last")];
    for (int32_t i = 0; i < last->n_instrs; i++)
        if (last->instrs[i].kind == INSTR_COLLECTIVE_START && last->instrs[i].arg < 2)
            last->instrs[i].arg ^= 1;
    expect_refused(p, "collectives are launched in different orders");
}
END_TEST

START_TEST(a_launch_that_is_missing_or_doubled_is_seen)
{
    struct program *p = two_stages(2, 2);
    struct program_stage *s = &p->stages[3];
    struct procedure *last = &s->procedures[program_procedure(s, PHASE_B, "last")];
    last->n_instrs--;
    expect_refused(p, "collective grad[16..16]#0: 1 launches a step by 2 members");
    last->instrs[last->n_instrs - 1] = last->instrs[last->n_instrs];
    last->n_instrs++;
    expect_refused(p, "is launched twice a step");
}
END_TEST

START_TEST(an_await_before_its_launch_blocks_and_is_named)
{
    struct program *p = two_stages(2, 2);
    struct program_stage *s = &p->stages[1];
    struct procedure *u = &s->procedures[program_procedure(s, PHASE_U, "")];
    ck_assert_int_eq(u->instrs[1].kind, INSTR_COLLECTIVE_START);
    struct instr launch = u->instrs[1];
    u->instrs[1] = u->instrs[2], u->instrs[2] = launch;
    expect_refused(p, "deadlock: a.0 at U (waits for collective tied");
}
END_TEST

START_TEST(a_send_that_never_comes_is_named)
{
    struct program *p = two_stages(2, 1);
    struct procedure *f = &p->stages[0].procedures[0];
    ck_assert_int_eq(f->instrs[f->n_instrs - 1].kind, INSTR_SEND);
    f->n_instrs--;
    expect_refused(p, "activation 0→1: a.0 sends 0 messages a step, a.1 receives 2");
}
END_TEST

START_TEST(a_call_twice_is_seen)
{
    struct program *p = two_stages(4, 1);
    for (int32_t i = 0; i < p->orders[0].n_runs; i++)
        for (int32_t k = 0; k < p->orders[0].runs[i].n_calls; k++)
            if (p->orders[0].runs[i].calls[k].microbatch > 0)
                p->orders[0].runs[i].calls[k].microbatch--;
    expect_refused(p, "is called twice");
}
END_TEST

Suite *program_suite(void)
{
    Suite *s = suite_create("program");
    TCase *t = tcase_create("program");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_coded_comes_back);
    tcase_add_test(t, devices_are_told_with_their_hosts_where_there_are_several);
    tcase_add_test(t, updates_never_count_up);
    tcase_add_test(t, chunks_cover_all_elements);
    tcase_add_loop_test(t, a_wrong_file_is_refused_with_its_line, 0,
                        (int)(sizeof hostile / sizeof *hostile));
    tcase_add_test(t, a_truncated_file_is_refused_wherever_it_ends);
    tcase_add_test(t, a_changed_byte_never_crashes);
    tcase_add_test(t, names_may_have_any_bytes);
    tcase_add_test(t, a_program_of_experts_comes_back_from_its_file);
    tcase_add_test(t, a_missing_file_is_an_input_error);
    tcase_add_test(t, one_buffer_too_few_is_seen);
    tcase_add_test(t, one_received_buffer_too_few_is_seen);
    tcase_add_test(t, groups_in_opposite_orders_are_seen);
    tcase_add_test(t, a_launch_that_is_missing_or_doubled_is_seen);
    tcase_add_test(t, an_await_before_its_launch_blocks_and_is_named);
    tcase_add_test(t, a_send_that_never_comes_is_named);
    tcase_add_test(t, a_call_twice_is_seen);
    suite_add_tcase(s, t);
    return s;
}
