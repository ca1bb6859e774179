#include "exec/worker/run_board.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "exec/clock.h"
#include "exec/comm/launch_local.h"

#include <stdlib.h>

void run_board_start(struct run_board *b, bool changed)
{
    b->changed = changed;
    b->joined_ns = b->loaded_ns = b->begun_ns = b->first_ns = 0;
    for (int i = 0; i < LOCAL_RANKS_MAX; i++) b->unwritten[i] = 0;
    b->forked_ns = clock_wall_ns();
}

void run_board_joined(struct run_board *b)
{
    if (b) b->joined_ns = clock_wall_ns();
}

void run_board_loaded(struct run_board *b)
{
    if (b) b->loaded_ns = clock_wall_ns();
}

void run_board_begun(struct run_board *b, int64_t before)
{
    if (!b) return;
    int64_t now_ns = clock_wall_ns();
    b->last_ns = now_ns;
    b->begun_ns = now_ns;
    launch_local_wake(); /* times of faults count from here */
    if (!b->zero_ns) {
        b->before = before;
        b->zero_ns = now_ns;
    }
}

void run_board_step(struct run_board *b, int64_t number, int64_t ns, bool disturbed)
{
    if (!b) return;
    b->steps++;
    b->steps_ns += ns;
    b->step_ns[number % RUN_BOARD_STEPS] = disturbed || b->changed ? -ns : ns;
    b->last_ns = clock_wall_ns();
    if (!b->first_ns) b->first_ns = b->last_ns;
    b->ended = number;
}

void run_board_saved(struct run_board *b, bool memory, int64_t ns)
{
    if (!b) return;
    b->saves += !memory, b->memory_saves += memory;
    b->saves_ns += memory ? 0 : ns, b->memory_saves_ns += memory ? ns : 0;
    b->last_ns = clock_wall_ns();
}

int64_t run_board_time(const struct run_board *b, int64_t from, int64_t to)
{
    int64_t sum = 0;
    if (to - from > RUN_BOARD_STEPS) from = to - RUN_BOARD_STEPS;
    for (int64_t i = from + 1; i <= to; i++) sum += llabs(b->step_ns[i % RUN_BOARD_STEPS]);
    return sum;
}

static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

int64_t run_board_median(struct arena *a, const struct run_board *b)
{
    int64_t *of = ARENA_ARRAY(a, int64_t, RUN_BOARD_STEPS), n = 0;
    for (int pass = 0; pass < 2 && !n; pass++)
        for (int64_t i = 0; i < RUN_BOARD_STEPS; i++)
            if (b->step_ns[i] > 0 || (pass && b->step_ns[i])) of[n++] = llabs(b->step_ns[i]);
    if (!n) return 0;
    qsort(of, (size_t)n, sizeof *of, by_value);
    return of[n / 2];
}
