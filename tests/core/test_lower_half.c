/* Programs in half precision: what is fp32 all the same, and what updates change. */
#include "core/program/program.h"

#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* n replicas of two stages (zero 0) or of one. */
static const struct program *lowered(const char *model, enum dtype t, int32_t n, int32_t zero,
                                     bool flat)
{
    struct plan p = plans_new(arena, model, 2, n * 2);
    p.job.precision = t;
    int32_t end = plans_layers(arena, &p) - 1, last[2] = {zero ? end : end / 2, end};
    for (int32_t r = 0; r < n; r++) plans_replica(arena, &p, 2, zero ? 1 : 2, last);
    for (int32_t r = 0; r < n; r++) p.replicas[r].stages[0].zero = zero;
    return plans_lower(arena, &p, flat);
}

static bool inside(const struct slot *x, const struct slot *y)
{
    return x->class == y->class && x->offset_bytes >= y->offset_bytes &&
           x->offset_bytes + x->bytes <= y->offset_bytes + y->bytes;
}

static bool disjoint(const struct slot *x, const struct slot *y)
{
    return x->class != y->class || x->offset_bytes + x->bytes <= y->offset_bytes ||
           y->offset_bytes + y->bytes <= x->offset_bytes;
}

/* The update whose master is or contains this one writes the parameter from it, and changes nothing that is narrow else. */
static void check_update(const struct program_stage *s, int32_t master, int32_t parameter)
{
    int32_t found = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct program_op *o = &s->ops[i];
        if (o->phase != PHASE_U || !o->attrs.narrows) continue;
        const struct slot *p = &s->slots[o->input[0]], *y = &s->slots[o->output[o->n_outputs - 1]];
        ck_assert_int_eq(o->n_outputs, o->n_inputs + 1);
        ck_assert_int_eq(y->dtype, DTYPE_bf16);
        for (int32_t k = 0; k < o->n_inputs; k++)
            ck_assert_int_eq(s->slots[o->input[k]].dtype, DTYPE_fp32);
        if (!inside(&s->slots[master], p)) continue;
        found++;
        int64_t at = s->slots[master].offset_bytes - p->offset_bytes;
        if (parameter < 0) continue;
        ck_assert(inside(&s->slots[parameter], y));
        ck_assert_int_eq(2 * (s->slots[parameter].offset_bytes - y->offset_bytes), at);
    }
    ck_assert_int_eq(found, 1);
}

START_TEST(every_parameter_has_a_master_behind_the_state)
{
    for (int i = 0; i < 4; i++) {
        const struct program *p = lowered(i / 2 ? "gpt2" : "llama", DTYPE_bf16, 1, 0, i % 2);
        for (int32_t k = 0; k < p->n_stages; k++) {
            const struct program_stage *s = &p->stages[k];
            for (int32_t j = 0; j < s->n_parameters; j++) {
                const struct program_parameter *x = &s->parameters[j];
                const struct slot *m = &s->slots[x->master];
                ck_assert_int_eq(m->dtype, DTYPE_fp32);
                ck_assert_int_le(m->offset_bytes + m->bytes, s->class_bytes[SLOT_STATE]);
                for (int32_t q = 0; q < s->n_parameters; q++)
                    for (int v = 0; v < 2; v++)
                        ck_assert(disjoint(m, &s->slots[s->parameters[q].state[v]]));
                check_update(s, x->master, x->slot);
            }
        }
    }
}
END_TEST

START_TEST(who_divides_the_update_has_the_master_of_its_shard)
{
    for (int32_t zero = 1; zero <= 3; zero++) {
        const struct program *p = lowered("llama", DTYPE_bf16, 2, zero, true);
        const struct program_stage *s = &p->stages[1];
        for (int32_t j = 0; j < s->n_parameters; j++) {
            const struct program_parameter *x = &s->parameters[j];
            ck_assert(x->shard && x->master == -1);
            ck_assert_int_eq(s->slots[x->shard->master].bytes, 2 * s->slots[x->shard->slot].bytes);
            check_update(s, x->shard->master, x->shard->slot);
        }
    }
}
END_TEST

/* Statistics, log-sum-exps and losses are sums over many; so are gradients of parameters. */
START_TEST(sums_over_many_are_fp32)
{
    const struct program *p = lowered("gpt2", DTYPE_fp16, 1, 0, true);
    int32_t wide = 0;
    for (int32_t k = 0; k < p->n_stages; k++) {
        const struct program_stage *s = &p->stages[k];
        for (int32_t i = 0; i < s->n_ops; i++) {
            const struct program_op *o = &s->ops[i];
            for (int32_t v = 0; v < o->n_outputs; v++) {
                const struct slot *y = &s->slots[o->output[v]];
                bool sum = op_output_is_wide(o->kind, v) || y->class == SLOT_GRADIENT ||
                           y->class == SLOT_STATE;
                ck_assert_msg(y->dtype == (sum ? DTYPE_fp32 : DTYPE_fp16), "%s: %s", o->name,
                              y->name);
                wide += op_output_is_wide(o->kind, v);
            }
        }
    }
    /* two blocks: two norms and an attention each; the last norm; loss and its log-sum-exp */
    ck_assert_int_eq(wide, 2 * 3 + 1 + 2);
}
END_TEST

START_TEST(without_half_precision_nothing_has_a_master)
{
    const struct program *p = lowered("gpt2", DTYPE_fp64, 2, 2, true);
    for (int32_t k = 0; k < p->n_stages; k++)
        for (int32_t j = 0; j < p->stages[k].n_parameters; j++) {
            const struct program_parameter *x = &p->stages[k].parameters[j];
            ck_assert_int_eq(x->master, -1);
            ck_assert_int_eq(x->shard->master, -1);
        }
}
END_TEST

START_TEST(a_program_file_keeps_masters)
{
    for (int32_t zero = 0; zero < 3; zero++) {
        const struct program *p = lowered("llama", DTYPE_bf16, 2, zero, zero == 1);
        struct program again;
        struct error err = {0};
        char *text[2];
        size_t n[2];
        FILE *out = open_memstream(&text[0], &n[0]);
        program_write(out, p);
        ck_assert_int_eq(fclose(out), 0);
        ck_assert_msg(program_parse(arena, "x", text[0], n[0], &again, &err) == OK, "%s", err.text);
        out = open_memstream(&text[1], &n[1]);
        program_write(out, &again);
        ck_assert_int_eq(fclose(out), 0);
        ck_assert_str_eq(text[0], text[1]);
        ck_assert_int_eq(again.stages[0].parameters[0].master, p->stages[0].parameters[0].master);
        free(text[0]), free(text[1]);
    }
}
END_TEST

Suite *lower_half_suite(void)
{
    Suite *s = suite_create("lower_half");
    TCase *c = tcase_create("lower_half");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, every_parameter_has_a_master_behind_the_state);
    tcase_add_test(c, who_divides_the_update_has_the_master_of_its_shard);
    tcase_add_test(c, sums_over_many_are_fp32);
    tcase_add_test(c, without_half_precision_nothing_has_a_master);
    tcase_add_test(c, a_program_file_keeps_masters);
    suite_add_tcase(s, c);
    return s;
}
