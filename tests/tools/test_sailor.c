/* Sailor's measured plans, predicted only from its profiles (tests/data/sailor: its data, MIT, with LICENSE). */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/document/document.h"
#include "core/model/model.h"
#include "core/sharding/sharding.h"
#include "tests/support/quiet.h"
#include "tools/import/import.h"
#include "tools/validate/plans.h"
#include "tools/validate/row.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static struct error err;
static char folder[] = "/tmp/musher-sailor-XXXXXX";

#define DATA "tests/data/sailor"
#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static const char *in_folder(const char *name) { return arena_printf(a, "%s/%s", folder, name); }

static void set_up(void)
{
    a = arena_new();
    memcpy(strrchr(folder, '-') + 1, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    struct import_request q = {.path = DATA, .db = in_folder("sailor.db")};
    int before = quiet_begin();
    MUST(import_sailor(a, &q, &err));
    quiet_end(before);
}

static void tear_down(void)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.') unlink(in_folder(e->d_name));
    if (d) closedir(d);
    rmdir(folder);
    arena_free(a);
}

static struct validated_row *validate(const char *csv, struct validated_summary *s)
{
    struct validated_row *rows;
    MUST(validate_plans(a, csv, in_folder("sailor.db"), folder, &rows, s, &err));
    return rows;
}

/* A CSV of these lines behind a head. */
static const char *csv_of(const char *lines)
{
    const char *path = in_folder("plans.csv");
    FILE *f = fopen(path, "w");
    fprintf(f, "file,set,tp,mbs,gbs,layers_per_stage,gpu_per_stage_replica\n%s", lines);
    fclose(f);
    return path;
}

START_TEST(fifteen_measured_plans_are_predicted_to_six_and_five_percent)
{
    struct validated_summary s;
    struct validated_row *rows = validate(DATA "/measured_gh200_opt350.csv", &s);
    ck_assert_int_eq(s.predicted, 15);
    ck_assert_int_eq(s.timed, 15);
    /* The goal is 0.06 and 0.05; the limits are the present errors. Two runs of one plan differ by 0.05. */
    ck_assert_double_lt(s.time[VALIDATED_MEAN], 0.046);
    ck_assert_double_lt(s.time[VALIDATED_MAIN], 0.055);
    ck_assert_double_lt(s.time[VALIDATED_OTHER], 0.050);
    ck_assert_double_lt(s.memory[VALIDATED_MEAN], 0.030);
    ck_assert_double_lt(fabs(s.time_bias), 0.02);
    ck_assert_double_gt(s.time_rank, 0.98);
    for (int32_t i = 0; i < s.rows; i++) {
        bool one_node = strstr(rows[i].name, "N1_") != NULL;
        ck_assert_msg(!rows[i].note == !one_node, "%s: %s", rows[i].name,
                      rows[i].note ? rows[i].note : "no note");
        if (one_node) ck_assert_ptr_nonnull(strstr(rows[i].note, "contradicted"));
        ck_assert_double_lt(fabs(validated_error(&rows[i], VALIDATED_MEAN)), 0.15);
        ck_assert_double_lt(fabs(validated_memory_error(&rows[i], VALIDATED_MEAN)), 0.063);
    }
}
END_TEST

START_TEST(a_mixed_pipeline_takes_what_a_hand_computes)
{
    /* A100 (layers 0-11) before V100 (12-25), 4 GPUs each, microbatch 4, 4 microbatches. Seconds from the tables:
     *   A100: F 0.001046 + 0.003321 + 10 · 0.003001, B 0.000003 + 0.006848 + 10 · 0.006854
     *   V100: F 13 · 0.009555 + 0.018957, B 13 · 0.019837 + 0.031639
     * A message of 4 · 8,388,608 B goes at the V100's 4.360 GB/s (curve of 4 GPUs at 8.39 MB a GPU; the A100's gives
     * 5.679). Assembly: host memory at 4 GB/s, then 3/4 of it at 53.75 GB/s (V100) and 131.5 (A100) among the GPUs.
     * Stage 1 rules: forward of stage 0; four times message, assembly, F, B, message; assembly, backward and update of
     * stage 0 (48.0 million parameters a GPU at 22.4 ns a thousand: 1.1 ms). */
    const double message = 33554432 / 4.360e9, host = 33554432 / 4e9;
    const double f0 = 0.034377, b0 = 0.075391, f1 = 0.143172, b1 = 0.28952;
    const double assembly1 = host + 0.75 * 33554432 / 53.75e9,
                 assembly0 = host + 0.75 * 33554432 / 131.5e9;
    double whole = f0 + 4 * (2 * message + assembly1 + f1 + b1) + assembly0 + b0 + 0.0011;
    struct validated_summary s;
    struct validated_row *rows = validate(csv_of("x,OPT-350,4,4,16,12|14,A100-40|V100-16\n"), &s);
    ck_assert_msg(!rows->why, "%s", rows->why);
    ck_assert_double_eq_tol(rows->seconds / whole, 1, 0.001);
    ck_assert_int_eq(s.timed, 0);
    ck_assert(isnan(validated_error(rows, VALIDATED_MEAN)));
}
END_TEST

/* Of the first stage one replica has four A100 and the other two; both replicas of the second have one. Two A100 fit beside each
 * other on a node of four, and so do the two single ones; the GPU alone has less in reserve. */
START_TEST(a_row_with_tensor_parallelism_becomes_sharded_stages_on_single_gpus)
{
    struct model model;
    struct node *root;
    struct row_plan r = {.a = a, .models = &model, .n_models = 1};
    const struct row_text t = {.model = "OPT-350",
                               .set = "",
                               .nodes = "",
                               .pp = "",
                               .dp = "",
                               .tp = "4+2|1",
                               .mbs = "4",
                               .gbs = "64",
                               .layers_per_stage = "12|14",
                               .gpu_per_stage_replica = "A100-40+A100-40|A100-40+A100-40"};
    static const int32_t first[] = {0, 6, 4, 7}, degree[] = {4, 1, 2, 1}, node[] = {0, 1, 1, 1};
    MUST(document_read(a, in_folder("OPT-350.layers.json"), &root, &err));
    MUST(model_parse(a, root, "OPT-350", &model, &err));
    MUST(row_plan_make(&r, &t, "x", &err));
    const struct cluster *c = &r.plan.cluster;
    ck_assert_int_eq(c->n_nodes, 2);
    ck_assert_int_eq(c->n_devices, 4 + 2 + 1 + 1);
    ck_assert_int_eq(c->n_types, 2);
    for (int32_t i = 0; i < 4; i++) {
        const struct plan_stage *s = &r.plan.replicas[i / 2].stages[i % 2];
        ck_assert_int_eq(s->device, first[i]);
        ck_assert_int_eq(plan_stage_devices(s), degree[i]);
        ck_assert_int_eq(sharding_tensor_degree(s->sharding), degree[i]);
        for (int32_t k = 0; k < degree[i]; k++) {
            const struct device *d = &c->devices[plan_stage_device(s, k)];
            ck_assert_int_eq(plan_stage_device(s, k), first[i] + k);
            ck_assert_int_eq(d->node, node[i]);
            ck_assert_int_eq(c->types[d->type].reserve_bytes,
                             (degree[i] > 1 ? 3 : 2) * INT64_C(1000000000));
        }
    }
}
END_TEST

START_TEST(slower_gpus_and_fewer_gpus_never_help)
{
    static const char *const lines[] = {"a,OPT-350,4,4,64,12|14,GH-96|GH-96\n"
                                        "b,OPT-350,4,4,64,12|14,A100-40|A100-40\n"
                                        "c,OPT-350,4,4,64,12|14,A100-40|V100-16\n"
                                        "d,OPT-350,4|2,4,64,12|14,A100-40|V100-16\n",
                                        "a,OPT-350,4,4,64,26,GH-96+GH-96\n"
                                        "b,OPT-350,4,4,64,26,A100-40+GH-96\n"
                                        "c,OPT-350,4,4,64,26,A100-40+V100-16\n"
                                        "d,OPT-350,4+2,4,64,26,A100-40+V100-16\n"};
    for (int k = 0; k < 2; k++) {
        struct validated_summary s;
        struct validated_row *rows = validate(csv_of(lines[k]), &s);
        for (int i = 0; i < 4; i++) ck_assert_msg(!rows[i].why, "%s", rows[i].why);
        for (int i = 1; i < 4; i++) ck_assert_double_lt(rows[i - 1].seconds, rows[i].seconds);
        ck_assert_int_lt(rows[2].bytes, rows[3].bytes);
    }
}
END_TEST

START_TEST(a_row_that_cannot_be_predicted_keeps_its_reason_and_is_counted)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"x,BERT,4,4,16,26,GH-96", "BERT"},
        {"x,OPT-350,4,4,16,25,GH-96", "26"},
        {"x,OPT-350,4,4,16,12|x,GH-96|GH-96", "layers_per_stage"},
        {"x,OPT-350,4,3,16,26,GH-96", "divide"},
        {"x,OPT-350,4,4,4,26,GH-96+GH-96", "replicas"},
        {"x,OPT-350,4,4,16,12|14,GH-96|GH-96+GH-96|GH-96", "stages"},
        {"x,OPT-350,4,4,16,26,B9000", "B9000"},
        {"x,OPT-350,4,4,16,26,T4", "T4"},
        {"x,OPT-350,3,4,16,26,GH-96", "x3"},
        {"x,OPT-350,0,4,16,26,GH-96", "tp"},
        {"x,OPT-350,4", "fields"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct validated_summary s;
        struct validated_row *rows = validate(
            csv_of(arena_printf(a, "%s\ngood,OPT-350,4,4,16,26,GH-96\n", cases[i].line)), &s);
        ck_assert_int_eq(s.rows, 2);
        ck_assert_int_eq(s.predicted, 1);
        ck_assert_msg(rows[0].why && strstr(rows[0].why, cases[i].says), "%s: '%s'", cases[i].line,
                      rows[0].why ? rows[0].why : "");
        ck_assert_ptr_null(rows[1].why);
    }
}
END_TEST

START_TEST(what_was_not_measured_is_noted)
{
    struct validated_summary s;
    struct validated_row *rows = validate(csv_of("x,OPT-350,4,6,24,26,GH-96\n"
                                                 "y,OPT-350,4,16,64,26,GH-96\n"
                                                 "z,OPT-350,4,8,64,26,GH-96\n"),
                                          &s);
    ck_assert_ptr_nonnull(
        strstr(rows[0].note, "microbatch 6 was not measured on GH-96 x4: interpolated"));
    ck_assert_ptr_nonnull(strstr(rows[1].note, "extrapolated"));
    ck_assert_ptr_null(rows[2].note);
}
END_TEST

START_TEST(columns_come_in_any_order_and_quoted)
{
    struct validated_summary s;
    const char *path = in_folder("other.csv");
    FILE *f = fopen(path, "w");
    fputs("gbs,mbs,\"gpu_per_stage_replica\",model,more,layers_per_stage,tp,pp,real_s_other\r\n"
          "16,4,\"GH-96\",OPT-350,\"x, \"\"y\"\"\",26,4,1,0.5\r\n"
          "16,4,GH-96,OPT-350,,26,4,2,\r\n",
          f);
    fclose(f);
    struct validated_row *rows = validate(path, &s);
    ck_assert_msg(!rows[0].why, "%s", rows[0].why);
    ck_assert_double_eq(rows[0].measured_s[VALIDATED_MEAN], 0.5);
    ck_assert_double_eq(rows[0].measured_s[VALIDATED_MAIN], 0);
    ck_assert_str_eq(rows[0].name, "line 2");
    ck_assert_ptr_nonnull(strstr(rows[1].why, "pp"));
    ck_assert_int_eq(s.timed, 1);
}
END_TEST

/* The folder with one file changed; NULL: removed. */
static const char *broken(const char *file, const char *from, const char *to)
{
    static const char *const names[] = {"profiles_tmp.json", "llm_info.json",
                                        "network_coeffs_all_homo.json",
                                        "intra_node_bandwidths.json", "cluster_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text;
        size_t n;
        MUST(file_read(a, arena_printf(a, "%s/%s", DATA, names[i]), 1 << 20, &text, &n, &err));
        unlink(in_folder(names[i]));
        bool this = !strcmp(names[i], file);
        if (this && !from) continue;
        const char *at = this ? strstr(text, from) : NULL;
        ck_assert(!this || at);
        FILE *f = fopen(in_folder(names[i]), "w");
        if (this)
            fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
        else
            fputs(text, f);
        fclose(f);
    }
    return folder;
}

START_TEST(a_broken_folder_is_refused_with_file_and_field_and_writes_nothing)
{
    static const struct {
        const char *file, *from, *to, *says;
    } cases[] = {
        {"llm_info.json", NULL, NULL, "llm_info.json"},
        {"profiles_tmp.json", "{", "[", "profiles_tmp.json"},
        {"profiles_tmp.json", "0.00022", "-0.00022", "OPT-350"},
        {"profiles_tmp.json", "0.00022", "\"x\"", "OPT-350"},
        {"profiles_tmp.json", "GH-96", "Gx-96", "Gx-96"},
        {"profiles_tmp.json", "OPT-350", "OPT-351", "OPT-351"},
        {"profiles_tmp.json", "\"25\"", "\"26\"", "25"},
        {"llm_info.json", "\"25\"", "\"26\"", "25"},
        {"llm_info.json", "act_mem_floats", "act_mem", "act_mem_floats"},
        {"llm_info.json", "4198400", "4198401", "act_input_floats"},
        {"network_coeffs_all_homo.json", "inter", "enter", "inter"},
        {"intra_node_bandwidths.json", "]", "", "intra_node_bandwidths.json"},
    };
    unlink(in_folder("sailor.db"));
    unlink(in_folder("OPT-350.layers.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import_request q = {.path = broken(cases[i].file, cases[i].from, cases[i].to),
                                   .db = in_folder("sailor.db")};
        ck_assert_int_eq(import_sailor(a, &q, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says), "'%s' does not say %s", err.text,
                      cases[i].says);
        ck_assert_int_ne(access(q.db, F_OK), 0);
        ck_assert_int_ne(access(in_folder("OPT-350.layers.json"), F_OK), 0);
    }
}
END_TEST

START_TEST(a_broken_list_of_plans_is_refused_as_a_whole)
{
    struct validated_row *rows;
    struct validated_summary s;
    const char *db = in_folder("sailor.db"), *path = in_folder("b.csv");
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "no column"},
                 {"tp,mbs,gbs,layers_per_stage,gpu_per_stage_replica\n", "model"},
                 {"tp,mbs,gbs,set,gpu_per_stage_replica\n", "layers_per_stage"},
                 {"tp,mbs,gbs,set,gpu_per_stage_replica,layers_per_stage\n", "no rows"},
                 {"tp,mbs,gbs,set,gpu_per_stage_replica,layers_per_stage\n\"4,1\n", "quote"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = fopen(path, "w");
        fputs(cases[i].text, f);
        fclose(f);
        ck_assert_int_eq(validate_plans(a, path, db, folder, &rows, &s, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says), "'%s' does not say %s", err.text,
                      cases[i].says);
    }
    const char *good = DATA "/measured_gh200_opt350.csv";
    ck_assert_int_eq(validate_plans(a, in_folder("no.csv"), db, folder, &rows, &s, &err),
                     ERR_INPUT);
    ck_assert_int_eq(validate_plans(a, good, in_folder("no.db"), folder, &rows, &s, &err),
                     ERR_INPUT);
    ck_assert_int_eq(validate_plans(a, good, db, "tests/data/jobs", &rows, &s, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "layers.json"));
}
END_TEST

Suite *sailor_suite(void)
{
    Suite *s = suite_create("sailor");
    TCase *c = tcase_create("sailor");
    tcase_add_checked_fixture(c, set_up, tear_down);
    const TTest *tests[] = {fifteen_measured_plans_are_predicted_to_six_and_five_percent,
                            a_mixed_pipeline_takes_what_a_hand_computes,
                            a_row_with_tensor_parallelism_becomes_sharded_stages_on_single_gpus,
                            slower_gpus_and_fewer_gpus_never_help,
                            a_row_that_cannot_be_predicted_keeps_its_reason_and_is_counted,
                            what_was_not_measured_is_noted,
                            columns_come_in_any_order_and_quoted,
                            a_broken_folder_is_refused_with_file_and_field_and_writes_nothing,
                            a_broken_list_of_plans_is_refused_as_a_whole};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
