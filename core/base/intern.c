#include "core/base/intern.h"

#include "core/base/arena.h"

#include <stdint.h>
#include <string.h>

struct entry {
    uint64_t hash;
    const void *bytes; /* NULL: free */
    size_t n;
};

struct intern {
    struct arena *contents, *tables;
    struct entry *entries; /* open hash, at most half full */
    size_t n, capacity;    /* a power of two */
};

enum { FIRST_CAPACITY = 256 };

struct intern *intern_new(struct arena *contents, struct arena *tables)
{
    struct intern *x = ARENA_ARRAY(tables, struct intern, 1);
    *x = (struct intern){.contents = contents,
                         .tables = tables,
                         .entries = ARENA_ARRAY(tables, struct entry, FIRST_CAPACITY),
                         .capacity = FIRST_CAPACITY};
    return x;
}

/* FNV-1a over words (Fowler, Noll, Vo), with the high half mixed in. */
static uint64_t hash_of(const void *bytes, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037) ^ n;
    const unsigned char *p = bytes;
    for (; n >= sizeof h; p += sizeof h, n -= sizeof h) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * UINT64_C(1099511628211);
        h ^= h >> 32;
    }
    for (; n > 0; p++, n--) h = (h ^ *p) * UINT64_C(1099511628211);
    return h ^ h >> 32;
}

static struct entry *entry_of(const struct intern *x, uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = (size_t)hash;; i++) {
        struct entry *e = &x->entries[i & (x->capacity - 1)];
        if (!e->bytes || (e->hash == hash && e->n == n && !memcmp(e->bytes, bytes, n))) return e;
    }
}

static void grow(struct intern *x)
{
    struct intern bigger = *x;
    bigger.capacity *= 2;
    bigger.entries = ARENA_ARRAY(x->tables, struct entry, bigger.capacity);
    for (size_t i = 0; i < x->capacity; i++) {
        const struct entry *e = &x->entries[i];
        if (e->bytes) *entry_of(&bigger, e->hash, e->bytes, e->n) = *e;
    }
    *x = bigger;
}

const void *intern_bytes(struct intern *x, const void *bytes, size_t n)
{
    if (!bytes) return NULL;
    uint64_t hash = hash_of(bytes, n);
    struct entry *e = entry_of(x, hash, bytes, n);
    if (e->bytes) return e->bytes;
    void *copy =
        arena_alloc(x->contents, n + 1, 1); /* + 1: an object without bytes has an address */
    memcpy(copy, bytes, n);
    *e = (struct entry){hash, copy, n};
    if (2 * ++x->n > x->capacity) grow(x);
    return copy;
}

const char *intern_text(struct intern *x, const char *text)
{
    return intern_bytes(x, text, strlen(text) + 1);
}
