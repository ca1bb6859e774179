/* tests/fuzz/formats.h - every file format that musher reads, as a function from bytes to a verdict.
 *
 * libFuzzer calls it with mutated inputs (tests/fuzz/fuzz.c, `make fuzz`), the suite fuzz_corpus with those of tests/fuzz/corpus.
 * Besides what sanitizers detect, each input is held to these rules; a violation aborts:
 *   - the reader accepts it, or fails with the exit code of an input error and a text that is not empty
 *   - its memory is at most 64 MiB + 8 bytes per byte of input, unless the format has its own limit
 *   - what is accepted and can be written (job, cluster, plan, model, program) is read again, and written the same
 *   - a small plan that is accepted is lowered and simulated, and a small program is checked for deadlocks
 */
#ifndef TESTS_FUZZ_FORMATS_H
#define TESTS_FUZZ_FORMATS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct fuzz_input {
    struct arena *a;
    const char *data; /* n bytes and a final 0 */
    size_t n;
    const char *path;   /* file with these bytes, of formats with `file`; else NULL */
    const char *folder; /* folder of path */
};
struct fuzz_format {
    const char *name; /* folder of its corpus */
    bool file;        /* the reader needs a file; else it reads memory */
    const char *file_name;
    enum status (*read)(struct fuzz_input *in, struct error *err);
};
extern const struct fuzz_format fuzz_formats[]; /* ended by a NULL name */

const struct fuzz_format *fuzz_format_find(const char *name); /* NULL: none */
/* Makes the folder for files (in /dev/shm or /tmp), sends stdout to /dev/null and silences the log. Once per process. */
void fuzz_format_prepare(void);
void fuzz_format_end(void); /* removes the folder */
/* Reads one input and checks the rules; returns the reader's status. label: name of the input in the message of a violation. */
enum status fuzz_format_read(const struct fuzz_format *f, const char *label, const uint8_t *data, size_t n);

#endif
