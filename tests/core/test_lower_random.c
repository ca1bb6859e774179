/* Hundreds of random plans: lowered, checked, written and read back, and every operand followed
 * through memory: what an operator reads is what its producer wrote for the same microbatch,
 * whatever shares the bytes.
 */
#include "core/graph/gradient.h"

#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct follower { /* who wrote each 64 bytes of a region last */
    const struct program_stage *s;
    int64_t *scratch, **buffer_rings;
};

static int64_t *cells(const struct follower *f, int32_t slot, int64_t seq)
{
    const struct slot *x = &f->s->slots[slot];
    if (x->class == SLOT_SCRATCH) return f->scratch + x->offset_bytes / 64;
    if (x->class != SLOT_BUFFER_RING) return NULL;
    const struct buffer_ring *r = &f->s->buffer_rings[x->buffer_ring];
    return f->buffer_rings[x->buffer_ring] + buffer_ring_at(r, seq) * (r->stride_bytes / 64) +
           x->offset_bytes / 64;
}

static int64_t tag(int32_t slot, int64_t seq) { return 1 + slot + (seq << 20); }

static void written(const struct follower *f, int32_t slot, int64_t seq)
{
    int64_t *cell = cells(f, slot, seq);
    for (int64_t i = 0; cell && i < (f->s->slots[slot].bytes + 63) / 64; i++)
        cell[i] = tag(slot, seq);
}

static void must_hold(const struct follower *f, int32_t slot, int64_t seq, const char *who)
{
    const int64_t *cell = cells(f, slot, seq);
    for (int64_t i = 0; cell && i < (f->s->slots[slot].bytes + 63) / 64; i++)
        if (cell[i] != tag(slot, seq)) /* an assertion writes a line of its own each time */
            ck_abort_msg("%s reads %s of %ld, which is not there", who, f->s->slots[slot].name,
                         (long)seq);
}

static void follow_instr(const struct program *p, const struct follower *f, const struct instr *x,
                         int64_t seq)
{
    const struct program_stage *s = f->s;
    if (x->kind == INSTR_RECEIVE) written(f, p->channels[x->arg].to_slot, seq);
    if (x->kind == INSTR_SEND) must_hold(f, p->channels[x->arg].from_slot, seq, "a send");
    if (x->kind == INSTR_LOSS) must_hold(f, x->arg, seq, "the loss");
    for (int32_t i = 0; i < s->n_slots && x->kind == INSTR_LOAD; i++)
        if (s->slots[i].input >= 0) written(f, i, seq);
    if (x->kind != INSTR_COMPUTE) return;
    const struct program_op *op = &s->ops[x->arg];
    for (int32_t i = 0; i < op->n_inputs; i++) must_hold(f, op->input[i], seq, op->name);
    for (int32_t i = 0; i < op->n_outputs; i++) written(f, op->output[i], seq);
    for (int32_t i = 0; i < op->n_inputs && op->phase != PHASE_U; i++)
        must_hold(f, op->input[i], seq, op->name);
}

/* At the update every microbatch's gradient kept per microbatch is there. */
static void follow_microbatches(const struct program *p, const struct follower *f, int32_t stage,
                                int32_t step)
{
    for (int32_t g = 0; g < p->n_collectives; g++)
        for (int32_t k = 0; k < p->collectives[g].n_members; k++) {
            const struct collective_member *m = &p->collectives[g].members[k];
            for (int32_t i = 0; m->stage == stage && m->chain_ring >= 0 && i < m->n_segments; i++)
                for (int32_t b = 0; b < f->s->microbatches; b++)
                    must_hold(f, m->chain_segments[i], (int64_t)step * f->s->microbatches + b,
                              p->collectives[g].name);
        }
}

static struct follower follower_of(const struct program_stage *s)
{
    struct follower f = {s,
                         ARENA_ARRAY(arena, int64_t, (size_t)s->class_bytes[SLOT_SCRATCH] / 64 + 1),
                         ARENA_ARRAY(arena, int64_t *, (size_t)s->n_buffer_rings)};
    for (int32_t i = 0; i < s->n_buffer_rings; i++)
        f.buffer_rings[i] = ARENA_ARRAY(
            arena, int64_t,
            (size_t)(s->buffer_rings[i].count * s->buffer_rings[i].stride_bytes) / 64 + 1);
    return f;
}

static void follow_lane(const struct program *p, int32_t device)
{
    const struct lane *lane = &p->lanes[device];
    struct follower *f = ARENA_ARRAY(arena, struct follower, (size_t)lane->n_stages);
    for (int32_t c = 0; c < lane->n_stages; c++) f[c] = follower_of(&p->stages[lane->stages[c]]);
    for (int32_t step = 0; step < 3; step++) {
        struct cursor c;
        struct call x;
        cursor_start(&c, &p->orders[lane->order]);
        while (cursor_next(&c, &x)) {
            const struct program_stage *s = f[x.chunk].s;
            const struct procedure *q = &s->procedures[x.procedure];
            if (q->phase == PHASE_U)
                follow_microbatches(p, &f[x.chunk], lane->stages[x.chunk], step);
            int64_t seq = x.microbatch < 0 ? -1 : (int64_t)step * s->microbatches + x.microbatch;
            for (int32_t i = 0; i < q->n_instrs; i++)
                follow_instr(p, &f[x.chunk], &q->instrs[i], seq);
        }
    }
}

static void check_follow_and_read_back(const struct program *p, uint64_t seed)
{
    struct error err = {0};
    ck_assert_msg(program_check(arena, p, &err) == OK, "seed %lu: %s", (unsigned long)seed,
                  err.text);
    for (int32_t i = 0; i < p->n_devices; i++) follow_lane(p, i);
    size_t n1, n2;
    char *first = plans_text(p, &n1), *second;
    struct program again;
    ck_assert_msg(program_parse(arena, "text", first, n1, &again, &err) == OK, "seed %lu: %s",
                  (unsigned long)seed, err.text);
    second = plans_text(&again, &n2);
    ck_assert_msg(n1 == n2 && !memcmp(first, second, n1), "seed %lu: another text",
                  (unsigned long)seed);
    ck_assert_uint_eq(again.stages[0].ops[0].key, p->stages[0].ops[0].key);
    free(first), free(second);
}

START_TEST(random_plans_lower_check_and_read_what_was_written)
{
    int n = suites_long() ? 400 : 40; /* times ten */
    for (int k = 0; k < n; k++) {
        uint64_t seed = (uint64_t)(_i * n + k);
        struct plan plan =
            seed % 3 ? plans_random_plan(arena, seed) : plans_random_chunks(arena, seed);
        check_follow_and_read_back(plans_lower(arena, &plan, seed % 2), seed);
        arena_reset(arena);
    }
}
END_TEST

/* Messages between stages of both kinds, and those that are handed on. */
static int32_t count_passed(const struct program *p)
{
    int32_t n = 0;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t i = 0; i < p->stages[s].n_ops; i++) {
            const char *end = strstr(p->stages[s].ops[i].name, ".pass");
            n += end && !end[5];
        }
    return n;
}

/* A plan on layers that end wherever the draw says, in the middle of blocks and of their halves. */
static const struct program *cut_anywhere(uint64_t seed)
{
    struct plans_random r = {seed, 2000};
    struct plan *plan = ARENA_ARRAY(arena, struct plan, 1);
    struct program *p = ARENA_ARRAY(arena, struct program, 1);
    struct lower_options o = {.fused = plans_fused, .n_fused = seed % 2 ? 4 : 0};
    struct graph *g;
    struct error err = {0};
    *plan = plans_new(arena, seed % 2 ? "gpt2" : "llama", 2, 12);
    plan->deterministic = plans_below(&r, 3) == 0;
    for (int32_t k = 1 + plans_below(&r, 2); k > 0; k--) {
        int32_t last[64], layers[4], n = 0, m = 1 + plans_below(&r, 5), s = 0;
        ck_assert_int_eq(lower_graph(arena, &plan->job, plan->microbatch, &g, &err), OK);
        /* Replicas share one graph, so its layers are drawn from the seed alone. */
        struct plans_random cuts = {seed, 3000};
        for (int32_t i = 0; i + 1 < g->n_forward; i++)
            if (plans_below(&cuts, 3) == 0) last[n++] = i;
        last[n++] = g->n_forward - 1;
        graph_set_layers(g, last, n);
        for (int32_t l = 0; l + 1 < n && s < 3; l++)
            if (plans_below(&r, 4) == 0) layers[s++] = l;
        layers[s++] = n - 1;
        struct plan_replica *x = plans_replica(arena, plan, m, s, layers);
        for (int32_t i = s - 1, w = 1; i >= 0; i--, w = w < m ? w + plans_below(&r, 2) : m) {
            plans_random_stage(arena, &r, &x->stages[i], m, w);
            x->stages[i].recompute = (enum recompute)plans_below(&r, 4);
        }
    }
    g = graph_fuse(g, o.fused, o.n_fused);
    ck_assert_msg(gradient_build(g, 1, &err) == OK, "%s", err.text);
    ck_assert_msg(lower_plan_graph(arena, plan, g, &o, p, &err) == OK, "seed %lu: %s",
                  (unsigned long)seed, err.text);
    return p;
}

START_TEST(stages_may_begin_at_any_operator)
{
    int32_t n = suites_long() ? 300 : 60, several = 0, passed = 0; /* times four */
    for (int32_t k = 0; k < n; k++) {
        uint64_t seed = (uint64_t)(_i * n + k);
        const struct program *p = cut_anywhere(seed);
        check_follow_and_read_back(p, seed);
        passed += count_passed(p);
        for (int32_t c = 1; c < p->n_channels; c++)
            several += p->channels[c].from_stage == p->channels[c - 1].from_stage &&
                       p->channels[c].gradient == p->channels[c - 1].gradient;
        arena_reset(arena);
    }
    ck_assert(several > n / 2 && passed > n / 2);
}
END_TEST

START_TEST(plans_of_fine_layers_lower_and_read_what_was_written)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 1000 : 100); seed++) {
        struct plan plan = seed % 3 ? plans_random_cut(arena, seed, LAYERS_FINE)
                                    : plans_random_cut_chunks(arena, seed, LAYERS_FINE);
        check_follow_and_read_back(plans_lower(arena, &plan, seed % 2), seed);
        arena_reset(arena);
    }
}
END_TEST

/* Sums over replicas are of the same bits' worth: equal sizes on all members, each unit once. */
START_TEST(random_plans_reduce_every_gradient_once)
{
    for (uint64_t seed = 5000; seed < 5060; seed++) {
        struct plan plan =
            seed % 2 ? plans_random_plan(arena, seed) : plans_random_chunks(arena, seed);
        const struct program *p = plans_lower(arena, &plan, true);
        for (int32_t s = 0; s < p->n_stages && plan.n_replicas > 1; s++)
            for (int32_t i = 0; i < p->stages[s].n_slots; i++) {
                const struct slot *x = &p->stages[s].slots[i];
                int32_t n = 0;
                if (x->class != SLOT_GRADIENT || x->parameter < 0) continue;
                for (int32_t g = 0; g < p->n_collectives; g++)
                    for (int32_t k = 0; k < p->collectives[g].n_members &&
                                        strncmp(p->collectives[g].name, "tied", 4);
                         k++)
                        for (int32_t m = 0; m < p->collectives[g].members[k].n_segments; m++)
                            n += p->collectives[g].members[k].stage == s &&
                                 p->collectives[g].members[k].segments[m] == i;
                ck_assert_msg(n == 1, "seed %lu: %s is summed %d times", (unsigned long)seed,
                              x->name, n);
            }
        arena_reset(arena);
    }
}
END_TEST

Suite *lower_random_suite(void)
{
    Suite *s = suite_create("lower_random");
    TCase *t = tcase_create("lower_random");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, random_plans_lower_check_and_read_what_was_written, 0, 10);
    tcase_add_loop_test(t, stages_may_begin_at_any_operator, 0, 4);
    tcase_add_test(t, plans_of_fine_layers_lower_and_read_what_was_written);
    tcase_add_test(t, random_plans_reduce_every_gradient_once);
    suite_add_tcase(s, t);
    return s;
}
