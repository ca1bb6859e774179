#include "tests/support/sailor_cases.h"

#include "core/base/arena.h"
#include "core/lower/lower.h"
#include "core/sharding/sharding.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "sim/engine/sim.h"
#include "tools/export/sailor.h"
#include "tools/import/import.h"

#include "tests/support/quiet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Its tables go through a database, as a user's do. */
static enum status tables(struct arena *a, struct profile *out, struct error *err)
{
    char folder[] = "/tmp/musher-mixed-XXXXXX";
    if (!mkdtemp(folder)) return error_set(err, ERR_RESOURCE, "no folder in /tmp");
    const char *db = arena_printf(a, "%s/sailor.db", folder);
    struct import_request q = {.path = SAILOR_MIXED, .db = db};
    struct store *s = NULL;
    int before = quiet_begin();
    enum status st = import_sailor(a, &q, err);
    quiet_end(before);
    if (st == OK) st = store_open(a, db, false, &s, err);
    if (st == OK) st = store_load(s, a, 1, out, err);
    store_close(s);
    static const char *const names[] = {"sailor.db", "OPT-350.layers.json",
                                        "GPT-Neo-2.7.layers.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(arena_printf(a, "%s/%s", folder, names[i]));
    rmdir(folder);
    return st;
}

enum status sailor_case_read(struct arena *a, const struct sailor_case *c, struct job *job,
                             struct cluster *cluster, struct profile *profile, struct error *err)
{
    TRY(job_read(a, arena_printf(a, SAILOR_MIXED "/%s.yaml", c->job), job, err));
    TRY(cluster_read(a, arena_printf(a, SAILOR_MIXED "/%s.yaml", c->cluster), cluster, err));
    TRY(team_complete(cluster, err));
    return profile ? tables(a, profile, err) : OK;
}

/* --- plans ----------------------------------------------------------------------------------- */

struct places {
    struct arena *a;
    const struct cluster *c;
    int32_t *used; /* (n_nodes) GPUs taken, the first ones */
};

static enum status take_gpus(struct places *x, const struct sailor_stage *s, struct plan_stage *out,
                             struct error *err)
{
    for (int32_t n = 0; n < x->c->n_nodes; n++) {
        const struct node_spec *node = &x->c->nodes[n];
        const struct device *d = &x->c->devices[node->first_device];
        if (strcmp(x->c->types[d->type].name, s->type) != 0) continue;
        if (x->used[n] + s->tp > node->n_devices) continue;
        int32_t *tp = ARENA_ARRAY(x->a, int32_t, (size_t)s->tp);
        for (int32_t i = 0; i < s->tp; i++) tp[i] = node->first_device + x->used[n]++;
        *out = (struct plan_stage){
            .first_layer = s->first, .last_layer = s->last, .device = tp[0], .receive_ahead = 1};
        if (s->tp < 2) return OK;
        out->n_shards = s->tp, out->devices = tp;
        out->sharding = sharding_of_index(x->a, INDEX_tensor, NULL, s->tp);
        return OK;
    }
    return error_set(err, ERR_INPUT, "too few GPUs of type %s", s->type);
}

enum status sailor_case_plan(struct arena *a, const struct job *job, const struct cluster *cluster,
                             int64_t microbatch, int32_t n_replicas,
                             const struct sailor_stage *stages, int32_t n_stages, struct plan *out,
                             struct error *err)
{
    int32_t all = (int32_t)(job->global_batch / microbatch);
    struct places x = {.a = a, .c = cluster};
    x.used = ARENA_ARRAY(a, int32_t, (size_t)cluster->n_nodes);
    *out = (struct plan){.name = "known",
                         .microbatch = microbatch,
                         .steps = 1,
                         .seed = 1,
                         .job = *job,
                         .cluster = *cluster,
                         .n_replicas = n_replicas};
    out->replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)n_replicas);
    for (int32_t r = 0; r < n_replicas; r++) {
        struct plan_replica *p = &out->replicas[r];
        p->microbatches = all * (r + 1) / n_replicas - all * r / n_replicas;
        p->n_stages = n_stages;
        p->stages = ARENA_ARRAY(a, struct plan_stage, (size_t)n_stages);
    }
    for (int32_t s = 0; s < n_stages; s++)
        for (int32_t r = 0; r < n_replicas; r++)
            TRY(take_gpus(&x, &stages[s], &out->replicas[r].stages[s], err));
    return plan_check(out, (int32_t)job->model.layers, err);
}

enum status sailor_case_score_plan(struct arena *a, const struct sailor_case *c,
                                   const struct plan *p, bool own_shares, struct sailor_score *out,
                                   struct error *err)
{
    char *text = NULL;
    size_t n = 0;
    struct node *root = NULL;
    FILE *f = open_memstream(&text, &n);
    if (!f) BUG("open_memstream");
    enum status st = export_sailor(f, p, &(struct export_request){0}, &(struct export_note){0}, err);
    fclose(f);
    if (st == OK) st = document_parse(a, "export", text, n, &root, err);
    if (st == OK) st = sailor_referee(a, SAILOR_MIXED, c->model, root, own_shares, out, err);
    free(text);
    return st;
}

enum status sailor_case_simulate(struct arena *a, const struct plan *p,
                                 const struct profile *profile, int64_t *iteration_ns,
                                 struct error *err)
{
    struct lower_options o = {.check_memory = true};
    struct program program;
    struct sim_result result;
    struct sim_options options = {0};
    TRY(team_fused(a, &p->cluster, &o, err));
    TRY(lower_plan(a, p, &o, &program, err));
    TRY(sim_run(a, &program, cost_new(a, profile, &p->cluster), &options, &result, err));
    *iteration_ns = result.iteration_ns;
    return OK;
}
