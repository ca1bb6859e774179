/* Suite of exec/data. */
#include "exec/data.h"

#include "tests/suites.h"

#include <stdio.h>
#include <unistd.h>

enum { LENGTH = 8, BYTES = 100 };

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
    ck_assert_msg(data_open(path, seed, LENGTH, 256, &d, &err) == OK, "%s", err.text);
    unlink(path);
    return d;
}

START_TEST(targets_are_the_tokens_one_byte_later)
{
    struct data d = open_bytes(BYTES, 1);
    for (int64_t sample = 0; sample < 200; sample++) {
        int32_t tokens[LENGTH], targets[LENGTH], positions[LENGTH];
        data_fill(&d, INPUT_TOKENS, 3, sample, tokens);
        data_fill(&d, INPUT_TARGETS, 3, sample, targets);
        data_fill(&d, INPUT_POSITIONS, 3, sample, positions);
        for (int t = 0; t < LENGTH; t++) {
            ck_assert_int_eq(tokens[t], data_offset(&d, 3, sample) + t);
            ck_assert_int_eq(targets[t], tokens[t] + 1);
            ck_assert_int_eq(positions[t], t);
        }
    }
    data_close(&d);
}
END_TEST

START_TEST(offsets_stay_inside_and_reach_both_ends)
{
    struct data d = open_bytes(LENGTH + 3, 1);
    int seen[4] = {0};
    for (int64_t sample = 0; sample < 200; sample++) {
        int64_t offset = data_offset(&d, 0, sample);
        ck_assert_int_ge(offset, 0);
        ck_assert_int_le(offset, 2); /* 11 bytes hold runs of 9 at 0, 1, 2 */
        seen[offset]++;
    }
    for (int k = 0; k < 3; k++) ck_assert_int_gt(seen[k], 0);
    data_close(&d);
}
END_TEST

START_TEST(samples_depend_on_seed_step_and_number_alone)
{
    struct data a = open_bytes(BYTES, 1), b = open_bytes(BYTES, 2);
    int by_seed = 0, by_step = 0;
    for (int64_t sample = 0; sample < 50; sample++) {
        ck_assert_int_eq(data_offset(&a, 5, sample), data_offset(&a, 5, sample));
        by_seed += data_offset(&a, 5, sample) != data_offset(&b, 5, sample);
        by_step += data_offset(&a, 5, sample) != data_offset(&a, 6, sample);
    }
    ck_assert_int_gt(by_seed, 40);
    ck_assert_int_gt(by_step, 40);
    data_close(&a);
    data_close(&b);
}
END_TEST

static void refused(const char *path, int64_t vocabulary, const char *why)
{
    struct data d;
    struct error err = {0};
    ck_assert_int_eq(data_open(path, 1, LENGTH, vocabulary, &d, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

START_TEST(what_cannot_be_read_is_refused_by_name)
{
    refused("/nowhere/at-all.txt", 256, "/nowhere/at-all.txt");
    refused("/tmp", 256, "not a regular file");
    const char *path = bytes_file(LENGTH + 1);
    refused(path, 256, "need more than 9");
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
    ck_assert_int_eq(data_open(NULL, 1, LENGTH, 7, &d, &err), OK);
    for (int64_t sample = 0; sample < 50; sample++) {
        data_fill(&d, INPUT_TOKENS, 0, sample, ids);
        for (int t = 0; t < LENGTH; t++) ck_assert(ids[t] >= 0 && ids[t] < 7);
    }
    data_close(&d);
}
END_TEST

SUITE_OF(data, targets_are_the_tokens_one_byte_later, offsets_stay_inside_and_reach_both_ends,
         samples_depend_on_seed_step_and_number_alone, what_cannot_be_read_is_refused_by_name,
         without_a_file_ids_are_below_the_vocabulary)
