/* tests/support/deferred.h - a device that is late: the host's kernels behind a discrete memory and streams that run when they must.
 *
 * Its addresses are of memory that nobody may touch; the backend knows the real ones. What is asked of a stream is done by a
 * thread of its own (THREADS), or not before somebody waits for it, and then no more than that needs (LAZY): a wait that is
 * missing leaves something undone, every time. Bytes are the host backend's.
 * Everything is checked: addresses inside what was allocated, operands on the device, copies from and to pinned memory or the
 * device, nothing left allocated at close. One call can be made to fail, and the device to be lost from then on.
 */
#ifndef TESTS_SUPPORT_DEFERRED_H
#define TESTS_SUPPORT_DEFERRED_H

#include "exec/backend.h"

enum deferred_mode { DEFERRED_LAZY, DEFERRED_THREADS };

struct deferred_options {
    enum deferred_mode mode;
    int64_t fail_at; /* the call, from 1; 0: none */
    bool lost;       /* no call succeeds after that one, but release and close */
    int64_t memory_bytes;
    const char *name; /* of the GPU */
};
extern struct deferred_options deferred_options; /* read when a device is opened and described */

void deferred_backend(struct backend *out);
/* A backend_maker: "host" is the host's, "cuda" this. */
enum status deferred_backends(const char *kind, struct backend *out, struct error *err);
int64_t
deferred_calls(void); /* of this process, since the last fail_at was set by deferred_reset */
void deferred_reset(void);
int64_t deferred_left(void); /* pieces of memory that no close found released */

#endif
