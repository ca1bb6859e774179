#include "exec/worker/saver.h"

#include "core/base/log.h"
#include "core/graph/half.h"
#include "core/collective/tensor_shard.h"
#include "exec/worker/accumulated.h"
#include "exec/worker/chunks.h"
#include "exec/worker/divided.h"
#include "exec/worker/feedback.h"
#include "exec/worker/inputs.h"
#include "exec/worker/progress.h"
#include "exec/worker/saved_tensor.h"
#include "exec/worker/scale_log.h"
#include "exec/worker/serve.h"
#include "exec/worker/shards.h"
#include "exec/worker/step_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct saving {
    struct divided divided;
    struct feedback *feedback; /* (chunks) */
    struct shards shards;
    struct checkpoint_tensor *tensors;
    const void **data;
    int32_t n, *first; /* first: (chunks + 1) index of each chunk's first tensor */
    bool finite;
};

static enum status collect_chunk(struct saver *v, struct arena *a, const struct chunk *k, int64_t step,
                                 struct saving *s, struct error *err)
{
    for (int32_t i = 0; i < k->stage->n_parameters; i++) {
        const struct program_parameter *p = &k->stage->parameters[i];
        if (p->shard || shards_held(k->stage, p) || !saved_tensor_owned(v->r->p, k->stage, p->name))
            continue;
        for (int part = 0; part < SAVED_TENSORS; part++) {
            int32_t slot = saved_tensor_slot(p, part);
            if (!saved_tensor_kept(v->r->p, p, k->stage->island, part, step)) continue;
            struct checkpoint_tensor *t = &s->tensors[s->n];
            const struct slot *x = &k->stage->slots[slot];
            TRY(saved_tensor_name(t->name, sizeof t->name, p, k->stage->island, part, err));
            t->shape = p->shape;
            t->dtype = (int32_t)x->dtype;
            t->bytes = shape_elements(&p->shape) * dtype_bytes(x->dtype);
            void *copy = arena_alloc(a, (size_t)t->bytes + 1, 1);
            TRY(v->r->backend.download(&v->r->backend, copy, lane_memory_slot(&k->memory, slot, 0),
                                       t->bytes, err));
            if (dtype_is_half(x->dtype)) {
                float *wide = ARENA_ARRAY(a, float, (size_t)shape_elements(&p->shape) + 1);
                half_widen(x->dtype, copy, wide, shape_elements(&p->shape));
                copy = wide, t->dtype = DTYPE_fp32, t->bytes = shape_elements(&p->shape) * dtype_bytes(DTYPE_fp32);
            }
            if (!saved_tensor_finite(copy, (enum dtype)t->dtype, shape_elements(&p->shape))) s->finite = false;
            s->data[s->n++] = copy;
        }
    }
    return OK;
}

/* Versions of a parameter server. */
static void collect_versions(struct saver *v, struct arena *a, const struct chunk *k, struct saving *s)
{
    int64_t n = 0;
    double *state = serve_state(v->serve, &n);
    if (!state) return;
    struct checkpoint_tensor *t = &s->tensors[s->n];
    saved_tensor_versions(t->name, sizeof t->name, k->stage->server, n);
    t->shape = (struct shape){1, {n}}, t->dtype = DTYPE_fp64, t->bytes = n * (int64_t)sizeof *state;
    s->data[s->n++] = arena_copy(a, state, (size_t)t->bytes);
}

static enum status collect(struct saver *v, struct arena *a, int64_t step, struct saving *s, struct error *err)
{
    size_t most = 2;
    for (int32_t i = 0; i < v->chunks->n; i++)
        most += SAVED_TENSORS * (size_t)v->chunks->at[i].stage->n_parameters;
    *s = (struct saving){.finite = true};
    s->tensors = ARENA_ARRAY(a, struct checkpoint_tensor, most);
    s->data = ARENA_ARRAY(a, const void *, most);
    s->first = ARENA_ARRAY(a, int32_t, (size_t)v->chunks->n + 1);
    s->feedback = ARENA_ARRAY(a, struct feedback, (size_t)v->chunks->n + 1);
    for (int32_t i = 0; i < v->chunks->n; i++) {
        TRY(collect_chunk(v, a, &v->chunks->at[i], step, s, err));
        collect_versions(v, a, &v->chunks->at[i], s);
        TRY(feedback_collect(v->r, a, &v->chunks->at[i], &s->feedback[i], &s->finite, err));
        TRY(accumulated_collect(v->r, a, &v->chunks->at[i], step, &s->feedback[i], &s->finite, err));
        s->first[i + 1] = s->n;
    }
    return divided_collect(v->r, v->chunks, a, step, &s->divided, &s->finite, err);
}

/* One file per stage. */
static enum status write_stages(struct saver *v, struct arena *a, const char *temporary,
                                struct saving *s, struct error *err)
{
    for (int32_t i = 0; i < v->chunks->n; i++) {
        char file[32];
        int32_t at = s->first[i], n = s->first[i + 1] - at, island = v->chunks->at[i].stage->island;
        if (!n) continue;
        int length = snprintf(file, sizeof file, "stage-%04" PRId32, v->chunks->at[i].stage->stage);
        if (island) length += snprintf(file + length, sizeof file - (size_t)length, "-%" PRId32, island);
        snprintf(file + length, sizeof file - (size_t)length, ".bin");
        TRY(checkpoint_write(a, temporary, file, s->tensors + at, s->data + at, n, err));
    }
    return OK;
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

/* One file per stage of the program, because each device has its own. */
static enum status write_feedback(struct saver *v, struct arena *a, const char *temporary,
                                  struct saving *s, struct error *err)
{
    for (int32_t i = 0; i < v->chunks->n; i++) {
        char file[32];
        struct feedback *f = &s->feedback[i];
        if (!f->n) continue;
        snprintf(file, sizeof file, "feedback-%04" PRId32 ".bin", v->chunks->at[i].index);
        TRY(checkpoint_write(a, temporary, file, f->tensors, f->data, f->n, err));
        add_rows(a, s, f->tensors, f->n);
    }
    return OK;
}

static enum status write_mine(struct saver *v, struct arena *a, const char *temporary,
                              struct saving *s, struct error *err)
{
    comm_working(v->r->comm, true);
    enum status status = write_stages(v, a, temporary, s, err);
    if (status == OK) status = write_feedback(v, a, temporary, s, err);
    comm_working(v->r->comm, false);
    return status;
}

/* Files of the assembled tensors; their rows follow rank 0's own. */
static enum status write_together(struct saver *v, struct arena *a, const char *folder, int64_t step,
                                  struct saving *s, struct error *err)
{
    struct checkpoint_tensor *rows;
    int32_t n;
    TRY(divided_write(v->r, a, folder, step, &s->divided, &rows, &n, err));
    add_rows(a, s, rows, n);
    TRY(shards_write(v->r, a, folder, &s->shards, err));
    add_rows(a, s, s->shards.rows, s->shards.n);
    return OK;
}

static enum status skip(const struct saver *v, int64_t step, const char *what)
{
    if (v->r->index == 0)
        log_warn("no checkpoint of step %" PRId64 ": %s not finite; '%s' keeps its earlier checkpoints", step,
                 what, v->r->o->save);
    return OK;
}

/* Path of the folder for the files of all ranks. */
enum { FOLDER_BYTES = 4096 };
static enum status begin(struct saver *v, struct arena *a, int64_t step, char *folder,
                         struct error *err)
{
    const char *temporary = "";
    enum status status = OK;
    if (v->r->index == 0) status = checkpoint_begin(a, &v->store, step, &temporary, err);
    if (status == OK) snprintf(folder, FOLDER_BYTES, "%s", temporary);
    TRY(comm_agree(v->r->comm, status, err));
    comm_broadcast(v->r->comm, folder, FOLDER_BYTES);
    return OK;
}

static void note_islands(struct arena *a, const struct program *p, struct checkpoint *c)
{
    int32_t n = program_islands(p);
    if (n < 2) return;
    c->n_islands = n;
    c->island_sequences = ARENA_ARRAY(a, int64_t, (size_t)n);
    for (int32_t s = 0; s < p->n_stages; s++) /* one stage of each replica */
        if (!s || p->stages[s].replica != p->stages[s - 1].replica)
            c->island_sequences[p->stages[s].island] += p->stages[s].microbatches * p->microbatch;
}

static enum status save(struct saver *v, struct arena *a, int64_t step, char *folder,
                        struct error *err)
{
    struct saving mine = {0};
    enum status status = OK;
    if (!step_log_finite(v->log, v->r, v->progress->first_step))
        return skip(v, step, "the loss is");
    TRY(comm_agree(v->r->comm, collect(v, a, step, &mine, err), err));
    TRY(shards_collect(v->r, v->chunks, a, step, &mine.shards, &mine.finite, err));
    if (comm_max(v->r->comm, !mine.finite))
        return skip(v, step, "parameters or optimizer state are");
    TRY(begin(v, a, step, folder, err));
    TRY(comm_agree(v->r->comm, write_mine(v, a, folder, &mine, err), err));
    TRY(comm_agree(v->r->comm, write_together(v, a, folder, step, &mine, err), err));
    int64_t bytes;
    struct checkpoint c = {.step = step,
                           .sequences =
                               progress_sequences(v->progress, step - v->progress->first_step),
                           .global_batch = v->progress->global_batch,
                           .data_bytes = v->inputs->data.n_bytes,
                           .data_crc = v->inputs->crc,
                           .seed = v->r->p->seed,
                           .optimizer = v->r->p->optimizer.kind,
                           .dtype = v->r->p->dtype};
    note_islands(a, v->r->p, &c);
    scale_log_after(v->scales, step - v->progress->first_step, c.scale);
    c.tensors =
        comm_gather(v->r->comm, a, mine.tensors, (int64_t)sizeof *c.tensors * mine.n, &bytes);
    c.n_tensors = (int32_t)(bytes / (int64_t)sizeof *c.tensors);
    comm_working(v->r->comm, true);
    if (v->r->index == 0) status = checkpoint_commit(a, &v->store, folder, &c, err);
    comm_working(v->r->comm, false);
    TRY(comm_agree(v->r->comm, status, err));
    if (v->r->index == 0) log_debug("checkpoint of step %" PRId64 " in '%s'", step, v->r->o->save);
    return OK;
}

enum status saver_save(struct saver *v, int64_t step, struct error *err)
{
    struct arena *a = arena_new();
    char folder[FOLDER_BYTES] = "";
    comm_phase(v->r->comm, "saving a checkpoint");
    enum status status = save(v, a, step, folder, err);
    if (status != OK && v->r->index == 0 && *folder) checkpoint_discard(&v->store, folder);
    comm_phase(v->r->comm, "");
    arena_free(a);
    if (status != OK) return error_wrap(err, status, "checkpoint of step %" PRId64, step);
    return OK;
}

static int64_t feedback_bytes(const struct program_stage *s, const struct program_parameter *p)
{
    int64_t bytes = 0;
    for (int k = 0; k < FEEDBACK_SLOTS; k++) bytes += p->feedback[k] ? s->slots[p->feedback[k] - 1].bytes : 0;
    return bytes;
}

/* Data of one checkpoint: each full tensor once, and every device's feedback and, between two updates, gradients. */
static int64_t bytes_of_all(const struct program *p)
{
    int64_t bytes = 0;
    for (const struct program_stage *s = p->stages; s < p->stages + p->n_stages; s++) {
        bytes += accumulated_bytes(p, s, 1);
        for (int32_t k = 0; k < s->n_parameters; k++) {
            const struct program_parameter *x = &s->parameters[k];
            const int32_t *state = x->shard ? x->shard->state : x->state, *outer = x->shard ? x->shard->outer : x->outer;
            bytes += feedback_bytes(s, x);
            if (!saved_tensor_owned(p, s, x->name)) continue;
            struct shape whole =
                tensor_shard_whole(&x->shape, x->slot >= 0 ? s->slots[x->slot].shard : NULL);
            bytes += shape_elements(&whole) * dtype_bytes(dtype_master(p->dtype)) *
                     (1 + (state[0] >= 0) + (state[1] >= 0) + (x->previous > 0) +
                      (s->island ? 0 : (outer[0] > 0) + (outer[1] > 0) + (outer[2] > 0)));
        }
    }
    return bytes;
}

static enum status write_probe(const struct saver *v, struct arena *a, const char *folder,
                               struct error *err)
{
    static const char zeros[4096];
    char file[32];
    const void *data = zeros;
    struct checkpoint_tensor t = {.bytes = sizeof zeros};
    snprintf(file, sizeof file, "probe-%04" PRId32 ".bin", v->r->index);
    return checkpoint_write(a, folder, file, &t, &data, 1, err);
}

/* Every rank writes and removes a probe file, so that an error of the folder is known before the first step. */
static enum status probe(struct saver *v, struct error *err)
{
    struct arena *a = arena_new();
    char folder[FOLDER_BYTES] = "";
    enum status status = begin(v, a, 0, folder, err);
    if (status == OK) status = comm_agree(v->r->comm, write_probe(v, a, folder, err), err);
    if (v->r->index == 0 && *folder) checkpoint_discard(&v->store, folder);
    arena_free(a);
    if (status == OK) return OK;
    return error_wrap(err, status, "checkpoint folder '%s' cannot be written", v->r->o->save);
}

enum status saver_enter(struct saver *v, struct error *err)
{
    enum status status = OK;
    if (v->r->index == 0) status = checkpoint_enter(v->r->run, v->r->o->save, &v->store, err);
    TRY(comm_agree(v->r->comm, status, err));
    if (v->r->o->save_keep > 0) v->store.keep = (int32_t)v->r->o->save_keep;
    TRY(probe(v, err));
    if (v->r->index == 0) checkpoint_fits(&v->store, bytes_of_all(v->r->p));
    return OK;
}

enum status saver_follow(struct saver *v, struct error *err)
{
    enum status status = OK;
    if (v->r->index == 0)
        status =
            checkpoint_follow(v->r->run, &v->store, v->r->o->resume, v->progress->first_step, err);
    return comm_agree(v->r->comm, status, err);
}

void saver_init(struct saver *s, struct rank *r, const struct chunks *c, const struct progress *g,
                const struct inputs *inputs, const struct scale_log *scales, struct step_log *log,
                struct serve *serve)
{
    *s = (struct saver){.r = r,
                        .chunks = c,
                        .progress = g,
                        .inputs = inputs,
                        .scales = scales,
                        .log = log,
                        .serve = serve,
                        .store = {.lock = -1}};
}

void saver_leave(struct saver *s) { checkpoint_leave(&s->store); }
