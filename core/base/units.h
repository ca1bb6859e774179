/* core/base/units.h - conversion between seconds and nanoseconds, and between text and quantities.
 *
 * Instants and durations of the simulator and of traces are int64_t nanoseconds (suffix _ns): sums
 * are exact, so equal instants compare equal whatever the order of additions. Model
 * parameters are double in SI base units (_s, _Bps, _flops). Modelled bytes are
 * int64_t (_bytes), so that headroom may be negative; size_t is for host memory only.
 */
#ifndef CORE_BASE_UNITS_H
#define CORE_BASE_UNITS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S 1000000000.0
#define NS_PER_H (3600 * NS_PER_S)

static inline int64_t units_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t units_min(int64_t a, int64_t b) { return a < b ? a : b; }
/* Greatest common divisor of two numbers >= 0; of 0 and x, x. */
static inline int32_t units_gcd(int32_t a, int32_t b)
{
    while (b) {
        int32_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* log2(x) of x >= 1, linear between powers of two, and so the same on every machine: at most 0.09 too small. */
static inline double units_doublings(double x)
{
    double n = 0;
    for (; x >= 2; x /= 2) n++;
    return n + x - 1;
}

static inline int64_t units_ns_from_s(double s) { return (int64_t)llround(s * NS_PER_S); }
static inline double units_s_from_ns(int64_t ns) { return (double)ns / NS_PER_S; }

/* The parsers accept number + unit, with or without a space, in the C locale whatever the environment. A number
 * without a unit is an error, because 60 could mean 60 GB/s or 60 B/s; 0 needs none.
 * Bits are not bytes: "Gb/s" and "Gbps" are an eighth of "GB/s". k M G T are powers of 1000, Ki Mi Gi Ti of 1024.
 * false: not such a quantity. */
bool units_parse_bytes(const char *text, double *out); /* B kB KiB MB MiB GB GiB TB TiB */
bool units_parse_bytes_per_s(const char *text,
                             double *out); /* B/s … TB/s, GiB/s …, b/s … Gb/s, Gbps */
bool units_parse_seconds(const char *text, double *out); /* ns us ms s min h */
bool units_parse_flops(const char *text, double *out);   /* FLOP/s … TFLOP/s PFLOP/s */
/* A number of things: 1000000, 1.5e12, or with k, M, B (or G), T: "300B", "1 T". */
bool units_parse_count(const char *text, double *out);
bool units_parse_watts(const char *text, double *out);   /* W, kW */
bool units_parse_number(const char *text,
                        double *out); /* strtod in the C locale, whole text, finite */

enum quantity {
    QUANTITY_BYTES,
    QUANTITY_BYTES_PER_S,
    QUANTITY_SECONDS,
    QUANTITY_FLOPS,
    QUANTITY_WATTS
};
bool units_parse(enum quantity q, const char *text, double *out); /* by one of the five above */
/* Hint for errors: "; a number needs a unit: write 60 GB/s or 60 Gb/s"; "" if the unit is not
 * missing. buffer holds at least UNITS_HINT; returns it. */
enum { UNITS_HINT = 128 };
const char *units_hint(char *buffer, enum quantity q, const char *text);

/* Rounded for display: "1.25 GiB", "12.3 ms", "25 GB/s". buffer holds at least 32; returns it. */
const char *units_print_bytes(char buffer[32], double bytes);
/* A stated memory capacity: "80 GiB"; whole GB or MB as "24 GB (22.4 GiB)", because the values it is
 * compared with are printed in GiB. */
const char *units_print_capacity(char buffer[64], double bytes);
const char *units_print_bytes_per_s(char buffer[32], double rate);
const char *units_print_flops(char buffer[32], double rate); /* "4.58 PFLOP/s" */
const char *units_print_count(char buffer[32], double count); /* "45.9k", "300B" */
const char *units_print_ns(char buffer[32], int64_t ns);

#endif
