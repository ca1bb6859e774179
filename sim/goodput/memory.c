/* Checkpoints in host memory between those on storage: their pauses and copies, and what a failure keeps. */
#include "sim/goodput/internal.h"

#include <math.h>

void memory_set_due(struct walk *w)
{
    w->memory_due_ns = w->job->memory_interval_ns ? w->now_ns + w->job->memory_interval_ns : NEVER;
    w->memory_due_work = w->work + (double)w->job->memory_interval_ns;
}

int64_t memory_due_ns(const struct walk *w)
{
    int64_t due = w->memory_due_ns;
    if (due == NEVER) return NEVER;
    if (w->job->step_ns) {
        double wait = ceil((w->memory_due_work - w->work) / goodput_work_pace(w));
        due = wait < (double)(NEVER / 8) ? w->now_ns + (wait > 0 ? (int64_t)wait : 0) : NEVER;
    }
    if (w->job->work_ns && w->work >= (double)w->job->work_ns - 0.5) return NEVER; /* the last one is on storage */
    if (w->memory_durable_ns != NEVER && w->memory_durable_ns > due) due = w->memory_durable_ns;
    return due > w->now_ns ? due : w->now_ns;
}

void memory_written(struct walk *w)
{
    w->out->memory_checkpoints++;
    w->memory_pending = w->work;
    w->memory_durable_ns = w->now_ns + w->job->memory_copy_ns;
    if (!w->job->memory_copy_ns) memory_copied(w);
    memory_set_due(w);
}

void memory_copied(struct walk *w)
{
    w->memory_safe = w->memory_pending;
    w->memory_durable_ns = NEVER;
}

double memory_kept(struct walk *w, bool node)
{
    if (!node && w->memory_durable_ns != NEVER) w->memory_safe = w->memory_pending; /* the nodes' own parts are there */
    w->from_memory = w->memory_safe > w->safe;
    w->memory_durable_ns = NEVER;
    return w->from_memory ? w->memory_safe : w->safe;
}
