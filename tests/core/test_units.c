#include "core/base/units.h"
#include "tests/support/suites.h"

#include <locale.h>

/* Exact: the expected values are the doubles that the literals give. */
static const struct {
    bool (*parse)(const char *, double *);
    const char *text;
    double value;
} good[] = {
    {units_parse_bytes, "0", 0},
    {units_parse_bytes, "123 B", 123},
    {units_parse_bytes, "64 kB", 64e3},
    {units_parse_bytes, "64KiB", 65536},
    {units_parse_bytes, "1.5 GiB", 1610612736.0},
    {units_parse_bytes, "80 GB", 80e9},
    {units_parse_bytes, "2 TiB", 2199023255552.0},
    {units_parse_bytes, "-1 MB", -1e6},
    {units_parse_bytes, "1e3 MB", 1e9},
    {units_parse_bytes_per_s, "25 GB/s", 25e9},
    {units_parse_bytes_per_s, "100 Gb/s", 12.5e9},
    {units_parse_bytes_per_s, "100Gbps", 12.5e9},
    {units_parse_bytes_per_s, "400 Gbit/s", 50e9},
    {units_parse_bytes_per_s, "1 GiB/s", 1073741824.0},
    {units_parse_bytes_per_s, "12.5e9 B/s", 12.5e9},
    {units_parse_seconds, "50 us", 50e-6},
    {units_parse_seconds, "50 \xC2\xB5s", 50e-6},
    {units_parse_seconds, "1.5ms", 1.5e-3},
    {units_parse_seconds, "7 ns", 7e-9},
    {units_parse_seconds, "2 min", 120},
    {units_parse_seconds, "1 h", 3600},
    {units_parse_seconds, "0.25 s", 0.25},
    {units_parse_seconds, "0.0", 0},
    {units_parse_bytes_per_s, "-0", -0.0},
    {units_parse_flops, "312 TFLOP/s", 312e12},
    {units_parse_flops, "1 PFLOP/s", 1e15},
    {units_parse_flops, "989 TFLOPS", 989e12},
    {units_parse_count, "1T", 1e12},
    {units_parse_count, "300B", 300e9},
    {units_parse_count, "1.5 M", 1.5e6},
    {units_parse_count, "2G", 2e9},
    {units_parse_count, "1e9", 1e9},
    {units_parse_watts, "300 W", 300},
    {units_parse_watts, "1.2 kW", 1200},
    {units_parse_number, "-3.5e-2", -0.035},
    {units_parse_number, ".5", 0.5},
    {units_parse_number, "+7", 7},
};

START_TEST(a_quantity_is_read_in_base_units)
{
    double value = -1;
    ck_assert_msg(good[_i].parse(good[_i].text, &value), "refused '%s'", good[_i].text);
    ck_assert_msg(value == good[_i].value, "'%s' is %.17g, not %.17g", good[_i].text, value,
                  good[_i].value);
}
END_TEST

static const struct {
    bool (*parse)(const char *, double *);
    const char *text;
} bad[] = {
    {units_parse_bytes, "123"},        {units_parse_bytes_per_s, "60"},
    {units_parse_seconds, "1"},        {units_parse_flops, "312e12"},
    {units_parse_bytes, ""},           {units_parse_bytes, "GB"},
    {units_parse_bytes, "1 GB/s"},     {units_parse_bytes, "1 Gb"},
    {units_parse_bytes, "1 KB"},       {units_parse_bytes, "1  GB"},
    {units_parse_bytes, " 1 GB"},      {units_parse_bytes, "1 GB "},
    {units_parse_bytes, "0x10"},       {units_parse_bytes, "1 mB"},
    {units_parse_bytes_per_s, "5 GB"}, {units_parse_bytes_per_s, "1,5 GB/s"},
    {units_parse_seconds, "5 ks"},     {units_parse_seconds, "5 Ms"},
    {units_parse_seconds, "five s"},   {units_parse_flops, "1 TFLOP"},
    {units_parse_watts, "300"},        {units_parse_watts, "300 J"},
    {units_parse_number, "nan"},       {units_parse_number, "inf"},
    {units_parse_number, "1e999"},     {units_parse_number, "1 "},
    {units_parse_number, "1_000"},     {units_parse_number, "--1"},
    {units_parse_number, "-"},         {units_parse_bytes, "1e300 PB"},
    {units_parse_bytes, "1e308 PiB"},  {units_parse_number, "0X1p3"},
    {units_parse_count, "1X"},         {units_parse_count, "1 TB"},
    {units_parse_count, "k"},
};

START_TEST(what_is_no_such_quantity_is_refused)
{
    double value = 42;
    ck_assert_msg(!bad[_i].parse(bad[_i].text, &value), "accepted '%s'", bad[_i].text);
    ck_assert_double_eq(value, 42);
}
END_TEST

START_TEST(a_missing_unit_is_named)
{
    char hint[UNITS_HINT];
    ck_assert_str_eq(units_hint(hint, QUANTITY_SECONDS, "1"),
                     "; a number needs a unit: write 1 us or 1 ms");
    ck_assert_str_eq(units_hint(hint, QUANTITY_SECONDS, "1e-6"),
                     "; a number needs a unit: write 1e-6 s");
    ck_assert_str_eq(units_hint(hint, QUANTITY_BYTES_PER_S, "60"),
                     "; a number needs a unit: write 60 GB/s or 60 Gb/s");
    ck_assert_str_eq(units_hint(hint, QUANTITY_BYTES, "5 GB/s"),
                     "; a size is not per second: write 5 GB");
}
END_TEST

START_TEST(a_decimal_comma_locale_changes_nothing)
{
    char buffer[32];
    double value = 0;
    /* Where the machine has no such locale this still tests the plain one. */
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) setlocale(LC_ALL, "fr_FR.UTF-8");
    ck_assert(units_parse_number("1.5", &value));
    ck_assert_double_eq(value, 1.5);
    ck_assert(!units_parse_number("1,5", &value));
    setlocale(LC_ALL, "C");
    ck_assert_str_eq(units_print_ns(buffer, 1500), "1.5 us");
}
END_TEST

static const struct {
    double bytes;
    const char *text;
} sizes[] = {{0, "0 B"},         {1023, "1023 B"},         {1024, "1 KiB"},
             {1536, "1.5 KiB"},  {1342177280, "1.25 GiB"}, {-1342177280, "-1.25 GiB"},
             {1048575, "1 MiB"}, {1e40, "8.88e+24 PiB"},   {85899345920, "80 GiB"}};

START_TEST(sizes_are_printed_for_people)
{
    char buffer[32];
    ck_assert_str_eq(units_print_bytes(buffer, sizes[_i].bytes), sizes[_i].text);
}
END_TEST

START_TEST(a_stated_capacity_keeps_its_unit)
{
    char buffer[64];
    ck_assert_str_eq(units_print_capacity(buffer, 80 * 0x1p30), "80 GiB");
    ck_assert_str_eq(units_print_capacity(buffer, 24e9), "24 GB (22.4 GiB)");
    ck_assert_str_eq(units_print_capacity(buffer, 1.5e9), "1.5 GB (1.4 GiB)");
    ck_assert_str_eq(units_print_capacity(buffer, 64e6), "64 MB (61 MiB)");
    ck_assert_str_eq(units_print_capacity(buffer, 1234567891), "1.15 GiB");
    ck_assert_str_eq(units_print_capacity(buffer, 0), "0 B");
}
END_TEST

START_TEST(rates_and_times_are_printed_for_people)
{
    char buffer[32];
    ck_assert_str_eq(units_print_bytes_per_s(buffer, 25e9), "25 GB/s");
    ck_assert_str_eq(units_print_bytes_per_s(buffer, 12.34e9), "12.3 GB/s");
    ck_assert_str_eq(units_print_bytes_per_s(buffer, 999.9996e6), "1 GB/s");
    ck_assert_str_eq(units_print_ns(buffer, 12345678), "12.3 ms");
    ck_assert_str_eq(units_print_ns(buffer, 999), "999 ns");
    ck_assert_str_eq(units_print_ns(buffer, 5000000000), "5 s");
    ck_assert_str_eq(units_print_ns(buffer, 1234567000000000), "1234567 s");
    ck_assert_str_eq(units_print_flops(buffer, 4.451e18), "4.45 EFLOP/s");
    ck_assert_str_eq(units_print_count(buffer, 45912), "45.9k");
    ck_assert_str_eq(units_print_count(buffer, 1e12), "1T");
    ck_assert_str_eq(units_print_count(buffer, 12), "12");
    ck_assert_str_eq(units_print_count(buffer, 0.25), "0.25");
    units_print_ns(buffer, INT64_MIN);
    units_print_bytes(buffer, -1e308);
    ck_assert_str_eq(units_print_bytes(buffer, INFINITY), "inf");
}
END_TEST

START_TEST(seconds_become_whole_nanoseconds_once)
{
    ck_assert_int_eq(units_ns_from_s(1.5e-9), 2);
    ck_assert_int_eq(units_ns_from_s(0.1), 100000000);
    ck_assert_double_eq(units_s_from_ns(1500000000), 1.5);
}
END_TEST

START_TEST(doublings_are_linear_between_powers_of_two)
{
    ck_assert_double_eq(units_doublings(1), 0);
    ck_assert_double_eq(units_doublings(1.5), 0.5);
    ck_assert_double_eq(units_doublings(1024), 10);
    ck_assert_double_eq(units_doublings(10240), 13.25);
}
END_TEST

Suite *units_suite(void)
{
    Suite *s = suite_create("units");
    TCase *c = tcase_create("units");
    tcase_add_loop_test(c, a_quantity_is_read_in_base_units, 0, sizeof good / sizeof *good);
    tcase_add_loop_test(c, what_is_no_such_quantity_is_refused, 0, sizeof bad / sizeof *bad);
    tcase_add_loop_test(c, sizes_are_printed_for_people, 0, sizeof sizes / sizeof *sizes);
    tcase_add_test(c, a_missing_unit_is_named);
    tcase_add_test(c, a_decimal_comma_locale_changes_nothing);
    tcase_add_test(c, a_stated_capacity_keeps_its_unit);
    tcase_add_test(c, rates_and_times_are_printed_for_people);
    tcase_add_test(c, doublings_are_linear_between_powers_of_two);
    tcase_add_test(c, seconds_become_whole_nanoseconds_once);
    suite_add_tcase(s, c);
    return s;
}
