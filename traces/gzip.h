/* traces/gzip.h - gzip streams for trace files: JSON lines shrink to a twentieth.
 *
 * The header contains neither time nor name, so equal text gives equal bytes.
 */
#ifndef TRACES_GZIP_H
#define TRACES_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct arena;

/* Whether the file name ends in ".gz". */
bool gzip_name(const char *path);
/* A stream that compresses its text into `to`; fclose completes it and leaves `to` open. NULL and errno without memory.
 * Write errors of `to` are reported by fclose and by ferror of `to`. */
FILE *gzip_writer(struct arena *a, FILE *to);

struct gzip_reader; /* arena memory, except zlib's own state */
/* Reads fd from its current position; NULL without memory. */
struct gzip_reader *gzip_reader_new(struct arena *a, int fd);
void gzip_reader_free(struct gzip_reader *r); /* NULL is allowed; fd stays open */
/* As read(2): bytes, 0 at the end; -1 and errno, EBADMSG for corrupt or truncated data. */
ssize_t gzip_read(struct gzip_reader *r, void *to, size_t n);

#endif
