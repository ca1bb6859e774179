#include "planner/exact/local_search.h"

struct climber {
    const struct local_search_hooks *hooks;
    struct candidate *x;
    int64_t *ns;
    bool better; /* whether the last candidate improved */
};

static enum status score_candidate(struct climber *c, const struct candidate *variant,
                                   struct error *err)
{
    int64_t ns;
    c->better = false;
    if (search_context_over(c->hooks->t)) return OK;
    TRY(c->hooks->score(c->hooks->user, variant, *c->ns, &ns, err));
    if (ns >= *c->ns) return OK;
    *c->x = *variant;
    *c->ns = ns;
    c->better = true;
    return OK;
}

/* The same stages on devices of the same types. */
static bool same_shape(const struct candidate *x, int32_t a, int32_t b)
{
    const struct device *d = x->s->cluster->devices;
    if (x->n_stages[a] != x->n_stages[b] || x->share[a] != x->share[b]) return false;
    for (int32_t i = 0; i < x->n_stages[a]; i++)
        if (x->last[a][i] != x->last[b][i] || d[x->device[a][i]].type != d[x->device[b][i]].type)
            return false;
    return true;
}

/* Replicas that change with r: all equal ones, or r alone. */
static uint32_t group_of(const struct candidate *x, int32_t r, bool together)
{
    uint32_t mask = 1u << r;
    for (int32_t o = 0; together && o < x->n_replicas; o++)
        if (same_shape(x, r, o)) mask |= 1u << o;
    return mask;
}

/* Replicas equal to an earlier one are already done. */
static bool had_turn(const struct candidate *x, int32_t r, bool together)
{
    uint32_t before = (1u << r) - 1;
    return together && (group_of(x, r, true) & before);
}

static bool move_end(struct candidate *x, uint32_t group, int32_t i, int32_t by)
{
    for (int32_t r = 0; r < x->n_replicas; r++) {
        if (!(group >> r & 1)) continue;
        int32_t end = x->last[r][i] + by, before = i ? x->last[r][i - 1] : -1;
        if (end <= before || end >= x->last[r][i + 1]) return false;
        x->last[r][i] = (int16_t)end;
    }
    return true;
}

static enum status move_ends(struct climber *c, int32_t by, bool together, struct error *err)
{
    for (int32_t r = 0; r < c->x->n_replicas; r++) {
        if (had_turn(c->x, r, together)) continue;
        for (int32_t i = 0; i + 1 < c->x->n_stages[r]; i++)
            for (int32_t sign = 1; sign >= -1; sign -= 2) do {
                    struct candidate variant = *c->x;
                    c->better = false;
                    if (move_end(&variant, group_of(c->x, r, together), i, sign * by))
                        TRY(score_candidate(c, &variant, err));
                } while (c->better);
    }
    return OK;
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    while (b) {
        int32_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Equal numbers from each replica of one group, such that each of the other group gets equal numbers. */
static bool move_share(struct candidate *x, uint32_t from, uint32_t to, int32_t by)
{
    int32_t givers = __builtin_popcount(from), takers = __builtin_popcount(to);
    int32_t divisor = common_divisor(givers, takers);
    for (int32_t r = 0; r < x->n_replicas; r++) {
        if (from >> r & 1) x->share[r] -= by * takers / divisor;
        if (to >> r & 1) x->share[r] += by * givers / divisor;
        if (x->share[r] < 1) return false;
    }
    return true;
}

static enum status move_shares(struct climber *c, int32_t by, bool together, struct error *err)
{
    for (int32_t r = 0; r < c->x->n_replicas; r++)
        for (int32_t o = 0; o < c->x->n_replicas; o++) do {
                struct candidate variant = *c->x;
                uint32_t from = group_of(c->x, r, together), to = group_of(c->x, o, together);
                c->better = false;
                if (!(from & to) && move_share(&variant, from, to, by))
                    TRY(score_candidate(c, &variant, err));
            } while (c->better);
    return OK;
}

/* Exchanges a stage with the next one, with their numbers of layers. */
static void exchange(struct candidate *x, int32_t r, int32_t i)
{
    int8_t device = x->device[r][i];
    int32_t before = i ? x->last[r][i - 1] : -1;
    x->device[r][i] = x->device[r][i + 1];
    x->device[r][i + 1] = device;
    x->last[r][i] = (int16_t)(before + x->last[r][i + 1] - x->last[r][i]);
}

static enum status exchange_stages(struct climber *c, bool together, struct error *err)
{
    for (int32_t r = 0; r < c->x->n_replicas; r++)
        for (int32_t i = 0; i + 1 < c->x->n_stages[r] && !had_turn(c->x, r, together); i++) {
            struct candidate variant = *c->x;
            uint32_t group = group_of(c->x, r, together);
            const int32_t *class_of = variant.s->class_of;
            if (class_of[variant.device[r][i]] == class_of[variant.device[r][i + 1]]) continue;
            for (int32_t o = 0; o < c->x->n_replicas; o++)
                if (group >> o & 1) exchange(&variant, o, i);
            TRY(score_candidate(c, &variant, err));
        }
    return OK;
}

/* The stage that computes on a device; false: none. */
static bool stage_on(const struct candidate *x, int32_t device, int32_t *r, int32_t *i)
{
    for (*r = 0; *r < x->n_replicas; (*r)++)
        for (*i = 0; *i < x->n_stages[*r]; (*i)++)
            if (x->device[*r][*i] == device) return true;
    return false;
}

bool local_search_exchange(struct candidate *x, int32_t d, int32_t e)
{
    int32_t r, i, o, k;
    bool used = stage_on(x, d, &r, &i), other = stage_on(x, e, &o, &k);
    if (x->s->class_of[d] == x->s->class_of[e] || (!used && !other)) return false;
    if (used) x->device[r][i] = (int8_t)e;
    if (other) x->device[o][k] = (int8_t)d;
    return true;
}

static enum status exchange_devices(struct climber *c, struct error *err)
{
    const struct space *s = c->x->s;
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t e = 0; e < d; e++) {
            struct candidate variant = *c->x;
            if (local_search_exchange(&variant, d, e)) TRY(score_candidate(c, &variant, err));
        }
    return OK;
}

/* An idle device takes the later half of a stage. */
static bool split(struct candidate *x, int32_t r, int32_t i, int32_t device)
{
    int32_t first = i ? x->last[r][i - 1] + 1 : 0, last = x->last[r][i], n = x->n_stages[r]++;
    if (first == last) return false;
    for (int32_t k = n; k > i; k--) {
        x->device[r][k] = x->device[r][k - 1];
        x->last[r][k] = x->last[r][k - 1];
    }
    x->device[r][i + 1] = (int8_t)device;
    x->last[r][i] = (int16_t)((first + last) / 2);
    return true;
}

static enum status split_stages(struct climber *c, struct error *err)
{
    for (int32_t d = 0; d < c->x->s->n_devices; d++)
        for (int32_t r = 0; r < c->x->n_replicas; r++)
            for (int32_t i = 0; i < c->x->n_stages[r]; i++) {
                struct candidate variant = *c->x;
                int32_t o, k;
                if (stage_on(&variant, d, &o, &k)) continue;
                if (split(&variant, r, i, d)) TRY(score_candidate(c, &variant, err));
            }
    return OK;
}

/* Removes a stage; its layers go to the one before (up) or after. */
static bool leave(struct candidate *x, int32_t r, int32_t i, bool up)
{
    if (i >= x->n_stages[r] || x->n_stages[r] < 2 || (up ? i == 0 : i + 1 == x->n_stages[r]))
        return false;
    if (up) x->last[r][i - 1] = x->last[r][i];
    x->n_stages[r]--;
    for (int32_t k = i; k < x->n_stages[r]; k++) {
        x->device[r][k] = x->device[r][k + 1];
        x->last[r][k] = x->last[r][k + 1];
    }
    return true;
}

static enum status leave_stages(struct climber *c, struct error *err)
{
    for (int32_t r = 0; r < c->x->n_replicas; r++)
        for (int32_t i = 0; i < c->x->n_stages[r]; i++)
            for (int32_t up = 0; up < 2; up++) {
                struct candidate variant = *c->x;
                if (leave(&variant, r, i, up)) TRY(score_candidate(c, &variant, err));
            }
    return OK;
}

static int32_t eighth(int32_t n) { return n < 16 ? 1 : n / 8; }

enum status local_search(const struct local_search_hooks *hooks, struct candidate *x, int64_t *ns,
                         struct error *err)
{
    struct climber c = {.hooks = hooks, .x = x, .ns = ns};
    int64_t before;
    do {
        before = *ns;
        for (int separately = 0; separately < 2; separately++) {
            for (int32_t by = eighth(x->s->microbatches); by > 0; by /= 2)
                TRY(move_shares(&c, by, !separately, err));
            for (int32_t by = eighth(x->s->n_layers); by > 0; by /= 2)
                TRY(move_ends(&c, by, !separately, err));
            TRY(exchange_stages(&c, !separately, err));
        }
        if (hooks->devices) TRY(exchange_devices(&c, err));
        if (hooks->devices) TRY(split_stages(&c, err));
        if (hooks->devices) TRY(leave_stages(&c, err));
    } while (*ns < before && !search_context_over(hooks->t));
    return OK;
}
