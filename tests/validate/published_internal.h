/* tests/validate/published_internal.h - functions shared by tests/validate/published_*.c. */
#ifndef TESTS_VALIDATE_PUBLISHED_INTERNAL_H
#define TESTS_VALIDATE_PUBLISHED_INTERNAL_H

#include "tests/validate/published_report.h"

/* A cell of a row of PUBLISHED_ZERO_BUBBLE: one of its schedules, from 0; n of them. */
int32_t published_parts_schedules(void);
/* *measured: whether the table has this cell. memory_bytes: measured; NAN: none. */
MUST_CHECK enum status published_parts_case(struct arena *a, const struct csv *c, int32_t row,
                                            int32_t schedule, struct published_case *out,
                                            struct published_line *line,
                                            struct published_line *memory, bool *measured,
                                            struct error *err);
MUST_CHECK enum status published_parts_seconds(struct published_parts *p,
                                               const struct published_fit *fit, double *out_s,
                                               struct error *err);

#endif
