/* core/sharding/kind.c - the name of what the rules of a sharding amount to. */
#include "core/base/arena.h"
#include "core/sharding/sharding.h"

#include <string.h>

#define BIT(index) (1u << INDEX_##index)
#define TENSOR                                                                                     \
    (BIT(heads) | BIT(features) | BIT(inputs) | BIT(vocabulary) | BIT(channels) | BIT(partial) |    \
     BIT(tensor))
#define EXPERTS (BIT(experts) | BIT(slots))

struct used {
    uint32_t indices;
    bool heads_of_products; /* heads shard more than attention itself */
};

/* Attention itself is the operator NAME.attention, in every model family (core/model). */
static bool is_attention(const char *match)
{
    static const char end[] = "attention";
    size_t n = strlen(match);
    return n >= sizeof end - 1 && !strcmp(match + n - (sizeof end - 1), end);
}

static struct used used_along(const struct sharding *s, int32_t axis)
{
    struct used u = {0};
    for (int32_t r = 0; r < s->n_operators; r++) {
        const struct sharding_rule *x = &s->operators[r];
        u.indices |= 1u << x->choice.index[axis];
        u.heads_of_products |= x->choice.index[axis] == INDEX_heads && !is_attention(x->match);
    }
    u.indices &= ~BIT(none);
    return u;
}

/* "mixed: batch, tensor": the operators of a stage are sharded by indices of several parallelisms. */
static const char *mixed_name(struct arena *a, uint32_t indices)
{
    static const struct {
        uint32_t indices;
        const char *name;
    } parts[] = {{BIT(batch), "batch"}, {BIT(positions), "context"}, {TENSOR, "tensor"}, {EXPERTS, "expert"}};
    const char *text = "mixed", *before = ": ";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++, indices &= ~parts[i - 1].indices)
        if (indices & parts[i].indices)
            text = arena_printf(a, "%s%s%s", text, before, parts[i].name), before = ", ";
    return indices ? arena_printf(a, "%s%sother", text, before) : text;
}

static const char *name_along(struct arena *a, const struct sharding *s, int32_t axis)
{
    struct used u = used_along(s, axis);
    uint32_t rest = u.indices & ~EXPERTS;
    bool experts = rest != u.indices;
    if (!rest) return experts ? "expert" : "replicated";
    if (rest == BIT(batch)) return experts ? "expert" : "batch";
    if (rest == BIT(positions)) return experts ? "context, expert" : "context";
    if (rest == (BIT(positions) | BIT(heads)) && !u.heads_of_products)
        return experts ? "sequence, expert" : "sequence";
    if (!(rest & ~TENSOR)) return experts ? "tensor, expert" : "tensor";
    if (!(rest & ~(TENSOR | BIT(positions))) && (rest & BIT(heads)) &&
        (rest & (BIT(features) | BIT(inputs))))
        return experts ? "tensor, sequence, expert" : "tensor, sequence";
    return mixed_name(a, u.indices);
}

const char *sharding_kind(struct arena *a, const struct sharding *s)
{
    const char *text = "";
    for (int32_t k = 0; k < s->n_axes; k++) {
        const char *name = name_along(a, s, k);
        text = s->n_axes > 1
                   ? arena_printf(a, "%s%s%s %d", text, k ? " x " : "", name, (int)s->mesh[k])
                   : name;
    }
    for (int32_t r = 0; r < s->n_parameters; r++)
        if (s->parameters[r].sharded) return arena_printf(a, "%s, fsdp", text);
    return text;
}
