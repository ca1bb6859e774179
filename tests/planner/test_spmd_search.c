/* The search over sharding rules on synthetic tables: against brute force, and with an independent computation of costs. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/spmd/search.h"

#include "tests/support/suites.h"

#include <string.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { PLACEMENTS = 4, COLUMNS = 2, OPS = 7 };

struct dice {
    uint64_t seed, at;
};
static int64_t roll(struct dice *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 7, d->at++, (uint64_t)n);
}

/* --- random problems --- */

static void join(const void *user, int32_t *home, uint8_t *partial, int32_t need,
                 uint8_t need_partial)
{
    (void)user;
    if (*home >= 0 && *home != need) *partial |= 1, *home = 0;
    *home = *home < 0 ? need : *home;
    *partial |= need_partial;
}

static int64_t home_ns(const void *user, int32_t tensor, int32_t home, uint8_t partial,
                       const int64_t **bytes)
{
    static const int64_t held[PLACEMENTS][COLUMNS] = {{90, 90}, {60, 30}, {20, 70}, {90, 90}};
    (void)user;
    *bytes = held[home];
    return 10 * (partial + 1) + 3 * home + tensor;
}

static const struct spmd_tensor_class *random_class(struct dice *d)
{
    struct spmd_tensor_class *c = ARENA_ARRAY(arena, struct spmd_tensor_class, 1);
    const struct spmd_reshard **reshard =
        ARENA_ARRAY(arena, const struct spmd_reshard *, PLACEMENTS *PLACEMENTS);
    int64_t(*sum)[2] = arena_alloc(arena, PLACEMENTS, sizeof *sum);
    const int64_t **bytes = ARENA_ARRAY(arena, const int64_t *, PLACEMENTS);
    for (int32_t p = 0; p < PLACEMENTS; p++) {
        int64_t *b = ARENA_ARRAY(arena, int64_t, COLUMNS);
        for (int32_t k = 0; k < COLUMNS; k++) b[k] = roll(d, 50);
        bytes[p] = b, sum[p][0] = roll(d, 40), sum[p][1] = roll(d, 40);
        for (int32_t q = 0; q < PLACEMENTS; q++) {
            struct spmd_reshard *w = ARENA_ARRAY(arena, struct spmd_reshard, 1);
            if (p == q || !roll(d, 8)) continue;
            w->n = 1 + (int32_t)roll(d, 2);
            for (int32_t k = 0; k < w->n; k++)
                w->step[k] =
                    (struct spmd_step){.after = k + 1 == w->n ? q : (int32_t)roll(d, PLACEMENTS),
                                       .axis = (int8_t)roll(d, 2),
                                       .gather = roll(d, 2),
                                       .forward_ns = roll(d, 60),
                                       .back_ns = roll(d, 30),
                                       .back_partial_ns = roll(d, 60)};
            if (w->n == 2 && (w->step[0].after == p || w->step[0].after == q))
                w->step[0] = w->step[1], w->n = 1;
            reshard[p * PLACEMENTS + q] = w;
        }
    }
    *c = (struct spmd_tensor_class){reshard, (const int64_t(*)[2])sum, bytes};
    return c;
}

static void random_rules(struct dice *d, struct spmd_op *op)
{
    struct spmd_rule *r = ARENA_ARRAY(arena, struct spmd_rule, 3);
    op->rules = r, op->n_rules = 1 + (int32_t)roll(d, 3);
    for (int32_t k = 0; k < op->n_rules; k++) {
        int64_t *b = ARENA_ARRAY(arena, int64_t, COLUMNS);
        for (int32_t c = 0; c < COLUMNS; c++) b[c] = roll(d, 40);
        r[k].ns = roll(d, 100), r[k].bytes = roll(d, 2) ? b : NULL, r[k].tag = k;
        for (int32_t i = 0; i < op->n_inputs; i++)
            r[k].need[i] = (int32_t)roll(d, PLACEMENTS), r[k].partial[i] = (uint8_t)roll(d, 4);
        for (int32_t o = 0; o < op->n_outputs; o++) r[k].give[o] = (int32_t)roll(d, PLACEMENTS);
    }
}

/* Tensor 0 is a source, 1 is shared; every operator reads what was made lately. */
static struct spmd_problem *random_problem(uint64_t seed, bool tight)
{
    struct dice dice = {seed, 0}, *d = &dice;
    struct spmd_problem *p = ARENA_ARRAY(arena, struct spmd_problem, 1);
    struct spmd_op *ops = ARENA_ARRAY(arena, struct spmd_op, OPS);
    struct spmd_tensor *t = ARENA_ARRAY(arena, struct spmd_tensor, 2 + 2 * OPS);
    int64_t *cap = ARENA_ARRAY(arena, int64_t, COLUMNS);
    const struct spmd_tensor_class *classes[2] = {random_class(d), random_class(d)};
    *p = (struct spmd_problem){.n_ops = 3 + (int32_t)roll(d, OPS - 2),
                               .n_tensors = 2,
                               .n_placements = PLACEMENTS,
                               .n_columns = COLUMNS,
                               .ops = ops,
                               .tensors = t,
                               .cap = cap};
    t[0].kind = SPMD_SOURCE;
    t[1] = (struct spmd_tensor){.kind = SPMD_SHARED, .join = join, .home_ns = home_ns};
    for (int32_t i = 0; i < p->n_ops; i++) {
        struct spmd_op *op = &ops[i];
        op->class = i, op->n_inputs = 1 + (int32_t)roll(d, 3), op->n_outputs = 1 + !roll(d, 4);
        for (int32_t k = 0; k < op->n_inputs; k++) {
            int32_t back = (int32_t)roll(d, 3);
            op->input[k] = k == 2 || p->n_tensors == 2   ? (int32_t)roll(d, 2)
                           : p->n_tensors - 1 - back < 2 ? p->n_tensors - 1
                                                         : p->n_tensors - 1 - back;
        }
        for (int32_t k = 0; k < op->n_outputs; k++) {
            t[p->n_tensors] = (struct spmd_tensor){
                .kind = SPMD_MADE, .of = classes[roll(d, 2)], .wanted = roll(d, 5) > 0};
            op->output[k] = p->n_tensors++;
        }
        op->keeps_input = (uint8_t)roll(d, 8), op->keeps_output = (uint8_t)roll(d, 4);
        random_rules(d, op);
    }
    int32_t *leaves = ARENA_ARRAY(arena, int32_t, p->n_tensors * PLACEMENTS);
    for (int32_t k = 0; k < p->n_tensors * PLACEMENTS; k++) leaves[k] = -2;
    int32_t out = ops[p->n_ops - 1].output[0] * PLACEMENTS;
    for (int32_t k = 0; k < PLACEMENTS; k++) leaves[out + k] = k == 3 ? 0 : k;
    if (roll(d, 2)) p->leaves = leaves;
    for (int32_t c = 0; c < COLUMNS; c++) cap[c] = tight ? 100 + roll(d, 200) : 1 << 20;
    return p;
}

/* --- the same accounts, reckoned tensor by tensor --- */

struct node { /* of a tensor's tree of versions */
    int32_t placement, parent, partial;
    bool kept;
    const struct spmd_step *step;
};

static bool tensor_cost(const struct spmd_problem *p, const int32_t *rule, int32_t t, int64_t *ns,
                        int64_t *bytes)
{
    struct node tree[32];
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        const struct spmd_op *op = &p->ops[i];
        const struct spmd_rule *r = &op->rules[rule[i]];
        for (int32_t k = 0; k <= op->n_inputs; k++) {
            bool leaving = k == op->n_inputs;
            int32_t to = k < op->n_inputs ? r->need[k] : -1, at = 0;
            if (leaving && (i + 1 < p->n_ops || !p->leaves)) continue;
            if (!leaving && op->input[k] != t) continue;
            if (leaving) { /* what the last operator makes leaves behind it */
                for (int32_t o = 0; o < op->n_outputs; o++)
                    if (op->output[o] == t)
                        tree[n++] =
                            (struct node){r->give[o], -1, 0, op->keeps_output >> o & 1, NULL};
                if (!n || p->leaves[t * PLACEMENTS] == -2) continue;
                to = p->leaves[t * PLACEMENTS + tree[0].placement];
            }
            while (at < n && tree[at].placement != to) at++;
            if (at == n) {
                const struct spmd_reshard *w =
                    p->tensors[t].of->reshard[tree[0].placement * PLACEMENTS + to];
                if (!w) return false;
                at = 0;
                for (int32_t s = 0; s < w->n; s++) {
                    int32_t found = 0;
                    while (found < n && tree[found].placement != w->step[s].after) found++;
                    if (found == n) {
                        tree[n++] = (struct node){w->step[s].after, at, 0, false, &w->step[s]};
                        *ns += w->step[s].forward_ns;
                    }
                    at = found;
                }
            }
            if (leaving) tree[at].partial |= 1;
            if (leaving) continue;
            tree[at].partial |= 1 << r->partial[k];
            tree[at].kept |= op->keeps_input >> k & 1;
        }
        for (int32_t o = 0; o < op->n_outputs; o++)
            if (op->output[o] == t && !n)
                tree[n++] = (struct node){r->give[o], -1, 0, op->keeps_output >> o & 1, NULL};
    }
    for (int32_t v = n - 1; v >= 0; v--) {
        const struct spmd_tensor_class *of = p->tensors[t].of;
        for (int32_t c = 0; c < COLUMNS; c++)
            bytes[c] += tree[v].kept ? of->bytes[tree[v].placement][c] : 0;
        if (!p->tensors[t].wanted) continue;
        int32_t set = tree[v].partial;
        const struct spmd_step *step = tree[v].step;
        for (int32_t m = 0; m < 4 && step && step->gather; m++) {
            if (!(set >> m & 1)) continue;
            *ns += m >> step->axis & 1 ? step->back_partial_ns : step->back_ns;
            tree[tree[v].parent].partial |= 1 << (m & ~(1 << step->axis));
        }
        if (step && step->gather) continue;
        /* sums by the set of masks 1, 2, 3, over axis 0 and axis 1 */
        static const int sums[8][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 1},
                                       {1, 1}, {1, 1}, {1, 1}, {1, 2}};
        for (int32_t x = 0; x < 2; x++) *ns += sums[set >> 1][x] * of->sum_ns[tree[v].placement][x];
        if (!step) continue;
        *ns += step->back_ns;
        tree[tree[v].parent].partial |= 1;
    }
    return true;
}

static int64_t cost_by_tensors(const struct spmd_problem *p, const int32_t *rule, int64_t *bytes)
{
    int64_t ns = 0;
    memset(bytes, 0, COLUMNS * sizeof *bytes);
    int32_t home = -1;
    uint8_t partial = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        const struct spmd_rule *r = &p->ops[i].rules[rule[i]];
        ns += r->ns;
        for (int32_t c = 0; c < COLUMNS && r->bytes; c++) bytes[c] += r->bytes[c];
        for (int32_t k = 0; k < p->ops[i].n_inputs; k++)
            if (p->ops[i].input[k] == 1) join(NULL, &home, &partial, r->need[k], r->partial[k]);
    }
    const int64_t *held;
    if (home >= 0) {
        ns += home_ns(NULL, 1, home, partial, &held);
        for (int32_t c = 0; c < COLUMNS; c++) bytes[c] += held[c];
    }
    for (int32_t t = 2; t < p->n_tensors; t++)
        if (!tensor_cost(p, rule, t, &ns, bytes)) return INT64_MAX;
    return ns;
}

static int64_t try_everything(const struct spmd_problem *p)
{
    int32_t rule[OPS] = {0};
    int64_t best = INT64_MAX, bytes[COLUMNS], again[COLUMNS];
    for (;;) {
        int64_t ns = cost_by_tensors(p, rule, bytes);
        bool fits = bytes[0] <= p->cap[0] && bytes[1] <= p->cap[1];
        ck_assert_int_eq(ns, spmd_cost(arena, p, rule, again));
        if (ns != INT64_MAX) ck_assert_mem_eq(bytes, again, sizeof bytes);
        if (fits && ns < best) best = ns;
        int32_t i = 0;
        while (i < p->n_ops && ++rule[i] == p->ops[i].n_rules) rule[i++] = 0;
        if (i == p->n_ops) return best;
    }
}

START_TEST(a_star_finds_what_trying_everything_finds)
{
    struct error err = {0};
    int32_t none = 0, bound = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 6000 : 300); seed++) {
        struct spmd_problem *p = random_problem(seed, seed % 2);
        struct spmd_found found;
        ck_assert_int_eq(spmd_search(arena, p, NULL, &found, &err), OK);
        int64_t best = try_everything(p), bytes[COLUMNS];
        ck_assert_msg(found.ns == best, "problem %d: %ld, not %ld", (int)seed, (long)found.ns,
                      (long)best);
        none += best == INT64_MAX;
        if (best != INT64_MAX) {
            ck_assert_int_eq(cost_by_tensors(p, found.rule, bytes), best);
            ck_assert_int_le(bytes[0], p->cap[0]);
            ck_assert_int_le(bytes[1], p->cap[1]);
        }
        int64_t cap[COLUMNS] = {1 << 20, 1 << 20};
        p->cap = cap;
        ck_assert_int_eq(spmd_search(arena, p, NULL, &found, &err), OK);
        bound += found.ns < best && best != INT64_MAX;
        arena_reset(arena);
    }
    ck_assert_int_gt(bound, 5); /* memory made a choice dearer */
    ck_assert_int_gt(none, 5);
}
END_TEST

/* Given up as soon as it may: what stands is a choice that fits, and the best is between it and the bound. */
START_TEST(a_search_given_up_has_the_best_between_its_bound_and_its_answer)
{
    struct error err = {0};
    int32_t open = 0, answered = 0;
    for (uint64_t seed = 1; seed < (suites_long() ? 6000 : 400); seed += 2) {
        struct spmd_problem *p = random_problem(seed, true);
        struct spmd_limits l = {.max_labels = 1};
        struct spmd_found found;
        ck_assert_int_eq(spmd_search(arena, p, &l, &found, &err), OK);
        int64_t best = try_everything(p), bytes[COLUMNS];
        ck_assert_int_le(found.bound_ns, best);
        ck_assert_int_ge(found.ns, best);
        if (found.ns != INT64_MAX) {
            ck_assert_int_eq(cost_by_tensors(p, found.rule, bytes), found.ns);
            ck_assert_int_le(bytes[0], p->cap[0]);
            ck_assert_int_le(bytes[1], p->cap[1]);
        }
        open += found.bound_ns < found.ns, answered += found.ns != INT64_MAX;
        arena_reset(arena);
    }
    ck_assert_int_gt(open, 5);
    ck_assert_int_gt(answered, 30);
}
END_TEST

/* --- pieces --- */

/* A random piece of three operators, copied: like layers, each reads what the one before made, and a skip. */
static struct spmd_problem *repeated_problem(uint64_t seed, int32_t copies)
{
    struct dice dice = {seed, 0}, *d = &dice;
    enum { PIECE = 3 };
    struct spmd_problem *p = ARENA_ARRAY(arena, struct spmd_problem, 1);
    int32_t n = 1 + PIECE * copies + 1;
    struct spmd_op *ops = ARENA_ARRAY(arena, struct spmd_op, n);
    struct spmd_tensor *t = ARENA_ARRAY(arena, struct spmd_tensor, 2 + n);
    int64_t *cap = ARENA_ARRAY(arena, int64_t, COLUMNS);
    const struct spmd_tensor_class *class = random_class(d);
    *p = (struct spmd_problem){n, 2 + n, PLACEMENTS, COLUMNS, ops, t, cap, NULL, NULL};
    cap[0] = cap[1] = 1 << 30;
    t[0].kind = SPMD_SOURCE;
    t[1] = (struct spmd_tensor){.kind = SPMD_SHARED, .join = join, .home_ns = home_ns};
    for (int32_t i = 0; i < n; i++) {
        int32_t in = i == 0 || i == n - 1 ? 0 : (i - 1) % PIECE, made = i + 2;
        t[made] = (struct spmd_tensor){.kind = SPMD_MADE, .of = class, .wanted = true};
        ops[i].output[0] = made, ops[i].n_outputs = 1, ops[i].n_inputs = i ? 1 : 2;
        ops[i].input[0] = i ? made - 1 : 0, ops[i].input[1] = 1;
        if (i == n - 1) ops[i].input[ops[i].n_inputs++] = 1;
        if (i && i < n - 1 && in == 2) ops[i].input[ops[i].n_inputs++] = made - 3;
        ops[i].keeps_input = 1;
        if (i > PIECE && i < n - 1) {
            ops[i].class = ops[i - PIECE].class;
            ops[i].rules = ops[i - PIECE].rules, ops[i].n_rules = ops[i - PIECE].n_rules;
        } else {
            ops[i].class = i;
            random_rules(d, &ops[i]);
        }
    }
    return p;
}

START_TEST(composed_pieces_cost_what_the_plain_search_finds)
{
    struct error err = {0};
    int32_t composed = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 200); seed++) {
        struct spmd_problem *p = repeated_problem(seed, 2 + (int32_t)(seed % 9));
        struct spmd_found plain, pieces;
        ck_assert_int_eq(spmd_search(arena, p, NULL, &pieces, &err), OK);
        for (int32_t i = 0; i < p->n_ops; i++)
            ((struct spmd_op *)p->ops)[i].class = i; /* nothing repeats */
        ck_assert_int_eq(spmd_search(arena, p, NULL, &plain, &err), OK);
        ck_assert_int_eq(plain.ns, pieces.ns);
        composed += pieces.n_pieces >= 2 && pieces.ns != INT64_MAX;
        if (pieces.ns != INT64_MAX)
            ck_assert_int_eq(spmd_cost(arena, p, pieces.rule, NULL), pieces.ns);
        arena_reset(arena);
    }
    ck_assert_int_gt(composed, 100);
}
END_TEST

Suite *spmd_search_suite(void)
{
    Suite *s = suite_create("spmd_search");
    TCase *t = tcase_create("spmd_search");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_star_finds_what_trying_everything_finds);
    tcase_add_test(t, a_search_given_up_has_the_best_between_its_bound_and_its_answer);
    tcase_add_test(t, composed_pieces_cost_what_the_plain_search_finds);
    suite_add_tcase(s, t);
    return s;
}
