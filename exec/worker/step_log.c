#include "exec/worker/step_log.h"

#include "core/base/log.h"
#include "exec/worker/rank.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void step_log_open(struct step_log *l, const struct rank *r)
{
    *l = (struct step_log){.bad_step = -1};
    l->losses = ARENA_ARRAY(r->run, double, (size_t)(r->o->steps * r->p->microbatches) + 1);
    l->end_ns = ARENA_ARRAY(r->run, int64_t, (size_t)r->o->steps + 1);
}

double step_log_value(const struct rank *r, const struct step_loss *what, const void *value, bool *finite)
{
    const struct program_stage *stage = what->stage;
    float single = 0;
    double loss = 0;
    if (what->dtype == DTYPE_fp64)
        memcpy(&loss, value, sizeof loss);
    else
        memcpy(&single, value, sizeof single), loss = (double)single;
    *finite = isfinite(loss);
    /* The sum over ranks comes at the end. */
    if (stage->shares_loss) loss *= stage->loss_share;
    if (stage->sequences) loss *= (double)stage->sequences / (double)r->p->microbatch;
    return loss;
}

void step_log_loss(struct step_log *l, const struct rank *r, int64_t step,
                   const struct step_loss *what, const void *value)
{
    bool finite;
    l->losses[step * r->p->microbatches + what->stage->first_microbatch + what->microbatch] = step_log_value(r, what, value, &finite);
    if (!finite && l->bad_step < 0) l->bad_step = step;
}

void step_log_end(struct step_log *l, int64_t step, int64_t end_ns) { l->end_ns[step] = end_ns; }

bool step_log_finite(struct step_log *l, const struct rank *r, int64_t first_step)
{
    int64_t none = INT64_MAX / 2;
    int64_t first = -comm_max(r->comm, l->bad_step < 0 ? -none : -l->bad_step);
    if (first == none) return true;
    if (r->index == 0 && !l->warned)
        log_warn("the loss is not finite from step %" PRId64 " on", first_step + first + 1);
    l->warned = true;
    return false;
}

void step_log_sum(struct step_log *l, const struct rank *r)
{
    comm_sum(r->comm, l->losses, r->o->steps * r->p->microbatches);
}

double *step_log_means(const struct step_log *l, const struct rank *r, struct arena *a)
{
    int32_t n = r->p->microbatches, there = n;
    double *means = ARENA_ARRAY(a, double, (size_t)r->o->steps + 1);
    for (int32_t i = 0; i < r->p->n_stages - r->p->server.n; i++) /* a worker of a parameter server that has ended has no losses */
        if (comm_gone(r->comm, r->p->stages[i].device)) there -= r->p->stages[i].microbatches;
    for (int64_t s = 0; s < r->o->steps; s++) {
        for (int32_t m = 0; m < n; m++) means[s] += l->losses[s * n + m];
        means[s] /= there > 0 ? there : 1;
    }
    return means;
}
