#include "exec/data/data_file.h"

#include "core/base/arena.h"
#include "core/base/file.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define WHOLE_BYTES (INT64_C(64) << 20)
#define END_BYTES (1 << 20)
enum {
    WINDOW_BYTES = 16 << 10, /* a multiple of 8 */
    LLMC_INTS = 256,
    LLMC_UINT16 = 20240520,
    LLMC_UINT32 = 20240801,
    MEGATRON_HEAD = 9 + 8 + 1 + 8 + 8,
    MNIST_IMAGES = 0x803,
    MNIST_LABELS = 0x801,
    CIFAR_PIXELS = 3072,
};
static const char megatron_magic[9] = "MMIDIDX\0";

static int64_t little(const unsigned char *p, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++) value |= (uint64_t)p[i] << 8 * i;
    return (int64_t)value;
}

static int64_t big(const unsigned char *p)
{
    return (int64_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

/* The first n bytes, or false. */
static bool begins(const char *path, unsigned char *head, size_t n) { return file_head(path, (char *)head, n) == n; }

static bool ends(const char *path, const char *with)
{
    size_t n = strlen(path), m = strlen(with);
    return n > m && !strcmp(path + n - m, with);
}

/* X of X.idx and X.bin; else the path itself. */
static const char *prefix(struct arena *a, const char *path) { return ends(path, ".idx") || ends(path, ".bin") ? arena_strndup(a, path, strlen(path) - 4) : path; }

static bool is_megatron(struct arena *a, const char *path)
{
    unsigned char head[sizeof megatron_magic];
    return begins(arena_printf(a, "%s.idx", prefix(a, path)), head, sizeof head) && !memcmp(head, megatron_magic, sizeof head);
}

static bool is_llmc(const char *path)
{
    unsigned char head[4];
    return begins(path, head, sizeof head) && (little(head, 4) == LLMC_UINT16 || little(head, 4) == LLMC_UINT32);
}

static bool is_mnist(const char *path)
{
    unsigned char head[4];
    return begins(path, head, sizeof head) && big(head) == MNIST_IMAGES;
}

static enum status find_form(struct arena *a, const char *path, bool images, enum data_form *out, struct error *err)
{
    *out = images && is_mnist(path) ? DATA_MNIST : images ? DATA_BYTES : is_megatron(a, path) ? DATA_MEGATRON : is_llmc(path) ? DATA_LLMC : DATA_BYTES;
    if (*out != DATA_BYTES || !(ends(path, ".bin") || ends(path, ".npy"))) return OK;
    return error_set(err, ERR_INPUT, "data '%s' does not state its form: write `form: %s` in the job's `data`, or pass --data-form", path,
                     images ? "cifar10, cifar100 or bytes" : "uint16, uint32 or bytes");
}

/* --- forms of text --- */

static enum status open_llmc(struct data_file *f, struct error *err)
{
    unsigned char head[4 * LLMC_INTS];
    if (f->bytes < (int64_t)sizeof head) return error_set(err, ERR_INPUT, "data '%s' is shorter than llm.c's header of %zu bytes", f->path, sizeof head);
    TRY(file_read_at(f->fd, f->path, 0, head, sizeof head, err));
    int64_t magic = little(head, 4), version = little(head + 4, 4), n = little(head + 8, 4);
    if (magic != LLMC_UINT16 && magic != LLMC_UINT32)
        return error_set(err, ERR_INPUT, "data '%s' has magic number %" PRId64 ", llm.c's are %d and %d", f->path, magic, LLMC_UINT16, LLMC_UINT32);
    if (version != 1) return error_set(err, ERR_INPUT, "data '%s' has version %" PRId64 " of llm.c's form, this program reads 1", f->path, version);
    f->width = magic == LLMC_UINT16 ? 2 : 4;
    f->begin = (int64_t)sizeof head;
    f->n = n;
    if (f->begin + n * f->width != f->bytes)
        return error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " bytes, its header states %" PRId64 " tokens: %" PRId64, f->path, f->bytes, n,
                         f->begin + n * f->width);
    return OK;
}

/* The sum of the lengths of all sequences. */
static enum status megatron_tokens(int fd, const char *path, int64_t sequences, int64_t *out, struct error *err)
{
    unsigned char room[WINDOW_BYTES];
    for (int64_t at = 0, n; at < sequences; at += n) {
        n = sequences - at < WINDOW_BYTES / 4 ? sequences - at : WINDOW_BYTES / 4;
        TRY(file_read_at(fd, path, MEGATRON_HEAD + 4 * at, room, 4 * n, err));
        for (int64_t i = 0; i < n; i++) {
            int64_t length = little(room + 4 * i, 4);
            if (length > INT32_MAX) return error_set(err, ERR_INPUT, "index '%s': sequence %" PRId64 " has a negative length", path, at + i);
            *out += length;
        }
    }
    return OK;
}

static enum status read_index(struct data_file *f, int fd, const char *path, int64_t bytes, struct error *err)
{
    static const int8_t widths[] = {0, 1, -1, -2, -4, -8, 0, 0, 2}; /* by type; negative: signed */
    unsigned char head[MEGATRON_HEAD];
    if (bytes < MEGATRON_HEAD) return error_set(err, ERR_INPUT, "index '%s' is shorter than its header of %d bytes", path, MEGATRON_HEAD);
    TRY(file_read_at(fd, path, 0, head, sizeof head, err));
    if (memcmp(head, megatron_magic, sizeof megatron_magic)) return error_set(err, ERR_INPUT, "index '%s' does not begin with MMIDIDX", path);
    int64_t version = little(head + 9, 8), type = head[17], sequences = little(head + 18, 8), documents = little(head + 26, 8), tokens = 0;
    if (version != 1) return error_set(err, ERR_INPUT, "index '%s' has version %" PRId64 ", this program reads 1", path, version);
    if (type >= (int64_t)sizeof widths || !widths[type])
        return error_set(err, ERR_INPUT, "index '%s' has tokens of type %" PRId64 ", which is not an integer of 1 to 8 bytes", path, type);
    if (sequences < 0 || sequences > bytes / 12 || documents < 0 || documents > bytes / 8 || MEGATRON_HEAD + 12 * sequences + 8 * documents > bytes)
        return error_set(err, ERR_INPUT, "index '%s' has %" PRId64 " bytes, too few for its %" PRId64 " sequences and %" PRId64 " documents", path, bytes, sequences,
                         documents);
    f->width = widths[type] < 0 ? -widths[type] : widths[type];
    f->is_signed = widths[type] < 0;
    TRY(megatron_tokens(fd, path, sequences, &tokens, err));
    f->n = tokens;
    if (tokens * f->width == f->bytes) return OK;
    return error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " bytes, its index %" PRId64 " tokens of %d bytes", f->path, f->bytes, tokens, f->width);
}

static enum status open_megatron(struct arena *a, struct data_file *f, struct error *err)
{
    const char *index = arena_printf(a, "%s.idx", prefix(a, f->path));
    int fd;
    int64_t bytes;
    TRY(file_open_regular(index, &fd, &bytes, err));
    enum status status = read_index(f, fd, index, bytes, err);
    close(fd);
    return status;
}

static enum status open_plain(struct data_file *f, int32_t width, struct error *err)
{
    f->width = width;
    f->n = f->bytes / width;
    if (f->n * width == f->bytes) return OK;
    return error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " bytes, which are not tokens of %d", f->path, f->bytes, width);
}

/* --- forms of images --- */

static enum status open_cifar(struct data_file *f, int32_t labels, int64_t pixels, struct error *err)
{
    if (pixels != CIFAR_PIXELS)
        return error_set(err, ERR_INPUT, "data '%s': images of %s have %d pixels, the model's %" PRId64, f->path, data_form_name(f->form), CIFAR_PIXELS, pixels);
    f->n_labels = labels;
    f->n = f->bytes / (labels + CIFAR_PIXELS);
    if (f->n * (labels + CIFAR_PIXELS) == f->bytes) return OK;
    return error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " bytes, which are not records of %d", f->path, f->bytes, labels + CIFAR_PIXELS);
}

/* "labels" and "idx1" in place of "images" and "idx3" in the file's name. */
static const char *labels_of(struct arena *a, const char *path)
{
    char *name = arena_strdup(a, path), *slash = strrchr(name, '/'), *from = slash ? slash : name;
    char *images = strstr(from, "images"), *idx = strstr(from, "idx3");
    if (!images) return NULL;
    memcpy(images, "labels", 6);
    if (idx) idx[3] = '1';
    return name;
}

static enum status open_mnist_labels(struct arena *a, struct data_file *f, struct error *err)
{
    unsigned char head[8];
    int64_t bytes;
    f->labels = labels_of(a, f->path);
    if (!f->labels) return error_set(err, ERR_INPUT, "data '%s': a file of images of form mnist has 'images' in its name, and that of its labels 'labels'", f->path);
    TRY(file_open_regular(f->labels, &f->labels_fd, &bytes, err));
    if (bytes >= (int64_t)sizeof head) TRY(file_read_at(f->labels_fd, f->labels, 0, head, sizeof head, err));
    if (bytes < (int64_t)sizeof head || big(head) != MNIST_LABELS) return error_set(err, ERR_INPUT, "labels '%s' do not begin with 0x%08x", f->labels, MNIST_LABELS);
    if (big(head + 4) != f->n || bytes != (int64_t)sizeof head + f->n)
        return error_set(err, ERR_INPUT, "labels '%s': %" PRId64 " labels in %" PRId64 " bytes for %" PRId64 " images", f->labels, big(head + 4), bytes, f->n);
    f->bytes += bytes;
    return OK;
}

static enum status open_mnist(struct arena *a, struct data_file *f, int64_t pixels, struct error *err)
{
    unsigned char head[16];
    if (f->bytes < (int64_t)sizeof head) return error_set(err, ERR_INPUT, "data '%s' is shorter than its header of %zu bytes", f->path, sizeof head);
    TRY(file_read_at(f->fd, f->path, 0, head, sizeof head, err));
    if (big(head) != MNIST_IMAGES) return error_set(err, ERR_INPUT, "data '%s' does not begin with 0x%08x", f->path, MNIST_IMAGES);
    int64_t rows = big(head + 8), columns = big(head + 12);
    f->n = big(head + 4);
    f->begin = (int64_t)sizeof head;
    if (rows * columns != pixels)
        return error_set(err, ERR_INPUT, "data '%s': images of %" PRId64 " x %" PRId64 " pixels, the model's have %" PRId64, f->path, rows, columns, pixels);
    if (f->begin + f->n * pixels != f->bytes)
        return error_set(err, ERR_INPUT, "data '%s' has %" PRId64 " bytes, its header states %" PRId64 " images: %" PRId64, f->path, f->bytes, f->n,
                         f->begin + f->n * pixels);
    return open_mnist_labels(a, f, err);
}

/* --- */

static enum status open_form(struct arena *a, struct data_file *f, int64_t pixels, struct error *err)
{
    switch (f->form) {
    case DATA_LLMC: return open_llmc(f, err);
    case DATA_MEGATRON: return open_megatron(a, f, err);
    case DATA_UINT16: return open_plain(f, 2, err);
    case DATA_UINT32: return open_plain(f, 4, err);
    case DATA_CIFAR10: return open_cifar(f, 1, pixels, err);
    case DATA_CIFAR100: return open_cifar(f, 2, pixels, err);
    case DATA_MNIST: return open_mnist(a, f, pixels, err);
    default: break;
    }
    f->width = 1;
    f->n = pixels ? f->bytes / pixels : f->bytes;
    return OK;
}

enum status data_file_open(struct arena *a, const char *path, enum data_form form, int64_t pixels, struct data_file *out, struct error *err)
{
    if (form == DATA_AUTO) TRY(find_form(a, path, pixels > 0, &form, err));
    if (form != DATA_BYTES && data_form_is_of_images(form) != (pixels > 0))
        return error_set(err, ERR_INPUT, "data '%s': form %s is of %s, the model of %s", path, data_form_name(form), pixels ? "text" : "images", pixels ? "images" : "text");
    if (form == DATA_MEGATRON) path = arena_printf(a, "%s.bin", prefix(a, path));
    *out = (struct data_file){.path = arena_strdup(a, path), .form = form, .fd = -1, .labels_fd = -1};
    TRY(file_open_regular(path, &out->fd, &out->bytes, err));
    enum status status = open_form(a, out, pixels, err);
    if (status != OK) data_file_close(out);
    return status;
}

void data_file_close(struct data_file *f)
{
    if (f->fd >= 0) close(f->fd);
    if (f->labels_fd >= 0) close(f->labels_fd);
    f->fd = f->labels_fd = -1;
}


enum status data_file_tokens(const struct data_file *f, int64_t first, int64_t n, int64_t vocabulary, int32_t *out, struct error *err)
{
    unsigned char room[WINDOW_BYTES];
    int64_t most = (int64_t)sizeof room / f->width;
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < most ? n - at : most;
        TRY(file_read_at(f->fd, f->path, f->begin + (first + at) * f->width, room, part * f->width, err));
        for (int64_t i = 0; i < part; i++) {
            int64_t token = little(room + i * f->width, f->width);
            if (f->is_signed && f->width < 8 && token >> (8 * f->width - 1)) token -= INT64_C(1) << 8 * f->width;
            if (token < 0 || token >= vocabulary)
                return error_set(err, ERR_INPUT, "data '%s': token %" PRId64 " is %" PRId64 ", the model's vocabulary has %" PRId64, f->path, first + at + i, token,
                                 vocabulary);
            out[at + i] = (int32_t)token;
        }
    }
    return OK;
}

int64_t data_file_pixels_at(const struct data_file *f, int64_t image, int64_t pixels) { return f->begin + image * (f->n_labels + pixels) + f->n_labels; }

enum status data_file_label(const struct data_file *f, int64_t image, int64_t classes, int32_t *out, struct error *err)
{
    unsigned char labels[2];
    if (f->labels)
        TRY(file_read_at(f->labels_fd, f->labels, 8 + image, labels, 1, err));
    else
        TRY(file_read_at(f->fd, f->path, image * (f->n_labels + CIFAR_PIXELS), labels, f->n_labels, err));
    /* CIFAR-100: 20 coarse labels first, then 100 fine ones. */
    *out = labels[f->n_labels == 2 && classes > 20];
    if (*out < classes) return OK;
    return error_set(err, ERR_INPUT, "data '%s': image %" PRId64 " is of class %" PRId32 ", the model has %" PRId64 " classes", f->labels ? f->labels : f->path, image, *out,
                     classes);
}

static enum status add_to_crc(int fd, const char *path, int64_t at, int64_t end, uint32_t *crc, struct error *err)
{
    unsigned char room[WINDOW_BYTES];
    for (int64_t n; at < end; at += n) {
        n = end - at < WINDOW_BYTES ? end - at : WINDOW_BYTES;
        TRY(file_read_at(fd, path, at, room, n, err));
        *crc = (uint32_t)crc32_z(*crc, room, (size_t)n);
    }
    return OK;
}

static enum status add_file(int fd, const char *path, int64_t bytes, uint32_t *crc, struct error *err)
{
    int64_t head = bytes > WHOLE_BYTES ? END_BYTES : bytes, tail = bytes > WHOLE_BYTES ? bytes - END_BYTES : bytes;
    TRY(add_to_crc(fd, path, 0, head, crc, err));
    return add_to_crc(fd, path, tail, bytes, crc, err);
}

enum status data_file_crc(const struct data_file *f, uint32_t *crc, struct error *err)
{
    int64_t labels = f->labels ? 8 + f->n : 0;
    TRY(add_file(f->fd, f->path, f->bytes - labels, crc, err));
    return labels ? add_file(f->labels_fd, f->labels, labels, crc, err) : OK;
}
