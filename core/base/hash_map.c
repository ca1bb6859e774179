#include "core/base/hash_map.h"

#include "core/base/arena.h"

#include <string.h>

enum { FIRST_CAPACITY = 256 };

/* The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA'14). */
static uint64_t spread(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* FNV-1a over words (Fowler, Noll, Vo), with the high half mixed in after each. */
uint64_t hash_map_key(uint64_t start, const void *p, size_t n)
{
    const unsigned char *at = p;
    uint64_t h = start ^ UINT64_C(0xCBF29CE484222325), length = n, word;
    for (; n >= sizeof word; at += sizeof word, n -= sizeof word) {
        memcpy(&word, at, sizeof word);
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    word = 0;
    if (n) memcpy(&word, at, n);
    return spread((h ^ word) * UINT64_C(0x9E3779B97F4A7C15) + length);
}

static struct hash_entry *find(const struct hash_map *x, uint64_t key)
{
    size_t at = (size_t)spread(key) & (x->capacity - 1);
    while (x->entries[at].key && x->entries[at].key != key) at = (at + 1) & (x->capacity - 1);
    return &x->entries[at];
}

static void grow(struct hash_map *x)
{
    struct hash_map old = *x;
    x->capacity = old.capacity ? 2 * old.capacity : FIRST_CAPACITY;
    x->entries = ARENA_ARRAY(x->arena, struct hash_entry, x->capacity);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.entries[i].key) *find(x, old.entries[i].key) = old.entries[i];
}

struct hash_entry *hash_map_at(struct hash_map *x, uint64_t key)
{
    if (2 * (x->n + 1) > x->capacity) grow(x);
    if (!key) key = 1;
    struct hash_entry *e = find(x, key);
    if (!e->key) e->key = key, x->n++;
    return e;
}
