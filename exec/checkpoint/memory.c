#include "exec/checkpoint/memory.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "exec/checkpoint/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILES_FOLDER "/proc/self/fd" /* the name of a file is its descriptor */

int32_t checkpoint_memory_peer(int32_t node, int32_t n_nodes)
{
    int32_t ring = n_nodes % 2 ? n_nodes - 3 : n_nodes; /* its first node */
    if (n_nodes < 2) return -1;
    if (node < ring) return node ^ 1;
    return ring + (node - ring + 1) % 3;
}

uint64_t checkpoint_memory_node(const char *device)
{
    const char *dot = strrchr(device, '.');
    return rng_hash_bytes(1, device, dot ? (size_t)(dot - device) : strlen(device));
}

/* --- the process that starts the ranks --- */

static enum status make_file(int *out, struct error *err)
{
    int fd = memfd_create("musher-checkpoint", MFD_CLOEXEC);
    if (fd >= 0 && fd <= STDERR_FILENO) { /* the standard streams may be closed */
        int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        close(fd);
        fd = above;
    }
    *out = fd;
    return fd < 0 ? error_set(err, ERR_RESOURCE, "cannot create a file in memory for checkpoints: %s", strerror(errno)) : OK;
}

enum status checkpoint_memory_open(struct checkpoint_memory *m, int32_t n, struct error *err)
{
    if (n > CHECKPOINT_MEMORY_RANKS_MAX) return error_set(err, ERR_INPUT, "checkpoints in memory are for up to %d ranks", CHECKPOINT_MEMORY_RANKS_MAX);
    for (int g = 0; g < CHECKPOINT_MEMORY_GENERATIONS; g++)
        for (int32_t i = 0; i < n; i++) {
            TRY(make_file(&m->generation[g].part[i].own, err));
            TRY(make_file(&m->generation[g].part[i].copy, err));
        }
    m->n = n;
    return OK;
}

void checkpoint_memory_close(struct checkpoint_memory *m)
{
    for (int g = 0; g < CHECKPOINT_MEMORY_GENERATIONS; g++)
        for (int32_t i = 0; i < m->n; i++) close(m->generation[g].part[i].own), close(m->generation[g].part[i].copy);
    m->n = 0;
}

static void drop(int fd, _Atomic int64_t *step)
{
    atomic_store(step, 0);
    if (ftruncate(fd, 0)) { /* the step alone makes it unusable */
    }
}

void checkpoint_memory_lose(struct checkpoint_memory *m, uint64_t node)
{
    for (int g = 0; g < CHECKPOINT_MEMORY_GENERATIONS; g++)
        for (int32_t i = 0; i < m->n; i++) {
            struct checkpoint_memory_part *p = &m->generation[g].part[i];
            if (p->home == node) drop(p->own, &p->own_step);
            if (p->peer == node) drop(p->copy, &p->copy_step);
        }
}

/* Whether every rank's part is there, and how many of them as copies. */
static bool usable(const struct checkpoint_memory_generation *g, int32_t *copies)
{
    int64_t step = atomic_load(&g->step);
    *copies = 0;
    for (int32_t i = 0; i < g->n_ranks; i++) {
        if (atomic_load(&g->part[i].own_step) == step) continue;
        if (atomic_load(&g->part[i].copy_step) != step) return false;
        ++*copies;
    }
    return step > 0;
}

int64_t checkpoint_memory_find(struct checkpoint_memory *m, int32_t *copies)
{
    int64_t newest = 0;
    *copies = 0;
    for (int g = 0; g < CHECKPOINT_MEMORY_GENERATIONS; g++) {
        int32_t from_peers;
        int64_t step = atomic_load(&m->generation[g].step);
        if (!usable(&m->generation[g], &from_peers) || step <= newest) continue;
        newest = step;
        *copies = from_peers;
        m->first = !g;
    }
    return newest;
}

/* --- ranks: writing --- */

static enum status write_at(int fd, int64_t at, const void *from, int64_t n, struct error *err)
{
    for (int64_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)from + done, (size_t)(n - done), at + done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return error_set(err, ERR_RESOURCE, "no memory for a checkpoint of %" PRId64 " bytes: %s", at + n, strerror(put ? errno : ENOSPC));
        done += put;
    }
    return OK;
}

enum status checkpoint_memory_begin(struct checkpoint_memory_writer *w, struct arena *a, struct checkpoint_memory *m, int32_t generation, int32_t rank,
                                    uint64_t home, uint64_t peer, struct error *err)
{
    struct checkpoint_memory_part *p = &m->generation[generation].part[rank];
    *w = (struct checkpoint_memory_writer){.part = p, .a = a};
    atomic_store(&p->own_step, 0);
    atomic_store(&p->copy_step, 0);
    p->home = home, p->peer = peer, p->n_rows = 0;
    if (ftruncate(p->own, 0) || ftruncate(p->copy, 0)) return error_set(err, ERR_RESOURCE, "cannot empty a checkpoint in memory: %s", strerror(errno));
    return OK;
}

enum status checkpoint_memory_put(void *writer, struct arena *a, const char *file, struct checkpoint_tensor *rows, const void *const *data, int32_t n,
                                  struct error *err)
{
    struct checkpoint_memory_writer *w = writer;
    (void)a, (void)file;
    for (int32_t i = 0; i < n; i++) {
        rows[i].offset = w->at;
        rows[i].crc = checkpoint_crc(data[i], rows[i].bytes);
        TRY(write_at(w->part->own, w->at, data[i], rows[i].bytes, err));
        w->at += rows[i].bytes;
        w->rows = arena_grow(w->a, w->rows, (size_t)w->part->n_rows, &w->capacity, sizeof *w->rows);
        w->rows[w->part->n_rows++] = rows[i];
    }
    return OK;
}

enum status checkpoint_memory_end(struct checkpoint_memory_writer *w, int64_t step, struct error *err)
{
    w->part->data_bytes = w->at;
    TRY(write_at(w->part->own, w->at, w->rows, w->part->n_rows * (int64_t)sizeof *w->rows, err));
    atomic_store(&w->part->own_step, step);
    return OK;
}

void checkpoint_memory_describe(struct checkpoint_memory *m, int32_t generation, const struct checkpoint *c, int32_t n_ranks)
{
    struct checkpoint_memory_generation *g = &m->generation[generation];
    atomic_store(&g->step, 0);
    g->about = *c;
    g->n_ranks = n_ranks;
    for (int32_t i = 0; i < c->n_islands; i++) g->island_sequences[i] = c->island_sequences[i];
    atomic_store(&g->step, c->step);
}

enum status checkpoint_memory_copy(struct checkpoint_memory_writer *w, int64_t step, int64_t chunk_bytes, checkpoint_pace *pace, void *owner,
                                   struct error *err)
{
    int64_t bytes = w->part->data_bytes + w->part->n_rows * (int64_t)sizeof *w->rows;
    char *chunk = arena_alloc(w->a, (size_t)chunk_bytes, 1);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < chunk_bytes ? bytes - at : chunk_bytes;
        pace(owner, n);
        TRY(file_read_at(w->part->own, "checkpoint in memory", at, chunk, n, err));
        TRY(write_at(w->part->copy, at, chunk, n, err));
    }
    atomic_store(&w->part->copy_step, step);
    return OK;
}

/* --- ranks: reading --- */

static enum status read_part(struct checkpoint_memory_part *p, int64_t step, struct checkpoint_tensor *rows, struct error *err)
{
    int fd = atomic_load(&p->own_step) == step ? p->own : p->copy;
    TRY(file_read_at(fd, "checkpoint in memory", p->data_bytes, rows, p->n_rows * (int64_t)sizeof *rows, err));
    for (int32_t i = 0; i < p->n_rows; i++) snprintf(rows[i].file, sizeof rows[i].file, "%d", fd);
    return OK;
}

enum status checkpoint_memory_read(struct arena *a, struct checkpoint_memory *m, int64_t step, struct checkpoint *out, struct error *err)
{
    struct checkpoint_memory_generation *g = m->generation;
    int32_t copies;
    if (atomic_load(&g->step) != step) g++;
    if (atomic_load(&g->step) != step || !usable(g, &copies)) return error_set(err, ERR_INPUT, "the checkpoint of step %" PRId64 " in memory is not complete", step);
    *out = g->about;
    out->folder = FILES_FOLDER;
    out->island_sequences = g->island_sequences;
    out->n_tensors = 0;
    for (int32_t i = 0; i < g->n_ranks; i++) out->n_tensors += g->part[i].n_rows;
    out->tensors = ARENA_ARRAY(a, struct checkpoint_tensor, (size_t)out->n_tensors + 1);
    for (int32_t i = 0, n = 0; i < g->n_ranks; n += g->part[i].n_rows, i++) TRY(read_part(&g->part[i], step, out->tensors + n, err));
    return OK;
}

/* --- from memory to disk --- */

/* Tensors of one part at a time, verified as they are read. */
static enum status write_parts(struct arena *a, struct checkpoint *c, const char *temporary, const char *config, struct error *err)
{
    struct checkpoint_layout layout;
    struct checkpoint_target to = {temporary, &layout};
    TRY(checkpoint_layout_make(a, c->tensors, c->n_tensors, CHECKPOINT_SHARD_BYTES, &layout, err));
    TRY(checkpoint_layout_write(a, &layout, temporary, config, err));
    for (int32_t first = 0, end; first < c->n_tensors; first = end) {
        for (end = first; end < c->n_tensors && !strcmp(c->tensors[end].file, c->tensors[first].file);) end++;
        struct arena *part = arena_new();
        const void **data = ARENA_ARRAY(part, const void *, (size_t)(end - first));
        enum status st = OK;
        for (int32_t i = first; i < end && st == OK; i++) {
            const struct checkpoint_tensor *t = &c->tensors[i];
            void *values = arena_alloc(part, (size_t)t->bytes, 16);
            st = checkpoint_load(c, t->name, &t->shape, (enum dtype)t->dtype, values, err);
            data[i - first] = values;
        }
        if (st == OK) st = checkpoint_put_file(&to, part, "", c->tensors + first, data, end - first, err);
        arena_free(part);
        if (st != OK) return st;
    }
    return OK;
}

enum status checkpoint_memory_write(struct arena *a, struct checkpoint_memory *m, int64_t step, const char *dir, int64_t disk, int32_t keep,
                                    const char *config, struct error *err)
{
    struct checkpoint c;
    struct checkpoint_store s;
    const char *temporary = NULL;
    TRY(checkpoint_memory_read(a, m, step, &c, err));
    TRY(checkpoint_enter(a, dir, &s, err));
    s.keep = keep;
    enum status st = checkpoint_follow(a, &s, dir, disk, err);
    if (st == OK) st = checkpoint_begin(a, &s, step, &temporary, err);
    if (st == OK) st = write_parts(a, &c, temporary, config, err);
    if (st == OK) st = checkpoint_commit(a, &s, temporary, &c, err);
    if (st != OK && temporary) checkpoint_discard(&s, temporary);
    checkpoint_leave(&s);
    return st;
}
