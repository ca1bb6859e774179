#include "exec/worker/inputs.h"

#include "core/collective/tensor_shard.h"
#include "exec/clock.h"
#include "exec/worker/async_issue.h"
#include "exec/worker/chunks.h"
#include "exec/worker/progress.h"

#include <string.h>

enum { INPUT_BUFFERS = 2, ALIGN = 64 };

/* Filled in pinned memory while the previous one is in flight, and copied on a separate stream. */
struct prepared_input {
    int32_t slot;
    struct place place;
    char *pinned[INPUT_BUFFERS];
    int32_t copied[INPUT_BUFFERS]; /* events */
    bool filled[INPUT_BUFFERS];
    uint32_t next; /* buffer, modulo INPUT_BUFFERS */
};

struct chunk_inputs {
    int32_t n;
    struct prepared_input *inputs; /* (n) */
    int64_t reading;               /* buffers of the longest buffer ring of an input */
    int32_t
        *read; /* (reading) events: the last call that read the inputs of seq, at seq mod reading */
    int64_t *read_seq; /* (reading) seq of that call, -1 none */
};

static int64_t align(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- open and close --------------------------------------------------------------------------- */

/* Bytes loaded at once: a full sequence or image, even if the device holds a shard of it. */
static int64_t row_bytes(const struct slot *s)
{
    struct shape whole = tensor_shard_whole(&s->shape, s->shard);
    int64_t rows = graph_input_is_of_images(s->input) ? whole.dim[0] : shape_rows(&whole);
    return rows ? shape_elements(&whole) * dtype_bytes(s->dtype) / rows : 0;
}

static void find_longest(struct inputs *x)
{
    for (int32_t i = 0; i < x->chunks->n; i++) {
        const struct program_stage *s = x->chunks->at[i].stage;
        for (int32_t k = 0; k < s->n_slots; k++) {
            int64_t bytes = s->slots[k].input >= 0 ? row_bytes(&s->slots[k]) : 0;
            if (bytes > x->longest_bytes) x->longest_bytes = bytes;
        }
    }
    x->row = ARENA_ARRAY(x->r->run, double, (size_t)x->longest_bytes / sizeof(double) + 1);
}

static enum status open_data(const struct inputs *x, const struct data_source *from, struct data *out, struct error *err)
{
    const struct program *p = x->r->p;
    if (p->pixels) return data_open_images(x->r->run, from, p->seed, p->pixels, p->vocabulary, out, err);
    return data_open(x->r->run, from, p->seed, p->sequence_length, p->vocabulary, out, err);
}

static const struct data *samples(const struct inputs *x) { return x->progress->evaluates ? &x->validation : &x->data; }

enum status inputs_open(struct inputs *x, struct rank *r, const struct chunks *c,
                        const struct progress *g, struct async_issue *ahead,
                        struct device_clock *clock, struct error *err)
{
    *x = (struct inputs){.r = r, .chunks = c, .progress = g, .ahead = ahead, .clock = clock};
    find_longest(x);
    TRY(open_data(x, &r->o->data, &x->data, err));
    if (!r->o->eval_every) return OK;
    const struct data_source validation = data_source_validation(&r->o->data);
    return open_data(x, &validation, &x->validation, err);
}

void inputs_close(struct inputs *x)
{
    data_close(&x->data);
    data_close(&x->validation);
}

void inputs_restart(struct inputs *x)
{
    for (int32_t i = 0; x->of && i < x->chunks->n; i++)
        for (int64_t k = 0; k < x->of[i].reading; k++) x->of[i].read_seq[k] = -1;
}

static enum status identify(void *owner, struct error *err)
{
    struct inputs *x = owner;
    return data_crc(&x->data, &x->crc, err);
}

enum status inputs_identify(struct inputs *x, struct error *err)
{
    return comm_at_root(x->r->comm, identify, x, err);
}

int64_t inputs_pinned_bytes(const struct program *p, int32_t device)
{
    const struct lane *lane = &p->lanes[device];
    int64_t bytes = 0;
    for (int32_t i = 0; i < lane->n_stages; i++) {
        const struct program_stage *s = &p->stages[lane->stages[i]];
        for (int32_t k = 0; k < s->n_slots; k++)
            if (s->slots[k].input >= 0) bytes += INPUT_BUFFERS * align(s->slots[k].bytes);
    }
    return bytes;
}

/* Events of the calls that read inputs, for the longest buffer ring of an input. */
static enum status open_reads(struct inputs *x, struct chunk_inputs *c, struct error *err)
{
    struct backend *b = &x->r->backend;
    c->read = ARENA_ARRAY(x->r->run, int32_t, (size_t)c->reading + 1);
    c->read_seq = ARENA_ARRAY(x->r->run, int64_t, (size_t)c->reading + 1);
    for (int64_t i = 0; i < c->reading; i++) {
        c->read_seq[i] = -1;
        TRY(b->event_make(b, false, &c->read[i], err));
    }
    return OK;
}

static enum status open_chunk(struct inputs *x, const struct chunk *k, struct chunk_inputs *c,
                              char **pinned, struct error *err)
{
    const struct program_stage *s = k->stage;
    struct backend *b = &x->r->backend;
    c->inputs = ARENA_ARRAY(x->r->run, struct prepared_input, (size_t)s->n_slots + 1);
    for (int32_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].input < 0) continue;
        struct prepared_input *input = &c->inputs[c->n++];
        *input = (struct prepared_input){.slot = i, .place = lane_memory_place(&k->memory, i)};
        if (input->place.count > c->reading) c->reading = input->place.count;
        for (int at = 0; at < INPUT_BUFFERS; at++) {
            input->pinned[at] = *pinned;
            *pinned += align(s->slots[i].bytes);
            TRY(b->event_make(b, false, &input->copied[at], err));
        }
    }
    return open_reads(x, c, err);
}

enum status inputs_open_discrete(struct inputs *x, char *pinned, struct error *err)
{
    struct backend *b = &x->r->backend;
    TRY(b->stream_make(b, &x->stream, err));
    x->of = ARENA_ARRAY(x->r->run, struct chunk_inputs, (size_t)x->chunks->n + 1);
    for (int32_t i = 0; i < x->chunks->n; i++)
        TRY(open_chunk(x, &x->chunks->at[i], &x->of[i], &pinned, err));
    return OK;
}

static struct chunk_inputs *of_chunk(const struct inputs *x, const struct chunk *k)
{
    return &x->of[k - x->chunks->at];
}

/* ---- a microbatch ----------------------------------------------------------------------------- */

int64_t inputs_first_sequence(const struct inputs *x, const struct program_stage *s, int64_t seq)
{
    return progress_first_of(x->progress, seq, s->microbatches) +
           (s->first_microbatch + seq % s->microbatches) * x->r->p->microbatch + s->first_sequence;
}

struct loading {
    struct inputs *in;
    const struct slot *slot;
    struct data data;
    int64_t first, length; /* sequence of the microbatch's row 0; elements of a row */
    char *to;
    enum status status;
    struct error *err;
};

static enum status fill_row(struct inputs *in, const struct data *d, const struct slot *s,
                            int64_t row, struct error *err)
{
    if (s->input == INPUT_PIXELS) return data_pixels(d, row, s->dtype, in->row, err);
    return data_fill(d, (enum tensor_input)s->input, row, (int32_t *)in->row, err);
}

/* Writes to the assembly area of the microbatch's input: the slot, or pinned memory. */
static enum status put(struct inputs *in, char *to, const void *from, int64_t bytes,
                       struct error *err)
{
    if (!in->r->discrete) return in->r->backend.upload(&in->r->backend, to, from, bytes, err);
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
    return OK;
}

/* Contiguous elements of the full input on this device; if they span several rows, row by row. */
static void load_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct loading *x = owner;
    int64_t size = dtype_bytes(x->slot->dtype);
    while (n > 0 && x->status == OK) {
        int64_t from = first % x->length, most = x->length - from < n ? x->length - from : n;
        x->status = fill_row(x->in, &x->data, x->slot, x->first + first / x->length, x->err);
        if (x->status != OK) return;
        x->status = put(x->in, x->to + packed * size, (char *)x->in->row + from * size, most * size,
                        x->err);
        first += most, packed += most, n -= most;
    }
}

static enum status load_shard(struct inputs *in, const struct slot *s, char *to,
                              const struct chunk *k, int64_t seq, struct error *err)
{
    struct arena *a = arena_new();
    struct region r = tensor_shard_region(a, &s->shape, s->shard);
    bool images = graph_input_is_of_images(s->input);
    int64_t rows = images ? r.shape.dim[0] : shape_rows(&r.shape);
    struct loading x = {in, s,  *samples(in), inputs_first_sequence(in, k->stage, seq),
                        0,  to, OK,       err};
    x.length = rows ? shape_elements(&r.shape) / rows : 0;
    if (!images) x.data.sequence_length = shape_last(&r.shape);
    region_walk(&r, load_run, &x);
    arena_free(a);
    return x.status;
}

/* One input of a microbatch: rows of ids, or images. Only synthetic data has other lengths than the program's
 * (benches). */
static enum status load_slot(struct inputs *in, int32_t slot, char *to, const struct chunk *k,
                             int64_t seq, struct error *err)
{
    const struct slot *s = &k->stage->slots[slot];
    struct data d = *samples(in);
    if (s->shard) return load_shard(in, s, to, k, seq, err);
    bool images = graph_input_is_of_images(s->input);
    int64_t rows = images ? s->shape.dim[0] : shape_rows(&s->shape),
            first = inputs_first_sequence(in, k->stage, seq);
    if (!images) d.sequence_length = shape_last(&s->shape);
    int64_t bytes = rows ? s->bytes / rows : 0;
    if (bytes > in->longest_bytes) BUG("slot %s is longer than the longest input", s->name);
    for (int64_t row = 0; row < rows; row++) {
        TRY(fill_row(in, &d, s, first + row, err));
        TRY(put(in, to + row * bytes, in->row, bytes, err));
    }
    return OK;
}

/* The slot held the inputs of seq - count; the call that last read them has been issued. */
static enum status copy_input(struct inputs *in, const struct chunk *k, struct prepared_input *x,
                              int64_t seq, int buffer, struct error *err)
{
    struct backend *b = &in->r->backend;
    const struct chunk_inputs *c = of_chunk(in, k);
    int64_t before = seq - x->place.count, at = c->reading ? (before + c->reading) % c->reading : 0;
    if (before >= 0 && c->read_seq[at] >= 0) TRY(b->event_wait(b, in->stream, c->read[at], err));
    TRY(b->copy(b, in->stream, place_at(&x->place, seq), x->pinned[buffer],
                k->stage->slots[x->slot].bytes, err));
    TRY(b->event_record(b, x->copied[buffer], in->stream, err));
    return async_issue_wait(in->ahead, x->copied[buffer], err);
}

static enum status load_ahead(struct inputs *in, const struct chunk *k, int64_t seq,
                              struct error *err)
{
    const struct chunk_inputs *c = of_chunk(in, k);
    for (int32_t i = 0; i < c->n; i++) {
        struct prepared_input *x = &c->inputs[i];
        int buffer = x->next++ % INPUT_BUFFERS;
        if (x->filled[buffer]) TRY(async_issue_see(in->ahead, x->copied[buffer], err));
        x->filled[buffer] = true;
        TRY(load_slot(in, x->slot, x->pinned[buffer], k, seq, err));
        TRY(copy_input(in, k, x, seq, buffer, err));
    }
    return OK;
}

/* Models an asynchronous data loader: it takes no time on an emulated device. */
enum status inputs_load(struct inputs *in, const struct chunk *k, int64_t seq, struct error *err)
{
    if (in->r->discrete) return load_ahead(in, k, seq, err);
    device_clock_wait(in->clock);
    for (int32_t i = 0; i < k->stage->n_slots; i++)
        if (k->stage->slots[i].input >= 0)
            TRY(load_slot(in, i, lane_memory_slot(&k->memory, i, seq), k, seq, err));
    device_clock_waited(in->clock, 0);
    return OK;
}

enum status inputs_read(struct inputs *in, const struct chunk *k, int64_t seq, struct error *err)
{
    struct backend *b = &in->r->backend;
    struct chunk_inputs *c = of_chunk(in, k);
    c->read_seq[seq % c->reading] = seq;
    return b->event_record(b, c->read[seq % c->reading], STREAM_COMPUTE, err);
}
