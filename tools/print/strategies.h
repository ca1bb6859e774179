/* tools/print/strategies.h - the table of plans whose training is not the synchronous one (tools/strategy/strategies.h). */
#ifndef TOOLS_PRINT_STRATEGIES_H
#define TOOLS_PRINT_STRATEGIES_H

#include "core/document/json.h"
#include "tools/strategy/strategies.h"

/* Behind the report of a search: iteration time, samples/s, effective rate and its assumption of each strategy, the best first. sync_ns: of the
 * synchronous plan. file: of the synchronous plan; those of strategies are FILE.NAME. */
void print_strategies(struct arena *a, const struct strategies *s, int64_t sync_ns, const char *file);
/* A member `strategies`. */
void print_strategies_json(struct arena *a, struct json *j, const struct strategies *s, const char *file);
/* FILE.NAME. The arena's. */
const char *print_strategy_file(struct arena *a, const char *file, const struct strategy_plan *x);

#endif
