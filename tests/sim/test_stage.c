/* Stage costs against the lowered program of the same layers. */
#include "core/graph/gradient.h"
#include "profiles/profile.h"
#include "sim/engine/sim.h"
#include "sim/stage/stage.h"

#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct made {
    struct profile profile;
    struct cost *cost;
    struct graph *graph; /* fused training graph */
    struct stage_table *table;
};

static struct made make(const struct plan *p, bool fused)
{
    struct made m;
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p->cluster, &m.profile, &err) == OK, "%s", err.text);
    /* The costs keep a pointer to their profile. */
    struct profile *kept = ARENA_ARRAY(arena, struct profile, 1);
    *kept = m.profile;
    m.cost = cost_new(arena, kept, &p->cluster);
    ck_assert_msg(lower_graph(arena, &p->job, p->microbatch, &m.graph, &err) == OK, "%s", err.text);
    if (fused) m.graph = graph_fuse(m.graph, plans_fused, 4);
    ck_assert_msg(gradient_build(m.graph, 1, &err) == OK, "%s", err.text);
    m.table = stage_table_new(arena, m.graph, m.cost, &p->job.optimizer);
    if (fused) stage_table_fused(m.table, plans_fused, 4);
    return m;
}

static int64_t procedure_ns(struct made *m, const struct program *p, const struct program_stage *s,
                            enum phase phase, bool again_only)
{
    int32_t index = program_procedure(s, phase, "");
    int64_t sum = 0;
    for (int32_t i = 0; index >= 0 && i < s->procedures[index].n_instrs; i++) {
        const struct instr *x = &s->procedures[index].instrs[i];
        if (x->kind != INSTR_COMPUTE) continue;
        const char *name = s->ops[x->arg].name;
        if (again_only != (strstr(name, ".again") != NULL)) continue;
        /* Operators that only lowering adds: forwarding of a gradient, ordered addition. */
        if (strstr(name, ".pass") || strstr(name, ".sum")) continue;
        int64_t ns;
        ck_assert_int_eq(cost_op(m->cost, p->devices[0].type_index, &s->ops[x->arg], &ns, NULL),
                         OK);
        sum += ns;
    }
    return sum;
}

/* Buffers of one microbatch that live from forward or receive to the backward. */
static int64_t kept_bytes(const struct program_stage *s)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        bool from_forward = r->birth == PHASE_F || r->birth == PHASE_RECEIVE, gradient = false;
        for (int32_t k = 0; k < s->n_slots && r->birth == PHASE_RECEIVE; k++)
            gradient |= s->slots[k].buffer_ring == i && strstr(s->slots[k].name, "grad") != NULL;
        if (from_forward && !gradient && strchr("BIW", r->death)) bytes += r->stride_bytes;
    }
    return bytes;
}

static void compare(struct made *m, const struct program *p, const struct program_stage *s)
{
    struct stage_cost c;
    struct error err = {0};
    ck_assert_msg(stage_table_cost(m->table, s->first_layer, s->last_layer, 0, &c, &err) == OK,
                  "%s", err.text);
    ck_assert_int_eq(c.forward_ns, procedure_ns(m, p, s, 'F', false));
    bool split = program_procedure(s, PHASE_I, "") >= 0;
    if (split) {
        ck_assert_int_eq(c.input_ns, procedure_ns(m, p, s, 'I', false));
        ck_assert_int_eq(c.weight_ns, procedure_ns(m, p, s, 'W', false));
    } else {
        ck_assert_int_eq(c.input_ns + c.weight_ns, procedure_ns(m, p, s, 'B', false));
    }
    ck_assert_int_eq(c.update_ns, procedure_ns(m, p, s, 'U', false));
    if (s->recompute)
        ck_assert_int_eq(c.recompute_ns, procedure_ns(m, p, s, split ? 'I' : 'B', true));
    ck_assert_int_eq(c.parameter_bytes, s->class_bytes[SLOT_PARAMETER]);
    ck_assert_int_eq(c.gradient_bytes, s->class_bytes[SLOT_GRADIENT]);
    ck_assert_int_eq(c.state_bytes, s->class_bytes[SLOT_STATE]);
    if (s->recompute)
        ck_assert_int_eq(kept_bytes(s), c.input_bytes);
    else
        ck_assert_int_eq(c.activation_bytes, kept_bytes(s));
    if (!s->recompute && !split && !p->deterministic)
        ck_assert_int_le(s->class_bytes[SLOT_SCRATCH], 2 * c.scratch_bytes + 64);
}

START_TEST(stage_costs_are_what_lowering_makes_of_the_layers)
{
    int32_t recomputed = 0;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct plan p = plans_random_cut(arena, seed, seed % 4 < 2 ? LAYERS_DEFAULT : LAYERS_FINE);
        bool fused = seed % 2;
        struct made m = make(&p, fused);
        struct program *program = plans_lower(arena, &p, fused);
        for (int32_t s = 0; s < program->n_stages; s++) {
            /* Ordered addition over microbatches adds operators that belong to no layer. */
            recomputed += program->stages[s].recompute;
            if (!program->deterministic) compare(&m, program, &program->stages[s]);
        }
        arena_reset(arena);
    }
    ck_assert_int_ge(recomputed, 40);
}
END_TEST

START_TEST(stage_costs_of_images_are_what_lowering_makes_of_the_layers)
{
    struct plan p = plans_new(arena, "gpt2", 1, 2);
    p.job.model = plans_model_file(arena, _i % 2 ? "tiny-vgg" : "tiny-vit");
    p.job.sequence_length = p.job.model.max_positions;
    int32_t n = plans_layers(arena, &p);
    for (int32_t k = 0; k + 1 < n; k++) {
        struct plan cut = p;
        cut.replicas = ARENA_ARRAY(arena, struct plan_replica, 2);
        struct plan_replica *x = plans_replica(arena, &cut, 3, 2, (const int32_t[]){k, n - 1});
        for (int32_t s = 0; s < 2; s++)
            x->stages[s].recompute = _i / 2 ? RECOMPUTE_STAGE : RECOMPUTE_NONE;
        struct made m = make(&cut, false);
        struct program *program = plans_lower(arena, &cut, false);
        for (int32_t s = 0; s < program->n_stages; s++) compare(&m, program, &program->stages[s]);
    }
}
END_TEST

START_TEST(a_step_of_one_device_is_the_sum_of_its_stage_costs)
{
    for (int fused = 0; fused < 2; fused++) {
        struct plan p = plans_new(arena, "gpt2", 2, 1);
        const int32_t last[] = {plans_layers(arena, &p) - 1};
        plans_replica(arena, &p, 5, 1, last);
        struct made m = make(&p, fused);
        struct program *program = plans_lower(arena, &p, fused);
        struct stage_cost c;
        struct sim_options o = {0};
        struct sim_result r;
        struct error err = {0};
        ck_assert_int_eq(stage_table_cost(m.table, 0, last[0], 0, &c, &err), OK);
        ck_assert_msg(sim_run(arena, program, m.cost, &o, &r, &err) == OK, "%s", err.text);
        ck_assert_int_eq(r.iteration_ns,
                         5 * (c.forward_ns + c.input_ns + c.weight_ns) + c.update_ns);
        ck_assert_int_le(r.devices[0].peak_bytes, r.devices[0].reserved_bytes);
    }
}
END_TEST

START_TEST(every_lowered_plan_can_be_simulated_and_stays_within_what_is_reserved)
{
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct plan p = plans_random_cut(arena, seed, seed % 2 ? LAYERS_DEFAULT : LAYERS_FINE);
        struct made m = make(&p, true);
        struct program *program = plans_lower(arena, &p, true);
        struct sim_options o = {.steps = 6}, with_trace = {.steps = 6, .keep_trace = true};
        struct sim_result r, whole;
        struct error err = {0};
        ck_assert_msg(sim_run(arena, program, m.cost, &o, &r, &err) == OK, "%s", err.text);
        ck_assert_msg(sim_run(arena, program, m.cost, &with_trace, &whole, &err) == OK, "%s",
                      err.text);
        ck_assert_int_gt(r.iteration_ns, 0);
        ck_assert_int_eq(r.iteration_ns, whole.iteration_ns);
        for (size_t i = 0; i < whole.trace->n_spans;
             i++) { /* a steady step that is seen early is one that lasts */
            const struct span *x = &whole.trace->spans[i];
            if (x->kind == SPAN_STEP && x->step == 4)
                ck_assert_int_eq(r.iteration_ns, x->end_ns - x->begin_ns);
        }
        ck_assert_int_ge(r.makespan_ns, whole.makespan_ns); /* nothing follows the last step */
        for (int32_t i = 0; i < program->n_devices; i++) {
            ck_assert_int_le(r.devices[i].peak_bytes, r.devices[i].reserved_bytes);
            ck_assert_int_le(r.devices[i].busy_ns, r.iteration_ns);
        }
        arena_reset(arena);
    }
}
END_TEST

START_TEST(ranges_add_up_and_nonsense_is_refused)
{
    struct plan p = plans_new(arena, "llama", 3, 1);
    struct made m = make(&p, false);
    int32_t n = m.graph->n_layers;
    struct stage_cost all, front, back, again;
    struct error err = {0};
    ck_assert_int_eq(stage_table_cost(m.table, 0, n - 1, 0, &all, &err), OK);
    for (int32_t cut = 0; cut + 1 < n; cut++) {
        ck_assert_int_eq(stage_table_cost(m.table, 0, cut, 0, &front, &err), OK);
        ck_assert_int_eq(stage_table_cost(m.table, cut + 1, n - 1, 0, &back, &err), OK);
        ck_assert_int_eq(front.forward_ns + back.forward_ns, all.forward_ns);
        ck_assert_int_eq(front.input_ns + back.input_ns, all.input_ns);
        ck_assert_int_eq(front.weight_ns + back.weight_ns, all.weight_ns);
        ck_assert_int_eq(front.parameter_bytes + back.parameter_bytes,
                         all.parameter_bytes); /* nothing is tied */
        ck_assert_int_gt(back.input_bytes, 0);
        ck_assert_int_eq(stage_table_cost(m.table, 0, cut, 0, &again, &err), OK);
        ck_assert_mem_eq(&front, &again, sizeof front);
    }
    ck_assert_int_eq(stage_table_cost(m.table, 1, 0, 0, &all, &err), ERR_INPUT);
    ck_assert_int_eq(stage_table_cost(m.table, 0, n, 0, &all, &err), ERR_INPUT);
    ck_assert_int_eq(stage_table_cost(m.table, 0, 0, 1, &all, &err), ERR_INPUT);
}
END_TEST

Suite *stage_suite(void)
{
    Suite *s = suite_create("sim/stage/stage");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, stage_costs_are_what_lowering_makes_of_the_layers);
    tcase_add_loop_test(t, stage_costs_of_images_are_what_lowering_makes_of_the_layers, 0, 4);
    tcase_add_test(t, a_step_of_one_device_is_the_sum_of_its_stage_costs);
    tcase_add_test(t, every_lowered_plan_can_be_simulated_and_stays_within_what_is_reserved);
    tcase_add_test(t, ranges_add_up_and_nonsense_is_refused);
    suite_add_tcase(s, t);
    return s;
}
