/* tests/support/stores.h - a database in a folder of its own, for the suites of the store. */
#ifndef TESTS_SUPPORT_STORES_H
#define TESTS_SUPPORT_STORES_H

#include "core/base/arena.h"
#include "core/base/error.h"

#include "tests/support/suites.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static struct error err;
static char folder[] = "/tmp/musher-store-XXXXXX", db[64];

static inline void stores_set_up(void)
{
    a = arena_new();
    memcpy(strrchr(folder, '-') + 1, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(db, sizeof db, "%s/profiles.db", folder);
}

static inline void stores_tear_down(void)
{
    unlink(db);
    unlink(arena_printf(a, "%s-journal", db));
    rmdir(folder);
    arena_free(a);
}

#endif
