#include "sim/explain/explain.h"

#include "core/base/arena.h"
#include "core/program/ahead.h"
#include "sim/explain/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *explain_kind_name(enum explain_kind kind)
{
    static const char *const names[EXPLAIN_KIND_COUNT] = {
#define X(name) #name,
        EXPLAIN_KINDS(X)
#undef X
    };
    if ((int)kind < 0 || kind >= EXPLAIN_KIND_COUNT) BUG("kind of piece %d", (int)kind);
    return names[kind];
}

/* --- the window --- */

static const struct span *find_step(const struct trace *t, int32_t step)
{
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_STEP && t->spans[i].step == step) return &t->spans[i];
    return NULL;
}

/* The last step but one, which equals the steady one; the last step only if there is no other, because nothing follows it. With local SGD
 * the last period; of pipelines without a flush whose steps differ, all steps of their mean. */
static enum status find_window(const struct program *p, const struct sim_result *r, struct explain *x, struct error *err)
{
    bool unflushed = false;
    x->step = r->steps > 2 ? r->steps - 2 : r->steps - 1, x->steps = 1;
    if (r->period && r->steps >= r->period)
        x->steps = r->period, x->step = r->steps / r->period * r->period - 1;
    for (int32_t i = 0; i < p->n_devices; i++) unflushed |= ahead_on_lane(p, i);
    const struct span *last = find_step(r->trace, x->step), *first = find_step(r->trace, x->step - x->steps + 1);
    unflushed &= last && last->end_ns - last->begin_ns != r->iteration_ns;
    if (unflushed) x->steps = x->step - ahead_first_steady(r->steps) + 1, first = find_step(r->trace, x->step - x->steps + 1);
    x->iteration_ns = r->iteration_ns;
    if (!first || !last || (!r->period && !unflushed && last->end_ns - first->begin_ns != x->iteration_ns))
        return error_set(err, ERR_INPUT, "the trace has no step of %" PRId64 " ns to explain",
                         r->iteration_ns);
    x->begin_ns = first->begin_ns, x->end_ns = last->end_ns;
    return OK;
}

/* --- rows --- */

static int by_what(const void *a, const void *b)
{
    const struct explain_row *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->phase != y->phase) return x->phase < y->phase ? -1 : 1;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return x->link < y->link ? -1 : x->link > y->link;
}

static int by_time(const void *a, const void *b)
{
    const struct explain_row *x = a, *y = b;
    if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
    return by_what(a, b);
}

static void sum_rows(struct arena *a, struct explain *x)
{
    struct explain_row *rows = ARENA_ARRAY(a, struct explain_row, x->n_pieces);
    for (size_t i = 0; i < x->n_pieces; i++) {
        const struct explain_piece *c = &x->pieces[i];
        int64_t ns = c->end_ns - c->begin_ns;
        rows[i] = (struct explain_row){c->kind, c->phase, c->op, c->link >= 0 ? -1 : c->device,
                                       c->link, ns,       1};
        x->kind_ns[c->kind] += ns;
    }
    if (x->n_pieces) qsort(rows, x->n_pieces, sizeof *rows, by_what);
    for (size_t i = 0; i < x->n_pieces; i++) {
        if (x->n_rows && !by_what(&rows[i], &rows[x->n_rows - 1]))
            rows[x->n_rows - 1].ns += rows[i].ns, rows[x->n_rows - 1].pieces++;
        else
            rows[x->n_rows++] = rows[i];
    }
    if (x->n_rows) qsort(rows, x->n_rows, sizeof *rows, by_time);
    x->rows = rows;
}

/* --- what-if candidates --- */

static void add_candidates(struct arena *a, struct explain *x, size_t *capacity,
                           enum explain_what_kind kind, const int64_t *ns, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (!ns[i]) continue;
        x->what = arena_grow(a, x->what, x->n_what, capacity, sizeof *x->what);
        x->what[x->n_what++] = (struct explain_what){kind, i, ns[i], -1, -1};
    }
}

static int by_presence(const void *a, const void *b)
{
    const struct explain_what *x = a, *y = b;
    if (x->path_ns != y->path_ns) return x->path_ns > y->path_ns ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_gain(const void *a, const void *b)
{
    const struct explain_what *x = a, *y = b;
    if (x->free_ns != y->free_ns) return x->free_ns < y->free_ns ? -1 : 1;
    if (x->half_ns != y->half_ns) return x->half_ns < y->half_ns ? -1 : 1;
    return by_presence(a, b);
}

enum status explain_result(struct arena *a, const struct program *p, struct cost *k,
                           const struct sim_result *r, struct explain *out, struct error *err)
{
    struct explain_presence all = {.device = ARENA_ARRAY(a, int64_t, (size_t)p->n_devices),
                                   .link = ARENA_ARRAY(a, int64_t, (size_t)p->n_links),
                                   .kind = ARENA_ARRAY(a, int64_t, OP_KIND_COUNT)};
    struct explanation t = {
        .arena = a, .program = p, .cost = k, .trace = r->trace, .result = r, .steps = r->steps};
    size_t capacity = 0;
    *out = (struct explain){0};
    if (!r->trace)
        return error_set(err, ERR_INPUT, "the simulation has no trace to explain");
    if (parameter_server_by_arrival(&p->server))
        return error_set(err, ERR_INPUT, "parameter_server: its servers handle gradients in the order of their arrival, so no step "
                                         "repeats another and none is explained; with mode: bsp all steps are alike");
    TRY(find_window(p, r, out, err));
    TRY(explain_label(&t, err));
    TRY(explain_path(&t, out, &all, err));
    sum_rows(a, out);
    explain_use(&t, out);
    explain_memory(&t, out);
    add_candidates(a, out, &capacity, EXPLAIN_WHAT_DEVICE, all.device, p->n_devices);
    add_candidates(a, out, &capacity, EXPLAIN_WHAT_LINK, all.link, p->n_links);
    add_candidates(a, out, &capacity, EXPLAIN_WHAT_OP, all.kind, OP_KIND_COUNT);
    if (out->n_what) qsort(out->what, out->n_what, sizeof *out->what, by_presence);
    out->what_left_out = out->n_what, out->n_what = 0;
    return OK;
}

/* --- what-if --- */

static enum status try_factor(struct arena *scratch, const struct program *p, struct cost *k,
                              const struct sim_options *o, const struct explain_what *w,
                              double factor, int64_t *out_ns, struct error *err)
{
    const int32_t counts[] = {p->n_devices, p->n_links, OP_KIND_COUNT};
    double *f = ARENA_ARRAY(scratch, double, (size_t)counts[w->kind]);
    struct sim_scale scale = {.device = w->kind == EXPLAIN_WHAT_DEVICE ? f : NULL,
                              .link = w->kind == EXPLAIN_WHAT_LINK ? f : NULL,
                              .kind = w->kind == EXPLAIN_WHAT_OP ? f : NULL};
    struct sim_options tried = {.steps = o->steps, .scale = &scale};
    struct sim_result r;
    for (int32_t i = 0; i < counts[w->kind]; i++) f[i] = 1;
    f[w->index] = factor;
    for (int32_t i = 0; w->kind == EXPLAIN_WHAT_LINK && i < p->links[w->index].n_hops; i++)
        f[p->links[w->index].hop[i]] = factor; /* a route is scaled by its links */
    TRY(sim_run(scratch, p, k, &tried, &r, err));
    *out_ns = r.iteration_ns;
    return OK;
}

enum status explain_what_if(const struct program *p, struct cost *k, const struct sim_options *o,
                            size_t most, struct explain *x, struct error *err)
{
    struct arena *scratch = arena_new();
    enum status st = OK;
    size_t all = x->n_what + x->what_left_out, n = most < all ? most : all;
    for (size_t i = 0; i < n && st == OK; i++) {
        struct explain_what *w = &x->what[i];
        st = try_factor(scratch, p, k, o, w, 0, &w->free_ns, err);
        arena_reset(scratch);
        if (st == OK) st = try_factor(scratch, p, k, o, w, 0.5, &w->half_ns, err);
        arena_reset(scratch);
    }
    arena_free(scratch);
    if (st != OK) return st;
    x->n_what = n, x->what_left_out = all - n;
    if (n) qsort(x->what, n, sizeof *x->what, by_gain);
    return OK;
}
