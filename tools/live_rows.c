#include "tools/live_rows.h"

#include "core/base/arena.h"

#include <stdlib.h>

const char *const live_rows_colours[LIVE_CLASS_COUNT] = {
    [LIVE_parameters] = "#0072B2", [LIVE_gradients] = "#009E73",  [LIVE_state] = "#CC79A7",  [LIVE_feedback] = "#882255",
    [LIVE_scratch] = "#F0E442",    [LIVE_staging] = "#D55E00",    [LIVE_reserve] = "#999999",
    [LIVE_messages] = "#E69F00",   [LIVE_activations] = "#56B4E9"};

static double fullness(const struct live *x)
{
    return (double)x->peak_bytes / (x->memory_bytes > 0 ? (double)x->memory_bytes : 1);
}

static int by_fullness(const void *a, const void *b)
{
    const struct live_row *x = a, *y = b;
    double fx = fullness(&x->live), fy = fullness(&y->live);
    if (fx > fy || fx < fy) return fx > fy ? -1 : 1;
    return x->class - y->class;
}

static int by_class(const void *a, const void *b)
{
    const struct live_row *x = a, *y = b;
    return x->class - y->class;
}

enum status live_rows_make(struct arena *a, const struct program *p, const struct trace *t,
                           const struct step_timeline *line, int32_t most, size_t points,
                           int32_t *n, struct live_row **out, struct error *err)
{
    struct live_row *rows = ARENA_ARRAY(a, struct live_row, (size_t)line->n_classes + 1);
    for (int32_t r = 0; r < line->n_classes; r++) {
        rows[r].class = r;
        TRY(live_memory(a, p, t, line->classes[r].device, line->step, line->begin_ns, line->end_ns,
                        &rows[r].live, err));
        live_thin(&rows[r].live, points);
    }
    *n = line->n_classes < most ? line->n_classes : most;
    qsort(rows, (size_t)line->n_classes, sizeof *rows, by_fullness);
    qsort(rows, (size_t)*n, sizeof *rows, by_class);
    *out = rows;
    return OK;
}

void live_rows_edges(const struct live *x, size_t point, enum live_class c, int64_t *low,
                     int64_t *high)
{
    *high = 0;
    for (int k = 0; k <= (int)c; k++) {
        *low = *high;
        *high += k == LIVE_messages      ? x->points[point].messages
                 : k == LIVE_activations ? x->points[point].activations
                                         : x->bytes[k];
    }
}
