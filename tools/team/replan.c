#include "tools/team/replan.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "tools/common.h"

#include <string.h>

enum { LACKED_SHOWN = 4 }; /* ranges of names */

struct carrying {
    struct arena *a;
    const struct cluster *from, *to;
    bool *lacked; /* devices of the plan that `to` lacks */
};

static int32_t carried(struct carrying *k, int32_t device)
{
    int32_t now = cluster_device(k->to, k->from->devices[device].name);
    k->lacked[device] = now < 0;
    return now;
}

static struct plan_stage carry_stage(struct carrying *k, const struct plan_stage *s)
{
    struct plan_stage made = *s;
    if (!s->n_shards) made.device = carried(k, s->device);
    if (!s->n_shards) return made;
    int32_t *devices = ARENA_ARRAY(k->a, int32_t, (size_t)s->n_shards);
    for (int32_t i = 0; i < s->n_shards; i++) devices[i] = carried(k, s->devices[i]);
    made.devices = devices;
    made.device = devices[0];
    return made;
}

/* "g61.0-7"; NULL: none. */
static const char *lacked_names(const struct carrying *k)
{
    const char **names = ARENA_ARRAY(k->a, const char *, (size_t)k->from->n_devices + 1);
    size_t n = 0;
    for (int32_t d = 0; d < k->from->n_devices; d++)
        if (k->lacked[d]) names[n++] = k->from->devices[d].name;
    return n ? ranges_of_names(k->a, names, n, LACKED_SHOWN) : NULL;
}

void replan_carry(struct arena *a, const struct plan *p, const struct cluster *c, struct plan *out,
                  const char **missing)
{
    struct plan made = *p;
    struct carrying k = {.a = a, .from = &p->cluster, .to = c};
    k.lacked = ARENA_ARRAY(a, bool, (size_t)p->cluster.n_devices + 1);
    made.cluster = *c;
    made.predicted_ns = 0;
    made.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        size_t n = (size_t)p->replicas[r].n_stages;
        made.replicas[r] = p->replicas[r];
        made.replicas[r].stages = ARENA_ARRAY(a, struct plan_stage, n);
        for (size_t s = 0; s < n; s++)
            made.replicas[r].stages[s] = carry_stage(&k, &p->replicas[r].stages[s]);
    }
    int32_t *servers = ARENA_ARRAY(a, int32_t, (size_t)p->servers.rule.n + 1);
    for (int32_t i = 0; i < p->servers.rule.n; i++) servers[i] = carried(&k, p->servers.devices[i]);
    made.servers.devices = servers;
    *missing = lacked_names(&k);
    if (!*missing) *out = made;
}

static bool has_size(const struct job *j, int64_t microbatch)
{
    bool has = !j->n_microbatches_sizes;
    for (int32_t i = 0; i < j->n_microbatches_sizes; i++) has |= j->microbatch_sizes[i] == microbatch;
    return has;
}

enum status replan_as_it_stands(struct arena *a, const struct plan *p, const struct job *j,
                                const struct cluster *c, const struct profile *profile,
                                struct plan *out, int64_t *ns, struct server_counts *staleness, const char **why,
                                struct error *err)
{
    const char *missing;
    struct sim_result result;
    struct program program;
    struct error refused = {0};
    *ns = 0;
    if (p->job.global_batch != j->global_batch || !has_size(j, p->microbatch)) {
        *why = "the job has another batch, or other microbatch sizes";
        return OK;
    }
    replan_carry(a, p, c, out, &missing);
    if (missing) {
        *why = arena_printf(a, "it uses %s", missing);
        return OK;
    }
    out->job = *j;
    enum status st = common_simulate(a, out, profile, &(struct sim_options){.fold = true}, &result,
                                     &program, &refused);
    if (st != OK && st != ERR_INFEASIBLE && st != ERR_INPUT) return error_set(err, st, "%s", refused.text);
    if (st != OK) {
        *why = arena_strdup(a, refused.text);
        return OK;
    }
    *ns = out->predicted_ns = result.iteration_ns;
    if (staleness) *staleness = result.staleness;
    return OK;
}

int32_t replan_mark(const struct plan *p, bool *used)
{
    int32_t n = 0;
    for (int32_t d = 0; d < p->cluster.n_devices; d++) used[d] = false;
    for (int32_t i = 0; i < p->servers.rule.n; i++) used[p->servers.devices[i]] = true;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *stage = &p->replicas[r].stages[s];
            for (int32_t k = 0; k < plan_stage_devices(stage); k++)
                used[plan_stage_device(stage, k)] = true;
        }
    for (int32_t d = 0; d < p->cluster.n_devices; d++) n += used[d];
    return n;
}

const char *replan_joined(struct arena *a, const struct texts *list)
{
    const char *text = list->items[0];
    for (size_t i = 1; i < list->count; i++) text = arena_printf(a, "%s,%s", text, list->items[i]);
    return text;
}

enum status replan_team(struct arena *a, const struct plan *from, const struct profile *profile,
                        const struct texts *with, const struct texts *without, struct cluster *out,
                        struct error *err)
{
    struct cluster c = from->cluster;
    if (with->count) TRY(team_state_links(a, profile, &c, err));
    for (size_t i = 0; i < with->count; i++)
        TRY(team_edit(a, &c, &(struct team_change){TEAM_ADD, with->items[i], NULL}, &c, err));
    if (without->count) {
        struct team_change change = {TEAM_WITHOUT, replan_joined(a, without), NULL};
        TRY(team_edit(a, &c, &change, &c, err));
    }
    *out = c;
    return OK;
}
