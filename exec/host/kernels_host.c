/* exec/host/kernels_host.c - dispatch of a call to its kernel, and dtype-independent helpers. */
#include "exec/host/kernels_host.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <time.h>

#define ALIGNMENT 64

void host_context_init(struct host_context *x)
{
    *x = (struct host_context){.scratch_arena = arena_new(),
                               .wide_arena = arena_new()};
    for (int32_t i = 0; i < HOST_ROTARY_TABLES; i++) x->rotary[i].arena = arena_new();
}

void host_context_free(struct host_context *x)
{
    arena_free(x->scratch_arena);
    arena_free(x->wide_arena);
    for (int32_t i = 0; i < HOST_ROTARY_TABLES; i++) arena_free(x->rotary[i].arena);
    *x = (struct host_context){0};
}

void *host_scratch(struct host_context *x, size_t bytes)
{
    if (bytes > x->scratch_bytes || !x->scratch) {
        arena_reset(x->scratch_arena);
        unsigned char *p = arena_alloc(x->scratch_arena, bytes + ALIGNMENT, 1);
        x->scratch = p + (ALIGNMENT - (uintptr_t)p % ALIGNMENT) % ALIGNMENT;
        x->scratch_bytes = bytes;
    }
    return x->scratch;
}

enum status host_check_ids(enum op_kind kind, const int32_t *ids, int64_t n, int64_t vocabulary,
                           struct error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return error_set(err, ERR_INPUT,
                             "%s: id %" PRId32 " at %" PRId64
                             " is outside the vocabulary of %" PRId64,
                             op_kind_name(kind), ids[i], i, vocabulary);
    return OK;
}

enum status host_check_targets(const struct op_call *c, int64_t n, int64_t vocabulary,
                               struct error *err)
{
    const int32_t *targets = c->input[1];
    if (!c->attrs->counted) return host_check_ids(c->kind, targets, n, vocabulary, err);
    for (int64_t i = 0; i < n; i++)
        if (targets[i] != -1) TRY(host_check_ids(c->kind, targets + i, 1, vocabulary, err));
    return OK;
}

static double thread_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double host_blas_begin(const struct host_context *x) { return x->blas_clock ? thread_cpu_s() : 0; }

void host_blas_end(struct host_context *x, double begin_s)
{
    if (x->blas_clock) x->blas_s += thread_cpu_s() - begin_s;
}

enum status kernels_host_run(struct host_context *x, const struct op_call *c, struct error *err)
{
    if (c->dtype == DTYPE_int32)
        return error_set(err, ERR_INPUT, "%s: the host does not support %s",
                         op_kind_name(c->kind), dtype_name(c->dtype));
    host_kernel *const *table = c->dtype == DTYPE_fp64 ? kernels_host_fp64 : kernels_host_fp32;
    if (!table[c->kind]) BUG("no host kernel for %s", op_kind_name(c->kind));
    if (dtype_is_half(c->dtype)) return kernels_host_half(x, c, err);
    return table[c->kind](x, c, err);
}
