/* exec/data.h - training samples from any file: its bytes are the tokens.
 *
 * A job's sequences are numbered from 0 through all its steps: step · global batch + place in the
 * batch. Sequence n is a run of sequence_length bytes at a pseudo-random offset that is a function
 * of (seed, n) alone, so every plan reads the same ones, and a resumed run needs only the number of
 * sequences consumed; targets are the same run one byte further. Without a file the ids are random
 * (benches).
 *
 * Masked language modelling (Devlin et al. 2019): model_masked_positions(T) = round(0.15·T), at least one, of the T positions of sequence
 * n are hidden, drawn from (seed, n) alone. Their number is fixed, so that a mean over hidden positions is the mean of the
 * sequences' means, however sequences are shared. MASKED_TOKENS has the mask's id there and the byte elsewhere,
 * MASKED_TARGETS the byte there and -1 elsewhere; BERT's replacing of some by other or the same words is left out. The mask's
 * id is 256, the first that is no byte; in a smaller vocabulary the last one.
 *
 * Images. Image n of `pixels` bytes is a run of the file as above; without a file its bytes are random. A pixel is
 * (byte - mean) / deviation, both the image's own (at least 1). Its label is which of `classes` equal stretches of the image,
 * in the order of memory and from its beginning on, of at most eight pixels each, has the largest sum of bytes (the first of
 * equals): a function of the image that a model can learn, and as frequent as any other. With fewer pixels than classes a
 * stretch is one pixel.
 */
#ifndef EXEC_DATA_H
#define EXEC_DATA_H

#include "core/base/error.h"
#include "core/graph/graph.h"

#include <stdint.h>

struct data {
    const char *path; /* the caller's; NULL: synthetic, and fd is no descriptor */
    int fd;
    int64_t n_bytes, sequence_length, vocabulary;
    uint64_t seed;
    int64_t
        pixels; /* of an image: then sequence_length too, and vocabulary is how many classes; 0: text */
};

/* path NULL: synthetic ids below vocabulary. ERR_INPUT: no readable regular file, not more than
 * sequence_length + 1 bytes, vocabulary < 256 for a file. The file stays open until data_close. It is read by windows and never mapped,
 * because truncating a mapped file ends the process by SIGBUS. */
MUST_CHECK enum status data_open(const char *path, uint64_t seed, int64_t sequence_length,
                                 int64_t vocabulary, struct data *out, struct error *err);
/* The same for images. ERR_INPUT: not more than pixels + 1 bytes. */
MUST_CHECK enum status data_open_images(const char *path, uint64_t seed, int64_t pixels,
                                          int64_t classes, struct data *out, struct error *err);
void data_close(struct data *d);
/* Offset of the sequence in the file, 0 … n_bytes - sequence_length - 1. */
int64_t data_offset(const struct data *d, int64_t sequence);
/* The functions below read the file. ERR_INPUT: it was truncated since it was opened. */
/* sequence_length values of one input of the sequence. */
MUST_CHECK enum status data_fill(const struct data *d, enum tensor_input input, int64_t sequence,
                                 int32_t *out, struct error *err);
/* The image as (pixels) of t, fp32 or fp64. */
MUST_CHECK enum status data_pixels(const struct data *d, int64_t image, enum dtype t, void *out,
                                   struct error *err);
MUST_CHECK enum status data_label(const struct data *d, int64_t image, int32_t *out,
                                  struct error *err);
/* CRC-32 of the file; of more than 64 MiB the first and the last MiB. 0 without a file. */
MUST_CHECK enum status data_crc(const struct data *d, uint32_t *out, struct error *err);

#endif
