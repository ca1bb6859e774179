/* exec/worker_save.c - which of a rank's slots go into a checkpoint under which names.
 *
 * Parameters under their own names, optimizer state under "name#m" and "name#v"; written once, by
 * the first stage of replica 0 that owns the parameter. */
#include "exec/checkpoint.h"
#include "exec/worker_internal.h"

#include "core/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const SUFFIX[] = {"", "#m", "#v"};
enum { PARTS = 3 };

static int32_t part_slot(const struct program_parameter *p, int part)
{
    return part == 0 ? p->slot : p->state[part - 1];
}

static bool owned_here(const struct worker *w, const char *name)
{
    if (w->stage->replica != 0) return false;
    for (int32_t i = 0; i < w->p->n_stages; i++) {
        const struct program_stage *s = &w->p->stages[i];
        if (s->replica != 0 || s->stage >= w->stage->stage) continue;
        for (int32_t k = 0; k < s->n_parameters; k++)
            if (!strcmp(s->parameters[k].name, name)) return false;
    }
    return true;
}

static void name_part(char *out, size_t n, const char *name, int part)
{
    snprintf(out, n, "%s%s", name, SUFFIX[part]);
}

/* ---- out --------------------------------------------------------------------------------------
 */

struct saving {
    struct checkpoint_tensor *tensors;
    const void **data;
    int32_t n;
};

static enum status collect(struct worker *w, struct arena *a, struct saving *s, struct error *err)
{
    size_t most = PARTS * (size_t)w->stage->n_parameters + 1;
    s->tensors = ARENA_ARRAY(a, struct checkpoint_tensor, most);
    s->data = ARENA_ARRAY(a, const void *, most);
    s->n = 0;
    for (int32_t i = 0; i < w->stage->n_parameters; i++) {
        const struct program_parameter *p = &w->stage->parameters[i];
        if (!owned_here(w, p->name)) continue;
        for (int part = 0; part < PARTS; part++) {
            int32_t slot = part_slot(p, part);
            if (slot < 0) continue;
            struct checkpoint_tensor *t = &s->tensors[s->n];
            const struct slot *x = &w->stage->slots[slot];
            if (strlen(p->name) + 3 > sizeof t->name)
                return error_set(err, ERR_INPUT,
                                 "parameter %s: its name is too long for a checkpoint", p->name);
            name_part(t->name, sizeof t->name, p->name, part);
            t->shape = p->shape;
            t->dtype = (int32_t)x->dtype;
            t->bytes = shape_elements(&p->shape) * dtype_bytes(x->dtype);
            void *copy = arena_alloc(a, (size_t)t->bytes + 1, 1);
            TRY(w->backend.download(&w->backend, copy, lane_memory_slot(&w->memory, slot, 0),
                                    t->bytes, err));
            s->data[s->n++] = copy;
        }
    }
    return OK;
}

static enum status write_mine(struct worker *w, struct arena *a, const char *temporary,
                              struct saving *s, struct error *err)
{
    char file[32];
    TRY(collect(w, a, s, err));
    if (!s->n) return OK;
    snprintf(file, sizeof file, "stage-%04" PRId32 ".bin", w->stage->stage);
    return checkpoint_write(a, temporary, file, s->tensors, s->data, s->n, err);
}

static enum status save(struct worker *w, struct arena *a, int64_t step, struct error *err)
{
    char folder[4096] = "";
    const char *temporary = NULL;
    struct saving mine = {0};
    enum status status = OK;
    if (w->rank == 0) status = checkpoint_begin(a, w->o->save, step, &temporary, err);
    if (temporary) snprintf(folder, sizeof folder, "%s", temporary);
    TRY(comm_agree(w->comm, status, err));
    comm_broadcast(w->comm, folder, sizeof folder);
    TRY(comm_agree(w->comm, write_mine(w, a, folder, &mine, err), err));
    int64_t bytes;
    struct checkpoint c = {.step = step, .seed = w->p->seed, .dtype = w->p->dtype};
    c.tensors = comm_gather(w->comm, a, mine.tensors, (int64_t)sizeof *c.tensors * mine.n, &bytes);
    c.n_tensors = (int32_t)(bytes / (int64_t)sizeof *c.tensors);
    if (w->rank == 0) status = checkpoint_commit(a, w->o->save, folder, &c, err);
    return comm_agree(w->comm, status, err);
}

enum status worker_save(struct worker *w, int64_t step, struct error *err)
{
    struct arena *a = arena_new();
    enum status status = save(w, a, step, err);
    arena_free(a);
    if (status != OK) return error_wrap(err, status, "checkpoint of step %" PRId64, step);
    if (w->rank == 0) log_debug("checkpoint of step %" PRId64 " in '%s'", step, w->o->save);
    return OK;
}

enum status worker_lock(struct worker *w, struct error *err)
{
    enum status status = OK;
    bool here = w->o->resume && !strcmp(w->o->resume, w->o->save);
    if (w->rank == 0)
        status = checkpoint_lock(w->run, w->o->save, w->first_step, here, &w->lock, err);
    return comm_agree(w->comm, status, err);
}

/* ---- in ---------------------------------------------------------------------------------------
 */

static enum status load_slot(struct worker *w, struct arena *a, const struct checkpoint *c,
                             const struct program_parameter *p, int part, struct error *err)
{
    char name[256];
    int32_t slot = part_slot(p, part);
    if (slot < 0) return OK;
    const struct slot *x = &w->stage->slots[slot];
    int64_t bytes = shape_elements(&p->shape) * dtype_bytes(x->dtype);
    void *copy = arena_alloc(a, (size_t)bytes + 1, 1);
    name_part(name, sizeof name, p->name, part);
    TRY(checkpoint_load(c, name, &p->shape, x->dtype, copy, err));
    return w->backend.upload(&w->backend, lane_memory_slot(&w->memory, slot, 0), copy, bytes, err);
}

static enum status load_all(struct worker *w, struct arena *a, const char *folder,
                            struct error *err)
{
    struct checkpoint c;
    TRY(checkpoint_open(a, folder, false, &c, err));
    if (c.seed != w->p->seed)
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s' was made with seed %" PRIu64 ", the program has %" PRIu64,
                         folder, c.seed, w->p->seed);
    if (c.dtype != w->p->dtype)
        return error_set(err, ERR_INPUT, "checkpoint '%s' is %s, the program is %s", folder,
                         dtype_name(c.dtype), dtype_name(w->p->dtype));
    for (int32_t i = 0; i < w->stage->n_parameters; i++)
        for (int part = 0; part < PARTS; part++)
            TRY(load_slot(w, a, &c, &w->stage->parameters[i], part, err));
    w->first_step = c.step;
    return OK;
}

/* Rank 0 chooses the generation, so that all go on from the same. */
enum status worker_resume(struct worker *w, struct error *err)
{
    struct arena *a = arena_new();
    struct checkpoint c;
    char folder[4096] = "";
    enum status status = OK;
    if (w->rank == 0) status = checkpoint_find(a, w->o->resume, &c, err);
    if (w->rank == 0 && status == OK) snprintf(folder, sizeof folder, "%s", c.folder);
    status = comm_agree(w->comm, status, err);
    if (status == OK) {
        comm_broadcast(w->comm, folder, sizeof folder);
        status = comm_agree(w->comm, load_all(w, a, folder, err), err);
    }
    arena_free(a);
    return status;
}
