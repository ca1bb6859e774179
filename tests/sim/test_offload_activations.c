/* Activations in host memory (`offload: activations`, core/program/offload.h): memory, the program file, the deadlock check, the simulator
 * against a closed form, explanations of random plans. tests/cli/offload.sh trains. */
#include "core/base/units.h"
#include "core/program/offload.h"
#include "sim/cost.h"
#include "sim/engine/sim.h"
#include "sim/explain/explain.h"
#include "tests/support/plans.h"
#include "tests/support/suites.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(), err = (struct error){0}; }
static void teardown(void) { arena_free(arena); }

/* One stage of `blocks` blocks on a device with `warmup` microbatches in flight. */
static struct plan one_stage(int blocks, int32_t microbatches, int32_t warmup, bool offload)
{
    struct plan p = plans_new(arena, "gpt2", blocks, 1);
    int32_t last = plans_layers(arena, &p) - 1;
    struct plan_replica *x = plans_replica(arena, &p, microbatches, 1, &last);
    x->stages[0].warmup = warmup, x->stages[0].offload = offload;
    p.cluster.types[0].host_Bps = 1e9;
    return p;
}

static struct sim_result simulate(const struct plan *p, const struct program *x, bool trace, struct cost **k)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    struct sim_result r;
    const struct sim_options o = {.keep_trace = trace};
    ck_assert_msg(profile_prior(arena, &p->cluster, f, &err) == OK, "%s", err.text);
    *k = cost_new(arena, f, &p->cluster);
    ck_assert_msg(sim_run(arena, x, *k, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* ---- memory and text ---- */

START_TEST(activations_leave_the_device_but_for_two_buffers_each_way)
{
    struct plan kept = one_stage(1, 8, 6, false), moved = one_stage(1, 8, 6, true);
    const struct program *x = plans_lower(arena, &kept, false), *y = plans_lower(arena, &moved, false);
    const struct program_stage *a = &x->stages[0], *b = &y->stages[0];
    int64_t waits = 0; /* of a microbatch, from F to B, inputs apart */
    for (int32_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].buffer_ring >= 0 && a->buffer_rings[a->slots[i].buffer_ring].birth == PHASE_F && a->slots[i].input < 0)
            waits += (a->slots[i].bytes + 63) / 64 * 64;
    ck_assert_int_gt(waits, 0);
    ck_assert_int_eq(a->offload.count, 0);
    ck_assert_int_eq(program_host_bytes(a), 0);
    ck_assert_int_eq(b->offload.count, 6);
    ck_assert_int_eq(b->buffer_rings[b->offload.out].count, 2);
    ck_assert_int_eq(b->buffer_rings[b->offload.in].count, 2);
    ck_assert_int_eq(offload_bytes(b), waits);
    ck_assert_int_eq(program_host_bytes(b), 6 * waits);
    ck_assert_int_eq(program_stage_bytes(a) - program_stage_bytes(b), 6 * waits - 4 * waits);
    ck_assert_int_eq(a->n_ops, b->n_ops);
    ck_assert(offload_has(&b->procedures[program_procedure(b, PHASE_F, "")], INSTR_OFFLOAD));
    ck_assert(offload_has(&b->procedures[program_procedure(b, PHASE_B, "")], INSTR_FETCH));
    plans_read_back(arena, y);
}
END_TEST

/* OFFLOAD 0 … P − 1 in F, FETCH P − 1 … 0 in B. */
static void parts_in_turn(const struct program_stage *s, enum phase phase, enum instr_kind kind, int32_t first, int32_t by)
{
    const struct procedure *f = &s->procedures[program_procedure(s, phase, "")];
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_instrs; i++)
        if (f->instrs[i].kind == kind) ck_assert_int_eq(f->instrs[i].arg, first + by * n++);
    ck_assert_int_eq(n, offload_parts(s));
}

START_TEST(several_blocks_take_two_buffers_of_one_block_each_way)
{
    for (int blocks = 2; blocks < 6; blocks++) {
        struct plan p = one_stage(blocks, 8, 6, true);
        const struct program *x = plans_lower(arena, &p, false);
        const struct program_stage *s = &x->stages[0];
        ck_assert_int_eq(offload_parts(s), blocks);
        ck_assert_int_eq(s->offload.count, 6);
        ck_assert_int_eq(offload_ring_bytes(s), 2 * 2 * offload_bytes(s));
        ck_assert_int_eq(program_host_bytes(s), 6 * blocks * offload_bytes(s));
        parts_in_turn(s, PHASE_F, INSTR_OFFLOAD, 0, 1);
        parts_in_turn(s, PHASE_B, INSTR_FETCH, blocks - 1, -1);
        plans_read_back(arena, x);
    }
}
END_TEST

/* ---- the deadlock check ---- */

static void drop(struct program_stage *s, enum instr_kind kind)
{
    for (int32_t i = 0; i < s->n_procedures; i++) {
        struct procedure *f = &s->procedures[i];
        int32_t n = 0;
        for (int32_t k = 0; k < f->n_instrs; k++)
            if (f->instrs[k].kind != kind) f->instrs[n++] = f->instrs[k];
        f->n_instrs = n;
    }
}

START_TEST(a_fetch_needs_its_copy_and_host_memory_its_buffers)
{
    struct plan p = one_stage(1, 6, 4, true);
    struct program *x = plans_lower(arena, &p, false);
    ck_assert_msg(program_check(arena, x, &err) == OK, "%s", err.text);
    drop(&x->stages[0], INSTR_OFFLOAD);
    ck_assert_int_eq(program_check(arena, x, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "deadlock: ") && strstr(err.text, "no OFFLOAD precedes"), "%s", err.text);
    x = plans_lower(arena, &p, false);
    drop(&x->stages[0], INSTR_FETCH);
    ck_assert_int_eq(program_check(arena, x, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "OFFLOAD overwrites microbatch 0 in host memory, which has 4 buffers"), "%s", err.text);
    x = plans_lower(arena, &p, false);
    x->stages[0].offload.count = 3; /* of four microbatches in flight */
    ck_assert_int_eq(program_check(arena, x, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "overwrites"), "%s", err.text);
}
END_TEST

/* ---- the closed form ---- */

/* Of the operators of a call up to the first instruction of this kind, or behind the last one. */
static int64_t ops_ns(const struct program *x, enum phase phase, enum instr_kind kind, bool behind, struct cost *k)
{
    const struct program_stage *s = &x->stages[0];
    const struct procedure *f = &s->procedures[program_procedure(s, phase, "")];
    int64_t ns = 0, one;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind == kind && !behind) return ns;
        if (f->instrs[i].kind == kind) ns = 0;
        if (f->instrs[i].kind != INSTR_COMPUTE) continue;
        ck_assert_msg(cost_op(k, 0, &s->ops[f->instrs[i].arg], &one, &err) == OK, "%s", err.text);
        ns += one;
    }
    return ns;
}

/* Three microbatches in flight, M a step; F takes f, B takes b, the copy of each of P parts c. Short copies are hidden: the step takes
 * M (f + b). One part that takes longer than f + b is the bottleneck: copies to the host follow each other from the end of the first F, those
 * back begin when the first one is there and follow each other too, and the last one is followed by the last B: f + (M + 1) c + b. Several
 * parts take at least that, from the end of the first part's computation to the last part's backward, and at most twice the copies, because
 * those to the host stop F and those back stop B. */
START_TEST(copies_are_hidden_or_exposed_as_by_hand)
{
    static const double lengths[] = {0.01, 0.05, 0.3, 0.5, 1, 1.25, 2, 7}; /* of f + b; the first two hidden, from 1 on exposed */
    enum { M = 9 };
    struct cost *k;
    int32_t parts = 1 + _i;
    struct plan kept = one_stage(parts, M, 3, false);
    const struct program *x = plans_lower(arena, &kept, false);
    int64_t alone_ns = simulate(&kept, x, false, &k).iteration_ns;
    int64_t f = ops_ns(x, PHASE_F, INSTR_OFFLOAD, false, k), b = ops_ns(x, PHASE_B, INSTR_FETCH, false, k), other = alone_ns - M * (f + b);
    ck_assert_int_ge(other, 0); /* updates */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct plan p = one_stage(parts, M, 3, true);
        double bytes = (double)offload_bytes(&plans_lower(arena, &p, false)->stages[0]);
        p.cluster.types[0].host_Bps = bytes * parts / (lengths[i] * units_s_from_ns(f + b));
        const struct program *y = plans_lower(arena, &p, false);
        ck_assert_int_eq(offload_parts(&y->stages[0]), parts);
        int64_t c, ns = simulate(&p, y, false, &k).iteration_ns;
        ck_assert_msg(cost_host_copy_ns(k, 0, offload_bytes(&y->stages[0]), &c, &err) == OK, "%s", err.text);
        int64_t f0 = ops_ns(y, PHASE_F, INSTR_OFFLOAD, false, k), b0 = ops_ns(y, PHASE_B, INSTR_FETCH, true, k);
        if (lengths[i] < 0.1) ck_assert_int_eq(ns, other + M * (f + b));
        if (parts == 1 && c >= f + b) ck_assert_int_eq(ns, other + f + (M + 1) * c + b);
        if (parts * c >= f + b) ck_assert_int_ge(ns, other + f0 + (M + 1) * parts * c + b0);
        ck_assert_int_ge(ns, other + M * (f + b));
        ck_assert_int_le(ns, other + M * (f + b) + (parts == 1 ? 1 : 2) * (M + 1) * parts * c);
    }
}
END_TEST

/* ---- random plans ---- */

static void offload_some(struct plan *p, uint64_t seed)
{
    struct plans_random r = {seed, 5000};
    p->cluster.types[0].host_Bps = 1e6 * (1 + plans_below(&r, 1000));
    for (int32_t k = 0; k < p->n_replicas; k++)
        for (int32_t i = 0; i < p->replicas[k].n_stages; i++) {
            struct plan_stage *s = &p->replicas[k].stages[i];
            s->offload = plans_below(&r, 3) > 0;
            if (s->offload && s->recompute) s->recompute = RECOMPUTE_BLOCKS;
        }
}

static void no_stream_does_two_things_at_once(const struct trace *t)
{
    for (size_t i = 1; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i], *before = s - 1;
        if ((s->stream == STREAM_offload || s->stream == STREAM_fetch) && before->device == s->device && before->stream == s->stream)
            ck_assert_int_le(before->end_ns, s->begin_ns);
    }
}

/* Every copy back begins when the copy there has ended; of one part, F of the same microbatch has ended, and B begins behind. */
static void copies_follow_each_other(const struct program *p, const struct trace *t)
{
    for (size_t i = 0; i < t->n_spans; i++)
        for (size_t k = 0; k < t->n_spans && t->spans[i].kind == SPAN_FETCH; k++) {
            const struct span *back = &t->spans[i], *s = &t->spans[k];
            if (s->device != back->device || s->stage != back->stage || s->step != back->step || s->microbatch != back->microbatch) continue;
            if (s->kind == SPAN_OFFLOAD && s->op == back->op) ck_assert_int_le(s->end_ns, back->begin_ns);
            if (s->kind != SPAN_COMPUTE || offload_parts(&p->stages[s->stage]) > 1) continue;
            if (s->phase == PHASE_F)
                ck_assert_int_le(s->end_ns, back->begin_ns);
            else
                ck_assert_int_ge(s->begin_ns, back->end_ns);
        }
}

START_TEST(any_plan_is_free_of_deadlock_and_explained)
{
    int32_t offloaded = 0, parted = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 150); seed++) {
        struct plan p = plans_random_any(arena, seed);
        struct cost *k;
        struct explain x;
        offload_some(&p, seed);
        const struct program *y = plans_lower(arena, &p, seed % 2);
        plans_read_back(arena, y);
        struct sim_result r = simulate(&p, y, true, &k);
        int64_t held = 0, tiled = 0;
        for (int32_t i = 0; i < y->n_devices; i++) ck_assert_int_le(r.devices[i].peak_bytes, program_lane_bytes(y, i));
        for (int32_t i = 0; i < y->n_stages; i++) offloaded += y->stages[i].offload.count > 0, parted += offload_parts(&y->stages[i]) > 1;
        no_stream_does_two_things_at_once(r.trace);
        if (r.trace->n_spans < 1500) copies_follow_each_other(y, r.trace);
        ck_assert_msg(explain_result(arena, y, k, &r, &x, &err) == OK, "seed %d: %s", (int)seed, err.text);
        for (size_t i = 0; i < x.n_pieces; i++) tiled += x.pieces[i].end_ns - x.pieces[i].begin_ns;
        ck_assert_int_eq(tiled, r.iteration_ns);
        for (size_t i = 0; i < x.n_memory_breakdown; i++) held += x.memory_breakdown[i].bytes;
        ck_assert_int_eq(held, r.devices[x.fullest].peak_bytes);
        arena_reset(arena);
    }
    ck_assert_int_gt(offloaded, 100);
    ck_assert_int_gt(parted, 10);
}
END_TEST

/* Folding, and stages lowered once, change nothing. */
START_TEST(equal_replicas_are_simulated_once)
{
    struct plan p = plans_new(arena, "gpt2", 2, 6);
    int32_t end = plans_layers(arena, &p) - 1, last[2] = {end / 2, end};
    for (int r = 0; r < 3; r++) {
        struct plan_replica *x = plans_replica(arena, &p, 5, 2, last);
        for (int s = 0; s < 2; s++) x->stages[s].offload = r != 2, x->stages[s].warmup = 4 - 2 * s;
    }
    p.cluster.types[0].host_Bps = 1e7;
    struct cost *k;
    const struct program *y = plans_lower(arena, &p, true);
    ck_assert_int_eq(y->stages[0].offload.count, y->stages[2].offload.count);
    ck_assert_int_eq(y->stages[4].offload.count, 0);
    plans_read_back(arena, y);
    struct sim_result whole = simulate(&p, y, false, &k), folded;
    const struct sim_options o = {.fold = true};
    ck_assert_msg(sim_run(arena, y, k, &o, &folded, &err) == OK, "%s", err.text);
    ck_assert_int_eq(whole.iteration_ns, folded.iteration_ns);
    for (int32_t i = 0; i < y->n_devices; i++) ck_assert_int_eq(whole.devices[i].peak_bytes, folded.devices[i].peak_bytes);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(what_cannot_be_offloaded_is_refused)
{
    struct plan p = one_stage(1, 4, 2, true);
    p.replicas[0].stages[0].recompute = RECOMPUTE_STAGE;
    ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "with recompute: true none waits for the backward"), "%s", err.text);
    p = one_stage(1, 4, 2, true);
    p.cluster.emulated = true, p.cluster.types[0].slowdown = 2, p.cluster.types[0].host_Bps = 0;
    ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "needs the bandwidth of copies to host memory"), "%s", err.text);
}
END_TEST

Suite *offload_activations_suite(void)
{
    Suite *s = suite_create("offload_activations");
    TCase *c = tcase_create("offload_activations");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, activations_leave_the_device_but_for_two_buffers_each_way);
    tcase_add_test(c, a_fetch_needs_its_copy_and_host_memory_its_buffers);
    tcase_add_test(c, several_blocks_take_two_buffers_of_one_block_each_way);
    tcase_add_loop_test(c, copies_are_hidden_or_exposed_as_by_hand, 0, 4);
    tcase_add_test(c, any_plan_is_free_of_deadlock_and_explained);
    tcase_add_test(c, equal_replicas_are_simulated_once);
    tcase_add_test(c, what_cannot_be_offloaded_is_refused);
    suite_add_tcase(s, c);
    return s;
}
