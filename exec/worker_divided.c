#include "exec/worker_divided.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int32_t shard_slot(const struct program_parameter *p, int part)
{
    return part == 0 ? p->shard->slot : p->shard->state[part - 1];
}

/* Which elements of the parameter the shard has, and where in its slot they begin. False: none. */
static bool overlap(const struct program_stage *s, const struct program_parameter *p, int part,
                    int64_t *first, int64_t *n, int64_t *at)
{
    int64_t room = shape_elements(&s->slots[shard_slot(p, part)].shape);
    *first = p->shard->first < 0 ? -p->shard->first : 0;
    *at = p->shard->first > 0 ? p->shard->first : 0;
    *n = shape_elements(&p->shape) - *first;
    if (*n > room - *at) *n = room - *at;
    return *n > 0;
}

static enum dtype part_dtype(const struct program_stage *s, const struct program_parameter *p,
                             int part)
{
    return s->slots[shard_slot(p, part)].dtype;
}

static char *part_address(const struct chunk *k, const struct program_parameter *p, int part,
                          int64_t at)
{
    int32_t slot = shard_slot(p, part);
    return (char *)lane_memory_slot(&k->memory, slot, 0) +
           at * dtype_bytes(k->stage->slots[slot].dtype);
}

enum status divided_collect(struct worker *w, struct arena *a, struct divided *out, bool *finite,
                            struct error *err)
{
    size_t most = 1;
    for (int32_t i = 0; i < w->n_chunks; i++)
        most += WORKER_PARTS * (size_t)w->chunks[i].stage->n_parameters;
    *out = (struct divided){0, ARENA_ARRAY(a, struct divided_piece, most)};
    for (int32_t i = 0; i < w->n_chunks; i++) {
        const struct chunk *k = &w->chunks[i];
        for (int32_t j = 0; j < k->stage->n_parameters; j++) {
            const struct program_parameter *p = &k->stage->parameters[j];
            for (int part = 0; p->shard && part < WORKER_PARTS; part++) {
                struct divided_piece *x = &out->pieces[out->n];
                int64_t at;
                *x = (struct divided_piece){.parameter = p, .part = part};
                if (shard_slot(p, part) < 0 || !overlap(k->stage, p, part, &x->first, &x->n, &at))
                    continue;
                enum dtype t = part_dtype(k->stage, p, part);
                int64_t bytes = x->n * dtype_bytes(t);
                void *copy = arena_alloc(a, (size_t)bytes + 1, 1);
                TRY(w->backend.download(&w->backend, copy, part_address(k, p, part, at), bytes,
                                        err));
                if (!worker_all_finite(copy, t, x->n)) *finite = false;
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

/* This rank's parts of one tensor, each behind its head. */
static char *packed(struct arena *a, const struct divided *mine, const char *name, int part,
                    int64_t size, int64_t *bytes)
{
    *bytes = 0;
    for (int32_t i = 0; i < mine->n; i++)
        if (mine->pieces[i].part == part && !strcmp(mine->pieces[i].parameter->name, name))
            *bytes += (int64_t)sizeof(struct piece_head) + mine->pieces[i].n * size;
    char *all = arena_alloc(a, (size_t)*bytes + 1, 1), *to = all;
    for (int32_t i = 0; i < mine->n; i++) {
        const struct divided_piece *x = &mine->pieces[i];
        if (x->part != part || strcmp(x->parameter->name, name) != 0) continue;
        struct piece_head head = {x->first, x->n};
        memcpy(to, &head, sizeof head);
        memcpy(to + sizeof head, x->data, (size_t)(x->n * size));
        to += sizeof head + (size_t)(x->n * size);
    }
    return all;
}

/* Every element comes from exactly one rank. */
static void unpack(const char *from, int64_t bytes, int64_t size, int64_t elements, char *out)
{
    int64_t seen = 0;
    for (const char *end = from + bytes; from < end;) {
        struct piece_head head;
        memcpy(&head, from, sizeof head);
        memcpy(out + head.first * size, from + sizeof head, (size_t)(head.n * size));
        from += sizeof head + (size_t)(head.n * size);
        seen += head.n;
    }
    if (seen != elements)
        BUG("a divided tensor has %" PRId64 " of its %" PRId64 " elements", seen, elements);
}

/* Tensors that wait on rank 0 for their file. */
struct batch {
    struct arena *arena;
    struct checkpoint_tensor *rows; /* all so far; those from `written` on wait */
    const void **data;
    int32_t n, written, files;
    size_t rows_capacity, data_capacity;
    int64_t bytes;
};

static enum status write_batch(struct batch *b, const char *folder, struct error *err)
{
    char file[32];
    int32_t n = b->n - b->written;
    if (!n) return OK;
    snprintf(file, sizeof file, "divided-%04" PRId32 ".bin", b->files++);
    TRY(checkpoint_write(b->arena, folder, file, b->rows + b->written, b->data + b->written, n,
                         err));
    b->written = b->n;
    b->bytes = 0;
    arena_reset(b->arena);
    return OK;
}

static enum status add_row(struct arena *a, struct batch *b, const struct program_parameter *p,
                           int part, enum dtype t, const void *data, struct error *err)
{
    b->rows = arena_grow(a, b->rows, (size_t)b->n, &b->rows_capacity, sizeof *b->rows);
    b->data = arena_grow(a, b->data, (size_t)b->n, &b->data_capacity, sizeof *b->data);
    struct checkpoint_tensor *x = &b->rows[b->n];
    *x = (struct checkpoint_tensor){.shape = p->shape,
                                    .dtype = (int32_t)t,
                                    .bytes = shape_elements(&p->shape) * dtype_bytes(t)};
    TRY(worker_part_name(x->name, sizeof x->name, p, part, err));
    b->data[b->n++] = data;
    b->bytes += x->bytes;
    return OK;
}

/* One tensor from everybody to rank 0. */
static enum status gather_part(struct worker *w, struct arena *a, const struct divided *mine,
                               const struct program_stage *s, const struct program_parameter *p,
                               int part, struct batch *b, struct error *err)
{
    enum dtype t = part_dtype(s, p, part);
    int64_t size = dtype_bytes(t), bytes, total, elements = shape_elements(&p->shape);
    struct arena *sent = arena_new();
    char *from = packed(sent, mine, p->name, part, size, &bytes);
    char *all = comm_gather(w->comm, sent, from, bytes, &total);
    enum status st = OK;
    if (w->rank == 0) {
        char *whole = arena_alloc(b->arena, (size_t)(elements * size) + 1, 1);
        unpack(all, total, size, elements, whole);
        st = add_row(a, b, p, part, t, whole, err);
    }
    arena_free(sent);
    return st;
}

static enum status write_stage(struct worker *w, struct arena *a, const char *folder,
                               const struct divided *mine, const struct program_stage *s,
                               struct batch *b, struct error *err)
{
    for (int32_t j = 0; j < s->n_parameters; j++) {
        const struct program_parameter *p = &s->parameters[j];
        if (!p->shard || !worker_owns(w->p, s, p->name)) continue;
        enum status st = OK; /* a rank that fails goes on, since the others wait for its parts */
        for (int part = 0; part < WORKER_PARTS; part++)
            if (shard_slot(p, part) >= 0) {
                enum status now = gather_part(w, a, mine, s, p, part, b, err);
                if (st == OK) st = now;
            }
        if (st == OK && w->rank == 0 && b->bytes >= DIVIDED_FILE_BYTES)
            st = write_batch(b, folder, err);
        TRY(comm_agree(w->comm, st, err));
    }
    return OK;
}

enum status divided_write(struct worker *w, struct arena *a, const char *folder,
                          const struct divided *mine, struct checkpoint_tensor **tensors,
                          int32_t *n, struct error *err)
{
    struct batch b = {.arena = arena_new()};
    enum status st = OK;
    for (int32_t i = 0; i < w->p->n_stages && st == OK; i++)
        st = write_stage(w, a, folder, mine, &w->p->stages[i], &b, err);
    if (st == OK && w->rank == 0) st = write_batch(&b, folder, err);
    *tensors = b.rows;
    *n = b.n;
    arena_free(b.arena);
    return st;
}

/* --- in --- */

static enum status load_part(struct worker *w, struct arena *a, const struct checkpoint *c,
                             const struct chunk *k, const struct program_parameter *p, int part,
                             struct error *err)
{
    int64_t first, n, at;
    char name[256];
    bool whole = part == 0 && p->slot >= 0; /* the shard lies inside it */
    if (shard_slot(p, part) < 0) return OK;
    if (!overlap(k->stage, p, part, &first, &n, &at) && !whole) return OK;
    enum dtype t = part_dtype(k->stage, p, part);
    int64_t size = dtype_bytes(t), elements = shape_elements(&p->shape);
    char *copy = arena_alloc(a, (size_t)(elements * size) + 1, 1);
    TRY(worker_part_name(name, sizeof name, p, part, err));
    TRY(checkpoint_load(c, name, &p->shape, t, copy, err));
    if (whole)
        return w->backend.upload(&w->backend, lane_memory_slot(&k->memory, p->slot, 0), copy,
                                 elements * size, err);
    return w->backend.upload(&w->backend, part_address(k, p, part, at), copy + first * size,
                             n * size, err);
}

enum status divided_load(struct worker *w, const struct checkpoint *c, const struct chunk *k,
                         const struct program_parameter *p, struct error *err)
{
    for (int part = 0; part < WORKER_PARTS; part++) {
        struct arena *scratch = arena_new();
        enum status st = load_part(w, scratch, c, k, p, part, err);
        arena_free(scratch);
        TRY(st);
    }
    return OK;
}
