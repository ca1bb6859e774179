/* exec/worker/scale.c - a program's loss scale as a run has it: how it begins, what it was after each step, what a checkpoint keeps.
 *
 * Its numbers (core/graph/loss_scale.h) stand on the devices and change there; the host only looks, when it sees the step anyway. What is
 * kept of a step are those that all devices must have alike, the first three. The run ends with an error where they do not.
 */
#include "exec/worker/internal.h"

#include <stdlib.h>
#include <string.h>

static bool has_scale(const struct worker *w) { return w->p->loss_scale.initial > 0; }

float *worker_scale_at(const struct chunk *k)
{
    return lane_memory_slot(&k->memory, k->stage->scale_slot, 0);
}

/* A scale that stays as it is is the program's; one that moves goes on from where it stood. */
enum status worker_scale_open(struct worker *w, struct error *err)
{
    float *first = w->scale_before, numbers[LOSS_SCALE_NUMBERS] = {0};
    if (!has_scale(w)) return OK;
    if (!(first[LOSS_SCALE_NOW] > 0) || !w->p->loss_scale.grows_after)
        first[LOSS_SCALE_NOW] = (float)w->p->loss_scale.initial, first[LOSS_SCALE_GOOD] = 0;
    memcpy(numbers, first, sizeof w->scale_before);
    for (int32_t i = 0; i < w->n_chunks; i++)
        TRY(w->backend.upload(&w->backend, worker_scale_at(&w->chunks[i]), numbers, sizeof numbers,
                              err));
    w->scales = ARENA_ARRAY(w->run, float, WORKER_SCALE *(size_t)w->o->steps + 1);
    return OK;
}

void worker_note_scale(struct worker *w, int64_t step, const float *numbers)
{
    memcpy(w->scales + WORKER_SCALE * step, numbers, WORKER_SCALE * sizeof *numbers);
}

/* Of a host lane, whose step is over when its calls are. */
enum status worker_see_scale(struct worker *w, struct error *err)
{
    float numbers[LOSS_SCALE_NUMBERS];
    if (!has_scale(w) || w->apart) return OK;
    TRY(w->backend.download(&w->backend, numbers, worker_scale_at(&w->chunks[0]), sizeof numbers,
                            err));
    worker_note_scale(w, w->step, numbers);
    return OK;
}

void worker_scale_after(const struct worker *w, int64_t steps, float out[WORKER_SCALE])
{
    const float *from =
        has_scale(w) && steps ? w->scales + WORKER_SCALE * (steps - 1) : w->scale_before;
    memcpy(out, from, WORKER_SCALE * sizeof *out);
}

/* As many bits as a comm_max of int64 carries. FNV-1a. */
static int64_t digest(const void *bytes, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return (int64_t)(h >> 2);
}

enum status worker_scale_agreed(struct worker *w, struct error *err)
{
    float last[WORKER_SCALE], numbers[LOSS_SCALE_NUMBERS];
    enum status status = OK;
    if (!has_scale(w)) return OK;
    worker_scale_after(w, w->o->steps, last);
    for (int32_t i = 0; i < w->n_chunks && status == OK; i++) {
        status = w->backend.download(&w->backend, numbers, worker_scale_at(&w->chunks[i]),
                                     sizeof numbers, err);
        if (status == OK && memcmp(numbers, last, sizeof last) != 0)
            status = error_set(err, ERR_RESOURCE, "%s: its stages do not have one loss scale",
                               w->p->devices[w->rank].name);
    }
    TRY(comm_agree(w->comm, status, err));
    int64_t mine = digest(w->scales, WORKER_SCALE * sizeof *w->scales * (size_t)w->o->steps);
    if (comm_max(w->comm, mine) == -comm_max(w->comm, -mine)) return OK;
    return error_set(err, ERR_RESOURCE,
                     "devices did not skip the same steps, or have different loss scales");
}

/* Steps that were skipped, as numbers from 1 on. */
void worker_scale_report(const struct worker *w, struct run_result *out)
{
    float before = w->scale_before[LOSS_SCALE_SKIPPED], last[WORKER_SCALE];
    if (!has_scale(w)) return;
    worker_scale_after(w, w->o->steps, last);
    out->loss_scale = (double)last[LOSS_SCALE_NOW];
    out->skipped = ARENA_ARRAY(w->a, int64_t, (size_t)w->o->steps + 1);
    for (int64_t s = 0; s < w->o->steps; s++) {
        float now = w->scales[WORKER_SCALE * s + LOSS_SCALE_SKIPPED];
        if (now > before) out->skipped[out->n_skipped++] = w->first_step + s + 1;
        before = now;
    }
}
