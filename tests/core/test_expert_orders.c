/* `experts` of a plan: read, written, refused; the order in a program's parameters, the popularity in its operators. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/collective/tensor_shard.h"
#include "core/lower/lower.h"
#include "core/plan/plan.h"

#include "tests/support/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct arena *a;
static struct error err;
static void set_up(void)
{
    a = arena_new();
    err = (struct error){0};
}
static void tear_down(void) { arena_free(a); }

/* Two blocks of six experts in a stage of three devices; experts: the section, ratios: of the experts. */
static enum status parse(const char *experts, const char *ratios, const char *stage, struct plan *out)
{
    const char *text = arena_printf(
        a,
        "version: 1\nname: made\nmicrobatch: 2\n%s"
        "replicas:\n  - microbatches: 2\n    stages:\n      - layers: [0, 6]\n        devices: [n.0, n.1, n.2]\n        %s\n"
        "        sharding:\n          ratios: [%s, [1, 1, 1]]\n          operators:\n"
        "            - {match: \"*block_sparse_moe*\", shard: experts}\n            - {match: \"*\", shard: batch, ratio: 1}\n"
        "job:\n  version: 1\n  model: {model_type: mixtral, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, "
        "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 61, max_position_embeddings: 32, num_local_experts: 6, "
        "num_experts_per_tok: 2}\n  sequence_length: 12\n  global_batch: 4\n"
        "cluster:\n  version: 1\n  name: here\n  device_types: [{name: cpu, device: host, memory: 1 GiB}]\n"
        "  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}]}]\n  links: [{name: bus, between: [n]}]\n",
        experts, stage, ratios);
    struct node *root;
    ck_assert_msg(document_parse(a, "plan.yaml", text, strlen(text), &root, &err) == OK, "%s", err.text);
    return plan_parse(a, root, ".", out, &err);
}

static const char placed[] = "experts:\n"
                             "  - {block: 0, order: [5, 0, 1, 4, 2, 3], tokens: [10, 20, 0, 30, 0, 60]}\n"
                             "  - {block: 1, order: [1, 0, 2, 3, 4, 5]}\n";

static struct program *lowered(struct plan *p)
{
    struct program *out = ARENA_ARRAY(a, struct program, 1);
    struct lower_options o = {0};
    struct graph *g;
    ck_assert_msg(lower_graph(a, &p->job, p->microbatch, &g, &err) == OK, "%s", err.text);
    p->replicas[0].stages[0].last_layer = g->n_layers - 1;
    ck_assert_msg(lower_plan(a, p, &o, out, &err) == OK, "%s", err.text);
    return out;
}

static const char *text_of(const struct program *p)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    program_write(f, p);
    fclose(f);
    const char *copy = arena_strdup(a, text);
    free(text);
    return copy;
}

START_TEST(a_plan_keeps_order_and_tokens)
{
    struct plan p, back;
    ck_assert_msg(parse(placed, "[1, 2, 3]", "", &p) == OK, "%s", err.text);
    ck_assert_int_eq(p.job.model.n_expert_blocks, 2);
    ck_assert_int_eq(p.job.model.expert_blocks[0].order[3], 4);
    ck_assert_int_eq(p.job.model.expert_blocks[0].tokens[5], 60);
    ck_assert_ptr_null(p.job.model.expert_blocks[1].tokens);
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    plan_write(f, a, &p);
    fclose(f);
    struct node *root;
    ck_assert_int_eq(document_parse(a, "again", text, n, &root, &err), OK);
    ck_assert_msg(plan_parse(a, root, ".", &back, &err) == OK, "%s", err.text);
    free(text);
    ck_assert_uint_eq(plan_hash(a, &p), plan_hash(a, &back));
    ck_assert_msg(parse("", "[1, 2, 3]", "", &back) == OK, "%s", err.text);
    ck_assert_uint_ne(plan_hash(a, &p), plan_hash(a, &back));
}
END_TEST

START_TEST(what_is_no_order_is_refused)
{
    static const struct {
        const char *experts, *says;
    } bad[] = {
        {"experts: [{block: 0, order: [0, 1, 2, 3, 4]}]\n", "5 numbers for the 6 experts of a block"},
        {"experts: [{block: 0, order: [0, 1, 2, 3, 4, 4]}]\n", "expert 4 has two places"},
        {"experts: [{block: 0, order: [0, 1, 2, 3, 4, 6]}]\n", "order[5]: must be a whole number from 0 to 5"},
        {"experts: [{block: 2}]\n", "block: must be a whole number from 0 to 1"},
        {"experts: [{block: 1}, {block: 0}]\n", "ascending order"},
        {"experts: [{block: 0, tokens: [0, 0, 0, 0, 0, 0]}]\n", "no expert has tokens"},
        {"experts: [{block: 0, token: [0]}]\n", "did you mean 'tokens'"},
        {"experts: [{order: [0, 1, 2, 3, 4, 5]}]\n", "'block' is missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plan p;
        ck_assert_int_eq(parse(bad[i].experts, "[1, 2, 3]", "", &p), ERR_INPUT);
        ck_assert_msg(strstr(err.text, bad[i].says) && strstr(err.text, "plan.yaml:"), "%s", err.text);
    }
    struct plan p;
    ck_assert_msg(parse(placed, "[1, 2, 3]", "zero: 3", &p) == OK, "%s", err.text);
    ck_assert_int_eq(plan_check(&p, 7, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "zero"), "%s", err.text);
}
END_TEST

static const struct slot *slot_named(const struct program_stage *s, const char *end)
{
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const char *at = strstr(s->parameters[i].name, end);
        if (at && !strcmp(at, end)) return &s->slots[s->parameters[i].slot];
    }
    ck_abort_msg("no %s", end);
}

static void note(void *owner, int64_t first, int64_t packed, int64_t n)
{
    int64_t *from = owner;
    for (int64_t i = 0; i < n; i++) from[packed + i] = first + i;
}

/* The device's elements of a parameter are those of its experts in the named tensor. */
START_TEST(a_device_holds_the_experts_of_its_places)
{
    static const int32_t order[] = {5, 0, 1, 4, 2, 3}, first[] = {0, 1, 3};
    struct plan p;
    ck_assert_msg(parse(placed, "[1, 2, 3]", "", &p) == OK, "%s", err.text);
    const struct program *x = lowered(&p);
    for (int32_t d = 0; d < 3; d++) {
        const struct slot *w = slot_named(&x->stages[d], "layers.0.block_sparse_moe.experts.w1.weight"),
                          *gate = slot_named(&x->stages[d], "layers.0.block_sparse_moe.gate.weight");
        ck_assert_int_eq(w->shape.dim[0], d + 1);
        int64_t each = 24 * 16, *from = ARENA_ARRAY(a, int64_t, 6 * 24 * 16);
        struct region r = tensor_shard_region(a, &w->shape, w->shard);
        region_walk(&r, note, from);
        for (int64_t i = 0; i < (d + 1) * each; i++) ck_assert_int_eq(from[i], order[first[d] + i / each] * each + i % each);
        r = tensor_shard_region(a, &gate->shape, gate->shard);
        region_walk(&r, note, from);
        for (int64_t i = 0; i < 6 * 16; i++) ck_assert_int_eq(from[i], order[i / 16] * 16 + i % 16);
    }
}
END_TEST

/* Block 0: experts 5 | 0, 1 | 4, 2, 3 have 60, 30 and 30 of 120 tokens, 20 each by equal shares. */
START_TEST(operators_of_a_shard_have_its_share_of_the_tokens)
{
    static const int32_t load[] = {3000000, 750000, 500000};
    struct plan p;
    ck_assert_msg(parse(placed, "[1, 2, 3]", "", &p) == OK, "%s", err.text);
    const struct program *x = lowered(&p);
    for (int32_t d = 0; d < 3; d++) {
        int32_t loaded = 0, even = 0;
        for (int32_t i = 0; i < x->stages[d].n_ops; i++) {
            const struct program_op *op = &x->stages[d].ops[i];
            if (op_gates_input(op->kind) < 0 || op->kind == OP_gating_grad) continue;
            bool first = strstr(op->name, "layers.0.") != NULL;
            ck_assert_int_eq(op->attrs.load_ppm, first ? load[d] : 0);
            loaded += first, even += !first;
        }
        ck_assert_int_eq(loaded, even); /* forward and backward */
        ck_assert_int_ge(loaded, 12);
    }
}
END_TEST

START_TEST(a_program_file_keeps_them)
{
    struct plan p;
    struct program back;
    ck_assert_msg(parse(placed, "[1, 2, 3]", "", &p) == OK, "%s", err.text);
    const char *text = text_of(lowered(&p));
    ck_assert_msg(program_parse(a, "program", text, strlen(text), &back, &err) == OK, "%s", err.text);
    ck_assert_str_eq(text_of(&back), text);
    ck_assert_int_eq(back.n_experts, 6);
    ck_assert_int_eq(back.expert_blocks[0].order[0], 5);
    char *broken = arena_strdup(a, text), *at = strstr(broken, "expert_order 0 5 0");
    ck_assert_ptr_nonnull(at);
    at[strlen("expert_order 0 ")] = '0';
    ck_assert_int_eq(program_parse(a, "program", broken, strlen(broken), &back, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "expert 0 has two places"), "%s", err.text);
}
END_TEST

Suite *expert_orders_suite(void)
{
    Suite *s = suite_create("expert_orders");
    TCase *t = tcase_create("expert_orders");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_plan_keeps_order_and_tokens);
    tcase_add_test(t, what_is_no_order_is_refused);
    tcase_add_test(t, a_device_holds_the_experts_of_its_places);
    tcase_add_test(t, operators_of_a_shard_have_its_share_of_the_tokens);
    tcase_add_test(t, a_program_file_keeps_them);
    suite_add_tcase(s, t);
    return s;
}
