#include "planner/baseline/subteam.h"

/* Subsets taken from a list of plans; all subsets: without one of the devices, and those of the list. */
enum { USED_MAX = 8, TEAMS_MAX = SPACE_TABLES_MAX + USED_MAX };

struct teams {
    int32_t n;
    uint32_t set[TEAMS_MAX]; /* bit d: device d */
};

/* Teams with equal counts of each interchangeable class are equivalent. */
static bool same_classes(const struct space *s, uint32_t x, uint32_t y)
{
    int32_t more[SPACE_TABLES_MAX] = {0};
    for (int32_t d = 0; d < s->n_devices; d++)
        more[s->class_of[d]] += (int32_t)(x >> d & 1) - (int32_t)(y >> d & 1);
    for (int32_t c = 0; c < SPACE_TABLES_MAX; c++)
        if (more[c]) return false;
    return true;
}

static void add(struct teams *q, const struct space *s, uint32_t set)
{
    uint32_t all = (UINT32_C(1) << s->n_devices) - 1;
    if (!set || set == all || q->n == TEAMS_MAX) return;
    for (int32_t i = 0; i < q->n; i++)
        if (same_classes(s, q->set[i], set)) return;
    q->set[q->n++] = set;
}

static uint32_t used_by(const struct plan *p)
{
    uint32_t set = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++)
                set |= UINT32_C(1) << plan_stage_device(&p->replicas[r].stages[i], k);
    return set;
}

static void add_used(struct teams *q, const struct space *s, const struct incumbents *kept)
{
    int32_t most = q->n + USED_MAX;
    for (int32_t i = 0; i < kept->n && q->n < most; i++)
        add(q, s, used_by(&kept->plans[i].plan));
}

enum status subteam_try(struct search_context *t, const struct baselines_request *r,
                        const struct space *s, struct error *err)
{
    struct teams q = {0};
    if (s->n_devices > SPACE_TABLES_MAX) return OK;
    uint32_t all = (UINT32_C(1) << s->n_devices) - 1;
    for (int32_t d = 0; d < s->n_devices; d++) add(&q, s, all & ~(UINT32_C(1) << d));
    add_used(&q, s, &t->incumbents);
    for (int32_t i = 0; i < q.n && !search_context_over(t); i++) {
        int32_t team[SPACE_TABLES_MAX], n_team = 0;
        for (int32_t d = 0; d < s->n_devices; d++)
            if (q.set[i] >> d & 1) team[n_team++] = d;
        TRY(baselines_on(t, r, team, n_team, err));
    }
    return OK;
}
