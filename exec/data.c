#include "exec/data.h"

#include "core/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTE_VALUES 256

static enum status map_file(int fd, const char *path, struct data *d, struct error *err)
{
    struct stat about;
    if (fstat(fd, &about))
        return error_set(err, ERR_INPUT, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return error_set(err, ERR_INPUT, "data '%s' is not a regular file", path);
    if (about.st_size <= d->sequence_length + 1)
        return error_set(
            err, ERR_INPUT,
            "data '%s' has %lld bytes; sequences of %" PRId64 " need more than %" PRId64, path,
            (long long)about.st_size, d->sequence_length, d->sequence_length + 1);
    void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return error_set(err, ERR_RESOURCE, "cannot map '%s': %s", path, strerror(errno));
    d->bytes = bytes;
    d->n_bytes = about.st_size;
    return OK;
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
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_set(err, ERR_INPUT, "cannot read '%s': %s", path, strerror(errno));
    enum status status = map_file(fd, path, out, err);
    close(fd);
    return status;
}

void data_close(struct data *d)
{
    if (d->bytes) munmap((void *)(uintptr_t)d->bytes, (size_t)d->n_bytes);
    d->bytes = NULL;
}

/* One stream a step, so that samples of two steps are independent. */
static uint64_t step_stream(int64_t step)
{
    return hash_bytes(hash_text(0, "data"), &step, sizeof step);
}

int64_t data_offset(const struct data *d, int64_t step, int64_t sample)
{
    if (!d->bytes) return 0;
    return (int64_t)rng_below(d->seed, step_stream(step), (uint64_t)sample,
                              (uint64_t)(d->n_bytes - d->sequence_length));
}

static void fill_synthetic(const struct data *d, enum tensor_input input, int64_t step,
                           int64_t sample, int32_t *out)
{
    uint64_t first = (uint64_t)(sample * (d->sequence_length + 1)) + (input == INPUT_TARGETS);
    uint64_t below = (uint64_t)(d->vocabulary > 0 ? d->vocabulary : 1);
    for (int64_t t = 0; t < d->sequence_length; t++)
        out[t] = (int32_t)rng_below(d->seed, step_stream(step), first + (uint64_t)t, below);
}

void data_fill(const struct data *d, enum tensor_input input, int64_t step, int64_t sample,
               int32_t *out)
{
    if (input == INPUT_POSITIONS) {
        for (int64_t t = 0; t < d->sequence_length; t++) out[t] = (int32_t)t;
        return;
    }
    if (!d->bytes) {
        fill_synthetic(d, input, step, sample, out);
        return;
    }
    const unsigned char *from = d->bytes + data_offset(d, step, sample) + (input == INPUT_TARGETS);
    for (int64_t t = 0; t < d->sequence_length; t++) out[t] = from[t];
}
