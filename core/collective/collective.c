#include "core/collective/collective.h"

#include "core/base/error.h"

const char *const collective_kind_names[] = {
#define X(id, name) name,
    COLLECTIVE_KINDS(X)
#undef X
        0};
const char *const collective_way_names[] = {
#define X(id, name) name,
    COLLECTIVE_WAYS(X)
#undef X
        0};

const char *collective_kind_name(enum collective_kind k)
{
    if ((int)k < 0 || k >= COLLECTIVE_KIND_COUNT) BUG("collective %d", (int)k);
    return collective_kind_names[k];
}

const char *collective_way_name(enum collective_way w)
{
    if ((int)w < 0 || w >= COLLECTIVE_WAY_COUNT) BUG("way %d of a collective", (int)w);
    return collective_way_names[w];
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

bool collective_way_parse(const char *name, enum collective_way *out)
{
    int i = find(collective_way_names, name);
    if (i >= 0) *out = (enum collective_way)i;
    return i >= 0;
}

bool collective_can(enum collective_kind k, enum collective_way w)
{
#define WAY(w) (1U << (w))
    static const unsigned ways[COLLECTIVE_KIND_COUNT] = {
        [COLLECTIVE_ALL_REDUCE] =
            WAY(WAY_RING) | WAY(WAY_TREE) | WAY(WAY_LEADER) | WAY(WAY_SHARDED) | WAY(WAY_CHAIN),
        [COLLECTIVE_ALL_GATHER] = WAY(WAY_RING) | WAY(WAY_PADDED) | WAY(WAY_GROUPED),
        [COLLECTIVE_REDUCE_SCATTER] = WAY(WAY_RING) | WAY(WAY_PADDED) | WAY(WAY_GROUPED),
        [COLLECTIVE_BROADCAST] = WAY(WAY_CHAIN) | WAY(WAY_TREE),
        [COLLECTIVE_ALL_TO_ALL] = WAY(WAY_PAIRWISE),
    };
#undef WAY
    return ways[k] >> w & 1;
}

double collective_bus_factor(enum collective_kind k, int32_t n)
{
    if (k == COLLECTIVE_BROADCAST) return 1;
    return (k == COLLECTIVE_ALL_REDUCE ? 2.0 : 1.0) * (n - 1) / n;
}
