/* tools/print/strategies.h - the table of plans whose training is not the synchronous one (tools/strategy/strategies.h). */
#ifndef TOOLS_PRINT_STRATEGIES_H
#define TOOLS_PRINT_STRATEGIES_H

#include "core/document/json.h"
#include "tools/strategy/strategies.h"

/* Behind the report of a search: iteration time, samples/s, cost, effective rate and its assumption of each strategy, the best first. sync: the
 * synchronous plan. file: that of the synchronous plan; those of strategies are FILE.NAME. */
void print_strategies(struct arena *a, const struct strategies *s, const struct search_plan *sync, const char *file);
/* In place of the bounds of a search: that the plan of a preset trains differently, and what its progress is. Member `preset`. */
void print_preset(struct arena *a, const struct strategy_plan *x);
void print_preset_json(struct json *j, const struct strategy_plan *x);
/* A member `strategies`. */
void print_strategies_json(struct arena *a, struct json *j, const struct strategies *s, const char *file);
/* FILE.NAME. The arena's. */
const char *print_strategy_file(struct arena *a, const char *file, const struct strategy_plan *x);

#endif
