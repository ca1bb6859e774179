#include "tools/team/left.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "planner/search.h"
#include "sim/goodput/goodput.h"
#include "tools/common.h"
#include "tools/team/replan.h"

#include <inttypes.h>
#include <string.h>

enum { COMBINATIONS_MAX = 256 };

static int64_t index_of(const struct team_left *f, const int64_t *devices)
{
    int64_t index = 0;
    for (int32_t t = f->n_types; t-- > 0;) index = index * (f->devices[t] + 1) + devices[t];
    return index;
}

static double weight_of(const struct team_left *f, const int64_t *devices)
{
    double sum = 0;
    for (int32_t t = 0; t < f->n_types; t++)
        sum += f->weights[t] * (double)(devices[t] / f->unit * f->unit);
    return sum;
}

double team_left_speed(const void *left, const int64_t *devices)
{
    const struct team_left *f = left;
    for (int32_t t = f->servers; t < f->n_types; t++)
        if (devices[t] < f->devices[t]) return 0;
    if (f->table) return f->table[index_of(f, devices)];
    double all = weight_of(f, f->devices);
    return all > 0 ? weight_of(f, devices) / all : 0;
}

static bool is_server(const struct plan *p, int32_t device)
{
    for (int32_t s = 0; s < p->servers.rule.n; s++)
        if (p->servers.devices[s] == device) return true;
    return false;
}

/* A type of its own for the servers of each type of device. */
static void add_servers(struct arena *a, const struct plan *p, struct team_left *out)
{
    const struct cluster *c = &p->cluster;
    for (int32_t t = 0; t < c->n_types; t++) {
        int64_t n = 0;
        for (int32_t s = 0; s < p->servers.rule.n; s++) n += c->devices[p->servers.devices[s]].type == t;
        if (!n) continue;
        out->types[out->n_types] = arena_printf(a, "%s (server)", c->types[t].name);
        out->devices[out->n_types++] = n;
    }
}

enum status team_left_of_plan(struct arena *a, const struct plan *p, struct team_left *out,
                              struct error *err)
{
    const struct cluster *c = &p->cluster;
    int32_t most = p->servers.rule.n ? 2 * c->n_types : c->n_types;
    size_t n = (size_t)most;
    if (most > GOODPUT_TYPES_MAX)
        return error_set(err, ERR_INPUT, "%" PRId32 " device types%s: at most %d are supported", most,
                         most > c->n_types ? ", those of parameter servers among them" : "", GOODPUT_TYPES_MAX);
    *out = (struct team_left){.n_types = c->n_types,
                              .servers = c->n_types,
                              .types = ARENA_ARRAY(a, const char *, n),
                              .devices = ARENA_ARRAY(a, int64_t, n),
                              .spares = ARENA_ARRAY(a, int64_t, n),
                              .weights = ARENA_ARRAY(a, double, n),
                              .unit = 1};
    for (int32_t t = 0; t < c->n_types; t++) {
        out->types[t] = c->types[t].name;
        out->weights[t] = 1;
    }
    bool *used = ARENA_ARRAY(a, bool, (size_t)c->n_devices);
    replan_mark(p, used);
    if (p->servers.rule.n) add_servers(a, p, out);
    for (int32_t d = 0; d < c->n_devices; d++)
        if (!is_server(p, d)) (used[d] ? out->devices : out->spares)[c->devices[d].type]++;
    return OK;
}

/* The cluster with the first keep[t] of the plan's devices of type t. */
static struct cluster part_of(struct arena *a, const struct plan *p, const int64_t *keep)
{
    const struct cluster *c = &p->cluster;
    struct cluster out = *c;
    bool *stays = ARENA_ARRAY(a, bool, (size_t)c->n_devices);
    int64_t *left = ARENA_ARRAY(a, int64_t, (size_t)c->n_types);
    memcpy(left, keep, (size_t)c->n_types * sizeof *left);
    replan_mark(p, stays);
    for (int32_t d = 0; d < c->n_devices; d++)
        stays[d] = stays[d] && left[c->devices[d].type]-- > 0;
    team_part(a, c, stays, &out);
    return out;
}

/* Iteration time of the best plan of these devices; 0: none fits. */
static enum status best_ns(const struct plan *p, const struct profile *profile,
                           const int64_t *devices, int64_t evaluations, int64_t *out,
                           struct error *err)
{
    struct arena *scratch = arena_new();
    struct cluster c = part_of(scratch, p, devices);
    struct search_options o = {.top = 1, .evaluations = evaluations};
    if (c.n_devices > SEARCH_DEVICES_MAX) o.from = p; /* the repaired plan is close to the best */
    struct search_result r;
    enum status st = ERR_INFEASIBLE;
    *out = 0;
    if (c.n_devices) st = search_plans(scratch, &p->job, &c, profile, &o, &r, err);
    if (st == OK) *out = r.plans[0].iteration_ns;
    arena_free(scratch);
    return st == ERR_INFEASIBLE ? OK : st;
}

static double best_with_fewer(const struct team_left *f, int64_t *devices)
{
    double best = 0;
    for (int32_t t = 0; t < f->n_types; t++) {
        if (!devices[t]) continue;
        devices[t]--;
        double speed = f->table[index_of(f, devices)];
        devices[t]++;
        if (speed > best) best = speed;
    }
    return best;
}

static bool next_counts(const struct team_left *f, int64_t *devices)
{
    for (int32_t t = 0; t < f->n_types; t++) {
        if (devices[t]++ < f->devices[t]) return true;
        devices[t] = 0;
    }
    return false;
}

enum status team_left_plan_all(struct arena *a, const struct plan *p, const struct profile *profile,
                               int64_t evaluations, struct team_left *f, struct error *err)
{
    struct sim_result whole;
    struct program program;
    int64_t combinations = 1, at = 0;
    if (f->servers < f->n_types)
        return error_set(err, ERR_USAGE, "--replan-speeds: the plan has parameter_server, and new plans add gradients by all-reduces: "
                                         "leave it out, speeds are then proportional to the number of workers");
    for (int32_t t = 0; t < f->n_types && combinations <= COMBINATIONS_MAX; t++)
        combinations *= f->devices[t] + 1;
    if (combinations > COMBINATIONS_MAX)
        return error_set(err, ERR_USAGE,
                         "--replan-speeds plans up to %d sets of device counts; these devices have "
                         "more: use --unit and --speed instead",
                         COMBINATIONS_MAX);
    TRY(common_simulate(a, p, profile, &(struct sim_options){0}, &whole, &program, err));
    f->table = ARENA_ARRAY(a, double, (size_t)combinations);
    int64_t *devices = ARENA_ARRAY(a, int64_t, (size_t)f->n_types);
    do { /* in ascending order of the counts */
        int64_t ns = 0;
        if (at + 1 == combinations)
            ns = whole.iteration_ns;
        else
            TRY(best_ns(p, profile, devices, evaluations, &ns, err));
        double speed = ns ? (double)whole.iteration_ns / (double)ns : 0,
               fewer = best_with_fewer(f, devices);
        if (speed < fewer) speed = fewer;
        f->table[at++] = speed < 1 ? speed : 1;
        f->n_plans += ns != 0;
        log_progress("%" PRId64 " of %" PRId64 " sets of devices planned", at, combinations);
    } while (next_counts(f, devices));
    log_progress_end();
    return OK;
}
