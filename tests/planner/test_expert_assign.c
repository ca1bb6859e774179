/* Experts among devices: list scheduling with moves and swaps, and cuts of an order, against all assignments of small cases. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/experts/assign.h"

#include "tests/support/suites.h"

#include <math.h>

enum { EXPERTS = 7, PLACES = 3 };

static double uniform(uint64_t seed, uint64_t at) { return rng_uniform(seed, 11, at); }

struct small {
    int64_t tokens[EXPERTS];
    double per_token[PLACES], per_expert[PLACES];
    int32_t most[PLACES];
    struct experts_question q;
};

/* Shares from equal to a power law, devices up to 4 x apart. */
static void make(uint64_t seed, struct small *x)
{
    double skew = 3 * uniform(seed, 0);
    x->q = (struct experts_question){EXPERTS, 2 + (int32_t)(seed % 2), x->tokens, x->per_token, x->per_expert, NULL};
    for (int i = 0; i < EXPERTS; i++) x->tokens[i] = (int64_t)(1000 * pow(uniform(seed, 1 + (uint64_t)i), skew));
    for (int k = 0; k < PLACES; k++) {
        x->per_token[k] = 1 + 3 * uniform(seed, 20 + (uint64_t)k);
        x->per_expert[k] = 40 * uniform(seed, 30) * x->per_token[k];
        x->most[k] = EXPERTS;
    }
}

static bool fits(const struct experts_question *q, const int32_t *place)
{
    int32_t n[PLACES] = {0};
    for (int32_t e = 0; e < q->n_experts; e++) n[place[e]]++;
    for (int32_t k = 0; q->most && k < q->n_places; k++)
        if (n[k] > q->most[k]) return false;
    return true;
}

/* Over all assignments; -1: none fits. contiguous: places ascend along the order 0, 1, 2 … */
static double shortest(const struct experts_question *q, bool contiguous)
{
    double best = -1;
    int64_t all = 1;
    for (int32_t e = 0; e < q->n_experts; e++) all *= q->n_places;
    for (int64_t code = 0; code < all; code++) {
        int32_t place[EXPERTS];
        bool ascends = true;
        int64_t rest = code;
        for (int32_t e = 0; e < q->n_experts; e++, rest /= q->n_places) {
            place[e] = (int32_t)(rest % q->n_places);
            ascends &= !e || place[e] >= place[e - 1];
        }
        if ((contiguous && !ascends) || !fits(q, place)) continue;
        double t = experts_time(q, place);
        if (best < 0 || t < best) best = t;
    }
    return best;
}

START_TEST(an_assignment_is_near_the_best_of_all)
{
    double sum = 0, worst = 1;
    int32_t optimal = 0, n = suites_long() ? 2000 : 200;
    for (uint64_t seed = 0; seed < (uint64_t)n; seed++) {
        struct small x;
        int32_t place[EXPERTS];
        make(seed, &x);
        double found = experts_assign(&x.q, place), best = shortest(&x.q, false);
        ck_assert_double_eq_tol(experts_time(&x.q, place), found, 1e-9 * found);
        ck_assert_double_ge(found, best * (1 - 1e-12));
        sum += found / best, worst = fmax(worst, found / best), optimal += found <= best * (1 + 1e-12);
    }
    ck_assert_msg(sum / n < 1.02 && worst < 1.25, "mean %g, worst %g", sum / n, worst);
    ck_assert_int_ge(optimal, n / 2);
}
END_TEST

START_TEST(memory_limits_the_experts_of_a_place)
{
    int32_t none = 0, some = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct small x;
        int32_t place[EXPERTS], room = 0;
        make(seed, &x);
        x.q.most = x.most;
        for (int32_t k = 0; k < x.q.n_places; k++) x.most[k] = (int32_t)(5 * uniform(seed, 40 + (uint64_t)k)), room += x.most[k];
        double found = experts_assign(&x.q, place), best = shortest(&x.q, false);
        ck_assert_int_eq(found < 0, room < EXPERTS);
        ck_assert_int_eq(found < 0, best < 0);
        none += found < 0, some += found >= 0;
        if (found < 0) continue;
        ck_assert(fits(&x.q, place));
        ck_assert_double_le(found, 1.5 * best);
    }
    ck_assert(none > 20 && some > 20);
}
END_TEST

START_TEST(a_cut_of_an_order_is_the_best_of_all_cuts)
{
    static const int32_t order[EXPERTS] = {0, 1, 2, 3, 4, 5, 6};
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct small x;
        int64_t n[PLACES] = {0};
        int32_t place[EXPERTS], e = 0;
        make(seed, &x);
        if (seed % 3 == 0) x.q.most = x.most, x.most[0] = (int32_t)(seed % 5);
        double found = experts_cut(&x.q, order, n);
        ck_assert_double_eq_tol(found, shortest(&x.q, true), 1e-9 * fabs(found));
        for (int32_t k = 0; k < x.q.n_places; k++)
            for (int64_t i = 0; i < n[k]; i++) place[e++] = k;
        ck_assert_int_eq(e, EXPERTS);
        ck_assert_double_eq_tol(experts_time(&x.q, place), found, 1e-9 * found);
        ck_assert(fits(&x.q, place));
    }
}
END_TEST

/* One expert with two thirds of the tokens goes to the fast device alone, although the other six are as many as they are. */
START_TEST(a_hot_expert_has_the_fast_device_to_itself)
{
    const int64_t tokens[] = {10, 200, 10, 20, 20, 20, 20};
    const double per_token[] = {2, 1}, per_expert[] = {0, 0};
    int32_t place[7];
    struct experts_question q = {7, 2, tokens, per_token, per_expert, NULL};
    ck_assert_double_eq(experts_assign(&q, place), 200);
    for (int32_t e = 0; e < 7; e++) ck_assert_int_eq(place[e], e == 1);
}
END_TEST

Suite *expert_assign_suite(void)
{
    Suite *s = suite_create("expert_assign");
    TCase *t = tcase_create("expert_assign");
    tcase_add_test(t, an_assignment_is_near_the_best_of_all);
    tcase_add_test(t, memory_limits_the_experts_of_a_place);
    tcase_add_test(t, a_cut_of_an_order_is_the_best_of_all_cuts);
    tcase_add_test(t, a_hot_expert_has_the_fast_device_to_itself);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
