/* Suite of exec/checkpoint/weights, files and convert: layouts that several ranks write, folders of weights, and whether they are a model's. */
#include "exec/checkpoint/weights.h"

#include "core/base/arena.h"
#include "core/graph/half.h"
#include "exec/checkpoint/convert.h"
#include "exec/checkpoint/files.h"

#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static char dir[64];
static struct error err;

static void setup(void)
{
    a = arena_new();
    err = (struct error){0};
    snprintf(dir, sizeof dir, "/tmp/musher-weights-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
    ck_assert_int_eq(system(arena_printf(a, "rm -r '%s'", dir)), 0);
    arena_free(a);
}

static struct checkpoint_tensor tensor(const char *name, enum dtype t, struct shape shape)
{
    struct checkpoint_tensor x = {.shape = shape, .dtype = (int32_t)t, .bytes = shape_elements(&shape) * dtype_bytes(t)};
    snprintf(x.name, sizeof x.name, "%s", name);
    return x;
}

/* Values from the name, so that each tensor has its own. */
static float *values_of(const struct checkpoint_tensor *t)
{
    int64_t n = shape_elements(&t->shape);
    float *out = ARENA_ARRAY(a, float, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) out[i] = (float)(t->name[strlen(t->name) - 1]) + (float)strlen(t->name) / 64 + (float)i;
    return out;
}

#define VEC(n) ((struct shape){1, {n}})
#define MAT(m, n) ((struct shape){2, {m, n}})

/* The folder has the tensors, all fp32, in files of at most shard_bytes; odd and even ones are written by two ranks. */
static void write_folder(struct checkpoint_tensor *t, int32_t n, int64_t shard_bytes)
{
    struct checkpoint_layout x;
    ck_assert_int_eq(checkpoint_layout_make(a, t, n, shard_bytes, &x, &err), OK);
    struct checkpoint_target to = {dir, &x};
    for (int rank = 1; rank >= 0; rank--)
        for (int32_t i = rank; i < n; i += 2) {
            const void *data = values_of(&t[i]);
            ck_assert_msg(checkpoint_put_file(&to, a, "rest.safetensors", &t[i], &data, 1, &err) == OK, "%s", err.text);
        }
    ck_assert_msg(checkpoint_layout_write(a, &x, dir, "{\"model_type\": \"gpt2\"}\n", &err) == OK, "%s", err.text);
}

static const char *const model[] = {"transformer.wte.weight", "transformer.h.0.ln_1.weight", "transformer.h.0.mlp.experts.up_proj.weight"};
static struct checkpoint_tensor of_model(int i)
{
    const struct shape shapes[] = {MAT(4, 3), VEC(3), {3, {2, 3, 5}}};
    return tensor(model[i], DTYPE_fp32, shapes[i]);
}

static void check_values(const struct weights *w)
{
    for (int i = 0; i < 3; i++) {
        struct checkpoint_tensor t = of_model(i);
        float *expected = values_of(&t), *found = ARENA_ARRAY(a, float, (size_t)t.bytes);
        ck_assert_msg(weights_load(w, t.name, &t.shape, DTYPE_fp32, found, &err) == OK, "%s", err.text);
        ck_assert_mem_eq(found, expected, (size_t)t.bytes);
    }
}

/* One file and several, with an index; the manifest's rows agree with the headers, experts are apart, and state is in another file. */
START_TEST(ranks_write_into_one_layout)
{
    static const int64_t shards[] = {CHECKPOINT_SHARD_BYTES, 140, 1};
    static const int32_t n_files[] = {1, 2, 3};
    for (int k = 0; k < 3; k++) {
        struct checkpoint_tensor t[5] = {of_model(0), of_model(1), of_model(2), tensor("transformer.wte.weight#m", DTYPE_fp32, MAT(4, 3)),
                                         tensor("transformer.h.0.mlp.experts.up_proj.weight#v", DTYPE_fp32, (struct shape){3, {2, 3, 5}})};
        struct weights w;
        ck_assert_int_eq(system(arena_printf(a, "rm -f '%s'/*", dir)), 0);
        write_folder(t, 5, shards[k]);
        ck_assert_msg(weights_open(a, dir, &w, &err) == OK, "%s", err.text);
        ck_assert_int_eq(w.n_files, n_files[k]);
        ck_assert_int_eq(w.n, 4);
        ck_assert_ptr_nonnull(weights_find(&w, "transformer.h.0.mlp.experts.1.up_proj.weight"));
        check_values(&w);
        struct checkpoint c = {.folder = dir, .n_tensors = 5, .tensors = t};
        ck_assert_msg(checkpoint_files_agree(a, &c, &err) == OK, "%s", err.text);
        t[2].offset += 4;
        ck_assert_int_eq(checkpoint_files_agree(a, &c, &err), ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, "experts.0.up_proj.weight where the manifest has it"));
    }
}
END_TEST

START_TEST(a_tensor_without_a_place_has_a_file_of_its_own)
{
    struct checkpoint_tensor t[2] = {of_model(0), tensor("x#0/2", DTYPE_fp32, VEC(7))};
    const void *data[2] = {values_of(&t[0]), values_of(&t[1])};
    struct checkpoint_layout x;
    ck_assert_int_eq(checkpoint_layout_make(a, t, 1, CHECKPOINT_SHARD_BYTES, &x, &err), OK);
    struct checkpoint_target to = {dir, &x};
    ck_assert_int_eq(checkpoint_put_file(&to, a, "feedback-0000.safetensors", t, data, 2, &err), OK);
    ck_assert_int_eq(checkpoint_layout_write(a, &x, dir, NULL, &err), OK);
    ck_assert_str_eq(t[0].file, "model.safetensors");
    ck_assert_str_eq(t[1].file, "feedback-0000.safetensors");
    struct checkpoint c = {.folder = dir, .n_tensors = 2, .tensors = t};
    float found[7];
    ck_assert_int_eq(checkpoint_files_agree(a, &c, &err), OK);
    ck_assert_msg(checkpoint_load(&c, "x#0/2", &t[1].shape, DTYPE_fp32, found, &err) == OK, "%s", err.text);
    ck_assert_mem_eq(found, data[1], sizeof found);
}
END_TEST

/* ---- weights that are, or are not, a model's ---------------------------------------------------- */

struct entry {
    const char *name;
    struct shape shape;
};
static const struct weight_wanted tied[] = {{"transformer.wte.weight", MAT(4, 3)}, {"transformer.h.0.ln_1.weight", VEC(3)}, {"transformer.ln_f.bias", VEC(3)}};
static const struct {
    struct entry file[6];
    const char *why;
} folders[] = {
    {{{"transformer.wte.weight", MAT(4, 3)}, {"transformer.h.0.ln_1.weight", VEC(3)}, {"transformer.ln_f.bias", VEC(3)}}, NULL},
    {{{"wte.weight", MAT(4, 3)}, {"h.0.ln_1.weight", VEC(3)}, {"ln_f.bias", VEC(3)}, {"h.0.attn.bias", {4, {1, 1, 2, 2}}}, {"h.0.attn.masked_bias", {0}}}, NULL},
    {{{"transformer.wte.weight", MAT(4, 3)}, {"transformer.h.0.ln_1.weight", VEC(3)}}, "has no tensor transformer.ln_f.bias, which the model needs"},
    {{{"transformer.wte.weight", MAT(3, 4)}}, "model.safetensors': tensor transformer.wte.weight has shape (3, 4), the model's (4, 3)"},
    {{{"transformer.wte.weight", MAT(4, 3)}, {"transformer.ln_g.bias", VEC(3)}}, "tensor transformer.ln_g.bias is not one of the model; did you mean 'transformer.ln_f.bias'?"},
    {{{"transformer.ln_f.bias", VEC(3)}, {"ln_f.bias", VEC(3)}}, "tensor transformer.ln_f.bias in two spellings"},
    {{{"transformer.wte.weight", MAT(4, 3)}, {"transformer.h.0.ln_1.weight", VEC(3)}, {"transformer.ln_f.bias", VEC(3)}, {"lm_head.weight", MAT(4, 3)}},
     "tensor lm_head.weight differs from transformer.wte.weight, and the model's embeddings are tied"},
    {{{"transformer.wte.weight", MAT(4, 3)}, {"lm_head.weight", MAT(3, 4)}}, "lm_head.weight does not repeat transformer.wte.weight: its dtype or shape differs"},
};
START_TEST(weights_are_a_models_or_refused)
{
    struct checkpoint_tensor t[6];
    struct weights w;
    int32_t n = 0;
    for (; folders[_i].file[n].name; n++) t[n] = tensor(folders[_i].file[n].name, DTYPE_fp32, folders[_i].file[n].shape);
    write_folder(t, n, CHECKPOINT_SHARD_BYTES);
    ck_assert_msg(weights_open(a, dir, &w, &err) == OK, "%s", err.text);
    enum status status = weights_match(a, &w, tied, 3, &err);
    ck_assert_msg(status == (folders[_i].why ? ERR_INPUT : OK), "%s", err.text);
    if (folders[_i].why) ck_assert_msg(strstr(err.text, folders[_i].why) != NULL, "'%s' is not in: %s", folders[_i].why, err.text);
}
END_TEST

START_TEST(a_head_that_repeats_the_embeddings_is_accepted)
{
    struct checkpoint_tensor t[2] = {tensor("model.embed_tokens.weight", DTYPE_fp32, MAT(4, 3)), tensor("lm_head.weight", DTYPE_fp32, MAT(4, 3))};
    const void *data[2] = {values_of(&t[0]), values_of(&t[0])};
    struct weight_wanted wanted = {"model.embed_tokens.weight", MAT(4, 3)};
    struct weights w;
    ck_assert_int_eq(checkpoint_write(a, dir, "model.safetensors", t, data, 2, &err), OK);
    ck_assert_int_eq(weights_open(a, dir, &w, &err), OK);
    ck_assert_msg(weights_match(a, &w, &wanted, 1, &err) == OK, "%s", err.text);
}
END_TEST

START_TEST(bert_and_vit_have_their_spellings)
{
    const struct weight_wanted bert = {"bert.embeddings.LayerNorm.weight", VEC(3)}, vit[] = {{"vit.embeddings.cls_token", MAT(1, 3)}};
    struct checkpoint_tensor t[3] = {tensor("bert.embeddings.LayerNorm.gamma", DTYPE_fp32, VEC(3)), tensor("bert.pooler.dense.bias", DTYPE_fp32, VEC(3)),
                                     tensor("cls.seq_relationship.bias", DTYPE_fp32, VEC(2))};
    struct checkpoint_tensor token = tensor("vit.embeddings.cls_token", DTYPE_fp32, MAT(1, 3));
    struct weights w;
    float found[3];
    write_folder(t, 3, CHECKPOINT_SHARD_BYTES);
    ck_assert_int_eq(weights_open(a, dir, &w, &err), OK);
    ck_assert_msg(weights_match(a, &w, &bert, 1, &err) == OK, "%s", err.text);
    ck_assert_msg(weights_load(&w, bert.name, &bert.shape, DTYPE_fp32, found, &err) == OK, "%s", err.text);
    ck_assert_mem_eq(found, values_of(&t[0]), sizeof found);
    ck_assert_int_eq(system(arena_printf(a, "rm '%s'/*", dir)), 0);
    write_folder(&token, 1, CHECKPOINT_SHARD_BYTES);
    ck_assert_int_eq(weights_open(a, dir, &w, &err), OK);
    ck_assert_int_eq(weights_find(&w, token.name)->at->shape.rank, 3);
    ck_assert_msg(weights_match(a, &w, vit, 1, &err) == OK, "%s", err.text);
    ck_assert_msg(weights_load(&w, token.name, &token.shape, DTYPE_fp32, found, &err) == OK, "%s", err.text);
}
END_TEST

/* ---- values ------------------------------------------------------------------------------------- */

START_TEST(values_are_converted)
{
    static const double exact[4] = {0, -1.5, 0.25, 1024};
    for (int from = 0; from < DTYPE_int32; from++)
        for (int to = 0; to < DTYPE_int32; to++) {
            double stored[4], found[4];
            for (int i = 0; i < 4; i++) {
                if (from == DTYPE_fp64) stored[i] = exact[i];
                if (from == DTYPE_fp32) ((float *)stored)[i] = (float)exact[i];
                if (dtype_is_half((enum dtype)from)) ((uint16_t *)stored)[i] = half_of((enum dtype)from, (float)exact[i]);
            }
            struct checkpoint_tensor t = tensor("w", (enum dtype)from, VEC(4));
            const void *data = stored;
            struct weights w;
            ck_assert_int_eq(checkpoint_write(a, dir, "model.safetensors", &t, &data, 1, &err), OK);
            ck_assert_int_eq(weights_open(a, dir, &w, &err), OK);
            ck_assert_msg(weights_load(&w, "w", &t.shape, (enum dtype)to, found, &err) == OK, "%s", err.text);
            for (int i = 0; i < 4; i++) {
                double x = to == DTYPE_fp64   ? found[i]
                           : to == DTYPE_fp32 ? (double)((float *)found)[i]
                                              : (double)half_value((enum dtype)to, ((uint16_t *)found)[i]);
                ck_assert(x == exact[i]);
            }
        }
}
END_TEST

START_TEST(a_value_that_is_not_finite_is_refused)
{
    const double stored[3] = {1, 1e300, 2};
    const void *data = stored;
    struct checkpoint_tensor t = tensor("w", DTYPE_fp64, VEC(3));
    float found[3];
    struct weights w;
    ck_assert_int_eq(checkpoint_write(a, dir, "model.safetensors", &t, &data, 1, &err), OK);
    ck_assert_int_eq(weights_open(a, dir, &w, &err), OK);
    ck_assert_int_eq(weights_load(&w, "w", &t.shape, DTYPE_fp32, found, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "tensor w: element 1 is 1e+300, which fp32 does not have") != NULL, "%s", err.text);
}
END_TEST

START_TEST(weights_are_converted_into_a_new_folder)
{
    struct checkpoint_tensor t[3] = {of_model(0), of_model(1), of_model(2)};
    struct weights w, made;
    const char *out = arena_printf(a, "%s/out", dir);
    write_folder(t, 3, CHECKPOINT_SHARD_BYTES);
    ck_assert_int_eq(weights_open(a, dir, &w, &err), OK);
    ck_assert_msg(weights_convert(a, &w, DTYPE_fp64, 150, out, &err) == OK, "%s", err.text);
    ck_assert_msg(weights_open(a, out, &made, &err) == OK, "%s", err.text);
    ck_assert_int_eq(made.n_files, 3);
    ck_assert_str_eq(made.tensors[0].at->stored, "F64");
    check_values(&made);
    ck_assert(!access(arena_printf(a, "%s/config.json", out), F_OK));
    ck_assert_int_eq(weights_convert(a, &w, DTYPE_fp64, 150, out, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "exists; convert writes a new folder"));
    /* A full disk leaves nothing. */
    checkpoint_fail(28);
    ck_assert_int_eq(weights_convert(a, &w, DTYPE_fp64, 150, arena_printf(a, "%s/other", dir), &err), ERR_RESOURCE);
    checkpoint_fail(0);
    ck_assert_int_eq(system(arena_printf(a, "test \"$(ls -A '%s')\" = \"$(printf 'config.json\\nmodel.safetensors\\nout')\"", dir)), 0);
}
END_TEST

/* ---- the index ---------------------------------------------------------------------------------- */

static const char *const indices[][2] = {
    {"s/wte.weight\": \"model-00002/wte.weight\": \"model-00001/", "has no such tensor"},
    {"s/model-00002-of-00002/..\\/model-00002-of-00002/", "is not a file of this folder"},
    {"s/model-00002-of-00002/model-00003-of-00002/", "model-00003-of-00002.safetensors"},
    {"/ln_1/d", "it has"},
    {"s/weight_map/weights_map/", "weight_map"},
    {"s/ln_1.weight/ln_9.weight/", "has no such tensor"},
};
START_TEST(an_index_that_differs_from_its_files)
{
    struct checkpoint_tensor t[3] = {of_model(0), of_model(1), of_model(2)};
    struct weights w;
    write_folder(t, 3, 140);
    ck_assert_int_eq(system(arena_printf(a, "sed -i '%s' '%s'/model.safetensors.index.json", indices[_i][0], dir)), 0);
    ck_assert_int_eq(weights_open(a, dir, &w, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, indices[_i][1]) != NULL, "'%s' is not in: %s", indices[_i][1], err.text);
}
END_TEST

START_TEST(a_folder_without_weights)
{
    struct weights w;
    ck_assert_int_eq(weights_open(a, dir, &w, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "neither model.safetensors nor model.safetensors.index.json"));
    ck_assert_int_eq(weights_open(a, arena_printf(a, "%s/none", dir), &w, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot read folder"));
}
END_TEST

Suite *weights_suite(void)
{
    Suite *s = suite_create("weights");
    TCase *c = tcase_create("weights");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, ranks_write_into_one_layout);
    tcase_add_test(c, a_tensor_without_a_place_has_a_file_of_its_own);
    tcase_add_loop_test(c, weights_are_a_models_or_refused, 0, sizeof folders / sizeof *folders);
    tcase_add_test(c, a_head_that_repeats_the_embeddings_is_accepted);
    tcase_add_test(c, bert_and_vit_have_their_spellings);
    tcase_add_test(c, values_are_converted);
    tcase_add_test(c, a_value_that_is_not_finite_is_refused);
    tcase_add_test(c, weights_are_converted_into_a_new_folder);
    tcase_add_loop_test(c, an_index_that_differs_from_its_files, 0, sizeof indices / sizeof *indices);
    tcase_add_test(c, a_folder_without_weights);
    suite_add_tcase(s, c);
    return s;
}
