#include "tools/adapt.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/cluster/slow.h"
#include "exec/clock.h"
#include "exec/comm/launch_local.h"
#include "tools/adapt_factors.h"
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

static void follow_cluster(struct adapt *x, const struct cluster *to)
{
    struct arena *a = x->restart->a;
    const struct cluster *from = x->plan ? &x->plan->cluster : to;
    int32_t nd = x->plan ? from->n_devices : 0, nl = x->plan ? from->n_links : 0;
    x->device = adapt_factors_follow(a, x->device, nd, adapt_factors_device, from, to->n_devices, to);
    x->device_base = adapt_factors_follow(a, x->device, to->n_devices, adapt_factors_device, to, to->n_devices, to);
    x->device_known = adapt_factors_follow(a, x->device_known, nd, adapt_factors_device, from, to->n_devices, to);
    x->link = adapt_factors_follow(a, x->link, nl, adapt_factors_link, from, to->n_links, to);
    x->link_base = adapt_factors_follow(a, x->link, to->n_links, adapt_factors_link, to, to->n_links, to);
    x->link_known = adapt_factors_follow(a, x->link_known, nl, adapt_factors_link, from, to->n_links, to);
}

static int32_t device_of(const struct adapt *x, int64_t rank) { return cluster_device(&x->plan->cluster, x->program->devices[rank].name); }

/* What would not be reported is 1, so that a recovered device is as before. */
static double near_one(double factor) { return factor < STRAGGLER_FACTOR && factor > 1 / STRAGGLER_FACTOR ? 1 : factor; }

static void know(struct adapt *x, const struct cluster *c, const double *device, const double *link)
{
    for (int32_t d = 0; d < c->n_devices; d++) x->device_known[d] = device ? device[d] : 1;
    for (int32_t i = 0; i < c->n_links; i++) x->link_known[i] = link ? link[i] : 1;
}

static const char *join(struct arena *a, const char *list, const char *more) { return list ? arena_printf(a, "%s; %s", list, more) : more; }

/* The node whose devices in use, two or more, all have marks: it is the likely cause. */
static bool whole_host(const struct adapt *x, int32_t node, const bool *marked)
{
    int32_t n = 0;
    for (int32_t i = 0; i < x->team.n; i++) {
        if (x->team.members[i].node != node) continue;
        if (!marked[i]) return false;
        n++;
    }
    return n > 1;
}

/* "operators of b.0 take 3 times as long as at first", "… of all devices of host a …": of the marked ranks; NULL: none. text: of a rank, or of the
 * ranks of a node. */
static const char *name_marked(const struct adapt *x, const bool *marked, const char *(*text)(const struct adapt *x, const char *of, int32_t rank), int *causes,
                               int cause)
{
    const struct cluster *c = &x->plan->cluster;
    struct arena *a = x->restart->a;
    const char *what = NULL;
    for (int32_t i = 0; i < x->team.n; i++) {
        int32_t node = x->team.members[i].node;
        bool host = whole_host(x, node, marked), first = !i || x->team.members[i - 1].node != node;
        if (!marked[i] || (host && !first)) continue;
        const char *of = host ? arena_printf(a, "all devices of host %s", c->nodes[node].name) : x->program->devices[i].name;
        *causes |= host ? CAUSE_HOST | (cause & ~CAUSE_COMPUTE) : cause;
        what = join(a, what, text(x, of, i));
    }
    return what;
}

static const char *speed_text(const struct adapt *x, const char *of, int32_t rank)
{
    double factor = x->device[device_of(x, rank)];
    if (factor == 1) return arena_printf(x->restart->a, "operators of %s take as long as at first", of);
    return arena_printf(x->restart->a, "operators of %s take %.3g times as long as at first", of, factor);
}

static const char *inputs_text(const struct adapt *x, const char *of, int32_t rank)
{
    double level = x->team.members[rank].inputs.level;
    if (near_one(level) == 1) return arena_printf(x->restart->a, "%s no longer wait for input data", of);
    return arena_printf(x->restart->a, "input data of %s: a step takes %.3g times as long as at first beside the same operators", of, level);
}

/* What the running plan was not chosen for; NULL: nothing. */
static const char *unknown(struct adapt *x, int *causes)
{
    const struct cluster *c = &x->plan->cluster;
    struct arena *a = x->restart->a;
    bool marked[LOCAL_RANKS_MAX];
    *causes = 0;
    for (int32_t i = 0; i < x->team.n; i++) marked[i] = x->device[device_of(x, i)] != x->device_known[device_of(x, i)];
    const char *what = name_marked(x, marked, speed_text, causes, CAUSE_COMPUTE);
    for (int32_t i = 0; i < c->n_links; i++) {
        if (x->link[i] == x->link_known[i]) continue;
        what = join(a, what, arena_printf(a, "messages on link %s take %.3g times as long as at first", c->links[i].name, x->link[i]));
        *causes |= CAUSE_LINK;
    }
    return what;
}

static enum status speeds_now(void *owner, struct arena *a, struct cluster *c, struct error *err);

static void watch_team(struct adapt *x)
{
    const struct program *p = x->program;
    straggler_team_open(&x->team, x->restart->a, p->n_devices, x->plan->cluster.n_nodes, p->emulated);
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct device *d = &x->plan->cluster.devices[device_of(x, i)];
        x->team.members[i].node = d->node, x->team.members[i].type = d->type;
        x->team.members[i].overlaps = p->devices[i].slowdown > 0 || !program_device_is_host(&p->devices[i]);
    }
    memset(x->fresh, 0, sizeof x->fresh);
    x->fresh_step = 0;
}

static bool see_team(struct adapt *x, bool last);

void adapt_start(struct adapt *x, const struct plan *plan, const struct program *program, struct run_options *o)
{
    struct restart *r = x->restart;
    if (!x->shared) return;
    bool first = !x->plan;
    if (!first && x->mode) (void)see_team(x, true);
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
    watch_team(x);
    memset(x->seen_link, 0, sizeof x->seen_link);
    if (r->took) x->changed_ns = clock_wall_ns();
    x->pending = false;
    x->news = unknown(x, &x->news_causes);
    x->came = NULL;
    x->news_step = 0;
    r->took = false;
    r->speeds = speeds_now;
    r->speeds_owner = x;
}

/* --- reports --- */

static void note(struct adapt *x, int64_t step, const char *what)
{
    log_warn("step %" PRId64 ": %s", x->first + step, what);
    x->news = unknown(x, &x->news_causes);
    if (!x->news) x->news = arena_strdup(x->restart->a, what);
    if (step > x->news_step) x->news_step = step;
}

static void keep_event(struct adapt *x, const struct adapt_event *e);

/* No plan makes input data faster, so nothing is searched. */
static void note_inputs(struct adapt *x, int64_t step, const char *what)
{
    struct adapt_event e = {.step = x->first + step, .causes = CAUSE_DATA};
    snprintf(e.what, sizeof e.what, "%s", what);
    snprintf(e.why, sizeof e.why, "no plan makes input data faster");
    log_warn("step %" PRId64 ": %s", e.step, what);
    keep_event(x, &e);
}

/* Names the devices, or their hosts, whose levels have changed. */
static bool name_fresh(struct adapt *x)
{
    bool slower[LOCAL_RANKS_MAX], starved[LOCAL_RANKS_MAX];
    int causes = 0, none = 0;
    for (int32_t i = 0; i < x->team.n; i++) slower[i] = x->fresh[i] & CAUSE_COMPUTE, starved[i] = x->fresh[i] & CAUSE_DATA;
    const char *what = name_marked(x, slower, speed_text, &causes, CAUSE_COMPUTE), *data = name_marked(x, starved, inputs_text, &none, CAUSE_DATA);
    if (what) note(x, x->fresh_step, what);
    if (data) note_inputs(x, x->fresh_step, data);
    memset(x->fresh, 0, sizeof x->fresh);
    x->fresh_step = 0;
    return what != NULL;
}

/* Whether another device of the host of a fresh one may follow. */
static bool hosts_incomplete(const struct adapt *x)
{
    for (int32_t i = 0; i < x->team.n; i++)
        for (int32_t k = 0; x->fresh[i] && k < x->team.n; k++)
            if (x->team.members[k].node == x->team.members[i].node && x->fresh[k] != x->fresh[i]) return true;
    return false;
}

/* last: the ranks have ended, and nothing follows. */
static bool see_team(struct adapt *x, bool last)
{
    bool changed, news = false;
    while (straggler_team_next(&x->team, &x->shared->table, &changed)) {
        int64_t step = x->team.next; /* in which it is seen, counted from 1 */
        for (int32_t i = 0; changed && i < x->team.n; i++) {
            const struct straggler_member *m = &x->team.members[i];
            int32_t d = device_of(x, i);
            if (m->slower) x->device[d] = near_one(x->device_base[d] * m->operators.level);
            x->fresh[i] |= (m->slower ? CAUSE_COMPUTE : 0) | (m->starved ? CAUSE_DATA : 0);
        }
        if (changed && !x->fresh_step) x->fresh_step = step;
        if (x->fresh_step && (!hosts_incomplete(x) || step >= x->fresh_step + ADAPT_HOST_STEPS)) news |= name_fresh(x);
    }
    if (last && x->fresh_step) news |= name_fresh(x);
    return news;
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
    double *device = adapt_factors_follow(a, x->device, from->n_devices, adapt_factors_device, from, c->n_devices, c);
    double *link = adapt_factors_follow(a, x->link, from->n_links, adapt_factors_link, from, c->n_links, c);
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
        if (device[d] != 1) cluster_slow(a, c, d, 1, device[d], c);
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
        if (s->status == OK) s->status = predict(s, &s->plan, &s->searched, &program, &s->new_ns, &s->err); /* as the old one: deterministic, if it is */
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
                            .causes = x->news ? x->news_causes : 0,
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
    if (x->mode) news |= see_team(x, false);
    for (int32_t i = 0; x->mode && i < x->program->n_devices; i++) news |= see_link(x, i);
    if (news) adapt_end(x); /* what is searched is no longer the question */
    if (news) launch_local_wake(); /* other ranks may report the same cause: at the next look */
    if ((!x->news && !x->came) || news) return false;
    if (!x->search) {
        if (!x->cost_ns || (x->changed_ns && !x->came && clock_wall_ns() - x->changed_ns < ADAPT_PAUSE * x->cost_ns)) return false;
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
