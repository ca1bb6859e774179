#include "exec/host_transport/memory.h"

#include "core/base/arena.h"
#include "core/program/offload.h"
#include "exec/host_transport/collective.h"

#include <inttypes.h>

/* State of an offloading stage is page-locked host memory, which a GPU's kernels access by the same address. */
static bool is_hosted(const struct lane_memory *m, int c)
{
    return c == SLOT_STATE && m->stage->offloads && m->backend->discrete_memory;
}

/* Allocates nothing for 0 bytes. */
static enum status get(struct lane_memory *m, int64_t bytes, char **out, struct error *err)
{
    void *p = NULL;
    *out = NULL;
    if (!bytes) return OK;
    TRY(m->backend->allocate(m->backend, bytes, &p, err));
    *out = p;
    m->bytes += bytes;
    return OK;
}

static enum status get_class(struct lane_memory *m, int c, struct error *err)
{
    int64_t bytes = m->stage->class_bytes[c];
    void *p = NULL;
    if (!bytes || !is_hosted(m, c)) return get(m, bytes, &m->region[c], err);
    TRY(m->backend->allocate_pinned(m->backend, bytes, &p, err));
    m->region[c] = p;
    return OK;
}

/* Activations that wait in host memory. */
static enum status get_host(struct lane_memory *m, struct error *err)
{
    int64_t bytes = offload_host_bytes(m->stage);
    void *p = NULL;
    if (!bytes) return OK;
    TRY((m->backend->discrete_memory ? m->backend->allocate_pinned : m->backend->allocate)(m->backend, bytes, &p, err));
    m->host = p;
    return OK;
}

static enum status check_staging(const struct program *p, int32_t stage, struct error *err)
{
    const struct program_stage *s = &p->stages[stage];
    for (int32_t g = 0; g < p->n_collectives; g++)
        for (int32_t i = 0; i < p->collectives[g].n_members; i++) {
            if (p->collectives[g].members[i].stage != stage) continue;
            int64_t need = program_collective_staging_bytes(&p->collectives[g],
                                                            &p->collectives[g].members[i], s);
            if (need > s->buffer_bytes)
                return error_set(err, ERR_INPUT,
                                 "collective %s: staging needs %" PRId64
                                 " bytes, the program plans %" PRId64,
                                 p->collectives[g].name, need, s->buffer_bytes);
        }
    return OK;
}

enum status lane_memory_open(struct lane_memory *m, struct arena *a, const struct program *p,
                             int32_t stage, struct backend *b, bool staging, struct error *err)
{
    const struct program_stage *s = &p->stages[stage];
    *m = (struct lane_memory){.backend = b, .stage = s};
    for (int c = 0; c < SLOT_CLASS_COUNT; c++)
        if (get_class(m, c, err) != OK)
            return error_wrap(err, ERR_RESOURCE, "stage %" PRId32 " of replica %" PRId32, s->stage,
                              s->replica);
    m->buffer_ring = ARENA_ARRAY(a, char *, (size_t)s->n_buffer_rings + 1);
    int64_t at = 0;
    for (int32_t r = 0; r < s->n_buffer_rings; r++) {
        m->buffer_ring[r] = m->region[SLOT_BUFFER_RING] + at;
        at += s->buffer_rings[r].count * s->buffer_rings[r].stride_bytes;
    }
    if (at > s->class_bytes[SLOT_BUFFER_RING])
        return error_set(err, ERR_INPUT,
                         "stage %" PRId32 ": rings need %" PRId64
                         " bytes, the program plans %" PRId64,
                         s->stage, at, s->class_bytes[SLOT_BUFFER_RING]);
    TRY(check_staging(p, stage, err));
    if (get_host(m, err) != OK)
        return error_wrap(err, ERR_RESOURCE, "stage %" PRId32 " of replica %" PRId32 ", activations in host memory", s->stage, s->replica);
    return get(m, staging ? s->buffer_bytes : 0, &m->staging, err);
}

void lane_memory_close(struct lane_memory *m)
{
    if (!m->backend) return;
    for (int c = 0; c < SLOT_CLASS_COUNT; c++)
        if (m->region[c]) (is_hosted(m, c) ? m->backend->release_pinned : m->backend->release)(m->backend, m->region[c]);
    if (m->staging) m->backend->release(m->backend, m->staging);
    if (m->host) (m->backend->discrete_memory ? m->backend->release_pinned : m->backend->release)(m->backend, m->host);
    *m = (struct lane_memory){0};
}

struct place lane_memory_place(const struct lane_memory *m, int32_t slot)
{
    const struct slot *x = &m->stage->slots[slot];
    int64_t offset = program_slot_offset(m->stage, x);
    if (x->class != SLOT_BUFFER_RING) return (struct place){m->region[x->class] + offset, 0, 1};
    const struct buffer_ring *r = &m->stage->buffer_rings[x->buffer_ring];
    return (struct place){m->buffer_ring[x->buffer_ring] + offset, r->stride_bytes,
                          r->count};
}

void *lane_memory_slot(const struct lane_memory *m, int32_t slot, int64_t seq)
{
    struct place p = lane_memory_place(m, slot);
    return place_at(&p, seq);
}
