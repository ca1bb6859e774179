#include "exec/op_values.h"

#include "core/base/rng.h"

#include <math.h>

uint64_t op_values_random_key(const struct op_call *c)
{
    return c->seed ^ rng_hash_bytes(0, &c->attrs->stream, sizeof c->attrs->stream);
}

uint64_t op_values_random_sequence(const struct op_call *c)
{
    if (!c->optimizer) return UINT64_C(1) << 63 | (uint64_t)c->first_sequence;
    return (uint64_t)c->optimizer->device << 40 | (uint64_t)c->optimizer->step;
}

/* Su et al. 2021 (RoFormer): theta^(-2i/D). Llama 3.1 keeps short wavelengths, divides long ones by the factor, and
 * interpolates between them linearly in turns per original context. Without those frequencies every pair is divided by the factor
 * (Chen et al. 2023, arXiv 2306.15595: linear). */
double op_values_rotary_frequency(const struct op_attrs *attrs, int32_t pair)
{
    const struct rope_scaling *s = &attrs->rope;
    double f = pow(attrs->theta, -2.0 * pair / (attrs->rotary_dim ? attrs->rotary_dim : attrs->head_dim));
    if (s->factor <= 0) return f;
    if (s->high_freq_factor <= 0) return f / s->factor;
    double turns = s->original_max_position * f / (2 * acos(-1.0));
    if (turns > s->high_freq_factor) return f;
    if (turns < s->low_freq_factor) return f / s->factor;
    double kept = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - kept) * f / s->factor + kept * f;
}
