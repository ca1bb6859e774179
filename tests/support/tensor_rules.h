/* tests/support/tensor_rules.h - Megatron-LM's tensor parallelism of gpt2's graph as rules of a sharded stage.
 *
 * Shoeybi et al. 2019: attention by heads, the MLP by its features, embedding, head and loss by vocabulary; everything else is
 * replicated, or, with `positions`, sharded by positions (Korthikanti et al. 2023, sequence parallelism). Rules that apply to
 * nothing are errors, so those of what only a first or last stage has are for whole models, whose stages each take what is theirs.
 */
#ifndef TESTS_SUPPORT_TENSOR_RULES_H
#define TESTS_SUPPORT_TENSOR_RULES_H

#include "core/base/arena.h"
#include "core/sharding/sharding.h"

/* Of n equal devices; one object for all stages, because equal ones are lowered once. */
static inline const struct sharding *tensor_rules(struct arena *a, int32_t n, bool positions)
{
    static const struct {
        const char *match;
        enum op_index index;
    } rules[] = {{"h.*.attn.*", INDEX_heads},      {"h.*.mlp.c_fc*", INDEX_features},
                 {"h.*.mlp.gelu", INDEX_features}, {"h.*.mlp.c_proj", INDEX_inputs},
                 {"wte", INDEX_vocabulary},        {"lm_head", INDEX_vocabulary},
                 {"loss", INDEX_vocabulary},       {"*", INDEX_positions}};
    enum { N = sizeof rules / sizeof *rules };
    struct sharding *s = sharding_of_index(a, INDEX_positions, NULL, n);
    struct sharding_rule *operators = ARENA_ARRAY(a, struct sharding_rule, N);
    for (int32_t i = 0; i < N; i++) {
        operators[i] = s->operators[0];
        operators[i].match = rules[i].match;
        operators[i].choice.index[0] = rules[i].index;
    }
    s->operators = operators, s->n_operators = positions ? N : N - 1;
    return s;
}

#endif
