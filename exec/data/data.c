#include "exec/data/data.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/graph/half.h"
#include "core/model/model.h"

#include <inttypes.h>
#include <math.h>

enum { BYTE_VALUES = 256, STRETCH_MAX = 8, WINDOW_BYTES = 16 << 10 /* a multiple of 8 */ };

static int64_t samples_of(const struct data *d, const struct data_file *f)
{
    return d->pixels ? f->n : f->n > 0 ? (f->n - 1) / d->sequence_length : 0;
}

/* The samples of the file's training or validation part. */
static enum status split_validation(const struct data_source *source, struct data_file *f, int64_t n, struct error *err)
{
    int64_t held = source->fraction > 0 ? llround(source->fraction * (double)n) : 0;
    if (source->fraction > 0 && held < 1) held = 1;
    if (held >= n)
        return error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " samples; a validation fraction of %g leaves none for training", f->path, n, source->fraction);
    f->first = source->held_out ? n - held : 0;
    f->samples = source->held_out ? held : n - held;
    return OK;
}

static enum status open_file(struct arena *a, struct data *d, const struct data_source *source, int32_t i, struct error *err)
{
    struct data_file *f = &d->files[i];
    TRY(data_file_open(a, source->files[i].path, source->form, d->pixels, f, err));
    d->n_files++;
    d->n_bytes += f->bytes;
    if (f->form == DATA_BYTES && !d->pixels && d->vocabulary < BYTE_VALUES)
        return error_set(err, ERR_INPUT, "the model's vocabulary of %" PRId64 " is smaller than the %d byte values of '%s'", d->vocabulary, BYTE_VALUES, f->path);
    if (samples_of(d, f) > 0) return split_validation(source, f, samples_of(d, f), err);
    return d->pixels ? error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " bytes, less than one image of %" PRId64, f->path, f->bytes, d->pixels)
                     : error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " tokens; sequences of %" PRId64 " need at least %" PRId64, f->path, f->n,
                                 d->sequence_length, d->sequence_length + 1);
}

static enum status open_files(struct arena *a, struct data *d, const struct data_source *source, struct error *err)
{
    size_t n = (size_t)source->n_files;
    int64_t *samples = ARENA_ARRAY(a, int64_t, n + 1);
    double *weights = ARENA_ARRAY(a, double, n + 1);
    d->files = ARENA_ARRAY(a, struct data_file, n + 1);
    for (int32_t i = 0; i < source->n_files; i++) {
        enum status status = open_file(a, d, source, i, err);
        if (status != OK) {
            data_close(d);
            return status;
        }
        samples[i] = d->files[i].samples;
        weights[i] = source->held_out ? 0 : source->files[i].weight;
        d->n_samples += samples[i];
    }
    if (n) sample_order_make(a, d->seed, source->n_files, samples, weights, &d->order);
    return OK;
}

enum status data_open_images(struct arena *a, const struct data_source *source, uint64_t seed, int64_t pixels, int64_t classes, struct data *out,
                             struct error *err)
{
    *out = (struct data){.sequence_length = pixels, .pixels = pixels, .vocabulary = classes, .seed = seed};
    return open_files(a, out, source, err);
}

enum status data_open(struct arena *a, const struct data_source *source, uint64_t seed, int64_t sequence_length, int64_t vocabulary, struct data *out,
                      struct error *err)
{
    *out = (struct data){.sequence_length = sequence_length, .vocabulary = vocabulary, .seed = seed};
    return open_files(a, out, source, err);
}

void data_close(struct data *d)
{
    for (int32_t i = 0; i < d->n_files; i++) data_file_close(&d->files[i]);
    d->n_files = 0;
}

enum status data_crc(const struct data *d, uint32_t *out, struct error *err)
{
    *out = 0;
    for (int32_t i = 0; i < d->n_files; i++) {
        const struct data_file *f = &d->files[i];
        TRY(data_file_crc(f, out, err));
        if (f->samples < samples_of(d, f)) *out ^= (uint32_t)rng_hash_bytes(rng_hash_text(0, "part"), &f->samples, sizeof f->samples);
    }
    return OK;
}

static uint64_t stream(void) { return rng_hash_text(0, "data"); }

/* The place of a sample in its file. */
static struct sample_place place_of(const struct data *d, int64_t number)
{
    struct sample_place x = sample_order_at(&d->order, number);
    x.sample += d->files[x.file].first;
    return x;
}

static void fill_synthetic(const struct data *d, bool next, int64_t sequence, int32_t *out)
{
    uint64_t first = (uint64_t)sequence * (uint64_t)(d->sequence_length + 1) + next;
    uint64_t below = (uint64_t)(d->vocabulary > 0 ? d->vocabulary : 1);
    for (int64_t t = 0; t < d->sequence_length; t++)
        out[t] = (int32_t)rng_below(d->seed, stream(), first + (uint64_t)t, below);
}

/* The tokens of a sequence, or the same shifted by one. */
static enum status fill_tokens(const struct data *d, bool next, int64_t sequence, int32_t *out, struct error *err)
{
    if (!d->n_files) {
        fill_synthetic(d, next, sequence, out);
        return OK;
    }
    struct sample_place x = place_of(d, sequence);
    return data_file_tokens(&d->files[x.file], x.sample * d->sequence_length + next, d->sequence_length, d->vocabulary, out, err);
}

static bool is_bytes(const struct data *d) { return !d->n_files || d->files[0].form == DATA_BYTES; }

/* Each position is masked with probability (still to mask) / (positions left): an exact number, all sets equally
 * likely (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S). */
static void hide(const struct data *d, bool targets, int64_t sequence, int32_t *out)
{
    uint64_t masks = rng_hash_text(0, "mask"), n = (uint64_t)d->sequence_length;
    int64_t left = model_masked_positions(d->sequence_length);
    int32_t mask = (int32_t)(is_bytes(d) && d->vocabulary > BYTE_VALUES ? BYTE_VALUES : d->vocabulary - 1);
    for (int64_t t = 0; t < d->sequence_length; t++) {
        uint64_t at = (uint64_t)sequence * n + (uint64_t)t;
        bool hidden = (int64_t)rng_below(d->seed, masks, at, n - (uint64_t)t) < left;
        left -= hidden;
        if (targets && !hidden) out[t] = -1;
        if (!targets && hidden) out[t] = mask;
    }
}

enum status data_fill(const struct data *d, enum tensor_input input, int64_t sequence, int32_t *out,
                      struct error *err)
{
    if (input == INPUT_LABELS) return data_label(d, sequence, out, err);
    if (input == INPUT_POSITIONS || input == INPUT_SEGMENTS) {
        for (int64_t t = 0; t < d->sequence_length; t++)
            out[t] = input == INPUT_POSITIONS ? (int32_t)t : 0;
        return OK;
    }
    TRY(fill_tokens(d, input == INPUT_TARGETS, sequence, out, err));
    if (input == INPUT_MASKED_TOKENS || input == INPUT_MASKED_TARGETS)
        hide(d, input == INPUT_MASKED_TARGETS, sequence, out);
    return OK;
}

/* Bytes of an image: from the file, window by window, or random, eight at a time. */
struct bytes {
    const struct data *d;
    const struct data_file *f; /* NULL: random */
    int64_t offset;            /* in the file */
    uint64_t first;  /* number of the image's first draw */
    int64_t at, end; /* bytes of the image in room */
    unsigned char room[WINDOW_BYTES];
};

static void bytes_begin(struct bytes *b, const struct data *d, int64_t image)
{
    uint64_t draws = (uint64_t)(d->pixels + 7) / 8;
    b->d = d;
    b->f = NULL;
    if (d->n_files) {
        struct sample_place x = place_of(d, image);
        b->f = &d->files[x.file];
        b->offset = data_file_pixels_at(b->f, x.sample, d->pixels);
    }
    b->first = (uint64_t)image * draws;
    b->at = b->end = 0;
}

/* Bytes [at, at + n), n = 8 or the rest; at is a multiple of 8. */
static enum status eight(struct bytes *b, int64_t at, const unsigned char **out, struct error *err)
{
    const struct data *d = b->d;
    if (!b->f) {
        uint64_t drawn = rng_u64(d->seed, rng_hash_text(0, "pixels"), b->first + (uint64_t)at / 8);
        for (int i = 0; i < 8; i++) b->room[i] = (unsigned char)(drawn >> 8 * i);
        *out = b->room;
        return OK;
    }
    if (at < b->at || at >= b->end) {
        int64_t n = d->pixels - at < WINDOW_BYTES ? d->pixels - at : WINDOW_BYTES;
        TRY(file_read_at(b->f->fd, b->f->path, b->offset + at, b->room, n, err));
        b->at = at;
        b->end = at + n;
    }
    *out = b->room + (at - b->at);
    return OK;
}

static enum status sum_of(struct bytes *b, int64_t first, int64_t end, int64_t *sum,
                          struct error *err)
{
    *sum = 0;
    for (int64_t at = first / 8 * 8; at < end; at += 8) {
        const unsigned char *x;
        TRY(eight(b, at, &x, err));
        for (int64_t i = at < first ? first - at : 0; i < 8 && at + i < end; i++) *sum += x[i];
    }
    return OK;
}

static void put_pixel(enum dtype t, void *out, int64_t at, double pixel)
{
    if (t == DTYPE_fp32)
        ((float *)out)[at] = (float)pixel;
    else if (dtype_is_half(t))
        ((uint16_t *)out)[at] = half_of(t, (float)pixel);
    else
        ((double *)out)[at] = pixel;
}

enum status data_pixels(const struct data *d, int64_t image, enum dtype t, void *out,
                        struct error *err)
{
    struct bytes b;
    const unsigned char *x;
    int64_t sum = 0, squares = 0; /* exact */
    bytes_begin(&b, d, image);
    for (int64_t at = 0; at < d->pixels; at += 8) {
        TRY(eight(&b, at, &x, err));
        for (int64_t i = 0; i < 8 && at + i < d->pixels; i++) sum += x[i], squares += x[i] * x[i];
    }
    double n = (double)d->pixels, mean = (double)sum / n;
    double scale = sqrt(fmax(1, (double)squares / n - mean * mean));
    for (int64_t at = 0; at < d->pixels; at += 8) {
        TRY(eight(&b, at, &x, err));
        for (int64_t i = 0; i < 8 && at + i < d->pixels; i++)
            put_pixel(t, out, at + i, (x[i] - mean) / scale);
    }
    return OK;
}

enum status data_label(const struct data *d, int64_t image, int32_t *out, struct error *err)
{
    if (!is_bytes(d)) {
        struct sample_place x = place_of(d, image);
        return data_file_label(&d->files[x.file], x.sample, d->vocabulary, out, err);
    }
    struct bytes b;
    int64_t stretch = d->pixels / (d->vocabulary > 0 ? d->vocabulary : 1), most = -1;
    if (stretch < 1) stretch = 1;
    if (stretch > STRETCH_MAX) stretch = STRETCH_MAX;
    *out = 0;
    bytes_begin(&b, d, image);
    for (int64_t k = 0; k < d->vocabulary && (k + 1) * stretch <= d->pixels; k++) {
        int64_t sum;
        TRY(sum_of(&b, k * stretch, (k + 1) * stretch, &sum, err));
        if (sum > most) most = sum, *out = (int32_t)k;
    }
    return OK;
}
