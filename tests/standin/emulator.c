/* tests/standin/emulator.c - a kernel's blocks one after the other, a block's threads as fibers.
 *
 * All of a launch happens on the OS thread of its stream. A thread of a block runs until it waits at a barrier or for the
 * lanes of its warp; only there another takes over. One fiber runs threads one after the other as long as none waits, so
 * a kernel without barriers costs little more than a loop; each thread that waits keeps its fiber, and another one goes
 * on with those that have not begun. So a lane never sees what another one wrote after the last barrier unless that one
 * happens to have run before it: orders drawn from a seed show who relies on that.
 * Discarded: an OS thread for each of a block's threads (a thousand of them, and the order by chance).
 * Ownership: a machine (fibers, stacks) belongs to its OS thread and goes with it.
 */
#include "tests/standin/emulator.h"

#include "tests/standin/fiber.h"
#include "tests/standin/shared_memory.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1, LAUNCH_FAILURE = 719 };

enum lane_state { LANE_NEW, LANE_GOES, LANE_BARRIER, LANE_WARP, LANE_ENDED };

struct lane { /* one thread of the block */
    enum lane_state state;
    int line; /* where it waits */
    int32_t fiber;
    unsigned mask; /* of the warp operation it waits in */
    const char *operation;
    standin_exchange *exchange;
    void *deposit;
};

struct copy_later {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    int32_t group;
};

struct copies { /* of a lane, in the order they were asked */
    struct copy_later *list;
    int32_t n, room;
    int32_t group; /* that is open; those before it are committed */
};

struct machine { /* what one OS thread runs kernels with */
    const struct standin_kernel *kernel;
    struct fiber home;
    struct fiber fibers[STANDIN_BLOCK_MAX];
    int32_t n_fibers;
    int32_t idle[STANDIN_BLOCK_MAX]; /* fibers that run no thread, a stack */
    int32_t n_idle;
    struct lane lanes[STANDIN_BLOCK_MAX];
    struct copies copies[STANDIN_BLOCK_MAX];
    unsigned in_warp[(STANDIN_BLOCK_MAX + STANDIN_WARP - 1) / STANDIN_WARP]; /* lanes of each warp that wait in a warp operation */
    int32_t n; /* threads of the block */
    int32_t begun, ended;
    int32_t ready
        [STANDIN_BLOCK_MAX]; /* lanes that may go on; a ring in order of release, any of them under a seed */
    int32_t ready_from, n_ready;
    int32_t at_barrier,
        predicates; /* waiting; and how many of them brought a predicate that holds */
    int32_t barrier_result;
    int32_t fiber, lane; /* that run */
    bool trapped;
    uint64_t seed, random;
    int32_t step, offset; /* the i-th thread to begin is (i·step + offset) mod n */
    void *shared;
};

__thread struct standin_coordinates standin_now;
static __thread struct machine *machine;
static pthread_key_t machine_key;
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;
static uint64_t order_seed;

static void machine_free(void *p)
{
    struct machine *m = p;
    for (int32_t i = 0; i < m->n_fibers; i++) fiber_free(&m->fibers[i]);
    for (int32_t i = 0; i < STANDIN_BLOCK_MAX; i++) free(m->copies[i].list);
    free(m);
}

static void machine_init(void)
{
    pthread_key_create(&machine_key, machine_free);
    const char *text = getenv("STANDIN_ORDER");
    if (text) __atomic_store_n(&order_seed, strtoull(text, NULL, 10), __ATOMIC_RELAXED);
}

void standin_order(uint64_t seed)
{
    pthread_once(&machine_once, machine_init);
    __atomic_store_n(&order_seed, seed, __ATOMIC_RELAXED);
}

static struct machine *machine_here(void)
{
    if (machine) return machine;
    pthread_once(&machine_once, machine_init);
    machine = calloc(1, sizeof *machine);
    if (!machine) abort();
    fiber_adopt(&machine->home);
    pthread_setspecific(machine_key, machine);
    return machine;
}

static uint64_t draw(struct machine *m, uint64_t below)
{
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (m->random >> 33) % below;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* i -> (i·step + offset) mod n meets every number below n once; the identity where there is no seed. */
static void draw_permutation(struct machine *m, int64_t n, int64_t *step, int64_t *offset)
{
    *step = 1, *offset = 0;
    if (!m->seed || n < 2) return;
    *offset = (int64_t)draw(m, (uint64_t)n);
    do *step = 1 + (int64_t)draw(m, (uint64_t)n);
    while (common_divisor(*step, n) != 1);
}

static struct standin_index index_of(int64_t number, struct standin_index dim)
{
    return (struct standin_index){(unsigned)(number % dim.x), (unsigned)(number / dim.x % dim.y),
                                  (unsigned)(number / dim.x / dim.y)};
}

void standin_bug(const char *text, ...)
{
    fprintf(stderr, "stand-in: kernel %s, block (%u,%u,%u), thread (%u,%u,%u): ",
            machine && machine->kernel ? machine->kernel->name : "?", standin_now.block.x,
            standin_now.block.y, standin_now.block.z, standin_now.thread.x, standin_now.thread.y,
            standin_now.thread.z);
    va_list ap;
    va_start(ap, text);
    vfprintf(stderr, text, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

/* --- who runs next --- */

static void run_as(struct machine *m, int32_t lane)
{
    m->lane = lane;
    m->lanes[lane].state = LANE_GOES;
    standin_now.thread = index_of(lane, m->kernel->block);
}

static void make_ready(struct machine *m, int32_t lane)
{
    m->lanes[lane].state = LANE_GOES;
    m->ready[(m->ready_from + m->n_ready++) % STANDIN_BLOCK_MAX] = lane;
}

static int32_t take_ready(struct machine *m)
{
    if (m->seed) { /* any of them: the first changes places with it */
        int32_t *a = &m->ready[m->ready_from];
        int32_t *b =
            &m->ready[(m->ready_from + (int32_t)draw(m, (uint64_t)m->n_ready)) % STANDIN_BLOCK_MAX];
        int32_t t = *a;
        *a = *b, *b = t;
    }
    int32_t lane = m->ready[m->ready_from];
    m->ready_from = (m->ready_from + 1) % STANDIN_BLOCK_MAX;
    m->n_ready--;
    return lane;
}

static int32_t take_new(struct machine *m)
{
    int64_t i = m->begun++;
    int32_t lane = (int32_t)((i * m->step + m->offset) % m->n);
    m->lanes[lane].fiber = m->fiber;
    return lane;
}

static void fiber_main(void);

static int32_t idle_fiber(struct machine *m)
{
    if (m->n_idle) return m->idle[--m->n_idle];
    fiber_make(&m->fibers[m->n_fibers], fiber_main);
    return m->n_fibers++;
}

/* Under a seed a thread that has not begun is as good as one that may go on. */
static bool prefers_new(struct machine *m)
{
    if (m->begun == m->n) return false;
    if (!m->n_ready) return true;
    return m->seed && draw(m, 2);
}

static void change_fiber(struct machine *m, int32_t to)
{
    if (to == m->fiber) return;
    struct fiber *from = m->fiber == NOBODY ? &m->home : &m->fibers[m->fiber];
    m->fiber = to;
    fiber_switch(from, to == NOBODY ? &m->home : &m->fibers[to]);
}

/* The running lane waits, or its fiber has nothing to run: another goes on. Returns when the lane may go on; under a seed
 * even the last to come may find others before it. */
static void yield_turn(struct machine *m)
{
    if (prefers_new(m))
        change_fiber(m, idle_fiber(m));
    else if (m->n_ready) {
        int32_t next = take_ready(m);
        run_as(m, next);
        if (m->lanes[next].fiber != m->fiber) change_fiber(m, m->lanes[next].fiber);
    } else
        change_fiber(m, NOBODY);
}

static void fiber_main(void)
{
    struct machine *m = machine;
    for (;;) {
        while (prefers_new(m)) {
            run_as(m, take_new(m));
            m->kernel->body(m->kernel->arguments);
            m->lanes[m->lane].state = LANE_ENDED;
            m->ended++;
        }
        m->idle[m->n_idle++] = m->fiber;
        yield_turn(m);
    }
}

/* --- barriers and warps --- */

static void report_thread(const struct machine *m, int32_t lane)
{
    struct standin_index t = index_of(lane, m->kernel->block);
    fprintf(stderr, "thread (%u,%u,%u)", t.x, t.y, t.z);
}

int standin_barrier_count(int predicate, int line)
{
    struct machine *m = machine;
    int32_t lane = m->lane;
    for (int32_t i = 0; m->at_barrier && i < m->n; i++) {
        if (m->lanes[i].state != LANE_BARRIER) continue;
        if (m->lanes[i].line != line)
            standin_bug("at the barrier of line %d while others wait at that of line %d", line,
                        m->lanes[i].line);
        break;
    }
    m->predicates += predicate != 0;
    m->lanes[lane].state = LANE_BARRIER;
    m->lanes[lane].line = line;
    if (++m->at_barrier < m->n)
        yield_turn(m);
    else {
        m->barrier_result = m->predicates;
        m->at_barrier = m->predicates = 0;
        for (int32_t i = 0; i < m->n; i++)
            if (i != lane || m->seed) make_ready(m, i);
        if (m->seed)
            yield_turn(m);
        else
            run_as(m, lane);
    }
    return m->barrier_result;
}

void standin_barrier(int line) { (void)standin_barrier_count(0, line); }

/* Ends the process where lane i of the warp, which waits, does so for something else than the calling lane, whose mask it is in. */
static void check_warp(const struct lane *mine, const struct lane *l, int32_t i)
{
    if (l->mask != mine->mask || l->exchange != mine->exchange)
        standin_bug("%s of line %d with mask %08x, while lane %d of its warp waits in %s of "
                    "line %d with mask %08x",
                    mine->operation, mine->line, mine->mask, i, l->operation, l->line, l->mask);
}

/* Whether all lanes of the calling lane's mask wait. They then wait for the same thing; before that the first of them does, so that
 * a warp operation costs one pass over its lanes. */
static bool all_came(const struct machine *m, int32_t first, int32_t lane)
{
    const struct lane *mine = &m->lanes[lane];
    unsigned came = m->in_warp[first / STANDIN_WARP] & mine->mask;
    if (came != mine->mask) came &= -came; /* the lowest */
    for (unsigned left = came; left; left &= left - 1) {
        int32_t i = __builtin_ctz(left);
        check_warp(mine, &m->lanes[first + i], i);
    }
    return came == mine->mask;
}

void standin_warp(const char *operation, unsigned mask, standin_exchange *exchange, void *deposit,
                  int line)
{
    struct machine *m = machine;
    int32_t lane = m->lane, first = lane / STANDIN_WARP * STANDIN_WARP, at = lane - first;
    if (!(mask >> at & 1))
        standin_bug("%s of line %d with mask %08x, which lacks the calling lane %d", operation,
                    line, mask, at);
    if (m->n - first < STANDIN_WARP && mask >> (m->n - first))
        standin_bug("%s of line %d with mask %08x, but its warp has %d lanes", operation, line,
                    mask, m->n - first);
    struct lane *mine = &m->lanes[lane];
    mine->state = LANE_WARP;
    mine->line = line;
    mine->mask = mask;
    mine->operation = operation;
    mine->exchange = exchange;
    mine->deposit = deposit;
    m->in_warp[first / STANDIN_WARP] |= 1u << at;
    if (!all_came(m, first, lane)) {
        yield_turn(m);
        return;
    }
    m->in_warp[first / STANDIN_WARP] &= ~mask;
    void *deposits[STANDIN_WARP] = {NULL};
    for (int32_t i = 0; i < STANDIN_WARP; i++)
        if (mask >> i & 1) deposits[i] = m->lanes[first + i].deposit;
    if (exchange) exchange(deposits, mask);
    for (int32_t i = 0; i < STANDIN_WARP; i++)
        if (mask >> i & 1 && (first + i != lane || m->seed)) make_ready(m, first + i);
    if (m->seed)
        yield_turn(m);
    else
        run_as(m, lane);
}

/* --- copies that arrive later --- */

void standin_copy_later(void *shared, const void *from, size_t bytes)
{
    struct copies *c = &machine->copies[machine->lane];
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 16;
        c->list = realloc(c->list, (size_t)c->room * sizeof *c->list);
        if (!c->list) abort();
    }
    c->list[c->n++] = (struct copy_later){shared, from, bytes, c->group};
}

void standin_copies_commit(void) { machine->copies[machine->lane].group++; }

void standin_copies_wait(int pending)
{
    struct copies *c = &machine->copies[machine->lane];
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const struct copy_later *l = &c->list[i];
        if (l->group >= c->group - pending)
            c->list[kept++] = *l;
        else if (l->from)
            memcpy(l->to, l->from, l->bytes);
        else
            memset(l->to, 0, l->bytes);
    }
    c->n = kept;
}

void standin_trap(void)
{
    struct machine *m = machine;
    m->trapped = true;
    change_fiber(m, NOBODY);
    abort();
}

void *standin_dynamic_shared(void) { return machine->shared; }

/* --- blocks --- */

/* Nobody can go on and some wait: who, where, and who never came. */
static void stuck(const struct machine *m)
{
    int32_t waits = NOBODY, missing = NOBODY;
    for (int32_t i = 0; i < m->n; i++)
        if (m->lanes[i].state != LANE_ENDED && waits == NOBODY) waits = i;
    const struct lane *w = &m->lanes[waits];
    bool warp = w->state == LANE_WARP;
    int32_t first = waits / STANDIN_WARP * STANDIN_WARP;
    for (int32_t i = 0; i < m->n && missing == NOBODY; i++) {
        bool expected =
            !warp || (i >= first && i < first + STANDIN_WARP && w->mask >> (i - first) & 1);
        if (expected && (m->lanes[i].state != w->state || (warp && m->lanes[i].mask != w->mask)))
            missing = i;
    }
    fprintf(stderr, "stand-in: kernel %s, block (%u,%u,%u): ", m->kernel->name, standin_now.block.x,
            standin_now.block.y, standin_now.block.z);
    report_thread(m, waits);
    fprintf(stderr, " waits at the %s of line %d, which ", warp ? w->operation : "barrier",
            w->line);
    if (missing == NOBODY)
        fprintf(stderr, "nobody misses");
    else {
        const struct lane *l = &m->lanes[missing];
        report_thread(m, missing);
        if (l->state == LANE_ENDED)
            fprintf(stderr, " missed: it has ended");
        else
            fprintf(stderr, " missed: it waits at the %s of line %d",
                    l->state == LANE_WARP ? l->operation : "barrier", l->line);
    }
    fputc('\n', stderr);
    abort();
}

static void run_block(struct machine *m)
{
    memset(m->lanes, 0, (size_t)m->n * sizeof *m->lanes);
    memset(m->in_warp, 0, sizeof m->in_warp);
    m->begun = m->ended = 0;
    m->ready_from = m->n_ready = 0;
    m->at_barrier = m->predicates = 0;
    for (int32_t i = 0; i < m->n; i++) m->copies[i].n = m->copies[i].group = 0;
    int64_t step, offset;
    draw_permutation(m, m->n, &step, &offset);
    m->step = (int32_t)step, m->offset = (int32_t)offset;
    change_fiber(m, idle_fiber(m));
    if (m->trapped) return;
    if (m->ended < m->n) stuck(m);
}

/* What fibers were doing in a block that a trap ended is forgotten. */
static void restart_fibers(struct machine *m)
{
    m->n_idle = 0;
    for (int32_t i = 0; i < m->n_fibers; i++) {
        fiber_restart(&m->fibers[i]);
        m->idle[m->n_idle++] = i;
    }
}

int standin_run(const struct standin_kernel *k)
{
    struct machine *m = machine_here();
    m->kernel = k;
    m->fiber = NOBODY;
    m->trapped = false;
    m->n = (int32_t)(k->block.x * k->block.y * k->block.z);
    m->seed = m->random = __atomic_load_n(&order_seed, __ATOMIC_RELAXED);
    standin_now.block_dim = k->block;
    standin_now.grid_dim = k->grid;
    m->shared = shared_dynamic_new(k->shared_bytes);
    const struct shared_variables *variables = shared_variables_of(k->function);
    shared_variables_poison_all(variables);
    int64_t blocks = (int64_t)k->grid.x * k->grid.y * k->grid.z, step, offset;
    draw_permutation(m, blocks, &step, &offset);
    for (int64_t i = 0; i < blocks && !m->trapped; i++) {
        standin_now.block = index_of((i * step + offset) % blocks, k->grid);
        shared_variables_poison(variables);
        shared_dynamic_poison(m->shared, k->shared_bytes);
        run_block(m);
    }
    shared_dynamic_free(m->shared);
    if (m->trapped) restart_fibers(m);
    m->kernel = NULL;
    return m->trapped ? LAUNCH_FAILURE : 0;
}
