/* Parameter servers (core/lower/servers.c, sim/engine/served.c): what a program has of them, and simulated times against closed forms. That
 * they train as defined is checked by tests/cli/parameter_server.sh. */
#include "sim/engine/sim.h"
#include "traces/trace.h"

#include "tests/support/plans.h"

#include <math.h>

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

enum { STEPS = 48 };

/* n workers, with `shares` microbatches each or one; then the servers. */
static struct plan served(int32_t n, const int32_t *shares, int32_t n_servers, struct parameter_server rule)
{
    struct plan p = plans_new(arena, "gpt2", 2, n + n_servers);
    int32_t last = plans_layers(arena, &p) - 1, *devices = ARENA_ARRAY(arena, int32_t, (size_t)n_servers);
    for (int32_t i = 0; i < n; i++) plans_replica(arena, &p, shares ? shares[i] : 1, 1, &last);
    for (int32_t i = 0; i < n_servers; i++) devices[i] = n + i;
    rule.n = n_servers;
    p.servers = (struct plan_servers){rule, devices};
    p.cluster.links[0].n_ends = 0; /* every pair has a link of its own */
    p.cluster.links[0].kind[0] = p.cluster.links[0].kind[1] = END_INSIDE;
    p.cluster.links[0].bandwidth_Bps = 1e5, p.cluster.links[0].latency_s = 0.01;
    return p;
}

static const struct parameter_server bsp = {.mode = SERVER_BSP, .drop_above = -1}, asp = {.mode = SERVER_ASP, .drop_above = -1};
static struct parameter_server ssp(int32_t bound) { return (struct parameter_server){.mode = SERVER_SSP, .bound = bound, .drop_above = -1}; }

/* --- the program --- */

START_TEST(every_parameter_is_on_one_server)
{
    const struct parameter_server rules[] = {bsp, ssp(0), ssp(2), asp};
    for (int32_t n_servers = 1; n_servers <= 3; n_servers++)
        for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
            struct plan plan = served(3, NULL, n_servers, rules[k]);
            const struct program *p = plans_lower(arena, &plan, true);
            plans_read_back(arena, p);
            int64_t bytes[3] = {0}, most = 0, least = INT64_MAX;
            int32_t n = 0;
            for (int32_t i = 0; i < p->n_stages; i++) {
                const struct program_stage *s = &p->stages[i];
                ck_assert_int_eq(s->server, i < 3 ? 0 : i - 2);
                for (int32_t x = 0; x < s->n_parameters; x++)
                    ck_assert(s->server ? s->parameters[x].state[1] >= 0 : s->parameters[x].state[0] < 0);
                if (!s->server) continue;
                n += s->n_parameters, bytes[s->server - 1] = s->class_bytes[SLOT_PARAMETER];
                ck_assert_int_eq(s->device, s->server - 1); /* servers are the first ranks */
                ck_assert_int_eq(s->class_bytes[SLOT_STATE], 2 * bytes[s->server - 1]);
                ck_assert_int_eq(s->class_bytes[SLOT_GRADIENT], 3 * bytes[s->server - 1]);
            }
            for (int32_t i = 0; i < n_servers; i++)
                most = bytes[i] > most ? bytes[i] : most, least = bytes[i] < least ? bytes[i] : least;
            ck_assert_int_eq(n, p->stages[0].n_parameters);
            ck_assert_int_eq(p->n_channels, 2 * 3 * n);
            ck_assert_int_eq(p->n_collectives, 0);
            ck_assert_int_le(most - least, p->stages[0].slots[p->stages[0].parameters[0].slot].bytes);
        }
}
END_TEST

static void refused(struct plan p, const char *why)
{
    ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
}

START_TEST(what_servers_do_not_cover_is_refused)
{
    struct plan p = served(2, NULL, 1, asp);
    p.deterministic = true, refused(p, "deterministic"), p.deterministic = false;
    p.job.precision = DTYPE_bf16, refused(p, "precision bf16"), p.job.precision = DTYPE_fp32;
    p.replicas[1].stages[0].zero = 1, refused(p, "zero"), p.replicas[1].stages[0].zero = 0;
    p.compression.gradients.kind = COMPRESSION_BF16, refused(p, "compression.gradients"), p.compression.gradients.kind = COMPRESSION_NONE;
    ((int32_t *)(uintptr_t)p.servers.devices)[0] = 1;
    refused(p, "a.1 has a stage of a replica");
    ((int32_t *)(uintptr_t)p.servers.devices)[0] = 7;
    refused(p, "no device 7");
    struct plan many = served(1, NULL, 60, asp);
    refused(many, "60 servers, but the model has");
    struct plan twice = served(2, NULL, 2, asp);
    ((int32_t *)(uintptr_t)twice.servers.devices)[0] = 3;
    refused(twice, "a.3 is named twice");
}
END_TEST

/* What is wrong in a program of servers is refused with its line. */
START_TEST(a_wrong_program_is_refused)
{
    static const struct {
        const char *what, *by, *message;
    } hostile[] = {{"parameter_server 1 asp", "parameter_server 2 asp", "servers are the last stages"},
                   {"parameter_server 1 asp 0", "parameter_server 1 asp 1", "1 is not from 0 to 0"},
                   {"parameter_server 1 asp", "parameter_server 1 bps", "unknown word 'bps'"},
                   {"procedure U push", "procedure U pull", "no push of worker 0"},
                   {"procedure U pull", "procedure U pole", "no pull of worker 0"},
                   {"\nserver 1 0", "\nserver 0 0", "a message a step is between"},
                   {" 1 1 1\nchannel", " 1 1 0\nchannel", "is in no buffer ring"},
                   {" 1 1 1\nchannel", " 2 1 1\nchannel", "a message a step is between"}};
    struct plan plan = served(2, NULL, 1, asp);
    size_t n;
    char *text = plans_text(plans_lower(arena, &plan, true), &n);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct program p;
        const char *at = strstr(text, hostile[i].what);
        ck_assert_msg(at != NULL, "no '%s'", hostile[i].what);
        const char *bad = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, hostile[i].by, at + strlen(hostile[i].what));
        ck_assert_int_eq(program_parse(arena, "x", bad, strlen(bad), &p, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, hostile[i].message) != NULL, "%zu: %s", i, err.text);
    }
    free(text);
}
END_TEST

/* --- closed forms --- */

struct timed {
    struct sim_result r;
    const struct program *p;
    int64_t work[8]; /* (workers) ns of a worker's operators in a step */
    int64_t zero[8]; /* (workers) of these behind its pull */
    int64_t push;    /* of all messages to the only server, from hand-over to arrival; a pull is as long */
    int64_t apply, copy; /* of a server's push and pull; with BSP apply is all */
};

static int64_t operators(struct cost *k, const struct program_stage *s, const struct procedure *f, double factor)
{
    int64_t ns = 0, one;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind != INSTR_COMPUTE) continue;
        ck_assert_int_eq(cost_op(k, 0, &s->ops[f->instrs[i].arg], &one, &err), OK);
        ns += llround((double)one * factor);
    }
    return ns;
}

/* factor: (program devices, the server first) of durations. */
static struct timed simulated(const struct plan *plan, const double *factor)
{
    struct timed t = {.p = plans_lower(arena, plan, true)};
    const struct program *p = t.p;
    struct sim_scale scale = {.device = factor};
    struct sim_options o = {.detail = SIM_OPERATOR, .steps = STEPS, .scale = &scale, .fold = true, .keep_trace = true};
    struct profile *profile = ARENA_ARRAY(arena, struct profile, 1);
    ck_assert_msg(profile_prior(arena, &plan->cluster, profile, &err) == OK, "%s", err.text);
    struct cost *k = cost_new(arena, profile, &plan->cluster);
    ck_assert_msg(sim_run(arena, p, k, &o, &t.r, &err) == OK, "%s", err.text);
    struct sim_options stage = o;
    struct sim_result merged;
    stage.detail = SIM_STAGE, stage.keep_trace = false;
    ck_assert_msg(sim_run(arena, p, k, &stage, &merged, &err) == OK, "%s", err.text);
    ck_assert_int_eq(merged.iteration_ns, t.r.iteration_ns);
    ck_assert_int_eq(merged.makespan_ns, t.r.makespan_ns);
    for (int32_t w = 0; w < p->n_stages - 1; w++) {
        const struct program_stage *s = &p->stages[w];
        struct cursor cursor;
        struct call call;
        cursor_start(&cursor, &p->orders[p->lanes[s->device].order]);
        while (cursor_next(&cursor, &call)) {
            const struct procedure *f = &s->procedures[call.procedure];
            struct procedure behind = {.n_instrs = s->n_parameters, .instrs = f->instrs + f->n_instrs - s->n_parameters};
            t.work[w] += operators(k, s, f, factor[s->device]);
            if (f->phase == PHASE_U) t.zero[w] = operators(k, s, &behind, factor[s->device]);
        }
    }
    const struct program_stage *server = &p->stages[p->n_stages - 1];
    t.apply = operators(k, server, &server->procedures[0], factor[0]);
    if (server->n_procedures > 1) t.copy = operators(k, server, &server->procedures[1], factor[0]);
    for (int32_t i = 0; i < p->n_channels; i++)
        if (p->channels[i].from_stage == 0) t.push += llround((double)p->channels[i].bytes / 1e5 * 1e9);
    t.push += 10000000;
    return t;
}

static void near(double ns, double closed) { ck_assert_double_eq_tol(ns / closed, 1, 1e-9); }

START_TEST(equal_workers_of_a_bulk_synchronous_server)
{
    static const double factor[] = {1e3, 1e6, 1e6, 1e6};
    for (int32_t bound = -1; bound < 1; bound++) {
        struct plan plan = served(3, NULL, 1, bound < 0 ? bsp : ssp(0));
        struct timed t = simulated(&plan, factor);
        near((double)t.r.iteration_ns, (double)(t.work[0] + 2 * t.push + t.apply));
        ck_assert_int_eq(t.r.staleness.pushes, 0);
    }
}
END_TEST

START_TEST(equal_asynchronous_workers_do_not_wait)
{
    static const double factor[] = {1, 1e6, 1e6, 1e6};
    struct plan plan = served(3, NULL, 1, asp);
    struct timed t = simulated(&plan, factor);
    near((double)t.r.iteration_ns, (double)(t.work[0] + 2 * t.push + t.apply + t.copy));
    ck_assert_int_eq(t.r.staleness.pushes, 3 * STEPS);
    ck_assert_int_eq(t.r.staleness.most, 2); /* two others push between its pull and its push */
    struct plan alone = served(1, NULL, 1, asp);
    struct timed one = simulated(&alone, factor);
    near((double)one.r.makespan_ns, (double)(STEPS * (one.work[0] + 2 * one.push + one.apply + one.copy)));
    ck_assert_int_eq(one.r.staleness.most, 0);
}
END_TEST

START_TEST(the_rate_of_unequal_asynchronous_workers_is_the_sum_of_theirs)
{
    static const double factor[] = {0, 1e6, 2e6, 4.7e6};
    static const int32_t shares[] = {3, 2, 1};
    struct plan plan = served(3, shares, 1, asp);
    struct timed t = simulated(&plan, factor);
    double rate = 0;
    for (int w = 0; w < 3; w++) rate += shares[w] / (double)(t.work[w] + 2 * t.push);
    near((double)t.r.iteration_ns, 6 / rate);
}
END_TEST

START_TEST(a_slow_server_bounds_the_rate)
{
    static const double factor[] = {1e7, 1, 1, 1, 1};
    struct plan plan = served(4, NULL, 1, asp);
    plan.cluster.links[0].bandwidth_Bps = 1e15, plan.cluster.links[0].latency_s = 0;
    struct timed t = simulated(&plan, factor);
    near((double)t.r.iteration_ns, 4 * (double)(t.apply + t.copy));
    near((double)t.r.devices[0].busy_ns, (double)t.r.iteration_ns);
}
END_TEST

START_TEST(a_straggler_gates_stale_synchronous_workers)
{
    static const double factor[] = {0, 1e6, 1e6, 10e6};
    for (int32_t bound = 1; bound < 6; bound++) {
        struct plan plan = served(3, NULL, 1, ssp(bound));
        struct timed t = simulated(&plan, factor);
        double fast = (double)(t.work[0] + 2 * t.push), slow = (double)(t.work[2] + 2 * t.push);
        near((double)t.r.iteration_ns, slow);
        near((double)t.r.makespan_ns, STEPS * slow);
        /* A fast worker is `bound` steps in front: it ends its last step when the straggler's push of that step - bound has come. */
        int64_t end = 0, first = 0;
        for (size_t i = 0; i < t.r.trace->n_spans; i++) {
            const struct span *s = &t.r.trace->spans[i];
            if (s->device != t.p->stages[0].device || s->kind != SPAN_COMPUTE) continue;
            if (s->end_ns > end) end = s->end_ns;
            if (s->step == bound - 1 && s->end_ns > first) first = s->end_ns;
        }
        near((double)first, bound * fast); /* until then it does not wait */
        near((double)end, (STEPS - bound) * slow - (double)t.zero[2] + (double)t.zero[0]);
        ck_assert_int_eq(t.r.staleness.most, 2 * (bound + 1)); /* of the straggler's first push */
    }
}
END_TEST

START_TEST(what_is_dropped_costs_the_server_nothing)
{
    static const double factor[] = {1e3, 1e6, 1e6, 10e6};
    struct parameter_server rule = asp;
    rule.drop_above = 4;
    struct plan plan = served(3, NULL, 1, rule), all = served(3, NULL, 1, asp);
    struct timed dropped = simulated(&plan, factor), applied = simulated(&all, factor);
    ck_assert_int_gt(dropped.r.staleness.dropped, 0);
    ck_assert_int_eq(applied.r.staleness.dropped, 0);
    int64_t fewer = (applied.r.operators - dropped.r.operators) / dropped.p->stages[0].n_parameters;
    ck_assert_int_eq(fewer, dropped.r.staleness.dropped);
}
END_TEST

Suite *parameter_server_suite(void)
{
    Suite *s = suite_create("parameter_server");
    TCase *t = tcase_create("parameter_server");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_parameter_is_on_one_server);
    tcase_add_test(t, what_servers_do_not_cover_is_refused);
    tcase_add_test(t, a_wrong_program_is_refused);
    tcase_add_test(t, equal_workers_of_a_bulk_synchronous_server);
    tcase_add_test(t, equal_asynchronous_workers_do_not_wait);
    tcase_add_test(t, the_rate_of_unequal_asynchronous_workers_is_the_sum_of_theirs);
    tcase_add_test(t, a_slow_server_bounds_the_rate);
    tcase_add_test(t, a_straggler_gates_stale_synchronous_workers);
    tcase_add_test(t, what_is_dropped_costs_the_server_nothing);
    suite_add_tcase(s, t);
    return s;
}
