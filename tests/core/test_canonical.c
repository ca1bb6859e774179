/* Values as files write them: short where they can be, and always read back to the same bits.
 */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "core/document/canonical.h"

#include "tests/support/suites.h"

#include <stdio.h>

static const char *quantity(char buffer[64], enum quantity q, double value)
{
    FILE *out = fmemopen(buffer, 64, "w");
    canonical_quantity(out, q, value);
    fclose(out);
    return buffer;
}

START_TEST(round_numbers_get_the_unit_a_person_would_take)
{
    char b[64];
    ck_assert_str_eq(quantity(b, QUANTITY_BYTES, 0x1p31), "2 GiB");
    ck_assert_str_eq(quantity(b, QUANTITY_BYTES, 1536), "1.5 KiB");
    ck_assert_str_eq(quantity(b, QUANTITY_BYTES, 0), "0");
    ck_assert_str_eq(quantity(b, QUANTITY_BYTES_PER_S, 4e8), "400 MB/s");
    ck_assert_str_eq(quantity(b, QUANTITY_SECONDS, 3e-4), "300 us");
    ck_assert_str_eq(quantity(b, QUANTITY_SECONDS, 7e-9), "7 ns");
    ck_assert_str_eq(quantity(b, QUANTITY_FLOPS, 312e12), "312 TFLOP/s");
    ck_assert_str_eq(quantity(b, QUANTITY_WATTS, 62.5), "62.5 W");
    ck_assert_str_eq(quantity(b, QUANTITY_BYTES, 1234567891), "1234567891 B");
}
END_TEST

START_TEST(every_quantity_reads_back_to_the_same_bits)
{
    for (uint64_t i = 0; i < 20000; i++) {
        char b[64];
        enum quantity q = (enum quantity)(i % 4);
        double exponent = (double)rng_below(5, 1, i, 25) - 9, value = 1, again = 0;
        for (; exponent > 0; exponent--) value *= 10;
        for (; exponent < 0; exponent++) value /= 10;
        value *= (double)rng_below(5, 2, i, i % 3 ? 1000 : 1000000007);
        ck_assert_msg(units_parse(q, quantity(b, q, value), &again), "%s", b);
        ck_assert_msg(again <= value && again >= value, "%s is not %.17g", b, value);
    }
}
END_TEST

START_TEST(every_text_reads_back_to_itself)
{
    static const char *const texts[] = {
        "a.0",       "true",         "null",        "1.0",   "",      "-",
        "a: b",      "#x",           "a\nb",        "\"\\",  "é",     "\t\x01",
        "\xC2\x85x", "{a, b]}",      " lead",       "tail ", "a # b", "~",
        "\x7F",      "*a",           "&a",          "!t",    "%x",    "1e3",
        "日本 😀",    "\xE2\x80\xA8", "\xEF\xBB\xBF"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct arena *a = arena_new();
        struct error err = {0};
        struct node *root;
        char buffer[256];
        FILE *out = fmemopen(buffer, sizeof buffer, "w");
        fputs("x: [", out);
        canonical_text(out, texts[i]);
        fputs("]\n", out);
        fclose(out);
        ck_assert_msg(document_parse(a, "t", buffer, strlen(buffer), &root, &err) == OK, "%s\n%s",
                      err.text, buffer);
        const struct node *list = node_get(root, "x");
        ck_assert_msg(list->count == 1 && list->members[0]->kind == NODE_SCALAR, "%s", buffer);
        ck_assert_str_eq(list->members[0]->text, texts[i]);
        arena_free(a);
    }
}
END_TEST

SUITE_OF(canonical, round_numbers_get_the_unit_a_person_would_take,
         every_quantity_reads_back_to_the_same_bits, every_text_reads_back_to_itself)
