/* exec/worker_routing.c - how unevenly a call of gating chose its experts, for traces: what that costs those who have a part of
 * the experts each is nothing that a bench can know. */
#include "exec/worker_internal.h"

#include "core/arena.h"

static bool is_zero(const void *x, enum dtype t, int64_t i)
{
    if (dtype_is_half(t)) return !(((const uint16_t *)x)[i] & 0x7fff);
    return t == DTYPE_fp64 ? ((const double *)x)[i] == 0 : ((const float *)x)[i] == 0;
}

static void count_rows(const void *gates, enum dtype t, int64_t rows, int64_t experts,
                       int64_t *chosen)
{
    for (int64_t i = 0; i < rows * experts; i++)
        chosen[i % experts] += !is_zero(gates, t, i);
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

enum status worker_routing(struct worker *w, const struct op_call *c, int32_t *out_ppm,
                           struct error *err)
{
    const struct shape *s = &c->shapes->output[0];
    int64_t n = shape_elements(s), experts = shape_last(s);
    *out_ppm = 0;
    if (!n) return OK;
    device_clock_wait(&w->clock);
    struct arena *scratch = arena_new();
    char *gates = ARENA_ARRAY(scratch, char, (size_t)(n * dtype_bytes(c->dtype)));
    int64_t *chosen = ARENA_ARRAY(scratch, int64_t, (size_t)experts);
    enum status st =
        w->backend.download(&w->backend, gates, c->output[0], n * dtype_bytes(c->dtype), err);
    if (st == OK) {
        count_rows(gates, c->dtype, n / experts, experts, chosen);
        *out_ppm = uneven_ppm(chosen, experts);
    }
    arena_free(scratch);
    device_clock_waited(&w->clock, 0);
    return st;
}
