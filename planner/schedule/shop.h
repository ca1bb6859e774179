/* planner/schedule/shop.h - a pipeline as a job-shop scheduling problem; the representation searched by schedule_find.
 *
 * Microbatches are equal, so some optimal schedule takes each type of operation of each stage in ascending microbatch order
 * (an exchange argument: every later operation finds its input as early, and memory is the same). What remains to decide is
 * one *word* per device: the sequence of its types. A type is F, I or W of one of the device's chunks; the j-th occurrence of
 * a type is microbatch j. A *node* is (type, microbatch).
 *
 * A shop can be reversed: operations in reverse order, precedences inverted, memory freed where it was taken. A reversed word
 * is a word of the reversed shop with the same makespan, so every forward procedure also works backwards.
 *
 * Ownership: the arena's. Nothing allocates after shop_make except shop_times_new.
 */
#ifndef PLANNER_SCHEDULE_SHOP_H
#define PLANNER_SCHEDULE_SHOP_H

#include "sim/pipeline/static.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { SHOP_F, SHOP_I, SHOP_W, SHOP_KINDS };
enum { SHOP_TYPES_MAX = 48 }; /* types a device: 16 chunks */

/* Bytes of a microbatch's buffers that are alive from F to I, from F to W and from I to W. A buffer ring has as many buffers as are ever
 * alive at once, and they are allocated at all times, so a device holds the sum of its rings' peaks. */
enum shop_life { SHOP_F_TO_I, SHOP_F_TO_W, SHOP_I_TO_W, SHOP_LIVES };
struct shop_rings {
    int64_t bytes[SHOP_LIVES];
};
/* Raises the peaks by an operation of this kind; done: counts with it. turned: of a reversed shop. */
void shop_rings_raise(int64_t most[SHOP_LIVES], bool turned, const int32_t done[SHOP_KINDS], int kind);
int64_t shop_rings_bytes(const struct shop_rings *r, const int64_t most[SHOP_LIVES]);
/* Bytes of the rings in an order of F, I and W. O(operations). */
int64_t shop_rings_needed(const struct shop_rings *r, const struct schedule_lane *l);

struct shop_type {
    int64_t ns,
        bytes; /* bytes: signed change, before the operation where positive, after it where negative */
    int64_t occupancy_ns, latency_ns; /* of the message to `after`; 0 within a device */
    int32_t before, after; /* types whose j-th node precedes and succeeds this type's j-th; -1: none */
    int32_t own_before;    /* predecessor on the same device without a message (I before W); -1: none */
    int32_t device;
};
struct shop {
    int32_t n_devices, n_types, microbatches; /* n_types: a device, chunk · SHOP_KINDS + kind */
    int64_t length, n_nodes;                  /* of a device's word; of all words */
    struct shop_type *type;                   /* (n_devices, n_types) */
    int64_t *held, *limit;                    /* (n_devices) bytes at the start; capacity */
    /* (n_devices, n_types) the types of one microbatch in a topological order */
    uint8_t *chain;
    /* (n_devices) upper bound of the bytes taken by one microbatch from any state on: with this much free memory everything
     * that has begun can finish. Defined if a begun microbatch never holds less than 0 bytes and ends with 0; else -1 */
    int64_t *rise;
    bool turned; /* reversed */
    /* (n_devices) of one chunk a device; NULL: buffers are freed, and types' bytes say by which operation */
    const struct shop_rings *rings;
};
/* A fused backward is an I of its length and a W of length 0. No rings. ERR_INPUT: several pairs of stages share a route between devices
 * (their order depends on the times), or more than 16 chunks. */
MUST_CHECK enum status shop_make(struct arena *a, const struct pipeline *p,
                                 const struct schedule *shape, struct shop *out, struct error *err);
void shop_turn(struct arena *a, const struct shop *s, struct shop *out);

/* Random numbers of core/base/rng, sixteen bits of a draw at a time. */
struct shop_random {
    uint64_t seed, stream, draws, bits;
    int32_t left; /* pieces of bits */
};
uint64_t shop_draw(struct shop_random *r, uint64_t n); /* 0 … n-1, n > 0 */

/* Timing of a set of words, reused from one set to the next. */
struct shop_times {
    int64_t *end;     /* (n_nodes) */
    int64_t *arrival; /* (n_nodes) arrival of the node's message at its successor */
    /* (n_nodes) tail: longest path from the node's start to the end of all; makespan - rest is its latest start */
    int64_t *rest;
    int64_t *left;   /* (n_nodes) the same from the departure of its message */
    uint32_t *order; /* (n_nodes) a topological order */
    int32_t *done;   /* (n_devices, n_types) */
    int64_t *free;   /* (n_devices) */
    int64_t *at;     /* (n_devices) */
    int64_t makespan_ns;
};
void shop_times_new(struct arena *a, const struct shop *s, struct shop_times *out);
/* Times a word: (n_devices, length). false: deadlock. Memory is not checked. O(nodes). */
bool shop_time(const struct shop *s, const uint8_t *word, struct shop_times *t);
void shop_rest(const struct shop *s, struct shop_times *t); /* after shop_time */
/* Whether the word stays within the device's memory at every position. */
bool shop_fits(const struct shop *s, int32_t device, const uint8_t *word);
/* Whether the device can finish its microbatches one after the other, oldest first, from this state (done: (n_types) counts,
 * held: bytes). */
bool shop_safe(const struct shop *s, int32_t device, const int32_t *done, int64_t held);

/* Dispatching rule of the list scheduler. */
struct shop_rule {
    /* (n_nodes) least first */
    const int64_t *priority;
    /* 0: a device never idles while a node is ready (non-delay schedules); 1024: it may wait for any node that starts before
     * the shortest ready one ends (active schedules, Giffler and Thompson, Operations Research 8, 1960); between: in
     * proportion */
    int32_t patience;
    /* (n_devices) limit of microbatches between F and I of its first chunk (not of a reversed shop); NULL: memory only */
    const int32_t *flight;
};
struct shop_list; /* opaque: state of the list scheduler */
struct shop_list *shop_list_new(struct arena *a, const struct shop *s);
/* List scheduling. Never enters a state in which memory causes a deadlock. false: a single microbatch does not fit.
 * O(nodes · (devices + types)). */
bool shop_dispatch(struct shop_list *l, const struct shop_rule *r, uint8_t *word);

#endif
