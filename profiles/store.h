/* profiles/store.h - the profile database (SQLite). Only profiles/store*.c contain SQL.
 *
 * STRICT tables; a profile and all its rows are appended in one transaction and never changed; every row carries a
 * CRC-32 of its content, because SQLite does not detect bit rot. An appended profile survives a power loss. A newer schema, a damaged row or a file that is no database is
 * ERR_INPUT with the table and row. Two writers: the second waits, then ERR_RESOURCE.
 */
#ifndef PROFILES_STORE_H
#define PROFILES_STORE_H

#include "core/base/error.h"
#include "profiles/profile.h"

#include <stdint.h>

struct arena;
struct store; /* opaque; its memory is the arena's, its handle is closed by store_close */

/* create: the file may be missing or empty; the first store_append creates it. Its folder must exist. */
MUST_CHECK enum status store_open(struct arena *a, const char *path, bool create,
                                  struct store **out, struct error *err);
void store_close(struct store *s); /* NULL is allowed */
/* Newest profile of the cluster (by the hash of its text); else, with *exact false, of a cluster with the same name and the
 * same base devices, whose links, slowdowns and device names may differ. ERR_INPUT "no profile of cluster …; run musher profile"
 * without either: then *out_id is 0, and -1 if the database cannot be read. */
MUST_CHECK enum status store_latest(struct store *s, uint64_t hash, const struct cluster *c,
                                    int64_t *out_id, bool *exact, struct error *err);
MUST_CHECK enum status store_load(struct store *s, struct arena *a, int64_t id, struct profile *out,
                                  struct error *err);
/* Stores p as a new profile; sets p->id. */
MUST_CHECK enum status store_append(struct store *s, struct profile *p, struct error *err);
/* The same for a profile that is committed together with other outputs: calls inside after all rows are written and before the
 * commit. If inside fails the database is unchanged. If the commit fails the caller must undo the effects of inside. */
MUST_CHECK enum status store_append_with(struct store *s, struct profile *p,
                                         enum status (*inside)(void *user, struct error *err),
                                         void *user, struct error *err);

#endif
