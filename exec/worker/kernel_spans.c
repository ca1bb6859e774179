#include "exec/worker/kernel_spans.h"

#include "core/base/rng.h"
#include "exec/activity.h"
#include "exec/kernel_name.h"
#include "exec/worker/rank.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAMES = 1024 };

struct label_name {
    const char *symbol;
    int64_t at; /* offset in the text sent to rank 0 */
    struct label_name *next;
};

struct telling {
    struct kernel_spans *to;
    const struct rank *r;
    const struct span_list *operators;
    struct label_name *names[NAMES];
    char *text;
    size_t bytes, capacity;
};

/* Whether any device of the program, on any rank, has a profiler. */
static bool seen_anywhere(const struct program *p)
{
    for (int32_t i = 0; i < p->n_devices; i++)
        if (!program_device_is_host(&p->devices[i])) return true;
    return false;
}

enum status kernel_spans_open(struct kernel_spans *x, const struct rank *r, struct error *err)
{
    if (!r->o->keep_kernels) return OK;
    if (!seen_anywhere(r->p))
        return error_set(err, ERR_NO_DEVICE,
                         "'%s' has host devices only, which have no kernels to trace",
                         r->p->name);
    if (!r->backend.profiler) return OK;
    const struct activity *a;
    TRY(activity_plugin(r->backend.profiler, &a, err));
    TRY(a->open(err));
    x->of = a;
    return OK;
}

void kernel_spans_close(struct kernel_spans *x)
{
    if (x->of) x->of->close();
    x->of = NULL;
}

enum status kernel_spans_enter(struct kernel_spans *x, struct error *err)
{
    return x->of ? x->of->enter(++x->entered, err) : OK;
}

enum status kernel_spans_leave(struct kernel_spans *x, struct error *err)
{
    return x->of ? x->of->leave(err) : OK;
}

void kernel_spans_seen(struct kernel_spans *x, const struct span_list *operators, int64_t begin_ns,
                       int64_t end_ns)
{
    if (!x->of) return;
    x->seen = arena_grow(operators->a, x->seen, x->n_seen, &x->capacity, sizeof *x->seen);
    x->seen[x->n_seen++] = (struct kernel_spans_seen){operators->n, begin_ns, end_ns};
}

/* --- afterwards ------------------------------------------------------------------------------ */

/* Each symbol's readable name is stored once. */
static int64_t told(struct telling *t, const char *symbol)
{
    char name[KERNEL_NAME_MAX];
    struct label_name **at = &t->names[rng_hash_bytes(0, symbol, strlen(symbol)) % NAMES];
    while (*at && strcmp((*at)->symbol, symbol) != 0) at = &(*at)->next;
    if (*at) return (*at)->at;
    *at = ARENA_ARRAY(t->r->run, struct label_name, 1);
    **at = (struct label_name){.symbol = symbol, .at = (int64_t)t->bytes};
    kernel_name(symbol, name, sizeof name);
    for (size_t i = 0; i <= strlen(name); i++) {
        t->text = arena_grow(t->r->run, t->text, t->bytes, &t->capacity, 1);
        t->text[t->bytes++] = name[i];
    }
    return (*at)->at;
}

/* The last operator that had begun by then; -1: none. */
static int64_t last_before(const struct kernel_spans *x, int64_t at_ns)
{
    size_t from = 0, to = x->n_seen;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (x->seen[middle].begin_ns <= at_ns)
            from = middle + 1;
        else
            to = middle;
    }
    return (int64_t)from - 1;
}

/* Instant on the run's clock: within an operator scaled like its span, after it in real time. */
static int64_t on_the_run(const struct kernel_spans_seen *o, const struct span *s, int64_t at_ns)
{
    int64_t lasted = o->end_ns - o->begin_ns, after = at_ns - o->begin_ns;
    double stretch = (double)(s->end_ns - s->begin_ns) / (double)(lasted > 0 ? lasted : 1);
    int64_t at = after <= lasted ? s->begin_ns + (int64_t)((double)after * stretch)
                                 : s->end_ns + after - lasted;
    return at > 0 ? at : 0;
}

static void tell(struct telling *t, const struct activity_record *r)
{
    struct kernel_spans *x = t->to;
    bool known = r->under >= 1 && r->under <= x->n_seen;
    int64_t n = known ? (int64_t)r->under - 1 : last_before(x, r->begin_ns);
    if (n < 0) return; /* before time 0, or before the first operator */
    const struct span *o = &t->operators->spans[x->seen[n].span];
    struct span s = {.kind = SPAN_KERNEL,
                     .stream = STREAM_kernel,
                     .device = t->r->index,
                     .peer = -1,
                     .stage = known ? o->stage : -1,
                     .phase = known ? o->phase : 'S',
                     .step = o->step,
                     .microbatch = known ? o->microbatch : -1,
                     .op = known ? o->op : -1,
                     .bytes = r->bytes,
                     .begin_ns = on_the_run(&x->seen[n], o, r->begin_ns),
                     .end_ns = on_the_run(&x->seen[n], o, r->end_ns),
                     .key = (uint64_t)told(t, r->name)};
    span_list_add(&x->spans, s);
}

enum status kernel_spans_collect(struct kernel_spans *x, const struct rank *r,
                                 const struct span_list *operators, struct error *err)
{
    struct activity_log log = {0};
    struct telling t = {.to = x, .r = r, .operators = operators};
    if (!x->of) return OK;
    TRY(x->of->collect(&log, err));
    x->spans.a = operators->a;
    for (size_t i = 0; i < log.n; i++) tell(&t, &log.records[i]);
    x->names = (struct span_names){.text = t.text, .bytes = (int64_t)t.bytes, .lost = log.lost};
    return OK;
}
