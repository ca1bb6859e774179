/* tools/print/schedule.c - table of devices, timeline and order as text, or one JSON object. */
#include "tools/print/schedule.h"

#include "core/base/units.h"
#include "tools/common.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 100, MAX_SHOWN = 400 };

/* Microbatches (of a chunk each) between the start of F and the end of B or W: their maximum, and those before the first backward. */
static int64_t in_flight(const struct schedule_lane *l, int64_t *warmup)
{
    int64_t now = 0, most = 0;
    *warmup = 0;
    while (*warmup < l->n_ops && l->ops[*warmup].phase == PHASE_F) ++*warmup;
    for (int64_t i = 0; i < l->n_ops; i++) {
        char c = l->ops[i].phase;
        now += c == 'F' ? 1 : c == 'B' || c == 'W' ? -1 : 0;
        if (now > most) most = now;
    }
    return most;
}

static void print_op(FILE *out, const struct schedule *s, const struct schedule_op *o)
{
    if (s->n_chunks > 1) fprintf(out, "%" PRId32, o->chunk);
    fprintf(out, "%c%" PRId32, o->phase, o->microbatch);
}

/* A column shows the phase that runs in the middle of its interval; the second chunk in small letters. */
static void print_timeline(const struct schedule *s, const struct static_report *r)
{
    const struct static_span *spans = r->spans;
    for (int32_t d = 0; d < s->n_devices; d++) {
        const struct schedule_lane *l = &s->lanes[d];
        char row[COLUMNS + 1];
        int64_t at = 0;
        for (int c = 0; c < COLUMNS; c++) {
            double now = ((double)c + .5) * (double)r->makespan_ns / COLUMNS;
            while (at < l->n_ops && (double)spans[at].end_ns <= now) at++;
            row[c] = '.';
            if (at == l->n_ops || (double)spans[at].begin_ns > now) continue;
            row[c] = l->ops[at].phase;
            if (l->ops[at].chunk % 2) row[c] = (char)(row[c] - 'A' + 'a');
        }
        row[COLUMNS] = 0;
        printf("%6" PRId32 "  %s\n", d, row);
        spans += l->n_ops;
    }
}

static void print_devices(const struct schedule *s, const struct static_report *r)
{
    printf(
        "device  warm-up  in flight  operations        busy        idle  bubble %%  peak memory\n");
    for (int32_t d = 0; d < s->n_devices; d++) {
        const struct static_device *x = &r->devices[d];
        char busy[32], idle[32], peak[32];
        int64_t warmup, most = in_flight(&s->lanes[d], &warmup);
        printf("%6" PRId32 " %8" PRId64 " %10" PRId64 " %11" PRId64 " %11s %11s %9.2f %12s%s\n", d,
               warmup, most, s->lanes[d].n_ops, units_print_ns(busy, x->busy_ns),
               units_print_ns(idle, x->idle_ns), 100 * x->bubble_rate,
               units_print_bytes(peak, (double)x->peak_bytes), x->fits ? "" : "  does not fit");
    }
}

void schedule_print_text(const struct schedule *s, const struct static_report *r, bool events,
                         bool timeline)
{
    char makespan[32], bubble[32];
    printf("%s: %" PRId32 " devices, %" PRId32 " microbatches", s->name, s->n_devices,
           s->n_microbatches);
    if (s->n_chunks > 1) printf(", %" PRId32 " chunks per device", s->n_chunks);
    printf("\nmakespan %s (%" PRId64 " ns, by %s), bubble %.2f %%, longest idle time between a "
           "device's first and last operation %s\n",
           units_print_ns(makespan, r->makespan_ns), r->makespan_ns,
           events ? "the event loop" : "the static pass", 100 * r->bubble_rate,
           units_print_ns(bubble, r->bubble_ns));
    print_devices(s, r);
    if (timeline && r->makespan_ns) print_timeline(s, r);
    for (int32_t d = 0; d < s->n_devices; d++) {
        const struct schedule_lane *l = &s->lanes[d];
        if (l->n_ops > MAX_SHOWN) continue;
        printf("%6" PRId32 " ", d);
        for (int64_t i = 0; i < l->n_ops; i++) {
            putchar(' ');
            print_op(stdout, s, &l->ops[i]);
        }
        printf("\n");
    }
}

static void put_order(struct json *j, const struct schedule *s, int32_t d)
{
    json_put_list_line(j, "order");
    for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
        const struct schedule_op *o = &s->lanes[d].ops[i];
        char text[40];
        if (s->n_chunks > 1)
            snprintf(text, sizeof text, "%" PRId32 "%c%" PRId32, o->chunk, o->phase, o->microbatch);
        else
            snprintf(text, sizeof text, "%c%" PRId32, o->phase, o->microbatch);
        json_put_text(j, NULL, text);
    }
    json_close(j);
}

void schedule_print_json(const struct schedule *s, const struct static_report *r, bool events)
{
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "schedule", s->name);
    json_put_int(&j, "devices", s->n_devices);
    json_put_int(&j, "chunks", s->n_chunks);
    json_put_int(&j, "microbatches", s->n_microbatches);
    json_put_int(&j, "operations", schedule_ops(s));
    json_put_text(&j, "timed_by", events ? "events" : "static");
    json_put_int(&j, "makespan_ns", r->makespan_ns);
    json_put_double(&j, "bubble_rate", r->bubble_rate);
    json_put_int(&j, "bubble_ns", r->bubble_ns);
    json_put_bool(&j, "fits", r->fits);
    json_put_list(&j, "lanes");
    for (int32_t d = 0; d < s->n_devices; d++) {
        const struct static_device *x = &r->devices[d];
        int64_t warmup, most = in_flight(&s->lanes[d], &warmup);
        json_put_object(&j, NULL);
        json_put_int(&j, "device", d);
        json_put_list_line(&j, "stages");
        for (int32_t c = 0; c < s->n_chunks; c++)
            json_put_int(&j, NULL, s->stage[d * s->n_chunks + c]);
        json_close(&j);
        json_put_int(&j, "warmup", warmup);
        json_put_int(&j, "in_flight", most);
        json_put_int(&j, "busy_ns", x->busy_ns);
        json_put_int(&j, "idle_ns", x->idle_ns);
        json_put_double(&j, "bubble_rate", x->bubble_rate);
        json_put_int(&j, "peak_bytes", x->peak_bytes);
        json_put_int(&j, "peak_ns", x->peak_ns);
        json_put_bool(&j, "fits", x->fits);
        put_order(&j, s, d);
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}
