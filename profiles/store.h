/* profiles/store.h - the profile database (SQLite). SQL stops in store.c.
 *
 * STRICT tables; a profile and all its rows are appended in one transaction and never changed; every row carries a
 * CRC-32 of its content (SQLite does not see bit rot). A newer schema, a damaged row or a file that is no database is
 * ERR_INPUT with the table and row. Two writers: the second waits, then ERR_RESOURCE.
 */
#ifndef PROFILES_STORE_H
#define PROFILES_STORE_H

#include "core/base/error.h"
#include "profiles/profile.h"

#include <stdint.h>

struct arena;
struct store; /* opaque; its memory is the arena's, its handle is closed by store_close */

/* create: the file may be missing or empty and is made by the first store_append. Its folder must be there. */
MUST_CHECK enum status store_open(struct arena *a, const char *path, bool create,
                                  struct store **out, struct error *err);
void store_close(struct store *s); /* NULL is fine */
/* Newest profile of the cluster as it is (by hash, the text's), else, with *exact false, of one of its name that has
 * the same base devices: links, slowdowns and names of devices may differ. ERR_INPUT "no profile of cluster …; run musher profile"
 * where there is neither: then *out_id is 0, and -1 where the database cannot be read. */
MUST_CHECK enum status store_latest(struct store *s, uint64_t hash, const struct cluster *c,
                                    int64_t *out_id, bool *exact, struct error *err);
MUST_CHECK enum status store_load(struct store *s, struct arena *a, int64_t id, struct profile *out,
                                  struct error *err);
/* Stores p as a new profile; sets p->id. */
MUST_CHECK enum status store_append(struct store *s, struct profile *p, struct error *err);
/* The same for a profile that belongs with other outputs: inside is called when every row is written and none is committed.
 * Where it fails the database stays as it was. What inside did is the caller's to undo where the commit fails. */
MUST_CHECK enum status store_append_with(struct store *s, struct profile *p,
                                         enum status (*inside)(void *user, struct error *err),
                                         void *user, struct error *err);

#endif
