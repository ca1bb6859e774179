/* core/base/arena.h - region-based memory: an arena owns all allocations of one lifetime.
 *
 * One call frees everything in an arena. Only arena.c calls
 * malloc and free. A failed allocation ends the program with exit code 6 and a line that states the
 * bytes, because a command-line tool cannot recover, and callers need no out-of-memory paths, which could hardly be
 * tested. The same holds for allocations of libraries, because arena_malloc.c
 * replaces malloc in the whole process. An arena belongs to one thread at a time.
 */
#ifndef CORE_BASE_ARENA_H
#define CORE_BASE_ARENA_H

#include "core/base/error.h"

#include <stddef.h>

struct arena; /* opaque */

struct arena *arena_new(void);
void *arena_alloc(struct arena *a, size_t count, size_t size); /* zeroed, aligned for any type */
void *arena_copy(struct arena *a, const void *from, size_t bytes); /* NULL for NULL */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n); /* n bytes and a final 0 */
char *arena_join(struct arena *a, const char *x, const char *y); /* x and y */
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The array with room for one more element than count; *capacity is updated. The old array stays
 * in the arena until it is reset, so growing costs at most twice the final size. */
void *arena_grow(struct arena *a, void *array, size_t count, size_t *capacity, size_t size);
void arena_reset(struct arena *a); /* frees the contents, keeps the blocks for reuse */
void arena_free(struct arena *a);  /* accepts NULL */
size_t arena_bytes(const struct arena *a); /* memory obtained from the process */
size_t arena_used(const struct arena *a);  /* of it, by its objects */

/* Callback just before an exit for lack of memory (removes temporary
 * files, reports the message); must not allocate. One for the whole program; NULL removes it. */
void arena_on_exhaustion(void (*last_act)(const char *message));
/* "musher: out of memory: N bytes were needed" on stderr and exit code 6. bytes 0: a library exceeded its own limit. */
__attribute__((noreturn)) void arena_exhausted(size_t bytes);

#define ARENA_ARRAY(a, type, n) ((type *)arena_alloc((a), (n), sizeof(type)))

#endif
