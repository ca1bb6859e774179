/* tests/standin/nccl_given_up.c - communicators that were destroyed or given up, by address: nothing may be asked of them any more.
 *
 * The real library has freed them by then, or is about to in a thread of its own. An address that is a new communicator's is no old
 * one's. Relaxed atomics throughout: whoever looks here is not thereby ordered with other threads.
 */
#include "tests/standin/nccl_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { GONE_MAX = 256 };

static _Atomic(const void *) gone[GONE_MAX];

static bool replace(const void *old, const void *by)
{
    for (int i = 0; i < GONE_MAX; i++) {
        const void *seen = old;
        if (atomic_compare_exchange_strong_explicit(&gone[i], &seen, by, memory_order_relaxed, memory_order_relaxed))
            return true;
    }
    return false;
}

void nccl_made(struct ncclComm *c) { (void)replace(c, NULL); }

void nccl_gone(struct ncclComm *c)
{
    if (!replace(NULL, c)) abort(); /* more than anybody gives up */
}

void nccl_need(struct ncclComm *c, const char *call)
{
    for (int i = 0; c && i < GONE_MAX; i++)
        if (atomic_load_explicit(&gone[i], memory_order_relaxed) == c) {
            fprintf(stderr, "%s of a communicator that was given up\n", call);
            abort();
        }
}
