/* Uniform replicas (planner/fleet/uniform): properties of every mix, and paces against brute force over orders and splits. */
#include "core/base/arena.h"
#include "planner/fleet/template_classes.h"
#include "planner/fleet/uniform.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "tests/support/sailor_cases.h"
#include "tests/support/suites.h"

static struct arena *a;
static struct error err;

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

/* 8 A100 and 8 V100, taken by ones, twos and fours; microbatches of two of OPT-350. */
struct made {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct tp_options offers;
    struct template_classes classes;
    struct space space;
    struct template_maker *maker;
};

static void make(struct made *m, const char *cluster)
{
    static const int32_t tp[] = {1, 2, 4};
    static const struct lower_options lower = {.check_memory = true};
    struct sailor_case c = {cluster, "opt", "OPT-350", 0};
    MUST(sailor_case_read(a, &c, &m->job, &m->cluster, &m->profile, &err));
    struct search_context t = {.arena = a, .spmd_stage = spmd_stage_new()};
    MUST(tp_options_make(&t, a, &m->job, &m->cluster, &m->profile, tp, 3, &m->offers, &err));
    template_classes_make(a, &m->offers, tp, 3, &m->classes);
    MUST(template_classes_size(a, &m->classes, &m->offers, 2, &lower, &m->space, &m->maker, &err));
    m->maker->max_layers = m->space.n_layers;
    spmd_stage_free(t.spmd_stage);
}

START_TEST(every_mix_is_one_pipeline_as_often_as_its_gpus_allow)
{
    struct made m;
    struct mix *x;
    int32_t n;
    make(&m, "a8-v8");
    uniform_mixes(m.maker, m.space.microbatches, 100, &x, &n);
    ck_assert_int_gt(n, 10);
    for (int32_t i = 0; i < n; i++) {
        const struct template *t = x[i].templates;
        struct template again = *t;
        ck_assert_int_eq(x[i].n, 1);
        if (i) ck_assert_int_le(x[i].count[0], x[i - 1].count[0]);
        ck_assert_int_eq(x[i].count[0] * x[i].least[0] + x[i].more[0], m.space.microbatches);
        for (int32_t p = 0; p < m.maker->n_pools; p++)
            ck_assert_int_le(x[i].count[0] * t->use[p], 8);
        ck_assert_int_le(t->n_stages, UNIFORM_STAGES);
        for (int32_t s = 0, first = 0; s < t->n_stages; s++) {
            ck_assert_int_eq(t->stages[s].first, first);
            first = t->stages[s].last + 1;
            if (s + 1 == t->n_stages) ck_assert_int_eq(first, m.space.n_layers);
        }
        template_measure(m.maker, &again);
        ck_assert_int_eq(again.tau_ns, t->tau_ns);
        ck_assert_int_eq(again.fill_ns, t->fill_ns);
    }
    ck_assert_int_eq(m.maker->max_layers, m.space.n_layers); /* as it was */
}
END_TEST

START_TEST(no_more_mixes_than_asked_for_and_the_first_ones)
{
    struct made m;
    struct mix *all, *few;
    int32_t n, least;
    make(&m, "a8-v8");
    uniform_mixes(m.maker, m.space.microbatches, 100, &all, &n);
    uniform_mixes(m.maker, m.space.microbatches, 3, &few, &least);
    ck_assert_int_eq(least, 3);
    for (int32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(few[i].count[0], all[i].count[0]);
        ck_assert_int_eq(few[i].templates[0].tau_ns, all[i].templates[0].tau_ns);
    }
    uniform_mixes(m.maker, 5, 100, &few, &n); /* no replica without a microbatch */
    ck_assert_int_gt(n, 0);
    for (int32_t i = 0; i < n; i++) ck_assert_int_le(few[i].count[0], 5);
}
END_TEST

/* --- every order, every split ------------------------------------------------------------------ */

struct every {
    struct template_maker *m;
    int32_t left[2], n;
    struct template_stage stages[4];
    int64_t best_ns;
};

/* Warm-ups as few as can be; memory decides whether it recomputes. */
static void measure(struct every *q)
{
    struct template t = {.n_stages = q->n, .stages = q->stages};
    for (int32_t s = 0; s < q->n; s++) {
        struct template_time time;
        q->stages[s].warmup = q->n - s;
        if (!template_stage_time(q->m, q->stages[s].device_class, q->stages[s].first,
                                 q->stages[s].last, q->n - s, &time))
            return;
    }
    template_measure(q->m, &t);
    if (t.tau_ns < q->best_ns) q->best_ns = t.tau_ns;
}

static void put_stage(struct every *q, int32_t first)
{
    int32_t layers = q->m->s->n_layers;
    for (int32_t k = 0; k < q->m->n_classes && q->n < 4; k++) {
        const struct template_class *device_class = &q->m->classes[k];
        if (device_class->tp > q->left[device_class->pool]) continue;
        q->left[device_class->pool] -= device_class->tp;
        for (int32_t last = first; last < layers; last++) {
            q->stages[q->n++] =
                (struct template_stage){.device_class = k, .first = first, .last = last};
            if (last == layers - 1)
                measure(q);
            else
                put_stage(q, last + 1);
            q->n--;
        }
        q->left[device_class->pool] += device_class->tp;
    }
}

START_TEST(paces_are_near_the_best_of_every_order_and_split)
{
    struct made m;
    struct mix *x;
    int32_t n;
    make(&m, "a8-v8");
    uniform_mixes(m.maker, m.space.microbatches, 400, &x, &n);
    for (int32_t replicas = 8; replicas >= 4; replicas -= 4) {
        struct every q = {.m = m.maker, .left = {8 / replicas, 8 / replicas}, .best_ns = INT64_MAX};
        int64_t least = INT64_MAX;
        for (int32_t i = 0; i < n; i++)
            if (x[i].count[0] == replicas && x[i].templates[0].tau_ns < least)
                least = x[i].templates[0].tau_ns;
        put_stage(&q, 0);
        ck_assert_int_lt(q.best_ns, INT64_MAX);
        ck_assert_int_ge(least, q.best_ns);
        ck_assert_int_le(least, q.best_ns + q.best_ns / 50);
    }
}
END_TEST

/* By hand: where all GPUs are alike, 16 replicas are one stage of one GPU, and the pace is what all layers take on it. */
START_TEST(as_many_replicas_as_gpus_are_single_gpus)
{
    struct made m;
    struct mix *x;
    int32_t n;
    make(&m, "a16");
    uniform_mixes(m.maker, m.space.microbatches, 400, &x, &n);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(x[0].count[0], 16);
    ck_assert_int_eq(x[0].templates[0].n_stages, 1);
    const struct template_class *k = &m.maker->classes[x[0].templates[0].stages[0].device_class];
    ck_assert_int_eq(k->tp, 1);
    const struct stage_cost *c = space_stage_type(&m.space, k->type, 0, m.space.n_layers - 1);
    ck_assert_int_eq(x[0].templates[0].tau_ns, c->forward_ns + c->input_ns + c->weight_ns);
}
END_TEST

Suite *uniform_suite(void)
{
    Suite *s = suite_create("uniform");
    TCase *c = tcase_create("uniform");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, as_many_replicas_as_gpus_are_single_gpus);
    tcase_add_test(c, every_mix_is_one_pipeline_as_often_as_its_gpus_allow);
    tcase_add_test(c, no_more_mixes_than_asked_for_and_the_first_ones);
    tcase_add_test(c, paces_are_near_the_best_of_every_order_and_split);
    suite_add_tcase(s, c);
    return s;
}
