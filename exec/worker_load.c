/* exec/worker_load.c - the inputs of a microbatch, and those parts of them that a device has. */
#include "exec/worker_internal.h"

#include "core/part.h"

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

static void fill_row(struct worker *w, const struct data *d, const struct slot *s, int64_t row)
{
    if (s->input == INPUT_PIXELS)
        data_pixels(d, row, s->dtype, w->row);
    else
        data_fill(d, (enum tensor_input)s->input, row, (int32_t *)w->row);
}

/* Elements of the whole input that this device has in one piece; of several rows, row by row. */
static void load_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct loading *x = owner;
    int64_t size = dtype_bytes(x->slot->dtype);
    while (n > 0 && x->status == OK) {
        int64_t from = first % x->length, most = x->length - from < n ? x->length - from : n;
        fill_row(x->w, &x->data, x->slot, x->first + first / x->length);
        x->status = x->w->backend.upload(&x->w->backend, x->to + packed * size,
                                         (char *)x->w->row + from * size, most * size, x->err);
        first += most, packed += most, n -= most;
    }
}

static enum status load_part(struct worker *w, const struct slot *s, char *to,
                             const struct chunk *k, int32_t microbatch, struct error *err)
{
    struct arena *a = arena_new();
    struct region r = part_region(a, &s->shape, s->part);
    bool pictures = input_is_of_pictures(s->input);
    int64_t rows = pictures ? r.shape.dim[0] : shape_rows(&r.shape);
    struct loading x = {w, s,  w->data, worker_first_sequence(w, k->stage, microbatch),
                        0, to, OK,      err};
    x.length = rows ? shape_elements(&r.shape) / rows : 0;
    if (!pictures) x.data.sequence_length = shape_last(&r.shape);
    region_walk(&r, load_run, &x);
    arena_free(a);
    return x.status;
}

/* One input of a microbatch: rows of ids, or pictures. Only synthetic data comes in other lengths than
 * the program's (benches). */
static enum status load_slot(struct worker *w, int32_t slot, const struct chunk *k,
                             int32_t microbatch, int64_t seq, struct error *err)
{
    const struct slot *s = &k->stage->slots[slot];
    struct data d = w->data;
    char *to = lane_memory_slot(&k->memory, slot, seq);
    if (s->part) return load_part(w, s, to, k, microbatch, err);
    bool pictures = input_is_of_pictures(s->input);
    int64_t rows = pictures ? s->shape.dim[0] : shape_rows(&s->shape),
            first = worker_first_sequence(w, k->stage, microbatch);
    if (!pictures) d.sequence_length = shape_last(&s->shape);
    int64_t bytes = rows ? s->bytes / rows : 0;
    if (bytes > w->longest_bytes) BUG("slot %s is longer than was looked for", s->name);
    for (int64_t row = 0; row < rows; row++) {
        fill_row(w, &d, s, first + row);
        TRY(w->backend.upload(&w->backend, to + row * bytes, w->row, bytes, err));
    }
    return OK;
}

/* Stands for a loader beside the device: on an emulated one it takes no time. */
enum status worker_load(struct worker *w, const struct chunk *k, int32_t microbatch, int64_t seq,
                        struct error *err)
{
    device_clock_wait(&w->clock);
    for (int32_t i = 0; i < k->stage->n_slots; i++)
        if (k->stage->slots[i].input >= 0) TRY(load_slot(w, i, k, microbatch, seq, err));
    device_clock_waited(&w->clock, 0);
    return OK;
}
