/* exec/worker/load.c - the inputs of a microbatch, and those parts of them that a device has.
 *
 * A lane apart fills pinned memory, two buffers by turns, and copies on a stream of its own: behind the last call that read
 * what the slot held before, ahead of the compute stream, which waits for the copy. */
#include "exec/worker/internal.h"

#include "core/collective/part.h"

#include <string.h>

int64_t worker_first_sequence(const struct worker *w, const struct program_stage *s,
                              int32_t microbatch)
{
    return w->first_sequence + w->step * w->global_batch +
           (s->first_microbatch + microbatch) * w->p->microbatch + s->first_sequence;
}

struct loading {
    struct worker *w;
    const struct slot *slot;
    struct data data;
    int64_t first, length; /* sequence of the microbatch's row 0; elements of a row */
    char *to;
    enum status status;
    struct error *err;
};

static enum status fill_row(struct worker *w, const struct data *d, const struct slot *s,
                            int64_t row, struct error *err)
{
    if (s->input == INPUT_PIXELS) return data_pixels(d, row, s->dtype, w->row, err);
    return data_fill(d, (enum tensor_input)s->input, row, (int32_t *)w->row, err);
}

/* To where the microbatch's input is put together: the slot, or pinned memory. */
static enum status put(struct worker *w, char *to, const void *from, int64_t bytes,
                       struct error *err)
{
    if (!w->apart) return w->backend.upload(&w->backend, to, from, bytes, err);
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
    return OK;
}

/* Elements of the whole input that this device has in one piece; of several rows, row by row. */
static void load_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct loading *x = owner;
    int64_t size = dtype_bytes(x->slot->dtype);
    while (n > 0 && x->status == OK) {
        int64_t from = first % x->length, most = x->length - from < n ? x->length - from : n;
        x->status = fill_row(x->w, &x->data, x->slot, x->first + first / x->length, x->err);
        if (x->status != OK) return;
        x->status =
            put(x->w, x->to + packed * size, (char *)x->w->row + from * size, most * size, x->err);
        first += most, packed += most, n -= most;
    }
}

static enum status load_part(struct worker *w, const struct slot *s, char *to,
                             const struct chunk *k, int32_t microbatch, struct error *err)
{
    struct arena *a = arena_new();
    struct region r = part_region(a, &s->shape, s->part);
    bool images = input_is_of_images(s->input);
    int64_t rows = images ? r.shape.dim[0] : shape_rows(&r.shape);
    struct loading x = {w, s,  w->data, worker_first_sequence(w, k->stage, microbatch),
                        0, to, OK,      err};
    x.length = rows ? shape_elements(&r.shape) / rows : 0;
    if (!images) x.data.sequence_length = shape_last(&r.shape);
    region_walk(&r, load_run, &x);
    arena_free(a);
    return x.status;
}

/* One input of a microbatch: rows of ids, or images. Only synthetic data comes in other lengths than
 * the program's (benches). */
static enum status load_slot(struct worker *w, int32_t slot, char *to, const struct chunk *k,
                             int32_t microbatch, struct error *err)
{
    const struct slot *s = &k->stage->slots[slot];
    struct data d = w->data;
    if (s->part) return load_part(w, s, to, k, microbatch, err);
    bool images = input_is_of_images(s->input);
    int64_t rows = images ? s->shape.dim[0] : shape_rows(&s->shape),
            first = worker_first_sequence(w, k->stage, microbatch);
    if (!images) d.sequence_length = shape_last(&s->shape);
    int64_t bytes = rows ? s->bytes / rows : 0;
    if (bytes > w->longest_bytes) BUG("slot %s is longer than was looked for", s->name);
    for (int64_t row = 0; row < rows; row++) {
        TRY(fill_row(w, &d, s, first + row, err));
        TRY(put(w, to + row * bytes, w->row, bytes, err));
    }
    return OK;
}

/* The slot held the inputs of seq - count; what read them last has been asked for. */
static enum status copy_input(struct worker *w, const struct chunk *k, struct prepared_input *x,
                              int64_t seq, int buffer, struct error *err)
{
    struct backend *b = &w->backend;
    int64_t before = seq - x->place.count, at = k->reading ? (before + k->reading) % k->reading : 0;
    if (before >= 0 && k->read_seq[at] >= 0) TRY(b->event_wait(b, w->loading, k->read[at], err));
    TRY(b->copy(b, w->loading, place_at(&x->place, seq), x->pinned[buffer],
                k->stage->slots[x->slot].bytes, err));
    TRY(b->event_record(b, x->copied[buffer], w->loading, err));
    return async_issue_wait(w, x->copied[buffer], err);
}

static enum status load_ahead(struct worker *w, const struct chunk *k, int32_t microbatch,
                              int64_t seq, struct error *err)
{
    for (int32_t i = 0; i < k->n_inputs; i++) {
        struct prepared_input *x = &k->inputs[i];
        int buffer = x->next++ % INPUT_BUFFERS;
        if (x->filled[buffer]) TRY(async_issue_see(w, x->copied[buffer], err));
        x->filled[buffer] = true;
        TRY(load_slot(w, x->slot, x->pinned[buffer], k, microbatch, err));
        TRY(copy_input(w, k, x, seq, buffer, err));
    }
    return OK;
}

/* Stands for a loader beside the device: on an emulated one it takes no time. */
enum status worker_load(struct worker *w, const struct chunk *k, int32_t microbatch, int64_t seq,
                        struct error *err)
{
    if (w->apart) return load_ahead(w, k, microbatch, seq, err);
    device_clock_wait(&w->clock);
    for (int32_t i = 0; i < k->stage->n_slots; i++)
        if (k->stage->slots[i].input >= 0)
            TRY(load_slot(w, i, lane_memory_slot(&k->memory, i, seq), k, microbatch, err));
    device_clock_waited(&w->clock, 0);
    return OK;
}
