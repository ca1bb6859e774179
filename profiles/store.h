/* profiles/store.h - the profile database (SQLite). SQL stops in store.c.
 *
 * STRICT tables; a profile and all its rows are appended in one transaction and never changed; every row carries a
 * CRC-32 of its content (SQLite does not see bit rot). A newer schema, a damaged row or a file that is no database is
 * ERR_INPUT with the table and row. Two writers: the second waits, then ERR_RESOURCE.
 */
#ifndef PROFILES_STORE_H
#define PROFILES_STORE_H

#include "core/error.h"
#include "profiles/profile.h"

#include <stdint.h>

struct arena;
struct store; /* opaque; its memory is the arena's, its handle is closed by store_close */

MUST_CHECK enum status store_open(struct arena *a, const char *path, bool create,
                                  struct store **out, struct error *err);
void store_close(struct store *s); /* NULL is fine */
/* Newest profile of a cluster (by cluster_hash). ERR_INPUT "no profile of cluster …; run musher profile" where there is none. */
MUST_CHECK enum status store_latest(struct store *s, uint64_t cluster_hash, const char *cluster,
                                    int64_t *out_id, struct error *err);
MUST_CHECK enum status store_load(struct store *s, struct arena *a, int64_t id, struct profile *out,
                                  struct error *err);
/* Stores p as a new profile; sets p->id. */
MUST_CHECK enum status store_append(struct store *s, struct profile *p, struct error *err);
MUST_CHECK enum status store_list(struct store *s, struct arena *a, struct profile **out, size_t *n,
                                  struct error *err); /* heads only */

#endif
