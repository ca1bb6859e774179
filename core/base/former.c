#include "core/base/former.h"

#include <stddef.h>
#include <string.h>

static const struct former {
    const char *of, *name, *now; /* of: NULL for an option */
} words[] = {
    {NULL, "tensor-parallel",
     "the search tries every tensor-parallel degree by itself; --no-sharding leaves them out"},
    {NULL, "unshared", "it is --no-sharding now"},
    {NULL, "least-rate", "it is --min-rate now"},
    {NULL, "most-cost", "it is --max-cost now"},
    {"operators", "split", "it is 'shard' now"},
    {"operators", "sharded", "it is 'shard' now"},
    {"operators", "sufficient", "it is 'sufficient_factors' now"},
    {"collectives", "way", "it is 'algorithm' now"},
    {"device_types", "tensor_parallel",
     "a device type is one GPU now: count every GPU in `nodes`, and write a stage on several as "
     "`devices: [a.0, a.1]` with `sharding:`"},
    {"device_types", "sequence_parallel",
     "it is a matter of the plan now: a stage whose `sharding:` has {match: \"*norm*\", shard: "
     "positions}"},
    {"device_types", "cards_of", "a device type is one GPU now; measured costs are those of `device`"},
};

static const char *find(const char *of, const char *name)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!words[i].of == !of && (!of || !strcmp(of, words[i].of)) && !strcmp(name, words[i].name))
            return words[i].now;
    return NULL;
}

const char *former_option(const char *name) { return find(NULL, name); }
const char *former_key(const char *of, const char *key) { return find(of, key); }
