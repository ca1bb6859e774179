#include "core/lower/memo.h"

#include "core/lower/lower.h"

/* 256 MiB: about 2,000 sharded stages of ten layers. Dropping them costs the time of making them again, about a second. */
#define MEMO_BYTES ((size_t)256 * 1024 * 1024)

struct lower_memo *lower_memo_new(void)
{
    struct arena *own = arena_new();
    struct lower_memo *m = ARENA_ARRAY(own, struct lower_memo, 1);
    *m = (struct lower_memo){.own = own,
                             .contents = arena_new(),
                             .most = MEMO_BYTES,
                             .tables = arena_new(),
                             .work = arena_new()};
    return m;
}

void lower_memo_free(struct lower_memo *m)
{
    if (!m) return;
    arena_free(m->contents);
    arena_free(m->tables);
    arena_free(m->work);
    arena_free(m->own);
}

void lower_memo_begin(struct lower_memo *m)
{
    arena_reset(m->tables);
    arena_reset(m->work);
    m->lowerings++;
    if (arena_bytes(m->contents) <= m->most) return;
    arena_reset(m->contents); /* keeps its pages */
    m->views = NULL, m->stages = NULL;
}
