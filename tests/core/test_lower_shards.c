/* Plans with sharded stages, lowered (core/lower/shards.c). That they train alike: tests/programs/shard_ranks.c. */
#include "core/collective/tensor_shard.h"
#include "tests/support/plans.h"
#include "tests/support/replicas.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Megatron's sharding: two sums a block forwards, two back. */
#define MEGATRON                                                                                   \
    "operators: [{match: \"h.*.attn.c_attn*\", shard: heads}, {match: \"h.*.attn.attention\", "    \
    "shard: heads}, {match: \"h.*.attn.c_proj\", shard: heads}, {match: \"h.*.mlp.c_fc*\", "       \
    "shard: features}, {match: \"h.*.mlp.gelu\", shard: features}, {match: \"h.*.mlp.c_proj\", "   \
    "shard: inputs}]\n"

#define BATCH REPLICAS_BATCH

static struct sharding *sharding(const char *text, int32_t n_devices)
{
    return replicas_sharding(arena, text, n_devices);
}

static struct plan shared(int32_t n_replicas, int32_t n, const char *text, int layers)
{
    return replicas_of_one_stage(arena, n_replicas, n, text, layers);
}

static int32_t collectives(const struct program *p, int32_t stage, enum phase phase,
                        enum collective_kind kind)
{
    int32_t n = 0;
    for (int32_t f = 0; f < p->stages[stage].n_procedures; f++) {
        const struct procedure *x = &p->stages[stage].procedures[f];
        if (x->phase != phase || *x->variant) continue;
        for (int32_t i = 0; i < x->n_instrs; i++)
            n += x->instrs[i].kind == INSTR_COLLECTIVE &&
                 p->collectives[x->instrs[i].arg].kind == kind;
    }
    return n;
}

static int32_t sums(const struct program *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_collectives; i++) n += !collective_of_tensor(&p->collectives[i]);
    return n;
}

START_TEST(columns_then_rows_take_two_collectives_a_block_and_pass)
{
    for (int layers = 1; layers <= 3; layers++) {
        struct plan plan = shared(1, 2, MEGATRON, layers);
        struct program *p = plans_lower(arena, &plan, false);
        for (int32_t s = 0; s < 2; s++) {
            ck_assert_int_eq(collectives(p, s, 'F', COLLECTIVE_ALL_REDUCE), 2 * layers);
            ck_assert_int_eq(collectives(p, s, 'B', COLLECTIVE_ALL_REDUCE), 2 * layers);
            for (int k = 0; k < COLLECTIVE_CALL_KINDS; k++)
                if (k != COLLECTIVE_ALL_REDUCE)
                    ck_assert_int_eq(collectives(p, s, 'F', (enum collective_kind)k) +
                                         collectives(p, s, 'B', (enum collective_kind)k),
                                     0);
        }
        /* Gradients are whole where parameters are, and parts are nobody else's: nothing to sum. */
        ck_assert_int_eq(sums(p), 0);
    }
}
END_TEST

/* b = 2 sequences of 8, 32 features: 512 elements a sum, a half each step. */
START_TEST(what_crosses_is_what_the_closed_form_says)
{
    struct plan plan = shared(1, 2, MEGATRON, 1);
    struct program *p = plans_lower(arena, &plan, false);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *m = &p->collectives[i];
        ck_assert_int_eq(p->collectives[i].elements, 2 * 8 * 32);
        ck_assert_int_eq(m->most, 256);
        ck_assert_int_eq(collective_tensor_staging_bytes(m, DTYPE_fp32), 1024);
    }
    ck_assert_int_eq(p->stages[0].buffer_bytes, 1024);
}
END_TEST

START_TEST(replicas_reduce_shard_by_shard)
{
    struct plan plan = shared(2, 2, MEGATRON, 1);
    struct program *p = plans_lower(arena, &plan, false);
    ck_assert_int_gt(sums(p), 0);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        if (collective_of_tensor(g)) continue;
        /* The devices of one place in both replicas. */
        ck_assert_int_eq(g->n_members, 2);
        ck_assert_int_eq(g->members[1].stage, g->members[0].stage + 2);
    }
}
END_TEST

START_TEST(devices_that_share_the_batch_reduce_everything_together)
{
    struct plan plan =
        shared(1, 2, "ratios: [[1, 1]]\noperators: [{match: \"*\", shard: batch}]\n", 1);
    struct program *p = plans_lower(arena, &plan, false);
    ck_assert_int_eq(p->n_collectives, 1);
    ck_assert_int_eq(p->collectives[0].n_members, 2);
    for (int32_t s = 0; s < 2; s++) {
        ck_assert(p->stages[s].shares_loss && p->stages[s].loss_share == 0.5);
        for (int32_t i = 0; i < p->stages[s].n_slots; i++)
            if (p->stages[s].slots[i].input >= 0) {
                const struct tensor_shard *x = p->stages[s].slots[i].shard;
                ck_assert(x && x->n_cuts == 1 && x->cut[0].run[0].first == s);
            }
    }
}
END_TEST

struct covering {
    int *times;
};
static void cover(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct covering *c = owner;
    (void)packed;
    for (int64_t i = first; i < first + n; i++) c->times[i]++;
}

static int of_slot(const struct program *p, const struct collective *g, int32_t i, int32_t slot,
                   int *times)
{
    const struct collective_member *m = &g->members[i];
    int found = 0;
    for (int32_t k = 0; k < m->n_segments; k++) {
        if (m->segments[k] != slot) continue;
        struct covering c = {times};
        struct region all = {.shape = p->stages[m->stage].slots[slot].shape};
        region_walk(m->within && m->within[k].n_dims ? &m->within[k] : &all, cover, &c);
        found++;
    }
    return found;
}

/* Each element of each gradient of a stage is summed so many times; -1: once. Returns regions found. */
static int all_summed_once(const struct program *p, int32_t stage)
{
    const struct program_stage *s = &p->stages[stage];
    int regions = 0;
    for (int32_t i = 0; i < s->n_parameters; i++)
        for (int use = 0; use < 2; use++) {
            int32_t slot = s->parameters[i].gradient[use];
            int64_t n = slot < 0 ? 0 : shape_elements(&s->slots[slot].shape);
            int *times = calloc((size_t)n + 1, sizeof *times);
            const struct collective *g = p->collectives;
            for (; g < p->collectives + p->n_collectives; g++)
                for (int32_t m = 0; m < g->n_members && !collective_of_tensor(g); m++)
                    if (g->members[m].stage == stage) regions += of_slot(p, g, m, slot, times);
            for (int64_t e = 0; e < n; e++) ck_assert_int_eq(times[e], 1);
            free(times);
        }
    return regions;
}

/* A mesh of two by two: batch outside, heads inside. */
#define BATCH_HEADS                                                                                \
    "mesh: [2, 2]\noperators: [{match: \"h.*.attn.c_attn*\", shard: [batch, heads]}, {match: "     \
    "\"h.*.attn.attention\", shard: [batch, heads]}, {match: \"h.*.attn.c_proj\", shard: [batch, " \
    "heads]}, {match: \"*\", shard: [batch, none]}]\n"

START_TEST(on_a_mesh_sums_go_along_one_axis_and_collectives_along_the_other)
{
    struct plan plan = shared(1, 4, BATCH_HEADS, 1);
    struct program *p = plans_lower(arena, &plan, false);
    int32_t rows = 0, columns = 0;
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        int32_t a = g->members[0].stage, b = g->members[1].stage;
        ck_assert_int_eq(g->n_members, 2);
        if (collective_of_tensor(g))
            rows++, ck_assert(a / 2 == b / 2);
        else
            columns++, ck_assert(a % 2 == b % 2);
    }
    ck_assert(rows == 2 * 2 && columns >= 2);
}
END_TEST

/* State that two devices of a column have in common is halved, up to padding, by a reduce-scatter and an all-gather. */
START_TEST(state_is_divided_among_those_who_keep_the_same)
{
    for (int zero = 1; zero <= 2; zero++) {
        struct plan plan = shared(1, 4, BATCH_HEADS, 1);
        struct program *whole = plans_lower(arena, &plan, false);
        plan.replicas[0].stages[0].zero = zero;
        struct program *p = plans_lower(arena, &plan, false);
        int32_t scatters = 0, gathers = 0;
        for (int32_t i = 0; i < p->n_collectives; i++) {
            const struct collective *g = &p->collectives[i];
            if (collective_of_tensor(g)) continue;
            scatters += program_collective_scatters(g), gathers += program_collective_gathers(g);
            ck_assert_int_eq(g->n_members, 2);
            ck_assert_int_eq(g->members[0].stage % 2, g->members[1].stage % 2);
        }
        ck_assert(scatters > 0 && gathers > 0 && scatters + gathers == sums(p));
        for (int32_t s = 0; s < 4; s++) {
            int64_t before = whole->stages[s].class_bytes[SLOT_STATE],
                    after = p->stages[s].class_bytes[SLOT_STATE];
            ck_assert(after >= before / 2 && after < before / 2 + 128 * scatters);
            for (int32_t k = 0; k < p->stages[s].n_parameters; k++)
                ck_assert_ptr_nonnull(p->stages[s].parameters[k].shard);
        }
    }
}
END_TEST

/* Each tensor-parallel shard has one holder, and replicated parameters are updated alike by all: zero shards nothing here. */
START_TEST(what_one_device_alone_sums_is_not_divided)
{
    struct plan plan = shared(1, 2, MEGATRON, 1);
    plan.replicas[0].stages[0].zero = 1;
    struct program *p = plans_lower(arena, &plan, false);
    ck_assert_int_eq(sums(p), 0);
    for (int32_t k = 0; k < p->stages[0].n_parameters; k++)
        ck_assert_ptr_null(p->stages[0].parameters[k].shard);
}
END_TEST

START_TEST(a_device_may_have_nothing)
{
    struct plan plan = shared(1, 3, "ratios: [[1, 0, 1]]\n" BATCH, 1);
    struct program *p = plans_lower(arena, &plan, false);
    ck_assert(p->stages[1].loss_share == 0);
    for (int32_t i = 0; i < p->stages[1].n_slots; i++)
        if (p->stages[1].slots[i].input >= 0) ck_assert_int_eq(p->stages[1].slots[i].bytes, 0);
}
END_TEST

START_TEST(a_gather_behind_the_last_block_leaves_its_output_kept)
{
    struct plan plan =
        shared(1, 2, "parameters: [{match: \"*ln_f.weight\", reshard_after_forward: true}]\n", 1);
    plan.replicas[0].stages[0].recompute = RECOMPUTE_BLOCKS;
    const struct program_stage *s = &plans_lower(arena, &plan, false)->stages[0];
    int again = 0, output = 0;
    for (int32_t i = 0; i < s->n_ops; i++)
        again += strstr(s->ops[i].name, ".again") != NULL,
            output += strcmp(s->ops[i].name, "h.0.mlp.residual.again") == 0;
    ck_assert(again > 0 && output == 0);
}
END_TEST

/* --- replicas that keep other shards --- */
/* Two replicas on two devices each that share in different ways; NULL: by sequences. */
static struct plan mixed(const char *one, const char *other)
{
    static const int64_t halves[] = {1, 1};
    struct plan p = shared(2, 2, one, 1);
    struct plan_stage *s = &p.replicas[1].stages[0];
    s->sharding = other ? sharding(other, 2) : NULL;
    if (!other) s->sequences = halves;
    return p;
}

START_TEST(replicas_that_keep_other_shards_reduce_what_they_have_in_common)
{
    static const char *const strategies[] = {
        MEGATRON,
        BATCH,
        NULL,
        "ratios: [[3, 1]]\n" MEGATRON,
        "ratios: [[0, 1]]\noperators: [{match: \"h.*.mlp.c_proj\", shard: inputs}, {match: "
        "\"h.*.mlp.c_fc*\", shard: inputs}, {match: \"*\", shard: batch}]\n",
        BATCH "parameters: [{match: \"*\", reshard_after_forward: false}]\n"};
    enum { N = sizeof strategies / sizeof *strategies };
    for (int a = 0; a < N; a++)
        for (int b = 0; strategies[a] && b < N; b++) {
            if (a == b) continue;
            struct plan plan = mixed(strategies[a], strategies[b]);
            struct program *p = plans_lower(arena, &plan, false);
            for (int32_t s = 0; s < p->n_stages; s++) ck_assert_int_gt(all_summed_once(p, s), 0);
        }
}
END_TEST

/* Six replicas of two kinds: what a device has of a parameter is stated once for all devices in its place. */
START_TEST(devices_in_one_place_of_equal_replicas_share_their_regions)
{
    struct plan p = shared(6, 2, MEGATRON, 1);
    for (int32_t r = 1; r < 6; r += 2) p.replicas[r].stages[0].sharding = sharding(BATCH, 2);
    int32_t regions = 0;
    struct program *program = plans_lower(arena, &p, false);
    for (int32_t g = 0; g < program->n_collectives; g++) {
        const struct region *of[4] = {NULL};
        const struct collective *x = &program->collectives[g];
        for (int32_t m = 0; m < x->n_members && !collective_of_tensor(x); m++) {
            const struct region **first = &of[x->members[m].stage % 4];
            if (!*first) *first = x->members[m].within, regions += *first != NULL;
            ck_assert_ptr_eq(x->members[m].within, *first);
        }
    }
    ck_assert_int_gt(regions, 0);
}
END_TEST

/* A half of a matrix's columns is in strips. Who computes whole gradients that another has as well is silent. */
START_TEST(what_several_have_alike_counts_once)
{
    struct plan plan = mixed(MEGATRON, BATCH);
    struct program *p = plans_lower(arena, &plan, false);
    int silent = 0, strips = 0;
    for (int32_t g = 0; g < p->n_collectives; g++)
        for (int32_t m = 0;
             m < p->collectives[g].n_members && !collective_of_tensor(&p->collectives[g]); m++) {
            const struct collective_member *x = &p->collectives[g].members[m];
            silent += x->silent;
            ck_assert(!x->silent || (x->stage == 1 && p->collectives[g].n_members == 4));
            if (p->collectives[g].n_members == 4) continue;
            ck_assert_int_eq(p->collectives[g].n_members,
                             3); /* a half's one, and both that have partial values */
            for (int32_t k = 0; k < x->n_segments; k++)
                strips += x->within[k].n_dims == 1 && x->within[k].dim[0].dimension == 1;
        }
    ck_assert_int_eq(silent, 1);
    ck_assert_int_eq(strips, 2 * 2 * 2); /* c_attn and c_fc; halves; devices of replica 1 */
}
END_TEST

/* Two stages, one device and then two: embedding whole, head by the vocabulary. */
START_TEST(a_tied_parameter_may_be_sharded_in_one_of_its_stages)
{
    static const int32_t devices[] = {1, 2};
    struct plan plan = plans_new(arena, "gpt2", 1, 3);
    int32_t last = plans_layers(arena, &plan) - 1;
    struct plan_replica *r = plans_replica(arena, &plan, 2, 2, (int32_t[]){0, last});
    struct plan_stage *s = &r->stages[1];
    s->device = 1, s->n_shards = 2, s->devices = devices;
    s->sharding = sharding("ratios: [[3, 1]]\noperators: [{match: lm_head, shard: vocabulary}, "
                           "{match: loss, shard: vocabulary}]\n",
                           2);
    struct program *p = plans_lower(arena, &plan, false);
    int64_t elements[2] = {0};
    int n = 0;
    for (int32_t g = 0; g < p->n_collectives; g++) {
        if (strncmp(p->collectives[g].name, "tied", 4)) continue;
        ck_assert(n < 2 && p->collectives[g].n_members == 2 &&
                  !p->collectives[g].members[0].silent);
        elements[n++] = p->collectives[g].elements;
    }
    ck_assert_int_eq(n, 2);
    ck_assert_int_eq(elements[0], 3 * elements[1]);
}
END_TEST

/* --- where several activations are alive --- */

/* Of one replica's plan with fine layers, cut behind layer k: one device, and two that share. first: those come first. */
static struct plan cut_behind(int32_t k, bool first, int *alive)
{
    static const int32_t devices[2][2] = {{1, 2}, {0, 1}};
    struct plan p = plans_new(arena, "gpt2", 1, 3);
    struct graph *g;
    struct error err = {0};
    p.job.layers.by = LAYERS_FINE;
    ck_assert(lower_graph(arena, &p.job, 2, &g, &err) == OK);
    *alive = k + 1 < g->n_layers ? g->cut[k].n : 0;
    struct plan_replica *r = plans_replica(arena, &p, 2, 2, (int32_t[]){k, g->n_layers - 1});
    struct plan_stage *s = &r->stages[!first];
    r->stages[0].device = 0, r->stages[1].device = first ? 2 : 1;
    s->n_shards = 2, s->devices = devices[first];
    s->sharding =
        sharding("ratios: [[3, 1]]\noperators: [{match: \"*ln_*\", shard: positions}, {match: "
                 "\"*.c_attn*\", shard: heads}, {match: \"*.attention\", shard: heads}, "
                 "{match: \"*.c_proj\", shard: inputs}, {match: \"*\", shard: features}]\n",
                 2);
    return p;
}

/* Whatever else they meet for, devices hand back one gradient for each activation, whole and once: also of activations
 * that other operators of the stage read as partial values, in parts, or that one addition reads both. */
START_TEST(each_activation_has_one_gradient_that_crosses_back)
{
    int most = 0, alive = 1;
    for (int32_t k = 0; alive; k++)
        for (int first = 0; first < 2; first++) {
            struct plan plan = cut_behind(k, first, &alive);
            if (!alive) break;
            struct program *p = plans_lower(arena, &plan, true);
            int back = 0, forth = 0;
            for (int32_t c = 0; c < p->n_channels; c++)
                back += p->channels[c].gradient, forth += !p->channels[c].gradient;
            /* Two devices get each of them, and one of the two gives it. */
            ck_assert_int_eq(forth, first ? alive : 2 * alive);
            ck_assert(back >= 1 && back <= (first ? 2 : 1) * alive && (!first || back % 2 == 0));
            most = alive > most ? alive : most;
        }
    ck_assert_int_gt(most, 1);
}
END_TEST

static void refused(struct plan p, const char *why)
{
    struct error err = {0};
    ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

START_TEST(what_does_not_go_together_is_refused_with_the_reason)
{
    struct plan p = shared(1, 2, MEGATRON, 1);
    p.deterministic = true, refused(p, "sharded operators round differently");
    p = shared(1, 2, MEGATRON, 1), p.replicas[0].stages[0].zero = 3;
    refused(p, "zero: 3 with sharding");
    p = mixed(MEGATRON, BATCH);
    for (int r = 0; r < 2; r++) p.replicas[r].stages[0].zero = 1;
    refused(p, "its state is also sharded by zero");
    p = shared(1, 2, "operators: [{match: \"h.*.ln_1\", shard: heads}]\n", 1);
    refused(p, "h.*.ln_1");
}
END_TEST

/* Changes one byte near a record of these kinds; at least one in four is refused, none is trusted wrongly. */
static void mangle(const struct program *p, const char *const *records, int n_records, int cases)
{
    struct plans_random r = {3, 0};
    struct error err = {0};
    struct program q;
    size_t n;
    char *text = plans_text(p, &n), *copy = malloc(n + 1);
    int refused = 0;
    for (int i = 0; i < n_records; i++) ck_assert_ptr_nonnull(strstr(text, records[i]));
    ck_assert_msg(program_parse(arena, "made", text, n, &q, &err) == OK, "%s", err.text);
    for (int i = 0; i < cases; i++) {
        memcpy(copy, text, n + 1);
        char *at = copy;
        const char *record = records[plans_below(&r, n_records)];
        for (int k = plans_below(&r, 20); k >= 0; k--) {
            char *next = strstr(at + 1, record);
            if (!next) break;
            at = next;
        }
        at[1 + plans_below(&r, 30)] = "0123456789- \n"[plans_below(&r, 13)];
        struct arena *scratch = arena_new();
        if (program_parse(scratch, "x", copy, n, &q, &err) != OK)
            refused++;
        else
            (void)!program_check(scratch, &q, &err);
        arena_free(scratch);
    }
    ck_assert_int_gt(refused, cases / 4);
    free(copy), free(text);
}

/* Bytes of the records that programs without sharing do not have. */
START_TEST(mangled_shards_are_refused_or_can_be_trusted)
{
    struct plan plan = shared(
        1, 3,
        "ratios: [[2, 0, 1]]\noperators: [{match: \"lm_head\", shard: "
        "vocabulary}, {match: \"loss\", shard: vocabulary}, {match: "
        "\"h.*.mlp.*\", shard: features}, {match: \"*\", shard: batch}]\n"
        "parameters: [{match: \"transformer.h.0.mlp.c_fc.weight\", reshard_after_forward: false}]",
        1);
    mangle(plans_lower(arena, &plan, true), (const char *const[]){"\nlocal ", "\nof ", "\nloss "},
           3, suites_long() ? 4000 : 300);
}
END_TEST

START_TEST(mangled_regions_are_refused_or_can_be_trusted)
{
    struct plan plan = mixed(MEGATRON, BATCH);
    mangle(plans_lower(arena, &plan, true), (const char *const[]){"\nwithin ", "\nsilent "}, 2,
           suites_long() ? 4000 : 300);
}
END_TEST

Suite *lower_shards_suite(void)
{
    Suite *s = suite_create("lower_shards");
    TCase *c = tcase_create("lower_shards");
    const TTest *tests[] = {columns_then_rows_take_two_collectives_a_block_and_pass,
                            what_crosses_is_what_the_closed_form_says,
                            replicas_reduce_shard_by_shard,
                            devices_that_share_the_batch_reduce_everything_together,
                            on_a_mesh_sums_go_along_one_axis_and_collectives_along_the_other,
                            state_is_divided_among_those_who_keep_the_same,
                            what_one_device_alone_sums_is_not_divided,
                            a_device_may_have_nothing,
                            a_gather_behind_the_last_block_leaves_its_output_kept,
                            replicas_that_keep_other_shards_reduce_what_they_have_in_common,
                            devices_in_one_place_of_equal_replicas_share_their_regions,
        what_several_have_alike_counts_once,
                            a_tied_parameter_may_be_sharded_in_one_of_its_stages,
                            each_activation_has_one_gradient_that_crosses_back,
                            what_does_not_go_together_is_refused_with_the_reason,
                            mangled_shards_are_refused_or_can_be_trusted,
                            mangled_regions_are_refused_or_can_be_trusted};
    tcase_add_checked_fixture(c, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
