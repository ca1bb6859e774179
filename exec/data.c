#include "exec/data.h"

#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/graph/half.h"
#include "core/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>
#include <zlib.h>

#define BYTE_VALUES 256
#define WHOLE_BYTES (INT64_C(64) << 20)
#define STRETCH_MAX 8
#define END_BYTES (1 << 20)
#define WINDOW_BYTES (16 << 10) /* a multiple of 8 */

static enum status open_file(const char *path, struct data *d, struct error *err)
{
    int64_t bytes;
    TRY(file_open_regular(path, &d->fd, &bytes, err));
    d->path = path;
    d->n_bytes = bytes;
    if (bytes > d->sequence_length + 1) return OK;
    data_close(d);
    return error_set(err, ERR_INPUT,
                     "data '%s' has %" PRId64 " bytes; %s of %" PRId64 " need more than %" PRId64,
                     path, bytes, d->pixels ? "images" : "sequences", d->sequence_length,
                     d->sequence_length + 1);
}

enum status data_open_images(const char *path, uint64_t seed, int64_t pixels, int64_t classes,
                               struct data *out, struct error *err)
{
    *out = (struct data){
        .sequence_length = pixels, .pixels = pixels, .vocabulary = classes, .seed = seed};
    return path ? open_file(path, out, err) : OK;
}

enum status data_open(const char *path, uint64_t seed, int64_t sequence_length, int64_t vocabulary,
                      struct data *out, struct error *err)
{
    *out =
        (struct data){.sequence_length = sequence_length, .vocabulary = vocabulary, .seed = seed};
    if (!path) return OK;
    if (vocabulary < BYTE_VALUES)
        return error_set(err, ERR_INPUT,
                         "the model's vocabulary of %" PRId64
                         " is smaller than the %d byte values of '%s'",
                         vocabulary, BYTE_VALUES, path);
    return open_file(path, out, err);
}

void data_close(struct data *d)
{
    if (d->path) close(d->fd);
    d->path = NULL;
}

static enum status add_to_crc(const struct data *d, int64_t at, int64_t end, uLong *crc,
                              struct error *err)
{
    unsigned char block[WINDOW_BYTES];
    for (int64_t n; at < end; at += n) {
        n = end - at < WINDOW_BYTES ? end - at : WINDOW_BYTES;
        TRY(file_read_at(d->fd, d->path, at, block, n, err));
        *crc = crc32_z(*crc, block, (size_t)n);
    }
    return OK;
}

enum status data_crc(const struct data *d, uint32_t *out, struct error *err)
{
    uLong crc = crc32_z(0, NULL, 0);
    *out = 0;
    if (!d->path) return OK;
    int64_t head = d->n_bytes > WHOLE_BYTES ? END_BYTES : d->n_bytes;
    int64_t tail = d->n_bytes > WHOLE_BYTES ? d->n_bytes - END_BYTES : d->n_bytes;
    TRY(add_to_crc(d, 0, head, &crc, err));
    TRY(add_to_crc(d, tail, d->n_bytes, &crc, err));
    *out = (uint32_t)crc;
    return OK;
}

static uint64_t stream(void) { return rng_hash_text(0, "data"); }

int64_t data_offset(const struct data *d, int64_t sequence)
{
    if (!d->path) return 0;
    return (int64_t)rng_below(d->seed, stream(), (uint64_t)sequence,
                              (uint64_t)(d->n_bytes - d->sequence_length));
}

static void fill_synthetic(const struct data *d, bool next, int64_t sequence, int32_t *out)
{
    uint64_t first = (uint64_t)sequence * (uint64_t)(d->sequence_length + 1) + next;
    uint64_t below = (uint64_t)(d->vocabulary > 0 ? d->vocabulary : 1);
    for (int64_t t = 0; t < d->sequence_length; t++)
        out[t] = (int32_t)rng_below(d->seed, stream(), first + (uint64_t)t, below);
}

/* The tokens of a sequence, or the same shifted by one. Bytes are read into the end of out; widening proceeds from
 * its beginning and never overtakes the reads. */
static enum status fill_tokens(const struct data *d, bool next, int64_t sequence, int32_t *out,
                               struct error *err)
{
    if (!d->path) {
        fill_synthetic(d, next, sequence, out);
        return OK;
    }
    int64_t n = d->sequence_length;
    unsigned char *bytes = (unsigned char *)out + n * (int64_t)(sizeof *out - 1);
    TRY(file_read_at(d->fd, d->path, data_offset(d, sequence) + next, bytes, n, err));
    for (int64_t t = 0; t < n; t++) out[t] = bytes[t];
    return OK;
}

/* Each position is masked with probability (still to mask) / (positions left): an exact number, all sets equally
 * likely (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S). */
static void hide(const struct data *d, bool targets, int64_t sequence, int32_t *out)
{
    uint64_t masks = rng_hash_text(0, "mask"), n = (uint64_t)d->sequence_length;
    int64_t left = model_masked_positions(d->sequence_length);
    int32_t mask = (int32_t)(d->vocabulary > BYTE_VALUES ? BYTE_VALUES : d->vocabulary - 1);
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
    int64_t offset;  /* in the file */
    uint64_t first;  /* number of the image's first draw */
    int64_t at, end; /* bytes of the image in room */
    unsigned char room[WINDOW_BYTES];
};

static void bytes_begin(struct bytes *b, const struct data *d, int64_t image)
{
    uint64_t draws = (uint64_t)(d->pixels + 7) / 8;
    b->d = d;
    b->offset = data_offset(d, image);
    b->first = (uint64_t)image * draws;
    b->at = b->end = 0;
}

/* Bytes [at, at + n), n = 8 or the rest; at is a multiple of 8. */
static enum status eight(struct bytes *b, int64_t at, const unsigned char **out, struct error *err)
{
    const struct data *d = b->d;
    if (!d->path) {
        uint64_t drawn = rng_u64(d->seed, rng_hash_text(0, "pixels"), b->first + (uint64_t)at / 8);
        for (int i = 0; i < 8; i++) b->room[i] = (unsigned char)(drawn >> 8 * i);
        *out = b->room;
        return OK;
    }
    if (at < b->at || at >= b->end) {
        int64_t n = d->pixels - at < WINDOW_BYTES ? d->pixels - at : WINDOW_BYTES;
        TRY(file_read_at(d->fd, d->path, b->offset + at, b->room, n, err));
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
