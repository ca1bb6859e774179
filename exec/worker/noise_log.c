#include "exec/worker/noise_log.h"

#include "exec/worker/chunks.h"
#include "exec/worker/scale_log.h"

#include <string.h>

void noise_log_open(struct noise_log *l, const struct rank *r)
{
    if (r->p->gradient_noise) l->squares = ARENA_ARRAY(r->run, double, GRADIENT_SQUARES *(size_t)r->o->steps + 1);
}

int64_t noise_log_bytes(const struct program *p, int32_t n_chunks)
{
    return p->gradient_noise ? (int64_t)NOISE_LOG_VALUE * GRADIENT_SQUARES * n_chunks : 0;
}

enum status noise_log_copy(struct rank *r, const struct chunks *c, char *values, struct error *err)
{
    struct backend *b = &r->backend;
    int64_t bytes = dtype_bytes(dtype_master(r->p->dtype));
    for (int32_t i = 0; i < c->n; i++)
        for (int k = 0; k < GRADIENT_SQUARES; k++, values += NOISE_LOG_VALUE) {
            const void *from = lane_memory_slot(&c->at[i].memory, c->at[i].stage->squares_slot[k], 0);
            TRY(r->discrete ? b->copy(b, STREAM_COMPUTE, values, from, bytes, err) : b->download(b, values, from, bytes, err));
        }
    return OK;
}

static double value_of(const struct rank *r, const char *value)
{
    float single;
    double x;
    if (dtype_master(r->p->dtype) == DTYPE_fp64) return memcpy(&x, value, sizeof x), x;
    return memcpy(&single, value, sizeof single), (double)single;
}

/* A replica's gradients are sums over its sequences, divided by those of all replicas. All replicas have the same sums of them. */
void noise_log_note(struct noise_log *l, const struct rank *r, const struct chunks *c, int64_t step, const char *values)
{
    double *to = l->squares + GRADIENT_SQUARES * step;
    for (int32_t i = 0; i < c->n; i++, values += NOISE_LOG_VALUE * GRADIENT_SQUARES) {
        const struct program_stage *s = c->at[i].stage;
        to[0] += value_of(r, values) * r->p->microbatches / s->microbatches;
        if (s->replica == 0) to[1] += value_of(r, values + NOISE_LOG_VALUE);
    }
}

enum status noise_log_see(struct noise_log *l, struct rank *r, const struct chunks *c, int64_t step, struct error *err)
{
    if (!l->squares || r->discrete) return OK;
    struct arena *a = arena_new();
    char *values = ARENA_ARRAY(a, char, (size_t)noise_log_bytes(r->p, c->n));
    enum status status = noise_log_copy(r, c, values, err);
    if (status == OK) noise_log_note(l, r, c, step, values);
    arena_free(a);
    return status;
}

void noise_log_report(struct noise_log *l, const struct rank *r, const struct scale_log *s, struct run_result *out)
{
    const struct program *p = r->p;
    int64_t n = r->o->steps;
    int32_t replicas = 0;
    if (!l->squares) return;
    comm_sum(r->comm, l->squares, GRADIENT_SQUARES * n);
    for (int64_t i = 0; i < n && p->loss_scale.initial > 0; i++) { /* the scale that the step's loss had */
        float scale[SCALE_LOG_NUMBERS];
        scale_log_after(s, i, scale);
        for (int k = 0; k < GRADIENT_SQUARES; k++)
            l->squares[GRADIENT_SQUARES * i + k] /= (double)scale[LOSS_SCALE_NOW] * (double)scale[LOSS_SCALE_NOW];
    }
    for (int32_t i = 0; i < p->n_stages; i++)
        if (p->stages[i].replica >= replicas) replicas = p->stages[i].replica + 1;
    out->noise = gradient_noise_of(l->squares, n, replicas, p->microbatches * p->microbatch);
}
