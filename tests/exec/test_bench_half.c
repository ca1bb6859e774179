/* Benches of operators in half precision: each operand is what it is in the program that the operator comes from. */
#include "exec/bench/bench.h"

#include "tests/support/plans.h"

#include <stdio.h>
#include <stdlib.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const struct program *lowered_on(const char *model, enum dtype t, bool flat, bool offloads)
{
    struct plan p = plans_new(arena, model, 2, 2);
    p.cluster.types[0].offloads = offloads;
    p.job.precision = t;
    int32_t last[1] = {plans_layers(arena, &p) - 1};
    plans_replica(arena, &p, 2, 1, last);
    return plans_lower(arena, &p, flat);
}

static const struct program *lowered(const char *model, enum dtype t, bool flat)
{
    return lowered_on(model, t, flat, false);
}

/* The stage's operators as a list without slots, as profiles have them. */
static struct program_op *listed(const struct program_stage *s)
{
    struct program_op *ops = ARENA_ARRAY(arena, struct program_op, (size_t)s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) {
        ops[i] = s->ops[i];
        program_op_wide(s, &ops[i]);
        for (int32_t k = 0; k < OP_OPERANDS_MAX; k++) ops[i].input[k] = ops[i].output[k] = -1;
    }
    return ops;
}

static enum status bench_of(const struct program *p, struct program_op *ops, struct program *out,
                            struct error *err)
{
    return bench_ops(arena, ops, p->stages[0].n_ops, &p->devices[0], 2, p->vocabulary, out, err);
}

/* Through its file, whose reader checks every operand. */
static void check_file(const struct program *bench)
{
    char *text = NULL;
    size_t n = 0;
    struct program again;
    struct error err = {0};
    FILE *f = open_memstream(&text, &n);
    program_write(f, bench);
    ck_assert_int_eq(fclose(f), 0);
    enum status st = program_parse(arena, "bench", text, n, &again, &err);
    free(text);
    ck_assert_msg(st == OK, "%s", err.text);
    ck_assert_msg(program_check(arena, &again, &err) == OK, "%s", err.text);
}

static int same_types(const struct program_stage *s, const struct program_stage *of, int32_t op)
{
    const struct program_op *x = &s->ops[op], *y = &of->ops[op];
    int wide = 0;
    ck_assert_int_eq(x->n_inputs, y->n_inputs);
    ck_assert_int_eq(x->n_outputs, y->n_outputs);
    for (int32_t i = 0; i < x->n_inputs; i++) {
        ck_assert_msg(s->slots[x->input[i]].dtype == of->slots[y->input[i]].dtype,
                      "%s: input %d is %s, not %s", op_kind_name(x->kind), (int)i,
                      dtype_name(s->slots[x->input[i]].dtype),
                      dtype_name(of->slots[y->input[i]].dtype));
        wide += s->slots[x->input[i]].dtype == DTYPE_fp32;
    }
    for (int32_t i = 0; i < x->n_outputs; i++) {
        ck_assert_msg(s->slots[x->output[i]].dtype == of->slots[y->output[i]].dtype,
                      "%s: output %d is %s, not %s", op_kind_name(x->kind), (int)i,
                      dtype_name(s->slots[x->output[i]].dtype),
                      dtype_name(of->slots[y->output[i]].dtype));
        wide += s->slots[x->output[i]].dtype == DTYPE_fp32;
    }
    return wide;
}

START_TEST(operands_are_as_wide_as_in_their_program)
{
    static const char *const models[] = {"gpt2", "llama", "mixtral"};
    static const enum dtype types[] = {DTYPE_bf16, DTYPE_fp16, DTYPE_fp32, DTYPE_fp64};
    for (int i = 0; i < 24; i++) {
        const struct program *p = lowered(models[i % 3], types[i / 3 % 4], i / 12);
        const struct program_stage *s = &p->stages[0];
        struct program bench;
        struct error err = {0};
        int wide = 0;
        ck_assert_msg(bench_of(p, listed(s), &bench, &err) == OK, "%s", err.text);
        for (int32_t k = 0; k < s->n_ops; k++) wide += same_types(&bench.stages[0], s, k);
        ck_assert_int_eq(bench.dtype, p->dtype);
        ck_assert(!dtype_is_half(p->dtype) || wide > 20); /* statistics, gradients, masters */
        check_file(&bench);
    }
}
END_TEST

START_TEST(half_precision_goes_with_fp32_and_with_nothing_else)
{
    const struct program *p = lowered("gpt2", DTYPE_bf16, true);
    static const enum dtype others[] = {DTYPE_fp16, DTYPE_fp64};
    for (int i = 0; i < 2; i++) {
        struct program_op *ops = listed(&p->stages[0]);
        struct program bench;
        struct error err = {0};
        ops[3].dtype = others[i];
        ck_assert_int_eq(bench_of(p, ops, &bench, &err), ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, "one precision"));
    }
}
END_TEST

static const int adamw_outputs[] = {0, 2, 3, 1}; /* p, m, v, g among the inputs */

/* Moments, and masters of half precision, are in host memory; gradients and the device's parameters are not. */
START_TEST(an_offloaded_state_is_in_host_memory)
{
    enum dtype t = _i % 2 ? DTYPE_bf16 : DTYPE_fp32;
    const struct program *p = lowered_on("gpt2", t, _i / 2, true);
    struct program_op *ops = listed(&p->stages[0]);
    struct program out;
    struct error err = {0};
    int32_t n = 0;
    ck_assert_msg(bench_of(p, ops, &out, &err) == OK, "%s", err.text);
    const struct program_stage *s = &out.stages[0];
    ck_assert(s->offloads && program_host_bytes(s) > 0);
    for (int32_t i = 0; i < p->stages[0].n_ops; i++) {
        if (!ops[i].attrs.hosted) continue;
        for (int32_t k = 0; k < s->ops[i].n_inputs; k++, n++)
            ck_assert((s->slots[s->ops[i].input[k]].class == SLOT_STATE) == (k > 1 || (!k && t == DTYPE_bf16)));
        for (int32_t k = 0; k < 4; k++) ck_assert_int_eq(s->ops[i].output[k], s->ops[i].input[adamw_outputs[k]]);
    }
    ck_assert_int_ge(n, 8);
    check_file(&out);
}
END_TEST

Suite *bench_half_suite(void)
{
    Suite *s = suite_create("bench_half");
    TCase *c = tcase_create("bench_half");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, operands_are_as_wide_as_in_their_program);
    tcase_add_test(c, half_precision_goes_with_fp32_and_with_nothing_else);
    tcase_add_loop_test(c, an_offloaded_state_is_in_host_memory, 0, 4);
    suite_add_tcase(s, c);
    return s;
}
