/* tools/tensorboard.h - scalars of a run as a TensorBoard event file.
 *
 * A file is a list of records: uint64 length, uint32 masked CRC-32C of it, the bytes, uint32 masked CRC-32C of them, little-endian; masked is
 * ((crc >> 15) | (crc << 17)) + 0xa282ead8 (TFRecord). The bytes are a protocol buffer `Event`: wall_time 1 (double), step 2 (int64), file_version 3
 * ("brain.Event:2", in the first), summary 5 {value 1 {tag 1, simple_value 2 (float)}}, session_log 7 {status 1}. A resumed run writes a file of its
 * own beside the earlier ones; its session log (START = 1) of the first step makes TensorBoard drop what they have of later steps
 * (tensorflow/core/util/event.proto, core/framework/summary.proto).
 */
#ifndef TOOLS_TENSORBOARD_H
#define TOOLS_TENSORBOARD_H

#include "core/base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

struct tensorboard {
    const char *path;
    FILE *file; /* NULL: closed */
};
/* Creates the folder if it is missing, and a new file events.out.tfevents.SECONDS.HOST.PROCESS in it. ERR_RESOURCE. */
MUST_CHECK enum status tensorboard_open(struct tensorboard *t, struct arena *a, const char *dir, int64_t first_step, struct error *err);
void tensorboard_close(struct tensorboard *t);
/* Given to the system at once by flush; after an error, which is a warning, nothing more is written. */
void tensorboard_scalar(struct tensorboard *t, int64_t step, const char *tag, double value);
void tensorboard_flush(struct tensorboard *t);

uint32_t tensorboard_crc(const void *p, size_t n); /* CRC-32C (Castagnoli), not masked. O(n) */

#endif
