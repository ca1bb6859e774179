/* Meshes: the enumerated ones, the best against brute force, and cases where nodes × GPUs beat one axis. */
#include "planner/spmd/mesh.h"

#include "tests/support/spmd_cases.h"
#include "tests/support/spmd_models.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

START_TEST(nodes_by_gpus_are_looked_at_first)
{
    struct spmd_shape s[SPMD_MESHES_MAX];
    static const int32_t node[12] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    static const int32_t odd[4] = {0, 0, 0, 1};
    ck_assert_int_eq(spmd_meshes(12, node, s), 5);
    ck_assert_int_eq(s[0].rows, 1);
    ck_assert_int_eq(s[0].columns, 12);
    ck_assert_int_eq(s[1].rows, 3);
    ck_assert_int_eq(s[1].columns, 4);
    ck_assert_int_eq(s[2].columns, 2);
    for (int k = 0; k < 5; k++) ck_assert_int_eq(s[k].rows * s[k].columns, 12);
    ck_assert_int_eq(spmd_meshes(4, odd, s), 2);
    ck_assert_int_eq(s[1].columns, 2);
    ck_assert_int_eq(spmd_meshes(7, NULL, s), 1);
    ck_assert_int_eq(spmd_meshes(64, NULL, s), 6);
    ck_assert_int_eq(spmd_meshes(240, NULL, s), 19); /* every divisor but 1 */
}
END_TEST

/* The cheapest of all choices of rules of one mesh. */
static int64_t try_everything(const struct spmd_question *q)
{
    struct spmd_tables *t;
    spmd_case_must(spmd_tables_new(arena, q, &t, &err), &err);
    const struct spmd_problem *p = &t->problem;
    int32_t *rule = ARENA_ARRAY(arena, int32_t, p->n_ops);
    struct arena *scratch = arena_new();
    int64_t best = INT64_MAX;
    for (int32_t i = 0; i < p->n_ops;) {
        int64_t ns = spmd_cost(scratch, p, rule, NULL);
        arena_reset(scratch);
        if (ns < best) best = ns;
        for (i = 0; i < p->n_ops && ++rule[i] == p->ops[i].n_rules; i++) rule[i] = 0;
    }
    arena_free(scratch);
    return best;
}

/* Stages of a layer of a small model on 2 x 2 devices: no mesh has anything cheaper. */
START_TEST(the_best_mesh_is_the_best_of_everything)
{
    static const char model[] = "{model_type: vgg, image_size: 8, num_channels: 3, features: [16], "
                                "classifier: [64], norm_groups: 2, num_labels: 8}";
    double even[4] = {1, 1, 1, 1};
    int32_t compared = 0;
    for (int64_t rows = 8; rows <= 512; rows *= 8) {
        struct spmd_case *x = spmd_case_new(arena, model, 1, rows, 4, even, 1);
        for (int32_t layer = 0; layer < x->training->n_layers; layer++) {
            struct spmd_mesh_best b;
            struct spmd_question q = x->q;
            struct sharding mesh = x->s;
            int32_t n_ops = 0;
            q.first_layer = q.last_layer = layer;
            for (int32_t i = 0; i < x->training->n_forward; i++)
                n_ops += x->training->ops[i].layer == layer;
            if (n_ops + (layer > 0) > 4) continue; /* 16 rules each */
            spmd_case_must(spmd_best_mesh(arena, &q, &b, &err), &err);
            int64_t best = try_everything(&q), other;
            mesh.n_axes = 2, mesh.mesh[0] = mesh.mesh[1] = 2, q.s = &mesh;
            other = try_everything(&q);
            ck_assert_int_eq(b.answer.ns, other < best ? other : best);
            compared++;
        }
        arena_reset(arena);
    }
    ck_assert_int_ge(compared, 3);
}
END_TEST

/* BERT with experts on eight machines of eight: experts inside machines, rows between them, is better than either alone. */
START_TEST(nodes_by_gpus_beat_one_axis_where_links_between_nodes_are_slow)
{
    struct spmd_model *m;
    struct spmd_answer one, two;
    spmd_case_must(spmd_model_new(arena, "tests/data/jobs/hap-bert-moe.yaml",
                                  "tests/data/clusters/hap64.yaml", 512, &m, &err),
                   &err);
    spmd_case_must(spmd_best(arena, &m->q, &one, &err), &err);
    m->s.n_axes = 2, m->s.mesh[0] = 16, m->s.mesh[1] = 4;
    spmd_case_must(spmd_best(arena, &m->q, &two, &err), &err);
    ck_assert_int_lt(two.ns, one.ns);
}
END_TEST

Suite *spmd_mesh_suite(void)
{
    Suite *s = suite_create("spmd_mesh");
    TCase *t = tcase_create("spmd_mesh");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nodes_by_gpus_are_looked_at_first);
    tcase_add_test(t, the_best_mesh_is_the_best_of_everything);
    tcase_add_test(t, nodes_by_gpus_beat_one_axis_where_links_between_nodes_are_slow);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
