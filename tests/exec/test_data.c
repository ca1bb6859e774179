/* Suite of exec/data/data. */
#include "core/base/arena.h"
#include "exec/data/data.h"
#include "tests/support/data.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { LENGTH = 8, BYTES = 100 };
static struct arena *arena;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

/* path NULL: no file. */
static enum status open_text(const char *path, uint64_t seed, int64_t length, int64_t vocabulary, struct data *out, struct error *err)
{
    struct data_source source = data_source_of(arena, path, DATA_AUTO);
    return data_open(arena, &source, seed, length, vocabulary, out, err);
}

/* First token of a sequence. */
static int64_t data_offset(const struct data *d, int64_t n) { return sample_order_at(&d->order, n).sample * d->sequence_length; }

/* A file of the bytes 0, 1, … n-1, already without a name. */
static const char *bytes_file(int n)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/musher-data-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    for (int i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)i;
        ck_assert_int_eq(write(fd, &byte, 1), 1);
    }
    close(fd);
    return path;
}

static struct data open_bytes(int n, uint64_t seed)
{
    struct data d;
    struct error err = {0};
    const char *path = bytes_file(n);
    ck_assert_msg(open_text(path, seed, LENGTH, 256, &d, &err) == OK, "%s", err.text);
    unlink(path);
    return d;
}

static void fill(const struct data *d, enum tensor_input input, int64_t sequence, int32_t *out)
{
    ck_assert_int_eq(data_fill(d, input, sequence, out, NULL), OK);
}

static void draw(const struct data *d, int64_t image, enum dtype t, void *out)
{
    ck_assert_int_eq(data_pixels(d, image, t, out, NULL), OK);
}

static int32_t label_of(const struct data *d, int64_t image)
{
    int32_t label = -1;
    ck_assert_int_eq(data_label(d, image, &label, NULL), OK);
    return label;
}

START_TEST(targets_are_the_tokens_one_byte_later)
{
    struct data d = open_bytes(BYTES, 1);
    for (int64_t sample = 0; sample < 200; sample++) {
        int32_t tokens[LENGTH], targets[LENGTH], positions[LENGTH];
        fill(&d, INPUT_TOKENS, sample, tokens);
        fill(&d, INPUT_TARGETS, sample, targets);
        fill(&d, INPUT_POSITIONS, sample, positions);
        for (int t = 0; t < LENGTH; t++) {
            ck_assert_int_eq(tokens[t], data_offset(&d, sample) + t);
            ck_assert_int_eq(targets[t], tokens[t] + 1);
            ck_assert_int_eq(positions[t], t);
        }
    }
    data_close(&d);
}
END_TEST

/* 100 bytes are 12 sequences of 8, and the target of the last one. */
START_TEST(an_epoch_has_every_sequence_once)
{
    struct data d = open_bytes(BYTES, 1);
    int differ = 0;
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        int seen[12] = {0};
        for (int64_t i = 0; i < 12; i++) {
            int64_t offset = data_offset(&d, 12 * epoch + i);
            ck_assert_int_eq(offset % LENGTH, 0);
            ck_assert(offset >= 0 && offset / LENGTH < 12);
            seen[offset / LENGTH]++;
            differ += offset != data_offset(&d, i);
        }
        for (int k = 0; k < 12; k++) ck_assert_int_eq(seen[k], 1);
    }
    ck_assert_int_gt(differ, 180);
    data_close(&d);
}
END_TEST

START_TEST(sequences_depend_on_seed_and_number_alone)
{
    struct data a = open_bytes(BYTES, 1), b = open_bytes(BYTES, 2);
    int by_seed = 0, by_number = 0;
    for (int64_t sample = 0; sample < 50; sample++) {
        ck_assert_int_eq(data_offset(&a, sample), data_offset(&a, sample));
        by_seed += data_offset(&a, sample) != data_offset(&b, sample);
        by_number += data_offset(&a, sample) != data_offset(&a, sample + 60);
    }
    ck_assert_int_gt(by_seed, 35);
    ck_assert_int_gt(by_number, 35);
    data_close(&a);
    data_close(&b);
}
END_TEST

/* A byte in the middle of a large file is not looked at; every byte of a small one is. */
static uint32_t crc_of_file(int64_t size, int64_t at, char byte)
{
    struct data d;
    struct error err = {0};
    const char *path = bytes_file(BYTES);
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(ftruncate(fileno(f), (off_t)size), 0);
    ck_assert_int_eq(fseeko(f, (off_t)at, SEEK_SET), 0);
    fputc(byte, f);
    fclose(f);
    ck_assert_int_eq(open_text(path, 1, LENGTH, 256, &d, &err), OK);
    uint32_t crc = 0;
    ck_assert_int_eq(data_crc(&d, &crc, &err), OK);
    data_close(&d);
    unlink(path);
    return crc;
}

START_TEST(a_file_is_known_by_its_crc)
{
    const int64_t small = 1 << 20, large = (INT64_C(64) << 20) + 1;
    ck_assert(crc_of_file(small, 500000, 'x') != crc_of_file(small, 500000, 'y'));
    ck_assert(crc_of_file(large, 0, 'x') != crc_of_file(large, 0, 'y'));
    ck_assert(crc_of_file(large, large - 1, 'x') != crc_of_file(large, large - 1, 'y'));
    ck_assert(crc_of_file(large, large / 2, 'x') == crc_of_file(large, large / 2, 'y'));
}
END_TEST

static void refused(const char *path, int64_t vocabulary, const char *why)
{
    struct data d;
    struct error err = {0};
    ck_assert_int_eq(open_text(path, 1, LENGTH, vocabulary, &d, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

START_TEST(what_cannot_be_read_is_refused_by_name)
{
    refused("/nowhere/at-all.txt", 256, "/nowhere/at-all.txt");
    refused("/tmp", 256, "not a regular file");
    const char *path = bytes_file(LENGTH);
    refused(path, 256, "need at least 9");
    unlink(path);
    path = bytes_file(LENGTH + 2);
    refused(path, 255, "vocabulary of 255");
    unlink(path);
}
END_TEST

START_TEST(without_a_file_ids_are_below_the_vocabulary)
{
    struct data d;
    struct error err = {0};
    int32_t ids[LENGTH];
    ck_assert_int_eq(open_text(NULL, 1, LENGTH, 7, &d, &err), OK);
    for (int64_t sample = 0; sample < 50; sample++) {
        fill(&d, INPUT_TOKENS, sample, ids);
        for (int t = 0; t < LENGTH; t++) ck_assert(ids[t] >= 0 && ids[t] < 7);
    }
    data_close(&d);
}
END_TEST

START_TEST(hidden_positions_have_a_fixed_number_and_depend_on_seed_and_sequence_alone)
{
    enum { LONG = 40 };
    struct data d, other;
    struct error err = {0};
    int differ = 0, at[LONG] = {0};
    const char *path = bytes_file(200);
    ck_assert_int_eq(open_text(path, 1, LONG, 300, &d, &err), OK);
    ck_assert_int_eq(open_text(path, 2, LONG, 300, &other, &err), OK);
    unlink(path);
    for (int64_t sample = 0; sample < 400; sample++) {
        int32_t plain[LONG], tokens[LONG], targets[LONG], again[LONG], segments[LONG];
        int hidden = 0;
        fill(&d, INPUT_TOKENS, sample, plain);
        fill(&d, INPUT_MASKED_TARGETS, sample, targets);
        fill(&d, INPUT_MASKED_TOKENS, sample, tokens);
        fill(&d, INPUT_SEGMENTS, sample, segments);
        fill(&other, INPUT_MASKED_TARGETS, sample, again);
        for (int t = 0; t < LONG; t++) {
            bool is = targets[t] != -1;
            hidden += is, at[t] += is, differ += is && again[t] == -1;
            ck_assert_int_eq(tokens[t], is ? 256 : plain[t]);
            if (is) ck_assert_int_eq(targets[t], plain[t]);
            ck_assert_int_eq(segments[t], 0);
        }
        ck_assert_int_eq(hidden, 6); /* 0.15 · 40 */
    }
    ck_assert_int_gt(differ, 400);
    /* each position 60 times of 400, give or take five standard deviations */
    for (int t = 0; t < LONG; t++) ck_assert(at[t] > 60 - 36 && at[t] < 60 + 36);
    data_close(&d);
    data_close(&other);
}
END_TEST

START_TEST(a_small_vocabulary_hides_behind_its_last_word)
{
    struct data d;
    struct error err = {0};
    int32_t tokens[LENGTH], targets[LENGTH];
    ck_assert_int_eq(open_text(NULL, 1, LENGTH, 7, &d, &err), OK);
    fill(&d, INPUT_MASKED_TOKENS, 5, tokens);
    fill(&d, INPUT_MASKED_TARGETS, 5, targets);
    int hidden = 0;
    for (int t = 0; t < LENGTH; t++) {
        hidden += targets[t] >= 0;
        if (targets[t] >= 0) ck_assert_int_eq(tokens[t], 6);
    }
    ck_assert_int_eq(hidden, 1);
    data_close(&d);
}
END_TEST

static struct data open_images(const char *path, int64_t pixels, int64_t classes)
{
    struct data d;
    struct error err = {0};
    struct data_source source = data_source_of(arena, path, DATA_AUTO);
    ck_assert_msg(data_open_images(arena, &source, 3, pixels, classes, &d, &err) == OK, "%s", err.text);
    return d;
}

/* 11 pixels, 3 classes: stretches of 3, two left over. The bytes of the file grow, so the last stretch is the largest. */
START_TEST(pixels_are_bytes_about_their_mean)
{
    const char *path = bytes_file(BYTES);
    struct data d = open_images(path, 11, 3);
    float single[11];
    double pixels[11];
    unlink(path);
    for (int64_t n = 0; n < 50; n++) {
        draw(&d, n, DTYPE_fp64, pixels);
        draw(&d, n, DTYPE_fp32, single);
        for (int i = 0; i < 11; i++) {
            ck_assert_double_eq_tol(pixels[i], (i - 5) / sqrt(10.0), 1e-14);
            ck_assert(single[i] == (float)pixels[i]);
        }
        ck_assert_int_eq(label_of(&d, n), 2);
    }
    data_close(&d);
}
END_TEST

/* Of random images: no file, then any class is as good as another. */
START_TEST(labels_are_the_brightest_stretch_and_all_come_up)
{
    enum { PIXELS = 45, CLASSES = 4, N = 400, STRETCH = 8 };
    struct data d = open_images(NULL, PIXELS, CLASSES);
    int seen[CLASSES] = {0};
    double pixels[PIXELS];
    for (int64_t n = 0; n < N; n++) {
        double most = -INFINITY;
        int32_t want = -1, label;
        draw(&d, n, DTYPE_fp64, pixels);
        for (int k = 0; k < CLASSES; k++) {
            double sum = 0;
            for (int i = 0; i < STRETCH; i++) sum += pixels[k * STRETCH + i];
            if (sum > most + 1e-9) most = sum, want = k;
        }
        fill(&d, INPUT_LABELS, n, &label);
        ck_assert_int_eq(label, want);
        seen[label]++;
    }
    for (int k = 0; k < CLASSES; k++) ck_assert_int_gt(seen[k], N / CLASSES / 2);
}
END_TEST

START_TEST(more_classes_than_pixels_have_a_pixel_each)
{
    struct data d = open_images(NULL, 5, 1000);
    for (int64_t n = 0; n < 50; n++) ck_assert(label_of(&d, n) >= 0 && label_of(&d, n) < 5);
}
END_TEST

START_TEST(a_file_smaller_than_an_image_is_refused)
{
    struct data d;
    struct error err = {0};
    const char *path = bytes_file(11);
    struct data_source source = data_source_of(arena, path, DATA_AUTO);
    ck_assert_int_eq(data_open_images(arena, &source, 1, 12, 3, &d, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "one image of 12") != NULL, "%s", err.text);
    unlink(path);
}
END_TEST

/* Images that are read window by window, and classes whose stretches lie across the windows' ends. */
START_TEST(large_images_are_the_bytes_of_the_file)
{
    enum { PIXELS = 40001, CLASSES = 13000, STRETCH = PIXELS / CLASSES, SIZE = 3 * PIXELS };
    static unsigned char bytes[SIZE];
    static double pixels[PIXELS];
    const char *path = bytes_file(0);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < SIZE; i++) bytes[i] = (unsigned char)(i * 31 % 251 + i / 5000);
    ck_assert_int_eq(fwrite(bytes, 1, SIZE, f), SIZE);
    fclose(f);
    struct data d = open_images(path, PIXELS, CLASSES);
    unlink(path);
    for (int64_t n = 0; n < 10; n++) {
        const unsigned char *x = bytes + data_offset(&d, n);
        int most = -1, label = 0;
        draw(&d, n, DTYPE_fp64, pixels);
        for (int i = 1; i < PIXELS; i++) ck_assert((pixels[i] > pixels[0]) == (x[i] > x[0]));
        for (int k = 0; k < CLASSES; k++) {
            int sum = 0;
            for (int i = 0; i < STRETCH; i++) sum += x[k * STRETCH + i];
            if (sum > most) most = sum, label = k;
        }
        ck_assert_int_eq(label_of(&d, n), label);
    }
    data_close(&d);
}
END_TEST

static void is_truncated(enum status status, const struct error *err, const char *path)
{
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err->text, path));
    ck_assert_ptr_nonnull(strstr(err->text, "truncated"));
}

START_TEST(a_file_that_is_truncated_while_it_is_in_use_is_an_error)
{
    enum { PIXELS = 64 };
    const char *path = bytes_file(BYTES);
    int32_t tokens[LENGTH], label;
    float pixels[PIXELS];
    uint32_t crc;
    struct data d, images = open_images(path, PIXELS, 2);
    struct error err = {0};
    ck_assert_int_eq(open_text(path, 1, LENGTH, 256, &d, &err), OK);
    ck_assert_int_eq(truncate(path, 0), 0);
    is_truncated(data_fill(&d, INPUT_TOKENS, 0, tokens, &err), &err, path);
    is_truncated(data_fill(&d, INPUT_MASKED_TARGETS, 0, tokens, &err), &err, path);
    is_truncated(data_crc(&d, &crc, &err), &err, path);
    is_truncated(data_pixels(&images, 0, DTYPE_fp32, pixels, &err), &err, path);
    is_truncated(data_label(&images, 0, &label, &err), &err, path);
    data_close(&d);
    data_close(&images);
    unlink(path);
}
END_TEST

Suite *data_suite(void)
{
    const TTest *tests[] = {large_images_are_the_bytes_of_the_file, a_file_that_is_truncated_while_it_is_in_use_is_an_error, pixels_are_bytes_about_their_mean, labels_are_the_brightest_stretch_and_all_come_up, more_classes_than_pixels_have_a_pixel_each, a_file_smaller_than_an_image_is_refused, hidden_positions_have_a_fixed_number_and_depend_on_seed_and_sequence_alone, a_small_vocabulary_hides_behind_its_last_word, a_file_is_known_by_its_crc, targets_are_the_tokens_one_byte_later, an_epoch_has_every_sequence_once, sequences_depend_on_seed_and_number_alone, what_cannot_be_read_is_refused_by_name, without_a_file_ids_are_below_the_vocabulary};
    Suite *s = suite_create("data");
    TCase *t = tcase_create("data");
    tcase_add_checked_fixture(t, begin, end);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, tests[i]);
    suite_add_tcase(s, t);
    return s;
}
