/* Suite of core/collective/collective and of what the program file, the token game, the simulator and its explanation make of collectives.
 * Results and real processes are tests/programs/collective_ranks.c's. */
#include "core/graph/half.h"
#include "core/program/internal.h"
#include "sim/explain/explain.h"

#include "tests/support/tensor_collectives.h"
#include "tests/support/suites.h"

#include <inttypes.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static char *text_of(const struct program *p, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    program_write(f, p);
    fclose(f);
    char *copy = arena_strndup(arena, text, *n);
    free(text);
    return copy;
}

static struct met *made(uint64_t seed)
{
    struct error err = {0};
    struct met *m = tensor_collectives_make(arena, seed, 1 + (int32_t)(seed % 6), seed % 5 == 4);
    ck_assert_msg(program_check(arena, &m->p, &err) == OK, "seed %d: %s", (int)seed, err.text);
    return m;
}

/* --- sizes and steps --- */

static bool tensor_collective_of(const struct met *m, int32_t i, const struct collective **out)
{
    *out = &m->p.collectives[i];
    return collective_of_tensor(*out);
}

START_TEST(what_one_member_sends_another_receives)
{
    int32_t messages = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct met *m = made(seed);
        const struct collective *x;
        for (int32_t g = 0; g < m->p.n_collectives; g++) {
            if (!tensor_collective_of(m, g, &x)) continue;
            for (int32_t s = 0; s < collective_steps(x); s++)
                for (int32_t i = 0; i < x->n_members; i++) {
                    struct collective_round mine = collective_round(x, i, s);
                    ck_assert((mine.to < 0) == (mine.send == 0));
                    ck_assert((mine.from < 0) == (mine.receive == 0));
                    ck_assert_int_le(mine.send, x->most);
                    if (mine.to < 0) continue;
                    struct collective_round other = collective_round(x, mine.to, s);
                    ck_assert(other.from == i && other.receive == mine.send);
                    if (x->algorithm != ALGORITHM_PAIRS)
                        ck_assert_int_eq(other.in_first, mine.out_first);
                    ck_assert(collective_sends(x, i, mine.to));
                    messages++;
                }
        }
        arena_reset(arena);
    }
    ck_assert_int_gt(messages, 1000);
}
END_TEST

/* Every element of what a member gets comes from exactly one member where nothing is summed, and packing what i has for k gives
 * as many elements as k unpacks. */
START_TEST(regions_of_all_members_cover_what_they_get)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct met *m = made(seed);
        const struct collective *x;
        for (int32_t g = 0; g < m->p.n_collectives; g++) {
            if (!tensor_collective_of(m, g, &x) || x->kind == COLLECTIVE_ALL_REDUCE) continue;
            for (int32_t k = 0; k < x->n_members; k++) {
                struct shape out = collective_out(x, k);
                int64_t n = shape_elements(&out);
                double *got = ARENA_ARRAY(arena, double, (size_t)n + 1), *ones;
                for (int32_t i = 0; i < x->n_members; i++) {
                    struct region from = collective_from(arena, x, i, k),
                                  into = collective_into(arena, x, i, k);
                    int64_t e = collective_elements(x, i, k);
                    ck_assert_int_eq(region_elements(&from), e);
                    ck_assert_int_eq(region_elements(&into), e);
                    ones = ARENA_ARRAY(arena, double, (size_t)e + 1);
                    for (int64_t j = 0; j < e; j++) ones[j] = 1;
                    region_copy(&into, DTYPE_fp64, got, ones, REGION_ADD);
                }
                double each = x->kind == COLLECTIVE_REDUCE_SCATTER ? x->n_members : 1;
                for (int64_t j = 0; j < n; j++) ck_assert(got[j] == each);
            }
        }
        arena_reset(arena);
    }
}
END_TEST

/* Rows of 5 of which two runs are one part: 0, 1 and 4. */
START_TEST(packed_sections_are_taken_together)
{
    int64_t first[] = {0, 4, 2, 5}, count[] = {2, 1, 2, 0};
    struct collective m = {.kind = COLLECTIVE_ALL_GATHER,
                           .algorithm = ALGORITHM_RING,
                           .n_members = 2,
                           .whole = {2, {2, 5}},
                           .from = {1, 2, first, count},
                           .to = {.dimension = -1}};
    struct error err = {0};
    ck_assert_int_eq(collective_valid(&m, &err), OK);
    m.most = collective_max(&m);
    ck_assert_int_eq(m.most, 6);
    float whole[10] = {0}, part[6] = {1, 2, 3, 4, 5, 6}, other[4] = {7, 8, 9, 10};
    struct region a = collective_into(arena, &m, 0, 1), b = collective_into(arena, &m, 1, 0);
    region_copy(&a, DTYPE_fp32, whole, part, REGION_UNPACK);
    region_copy(&b, DTYPE_fp32, whole, other, REGION_UNPACK);
    const float expected[10] = {1, 2, 7, 8, 3, 4, 5, 9, 10, 6};
    ck_assert_mem_eq(whole, expected, sizeof whole);
    memset(part, 0, sizeof part);
    region_copy(&a, DTYPE_fp32, whole, part, REGION_PACK);
    for (int i = 0; i < 6; i++) ck_assert(part[i] == (float)(i + 1));
    ck_assert_int_eq(collective_tensor_staging_bytes(&m, DTYPE_fp32), 64); /* two chunks of 6 */
    count[3] = 1;
    ck_assert_int_eq(collective_valid(&m, &err), ERR_INPUT);
    first[3] = 4, count[3] = 0, count[1] = 0;
    ck_assert_int_eq(collective_valid(&m, &err), ERR_INPUT); /* index 4 belongs to no member */
    count[1] = 1, first[1] = 1;
    ck_assert_int_eq(collective_valid(&m, &err), ERR_INPUT); /* 1 twice */
}
END_TEST

/* --- the program file --- */

START_TEST(a_program_of_collectives_survives_its_file)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct met *m = made(seed);
        struct program q;
        struct error err = {0};
        size_t n1, n2;
        char *one = text_of(&m->p, &n1);
        ck_assert_msg(program_parse(arena, "made", one, n1, &q, &err) == OK, "%s", err.text);
        char *two = text_of(&q, &n2);
        ck_assert(n1 == n2 && !memcmp(one, two, n1));
        ck_assert_msg(program_check(arena, &q, &err) == OK, "%s", err.text);
        arena_reset(arena);
    }
}
END_TEST

/* A number or word of a collective's records is another one: refused with a line, or a program that is played to an end. */
START_TEST(mangled_collectives_are_refused_or_can_be_trusted)
{
    int refused = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 4000 : 400); seed++) {
        struct met *m = made(seed % 40);
        size_t n;
        char *text = text_of(&m->p, &n), *at = strstr(text, "\ncollective ");
        ck_assert_ptr_nonnull(at);
        static const char bytes[] = "0123456789-  \n";
        size_t from = (size_t)(at - text) + 1;
        m->seed = seed;
        for (int64_t k = met_draw(m, 1, 3); k > 0; k--) {
            size_t where = from + (size_t)met_draw(m, 0, (int64_t)(n - from) - 1);
            if (strchr(bytes, text[where])) text[where] = bytes[met_draw(m, 0, 13)];
        }
        struct program q;
        struct error err = {0};
        if (program_parse(arena, "mangled", text, n, &q, &err) != OK) {
            ck_assert_int_eq(err.code, ERR_INPUT);
            ck_assert_ptr_nonnull(strstr(err.text, "mangled:"));
            refused++;
        } else if (program_check(arena, &q, &err) != OK) {
            ck_assert_int_eq(err.code, ERR_INPUT);
        }
        arena_reset(arena);
    }
    ck_assert_int_gt(refused, 200);
}
END_TEST

/* --- the token game --- */

/* The first two collectives of one stage's first procedure that has two and is called. */
static struct instr *two_collectives(const struct program_stage *s)
{
    for (int32_t f = s->microbatches == 1; f < s->n_procedures; f++)
        for (int32_t i = 0; i + 1 < s->procedures[f].n_instrs; i++) {
            struct instr *x = &s->procedures[f].instrs[i];
            if (x[0].kind == INSTR_COLLECTIVE && x[1].kind == INSTR_COLLECTIVE) return x;
        }
    return NULL;
}

static bool has_member(const struct collective *g, int32_t stage)
{
    for (int32_t i = 0; i < g->n_members; i++)
        if (g->members[i].stage == stage) return true;
    return false;
}

START_TEST(lanes_that_join_in_other_orders_are_refused)
{
    int32_t tried = 0;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct met *m = made(seed);
        struct error err = {0};
        struct instr *x = two_collectives(&m->p.stages[0]), other;
        if (!x) continue;
        int32_t both = 0;
        for (int32_t s = 1; s < m->p.n_stages; s++)
            both += has_member(&m->p.collectives[x[0].arg], s) &&
                    has_member(&m->p.collectives[x[1].arg], s);
        if (!both) continue;
        other = x[0], x[0] = x[1], x[1] = other;
        ck_assert_int_eq(program_check(arena, &m->p, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, "different orders") != NULL, "%s", err.text);
        tried++;
        arena_reset(arena);
    }
    ck_assert_int_gt(tried, 10);
}
END_TEST

START_TEST(members_join_for_the_same_microbatch)
{
    int32_t tried = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct met *m = made(seed);
        struct error err = {0};
        bool shared = false;
        int32_t b = m->p.stages[0].microbatches;
        for (int32_t i = 0; i < m->p.stages[0].procedures[2].n_instrs; i++) {
            const struct instr *x = &m->p.stages[0].procedures[2].instrs[i];
            shared |= x->kind == INSTR_COLLECTIVE && m->p.collectives[x->arg].n_members > 1;
        }
        if (b < 2 || !shared) continue;
        /* B calls of the first lane come in the opposite order. */
        struct call list[64];
        int32_t n = 0;
        for (int32_t i = 0; i < b; i++) list[n++] = (struct call){i + 1 == b, i, 0};
        for (int32_t i = b - 1; i >= 0; i--) list[n++] = (struct call){2, i, 0};
        list[n++] = (struct call){3, -1, 0};
        order_code(arena, list, n, &m->p.orders[0]);
        ck_assert_int_eq(program_check(arena, &m->p, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, "launches it for microbatch") != NULL, "%s", err.text);
        tried++;
        arena_reset(arena);
    }
    ck_assert_int_gt(tried, 10);
}
END_TEST

START_TEST(a_lane_that_stays_away_is_said)
{
    struct met *m = NULL;
    struct error err = {0};
    for (uint64_t seed = 0;
         !m || !m->p.stages[0].procedures[0].n_instrs || m->p.n_stages < 2 ||
         m->p.collectives[m->p.stages[0].procedures[0].instrs[0].arg].n_members < 2;
         seed++)
        m = made(seed);
    m->p.stages[0].procedures[0].n_instrs = m->p.stages[0].procedures[1].n_instrs = 0;
    ck_assert_int_eq(program_check(arena, &m->p, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "launches"));
}
END_TEST

/* --- simulated --- */

static struct sim_result simulate(struct met *m, enum sim_detail detail, bool fold, bool trace)
{
    struct sim_options o = {.steps = 3, .keep_trace = trace, .detail = detail, .fold = fold};
    struct sim_result r;
    struct error err = {0};
    ck_assert_msg(sim_run(arena, &m->p, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Without a trace the steps behind a steady one count as long as that one. With it they are simulated, and the last may be shorter
 * where all messages share one link, because nothing follows it (sim/engine/sim.h): there the makespan alone may differ. */
START_TEST(detail_folding_and_traces_change_no_time)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 300); seed++) {
        struct met *m = made(seed);
        bool shared = seed % 5 == 4;
        int64_t makespan_ns[2] = {0, 0}, iteration_ns = 0;
        for (int run = 0; run < 5; run++) {
            bool trace = run < 2, fold = run == 4;
            enum sim_detail detail = run % 2 ? SIM_OPERATOR : SIM_STAGE;
            struct sim_result r = simulate(m, detail, fold, trace);
            if (!run) iteration_ns = r.iteration_ns, makespan_ns[0] = makespan_ns[1] = r.makespan_ns;
            if (run == 2 && shared) makespan_ns[0] = r.makespan_ns;
            ck_assert_msg(r.iteration_ns == iteration_ns, "seed %d", (int)seed);
            ck_assert_msg(r.makespan_ns == makespan_ns[trace], "seed %d", (int)seed);
        }
        ck_assert_msg(makespan_ns[1] <= makespan_ns[0], "seed %d", (int)seed);
        arena_reset(arena);
    }
}
END_TEST

/* Four devices with a link of 1 GB/s and 1 us for each two; parts of 5, 0, 2 and 1 rows of 100 numbers. */
static int64_t alone(enum collective_kind kind, enum collective_algorithm algorithm)
{
    struct met *m = tensor_collectives_make(arena, 3, 4, false);
    static int64_t first[] = {0, 5, 5, 7}, count[] = {5, 0, 2, 1};
    static int64_t even[] = {0, 25, 50, 75}, quarter[] = {25, 25, 25, 25};
    struct collective x = {.kind = kind,
                           .algorithm = algorithm,
                           .n_members = 4,
                           .whole = {2, {8, 100}},
                           .from = {-1, 0, NULL, NULL},
                           .to = {-1, 0, NULL, NULL}};
    struct collective_cut rows = {0, 1, first, count}, columns = {1, 1, even, quarter};
    if (collective_has_from(kind)) x.from = rows;
    if (collective_has_to(kind)) x.to = collective_has_from(kind) ? columns : rows;
    x.in = x.out = ARENA_ARRAY(arena, int32_t, 4);
    x.most = collective_max(&x);
    struct collective *g = &m->p.collectives[0];
    *g = x;
    g->name = "it", g->dtype = DTYPE_fp32, g->each_call = true;
    g->elements = 800;
    g->members = ARENA_ARRAY(arena, struct collective_member, 4);
    for (int32_t i = 0; i < 4; i++) g->members[i].stage = i;
    met_links(m, g);
    for (int32_t i = 0; i < m->p.n_links; i++)
        m->cluster.links[i].bandwidth_Bps = m->p.links[i].bandwidth_Bps = 1e9,
        m->cluster.links[i].latency_s = m->p.links[i].latency_s = 1e-6;
    static struct instr collective = {INSTR_COLLECTIVE, 0};
    static const struct call call = {0, 0, 0};
    for (int32_t i = 0; i < 4; i++) {
        m->p.stages[i].n_procedures = 1;
        m->p.stages[i].procedures[0] = (struct procedure){'F', "", 0, 0, 1, &collective};
        order_code(arena, &call, 1, &m->p.orders[i]);
    }
    m->p.n_collectives = 1;
    m->cost = cost_new(arena, &m->profile, &m->cluster);
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    ck_assert_msg(sim_run(arena, &m->p, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r.makespan_ns;
}

START_TEST(times_follow_from_bytes_and_links_by_hand)
{
    /* rows of 400 B: 5 rows a step, padded */
    ck_assert_int_eq(alone(COLLECTIVE_ALL_GATHER, ALGORITHM_RING), 3 * (2000 + 1000));
    ck_assert_int_eq(alone(COLLECTIVE_REDUCE_SCATTER, ALGORITHM_RING), 3 * (2000 + 1000));
    ck_assert_int_eq(alone(COLLECTIVE_ALL_REDUCE, ALGORITHM_RING), 6 * (800 + 1000));
    /* Member 0 sends its 2000 B three times, which take 6000 ns. Its first reaches 1 at 3000, its second 2 at 5000, its third
     * 3 at 7000: everybody else is there before. */
    ck_assert_int_eq(alone(COLLECTIVE_ALL_GATHER, ALGORITHM_PAIRS), 7000);
    /* Member 0 receives its 2000 B of 3, then 2, then 1, each after the one before: nobody starts later than they. */
    ck_assert_int_eq(alone(COLLECTIVE_REDUCE_SCATTER, ALGORITHM_PAIRS), 3 * 3000);
    /* Rows to columns: 500, 0, 200, 100 B a block. First steps end at 1100, 1500, 200, 1200, second ones at 2300, 2600, 2600,
     * 1600; the third brings 0's block to 3 and 2's to 1 at 3800. */
    ck_assert_int_eq(alone(COLLECTIVE_ALL_TO_ALL, ALGORITHM_PAIRS), 3800);
}
END_TEST

START_TEST(the_critical_path_goes_through_collectives)
{
    int64_t collective = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct met *m = made(seed);
        struct explain x;
        struct error err = {0};
        struct sim_result r = simulate(m, SIM_OPERATOR, false, true);
        ck_assert_msg(explain_result(arena, &m->p, m->cost, &r, &x, &err) == OK, "seed %d: %s",
                      (int)seed, err.text);
        int64_t sum = 0;
        for (size_t i = 0; i < x.n_pieces; i++) {
            sum += x.pieces[i].end_ns - x.pieces[i].begin_ns;
            if (x.pieces[i].kind == EXPLAIN_collective)
                collective += x.pieces[i].end_ns - x.pieces[i].begin_ns;
        }
        ck_assert_int_eq(sum, x.end_ns - x.begin_ns);
        arena_reset(arena);
    }
    ck_assert_int_gt(collective, 0);
}
END_TEST

START_TEST(partial_values_of_half_precision_are_added_and_rounded)
{
    /* the third sum is none of the type's numbers */
    const struct region all = {.shape = {.rank = 1, .dim = {4}}};
    static const enum dtype types[] = {DTYPE_bf16, DTYPE_fp16};
    for (int t = 0; t < 2; t++) {
        float small = t ? 0x1p-12f : 0x1p-9f;
        const float own[] = {1.5f, -2, 1, 4}, term[] = {0.25f, 2, small, -4.5f},
                    want[] = {1.75f, 0, 1, -0.5f};
        uint16_t sum[4], other[4];
        half_narrow(types[t], own, sum, 4);
        half_narrow(types[t], term, other, 4);
        region_copy(&all, types[t], sum, other, REGION_ADD);
        for (int i = 0; i < 4; i++) ck_assert(half_value(types[t], sum[i]) == want[i]);
    }
}
END_TEST

Suite *tensor_collective_suite(void)
{
    Suite *s = suite_create("collective");
    TCase *c = tcase_create("collective");
    const TTest *tests[] = {what_one_member_sends_another_receives,
                            regions_of_all_members_cover_what_they_get,
                            packed_sections_are_taken_together,
                            partial_values_of_half_precision_are_added_and_rounded,
                            a_program_of_collectives_survives_its_file,
                            mangled_collectives_are_refused_or_can_be_trusted,
                            lanes_that_join_in_other_orders_are_refused,
                            members_join_for_the_same_microbatch,
                            a_lane_that_stays_away_is_said,
                            detail_folding_and_traces_change_no_time,
                            times_follow_from_bytes_and_links_by_hand,
                            the_critical_path_goes_through_collectives};
    tcase_add_checked_fixture(c, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
