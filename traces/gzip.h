/* traces/gzip.h - gzip over a stream and over a descriptor, for traces: lines of JSON that look alike shrink to a twentieth.
 *
 * What is written has neither time nor name in its header, so the same text gives the same bytes.
 */
#ifndef TRACES_GZIP_H
#define TRACES_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct arena;

/* Does a file of this name hold gzip: does it end in ".gz"? */
bool gzip_name(const char *path);
/* A stream whose text goes to `to` compressed; fclose ends it and leaves `to` open. NULL and errno where there is no room.
 * Failures of `to` are failures of fclose, and ferror of `to` says so too. */
FILE *gzip_writer(struct arena *a, FILE *to);

struct gzip_reader; /* the arena's, but for zlib's own state */
/* Reads fd from its position on; NULL where there is no room. */
struct gzip_reader *gzip_reader_new(struct arena *a, int fd);
void gzip_reader_free(struct gzip_reader *r); /* NULL is fine; fd stays open */
/* As read(2): bytes, 0 at the end; -1 and errno: EBADMSG: broken or cut off. */
ssize_t gzip_read(struct gzip_reader *r, void *to, size_t n);

#endif
