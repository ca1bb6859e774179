/* Sums of gradients by codes (core/lower/codes.h): memory, operators, messages and their times by closed forms; the program file; folding;
 * random plans through the deadlock check. */
#include "sim/engine/sim.h"
#include "tests/support/plans.h"

#include "core/lower/slots.h"
#include "core/program/program.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const struct compressor compressors[] = {
    {.kind = COMPRESSION_INT8, .block = 256, .stochastic = true},
    {.kind = COMPRESSION_FP8_E4M3, .block = 64, .feedback = FEEDBACK_EF},
    {.kind = COMPRESSION_SIGN, .block = 100, .feedback = FEEDBACK_EF},
    {.kind = COMPRESSION_TOP_K, .block = 128, .fraction = 0.07, .feedback = FEEDBACK_EF21},
    {.kind = COMPRESSION_RANDOM_K, .block = 64, .fraction = 0.5, .feedback = FEEDBACK_EF},
};
enum { N_COMPRESSORS = sizeof compressors / sizeof *compressors };

static struct plan replicas(int32_t n, const struct compressor *x)
{
    struct plan p = plans_new(arena, "llama", 1, n);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t r = 0; r < n; r++) plans_replica(arena, &p, 2, 1, &last);
    if (x) p.compression.gradients = *x;
    return p;
}

/* Words of a code of n elements, written down a second time. */
static int64_t words_of(const struct compressor *x, int64_t n)
{
    int64_t words = 0;
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < x->block ? n - at : x->block;
        int64_t kept = (int64_t)ceil((double)m * ceil(x->fraction * x->block - 1e-9) / x->block);
        words += x->kind == COMPRESSION_INT8 || x->kind == COMPRESSION_FP8_E4M3       ? 1 + (m + 3) / 4
                 : x->kind == COMPRESSION_SIGN     ? 1 + (m + 31) / 32
                 : x->kind == COMPRESSION_TOP_K    ? 2 * kept
                                                   : 1 + kept;
    }
    return words;
}

START_TEST(memory_is_the_codes_and_the_feedback)
{
    const struct compressor *x = &compressors[_i];
    struct plan plain = replicas(3, NULL), coded = replicas(3, x);
    const struct program_stage *a = plans_lower(arena, &plain, true)->stages, *b = plans_lower(arena, &coded, true)->stages;
    int64_t codes = 0, feedback = 0;
    for (int32_t i = 0; i < a->n_parameters; i++) {
        int64_t n = shape_elements(&a->parameters[i].shape);
        for (int use = 0; use < 2; use++) {
            if (a->parameters[i].gradient[use] < 0) continue;
            codes += slot_align(4 * words_of(x, n)) + slot_align(4 * 3 * words_of(x, n));
            feedback += (int64_t)x->feedback * slot_align(4 * n);
        }
    }
    ck_assert_int_eq(b->class_bytes[SLOT_GRADIENT] - a->class_bytes[SLOT_GRADIENT], codes);
    ck_assert_int_eq(b->class_bytes[SLOT_FEEDBACK], feedback);
}
END_TEST

static int32_t count(const struct program_stage *s, const struct procedure *f, enum op_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_instrs; i++)
        n += f->instrs[i].kind == INSTR_COMPUTE && s->ops[f->instrs[i].arg].kind == kind;
    return n;
}

START_TEST(every_gradient_is_encoded_once_a_step_and_decoded_in_the_update)
{
    struct plan plan = replicas(3, &compressors[_i]);
    const struct program *p = plans_lower(arena, &plan, true);
    const struct program_stage *s = p->stages;
    int32_t gradients = 0;
    for (int32_t i = 0; i < s->n_parameters; i++)
        for (int use = 0; use < 2; use++) gradients += s->parameters[i].gradient[use] >= 0;
    ck_assert_int_eq(count(s, &s->procedures[program_procedure(s, PHASE_B, "last")], OP_encode), gradients);
    ck_assert_int_eq(count(s, &s->procedures[program_procedure(s, PHASE_B, "")], OP_encode), 0);
    ck_assert_int_eq(count(s, &s->procedures[program_procedure(s, PHASE_U, "")], OP_decode), gradients);
    for (int32_t i = 0; i < p->n_collectives; i++)
        ck_assert(program_collective_gathers(&p->collectives[i]) && p->collectives[i].dtype == DTYPE_int32);
}
END_TEST

static struct sim_result simulate(const struct plan *p, const struct program *x, bool trace, bool fold)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    struct sim_options o = {.keep_trace = trace, .fold = fold};
    struct sim_result r;
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p->cluster, f, &err) == OK, "%s", err.text);
    ck_assert_msg(sim_run(arena, x, cost_new(arena, f, &p->cluster), &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Of two equal devices, which send in both directions of the bus at once: one step of one code, at 1 GB/s and 1 us. */
START_TEST(messages_take_the_time_of_their_codes)
{
    const struct compressor *x = &compressors[_i];
    struct plan plan = replicas(2, x);
    const struct program *p = plans_lower(arena, &plan, true);
    struct sim_result r = simulate(&plan, p, true, false);
    int64_t words = 0, n = 0;
    for (int32_t i = 0; i < p->stages->n_parameters; i++)
        for (int use = 0; use < 2; use++)
            words += p->stages->parameters[i].gradient[use] < 0 ? 0 : words_of(x, shape_elements(&p->stages->parameters[i].shape));
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *y = &r.trace->spans[i];
        if (y->kind != SPAN_REDUCE) continue;
        ck_assert_int_eq(y->bytes, 4 * words);
        ck_assert_int_le(llabs(y->end_ns - y->begin_ns - (4 * words + 1000)), 1);
        n++;
    }
    ck_assert(n && n % 2 == 0);
}
END_TEST

START_TEST(equal_devices_fold_and_files_read_back)
{
    struct plan plan = replicas(4, &compressors[_i]);
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(simulate(&plan, p, false, true).iteration_ns, simulate(&plan, p, false, false).iteration_ns);
    struct program again;
    struct error err = {0};
    size_t n1, n2;
    char *first = plans_text(p, &n1), *second;
    ck_assert_msg(program_parse(arena, "text", first, n1, &again, &err) == OK, "%s", err.text);
    second = plans_text(&again, &n2);
    ck_assert(n1 == n2 && !memcmp(first, second, n1));
    free(first), free(second);
}
END_TEST

/* --- PowerSGD (core/lower/factors.h) --- */

static const struct compressor power = {.kind = COMPRESSION_POWER_SGD, .rank = 3, .feedback = FEEDBACK_EF};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

START_TEST(factors_have_their_memory_and_their_sums)
{
    struct plan plain = replicas(3, NULL), coded = replicas(3, &power);
    const struct program *p = plans_lower(arena, &coded, true);
    const struct program_stage *a = plans_lower(arena, &plain, true)->stages, *b = p->stages;
    int64_t factors = 0, errors = 0, values = 0, sums = 0;
    for (int32_t i = 0; i < a->n_parameters; i++) {
        const struct shape *s = &a->parameters[i].shape;
        for (int use = 0; use < 2; use++) {
            if (a->parameters[i].gradient[use] < 0) continue;
            int64_t r = s->rank == 2 ? min64(3, min64(s->dim[0], s->dim[1])) : 0;
            values += s->rank == 2 ? r * (s->dim[0] + s->dim[1]) : shape_elements(s);
            if (s->rank != 2) continue;
            factors += slot_align(4 * r * s->dim[0]) + slot_align(4 * r * s->dim[1]);
            errors += slot_align(4 * shape_elements(s));
        }
    }
    ck_assert_int_eq(b->class_bytes[SLOT_GRADIENT] - a->class_bytes[SLOT_GRADIENT], factors);
    ck_assert_int_eq(b->class_bytes[SLOT_FEEDBACK], errors);
    for (int32_t i = 0; i < p->n_collectives; i++) sums += p->collectives[i].elements;
    ck_assert_int_eq(sums, values);
    ck_assert_int_eq(simulate(&coded, p, false, true).iteration_ns, simulate(&coded, p, false, false).iteration_ns);
}
END_TEST

/* Lowering refuses deadlocks; simulating ends. Two chunks of a device may share a parameter, which codes do not cover. */
START_TEST(random_plans_have_codes)
{
    int coded = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct plan plan = plans_random_any(arena, seed);
        struct program p;
        struct error err = {0};
        struct lower_options o = {.n_fused = 0};
        if (plan.deterministic) continue;
        plan.compression.gradients = seed % 6 < N_COMPRESSORS ? compressors[seed % 6] : power;
        for (int32_t r = 0; r < plan.n_replicas; r++)
            for (int32_t s = 0; s < plan.replicas[r].n_stages; s++) plan.replicas[r].stages[s].zero = 0;
        if (lower_plan(arena, &plan, &o, &p, &err) != OK) {
            ck_assert_msg(strstr(err.text, "two chunks") != NULL, "seed %d: %s", (int)seed, err.text);
            continue;
        }
        ck_assert_int_gt(simulate(&plan, &p, false, false).iteration_ns, 0);
        for (int32_t i = 0; i < p.n_collectives; i++) coded += program_collective_gathers(&p.collectives[i]);
    }
    ck_assert_int_gt(coded, 50);
}
END_TEST

Suite *code_sums_suite(void)
{
    Suite *s = suite_create("code_sums");
    TCase *t = tcase_create("code_sums");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, memory_is_the_codes_and_the_feedback, 0, N_COMPRESSORS);
    tcase_add_loop_test(t, every_gradient_is_encoded_once_a_step_and_decoded_in_the_update, 0, N_COMPRESSORS);
    tcase_add_loop_test(t, messages_take_the_time_of_their_codes, 0, N_COMPRESSORS);
    tcase_add_loop_test(t, equal_devices_fold_and_files_read_back, 0, N_COMPRESSORS);
    tcase_add_test(t, factors_have_their_memory_and_their_sums);
    tcase_add_test(t, random_plans_have_codes);
    suite_add_tcase(s, t);
    return s;
}
