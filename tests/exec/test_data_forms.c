/* Suite of the forms of training data and of the order of samples: exec/data/data_file, exec/data/sample_order. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "exec/data/data.h"
#include "tests/support/suites.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 4, TOKENS = 41, CIFAR_PIXELS = 3072 };
static struct arena *arena;
static char folder[] = "/tmp/musher-forms-XXXXXX", names[16][64];
static int n_names;

static void begin(void)
{
    arena = arena_new();
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    n_names = 0;
}

static void end(void)
{
    for (int i = 0; i < n_names; i++) unlink(names[i]);
    ck_assert_int_eq(rmdir(folder), 0);
    arena_free(arena);
}

static const char *put(const char *name, const void *bytes, size_t n)
{
    snprintf(names[n_names], sizeof names[0], "%s/%s", folder, name);
    FILE *f = fopen(names[n_names], "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    return names[n_names++];
}

static unsigned char *add(unsigned char *p, int64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)((uint64_t)value >> 8 * i);
    return p + bytes;
}

static unsigned char *add_big(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(value >> 8 * (3 - i));
    return p + 4;
}

static enum status open_text(const char *path, enum data_form form, int64_t vocabulary, struct data *out, struct error *err)
{
    struct data_source source = data_source_of(arena, path, form);
    return data_open(arena, &source, 1, LENGTH, vocabulary, out, err);
}

static void refused(const char *path, enum data_form form, const char *why)
{
    struct data d;
    struct error err = {0};
    ck_assert_int_eq(open_text(path, form, 1000, &d, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

/* Tokens 100, 101, ...: 10 sequences of 4 and their targets; found as that form. */
static void counts(const char *path, enum data_form form, enum data_form found)
{
    struct data d;
    struct error err = {0};
    bool seen[10] = {false};
    ck_assert_msg(open_text(path, form, 1000, &d, &err) == OK, "%s", err.text);
    ck_assert_int_eq(d.files[0].form, found);
    for (int64_t n = 0; n < 10; n++) {
        int32_t tokens[LENGTH], targets[LENGTH];
        ck_assert_int_eq(data_fill(&d, INPUT_TOKENS, n, tokens, &err), OK);
        ck_assert_int_eq(data_fill(&d, INPUT_TARGETS, n, targets, &err), OK);
        for (int t = 0; t < LENGTH; t++) {
            ck_assert_int_eq(tokens[t], tokens[0] + t);
            ck_assert_int_eq(targets[t], tokens[t] + 1);
        }
        ck_assert_int_eq((tokens[0] - 100) % LENGTH, 0);
        seen[(tokens[0] - 100) / LENGTH] = true;
    }
    for (int i = 0; i < 10; i++) ck_assert(seen[i]);
    data_close(&d);
    /* the last token, 140, is beyond a vocabulary of 140 */
    ck_assert_int_eq(open_text(path, form, 140, &d, &err), OK);
    enum status status = OK;
    int32_t tokens[LENGTH];
    for (int64_t n = 0; n < 10 && status == OK; n++) status = data_fill(&d, INPUT_TARGETS, n, tokens, &err);
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_msg(strstr(err.text, "token 40 is 140, the model's vocabulary has 140") != NULL, "%s", err.text);
    data_close(&d);
}

static unsigned char *add_tokens(unsigned char *p, int width)
{
    for (int i = 0; i < TOKENS; i++) p = add(p, 100 + i, width);
    return p;
}

START_TEST(plain_tokens)
{
    unsigned char bytes[4 * TOKENS + 1];
    size_t n = (size_t)(add_tokens(bytes, 2) - bytes);
    const char *path = put("train.bin", bytes, n);
    counts(path, DATA_UINT16, DATA_UINT16);
    refused(path, DATA_AUTO, "does not state its form: write `form: uint16, uint32 or bytes`");
    refused(path, DATA_CIFAR10, "form cifar10 is of images, the model of text");
    refused(put("odd", bytes, n - 1), DATA_UINT16, "has 81 bytes, which are not tokens of 2");
    counts(put("wide", bytes, (size_t)(add_tokens(bytes, 4) - bytes)), DATA_UINT32, DATA_UINT32);
}
END_TEST

START_TEST(token_files_of_llmc)
{
    for (int width = 2; width <= 4; width += 2) {
        unsigned char bytes[1024 + 4 * TOKENS] = {0};
        add(add(add(bytes, width == 2 ? 20240520 : 20240801, 4), 1, 4), TOKENS, 4);
        size_t n = (size_t)(add_tokens(bytes + 1024, width) - bytes);
        const char *path = put(width == 2 ? "a.bin" : "b.bin", bytes, n);
        counts(path, DATA_AUTO, DATA_LLMC);
        counts(path, DATA_LLMC, DATA_LLMC);
        refused(put(width == 2 ? "short" : "short4", bytes, n - 2), DATA_AUTO, "its header states 41 tokens");
        add(bytes + 4, 7, 4);
        refused(put(width == 2 ? "new" : "new4", bytes, n), DATA_AUTO, "has version 7 of llm.c's form");
    }
    unsigned char zero[1024] = {0};
    refused(put("zero", zero, sizeof zero), DATA_LLMC, "has magic number 0");
    refused(put("little", zero, 8), DATA_LLMC, "is shorter than llm.c's header");
}
END_TEST

/* Documents of 20 and 21 tokens. */
static size_t megatron_index(unsigned char *bytes, int type, int width)
{
    memcpy(bytes, "MMIDIDX\0", 9);
    unsigned char *p = add(add(add(add(bytes + 9, 1, 8), type, 1), 2, 8), 3, 8);
    p = add(add(p, 20, 4), 21, 4);
    p = add(add(p, 0, 8), 20 * width, 8);
    return (size_t)(add(add(add(p, 0, 8), 1, 8), 2, 8) - bytes);
}

START_TEST(indexed_datasets_of_megatron)
{
    static const struct {
        int type, width;
    } types[] = {{1, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    unsigned char index[128], tokens[8 * TOKENS];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        n_names = 0;
        const char *idx = put("x.idx", index, megatron_index(index, types[i].type, types[i].width));
        const char *bin = put("x.bin", tokens, (size_t)(add_tokens(tokens, types[i].width) - tokens));
        counts(idx, DATA_AUTO, DATA_MEGATRON);
        counts(bin, DATA_AUTO, DATA_MEGATRON);
        counts(arena_printf(arena, "%s/x", folder), DATA_MEGATRON, DATA_MEGATRON);
    }
    const char *idx = put("x.idx", index, megatron_index(index, 4, 4));
    refused(idx, DATA_AUTO, "has 82 bytes, its index 41 tokens of 4 bytes");
    put("x.idx", index, megatron_index(index, 7, 4));
    refused(idx, DATA_AUTO, "has tokens of type 7, which is not an integer");
    size_t n = megatron_index(index, 8, 2);
    put("x.idx", index, n - 1);
    refused(idx, DATA_AUTO, "too few for its 2 sequences and 3 documents");
    add(index + 34, -1, 4);
    put("x.idx", index, n);
    refused(idx, DATA_AUTO, "sequence 0 has a negative length");
    add(index + 18, INT64_MAX, 8);
    put("x.idx", index, n);
    refused(idx, DATA_AUTO, "too few for its 9223372036854775807 sequences");
    add(index + 9, 3, 8);
    put("x.idx", index, n);
    refused(idx, DATA_AUTO, "has version 3");
    /* of 8-bit signed tokens 200 is -56 */
    struct data d;
    struct error err = {0};
    int32_t out[LENGTH];
    memset(tokens, 200, TOKENS);
    put("x.idx", index, megatron_index(index, 2, 1));
    put("x.bin", tokens, TOKENS);
    ck_assert_int_eq(open_text(idx, DATA_AUTO, 1000, &d, &err), OK);
    ck_assert_int_eq(data_fill(&d, INPUT_TOKENS, 0, out, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, " is -56, the model's vocabulary") != NULL, "%s", err.text);
    data_close(&d);
}
END_TEST

/* Image i of label `first` + i has pixel k = i + k modulo 256. */
static void images(const struct data *d, int n, int64_t pixels, int first)
{
    double *out = ARENA_ARRAY(arena, double, (size_t)pixels);
    int seen = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t label;
        struct error err = {0};
        ck_assert_msg(data_label(d, i, &label, &err) == OK, "%s", err.text);
        ck_assert_int_eq(data_pixels(d, i, DTYPE_fp64, out, &err), OK);
        ck_assert(label >= first && label < first + n);
        seen |= 1 << (label - first);
        /* the largest pixel is 255 */
        for (int64_t k = 0; k < pixels && k < 512; k++) {
            int byte = (int)((label - first + k) % 256), other = (int)((label - first + k + 1) % 256);
            if (k + 1 < pixels) ck_assert((out[k] < out[k + 1]) == (byte < other));
        }
    }
    ck_assert_int_eq(seen, (1 << n) - 1);
}

static enum status open_images(const char *path, enum data_form form, int64_t pixels, int64_t classes, struct data *out, struct error *err)
{
    struct data_source source = data_source_of(arena, path, form);
    return data_open_images(arena, &source, 5, pixels, classes, out, err);
}

START_TEST(records_of_cifar)
{
    enum { N = 5 };
    static unsigned char bytes[N * (CIFAR_PIXELS + 2)];
    struct data d;
    struct error err = {0};
    for (int labels = 1; labels <= 2; labels++) {
        enum data_form form = labels == 1 ? DATA_CIFAR10 : DATA_CIFAR100;
        unsigned char *p = bytes;
        for (int i = 0; i < N; i++) {
            if (labels == 2) *p++ = 7;
            *p++ = (unsigned char)i;
            for (int k = 0; k < CIFAR_PIXELS; k++) *p++ = (unsigned char)(i + k);
        }
        const char *path = put(labels == 1 ? "data_batch_1.bin" : "train.bin", bytes, (size_t)(p - bytes));
        ck_assert_int_eq(open_images(path, form, CIFAR_PIXELS, labels == 1 ? 10 : 100, &d, &err), OK);
        images(&d, N, CIFAR_PIXELS, 0);
        data_close(&d);
        ck_assert_int_eq(open_images(path, DATA_AUTO, CIFAR_PIXELS, 10, &d, &err), ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, "`form: cifar10, cifar100 or bytes`"));
        ck_assert_int_eq(open_images(path, form, 784, 10, &d, &err), ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, "have 3072 pixels, the model's 784"));
        ck_assert_int_eq(open_images(path, form == DATA_CIFAR10 ? DATA_CIFAR100 : DATA_CIFAR10, CIFAR_PIXELS, 10, &d, &err), ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, "which are not records of"));
        ck_assert_int_eq(open_images(path, form, CIFAR_PIXELS, labels == 1 ? 2 : 21, &d, &err), OK);
        enum status status = OK;
        int32_t label;
        for (int i = 0; i < N && status == OK; i++) status = data_label(&d, i, &label, &err);
        ck_assert_int_eq(status, labels == 1 ? ERR_INPUT : OK);
        if (labels == 1) ck_assert_ptr_nonnull(strstr(err.text, "the model has 2 classes"));
        data_close(&d);
    }
    ck_assert_int_eq(open_images(names[1], DATA_CIFAR100, CIFAR_PIXELS, 20, &d, &err), OK); /* coarse labels */
    int32_t label;
    ck_assert_int_eq(data_label(&d, 0, &label, &err), OK);
    ck_assert_int_eq(label, 7);
    data_close(&d);
}
END_TEST

START_TEST(files_of_mnist)
{
    enum { N = 3, SIDE = 28, PIXELS = SIDE * SIDE };
    static unsigned char bytes[16 + N * PIXELS];
    unsigned char labels[8 + N], *p = add_big(add_big(add_big(add_big(bytes, 0x803), N), SIDE), SIDE);
    struct data d;
    struct error err = {0};
    for (int i = 0; i < N; i++)
        for (int k = 0; k < PIXELS; k++) *p++ = (unsigned char)(i + k);
    const char *path = put("train-images-idx3-ubyte", bytes, sizeof bytes);
    ck_assert_int_eq(open_images(path, DATA_AUTO, PIXELS, 10, &d, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "train-labels-idx1-ubyte"));
    p = add_big(add_big(labels, 0x801), N);
    for (int i = 0; i < N; i++) *p++ = (unsigned char)i;
    put("train-labels-idx1-ubyte", labels, sizeof labels);
    ck_assert_msg(open_images(path, DATA_AUTO, PIXELS, 10, &d, &err) == OK, "%s", err.text);
    images(&d, N, PIXELS, 0);
    uint32_t crc, changed;
    ck_assert_int_eq(data_crc(&d, &crc, &err), OK);
    data_close(&d);
    labels[8] ^= 1;
    put("train-labels-idx1-ubyte", labels, sizeof labels);
    ck_assert_int_eq(open_images(path, DATA_MNIST, PIXELS, 10, &d, &err), OK);
    ck_assert_int_eq(data_crc(&d, &changed, &err), OK);
    ck_assert(crc != changed);
    data_close(&d);
    ck_assert_int_eq(open_images(path, DATA_MNIST, 3072, 10, &d, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "images of 28 x 28 pixels, the model's have 3072"));
    put("train-labels-idx1-ubyte", labels, sizeof labels - 1);
    ck_assert_int_eq(open_images(path, DATA_MNIST, PIXELS, 10, &d, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "3 labels in 10 bytes for 3 images"));
    put("train-images-idx3-ubyte", bytes, sizeof bytes - 1);
    ck_assert_int_eq(open_images(path, DATA_MNIST, PIXELS, 10, &d, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "its header states 3 images"));
}
END_TEST

START_TEST(permutations_are_permutations)
{
    for (int64_t n = 1; n < 300; n += n < 40 ? 1 : 37) {
        int differ = 0;
        for (uint64_t number = 0; number < 5; number++) {
            bool seen[300] = {false};
            for (int64_t x = 0; x < n; x++) {
                int64_t y = sample_order_permuted(3, number, n, x);
                ck_assert(y >= 0 && y < n && !seen[y]);
                seen[y] = true;
                differ += y != sample_order_permuted(3, number + 1, n, x);
            }
        }
        if (n > 20) ck_assert_int_gt(differ, 4 * n);
    }
    for (int64_t x = 0; x < 100; x++) ck_assert(sample_order_permuted(3, 0, INT64_C(3000000000000), x) < INT64_C(3000000000000));
}
END_TEST

/* Places of 0 after 6,000 permutations of 6 numbers: each 1,000 times, give or take five standard deviations. */
START_TEST(every_place_is_as_likely)
{
    int at[6] = {0};
    for (uint64_t number = 0; number < 6000; number++) at[sample_order_permuted(9, number, 6, 0)]++;
    for (int i = 0; i < 6; i++) ck_assert_msg(labs((long)at[i] - 1000) < 145, "%d at %d", at[i], i);
}
END_TEST

START_TEST(files_without_weights_are_one_data_set)
{
    const int64_t n[] = {3, 50, 1};
    const double none[] = {0, 0, 0};
    struct sample_order o;
    sample_order_make(arena, 4, 3, n, none, &o);
    for (int64_t epoch = 0; epoch < 10; epoch++) {
        bool seen[3][50] = {{false}};
        for (int64_t i = 0; i < 54; i++) {
            struct sample_place x = sample_order_at(&o, epoch * 54 + i);
            ck_assert(x.sample >= 0 && x.sample < n[x.file] && !seen[x.file][x.sample]);
            seen[x.file][x.sample] = true;
        }
    }
}
END_TEST

START_TEST(weights_are_kept_in_every_block)
{
    const int64_t n[] = {1000, 100000, 7, 300};
    const double weights[] = {2, 1, 0.00001, 1};
    static int seen[4][100000];
    struct sample_order o;
    sample_order_make(arena, 4, 4, n, weights, &o);
    int64_t all[4] = {0};
    for (int64_t block = 0; block < 6; block++) {
        int64_t of[4] = {0};
        for (int64_t i = 0; i < SAMPLE_ORDER_BLOCK; i++) {
            struct sample_place x = sample_order_at(&o, block * SAMPLE_ORDER_BLOCK + i);
            ck_assert(x.sample >= 0 && x.sample < n[x.file]);
            of[x.file]++, all[x.file]++, seen[x.file][x.sample]++;
        }
        ck_assert_int_eq(of[2], 1);
        ck_assert(llabs(of[0] - 2048) <= 1 && llabs(of[1] - 1024) <= 1 && llabs(of[3] - 1024) <= 1);
        ck_assert_int_eq(of[0] + of[1] + of[2] + of[3], SAMPLE_ORDER_BLOCK);
    }
    /* Epochs of each file: counts differ by at most one. */
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < n[k]; i++) ck_assert_msg(seen[k][i] == all[k] / n[k] || seen[k][i] == all[k] / n[k] + 1, "file %d", k);
}
END_TEST

Suite *data_forms_suite(void)
{
    const TTest *tests[] = {plain_tokens,
                            token_files_of_llmc,
                            indexed_datasets_of_megatron,
                            records_of_cifar,
                            files_of_mnist,
                            permutations_are_permutations,
                            every_place_is_as_likely,
                            files_without_weights_are_one_data_set,
                            weights_are_kept_in_every_block};
    Suite *s = suite_create("data_forms");
    TCase *t = tcase_create("data_forms");
    tcase_add_checked_fixture(t, begin, end);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, tests[i]);
    suite_add_tcase(s, t);
    return s;
}
