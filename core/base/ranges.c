#include "core/base/ranges.h"

#include "core/base/arena.h"
#include "core/base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The digits at a name's end, as a number; those with a leading zero or of more than nine digits are part of the name. */
struct numbered {
    size_t stem; /* bytes before the number */
    int32_t number;
    bool has;
};

static struct numbered split(const char *text, size_t length)
{
    size_t at = length;
    while (at > 0 && isdigit((unsigned char)text[at - 1])) at--;
    if (at == length || length - at > 9 || (text[at] == '0' && length - at > 1))
        return (struct numbered){.stem = length};
    int32_t number = 0;
    for (size_t i = at; i < length; i++) number = 10 * number + (text[i] - '0');
    return (struct numbered){at, number, true};
}

/* Runs of ascending numbers; *more where there is not one run alone. */
static const char *runs(struct arena *a, const int32_t *x, size_t n, size_t most, bool *more)
{
    struct text text;
    FILE *out = text_begin(&text);
    size_t shown = 0, i = 0;
    for (size_t end; i < n && shown < most; i = end, shown++) {
        for (end = i + 1; end < n && x[end] == x[end - 1] + 1; end++) {
        }
        fprintf(out, "%s%" PRId32, shown ? "," : "", x[i]);
        if (end - i > 1) fprintf(out, "-%" PRId32, x[end - 1]);
    }
    if (i < n) fputs(",…", out);
    *more = shown > 1 || i < n;
    return text_end(a, &text, NULL);
}

const char *ranges_of_numbers(struct arena *a, const int32_t *numbers, size_t n, size_t most)
{
    bool more;
    return runs(a, numbers, n, most, &more);
}

struct piece { /* names that differ in their number alone: head, number, tail */
    const char *stem, *tail;
    bool numbered;
    size_t n, capacity;
    int32_t *numbers;
};
struct pieces {
    struct arena *arena;
    size_t n, capacity;
    struct piece *items;
};

static void put(struct pieces *p, const char *name, size_t length, const char *tail)
{
    struct numbered x = split(name, length);
    struct piece *last = NULL;
    for (size_t i = p->n; x.has && i-- > 0 && !last;)
        if (p->items[i].numbered && strlen(p->items[i].stem) == x.stem &&
            !strncmp(p->items[i].stem, name, x.stem) && !strcmp(p->items[i].tail, tail))
            last = &p->items[i];
    if (!last) {
        p->items = arena_grow(p->arena, p->items, p->n, &p->capacity, sizeof *p->items);
        last = &p->items[p->n++];
        *last = (struct piece){
            .stem = arena_strndup(p->arena, name, x.stem), .tail = tail, .numbered = x.has};
    }
    if (!x.has) return;
    last->numbers =
        arena_grow(p->arena, last->numbers, last->n, &last->capacity, sizeof *last->numbers);
    last->numbers[last->n++] = x.number;
}

static const char *piece_text(struct arena *a, const struct piece *x, size_t most)
{
    bool more = false;
    if (!x->numbered) return arena_printf(a, "%s%s", x->stem, x->tail);
    const char *list = runs(a, x->numbers, x->n, most, &more);
    return arena_printf(a, more ? "%s[%s]%s" : "%s%s%s", x->stem, list, x->tail);
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t head_length(const char *name)
{
    const char *point = strrchr(name, '.');
    return point ? (size_t)(point - name) : strlen(name);
}

/* ".0-7" of the names from sorted[0] on that have one head; *end: how many they are. */
static const char *tail_of(struct arena *a, const char *const *sorted, size_t n, size_t most,
                           size_t *end)
{
    size_t head = head_length(*sorted);
    struct pieces tails = {.arena = a};
    for (*end = 0; *end < n; ++*end) {
        const char *name = sorted[*end];
        if (head_length(name) != head || strncmp(name, *sorted, head) != 0) break;
        if (name[head]) put(&tails, name + head, strlen(name + head), "");
    }
    const char *text = "";
    for (size_t i = 0; i < tails.n && i <= most; i++)
        text =
            arena_printf(a, "%s%s", text, i == most ? "…" : piece_text(a, &tails.items[i], most));
    return text;
}

const char *ranges_of_names(struct arena *a, const char *const *names, size_t n, size_t most)
{
    struct arena *scratch = arena_new();
    const char **sorted = ARENA_ARRAY(scratch, const char *, n + 1);
    struct pieces heads = {.arena = scratch};
    struct text text;
    if (n) memcpy(sorted, names, n * sizeof *sorted);
    if (n) qsort(sorted, n, sizeof *sorted, by_version);
    for (size_t i = 0, end; i < n; i += end) {
        const char *tail = tail_of(scratch, sorted + i, n - i, most, &end);
        put(&heads, sorted[i], head_length(sorted[i]), tail);
    }
    FILE *out = text_begin(&text);
    for (size_t i = 0; i < heads.n && i <= most; i++)
        fprintf(out, "%s%s", i ? ", " : "",
                i == most ? "…" : piece_text(scratch, &heads.items[i], most));
    const char *whole = text_end(a, &text, NULL);
    arena_free(scratch);
    return whole;
}
