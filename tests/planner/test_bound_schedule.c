/* Schedule bounds never exceed a makespan: of named schedules, the zero-bubble scheduler's, random ones, and all of small
 * cases. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/bound/schedule.h"
#include "sim/pipeline/static.h"
#include "sim/pipeline/zero_bubble.h"
#include "tests/support/suites.h"
#include "tools/schedule/cases.h"

struct draw {
    uint64_t seed, at;
};
static int64_t below(struct draw *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 501, d->at++, (uint64_t)n);
}

enum { STAGES_MAX = 6 };
struct pipe { /* storage of one random pipeline */
    struct pipeline p;
    struct pipeline_stage stages[STAGES_MAX];
    struct pipeline_link links[STAGES_MAX];
    struct pipeline_device devices[STAGES_MAX];
    int32_t m;
};

/* Times from 0; memory that I and W give back in any parts, or that I takes more of, now and then not balanced at all. */
static void random_stage(struct draw *d, struct pipeline_stage *s, struct pipeline_device *e)
{
    int64_t take = below(d, 9) ? 1 + below(d, 6) : 0;
    *s = (struct pipeline_stage){.forward_bytes = take};
    s->forward_ns = below(d, 12);
    s->input_ns = below(d, 12);
    s->weight_ns = below(d, 8);
    if (!below(d, 3)) s->fused_ns = below(d, 22);
    s->input_bytes = below(d, 8) ? -below(d, take + 1) : below(d, 3);
    s->weight_bytes = -take - s->input_bytes;
    if (!below(d, 20)) s->weight_bytes += below(d, 5) - 2;
    e->resident_bytes = below(d, 4);
    e->limit_bytes =
        below(d, 4) ? e->resident_bytes + take + 2 + below(d, 4 * take + 2) : PIPELINE_NO_LIMIT;
}

static void random_pipe(struct draw *d, int32_t max_stages, int32_t max_microbatches,
                        struct pipe *out)
{
    int32_t n = 1 + (int32_t)below(d, max_stages);
    out->m = 1 + (int32_t)below(d, max_microbatches);
    out->p = (struct pipeline){n, n, out->stages, out->links, out->devices};
    for (int32_t s = 0; s < n; s++) {
        random_stage(d, &out->stages[s], &out->devices[s]);
        struct pipeline_link *l = &out->links[s];
        *l = (struct pipeline_link){{0, 0}, {0, 0}};
        for (int up = 0; up < 2; up++) {
            if (!below(d, 3)) l->occupancy_ns[up] = below(d, 20);
            if (!below(d, 2)) l->latency_ns[up] = below(d, 20);
        }
    }
    if (!below(d, 8)) out->p.links = NULL;
    if (!below(d, 8)) out->p.devices = NULL;
}

/* The makespan of a schedule that fits its memory; -1: it does not, or waits for ever. */
static int64_t makespan_of(struct arena *a, const struct pipe *p, const struct schedule *s)
{
    struct static_timer *t;
    struct static_report r;
    struct error err = {0};
    if (static_new(a, s, &t, &err) != OK) return -1;
    ck_assert_int_eq(pipeline_check(&p->p, s, &err), OK);
    ck_assert(static_report(t, &p->p, a, &r));
    return r.fits ? r.makespan_ns : -1;
}

/* Takes operations at random, any microbatch, as long as data is there and memory fits. split: chances in 2 of I, W. */
static bool random_order(struct arena *a, struct draw *d, const struct pipe *p, int split,
                         struct schedule *out)
{
    int32_t n = p->p.n_stages, m = p->m, left = n * m * 3;
    *out = (struct schedule){"random",
                             n,
                             1,
                             m,
                             ARENA_ARRAY(a, int32_t, (size_t)n),
                             ARENA_ARRAY(a, struct schedule_lane, (size_t)n)};
    uint8_t *done = ARENA_ARRAY(a, uint8_t, (size_t)(n * m)); /* 1: F, 2: I, 3: W or B */
    int64_t *used = ARENA_ARRAY(a, int64_t, (size_t)n);
    for (int32_t s = 0; s < n; s++) {
        out->stage[s] = s;
        out->lanes[s].ops = ARENA_ARRAY(a, struct schedule_op, (size_t)m * 3);
        if (p->p.devices) used[s] = p->devices[s].resident_bytes;
    }
    int64_t ordered = below(d, 2);
    for (int tries = 0; left > 0 && tries < 200 * n * m; tries++) {
        int32_t s = (int32_t)below(d, n), i = (int32_t)below(d, m);
        const struct pipeline_stage *x = &p->stages[s];
        uint8_t *now = &done[s * m + i];
        int64_t limit = p->p.devices ? p->devices[s].limit_bytes : PIPELINE_NO_LIMIT, add = 0;
        struct schedule_op op = {0, 0, i};
        if (ordered && i > 0 && done[s * m + i - 1] <= *now) continue;
        if (*now == 0 && (s == 0 || done[(s - 1) * m + i] >= 1))
            op.phase = PHASE_F, add = x->forward_bytes;
        else if (*now == 1 && (s + 1 == n || done[(s + 1) * m + i] >= 2)) {
            bool fused = below(d, 2) >= split;
            op.phase = fused ? 'B' : 'I', add = x->input_bytes + (fused ? x->weight_bytes : 0);
        } else if (*now == 2)
            op.phase = PHASE_W, add = x->weight_bytes;
        if (!op.phase || used[s] + add > limit) continue;
        used[s] += add;
        out->lanes[s].ops[out->lanes[s].n_ops++] = op;
        left -= op.phase == PHASE_B ? 2 : 1;
        *now = (uint8_t)(op.phase == PHASE_B ? 3 : *now + 1);
    }
    return left == 0;
}

static int64_t bound_of(const struct pipe *p, enum bound_depth depth, enum bound_orders orders,
                        int64_t best_ns, int64_t steps)
{
    struct bound_schedule b;
    bound_schedule(&p->p, p->m,
                   &(struct bound_schedule_options){depth, orders, best_ns, steps}, &b);
    ck_assert(b.term && b.class_text);
    return b.lower_bound_ns;
}

/* kinds: 0 split, 1 fused, 2 mixed: the best of each seen. */
static void see(int64_t best[3], int kind, int64_t ns)
{
    if (ns < 0) return;
    if (ns < best[kind]) best[kind] = ns;
    if (ns < best[BOUND_MIXED]) best[BOUND_MIXED] = ns;
}

static void best_by_name(struct arena *a, struct draw *d, const struct pipe *p, int64_t best[3])
{
    for (int kind = 0; kind < SCHEDULE_KIND_COUNT; kind++) {
        if (schedule_kind_chunks((enum schedule_kind)kind) != 1) continue;
        struct schedule_spec spec = {.kind = (enum schedule_kind)kind,
                                     .n_devices = p->p.n_stages,
                                     .n_microbatches = p->m,
                                     .split = below(d, 2)};
        struct schedule s;
        struct error err = {0};
        ck_assert_int_eq(schedule_make(a, &spec, &s, &err), OK);
        bool split = spec.split || schedule_kind_has(spec.kind, SCHEDULE_SPLITS);
        see(best, split ? BOUND_SPLIT : BOUND_FUSED, makespan_of(a, p, &s));
    }
}

START_TEST(no_bound_is_above_a_schedule)
{
    struct arena *a = arena_new();
    uint64_t cases = suites_long() ? 20000 : 350;
    int32_t compared = 0;
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(a)) {
        struct draw d = {seed, 0};
        struct pipe p;
        int64_t best[3] = {INT64_MAX, INT64_MAX, INT64_MAX}, ns;
        random_pipe(&d, STAGES_MAX, 9, &p);
        best_by_name(a, &d, &p, best);
        struct schedule s;
        struct error err = {0};
        if (p.p.devices && p.p.links && zero_bubble_make(a, &p.p, p.m, true, &s, &ns, &err) == OK)
            see(best, BOUND_SPLIT, makespan_of(a, &p, &s));
        for (int i = 0; i < 6; i++)
            if (random_order(a, &d, &p, i % 3, &s))
                see(best,
                    i % 3 == 0   ? BOUND_FUSED
                    : i % 3 == 2 ? BOUND_SPLIT
                                 : BOUND_MIXED,
                    makespan_of(a, &p, &s));
        for (int k = 0; k < 3; k++) {
            int64_t cheap = bound_of(&p, BOUND_CHEAP, (enum bound_orders)k, 0, 0);
            int64_t cycles = bound_of(&p, BOUND_CYCLES, (enum bound_orders)k, 0, 0);
            int64_t deep = bound_of(&p, BOUND_DEEP, (enum bound_orders)k, 0, 0);
            ck_assert(cheap <= cycles && cycles <= deep);
            int64_t cut = bound_of(&p, BOUND_DEEP, (enum bound_orders)k, 0, 1 + below(&d, 400));
            ck_assert_msg(cheap <= deep && cut <= deep && deep <= best[k],
                          "seed %d, orders %d: %lld, %lld, %lld > %lld", (int)seed, k,
                          (long long)cheap, (long long)cut, (long long)deep, (long long)best[k]);
            if (best[k] == INT64_MAX) continue;
            int64_t aimed = bound_of(&p, BOUND_DEEP, (enum bound_orders)k, best[k], 0);
            ck_assert_int_le(aimed, best[k]);
            ck_assert_int_ge(aimed, cheap);
            compared++;
        }
    }
    arena_free(a);
    ck_assert_int_gt(compared, (int)(2 * cases));
}
END_TEST

/* --- every schedule of tiny pipelines --- */

/* Orders of F, I, W of one stage as rows of 3m letters: all ways in which counts never run ahead (standard Young tableaux of
 * 3 rows: 1, 5, 42, 462 for m = 1 … 4). */
struct orders {
    int32_t m, n;
    char text[462][12];
};
static void all_orders(struct orders *o, char *text, int32_t f, int32_t i, int32_t w)
{
    int32_t at = f + i + w;
    if (at == 3 * o->m) {
        memcpy(o->text[o->n++], text, (size_t)at);
        return;
    }
    if (f < o->m) text[at] = 'F', all_orders(o, text, f + 1, i, w);
    if (i < f) text[at] = 'I', all_orders(o, text, f, i + 1, w);
    if (w < i) text[at] = 'W', all_orders(o, text, f, i, w + 1);
}

/* A stage's letters one by one as far as data allows; when every stage is through, the makespan. Links have occupancy and
 * latency. -1: stuck. */
static int64_t play(const struct pipe *p, char *const order[])
{
    int32_t n = p->p.n_stages, m = p->m, at[STAGES_MAX] = {0}, k[STAGES_MAX][3] = {{0}}, moved = 1;
    int64_t now[STAGES_MAX] = {0}, line[STAGES_MAX][2] = {{0}}, longest = 0;
    int64_t arrive[STAGES_MAX][2][4];
    while (moved) {
        moved = 0;
        for (int32_t s = 0; s < n; s++)
            for (; at[s] < 3 * m; at[s]++, moved = 1) {
                int w = order[s][at[s]] == 'F' ? 0 : order[s][at[s]] == 'I' ? 1 : 2;
                int32_t i = k[s][w], from = w == 0 ? s - 1 : w == 1 ? s + 1 : -1;
                bool waits = from >= 0 && from < n;
                if (waits && k[from][w] <= i) break;
                if (waits && arrive[from][w][i] > now[s]) now[s] = arrive[from][w][i];
                const struct pipeline_stage *x = &p->stages[s];
                now[s] += w == 0 ? x->forward_ns : w == 1 ? x->input_ns : x->weight_ns;
                k[s][w]++;
                int32_t link = w == 0 ? s : s - 1;
                if (w < 2 && link >= 0) {
                    const struct pipeline_link *l = &p->links[link];
                    if (now[s] > line[s][w]) line[s][w] = now[s];
                    line[s][w] += p->p.links ? l->occupancy_ns[w] : 0;
                    arrive[s][w][i] = line[s][w] + (p->p.links ? l->latency_ns[w] : 0);
                }
            }
    }
    for (int32_t s = 0; s < n; s++) {
        if (at[s] < 3 * m) return -1;
        if (now[s] > longest) longest = now[s];
    }
    return longest;
}

static bool order_fits(const struct pipe *p, int32_t s, const char *order)
{
    if (!p->p.devices) return true;
    int64_t used = p->devices[s].resident_bytes;
    const struct pipeline_stage *x = &p->stages[s];
    for (int32_t i = 0; i < 3 * p->m; i++) {
        used += order[i] == 'F'   ? x->forward_bytes
                : order[i] == 'I' ? x->input_bytes
                                  : x->weight_bytes;
        if (used > p->devices[s].limit_bytes) return false;
    }
    return true;
}

static int64_t exhaust(const struct pipe *p, struct orders *o, int32_t s, char **order,
                       int64_t best)
{
    if (s == p->p.n_stages) {
        int64_t ns = play(p, order);
        return ns >= 0 && ns < best ? ns : best;
    }
    for (int32_t i = 0; i < o->n; i++) {
        if (!order_fits(p, s, o->text[i])) continue;
        order[s] = o->text[i];
        best = exhaust(p, o, s + 1, order, best);
    }
    return best;
}

START_TEST(bounds_of_tiny_pipelines_are_their_optimum_nearly_always_and_never_above_it)
{
    uint64_t cases = suites_long() ? 4000 : 250;
    int32_t tried = 0, met = 0, cheaply = 0;
    struct arena *a = arena_new();
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(a)) {
        struct draw d = {seed, 1000000};
        struct pipe p;
        random_pipe(&d, 3, 3, &p);
        if (p.p.n_stages == 3 && p.m == 3) p.m = 2; /* 42^3 orders are too many */
        struct orders o = {.m = p.m};
        char text[12], *order[STAGES_MAX];
        all_orders(&o, text, 0, 0, 0);
        int64_t best = exhaust(&p, &o, 0, order, INT64_MAX);
        int64_t deep = bound_of(&p, BOUND_DEEP, BOUND_SPLIT, 0, 0);
        ck_assert_msg(deep <= best, "seed %d: %lld > %lld", (int)seed, (long long)deep,
                      (long long)best);
        if (best == INT64_MAX) continue;
        tried++;
        met += deep == best;
        cheaply += bound_of(&p, BOUND_CHEAP, BOUND_SPLIT, 0, 0) == best;
        ck_assert_int_le(bound_of(&p, BOUND_DEEP, BOUND_SPLIT, best + 1 + best / 8, 0), best);
    }
    arena_free(a);
    ck_assert_int_gt(tried, (int)cases / 2);
    ck_assert_msg(100 * met >= 97 * tried, "%d of %d met, %d cheaply", met, tried, cheaply);
}
END_TEST

/* --- by hand and from the table --- */

/* Two stages, F = I = W = 10, no links, room for all: the first waits for F and I of the second once, 20; 20 + 4 · 30 less
 * the forwards that fill it: it is busy from 0 on, so 120 + max(0, 20 - 3 · 10) = 120; the second starts at 10, ends its
 * last I at 90 or later and so the first at 100 + 10; its own work ends at 10 + 120 = 130. */
START_TEST(two_equal_stages_take_what_the_second_one_does)
{
    struct pipe p = {.m = 4};
    p.p = (struct pipeline){2, 2, p.stages, NULL, NULL};
    for (int s = 0; s < 2; s++) p.stages[s] = (struct pipeline_stage){10, 10, 10, 0, 0, 0, 0};
    ck_assert_int_eq(bound_of(&p, BOUND_CHEAP, BOUND_SPLIT, 0, 0), 130);
    ck_assert_int_eq(bound_of(&p, BOUND_DEEP, BOUND_SPLIT, 0, 0), 130);
    /* Fused: (m + p - 1)(F + B) = 5 · 30. */
    ck_assert_int_eq(bound_of(&p, BOUND_DEEP, BOUND_FUSED, 0, 0), 150);
}
END_TEST

/* One microbatch at a time: every stage waits for the whole way, m (F + I + F + I) + the last W of the first stage. */
START_TEST(memory_for_one_microbatch_makes_the_pipeline_a_loop)
{
    struct pipe p = {.m = 5};
    p.p = (struct pipeline){2, 2, p.stages, NULL, p.devices};
    for (int s = 0; s < 2; s++) {
        p.stages[s] = (struct pipeline_stage){7, 5, 3, 0, 2, -1, -1};
        p.devices[s] = (struct pipeline_device){1, 3};
    }
    /* F I F of the loop and W, which must come before the next F of that stage: 24 + 3 a turn. */
    ck_assert_int_eq(bound_of(&p, BOUND_DEEP, BOUND_SPLIT, 0, 0), 5 * (7 + 7 + 5 + 5 + 3));
    p.devices[1].limit_bytes = 2;
    ck_assert_int_eq(bound_of(&p, BOUND_CHEAP, BOUND_SPLIT, 0, 0), INT64_MAX);
}
END_TEST

START_TEST(links_that_carry_one_message_at_a_time_bind)
{
    struct pipe p = {.m = 6};
    p.p = (struct pipeline){2, 2, p.stages, p.links, NULL};
    for (int s = 0; s < 2; s++) p.stages[s] = (struct pipeline_stage){2, 2, 1, 0, 0, 0, 0};
    p.links[0] = (struct pipeline_link){{10, 10}, {3, 3}};
    /* F 2, six messages 60 + 3, F and I of the second 4, back 13, I and W 3. */
    ck_assert_int_eq(bound_of(&p, BOUND_CHEAP, BOUND_SPLIT, 0, 0), 2 + 63 + 4 + 13 + 3);
    ck_assert_int_eq(bound_of(&p, BOUND_DEEP, BOUND_SPLIT, 0, 0), 2 + 63 + 4 + 13 + 3);
}
END_TEST

START_TEST(the_table_of_cases_is_proved_as_far_as_stated)
{
    struct arena *a = arena_new();
    struct schedule_cases f;
    struct error err = {0};
    int32_t proved = 0, tried = 0;
    double gap = 0;
    ck_assert_msg(schedule_cases_read(a, "tests/data/schedules/schedule_cases.csv", &f, &err) == OK,
                  "%s", err.text);
    for (int32_t i = 0; i < f.n; i++) {
        const struct schedule_case *c = &f.cases[i];
        int64_t best = c->makespan[COLUMN_best_known];
        if (!suites_long() && (int64_t)c->n_stages * c->microbatches > 130) continue;
        struct bound_schedule b;
        bound_schedule(&c->pipeline, c->microbatches,
                       &(struct bound_schedule_options){.depth = BOUND_DEEP, .best_ns = best}, &b);
        ck_assert_int_le(b.lower_bound_ns, best);
        ck_assert_msg(b.lower_bound_ns >= c->makespan[COLUMN_lower_bound], "%s: %lld below stated",
                      c->name, (long long)b.lower_bound_ns);
        proved += b.lower_bound_ns == best;
        gap += (double)(best - b.lower_bound_ns) / (double)b.lower_bound_ns;
        tried++;
    }
    arena_free(a);
    ck_assert_int_ge(tried, 60);
    ck_assert_msg(100 * proved >= 90 * tried && gap / tried < 0.002, "%d of %d, mean gap %g",
                  proved, tried, gap / tried);
}
END_TEST

SUITE_OF(bound_schedule, no_bound_is_above_a_schedule,
         bounds_of_tiny_pipelines_are_their_optimum_nearly_always_and_never_above_it,
         two_equal_stages_take_what_the_second_one_does,
         memory_for_one_microbatch_makes_the_pipeline_a_loop,
         links_that_carry_one_message_at_a_time_bind, the_table_of_cases_is_proved_as_far_as_stated)
