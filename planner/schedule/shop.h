/* planner/schedule/shop.h - the order of a pipeline as a shop of machines: what schedule_find searches on.
 *
 * Microbatches are alike, so that some best schedule takes each kind of operation of each stage by ascending number
 * (exchange two that are not: every later operation finds its input as early, and as much is held). What is left to decide
 * is a *word* a device: the sequence of its types, where a type is F, I or W of one of its chunks and the j-th letter of a
 * type is microbatch j. A *node* is (type, microbatch).
 *
 * A shop can be turned round: the last operation first, every arrow turned, memory given back where it was taken. A word
 * read backwards is a word of the turned shop with the same makespan, so everything here that looks ahead also looks back.
 *
 * Ownership: the arena's. Nothing here allocates after shop_make, but for shop_times_new.
 */
#ifndef PLANNER_SCHEDULE_SHOP_H
#define PLANNER_SCHEDULE_SHOP_H

#include "sim/pipeline/static.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { SHOP_F, SHOP_I, SHOP_W, SHOP_KINDS };
enum { SHOP_TYPES_MAX = 48 }; /* types a device: 16 chunks */

struct shop_type {
    int64_t ns,
        bytes; /* bytes: signed change, before the operation where positive, after it where negative */
    int64_t occupancy_ns, latency_ns; /* of the message to `after`; 0 within a device */
    int32_t before, after; /* the types whose j-th hands over to and takes from our j-th; -1 */
    int32_t own_before;    /* on the same device and free of messages (I before W); -1 */
    int32_t device;
};
struct shop {
    int32_t n_devices, n_types, microbatches; /* n_types: a device, chunk · SHOP_KINDS + kind */
    int64_t length, n_nodes;                  /* of a device's word; of all words */
    struct shop_type *type;                   /* (n_devices, n_types) */
    int64_t *held, *limit;                    /* (n_devices) bytes at the start; most */
    /* (n_devices, n_types) the types of one microbatch in an order in which they can be done */
    uint8_t *chain;
    /* (n_devices) only the first of the chain takes memory: what fits never blocks */
    bool *monotone;
    /* (n_devices) bytes that one microbatch takes at most from any state on, where what is begun never holds less than
     * nothing and ends with nothing held: with so much room all that is begun can be ended. -1: not so */
    int64_t *rise;
    bool turned;
};
/* One chunk of a stage that has a fused backward is I of that length and W of none. ERR_INPUT: a way between devices that
 * several pairs of stages occupy (their order depends on the times), more than 16 chunks. */
MUST_CHECK enum status shop_make(struct arena *a, const struct pipeline *p,
                                 const struct schedule *shape, struct shop *out, struct error *err);
void shop_turn(struct arena *a, const struct shop *s, struct shop *out);

/* Random numbers of core/base/rng, sixteen bits of a draw at a time. */
struct shop_random {
    uint64_t seed, stream, draws, bits;
    int32_t left; /* pieces of bits */
};
uint64_t shop_draw(struct shop_random *r, uint64_t n); /* 0 … n-1, n > 0 */

/* Starts, ends and ways to the end, of one word after another. */
struct shop_times {
    int64_t *end;     /* (n_nodes) */
    int64_t *arrival; /* (n_nodes) of what the node sends, at who waits for it */
    /* (n_nodes) longest way from the node's start to the end of all: makespan - rest is its latest start */
    int64_t *rest;
    int64_t *left;   /* (n_nodes) the same from the moment its message has left */
    uint32_t *order; /* (n_nodes) nodes in an order in which they can be executed */
    int32_t *done;   /* (n_devices, n_types) */
    int64_t *free;   /* (n_devices) */
    int64_t *at;     /* (n_devices) */
    int64_t makespan_ns;
};
void shop_times_new(struct arena *a, const struct shop *s, struct shop_times *out);
/* word: (n_devices, length). false: no progress. Memory is not asked. O(nodes). */
bool shop_time(const struct shop *s, const uint8_t *word, struct shop_times *t);
/* The same after a change of the word, where the first `from` nodes of t->order keep their places before it: only what
 * comes after them is timed again. at, done and free hold the devices' states there. */
bool shop_time_on(const struct shop *s, const uint8_t *word, struct shop_times *t, uint32_t from);
void shop_rest(const struct shop *s, struct shop_times *t); /* after shop_time */
/* The same where the rests of the nodes behind the first `to` of t->order are as they were; free holds the largest of each
 * device's nodes behind them. */
void shop_rest_on(const struct shop *s, struct shop_times *t, uint32_t to);
/* Does the word stay within the device's memory at every place? */
bool shop_fits(const struct shop *s, int32_t device, const uint8_t *word);
/* Can the device, in this state (done: of its types, held: bytes), finish one microbatch after the other from the oldest? */
bool shop_safe(const struct shop *s, int32_t device, const int32_t *done, int64_t held);

/* How to choose among what a device can do. */
struct shop_rule {
    /* (n_nodes) the least goes first */
    const int64_t *priority;
    /* 0: a device never waits while it can do something; 1024: it may wait for anything that would begin before the shortest
     * alternative ends (active schedules, Giffler and Thompson, Operations Research 8, 1960); between: in proportion */
    int32_t patience;
    /* (n_devices) most microbatches between F and I of its first chunk (not of a turned shop); NULL: as memory allows */
    const int32_t *flight;
};
struct shop_list; /* opaque: state of the list scheduler */
struct shop_list *shop_list_new(struct arena *a, const struct shop *s);
/* Plays the shop in time. Never runs into a state that memory does not let it leave. false: one microbatch alone does not fit.
 * O(nodes · (devices + types)). */
bool shop_dispatch(struct shop_list *l, const struct shop_rule *r, uint8_t *word);

#endif
