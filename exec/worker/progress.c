#include "exec/worker/progress.h"

#include "core/program/program.h"

void progress_start(struct progress *g, const struct program *p)
{
    *g = (struct progress){.global_batch = p->microbatches * p->microbatch};
}

void progress_resume(struct progress *g, int64_t steps, int64_t sequences)
{
    g->first_step = steps;
    g->first_sequence = sequences;
}

void progress_next_step(struct progress *g) { g->step++; }

int64_t progress_number(const struct progress *g) { return g->first_step + g->step + 1; }

int64_t progress_message(const struct progress *g, int64_t step, int32_t microbatches) { return (step - g->begun) * microbatches; }

int64_t progress_first_of(const struct progress *g, int64_t message, int32_t microbatches)
{
    int64_t step = message / microbatches;
    return g->evaluates ? step * g->global_batch : progress_sequences(g, g->begun + step);
}

int64_t progress_sequences(const struct progress *g, int64_t step)
{
    return g->first_sequence + step * g->global_batch;
}
