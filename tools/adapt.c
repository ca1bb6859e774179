#include "tools/adapt.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "exec/clock.h"
#include "exec/comm/launch_local.h"
#include "tools/common.h"
#include "tools/team/edit.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PPM 1e6

enum status adapt_begin(struct adapt *x, struct restart *r, const struct plan *plan, struct error *err)
{
    const char *key = plan && x->mode ? restart_trains_differently(plan) : NULL;
    x->restart = r;
    if (!x->mode && !(r->elastic && restart_watches(r))) return OK;
    if (!plan) return error_set(err, ERR_USAGE, "--adapt plans again, and a program file has no plan: pass the plan");
    if (key) return error_set(err, ERR_INPUT, "--adapt: the plan has %s, and new plans are of synchronous training: leave --adapt out", key);
    void *shared = mmap(NULL, sizeof *x->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return error_set(err, ERR_RESOURCE, "cannot share memory with the ranks: %s", strerror(errno));
    x->shared = shared;
    return OK;
}

static double *ones(struct arena *a, int32_t n)
{
    double *factors = ARENA_ARRAY(a, double, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) factors[i] = 1;
    return factors;
}

/* From factors of one cluster's devices or links to those of another one, by name. */
static double *follow(struct arena *a, const double *factors, int32_t n, const char *(*name)(const struct cluster *c, int32_t i), const struct cluster *from,
                      int32_t n_to, const struct cluster *to)
{
    double *out = ones(a, n_to);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n_to; k++)
            if (!strcmp(name(from, i), name(to, k))) out[k] = factors[i];
    return out;
}
static const char *device_name(const struct cluster *c, int32_t i) { return c->devices[i].name; }
static const char *link_name(const struct cluster *c, int32_t i) { return c->links[i].name; }

static void follow_cluster(struct adapt *x, const struct cluster *to)
{
    struct arena *a = x->restart->a;
    const struct cluster *from = x->plan ? &x->plan->cluster : to;
    int32_t nd = x->plan ? from->n_devices : 0, nl = x->plan ? from->n_links : 0;
    x->device = follow(a, x->device, nd, device_name, from, to->n_devices, to);
    x->device_base = follow(a, x->device, to->n_devices, device_name, to, to->n_devices, to);
    x->device_known = follow(a, x->device_known, nd, device_name, from, to->n_devices, to);
    x->link = follow(a, x->link, nl, link_name, from, to->n_links, to);
    x->link_base = follow(a, x->link, to->n_links, link_name, to, to->n_links, to);
    x->link_known = follow(a, x->link_known, nl, link_name, from, to->n_links, to);
}

static void know(struct adapt *x, const struct cluster *c, const double *device, const double *link)
{
    for (int32_t d = 0; d < c->n_devices; d++) x->device_known[d] = device ? device[d] : 1;
    for (int32_t i = 0; i < c->n_links; i++) x->link_known[i] = link ? link[i] : 1;
}

/* What the running plan was not chosen for; NULL: nothing. */
static const char *unknown(struct adapt *x, const struct cluster *c)
{
    struct arena *a = x->restart->a;
    const char *what = NULL;
    for (int32_t d = 0; d < c->n_devices; d++)
        if (x->device[d] != x->device_known[d])
            what = arena_printf(a, "%s%soperators of %s take %.3g times as long as at first", what ? what : "", what ? "; " : "", c->devices[d].name, x->device[d]);
    for (int32_t i = 0; i < c->n_links; i++)
        if (x->link[i] != x->link_known[i])
            what = arena_printf(a, "%s%smessages on link %s take %.3g times as long as at first", what ? what : "", what ? "; " : "", c->links[i].name, x->link[i]);
    return what;
}

static enum status speeds_now(void *owner, struct arena *a, struct cluster *c, struct error *err);

void adapt_start(struct adapt *x, const struct plan *plan, const struct program *program, struct run_options *o)
{
    struct restart *r = x->restart;
    if (!x->shared) return;
    bool first = !x->plan;
    struct plan *copy = ARENA_ARRAY(r->a, struct plan, 1); /* the caller's changes when another one is made */
    *copy = *plan;
    follow_cluster(x, &copy->cluster);
    bool again = !first && copy->cluster.n_devices == x->plan->cluster.n_devices; /* else planned without a device, at the speeds of now */
    if (r->took || !again) know(x, &copy->cluster, x->device, x->link);
    if (x->pending && !r->took && x->event >= 0) {
        struct adapt_event *e = &x->shared->events[x->event];
        e->taken = false;
        snprintf(e->why, sizeof e->why, "the ranks ended before");
    }
    x->plan = copy;
    x->program = program;
    memset(&x->shared->table, 0, sizeof x->shared->table);
    o->stragglers = x->mode ? &x->shared->table : NULL;
    x->first = r->n ? r->events[r->n - 1].step : r->begin;
    memset(x->seen_compute, 0, sizeof x->seen_compute);
    memset(x->seen_link, 0, sizeof x->seen_link);
    if (r->took) x->changed_ns = clock_wall_ns();
    x->pending = false;
    x->news = unknown(x, &copy->cluster);
    x->came = NULL;
    x->news_step = 0;
    r->took = false;
    r->speeds = speeds_now;
    r->speeds_owner = x;
}

/* --- reports --- */

/* What would not be reported is 1, so that a recovered device is as before. */
static double near_one(double factor) { return factor < STRAGGLER_FACTOR && factor > 1 / STRAGGLER_FACTOR ? 1 : factor; }

static void note(struct adapt *x, int64_t step, const char *what)
{
    struct arena *a = x->restart->a;
    log_warn("step %" PRId64 ": %s", x->first + step, what);
    x->news = unknown(x, &x->plan->cluster);
    if (!x->news) x->news = arena_strdup(a, what);
    if (!x->news_step || step > x->news_step) x->news_step = step;
}

static int32_t device_of(const struct adapt *x, int64_t rank) { return cluster_device(&x->plan->cluster, x->program->devices[rank].name); }

static bool see_compute(struct adapt *x, int32_t rank)
{
    const struct straggler_report *r = &x->shared->table.ranks[rank];
    int64_t ppm = atomic_load(&r->compute_ppm);
    int32_t d = device_of(x, rank);
    if (!ppm || ppm == x->seen_compute[rank] || d < 0) return false;
    x->seen_compute[rank] = ppm;
    x->device[d] = near_one(x->device_base[d] * (double)ppm / PPM);
    const char *name = x->program->devices[rank].name;
    note(x, atomic_load(&r->compute_step),
         x->device[d] == 1 ? arena_printf(x->restart->a, "operators of %s take as long as at first", name)
                           : arena_printf(x->restart->a, "operators of %s take %.3g times as long as at first", name, x->device[d]));
    return true;
}

static bool see_link(struct adapt *x, int32_t rank)
{
    const struct straggler_report *r = &x->shared->table.ranks[rank];
    const struct cluster *c = &x->plan->cluster;
    int64_t ppm = atomic_load(&r->link_ppm);
    if (!ppm || ppm == x->seen_link[rank]) return false;
    int64_t peer = atomic_load(&r->peer);
    int32_t direction, from = device_of(x, rank), to = device_of(x, peer), link = from < 0 || to < 0 ? -1 : cluster_link(c, from, to, &direction);
    x->seen_link[rank] = ppm;
    double factor = link < 0 ? 1 : near_one(x->link_base[link] * (double)ppm / PPM);
    if (link < 0 || factor == x->link[link]) return false;
    x->link[link] = factor;
    note(x, atomic_load(&r->link_step),
         arena_printf(x->restart->a, "messages from %s to %s on link %s take %.3g times as long as at first", x->program->devices[rank].name,
                      x->program->devices[peer].name, c->links[link].name, factor));
    return true;
}

/* --- search --- */

struct adapt_search {
    pthread_t thread;
    struct arena *a; /* the run's; the thread alone uses it meanwhile */
    struct restart_question q;
    const struct plan *first;   /* the run's first plan, if all of its devices are there and it is not the running one; NULL: else */
    struct cluster now, used, searched; /* the running plan's at the speeds of now; all that is there as stated, and at the speeds of now */
    volatile sig_atomic_t stop;
    atomic_bool ended;
    int64_t begin_ns;
    /* result */
    enum status status;
    struct error err;
    struct plan plan;
    struct program program;
    int64_t old_ns, new_ns, took_ns;
};

/* By name, because the cluster may have fewer devices than the plan's. */
static enum status speeds_now(void *owner, struct arena *a, struct cluster *c, struct error *err)
{
    struct adapt *x = owner;
    const struct cluster *from = &x->plan->cluster;
    struct profile profile;
    double *device = follow(a, x->device, from->n_devices, device_name, from, c->n_devices, c);
    double *link = follow(a, x->link, from->n_links, link_name, from, c->n_links, c);
    bool slow_links = false;
    for (int32_t i = 0; i < c->n_links; i++) slow_links |= link[i] != 1;
    if (slow_links) {
        TRY(common_profile(a, &x->restart->plan.cluster, x->restart->db, 0, &profile, err));
        TRY(team_state_links(a, &profile, c, err));
        struct link *links = ARENA_ARRAY(a, struct link, (size_t)c->n_links);
        memcpy(links, c->links, (size_t)c->n_links * sizeof *links);
        for (int32_t i = 0; i < c->n_links; i++) links[i].bandwidth_Bps /= link[i];
        c->links = links;
    }
    for (int32_t d = 0; d < c->n_devices; d++)
        if (device[d] != 1) team_slow(a, c, d, 1, device[d], c);
    return OK;
}

/* The plan's iteration on a cluster of its devices. */
static enum status predict(struct adapt_search *s, const struct plan *plan, const struct cluster *c, struct program *program, int64_t *ns, struct error *err)
{
    struct plan p = *plan;
    struct sim_options o = {.detail = SIM_STAGE, .fold = true};
    struct sim_result r;
    struct profile profile;
    p.cluster = *c;
    TRY(common_profile(s->a, s->q.profiled, s->q.db, 0, &profile, err));
    TRY(common_simulate(s->a, &p, &profile, &o, &r, program, err));
    *ns = r.iteration_ns;
    return OK;
}

/* The first plan in place of a slower one. */
static void look_at_first(struct adapt_search *s)
{
    struct program program;
    struct error none;
    int64_t ns;
    if (!s->first || predict(s, s->first, &s->searched, &program, &ns, &none) != OK || (s->status == OK && s->new_ns < ns)) return;
    if (common_lower(s->a, s->first, true, &program, &none) != OK) return;
    s->plan = *s->first;
    s->program = program;
    s->new_ns = ns;
    s->status = OK;
}

static void *search(void *owner)
{
    struct adapt_search *s = owner;
    struct program program;
    s->status = predict(s, s->q.old, &s->now, &program, &s->old_ns, &s->err);
    if (s->status == OK) {
        s->status = restart_search(s->a, &s->q, &s->plan, &s->program, &s->new_ns, &s->err);
        look_at_first(s);
    }
    s->took_ns = clock_wall_ns() - s->begin_ns;
    atomic_store(&s->ended, true);
    launch_local_wake();
    return NULL;
}

static enum status find_clusters(struct adapt *x, struct adapt_search *s, struct error *err)
{
    const struct restart *r = x->restart;
    s->now = x->plan->cluster;
    TRY(speeds_now(x, s->a, &s->now, err));
    TRY(restart_cluster(r, s->a, &s->used, err));
    s->searched = s->used;
    if (s->used.n_devices == r->plan.cluster.n_devices && x->program->plan_hash != r->program.plan_hash) s->first = &r->plan;
    return speeds_now(x, s->a, &s->searched, err);
}

static void begin_search(struct adapt *x)
{
    struct arena *a = arena_new(); /* lives as long as the plan, which may be taken */
    struct adapt_search *s = ARENA_ARRAY(a, struct adapt_search, 1);
    struct error err;
    *s = (struct adapt_search){.a = a, .begin_ns = clock_wall_ns()};
    s->q = (struct restart_question){
        .db = x->restart->db, .profiled = &x->restart->plan.cluster, .searched = &s->searched, .used = &s->used, .old = x->plan, .stop = &s->stop};
    int failed = 0;
    if (find_clusters(x, s, &err) != OK || (failed = pthread_create(&s->thread, NULL, search, s))) {
        log_warn("the plan stays: %s", failed ? strerror(failed) : err.text);
        arena_free(a);
        x->news = x->came = NULL;
        return;
    }
    x->search = s;
}

void adapt_end(struct adapt *x)
{
    if (!x->search) return;
    x->search->stop = 1;
    pthread_join(x->search->thread, NULL);
    arena_free(x->search->a);
    x->search = NULL;
}

/* --- decision --- */

static int64_t steps_left(const struct adapt *x)
{
    int64_t done = x->restart->shared->board.ended;
    return x->restart->end - done;
}

/* Why a change does not pay; NULL: it does. */
static const char *does_not_pay(struct adapt *x, const struct adapt_event *e)
{
    struct arena *a = x->restart->a;
    char gain[32], cost[32], was[32], is[32];
    int64_t left = steps_left(x), gained_ns = (e->old_ns - e->new_ns) * left;
    units_print_ns(was, e->old_ns), units_print_ns(is, e->new_ns);
    if ((double)(e->old_ns - e->new_ns) < ADAPT_GAIN * (double)e->old_ns)
        return arena_printf(a, "the best plan found takes %s in place of %s per iteration, which is less than %g %% faster", is, was, 100 * ADAPT_GAIN);
    units_print_ns(gain, gained_ns), units_print_ns(cost, e->cost_ns);
    if (gained_ns <= e->cost_ns)
        return arena_printf(a, "the best plan found takes %s in place of %s per iteration, %s less for the %" PRId64 " steps that are left, and a change takes %s",
                            is, was, gain, left, cost);
    if (x->mode == ADAPT_ON || x->came) return NULL;
    return arena_printf(a, "advice only: a new plan would take %s in place of %s per iteration, %s less for the %" PRId64 " steps that are left, and a change %s",
                        is, was, gain, left, cost);
}

static void keep_event(struct adapt *x, const struct adapt_event *e)
{
    int32_t n = atomic_load(&x->shared->n);
    x->event = -1;
    if (n == ADAPT_EVENTS_MAX) return;
    x->event = n;
    x->shared->events[n] = *e;
    atomic_store(&x->shared->n, n + 1);
}

/* The search has ended. */
static void decide(struct adapt *x)
{
    struct adapt_search *s = x->search;
    struct adapt_event e = {.step = x->news ? x->first + x->news_step : x->restart->shared->board.ended,
                            .cost_ns = x->cost_ns,
                            .old_ns = s->old_ns,
                            .new_ns = s->new_ns,
                            .begin_ns = s->begin_ns,
                            .replan_ns = s->took_ns};
    pthread_join(s->thread, NULL);
    snprintf(e.what, sizeof e.what, "%s%s%s", x->came ? x->came : "", x->came && x->news ? "; " : "", x->news ? x->news : "");
    if (s->status == OK) snprintf(e.plan, sizeof e.plan, "%s", plan_describe(s->a, &s->plan));
    const char *why = s->status == OK ? does_not_pay(x, &e) : arena_printf(x->restart->a, "no other plan: %s", s->err.text);
    snprintf(e.why, sizeof e.why, "%s", why ? why : "");
    x->pending = e.taken = !why;
    keep_event(x, &e);
    x->search = NULL;
    x->news = NULL;
    x->news_step = 0;
    x->came = NULL;
    if (why) {
        know(x, &x->plan->cluster, x->device, x->link);
        log_warn("the plan stays: %s", why);
        arena_free(s->a);
        return;
    }
    char was[32], is[32];
    x->restart->next = &s->plan;
    x->restart->next_program = &s->program;
    x->restart->why_next = arena_strdup(x->restart->a, e.what);
    log_warn("a new plan is taken: %s; predicted %s in place of %s per iteration", e.plan, units_print_ns(is, e.new_ns), units_print_ns(was, e.old_ns));
}

bool adapt_look(struct adapt *x)
{
    bool news = false;
    const struct run_board *b = &x->restart->shared->board;
    if (!x->shared || x->pending) return false;
    if (b->first_ns) x->cost_ns = 2 * (b->first_ns - b->forked_ns);
    if (x->restart->arrived) {
        x->came = x->came ? arena_printf(x->restart->a, "%s; %s", x->came, x->restart->arrived) : x->restart->arrived;
        x->restart->arrived = NULL;
        news = true;
    }
    for (int32_t i = 0; x->mode && i < x->program->n_devices; i++) {
        news |= see_compute(x, i);
        news |= see_link(x, i);
    }
    if (news) adapt_end(x); /* what is searched is no longer the question */
    if (news) launch_local_wake(); /* other ranks may report the same cause: at the next look */
    if ((!x->news && !x->came) || news) return false;
    if (!x->search) {
        if (!x->cost_ns || (x->changed_ns && clock_wall_ns() - x->changed_ns < ADAPT_PAUSE * x->cost_ns)) return false;
        begin_search(x);
        return false;
    }
    if (atomic_load(&x->search->ended))
        decide(x);
    else if (clock_wall_ns() - x->search->begin_ns > ADAPT_SEARCH_S * INT64_C(1000000000))
        x->search->stop = 1;
    return x->pending;
}

void adapt_postpone(struct adapt *x, bool postponed)
{
    if (!x->pending || x->event < 0) return;
    struct adapt_event *e = &x->shared->events[x->event];
    snprintf(e->why, sizeof e->why, "%s", postponed ? "its checkpoint could not be written" : "");
    e->taken = !postponed;
}

void adapt_trace(const struct adapt *x, struct trace *t)
{
    int32_t n = x->shared ? atomic_load(&x->shared->n) : 0;
    for (int32_t i = 0; i < n; i++) {
        const struct adapt_event *e = &x->shared->events[i];
        restart_trace_add(x->restart, t, &(struct restart_span){SPAN_REPLAN, e->begin_ns, e->begin_ns + e->replan_ns, e->taken ? e->plan : e->why});
    }
    if (n) trace_sort(t);
}

void adapt_print(const struct adapt *x, struct json *json)
{
    char was[32], is[32], time[32];
    int32_t n = x->shared ? atomic_load(&x->shared->n) : 0;
    if (json && n) json_put_list(json, "adaptations");
    for (int32_t i = 0; i < n; i++) {
        const struct adapt_event *e = &x->shared->events[i];
        if (json) {
            json_put_object(json, NULL);
            json_put_int(json, "step", e->step);
            json_put_text(json, "what", e->what);
            json_put_bool(json, "taken", e->taken);
            if (*e->why) json_put_text(json, "why", e->why);
            if (e->old_ns) json_put_int(json, "old_ns", e->old_ns);
            if (e->new_ns) json_put_int(json, "new_ns", e->new_ns);
            if (*e->plan) json_put_text(json, "plan", e->plan);
            json_put_int(json, "replan_ns", e->replan_ns);
            json_put_int(json, "cost_ns", e->cost_ns);
            json_close(json);
        } else if (e->taken) {
            printf("  adapted    after step %" PRId64 ": %s; predicted %s in place of %s per iteration, planned in %s: %s\n", e->step, e->what,
                   units_print_ns(is, e->new_ns), units_print_ns(was, e->old_ns), units_print_ns(time, e->replan_ns), e->plan);
        } else {
            printf("  unchanged  after step %" PRId64 ": %s; %s\n", e->step, e->what, e->why);
        }
    }
    if (json && n) json_close(json);
}
