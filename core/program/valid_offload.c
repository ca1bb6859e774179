#include "core/program/offload.h"
#include "core/program/valid.h"

#include <inttypes.h>

enum { PLACES_MAX = 1 << 24 }; /* parts in host memory */

enum status valid_offload(const struct valid *c)
{
    const struct offload *x = &c->s->offload;
    int64_t bytes;
    if (!x->count) return OK;
    NEED(x->count >= 1 && x->count <= PROGRAM_BUFFER_RING_MAX && valid_index(x->out, c->s->n_buffer_rings) &&
             valid_index(x->in, c->s->n_buffer_rings) && x->out != x->in,
         "offload: no such buffer rings");
    const struct buffer_ring *out = &c->s->buffer_rings[x->out], *in = &c->s->buffer_rings[x->in];
    int32_t parts = offload_parts(c->s);
    NEED(out->birth == PHASE_HOST && in->birth == PHASE_HOST && out->sent < 0 && in->sent < 0 &&
             out->stride_bytes == in->stride_bytes && out->count <= x->count && in->count <= x->count,
         "offload: buffer rings %" PRId32 " and %" PRId32 " differ, or have more than its %" PRId32 " buffers", x->out, x->in, x->count);
    NEED((int64_t)x->count * parts <= PLACES_MAX && !__builtin_mul_overflow(out->stride_bytes, (int64_t)x->count * parts, &bytes),
         "offload: %" PRId32 " buffers of %" PRId32 " parts", x->count, parts);
    NEED(parts == 1 || (out->count == 1 && in->count == 1 && out->stride_bytes % (OFFLOAD_HALVES * VALID_ALIGN_BYTES) == 0),
         "offload: rings of several parts have one buffer of two halves");
    return OK;
}
