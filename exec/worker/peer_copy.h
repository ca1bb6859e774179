/* exec/worker/peer_copy.h - the copy of a rank's checkpoint in the memory of a peer node, sent between the run's own messages (Gemini, SOSP 2023).
 *
 * On an emulated cluster a chunk occupies a link between the two nodes, that of the run's own messages where there are some, for its bytes over
 * the bandwidth. It is sent only while the link is idle, and lasts at most a millisecond, which is what a message may have to wait. A link without an idle
 * moment is idle at the next checkpoint, which waits for the copy. Between nodes without a link of the run, and on a
 * real host, a chunk is a copy in memory, and as much time passes before the next, so that at most half of one processor's memory
 * bandwidth is taken.
 *
 * Gemini sends in idle spans that it has profiled. Looking at the link needs no profile; it is possible because the clocks of emulated links are
 * shared memory. */
#ifndef EXEC_WORKER_PEER_COPY_H
#define EXEC_WORKER_PEER_COPY_H

#include "exec/checkpoint/memory.h"
#include "exec/host_transport/wire.h"

struct rank;

/* The node of a rank's device, and its peer among the nodes of the program; 0: none. */
void peer_copy_nodes(const struct program *p, int32_t rank, uint64_t *home, uint64_t *peer);
/* By the thread that writes checkpoints, after checkpoint_memory_end. */
MUST_CHECK enum status peer_copy(const struct rank *r, struct wires *wires, struct checkpoint_memory_writer *w, int64_t step, struct error *err);

#endif
