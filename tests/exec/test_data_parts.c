/* Suite of `data` of a job (core/model/data_source) and of its training and validation parts (exec/data/data). */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "exec/data/data.h"
#include "tests/support/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 4 };
static struct arena *arena;

static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

/* data of a job, and back. */
static enum status parse(const char *text, struct data_source *out, struct error *err)
{
    struct node *root;
    ck_assert_msg(document_parse(arena, "job.yaml", text, strlen(text), &root, err) == OK, "%s", err->text);
    return data_source_read(arena, root, "/texts", out, err);
}

static void written(const char *text, const char *as)
{
    struct data_source d;
    struct error err = {0};
    char *out = NULL;
    size_t n = 0;
    ck_assert_msg(parse(text, &d, &err) == OK, "%s", err.text);
    FILE *f = open_memstream(&out, &n);
    data_source_write(f, &d, 0);
    fclose(f);
    ck_assert_str_eq(out, as);
    struct data_source again;
    if (n) ck_assert_msg(parse(out, &again, &err) == OK, "%s", err.text);
    free(out);
}

static void parse_refused(const char *text, const char *why)
{
    struct data_source d;
    struct error err = {0};
    ck_assert_int_eq(parse(text, &d, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

START_TEST(sources_of_a_job)
{
    written("seed: 1\n", "");
    written("data: a.txt\n", "data: \"/texts/a.txt\"\n");
    written("data: {files: [a.txt]}\n", "data: \"/texts/a.txt\"\n");
    written("data: {form: uint16, files: [a.bin, /b.bin]}\n", "data: {form: uint16, files: [\"/texts/a.bin\", \"/b.bin\"]}\n");
    written("data: {files: [{path: a.idx, weight: 3}, {path: b.idx, weight: 0.5}]}\n",
            "data: {files: [{path: \"/texts/a.idx\", weight: 3}, {path: \"/texts/b.idx\", weight: 0.5}]}\n");
    parse_refused("data: {form: uint15, files: [a]}\n", "uint16");
    parse_refused("data: {form: uint16}\n", "files");
    parse_refused("data: {files: []}\n", "1 to 4096 files");
    parse_refused("data: {file: [a]}\n", "files");
    parse_refused("data: {files: [{path: a, weight: 1}, b]}\n", "job.yaml:1:");
    parse_refused("data: {files: [{path: a, weight: 0}]}\n", "must be from 1e-9");
    parse_refused("data: {files: [{weight: 1}]}\n", "path");
    /* A block has 4,096 samples: a part below one of them could not be read as stated. */
    written("data: {files: [{path: a, weight: 4095}, {path: b, weight: 1}]}\n", "data: {files: [{path: \"/texts/a\", weight: 4095}, {path: \"/texts/b\", weight: 1}]}\n");
    parse_refused("data: {files: [{path: a, weight: 4095}, {path: b, weight: 0.999}]}\n", "job.yaml:1:59: data.files[1].weight: is 0.000244 of all weights");
    parse_refused("data: {files: [{path: a, weight: 1}, {path: b, weight: 1e-6}]}\n", "state at least 0.0002442");
    parse_refused("data: ''\n", "must not be empty");
}
END_TEST

START_TEST(validation_of_a_job)
{
    written("data: {files: [a.txt], validation: 0.1}\n", "data: {files: [\"/texts/a.txt\"], validation: 0.1}\n");
    written("data: {form: bytes, files: [a.txt], validation: b.txt}\n", "data: {form: bytes, files: [\"/texts/a.txt\"], validation: [\"/texts/b.txt\"]}\n");
    written("data: {files: [a.txt], validation: [b.txt, ./0.5]}\n", "data: {files: [\"/texts/a.txt\"], validation: [\"/texts/b.txt\", \"/texts/./0.5\"]}\n");
    parse_refused("data: {files: [a.txt], validation: 1}\n", "job.yaml:1:36: data.validation: must be a fraction between 0 and 1");
    parse_refused("data: {files: [a.txt], validation: [{path: b, weight: 2}]}\n", "every validation sample counts once");
    parse_refused("data: {files: [a.txt], validation: []}\n", "1 to 4096 files");
}
END_TEST

/* Which of the file's samples the part has, each once in an epoch; sample i begins with token 100 + 4 i. */
static int64_t part_of(const char *path, double fraction, bool held_out, int *times)
{
    struct data_source source = data_source_of(arena, path, DATA_UINT16);
    struct data d;
    struct error err = {0};
    int32_t tokens[LENGTH];
    source.fraction = fraction, source.held_out = held_out;
    ck_assert_msg(data_open(arena, &source, 1, LENGTH, 1000, &d, &err) == OK, "%s", err.text);
    for (int64_t k = 0; k < d.n_samples; k++) {
        ck_assert_int_eq(data_fill(&d, INPUT_TOKENS, k, tokens, &err), OK);
        times[(tokens[0] - 100) / LENGTH]++;
    }
    data_close(&d);
    return d.n_samples;
}

START_TEST(a_fraction_is_held_out)
{
    unsigned char bytes[2 * 41], *p = bytes;
    for (int i = 100; i < 141; i++) *p++ = (unsigned char)i, *p++ = 0;
    const char *path = arena_printf(arena, "/tmp/musher-parts-%ld", (long)getpid());
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, sizeof bytes, f), sizeof bytes);
    ck_assert_int_eq(fclose(f), 0);
    int train[10] = {0}, held[10] = {0}, few[10] = {0};
    ck_assert_int_eq(part_of(path, 0.3, false, train), 7);
    ck_assert_int_eq(part_of(path, 0.3, true, held), 3);
    for (int i = 0; i < 10; i++) ck_assert(train[i] == (i < 7) && held[i] == (i >= 7));
    ck_assert_int_eq(part_of(path, 0.001, true, few), 1);
    struct data_source source = data_source_of(arena, path, DATA_UINT16);
    struct data d;
    struct error err = {0};
    uint32_t crc[2];
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(data_open(arena, &source, 1, LENGTH, 1000, &d, &err), OK);
        ck_assert_int_eq(data_crc(&d, &crc[i], &err), OK);
        data_close(&d);
        source.fraction = 0.3;
    }
    ck_assert_uint_ne(crc[0], crc[1]);
    source.fraction = 0.96;
    ck_assert_int_eq(data_open(arena, &source, 1, LENGTH, 1000, &d, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "leaves none for training") != NULL, "%s", err.text);
    unlink(path);
}
END_TEST

START_TEST(validation_by_an_option)
{
    struct data_source d = data_source_of(arena, "a.txt", DATA_AUTO), v;
    ck_assert(data_source_validate(arena, &d, "0.25") && d.fraction == 0.25);
    v = data_source_validation(&d);
    ck_assert(v.held_out && v.n_files == 1);
    ck_assert(data_source_validate(arena, &d, "b.txt") && !(d.fraction > 0));
    v = data_source_validation(&d);
    ck_assert(!v.held_out && v.n_files == 1);
    ck_assert_str_eq(v.files[0].path, "b.txt");
    ck_assert(!data_source_validate(arena, &d, "1.0"));
    ck_assert(!data_source_validate(arena, &d, "-0.1"));
}
END_TEST

Suite *data_parts_suite(void)
{
    const TTest *tests[] = {sources_of_a_job, validation_of_a_job, a_fraction_is_held_out, validation_by_an_option};
    Suite *s = suite_create("data_parts");
    TCase *t = tcase_create("data_parts");
    tcase_add_checked_fixture(t, begin, end);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, tests[i]);
    suite_add_tcase(s, t);
    return s;
}
