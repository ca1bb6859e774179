/* Every simulation ends with a result or an error: programs that deadlock, invalid costs, times
 * beyond the limits. Each case has its own process and one second of CPU time. */
#include "tests/support/cpu_limit.h"
#include "tests/support/pipelines.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(), cpu_limit(); }
static void teardown(void) { arena_free(arena); }

/* --- what is broken by hand --- */

static struct program_stage *stage(struct pipes_made *m, int32_t s)
{
    return &m->program.stages[s];
}

/* Procedure 0 is F, 1 is B, 2 is U. */
static void replace(struct pipes_made *m, int32_t s, int32_t procedure, int32_t n,
                    const struct instr *x)
{
    stage(m, s)->procedures[procedure].n_instrs = n;
    stage(m, s)->procedures[procedure].instrs = pipes_copy(m->arena, x, (size_t)n * sizeof *x);
}
#define REPLACE(m, s, procedure, ...)                                                              \
    replace((m), (s), (procedure),                                                                 \
            (int32_t)(sizeof((const struct instr[]){__VA_ARGS__}) / sizeof(struct instr)),         \
            (const struct instr[]){__VA_ARGS__})

static void drop_send(struct pipes_made *m, int32_t s, int32_t procedure)
{
    struct procedure *f = &stage(m, s)->procedures[procedure];
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_instrs; i++)
        if (f->instrs[i].kind != INSTR_SEND) f->instrs[n++] = f->instrs[i];
    f->n_instrs = n;
}

static void second_group(struct pipes_made *m)
{
    m->program.collectives[1] = m->program.collectives[0];
    m->program.collectives[1].name = "other";
    m->program.n_collectives = 2;
}

static void empty_order(struct pipes_made *m, int32_t s)
{
    m->program.orders[s] = (struct order){0};
}

static void no_send_of_middle(struct pipes_made *m) { drop_send(m, 1, 0); }
static void no_gradient_of_last(struct pipes_made *m) { drop_send(m, 2, 1); }
static void first_has_no_calls(struct pipes_made *m) { empty_order(m, 0); }
static void last_has_no_calls(struct pipes_made *m) { empty_order(m, 2); }
static void receiver_wants_more(struct pipes_made *m)
{
    struct call calls[] = {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {2, -1, 0}};
    stage(m, 1)->microbatches = 3;
    order_code(m->arena, calls, 4, &m->program.orders[1]);
}
static void sender_sends_more(struct pipes_made *m)
{
    struct call calls[] = {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}, {0, 4, 0}, {2, -1, 0}};
    stage(m, 0)->microbatches = 5;
    order_code(m->arena, calls, 6, &m->program.orders[0]);
}
static void no_microbatches(struct pipes_made *m) { stage(m, 0)->microbatches = 0; }
static void microbatch_beyond(struct pipes_made *m)
{
    struct call calls[] = {{0, 7, 0}};
    order_code(m->arena, calls, 1, &m->program.orders[0]);
}
static void microbatch_of_update(struct pipes_made *m)
{
    struct call calls[] = {{0, -1, 0}};
    order_code(m->arena, calls, 1, &m->program.orders[0]);
}
static void waits_for_itself(struct pipes_made *m) { stage(m, 1)->procedures[0].instrs[0].arg = 1; }
static void receives_its_own_first(struct pipes_made *m)
{
    REPLACE(m, 0, 0, {INSTR_RECEIVE, 0}, {INSTR_COMPUTE, 0}, {INSTR_SEND, 0});
}
static void both_receive_first(struct pipes_made *m)
{
    REPLACE(m, 0, 0, {INSTR_RECEIVE, 1}, {INSTR_COMPUTE, 0}, {INSTR_SEND, 0});
}
static void sends_every_message_twice(struct pipes_made *m)
{
    REPLACE(m, 0, 0, {INSTR_COMPUTE, 0}, {INSTR_SEND, 0}, {INSTR_SEND, 0});
}
static void member_never_reduces(struct pipes_made *m) { REPLACE(m, 2, 2, {INSTR_COMPUTE, 2}); }
static void nobody_reduces(struct pipes_made *m)
{
    for (int32_t s = 0; s < 4; s++) REPLACE(m, s, 2, {INSTR_COLLECTIVE_WAIT, 0});
}
static void one_reduces_twice(struct pipes_made *m)
{
    REPLACE(m, 0, 2, {INSTR_COLLECTIVE_START, 0}, {INSTR_COLLECTIVE_START, 0},
            {INSTR_COLLECTIVE_WAIT, 0});
}
static void orders_of_groups_differ(struct pipes_made *m)
{
    second_group(m);
    for (int32_t s = 0; s < 4; s++)
        REPLACE(m, s, 2, {INSTR_COLLECTIVE_START, 0}, {INSTR_COLLECTIVE_START, 1},
                {INSTR_COLLECTIVE_WAIT, 1});
    REPLACE(m, 3, 2, {INSTR_COLLECTIVE_START, 1}, {INSTR_COLLECTIVE_START, 0},
            {INSTR_COLLECTIVE_WAIT, 0});
}
static void waits_between_groups(struct pipes_made *m)
{
    second_group(m);
    for (int32_t s = 0; s < 4; s += 2)
        REPLACE(m, s, 2, {INSTR_COLLECTIVE_START, 0}, {INSTR_COLLECTIVE_WAIT, 0},
                {INSTR_COLLECTIVE_START, 1}, {INSTR_COLLECTIVE_WAIT, 1});
    for (int32_t s = 1; s < 4; s += 2)
        REPLACE(m, s, 2, {INSTR_COLLECTIVE_START, 1}, {INSTR_COLLECTIVE_WAIT, 1},
                {INSTR_COLLECTIVE_START, 0}, {INSTR_COLLECTIVE_WAIT, 0});
}
static void stranger_reduces(struct pipes_made *m) { m->program.collectives[0].n_members = 3; }
static void no_devices(struct pipes_made *m) { m->program.n_devices = 0; }
static void fewer_than_no_devices(struct pipes_made *m) { m->program.n_devices = -5; }
static void stage_without_lane(struct pipes_made *m) { m->program.n_devices = 1; }
static void unknown_type(struct pipes_made *m) { m->program.devices[1].type_index = 9; }
static void unknown_link(struct pipes_made *m) { m->program.links[0].name = "nowhere"; }

static void bandwidth(struct pipes_made *m, double v)
{
    for (int32_t i = 0; i < m->cluster.n_links; i++) m->cluster.links[i].bandwidth_Bps = v;
}
static void bandwidth_0(struct pipes_made *m) { bandwidth(m, 0); }
static void bandwidth_negative(struct pipes_made *m) { bandwidth(m, -1e9); }
static void bandwidth_nan(struct pipes_made *m) { bandwidth(m, NAN); }
static void bandwidth_infinite(struct pipes_made *m) { bandwidth(m, INFINITY); }
static void bandwidth_tiny(struct pipes_made *m) { bandwidth(m, 1e-300); }
static void latency(struct pipes_made *m, double v)
{
    for (int32_t i = 0; i < m->cluster.n_links; i++) m->cluster.links[i].latency_s = v;
}
static void latency_negative(struct pipes_made *m) { latency(m, -1e-6); }
static void latency_nan(struct pipes_made *m) { latency(m, NAN); }
static void latency_infinite(struct pipes_made *m) { latency(m, INFINITY); }
static void latency_huge(struct pipes_made *m) { latency(m, 1e300); }
static void latency_of_years(struct pipes_made *m) { latency(m, 3e8); }
static void seconds(struct pipes_made *m, double v)
{
    for (size_t i = 0; i < m->profile.n_ops; i++) m->profile.ops[i].seconds = v;
}
static void seconds_nan(struct pipes_made *m) { seconds(m, NAN); }
static void seconds_infinite(struct pipes_made *m) { seconds(m, INFINITY); }
static void seconds_negative(struct pipes_made *m) { seconds(m, -1e-9); }
static void seconds_huge(struct pipes_made *m) { seconds(m, 1e290); }
static void seconds_of_years(struct pipes_made *m) { seconds(m, 3.1e8); }
static void pace_nan(struct pipes_made *m) { m->profile.pace = INFINITY; }

/* --- the table --- */

enum layout { LINE, RING, CHAIN };
#define OF(layout_, stages, each, ...)                                                             \
    {                                                                                              \
        .layout = layout_, .n_stages = stages, .microbatches = each, __VA_ARGS__                   \
    }
static const struct bad_case {
    const char *name;
    struct {
        enum layout layout;
        int32_t n_stages, microbatches, ahead, buffers, steps, ops;
        enum link_sharing sharing;
        const char *order[4];
    } in;
    void (*tweak)(struct pipes_made *m);
    const char *says, *message_too;
} bad[] = {
    /* orders */
    {"a backward before its forward", OF(LINE, 2, 1, .order = {"B0 F0"}), NULL,
     "d0 at B0 (waits for gradient 0 from d1)", "d1 at F0"},
    {"a circle over three stages",
     OF(LINE, 3, 2, .order = {"F0 B0 F1 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"}), NULL,
     "d0 at B0 (waits for gradient 0 from d1)", "d1 at F1 (waits for activation 1 from d0)"},
    {"the last stage takes them in another order than one receive ahead allows",
     OF(LINE, 2, 2, .ahead = 1, .order = {"F0 F1 B0 B1", "F1 B1 F0 B0"}), NULL,
     "d1 at F1 (waits for activation 1 from d0)", "d0 at B0"},
    {"a sender whose buffers nobody frees",
     OF(LINE, 2, 4, .ahead = 1, .buffers = 1, .order = {"F0 F1 F2 F3 B0", "B0"}), NULL,
     "d0 at F2 (waits for activation 1 to leave for d1)", ""},
    {"gradients in the opposite order, one posted",
     OF(LINE, 2, 3, .ahead = 1, .order = {"F0 F1 F2 B0 B1 B2", "F0 F1 F2 B2 B1 B0"}), NULL,
     "d0 at B0 (waits for gradient 0 from d1)", ""},
    {"four stages, the third starves",
     OF(LINE, 4, 2, .order = {NULL, "F0 B0 F1 B1", "B0 B1 F0 F1", NULL}), NULL, "d2 at B0",
     "d1 at B0"},
    {"a first stage without calls", OF(LINE, 3, 2), first_has_no_calls,
     "d1 at F0 (waits for activation 0 from d0)", "d2 at F0"},
    {"a last stage without calls", OF(LINE, 3, 2), last_has_no_calls,
     "d1 at B0 (waits for gradient 0 from d2)", "d0 at"},
    {"a step that stops in its second round",
     OF(LINE, 2, 1, .ahead = 1, .buffers = 1, .steps = 3, .order = {"F0", "B0"}),
     first_has_no_calls, "d1 at B0", ""},
    /* messages */
    {"an activation that nobody sends", OF(LINE, 3, 2), no_send_of_middle,
     "d2 at F0 (waits for activation 0 from d1)", "d0 at B0"},
    {"a gradient that nobody sends", OF(LINE, 3, 2), no_gradient_of_last,
     "d1 at B0 (waits for gradient 0 from d2)", "d0 at B0"},
    {"a receiver that wants more than are sent", OF(LINE, 2, 2, .order = {"F0 F1", NULL}),
     receiver_wants_more, "d1 at F2 (waits for activation 2 from d0)", ""},
    {"a sender of more than are wanted",
     OF(LINE, 2, 2, .ahead = 1, .buffers = 1, .order = {NULL, "F0 F1"}), sender_sends_more,
     "d0 at F4 (waits for activation 3 to leave for d1)", ""},
    {"a stage of no microbatches", OF(LINE, 2, 2), no_microbatches, "with microbatch 0 of 0", ""},
    {"a microbatch beyond the share", OF(LINE, 2, 2), microbatch_beyond,
     "calls F with microbatch 7 of 2", ""},
    {"a forward without a microbatch", OF(LINE, 2, 2), microbatch_of_update,
     "calls F with microbatch -1 of 2", ""},
    {"a stage that waits for its own message", OF(LINE, 2, 1, .order = {"F0", "F0"}),
     waits_for_itself, "d1 at F0 (waits for gradient 0 from d1)", ""},
    {"a sender that receives what it sends", OF(LINE, 2, 1), receives_its_own_first,
     "d0 at F0 (waits for activation 0 from d0)", "d1 at F0"},
    {"two that both receive first", OF(LINE, 2, 1), both_receive_first,
     "d0 at F0 (waits for gradient 0 from d1)", "d1 at F0"},
    {"a message that is sent twice", OF(LINE, 2, 1), sends_every_message_twice, "sent twice",
     "stage 0 to 1"},
    {"a call that is made twice", OF(LINE, 2, 2, .order = {"F0 F0 B0 B1"}), NULL, "sent twice", ""},
    /* collectives */
    {"a ring that one never joins", OF(RING, 4, 1), member_never_reduces,
     "d0 at U (waits for collective sum)", "d3 at U"},
    {"a chain that one never joins", OF(CHAIN, 4, 1), member_never_reduces,
     "d3 at U (waits for collective sum)", "d0 at U"},
    {"a sum that all await and nobody begins", OF(RING, 4, 1), nobody_reduces,
     "d0 at U (waits for collective sum)", "d3 at U (waits for collective sum)"},
    {"a ring that one joins once too often", OF(RING, 4, 1), one_reduces_twice,
     "d0 done (in collective sum)", ""},
    {"rings in different orders", OF(RING, 4, 1), orders_of_groups_differ,
     "d3 at U (waits for collective sum)", "d0 at U (waits for collective other)"},
    {"chains in different orders", OF(CHAIN, 4, 1), orders_of_groups_differ,
     "d3 at U (waits for collective sum)", "d0 at U"},
    {"neighbours that wait in different rings", OF(RING, 4, 1), waits_between_groups,
     "d0 at U (waits for collective sum)", "d1 at U (waits for collective other)"},
    {"a reduction by no member", OF(RING, 4, 1), stranger_reduces, "d3 is not a member of collective sum",
     ""},
    /* programs */
    {"a program of no devices", OF(LINE, 2, 1), no_devices, "the program has no devices", ""},
    {"a program of fewer devices than none", OF(LINE, 2, 1), fewer_than_no_devices,
     "the program has no devices", ""},
    {"a stage on no device", OF(LINE, 2, 1), stage_without_lane, "stage 1 has no lane", ""},
    {"a device of an unknown type", OF(LINE, 2, 1), unknown_type, "unknown device type 9", ""},
    {"a link that is not there", OF(LINE, 2, 1), unknown_link, "nowhere", ""},
    /* costs */
    {"no bandwidth", OF(LINE, 2, 1), bandwidth_0, "link l0 has no bandwidth", ""},
    {"negative bandwidth", OF(LINE, 2, 1), bandwidth_negative, "link l0", "bandwidth"},
    {"bandwidth that is no number", OF(LINE, 2, 1), bandwidth_nan, "link l0", "bandwidth"},
    {"infinite bandwidth", OF(LINE, 2, 1), bandwidth_infinite, "link l0", "bandwidth inf"},
    {"a bandwidth that takes for ever", OF(LINE, 2, 300, .sharing = LINK_FIFO), bandwidth_tiny,
     "73 years", ""},
    {"the same where it is shared", OF(LINE, 2, 3, .sharing = LINK_FAIR), bandwidth_tiny,
     "twelve days", "link l0"},
    {"negative latency", OF(LINE, 2, 1), latency_negative, "link l0", "latency -1e-06 s"},
    {"latency that is no number", OF(LINE, 2, 1), latency_nan, "link l0", "latency"},
    {"infinite latency", OF(LINE, 2, 1), latency_infinite, "link l0", "latency inf s"},
    {"a latency of more than ten years", OF(LINE, 2, 1), latency_huge, "link l0",
     "latency 1e+300 s"},
    {"latencies that add up to more than all time", OF(LINE, 2, 300, .ahead = 1), latency_of_years,
     "73 years", ""},
    {"an operator of no number of seconds", OF(LINE, 2, 1), seconds_nan,
     "not a time that can be simulated", "operator f"},
    {"an operator that never ends", OF(LINE, 2, 1), seconds_infinite,
     "not a time that can be simulated", "operator f"},
    {"an operator that ends before it begins", OF(LINE, 2, 1), seconds_negative,
     "not a time that can be simulated", ""},
    {"an operator of 1e290 seconds", OF(LINE, 2, 1), seconds_huge,
     "not a time that can be simulated", ""},
    {"operators of ten years that add up", OF(LINE, 1, 300), seconds_of_years, "73 years", ""},
    {"operators of ten years in one call", OF(LINE, 1, 1, .ops = 20), seconds_of_years,
     "more than ten years", "stage 0"},
    {"a pace without end", OF(LINE, 2, 1), pace_nan, "not a time that can be simulated", ""},
};
enum { N_BAD = sizeof bad / sizeof *bad };

static struct pipes pipes_of(const struct bad_case *c)
{
    struct pipes in = {.n_stages = c->in.n_stages,
                       .microbatches = c->in.microbatches,
                       .ahead = c->in.ahead,
                       .buffers = c->in.buffers,
                       .ops = c->in.ops,
                       .sharing = c->in.sharing};
    for (int32_t s = 0; s < in.n_stages; s++) {
        in.forward_ns[s] = 10, in.backward_ns[s] = 20, in.transfer_ns[s] = 5;
        in.order[s] = s < 4 ? c->in.order[s] : NULL;
    }
    in.parallel = c->in.layout != LINE, in.elements = 100;
    in.algorithm = c->in.layout == CHAIN ? ALGORITHM_CHAIN : ALGORITHM_RING;
    return in;
}

START_TEST(what_cannot_go_on_says_why)
{
    const struct bad_case *c = &bad[_i];
    struct pipes in = pipes_of(c);
    struct pipes_made *m = pipes_make(arena, &in);
    if (c->tweak) c->tweak(m);
    struct sim_options o = {.steps = c->in.steps ? c->in.steps : 1};
    struct sim_result r;
    for (int traced = 0; traced < 2; traced++) {
        struct error err = {0};
        o.keep_trace = traced;
        ck_assert_msg(sim_run(arena, &m->program, m->cost, &o, &r, &err) == ERR_INPUT,
                      "%s: no error", c->name);
        ck_assert_msg(strstr(err.text, c->says) && strstr(err.text, c->message_too),
                      "%s: '%s' and '%s' are not both in: %s", c->name, c->says, c->message_too,
                      err.text);
        if (strstr(c->says, "waits for"))
            ck_assert_msg(strstr(err.text, "deadlock: ") == err.text, "%s",
                          err.text);
    }
}
END_TEST

Suite *no_progress_suite(void)
{
    Suite *s = suite_create("sim/engine/sim, no progress");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_cannot_go_on_says_why, 0, N_BAD);
    suite_add_tcase(s, t);
    return s;
}
