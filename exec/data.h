/* exec/data.h - training samples from any file: its bytes are the tokens.
 *
 * Sample (step, index) is a run of sequence_length bytes at a pseudo-random offset that is a
 * function of (seed, step, index) alone, so every plan, and every resumed run, reads the same
 * samples; targets are the same run one byte further. Without a file the ids are random (benches).
 */
#ifndef EXEC_DATA_H
#define EXEC_DATA_H

#include "core/error.h"
#include "core/graph.h"

#include <stdint.h>

struct data {
    const unsigned char *bytes; /* NULL: synthetic */
    int64_t n_bytes, sequence_length, vocabulary;
    uint64_t seed;
};

/* path NULL: synthetic ids below vocabulary. ERR_INPUT: no readable regular file, not more than
 * sequence_length + 1 bytes, vocabulary < 256 for a file. The file is mapped until data_close. */
MUST_CHECK enum status data_open(const char *path, uint64_t seed, int64_t sequence_length,
                                 int64_t vocabulary, struct data *out, struct error *err);
void data_close(struct data *d);
/* Offset of the sample in the file, 0 … n_bytes - sequence_length - 1. */
int64_t data_offset(const struct data *d, int64_t step, int64_t sample);
/* sequence_length values of one input of global sample `sample` of step `step` (0-based). */
void data_fill(const struct data *d, enum tensor_input input, int64_t step, int64_t sample,
               int32_t *out);

#endif
