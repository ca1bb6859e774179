/* tools/print/goodput.h - what `musher goodput` found, and how it is told. */
#ifndef TOOLS_PRINT_GOODPUT_H
#define TOOLS_PRINT_GOODPUT_H

#include "sim/goodput/goodput.h"
#include "tools/team/left.h"

struct goodput_report {
    struct goodput_job job;
    struct team_left left;
    struct goodput_spot spot;
    double C, M; /* seconds: blocking write; mean between stops of any kind */
    int32_t samples;
    bool automatic; /* the intervals were chosen here */
    size_t n;
    struct goodput_result *results; /* (n), by interval */
    struct goodput_result best;
};

void goodput_report_text(struct arena *a, const struct goodput_report *s);
void goodput_report_json(const struct goodput_report *s);

#endif
