#include "exec/worker/noise_log.h"

#include "exec/worker/chunks.h"
#include "exec/worker/scale_log.h"

#include <string.h>

static bool clips(const struct program *p) { return p->optimizer.max_grad_norm > 0; }

void noise_log_open(struct noise_log *l, const struct rank *r)
{
    if (r->p->gradient_noise) l->squares = ARENA_ARRAY(r->run, double, GRADIENT_SQUARES *(size_t)r->o->steps + 1);
    if (clips(r->p)) l->norms = ARENA_ARRAY(r->run, double, (size_t)r->o->steps + 1);
}

int64_t noise_log_bytes(const struct program *p, int32_t n_chunks)
{
    return NOISE_LOG_VALUE * ((p->gradient_noise ? (int64_t)GRADIENT_SQUARES * n_chunks : 0) + clips(p));
}

/* The first number of a slot. */
static enum status copy_value(struct rank *r, const struct chunk *k, int32_t slot, char *value, struct error *err)
{
    struct backend *b = &r->backend;
    int64_t bytes = dtype_bytes(dtype_master(r->p->dtype));
    const void *from = lane_memory_slot(&k->memory, slot, 0);
    return r->discrete ? b->copy(b, STREAM_COMPUTE, value, from, bytes, err) : b->download(b, value, from, bytes, err);
}

enum status noise_log_copy(struct rank *r, const struct chunks *c, char *values, struct error *err)
{
    for (int32_t i = 0; i < c->n && r->p->gradient_noise; i++)
        for (int k = 0; k < GRADIENT_SQUARES; k++, values += NOISE_LOG_VALUE)
            TRY(copy_value(r, &c->at[i], c->at[i].stage->squares_slot[k], values, err));
    return clips(r->p) ? copy_value(r, &c->at[0], c->at[0].stage->clip_slot, values, err) : OK;
}

static double value_of(const struct rank *r, const char *value)
{
    float single;
    double x;
    if (dtype_master(r->p->dtype) == DTYPE_fp64) return memcpy(&x, value, sizeof x), x;
    return memcpy(&single, value, sizeof single), (double)single;
}

/* A replica's gradients are sums over its sequences, divided by those of all replicas. All replicas have the same sums of them, and all
 * devices of an island the same norm. */
void noise_log_note(struct noise_log *l, const struct rank *r, const struct chunks *c, int64_t step, const char *values)
{
    for (int32_t i = 0; i < c->n && l->squares; i++, values += NOISE_LOG_VALUE * GRADIENT_SQUARES) {
        const struct program_stage *s = c->at[i].stage;
        double *to = l->squares + GRADIENT_SQUARES * step;
        to[0] += value_of(r, values) * r->p->microbatches / s->microbatches;
        if (s->replica == 0) to[1] += value_of(r, values + NOISE_LOG_VALUE);
    }
    if (l->norms && r->index == 0) l->norms[step] = value_of(r, values);
}

enum status noise_log_see(struct noise_log *l, struct rank *r, const struct chunks *c, int64_t step, struct error *err)
{
    if ((!l->squares && !l->norms) || r->discrete) return OK;
    struct arena *a = arena_new();
    char *values = ARENA_ARRAY(a, char, (size_t)noise_log_bytes(r->p, c->n));
    enum status status = noise_log_copy(r, c, values, err);
    if (status == OK) noise_log_note(l, r, c, step, values);
    arena_free(a);
    return status;
}

void noise_log_report(struct noise_log *l, const struct rank *r, const struct scale_log *s, struct arena *a, struct run_result *out)
{
    const struct program *p = r->p;
    int64_t n = r->o->steps;
    int32_t replicas = 0;
    if (l->norms) {
        comm_sum(r->comm, l->norms, n);
        out->gradient_norms = arena_copy(a, l->norms, (size_t)n * sizeof *l->norms);
    }
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
