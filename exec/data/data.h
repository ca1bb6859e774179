/* exec/data/data.h - training samples: token sequences or images, from files or random.
 *
 * Samples are numbered over the whole training: step x global batch + index in the batch. Which sample of which file number n is, is a function
 * of (seed, n) alone (exec/data/sample_order.h): every sample once an epoch, whatever the plan.
 *
 * Text: sample i of a file is its tokens [i T, (i + 1) T), T the sequence length; targets are the same shifted by one token. At most T tokens at the
 * end of a file are in no sample. Without files the ids are random (benches). A source with a validation fraction (core/model/data_source.h) has
 * the first samples of each file, or, if `held_out`, the last.
 *
 * Masked language modelling (Devlin et al. 2019): of the T positions of sequence n, model_masked_positions(T) = round(0.15 T), at least one, are
 * masked, drawn from (seed, n) alone. Their number is fixed, so that the mean over masked positions is the mean of the sequences' means however
 * sequences are distributed. MASKED_TOKENS has the mask id there and the token elsewhere; MASKED_TARGETS has the token there and -1 elsewhere.
 * BERT's random replacement of some masked tokens is not implemented. The mask id is 256, the first that is not a byte; in a smaller vocabulary, and
 * of files of tokens, the last id.
 *
 * Images: a pixel is (byte - mean) / deviation, both of that image (deviation at least 1). Labels are those of the file. Of form bytes image i is
 * bytes [i P, (i + 1) P) and the label is synthetic and learnable: the image's memory is divided from its beginning into `classes` equal stretches
 * of at most eight pixels, and the label is the stretch with the largest sum of bytes (the first of equals), so labels are equally frequent. With
 * fewer pixels than classes a stretch is one pixel. Without files the bytes are random.
 */
#ifndef EXEC_DATA_DATA_H
#define EXEC_DATA_DATA_H

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "exec/data/data_file.h"
#include "exec/data/sample_order.h"

#include <stdint.h>

struct data {
    int32_t n_files; /* 0: random data */
    struct data_file *files;
    struct sample_order order;
    int64_t n_bytes, sequence_length, vocabulary;
    int64_t n_samples; /* of all files */
    uint64_t seed;
    int64_t pixels; /* of an image; sequence_length is the same and vocabulary is the number of classes; 0: text */
};

/* Of no files: random ids below vocabulary. ERR_INPUT: as data_file_open; a file without a whole sample; a vocabulary < 256 for bytes. Files
 * stay open until data_close. */
MUST_CHECK enum status data_open(struct arena *a, const struct data_source *source, uint64_t seed, int64_t sequence_length, int64_t vocabulary,
                                 struct data *out, struct error *err);
MUST_CHECK enum status data_open_images(struct arena *a, const struct data_source *source, uint64_t seed, int64_t pixels, int64_t classes,
                                        struct data *out, struct error *err);
void data_close(struct data *d);
/* The functions below read the files. ERR_INPUT: one was truncated after data_open, or has an id that the model has not. */
/* The sequence_length values of one input of the sequence. */
MUST_CHECK enum status data_fill(const struct data *d, enum tensor_input input, int64_t sequence,
                                 int32_t *out, struct error *err);
/* The image as (pixels) of t, fp32 or fp64. */
MUST_CHECK enum status data_pixels(const struct data *d, int64_t image, enum dtype t, void *out,
                                   struct error *err);
MUST_CHECK enum status data_label(const struct data *d, int64_t image, int32_t *out,
                                  struct error *err);
/* CRC-32 of the files (data_file_crc), changed by a part that is held out. 0 without files. */
MUST_CHECK enum status data_crc(const struct data *d, uint32_t *out, struct error *err);

#endif
