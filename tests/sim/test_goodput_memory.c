/* Checkpoints in host memory in sim/goodput. */
#include "sim/goodput/goodput.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"

#include <math.h>

#define S INT64_C(1000000000)

static struct arena *arena;
static struct error err;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

static double all_or_none(const void *user, const int64_t *devices)
{
    (void)user;
    return devices[0] == 4;
}

static struct goodput_job job_of(struct goodput_cause *cause, double mtbf_s)
{
    static const char *const types[] = {"t"};
    static const int64_t four[] = {4};
    *cause = (struct goodput_cause){"failure", "", mtbf_s, 1, 0};
    return (struct goodput_job){.horizon_ns = 3000000 * S,
                                .n_types = 1,
                                .types = types,
                                .devices = four,
                                .speed = all_or_none,
                                .checkpoint_ns = 60 * S,
                                .restart_ns = 300 * S,
                                .n_causes = 1,
                                .causes = cause};
}

static struct goodput_tally walk(const struct goodput_job *j, int64_t interval_ns)
{
    struct goodput_tally t;
    ck_assert_msg(goodput_walk(arena, j, interval_ns, 1, 0, &t, &err) == OK, "%s", err.text);
    return t;
}

/* Checkpoints in memory alone, with their own pause and restart: the same walk as those on storage with that interval; beside a checkpoint on storage
 * every 2,000 s, the cost of which is its pause. */
START_TEST(memory_takes_the_place_of_storage)
{
    struct goodput_cause cause;
    struct goodput_job j = job_of(&cause, 3000), m = j;
    j.checkpoint_ns = 5 * S, j.restart_ns = 40 * S;
    struct goodput_tally on_storage = walk(&j, 200 * S);
    m.memory_interval_ns = 200 * S, m.memory_ns = 5 * S, m.memory_restart_ns = 40 * S;
    struct goodput_tally in_memory = walk(&m, m.horizon_ns);
    for (int p = 0; p < GOODPUT_PART_COUNT; p++) ck_assert_double_eq(on_storage.part_ns[p], in_memory.part_ns[p]);
    ck_assert_double_eq(in_memory.memory_checkpoints, on_storage.checkpoints);
    ck_assert_double_eq(in_memory.checkpoints, 0);
    struct goodput_tally both = walk(&m, 2000 * S);
    ck_assert_double_gt(both.part_ns[GOODPUT_checkpoint], in_memory.part_ns[GOODPUT_checkpoint]);
    ck_assert_double_lt(both.part_ns[GOODPUT_lost], 1.05 * in_memory.part_ns[GOODPUT_lost]);
    m.memory_interval_ns = 0;
    ck_assert_double_gt(walk(&m, 2000 * S).part_ns[GOODPUT_lost], 4 * both.part_ns[GOODPUT_lost]);
    /* Where a node is lost, a copy is safe only when the peer has it. */
    m.memory_interval_ns = 200 * S, m.memory_copy_ns = 190 * S;
    cause.devices = 1;
    double late = walk(&m, m.horizon_ns).part_ns[GOODPUT_lost];
    ck_assert_double_gt(late, 1.5 * in_memory.part_ns[GOODPUT_lost]);
    cause.devices = 0;
    ck_assert_double_lt(walk(&m, m.horizon_ns).part_ns[GOODPUT_lost], 1.05 * in_memory.part_ns[GOODPUT_lost]);
}
END_TEST

/* Steps of 1 s, a checkpoint in memory after every fourth, of 0 s, and its copy 2 s later: before step 34, 32 steps are safe if a process fails, 28 if a node
 * is lost, and 32 before step 35. The restart takes 1 s in place of 5. */
START_TEST(a_lost_node_needs_the_copy)
{
    const struct {
        int64_t step;
        bool node;
        double lost;
    } cases[] = {{33, false, 1}, {33, true, 5}, {34, true, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct goodput_cause none;
        struct goodput_job j = job_of(&none, INFINITY);
        const struct goodput_event e = {
            .kind = GOODPUT_EVENT_FAILURE, .at_work_ns = cases[i].step * S, .detect_ns = 3 * S, .node = cases[i].node};
        j.work_ns = 100 * S, j.step_ns = S, j.checkpoint_ns = 0, j.restart_ns = 5 * S;
        j.memory_interval_ns = 4 * S, j.memory_copy_ns = 2 * S, j.memory_restart_ns = S;
        j.n_events = 1, j.events = &e, j.failures_max = 1;
        struct goodput_tally t = walk(&j, 100 * S);
        ck_assert_double_eq_tol(t.part_ns[GOODPUT_lost] / (double)S, cases[i].lost, 1e-6);
        ck_assert_double_eq_tol(t.part_ns[GOODPUT_restart] / (double)S, 1, 1e-6);
        ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 100 + cases[i].lost + 3 + 1, 1e-6);
    }
}
END_TEST

Suite *goodput_memory_suite(void)
{
    Suite *s = suite_create("goodput_memory");
    TCase *c = tcase_create("goodput_memory");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, memory_takes_the_place_of_storage);
    tcase_add_test(c, a_lost_node_needs_the_copy);
    suite_add_tcase(s, c);
    return s;
}
