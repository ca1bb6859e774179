/* exec/worker/save.c - which of a rank's slots go into a checkpoint under which names.
 *
 * Parameters (of half precision their masters, so that either goes on from the other) under their own names, optimizer state under "name#m" and "name#v"; written once, by
 * the first stage of replica 0 that owns the parameter, of several devices the first. What ranks divide (ZeRO) is put
 * together by exec/worker/divided, what devices that share operators have in parts by exec/worker/parts. */
#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/divided.h"
#include "exec/worker/internal.h"
#include "exec/worker/parts.h"

#include "core/base/log.h"
#include "core/collective/part.h"
#include "core/graph/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const SUFFIX[] = {"", "#m", "#v"};

int32_t worker_part_slot(const struct program_parameter *p, int part)
{
    if (part == 0) return p->master >= 0 ? p->master : p->slot;
    return p->state[part - 1];
}

const struct program_parameter *worker_parameter(const struct program_stage *s, const char *name)
{
    for (int32_t k = 0; k < s->n_parameters; k++)
        if (!strcmp(s->parameters[k].name, name)) return &s->parameters[k];
    return NULL;
}

/* A stage's devices stand one behind the other. */
bool worker_owns(const struct program *p, const struct program_stage *owner, const char *name)
{
    if (owner->replica != 0) return false;
    for (const struct program_stage *s = p->stages; s < owner; s++)
        if (s->replica == 0 && worker_parameter(s, name)) return false;
    return true;
}

enum status worker_part_name(char *out, size_t n, const struct program_parameter *p, int part,
                             struct error *err)
{
    if ((size_t)snprintf(out, n, "%s%s", p->name, SUFFIX[part]) < n) return OK;
    return error_set(err, ERR_INPUT, "parameter %s: its name is too long for a checkpoint",
                     p->name);
}

/* ---- out --------------------------------------------------------------------------------------
 */

struct saving {
    struct divided divided;
    struct parts parts;
    struct checkpoint_tensor *tensors;
    const void **data;
    int32_t n, *first; /* first: (chunks + 1) where each chunk's tensors start */
    bool finite;
};

bool worker_all_finite(const void *values, enum dtype t, int64_t n)
{
    if (t == DTYPE_fp64) {
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(((const double *)values)[i])) return false;
    } else if (t == DTYPE_fp32) {
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(((const float *)values)[i])) return false;
    }
    return true;
}

static enum status collect_chunk(struct worker *w, struct arena *a, const struct chunk *k,
                                 struct saving *s, struct error *err)
{
    for (int32_t i = 0; i < k->stage->n_parameters; i++) {
        const struct program_parameter *p = &k->stage->parameters[i];
        if (p->shard || parts_held(k->stage, p) || !worker_owns(w->p, k->stage, p->name)) continue;
        for (int part = 0; part < WORKER_PARTS; part++) {
            int32_t slot = worker_part_slot(p, part);
            if (slot < 0) continue;
            struct checkpoint_tensor *t = &s->tensors[s->n];
            const struct slot *x = &k->stage->slots[slot];
            TRY(worker_part_name(t->name, sizeof t->name, p, part, err));
            t->shape = p->shape;
            t->dtype = (int32_t)x->dtype;
            t->bytes = shape_elements(&p->shape) * dtype_bytes(x->dtype);
            void *copy = arena_alloc(a, (size_t)t->bytes + 1, 1);
            TRY(w->backend.download(&w->backend, copy, lane_memory_slot(&k->memory, slot, 0),
                                    t->bytes, err));
            if (!worker_all_finite(copy, x->dtype, shape_elements(&p->shape))) s->finite = false;
            s->data[s->n++] = copy;
        }
    }
    return OK;
}

static enum status collect(struct worker *w, struct arena *a, struct saving *s, struct error *err)
{
    size_t most = 1;
    for (int32_t i = 0; i < w->n_chunks; i++)
        most += WORKER_PARTS * (size_t)w->chunks[i].stage->n_parameters;
    *s = (struct saving){.finite = true};
    s->tensors = ARENA_ARRAY(a, struct checkpoint_tensor, most);
    s->data = ARENA_ARRAY(a, const void *, most);
    s->first = ARENA_ARRAY(a, int32_t, (size_t)w->n_chunks + 1);
    for (int32_t i = 0; i < w->n_chunks; i++) {
        TRY(collect_chunk(w, a, &w->chunks[i], s, err));
        s->first[i + 1] = s->n;
    }
    return divided_collect(w, a, &s->divided, &s->finite, err);
}

/* A file for each stage. */
static enum status write_stages(struct worker *w, struct arena *a, const char *temporary,
                                struct saving *s, struct error *err)
{
    for (int32_t i = 0; i < w->n_chunks; i++) {
        char file[32];
        int32_t at = s->first[i], n = s->first[i + 1] - at;
        if (!n) continue;
        snprintf(file, sizeof file, "stage-%04" PRId32 ".bin", w->chunks[i].stage->stage);
        TRY(checkpoint_write(a, temporary, file, s->tensors + at, s->data + at, n, err));
    }
    return OK;
}

static enum status write_mine(struct worker *w, struct arena *a, const char *temporary,
                              struct saving *s, struct error *err)
{
    comm_working(w->comm, true);
    enum status status = write_stages(w, a, temporary, s, err);
    comm_working(w->comm, false);
    return status;
}

static void add_rows(struct arena *a, struct saving *s, const struct checkpoint_tensor *rows,
                     int32_t n)
{
    if (!n) return;
    struct checkpoint_tensor *all = ARENA_ARRAY(a, struct checkpoint_tensor, (size_t)(s->n + n));
    if (s->n) memcpy(all, s->tensors, (size_t)s->n * sizeof *all);
    memcpy(all + s->n, rows, (size_t)n * sizeof *all);
    s->tensors = all;
    s->n += n;
}

/* Files of what is put together; their rows stand behind rank 0's own. */
static enum status write_together(struct worker *w, struct arena *a, const char *folder,
                                  struct saving *s, struct error *err)
{
    struct checkpoint_tensor *rows;
    int32_t n;
    TRY(divided_write(w, a, folder, &s->divided, &rows, &n, err));
    add_rows(a, s, rows, n);
    TRY(parts_write(w, a, folder, &s->parts, err));
    add_rows(a, s, s->parts.rows, s->parts.n);
    return OK;
}

bool worker_losses_finite(struct worker *w)
{
    int64_t none = INT64_MAX / 2;
    int64_t first = -comm_max(w->comm, w->bad_step < 0 ? -none : -w->bad_step);
    if (first == none) return true;
    if (w->rank == 0 && !w->told_of_bad_loss)
        log_warn("the loss is not finite from step %" PRId64 " on", w->first_step + first + 1);
    w->told_of_bad_loss = true;
    return false;
}

static enum status skip(const struct worker *w, int64_t step, const char *what)
{
    if (w->rank == 0)
        log_warn("no checkpoint of step %" PRId64 ": %s not finite; what '%s' holds stays", step,
                 what, w->o->save);
    return OK;
}

/* A folder for files of all ranks. */
enum { FOLDER_BYTES = 4096 };
static enum status begin(struct worker *w, struct arena *a, int64_t step, char *folder,
                         struct error *err)
{
    const char *temporary = "";
    enum status status = OK;
    if (w->rank == 0) status = checkpoint_begin(a, &w->store, step, &temporary, err);
    if (status == OK) snprintf(folder, FOLDER_BYTES, "%s", temporary);
    TRY(comm_agree(w->comm, status, err));
    comm_broadcast(w->comm, folder, FOLDER_BYTES);
    return OK;
}

static enum status save(struct worker *w, struct arena *a, int64_t step, char *folder,
                        struct error *err)
{
    struct saving mine = {0};
    enum status status = OK;
    if (!worker_losses_finite(w)) return skip(w, step, "the loss is");
    TRY(comm_agree(w->comm, collect(w, a, &mine, err), err));
    TRY(parts_collect(w, a, &mine.parts, &mine.finite, err));
    if (comm_max(w->comm, !mine.finite)) return skip(w, step, "parameters or optimizer state are");
    TRY(begin(w, a, step, folder, err));
    TRY(comm_agree(w->comm, write_mine(w, a, folder, &mine, err), err));
    TRY(comm_agree(w->comm, write_together(w, a, folder, &mine, err), err));
    int64_t bytes;
    struct checkpoint c = {.step = step,
                           .sequences =
                               w->first_sequence + (step - w->first_step) * w->global_batch,
                           .global_batch = w->global_batch,
                           .data_bytes = w->data.n_bytes,
                           .data_crc = w->data_crc,
                           .seed = w->p->seed,
                           .optimizer = w->p->optimizer.kind,
                           .dtype = w->p->dtype};
    worker_scale_after(w, step - w->first_step, c.scale);
    c.tensors = comm_gather(w->comm, a, mine.tensors, (int64_t)sizeof *c.tensors * mine.n, &bytes);
    c.n_tensors = (int32_t)(bytes / (int64_t)sizeof *c.tensors);
    comm_working(w->comm, true);
    if (w->rank == 0) status = checkpoint_commit(a, &w->store, folder, &c, err);
    comm_working(w->comm, false);
    TRY(comm_agree(w->comm, status, err));
    if (w->rank == 0) log_debug("checkpoint of step %" PRId64 " in '%s'", step, w->o->save);
    return OK;
}

enum status worker_save(struct worker *w, int64_t step, struct error *err)
{
    struct arena *a = arena_new();
    char folder[FOLDER_BYTES] = "";
    comm_phase(w->comm, "saving a checkpoint");
    enum status status = save(w, a, step, folder, err);
    if (status != OK && w->rank == 0 && *folder) checkpoint_discard(&w->store, folder);
    comm_phase(w->comm, "");
    arena_free(a);
    if (status != OK) return error_wrap(err, status, "checkpoint of step %" PRId64, step);
    return OK;
}

/* Data of one checkpoint: whole tensors, each once. */
static int64_t bytes_of_all(const struct program *p)
{
    int64_t bytes = 0;
    for (const struct program_stage *s = p->stages; s < p->stages + p->n_stages; s++)
        for (int32_t k = 0; k < s->n_parameters; k++) {
            const struct program_parameter *x = &s->parameters[k];
            const int32_t *state = x->shard ? x->shard->state : x->state;
            if (!worker_owns(p, s, x->name)) continue;
            struct shape whole =
                part_whole(&x->shape, x->slot >= 0 ? s->slots[x->slot].part : NULL);
            bytes += shape_elements(&whole) * dtype_bytes(dtype_master(p->dtype)) *
                     (1 + (state[0] >= 0) + (state[1] >= 0));
        }
    return bytes;
}

static enum status write_probe(const struct worker *w, struct arena *a, const char *folder,
                               struct error *err)
{
    static const char zeros[4096];
    char file[32];
    const void *data = zeros;
    struct checkpoint_tensor t = {.bytes = sizeof zeros};
    snprintf(file, sizeof file, "probe-%04" PRId32 ".bin", w->rank);
    return checkpoint_write(a, folder, file, &t, &data, 1, err);
}

/* Every rank writes a probe file, which is removed, so that an error of the folder is known before the first step. */
static enum status probe(struct worker *w, struct error *err)
{
    struct arena *a = arena_new();
    char folder[FOLDER_BYTES] = "";
    enum status status = begin(w, a, 0, folder, err);
    if (status == OK) status = comm_agree(w->comm, write_probe(w, a, folder, err), err);
    if (w->rank == 0 && *folder) checkpoint_discard(&w->store, folder);
    arena_free(a);
    if (status == OK) return OK;
    return error_wrap(err, status, "checkpoint folder '%s' cannot be written", w->o->save);
}

enum status worker_enter(struct worker *w, struct error *err)
{
    enum status status = OK;
    if (w->rank == 0) status = checkpoint_enter(w->run, w->o->save, &w->store, err);
    TRY(comm_agree(w->comm, status, err));
    TRY(probe(w, err));
    if (w->rank == 0) checkpoint_fits(&w->store, bytes_of_all(w->p));
    return OK;
}

enum status worker_follow(struct worker *w, struct error *err)
{
    enum status status = OK;
    if (w->rank == 0)
        status = checkpoint_follow(w->run, &w->store, w->o->resume, w->first_step, err);
    return comm_agree(w->comm, status, err);
}

/* ---- in ---------------------------------------------------------------------------------------
 */

static enum status load_slot(struct worker *w, struct arena *a, const struct checkpoint *c,
                             const struct chunk *k, const struct program_parameter *p, int part,
                             struct error *err)
{
    char name[256];
    int32_t slot = worker_part_slot(p, part);
    if (slot < 0) return OK;
    const struct slot *x = &k->stage->slots[slot];
    struct shape whole = part_whole(&x->shape, x->part);
    char *copy = arena_alloc(a, (size_t)(shape_elements(&whole) * dtype_bytes(x->dtype)) + 1, 1);
    TRY(worker_part_name(name, sizeof name, p, part, err));
    TRY(checkpoint_load(c, name, &whole, x->dtype, copy, err));
    if (x->part) {
        struct region r = part_region(a, &x->shape, x->part);
        char *mine = arena_alloc(a, (size_t)x->bytes + 1, 1);
        region_copy(&r, x->dtype, copy, mine, REGION_PACK);
        copy = mine;
    }
    TRY(w->backend.upload(&w->backend, lane_memory_slot(&k->memory, slot, 0), copy, x->bytes, err));
    return slot == p->master
               ? worker_narrow(w, a, k, p->slot, 0, copy, shape_elements(&x->shape), err)
               : OK;
}

enum status worker_narrow(struct worker *w, struct arena *a, const struct chunk *k, int32_t slot,
                          int64_t at, const void *values, int64_t n, struct error *err)
{
    enum dtype t = k->stage->slots[slot].dtype;
    uint16_t *narrow = ARENA_ARRAY(a, uint16_t, (size_t)n + 1);
    half_narrow(t, values, narrow, n);
    return w->backend.upload(&w->backend, (uint16_t *)lane_memory_slot(&k->memory, slot, 0) + at,
                             narrow, n * dtype_bytes(t), err);
}

/* What must be alike for the run to be a continuation. */
static enum status check_job(const struct worker *w, const struct checkpoint *c, struct error *err)
{
    enum optimizer_kind kind = w->p->optimizer.kind;
    if (c->seed != w->p->seed)
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s' was made with seed %" PRIu64 ", the program has %" PRIu64,
                         c->folder, c->seed, w->p->seed);
    if (dtype_master(c->dtype) != dtype_master(w->p->dtype))
        return error_set(err, ERR_INPUT, "checkpoint '%s' is %s, the program is %s", c->folder,
                         dtype_name(c->dtype), dtype_name(w->p->dtype));
    if (c->optimizer != kind)
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s' was made with optimizer %s, the program has %s",
                         c->folder, optimizer_name(c->optimizer), optimizer_name(kind));
    if (c->sequences % w->global_batch != 0)
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s' stands after %" PRId64 " sequences (global batch %" PRId64
                         "), which no number of steps of global batch %" PRId64 " consumes",
                         c->folder, c->sequences, c->global_batch, w->global_batch);
    return OK;
}

static void warn_of_changes(const struct worker *w, const struct checkpoint *c)
{
    if (c->data_bytes != w->data.n_bytes || c->data_crc != w->data_crc)
        log_warn("the data is not what checkpoint '%s' was trained on (%" PRId64
                 " bytes, CRC %08" PRIx32 "; now %" PRId64 " bytes, CRC %08" PRIx32
                 "): training goes on after %" PRId64
                 " sequences, but its losses do not continue the earlier ones",
                 c->folder, c->data_bytes, c->data_crc, w->data.n_bytes, w->data_crc, c->sequences);
    if (c->global_batch != w->global_batch)
        log_warn("global batch %" PRId64 " instead of the checkpoint's %" PRId64
                 ": training goes on after %" PRId64 " sequences",
                 w->global_batch, c->global_batch, c->sequences);
}

static enum status load_tensors(struct worker *w, struct arena *a, const char *folder,
                                struct error *err)
{
    struct checkpoint c;
    TRY(checkpoint_open(a, folder, false, &c, err));
    TRY(check_job(w, &c, err));
    TRY(checkpoint_continues(&c, w->o->steps, w->global_batch, err));
    if (w->rank == 0) warn_of_changes(w, &c);
    for (int32_t i = 0; i < w->n_chunks; i++) {
        const struct chunk *k = &w->chunks[i];
        for (int32_t j = 0; j < k->stage->n_parameters; j++) {
            const struct program_parameter *p = &k->stage->parameters[j];
            for (int part = 0; !p->shard && part < WORKER_PARTS; part++)
                TRY(load_slot(w, a, &c, k, p, part, err));
            if (p->shard) TRY(divided_load(w, &c, k, p, err));
        }
    }
    w->first_step = c.step;
    memcpy(w->scale_before, c.scale, sizeof w->scale_before);
    w->first_sequence = c.sequences;
    return OK;
}

static enum status load_all(struct worker *w, struct arena *a, const char *folder,
                            struct error *err)
{
    comm_working(w->comm, true);
    enum status status = load_tensors(w, a, folder, err);
    comm_working(w->comm, false);
    return status;
}

struct generation {
    struct arena *a;
    const char *from;
    char folder[4096];
};

static enum status find_generation(void *owner, struct error *err)
{
    struct generation *g = owner;
    struct checkpoint c;
    TRY(checkpoint_find(g->a, g->from, &c, err));
    snprintf(g->folder, sizeof g->folder, "%s", c.folder);
    return OK;
}

/* Rank 0 chooses the generation, so that all go on from the same. */
enum status worker_resume(struct worker *w, struct error *err)
{
    struct arena *a = arena_new();
    struct generation g = {.a = a, .from = w->o->resume};
    enum status status = comm_at_root(w->comm, find_generation, &g, err);
    if (status == OK) {
        comm_broadcast(w->comm, g.folder, sizeof g.folder);
        status = comm_agree(w->comm, load_all(w, a, g.folder, err), err);
    }
    arena_free(a);
    return status;
}
