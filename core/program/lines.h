/* core/program/lines.h - text of the records of a program file; private to core/program/write.c.
 *
 * A program of thousands of devices is hundreds of megabytes of numbers, of which printf would take most of the time. Numbers are
 * preceded by a space. Doubles have 17 digits, which restore every bit; the texts of the latest ones are kept, because most
 * records repeat them. Text may be recorded while it is written, to be written again.
 */
#ifndef CORE_PROGRAM_LINES_H
#define CORE_PROGRAM_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;
struct program;
struct tensor_shard;
struct program_stage;

struct lines_piece { /* recorded text */
    const char *text;
    size_t n;
};

struct lines; /* opaque */
struct lines *lines_new(struct arena *a, FILE *out);
void lines_end(struct lines *l); /* writes what is still buffered */

void lines_bytes(struct lines *l, const char *bytes, size_t n);
void lines_text(struct lines *l, const char *text);
void lines_char(struct lines *l, char c);
void lines_int(struct lines *l, int64_t x);
void lines_double(struct lines *l, double x);
/* A word: spaces, percent signs and control bytes are written %XX; the empty name is a single percent sign. */
void lines_name(struct lines *l, const char *name);

/* What is written between the two calls. */
void lines_record(struct lines *l);
struct lines_piece lines_recorded(struct lines *l);

/* core/program/io_shards.c: orders of experts, in the head; a slot's shard, a line. */
void program_write_experts(struct lines *out, const struct program *p);
void program_write_tensor_shard(struct lines *out, const struct program *p, int32_t slot, const struct tensor_shard *x);
/* core/program/io_training.c: lines of the head and of a stage. */
void program_write_training(struct lines *out, const struct program *p);
void program_write_stage_training(struct lines *out, const struct program *p, const struct program_stage *s);

#endif
