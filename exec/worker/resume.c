#include "exec/worker/resume.h"

#include "core/base/log.h"
#include "core/collective/tensor_shard.h"
#include "core/program/period.h"
#include "exec/checkpoint/config.h"
#include "exec/checkpoint/memory.h"
#include "exec/checkpoint/weights.h"
#include "exec/worker/accumulated.h"
#include "exec/worker/chunks.h"
#include "exec/worker/divided.h"
#include "exec/worker/feedback.h"
#include "exec/worker/inputs.h"
#include "exec/worker/progress.h"
#include "exec/worker/saved_layout.h"
#include "exec/worker/saved_tensor.h"
#include "exec/worker/scale_log.h"
#include "exec/worker/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct resuming {
    struct rank *r;
    const struct chunks *chunks;
    const struct inputs *inputs;
    struct progress *progress;
    struct scale_log *scales;
    struct serve *serve;
};

static enum status load_slot(struct rank *r, struct arena *a, const struct checkpoint *c,
                             const struct chunk *k, const struct program_parameter *p, int part,
                             struct error *err)
{
    int32_t slot = saved_tensor_slot(p, part);
    if (slot < 0 || !saved_tensor_kept(r->p, p, 0, part, c->step)) return OK;
    const struct slot *x = &k->stage->slots[slot];
    enum dtype saved = dtype_master(x->dtype);
    struct shape whole = tensor_shard_whole(&x->shape, x->shard);
    char *copy = arena_alloc(a, (size_t)(shape_elements(&whole) * dtype_bytes(saved)) + 1, 1);
    TRY(saved_tensor_load(a, c, r->p, p, k->stage->island, part, &whole, saved, copy, err));
    if (saved != x->dtype) return saved_tensor_narrow(r, a, k, slot, 0, copy, shape_elements(&x->shape), err);
    if (x->shard) {
        struct region region = tensor_shard_region(a, &x->shape, x->shard);
        char *mine = arena_alloc(a, (size_t)x->bytes + 1, 1);
        region_copy(&region, x->dtype, copy, mine, REGION_PACK);
        copy = mine;
    }
    TRY(r->backend.upload(&r->backend, lane_memory_slot(&k->memory, slot, 0), copy, x->bytes, err));
    return slot == p->master
               ? saved_tensor_narrow(r, a, k, p->slot, 0, copy, shape_elements(&x->shape), err)
               : OK;
}

static enum status load_parameters(struct rank *r, struct arena *a, const struct checkpoint *c, const struct chunk *k, struct error *err)
{
    for (int32_t j = 0; j < k->stage->n_parameters; j++) {
        const struct program_parameter *p = &k->stage->parameters[j];
        for (int part = 0; !p->shard && part < SAVED_TENSORS; part++) TRY(load_slot(r, a, c, k, p, part, err));
        if (p->shard) TRY(divided_load(r, c, k, p, err));
    }
    return OK;
}

/* Checks that the run continues the same job. */
static enum status check_job(const struct resuming *v, const struct checkpoint *c,
                             struct error *err)
{
    enum optimizer_kind kind = v->r->p->optimizer.kind;
    if (c->seed != v->r->p->seed)
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s' has seed %" PRIu64 ", the program has %" PRIu64,
                         c->folder, c->seed, v->r->p->seed);
    if (dtype_master(c->dtype) != dtype_master(v->r->p->dtype))
        return error_set(err, ERR_INPUT, "checkpoint '%s' is %s, the program is %s", c->folder,
                         dtype_name(c->dtype), dtype_name(v->r->p->dtype));
    if (c->optimizer != kind)
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s' has optimizer %s, the program has %s; train on with %s, or start from its weights: --init %s",
                         c->folder, optimizer_name(c->optimizer), optimizer_name(kind), optimizer_name(c->optimizer), c->folder);
    if (c->sequences % v->progress->global_batch != 0)
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s' stands after %" PRId64 " sequences (global batch %" PRId64
                         "), which no number of steps of global batch %" PRId64 " consumes",
                         c->folder, c->sequences, c->global_batch, v->progress->global_batch);
    return OK;
}

static void warn_of_changes(const struct resuming *v, const struct checkpoint *c)
{
    if (c->data_bytes != v->inputs->data.n_bytes || c->data_crc != v->inputs->crc)
        log_warn("the data differs from that of checkpoint '%s' (%" PRId64
                 " bytes, CRC %08" PRIx32 "; now %" PRId64 " bytes, CRC %08" PRIx32
                 "): training continues after %" PRId64
                 " sequences, but its losses do not continue the earlier ones",
                 c->folder, c->data_bytes, c->data_crc, v->inputs->data.n_bytes, v->inputs->crc,
                 c->sequences);
    if (c->global_batch != v->progress->global_batch)
        log_warn("global batch %" PRId64 " instead of the checkpoint's %" PRId64
                 ": training continues after %" PRId64 " sequences",
                 v->progress->global_batch, c->global_batch, c->sequences);
}

static void warn_of_islands(const struct resuming *v, const struct checkpoint *c)
{
    int32_t had = c->n_islands, has = program_islands(v->r->p);
    if (had > 1 && had != has)
        log_warn("checkpoint '%s' has the parameters of %" PRId32 " islands, the program %" PRId32
                 ": it continues with their mean, weighted by their samples",
                 c->folder, had, has);
}

/* Delayed sums that a checkpoint has and the program does not await, or the other way round: another period, or none. */
static void warn_of_sums(const struct resuming *v, const struct checkpoint *c)
{
    const struct program *p = v->r->p;
    const struct outer_optimizer *o = &p->outer;
    bool had = false, has = false;
    for (int32_t i = 0; i < c->n_tensors; i++) had |= saved_tensor_is_sum(c->tensors[i].name);
    for (int32_t f = 0; f < o->fragments; f++) has |= period_in_flight(o, f, c->step);
    if (had && !has)
        log_warn("checkpoint '%s' has sums of changes that this program does not await after step %" PRId64
                 ": those changes are lost",
                 c->folder, c->step);
    if (has && !had)
        log_warn("this program awaits sums of changes after step %" PRId64
                 " that checkpoint '%s' does not have: they count as zero",
                 c->step, c->folder);
}

static void warn_of_accumulated(const struct resuming *v, const struct checkpoint *c)
{
    if (accumulated_lost(c, v->r->p))
        log_warn("checkpoint '%s' of step %" PRId64 " is from between two updates of an island, and this plan does not continue that island's gradients: "
                 "its next update has those of its remaining steps alone",
                 c->folder, c->step);
}

/* lacking: tensors of this rank's feedback that the checkpoint does not have. */
static void warn_of_feedback(const struct resuming *v, const struct checkpoint *c, int64_t lacking)
{
    bool had = feedback_saved(c), has = feedback_kept(v->r->p);
    if (lacking)
        log_warn("checkpoint '%s' lacks feedback of this plan's compression, which begins at zero%s", c->folder,
                 had ? "; it has that of another code or of another number of devices, which is dropped" : "");
    if (had && !has)
        log_warn("checkpoint '%s' has feedback of compression, which this plan does not have: what its codes left out is dropped", c->folder);
}

/* The next step's gradients are at the latest version then, as in the first step of a training. */
static void warn_of_versions(const struct resuming *v, const struct checkpoint *c)
{
    bool had = false, has = false;
    for (int32_t i = 0; i < c->n_tensors; i++) had |= saved_tensor_is_previous(c->tensors[i].name);
    for (int32_t s = 0; s < v->r->p->n_stages; s++) has |= v->r->p->stages[s].n_parameters && v->r->p->stages[s].parameters[0].previous;
    if (had && !has)
        log_warn("checkpoint '%s' has two weight versions, the program one: training continues from the latest, with gradients that are not delayed",
                 c->folder);
}

/* Workers that have parameters of their own in the checkpoint. */
static int32_t workers_saved(const struct checkpoint *c)
{
    int32_t n = 0;
    size_t length = 0;
    const char *first = NULL, *at;
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const char *name = c->tensors[i].name;
        if (!(at = strrchr(name, '@'))) continue;
        if (!first) first = name, length = (size_t)(at - name) + 1;
        n += !strncmp(name, first, length);
    }
    return n;
}

static void warn_of_workers(const struct resuming *v, const struct checkpoint *c)
{
    if (saved_tensor_find_versions(c, 1) && !saved_tensor_serves(c, v->r->p))
        log_warn("checkpoint '%s' has the own parameters of %" PRId32 " workers; training continues from the servers'", c->folder,
                 workers_saved(c));
}

static enum status worker_saved(const struct chunk *k, const struct checkpoint *c, int32_t worker, bool *saved, struct error *err)
{
    char name[sizeof c->tensors->name];
    *saved = true;
    if (!k->stage->n_parameters) return OK;
    TRY(saved_tensor_name(name, sizeof name, &k->stage->parameters[0], worker + 1, 0, err));
    *saved = checkpoint_has(c, name);
    return OK;
}

/* Versions of a parameter server. A checkpoint of other training has none: they are its step then. Workers that begin with the servers'
 * parameters, because they are other ones or were not there when it was written, have pulled its version; it is server 1's if there were
 * fewer servers. */
static enum status load_versions(const struct resuming *v, struct arena *a, const struct checkpoint *c, struct error *err)
{
    int64_t n = 0;
    double *state = serve_state(v->serve, &n);
    if (!state) return OK;
    const struct chunk *k = &v->chunks->at[0];
    const struct checkpoint_tensor *t = saved_tensor_find_versions(c, k->stage->server);
    if (!t) t = saved_tensor_find_versions(c, 1);
    double *had = ARENA_ARRAY(a, double, t ? (size_t)shape_elements(&t->shape) + 1 : 1);
    had[0] = (double)c->step;
    if (t) TRY(checkpoint_load(c, t->name, &t->shape, DTYPE_fp64, had, err));
    state[0] = had[0];
    for (int64_t i = 1; i < n; i++) {
        bool saved = saved_tensor_serves(c, v->r->p);
        if (saved) TRY(worker_saved(k, c, (int32_t)i - 1, &saved, err));
        state[i] = saved ? had[i] : had[0];
    }
    serve_set_state(v->serve);
    return OK;
}

static enum status load_tensors(const struct resuming *v, struct arena *a, const char *folder,
                                struct error *err)
{
    const struct run_options *o = v->r->o;
    struct checkpoint c;
    int64_t lacking = 0;
    TRY(o->memory_step ? checkpoint_memory_read(a, o->memory, o->memory_step, &c, err) : checkpoint_open(a, folder, false, &c, err));
    TRY(check_job(v, &c, err));
    TRY(checkpoint_continues(&c, v->r->o->steps, v->progress->global_batch, err));
    if (v->r->index == 0)
        warn_of_changes(v, &c), warn_of_islands(v, &c), warn_of_sums(v, &c), warn_of_versions(v, &c), warn_of_workers(v, &c), warn_of_accumulated(v, &c);
    for (int32_t i = 0; i < v->chunks->n; i++) {
        const struct chunk *k = &v->chunks->at[i];
        TRY(load_parameters(v->r, a, &c, k, err));
        TRY(feedback_load(v->r, a, &c, k, &lacking, err));
        TRY(accumulated_load(v->r, a, &c, k, err));
    }
    if (v->r->index == 0) warn_of_feedback(v, &c, lacking);
    TRY(load_versions(v, a, &c, err));
    progress_resume(v->progress, c.step, c.sequences);
    scale_log_resume(v->scales, c.scale);
    return OK;
}

static enum status load_all(const struct resuming *v, struct arena *a, const char *folder,
                            struct error *err)
{
    comm_working(v->r->comm, true);
    enum status status = load_tensors(v, a, folder, err);
    comm_working(v->r->comm, false);
    return status;
}

struct generation {
    struct arena *a;
    const char *from, *config; /* config: of the model to train */
    char folder[4096];
};

static enum status find_generation(void *owner, struct error *err)
{
    struct generation *g = owner;
    struct checkpoint c;
    TRY(checkpoint_find(g->a, g->from, &c, err));
    snprintf(g->folder, sizeof g->folder, "%s", c.folder);
    checkpoint_config_compare(g->a, g->folder, g->config);
    return OK;
}

enum status resume_from_checkpoint(struct rank *r, const struct chunks *c,
                                   const struct inputs *inputs, struct progress *g,
                                   struct scale_log *scales, struct serve *serve, struct error *err)
{
    const struct resuming v = {r, c, inputs, g, scales, serve};
    struct arena *a = arena_new();
    struct generation from = {.a = a, .from = r->o->resume, .config = r->o->config};
    enum status status = r->o->memory_step ? OK : comm_at_root(r->comm, find_generation, &from, err);
    if (status == OK) {
        comm_broadcast(r->comm, from.folder, sizeof from.folder);
        status = comm_agree(r->comm, load_all(&v, a, from.folder, err), err);
    }
    arena_free(a);
    return status;
}

/* ---- weights ---------------------------------------------------------------------------------- */

static enum status open_weights(struct arena *a, const struct run_options *o, const struct program *p, struct weights *out, struct error *err)
{
    struct checkpoint_layout all;
    int32_t n = 0;
    TRY(weights_open(a, o->init, out, err));
    TRY(saved_layout_make(a, p, 0, &all, err));
    struct weight_wanted *wanted = ARENA_ARRAY(a, struct weight_wanted, (size_t)all.n + 1);
    for (int32_t i = 0; i < all.n; i++)
        if (all.file[i] < all.n_model_files) wanted[n++] = (struct weight_wanted){all.tensors[i].name, all.tensors[i].shape};
    return weights_match(a, out, wanted, n, err);
}

static enum status begin_with_weights(struct rank *r, struct arena *a, const struct chunks *chunks, struct error *err)
{
    struct weights w;
    TRY(open_weights(a, r->o, r->p, &w, err));
    const struct checkpoint c = {.folder = w.folder, .weights = &w};
    for (int32_t i = 0; i < chunks->n; i++) TRY(load_parameters(r, a, &c, &chunks->at[i], err));
    return OK;
}

struct first_weights {
    struct arena *a;
    const struct run_options *o;
};

static enum status verify_weights(void *owner, struct error *err)
{
    const struct first_weights *w = owner;
    checkpoint_config_compare(w->a, w->o->init, w->o->config);
    return checkpoint_verify_parameters(w->a, w->o->init, err);
}

enum status resume_begin_with_weights(struct rank *r, const struct chunks *c, struct error *err)
{
    struct arena *a = arena_new();
    struct first_weights first = {a, r->o};
    enum status status = comm_at_root(r->comm, verify_weights, &first, err);
    if (status != OK) {
        arena_free(a);
        return status;
    }
    comm_working(r->comm, true);
    status = begin_with_weights(r, a, c, err);
    comm_working(r->comm, false);
    arena_free(a);
    return comm_agree(r->comm, status, err);
}
