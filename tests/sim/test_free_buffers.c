/* A call writes a sent buffer when the message in it has left, whatever writes: an operator, or a collective of a sharded stage. */
#include "profiles/profile.h"
#include "sim/engine/sim.h"

#include "tests/support/sharded_plans.h"
#include "tests/support/suites.h"

#include <inttypes.h>
#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { DEVICES = 5, STEPS = 2 };

/* Each stage is a hundred times slower than the one before and posts one receive, so that messages still wait when a later call could
 * start. */
static const struct program *sharded_program(uint64_t seed, struct sim_result *out)
{
    struct sharded *s = ARENA_ARRAY(arena, struct sharded, 1);
    struct program *p = ARENA_ARRAY(arena, struct program, 1);
    struct profile f;
    struct error err = {0};
    ck_assert_msg(sharded_make(s, arena, seed, DEVICES, false) == OK, "%s", s->err.text);
    for (int32_t k = 0; k < s->plan.n_replicas; k++)
        for (int32_t i = 0; i < s->plan.replicas[k].n_stages; i++) s->plan.replicas[k].stages[i].receive_ahead = 1;
    ck_assert_msg(lower_plan(arena, &s->plan, &(struct lower_options){.n_fused = 0}, p, &err) == OK, "%s", err.text);
    ck_assert_msg(profile_prior(arena, &s->plan.cluster, &f, &err) == OK, "%s", err.text);
    double *slower = ARENA_ARRAY(arena, double, DEVICES);
    for (int32_t i = 0; i < p->n_stages; i++) slower[p->stages[i].device] = pow(100, p->stages[i].stage);
    struct sim_scale scale = {.device = slower};
    struct sim_options o = {.steps = STEPS, .keep_trace = true, .scale = &scale};
    ck_assert_msg(sim_run(arena, p, cost_new(arena, &f, &s->plan.cluster), &o, out, &err) == OK, "%s", err.text);
    return p;
}

static bool by_collective(const struct program *p, int32_t stage, int32_t slot)
{
    for (int32_t g = 0; g < p->n_collectives; g++)
        for (int32_t i = 0; collective_of_tensor(&p->collectives[g]) && i < p->collectives[g].n_members; i++)
            if (p->collectives[g].members[i].stage == stage && p->collectives[g].out[i] == slot) return true;
    return false;
}

/* first: (messages of all steps) begin of the first operator of the call of this microbatch; left: end of its message.
 * seen: compared messages whose buffer an operator writes, and a collective. */
static void follows(const struct program *p, const struct trace *t, int32_t channel, int64_t *seen)
{
    const struct channel *c = &p->channels[channel];
    const struct program_stage *s = &p->stages[c->from_stage];
    const struct buffer_ring *r = &s->buffer_rings[s->slots[c->from_slot].buffer_ring];
    int32_t each = program_channel_messages(p, c), n = each * STEPS;
    int64_t *first = ARENA_ARRAY(arena, int64_t, (size_t)n), *left = ARENA_ARRAY(arena, int64_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) first[i] = INT64_MAX;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        int32_t at = x->step * each + x->microbatch;
        if (x->kind == SPAN_SEND && x->op == channel) left[at] = x->end_ns;
        if (x->kind == SPAN_COMPUTE && x->stage == c->from_stage && x->phase == r->birth && x->begin_ns < first[at]) first[at] = x->begin_ns;
    }
    for (int32_t i = r->count; i < n; i++) {
        ck_assert_msg(first[i] >= left[i - r->count], "channel %" PRId32 ": call %" PRId32 " begins at %" PRId64 ", message %" PRId32 " leaves at %" PRId64,
                      channel, i, first[i], i - r->count, left[i - r->count]);
        seen[by_collective(p, c->from_stage, c->from_slot)] += first[i] < INT64_MAX;
    }
}

/* A program's own statement: the call that sends from a buffer ring is one that writes it, so it waits. */
START_TEST(a_call_that_sends_from_a_buffer_writes_it)
{
    int32_t collectives = 0;
    for (uint64_t seed = 5000; seed < 5040; seed++) {
        struct sim_result r = {0};
        const struct program *p = sharded_program(seed, &r);
        for (int32_t i = 0; i < p->n_stages; i++)
            for (int32_t k = 0; k < p->stages[i].n_procedures; k++) {
                const struct program_stage *s = &p->stages[i];
                const struct procedure *f = &s->procedures[k];
                for (int32_t n = 0; n < f->n_instrs; n++) {
                    if (f->instrs[n].kind != INSTR_SEND) continue;
                    const struct channel *c = &p->channels[f->instrs[n].arg];
                    ck_assert(procedure_writes_buffer_ring(s, f, s->slots[c->from_slot].buffer_ring));
                    collectives += by_collective(p, i, c->from_slot);
                }
            }
        arena_reset(arena);
    }
    ck_assert_int_gt(collectives, 10);
}
END_TEST

START_TEST(a_call_starts_when_the_buffer_that_it_writes_has_been_sent)
{
    int64_t seen[2] = {0};
    for (uint64_t seed = 5000; seed < 5040; seed++) {
        struct sim_result r = {0};
        const struct program *p = sharded_program(seed, &r);
        for (int32_t c = 0; c < p->n_channels; c++)
            if (!p->channels[c].by_step && p->channels[c].link >= 0) follows(p, r.trace, c, seen);
        arena_reset(arena);
    }
    ck_assert_int_gt(seen[0], 50);
    ck_assert_int_gt(seen[1], 50);
}
END_TEST

Suite *free_buffers_suite(void)
{
    Suite *s = suite_create("sim/engine/lane, free buffers");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_call_that_sends_from_a_buffer_writes_it);
    tcase_add_test(t, a_call_starts_when_the_buffer_that_it_writes_has_been_sent);
    suite_add_tcase(s, t);
    return s;
}
