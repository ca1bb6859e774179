#include "exec/worker/scale_log.h"

#include "exec/worker/chunks.h"
#include "exec/worker/progress.h"

#include <string.h>

static bool has_scale(const struct rank *r) { return r->p->loss_scale.initial > 0; }

void scale_log_resume(struct scale_log *s, const float numbers[SCALE_LOG_NUMBERS])
{
    memcpy(s->before, numbers, sizeof s->before);
}

/* A static scale is the program's; a dynamic one continues from the checkpoint. */
enum status scale_log_open(struct scale_log *s, struct rank *r, const struct chunks *c,
                           struct error *err)
{
    float *first = s->before, numbers[LOSS_SCALE_NUMBERS] = {0};
    if (!has_scale(r)) return OK;
    if (!(first[LOSS_SCALE_NOW] > 0) || !r->p->loss_scale.grows_after)
        first[LOSS_SCALE_NOW] = (float)r->p->loss_scale.initial, first[LOSS_SCALE_GOOD] = 0;
    memcpy(numbers, first, sizeof s->before);
    for (int32_t i = 0; i < c->n; i++)
        TRY(r->backend.upload(&r->backend, chunks_scale(&c->at[i]), numbers, sizeof numbers, err));
    s->after = ARENA_ARRAY(r->run, float, SCALE_LOG_NUMBERS *(size_t)r->o->steps + 1);
    return OK;
}

void scale_log_note(struct scale_log *s, int64_t step, const float *numbers)
{
    memcpy(s->after + SCALE_LOG_NUMBERS * step, numbers, SCALE_LOG_NUMBERS * sizeof *numbers);
}

enum status scale_log_see(struct scale_log *s, struct rank *r, const struct chunks *c, int64_t step,
                          struct error *err)
{
    float numbers[LOSS_SCALE_NUMBERS];
    if (!has_scale(r) || r->discrete) return OK;
    TRY(r->backend.download(&r->backend, numbers, chunks_scale(&c->at[0]), sizeof numbers, err));
    scale_log_note(s, step, numbers);
    return OK;
}

int64_t scale_log_skipped_before(const struct scale_log *s)
{
    return s->after ? 0 : (int64_t)s->before[LOSS_SCALE_SKIPPED];
}

void scale_log_after(const struct scale_log *s, int64_t steps, float out[SCALE_LOG_NUMBERS])
{
    const float *from = s->after && steps ? s->after + SCALE_LOG_NUMBERS * (steps - 1) : s->before;
    memcpy(out, from, SCALE_LOG_NUMBERS * sizeof *out);
}

/* A digest of the size that comm_max carries. FNV-1a. */
static int64_t digest(const void *bytes, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return (int64_t)(h >> 2);
}

enum status scale_log_agreed(const struct scale_log *s, struct rank *r, const struct chunks *c,
                             struct error *err)
{
    float last[SCALE_LOG_NUMBERS], numbers[LOSS_SCALE_NUMBERS];
    enum status status = OK;
    if (!has_scale(r)) return OK;
    scale_log_after(s, r->o->steps, last);
    for (int32_t i = 0; i < c->n && status == OK; i++) {
        status =
            r->backend.download(&r->backend, numbers, chunks_scale(&c->at[i]), sizeof numbers, err);
        if (status == OK && memcmp(numbers, last, sizeof last) != 0)
            status = error_set(err, ERR_RESOURCE, "%s: its stages have different loss scales",
                               rank_device(r)->name);
    }
    TRY(comm_agree(r->comm, status, err));
    int64_t mine = digest(s->after, SCALE_LOG_NUMBERS * sizeof *s->after * (size_t)r->o->steps);
    if (comm_max(r->comm, mine) == -comm_max(r->comm, -mine)) return OK;
    return error_set(err, ERR_RESOURCE,
                     "devices did not skip the same steps, or have different loss scales");
}

/* Skipped steps, as numbers from 1. */
void scale_log_report(const struct scale_log *s, const struct rank *r, const struct progress *g,
                      struct arena *a, struct run_result *out)
{
    float before = s->before[LOSS_SCALE_SKIPPED], last[SCALE_LOG_NUMBERS];
    if (!has_scale(r)) return;
    scale_log_after(s, r->o->steps, last);
    out->loss_scale = (double)last[LOSS_SCALE_NOW];
    out->skipped = ARENA_ARRAY(a, int64_t, (size_t)r->o->steps + 1);
    for (int64_t i = 0; i < r->o->steps; i++) {
        float now = s->after[SCALE_LOG_NUMBERS * i + LOSS_SCALE_SKIPPED];
        if (now > before) out->skipped[out->n_skipped++] = g->first_step + i + 1;
        before = now;
    }
}
