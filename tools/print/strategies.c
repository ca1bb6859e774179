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

static void print_line(const char *text)
{
    wrap_text(stdout, text, 0, STRATEGY_INDENT, wrap_width());
    puts("");
}

static const char *late(struct arena *a, const struct strategy_plan *x)
{
    return x->staleness > 0 ? arena_printf(a, " at a mean staleness of %.3g updates", x->staleness) : "";
}

void print_strategies(struct arena *a, const struct strategies *s, const struct search_plan *sync, const char *file)
{
    char text[32];
    puts("  plans that train differently, which --allow asked for; their losses are not those of the plan above, and no bound covers them");
    for (int32_t i = 0; i < s->n; i++) {
        const struct strategy_plan *x = &s->list[i];
        if (x->why) {
            print_line(arena_printf(a, "  %-14s         -  %s", x->name, x->why));
            continue;
        }
        double price = plan_cost(&x->plan, x->iteration_ns);
        print_line(arena_printf(a, "  %-14s %9s  %.2f times as fast, %s, %s%.4g samples/s effective (progress %.2g of a sample%s: %s); %s", x->name,
                                units_print_ns(text, x->iteration_ns), (double)sync->iteration_ns / (double)x->iteration_ns,
                                print_rate(a, &x->plan.job, x->iteration_ns),
                                price > 0 && sync->cost > 0 ? arena_printf(a, "costs %.4g per iteration (%.2f times the plan's), ", price, price / sync->cost) : "",
                                strategy_rate(x), x->progress, late(a, x), x->source,
                                arena_printf(a, "%s%s", x->outside ? "outside the limits; " : "", print_strategy_file(a, file, x))));
        fputs("    ", stdout);
        print_replicas(a, &x->plan, (struct print_replicas){.at = STRATEGY_INDENT, .indent = 2 * STRATEGY_INDENT});
    }
}

void print_preset(struct arena *a, const struct strategy_plan *x)
{
    if (x->synchronous)
        print_line(arena_printf(a, "  trains synchronously (%s): %s; the bounds of searches do not cover it", x->help, x->source));
    else
        print_line(arena_printf(a, "  trains differently (%s): its losses are not those of synchronous plans, and no bound covers it; %.4g samples/s "
                               "effective (progress %.2g of a sample%s: %s)",
                            x->help, strategy_rate(x), x->progress, late(a, x), x->source));
}

void print_preset_json(struct json *j, const struct strategy_plan *x)
{
    json_put_object(j, "preset");
    json_put_text(j, "name", x->name);
    json_put_text(j, "help", x->help);
    json_put_double(j, "progress", x->progress);
    if (x->staleness > 0) json_put_double(j, "mean_staleness", x->staleness);
    json_put_text(j, "assumption", x->source);
    json_put_double(j, "effective_samples_per_s", strategy_rate(x));
    json_close(j);
}

void print_strategies_json(struct arena *a, struct json *j, const struct strategies *s, const char *file)
{
    json_put_list(j, "strategies");
    for (int32_t i = 0; i < s->n; i++) {
        const struct strategy_plan *x = &s->list[i];
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
            if (x->staleness > 0) json_put_double(j, "mean_staleness", x->staleness);
            json_put_text(j, "assumption", x->source);
            json_put_double(j, "effective_samples_per_s", strategy_rate(x));
            if (x->outside) json_put_bool(j, "outside_limits", true);
            json_put_text(j, "plan", plan_describe(a, &x->plan));
            json_put_text(j, "file", print_strategy_file(a, file, x));
        }
        json_close(j);
    }
    json_close(j);
}
