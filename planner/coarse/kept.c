/* planner/coarse/kept.c - the candidates that an offer keeps. */
#include "planner/coarse/internal.h"

#include <string.h>

/* Whether two candidates divide the classes into the same teams, at one microbatch size; of measured layers also at one ZeRO level, because
 * plans as they were measured are wanted too. */
static bool same_teams(const struct coarse_candidate *x, const struct coarse_candidate *y)
{
    uint32_t set = 0;
    if (x->size != y->size || x->apart != y->apart) return false;
    for (int32_t i = 0; i < x->n_teams; i++) {
        bool found = false;
        for (int32_t k = 0; k < y->n_teams; k++)
            found |=
                x->team[i]->classes == y->team[k]->classes && x->team[i]->idle == y->team[k]->idle;
        if (!found) return false;
        set++;
    }
    return set == (uint32_t)y->n_teams;
}

static int32_t replicas_of(const struct coarse_candidate *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_teams; i++) n += c->team[i]->replicas;
    return n;
}

/* Of every division into teams and microbatch size only the best COARSE_EACH are kept, and of them COARSE_ALIKE with equal numbers of
 * replicas, because their estimates have different errors. */
void coarse_offer_keep(struct coarse_offer *q, const struct coarse_candidate *c)
{
    int32_t at, worst = -1, same = 0, alike = 0;
    for (int32_t i = 0; i < q->n_kept; i++)
        if (same_teams(&q->kept[i], c)) same++, alike += replicas_of(&q->kept[i]) == replicas_of(c);
    bool full = alike == COARSE_ALIKE;
    for (int32_t i = 0; i < q->n_kept; i++)
        if (same_teams(&q->kept[i], c) && (!full || replicas_of(&q->kept[i]) == replicas_of(c)))
            worst = i;
    full |= same == COARSE_EACH;
    if (full && q->kept[worst].estimate_ns <= c->estimate_ns) return;
    if (full) {
        q->n_kept--;
        memmove(&q->kept[worst], &q->kept[worst + 1],
                (size_t)(q->n_kept - worst) * sizeof *q->kept);
    }
    at = q->n_kept;
    if (at == COARSE_KEPT && c->estimate_ns >= q->kept[at - 1].estimate_ns) return;
    if (at < COARSE_KEPT)
        q->n_kept++;
    else
        at--;
    for (; at > 0 && q->kept[at - 1].estimate_ns > c->estimate_ns; at--)
        q->kept[at] = q->kept[at - 1];
    q->kept[at] = *c;
}

int32_t coarse_rank(const struct coarse_offer *o, int32_t candidate)
{
    int32_t n = 0;
    for (int32_t k = 0; k < candidate; k++) n += same_teams(&o->kept[k], &o->kept[candidate]);
    return n;
}
