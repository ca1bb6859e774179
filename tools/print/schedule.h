/* tools/print/schedule.h - a timed schedule for people and for programs. */
#ifndef TOOLS_PRINT_SCHEDULE_H
#define TOOLS_PRINT_SCHEDULE_H

#include "sim/pipeline/static.h"

/* events: timed by the event loop. Orders of more than 400 operations a device are not shown in text (--csv has them). */
void schedule_print_text(const struct schedule *s, const struct static_report *r, bool events,
                         bool timeline);
void schedule_print_json(const struct schedule *s, const struct static_report *r, bool events);

#endif
