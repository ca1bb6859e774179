/* Three computations of the same times: the static pass, the event loop on the pipeline's program, and a naive sweep. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/pipeline/program.h"
#include "sim/pipeline/static.h"
#include "tests/support/schedules.h"
#include "tests/support/suites.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

#define CASES (suites_long() ? 10000u : 500u)

struct draw {
    uint64_t seed, at;
};
static int64_t below(struct draw *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 77, d->at++, (uint64_t)n);
}

/* A schedule of any kind: 1 … 6 devices, 1 … 12 microbatches (whole groups where interleaved). */
static struct schedule random_schedule(struct draw *d)
{
    enum schedule_kind kind = (enum schedule_kind)below(d, SCHEDULE_KIND_COUNT);
    int32_t p = 1 + (int32_t)below(d, 6), m = 1 + (int32_t)below(d, 12), w[6];
    double time[6], transfer[6];
    struct schedule_spec spec = {.kind = kind, .n_devices = p, .n_microbatches = m};
    spec.split = below(d, 2);
    if (schedule_kind_has(kind, SCHEDULE_GROUPS)) {
        spec.n_chunks = 2 + (int32_t)below(d, 2);
        spec.n_microbatches = p * (1 + (int32_t)below(d, 3));
    }
    for (int32_t i = 0; i < p; i++) {
        time[i] = 1 + (double)below(d, 10);
        transfer[i] = (double)below(d, 12);
    }
    spec.time = time, spec.transfer = transfer;
    int32_t so_far = 1;
    for (int32_t i = p - 1; i >= 0; i--) w[i] = so_far, so_far += (int32_t)below(d, 3);
    if (schedule_kind_has(kind, SCHEDULE_WARMUPS) && !below(d, 4)) spec.warmup = w;
    struct schedule s;
    struct error err = {0};
    ck_assert_msg(schedule_make(arena, &spec, &s, &err) == OK, "%s", err.text);
    return s;
}

/* Times of tens, often 0; occupied links unless only latency is wanted; what F takes, I and W give back. */
static struct pipeline random_pipeline(struct draw *d, const struct schedule *s, bool occupied)
{
    int32_t n = s->n_devices * s->n_chunks;
    struct pipeline p = {.n_devices = s->n_devices, .n_stages = n};
    p.stages = ARENA_ARRAY(arena, struct pipeline_stage, (size_t)n);
    p.links = ARENA_ARRAY(arena, struct pipeline_link, (size_t)n);
    p.devices = ARENA_ARRAY(arena, struct pipeline_device, (size_t)s->n_devices);
    for (int32_t v = 0; v < n; v++) {
        struct pipeline_stage *x = &p.stages[v];
        x->forward_ns = below(d, 40), x->input_ns = below(d, 40), x->weight_ns = below(d, 30);
        x->fused_ns = below(d, 2) ? below(d, 90) : 0;
        x->forward_bytes = below(d, 100);
        x->input_bytes = below(d, 3) ? -below(d, x->forward_bytes + 1) : below(d, 20);
        x->weight_bytes = -x->forward_bytes - x->input_bytes;
        for (int k = 0; k < 2; k++) {
            p.links[v].occupancy_ns[k] = occupied && below(d, 3) ? below(d, 60) : 0;
            p.links[v].latency_ns[k] = below(d, 2) ? below(d, 50) : 0;
        }
    }
    for (int32_t i = 0; i < s->n_devices; i++)
        p.devices[i] = (struct pipeline_device){below(d, 1000), PIPELINE_NO_LIMIT};
    return p;
}

static struct static_timer *timer_of(const struct schedule *s)
{
    struct static_timer *t;
    struct error err = {0};
    ck_assert_msg(static_new(arena, s, &t, &err) == OK, "%s", err.text);
    return t;
}

START_TEST(the_static_pass_and_the_event_loop_agree_to_the_nanosecond)
{
    uint32_t kinds_met = 0, contended = 0;
    for (uint64_t seed = 0; seed < CASES; seed++, arena_reset(arena)) {
        struct draw d = {seed, 0};
        struct schedule s = random_schedule(&d);
        /* Half of those with several chunks have latencies only: else all would contend. */
        struct pipeline p = random_pipeline(&d, &s, s.n_chunks == 1 || below(&d, 4) == 0);
        struct static_timer *t = timer_of(&s);
        struct static_report r;
        if (!static_report(t, &p, arena, &r)) {
            ck_assert_int_gt(s.n_chunks, 1);
            contended++;
            continue;
        }
        struct pipeline_program x;
        struct sim_options o = {.steps = 1};
        struct sim_result sim;
        struct error err = {0};
        ck_assert_msg(pipeline_program(arena, &s, &p, NULL, LINK_FIFO, &x, &err) == OK, "%s",
                      err.text);
        ck_assert_msg(sim_run(arena, &x.program, x.cost, &o, &sim, &err) == OK, "%s", err.text);
        ck_assert_msg(sim.makespan_ns == r.makespan_ns, "seed %d, %s: %lld, event loop %lld",
                      (int)seed, s.name, (long long)r.makespan_ns, (long long)sim.makespan_ns);
        for (int32_t i = 0; i < s.n_devices; i++) {
            ck_assert_int_eq(sim.devices[i].busy_ns, r.devices[i].busy_ns);
            ck_assert_msg(sim.devices[i].peak_bytes == r.devices[i].peak_bytes,
                          "seed %d, %s: peak %lld, event loop %lld", (int)seed, s.name,
                          (long long)r.devices[i].peak_bytes, (long long)sim.devices[i].peak_bytes);
        }
        kinds_met |= UINT32_C(1) << (uint32_t)(s.n_chunks > 1 ? 16 + s.n_chunks : s.n_chunks);
    }
    ck_assert_int_gt(contended, 0);
    ck_assert(kinds_met & (1u << 1) && kinds_met & (1u << 18) && kinds_met & (1u << 19));
}
END_TEST

START_TEST(every_operation_starts_where_the_naive_sweep_says)
{
    for (uint64_t seed = 0; seed < CASES; seed++, arena_reset(arena)) {
        struct draw d = {seed + 1000000, 0};
        struct schedule s = random_schedule(&d);
        struct pipeline p = random_pipeline(&d, &s, false);
        size_t n = (size_t)p.n_stages;
        int64_t *cost[4];
        for (int k = 0; k < 4; k++) cost[k] = ARENA_ARRAY(arena, int64_t, n);
        for (size_t v = 0; v < n; v++) {
            struct pipeline_stage *x = &p.stages[v];
            x->fused_ns = 0;
            p.links[v].latency_ns[1] = p.links[v].latency_ns[0];
            cost[0][v] = x->forward_ns, cost[1][v] = x->input_ns, cost[2][v] = x->weight_ns;
            cost[3][v] = p.links[v].latency_ns[0];
        }
        for (size_t v = 0; v + 1 < n; v++) /* the turn of a V */
            for (int32_t i = 0; i < s.n_devices; i++) {
                bool here = false, next = false;
                for (int32_t c = 0; c < s.n_chunks; c++) {
                    here = here || s.stage[i * s.n_chunks + c] == (int32_t)v;
                    next = next || s.stage[i * s.n_chunks + c] == (int32_t)v + 1;
                }
                if (here && next) cost[3][v] = 0;
            }
        struct sweep w =
            sweep_time(arena, &s, &(struct sweep_costs){cost[0], cost[1], cost[2], cost[3]});
        struct static_report r;
        ck_assert(static_report(timer_of(&s), &p, arena, &r));
        ck_assert(!w.stuck);
        ck_assert_int_eq(w.makespan, r.makespan_ns);
        ck_assert_int_eq(w.bubble, r.bubble_ns);
        for (int32_t i = 0; i < s.n_devices; i++) {
            ck_assert_int_eq(w.begin[i], r.devices[i].begin_ns);
            ck_assert_int_eq(w.end[i], r.devices[i].end_ns);
            ck_assert_int_eq(w.busy[i], r.devices[i].busy_ns);
        }
    }
}
END_TEST

START_TEST(twice_the_prices_take_twice_the_time_and_more_is_never_faster)
{
    for (uint64_t seed = 0; seed < CASES; seed++, arena_reset(arena)) {
        struct draw d = {seed + 2000000, 0};
        struct schedule s = random_schedule(&d);
        struct pipeline p = random_pipeline(&d, &s, s.n_chunks == 1);
        struct static_timer *t = timer_of(&s);
        int64_t once, twice, more;
        ck_assert(static_time(t, &p, &once));
        for (int32_t v = 0; v < p.n_stages; v++) {
            struct pipeline_stage *x = &p.stages[v];
            x->forward_ns *= 2, x->input_ns *= 2, x->weight_ns *= 2, x->fused_ns *= 2;
            for (int k = 0; k < 2; k++)
                p.links[v].occupancy_ns[k] *= 2, p.links[v].latency_ns[k] *= 2;
        }
        ck_assert(static_time(t, &p, &twice));
        ck_assert_int_eq(twice, 2 * once);
        p.stages[below(&d, p.n_stages)].forward_ns += 5;
        struct pipeline_link *longer = &p.links[below(&d, p.n_stages)];
        longer->latency_ns[below(&d, 2)] += 5;
        ck_assert(static_time(t, &p, &more));
        ck_assert_int_ge(more, twice);
    }
}
END_TEST

/* Swaps two operations of a device: rejected orders deadlock, accepted ones run. */
START_TEST(disturbed_schedules_are_told_apart_without_hanging)
{
    int32_t refused = 0, blocked = 0;
    for (uint64_t seed = 0; seed < 4 * CASES; seed++, arena_reset(arena)) {
        struct draw d = {seed + 3000000, 0};
        struct schedule s = random_schedule(&d);
        for (int64_t times = 1 + below(&d, 3); times; times--) {
            struct schedule_lane *l = &s.lanes[below(&d, s.n_devices)];
            int64_t i = below(&d, l->n_ops), k = below(&d, l->n_ops);
            struct schedule_op o = l->ops[i];
            l->ops[i] = l->ops[k], l->ops[k] = o;
        }
        size_t n = (size_t)s.n_devices * (size_t)s.n_chunks;
        int64_t *none = ARENA_ARRAY(arena, int64_t, n);
        struct sweep w = sweep_time(arena, &s, &(struct sweep_costs){none, none, none, NULL});
        struct error err = {0};
        enum status st = schedule_check(arena, &s, NULL, &err);
        bool before = strstr(err.text, " comes before ") != NULL,
             stops = strstr(err.text, "deadlock: device ") != NULL;
        ck_assert_msg(st == OK ? !w.stuck : before || (stops && w.stuck), "%s", err.text);
        refused += st != OK, blocked += stops;
    }
    ck_assert_int_gt(refused, (int)CASES);
    ck_assert_int_gt(blocked, (int)CASES / 10);
}
END_TEST

Suite *static_random_suite(void)
{
    Suite *s = suite_create("sim/pipeline/static, random");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, the_static_pass_and_the_event_loop_agree_to_the_nanosecond);
    tcase_add_test(t, every_operation_starts_where_the_naive_sweep_says);
    tcase_add_test(t, twice_the_prices_take_twice_the_time_and_more_is_never_faster);
    tcase_add_test(t, disturbed_schedules_are_told_apart_without_hanging);
    suite_add_tcase(s, t);
    return s;
}
