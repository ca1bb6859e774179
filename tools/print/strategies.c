#include "tools/print/strategies.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/print/metrics.h"
#include "tools/print/replicas.h"
#include "tools/wrap.h"

#include <stdio.h>

enum { STRATEGY_INDENT = 4 };

const char *print_strategy_file(struct arena *a, const char *file, const struct strategy_plan *x)
{
    return arena_printf(a, "%s.%s", file, x->name);
}

/* Indices by effective rate; those without a plan last, in the order of the table. */
static const int32_t *best_first(struct arena *a, const struct strategies *s)
{
    int32_t *by = ARENA_ARRAY(a, int32_t, (size_t)s->n + 1);
    for (int32_t i = 0; i < s->n; i++) {
        int32_t at = i;
        for (; at > 0 && strategy_rate(&s->list[i]) > strategy_rate(&s->list[by[at - 1]]); at--) by[at] = by[at - 1];
        by[at] = i;
    }
    return by;
}

static void print_line(const char *text)
{
    wrap_text(stdout, text, 0, STRATEGY_INDENT, wrap_width());
    puts("");
}

void print_strategies(struct arena *a, const struct strategies *s, int64_t sync_ns, const char *file)
{
    const int32_t *by = best_first(a, s);
    char text[32];
    puts("  plans that train differently, which --allow asked for; their losses are not those of the plan above, and no bound covers them");
    for (int32_t i = 0; i < s->n; i++) {
        const struct strategy_plan *x = &s->list[by[i]];
        if (x->why) {
            print_line(arena_printf(a, "  %-14s         -  %s", x->name, x->why));
            continue;
        }
        double price = plan_cost(&x->plan, x->iteration_ns);
        print_line(arena_printf(a, "  %-14s %9s  %.2f times as fast, %s, %s%.4g samples/s effective (progress %.2g of a sample: %s); %s", x->name,
                                units_print_ns(text, x->iteration_ns), (double)sync_ns / (double)x->iteration_ns,
                                print_rate(a, &x->plan.job, x->iteration_ns),
                                price > 0 ? arena_printf(a, "costs %.4g per iteration, ", price) : "", strategy_rate(x), x->progress,
                                x->source, print_strategy_file(a, file, x)));
        fputs("    ", stdout);
        print_replicas(a, &x->plan, (struct print_replicas){.at = STRATEGY_INDENT, .indent = 2 * STRATEGY_INDENT});
    }
}

void print_strategies_json(struct arena *a, struct json *j, const struct strategies *s, const char *file)
{
    const int32_t *by = best_first(a, s);
    json_put_list(j, "strategies");
    for (int32_t i = 0; i < s->n; i++) {
        const struct strategy_plan *x = &s->list[by[i]];
        json_put_object(j, NULL);
        json_put_text(j, "name", x->name);
        json_put_text(j, "help", x->help);
        if (x->why) {
            json_put_null(j, "iteration_ns");
            json_put_text(j, "why", x->why);
        } else {
            json_put_int(j, "iteration_ns", x->iteration_ns);
            print_rate_json(j, &x->plan.job, x->iteration_ns);
            if (plan_priced(&x->plan)) json_put_double(j, "cost", plan_cost(&x->plan, x->iteration_ns));
            json_put_double(j, "progress", x->progress);
            json_put_text(j, "assumption", x->source);
            json_put_double(j, "effective_samples_per_s", strategy_rate(x));
            json_put_text(j, "plan", plan_describe(a, &x->plan));
            json_put_text(j, "file", print_strategy_file(a, file, x));
        }
        json_close(j);
    }
    json_close(j);
}
