/* exec/data.h - training samples from any file: its bytes are the tokens or the pixels.
 *
 * Sequences are numbered over the whole training: step · global batch + index in the batch. Sequence n is a run of
 * sequence_length bytes at a pseudo-random offset, a function of (seed, n) alone. So every plan reads the same
 * sequences, and a resumed run needs only the number of sequences consumed. Targets are the same run shifted by one
 * byte. Without a file the ids are random (benches).
 *
 * Masked language modelling (Devlin et al. 2019): of the T positions of sequence n, model_masked_positions(T) =
 * round(0.15·T), at least one, are masked, drawn from (seed, n) alone. Their number is fixed, so that the mean over
 * masked positions is the mean of the sequences' means however sequences are distributed. MASKED_TOKENS has the mask
 * id there and the byte elsewhere; MASKED_TARGETS has the byte there and -1 elsewhere. BERT's random replacement of
 * some masked tokens is not implemented. The mask id is 256, the first that is not a byte; in a smaller vocabulary
 * the last id.
 *
 * Images: image n is a run of `pixels` bytes of the file; without a file its bytes are random. A pixel is (byte -
 * mean) / deviation, both of that image (deviation at least 1). The label is synthetic and learnable: the image's
 * memory is divided from its beginning into `classes` equal stretches of at most eight pixels, and the label is the
 * stretch with the largest sum of bytes (the first of equals), so labels are equally frequent. With fewer pixels than
 * classes a stretch is one pixel.
 */
#ifndef EXEC_DATA_H
#define EXEC_DATA_H

#include "core/base/error.h"
#include "core/graph/graph.h"

#include <stdint.h>

struct data {
    const char *path; /* the caller's; NULL: synthetic data, fd is not open */
    int fd;
    int64_t n_bytes, sequence_length, vocabulary;
    uint64_t seed;
    int64_t
        pixels; /* of an image; sequence_length is the same and vocabulary is the number of classes; 0: text */
};

/* path NULL: synthetic ids below vocabulary. ERR_INPUT: not a readable regular file, at most sequence_length + 1
 * bytes, or vocabulary < 256 for a file. The file stays open until data_close. It is read by windows and never
 * mapped, because truncation of a mapped file ends the process by SIGBUS. */
MUST_CHECK enum status data_open(const char *path, uint64_t seed, int64_t sequence_length,
                                 int64_t vocabulary, struct data *out, struct error *err);
/* The same for images. ERR_INPUT: at most pixels + 1 bytes. */
MUST_CHECK enum status data_open_images(const char *path, uint64_t seed, int64_t pixels,
                                          int64_t classes, struct data *out, struct error *err);
void data_close(struct data *d);
/* Offset of the sequence in the file, 0 … n_bytes - sequence_length - 1. */
int64_t data_offset(const struct data *d, int64_t sequence);
/* The functions below read the file. ERR_INPUT: it was truncated after data_open. */
/* The sequence_length values of one input of the sequence. */
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
