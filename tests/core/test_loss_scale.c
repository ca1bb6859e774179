/* Loss scales of fp16: the rule by hand; programs by what they must have; then real ranks, forked, on the host's kernels: an
 * overflow that one rank alone has is everybody's, whatever the plan, and changes no bit of what is trained. */
#include "core/base/arena.h"
#include "core/graph/loss_scale.h"
#include "core/program/program.h"
#include "exec/backend.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/worker.h"

#include "tests/support/plans.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { STEPS_MAX = 24, LIMIT_S = 60, NOWHERE = -1 };

/* ---- the rule ---------------------------------------------------------------------------------- */

static void step(float x[LOSS_SCALE_NUMBERS], float overflow, int64_t grows_after, int64_t number)
{
    loss_scale_step(x, overflow, grows_after, 0.1, 0.5, 0.75, number);
}

START_TEST(it_halves_where_a_gradient_overflows_and_doubles_after_so_many_that_did_not)
{
    float x[LOSS_SCALE_NUMBERS] = {1024};
    step(x, 2, 3, 1);
    ck_assert(x[LOSS_SCALE_NOW] == 512 && x[LOSS_SCALE_SKIPPED] == 1 &&
              isnan(x[LOSS_SCALE_FACTOR]));
    for (int i = 0; i < 2; i++) {
        step(x, 0, 3, 2 + i);
        ck_assert(x[LOSS_SCALE_NOW] == 512 && x[LOSS_SCALE_FACTOR] == 1.0f / 512);
    }
    step(x, 1, 3, 4); /* the count begins again */
    for (int i = 0; i < 3; i++) {
        ck_assert(x[LOSS_SCALE_NOW] == 256 && x[LOSS_SCALE_GOOD] == (float)i);
        step(x, 0, 3, 5 + i);
        ck_assert(x[LOSS_SCALE_FACTOR] == 1.0f / 256);
    }
    ck_assert(x[LOSS_SCALE_NOW] == 512 && x[LOSS_SCALE_GOOD] == 0 && x[LOSS_SCALE_SKIPPED] == 2);
}
END_TEST

START_TEST(adams_corrections_count_updates_and_not_steps)
{
    float x[LOSS_SCALE_NUMBERS] = {1024};
    step(x, 0, 0, 1); /* lr / (1 - 1/2), √(1 - 3/4) */
    ck_assert(x[LOSS_SCALE_RATE] == 0.2f && x[LOSS_SCALE_ROOT] == 0.5f);
    step(x, 1, 0, 2);
    step(x, 1, 0, 3);
    step(x, 0, 0, 4); /* the second update: lr / (1 - 1/4) */
    ck_assert(x[LOSS_SCALE_RATE] == (float)(0.1 / 0.75));
    ck_assert(x[LOSS_SCALE_NOW] == 1024); /* which stays, being fixed */
}
END_TEST

START_TEST(it_stays_a_number)
{
    float x[LOSS_SCALE_NUMBERS] = {LOSS_SCALE_MAX / 2};
    for (int i = 0; i < 300; i++) step(x, 0, 1, i + 1);
    ck_assert(x[LOSS_SCALE_NOW] == LOSS_SCALE_MAX);
    for (int i = 0; i < 300; i++) step(x, 1, 1, i + 1);
    ck_assert(x[LOSS_SCALE_NOW] == LOSS_SCALE_MIN);
}
END_TEST

/* ---- plans ------------------------------------------------------------------------------------- */

enum shape_of_plan { ONE, UNEVEN, ZERO_1, ZERO_2, ZERO_3, PIPELINE, BOTH, CHAIN, CHUNKS, N_PLANS };
static const char *const plan_names[] = {"one",      "uneven", "zero 1", "zero 2", "zero 3",
                                         "pipeline", "both",   "chain",  "chunks"};

static void replicas_of(struct plan *p, int32_t n, int32_t stages, int32_t microbatches)
{
    int32_t end = plans_layers(arena, p) - 1, last[4];
    for (int32_t s = 0; s < stages; s++) last[s] = s + 1 == stages ? end : s + 1;
    for (int32_t r = 0; r < n; r++) plans_replica(arena, p, microbatches - r % 2, stages, last);
}

static struct plan plan_of(enum shape_of_plan shape, enum dtype t, struct loss_scale scale)
{
    static const int32_t devices[] = {1, 2, 2, 2, 2, 4, 4, 4, 2};
    struct plan p = plans_new(arena, "gpt2", 2, devices[shape]);
    bool zero = shape >= ZERO_1 && shape <= ZERO_3;
    p.job.precision = t;
    if (t == DTYPE_fp16) p.job.loss_scale = scale;
    p.deterministic = shape == CHAIN;
    if (shape == CHUNKS)
        plans_scheduled(arena, &p, "interleaved", 2, 2, 4);
    else if (zero)
        replicas_of(&p, 1, 1, 2), replicas_of(&p, 1, 1, 2);
    else
        replicas_of(&p, shape == ONE || shape == PIPELINE ? 1 : 2,
                    shape == PIPELINE                 ? 4
                    : shape == BOTH || shape == CHAIN ? 2
                                                      : 1,
                    3);
    for (int32_t r = 0; zero && r < 2; r++)
        p.replicas[r].stages[0].zero = (int32_t)shape - ZERO_1 + 1;
    return p;
}

static const struct loss_scale usual = {LOSS_SCALE_INITIAL, LOSS_SCALE_GROWS_AFTER};

static const struct program *program_of(enum shape_of_plan shape, enum dtype t,
                                        struct loss_scale scale)
{
    struct plan p = plan_of(shape, t, scale);
    return plans_lower(arena, &p, shape % 2);
}

START_TEST(all_updates_and_the_loss_go_by_it_and_a_file_keeps_that)
{
    for (int shape = 0; shape < N_PLANS; shape++) {
        const struct program *p = program_of(shape, DTYPE_fp16, (struct loss_scale){4096, 7});
        struct program again;
        struct error err = {0};
        size_t n, m;
        char *text = plans_text(p, &n);
        ck_assert_msg(program_parse(arena, "x", text, n, &again, &err) == OK, "%s", err.text);
        ck_assert_msg(program_check(arena, &again, &err) == OK, "%s", err.text);
        char *same = plans_text(&again, &m);
        ck_assert_str_eq(text, same);
        free(text), free(same);
        ck_assert(again.loss_scale.initial == 4096 && again.loss_scale.grows_after == 7);
        int32_t losses = 0;
        for (int32_t s = 0; s < p->n_stages; s++) {
            int32_t rules = 0, looks = 0;
            for (int32_t i = 0; i < p->stages[s].n_ops; i++) {
                const struct program_op *o = &again.stages[s].ops[i];
                bool update = o->phase == PHASE_U && o->n_inputs >= 2,
                     loss = o->kind == OP_cross_entropy_grad;
                ck_assert_msg(o->attrs.scaled == (update || loss), "%s", o->name);
                losses += loss;
                looks += o->kind == OP_overflow;
                rules += o->kind == OP_rescale;
                ck_assert(o->kind != OP_rescale || o->attrs.grows_after == 7);
                ck_assert(!update || rules == 1); /* the rule comes first */
            }
            ck_assert(rules == 1 && looks >= 1);
        }
        ck_assert_int_ge(losses, 1);
    }
}
END_TEST

START_TEST(no_other_precision_has_one)
{
    static const enum dtype types[] = {DTYPE_fp32, DTYPE_fp64, DTYPE_bf16};
    for (int t = 0; t < 3; t++) {
        const struct program *p = program_of(BOTH, types[t], usual);
        ck_assert(!(p->loss_scale.initial > 0));
        for (int32_t s = 0; s < p->n_stages; s++)
            for (int32_t i = 0; i < p->stages[s].n_ops; i++)
                ck_assert(!p->stages[s].ops[i].attrs.scaled &&
                          p->stages[s].ops[i].kind != OP_rescale);
    }
}
END_TEST

/* ---- ranks ------------------------------------------------------------------------------------- */

struct outcome {
    double losses[STEPS_MAX], scale;
    int64_t n_skipped, skipped[STEPS_MAX];
};

struct training {
    const struct program *p;
    struct run_options o;
    int32_t rank;        /* whose gradients overflow, in step … */
    int64_t step;        /* 1-based */
    struct outcome *out; /* shared by all ranks */
};

static const struct training *now; /* a rank is a process */
static int64_t steps_seen, chunks;
static bool done;
static enum status (*host_run)(struct backend *b, int32_t stream, const struct op_call *call,
                               struct error *err);

/* The host's, but for one element of one gradient of one rank in one step. */
static enum status run_broken(struct backend *b, int32_t stream, const struct op_call *c,
                              struct error *err)
{
    if (c->kind == OP_overflow && now->rank != NOWHERE && !done &&
        steps_seen / chunks + 1 == now->step)
        *(float *)(uintptr_t)c->input[0] = INFINITY, done = true;
    steps_seen += c->kind == OP_rescale;
    return host_run(b, stream, c, err);
}

static enum status make_backend(const char *kind, struct backend *out, struct error *err)
{
    (void)kind, (void)err;
    backend_host(out);
    host_run = out->run;
    out->run = run_broken;
    return OK;
}

static int train_rank(void *owner, int32_t rank)
{
    const struct training *t = owner;
    struct training mine = *t;
    struct run_result r;
    struct error err = {0};
    struct arena *a = arena_new();
    if (rank != t->rank) mine.rank = NOWHERE;
    now = &mine, steps_seen = 0, done = false;
    chunks = t->p->lanes[rank].n_stages; /* each with a rule of its own */
    mine.o.backends = make_backend;
    enum status st = worker_run(a, t->p, &mine.o, &r, &err);
    if (st != OK) fprintf(stderr, "rank %d: %s\n", (int)rank, err.text);
    if (st == OK && rank == 0) {
        *t->out = (struct outcome){.scale = r.loss_scale, .n_skipped = r.n_skipped};
        for (int64_t i = 0; i < t->o.steps; i++) t->out->losses[i] = r.losses[i];
        for (int64_t i = 0; i < r.n_skipped; i++) t->out->skipped[i] = r.skipped[i];
    }
    arena_free(a);
    return (int)st;
}

static struct outcome train(const struct program *p, struct run_options o, int32_t rank,
                            int64_t step_number)
{
    struct outcome *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    struct training t = {p, o, rank, step_number, shared};
    struct error err = {.code = OK};
    ck_assert_msg(launch_local(p->n_devices, train_rank, &t, LIMIT_S * TEST_SLOWDOWN, &err) == OK, "%s", err.text);
    struct outcome out = *shared;
    munmap(shared, sizeof *shared);
    return out;
}

static const char *folder(void)
{
    char *name = arena_strdup(arena, "/tmp/musher-scale-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(name));
    return name;
}

static void clear(const char *dir)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

/* The newest generation of both, tensor by tensor, by the checksums that their data have. */
static void assert_same_weights(const char *one, const char *two)
{
    struct checkpoint a, b;
    struct error err = {0};
    ck_assert_msg(checkpoint_find(arena, one, &a, &err) == OK, "%s", err.text);
    ck_assert_msg(checkpoint_find(arena, two, &b, &err) == OK, "%s", err.text);
    ck_assert(a.n_tensors > 10 && a.n_tensors == b.n_tensors);
    for (int32_t i = 0; i < a.n_tensors; i++) {
        int32_t k = 0;
        while (k < b.n_tensors && strcmp(a.tensors[i].name, b.tensors[k].name) != 0) k++;
        ck_assert_msg(k < b.n_tensors && a.tensors[i].crc == b.tensors[k].crc, "%s",
                      a.tensors[i].name);
    }
}

/* Whoever it was, whatever the plan: step 3 is skipped by all (worker_run itself fails where ranks differ), the scale is halved, and
 * weights and optimizer state are those of two steps, bit for bit. */
START_TEST(an_overflow_of_one_rank_is_everybodys)
{
    const struct program *p = program_of(_i, DTYPE_fp16, usual);
    const char *two = folder(), *three = folder();
    struct outcome two_steps = train(p, (struct run_options){.steps = 2, .save = two}, NOWHERE, 0);
    ck_assert_int_eq(two_steps.n_skipped, 0);
    ck_assert_double_eq(two_steps.scale, LOSS_SCALE_INITIAL);
    for (int32_t rank = 0; rank<p->n_devices; rank += p->n_devices> 2 ? 2 : 1) {
        struct outcome x = train(p, (struct run_options){.steps = 3, .save = three}, rank, 3);
        ck_assert_msg(x.n_skipped == 1 && x.skipped[0] == 3, "%s, rank %d: %lld skipped",
                      plan_names[_i], rank, (long long)x.n_skipped);
        ck_assert_double_eq(x.scale, LOSS_SCALE_INITIAL / 2);
        assert_same_weights(two, three);
        clear(three);
    }
    clear(two);
}
END_TEST

/* A scale that is too large at first and then tries its luck again and again. */
static const struct loss_scale restless = {0x1p24, 2};

START_TEST(a_checkpoint_goes_on_as_the_run_that_made_it)
{
    static const enum shape_of_plan shapes[] = {ZERO_1, ZERO_3, BOTH, CHUNKS};
    const struct program *p = program_of(shapes[_i], DTYPE_fp16, restless);
    const char *whole = folder(), *parts = folder();
    struct outcome all = train(p, (struct run_options){.steps = 10, .save = whole}, NOWHERE, 0);
    struct outcome begun = train(p, (struct run_options){.steps = 5, .save = parts}, NOWHERE, 0);
    struct outcome rest =
        train(p, (struct run_options){.steps = 5, .resume = parts, .save = parts}, NOWHERE, 0);
    ck_assert_int_ge(begun.n_skipped, 1);
    ck_assert_int_eq(begun.n_skipped + rest.n_skipped, all.n_skipped);
    for (int64_t i = 0; i < rest.n_skipped; i++)
        ck_assert_int_eq(rest.skipped[i], all.skipped[begun.n_skipped + i]);
    ck_assert_double_eq(rest.scale, all.scale);
    for (int i = 0; i < 5; i++) ck_assert(rest.losses[i] == all.losses[5 + i]);
    assert_same_weights(whole, parts);
    clear(whole), clear(parts);
}
END_TEST

START_TEST(a_checkpoint_of_one_plan_goes_on_by_another)
{
    const char *dir = folder();
    struct outcome first = train(program_of(UNEVEN, DTYPE_fp16, restless),
                                 (struct run_options){.steps = 4, .save = dir}, NOWHERE, 0);
    struct outcome next = train(program_of(BOTH, DTYPE_fp16, restless),
                                (struct run_options){.steps = 1, .resume = dir}, NOWHERE, 0);
    struct checkpoint c;
    struct error err = {0};
    ck_assert_msg(checkpoint_find(arena, dir, &c, &err) == OK, "%s", err.text);
    ck_assert((double)c.scale[0] == first.scale && c.scale[2] == (float)first.n_skipped);
    ck_assert(next.scale == first.scale || next.scale == 2 * first.scale ||
              next.scale == first.scale / 2);
    clear(dir);
}
END_TEST

START_TEST(training_follows_fp32)
{
    enum { STEPS = 22 };
    static const enum shape_of_plan shapes[] = {UNEVEN, PIPELINE, ZERO_2, CHAIN};
    enum shape_of_plan shape = shapes[_i];
    struct outcome narrow = train(program_of(shape, DTYPE_fp16, usual),
                                  (struct run_options){.steps = STEPS}, NOWHERE, 0);
    struct outcome wide = train(program_of(shape, DTYPE_fp32, usual),
                                (struct run_options){.steps = STEPS}, NOWHERE, 0);
    double worst = 0;
    for (int i = 0; i < STEPS; i++)
        worst = fmax(worst, fabs(narrow.losses[i] / wide.losses[i] - 1));
    ck_assert_msg(worst < 2e-2 && worst > 0, "%s: %g", plan_names[shape], worst);
}
END_TEST

/* --- a chain's order is that of microbatches, and it carries every bit: the plan does not matter --- */
START_TEST(a_deterministic_run_repeats_to_the_byte_whatever_the_plan)
{
    struct plan one = plan_of(ONE, DTYPE_fp16, restless);
    struct outcome out[3];
    one.replicas[0].microbatches = 5, one.job.global_batch = 10, one.deterministic = true;
    out[0] = train(plans_lower(arena, &one, true), (struct run_options){.steps = 6}, NOWHERE, 0);
    for (int i = 1; i < 3; i++)
        out[i] = train(program_of(CHAIN, DTYPE_fp16, restless), (struct run_options){.steps = 6},
                       NOWHERE, 0);
    for (int i = 1; i < 3; i++) {
        ck_assert(out[i].n_skipped == out[0].n_skipped && out[i].scale == out[0].scale);
        for (int k = 0; k < 6; k++) ck_assert(out[i].losses[k] == out[0].losses[k]);
    }
    ck_assert_int_ge(out[0].n_skipped, 1);
}
END_TEST

Suite *loss_scale_suite(void)
{
    Suite *s = suite_create("loss_scale");
    TCase *t = tcase_create("rule");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, it_halves_where_a_gradient_overflows_and_doubles_after_so_many_that_did_not);
    tcase_add_test(t, adams_corrections_count_updates_and_not_steps);
    tcase_add_test(t, it_stays_a_number);
    tcase_add_test(t, all_updates_and_the_loss_go_by_it_and_a_file_keeps_that);
    tcase_add_test(t, no_other_precision_has_one);
    suite_add_tcase(s, t);
    t = tcase_create("ranks");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, LIMIT_S);
    tcase_add_loop_test(t, an_overflow_of_one_rank_is_everybodys, 0, N_PLANS);
    tcase_add_loop_test(t, a_checkpoint_goes_on_as_the_run_that_made_it, 0, 4);
    tcase_add_test(t, a_checkpoint_of_one_plan_goes_on_by_another);
    tcase_add_loop_test(t, training_follows_fp32, 0, 4);
    tcase_add_test(t, a_deterministic_run_repeats_to_the_byte_whatever_the_plan);
    suite_add_tcase(s, t);
    return s;
}
