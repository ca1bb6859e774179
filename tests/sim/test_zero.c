/* ZeRO: memory, messages and updates of each device by hand; then random plans through the deadlock check, the program file, the
 * simulator, its folding and its explanation. tests/cli/training.sh checks that training gives the same result. */
#include "sim/engine/sim.h"
#include "sim/explain/explain.h"
#include "sim/explain/footprint.h"
#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static void divide(struct plan *p, int32_t zero, int64_t bucket)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
            p->replicas[r].stages[s].zero = zero, p->replicas[r].stages[s].bucket_bytes = bucket;
}

/* n equal replicas, each with these stages. */
static struct plan replicas(const char *model, int32_t n, int32_t microbatches, int32_t n_stages,
                            const int32_t *last, int32_t zero)
{
    struct plan p = plans_new(arena, model, 1, n * n_stages);
    for (int32_t r = 0; r < n; r++) plans_replica(arena, &p, microbatches, n_stages, last);
    divide(&p, zero, 0);
    return p;
}

static struct plan whole_replicas(const char *model, int32_t n, int32_t microbatches, int32_t zero)
{
    struct plan p = plans_new(arena, model, 1, n);
    int32_t last = plans_layers(arena, &p) - 1;
    return replicas(model, n, microbatches, 1, &last, zero);
}

static struct cost *prior(const struct plan *p)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p->cluster, f, &err) == OK, "%s", err.text);
    return cost_new(arena, f, &p->cluster);
}

static struct sim_result simulate(const struct plan *p, const struct program *x, bool trace,
                                  bool fold)
{
    struct sim_options o = {.keep_trace = trace, .fold = fold};
    struct sim_result r;
    struct error err = {0};
    ck_assert_msg(sim_run(arena, x, prior(p), &o, &r, &err) == OK, "%s", err.text);
    return r;
}

static void refused(const struct plan *p, const char *text)
{
    struct error err = {0};
    ck_assert_int_eq(plans_refused(arena, p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
}

/* --- by hand --- */

/* Instructions but for operators and the outside world: "R3" REDUCE, "A3" AWAIT; 'u' an update, 'z' zeroes. */
static const char *instrs(const struct program *p, int32_t stage, enum phase of, const char *variant)
{
    const struct program_stage *s = &p->stages[stage];
    const struct procedure *f = &s->procedures[program_procedure(s, of, variant)];
    const char *text = "";
    for (int32_t i = 0; i < f->n_instrs; i++) {
        const struct instr *x = &f->instrs[i];
        enum op_kind kind = x->kind == INSTR_COMPUTE ? s->ops[x->arg].kind : OP_matmul;
        const char *one = x->kind == INSTR_COLLECTIVE_START  ? arena_printf(arena, "R%d", (int)x->arg)
                          : x->kind == INSTR_COLLECTIVE_WAIT ? arena_printf(arena, "A%d", (int)x->arg)
                          : of == 'U'          ? kind == OP_zero         ? "z"
                                                     : kind == OP_accumulate ? "+"
                                                                             : "u"
                                                   : NULL;
        if (one) text = arena_printf(arena, "%s%s%s", text, *text ? " " : "", one);
    }
    return text;
}

START_TEST(level_1_scatters_after_the_backward_updates_its_part_and_gathers)
{
    struct plan plan = whole_replicas("llama", 2, 3, 1);
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(p->n_collectives, 2);
    ck_assert(program_collective_scatters(&p->collectives[0]) && program_collective_gathers(&p->collectives[1]));
    ck_assert_str_eq(instrs(p, 0, 'B', ""), "");
    ck_assert_str_eq(instrs(p, 0, 'B', "last"), "R0");
    ck_assert_str_eq(instrs(p, 0, 'U', ""), "A0 u u R1 z z A1");
    for (int32_t i = 0; i < p->stages[0].n_parameters; i++) {
        const struct program_parameter *x = &p->stages[0].parameters[i];
        ck_assert(x->shard && x->slot >= 0 && x->state[0] < 0 && x->gradient[0] >= 0);
    }
}
END_TEST

START_TEST(level_2_scatters_each_layer_in_every_backward_two_at_a_time)
{
    struct plan plan = whole_replicas("llama", 2, 3, 2);
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(p->n_collectives % 2, 0);
    ck_assert_str_eq(instrs(p, 0, 'F', ""), "");
    ck_assert_int_eq(strncmp(instrs(p, 0, 'B', ""), "R0 R1 A0 R2 A1", 14), 0);
    ck_assert_int_eq(program_procedure(&p->stages[0], PHASE_B, "last"), -1);
    const char *update = instrs(p, 0, 'U', "");
    ck_assert_ptr_null(
        strchr(update, 'z')); /* the update zeroes its own shard, and there is no other */
    for (int32_t i = 0; i < p->stages[0].n_parameters; i++)
        ck_assert(p->stages[0].parameters[i].gradient[0] < 0 &&
                  p->stages[0].parameters[i].slot >= 0);
}
END_TEST

START_TEST(level_3_gathers_each_layer_before_its_use_one_ahead)
{
    struct plan plan = whole_replicas("llama", 2, 3, 3);
    const struct program *p = plans_lower(arena, &plan, true);
    int32_t n = p->n_collectives / 3; /* per layer: reduce-scatter, all-gather for F, all-gather for B */
    ck_assert_int_eq(p->n_collectives, 3 * n);
    const char *forward =
        arena_printf(arena, "R%d R%d A%d", (int)(3 * n - 2), (int)(3 * n - 4), (int)(3 * n - 2));
    ck_assert_msg(!strncmp(instrs(p, 0, 'F', ""), forward, strlen(forward)), "%s is not %s …",
                  instrs(p, 0, 'F', ""), forward);
    ck_assert_ptr_null(strchr(instrs(p, 0, 'U', ""), 'R'));
    for (int32_t i = 0; i < p->stages[0].n_parameters; i++)
        ck_assert_int_eq(p->stages[0].parameters[i].slot, -1);
}
END_TEST

START_TEST(each_level_divides_one_more_region)
{
    static const int32_t n = 4;
    for (int half = 0; half < 2; half++) {
        struct plan plan = whole_replicas("llama", n, 2, 0);
        if (half) plan.job.precision = DTYPE_bf16;
        const struct program_stage *s = &plans_lower(arena, &plan, true)->stages[0];
        for (int32_t zero = 1; zero <= 3; zero++) {
            divide(&plan, zero, 0);
            const struct program_stage *x = &plans_lower(arena, &plan, true)->stages[0];
            for (int class = SLOT_PARAMETER; class <= SLOT_STATE; class ++) {
                int32_t from = class == SLOT_PARAMETER ? 3 : class == SLOT_GRADIENT ? 2 : 1;
                int64_t want = zero >= from ? s->class_bytes[class] / n : s->class_bytes[class];
                /* padding: less than n · 64 bytes a section of bf16 or fp32, of twice that in fp32 sums */
                int64_t slack = 16 * (zero >= from ? 64 : n * 64) * (class == SLOT_STATE ? 6 : 2);
                ck_assert_int_ge(x->class_bytes[class], want);
                ck_assert_int_le(x->class_bytes[class], want + slack);
            }
        }
    }
}
END_TEST

START_TEST(memory_is_what_the_footprint_foretells)
{
    static const int32_t n = 4;
    struct plan plan = whole_replicas("llama", n, 2, 0);
    const struct program *whole = plans_lower(arena, &plan, true);
    for (int32_t zero = 1; zero <= 3; zero++) {
        struct footprint_options o = {.zero = zero, .shards = n};
        struct footprint f[4], g[4];
        struct error err = {0};
        ck_assert_int_eq(footprint_stages(arena, whole, &o, f, &err), OK);
        divide(&plan, zero, 0);
        o = (struct footprint_options){.shards = 1};
        ck_assert_int_eq(footprint_stages(arena, plans_lower(arena, &plan, true), &o, g, &err), OK);
        for (int32_t i = 0; i < f[0].n; i++)
            for (int32_t k = 0; k < g[0].n; k++) {
                bool divided = strstr("parameters gradients optimizer state", f[0].memory_breakdown[i].name);
                if (!divided || strcmp(f[0].memory_breakdown[i].name, g[0].memory_breakdown[k].name)) continue;
                ck_assert_int_le(labs(f[0].memory_breakdown[i].bytes - g[0].memory_breakdown[k].bytes), 20000);
                ck_assert_double_eq_tol(
                    (double)g[0].memory_breakdown[k].bytes / (double)f[0].memory_breakdown[i].bytes, 1, 0.2);
            }
    }
}
END_TEST

/* Bytes that member 0 sends a step, of one step's spans. */
static int64_t sent_bytes(const struct sim_result *r)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < r->trace->n_spans; i++) {
        const struct span *s = &r->trace->spans[i];
        if (s->kind == SPAN_REDUCE && s->device == 0 && s->step == 1) bytes += s->bytes;
    }
    return bytes;
}

/* ZeRO's communication volume (section 7), for levels 2 and 3 in every microbatch: halves of a ring. */
START_TEST(every_level_sends_what_it_has_to)
{
    static const int32_t n = 4, m = 3;
    struct plan plan = whole_replicas("llama", n, m, 0);
    const struct program *p = plans_lower(arena, &plan, true);
    struct sim_result r = simulate(&plan, p, true, false);
    int64_t sum = sent_bytes(&r);
    for (int32_t zero = 1; zero <= 3; zero++) {
        static const int32_t halves[] = {2, 2, 1 + m, 3 * m};
        divide(&plan, zero, 0);
        const struct program *x = plans_lower(arena, &plan, true);
        r = simulate(&plan, x, true, false);
        ck_assert_double_eq_tol((double)sent_bytes(&r) / (double)sum, halves[zero] / 2.0, 0.1);
    }
}
END_TEST

/* One microbatch, one bucket: F, B, the scatter of E elements in n-1 hops, half the update, as many hops of the gather. */
START_TEST(level_1_takes_the_time_of_its_parts_one_after_the_other)
{
    static const int32_t n = 2;
    struct plan plan = whole_replicas("llama", n, 1, 1);
    plan.job.optimizer.kind = OPTIMIZER_SGD;
    const struct program *p = plans_lower(arena, &plan, true);
    struct sim_result r = simulate(&plan, p, true, false);
    int64_t computed = 0, zeroed = 0;
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *s = &r.trace->spans[i];
        if (s->kind != SPAN_COMPUTE || s->device || s->step != 1) continue;
        bool zero = p->stages[0].ops[s->op].kind == OP_zero;
        *(zero ? &zeroed : &computed) += s->end_ns - s->begin_ns;
    }
    /* 1 GB/s, 1 us a hop; the gather covers what is zeroed meanwhile */
    int64_t hop = (p->collectives[0].elements / n * 4) + 1000;
    ck_assert_int_lt(zeroed, hop);
    ck_assert_int_eq(r.iteration_ns, computed + 2 * (n - 1) * hop);
}
END_TEST

START_TEST(a_tied_parameter_is_divided_where_both_uses_are_on_one_stage)
{
    struct plan plan = whole_replicas("gpt2", 2, 2, 1);
    const struct program *p = plans_lower(arena, &plan, true);
    int32_t scatters = 0, gathers = 0;
    for (int32_t i = 0; i < p->n_collectives; i++) {
        scatters += program_collective_scatters(&p->collectives[i]);
        gathers += program_collective_gathers(&p->collectives[i]);
    }
    ck_assert_int_eq(scatters,
                     gathers + 1); /* the head's gradients; its parameter is the embedding's */
    ck_assert_ptr_nonnull(strchr(instrs(p, 0, 'U', ""), '+'));
    int32_t last[2] = {1, plans_layers(arena, &plan) - 1};
    plan = replicas("gpt2", 2, 2, 2, last, 1);
    p = plans_lower(arena, &plan, true);
    int32_t whole = 0;
    for (int32_t i = 0; i < p->stages[0].n_parameters; i++)
        whole += p->stages[0].parameters[i].shard == NULL;
    ck_assert_int_eq(whole, 1); /* the table: its two stages exchange whole sums */
}
END_TEST

START_TEST(what_cannot_be_divided_is_said)
{
    struct plan p = whole_replicas("llama", 1, 4, 1);
    refused(&p, "zero: 1 shards over replicas, but there is only one");
    p = whole_replicas("llama", 2, 4, 2);
    p.deterministic = true;
    refused(&p, "zero: 2 in a deterministic plan");
    p = whole_replicas("llama", 2, 4, 1);
    p.replicas[1].stages[0].zero = 2;
    refused(&p, "zero: 2, but replicas[0].stages[0], which holds the same layers, has 1");
    p = whole_replicas("llama", 2, 4, 2);
    p.replicas[0].microbatches = 3, p.replicas[1].microbatches = 5;
    refused(&p, "needs replicas with equal numbers of microbatches");
    p = whole_replicas("llama", 2, 4, 3);
    p.replicas[1].stages[0].recompute = RECOMPUTE_STAGE;
    refused(&p, "zero: 3 needs the same recompute as replicas[0].stages[0]");
    p = whole_replicas("llama", 2, 4, 2);
    p.replicas[0].microbatches = 3, p.replicas[1].microbatches = 5;
    divide(&p, 1, 0); /* not required at level 1 */
    ck_assert_ptr_nonnull(plans_lower(arena, &p, false));
}
END_TEST

START_TEST(a_plan_file_says_zero_and_is_read_as_it_was_written)
{
    struct plan p = whole_replicas("llama", 2, 4, 3), again;
    char *text = NULL;
    size_t n;
    struct node *root;
    struct error err = {0};
    FILE *f = open_memstream(&text, &n);
    plan_write(f, arena, &p);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "zero: 3"));
    ck_assert_int_eq(document_parse(arena, "plan", text, n, &root, &err), OK);
    ck_assert_msg(plan_parse(arena, root, ".", &again, &err) == OK, "%s", err.text);
    ck_assert_int_eq(again.replicas[1].stages[0].zero, 3);
    ck_assert_ptr_nonnull(strstr(plan_describe(arena, &again), "zero 3"));
    ck_assert_uint_eq(plan_hash(arena, &p), plan_hash(arena, &again));
    char *bad = strstr(text, "zero: 3");
    bad[6] = '4';
    ck_assert_int_eq(document_parse(arena, "plan", text, n, &root, &err), OK);
    ck_assert_int_eq(plan_parse(arena, root, ".", &again, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "zero"));
    free(text);
}
END_TEST

/* --- at random --- */

/* Replicas of one shape (from level 2 on they have a collective in every microbatch), or of any at level 1. */
static struct plan random_plan(uint64_t seed, int32_t zero)
{
    struct plans_random r = {seed, 500};
    struct plan p = plans_random_plan(arena, seed);
    p.deterministic = false;
    if (p.n_replicas < 2) return p;
    if (zero == 1) {
        divide(&p, zero, plans_below(&r, 2) ? 0 : 4096);
        return p;
    }
    struct plan_replica *first = &p.replicas[0];
    p.job.global_batch = p.n_replicas * first->microbatches * p.microbatch;
    for (int32_t k = 1; k < p.n_replicas; k++) {
        struct plan_replica *x = &p.replicas[k];
        *x = *first;
        x->stages = ARENA_ARRAY(arena, struct plan_stage, (size_t)x->n_stages);
        memcpy(x->stages, first->stages, (size_t)x->n_stages * sizeof *x->stages);
        for (int32_t s = 0; s < x->n_stages; s++)
            x->stages[s].device = first->stages[0].device + k * x->n_stages + s;
    }
    divide(&p, zero, plans_below(&r, 2) ? 0 : 4096);
    return p;
}

/* Who last wrote each 64 bytes of scratch: slot + 1, or -1 - group for what a gather brings. */
struct cells {
    const struct program *p;
    const struct program_stage *s;
    int32_t *by;
};

static void mark(struct cells *c, int32_t slot, int32_t by)
{
    const struct slot *x = &c->s->slots[slot];
    for (int64_t at = x->offset_bytes / 64; at < (x->offset_bytes + x->bytes + 63) / 64; at++)
        c->by[at] = by;
}

static void expect_input(const struct cells *c, int32_t slot)
{
    const struct slot *x = &c->s->slots[slot];
    int32_t by = c->by[x->offset_bytes / 64];
    for (int64_t at = x->offset_bytes / 64; at < (x->offset_bytes + x->bytes + 63) / 64; at++) {
        ck_assert_msg(c->by[at] == by, "%s has been written over", x->name);
        ck_assert_msg(by < 0 || by == slot + 1, "%s holds another tensor", x->name);
    }
}

static const struct collective_member *member_of(const struct cells *c, int32_t group)
{
    const struct collective *g = &c->p->collectives[group];
    int32_t k = 0;
    while (c->p->stages + g->members[k].stage != c->s) k++;
    return &g->members[k];
}

static void follow_procedure(struct cells *c, const struct procedure *f)
{
    memset(c->by, 0, (size_t)(c->s->class_bytes[SLOT_SCRATCH] / 64 + 1) * sizeof *c->by);
    for (int32_t i = 0; i < f->n_instrs; i++) {
        const struct instr *x = &f->instrs[i];
        if (x->kind == INSTR_COMPUTE) {
            const struct program_op *op = &c->s->ops[x->arg];
            for (int32_t k = 0; k < op->n_inputs; k++)
                if (c->s->slots[op->input[k]].class == SLOT_SCRATCH) expect_input(c, op->input[k]);
            for (int32_t k = 0; k < op->n_outputs; k++)
                if (c->s->slots[op->output[k]].class == SLOT_SCRATCH)
                    mark(c, op->output[k], op->output[k] + 1);
        }
        bool joins = x->kind == INSTR_COLLECTIVE_START || x->kind == INSTR_COLLECTIVE_WAIT;
        if (!joins || f->phase == PHASE_U || !program_collective_divides(&c->p->collectives[x->arg])) continue;
        const struct collective_member *m = member_of(c, x->arg);
        for (int32_t k = 0; k < m->n_segments; k++) {
            const struct slot *slot = &c->s->slots[m->segments[k]];
            if (slot->class != SLOT_SCRATCH) continue;
            if (x->kind == INSTR_COLLECTIVE_START) mark(c, m->segments[k], -1 - x->arg);
            for (int64_t at = 0; at < slot->bytes / 64; at++)
                ck_assert_int_eq(c->by[slot->offset_bytes / 64 + at], -1 - x->arg);
        }
    }
}

static void follow_scratch(const struct program *p)
{
    for (int32_t i = 0; i < p->n_stages; i++) {
        struct cells c = {.p = p, .s = &p->stages[i]};
        c.by = ARENA_ARRAY(arena, int32_t, (size_t)(c.s->class_bytes[SLOT_SCRATCH] / 64 + 1));
        for (int32_t k = 0; k < c.s->n_procedures; k++) follow_procedure(&c, &c.s->procedures[k]);
    }
}

START_TEST(random_divided_plans_run_in_both_readings)
{
    int32_t divided = 0;
    struct plan three = whole_replicas("gpt2", 2, 2, 3);
    size_t n;
    char *text = plans_text(plans_lower(arena, &three, true), &n);
    struct plans_random r = {77, 0};
    plans_mangle(arena, &r, text, n, "0123456789 -\nsgw", suites_long() ? 20000 : 300);
    free(text);
    for (uint64_t seed = 0; seed < (suites_long() ? 600 : 60); seed++) {
        int32_t zero = 1 + (int32_t)(seed % 3);
        struct plan plan = random_plan(seed, zero);
        const struct program *p = plans_lower(arena, &plan, seed % 2);
        struct error err = {0};
        ck_assert_msg(program_check(arena, p, &err) == OK, "seed %lu: %s", (unsigned long)seed,
                      err.text);
        plans_read_back(arena, p);
        follow_scratch(p);
        for (int32_t i = p->n_collectives; i > 0;) divided += program_collective_divides(&p->collectives[--i]);
        struct sim_result run = simulate(&plan, p, true, false);
        for (int32_t i = 0; i < p->n_devices; i++) {
            ck_assert_int_le(run.devices[i].peak_bytes, run.devices[i].reserved_bytes);
            ck_assert_int_eq(run.devices[i].reserved_bytes, program_lane_bytes(p, i));
        }
        struct explain x;
        ck_assert_msg(explain_result(arena, p, prior(&plan), &run, &x, &err) == OK, "seed %lu: %s",
                      (unsigned long)seed, err.text);
        int64_t at = x.begin_ns;
        for (size_t i = 0; i < x.n_pieces; i++) {
            ck_assert_int_eq(x.pieces[i].begin_ns, at);
            at = x.pieces[i].end_ns;
        }
        ck_assert_int_eq(at, x.end_ns);
        arena_reset(arena);
    }
    ck_assert_int_gt(divided, 100);
}
END_TEST

START_TEST(equal_replicas_fold_to_one_at_every_level)
{
    for (int32_t zero = 1; zero <= 3; zero++) {
        struct plan plan = whole_replicas("gpt2", 8, 2, zero);
        /* one link for each two neighbours, so that nobody waits for another's message */
        plan.cluster.n_links = 8;
        plan.cluster.n_nodes = 8;
        plan.cluster.nodes = ARENA_ARRAY(arena, struct node_spec, 8);
        struct link *links = ARENA_ARRAY(arena, struct link, 8);
        for (int32_t i = 0; i < 8; i++) {
            plan.cluster.nodes[i] = (struct node_spec){.name = arena_printf(arena, "n%d", (int)i),
                                                       .host = "localhost",
                                                       .first_device = i,
                                                       .n_devices = 1};
            plan.cluster.devices[i].node = i;
            links[i] = plan.cluster.links[0];
            links[i].name = arena_printf(arena, "l%d", (int)i);
            links[i].n_ends = 2;
            links[i].kind[0] = links[i].kind[1] = END_NODE;
            links[i].end[0] = i, links[i].end[1] = (i + 1) % 8;
        }
        plan.cluster.links = links;
        const struct program *p = plans_lower(arena, &plan, true);
        struct sim_result all = simulate(&plan, p, true, false),
                          one = simulate(&plan, p, true, true);
        ck_assert_int_eq(one.iteration_ns, all.iteration_ns);
        ck_assert_int_eq(one.devices[5].peak_bytes, all.devices[5].peak_bytes);
        ck_assert_msg(one.events * 4 <= all.events, "level %d: %ld events folded, %ld whole",
                      (int)zero, (long)one.events, (long)all.events);
    }
}
END_TEST

Suite *zero_suite(void)
{
    Suite *s = suite_create("zero");
    TCase *t = tcase_create("zero");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, level_1_scatters_after_the_backward_updates_its_part_and_gathers);
    tcase_add_test(t, level_2_scatters_each_layer_in_every_backward_two_at_a_time);
    tcase_add_test(t, level_3_gathers_each_layer_before_its_use_one_ahead);
    tcase_add_test(t, each_level_divides_one_more_region);
    tcase_add_test(t, memory_is_what_the_footprint_foretells);
    tcase_add_test(t, every_level_sends_what_it_has_to);
    tcase_add_test(t, level_1_takes_the_time_of_its_parts_one_after_the_other);
    tcase_add_test(t, a_tied_parameter_is_divided_where_both_uses_are_on_one_stage);
    tcase_add_test(t, what_cannot_be_divided_is_said);
    tcase_add_test(t, a_plan_file_says_zero_and_is_read_as_it_was_written);
    tcase_add_test(t, random_divided_plans_run_in_both_readings);
    tcase_add_test(t, equal_replicas_fold_to_one_at_every_level);
    suite_add_tcase(s, t);
    return s;
}
