#include "planner/schedule/refine.h"

#include "core/base/arena.h"
#include "planner/candidate/group.h"

enum warmup_rule { WARMUP_HETEROGENEOUS, WARMUP_EAGER, WARMUP_GPIPE };

static int32_t least(int64_t a, int64_t b) { return (int32_t)(a < b ? a : b); }

/* The slowest message between two devices with common sequences, as a proportion of a full message. */
static int64_t sharded_transfer_ns(const struct space *s, const struct plan_stage *x,
                                   const struct plan_stage *y)
{
    int64_t slowest = 0, from = 0;
    for (int32_t k = 0; k < plan_stage_devices(x); k++) {
        int64_t n = x->sequences ? x->sequences[k] : s->microbatch, begin = 0;
        for (int32_t l = 0; l < plan_stage_devices(y); l++) {
            int64_t m = y->sequences ? y->sequences[l] : s->microbatch;
            int64_t first = from > begin ? from : begin,
                    end = from + n < begin + m ? from + n : begin + m;
            begin += m;
            int32_t a = plan_stage_device(x, k), b = plan_stage_device(y, l);
            if (first >= end || !space_linked(s, a, b)) continue;
            int64_t ns = space_transfer_ns(s, a, b, x->last_layer) * (end - first) / s->microbatch;
            if (ns > slowest) slowest = ns;
        }
        from += n;
    }
    return slowest;
}

static void heterogeneous(const struct space *s, struct plan_replica *r)
{
    struct arena *scratch = arena_new();
    int64_t *t = ARENA_ARRAY(scratch, int64_t, (size_t)r->n_stages),
            *c = ARENA_ARRAY(scratch, int64_t, (size_t)r->n_stages), slowest = 1;
    for (int32_t i = 0; i < r->n_stages; i++) {
        t[i] = group_stage_ns(s, &r->stages[i]);
        if (i + 1 < r->n_stages) c[i] = sharded_transfer_ns(s, &r->stages[i], &r->stages[i + 1]);
        if (t[i] > slowest) slowest = t[i];
        if (c[i] > slowest) slowest = c[i];
    }
    int64_t w = 1;
    for (int32_t i = r->n_stages - 1; i >= 0; i--) {
        r->stages[i].warmup = least(w, r->microbatches);
        if (i == 0) break;
        int64_t delta = (t[i] + 2 * c[i - 1] + slowest - 1) / slowest;
        w += delta > 1 ? delta : 1;
    }
    arena_free(scratch);
}

void refine_eager(struct plan_replica *r)
{
    for (int32_t i = 0; i < r->n_stages; i++)
        r->stages[i].warmup = least(2 * (int64_t)(r->n_stages - 1 - i) + 1, r->microbatches);
}

void refine_warmups(const struct space *s, struct plan *p, int rule)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_replica *replica = &p->replicas[r];
        if (rule == WARMUP_HETEROGENEOUS) heterogeneous(s, replica);
        if (rule == WARMUP_EAGER) refine_eager(replica);
        for (int32_t i = 0; i < replica->n_stages && rule == WARMUP_GPIPE; i++)
            replica->stages[i].warmup = replica->microbatches;
    }
}

const int64_t refine_bucket_parts[REFINE_BUCKETS] = {4, 2, 8, 0};

void refine_buckets(const struct space *s, struct plan *p, int64_t parts)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *x = &p->replicas[r].stages[i];
            x->bucket_bytes = parts ? group_stage(s, x)->parameter_bytes / parts : 0;
        }
}

bool refine_schedule(struct plan_replica *r, int k)
{
    static const struct {
        const char *name;
        bool split;
    } schedules[REFINE_SCHEDULES] = {
        {NULL, false}, {"1f1b", true}, {"zb-h1", true}, {"zb-h2", true}, {"eager-1f1b", true}};
    bool own = r->orders;
    for (int32_t i = 0; i < r->n_stages; i++) own |= r->stages[i].order != NULL;
    if (own) return false;
    for (int32_t i = 0; i < r->n_stages && schedules[k].name; i++) r->stages[i].warmup = 0;
    r->schedule = schedules[k].name, r->split = schedules[k].split;
    return true;
}
