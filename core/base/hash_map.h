/* core/base/hash_map.h - a hash map from 64-bit keys to a number or a pointer.
 *
 * A key is the content itself, or its hash (hash_map_key): contents with one key are taken for one. Keys need not be spread evenly.
 * Open addressing, at most half full; memory is the arena's. O(1) a call.
 */
#ifndef CORE_BASE_HASH_MAP_H
#define CORE_BASE_HASH_MAP_H

#include <stddef.h>
#include <stdint.h>

struct arena;

struct hash_entry {
    uint64_t key; /* 0: free */
    union {
        int64_t number;
        void *pointer;
    };
};
struct hash_map { /* all zero but the arena: empty */
    struct arena *arena;
    size_t n, capacity; /* capacity: a power of two */
    struct hash_entry *entries;
};

/* A key of contents, a word at a time: several times as fast as rng_hash_bytes, and different on machines of another byte order, so not for
 * what is stored. */
uint64_t hash_map_key(uint64_t start, const void *p, size_t n);

/* The entry of a key, made if there is none; its value is 0 or NULL until it is set. Valid until the next call. */
struct hash_entry *hash_map_at(struct hash_map *x, uint64_t key);

#endif
