#include "exec/worker/divided.h"

#include "core/collective/tensor_shard.h"
#include "exec/worker/saved_tensor.h"
#include "exec/worker/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The elements of the parameter in the shard, and their begin in its slot. False: none. */
static bool overlap(const struct program_stage *s, const struct program_parameter *p, int part,
                    int64_t *first, int64_t *n, int64_t *at)
{
    int64_t room = shape_elements(&s->slots[saved_tensor_slot(p, part)].shape);
    int64_t begin = program_shard_first(s, p->shard);
    *first = begin < 0 ? -begin : 0;
    *at = begin > 0 ? begin : 0;
    *n = shape_elements(&p->shape) - *first;
    if (*n > room - *at) *n = room - *at;
    return *n > 0;
}

static enum dtype part_dtype(const struct program_stage *s, const struct program_parameter *p,
                             int part)
{
    return s->slots[saved_tensor_slot(p, part)].dtype;
}

static char *part_address(const struct chunk *k, const struct program_parameter *p, int part,
                          int64_t at)
{
    int32_t slot = saved_tensor_slot(p, part);
    return (char *)lane_memory_slot(&k->memory, slot, 0) +
           at * dtype_bytes(k->stage->slots[slot].dtype);
}

/* The slice of the full tensor that a sharded parameter is; NULL: all of it. */
static const struct tensor_shard *part_kept(const struct program_stage *s,
                                            const struct program_parameter *p)
{
    return p->slot >= 0 ? s->slots[p->slot].shard : NULL;
}

enum status divided_collect(struct snapshot *s, const struct chunks *chunks, struct arena *a, int64_t steps, struct divided *out,
                            struct error *err)
{
    size_t most = 1;
    for (int32_t i = 0; i < chunks->n; i++)
        most += SAVED_TENSORS * (size_t)chunks->at[i].stage->n_parameters;
    *out = (struct divided){0, ARENA_ARRAY(a, struct divided_piece, most)};
    for (int32_t i = 0; i < chunks->n; i++) {
        const struct chunk *k = &chunks->at[i];
        for (int32_t j = 0; j < k->stage->n_parameters; j++) {
            const struct program_parameter *p = &k->stage->parameters[j];
            for (int part = 0; p->shard && part < SAVED_TENSORS; part++) {
                struct divided_piece *x = &out->pieces[out->n];
                int64_t at;
                *x = (struct divided_piece){
                    .parameter = p, .island = k->stage->island, .part = part, .kept = part_kept(k->stage, p)};
                if (!saved_tensor_kept(s->r->p, p, k->stage->island, part, steps) || !overlap(k->stage, p, part, &x->first, &x->n, &at))
                    continue;
                enum dtype t = part_dtype(k->stage, p, part);
                void *copy;
                TRY(snapshot_copy(s, part_address(k, p, part, at), x->n * dtype_bytes(t), &copy, err));
                snapshot_require_finite(s, copy, t, x->n);
                x->data = copy;
                out->n++;
            }
        }
    }
    return OK;
}

/* --- out --- */

struct piece_head {
    int64_t first, n;
};

struct packing { /* contiguous runs of a slice within the piece */
    struct arena *a;
    const struct divided_piece *x;
    int64_t size, bytes, capacity;
    char *to;
};

/* n elements of the full tensor from `first`, which are those of the slice from `at`. */
static void pack_run(void *owner, int64_t first, int64_t at, int64_t n)
{
    struct packing *p = owner;
    int64_t low = p->x->first, high = low + p->x->n;
    if (low < at) low = at;
    if (high > at + n) high = at + n;
    if (low >= high) return;
    struct piece_head head = {first + low - at, high - low};
    int64_t bytes = (int64_t)sizeof head + head.n * p->size;
    if (p->bytes + bytes > p->capacity) {
        p->capacity = 2 * (p->capacity + bytes);
        char *more = arena_alloc(p->a, (size_t)p->capacity, 1);
        if (p->bytes) memcpy(more, p->to, (size_t)p->bytes);
        p->to = more;
    }
    memcpy(p->to + p->bytes, &head, sizeof head);
    memcpy(p->to + p->bytes + sizeof head, (const char *)p->x->data + (low - p->x->first) * p->size,
           (size_t)(head.n * p->size));
    p->bytes += bytes;
}

/* This rank's shards of one tensor: runs of the full tensor, each after its header. */
static char *packed(struct arena *a, const struct divided *mine, const char *name, int32_t island, int part,
                    int64_t size, int64_t *bytes)
{
    struct packing p = {.a = a, .size = size};
    for (int32_t i = 0; i < mine->n; i++) {
        p.x = &mine->pieces[i];
        if (p.x->part != part || p.x->island != island || strcmp(p.x->parameter->name, name) != 0) continue;
        if (p.x->kept) {
            struct region r = tensor_shard_region(a, &p.x->parameter->shape, p.x->kept);
            region_walk(&r, pack_run, &p);
        } else {
            pack_run(&p, 0, 0, shape_elements(&p.x->parameter->shape));
        }
    }
    *bytes = p.bytes;
    return p.to;
}

/* Every element comes from some rank; from several ranks if all have computed it. */
static void unpack(struct arena *a, const char *from, int64_t bytes, int64_t size, int64_t elements,
                   char *out)
{
    char *seen = arena_alloc(a, (size_t)elements + 1, 1);
    memset(seen, 0, (size_t)elements);
    for (const char *end = from + bytes; from < end;) {
        struct piece_head head;
        memcpy(&head, from, sizeof head);
        memcpy(out + head.first * size, from + sizeof head, (size_t)(head.n * size));
        memset(seen + head.first, 1, (size_t)head.n);
        from += sizeof head + (size_t)(head.n * size);
    }
    if (elements && memchr(seen, 0, (size_t)elements))
        BUG("no rank has element %" PRId64 " of a sharded tensor",
            (int64_t)((char *)memchr(seen, 0, (size_t)elements) - seen));
}

/* Tensors on rank 0, the last of which wait for their file to be full. */
struct batch {
    struct divided_tensors *all;
    struct arena *arena; /* of the data that waits */
    checkpoint_put *put; /* NULL: all data waits for divided_write */
    void *owner;
    int32_t first, files; /* first: the first tensor of the file */
    size_t rows_capacity, data_capacity;
    int64_t bytes;
};

static enum status end_file(struct rank *r, struct batch *b, struct error *err)
{
    char file[sizeof b->all->rows->file];
    int32_t n = b->all->n - b->first;
    if (!n) return OK;
    snprintf(file, sizeof file, "divided-%04" PRId32 ".safetensors", b->files++);
    for (int32_t i = b->first; i < b->all->n; i++) memcpy(b->all->rows[i].file, file, sizeof file);
    if (b->put) {
        comm_working(r->comm, true);
        enum status st = b->put(b->owner, b->arena, file, b->all->rows + b->first, b->all->data + b->first, n, err);
        comm_working(r->comm, false);
        TRY(st);
        arena_reset(b->arena);
    }
    b->first = b->all->n;
    b->bytes = 0;
    return OK;
}

static enum status add_row(struct arena *a, struct batch *b, const struct program_parameter *p,
                           const struct shape *whole, int32_t island, int part, enum dtype t, const void *data,
                           struct error *err)
{
    struct divided_tensors *all = b->all;
    all->rows = arena_grow(a, all->rows, (size_t)all->n, &b->rows_capacity, sizeof *all->rows);
    all->data = arena_grow(a, all->data, (size_t)all->n, &b->data_capacity, sizeof *all->data);
    struct checkpoint_tensor *x = &all->rows[all->n];
    *x = (struct checkpoint_tensor){
        .shape = *whole, .dtype = (int32_t)t, .bytes = shape_elements(whole) * dtype_bytes(t)};
    TRY(saved_tensor_name(x->name, sizeof x->name, p, island, part, err));
    all->data[all->n++] = data;
    b->bytes += x->bytes;
    return OK;
}

/* Gathers one tensor on rank 0. */
static enum status gather_part(struct rank *r, struct arena *a, const struct divided *mine,
                               const struct program_stage *s, const struct program_parameter *p,
                               int part, struct batch *b, struct error *err)
{
    enum dtype t = part_dtype(s, p, part);
    struct shape shape = tensor_shard_whole(&p->shape, part_kept(s, p));
    int64_t size = dtype_bytes(t), bytes, total, elements = shape_elements(&shape);
    struct arena *sent = arena_new();
    char *from = packed(sent, mine, p->name, s->island, part, size, &bytes);
    char *all = comm_gather(r->comm, sent, from, bytes, &total);
    enum status st = OK;
    if (r->index == 0) {
        char *whole = arena_alloc(b->arena, (size_t)(elements * size) + 1, 1);
        unpack(sent, all, total, size, elements, whole);
        st = add_row(a, b, p, &shape, s->island, part, t, whole, err);
    }
    arena_free(sent);
    return st;
}

static enum status gather_stage(struct rank *r, struct arena *a, int64_t steps, const struct divided *mine,
                                const struct program_stage *s, struct batch *b, struct error *err)
{
    for (int32_t j = 0; j < s->n_parameters; j++) {
        const struct program_parameter *p = &s->parameters[j];
        if (!p->shard || !saved_tensor_owned(r->p, s, p->name)) continue;
        enum status st = OK; /* a rank that fails goes on, because the others wait for its shards */
        for (int part = 0; part < SAVED_TENSORS; part++)
            if (saved_tensor_kept(r->p, p, s->island, part, steps)) {
                enum status now = gather_part(r, a, mine, s, p, part, b, err);
                if (st == OK) st = now;
            }
        if (st == OK && r->index == 0 && b->bytes >= DIVIDED_FILE_BYTES) st = end_file(r, b, err);
        TRY(comm_agree(r->comm, st, err));
    }
    return OK;
}

enum status divided_gather(struct rank *r, struct arena *a, checkpoint_put *put, void *owner, int64_t steps, const struct divided *mine,
                           struct divided_tensors *out, struct error *err)
{
    struct batch b = {.all = out, .arena = put ? arena_new() : a, .put = put, .owner = owner};
    enum status st = OK;
    *out = (struct divided_tensors){0};
    for (int32_t i = 0; i < r->p->n_stages && st == OK; i++) st = gather_stage(r, a, steps, mine, &r->p->stages[i], &b, err);
    if (st == OK && r->index == 0) st = end_file(r, &b, err);
    if (put) arena_free(b.arena);
    return st;
}

enum status divided_write(struct arena *a, checkpoint_put *put, void *owner, struct divided_tensors *x, struct error *err)
{
    for (int32_t i = 0, end; i < x->n; i = end) {
        char file[sizeof x->rows->file];
        memcpy(file, x->rows[i].file, sizeof file);
        for (end = i + 1; end < x->n && !strcmp(x->rows[end].file, file);) end++;
        TRY(put(owner, a, file, x->rows + i, x->data + i, end - i, err));
    }
    return OK;
}

/* --- in --- */

static enum status load_shard(struct rank *r, struct arena *a, const struct checkpoint *c,
                              const struct chunk *k, const struct program_parameter *p, int part,
                              struct error *err)
{
    int64_t first, n, at;
    bool whole = part == 0 && p->slot >= 0; /* the shard is inside it */
    if (!saved_tensor_kept(r->p, p, 0, part, c->step)) return OK;
    if (!overlap(k->stage, p, part, &first, &n, &at) && !whole) return OK;
    enum dtype t = part_dtype(k->stage, p, part);
    const struct tensor_shard *kept = part_kept(k->stage, p);
    struct shape shape = tensor_shard_whole(&p->shape, kept);
    int64_t size = dtype_bytes(t), elements = shape_elements(&p->shape);
    char *copy = arena_alloc(a, (size_t)(shape_elements(&shape) * size) + 1, 1);
    TRY(saved_tensor_load(a, c, r->p, p, k->stage->island, part, &shape, t, copy, err));
    if (kept) {
        struct region region = tensor_shard_region(a, &p->shape, kept);
        char *mine = arena_alloc(a, (size_t)(elements * size) + 1, 1);
        region_copy(&region, t, copy, mine, REGION_PACK);
        copy = mine;
    }
    bool mastered = part == 0 && p->shard->master >= 0;
    if (whole && !mastered)
        return r->backend.upload(&r->backend, lane_memory_slot(&k->memory, p->slot, 0), copy,
                                 elements * size, err);
    if (n > 0)
        TRY(r->backend.upload(&r->backend, part_address(k, p, part, at), copy + first * size,
                              n * size, err));
    if (!mastered) return OK;
    if (whole) return saved_tensor_narrow(r, a, k, p->slot, 0, copy, elements, err);
    return saved_tensor_narrow(r, a, k, p->shard->slot, at, copy + first * size, n, err);
}

enum status divided_load(struct rank *r, const struct checkpoint *c, const struct chunk *k,
                         const struct program_parameter *p, struct error *err)
{
    for (int part = 0; part < SAVED_TENSORS; part++) {
        struct arena *scratch = arena_new();
        enum status st = load_shard(r, scratch, c, k, p, part, err);
        arena_free(scratch);
        TRY(st);
    }
    return OK;
}
