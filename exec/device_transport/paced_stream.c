#include "exec/device_transport/paced_stream.h"

#include "exec/clock.h"
#include "exec/device_transport/device_region.h"

#define LOOK_NS 50000 /* between two polls of an event */

struct paced_vector { /* a vector shape for an operator */
    struct op_shapes shapes;
    struct paced_vector *next;
};

static const struct op_attrs no_attrs;

enum status paced_stream_open(struct paced_stream *s, struct arena *a, struct backend *b,
                              int32_t stream, struct watchdog *watchdog, paced_stream_check *check,
                              void *owner, struct error *err)
{
    *s = (struct paced_stream){.a = a,
                               .backend = b,
                               .watchdog = watchdog,
                               .check = check,
                               .owner = owner,
                               .stream = stream};
    for (int i = 0; i < PACED_STREAM_PACES; i++) TRY(b->event_make(b, false, &s->pace[i], err));
    return OK;
}

static const struct op_shapes *vector(struct paced_stream *s, int64_t n)
{
    for (struct paced_vector *v = s->vectors; v; v = v->next)
        if (v->shapes.output[0].dim[0] == n) return &v->shapes;
    struct paced_vector *v = ARENA_ARRAY(s->a, struct paced_vector, 1);
    v->shapes.input[0] = v->shapes.output[0] = (struct shape){.rank = 1, .dim = {n}};
    v->next = s->vectors;
    s->vectors = v;
    return &v->shapes;
}

/* Called before a kernel or a copy, outside NCCL groups. */
static enum status pace(struct paced_stream *s, struct error *err)
{
    if (++s->in_pace < PACED_STREAM_PACE) return OK;
    struct backend *b = s->backend;
    int32_t event = s->pace[s->next_pace % PACED_STREAM_PACES];
    for (bool done = s->next_pace < PACED_STREAM_PACES;;) {
        if (!done) TRY(b->event_done(b, event, &done, err));
        if (done) break;
        TRY(s->check(s->owner, err));
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
    }
    s->in_pace = 0;
    s->next_pace++;
    watchdog_progress(s->watchdog);
    return b->event_record(b, event, s->stream, err);
}

enum status paced_stream_add(struct paced_stream *s, void *y, const void *x, int64_t n,
                             enum dtype dtype, struct error *err)
{
    const struct op_call c = {.kind = OP_accumulate,
                              .dtype = dtype,
                              .attrs = &no_attrs,
                              .shapes = vector(s, n),
                              .input = {x},
                              .output = {y}};
    if (!n) return OK;
    TRY(pace(s, err));
    return s->backend->run(s->backend, s->stream, &c, err);
}

enum status paced_stream_zero(struct paced_stream *s, void *y, int64_t n, enum dtype dtype,
                              struct error *err)
{
    const struct op_call c = {
        .kind = OP_zero, .dtype = dtype, .attrs = &no_attrs, .shapes = vector(s, n), .output = {y}};
    if (!n) return OK;
    TRY(pace(s, err));
    return s->backend->run(s->backend, s->stream, &c, err);
}

enum status paced_stream_convert(struct paced_stream *s, void *to, enum dtype to_dtype,
                                 const void *from, enum dtype from_dtype, int64_t n,
                                 struct error *err)
{
    struct backend *b = s->backend;
    if (!n) return OK;
    if (to_dtype == from_dtype)
        return paced_stream_copy(s, to, from, n * dtype_bytes(to_dtype), err);
    if (!b->cast)
        return error_set(err, ERR_INPUT, "backend %s does not convert %s to %s", b->name,
                         dtype_name(from_dtype), dtype_name(to_dtype));
    TRY(pace(s, err));
    return b->cast(b, s->stream, to, to_dtype, from, from_dtype, n, err);
}

enum status paced_stream_copy(struct paced_stream *s, void *to, const void *from, int64_t bytes,
                              struct error *err)
{
    if (!bytes || to == from) return OK;
    TRY(pace(s, err));
    return s->backend->copy(s->backend, s->stream, to, from, bytes, err);
}

enum status paced_stream_region(struct paced_stream *s, const struct region *r, enum dtype dtype,
                                char *operand, char *packed, enum region_copy how,
                                struct error *err)
{
    TRY(pace(s, err));
    return device_region_copy(s->backend, s->stream, r, dtype, operand, packed, how, err);
}
