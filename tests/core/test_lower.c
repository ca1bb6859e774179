/* Plans to programs: hand-checked lists, counts of buffers, groups, ties, buckets, deterministic
 * sums, explicit orders, deadlocks by name; then hundreds of random plans whose every operand is
 * followed through memory.
 */
#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Instructions of a procedure with names of operators, "" for none. */
static const char *listing(const struct program_stage *s, enum phase phase, const char *variant)
{
    static const char *const names[] = {
#define X(name) #name,
        INSTR_KINDS(X)
#undef X
    };
    int32_t k = program_procedure(s, phase, variant);
    const char *text = "";
    for (int32_t i = 0; k >= 0 && i < s->procedures[k].n_instrs; i++) {
        const struct instr *x = &s->procedures[k].instrs[i];
        if (x->kind == INSTR_COMPUTE)
            text = arena_printf(arena, "%s%s%s", text, i ? " " : "", s->ops[x->arg].name);
        else
            text = arena_printf(arena, "%s%s%s", text, i ? " " : "", names[x->kind]);
    }
    return text;
}

static const char *calls(const struct program *p, int32_t device)
{
    const struct program_stage *s = &p->stages[p->lanes[device].stages[0]];
    struct cursor c;
    struct call x;
    const char *text = "";
    cursor_start(&c, &p->orders[p->lanes[device].order]);
    while (cursor_next(&c, &x)) {
        const struct procedure *q = &s->procedures[x.procedure];
        if (x.microbatch < 0)
            text = arena_printf(arena, "%s%c%s", text, q->phase, q->variant);
        else
            text = arena_printf(arena, "%s%c%d%s ", text, q->phase, x.microbatch,
                                *q->variant ? "!" : "");
    }
    return text;
}

static const struct buffer_ring *find_buffer_ring(const struct program_stage *s, enum phase birth,
                                                  enum phase death, bool channel)
{
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        if (r->birth == birth && r->death == death && (r->sent >= 0 || r->received >= 0) == channel)
            return r;
    }
    ck_abort_msg("no buffer ring from %c to %c", birth, death);
    return NULL;
}

static int32_t count_buffer_rings(const struct program_stage *s, enum phase birth, enum phase death)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_buffer_rings; i++)
        n += s->buffer_rings[i].birth == birth && s->buffer_rings[i].death == death;
    return n;
}

/* gpt2 of one block: layers 0 embedding, 1 attention, 2 mlp, 3 final norm, 4 head, 5 loss. */
static struct plan two_stages(int32_t microbatches)
{
    struct plan p = plans_new(arena, "gpt2", 1, 2);
    ck_assert_int_eq(plans_layers(arena, &p), 6);
    plans_replica(arena, &p, microbatches, 2, (const int32_t[]){3, 5});
    return p;
}

START_TEST(two_stages_read_as_by_hand)
{
    struct plan plan = two_stages(3);
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_str_eq(listing(&p->stages[1], 'F', ""), "LOAD RECEIVE lm_head loss LOSS");
    ck_assert_str_eq(listing(&p->stages[1], 'B', ""),
                     "loss.grad_input lm_head.grad_input SEND lm_head.grad_weight");
    ck_assert_str_eq(listing(&p->stages[1], 'U', ""),
                     "COLLECTIVE_START COLLECTIVE_WAIT update.decayed");
    const char *f = listing(&p->stages[0], 'F', "");
    ck_assert_msg(!strncmp(f, "LOAD wte wpe embedding.add h.0.ln_1 ", 36), "%s", f);
    ck_assert_str_eq(strstr(f, "h.0.mlp.residual"), "h.0.mlp.residual ln_f SEND");
    ck_assert_msg(
        !strncmp(listing(&p->stages[0], 'B', ""), "RECEIVE ln_f.grad_input ln_f.grad_weight ", 40),
        "B");
    ck_assert_str_eq(listing(&p->stages[0], 'U', ""),
                     "COLLECTIVE_START COLLECTIVE_WAIT update.decayed update.other");
    ck_assert_str_eq(calls(p, 0), "F0 F1 B0 F2 B1 B2 U");
    ck_assert_str_eq(calls(p, 1), "F0 B0 F1 B1 F2 B2 U");
    ck_assert_int_eq(p->n_channels, 2);
    ck_assert_int_eq(p->channels[0].bytes, 2 * 8 * 32 * 4);
}
END_TEST

/* Every layer a stage of its own: what a layer hands on unchanged is copied before it is sent. */
START_TEST(a_layer_can_stand_alone)
{
    struct plan plan = plans_new(arena, "llama", 1, 6);
    ck_assert_int_eq(plans_layers(arena, &plan), 6);
    plans_replica(arena, &plan, 4, 6, (const int32_t[]){0, 1, 2, 3, 4, 5});
    const struct program *p = plans_lower(arena, &plan, false);
    ck_assert_int_eq(p->n_channels, 10);
    ck_assert_str_eq(listing(&p->stages[5], 'F', ""), "LOAD RECEIVE loss LOSS");
    ck_assert_str_eq(listing(&p->stages[5], 'B', ""), "loss.grad_input SEND");
    ck_assert_str_eq(listing(&p->stages[5], 'U', ""), "");
}
END_TEST

static int32_t times(const struct program *p, int32_t replica,
                     const char *name) /* an operator stands there */
{
    int32_t n = 0;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t i = 0; i < p->stages[s].n_ops && p->stages[s].replica == replica; i++)
            n += !strcmp(p->stages[s].ops[i].name, name);
    return n;
}

START_TEST(every_operator_stands_on_one_stage_of_a_replica)
{
    struct plan plan = plans_new(arena, "llama", 2, 5);
    int32_t last = plans_layers(arena, &plan) - 1;
    plans_replica(arena, &plan, 4, 3, (const int32_t[]){1, 3, last})->stages[1].order =
        "F0 F1 I0 W0 F2 I1 F3 W1 I2 I3 W2 W3";
    plans_replica(arena, &plan, 2, 2, (const int32_t[]){2, last})->stages[1].recompute = true;
    struct lower_options o = {.n_fused = 4, .fused = plans_fused};
    struct graph *g;
    ck_assert_int_eq(lower_training_graph(arena, &plan.job, plan.microbatch, &o, &g, NULL), OK);
    const struct program *p = plans_lower(arena, &plan, true);
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t r = 0; r < 2; r++)
            ck_assert_msg(times(p, r, g->ops[i].name) == 1, "%s", g->ops[i].name);
    int32_t again = times(p, 1, "loss.again"); /* lse is needed */
    ck_assert_int_eq(again, 1);
    ck_assert_int_eq(times(p, 1, "layers.1.mlp.residual.again"),
                     1); /* the final norm's gradient reads it */
    ck_assert_int_eq(times(p, 1, "lm_head.again"), 1);
}
END_TEST

/* Stage s of n keeps w = n - s activations: F to B. Received: w + receive_ahead. */
START_TEST(buffers_of_1f1b_are_the_forwards_in_flight)
{
    struct plan plan = plans_new(arena, "gpt2", 2, 4);
    int32_t last = plans_layers(arena, &plan) - 1;
    plans_replica(arena, &plan, 16, 4, (const int32_t[]){1, 3, 5, last});
    const struct program *p = plans_lower(arena, &plan, true);
    for (int32_t s = 0; s < 4; s++) {
        ck_assert_int_eq(find_buffer_ring(&p->stages[s], 'F', 'B', false)->count, 4 - s);
        if (s) ck_assert_int_eq(find_buffer_ring(&p->stages[s], 'R', 'B', true)->count, 4 - s + 2);
        if (s < 3) ck_assert_int_eq(find_buffer_ring(&p->stages[s], 'F', 'S', true)->count, 2);
        ck_assert_int_le(p->orders[p->lanes[s].order].n_runs, 6);
    }
}
END_TEST

START_TEST(the_code_of_an_order_does_not_grow_with_microbatches)
{
    struct plan plan = two_stages(1000);
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(p->orders[p->lanes[0].order].n_runs, 4); /* F F, (B F) x 998, B B, U */
    ck_assert_int_eq(p->orders[p->lanes[1].order].n_runs, 2);
    ck_assert_int_eq(p->orders[p->lanes[1].order].n_calls, 2001);
}
END_TEST

START_TEST(gpipe_keeps_every_microbatch)
{
    struct plan plan = two_stages(5);
    for (int s = 0; s < 2; s++) plan.replicas[0].stages[s].warmup = 5;
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_str_eq(calls(p, 0), "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4 U");
    for (int s = 0; s < 2; s++)
        ck_assert_int_eq(find_buffer_ring(&p->stages[s], 'F', 'B', false)->count, 5);
    ck_assert_int_eq(find_buffer_ring(&p->stages[0], 'F', 'S', true)->count, 2);
}
END_TEST

START_TEST(a_split_backward_has_buffer_rings_from_i_to_w)
{
    struct plan plan = two_stages(3);
    plan.replicas[0].stages[0].order = "F0 F1 I0 F2 I1 W0 I2 W1 W2";
    plan.replicas[0].stages[1].order = "F0 I0 F1 W0 I1 F2 W1 I2 W2";
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_str_eq(listing(&p->stages[1], 'I', ""), "loss.grad_input lm_head.grad_input SEND");
    ck_assert_str_eq(listing(&p->stages[1], 'W', ""), "lm_head.grad_weight");
    ck_assert_int_eq(find_buffer_ring(&p->stages[0], 'I', 'W', false)->count, 2);
    ck_assert_int_eq(find_buffer_ring(&p->stages[0], 'F', 'W', false)->count, 3);
    ck_assert_str_eq(calls(p, 0), "F0 F1 I0 F2 I1 W0 I2 W1 W2 U");
}
END_TEST

START_TEST(recompute_keeps_the_input_of_a_stage_alone)
{
    struct plan plan = two_stages(3);
    plan.replicas[0].stages[0].recompute = plan.replicas[0].stages[1].recompute = true;
    const struct program *p = plans_lower(arena, &plan, true);
    const struct buffer_ring *kept = find_buffer_ring(&p->stages[0], 'F', 'B', false);
    ck_assert_int_eq(kept->stride_bytes, 2 * 64); /* tokens and positions, 2 x 8 int32 each */
    ck_assert_int_eq(find_buffer_ring(&p->stages[1], 'F', 'B', false)->stride_bytes, 64);
    ck_assert_int_eq(times(p, 0, "wte.again"), 1);
    ck_assert_int_eq(times(p, 0, "h.0.mlp.residual.again"), 1);
    ck_assert_int_eq(times(p, 0, "lm_head.again"), 1);
}
END_TEST

/* Replica 0 cuts behind layer 3, replica 1 behind layer 1, replica 2 not at all: intervals of
 * layers 0-1, 2-3, 4-5, from the back; then each replica's tie where two devices own it. */
START_TEST(groups_are_the_common_refinement)
{
    struct plan plan = plans_new(arena, "gpt2", 1, 5);
    plans_replica(arena, &plan, 3, 2, (const int32_t[]){3, 5});
    plans_replica(arena, &plan, 2, 2, (const int32_t[]){1, 5});
    plans_replica(arena, &plan, 1, 1, (const int32_t[]){5});
    const struct program *p = plans_lower(arena, &plan, true);
    /* units: wte, wpe; ln_1 x 2, c_attn x 2, c_proj x 2; ln_2 x 2, c_fc x 2, c_proj x 2; ln_f x 2;
     * wte#1 */
    static const char *const names[] = {"grad[16..16]#0", "grad[8..15]#0", "grad[0..7]#0",
                                        "tied[transformer.wte.weight]@0",
                                        "tied[transformer.wte.weight]@1"};
    static const int32_t members[][3] = {{1, 3, 4}, {0, 3, 4}, {0, 2, 4}, {0, 1, -1}, {2, 3, -1}};
    ck_assert_int_eq(p->n_collectives, 5);
    for (int g = 0; g < 5; g++) {
        ck_assert_str_eq(p->collectives[g].name, names[g]);
        ck_assert_int_eq(p->collectives[g].n_members, g < 3 ? 3 : 2);
        for (int i = 0; i < p->collectives[g].n_members; i++)
            ck_assert_int_eq(p->collectives[g].members[i].stage, members[g][i]);
    }
    ck_assert_int_eq(p->collectives[0].elements, 64 * 32);
    ck_assert_str_eq(calls(p, 3), "F0 B0 F1 B1! U");
    ck_assert_str_eq(listing(&p->stages[4], 'U', ""),
                     "COLLECTIVE_WAIT COLLECTIVE_WAIT COLLECTIVE_WAIT transformer.wte.weight.tie "
                     "transformer.wte.weight.tie.zero "
                     "update.decayed update.other");
    ck_assert_str_eq(listing(&p->stages[1], 'U', ""),
                     "COLLECTIVE_WAIT COLLECTIVE_START COLLECTIVE_WAIT update.decayed");
}
END_TEST

/* fp32, d = 32: buckets from the back; c_proj.bias 128 B; c_proj.weight 16384 B fills one by
 * itself. */
START_TEST(buckets_are_launched_when_they_are_complete)
{
    struct plan plan = plans_new(arena, "gpt2", 1, 2);
    for (int r = 0; r < 2; r++)
        plans_replica(arena, &plan, 2, 1, (const int32_t[]){5})->stages[0].bucket_bytes = 8192 >> r;
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_gt(p->n_collectives, 4);
    ck_assert_str_eq(p->collectives[0].name, "grad[0..16]#0");
    ck_assert_int_eq(p->collectives[0].members[0].n_segments, 1); /* 64 x 32 x 4 = 8192 >= 4096 */
    const char *last = listing(&p->stages[0], 'B', "last");
    ck_assert_msg(strstr(last, "lm_head.grad_weight COLLECTIVE_START ") != NULL, "%s", last);
    ck_assert_str_eq(strrchr(last, ' '), " COLLECTIVE_START");
    ck_assert_int_eq(program_procedure(&p->stages[0], PHASE_W, "last"), -1);
    int64_t sum = 0;
    for (int g = 0; g < p->n_collectives; g++) sum += p->collectives[g].elements;
    ck_assert_int_eq(sum, 2 * 64 * 32 + 64 * 32 + 12 * 32 * 32 + 13 * 32 + 2 * 32);
}
END_TEST

START_TEST(without_buckets_one_reduce_follows_the_last_operator)
{
    struct plan plan = plans_new(arena, "llama", 1, 2);
    int32_t last = plans_layers(arena, &plan) - 1;
    for (int r = 0; r < 2; r++) plans_replica(arena, &plan, 2, 1, &last);
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(p->n_collectives, 1);
    ck_assert_str_eq(listing(&p->stages[0], 'B', "last"),
                     arena_printf(arena, "%s COLLECTIVE_START", listing(&p->stages[0], 'B', "")));
    ck_assert_int_eq(p->collectives[0].link[0], 0);
    ck_assert_int_eq(p->collectives[0].direction[0], 0);
    ck_assert_int_eq(p->collectives[0].direction[1], 1);
}
END_TEST

START_TEST(deterministic_replicas_form_chains_and_keep_gradients_apart)
{
    struct plan plan = plans_new(arena, "llama", 1, 2);
    int32_t last = plans_layers(arena, &plan) - 1;
    plan.deterministic = true;
    for (int r = 0; r < 2; r++) plans_replica(arena, &plan, 2 + r, 1, &last);
    const struct program *p = plans_lower(arena, &plan, true);
    const struct collective *g = &p->collectives[0];
    ck_assert_int_eq(g->algorithm, ALGORITHM_CHAIN);
    ck_assert_int_eq(g->members[0].chain_ring, -1);
    ck_assert_int_eq(p->stages[1].buffer_rings[g->members[1].chain_ring].count, 3);
    ck_assert_int_eq(p->stages[1].buffer_rings[g->members[1].chain_ring].death, 'U');
    ck_assert_int_eq(g->link[1], -1);
    ck_assert_int_eq(g->back_link[1], 0);
    ck_assert_int_eq(times(p, 0, "grad.lm_head.weight.sum"), 1);
    ck_assert_int_eq(times(p, 1, "grad.lm_head.weight.sum"), 0);
    for (int32_t i = 0; i < p->stages[1].n_ops; i++)
        if (p->stages[1].ops[i].phase == PHASE_W) ck_assert(!p->stages[1].ops[i].attrs.accumulate);
}
END_TEST

START_TEST(a_lone_deterministic_stage_out_of_order_reduces_at_the_end)
{
    struct plan plan = two_stages(2);
    plan.deterministic = true;
    plan.replicas[0].stages[1].order = "F0 I0 F1 I1 W1 W0";
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(p->n_collectives, 2); /* and the tie */
    ck_assert_int_eq(p->collectives[0].n_members, 1);
    ck_assert_int_eq(p->collectives[0].algorithm, ALGORITHM_CHAIN);
    ck_assert_int_ge(p->collectives[0].members[0].chain_ring, 0);
    ck_assert_int_eq(count_buffer_rings(&p->stages[1], 'W', 'U'), 1);
    ck_assert_str_eq(calls(p, 1), "F0 I0 F1 I1 W1 W0! U");
}
END_TEST

START_TEST(layouts_of_parameter_gradient_and_state_are_one)
{
    struct plan plan = two_stages(2);
    const struct program *p = plans_lower(arena, &plan, true);
    const struct program_stage *s = &p->stages[0];
    bool plain = false;
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *x = &s->parameters[i];
        ck_assert_msg(!(plain && x->decay), "%s: decayed parameters come first", x->name);
        plain = !x->decay;
        int64_t at = s->slots[x->slot].offset_bytes;
        ck_assert_int_eq(s->slots[x->gradient[0]].offset_bytes, at);
        ck_assert_int_eq(s->slots[x->state[0]].offset_bytes, at);
        ck_assert_int_eq(s->slots[x->state[1]].offset_bytes, at + s->class_bytes[SLOT_PARAMETER]);
    }
    ck_assert_int_eq(s->class_bytes[SLOT_STATE], 2 * s->class_bytes[SLOT_PARAMETER]);
}
END_TEST

/* --- refusals --- */

static const struct {
    const char *first, *second, *words[3];
} orders[] = {
    {"F0 F1 B0 Q1", NULL, {"'Q1'"}},
    {"F0 F1 B0 B2", NULL, {"this replica has microbatches 0 to 1"}},
    {"F0 F1 B0", NULL, {"B1 is missing"}},
    {"F0 B0 B1 F1", NULL, {"B1 comes before F1"}},
    {"F0 F0 F1 B0 B1", NULL, {"F0 occurs twice"}},
    {"F0 F1 B0 I1 W1", NULL, {"either B or I and W"}},
    {"F0 F1 I0 I1 W0", NULL, {"W1 is missing"}},
    {"F99999999999999999999", NULL, {"this replica has microbatches"}},
    /* stage 0 wants B0 before it gives F1, stage 1 wants both F first */
    {"F0 B0 F1 B1",
     "F0 F1 B0 B1",
     {"deadlock: ", "a.0 at B0 (waits for gradient 1→0 of microbatch 0)",
      "a.1 at F1 (waits for activation 0→1 of microbatch 1)"}},
    {"F0 F1 B0 B1", "F1 B1 F0 B0", {"orders differ", "a.0 sends", "a.1 expects 1"}},
};

START_TEST(orders_that_cannot_be_are_refused_by_name)
{
    struct plan plan = two_stages(2);
    struct error err = {0};
    plan.file = "some.plan";
    plan.replicas[0].stages[0].order = orders[_i].first;
    plan.replicas[0].stages[1].order = orders[_i].second;
    plan.replicas[0].stages[0].line = 7, plan.replicas[0].stages[0].column = 3;
    ck_assert_int_eq(plans_refused(arena, &plan, &err), ERR_INPUT);
    for (int k = 0; k < 3 && orders[_i].words[k]; k++)
        ck_assert_msg(strstr(err.text, orders[_i].words[k]) != NULL, "'%s' lacks '%s'", err.text,
                      orders[_i].words[k]);
    ck_assert_msg(
        !strncmp(err.text,
                 orders[_i].second ? "some.plan: " : "some.plan:7:3: replicas[0].stages[0]",
                 orders[_i].second ? 11 : 36),
        "%s", err.text);
}
END_TEST

/* Without the check the plan is lowered as it is. */
START_TEST(a_deadlock_is_found_by_the_check_only)
{
    struct plan plan = two_stages(2);
    struct lower_options o = {.fused = plans_fused, .unproved = true};
    struct program p;
    struct error err = {0};
    plan.replicas[0].stages[0].order = "F0 B0 F1 B1", plan.replicas[0].stages[1].order = "F0 F1 B0 B1";
    ck_assert_msg(lower_plan(arena, &plan, &o, &p, &err) == OK, "%s", err.text);
    ck_assert_int_eq(program_check(arena, &p, &err), ERR_INPUT);
    ck_assert_msg(!strncmp(err.text, "deadlock: ", 10), "%s", err.text);
}
END_TEST

START_TEST(a_plan_without_a_link_names_both_devices)
{
    struct plan plan = two_stages(2);
    struct error err = {0};
    plan.cluster.n_links = 0;
    ck_assert_int_eq(plans_refused(arena, &plan, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "no link from a.0 to a.1") != NULL, "%s", err.text);
}
END_TEST

START_TEST(a_stage_that_does_not_fit_says_what_fills_it)
{
    struct plan plan = two_stages(2);
    struct lower_options o = {.fused = plans_fused, .check_memory = true};
    struct program p;
    struct error err = {0};
    plan.cluster.types[0].memory_bytes = 100000;
    ck_assert_int_eq(lower_plan(arena, &plan, &o, &p, &err), ERR_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "a.0: needs ") && strstr(err.text, "optimizer state") &&
                      strstr(err.text, "buffers)"),
                  "%s", err.text);
    /* 64 bytes too few: both in one unit, with the digits that tell them apart */
    double needs, has;
    char unit[2][8];
    o.check_memory = false;
    ck_assert_int_eq(lower_plan(arena, &plan, &o, &p, &err), OK);
    plan.cluster.types[0].memory_bytes = program_lane_bytes(&p, 0) - 64;
    if (program_lane_bytes(&p, 1) > program_lane_bytes(&p, 0))
        plan.cluster.types[0].memory_bytes = program_lane_bytes(&p, 1) - 64;
    o.check_memory = true;
    ck_assert_int_eq(lower_plan(arena, &plan, &o, &p, &err), ERR_INFEASIBLE);
    const char *at = strstr(err.text, "needs ");
    ck_assert(at && sscanf(at, "needs %lf %7[^,], has %lf %7[^,], lacks 64 B", &needs, unit[0], &has,
                           unit[1]) == 4);
    ck_assert_str_eq(unit[0], unit[1]);
    ck_assert_msg(needs > has && !strstr(at, "e+"), "%s", err.text);
}
END_TEST

Suite *lower_suite(void)
{
    Suite *s = suite_create("lower");
    TCase *t = tcase_create("lower");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, two_stages_read_as_by_hand);
    tcase_add_test(t, a_layer_can_stand_alone);
    tcase_add_test(t, every_operator_stands_on_one_stage_of_a_replica);
    tcase_add_test(t, buffers_of_1f1b_are_the_forwards_in_flight);
    tcase_add_test(t, the_code_of_an_order_does_not_grow_with_microbatches);
    tcase_add_test(t, gpipe_keeps_every_microbatch);
    tcase_add_test(t, a_split_backward_has_buffer_rings_from_i_to_w);
    tcase_add_test(t, recompute_keeps_the_input_of_a_stage_alone);
    tcase_add_test(t, groups_are_the_common_refinement);
    tcase_add_test(t, buckets_are_launched_when_they_are_complete);
    tcase_add_test(t, without_buckets_one_reduce_follows_the_last_operator);
    tcase_add_test(t, deterministic_replicas_form_chains_and_keep_gradients_apart);
    tcase_add_test(t, a_lone_deterministic_stage_out_of_order_reduces_at_the_end);
    tcase_add_test(t, layouts_of_parameter_gradient_and_state_are_one);
    tcase_add_loop_test(t, orders_that_cannot_be_are_refused_by_name, 0,
                        (int)(sizeof orders / sizeof *orders));
    tcase_add_test(t, a_deadlock_is_found_by_the_check_only);
    tcase_add_test(t, a_plan_without_a_link_names_both_devices);
    tcase_add_test(t, a_stage_that_does_not_fit_says_what_fills_it);
    suite_add_tcase(s, t);
    return s;
}
