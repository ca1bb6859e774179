/* tests/standin/emulator.h - kernels on CPU threads: blocks, threads of a block, barriers, warps.
 *
 * C below, C++ wrappers in cuda_runtime.h. Whatever a kernel does that CUDA leaves undefined (a barrier that not all
 * threads of a block reach, a warp operation whose lanes disagree) ends the process with a text that names kernel, block
 * and thread.
 */
#ifndef TESTS_STANDIN_EMULATOR_H
#define TESTS_STANDIN_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STANDIN_WARP = 32, STANDIN_BLOCK_MAX = 1024 };

struct standin_index {
    unsigned x, y, z;
};

/* Who the running kernel thread is; set anew whenever another one goes on. Read in inner loops, hence the model. */
struct standin_coordinates {
    struct standin_index thread, block, block_dim, grid_dim;
};
extern __thread struct standin_coordinates standin_now __attribute__((tls_model("initial-exec")));

struct standin_kernel {
    const char *name;     /* for messages */
    const void *function; /* the kernel itself: its address is what attributes are kept by */
    void (*body)(void *arguments); /* one thread of it */
    void *arguments;
    struct standin_index grid, block;
    size_t shared_bytes;
};

/* Every block, one after the other, on the calling OS thread. 0, or 719 after __trap. */
int standin_run(const struct standin_kernel *k);

/* Blocks and threads start, and go on after barriers, in an order drawn from the seed; 0: ascending. From the next launch
 * on. The environment's STANDIN_ORDER is the first seed. */
void standin_order(uint64_t seed);

/* --- called by running kernels --- */

/* Of this block, poisoned with NaNs at its start. */
void *standin_dynamic_shared(void);
void standin_barrier(int line);
/* As standin_barrier; the number of threads whose predicate was not 0. */
int standin_barrier_count(int predicate, int line);
/* Waits for the lanes of mask; the last to come calls exchange with what each deposited, NULL for lanes not in mask. */
typedef void standin_exchange(void **deposits, unsigned mask);
void standin_warp(const char *operation, unsigned mask, standin_exchange *exchange, void *deposit,
                  int line);
/* What cp.async of the calling thread is: 16 bytes or the like to shared memory (from NULL: zeros) that arrive when it waits for
 * the group they were committed to, and not before; all but the last `pending` groups. */
void standin_copy_later(void *shared, const void *from, size_t bytes);
void standin_copies_commit(void);
void standin_copies_wait(int pending);
__attribute__((noreturn)) void standin_trap(void);
/* A kernel did what it must not: says so with kernel, block and thread, and aborts. */
__attribute__((noreturn, format(printf, 1, 2))) void standin_bug(const char *text, ...);

#ifdef __cplusplus
}
#endif

#endif
