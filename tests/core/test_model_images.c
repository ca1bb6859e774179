/* Models of images: published parameter counts, layers, names, what is refused; from job to program and back as text. */
#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "core/model/job.h"
#include "core/model/layers.h"
#include "core/model/model.h"
#include "core/program/program.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static struct error err;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static enum status read_text(const char *text, struct model *m)
{
    struct node *config;
    if (text[1] != '"') text = arena_printf(arena, "# not JSON\n%s", text);
    ck_assert_msg(document_parse(arena, "config", text, strlen(text), &config, &err) == OK, "%s",
                  err.text);
    return model_read(config, "config", m, &err);
}

static struct model model(const char *name)
{
    char path[128];
    struct node *config;
    struct model m;
    snprintf(path, sizeof path, "tests/data/models/%s.json", name);
    ck_assert_msg(document_read(arena, path, &config, &err) == OK, "%s", err.text);
    ck_assert_msg(model_read(config, name, &m, &err) == OK, "%s", err.text);
    return m;
}

static struct graph *graph(const struct model *m, int64_t microbatch)
{
    struct graph *g;
    ck_assert_msg(model_graph(arena, m, DTYPE_fp32, microbatch, m->max_positions, &g, &err) == OK,
                  "%s", err.text);
    graph_find_layers(g);
    return g;
}

static const struct tensor *tensor(const struct graph *g, const char *name)
{
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (!strcmp(g->tensors[t].name, name)) return &g->tensors[t];
    ck_abort_msg("no tensor '%s'", name);
    return NULL;
}

/* The large ones as their authors count them. tiny-vit by hand: patches 32·48 + 32, token 32, positions 10·32, blocks
 * 2·(4·(32² + 32) + 2·32·48 + 48 + 32 + 4·32), norm 64, classifier 4·33. tiny-vgg: convolutions 4·2·9 + 4·4·9 + 6·4·9 + 6·6·9,
 * a bias, a gamma and a beta for each of 20 channels, 10·(6·3·3 + 1) + 4·11. */
static const struct {
    const char *name;
    int64_t parameters;
    int32_t layers;
} sizes[] = {
    {"vgg19", 143667240, 16 + 5 + 3 + 1},
    {"vit-base-patch16-224", 86567656, 1 + 24 + 1 + 1 + 1},
    {"tiny-vit", 1536 + 32 + 32 + 320 + 2 * (4 * 1056 + 3072 + 80 + 128) + 64 + 132,
     1 + 4 + 1 + 1 + 1},
    {"tiny-vgg", 72 + 144 + 216 + 324 + 60 + 550 + 44, 4 + 2 + 2 + 1},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

START_TEST(parameters_are_counted_as_published)
{
    struct model m = model(sizes[_i].name);
    ck_assert_int_eq(model_parameters(&m), sizes[_i].parameters);
}
END_TEST

/* One convolution with all that finishes it, one pooling, one half of a block, one product of the classifier. */
START_TEST(layers_end_where_one_activation_is_live)
{
    struct model m = model(sizes[_i].name);
    struct graph *g = graph(&m, 2);
    ck_assert_int_eq(g->n_layers, sizes[_i].layers);
    ck_assert_str_eq(g->layer_name[g->n_layers - 1], "loss");
    for (int32_t k = 0; k + 1 < g->n_layers; k++) ck_assert_int_eq(g->cut[k].n, 1);
}
END_TEST

START_TEST(a_config_is_written_as_it_is_read)
{
    struct model m = model(sizes[_i].name), again;
    const char *text = model_write(arena, &m);
    ck_assert_msg(read_text(text, &again) == OK, "%s", err.text);
    ck_assert_str_eq(text, model_write(arena, &again));
    ck_assert_int_eq(model_parameters(&again), sizes[_i].parameters);
}
END_TEST

START_TEST(inputs_are_images_and_one_label_each)
{
    struct model m = model("tiny-vit");
    struct graph *g = graph(&m, 5);
    const struct tensor *x = tensor(g, "pixels"), *y = tensor(g, "labels");
    struct shape pixels = {4, {5, 3, 12, 12}}, labels = {1, {5}};
    ck_assert(x->input == INPUT_PIXELS && x->dtype == DTYPE_fp32 &&
              shape_equal(&x->shape, &pixels));
    ck_assert(y->input == INPUT_LABELS && y->dtype == DTYPE_int32 &&
              shape_equal(&y->shape, &labels));
    ck_assert_int_eq(model_pixels(&m), 432);
    ck_assert_int_eq(m.max_positions, 10);
}
END_TEST

START_TEST(parameters_have_the_names_that_people_know)
{
    struct model m = model("tiny-vit");
    struct graph *g = graph(&m, 1);
    static const char *const vit[] = {"vit.embeddings.cls_token",
                                      "vit.embeddings.position_embeddings",
                                      "vit.embeddings.patch_embeddings.projection.weight",
                                      "vit.embeddings.patch_embeddings.projection.bias",
                                      "vit.encoder.layer.1.attention.attention.query.bias",
                                      "vit.encoder.layer.1.attention.output.dense.weight",
                                      "vit.encoder.layer.1.intermediate.dense.weight",
                                      "vit.encoder.layer.1.output.dense.bias",
                                      "vit.encoder.layer.1.layernorm_before.weight",
                                      "vit.encoder.layer.1.layernorm_after.bias",
                                      "vit.layernorm.weight",
                                      "classifier.weight",
                                      "classifier.bias"};
    for (size_t i = 0; i < sizeof vit / sizeof *vit; i++) tensor(g, vit[i]);
    m = model("vgg19");
    g = graph(&m, 1);
    static const char *const vgg[] = {"features.0.weight",   "features.2.bias",
                                      "features.34.weight",  "classifier.0.weight",
                                      "classifier.3.weight", "classifier.6.bias"};
    for (size_t i = 0; i < sizeof vgg / sizeof *vgg; i++) tensor(g, vgg[i]);
    struct shape first = {4, {64, 3, 3, 3}}, flat = {2, {4096, 25088}};
    ck_assert(shape_equal(&tensor(g, "features.0.weight")->shape, &first));
    ck_assert(shape_equal(&tensor(g, "classifier.0.weight")->shape, &flat));
}
END_TEST

/* Known from their papers: VGG19 19.6 and ViT-B/16 17.6 thousand million multiply-adds forward. */
START_TEST(an_image_costs_what_papers_say)
{
    static const struct {
        const char *name;
        double least, most;
    } work[] = {{"vgg19", 19.5e9, 19.8e9}, {"vit-base-patch16-224", 17.4e9, 17.7e9}};
    for (int i = 0; i < 2; i++) {
        struct model m = model(work[i].name);
        struct graph *g = graph(&m, 1);
        double flops = 0;
        for (int32_t k = 0; k < g->n_ops; k++) {
            struct op_shapes s;
            graph_op_shapes(g, &g->ops[k], &s);
            if (op_is_product(g->ops[k].kind))
                flops += op_flops(g->ops[k].kind, &g->ops[k].attrs, &s);
        }
        ck_assert_double_ge(flops / 2, work[i].least);
        ck_assert_double_le(flops / 2, work[i].most);
    }
}
END_TEST

START_TEST(fine_and_coarse_layers_are_found)
{
    static const char *const names[] = {"vgg19", "vit-base-patch16-224"};
    for (int i = 0; i < 2; i++)
        for (int fine = 0; fine < 2; fine++) {
            struct model m = model(names[i]);
            struct graph *g = graph(&m, 1);
            struct layers_choice c = {fine ? LAYERS_FINE : LAYERS_COARSE, 0};
            ck_assert_msg(layers_find(g, &c, &err) == OK, "%s", err.text);
            ck_assert_int_eq(g->n_layers, i ? (fine ? 50 : 14) : fine ? 24 : 14);
        }
}
END_TEST

static const struct {
    const char *config, *why;
} refused[] = {
    {"{model_type: vit, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, "
     "intermediate_size: 8, "
     "hidden_act: quick_gelu}",
     "hidden_act"},
    {"{model_type: vit, hidden_size: 30, num_hidden_layers: 1, num_attention_heads: 4, "
     "intermediate_size: 8}",
     "do not divide"},
    {"{model_type: vit, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, "
     "intermediate_size: 8, "
     "image_size: 8}",
     "larger than images"},
    {"{model_type: vit, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, "
     "intermediate_size: 8, "
     "num_labels: 3, id2label: {'0': a}}",
     "names 1"},
    {"{model_type: vgg, features: [4, X]}", "M or A"},
    {"{model_type: vgg, features: [4, M, M, M], image_size: 5}", "too small"},
    {"{model_type: vgg, features: []}", "1 to 64"},
    {"{model_type: vgg, norm_groups: 7}", "do not divide"},
};

START_TEST(what_cannot_be_built_is_named)
{
    struct model m;
    ck_assert_int_eq(read_text(refused[_i].config, &m), ERR_INPUT);
    ck_assert_msg(strstr(err.text, refused[_i].why) != NULL, "%s", err.text);
}
END_TEST

static enum status read_job(const char *more, struct job *out)
{
    struct node *root;
    const char *text = arena_printf(
        arena, "version: 1\nmodel: tests/data/models/tiny-vit.json\nglobal_batch: 4\n%s", more);
    ck_assert(document_parse(arena, "job", text, strlen(text), &root, &err) == OK);
    return job_parse(arena, root, ".", out, &err);
}

START_TEST(the_sequence_length_follows_from_the_model)
{
    struct job j;
    ck_assert_msg(read_job("", &j) == OK, "%s", err.text);
    ck_assert_int_eq(j.sequence_length, 10);
    ck_assert_msg(read_job("sequence_length: 10\n", &j) == OK, "%s", err.text);
    ck_assert_int_eq(read_job("sequence_length: 9\n", &j), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "10 positions") != NULL, "%s", err.text);
    ck_assert_msg(read_job("data: LICENSE\n", &j) == OK, "%s", err.text); /* with four classes */
}
END_TEST

static struct program *lowered(const char *name)
{
    const char *text = arena_printf(
        arena,
        "version: 1\nname: p\nmicrobatch: 3\nsteps: 1\nreplicas:\n"
        "  - {microbatches: 2, stages: [{layers: [0, 2], devices: [n.0, n.1], sequences: [2, 1]}, "
        "{layers: [3, %d], device: n.2}]}\n"
        "job: {version: 1, model: tests/data/models/%s.json, global_batch: 6}\n"
        "cluster: {version: 1, name: c, device_types: [{name: cpu, device: host, memory: 1 GiB}], "
        "nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}]}], "
        "links: [{name: bus, between: [n]}]}\n",
        !strcmp(name, "tiny-vit") ? 7 : 8, name);
    struct plan plan;
    struct node *root;
    struct program *p = arena_alloc(arena, 1, sizeof *p);
    struct lower_options options = {0};
    ck_assert_msg(document_parse(arena, "plan", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(plan_parse(arena, root, ".", &plan, &err) == OK, "%s", err.text);
    ck_assert_msg(lower_plan(arena, &plan, &options, p, &err) == OK, "%s", err.text);
    return p;
}

static char *written(const struct program *p, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    program_write(f, p);
    fclose(f);
    char *copy = arena_strndup(arena, text, *n);
    free(text);
    return copy;
}

START_TEST(programs_of_images_are_written_as_they_are_read_and_pass_the_token_game)
{
    static const char *const names[] = {"tiny-vit", "tiny-vgg"};
    struct program *p = lowered(names[_i]), again;
    size_t n, m;
    char *text = written(p, &n);
    ck_assert_msg(program_check(arena, p, &err) == OK, "%s", err.text);
    ck_assert_msg(program_parse(arena, "x", text, n, &again, &err) == OK, "%s", err.text);
    char *second = written(&again, &m);
    ck_assert_str_eq(text, second);
    ck_assert_int_eq(again.pixels, _i ? 288 : 432);
    ck_assert(strstr(text, "\nimages ") != NULL);
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t k = 0; k < p->stages[s].n_ops; k++)
            ck_assert(p->stages[s].ops[k].key == again.stages[s].ops[k].key);
}
END_TEST

START_TEST(a_program_file_with_other_images_than_its_slots_is_refused)
{
    size_t n;
    struct program again;
    char *text = written(lowered("tiny-vit"), &n), *at = strstr(text, "\nimages 432");
    ck_assert(at != NULL);
    memcpy(at, "\nimages 431", 11);
    ck_assert_int_eq(program_parse(arena, "x", text, n, &again, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "not of the program's images") != NULL, "%s", err.text);
}
END_TEST

Suite *model_images_suite(void)
{
    Suite *s = suite_create("model_images");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, parameters_are_counted_as_published, 0, N_SIZES);
    tcase_add_loop_test(t, layers_end_where_one_activation_is_live, 0, N_SIZES);
    tcase_add_loop_test(t, a_config_is_written_as_it_is_read, 0, N_SIZES);
    tcase_add_test(t, inputs_are_images_and_one_label_each);
    tcase_add_test(t, parameters_have_the_names_that_people_know);
    tcase_add_test(t, an_image_costs_what_papers_say);
    tcase_add_test(t, fine_and_coarse_layers_are_found);
    tcase_add_loop_test(t, what_cannot_be_built_is_named, 0, sizeof refused / sizeof *refused);
    tcase_add_test(t, the_sequence_length_follows_from_the_model);
    tcase_add_loop_test(
        t, programs_of_images_are_written_as_they_are_read_and_pass_the_token_game, 0, 2);
    tcase_add_test(t, a_program_file_with_other_images_than_its_slots_is_refused);
    suite_add_tcase(s, t);
    return s;
}
