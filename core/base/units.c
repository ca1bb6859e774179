#include "core/base/units.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A unit is a prefix and a stem; a quantity accepts the stems of its row. */
struct unit {
    const char *name;
    double factor; /* negative: to be divided by */
};

static const struct unit prefixes[] = {
    {"", 1},        {"k", 1e3},     {"M", 1e6},     {"G", 1e9},     {"T", 1e12},    {"P", 1e15},
    {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}, {NULL, 0}};
static const struct unit byte_stems[] = {{"B", 1}, {NULL, 0}};
static const struct unit rate_stems[] = {
    {"B/s", 1}, {"b/s", 0.125}, {"bit/s", 0.125}, {"bps", 0.125}, {NULL, 0}};
static const struct unit counts[] = {{"", 1},   {"k", 1e3},  {"K", 1e3}, {"M", 1e6},
                                     {"B", 1e9}, {"G", 1e9}, {"T", 1e12}, {NULL, 0}};
static const struct unit flop_stems[] = {{"FLOP/s", 1}, {"FLOPS", 1}, {NULL, 0}};
static const struct unit watt_stems[] = {{"W", 1}, {NULL, 0}};
/* Time has names of its own; both micro signs (U+00B5, U+03BC) are in use. */
static const struct unit time_units[] = {{"ns", -1e9},        {"us", -1e6}, {"\xC2\xB5s", -1e6},
                                         {"\xCE\xBCs", -1e6}, {"ms", -1e3}, {"s", 1},
                                         {"min", 60},         {"h", 3600},  {NULL, 0}};

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* The number at the head of text; *rest is what stands behind it. Refuses what strtod would accept
 * and people do not write: leading space, hexadecimal, inf, nan. */
static bool parse_head(const char *text, double *out, const char **rest)
{
    const char *digit = text + (*text == '+' || *text == '-');
    if (*digit == '.') digit++;
    if (*digit < '0' || *digit > '9') return false;
    if (digit[0] == '0' && (digit[1] == 'x' || digit[1] == 'X')) return false;
    pthread_once(&c_locale_once, make_c_locale);
    char *end = NULL;
    double value = c_locale ? strtod_l(text, &end, c_locale) : strtod(text, &end);
    if (end == text || !isfinite(value)) return false;
    *out = value;
    *rest = end;
    return true;
}

static bool find_unit(const struct unit *table, const char *name, double *factor)
{
    for (const struct unit *u = table; u->name; u++)
        if (!strcmp(u->name, name)) {
            *factor = u->factor;
            return true;
        }
    return false;
}

static bool find_prefixed(const struct unit *stems, const char *name, double *factor)
{
    for (const struct unit *p = prefixes; p->name; p++) {
        size_t n = strlen(p->name);
        if (!strncmp(name, p->name, n) && find_unit(stems, name + n, factor)) {
            *factor *= p->factor;
            return true;
        }
    }
    return false;
}

static bool parse(const char *text, const struct unit *stems, bool prefixed, double *out)
{
    const char *unit = NULL;
    double value = 0, factor = 1;
    if (!parse_head(text, &value, &unit)) return false;
    if (*unit == ' ' && unit[1]) unit++;
    bool zero = !*unit && fabs(value) <= 0;
    if (!zero && !(prefixed ? find_prefixed : find_unit)(stems, unit, &factor)) return false;
    /* Dividing makes "7 ns" the same double as 7e-9, which 7 * 1e-9 is not. */
    value = factor < 0 ? value / -factor : value * factor;
    if (!isfinite(value)) return false;
    *out = value;
    return true;
}

bool units_parse_bytes(const char *text, double *out) { return parse(text, byte_stems, true, out); }
bool units_parse_bytes_per_s(const char *text, double *out)
{
    return parse(text, rate_stems, true, out);
}
bool units_parse_seconds(const char *text, double *out)
{
    return parse(text, time_units, false, out);
}
bool units_parse_flops(const char *text, double *out) { return parse(text, flop_stems, true, out); }
bool units_parse_watts(const char *text, double *out) { return parse(text, watt_stems, true, out); }

bool units_parse_count(const char *text, double *out) { return parse(text, counts, false, out); }

bool units_parse_number(const char *text, double *out)
{
    const char *rest = NULL;
    double value = 0;
    if (!parse_head(text, &value, &rest) || *rest) return false;
    *out = value;
    return true;
}

bool units_parse(enum quantity q, const char *text, double *out)
{
    static bool (*const parsers[])(const char *, double *) = {
        [QUANTITY_BYTES] = units_parse_bytes,
        [QUANTITY_BYTES_PER_S] = units_parse_bytes_per_s,
        [QUANTITY_SECONDS] = units_parse_seconds,
        [QUANTITY_FLOPS] = units_parse_flops,
        [QUANTITY_WATTS] = units_parse_watts,
    };
    return parsers[q](text, out);
}

const char *units_hint(char *buffer, enum quantity q, const char *text)
{
    /* Numbers of the size that a person would write in the first two units; others were meant in the base unit. */
    static const struct {
        double least, most;
        const char *likely[2], *base;
    } units[] = {
        [QUANTITY_BYTES] = {0, 1e5, {"GB", "GiB"}, "B"},
        [QUANTITY_BYTES_PER_S] = {0, 1e5, {"GB/s", "Gb/s"}, "B/s"},
        [QUANTITY_SECONDS] = {0.1, 1e5, {"us", "ms"}, "s"},
        [QUANTITY_FLOPS] = {0, 1e5, {"TFLOP/s", "GFLOP/s"}, "FLOP/s"},
        [QUANTITY_WATTS] = {0, 1e5, {"W", "kW"}, "W"},
    };
    double value = 0, magnitude;
    buffer[0] = 0;
    if (q == QUANTITY_BYTES_PER_S && units_parse_bytes(text, &value))
        snprintf(buffer, UNITS_HINT, "; a rate is per second: write %.30s/s", text);
    else if (q == QUANTITY_BYTES && units_parse_bytes_per_s(text, &value) && strchr(text, '/'))
        snprintf(buffer, UNITS_HINT, "; a size is not per second: write %.*s",
                 (int)strcspn(text, "/") % 30, text);
    if (*buffer || !units_parse_number(text, &value)) return buffer;
    magnitude = fabs(value);
    if (magnitude < units[q].least || magnitude > units[q].most)
        snprintf(buffer, UNITS_HINT, "; a number needs a unit: write %.30s %s", text,
                 units[q].base);
    else
        snprintf(buffer, UNITS_HINT, "; a number needs a unit: write %.30s %s or %.30s %s", text,
                 units[q].likely[0], text, units[q].likely[1]);
    return buffer;
}

/* Three significant digits, no trailing zeros, and the unit whose number is below step. */
static char *print(char buffer[32], double value, double step, const char *const *units)
{
    double magnitude = fabs(value);
    if (!isfinite(value)) {
        snprintf(buffer, 32, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return buffer;
    }
    int digits;
    for (;; magnitude /= step, units++) {
        digits = magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
        double scale = digits == 2 ? 100 : digits == 1 ? 10 : 1;
        if (round(magnitude * scale) / scale < step || !units[1]) break;
    }
    if (magnitude > 1e15)
        snprintf(buffer, 32, "%s%.3g %s", value < 0 ? "-" : "", magnitude, *units);
    else {
        char number[24];
        snprintf(number, sizeof number, "%.*f", digits, magnitude);
        if (digits)
            for (char *end = number + strlen(number) - 1; *end == '0' || *end == '.'; end--) {
                bool point = *end == '.';
                *end = 0;
                if (point) break;
            }
        snprintf(buffer, 32, "%s%s %s", value < 0 ? "-" : "", number, *units);
    }
    return buffer;
}

const char *units_print_bytes(char buffer[32], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", NULL};
    return print(buffer, bytes, 1024, units);
}

const char *units_print_capacity(char buffer[64], double bytes)
{
    char binary[32];
    units_print_bytes(binary, bytes);
    bool short_binary = bytes < 1e6 || fmod(bytes, 0x1p20) <= 0;
    if (short_binary || fmod(bytes, 1e6) > 0)
        snprintf(buffer, 64, "%s", binary);
    else if (fmod(bytes, 1e8) > 0)
        snprintf(buffer, 64, "%.10g MB (%s)", bytes / 1e6, binary);
    else
        snprintf(buffer, 64, "%.10g GB (%s)", bytes / 1e9, binary);
    return buffer;
}

const char *units_print_bytes_per_s(char buffer[32], double rate)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", NULL};
    return print(buffer, rate, 1000, units);
}

const char *units_print_flops(char buffer[32], double rate)
{
    static const char *const units[] = {"FLOP/s",  "kFLOP/s", "MFLOP/s", "GFLOP/s",
                                        "TFLOP/s", "PFLOP/s", "EFLOP/s", NULL};
    return print(buffer, rate, 1000, units);
}

const char *units_print_count(char buffer[32], double count)
{
    static const char *const units[] = {"", "k", "M", "B", "T", NULL};
    char *space = strrchr(print(buffer, count, 1000, units), ' ');
    if (space) memmove(space, space + 1, strlen(space));
    return buffer;
}

const char *units_print_ns(char buffer[32], int64_t ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    return print(buffer, (double)ns, 1000, units);
}
