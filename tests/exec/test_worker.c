/* Suite of exec/worker/worker with one rank: no message library is touched. Ranks are tests/programs/exec_ranks.c's. */
#include "exec/worker/worker.h"

#include "core/base/log.h"
#include "exec/bench/bench.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/clock.h"
#include "exec/host_transport/memory.h"

#include "tests/support/data.h"
#include "tests/support/plans.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

static struct run_result run(struct arena *a, const struct program *p, struct run_options o)
{
    struct run_result r;
    struct error err = {0};
    ck_assert_msg(worker_run(a, p, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

static void refused(struct arena *a, const struct program *p, struct run_options o,
                    enum status status, const char *why)
{
    struct run_result r;
    struct error err = {0};
    ck_assert_int_eq(worker_run(a, p, &o, &r, &err), status);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

/* One device, a small GPT over all 256 bytes. */
static struct program *gpt(struct arena *a, double slowdown)
{
    struct plan p = plans_new(a, "gpt2", 2, 1);
    p.job.model.vocabulary = 256;
    p.job.sequence_length = 32;
    p.job.optimizer.lr = 1e-2;
    p.cluster.types[0].slowdown = slowdown;
    p.cluster.emulated = slowdown > 0;
    int32_t last = plans_layers(a, &p) - 1;
    plans_replica(a, &p, 4, 1, &last);
    return plans_lower(a, &p, true);
}

/* A model of one number p: loss p, gradient p, so each step of lr 0.5 halves it. */
static struct program *halving(struct arena *a)
{
    struct program *p = ARENA_ARRAY(a, struct program, 1);
    const struct shape one = {1, {1}};
    *p = (struct program){.name = "halving",
                          .seed = 1,
                          .steps = 1,
                          .microbatch = 1,
                          .sequence_length = 1,
                          .vocabulary = 1,
                          .microbatches = 1,
                          .n_devices = 1,
                          .n_stages = 1,
                          .n_orders = 1,
                          .optimizer = {.kind = OPTIMIZER_SGD, .lr = 0.5}};
    p->devices = ARENA_ARRAY(a, struct program_device, 1);
    p->devices[0] = (struct program_device){
        .name = "a.0", .type = "plain", .host = "localhost", .kind = "host"};
    p->lanes = ARENA_ARRAY(a, struct lane, 1);
    p->lanes[0] = (struct lane){0, 1, ARENA_ARRAY(a, int32_t, 1)};
    struct program_stage *s = p->stages = ARENA_ARRAY(a, struct program_stage, 1);
    *s = (struct program_stage){
        .microbatches = 1, .n_slots = 2, .n_ops = 2, .n_procedures = 2, .n_parameters = 1};
    s->slots = ARENA_ARRAY(a, struct slot, 2);
    s->slots[0] = (struct slot){"p", SLOT_PARAMETER, DTYPE_fp32, one, -1, 0, 0, 4, 0, -1, NULL};
    s->slots[1] = (struct slot){"g", SLOT_GRADIENT, DTYPE_fp32, one, -1, 0, 0, 4, 0, -1, NULL};
    s->class_bytes[SLOT_PARAMETER] = s->class_bytes[SLOT_GRADIENT] = 64;
    s->parameters = ARENA_ARRAY(a, struct program_parameter, 1);
    s->parameters[0] =
        (struct program_parameter){"p", one, INIT_ONES, 0, false, 0, {1, -1}, {-1, -1}, -1, {0}, 0, 0, {0}, NULL};
    s->ops = ARENA_ARRAY(a, struct program_op, 2);
    s->ops[0] = (struct program_op){.kind = OP_accumulate,
                                    .phase = PHASE_W,
                                    .name = "grad",
                                    .n_inputs = 1,
                                    .n_outputs = 1,
                                    .input = {0},
                                    .output = {1}};
    s->ops[1] = (struct program_op){.kind = OP_sgd,
                                    .phase = PHASE_U,
                                    .name = "update",
                                    .n_inputs = 2,
                                    .n_outputs = 2,
                                    .input = {0, 1},
                                    .output = {0, 1}};
    for (int i = 0; i < 2; i++) {
        struct op_shapes *x = &s->ops[i].shapes;
        x->n_inputs = s->ops[i].n_inputs, x->n_outputs = s->ops[i].n_outputs;
        for (int k = 0; k < 2; k++) x->input[k] = x->output[k] = one;
    }
    static struct instr f[] = {{INSTR_LOSS, 0}, {INSTR_COMPUTE, 0}}, u[] = {{INSTR_COMPUTE, 1}};
    s->procedures = ARENA_ARRAY(a, struct procedure, 2);
    s->procedures[0] = (struct procedure){PHASE_F, "", 0, 0, 2, f};
    s->procedures[1] = (struct procedure){PHASE_U, "", 0, 0, 1, u};
    const struct call calls[] = {{0, 0, 0}, {1, -1, 0}};
    p->orders = ARENA_ARRAY(a, struct order, 1);
    order_code(a, calls, 2, p->orders);
    return p;
}

START_TEST(a_program_made_by_hand_does_what_its_numbers_say)
{
    struct arena *a = arena_new();
    struct run_result r = run(a, halving(a), (struct run_options){.steps = 4, .keep_trace = true});
    for (int s = 0; s < 4; s++) ck_assert(r.losses[s] == pow(0.5, s));
    int kinds[SPAN_KIND_COUNT] = {0};
    for (size_t i = 0; i < r.trace->n_spans; i++) kinds[r.trace->spans[i].kind]++;
    ck_assert_int_eq(kinds[SPAN_COMPUTE], 8);
    ck_assert_int_eq(kinds[SPAN_STEP], 4);
    arena_free(a);
}
END_TEST

START_TEST(losses_of_a_small_gpt_fall_on_a_real_text)
{
    struct arena *a = arena_new();
    struct run_result r = run(a, gpt(a, 0), (struct run_options){.steps = 40, .data = DATA_FILE("LICENSE")});
    ck_assert_double_eq_tol(r.losses[0], log(256),
                            0.2); /* before training every byte is as likely */
    ck_assert_double_lt(r.losses[39], r.losses[0] - 1.5);
    ck_assert_int_gt(r.iteration_ns, 0);
    ck_assert_double_gt(r.tokens_per_s, 0);
    ck_assert_ptr_null(r.trace);
    arena_free(a);
}
END_TEST

START_TEST(the_same_run_gives_the_same_bits)
{
    struct arena *a = arena_new();
    struct program *p = gpt(a, 0);
    struct run_result x = run(a, p, (struct run_options){.steps = 5, .data = DATA_FILE("LICENSE")}),
                      y = run(a, p, (struct run_options){.steps = 5, .data = DATA_FILE("LICENSE")});
    ck_assert_mem_eq(x.losses, y.losses, 5 * sizeof *x.losses);
    arena_free(a);
}
END_TEST

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/musher-worker-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void remove_dir(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(a_resumed_run_is_the_uninterrupted_run)
{
    struct arena *a = arena_new();
    struct program *p = gpt(a, 0);
    make_dir();
    struct run_result whole = run(a, p, (struct run_options){.steps = 7, .data = DATA_FILE("LICENSE")});
    run(a, p, (struct run_options){.steps = 4, .data = DATA_FILE("LICENSE"), .save = dir, .save_every = 2});
    struct run_result rest =
        run(a, p, (struct run_options){.steps = 3, .data = DATA_FILE("LICENSE"), .resume = dir, .save = dir});
    ck_assert_int_eq(rest.first_step, 4);
    ck_assert_mem_eq(rest.losses, whole.losses + 4, 3 * sizeof *whole.losses);
    ck_assert(!access(arena_printf(a, "%s/step-00000007/manifest.json", dir), F_OK));
    remove_dir();
    arena_free(a);
}
END_TEST

START_TEST(a_damaged_checkpoint_costs_steps_but_not_the_run)
{
    struct arena *a = arena_new();
    struct program *p = gpt(a, 0);
    make_dir();
    log_set_level(LOG_LEVEL_ERROR);
    struct run_result whole = run(
        a, p, (struct run_options){.steps = 6, .data = DATA_FILE("LICENSE"), .save = dir, .save_every = 3});
    ck_assert_int_eq(truncate(arena_printf(a, "%s/step-00000006/model.safetensors", dir), 100), 0);
    struct run_result rest =
        run(a, p, (struct run_options){.steps = 4, .data = DATA_FILE("LICENSE"), .resume = dir, .save = dir});
    ck_assert_int_eq(rest.first_step, 3);
    ck_assert_mem_eq(rest.losses, whole.losses + 3, 3 * sizeof *whole.losses);
    ck_assert(!access(arena_printf(a, "%s/step-00000003", dir), F_OK)); /* 6 does not count */
    rest = run(a, p, (struct run_options){.steps = 1, .data = DATA_FILE("LICENSE"), .resume = dir});
    ck_assert_int_eq(rest.first_step, 7);
    remove_dir();
    arena_free(a);
}
END_TEST

/* The folder is there, a file is not to be had: more bytes than a file may have here, or a folder that takes none. */
START_TEST(a_folder_that_cannot_be_written_is_known_before_the_first_step)
{
    struct arena *a = arena_new();
    struct program *p = halving(a);
    struct run_options o = {.steps = 1, .save = "/proc/self/task"};
    p->optimizer.lr = 1e300; /* one step, and nothing would be saved */
    refused(a, p, o, ERR_RESOURCE,
            "checkpoint folder '/proc/self/task' cannot be written: cannot create");
    make_dir();
    o.save = arena_printf(a, "%s/inside", dir);
    struct rlimit before, none = {0, RLIM_INFINITY};
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    refused(a, p, o, ERR_RESOURCE, "inside' cannot be written: cannot write");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert(access(o.save, F_OK)); /* the run had made it */
    remove_dir();
    arena_free(a);
}
END_TEST

START_TEST(a_checkpoint_of_another_job_is_refused)
{
    struct arena *a = arena_new();
    struct program *p = gpt(a, 0);
    make_dir();
    run(a, p, (struct run_options){.steps = 1, .data = DATA_FILE("LICENSE"), .save = dir});
    refused(a, p, (struct run_options){.steps = 1, .data = DATA_FILE("LICENSE"), .save = dir}, ERR_INPUT,
            "resume from it");
    const struct run_options o = {.steps = 1, .data = DATA_FILE("LICENSE"), .resume = dir};
    p->seed = 9;
    refused(a, p, o, ERR_INPUT, "has seed 1, the program has 9");
    p->seed = 1, p->optimizer.kind = OPTIMIZER_SGD;
    refused(a, p, o, ERR_INPUT, "has optimizer adamw, the program has sgd");
    p->optimizer.kind = OPTIMIZER_ADAMW, p->microbatches = 3;
    refused(a, p, o, ERR_INPUT, "stands after 8 sequences (global batch 8)");
    log_set_level(LOG_LEVEL_ERROR);
    struct program *other = halving(a);
    other->optimizer.kind = OPTIMIZER_ADAMW;
    refused(a, other, (struct run_options){.steps = 1, .resume = dir}, ERR_INPUT, "no tensor p");
    remove_dir();
    arena_free(a);
}
END_TEST

/* Another plan, of a batch half as large: twice as many steps to the same position. */
START_TEST(position_is_counted_in_sequences)
{
    struct arena *a = arena_new();
    struct plan p = plans_new(a, "gpt2", 2, 1);
    p.job.model.vocabulary = 256;
    p.job.sequence_length = 32;
    int32_t last = plans_layers(a, &p) - 1;
    plans_replica(a, &p, 2, 1, &last);
    struct program *half = plans_lower(a, &p, true);
    make_dir();
    log_set_level(LOG_LEVEL_ERROR);
    run(a, half, (struct run_options){.steps = 4, .data = DATA_FILE("LICENSE"), .save = dir});
    run(a, gpt(a, 0),
        (struct run_options){.steps = 1, .data = DATA_FILE("LICENSE"), .save = dir, .resume = dir});
    struct checkpoint c;
    struct error err = {0};
    ck_assert_msg(checkpoint_find(a, dir, &c, &err) == OK, "%s", err.text);
    ck_assert_int_eq(c.step, 5);
    ck_assert_int_eq(c.sequences, 4 * 4 + 8);
    ck_assert_int_eq(c.global_batch, 8);
    /* Another text is no reason to stop. */
    struct run_result r =
        run(a, gpt(a, 0), (struct run_options){.steps = 1, .data = DATA_FILE("Makefile"), .resume = dir});
    ck_assert_int_eq(r.first_step, 5);
    remove_dir();
    arena_free(a);
}
END_TEST

START_TEST(a_loss_that_is_not_finite_leaves_the_checkpoint_alone)
{
    struct arena *a = arena_new();
    struct program *p = halving(a);
    make_dir();
    log_set_level(LOG_LEVEL_ERROR);
    run(a, p, (struct run_options){.steps = 2, .save = dir});
    p->optimizer.lr = 1e30; /* 0.25, -2.5e29, 2.5e59: no float */
    struct run_options o = {.steps = 1, .save = dir, .resume = dir, .save_every = 1};
    run(a, p, o);
    ck_assert(!access(arena_printf(a, "%s/step-00000003", dir), F_OK));
    struct run_result r = run(a, p, o);
    ck_assert(isfinite(r.losses[0])); /* but what it led to is not */
    ck_assert(access(arena_printf(a, "%s/step-00000004", dir), F_OK));
    o.steps = 3;
    r = run(a, p, o);
    ck_assert(isfinite(r.losses[0]) && !isfinite(r.losses[1]) && !isfinite(r.losses[2]));
    ck_assert(!access(arena_printf(a, "%s/step-00000003", dir), F_OK));
    ck_assert(access(arena_printf(a, "%s/step-00000006", dir), F_OK));
    remove_dir();
    arena_free(a);
}
END_TEST

START_TEST(memory_is_counted_before_any_is_taken)
{
    struct arena *a = arena_new();
    struct program *p = halving(a);
    p->stages[0].class_bytes[SLOT_SCRATCH] = INT64_C(1) << 50;
    refused(a, p, (struct run_options){.steps = 1}, ERR_RESOURCE,
            "1 device on this host needs 1125899906842752 bytes");
    arena_free(a);
}
END_TEST

START_TEST(what_cannot_be_run_here_is_refused_with_the_reason)
{
    struct arena *a = arena_new();
    struct program *p = gpt(a, 0);
    const struct run_options o = {.steps = 1, .data = DATA_FILE("LICENSE")};
    refused(a, p, (struct run_options){.steps = 1, .data = DATA_FILE("/nowhere")}, ERR_INPUT, "/nowhere");
    p->devices[0].host = "some-other-host";
    refused(a, p, o, ERR_INPUT, "some-other-host");
    p->devices[0].host = "localhost", p->devices[0].kind = "abacus";
    refused(a, p, o, ERR_NO_DEVICE, "abacus");
    p->devices[0].kind = "host", p->vocabulary = 64;
    refused(a, p, o, ERR_INPUT, "vocabulary of 64");
    p->n_devices = 3;
    refused(a, p, o, ERR_INPUT, "needs 3 ranks, 1 were started");
    arena_free(a);
}
END_TEST

/* What lowering reserves, what a simulation reports as reserved and what the executor allocates. */
static void check_memory(struct arena *a, const struct program *p)
{
    for (int32_t s = 0; s < p->n_stages; s++) {
        struct backend b;
        struct lane_memory m;
        struct error err = {0};
        backend_host(&b);
        ck_assert_int_eq(b.open(&b, 0, &err), OK);
        ck_assert_msg(lane_memory_open(&m, a, p, s, &b, true, &err) == OK, "%s", err.text);
        ck_assert_int_eq(m.bytes, program_stage_bytes(&p->stages[s]));
        lane_memory_close(&m);
        b.close(&b);
    }
}

START_TEST(exactly_what_the_program_plans_is_allocated)
{
    struct arena *a = arena_new();
    int staged = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct plan plan = plans_random_cut(a, seed, seed % 4 == 1 ? LAYERS_FINE : LAYERS_DEFAULT);
        struct program *p = plans_lower(a, &plan, seed % 2 == 0);
        check_memory(a, p);
        for (int32_t i = 0; i < p->n_collectives; i++)
            for (int32_t k = 0; k < p->collectives[i].n_members; k++) {
                struct program_stage *s = &p->stages[p->collectives[i].members[k].stage];
                int64_t need = program_collective_staging_bytes(&p->collectives[i],
                                                                &p->collectives[i].members[k], s);
                ck_assert_int_le(need, s->buffer_bytes);
                if (staged++ || !need) continue;
                struct program poor = *p;
                struct program_stage *before = poor.stages;
                poor.stages = ARENA_ARRAY(a, struct program_stage, (size_t)p->n_stages);
                memcpy(poor.stages, before, (size_t)p->n_stages * sizeof *before);
                poor.stages[s - before].buffer_bytes = need - 64;
                struct backend b;
                struct lane_memory m;
                struct error err = {0};
                backend_host(&b);
                ck_assert_int_eq(b.open(&b, 0, &err), OK);
                ck_assert_int_eq(
                    lane_memory_open(&m, a, &poor, (int32_t)(s - before), &b, true, &err),
                    ERR_INPUT);
                ck_assert_ptr_nonnull(strstr(err.text, "staging needs"));
                lane_memory_close(&m);
                b.close(&b);
            }
    }
    ck_assert_int_gt(staged, 0);
    arena_free(a);
}
END_TEST

START_TEST(operators_of_an_emulated_device_follow_each_other_on_its_own_clock)
{
    struct arena *a = arena_new();
    struct run_result r =
        run(a, gpt(a, 3), (struct run_options){.steps = 3, .data = DATA_FILE("LICENSE"), .keep_trace = true});
    struct run_result real = run(a, gpt(a, 0), (struct run_options){.steps = 3, .data = DATA_FILE("LICENSE")});
    int64_t end = 0, step_end = 0;
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *s = &r.trace->spans[i];
        if (s->kind == SPAN_STEP) step_end = s->end_ns;
        if (s->kind != SPAN_COMPUTE) continue;
        ck_assert_int_eq(s->begin_ns, end); /* one lane that waits for nobody is never idle */
        ck_assert_int_ge(s->end_ns, s->begin_ns); /* equal: shorter than the CPU clock's resolution */
        end = s->end_ns;
    }
    ck_assert_int_ge(step_end, end); /* the wall is never ahead of the clock */
    ck_assert_str_eq(r.trace->clock, "virtual");
    ck_assert(r.trace->emulated);
    ck_assert_mem_eq(r.losses, real.losses, 3 * sizeof *r.losses);
    arena_free(a);
}
END_TEST

START_TEST(a_device_clock_charges_cpu_time_and_not_waits)
{
    struct device_clock c;
    device_clock_start(&c, 1000, clock_wall_ns());
    device_clock_wait(&c);
    clock_sleep_until(clock_wall_ns() + 1000000);
    device_clock_waited(&c, 7);
    ck_assert_int_eq(c.now_ns, 7);
    device_clock_wait(&c);
    device_clock_waited(&c, 3);
    ck_assert_int_eq(c.now_ns, 7); /* never backwards */
    int64_t owed = c.owed_ns, stamp = c.cpu_ns;
    int64_t end = device_clock_end(&c);
    ck_assert_int_eq(end, 7 + 1000 * (c.cpu_ns - stamp + owed));
}
END_TEST

START_TEST(a_link_is_used_by_one_message_after_the_other)
{
    struct link_clock c;
    ck_assert_int_eq(link_clock_init(&c), 0);
    ck_assert_int_eq(link_clock_reserve(&c, 100, 50), 100);
    ck_assert_int_eq(link_clock_reserve(&c, 120, 10), 150);
    ck_assert_int_eq(link_clock_reserve(&c, 500, 0), 500);
    ck_assert_int_eq(link_clock_reserve(&c, 0, 1), 500);
}
END_TEST

START_TEST(a_bench_times_every_operator_of_a_program_as_often_as_asked)
{
    struct arena *a = arena_new();
    struct program *p = gpt(a, 0), bench;
    struct error err = {0};
    const struct program_stage *s = &p->stages[0];
    enum { REPEATS = 3 };
    ck_assert_msg(bench_ops(a, s->ops, s->n_ops, &p->devices[0], REPEATS, 256, &bench, &err) == OK,
                  "%s", err.text);
    ck_assert_msg(program_check(a, &bench, &err) == OK, "%s", err.text);
    struct run_result r = run(a, &bench, (struct run_options){.steps = 1, .keep_trace = true});
    int *seen = ARENA_ARRAY(a, int, (size_t)s->n_ops);
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *x = &r.trace->spans[i];
        if (x->kind != SPAN_COMPUTE || x->op == s->n_ops) continue; /* the last one only sweeps */
        ck_assert_uint_eq(x->key, s->ops[x->op].key);
        seen[x->op]++;
    }
    const struct program_stage *b = &bench.stages[0];
    const struct program_op *sweep = &b->ops[s->n_ops];
    ck_assert_int_eq(b->n_ops, s->n_ops + 1);
    ck_assert_uint_eq(sweep->key, 0);
    ck_assert_int_ge(b->slots[sweep->input[0]].bytes + b->slots[sweep->output[0]].bytes, 64 << 20);
    ck_assert_int_le(program_stage_bytes(b), INT64_C(512) << 20);
    int64_t before = -1; /* all but the first operand are an operator's own where there is room */
    for (int32_t i = 0; i < b->n_ops; i++)
        for (int32_t k = 1; k < b->ops[i].n_inputs; k++) {
            const struct slot *x = &b->slots[b->ops[i].input[k]];
            if (x->class != SLOT_PARAMETER || b->ops[i].phase == PHASE_U || i == s->n_ops) continue;
            ck_assert_int_gt(x->offset_bytes, before);
            before = x->offset_bytes;
        }
    for (int32_t i = 0; i < s->n_ops; i++) ck_assert_int_eq(seen[i], REPEATS);
    arena_free(a);
}
END_TEST

START_TEST(a_bench_of_a_link_is_a_program_that_can_go_on)
{
    struct arena *a = arena_new();
    struct plan p = plans_new(a, "gpt2", 1, 2);
    struct program bench;
    struct error err = {0};
    const int64_t bytes[] = {1, 1000, 1 << 20};
    ck_assert_msg(bench_link(a, &p.cluster, 0, 1, bytes, 3, 5, &bench, &err) == OK, "%s", err.text);
    ck_assert_msg(program_check(a, &bench, &err) == OK, "%s", err.text);
    ck_assert_int_eq(bench.n_channels, 6);
    ck_assert_int_eq(bench.channels[0].bytes, 4);
    arena_free(a);
}
END_TEST

SUITE_OF(worker, a_program_made_by_hand_does_what_its_numbers_say,
         losses_of_a_small_gpt_fall_on_a_real_text, the_same_run_gives_the_same_bits,
         a_resumed_run_is_the_uninterrupted_run, a_damaged_checkpoint_costs_steps_but_not_the_run,
         a_folder_that_cannot_be_written_is_known_before_the_first_step,
         a_checkpoint_of_another_job_is_refused, position_is_counted_in_sequences,
         a_loss_that_is_not_finite_leaves_the_checkpoint_alone,
         memory_is_counted_before_any_is_taken, what_cannot_be_run_here_is_refused_with_the_reason,
         exactly_what_the_program_plans_is_allocated,
         operators_of_an_emulated_device_follow_each_other_on_its_own_clock,
         a_device_clock_charges_cpu_time_and_not_waits,
         a_link_is_used_by_one_message_after_the_other,
         a_bench_times_every_operator_of_a_program_as_often_as_asked,
         a_bench_of_a_link_is_a_program_that_can_go_on)
