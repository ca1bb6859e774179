/* Stages on several devices, each with some sequences of every microbatch: their plans, their lowering and their
 * duration. tests/cli/training.sh checks that they train like one device. */
#include "core/lower/lower.h"
#include "sim/engine/sim.h"
#include "sim/stage/stage.h"

#include "tests/support/plans.h"

#include <math.h>

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

/* --- in files --- */

static const char file[] =
    "version: 1\nname: x\nmicrobatch: 6\nreplicas:\n%s"
    "job: {version: 1, sequence_length: 8, global_batch: 24, model: {model_type: gpt2, n_embd: 32,"
    " n_layer: 2, n_head: 2, n_positions: 64, vocab_size: 64}}\n"
    "cluster: {version: 1, name: c, device_types: [{name: t, device: host, memory: 1 GiB}], nodes: "
    "[{name: a, devices: {type: t, count: 3}}, {name: b, devices: {type: t, count: 2}}], links: "
    "[{name: l, between: [a, b], bandwidth: 1 GB/s, latency: 1 us}, {name: i, between: [a], "
    "bandwidth: 1 GB/s, latency: 1 us}, {name: j, between: [b], bandwidth: 1 GB/s, latency: 1 "
    "us}]}\n";

static enum status read_plan(const char *replicas, struct plan *p)
{
    struct node *root;
    const char *text = arena_printf(arena, file, replicas);
    ck_assert_msg(document_parse(arena, "plan", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    TRY(plan_parse(arena, root, ".", p, &err));
    return plan_check(p, plans_layers(arena, p), &err);
}

static const char *written(const struct plan *p)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    plan_write(f, arena, p);
    fclose(f);
    char *copy = arena_strdup(arena, text);
    free(text);
    return copy;
}

static const char groups[] =
    "  - {microbatches: 4, stages: [{layers: [0, 3], devices: [a.0, a.2], sequences: [4, 2], "
    "recompute: true}, {layers: [4, 7], devices: [b.1, b.0, a.1], sequences: [1, 2, 3]}]}\n";

START_TEST(a_plan_is_written_as_it_is_read)
{
    struct plan p, again;
    struct node *root;
    ck_assert_msg(read_plan(groups, &p) == OK, "%s", err.text);
    const struct plan_stage *s = p.replicas[0].stages;
    ck_assert(s[0].n_shards == 2 && s[0].device == 0 && s[0].devices[1] == 2);
    ck_assert(s[1].n_shards == 3 && s[1].device == 4 && s[1].sequences[2] == 3);
    const char *text = written(&p);
    ck_assert_ptr_nonnull(strstr(text, "devices: [a.0, a.2], sequences: [4, 2], recompute: true"));
    ck_assert_int_eq(document_parse(arena, "again", text, strlen(text), &root, &err), OK);
    ck_assert_msg(plan_parse(arena, root, ".", &again, &err) == OK, "%s", err.text);
    ck_assert_str_eq(written(&again), text);
    ck_assert_uint_eq(plan_hash(arena, &again), plan_hash(arena, &p));
    ck_assert_str_eq(plan_describe(arena, &p),
                     "1 replica of 4 microbatches: layers 0-3 on a.[0,2] (batch 4+2), recompute | 4-7 on b.1, b.0, "
                     "a.1 (batch 1+2+3)");
    int64_t other[] = {3, 3};
    p.replicas[0].stages[0].sequences = other;
    ck_assert_uint_ne(plan_hash(arena, &again), plan_hash(arena, &p));
}
END_TEST

#define ONE(stages) "  - {microbatches: 4, stages: [" stages "]}\n"
static const struct {
    const char *replicas, *message;
} bad[] = {
    {ONE("{layers: [0, 7], devices: [a.0, a.1], sequences: [4, 1]}"),
     "stages[0].sequences: add up to 5, but a microbatch has 6"},
    {ONE("{layers: [0, 7], devices: [a.0, a.1], sequences: [4, 3]}"),
     "sequences: 3 for a.1; the devices of a stage share the 6 sequences of a microbatch"},
    {ONE("{layers: [0, 7], devices: [a.0, a.1], sequences: [6, 0]}"),
     "sequences[1]: must be a whole number from 1"},
    {ONE("{layers: [0, 7], devices: [a.0, a.1], sequences: [6]}"), "has 1 numbers for 2 devices"},
    {ONE("{layers: [0, 7], devices: [a.0, a.1]}"), "needs `sequences` or `sharding`"},
    {ONE("{layers: [0, 7], devices: [], sequences: []}"), "must not be empty"},
    {ONE("{layers: [0, 7], devices: [a.0, c.1], sequences: [3, 3]}"), "unknown device 'c.1'"},
    {ONE("{layers: [0, 7], device: a.0, devices: [a.1, a.2], sequences: [3, 3]}"),
     "either `device` or `devices`, not both"},
    {ONE("{layers: [0, 7], device: a.0, sequences: [6]}"), "one device has all sequences"},
    {ONE("{layers: [0, 7], devices: [a.0, a.0], sequences: [3, 3]}"), "devices: a.0 is listed twice"},
    {ONE("{layers: [0, 3], devices: [a.0, a.1], sequences: [3, 3]}, {layers: [4, 7], device: a.1}"),
     "a.1 already has stages[0], which is not on the same devices"},
    {ONE("{layers: [0, 3], devices: [a.0, a.1], sequences: [3, 3]}, {layers: [4, 7], devices: "
         "[a.0, a.1], sequences: [2, 4]}"),
     "a.0 already has stages[0]; a replica with several stages on a device"},
    {"  - {microbatches: 2, stages: [{layers: [0, 7], device: a.0}]}\n"
     "  - {microbatches: 2, stages: [{layers: [0, 7], devices: [a.1, a.0], sequences: [3, 3]}]}\n",
     "a.0 already has replicas[0].stages[0]"},
};

START_TEST(plans_that_do_not_add_up_are_refused_by_name)
{
    struct plan p;
    ck_assert_int_eq(read_plan(bad[_i].replicas, &p), ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad[_i].message), "%s", err.text);
    ck_assert_msg(strstr(err.text, "plan:"), "%s", err.text);
}
END_TEST

START_TEST(a_deterministic_plan_has_none)
{
    struct plan p;
    ck_assert_int_eq(read_plan(groups, &p), OK);
    p.deterministic = true;
    ck_assert_int_eq(plan_check(&p, plans_layers(arena, &p), &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "cannot be deterministic"), "%s", err.text);
}
END_TEST

/* --- lowered --- */

static struct program *lowered(const struct plan *p)
{
    struct program *x = plans_lower(arena, p, true);
    ck_assert_msg(program_check(arena, x, &err) == OK, "%s", err.text);
    return x;
}

/* The stages of a random plan stand on one to three devices each. */
static struct plan random_groups(uint64_t seed)
{
    struct plan p = plans_random_plan(arena, seed);
    struct plans_random r = {seed, 2000};
    int32_t next = 0;
    p.microbatch = 1 + plans_below(&r, 6);
    p.deterministic = false;
    p.cluster = plans_cluster(arena, 64);
    p.job.global_batch = 0;
    for (int32_t k = 0; k < p.n_replicas; k++) {
        p.job.global_batch += p.replicas[k].microbatches * p.microbatch;
        for (int32_t i = 0; i < p.replicas[k].n_stages; i++) {
            struct plan_stage *s = &p.replicas[k].stages[i];
            int32_t most = p.microbatch < 3 ? (int32_t)p.microbatch : 3;
            int32_t n = 1 + plans_below(&r, most), *device = ARENA_ARRAY(arena, int32_t, 3);
            int64_t *sequences = ARENA_ARRAY(arena, int64_t, 3), left = p.microbatch;
            for (int32_t j = 0; j < n; j++) {
                device[j] = next++;
                sequences[j] =
                    j + 1 < n ? 1 + plans_below(&r, (int32_t)(left - (n - 1 - j))) : left;
                left -= sequences[j];
            }
            s->device = device[0];
            if (n > 1 || plans_below(&r, 2)) s->n_shards = n;
            s->devices = device, s->sequences = sequences;
        }
    }
    return p;
}

/* In each replica the devices of every stage have all sequences, once; every activation crosses a boundary completely. */
static void check_sequences(const struct plan *p, const struct program *x, const struct graph *g)
{
    for (int32_t i = 0; i < x->n_stages;) {
        const struct program_stage *s = &x->stages[i];
        int64_t at = 0;
        int32_t n = plan_stage_devices(&p->replicas[s->replica].stages[s->stage]);
        for (int32_t k = 0; k < n; k++, i++) {
            const struct program_stage *y = &x->stages[i];
            ck_assert(y->replica == s->replica && y->stage == s->stage);
            ck_assert_int_eq(y->n_parameters, s->n_parameters);
            ck_assert_int_eq(n > 1 ? y->first_sequence : 0, at);
            at += n > 1 ? y->sequences : p->microbatch;
        }
        ck_assert_int_eq(at, p->microbatch);
    }
    int64_t bytes[2][64] = {{0}}, want;
    for (int32_t i = 0; i < x->n_channels; i++) {
        const struct channel *c = &x->channels[i];
        const struct program_stage *s = &x->stages[c->gradient ? c->to_stage : c->from_stage];
        ck_assert_int_lt(s->replica * 5 + s->stage, 64);
        bytes[c->gradient][s->replica * 5 + s->stage] += c->bytes;
    }
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i + 1 < p->replicas[r].n_stages; i++) {
            want = graph_cut_bytes(g, &g->cut[p->replicas[r].stages[i].last_layer]);
            ck_assert_int_eq(bytes[0][r * 5 + i], want);
            ck_assert_int_eq(bytes[1][r * 5 + i], want);
        }
}

/* Each gradient of a device is in one all-reduce with all other devices that own a use of its parameter, if any. */
static void check_sums(const struct program *x)
{
    for (int32_t i = 0; i < x->n_stages; i++) {
        const struct program_stage *s = &x->stages[i];
        int32_t *sums = ARENA_ARRAY(arena, int32_t, (size_t)s->n_slots), owners = 0;
        for (int32_t k = 0; k < x->n_collectives; k++) {
            const struct collective *g = &x->collectives[k];
            for (int32_t m = 0; m < g->n_members; m++)
                for (int32_t j = 0; g->members[m].stage == i && j < g->members[m].n_segments; j++)
                    sums[g->members[m].segments[j]] += strncmp(g->name, "tied", 4) ? 1 : 0;
        }
        for (int32_t k = 0; k < x->n_stages; k++)
            owners += x->stages[k].first_layer <= s->first_layer &&
                      x->stages[k].last_layer >= s->first_layer;
        for (int32_t k = 0; k < s->n_slots; k++)
            if (s->slots[k].class == SLOT_GRADIENT && s->slots[k].parameter >= 0)
                ck_assert_int_eq(sums[k], owners > 1);
    }
}

static void check_file(const struct program *x)
{
    size_t n, again_n;
    char *text = plans_text(x, &n);
    struct program again;
    ck_assert_msg(program_parse(arena, "again", text, n, &again, &err) == OK, "%s", err.text);
    char *same = plans_text(&again, &again_n);
    ck_assert(n == again_n && !memcmp(text, same, n));
    free(text), free(same);
}

START_TEST(any_division_is_whole_and_its_program_reads_back)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 1000 : 80); seed++) {
        struct plan p = random_groups(seed);
        struct lower_options o = {0};
        struct graph *g;
        ck_assert_int_eq(lower_training_graph(arena, &p.job, p.microbatch, &o, &g, &err), OK);
        struct program *x = lowered(&p);
        check_sequences(&p, x, g);
        check_sums(x);
        check_file(x);
        arena_reset(arena);
    }
}
END_TEST

static struct cost *price(const struct plan *p)
{
    struct profile *profile = ARENA_ARRAY(arena, struct profile, 1);
    ck_assert_msg(profile_prior(arena, &p->cluster, profile, &err) == OK, "%s", err.text);
    return cost_new(arena, profile, &p->cluster);
}

static int64_t iteration(const struct plan *p, const struct program *x, enum sim_detail detail,
                         bool fold)
{
    struct sim_result r;
    struct sim_options o = {.detail = detail, .fold = fold};
    ck_assert_msg(sim_run(arena, x, price(p), &o, &r, &err) == OK, "%s", err.text);
    return r.iteration_ns;
}

START_TEST(folding_and_detail_change_nothing)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 300 : 30); seed++) {
        struct plan p = random_groups(seed);
        struct program *x = lowered(&p);
        int64_t ns = iteration(&p, x, SIM_OPERATOR, false);
        ck_assert_int_eq(iteration(&p, x, SIM_OPERATOR, true), ns);
        ck_assert_int_eq(iteration(&p, x, SIM_STAGE, false), ns);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(one_device_with_all_sequences_is_a_plain_stage)
{
    struct plan p = plans_random_plan(arena, 3), q = p;
    p.deterministic = q.deterministic = false;
    q.replicas = ARENA_ARRAY(arena, struct plan_replica, (size_t)p.n_replicas);
    for (int32_t r = 0; r < p.n_replicas; r++) {
        size_t n = (size_t)p.replicas[r].n_stages;
        q.replicas[r] = p.replicas[r];
        q.replicas[r].stages = ARENA_ARRAY(arena, struct plan_stage, n);
        for (size_t i = 0; i < n; i++) {
            struct plan_stage *s = &q.replicas[r].stages[i];
            *s = p.replicas[r].stages[i];
            s->n_shards = 1, s->devices = &p.replicas[r].stages[i].device;
            s->sequences = &p.microbatch;
        }
    }
    size_t n, m;
    struct program *x = lowered(&p), *y = lowered(&q);
    y->plan_hash = x->plan_hash;
    char *a = plans_text(x, &n), *b = plans_text(y, &m);
    ck_assert(n == m && !memcmp(a, b, n));
    free(a), free(b);
}
END_TEST

/* Two devices, half a microbatch each: forwards and backwards of three sequences in turn, then a ring of two over the bus
 * (10^9 B/s, 1 us), in both directions at once: half of the gradients there, the other half back; then the update. */
START_TEST(two_halves_take_half_the_work_and_a_ring)
{
    enum { MICROBATCHES = 5 };
    struct plan p = plans_new(arena, TINY_LLAMA, 2, 2);
    int32_t last = plans_layers(arena, &p) - 1, both[] = {0, 1};
    int64_t halves[] = {3, 3};
    struct lower_options o = {0};
    struct lower_graphs graphs = {0};
    const struct graph *g;
    struct stage_cost c;
    p.microbatch = 6;
    struct plan_stage *s = plans_replica(arena, &p, MICROBATCHES, 1, &last)->stages;
    s->n_shards = 2, s->devices = both, s->sequences = halves;
    struct program *x = plans_lower(arena, &p, false);
    ck_assert_int_eq(x->n_collectives, 1);
    ck_assert_msg(lower_graphs_need(arena, &graphs, &p.job, &o, 3, &g, &err) == OK, "%s",
                  err.text);
    struct stage_table *t = stage_table_new(arena, g, price(&p), &p.job.optimizer);
    ck_assert_int_eq(stage_table_cost(t, 0, last, 0, &c, &err), OK);
    int64_t elements = x->collectives[0].elements, half = elements - elements / 2;
    int64_t want = MICROBATCHES * (c.forward_ns + c.input_ns + c.weight_ns) + c.update_ns +
                   2 * (4 * half + 1000);
    ck_assert_int_eq(iteration(&p, x, SIM_OPERATOR, false), want);
    ck_assert_int_eq(4 * elements, model_parameters(&p.job.model) * 4);
}
END_TEST

/* 4 and 2 sequences on the sending devices, 1, 2 and 3 on the receiving ones: intersections [0,1) [1,3) [3,4) and [4,6). */
START_TEST(messages_have_the_sequences_that_both_ends_have)
{
    static const int64_t n[] = {1, 2, 1, 2}, start[] = {0, 1, 3, 0}, into[] = {0, 0, 0, 1};
    static const int32_t from[] = {0, 0, 0, 1}, to[] = {2, 3, 4, 4};
    struct plan p;
    ck_assert_int_eq(read_plan(groups, &p), OK);
    struct program *x = lowered(&p);
    int32_t k = 0;
    for (int32_t i = 0; i < x->n_channels; i++) {
        const struct channel *c = &x->channels[i];
        if (c->gradient) continue;
        ck_assert(c->from_stage == from[k] && c->to_stage == to[k]);
        ck_assert_int_eq(c->bytes, n[k] * 8 * 32 * 4);
        k++;
    }
    ck_assert_int_eq(k, 4);
    /* The first device sends three pieces, the last receives two; a device with exactly its own sequences does neither. */
    int32_t slices[5] = {0}, pastes[5] = {0};
    for (int32_t i = 0; i < x->n_stages; i++)
        for (int32_t j = 0; j < x->stages[i].n_ops; j++) {
            const struct program_op *op = &x->stages[i].ops[j];
            if (op->phase != PHASE_F) continue;
            slices[i] += op->kind == OP_slice, pastes[i] += op->kind == OP_paste;
            if (op->kind == OP_slice) ck_assert_int_eq(op->attrs.start, start[slices[i] - 1]);
            if (op->kind == OP_paste) ck_assert_int_eq(op->attrs.start, into[1 + pastes[i]]);
        }
    static const int32_t want_slices[] = {3, 0, 0, 0, 0}, want_pastes[] = {0, 0, 0, 0, 2};
    for (int32_t i = 0; i < 5; i++) {
        ck_assert_int_eq(slices[i], want_slices[i]);
        ck_assert_int_eq(pastes[i], want_pastes[i]);
    }
}
END_TEST

Suite *groups_suite(void)
{
    Suite *suite = suite_create("groups");
    TCase *t = tcase_create("groups");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, a_plan_is_written_as_it_is_read);
    tcase_add_loop_test(t, plans_that_do_not_add_up_are_refused_by_name, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(t, a_deterministic_plan_has_none);
    tcase_add_test(t, any_division_is_whole_and_its_program_reads_back);
    tcase_add_test(t, folding_and_detail_change_nothing);
    tcase_add_test(t, one_device_with_all_sequences_is_a_plain_stage);
    tcase_add_test(t, two_halves_take_half_the_work_and_a_ring);
    tcase_add_test(t, messages_have_the_sequences_that_both_ends_have);
    suite_add_tcase(suite, t);
    return suite;
}
