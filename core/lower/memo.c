#include "core/lower/memo.h"

#include "core/lower/lower.h"

/* 256 MiB: about 2,000 sharded stages of ten layers. Dropping them costs the time of making them again, about a second. */
#define MEMO_BYTES ((size_t)256 * 1024 * 1024)
/* 96 MiB: about 150 lowered stages of 500 operators, of which those of the latest plans are asked for again. Operators lowered by the
 * searches of three bench questions (gpt-1.5b on 8 GPUs, qwen2-7b on 64, llama-70b on 512), in millions: none kept 5.6, 2.0, 1.4;
 * 32 MiB 3.0, 1.2, 1.1; 96 MiB 2.4, 1.0, 0.7; 192 MiB 2.2, 0.8, 0.5 with 60 to 100 MB more memory (2026-11-26). */
#define STAGES_BYTES ((size_t)96 * 1024 * 1024)

struct lower_memo *lower_memo_new(void)
{
    struct arena *own = arena_new();
    struct lower_memo *m = ARENA_ARRAY(own, struct lower_memo, 1);
    *m = (struct lower_memo){.own = own,
                             .contents = arena_new(),
                             .most = MEMO_BYTES,
                             .stages_arena = arena_new(),
                             .most_of_stages = STAGES_BYTES,
                             .tables = arena_new(),
                             .work = arena_new()};
    return m;
}

void lower_memo_free(struct lower_memo *m)
{
    if (!m) return;
    arena_free(m->contents);
    arena_free(m->stages_arena);
    arena_free(m->tables);
    arena_free(m->work);
    arena_free(m->own);
}

void lower_memo_begin(struct lower_memo *m)
{
    arena_reset(m->tables);
    arena_reset(m->work);
    m->lowerings++;
    bool drops = arena_bytes(m->contents) > m->most;
    if (drops || arena_used(m->stages_arena) > m->most_of_stages) {
        arena_reset(m->stages_arena); /* keeps its pages */
        m->stages = NULL;
    }
    if (!drops) return;
    arena_free(m->contents);
    m->contents = arena_new();
    m->views = NULL;
}
