#include "core/base/arena.h"
#include "core/base/sanitized.h"
#include "core/base/utf8.h"
#include "tests/support/suites.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(memory_is_zeroed_aligned_and_does_not_overlap)
{
    struct arena *a = arena_new();
    unsigned char *piece[500];
    size_t size[500];
    for (int i = 0; i < 500; i++) {
        size[i] = (size_t)(i * 37 % 301);
        piece[i] = arena_alloc(a, size[i], 1);
        for (size_t k = 0; k < size[i]; k++) ck_assert_int_eq(piece[i][k], 0);
        ck_assert_uint_eq((uintptr_t)piece[i] % _Alignof(max_align_t), 0);
        memset(piece[i], i & 0xFF, size[i]);
    }
    for (int i = 0; i < 500; i++)
        for (size_t k = 0; k < size[i]; k++) ck_assert_int_eq(piece[i][k], i & 0xFF);
    arena_free(a);
}
END_TEST

START_TEST(an_object_larger_than_a_block_fits)
{
    struct arena *a = arena_new();
    char *big = arena_alloc(a, 10 * 1024 * 1024, 1);
    big[10 * 1024 * 1024 - 1] = 1;
    ck_assert_ptr_nonnull(arena_alloc(a, 1, 1));
    arena_free(a);
}
END_TEST

START_TEST(after_a_reset_memory_is_zero_again)
{
    struct arena *a = arena_new();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) {
            unsigned char *p = arena_alloc(a, 1000, 1);
            for (int k = 0; k < 1000; k++) ck_assert_int_eq(p[k], 0);
            memset(p, 0xAA, 1000);
        }
        arena_reset(a);
    }
    arena_free(a);
}
END_TEST

START_TEST(texts_are_copied_cut_and_printed)
{
    struct arena *a = arena_new();
    ck_assert_str_eq(arena_strdup(a, "sled"), "sled");
    ck_assert_str_eq(arena_strndup(a, "sledge", 4), "sled");
    ck_assert_str_eq(arena_printf(a, "%s[%d]", "nodes", 12), "nodes[12]");
    char *wide = arena_printf(a, "%50000d", 7);
    ck_assert_uint_eq(strlen(wide), 50000);
    arena_free(a);
}
END_TEST

START_TEST(a_growing_array_keeps_its_elements)
{
    struct arena *a = arena_new();
    int *array = NULL;
    size_t capacity = 0;
    for (size_t n = 0; n < 10000; n++) {
        array = arena_grow(a, array, n, &capacity, sizeof *array);
        array[n] = (int)n;
        ck_assert_uint_gt(capacity, n);
    }
    for (int n = 0; n < 10000; n++) ck_assert_int_eq(array[n], n);
    arena_free(a);
}
END_TEST

static void last_words(const char *message) { dprintf(STDERR_FILENO, "last act: %s\n", message); }

START_TEST(no_memory_ends_the_program_with_code_6_and_the_bytes)
{
    int channel[2];
    ck_assert_int_eq(pipe(channel), 0);
    pid_t child = fork();
    if (!child) {
        dup2(channel[1], STDERR_FILENO);
        arena_on_exhaustion(last_words);
        arena_alloc(arena_new(), SIZE_MAX / 16, 3);
        _exit(0);
    }
    close(channel[1]);
    char text[200] = "";
    size_t used = 0;
    for (ssize_t got; (got = read(channel[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    int how = 0;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFEXITED(how));
    ck_assert_int_eq(WEXITSTATUS(how), ERR_RESOURCE);
    char wanted[200];
    snprintf(wanted, sizeof wanted,
             "last act: out of memory: %zu bytes were needed\n"
             "musher: out of memory: %zu bytes were needed\n",
             SIZE_MAX / 16 * 3, SIZE_MAX / 16 * 3);
    ck_assert_str_eq(text, wanted);
}
END_TEST

#if !SANITIZED_ADDRESS && !SANITIZED_THREAD
START_TEST(a_request_that_no_memory_satisfies_returns_to_its_caller)
{
    volatile size_t bytes = (size_t)-29, many = SIZE_MAX / 2;
    ck_assert_ptr_null(malloc(bytes));
    ck_assert_ptr_null(calloc(many, 3));
    ck_assert_ptr_null(realloc(NULL, bytes));
    ck_assert_ptr_null(aligned_alloc(64, bytes));
}
END_TEST
#endif

START_TEST(a_wrapped_error_says_where_and_keeps_its_cause)
{
    struct error err = {0};
    ck_assert_int_eq(error_set(&err, ERR_INPUT, "unknown device '%s'", "A101"), ERR_INPUT);
    error_wrap(&err, err.code, "line %d", 7);
    error_wrap(&err, err.code, "plan '%s'", "a.yaml");
    ck_assert_str_eq(err.text, "plan 'a.yaml': line 7: unknown device 'A101'");
    char place[2000];
    memset(place, 'x', sizeof place - 1);
    place[sizeof place - 1] = 0;
    error_wrap(&err, ERR_RANK, "%s", place);
    ck_assert_ptr_nonnull(strstr(err.text, "unknown device 'A101'"));
    ck_assert_int_eq(err.code, ERR_RANK);
    ck_assert_int_eq(error_set(NULL, ERR_INPUT, "unheard"), ERR_INPUT);
}
END_TEST

/* n words "word000 ", "word001 " … */
static char *words(char *out, int n)
{
    for (int i = 0; i < n; i++) snprintf(out + (size_t)i * 8, 9, "word%03d ", i);
    return out;
}

static void ends_behind_a_word(const char *text)
{
    size_t n = strlen(text);
    ck_assert_uint_gt(n, ERROR_TEXT - 16);
    ck_assert_uint_lt(n, ERROR_TEXT);
    ck_assert_str_eq(text + n - 3, "\xE2\x80\xA6");
    ck_assert_int_eq(sscanf(text + n - 10, "word%*3[0-9]\xE2\x80\xA6"), 0);
    ck_assert(!strncmp(text + n - 10, "word", 4));
}

START_TEST(a_long_error_ends_behind_a_word)
{
    struct error err = {0};
    char many[2001], half[ERROR_TEXT];
    words(many, 250);
    error_set(&err, ERR_INPUT, "%s", many);
    ends_behind_a_word(err.text);
    memcpy(half, err.text, sizeof half);
    error_wrap(&err, ERR_INPUT, "a.yaml:7:3"); /* what it cuts again is no word's part either */
    ends_behind_a_word(err.text);
    ck_assert(!strncmp(err.text, "a.yaml:7:3: word000 word001", 27));
    error_set(&err, ERR_INPUT, "cause");
    error_wrap(&err, ERR_INPUT, "%s", many);
    ck_assert_ptr_nonnull(strstr(err.text, "\xE2\x80\xA6: cause"));
    error_set(&err, ERR_INPUT, "%.*s", ERROR_TEXT - 1, many); /* fits to the last byte */
    ck_assert_uint_eq(strlen(err.text), ERROR_TEXT - 1);
    ck_assert_ptr_null(strstr(err.text, "\xE2\x80\xA6"));
}
END_TEST

START_TEST(a_long_word_is_cut_between_characters)
{
    struct error err = {0};
    for (int before = 0; before < 2; before++) {
        char many[2001] = "x";
        for (size_t i = (size_t)before; i + 2 < sizeof many; i += 2)
            memcpy(many + i, "\xC3\xA9", 3);
        error_set(&err, ERR_INPUT, "%s", many);
        size_t n = strlen(err.text);
        for (size_t at = 0, step; at < n; at += step) {
            step = utf8_next(err.text + at, n - at, NULL);
            ck_assert_uint_gt(step, 0);
        }
        ck_assert_str_eq(err.text + n - 3, "\xE2\x80\xA6");
    }
}
END_TEST

START_TEST(an_error_may_quote_itself)
{
    struct error err = {0};
    error_set(&err, ERR_INPUT, "cause");
    error_set(&err, ERR_INPUT, "again: %s", err.text);
    ck_assert_str_eq(err.text, "again: cause");
}
END_TEST

#if SANITIZED_ADDRESS || SANITIZED_THREAD
#define OF_MALLOC /* sanitizers bring their own */
#else
#define OF_MALLOC a_request_that_no_memory_satisfies_returns_to_its_caller,
#endif
SUITE_OF(arena, memory_is_zeroed_aligned_and_does_not_overlap, an_object_larger_than_a_block_fits,
         after_a_reset_memory_is_zero_again, texts_are_copied_cut_and_printed,
         a_growing_array_keeps_its_elements, no_memory_ends_the_program_with_code_6_and_the_bytes,
         OF_MALLOC a_wrapped_error_says_where_and_keeps_its_cause, an_error_may_quote_itself,
         a_long_error_ends_behind_a_word, a_long_word_is_cut_between_characters)
