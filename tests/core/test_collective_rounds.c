/* Suite of core/collective/collective's steps, played in memory: every kind by every way over random cuts, against the whole. */
#include "sim/collective/rounds.h"

#include "tests/support/rounds.h"
#include "tests/support/suites.h"
#include "tests/support/tensor_collectives.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct met *made(uint64_t seed)
{
    return tensor_collectives_make(arena, seed, 1 + (int32_t)(seed % 6), seed % 5 == 4);
}

static bool tensor_collective_of(const struct met *m, int32_t i, const struct collective **out)
{
    *out = &m->p.collectives[i];
    return collective_of_tensor(*out);
}

/* --- what the steps do, played in memory --- */

struct player {
    const struct collective *m;
    double *in[MET_DEVICES], *out[MET_DEVICES], *chunks[MET_DEVICES], *message[MET_DEVICES];
};

static int64_t size_of(struct shape s) { return shape_elements(&s); }

static double *numbers(int64_t n) { return ARENA_ARRAY(arena, double, (size_t)n + 1); }

static void move_part(struct region r, double *operand, double *packed, enum region_copy how)
{
    region_copy(&r, DTYPE_fp64, operand, packed, how);
}

/* What a member has of its own, where the steps look for it. */
static void keep_own(struct player *y, int32_t i)
{
    const struct collective *m = y->m;
    struct shape all = collective_in(m, i);
    if (m->kind == COLLECTIVE_ALL_REDUCE || m->n_members == 1) {
        memcpy(y->out[i], y->in[i], (size_t)size_of(all) * sizeof(double));
        return;
    }
    for (int32_t k = 0; k < m->n_members; k++) {
        if (m->kind != COLLECTIVE_REDUCE_SCATTER && k != i) continue;
        if (m->algorithm != ALGORITHM_PAIRS)
            move_part(collective_from(arena, m, i, k), y->in[i],
                      y->chunks[i] + collective_chunk_first(m, k), REGION_PACK);
        else if (k == i) {
            move_part(collective_from(arena, m, i, i), y->in[i], y->message[i], REGION_PACK);
            move_part(collective_into(arena, m, i, i), y->out[i], y->message[i], REGION_UNPACK);
        }
    }
}

static double *lies(struct player *y, int32_t i, int64_t first)
{
    return (y->m->kind == COLLECTIVE_ALL_REDUCE ? y->out[i] : y->chunks[i]) + first;
}

static void play_step(struct player *y, int32_t step)
{
    const struct collective *m = y->m;
    bool pairs = m->algorithm == ALGORITHM_PAIRS;
    for (int32_t i = 0; i < m->n_members; i++) {
        struct collective_round s = collective_round(m, i, step);
        if (s.to >= 0 && pairs)
            move_part(collective_from(arena, m, i, s.to), y->in[i], y->message[i], REGION_PACK);
        else if (s.to >= 0)
            memcpy(y->message[i], lies(y, i, s.out_first), (size_t)s.send * sizeof(double));
    }
    for (int32_t i = 0; i < m->n_members; i++) {
        struct collective_round s = collective_round(m, i, step);
        if (s.from < 0) continue;
        double *to = pairs ? y->out[i] : lies(y, i, s.in_first), *got = y->message[s.from];
        for (int64_t e = 0; e < s.adds; e++) to[e] += got[e];
        if (!s.adds && pairs)
            move_part(collective_into(arena, m, s.from, i), y->out[i], got, REGION_UNPACK);
        else if (!s.adds)
            memcpy(to, got, (size_t)s.receive * sizeof(double));
    }
}

static void play(struct player *y)
{
    const struct collective *m = y->m;
    for (int32_t i = 0; i < m->n_members; i++) {
        y->out[i] = numbers(size_of(collective_out(m, i)));
        y->chunks[i] = numbers(collective_tensor_staging(m).chunks);
        y->message[i] = numbers(m->most + size_of(m->whole));
        keep_own(y, i);
    }
    for (int32_t step = 0; step < collective_steps(m); step++) play_step(y, step);
    for (int32_t i = 0; i < m->n_members && m->n_members > 1 && m->algorithm != ALGORITHM_PAIRS;
         i++) {
        for (int32_t k = 0; k < m->n_members && m->kind == COLLECTIVE_ALL_GATHER; k++)
            move_part(collective_into(arena, m, k, i), y->out[i],
                      y->chunks[i] + collective_chunk_first(m, k), REGION_UNPACK);
        if (m->kind == COLLECTIVE_REDUCE_SCATTER)
            memcpy(y->out[i], y->chunks[i] + collective_chunk_first(m, i),
                   (size_t)size_of(collective_out(m, i)) * sizeof(double));
    }
}

/* Of partial values that are small integers, so that any order of adding gives the same; member i's are those of no other. */
static struct player *played(const struct collective *m, uint64_t seed)
{
    struct player *y = ARENA_ARRAY(arena, struct player, 1);
    y->m = m;
    for (int32_t i = 0; i < m->n_members; i++) {
        int64_t n = size_of(collective_in(m, i));
        y->in[i] = numbers(n);
        for (int64_t e = 0; e < n; e++)
            y->in[i][e] = (double)rng_below(seed, (uint64_t)i, (uint64_t)e, 1 << 20);
    }
    play(y);
    return y;
}

/* Element by element of what comes out: the whole as the members' operands say. */
static void check_played(const struct player *y)
{
    const struct collective *m = y->m;
    int64_t at[SHAPE_RANK_MAX] = {0}, n = size_of(m->whole);
    for (int64_t e = 0; e < n; e++) {
        double v = 0;
        int64_t own[SHAPE_RANK_MAX];
        for (int32_t i = 0; i < m->n_members; i++) {
            struct shape s = collective_in(m, i);
            memcpy(own, at, sizeof own);
            if (!collective_has_from(m->kind) ||
                met_owner(&m->from, m->n_members, at[m->from.dimension], &own[m->from.dimension]) ==
                    i)
                v += y->in[i][met_flat(&s, own)];
        }
        for (int32_t i = 0; i < m->n_members; i++) {
            struct shape s = collective_out(m, i);
            memcpy(own, at, sizeof own);
            if (collective_has_to(m->kind) &&
                met_owner(&m->to, m->n_members, at[m->to.dimension], &own[m->to.dimension]) != i)
                continue;
            ck_assert(y->out[i][met_flat(&s, own)] == v);
        }
        for (int32_t d = m->whole.rank - 1; d >= 0 && ++at[d] == m->whole.dim[d]; d--) at[d] = 0;
    }
}

START_TEST(steps_of_every_kind_and_algorithm_give_the_whole)
{
    int32_t seen[COLLECTIVE_CALL_KINDS][COLLECTIVE_ALGORITHM_COUNT] = {{0}};
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 200); seed++) {
        struct met *m = made(seed);
        const struct collective *x;
        for (int32_t g = 0; g < m->p.n_collectives; g++) {
            if (!tensor_collective_of(m, g, &x)) continue;
            check_played(played(x, seed));
            seen[x->kind][x->algorithm] += x->n_members > 1 && size_of(x->whole) > 0;
        }
        arena_reset(arena);
    }
    for (int k = 0; k < COLLECTIVE_CALL_KINDS; k++)
        for (int w = 0; w < COLLECTIVE_ALGORITHM_COUNT; w++)
            ck_assert_msg((seen[k][w] > 10) == collective_in_calls((enum collective_kind)k,
                                                                   (enum collective_algorithm)w),
                          "%s by %s: %d", collective_kind_word((enum collective_kind)k),
                          collective_algorithm_name((enum collective_algorithm)w), (int)seen[k][w]);
}
END_TEST

/* What is dealt out and gathered again, each by any way, is what all had: of partial values of which all but the first are 0. */
START_TEST(gathering_what_was_scattered_gives_it_back)
{
    int32_t messages = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 300); seed++) {
        struct met *m = made(seed);
        const struct collective *x;
        for (int32_t g = 0; g < m->p.n_collectives; g++) {
            if (!tensor_collective_of(m, g, &x) || x->kind != COLLECTIVE_REDUCE_SCATTER) continue;
            struct collective back = *x;
            struct player scatter = {.m = x}, gather = {.m = &back};
            int64_t n = size_of(x->whole);
            back.kind = COLLECTIVE_ALL_GATHER, back.from = x->to, back.to.dimension = -1;
            back.algorithm =
                x->tier ? ALGORITHM_HIERARCHICAL : (enum collective_algorithm)(seed % 2);
            if (back.tier) collective_set_tiers(arena, &back);
            back.most = collective_max(&back);
            for (int32_t i = 0; i < x->n_members; i++) {
                scatter.in[i] = numbers(n);
                for (int64_t e = 0; e < n && i == 0; e++) scatter.in[i][e] = (double)(e + 1);
            }
            play(&scatter);
            memcpy(gather.in, scatter.out, sizeof gather.in);
            play(&gather);
            for (int32_t i = 0; i < x->n_members; i++)
                for (int64_t e = 0; e < n; e++) ck_assert(gather.out[i][e] == (double)(e + 1));
            messages += n > 0 && x->n_members > 1;
        }
        arena_reset(arena);
    }
    ck_assert_int_gt(messages, 50);
}
END_TEST

/* Sums of anything are the same bits on all members, whichever way they go. */
START_TEST(sums_are_alike_on_all_members_bit_for_bit)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct met *m = made(seed);
        const struct collective *x;
        for (int32_t g = 0; g < m->p.n_collectives; g++) {
            if (!tensor_collective_of(m, g, &x) || x->kind != COLLECTIVE_ALL_REDUCE) continue;
            struct player y = {.m = x};
            size_t n = (size_t)size_of(x->whole);
            for (int32_t i = 0; i < x->n_members; i++) {
                y.in[i] = numbers((int64_t)n);
                for (size_t e = 0; e < n; e++) y.in[i][e] = rng_normal(seed, (uint64_t)i, e);
            }
            play(&y);
            for (int32_t i = 1; i < x->n_members; i++)
                ck_assert(!memcmp(y.out[i], y.out[0], n * sizeof(double)));
        }
        arena_reset(arena);
    }
}
END_TEST

/* Two tiers of three, 600 elements: inside 2 steps of ordered channel groups of two shards, between one step of a shard; the return path.
 * Member 1 stands in tier 1. */
START_TEST(tiers_pass_on_channel_groups_inside_and_shards_between)
{
    int32_t node[6] = {7, 3, 7, 3, 7, 3}, tier[6];
    struct collective m = {.kind = COLLECTIVE_ALL_REDUCE,
                           .algorithm = ALGORITHM_HIERARCHICAL,
                           .n_members = 6,
                           .whole = {1, {600}},
                           .from = {.dimension = -1},
                           .to = {.dimension = -1},
                           .tier = tier};
    struct error err = {0};
    ck_assert_int_eq(collective_tiers_of(node, 6, tier), 3);
    ck_assert_int_eq(collective_valid(&m, &err), OK);
    collective_set_tiers(arena, &m);
    m.most = collective_max(&m);
    ck_assert_int_eq(m.most, 200);
    ck_assert_int_eq(collective_steps(&m), 6);
    static const int64_t sizes[6] = {200, 200, 100, 100, 200, 200};
    static const int32_t to[6] = {2, 2, 1, 1, 2, 2};
    for (int32_t k = 0; k < 6; k++) {
        struct collective_round s = collective_round(&m, 0, k);
        ck_assert_int_eq(s.send, sizes[k]);
        ck_assert_int_eq(s.to, to[k]);
        ck_assert_int_eq(s.adds, k < 3 ? sizes[k] : 0);
    }
    ck_assert_int_eq(collective_tensor_staging(&m).incoming, 200);
    tier[5] = 0;
    ck_assert_int_eq(collective_valid(&m, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "tier 1 has 2 members, tier 0 has 4");
    tier[0] = 1;
    ck_assert_int_eq(collective_valid(&m, &err), ERR_INPUT);
    ck_assert_int_eq(collective_tiers_of((const int32_t[]){0, 1, 1}, 3, tier), 0);
}
END_TEST

/* --- what they take --- */

/* One collective alone in the simulator, over the links of m, all but their random speeds. */
static int64_t simulated(struct met *m, const struct collective *x)
{
    static struct instr collective = {INSTR_COLLECTIVE, 0};
    static const struct call call = {0, 0, 0};
    struct collective *g = &m->p.collectives[0];
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    *g = *x;
    g->name = "it", g->dtype = DTYPE_fp32, g->each_call = true;
    g->in = g->out = ARENA_ARRAY(arena, int32_t, (size_t)x->n_members);
    g->elements = shape_elements(&x->whole);
    g->members = ARENA_ARRAY(arena, struct collective_member, (size_t)x->n_members);
    for (int32_t i = 0; i < x->n_members; i++) g->members[i].stage = i;
    met_links(m, g);
    for (int32_t i = 0; i < m->p.n_stages; i++) {
        m->p.stages[i].n_procedures = 1;
        m->p.stages[i].procedures[0] = (struct procedure){'F', "", 0, 0, 1, &collective};
        order_code(arena, &call, 1, &m->p.orders[i]);
    }
    m->p.n_collectives = 1;
    m->cost = cost_new(arena, &m->profile, &m->cluster);
    ck_assert_msg(sim_run(arena, &m->p, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r.makespan_ns;
}

static void set_wire(struct met *m, double bandwidth_Bps, double latency_s)
{
    for (int32_t i = 0; i < m->p.n_links; i++) {
        m->cluster.links[i].bandwidth_Bps = m->p.links[i].bandwidth_Bps = bandwidth_Bps;
        m->cluster.links[i].latency_s = m->p.links[i].latency_s = latency_s;
        m->cluster.links[i].half_duplex = m->p.links[i].half_duplex = true;
    }
}

/* Two tiers with links of each pair's own, slow between them: the planner's account to the nanosecond. */
START_TEST(tiers_take_what_the_planner_says)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 1000 : 60); seed++) {
        static const enum collective_kind kinds[] = {
            COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_REDUCE};
        int32_t n = seed % 2 ? 6 : 4, tier[6];
        struct met *m = tensor_collectives_make(arena, seed, n, false);
        struct collective x = {.kind = kinds[seed % 3],
                               .algorithm = ALGORITHM_HIERARCHICAL,
                               .n_members = n,
                               .whole = {2, {met_draw(m, 0, 50), met_draw(m, 1, 500)}},
                               .from = {.dimension = -1},
                               .to = {.dimension = -1},
                               .tier = tier};
        for (int32_t i = 0; i < n; i++) tier[i] = i % 2;
        if (collective_has_from(x.kind)) x.from = met_cut(m, n, 0, x.whole.dim[0], 1);
        if (collective_has_to(x.kind)) x.to = met_cut(m, n, 0, x.whole.dim[0], 1);
        collective_set_tiers(arena, &x);
        x.most = collective_max(&x);
        struct cost_link hop[36] = {{0}};
        for (int32_t i = 0; i < n * n; i++) {
            int32_t direction, link;
            if (i / n == i % n) continue;
            link = met_link(m, i / n, i % n, &direction);
            hop[i].bandwidth_Bps = m->p.links[link].bandwidth_Bps;
            hop[i].latency_ns = (int64_t)llround(m->p.links[link].latency_s * 1e9);
        }
        ck_assert_int_eq(simulated(m, &x), rounds_alone_ns(&x, 4, 1, hop));
        arena_reset(arena);
    }
}
END_TEST

/* Shared out by HAP's ratios of 2 V100 and 6 P100 (shared by computing; arXiv 2401.05965): on one wire a padded gather of 8
 * takes n·r_max = 1.4976 times as long as a grouped one. So padded wins where its bandwidth is more than that much better:
 * of 10 GbE not for gathers (1.483), but for reduce-scatters (1.711). */
START_TEST(padded_wins_where_its_bandwidth_outdoes_the_largest_share)
{
    const double fast = 3858755112937, slow = 2149250936815, sum = 2 * fast + 6 * slow;
    const int64_t rows = 100000;
    static const struct {
        enum collective_kind kind;
        double padded_over_grouped;
        bool padded_wins;
    } rates[] = {{COLLECTIVE_ALL_GATHER, 1.483, false}, {COLLECTIVE_REDUCE_SCATTER, 1.711, true}};
    for (int k = 0; k < 2; k++) {
        int64_t first[8], count[8], at = 0, ns[2];
        for (int i = 0; i < 8; i++) {
            first[i] = at;
            count[i] = i == 7 ? rows - at : (int64_t)((double)rows * (i < 2 ? fast : slow) / sum);
            at += count[i];
        }
        for (int algorithm = 0; algorithm < 2; algorithm++) {
            struct met *m = tensor_collectives_make(arena, 4, 8, true);
            struct collective x = {.kind = rates[k].kind,
                                   .algorithm = (enum collective_algorithm)algorithm,
                                   .n_members = 8,
                                   .whole = {1, {rows}},
                                   .from = {0, 1, first, count},
                                   .to = {0, 1, first, count}};
            x.most = collective_max(&x);
            set_wire(m, algorithm ? 1e6 : 1e6 * rates[k].padded_over_grouped, 0);
            ns[algorithm] = simulated(m, &x);
        }
        double ratio = (double)ns[0] / (double)ns[1] * rates[k].padded_over_grouped;
        ck_assert_msg(fabs(ratio - 1.4976) < 0.0005, "%g", ratio);
        ck_assert((ns[0] < ns[1]) == rates[k].padded_wins);
    }
}
END_TEST

Suite *collective_rounds_suite(void)
{
    Suite *s = suite_create("collective_steps");
    TCase *c = tcase_create("collective_steps");
    const TTest *tests[] = {steps_of_every_kind_and_algorithm_give_the_whole,
                            gathering_what_was_scattered_gives_it_back,
                            sums_are_alike_on_all_members_bit_for_bit,
                            tiers_pass_on_channel_groups_inside_and_shards_between,
                            tiers_take_what_the_planner_says,
                            padded_wins_where_its_bandwidth_outdoes_the_largest_share};
    tcase_add_checked_fixture(c, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
