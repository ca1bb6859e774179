#include "core/program/server_order.h"

#include "core/base/arena.h"

#include <math.h>
#include <string.h>

void server_order_start(struct server_order *x, struct arena *a, const struct parameter_server *rule, int32_t n_workers)
{
    *x = (struct server_order){.rule = rule, .n = n_workers};
    x->workers = ARENA_ARRAY(a, struct server_worker, (size_t)n_workers);
    x->arrived = ARENA_ARRAY(a, int32_t, (size_t)n_workers);
    x->pulling = ARENA_ARRAY(a, int32_t, (size_t)n_workers);
}

void server_order_count(struct server_counts *x, const struct parameter_server *rule, int64_t staleness, bool dropped)
{
    x->pushes++, x->dropped += dropped;
    x->slowed += !dropped && rule->rate == SERVER_INVERSE && staleness > 0;
    x->staleness += staleness;
    if (staleness > x->most) x->most = staleness;
}

static bool contains(const int32_t *list, int32_t n, int32_t worker)
{
    for (int32_t i = 0; i < n; i++)
        if (list[i] == worker) return true;
    return false;
}

static int32_t take(int32_t *list, int32_t *n, int32_t at)
{
    int32_t worker = list[at];
    memmove(list + at, list + at + 1, (size_t)(--*n - at) * sizeof *list);
    return worker;
}

void server_order_arrived(struct server_order *x, int32_t worker) { x->arrived[x->n_arrived++] = worker; }

bool server_order_expects(const struct server_order *x, int32_t worker)
{
    const struct server_worker *w = &x->workers[worker];
    return !w->gone && w->steps < x->end && !contains(x->arrived, x->n_arrived, worker) &&
           !contains(x->pulling, x->n_pulling, worker);
}

void server_order_gone(struct server_order *x, int32_t worker)
{
    x->workers[worker].gone = true;
    for (int32_t i = 0; i < x->n_pulling; i++)
        if (x->pulling[i] == worker) (void)take(x->pulling, &x->n_pulling, i);
}

/* Steps that the slowest worker has finished; INT64_MAX: all are gone. */
static int64_t slowest(const struct server_order *x)
{
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < x->n; i++)
        if (!x->workers[i].gone && x->workers[i].steps < least) least = x->workers[i].steps;
    return least;
}

static bool may_pull(const struct server_order *x, int32_t worker)
{
    return x->rule->mode == SERVER_ASP || slowest(x) >= x->workers[worker].steps - x->rule->bound;
}

static struct server_turn pull(struct server_order *x, int32_t at)
{
    int32_t worker = take(x->pulling, &x->n_pulling, at);
    x->workers[worker].pulled = x->version;
    return (struct server_turn){.action = SERVER_REPLY, .worker = worker, .step = x->workers[worker].steps - 1};
}

static struct server_turn push(struct server_order *x)
{
    int32_t worker = take(x->arrived, &x->n_arrived, 0);
    struct server_worker *w = &x->workers[worker];
    struct server_turn t = {.action = SERVER_APPLY,
                            .worker = worker,
                            .step = w->steps++,
                            .staleness = x->version - w->pulled,
                            .rate = 1};
    if (x->rule->rate == SERVER_INVERSE) t.rate = 1 / (double)(t.staleness + 1);
    if (x->rule->drop_above >= 0 && t.staleness > x->rule->drop_above)
        t.action = SERVER_DROP;
    else
        x->version++;
    server_order_count(&x->counts, x->rule, t.staleness, t.action == SERVER_DROP);
    if (!w->gone) x->pulling[x->n_pulling++] = worker;
    return t;
}

struct server_turn server_order_next(struct server_order *x)
{
    int32_t first = -1;
    for (int32_t i = 0; i < x->n_pulling; i++)
        if (may_pull(x, x->pulling[i]) && (first < 0 || x->workers[x->pulling[i]].steps < x->workers[x->pulling[first]].steps)) first = i;
    if (first >= 0) return pull(x, first);
    if (x->n_arrived) return push(x);
    return (struct server_turn){.action = slowest(x) >= x->end ? SERVER_DONE : SERVER_WAIT, .worker = -1};
}

/* A worker's mean step while all are at work. */
static double step_ns(const int64_t *end_ns, int64_t steps, int64_t until_ns)
{
    int64_t first = steps / 4, last = steps - 1;
    while (last > 0 && end_ns[last] > until_ns) last--;
    if (last <= first) first = 0;
    if (last == first) return (double)end_ns[0];
    return (double)(end_ns[last] - end_ns[first]) / (double)(last - first);
}

int64_t server_order_iteration_ns(const int64_t *end_ns, const int32_t *microbatches, int32_t n_workers, int64_t steps)
{
    int64_t until_ns = INT64_MAX;
    double rate = 0, all = 0;
    for (int32_t w = 0; w < n_workers; w++)
        if (end_ns[(w + 1) * steps - 1] < until_ns) until_ns = end_ns[(w + 1) * steps - 1];
    for (int32_t w = 0; w < n_workers; w++) {
        double ns = step_ns(end_ns + w * steps, steps, until_ns);
        all += microbatches[w];
        if (ns > 0) rate += microbatches[w] / ns;
    }
    return rate > 0 ? llround(all / rate) : 0;
}
