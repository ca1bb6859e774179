#include "tools/objective.h"

#include "planner/candidate/incumbents.h"

const char *const objective_names[] = {
#define X(name, text) text,
    OBJECTIVES(X)
#undef X
        NULL};

void objective_put(const struct objective_request *q, struct search_options *o)
{
    o->objective = (enum objective)q->objective;
    o->min_rate = q->min_rate, o->max_cost = q->max_cost;
}

bool objective_better(const struct search_options *o, const struct search_plan *x,
                      const struct search_plan *y)
{
    const struct incumbents by = {.o = o};
    return incumbents_inside(&by, x) && (!y || incumbents_better(&by, x, y));
}

bool objective_precedes(const struct search_options *o, const struct search_plan *x, const struct search_plan *y)
{
    const struct incumbents by = {.o = o};
    return incumbents_better(&by, x, y);
}
