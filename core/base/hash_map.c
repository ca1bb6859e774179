#include "core/base/hash_map.h"

#include "core/base/arena.h"

enum { FIRST_CAPACITY = 256 };

/* The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA'14). Only the place of an entry follows from it. */
static size_t spread(uint64_t key)
{
    key = (key ^ key >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    key = (key ^ key >> 27) * UINT64_C(0x94D049BB133111EB);
    return (size_t)(key ^ key >> 31);
}

static struct hash_entry *find(const struct hash_map *x, uint64_t key)
{
    size_t at = spread(key) & (x->capacity - 1);
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
