#include "exec/worker/saving.h"

#include "core/graph/half.h"
#include "exec/worker/accumulated.h"
#include "exec/worker/rank.h"
#include "exec/worker/saved_tensor.h"
#include "exec/worker/serve.h"
#include "exec/worker/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum status collect_chunk(struct saving *s, const struct chunk *k, struct error *err)
{
    const struct program *p = s->snapshot->r->p;
    for (int32_t i = 0; i < k->stage->n_parameters; i++) {
        const struct program_parameter *x = &k->stage->parameters[i];
        if (x->shard || shards_held(k->stage, x) || !saved_tensor_owned(p, k->stage, x->name)) continue;
        for (int part = 0; part < SAVED_TENSORS; part++) {
            int32_t slot = saved_tensor_slot(x, part);
            if (!saved_tensor_kept(p, x, k->stage->island, part, s->step)) continue;
            struct checkpoint_tensor *t = &s->tensors[s->n];
            enum dtype dtype = k->stage->slots[slot].dtype;
            int64_t n = shape_elements(&x->shape);
            void *copy;
            TRY(saved_tensor_name(t->name, sizeof t->name, x, k->stage->island, part, err));
            TRY(snapshot_copy(s->snapshot, lane_memory_slot(&k->memory, slot, 0), n * dtype_bytes(dtype), &copy, err));
            s->held[s->n] = dtype;
            if (dtype_is_half(dtype))
                dtype = DTYPE_fp32;
            else
                snapshot_require_finite(s->snapshot, copy, dtype, n);
            t->shape = x->shape, t->dtype = (int32_t)dtype, t->bytes = n * dtype_bytes(dtype);
            s->data[s->n++] = copy;
        }
    }
    return OK;
}

/* Versions of a parameter server. */
static void collect_versions(struct saving *s, struct serve *serve, const struct chunk *k, struct feedback *to)
{
    int64_t n = 0;
    double *state = serve_state(serve, &n);
    if (!state) return;
    struct checkpoint_tensor *t = &to->tensors[to->n];
    saved_tensor_versions(t->name, sizeof t->name, k->stage->server, n);
    t->shape = (struct shape){1, {n}}, t->dtype = DTYPE_fp64, t->bytes = n * (int64_t)sizeof *state;
    to->data[to->n++] = arena_copy(s->a, state, (size_t)t->bytes);
}

static enum status collect_mine(struct saving *s, struct serve *serve, struct error *err)
{
    for (int32_t i = 0; i < s->chunks->n; i++) {
        const struct chunk *k = &s->chunks->at[i];
        TRY(collect_chunk(s, k, err));
        TRY(feedback_collect(s->snapshot, s->a, k, &s->feedback[i], err));
        collect_versions(s, serve, k, &s->feedback[i]);
        TRY(accumulated_collect(s->snapshot, k, s->step, &s->feedback[i], err));
        s->first[i + 1] = s->n;
    }
    TRY(divided_collect(s->snapshot, s->chunks, s->a, s->step, &s->divided, err));
    return snapshot_settle(s->snapshot, err);
}

static void open_lists(struct saving *s, struct arena *a, struct snapshot *to, const struct chunks *chunks, int64_t step)
{
    size_t most = 2;
    for (int32_t i = 0; i < chunks->n; i++) most += SAVED_TENSORS * (size_t)chunks->at[i].stage->n_parameters;
    *s = (struct saving){.a = a, .snapshot = to, .chunks = chunks, .step = step};
    s->tensors = ARENA_ARRAY(a, struct checkpoint_tensor, most);
    s->data = ARENA_ARRAY(a, const void *, most);
    s->held = ARENA_ARRAY(a, enum dtype, most);
    s->first = ARENA_ARRAY(a, int32_t, (size_t)chunks->n + 1);
    s->feedback = ARENA_ARRAY(a, struct feedback, (size_t)chunks->n + 1);
}

enum status saving_bytes(struct snapshot *to, const struct chunks *chunks, struct serve *serve, int64_t step, int64_t *out, struct error *err)
{
    struct saving s;
    struct arena *a = arena_new();
    open_lists(&s, a, to, chunks, step);
    snapshot_measure(to);
    enum status status = collect_mine(&s, serve, err);
    *out = snapshot_measured(to);
    arena_free(a);
    return status;
}

enum status saving_collect(struct saving *s, struct arena *a, struct snapshot *to, const struct chunks *chunks, struct serve *serve,
                           int64_t step, struct error *err)
{
    open_lists(s, a, to, chunks, step);
    snapshot_begin(to);
    TRY(comm_agree(to->r->comm, collect_mine(s, serve, err), err));
    return shards_collect(to, chunks, a, step, &s->shards, err);
}

enum status saving_assemble(struct saving *s, checkpoint_put *put, void *owner, struct error *err)
{
    struct rank *r = s->snapshot->r;
    s->divided_written = put != NULL;
    return comm_agree(r->comm, divided_gather(r, s->a, put, owner, s->step, &s->divided, &s->whole, err), err);
}

bool saving_finish(struct saving *s)
{
    bool finite = snapshot_finite(s->snapshot);
    for (int32_t i = 0; i < s->n; i++) {
        int64_t n = shape_elements(&s->tensors[i].shape);
        if (!dtype_is_half(s->held[i])) continue;
        float *wide = ARENA_ARRAY(s->a, float, (size_t)n + 1);
        half_widen(s->held[i], s->data[i], wide, n);
        finite = finite && saved_tensor_finite(wide, DTYPE_fp32, n);
        s->data[i] = wide, s->held[i] = DTYPE_fp32;
    }
    return finite;
}

/* What has no place in a layout goes into one file per stage. */
static enum status write_stages(struct saving *s, checkpoint_put *put, void *owner, struct error *err)
{
    for (int32_t i = 0; i < s->chunks->n; i++) {
        const struct program_stage *stage = s->chunks->at[i].stage;
        char file[CHECKPOINT_FILE_BYTES];
        int32_t at = s->first[i], n = s->first[i + 1] - at;
        if (!n) continue;
        int length = snprintf(file, sizeof file, "stage-%04" PRId32, stage->stage);
        if (stage->island) length += snprintf(file + length, sizeof file - (size_t)length, "-%" PRId32, stage->island);
        snprintf(file + length, sizeof file - (size_t)length, ".safetensors");
        TRY(put(owner, s->a, file, s->tensors + at, s->data + at, n, err));
    }
    return OK;
}

static void add_rows(struct saving *s, const struct checkpoint_tensor *rows, int32_t n)
{
    if (!n) return;
    struct checkpoint_tensor *all = ARENA_ARRAY(s->a, struct checkpoint_tensor, (size_t)(s->n + n));
    if (s->n) memcpy(all, s->tensors, (size_t)s->n * sizeof *all);
    memcpy(all + s->n, rows, (size_t)n * sizeof *all);
    s->tensors = all;
    s->n += n;
}

/* One file per stage of the program, because each device has its own. */
static enum status write_feedback(struct saving *s, checkpoint_put *put, void *owner, struct error *err)
{
    for (int32_t i = 0; i < s->chunks->n; i++) {
        char file[CHECKPOINT_FILE_BYTES];
        struct feedback *f = &s->feedback[i];
        if (!f->n) continue;
        snprintf(file, sizeof file, "feedback-%04" PRId32 ".safetensors", s->chunks->at[i].index);
        TRY(put(owner, s->a, file, f->tensors, f->data, f->n, err));
        add_rows(s, f->tensors, f->n);
    }
    return OK;
}

enum status saving_write(struct saving *s, checkpoint_put *put, void *owner, struct error *err)
{
    TRY(write_stages(s, put, owner, err));
    TRY(write_feedback(s, put, owner, err));
    if (!s->divided_written) TRY(divided_write(s->a, put, owner, &s->whole, err));
    add_rows(s, s->whole.rows, s->whole.n);
    TRY(shards_write(s->a, put, owner, &s->shards, err));
    add_rows(s, s->shards.rows, s->shards.n);
    return OK;
}
