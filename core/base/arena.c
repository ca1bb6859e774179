#include "core/base/arena.h"

#include "core/base/sanitized.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Under the address sanitizer every object has its own block, so that overruns and uses after
 * a reset are detected; a bump allocator would hide both. */
#define OWN_BLOCKS SANITIZED_ADDRESS

/* Blocks double from the first size to the last, so that small arenas stay small and big ones do
 * not call malloc often. */
#define FIRST_BLOCK_BYTES ((size_t)16 * 1024)
#define LAST_BLOCK_BYTES ((size_t)4 * 1024 * 1024)
/* Above the address space of any current machine: such a request fails without a system call. */
#define ABSURD_BYTES ((size_t)1 << 47)

struct block {
    struct block *next;
    size_t used, capacity; /* bytes of data[] */
    _Alignas(max_align_t) unsigned char data[];
};

struct arena {
    struct block *first, *current;
    size_t next_block_bytes;
};

static void (*last_act)(const char *message);

void arena_on_exhaustion(void (*act)(const char *message)) { last_act = act; }

/* If several threads run out of memory, the first one reports it. A thread that runs out while it reports ends the process at once. */
void arena_exhausted(size_t bytes)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    static _Thread_local bool teller;
    char line[96] = "musher: out of memory: a library request exceeded its limit";
    if (teller) _exit(ERR_RESOURCE);
    teller = !atomic_flag_test_and_set(&told);
    while (!teller) pause();
    if (bytes) snprintf(line, sizeof line, "musher: out of memory: %zu bytes were needed", bytes);
    if (last_act) last_act(line + strlen("musher: "));
    size_t n = strlen(line);
    line[n] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, n + 1);
    (void)ignored;
    _exit(ERR_RESOURCE);
}

static void *xmalloc(size_t bytes)
{
    void *p = bytes < ABSURD_BYTES ? malloc(bytes) : NULL;
    if (!p) arena_exhausted(bytes);
    return p;
}

static struct block *block_new(size_t capacity)
{
    struct block *b = xmalloc(sizeof *b + capacity);
    *b = (struct block){.capacity = capacity};
    return b;
}

struct arena *arena_new(void)
{
    struct arena *a = xmalloc(sizeof *a);
    *a = (struct arena){.next_block_bytes = FIRST_BLOCK_BYTES};
    a->first = a->current = block_new(OWN_BLOCKS ? 0 : FIRST_BLOCK_BYTES);
    return a;
}

static struct block *another_block(struct arena *a, size_t bytes)
{
    if (OWN_BLOCKS) return block_new(bytes);
    if (a->next_block_bytes < LAST_BLOCK_BYTES) a->next_block_bytes *= 2;
    return block_new(bytes > a->next_block_bytes ? bytes : a->next_block_bytes);
}

/* Its contents are not set. *taken: bytes, with those up to the next object. */
static void *take(struct arena *a, size_t count, size_t size, size_t *taken)
{
    if (size && count > ABSURD_BYTES / size)
        arena_exhausted(count > SIZE_MAX / size ? SIZE_MAX : count * size);
    size_t wanted = count * size, align = _Alignof(max_align_t);
    /* The sanitizer's block ends where the object ends, to the byte. */
    size_t bytes = OWN_BLOCKS ? (wanted ? wanted : 1) : (wanted + align - 1) / align * align;
    while (a->current->capacity - a->current->used < bytes) {
        if (!a->current->next) a->current->next = another_block(a, bytes);
        a->current = a->current->next;
    }
    void *p = a->current->data + a->current->used;
    a->current->used = OWN_BLOCKS ? a->current->capacity : a->current->used + bytes;
    *taken = bytes;
    return p;
}

void *arena_alloc(struct arena *a, size_t count, size_t size)
{
    size_t bytes;
    void *p = take(a, count, size, &bytes);
    return memset(p, 0, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t bytes;
    char *copy = take(a, n + 1, 1, &bytes);
    if (n) memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void *arena_copy(struct arena *a, const void *from, size_t bytes)
{
    size_t taken;
    return bytes ? memcpy(take(a, bytes, 1, &taken), from, bytes) : NULL;
}

char *arena_strdup(struct arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_join(struct arena *a, const char *x, const char *y)
{
    size_t n = strlen(x), m = strlen(y), bytes;
    char *text = take(a, n + m + 1, 1, &bytes);
    memcpy(text, x, n);
    memcpy(text + n, y, m + 1);
    return text;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    char few[256]; /* most texts are names, and formatted once */
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(few, sizeof few, fmt, ap);
    va_end(ap);
    if (n < 0) BUG("arena_printf: bad format");
    char *text;
    if ((size_t)n < sizeof few) {
        text = arena_strndup(a, few, (size_t)n);
    } else {
        text = arena_alloc(a, (size_t)n + 1, 1);
        vsnprintf(text, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    return text;
}

void *arena_grow(struct arena *a, void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity) return array;
    size_t bigger = *capacity ? 2 * *capacity : 16;
    while (bigger <= count) bigger *= 2;
    size_t taken, kept = count * size;
    unsigned char *copy = take(a, bigger, size, &taken);
    *capacity = bigger;
    if (kept) memcpy(copy, array, kept);
    memset(copy + kept, 0, taken - kept);
    return copy;
}

size_t arena_bytes(const struct arena *a)
{
    size_t bytes = 0;
    for (const struct block *b = a->first; b; b = b->next) bytes += b->capacity;
    return bytes;
}

size_t arena_used(const struct arena *a)
{
    size_t bytes = 0;
    for (const struct block *b = a->first; b; b = b->next) bytes += b->used;
    return bytes;
}

static void free_blocks(struct block *b)
{
    for (struct block *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

void arena_reset(struct arena *a)
{
    if (OWN_BLOCKS) {
        free_blocks(a->first->next);
        a->first->next = NULL;
    }
    for (struct block *b = a->first; b; b = b->next) b->used = 0;
    a->current = a->first;
}

void arena_free(struct arena *a)
{
    if (!a) return;
    free_blocks(a->first);
    free(a);
}
