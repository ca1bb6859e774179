#include "exec/worker/routing.h"

#include "core/base/arena.h"

static bool is_zero(const void *x, enum dtype t, int64_t i)
{
    if (dtype_is_half(t)) return !(((const uint16_t *)x)[i] & 0x7fff);
    return t == DTYPE_fp64 ? ((const double *)x)[i] == 0 : ((const float *)x)[i] == 0;
}

static void count_rows(const void *gates, enum dtype t, int64_t rows, int64_t experts,
                       int64_t *chosen)
{
    for (int64_t i = 0; i < rows * experts; i++) chosen[i % experts] += !is_zero(gates, t, i);
}

static int32_t uneven_ppm(const int64_t *chosen, int64_t experts)
{
    double sum = 0, squares = 0, n = (double)experts;
    for (int64_t k = 0; k < experts; k++) {
        sum += (double)chosen[k];
        squares += (double)chosen[k] * (double)chosen[k];
    }
    return sum > 0 ? (int32_t)(1e6 * (n * squares / (sum * sum) - 1) + 0.5) : 0;
}

int32_t routing_uneven_ppm(const struct op_call *c, const void *gates)
{
    const struct shape *s = &c->shapes->output[0];
    int64_t n = shape_elements(s), experts = shape_last(s);
    if (!n) return 0;
    struct arena *scratch = arena_new();
    int64_t *chosen = ARENA_ARRAY(scratch, int64_t, (size_t)experts);
    count_rows(gates, c->dtype, n / experts, experts, chosen);
    int32_t ppm = uneven_ppm(chosen, experts);
    arena_free(scratch);
    return ppm;
}

enum status routing_measure(struct backend *b, const struct op_call *c, int32_t *out_ppm,
                            struct error *err)
{
    int64_t bytes = shape_elements(&c->shapes->output[0]) * dtype_bytes(c->dtype);
    struct arena *scratch = arena_new();
    char *gates = ARENA_ARRAY(scratch, char, (size_t)bytes + 1);
    enum status st = b->download(b, gates, c->output[0], bytes, err);
    if (st == OK) *out_ppm = routing_uneven_ppm(c, gates);
    arena_free(scratch);
    return st;
}
