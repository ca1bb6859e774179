/* Devices with several stages (chunks) in both interpreters: simulated time is feasible for a lane, and training gives the same
 * result for every assignment of stages to devices.
 */
#include "exec/worker/worker.h"
#include "profiles/profile.h"
#include "sim/engine/sim.h"

#include "tests/support/plans.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* --- simulated --- */

static struct cost *prior(const struct plan *p)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p->cluster, f, &err) == OK, "%s", err.text);
    return cost_new(arena, f, &p->cluster);
}

static char *spans_text(const struct trace *t, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        fprintf(f, "%d %d %d %c %d %d %d %d %ld %ld\n", (int)s->device, (int)s->stage,
                (int)s->stream, s->phase, (int)s->step, (int)s->microbatch, (int)s->op,
                (int)s->part, (long)s->begin_ns, (long)s->end_ns);
    }
    fclose(f);
    return text;
}

/* Compute time of each device in a step; a device executes one operator at a time. */
static int64_t busiest(const struct trace *t, int32_t n_devices)
{
    int64_t *busy = ARENA_ARRAY(arena, int64_t, (size_t)n_devices), most = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i], *before = i ? s - 1 : NULL;
        ck_assert_int_le(s->begin_ns, s->end_ns);
        bool alone = s->stream == STREAM_compute || s->stream == STREAM_collective;
        if (alone && before && before->device == s->device && before->stream == s->stream)
            ck_assert_int_le(before->end_ns, s->begin_ns);
        if (s->kind == SPAN_COMPUTE) busy[s->device] += s->end_ns - s->begin_ns;
    }
    for (int32_t i = 0; i < n_devices; i++) most = busy[i] > most ? busy[i] : most;
    return most;
}

START_TEST(random_chunks_run_in_simulated_time)
{
    int32_t several = 0, local = 0, turns = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 400 : 60); seed++) {
        struct plan plan =
            plans_random_cut_chunks(arena, seed, seed % 3 ? LAYERS_DEFAULT : LAYERS_FINE);
        struct program *p = plans_lower(arena, &plan, seed % 2);
        struct sim_options o = {.steps = 3, .keep_trace = true};
        struct sim_result r, again;
        struct error err = {0};
        ck_assert_msg(sim_run(arena, p, prior(&plan), &o, &r, &err) == OK, "seed %lu: %s",
                      (unsigned long)seed, err.text);
        ck_assert_int_ge(r.makespan_ns, busiest(r.trace, p->n_devices));
        ck_assert_int_eq(sim_run(arena, p, prior(&plan), &o, &again, &err), OK);
        size_t n1, n2;
        char *one = spans_text(r.trace, &n1), *two = spans_text(again.trace, &n2);
        ck_assert(n1 == n2 && !memcmp(one, two, n1));
        free(one), free(two);
        for (int32_t i = 0; i < p->n_devices; i++) {
            ck_assert_int_le(r.devices[i].peak_bytes, r.devices[i].reserved_bytes);
            ck_assert_int_eq(r.devices[i].reserved_bytes, program_lane_bytes(p, i));
            several += p->lanes[i].n_stages > 1;
        }
        for (int32_t i = 0; i < p->n_collectives; i++)
            local += p->collectives[i].algorithm == ALGORITHM_LOCAL;
        for (int32_t i = 0; i < p->n_channels; i++) turns += p->channels[i].link < 0;
        arena_reset(arena);
    }
    ck_assert(several > 20 && local > 5 && turns > 20);
}
END_TEST

/* Swaps a lane's first two calls: its last stage is called before its first. */
START_TEST(a_blocked_chunk_is_named_by_the_simulator)
{
    struct plan plan = plans_new(arena, "gpt2", 2, 2);
    plans_scheduled(arena, &plan, "zb-v", 2, 2, 1);
    struct program *p = plans_lower(arena, &plan, true);
    struct call flat[16], x;
    struct cursor c;
    int64_t n = 0;
    cursor_start(&c, &p->orders[p->lanes[0].order]);
    while (cursor_next(&c, &x)) flat[n++] = x;
    x = flat[0], flat[0] = flat[1], flat[1] = x;
    struct order *broken = ARENA_ARRAY(arena, struct order, 2);
    broken[1] = p->orders[p->lanes[1].order];
    order_code(arena, flat, n, &broken[0]);
    p->orders = broken, p->n_orders = 2, p->lanes[0].order = 0, p->lanes[1].order = 1;
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(sim_run(arena, p, prior(&plan), &o, &r, &err), ERR_INPUT);
    ck_assert_str_eq(err.text,
                     "deadlock: a.0 at 1F0 (waits for activation 0 from a.1), "
                     "a.1 at 0F0 (waits for activation 0 from a.0)");
}
END_TEST

/* --- executed --- */

static struct run_result run(const struct program *p, struct run_options o)
{
    struct run_result r;
    struct error err = {0};
    o.steps = 4;
    ck_assert_msg(worker_run(arena, p, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* One device with all stages as chunks, in many orders, against one stage. */
START_TEST(one_device_trains_alike_however_many_stages_it_owns)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct plans_random r = {seed, 0};
        struct plan plan = plans_new(arena, seed % 3 ? "gpt2" : "llama", 2, 4);
        bool wide = seed % 2;
        plan.job.precision = wide ? DTYPE_fp64 : DTYPE_fp32;
        plan.deterministic = seed % 4 < 2;
        struct plan chunked = plan;
        chunked.replicas = ARENA_ARRAY(arena, struct plan_replica, 1);
        int32_t layers = plans_layers(arena, &plan), last = layers - 1;
        plans_replica(arena, &plan, 4, 1, &last);
        if (seed % 5 < 3) chunked.job.layers.by = LAYERS_FINE;
        layers = plans_layers(arena, &chunked);
        struct plan_replica *x =
            plans_replica(arena, &chunked, 4, 4, (const int32_t[]){0, 3, 5, layers - 1});
        plans_place(x, (const int32_t[4]){0});
        plans_random_orders(arena, &r, x);
        x->stages[1].recompute = seed % 5 == 0;
        struct run_result whole = run(plans_lower(arena, &plan, true), (struct run_options){0}),
                          parts = run(plans_lower(arena, &chunked, true),
                                      (struct run_options){.keep_trace = true});
        for (int s = 0; s < 4; s++) {
            double far = fabs(parts.losses[s] / whole.losses[s] - 1);
            ck_assert_msg(far <= (wide ? 1e-9 : 1e-5), "seed %lu, step %d: losses differ by %g",
                          (unsigned long)seed, s, far);
            if (plan.deterministic) ck_assert(parts.losses[s] == whole.losses[s]);
        }
        arena_reset(arena);
    }
}
END_TEST

START_TEST(a_message_between_chunks_that_comes_too_late_is_an_error)
{
    struct plan plan = plans_new(arena, "llama", 2, 1);
    struct plan_replica *x =
        plans_replica(arena, &plan, 1, 2, (const int32_t[]){2, plans_layers(arena, &plan) - 1});
    plans_place(x, (const int32_t[]){0, 0});
    x->orders = ARENA_ARRAY(arena, const char *, 2);
    x->orders[0] = "0F0 1F0 1B0 0B0";
    struct program *p = plans_lower(arena, &plan, true);
    struct call *calls_of = p->orders[0].runs[0].calls;
    for (int32_t i = 0; i < 2; i++) calls_of[i].chunk ^= 1;
    struct run_options o = {.steps = 1};
    struct run_result r;
    struct error err = {0};
    ck_assert_int_eq(worker_run(arena, p, &o, &r, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "between its own stages is needed before it is sent") != NULL,
                  "%s", err.text);
}
END_TEST

Suite *chunks_run_suite(void)
{
    Suite *s = suite_create("chunks_run");
    TCase *t = tcase_create("chunks_run");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, random_chunks_run_in_simulated_time);
    tcase_add_test(t, a_blocked_chunk_is_named_by_the_simulator);
    tcase_add_test(t, one_device_trains_alike_however_many_stages_it_owns);
    tcase_add_test(t, a_message_between_chunks_that_comes_too_late_is_an_error);
    suite_add_tcase(s, t);
    return s;
}
