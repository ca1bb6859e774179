#include "exec/data.h"

#include "core/half.h"
#include "core/model.h"
#include "core/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BYTE_VALUES 256
#define WHOLE_BYTES (INT64_C(64) << 20)
#define STRETCH_MOST 8
#define END_BYTES (1 << 20)

static enum status map_file(int fd, const char *path, struct data *d, struct error *err)
{
    struct stat about;
    if (fstat(fd, &about))
        return error_set(err, ERR_INPUT, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return error_set(err, ERR_INPUT, "data '%s' is not a regular file", path);
    if (about.st_size <= d->sequence_length + 1)
        return error_set(err, ERR_INPUT,
                         "data '%s' has %lld bytes; %s of %" PRId64 " need more than %" PRId64,
                         path, (long long)about.st_size, d->pixels ? "pictures" : "sequences",
                         d->sequence_length, d->sequence_length + 1);
    void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return error_set(err, ERR_RESOURCE, "cannot map '%s': %s", path, strerror(errno));
    d->bytes = bytes;
    d->n_bytes = about.st_size;
    return OK;
}

static enum status open_file(const char *path, struct data *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_set(err, ERR_INPUT, "cannot read '%s': %s", path, strerror(errno));
    enum status status = map_file(fd, path, out, err);
    close(fd);
    return status;
}

enum status data_open_pictures(const char *path, uint64_t seed, int64_t pixels, int64_t classes,
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
                         " is smaller than the %d values of a byte of '%s'",
                         vocabulary, BYTE_VALUES, path);
    return open_file(path, out, err);
}

void data_close(struct data *d)
{
    if (d->bytes) munmap((void *)(uintptr_t)d->bytes, (size_t)d->n_bytes);
    d->bytes = NULL;
}

uint32_t data_crc(const struct data *d)
{
    if (!d->bytes) return 0;
    int64_t head = d->n_bytes > WHOLE_BYTES ? END_BYTES : d->n_bytes;
    uLong crc = crc32_z(crc32_z(0, NULL, 0), d->bytes, (size_t)head);
    if (head < d->n_bytes) crc = crc32_z(crc, d->bytes + d->n_bytes - END_BYTES, END_BYTES);
    return (uint32_t)crc;
}

static uint64_t stream(void) { return hash_text(0, "data"); }

int64_t data_offset(const struct data *d, int64_t sequence)
{
    if (!d->bytes) return 0;
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

/* The sequence's tokens, or what stands one further. */
static void fill_tokens(const struct data *d, bool next, int64_t sequence, int32_t *out)
{
    if (!d->bytes) {
        fill_synthetic(d, next, sequence, out);
        return;
    }
    const unsigned char *from = d->bytes + data_offset(d, sequence) + next;
    for (int64_t t = 0; t < d->sequence_length; t++) out[t] = from[t];
}

/* Each position is hidden with chance (still to hide) / (positions left): so many exactly, all sets alike (Knuth, The Art of
 * Computer Programming 2, 3.4.2, algorithm S). */
static void hide(const struct data *d, bool targets, int64_t sequence, int32_t *out)
{
    uint64_t masks = hash_text(0, "mask"), n = (uint64_t)d->sequence_length;
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

void data_fill(const struct data *d, enum tensor_input input, int64_t sequence, int32_t *out)
{
    if (input == INPUT_LABELS) {
        *out = data_label(d, sequence);
        return;
    }
    if (input == INPUT_POSITIONS || input == INPUT_SEGMENTS) {
        for (int64_t t = 0; t < d->sequence_length; t++)
            out[t] = input == INPUT_POSITIONS ? (int32_t)t : 0;
        return;
    }
    fill_tokens(d, input == INPUT_TARGETS, sequence, out);
    if (input == INPUT_MASKED_TOKENS || input == INPUT_MASKED_TARGETS)
        hide(d, input == INPUT_MASKED_TARGETS, sequence, out);
}

/* Bytes of a picture, `at` by `at`: of the file, or drawn eight at a time. */
struct bytes {
    const struct data *d;
    const unsigned char *from; /* NULL: drawn */
    uint64_t first;            /* number of the picture's first draw */
};

static struct bytes bytes_of(const struct data *d, int64_t picture)
{
    uint64_t draws = (uint64_t)(d->pixels + 7) / 8;
    return (struct bytes){.d = d,
                          .from = d->bytes ? d->bytes + data_offset(d, picture) : NULL,
                          .first = (uint64_t)picture * draws};
}

/* Bytes [at, at + n), which is 8 or what is left; at a multiple of 8. */
static const unsigned char *eight(const struct bytes *b, int64_t at, unsigned char room[8])
{
    if (b->from) return b->from + at;
    uint64_t drawn = rng_u64(b->d->seed, hash_text(0, "pixels"), b->first + (uint64_t)at / 8);
    for (int i = 0; i < 8; i++) room[i] = (unsigned char)(drawn >> 8 * i);
    return room;
}

static int64_t sum_of(const struct bytes *b, int64_t first, int64_t end)
{
    unsigned char room[8];
    int64_t sum = 0;
    for (int64_t at = first / 8 * 8; at < end; at += 8) {
        const unsigned char *x = eight(b, at, room);
        for (int64_t i = at < first ? first - at : 0; i < 8 && at + i < end; i++) sum += x[i];
    }
    return sum;
}

void data_pixels(const struct data *d, int64_t picture, enum dtype t, void *out)
{
    struct bytes b = bytes_of(d, picture);
    unsigned char room[8];
    int64_t sum = 0, squares = 0; /* exact */
    for (int64_t at = 0; at < d->pixels; at += 8) {
        const unsigned char *x = eight(&b, at, room);
        for (int64_t i = 0; i < 8 && at + i < d->pixels; i++) sum += x[i], squares += x[i] * x[i];
    }
    double n = (double)d->pixels, mean = (double)sum / n;
    double scale = sqrt(fmax(1, (double)squares / n - mean * mean));
    for (int64_t at = 0; at < d->pixels; at += 8) {
        const unsigned char *x = eight(&b, at, room);
        for (int64_t i = 0; i < 8 && at + i < d->pixels; i++) {
            double pixel = (x[i] - mean) / scale;
            if (t == DTYPE_fp32)
                ((float *)out)[at + i] = (float)pixel;
            else if (dtype_is_half(t))
                ((uint16_t *)out)[at + i] = half_of(t, (float)pixel);
            else
                ((double *)out)[at + i] = pixel;
        }
    }
}

int32_t data_label(const struct data *d, int64_t picture)
{
    struct bytes b = bytes_of(d, picture);
    int64_t stretch = d->pixels / (d->vocabulary > 0 ? d->vocabulary : 1), most = -1, label = 0;
    if (stretch < 1) stretch = 1;
    if (stretch > STRETCH_MOST) stretch = STRETCH_MOST;
    for (int64_t k = 0; k < d->vocabulary && (k + 1) * stretch <= d->pixels; k++) {
        int64_t sum = sum_of(&b, k * stretch, (k + 1) * stretch);
        if (sum > most) most = sum, label = k;
    }
    return (int32_t)label;
}
