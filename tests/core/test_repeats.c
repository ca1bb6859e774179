/* Repeats of letters, against all repeats there are. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/model/repeats.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static bool same_letter(const void *user, int32_t i, int32_t j)
{
    const char *text = user;
    return text[i] == text[j];
}

/* "6x2@1 …": copies x period @ first. */
static const char *told(const char *text, int64_t (*seam)(const void *, int32_t))
{
    struct repeat *r;
    const char *out = "";
    struct repeats_of s = {(int32_t)strlen(text), text, same_letter, seam};
    int32_t n = repeats_find(arena, &s, &r);
    for (int32_t i = 0; i < n; i++)
        out = arena_printf(arena, "%s%s%dx%d@%d", out, i ? " " : "", r[i].copies, r[i].period,
                           r[i].first);
    return out;
}

START_TEST(blocks_between_a_head_and_a_tail_are_found)
{
    ck_assert_str_eq(told("<abcabcabcabc>", NULL), "4x3@1");
    ck_assert_str_eq(told("<abcabcabcab>", NULL), "3x3@1");
    ck_assert_str_eq(told("eababab-xyxyxyxy!", NULL), "3x2@1 4x2@8");
    ck_assert_str_eq(told("aaaa", NULL), "4x1@0");
    ck_assert_str_eq(told("abcd", NULL), "");
    ck_assert_str_eq(told("", NULL), "");
}
END_TEST

START_TEST(a_block_of_equal_halves_counts_as_twice_as_many)
{
    ck_assert_str_eq(told("abababab", NULL), "4x2@0");
    ck_assert_str_eq(told("aabaabaab", NULL), "3x3@0");
}
END_TEST

static int64_t before_a(const void *user, int32_t at)
{
    return ((const char *)user)[at] == 'a' ? 1 : 5;
}

START_TEST(a_repeat_begins_where_it_is_cheapest_to_part)
{
    ck_assert_str_eq(told("bcabcabcabca", before_a), "3x3@2");
    ck_assert_str_eq(told("bcabcabc", before_a), "2x3@2"); /* one copy fewer, and it pays */
    ck_assert_str_eq(told("bcabc", before_a), "");
}
END_TEST

static int64_t most_reported(const char *text, int32_t n)
{
    int64_t most = 0;
    for (int32_t first = 0; first < n; first++)
        for (int32_t period = 1; first + 2 * period <= n; period++) {
            int32_t copies = 1;
            while (first + (copies + 1) * period <= n &&
                   !memcmp(text + first, text + first + copies * period, (size_t)period))
                copies++;
            int64_t message = (int64_t)(copies - 1) * period;
            if (message > most) most = message;
        }
    return most;
}

START_TEST(random_words_keep_what_says_most_and_no_repeat_is_left_over)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 20000 : 2000); seed++) {
        char text[40] = "";
        int32_t n = 1 + (int32_t)rng_below(seed, 1, 0, 30), letters = 2 + (int32_t)(seed % 4);
        for (int32_t i = 0; i < n; i++)
            text[i] = (char)('a' + rng_below(seed, 1, (uint64_t)i + 1, (uint64_t)letters));
        struct repeat *r;
        struct repeats_of s = {n, text, same_letter, NULL};
        int32_t found = repeats_find(arena, &s, &r), end = 0;
        int64_t most = 0;
        for (int32_t i = 0; i < found; i++) {
            ck_assert(r[i].copies >= 2 && r[i].first >= end);
            ck_assert_int_eq(most_reported(text + end, r[i].first - end), 0);
            end = r[i].first + r[i].period * r[i].copies;
            for (int32_t k = r[i].first; k + r[i].period < end; k++)
                ck_assert_int_eq(text[k], text[k + r[i].period]);
            int64_t message = (int64_t)(r[i].copies - 1) * r[i].period;
            if (message > most) most = message;
        }
        ck_assert_int_eq(most_reported(text + end, n - end), 0);
        ck_assert_int_eq(most, most_reported(text, n));
        arena_reset(arena);
    }
}
END_TEST

Suite *repeats_suite(void)
{
    Suite *s = suite_create("core/model/repeats");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, blocks_between_a_head_and_a_tail_are_found);
    tcase_add_test(t, a_block_of_equal_halves_counts_as_twice_as_many);
    tcase_add_test(t, a_repeat_begins_where_it_is_cheapest_to_part);
    tcase_add_test(t, random_words_keep_what_says_most_and_no_repeat_is_left_over);
    suite_add_tcase(s, t);
    return s;
}
