/* tools/print/goodput.h - output of `musher goodput` as text and as JSON. */
#ifndef TOOLS_PRINT_GOODPUT_H
#define TOOLS_PRINT_GOODPUT_H

#include "sim/goodput/goodput.h"
#include "tools/team/left.h"

struct goodput_report {
    struct goodput_job job;
    struct team_left left;
    struct goodput_spot spot;
    double C, M; /* seconds: blocking checkpoint write; mean time between interruptions of any kind */
    int32_t samples;
    bool automatic; /* --interval auto */
    size_t n;
    struct goodput_result *results; /* (n), by interval */
    struct goodput_result best;
};

void goodput_report_text(struct arena *a, const struct goodput_report *s);
void goodput_report_json(const struct goodput_report *s);

#endif
