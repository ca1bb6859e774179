/* core/model/parameter_server.h - how a parameter server applies gradients: of a plan's `parameter_server`, and of its program.
 *
 * Workers push the gradient of their share of the microbatches and pull parameters; servers hold parameters and optimizer state (Li et
 * al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"). A clock is one push and one pull of a worker.
 * BSP  bulk synchronous: one update a clock, with the sum of all workers' gradients in the order of the workers
 * SSP  stale synchronous (Ho et al. 2013): an update for each push; a worker begins its clock c, counted from 0, when every worker has
 *      finished c - bound clocks. With bound 0 it is BSP
 * ASP  asynchronous (Recht et al. 2011, "Hogwild!"; Dean et al. 2012, "DistBelief"): an update for each push, no worker waits for another
 * Version: the number of updates that a server has applied. Staleness of a push: the server's version when it is handled, less the
 * version that its worker pulled last. */
#ifndef CORE_MODEL_PARAMETER_SERVER_H
#define CORE_MODEL_PARAMETER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

enum server_mode { SERVER_BSP, SERVER_SSP, SERVER_ASP };
enum server_rate {
    SERVER_CONSTANT,
    SERVER_INVERSE /* lr / (staleness + 1) (Zhang et al. 2016, "Staleness-aware Async-SGD") */
};

struct parameter_server {
    int32_t n; /* servers; 0: none */
    enum server_mode mode;
    int32_t bound; /* clocks, of SSP; else 0 */
    enum server_rate rate;
    int32_t drop_above; /* a gradient of a larger staleness is dropped; -1: none is */
};

/* Whether a server applies each push when it arrives, so that the order of arrivals decides the result. */
static inline bool parameter_server_by_arrival(const struct parameter_server *x)
{
    return x->n > 0 && (x->mode == SERVER_ASP || (x->mode == SERVER_SSP && x->bound > 0));
}

#endif
