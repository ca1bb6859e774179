#include "core/collective/algorithm.h"

#include "core/base/error.h"
#include "core/collective/rounds.h"

#include <stdio.h>

const char *const collective_kind_names[] = {
#define X(id, word, name) name,
    COLLECTIVE_KINDS(X)
#undef X
        0};
static const char *const all_words[] = {
#define X(id, word, name) #word,
    COLLECTIVE_KINDS(X)
#undef X
};
const char *const collective_algorithm_names[] = {
#define X(id, name, kinds, native, rounds) name,
    COLLECTIVE_ALGORITHMS(X)
#undef X
        0};

const char *collective_kind_name(enum collective_kind k)
{
    if ((int)k < 0 || k >= COLLECTIVE_KIND_COUNT) BUG("collective %d", (int)k);
    return collective_kind_names[k];
}

const char *collective_kind_word(enum collective_kind k)
{
    if ((int)k < 0 || k >= COLLECTIVE_KIND_COUNT) BUG("collective %d", (int)k);
    return all_words[k];
}

const char *collective_algorithm_name(enum collective_algorithm w)
{
    if ((int)w < 0 || w >= COLLECTIVE_ALGORITHM_COUNT) BUG("algorithm %d of a collective", (int)w);
    return collective_algorithm_names[w];
}

static int find(const char *const *names, const char *word)
{
    for (int i = 0; names[i]; i++) {
        const char *a = names[i], *b = word;
        while (*a && (*a == *b || (*a == '-' && *b == '_'))) a++, b++;
        if (!*a && !*b) return i;
    }
    return -1;
}

bool collective_kind_parse(const char *name, enum collective_kind *out)
{
    int i = find(collective_kind_names, name);
    if (i >= 0) *out = (enum collective_kind)i;
    return i >= 0;
}

bool collective_algorithm_parse(const char *name, enum collective_algorithm *out)
{
    int i = find(collective_algorithm_names, name);
    if (i >= 0) *out = (enum collective_algorithm)i;
    return i >= 0;
}

bool collective_can(enum collective_kind k, enum collective_algorithm w)
{
    static const uint32_t sets[COLLECTIVE_ALGORITHM_COUNT] = {
#define X(id, name, kinds, native, rounds) kinds,
        COLLECTIVE_ALGORITHMS(X)
#undef X
    };
    return sets[w] >> k & 1;
}

bool collective_in_calls(enum collective_kind k, enum collective_algorithm w)
{
    return k < COLLECTIVE_CALL_KINDS && collective_can(k, w) && collective_rounds_of(w)->round;
}

bool collective_native(enum collective_kind k, enum collective_algorithm w)
{
    static const uint32_t sets[COLLECTIVE_ALGORITHM_COUNT] = {
#define X(id, name, kinds, native, rounds) native,
        COLLECTIVE_ALGORITHMS(X)
#undef X
    };
    return sets[w] >> k & 1;
}

struct collective_choices collective_choices(enum collective_kind k, bool calls)
{
    struct collective_choices c = {""};
    size_t at = 0;
    for (int w = 0; w < COLLECTIVE_ALGORITHM_COUNT && at < sizeof c.text; w++) {
        enum collective_algorithm x = (enum collective_algorithm)w;
        if (!collective_can(k, x) || (calls && !collective_in_calls(k, x))) continue;
        at += (size_t)snprintf(c.text + at, sizeof c.text - at, "%s%s", at ? ", " : "",
                               collective_algorithm_names[w]);
    }
    return c;
}

double collective_bus_factor(enum collective_kind k, int32_t n)
{
    if (k == COLLECTIVE_BROADCAST) return 1;
    return (k == COLLECTIVE_ALL_REDUCE ? 2.0 : 1.0) * (n - 1) / n;
}
