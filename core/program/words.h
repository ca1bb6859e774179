/* core/program/words.h - the lexer of program files; private to core/program/io*.c.
 *
 * A cursor over the text, word by word and line by line. Every getter has a range and
 * fails with ERR_INPUT and file:line. A count may not exceed the rest of the file, so
 * a count cannot cause an allocation much larger than the file.
 */
#ifndef CORE_PROGRAM_WORDS_H
#define CORE_PROGRAM_WORDS_H

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/program/internal.h"

struct reader {
    struct arena *a;
    const char *file, *at, *end;
    int line;
    struct error *err;
    int *lines[SECTION_COUNT]; /* first line of each record */
};

enum status words_broken(const struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Requires that the next line begins with this word. */
MUST_CHECK enum status words_start(struct reader *r, const char *word);
bool words_next_is(const struct reader *r, const char *word); /* whether it begins with it */
MUST_CHECK enum status words_short(struct reader *r, char *buffer, size_t size);
MUST_CHECK enum status words_int64(struct reader *r, int64_t min, int64_t max, int64_t *out);
MUST_CHECK enum status words_int(struct reader *r, int64_t min, int64_t max, int32_t *out);
MUST_CHECK enum status words_uint64(struct reader *r, int base, uint64_t *out);
MUST_CHECK enum status words_bool(struct reader *r, bool *out);
MUST_CHECK enum status words_count(struct reader *r, int32_t *out);
MUST_CHECK enum status words_double(struct reader *r, double *out);
MUST_CHECK enum status words_name(struct reader *r, const char **out);
MUST_CHECK enum status words_choice(struct reader *r, const char *const *names, int n, int *out);
MUST_CHECK enum status words_phase(struct reader *r, const char *allowed, enum phase *out);
MUST_CHECK enum status words_dtype(struct reader *r, enum dtype *out);
MUST_CHECK enum status words_list(struct reader *r, int32_t n, int64_t max,
                                  int32_t *out); /* each >= -1 */
MUST_CHECK enum status words_shape(struct reader *r, struct shape *s);

/* core/program/io_shards.c: the shards of operators and slots of a sharded stage. */
MUST_CHECK enum status program_read_local(struct reader *r, struct program_stage *s);
MUST_CHECK enum status program_read_within(struct reader *r, struct program_stage *s);
MUST_CHECK enum status program_read_tensor_shard(struct reader *r, const struct program *p, struct program_stage *s);
MUST_CHECK enum status program_read_experts(struct reader *r, struct program *p); /* lines of the head */
/* core/program/io_training.c: lines of the head and of a stage. */
MUST_CHECK enum status program_read_training(struct reader *r, struct program *p);
MUST_CHECK enum status program_read_stage_training(struct reader *r, const struct program *p, struct program_stage *s);
/* core/program/io_collectives.c: the next record is a collective. */
MUST_CHECK enum status program_read_collective(struct reader *r, struct collective *g);

#endif
