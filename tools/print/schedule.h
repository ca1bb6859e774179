/* tools/print/schedule.h - output of `musher schedule` as text and as JSON: devices, timeline, order. */
#ifndef TOOLS_PRINT_SCHEDULE_H
#define TOOLS_PRINT_SCHEDULE_H

#include "sim/pipeline/static.h"

/* events: whether the event loop timed it. Orders of more than 400 operations a device are left out of the text (--csv has them). */
void schedule_print_text(const struct schedule *s, const struct static_report *r, bool events,
                         bool timeline);
void schedule_print_json(const struct schedule *s, const struct static_report *r, bool events);

#endif
