/* HAP's search (arXiv 2401.05965) by its own accounts: sizes in elements, its pseudo-FLOPs, its rules and bandwidths. The
 * figures are those of its released synthesizer, and the model of costs stands here alone.
 *
 * L × (linear e → e with bias, sigmoid), a full sum; loss as partial values. Pseudo-FLOPs, backward twice the forward: linear 3·P(x)·W0,
 * sigmoid 3P, sum P. A collective of S elements: S/B, padded ones n·max r·S/B; each has its dual. Outputs of
 * sigmoid, relu and dropout are not communicable: their readers take them in the placement in which they are made. */
#include "core/base/arena.h"
#include "planner/spmd/ratio.h"
#include "planner/spmd/search.h"

#include "tests/support/closed_ratios.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const double fast = 3858755112937, slow = 2149250936815;
struct bandwidths { /* of a group of GPUs: elements, as it counts, a second */
    double all_gather, all_reduce, reduce_scatter, all_to_all;
};
static const struct bandwidths ten_gbe = {815418707, 476774816, 876490907, 7504501871};

enum { REPLICATED, BATCH, SEQUENCE, FEATURES, PARTIAL, N_PLACEMENTS };

struct mlp {
    int32_t layers, n;
    double speed[8], ratio[8], batch, sequence, width, element;
    struct bandwidths b;
};

static int64_t ns(double seconds) { return (int64_t)llround(1e9 * seconds); }

static double dealt(const struct mlp *m, double flops)
{
    double most = 0;
    for (int32_t k = 0; k < m->n; k++) most = fmax(most, flops * m->ratio[k] / m->speed[k]);
    return most;
}
static double everywhere(const struct mlp *m, double flops)
{
    double most = 0;
    for (int32_t k = 0; k < m->n; k++) most = fmax(most, flops / m->speed[k]);
    return most;
}
static double padding(const struct mlp *m)
{
    double most = 0;
    for (int32_t k = 0; k < m->n; k++) most = fmax(most, m->ratio[k]);
    return most * m->n;
}
static double points(const struct mlp *m) { return m->batch * m->sequence * m->width; }

/* x in any of its placements; ways: may it be converted? */
static const struct spmd_tensor_class *tensor_class(const struct mlp *m, bool algorithms)
{
    struct spmd_tensor_class *c = ARENA_ARRAY(arena, struct spmd_tensor_class, 1);
    const struct spmd_reshard **reshard =
        ARENA_ARRAY(arena, const struct spmd_reshard *, N_PLACEMENTS *N_PLACEMENTS);
    int64_t(*sum)[2] = arena_alloc(arena, N_PLACEMENTS, sizeof *sum);
    double s = points(m) * m->element, pad = padding(m);
    int64_t gather = ns(pad * s / m->b.all_gather), scatter = ns(pad * s / m->b.reduce_scatter);
    int64_t reduce = ns(s / m->b.all_reduce), turn = ns(pad * s / m->b.all_to_all);
    for (int32_t p = 0; p < N_PLACEMENTS; p++)
        for (int32_t q = 0; q < PARTIAL && algorithms; q++) {
            struct spmd_reshard *w = ARENA_ARRAY(arena, struct spmd_reshard, 1);
            bool from = p != REPLICATED && p != PARTIAL, to = q != REPLICATED;
            int64_t forward = from           ? (to ? turn : gather)
                              : p == PARTIAL ? (to ? scatter : reduce)
                                             : 0;
            int64_t back = from ? (to ? turn : scatter) : p == PARTIAL ? (to ? gather : 0) : gather;
            w->n = 1;
            w->step[0] = (struct spmd_step){
                .after = q, .forward_ns = forward, .back_ns = back, .back_partial_ns = back};
            if (p != q) reshard[p * N_PLACEMENTS + q] = w;
        }
    *c = (struct spmd_tensor_class){reshard, (const int64_t(*)[2])sum, NULL};
    return c;
}

static struct spmd_op linear(const struct mlp *m)
{
    struct spmd_rule *r = ARENA_ARRAY(arena, struct spmd_rule, 8);
    double flops = 9 * points(m) * m->width, w = (m->width * m->width + m->width) * m->element;
    double used = padding(m) * w / m->b.all_gather + padding(m) * w / m->b.reduce_scatter;
    double summed = w / m->b.all_reduce;
    int32_t n = 0;
    for (int32_t d = BATCH; d <= SEQUENCE;
         d++) { /* parameters whole, or gathered where they are used */
        double least = fmin(summed, used);
        r[n++] = (struct spmd_rule){ns(dealt(m, flops) + least), {d}, {d}, {0}, NULL, d};
    }
    r[n++] = (struct spmd_rule){ns(dealt(m, flops)), {REPLICATED}, {FEATURES}, {0}, NULL, FEATURES};
    r[n++] = (struct spmd_rule){
        ns(everywhere(m, flops)), {REPLICATED}, {REPLICATED}, {0}, NULL, REPLICATED};
    return (struct spmd_op){.n_rules = n, .n_inputs = 1, .n_outputs = 1, .rules = r, .class = 0};
}

static struct spmd_op sigmoid(const struct mlp *m)
{
    struct spmd_rule *r = ARENA_ARRAY(arena, struct spmd_rule, 4);
    for (int32_t d = REPLICATED; d <= FEATURES; d++) {
        double s = d == REPLICATED ? everywhere(m, 9 * points(m)) : dealt(m, 9 * points(m));
        r[d] = (struct spmd_rule){ns(s), {d}, {d}, {0}, NULL, d};
    }
    return (struct spmd_op){.n_rules = 4, .n_inputs = 1, .n_outputs = 1, .rules = r, .class = 1};
}

static struct spmd_op sum(const struct mlp *m)
{
    struct spmd_rule *r = ARENA_ARRAY(arena, struct spmd_rule, 4);
    for (int32_t d = BATCH; d <= FEATURES; d++)
        r[d - 1] = (struct spmd_rule){ns(dealt(m, 3 * points(m))), {d}, {PARTIAL}, {0}, NULL, d};
    return (struct spmd_op){.n_rules = 3, .n_inputs = 1, .n_outputs = 1, .rules = r, .class = 2};
}

static struct spmd_found search(const struct mlp *m, int32_t *length)
{
    struct spmd_problem p = {
        .n_ops = 2 * m->layers + 1, .n_tensors = 2 * m->layers + 2, .n_placements = N_PLACEMENTS};
    struct spmd_op *ops = ARENA_ARRAY(arena, struct spmd_op, p.n_ops);
    struct spmd_tensor *t = ARENA_ARRAY(arena, struct spmd_tensor, p.n_tensors);
    const struct spmd_tensor_class *of_sigmoid = tensor_class(m, false),
                                   *of_linear = tensor_class(m, true);
    struct spmd_op made[3] = {linear(m), sigmoid(m), sum(m)};
    struct spmd_found found, plain;
    struct error err = {0};
    t[0].kind = SPMD_SOURCE;
    for (int32_t i = 0; i < p.n_ops; i++) {
        bool last = i + 1 == p.n_ops;
        ops[i] = made[last ? 2 : i % 2];
        ops[i].input[0] = i, ops[i].output[0] = i + 1;
        t[i + 1] = (struct spmd_tensor){.kind = SPMD_MADE,
                                        .wanted = true,
                                        .of = i % 2 ? of_sigmoid : of_linear};
    }
    p.ops = ops, p.tensors = t;
    ck_assert_int_eq(spmd_search(arena, &p, NULL, &found, &err), OK);
    for (int32_t i = 0; i < p.n_ops; i++) ops[i].class = i; /* nothing repeats: by A* */
    ck_assert_int_eq(spmd_search(arena, &p, NULL, &plain, &err), OK);
    ck_assert_int_eq(found.ns, plain.ns);
    ck_assert_int_eq(plain.n_pieces, 0);
    struct spmd_event *events;
    *length = 1; /* the input */
    for (int32_t n = spmd_events(arena, &p, found.rule, &events); n-- > 0;)
        *length += events[n].op >= 0; /* a collective is fused into the operator that reads it */
    return found;
}

/* Ratios r_i ∝ min(F_i, level): the best of every level. */
static double best_seconds(struct mlp *m, int32_t *length, int32_t *level)
{
    double best = INFINITY;
    for (int32_t k = 0; k < m->n; k++) {
        double all = 0;
        for (int32_t i = 0; i < m->n; i++) all += fmin(m->speed[i], m->speed[k]);
        for (int32_t i = 0; i < m->n; i++) m->ratio[i] = fmin(m->speed[i], m->speed[k]) / all;
        int32_t n;
        double s = 1e-9 * (double)search(m, &n).ns;
        if (s < best) best = s, *level = k, *length = n;
    }
    return best;
}

static void to_six_digits(const char *name, double found, double golden)
{
    ck_assert_msg(fabs(found / golden - 1) < 5e-7, "%s: %.9f, not %.9f", name, found, golden);
}

struct golden { /* a row of tests/data/hap/mlp.csv */
    char name[32];
    struct mlp mlp;
    int length;
    double seconds;
};

/* false: a remark or the heading. */
static bool golden_read(const char *line, struct golden *g)
{
    char speeds[256];
    int n = 0, more;
    struct mlp *m = &g->mlp;
    *g = (struct golden){.mlp = {.element = 1}};
    if (*line == '#' || strncmp(line, "name,", 5) == 0) return false;
    int found =
        sscanf(line, "%31[^,],%d,%lf,%lf,%lf,%255[^,],%lf,%lf,%lf,%lf,%d,%lf", g->name, &m->layers,
               &m->batch, &m->sequence, &m->width, speeds, &m->b.all_gather, &m->b.all_reduce,
               &m->b.reduce_scatter, &m->b.all_to_all, &g->length, &g->seconds);
    ck_assert_msg(found == 12, "%s: %d fields, not 12", line, found);
    for (const char *s = speeds; m->n < 8 && sscanf(s, "%lf%n", &m->speed[m->n], &more) == 1;
         s += more)
        m->n++, n += more;
    ck_assert_msg(n == (int)strlen(speeds) && m->n > 1, "%s: speeds of 2 to 8 devices", line);
    return true;
}

/* Every row of the table: the cost to six digits, and as many instructions. */
START_TEST(released_synthesizers_figures)
{
    char line[512];
    struct golden g;
    int32_t length, level, n = 0;
    FILE *f = fopen("tests/data/hap/mlp.csv", "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f)) {
        if (!golden_read(line, &g)) continue;
        to_six_digits(g.name, best_seconds(&g.mlp, &length, &level), g.seconds);
        ck_assert_int_eq(length, g.length);
        if (strcmp(g.name, "unequal") == 0) ck_assert_int_lt(level, 2); /* proportional */
        if (strcmp(g.name, "wide") == 0)
            ck_assert_int_eq(search(&g.mlp, &length).rule[0], 2); /* by features */
        arena_reset(arena), n++;
    }
    fclose(f);
    ck_assert_int_ge(n, 3);
}
END_TEST

/* Its own mistake, with its own figures: gathered traffic in elements leaves ratios proportional, in bytes they are even. */
START_TEST(elements_in_place_of_bytes_choose_other_ratios)
{
    double speed[4] = {fast, fast, slow, slow}, ratios[4];
    /* one block of a mixture of experts: 9·rows·h·e of work, rows·e points gathered and scattered */
    double rows = 4096, e = 768, h = 3072, points_ = rows * e;
    double work = 9 * rows * e * h,
           padded = 4 * points_ * (1 / ten_gbe.all_gather + 1 / ten_gbe.reduce_scatter);
    closed_ratios(4, speed, work, padded, ratios);
    ck_assert_double_gt(ratios[0], ratios[2] * 1.5);
    closed_ratios(4, speed, work, 4 * padded, ratios);
    ck_assert_double_eq_tol(ratios[0], ratios[2], 1e-12);
}
END_TEST

Suite *hap_suite(void)
{
    Suite *s = suite_create("hap");
    TCase *t = tcase_create("hap");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, released_synthesizers_figures);
    tcase_add_test(t, elements_in_place_of_bytes_choose_other_ratios);
    suite_add_tcase(s, t);
    return s;
}
