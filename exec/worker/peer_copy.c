#include "exec/worker/peer_copy.h"

#include "exec/clock.h"
#include "exec/worker/rank.h"

/* A chunk of a millisecond: a message between stages of the examples takes 0.1 to 10 ms on their links. Smaller chunks than 4 KiB would cost more in
 * wake-ups (50 us) than on a link of 100 MB/s; larger ones than 1 MiB gain nothing in a copy in memory. */
#define CHUNK_S 1e-3
#define CHUNK_BYTES_MIN (INT64_C(4) << 10)
#define CHUNK_BYTES_MAX (INT64_C(1) << 20)
#define LOOK_NS INT64_C(50000) /* between looks at a link whose end of work is not known: about the latency of a wake-up */

/* Numbers of nodes in the order of the devices; returns how many. */
static int32_t find_nodes(const struct program *p, uint64_t *nodes)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_devices && n < CHECKPOINT_MEMORY_RANKS_MAX; i++) {
        uint64_t node = checkpoint_memory_node(p->devices[i].name);
        int32_t k = 0;
        while (k < n && nodes[k] != node) k++;
        if (k == n) nodes[n++] = node;
    }
    return n;
}

void peer_copy_nodes(const struct program *p, int32_t rank, uint64_t *home, uint64_t *peer)
{
    uint64_t nodes[CHECKPOINT_MEMORY_RANKS_MAX];
    int32_t n = find_nodes(p, nodes), k = 0;
    *home = checkpoint_memory_node(p->devices[rank].name);
    while (nodes[k] != *home) k++;
    int32_t other = checkpoint_memory_peer(k, n);
    *peer = other < 0 ? 0 : nodes[other];
}

struct pacing {
    struct wires *wires;
    int32_t wire; /* -1: no emulated link */
    int64_t copied_ns; /* when the last chunk might be copied; 0: none yet */
};

/* A wire over an emulated link from one node to the other. */
static int32_t find_wire(const struct program *p, const struct wires *w, uint64_t home, uint64_t peer)
{
    for (int32_t i = 0; i < w->n; i++) {
        const struct wire *x = &w->wire[i];
        if (x->clock && checkpoint_memory_node(p->devices[x->from].name) == home && checkpoint_memory_node(p->devices[x->to].name) == peer) return i;
    }
    return -1;
}

static void pace(void *owner, int64_t bytes)
{
    struct pacing *x = owner;
    int64_t now_ns = clock_wall_ns(), until_ns;
    if (x->wire < 0) {
        if (x->copied_ns) clock_sleep_until(now_ns + (now_ns - x->copied_ns));
        x->copied_ns = clock_wall_ns();
        return;
    }
    while (!wires_fill(x->wires, x->wire, bytes, &until_ns)) {
        int64_t soonest_ns = clock_wall_ns() + LOOK_NS;
        until_ns += x->wires->zero_ns;
        clock_sleep_until(until_ns > soonest_ns ? until_ns : soonest_ns);
    }
    clock_sleep_until(x->wires->zero_ns + until_ns);
}

enum status peer_copy(const struct rank *r, struct wires *wires, struct checkpoint_memory_writer *w, int64_t step, struct error *err)
{
    struct pacing x = {.wires = wires, .wire = find_wire(r->p, wires, w->part->home, w->part->peer)};
    double bytes = x.wire < 0 ? 0 : CHUNK_S * wires->wire[x.wire].link->bandwidth_Bps;
    int64_t chunk = x.wire < 0 || bytes > (double)CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX : (int64_t)bytes;
    return checkpoint_memory_copy(w, step, chunk < CHUNK_BYTES_MIN ? CHUNK_BYTES_MIN : chunk, pace, &x, err);
}
