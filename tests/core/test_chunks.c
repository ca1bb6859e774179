/* Devices with several stages, from plan.yaml to the program: schedules by name, orders by hand, what cannot be. */
#include "core/plan/schedule.h"

#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* "0F0 1F0 … 1U 0U": a lane's calls of one step; "!" behind one that launches gradient all-reduces. */
static const char *calls(const struct program *p, int32_t device)
{
    const struct lane *lane = &p->lanes[device];
    struct cursor c;
    struct call x;
    const char *text = "";
    cursor_start(&c, &p->orders[lane->order]);
    while (cursor_next(&c, &x)) {
        const struct procedure *q = &program_called(p, device, &x)->procedures[x.procedure];
        text = arena_printf(arena, "%s%s", text, *text ? " " : "");
        if (lane->n_stages > 1) text = arena_printf(arena, "%s%d", text, (int)x.chunk);
        text = arena_printf(arena, "%s%c", text, q->phase);
        if (x.microbatch >= 0) text = arena_printf(arena, "%s%d", text, (int)x.microbatch);
        if (*q->variant) text = arena_printf(arena, "%s!", text);
    }
    return text;
}

static const char *instrs(const struct program *p, int32_t stage, enum phase phase,
                          const char *variant)
{
    static const char *const names[] = {
#define X(name) #name,
        INSTR_KINDS(X)
#undef X
    };
    const struct program_stage *s = &p->stages[stage];
    const struct procedure *f = &s->procedures[program_procedure(s, phase, variant)];
    const char *text = "";
    for (int32_t i = 0; i < f->n_instrs; i++)
        if (f->instrs[i].kind != INSTR_COMPUTE)
            text = arena_printf(arena, "%s%s%s %d", text, *text ? ", " : "",
                                names[f->instrs[i].kind], (int)f->instrs[i].arg);
    return text;
}

/* Four stages of a GPT of two blocks: embedding is tied to the head. */
static struct plan four_stages(const char *schedule, int32_t microbatches)
{
    struct plan p = plans_new(arena, "gpt2", 2, 4);
    plans_scheduled(arena, &p, schedule, 2, 2, microbatches);
    return p;
}

START_TEST(interleaved_chunks_take_turns_as_by_hand)
{
    struct plan plan = four_stages("interleaved", 4);
    struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(p->n_devices, 2);
    ck_assert_int_eq(p->n_stages, 4);
    ck_assert(p->lanes[0].stages[0] == 0 && p->lanes[0].stages[1] == 2);
    ck_assert(p->lanes[1].stages[0] == 1 && p->lanes[1].stages[1] == 3);
    ck_assert_str_eq(calls(p, 0), "0F0 0F1 1F0 1F1 0F2 1B0 0F3 1B1 1F2 0B0 1F3 0B1 1B2 1B3 0B2 0B3 "
                                  "1U 0U");
    ck_assert_str_eq(calls(p, 1), "0F0 0F1 1F0 1B0 1F1 1B1 0F2 0B0 0F3 0B1 1F2 1B2 1F3 1B3 0B2 0B3 "
                                  "1U 0U");
    for (int32_t i = 0; i < p->n_channels; i++) ck_assert_int_ge(p->channels[i].link, 0);
}
END_TEST

/* In the V the second device owns the turn, the first device both ends: the turn's messages and the tied embedding's
 * exchange stay inside. */
START_TEST(the_turn_of_a_v_is_a_copy_and_its_ends_exchange_in_place)
{
    struct plan plan = four_stages("zb-v", 4);
    struct program *p = plans_lower(arena, &plan, true);
    ck_assert(p->lanes[0].stages[0] == 0 && p->lanes[0].stages[1] == 3);
    ck_assert(p->lanes[1].stages[0] == 1 && p->lanes[1].stages[1] == 2);
    ck_assert_int_eq(p->n_channels, 6);
    for (int32_t i = 0; i < p->n_channels; i++)
        ck_assert_int_eq(p->channels[i].link,
                         p->channels[i].from_stage + p->channels[i].to_stage == 3 ? -1 : 0);
    ck_assert_int_eq(p->n_collectives, 1);
    ck_assert_int_eq(p->collectives[0].algorithm, ALGORITHM_LOCAL);
    ck_assert(p->collectives[0].members[0].stage == 0 && p->collectives[0].members[1].stage == 3);
    ck_assert_str_eq(
        instrs(p, 3, 'U', ""),
        "COLLECTIVE_START 0, COLLECTIVE_WAIT 0"); /* the last layers' update is first */
    ck_assert_str_eq(instrs(p, 0, 'U', ""), "");
    ck_assert_int_eq(p->stages[0].buffer_bytes + p->stages[3].buffer_bytes, 0);
    for (int32_t s = 0; s < 4; s++)
        ck_assert_int_ge(program_procedure(&p->stages[s], PHASE_W, ""), 0);
    ck_assert_int_eq(program_lane_bytes(p, 0),
                     program_stage_bytes(&p->stages[0]) + program_stage_bytes(&p->stages[3]));
    int64_t without = program_lane_bytes(p, 0);
    p->stages[0].reserve_bytes = p->stages[3].reserve_bytes = 1000;
    ck_assert_int_eq(program_lane_bytes(p, 0), without + 1000); /* a GPU has one */
}
END_TEST

/* --- all schedules --- */

/* The lane's calls are the schedule's operations, then the updates. */
static void follow_schedule(const struct program *p, const struct schedule *s)
{
    for (int32_t d = 0; d < s->n_devices; d++) {
        struct cursor c;
        struct call x = {0};
        cursor_start(&c, &p->orders[p->lanes[d].order]);
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
            const struct schedule_op *o = &s->lanes[d].ops[i];
            ck_assert(cursor_next(&c, &x));
            const struct program_stage *stage = program_called(p, d, &x);
            ck_assert(stage->procedures[x.procedure].phase == o->phase &&
                      x.microbatch == o->microbatch &&
                      stage->stage == s->stage[d * s->n_chunks + o->chunk]);
        }
        for (int32_t k = s->n_chunks - 1; k >= 0; k--)
            ck_assert(cursor_next(&c, &x) && x.microbatch == -1 && x.chunk == k);
        ck_assert(!cursor_next(&c, &x));
    }
}

START_TEST(every_schedule_lowers_to_lanes_that_never_block)
{
    const enum schedule_kind kind = (enum schedule_kind)_i;
    int32_t chunks = schedule_kind_chunks(kind) ? schedule_kind_chunks(kind) : 2;
    for (int32_t devices = 1; devices <= 4; devices++)
        for (int32_t rounds = 1; rounds <= 3; rounds++)
            for (int split = 0; split < 2; split++) {
                struct schedule_spec spec = {.kind = kind,
                                             .n_devices = devices,
                                             .n_chunks = chunks,
                                             .n_microbatches = devices * rounds,
                                             .split = split};
                struct schedule s;
                struct error err = {0};
                struct plan plan = plans_new(arena, "llama", 3, 8);
                struct plan_replica *x = plans_scheduled(arena, &plan, schedule_name(kind), devices,
                                                         chunks, devices * rounds);
                x->split = split;
                ck_assert_msg(schedule_make(arena, &spec, &s, &err) == OK, "%s", err.text);
                struct program *p = plans_lower(arena, &plan, true);
                ck_assert_msg(program_check(arena, p, &err) == OK, "%s", err.text);
                follow_schedule(p, &s);
                arena_reset(arena);
            }
}
END_TEST

/* Two replicas whose chunks stand differently meet in their sums in one order. */
START_TEST(replicas_with_chunks_launch_their_reduces_in_one_order)
{
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        struct plan plan = plans_new(arena, "gpt2", 2, 8);
        plans_scheduled(arena, &plan, "zb-v", 2, 2, 4);
        plans_scheduled(arena, &plan, "interleaved", 2, 2, 2);
        plans_scheduled(arena, &plan, "gpipe", 1, 1, 3);
        plan.deterministic = deterministic;
        for (int r = 0; r < 3; r++) plan.replicas[r].stages[0].bucket_bytes = 4096;
        struct program *p = plans_lower(arena, &plan, true);
        struct error err = {0};
        ck_assert_int_eq(p->n_devices, 5);
        ck_assert_msg(program_check(arena, p, &err) == OK, "%s", err.text);
        for (int32_t d = 0; d < p->n_devices; d++) ck_assert_ptr_nonnull(strchr(calls(p, d), '!'));
    }
}
END_TEST

/* Chunk 0 of the first device is done before chunk 1, whose groups have lower numbers: it leaves the launch to chunk 1. */
START_TEST(a_chunk_that_is_ready_too_early_leaves_its_launch_to_the_next)
{
    struct plan plan = plans_new(arena, "llama", 2, 2);
    int32_t layers = plans_layers(arena, &plan);
    struct plan_replica *x =
        plans_replica(arena, &plan, 1, 2, (const int32_t[]){layers / 2, layers - 1});
    plans_place(x, (const int32_t[]){0, 0});
    x->orders = ARENA_ARRAY(arena, const char *, 2);
    x->orders[0] = "0F0 1F0 1I0 0I0 0W0 1W0";
    plans_replica(arena, &plan, 1, 1, &layers)->stages[0].last_layer = layers - 1;
    plan.replicas[1].stages[0].device = 1;
    struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(p->n_collectives, 2); /* 0: the last layers */
    ck_assert_str_eq(calls(p, 0), "0F0 1F0 1I0 0I0 0W0 1W0! 1U 0U");
    ck_assert_str_eq(instrs(p, 1, 'W', "last"), "COLLECTIVE_START 0, COLLECTIVE_START 1");
    x->orders[0] = "0F0 1F0 1I0 0I0 1W0 0W0";
    p = plans_lower(arena, &plan, true);
    ck_assert_str_eq(calls(p, 0), "0F0 1F0 1I0 0I0 1W0! 0W0! 1U 0U");
    ck_assert_str_eq(instrs(p, 1, 'U', ""), "COLLECTIVE_WAIT 0");
    ck_assert_str_eq(instrs(p, 0, 'U', ""), "COLLECTIVE_WAIT 1");
}
END_TEST

/* --- refusals --- */

static const struct {
    const char *schedule, *orders[2];
    int32_t device[4], microbatches;
    const char *message;
} refused[] = {
    {NULL, {NULL, NULL}, {0, 1, 1, 0}, 2, "stages[2].device: a.1 already has stages[1]; a replica"},
    {"zb-v", {NULL, NULL}, {0, 1, 0, 1}, 2, "schedule: zb-v needs the stages on a.0 a.1 a.1 a.0"},
    {"interleaved",
     {NULL, NULL},
     {0, 1, 1, 0},
     2,
     "interleaved needs the stages on a.0 a.1 a.0 a.1"},
    {"interleaved", {NULL, NULL}, {0, 1, 0, 1}, 3, "schedule: "},
    {"1f1b", {NULL, NULL}, {0, 1, 0, 1}, 2, "schedule: "},
    {"zb-v", {NULL, NULL}, {0, 1, 0, 0}, 2, "a.0 has 3 stages, a.1 has 1; a schedule needs"},
    {"zigzag", {NULL, NULL}, {0, 1, 0, 1}, 2, "unknown schedule 'zigzag'; known: gpipe"},
    {"zb-v", {"", ""}, {0, 1, 1, 0}, 2, "a replica has either `schedule` or `orders`"},
    {NULL, {"0F0 1F0 1B0 0B0", NULL}, {0, 1, 1, 0}, 1, "orders: that of a.1 is missing"},
    {NULL,
     {"0F0 1F0 1B0 0B0", "F0 F1"},
     {0, 1, 1, 0},
     1,
     "orders.a.1: 'F0': the device has 2 stages"},
    {NULL,
     {"0F0 1F0 2B0", ""},
     {0, 1, 1, 0},
     1,
     "orders.a.0: '2B0': the device has 2 stages, so a chunk from 0 to 1"},
    {NULL, {"0F0 1F0 1B0 0B0", "0F0 0B0 1F0"}, {0, 1, 1, 0}, 1, "orders.a.1: 1B0 is missing"},
    {NULL, {"0F0 1F0 1B0 0B0 0W0", ""}, {0, 1, 1, 0}, 1, "orders.a.0: 0W0 in an order with B"},
    {NULL, {"0F0 1X0", ""}, {0, 1, 1, 0}, 1, "orders.a.0: '1X0' is not a chunk, F, B, I or W"},
    {NULL,
     {"0F0 1F0 1B0 0B0", "0F0 1F0 1B0 0B1"},
     {0, 1, 1, 0},
     1,
     "'0B1': this replica has microbatches 0 to 0"},
    {NULL, {"F0 0B0", "0F0"}, {0, 1, 1, 1}, 1, "'0B0': the device has one stage, so calls have no chunk"},
    /* the first device wants the last stage before the first has begun */
    {NULL,
     {"1F0 1B0 0F0 0B0", "0F0 1F0 1B0 0B0"},
     {0, 1, 1, 0},
     1,
     "deadlock: a.0 at 1F0 (waits for activation 2→3 of microbatch 0), a.1 at 0F0 "
     "(waits for activation "
     "0→1 of microbatch 0)"},
    /* the turn of the V cannot be taken before it is reached */
    {NULL,
     {"0F0 1F0 1B0 0B0", "1F0 0F0 1B0 0B0"},
     {0, 1, 1, 0},
     1,
     "a.1 at 1F0 (waits for activation 1→2 of microbatch 0)"},
};

START_TEST(chunks_that_cannot_be_are_refused_with_the_reason)
{
    struct plan plan = plans_new(arena, "gpt2", 2, 4);
    struct error err = {0};
    struct plan_replica *x =
        plans_replica(arena, &plan, refused[_i].microbatches, 4, (const int32_t[]){1, 3, 5, 7});
    plans_place(x, refused[_i].device);
    x->schedule = refused[_i].schedule;
    if (refused[_i].orders[0]) {
        x->orders = ARENA_ARRAY(arena, const char *, 4);
        x->orders[0] = refused[_i].orders[0], x->orders[1] = refused[_i].orders[1];
    }
    ck_assert_int_eq(plans_refused(arena, &plan, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, refused[_i].message) != NULL, "'%s' lacks '%s'", err.text,
                  refused[_i].message);
}
END_TEST

START_TEST(a_device_whose_chunks_do_not_fit_says_what_they_hold_together)
{
    struct plan plan = four_stages("zb-v", 4);
    struct program *p = plans_lower(arena, &plan, true);
    struct lower_options o = {.n_fused = 4, .fused = plans_fused, .check_memory = true};
    struct program out;
    struct error err = {0};
    plan.cluster.types[0].memory_bytes = program_lane_bytes(p, 0);
    if (program_lane_bytes(p, 1) > program_lane_bytes(p, 0))
        plan.cluster.types[0].memory_bytes = program_lane_bytes(p, 1);
    ck_assert_msg(lower_plan(arena, &plan, &o, &out, &err) == OK, "%s", err.text);
    plan.cluster.types[0].memory_bytes -= 64;
    ck_assert_int_eq(lower_plan(arena, &plan, &o, &out, &err), ERR_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "lacks 64 B: ") != NULL, "%s", err.text);
}
END_TEST

/* --- the file --- */

static const char *written(const struct plan *p)
{
    char *buffer = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&buffer, &n);
    plan_write(out, arena, p);
    fclose(out);
    char *text = arena_strdup(arena, buffer);
    free(buffer);
    return text;
}

static struct plan read_back(const char *text)
{
    struct node *root;
    struct plan p;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "x", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(plan_parse(arena, root, ".", &p, &err) == OK, "%s\n%s", err.text, text);
    return p;
}

START_TEST(a_plan_with_chunks_is_written_as_it_is_read)
{
    struct plan plan = plans_new(arena, "gpt2", 2, 8);
    plans_scheduled(arena, &plan, "interleaved", 2, 2, 4)->split = true;
    struct plan_replica *x = plans_scheduled(arena, &plan, "zb-v", 2, 2, 2);
    const char *const before = written(&plan);
    uint64_t hash = plan_hash(arena, &plan);
    x->schedule = NULL;
    x->orders = ARENA_ARRAY(arena, const char *, 4);
    x->orders[0] = "0F0,0F1  1F0 1B0 1F1 1B1 0B0 0B1\n",
    x->orders[1] = "0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1";
    ck_assert_uint_ne(plan_hash(arena, &plan), hash);
    const char *text = written(&plan);
    ck_assert_ptr_nonnull(strstr(
        before, "  - microbatches: 4\n    schedule: interleaved\n    split: true\n    stages:\n"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "    orders:\n      a.2: \"0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1\"\n"
                                 "      a.3: \"0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1\"\n    stages:\n"));
    struct plan again = read_back(text);
    ck_assert_str_eq(written(&again), text);
    ck_assert_uint_eq(plan_hash(arena, &again), plan_hash(arena, &plan));
    ck_assert_str_eq(plan_describe(arena, &again),
                     "1 replica of 4 microbatches, interleaved split: layers 0-7 in 4 stages on a.0-1, a.0-1; "
                     "1 replica of 2 microbatches, ordered: layers 0-7 in 4 stages on a.2-3, a.3, a.2");
    size_t n1, n2;
    char *one = plans_text(plans_lower(arena, &plan, true), &n1),
         *two = plans_text(plans_lower(arena, &again, true), &n2);
    ck_assert(n1 == n2 && !memcmp(one, two, n1));
    free(one), free(two);
}
END_TEST

START_TEST(orders_may_stand_in_one_text)
{
    struct plan plan = four_stages("zb-v", 1);
    const char *text = written(&plan), *at = strstr(text, "schedule: zb-v");
    text = arena_printf(arena, "%.*s%s%s", (int)(at - text), text,
                        "orders: 0F0 1F0 1B0 0B0 | 0F0,1F0,1B0,0B0", at + strlen("schedule: zb-v"));
    struct plan again = read_back(text);
    ck_assert_ptr_nonnull(strstr(written(&again), "    orders:\n      a.0: \"0F0 1F0 1B0 0B0\"\n"
                                                  "      a.1: \"0F0 1F0 1B0 0B0\"\n"));
    ck_assert_str_eq(calls(plans_lower(arena, &again, true), 1), "0F0 1F0 1B0 0B0 1U 0U");
}
END_TEST

/* Bytes changed in the program of a V: refused or read, never a crash; what is read may be checked. */
START_TEST(a_changed_byte_of_a_program_with_chunks_never_crashes)
{
    struct plans_random r = {12, 0};
    struct plan plan = four_stages("zb-v", 2);
    size_t n;
    char *text = plans_text(plans_lower(arena, &plan, true), &n);
    plans_mangle(arena, &r, text, n, "0123456789 -\nFIWRSUA", suites_long() ? 20000 : 700);
    free(text);
}
END_TEST

static const struct {
    const char *what, *by, *message;
} bad_files[] = {
    {"schedule: zb-v", "orders: 0F0|1F0|0B0",
     "orders: has 3 orders between '|', the stages are on 2 devices"},
    {"schedule: zb-v", "schedule: zb-x",
     "x:9:15: replicas[0].schedule: unknown schedule 'zb-x'; known: gpipe"},
    {"schedule: zb-v", "split: maybe", "x:9:12: replicas[0].split: "},
    {"schedule: zb-v", "split: true", "x:13:9: replicas[0].stages[2].device: a.1 already has"},
    {"schedule: zb-v", "orders: [1]", "x:9:13: replicas[0].orders: "},
    {"schedule: zb-v", "orders: {a.3: \"0F0\"}",
     "x:9:19: replicas[0].orders.a.3: no stage of this replica is on a device 'a.3'"},
    {"schedule: zb-v", "schedules: zb-v", "schedules: unknown key"},
    {"stages:\n      - {", "stages:\n      - {warmup: 2, ",
     "replicas[0].stages[0].warmup: excluded by the replica's schedule"},
};

START_TEST(a_file_with_bad_chunks_is_refused_at_its_place)
{
    struct plan plan = four_stages("zb-v", 4), out;
    const char *text = written(&plan), *at = strstr(text, bad_files[_i].what);
    ck_assert_msg(at != NULL, "%s", text);
    text = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, bad_files[_i].by,
                        at + strlen(bad_files[_i].what));
    struct node *root;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "x", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    enum status status = plan_parse(arena, root, ".", &out, &err);
    if (status == OK) status = plan_check(&out, plans_layers(arena, &out), &err);
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad_files[_i].message) != NULL, "'%s' lacks '%s'\n%s", err.text,
                  bad_files[_i].message, text);
}
END_TEST

Suite *chunks_suite(void)
{
    Suite *s = suite_create("chunks");
    TCase *t = tcase_create("chunks");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, interleaved_chunks_take_turns_as_by_hand);
    tcase_add_test(t, the_turn_of_a_v_is_a_copy_and_its_ends_exchange_in_place);
    tcase_add_loop_test(t, every_schedule_lowers_to_lanes_that_never_block, 0, SCHEDULE_KIND_COUNT);
    tcase_add_test(t, replicas_with_chunks_launch_their_reduces_in_one_order);
    tcase_add_test(t, a_chunk_that_is_ready_too_early_leaves_its_launch_to_the_next);
    tcase_add_loop_test(t, chunks_that_cannot_be_are_refused_with_the_reason, 0,
                        (int)(sizeof refused / sizeof *refused));
    tcase_add_test(t, a_device_whose_chunks_do_not_fit_says_what_they_hold_together);
    tcase_add_test(t, a_plan_with_chunks_is_written_as_it_is_read);
    tcase_add_test(t, orders_may_stand_in_one_text);
    tcase_add_test(t, a_changed_byte_of_a_program_with_chunks_never_crashes);
    tcase_add_loop_test(t, a_file_with_bad_chunks_is_refused_at_its_place, 0,
                        (int)(sizeof bad_files / sizeof *bad_files));
    suite_add_tcase(s, t);
    return s;
}
