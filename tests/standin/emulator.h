/* tests/standin/emulator.h - executes kernels on CPU threads: blocks, threads of a block, barriers, warps.
 *
 * C interface; the C++ wrappers are in cuda_runtime.h. Undefined behaviour of a kernel (a barrier that not all
 * threads of a block reach, a warp operation whose lanes disagree) ends the process with a message that names kernel,
 * block and thread.
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

/* Coordinates of the running kernel thread; set at every switch. Read in inner loops, hence the TLS model. */
struct standin_coordinates {
    struct standin_index thread, block, block_dim, grid_dim;
};
extern __thread struct standin_coordinates standin_now __attribute__((tls_model("initial-exec")));

struct standin_kernel {
    const char *name;     /* for messages */
    const void *function; /* address of the kernel, the key of its attributes */
    void (*body)(void *arguments); /* one thread of it */
    void *arguments;
    struct standin_index grid, block;
    size_t shared_bytes;
};

/* Runs all blocks, one after the other, on the calling OS thread. 0, or 719 after __trap. */
int standin_run(const struct standin_kernel *k);

/* Start and resume order of blocks and threads, drawn from the seed; 0: ascending. From the next launch on.
 * STANDIN_ORDER in the environment is the first seed. */
void standin_order(uint64_t seed);

/* --- called by running kernels --- */

/* Of this block, filled with NaNs at its start. */
void *standin_dynamic_shared(void);
void standin_barrier(int line);
/* Like standin_barrier; returns the number of threads with a non-zero predicate. */
int standin_barrier_count(int predicate, int line);
/* Waits for the lanes of mask; the last one to arrive calls exchange with the deposits of all, NULL for lanes not in
 * mask. */
typedef void standin_exchange(void **deposits, unsigned mask);
void standin_warp(const char *operation, unsigned mask, standin_exchange *exchange, void *deposit,
                  int line);
/* cp.async of the calling thread: bytes to shared memory (from NULL: zeros) that arrive when it waits for their
 * group, not earlier; wait: for all but the last `pending` groups. */
void standin_copy_later(void *shared, const void *from, size_t bytes);
void standin_copies_commit(void);
void standin_copies_wait(int pending);
__attribute__((noreturn)) void standin_trap(void);
/* Reports a kernel's error with kernel, block and thread, and aborts. */
__attribute__((noreturn, format(printf, 1, 2))) void standin_bug(const char *text, ...);

#ifdef __cplusplus
}
#endif

#endif
