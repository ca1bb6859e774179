/* exec/data/data_file.h - one file of training samples, in one of the forms of core/model/data_source.h.
 *
 * Layouts, all little-endian unless stated:
 *   bytes, uint16, uint32   tokens from the first byte to the last
 *   llmc        256 int32: magic 20240520 (tokens of 16 bits) or 20240801 (32 bits), version 1, number of tokens; then the tokens
 *               (github.com/karpathy/llm.c, dev/data/data_common.py)
 *   megatron    X.idx: "MMIDIDX\0\0", uint64 version 1, uint8 type (1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16), uint64 number of
 *               sequences, uint64 number of documents, int32 lengths of the sequences, ...; X.bin: their tokens, one after the other
 *               (github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py). Samples run over the ends of documents, as Megatron's do.
 *   cifar10, cifar100       records of 1 or 2 labels and 3,072 pixels: 32 x 32 of red, of green, of blue (cs.toronto.edu/~kriz/cifar.html)
 *   mnist       big-endian: 0x00000803, images, rows, columns, pixels; the labels: 0x00000801, number, labels (yann.lecun.com/exdb/mnist). The file of
 *               the labels has "labels" and "idx1" where the name of the images has "images" and "idx3".
 * Files are read by windows and never mapped, because truncation of a mapped file ends the process by SIGBUS.
 */
#ifndef EXEC_DATA_DATA_FILE_H
#define EXEC_DATA_DATA_FILE_H

#include "core/base/error.h"
#include "core/model/data_source.h"

#include <stdint.h>

struct data_file {
    const char *path, *labels; /* labels NULL: in the same file, or none */
    int fd, labels_fd;         /* -1: closed */
    enum data_form form;       /* never DATA_AUTO */
    int64_t bytes;             /* of both files */
    int64_t begin;             /* byte of the first token or record */
    int64_t n;                 /* tokens, or images */
    int64_t first, samples;    /* by data.c: the samples that are read */
    int32_t width;             /* bytes of a token */
    bool is_signed;            /* tokens below 0 are possible, and refused */
    int32_t n_labels;          /* bytes of labels before the pixels of a record */
};

/* pixels: of an image of the model; 0: text. Names live in the arena. ERR_INPUT: unreadable, not of the form, another number of pixels. */
MUST_CHECK enum status data_file_open(struct arena *a, const char *path, enum data_form form, int64_t pixels, struct data_file *out, struct error *err);
void data_file_close(struct data_file *f);
/* Tokens [first, first + n), each below vocabulary. ERR_INPUT: the place of one that is not; a file that was truncated meanwhile. */
MUST_CHECK enum status data_file_tokens(const struct data_file *f, int64_t first, int64_t n, int64_t vocabulary, int32_t *out, struct error *err);
/* Byte offset of image i's pixels; of DATA_BYTES i windows of `pixels`. */
int64_t data_file_pixels_at(const struct data_file *f, int64_t image, int64_t pixels);
/* The label in the file of an image; not of DATA_BYTES. ERR_INPUT: not below classes. */
MUST_CHECK enum status data_file_label(const struct data_file *f, int64_t image, int64_t classes, int32_t *out, struct error *err);
/* Continues a CRC-32 by the file; of a file above 64 MiB by the first and the last MiB. */
MUST_CHECK enum status data_file_crc(const struct data_file *f, uint32_t *crc, struct error *err);

#endif
