/* Stage detail of procedures with collectives. code.h states the transformation and why it is exact. */
#include "core/base/arena.h"
#include "sim/engine/code.h"

#include <string.h>

/* One member in one procedure: codes [first, last] from its first collective to its last, equal for all members except for
 * operator durations. */
struct stretch {
    struct code *code;
    int32_t first, last, n;
    int32_t at; /* the current collective of a walk */
};

static bool same_members(const struct program *p, int32_t a, int32_t b)
{
    const struct collective *x = &p->collectives[a], *y = &p->collectives[b];
    if (a == b) return true;
    if (x->n_members != y->n_members) return false;
    for (int32_t i = 0; i < x->n_members; i++)
        if (x->members[i].stage != y->members[i].stage) return false;
    return true;
}

/* false: fewer than two collectives, or other instructions among them. */
static bool find(const struct program *p, struct code *code, struct stretch *out)
{
    *out = (struct stretch){.code = code, .first = -1};
    for (int32_t i = 0; code[i].kind != CODE_END; i++) {
        if (code[i].kind != CODE_FOLDED_COLLECTIVE) continue;
        if (out->first < 0) out->first = i;
        if (!same_members(p, code[out->first].arg, code[i].arg)) return false;
        out->last = i;
        out->n++;
    }
    out->at = out->first;
    for (int32_t i = out->first; out->n > 1 && i <= out->last; i++)
        if (code[i].kind != CODE_FOLDED_COLLECTIVE && code[i].kind != CODE_COMPUTE) return false;
    return out->n > 1;
}

/* Operators up to the next collective, which becomes the current one. */
static int64_t next_collective(struct stretch *s)
{
    int64_t work = 0;
    while (s->code[++s->at].kind == CODE_COMPUTE) work += s->code[s->at].amount;
    return work;
}

/* From the first collective's start to the last one's end: the collectives, and the longest work of any member between each two. */
static bool path_through(struct stretch *s, int32_t n_members, int64_t *out)
{
    *out = s[0].code[s[0].first].amount;
    for (int32_t collective = 1; collective < s[0].n; collective++) {
        int64_t longest = 0;
        for (int32_t m = 0; m < n_members; m++) {
            int64_t work = next_collective(&s[m]);
            if (work > longest) longest = work;
            if (s[m].code[s[m].at].arg != s[0].code[s[0].at].arg) return false;
        }
        *out += longest + s[0].code[s[0].at].amount;
        if (*out > COST_MAX_NS) return false; /* each collective is then rejected separately */
    }
    return true;
}

static void shorten(struct stretch *s, int64_t amount)
{
    struct code *end = s->code + s->last;
    while (end->kind != CODE_END) end++;
    s->code[s->first].amount = amount;
    memmove(s->code + s->first + 1, s->code + s->last + 1,
            (size_t)(end - (s->code + s->last)) * sizeof *s->code);
}

static void merge(const struct program *p, const struct collective *g, int32_t procedure,
                  struct code_procedure *const *of, struct stretch *s)
{
    int64_t amount;
    for (int32_t m = 0; m < g->n_members; m++) {
        int32_t stage = g->members[m].stage;
        if (procedure >= p->stages[stage].n_procedures ||
            !find(p, of[stage][procedure].code, &s[m]) || s[m].n != s[0].n)
            return;
    }
    if (!path_through(s, g->n_members, &amount)) return;
    for (int32_t m = 0; m < g->n_members; m++) shorten(&s[m], amount);
}

void code_merge_collectives(struct arena *a, const struct program *p,
                         struct code_procedure *const *procedures)
{
    int32_t most = 1;
    for (int32_t i = 0; i < p->n_collectives; i++)
        if (p->collectives[i].n_members > most) most = p->collectives[i].n_members;
    struct stretch *s = ARENA_ARRAY(a, struct stretch, (size_t)most);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        if (!g->each_call || collective_of_tensor(g)) continue;
        for (int32_t f = 0; f < p->stages[g->members[0].stage].n_procedures; f++)
            merge(p, g, f, procedures, s);
    }
}
