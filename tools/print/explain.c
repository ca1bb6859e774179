#include "tools/print/explain.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/print/classes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ROWS = 12, MAX_BREAKDOWN = 5, MAX_WHAT = 12 };

#define STRAGGLES 1.05 /* times the median of its peers; the steps of a healthy device vary less */

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static const char *ns(struct arena *a, int64_t t)
{
    char text[32];
    return arena_strdup(a, units_print_ns(text, t));
}

/* Routes of several pairs of devices pass the same links. */
static const char *link_name(struct arena *a, const struct program *p, int32_t link)
{
    const struct program_link *l = &p->links[link];
    if (!l->n_hops) return l->name;
    return arena_printf(a, "%s to %s over %s", l->ends[0], l->ends[1], l->name);
}

/* "F matmul on a.0", "transfer on lan", "collective on a.0 to b.0 over lan" */
static const char *row_name(struct arena *a, const struct program *p, const struct explain_row *r)
{
    if (r->op >= 0)
        return arena_printf(a, "%c %s on %s", r->phase, op_kind_name((enum op_kind)r->op),
                            p->devices[r->device].name);
    return arena_printf(a, "%s on %s", explain_kind_name(r->kind),
                        r->link >= 0     ? link_name(a, p, r->link)
                        : r->device >= 0 ? p->devices[r->device].name
                                         : "?");
}

static const char *what_name(const struct program *p, const struct explain_what *w)
{
    if (w->kind == EXPLAIN_WHAT_DEVICE) return p->devices[w->index].name;
    if (w->kind == EXPLAIN_WHAT_LINK) return p->links[w->index].name;
    return op_kind_name((enum op_kind)w->index);
}

static const char *what_kind(enum explain_what_kind k)
{
    static const char *const names[] = {"device", "link", "operator"};
    return names[k];
}

/* --- text --- */

static void text_path(struct arena *a, const struct program *p, const struct explain *x)
{
    int64_t whole = x->end_ns - x->begin_ns;
    if (x->steps > 1)
        printf("critical path of %" PRId32 " steps%s, %s:\n", x->steps,
               p->outer.every ? ", the last of which exchanges parameters between islands" : "", ns(a, whole));
    else
        printf("critical path of step %" PRId32 ", %s:\n", x->step, ns(a, whole));
    for (int k = 0; k < EXPLAIN_KIND_COUNT; k++)
        if (x->kind_ns[k])
            printf("  %-12s %10s %5.1f %%\n", explain_kind_name((enum explain_kind)k),
                   ns(a, x->kind_ns[k]), percent(x->kind_ns[k], whole));
    printf("longest on it:\n");
    for (size_t i = 0; i < x->n_rows && i < MAX_ROWS; i++)
        printf("  %-36s %10s %5.1f %%  %" PRId64 " times\n", row_name(a, p, &x->rows[i]),
               ns(a, x->rows[i].ns), percent(x->rows[i].ns, whole), x->rows[i].pieces);
    if (x->n_rows > MAX_ROWS) printf("  and %zu more\n", x->n_rows - MAX_ROWS);
    if (x->rooms) printf("  it waits %" PRId64 " times for a free send buffer\n", x->rooms);
    if (x->unposted) printf("  it waits %" PRId64 " times for a posted receive\n", x->unposted);
}

/* n > 1: the means of n devices, of which sum is the sum. */
static const char *device_text(struct arena *a, const struct explain *x,
                               const struct explain_device *sum, int32_t n)
{
    const int64_t whole = n * x->iteration_ns;
    const char *text = arena_printf(a, "busy %5.1f %%, on the path %5.1f %%; waits:",
                                    percent(sum->busy_ns, whole),
                                    percent(sum->path_ns, n * (x->end_ns - x->begin_ns)));
    bool any = false;
    for (int w = 0; w < SIM_WAIT_COUNT; w++) {
        if (!sum->wait_ns[w]) continue;
        text = arena_printf(a, "%s%s %s %.1f %%", text, any ? "," : "",
                            sim_wait_name((enum sim_wait)w), percent(sum->wait_ns[w], whole));
        any = true;
    }
    if (!any) text = arena_printf(a, "%s none", text);
    if (n == 1 && sum->replica_peers && sum->peers_ns &&
        (double)sum->busy_ns > STRAGGLES * (double)sum->peers_ns)
        text = arena_printf(a, "%s; computes %.2f times as long as its peers in other replicas",
                            text, (double)sum->busy_ns / (double)sum->peers_ns);
    return text;
}

static const char *mean_text(struct arena *a, const void *user, const int32_t *rows, int32_t n)
{
    const struct explain *x = user;
    struct explain_device sum = {0};
    for (int32_t i = 0; i < n; i++) {
        const struct explain_device *d = &x->devices[rows[i]];
        sum.busy_ns += d->busy_ns, sum.path_ns += d->path_ns;
        for (int w = 0; w < SIM_WAIT_COUNT; w++) sum.wait_ns[w] += d->wait_ns[w];
    }
    return arena_printf(a, "means: %s", device_text(a, x, &sum, n));
}

static void text_devices(struct arena *a, const struct plan *plan, const struct program *p,
                         const struct explain *x, bool all)
{
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)p->n_devices + 1);
    struct print_class *c;
    printf("devices:\n");
    for (int32_t i = 0; i < p->n_devices; i++) texts[i] = device_text(a, x, &x->devices[i], 1);
    int32_t n = print_device_classes(a, plan, p, texts, mean_text, x, all, &c);
    print_class_lines(c, n, "devices");
    const struct explain_device *b = &x->devices[x->busiest];
    printf("busiest: %s computes %s", p->devices[x->busiest].name, ns(a, b->busy_ns));
    if (b->n_peers && b->peers_ns)
        printf(", %.2f times the median of %" PRId32 " %s",
               (double)b->busy_ns / (double)b->peers_ns, b->n_peers,
               b->replica_peers ? "with the same stage" : "other stages");
    printf("\n");
}

static const char *link_text(struct arena *a, const struct explain_link *l)
{
    return arena_printf(
        a, "%" PRId64 " messages in flight for %s: %.1f %% hidden, %s exposed; %s queued",
        l->messages, ns(a, l->carried_ns), percent(l->carried_ns - l->exposed_ns, l->carried_ns),
        ns(a, l->exposed_ns), ns(a, l->queued_ns));
}

static int by_exposed(const void *a, const void *b, void *links)
{
    const struct explain_link *l = links;
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    if (l[i].exposed_ns != l[k].exposed_ns) return l[i].exposed_ns > l[k].exposed_ns ? -1 : 1;
    return i < k ? -1 : 1;
}

/* Of many links those with the longest exposed time, equal ones together. */
static void text_links(struct arena *a, const struct program *p, const struct explain *x, bool all)
{
    int32_t *used = ARENA_ARRAY(a, int32_t, (size_t)p->n_links + 1), n = 0, classes, shown = 0;
    const char **names = ARENA_ARRAY(a, const char *, (size_t)p->n_links + 1);
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)p->n_links + 1);
    struct print_class *c;
    for (int32_t i = 0; i < p->n_links; i++)
        if (x->links[i].messages || x->links[i].carried_ns) used[n++] = i;
    if (!n) return;
    bool few = all || n <= PRINT_ROWS_ONE_BY_ONE;
    if (!few) qsort_r(used, (size_t)n, sizeof *used, by_exposed, x->links);
    for (int32_t i = 0; i < n; i++)
        names[i] = link_name(a, p, used[i]), texts[i] = link_text(a, &x->links[used[i]]);
    classes = print_classes(a, n, names, texts, all, &c);
    if (!few && classes > MAX_ROWS) classes = MAX_ROWS;
    for (int32_t i = 0; i < classes; i++) shown += c[i].n;
    printf("links%s:\n", few ? "" : ", by exposed time");
    print_class_lines(c, classes, "links");
    if (shown < n) printf("  and %d more (--all)\n", (int)(n - shown));
}

/* Where all go by their messages, the links say what they take. */
static void text_collectives(const struct explain *x)
{
    const char *between = "collectives are priced by";
    if (!x->prices[COLLECTIVE_PRICE_TABLE] && !x->prices[COLLECTIVE_PRICE_NCCL]) return;
    for (int k = COLLECTIVE_PRICE_COUNT - 1; k >= 0; k--) {
        if (!x->prices[k]) continue;
        printf("%s %s: %" PRId32, between, collective_price_name((enum collective_price)k),
               x->prices[k]);
        between = ",";
    }
    printf("\n");
}

static void text_memory(const struct program *p, const struct sim_result *r,
                        const struct explain *x)
{
    char bytes[32];
    int64_t peak = r->devices[x->fullest].peak_bytes;
    printf("fullest memory: %s, %s at its peak:", p->devices[x->fullest].name,
           units_print_bytes(bytes, (double)peak));
    for (size_t i = 0; i < x->n_memory_breakdown && i < MAX_BREAKDOWN; i++) {
        const struct explain_memory *h = &x->memory_breakdown[i];
        printf("%s %s %.1f %%", i ? "," : "", h->name, percent(h->bytes, peak));
        if (h->buffers > 1) printf(" (%" PRId64 " buffers)", h->buffers);
    }
    printf("%s\n", x->n_memory_breakdown > MAX_BREAKDOWN ? ", …" : "");
}

static const char *what_text(struct arena *a, const struct explain *x, const struct explain_what *w)
{
    return arena_printf(a, "%10s (%+.1f %%), at twice the speed %10s (%+.1f %%)", ns(a, w->free_ns),
                        percent(w->free_ns - x->iteration_ns, x->iteration_ns), ns(a, w->half_ns),
                        percent(w->half_ns - x->iteration_ns, x->iteration_ns));
}

static void text_what(struct arena *a, const struct program *p, const struct explain *x)
{
    int32_t n = (int32_t)x->n_what, shown = 0;
    const char **names = ARENA_ARRAY(a, const char *, (size_t)n + 1);
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)n + 1);
    struct print_class *c;
    if (!n) return;
    printf("what if, one at a time: no time at all (a lower bound for any speed-up of it), or half "
           "its time:\n");
    for (int32_t i = 0; i < n; i++) {
        names[i] = what_name(p, &x->what[i]);
        texts[i] = arena_printf(a, "%s %s", what_kind(x->what[i].kind), what_text(a, x, &x->what[i]));
    }
    int32_t classes = print_classes(a, n, names, texts, false, &c);
    for (int32_t i = 0; i < classes && i < MAX_WHAT; i++) {
        const struct explain_what *w = &x->what[c[i].rows[0]];
        printf("  %-8s %-16s %s", what_kind(w->kind), c[i].names, what_text(a, x, w));
        if (c[i].n > 1) printf(" (%d %ss)", (int)c[i].n, what_kind(w->kind));
        puts("");
        shown += c[i].n;
    }
    if (shown < n) printf("  and %d more with less to gain; --json has them all\n", (int)(n - shown));
    if (x->what_left_out)
        printf("  %zu more on the path were not simulated (--what-if)\n", x->what_left_out);
}

void print_explain(struct arena *a, const struct plan *plan, const struct program *p,
                   const struct sim_result *r, const struct explain *x, bool all)
{
    text_path(a, p, x);
    text_devices(a, plan, p, x, all);
    text_links(a, p, x, all);
    text_collectives(x);
    text_memory(p, r, x);
    text_what(a, p, x);
}

/* --- JSON --- */

static void json_rows(struct json *j, const struct program *p, const struct explain *x)
{
    json_put_object_line(j, "kinds");
    for (int k = 0; k < EXPLAIN_KIND_COUNT; k++)
        json_put_int(j, explain_kind_name((enum explain_kind)k), x->kind_ns[k]);
    json_close(j);
    json_put_list(j, "path");
    for (size_t i = 0; i < x->n_rows; i++) {
        const struct explain_row *r = &x->rows[i];
        char letter[2] = {r->phase, 0};
        json_put_object_line(j, NULL);
        json_put_text(j, "kind", explain_kind_name(r->kind));
        if (r->op >= 0) json_put_text(j, "phase", letter);
        if (r->op >= 0) json_put_text(j, "operator", op_kind_name((enum op_kind)r->op));
        if (r->device >= 0) json_put_text(j, "device", p->devices[r->device].name);
        if (r->link >= 0) json_put_text(j, "link", p->links[r->link].name);
        json_put_int(j, "ns", r->ns);
        json_put_int(j, "count", r->pieces);
        json_close(j);
    }
    json_close(j);
    json_put_int(j, "waits_for_send_buffer", x->rooms);
    json_put_int(j, "waits_for_receive", x->unposted);
}

static void json_devices(struct json *j, const struct program *p, const struct explain *x)
{
    json_put_list(j, "devices");
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct explain_device *d = &x->devices[i];
        json_put_object_line(j, NULL);
        json_put_text(j, "id", p->devices[i].name);
        json_put_int(j, "busy_ns", d->busy_ns);
        json_put_int(j, "path_ns", d->path_ns);
        json_put_object(j, "wait_ns");
        for (int w = 0; w < SIM_WAIT_COUNT; w++)
            json_put_int(j, sim_wait_name((enum sim_wait)w), d->wait_ns[w]);
        json_close(j);
        json_put_int(j, "peers", d->n_peers);
        json_put_text(j, "peers_are", d->replica_peers ? "replicas" : "stages");
        json_put_int(j, "peers_median_busy_ns", d->peers_ns);
        json_close(j);
    }
    json_close(j);
    json_put_text(j, "busiest", p->devices[x->busiest].name);
}

static void json_links(struct json *j, const struct program *p, const struct explain *x)
{
    json_put_list(j, "links");
    for (int32_t i = 0; i < p->n_links; i++) {
        const struct explain_link *l = &x->links[i];
        json_put_object_line(j, NULL);
        json_put_text(j, "link", p->links[i].name);
        json_put_int(j, "messages", l->messages);
        json_put_int(j, "bytes", l->bytes);
        json_put_int(j, "in_flight_ns", l->carried_ns);
        json_put_int(j, "exposed_ns", l->exposed_ns);
        json_put_int(j, "hidden_ns", l->carried_ns - l->exposed_ns);
        json_put_int(j, "queued_ns", l->queued_ns);
        json_put_int(j, "path_ns", l->path_ns);
        json_close(j);
    }
    json_close(j);
}

static void json_collectives(struct json *j, const struct explain *x)
{
    json_put_list_line(j, "collectives");
    for (int k = 0; k < COLLECTIVE_PRICE_COUNT; k++) {
        if (!x->prices[k]) continue;
        json_put_object(j, NULL);
        json_put_text(j, "priced_by", collective_price_name((enum collective_price)k));
        json_put_int(j, "number", x->prices[k]);
        json_close(j);
    }
    json_close(j);
}

static void json_memory(struct json *j, const struct program *p, const struct sim_result *r,
                        const struct explain *x)
{
    json_put_object(j, "memory");
    json_put_text(j, "device", p->devices[x->fullest].name);
    json_put_int(j, "peak_bytes", r->devices[x->fullest].peak_bytes);
    json_put_int(j, "peak_ns", r->devices[x->fullest].peak_ns);
    json_put_list(j, "memory_breakdown");
    for (size_t i = 0; i < x->n_memory_breakdown; i++) {
        json_put_object_line(j, NULL);
        json_put_text(j, "name", x->memory_breakdown[i].name);
        json_put_int(j, "buffers", x->memory_breakdown[i].buffers);
        json_put_int(j, "bytes", x->memory_breakdown[i].bytes);
        json_close(j);
    }
    json_close(j);
    json_close(j);
}

static void json_what(struct json *j, const struct program *p, const struct explain *x)
{
    json_put_list(j, "what_if");
    for (size_t i = 0; i < x->n_what; i++) {
        const struct explain_what *w = &x->what[i];
        json_put_object_line(j, NULL);
        json_put_text(j, what_kind(w->kind), what_name(p, w));
        json_put_int(j, "free_ns", w->free_ns);
        json_put_int(j, "free_gain_ns", x->iteration_ns - w->free_ns);
        json_put_int(j, "half_ns", w->half_ns);
        json_put_int(j, "half_gain_ns", x->iteration_ns - w->half_ns);
        json_close(j);
    }
    json_close(j);
    json_put_int(j, "what_if_left_out", (int64_t)x->what_left_out);
}

void print_explain_json(struct json *j, const struct program *p, const struct sim_result *r,
                        const struct explain *x)
{
    json_put_object(j, "explain");
    json_put_int(j, "step", x->step);
    if (x->steps > 1) json_put_int(j, "steps", x->steps);
    json_put_int(j, "begin_ns", x->begin_ns);
    json_put_int(j, "end_ns", x->end_ns);
    json_put_int(j, "iteration_ns", x->iteration_ns);
    json_rows(j, p, x);
    json_devices(j, p, x);
    json_links(j, p, x);
    json_collectives(j, x);
    json_memory(j, p, r, x);
    json_what(j, p, x);
    json_close(j);
}
