/* exec/data.h - training samples from any file: its bytes are the tokens.
 *
 * A job's sequences are numbered from 0 through all its steps: step · global batch + place in the
 * batch. Sequence n is a run of sequence_length bytes at a pseudo-random offset that is a function
 * of (seed, n) alone, so every plan reads the same ones, and a resumed run needs only the number of
 * sequences consumed; targets are the same run one byte further. Without a file the ids are random
 * (benches).
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
/* Offset of the sequence in the file, 0 … n_bytes - sequence_length - 1. */
int64_t data_offset(const struct data *d, int64_t sequence);
/* sequence_length values of one input of the sequence. */
void data_fill(const struct data *d, enum tensor_input input, int64_t sequence, int32_t *out);
/* CRC-32 of the file; of more than 64 MiB the first and the last MiB. 0 without a file. */
uint32_t data_crc(const struct data *d);

#endif
