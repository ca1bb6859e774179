/* sim/engine/fold_internal.h - the state of one folding; for sim/engine/fold*.c alone. */
#ifndef SIM_ENGINE_FOLD_INTERNAL_H
#define SIM_ENGINE_FOLD_INTERNAL_H

#include "sim/engine/fold.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct named { /* one place in an open hash by key */
    uint64_t key;
    int32_t index; /* + 1; 0: empty */
};

struct folding {
    struct arena *a;
    const struct program *p;
    const struct sim_scale *scale;
    struct fold *out;
    int32_t *lane_of_stage, *chunk_of_stage; /* (n_stages) */
    int32_t *users;                          /* (n_links, 2) */
    int32_t *user; /* (n_links, 2) lane whose gradient all-reduces were counted last, + 1 */
    struct cost *cost;
    uint64_t *link_colour;   /* (n_links) by cost */
    uint64_t *colour, *next; /* (n_devices) */
    /* Position in its lane of the first instruction that names a channel, (n_channels), or a collective, (its members from
     * first_member[group] on); -1. */
    int64_t *sent_at, *received_at, *member_at;
    int32_t *first_member;
    int32_t *rep; /* (n_devices) first lane of the same colour */
    bool *pinned; /* (n_devices) keeps a colour of its own */
    struct named *names;
    size_t n_names; /* capacity, a power of two */
};

/* Counts the senders on each direction of each link; fold_alone: exactly one sends there, on a FIFO link. */
void fold_count_users(struct folding *f);
bool fold_alone(const struct folding *f, int32_t link, int32_t direction);

#endif
