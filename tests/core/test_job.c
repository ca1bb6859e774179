/* job.yaml: what is read, its defaults, what is refused and where.
 */
#include "core/base/arena.h"
#include "core/cluster/cluster.h"
#include "core/model/job.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static struct error err;

static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

/* tests/data/jobs/bad/NAME.yaml, the place in it and what the message says there. */
static const struct {
    const char *name;
    int line, column;
    const char *says, *message_too;
} bad[] = {
    {"unknown-key", 9, 7, "sead: unknown key", ""},
    {"no-model", 1, 1, "'model' is missing", ""},
    {"missing-model-file", 2, 8, "model: ", "nowhere.json"},
    {"bad-model-file", 2, 8, "n_head", ""},
    {"bad-inline-model", 2, 21, "model.model_type: must be one of", ""},
    {"sequence-too-long", 3, 18, "sequence_length: 129 is longer than the 128 positions", ""},
    {"zero-sequence", 3, 18, "sequence_length: must be a whole number from 1", ""},
    {"no-batch", 1, 1, "'global_batch' is missing", ""},
    {"fractional-batch", 4, 15, "global_batch: must be a whole number", ""},
    {"huge-batch", 4, 15, "global_batch: must be a whole number", ""},
    {"microbatch-does-not-divide", 5, 13, "microbatch: 3 does not divide global_batch 8", ""},
    {"microbatch-list-does-not-divide", 5, 17, "microbatch[1]: 5 does not divide global_batch 8",
     ""},
    {"microbatch-twice", 5, 17, "microbatch[1]: 2 is given twice", ""},
    {"microbatch-empty", 5, 13, "must be 1 to 16 sizes", ""},
    {"precision", 6, 12, "precision: must be one of fp32, fp64, bf16, fp16", ""},
    {"precision-int", 6, 12, "precision: must be one of", ""},
    {"layers-word", 7, 9, "layers: must be coarse, fine or a number of layers", ""},
    {"layers-none", 7, 9, "layers: must be coarse, fine or a number of layers", ""},
    {"dropout-word", 7, 10, "dropout: must be config, or a rate", ""},
    {"dropout-of-all", 7, 10, "dropout: must be config, or a rate", ""},
    {"optimizer-kind", 7, 19, "optimizer.kind: must be one of adamw, sgd", ""},
    {"optimizer-not-a-map", 7, 12, "optimizer: must be a map", ""},
    {"sgd-with-beta", 7, 41, "optimizer.beta2: unknown key", ""},
    {"zero-lr", 7, 30, "optimizer.lr: must be above 0", ""},
    {"negative-lr", 7, 30, "optimizer.lr: must be a number from 0", ""},
    {"infinite-lr", 7, 30, "optimizer.lr: must be a number", ""},
    {"beta-of-1", 7, 43, "optimizer.beta1: must be below 1", ""},
    {"zero-eps", 7, 41, "optimizer.eps: must be above 0", ""},
    {"negative-seed", 9, 7, "seed: must be a whole number of at least 0", ""},
    {"data-form", 8, 14, "data.form: must be one of auto, bytes, uint16", ""},
    {"seed-in-quotes", 9, 7, "seed: must be a whole number", ""},
};

START_TEST(a_bad_job_is_refused_with_its_place_and_the_reason)
{
    char path[160], place[200];
    struct job x;
    snprintf(path, sizeof path, "tests/data/jobs/bad/%s.yaml", bad[_i].name);
    snprintf(place, sizeof place, "%s:%d:%d: ", path, bad[_i].line, bad[_i].column);
    enum status status = job_read(arena, path, &x, &err);
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_msg(strstr(err.text, place) == err.text, "%s\nexpected at %s", err.text, place);
    ck_assert_msg(strstr(err.text, bad[_i].says) && strstr(err.text, bad[_i].message_too),
                  "%s\nexpected: %s %s", err.text, bad[_i].says, bad[_i].message_too);
    ck_assert_int_eq(job_read(arena, path, &x, NULL) == OK, false);
}
END_TEST

static enum status parse(const char *text, struct job *out)
{
    struct node *root;
    ck_assert_msg(document_parse(arena, "text", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    return job_parse(arena, root, "tests/data/jobs", out, &err);
}

static const char *written(const struct job *j, int indent)
{
    char *buffer = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&buffer, &n);
    job_write(out, arena, j, indent);
    fclose(out);
    char *text = arena_strdup(arena, buffer);
    free(buffer);
    return text;
}

#define SHORT                                                                                      \
    "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 2, n_positions: 16, "   \
    "vocab_size: 300}\n"                                                                           \
    "sequence_length: 16\nglobal_batch: 4\n"

START_TEST(another_kind_of_file_is_named)
{
    struct job j;
    struct cluster c;
    struct error e = {0};
    ck_assert_int_eq(job_read(arena, "examples/team.yaml", &j, &e), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(e.text, "this is a cluster (it has 'nodes'); a job was expected"));
    ck_assert_int_eq(cluster_read(arena, "examples/job.yaml", &c, &e), ERR_INPUT);
    ck_assert_ptr_nonnull(
        strstr(e.text, "this is a job (it has 'global_batch'); a cluster was expected"));
}
END_TEST

START_TEST(a_job_is_read_as_written)
{
    struct job j;
    char data[4096];
    ck_assert_msg(job_read(arena, "tests/data/jobs/tiny.yaml", &j, &err) == OK, "%s", err.text);
    ck_assert_str_eq(j.model.name, "tiny-gpt2");
    ck_assert(j.sequence_length == 64 && j.global_batch == 8 && j.seed == 7 &&
              j.precision == DTYPE_fp32);
    ck_assert(j.n_microbatches_sizes == 2 && j.microbatch_sizes[0] == 1 &&
              j.microbatch_sizes[1] == 2);
    ck_assert_int_eq(j.optimizer.kind, OPTIMIZER_ADAMW);
    ck_assert_double_eq(j.optimizer.lr, 5e-4);
    ck_assert_double_eq(j.optimizer.weight_decay, 0);
    ck_assert_double_eq(j.optimizer.beta2, 0.999);
    ck_assert_ptr_nonnull(realpath("tests/data/models/tiny-gpt2.json", data));
    ck_assert_int_eq(j.data.n_files, 1);
    ck_assert(*j.data.files[0].path == '/');
    char *real = realpath(j.data.files[0].path, NULL);
    ck_assert_str_eq(real, data);
    free(real);
}
END_TEST

START_TEST(what_is_not_said_has_a_default)
{
    struct job j;
    ck_assert_msg(job_read(arena, "tests/data/jobs/short.yaml", &j, &err) == OK, "%s", err.text);
    ck_assert(j.n_microbatches_sizes == 0 && !j.data.n_files && j.seed == 1 && j.precision == DTYPE_fp32);
    ck_assert_int_eq(j.optimizer.kind, OPTIMIZER_ADAMW);
    ck_assert_double_eq(j.optimizer.lr, 1e-3);
    ck_assert_double_eq(j.optimizer.beta1, 0.9);
    ck_assert_double_eq(j.optimizer.eps, 1e-8);
    ck_assert_double_eq(j.optimizer.weight_decay, 0.01);
    ck_assert_int_eq(optimizer_state_tensors(&j.optimizer), 2);
    ck_assert(parse(SHORT "optimizer: {kind: sgd, lr: 0.1}\nmicrobatch: 2\nprecision: bfloat16\n",
                    &j) == OK);
    ck_assert(j.optimizer.kind == OPTIMIZER_SGD && j.n_microbatches_sizes == 1 &&
              j.precision == DTYPE_bf16);
    ck_assert_double_eq(j.optimizer.weight_decay, 0);
    ck_assert_int_eq(optimizer_state_tensors(&j.optimizer), 0);
    ck_assert_int_eq(j.layers.by, LAYERS_DEFAULT);
    ck_assert_ptr_null(strstr(written(&j, 0), "layers:")); /* so that older plans keep their hash */
    ck_assert(parse(SHORT "layers: 98\n", &j) == OK);
    ck_assert(j.layers.by == LAYERS_NUMBER && j.layers.n == 98);
    ck_assert(j.dropout == DROPOUT_NONE && j.model.hidden_dropout == 0);
    ck_assert_ptr_null(strstr(written(&j, 0), "dropout:"));
    ck_assert(parse(SHORT "dropout: config\n", &j) == OK);
    ck_assert(j.model.hidden_dropout == 0.1 && j.model.embedding_dropout == 0.1); /* gpt2's */
    ck_assert(parse(SHORT "dropout: 0.4\n", &j) == OK);
    ck_assert(j.model.hidden_dropout == 0.4 && j.model.embedding_dropout == 0.4);
}
END_TEST

/* Of 4 experts for 2 each, the largest load is twice the even one. */
START_TEST(imbalance_is_for_models_with_experts_without_a_capacity)
{
    struct job j;
    ck_assert_int_eq(parse(SHORT "expert_imbalance: 2\n", &j), ERR_INPUT);
    const char *mixtral =
        "version: 1\nmodel: {model_type: mixtral, hidden_size: 8, intermediate_size: 8, "
        "num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1, vocab_size: 256, "
        "num_local_experts: 4, num_experts_per_tok: 2, max_position_embeddings: 16%s}\n"
        "sequence_length: 16\nglobal_batch: 2\n%s";
    char text[600];
    snprintf(text, sizeof text, mixtral, "", "expert_imbalance: 1.5\n");
    ck_assert_int_eq(parse(text, &j), OK);
    ck_assert_int_eq(model_capacity(&j.model, 16), 12);
    ck_assert_ptr_nonnull(strstr(written(&j, 0), "expert_imbalance: 1.5\n"));
    snprintf(text, sizeof text, mixtral, "", "expert_imbalance: 0.5\n");
    ck_assert_int_eq(parse(text, &j), ERR_INPUT);
    snprintf(text, sizeof text, mixtral, ", capacity_factor: 1.25", "expert_imbalance: 2\n");
    ck_assert_int_eq(parse(text, &j), ERR_INPUT);
}
END_TEST

START_TEST(balance_is_for_models_with_experts)
{
    struct job j;
    ck_assert_int_eq(parse(SHORT "balance: 0.1\n", &j), ERR_INPUT);
    static const char mixtral[] =
        "version: 1\nmodel: {model_type: mixtral, hidden_size: 8, intermediate_size: 8, "
        "num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1, vocab_size: 256, "
        "num_local_experts: 4, num_experts_per_tok: 2, max_position_embeddings: 8}\n"
        "sequence_length: 4\nglobal_batch: 2\n";
    char text[600];
    for (int k = 0; k < 2; k++) {
        snprintf(text, sizeof text, "%s%s", mixtral, k ? "balance: 0.02\n" : "");
        ck_assert_int_eq(parse(text, &j), OK);
        ck_assert(j.model.balance == (k ? 0.02 : 0));
        ck_assert(!strstr(written(&j, 0), "balance: 0.02\n") == !k);
    }
    struct job again;
    const char *out = written(&j, 0);
    ck_assert_int_eq(parse(out, &again), OK);
    ck_assert_str_eq(written(&again, 0), out);
}
END_TEST

START_TEST(what_is_written_reads_back_to_the_same_text)
{
    static const char *const more[] = {
        "",
        "microbatch: 2\nseed: 0\n",
        "microbatch: [4, 1]\nprecision: fp64\n",
        "layers: coarse\n",
        "layers: fine\nmicrobatch: 4\n",
        "layers: 98\n",
        "optimizer: {kind: sgd, lr: 1e-2}\n",
        "optimizer: {kind: sgd, lr: 1e-2, lr_rule: {kind: sqrt, batch: 48}}\n",
        "optimizer: {kind: sgd, momentum: 0.9, nesterov: true, weight_decay: 1e-4, decay: all, max_grad_norm: 0.5}\n",
        "optimizer: {kind: lion, lr: 3e-5, beta2: 0.98, weight_decay: 0.3, max_grad_norm: 1}\n",
        "optimizer: {decay: matrices, max_grad_norm: 2}\n",
        "optimizer: {kind: lamb, lr_rule: {kind: linear, batch: 1}, eps: 1e-4}\n",
        "optimizer: {kind: lars, momentum: 0.5, trust: 0.25, weight_decay: 0}\n",
        "dropout: config\n",
        "dropout: 0.30000000000000004\n",
        ("optimizer: {lr: 0.30000000000000004, beta1: 0, eps: 1e-12}\n"
         "data: \"a # b: \\\"c\\\"\\u0085.txt\"\n")};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        struct job j, again;
        ck_assert_msg(parse(arena_printf(arena, "%s%s", SHORT, more[i]), &j) == OK, "%s", err.text);
        const char *text = written(&j, 2);
        ck_assert_msg(parse(text, &again) == OK, "%s\n%s", err.text, text);
        ck_assert_str_eq(written(&again, 2), text);
        ck_assert(j.seed == again.seed && j.precision == again.precision &&
                  j.global_batch == again.global_batch &&
                  j.n_microbatches_sizes == again.n_microbatches_sizes &&
                  j.optimizer.kind == again.optimizer.kind && j.optimizer.rule == again.optimizer.rule && j.layers.by == again.layers.by &&
                  j.layers.n == again.layers.n);
        ck_assert(j.dropout == again.dropout && j.dropout_rate == again.dropout_rate &&
                  j.model.hidden_dropout == again.model.hidden_dropout &&
                  j.model.embedding_dropout == again.model.embedding_dropout);
        ck_assert(!memcmp(j.microbatch_sizes, again.microbatch_sizes, sizeof j.microbatch_sizes));
        ck_assert_double_eq(j.optimizer.lr, again.optimizer.lr);
        ck_assert_int_eq(j.data.n_files, again.data.n_files);
        if (j.data.n_files) ck_assert_str_eq(j.data.files[0].path, again.data.files[0].path);
    }
}
END_TEST

START_TEST(rates_follow_the_batch)
{
    struct optimizer o = {.kind = OPTIMIZER_SGD, .lr = 0.1, .rule_batch = 64};
    ck_assert(optimizer_lr(&o, 256) == 0.1 && !optimizer_describe_lr(arena, &o, 256));
    o.rule = LR_RULE_LINEAR;
    ck_assert(optimizer_lr(&o, 256) == 0.4 && optimizer_lr(&o, 64) == 0.1 && optimizer_lr(&o, 16) == 0.025);
    o.rule = LR_RULE_SQRT;
    ck_assert(optimizer_lr(&o, 256) == 0.2 && optimizer_lr(&o, 16) == 0.05);
    ck_assert_str_eq(optimizer_describe_lr(arena, &o, 256), "0.2: 0.1 for 64 sequences a step, sqrt rule, here 256");
}
END_TEST

Suite *job_suite(void)
{
    Suite *s = suite_create("core/model/job");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_bad_job_is_refused_with_its_place_and_the_reason, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(t, another_kind_of_file_is_named);
    tcase_add_test(t, a_job_is_read_as_written);
    tcase_add_test(t, what_is_not_said_has_a_default);
    tcase_add_test(t, balance_is_for_models_with_experts);
    tcase_add_test(t, imbalance_is_for_models_with_experts_without_a_capacity);
    tcase_add_test(t, rates_follow_the_batch);
    tcase_add_test(t, what_is_written_reads_back_to_the_same_text);
    suite_add_tcase(s, t);
    return s;
}
