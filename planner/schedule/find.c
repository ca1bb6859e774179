/* planner/schedule/find.c - starts, forward-backward improvement ("turning"), tabu search ("moves"). */
#include "planner/schedule/find.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/schedule/shop.h"
#include "planner/schedule/tabu.h"
#include "sim/pipeline/zero_bubble.h"

#include <inttypes.h>
#include <string.h>

/* Costs in timings of a word: of the list scheduler, and of the 31 other words that the zero-bubble scheduler times. */
enum { DISPATCH_COST = 6, ZERO_BUBBLE_COST = 31 };

struct find {
    struct arena *arena;
    const struct pipeline *p;
    const struct schedule *shape;
    const struct schedule_find_options *o;
    struct shop shop, turned;
    struct shop_list *list, *turned_list;
    struct shop_times times;
    struct tabu *tabu;
    int64_t *priority; /* (n_nodes) */
    uint8_t *word, *trial;
    /* incumbents: the newest word of each of the best makespans (for diversity); best first */
    struct {
        uint8_t *word;
        int64_t makespan_ns;
        uint64_t hash;
    } elite[SCHEDULE_ELITE];
    int32_t n_elite;
    struct bound_schedule bound;
    int64_t left; /* operations timed */
    struct shop_random random;
    bool stopped;
};

static uint64_t draw(struct find *f, uint64_t n) { return shop_draw(&f->random, n); }

/* times: of a word's timing. */
static void charge(struct find *f, int64_t times) { f->left -= times * f->shop.n_nodes; }

static bool over(struct find *f)
{
    if (f->n_elite && f->elite[0].makespan_ns <= f->bound.lower_bound_ns) return true;
    if (f->o->stop && f->o->stop(f->o->user)) f->stopped = true;
    return f->stopped || f->left <= 0;
}

/* --- incumbents --- */

static void insert_elite(struct find *f, const uint8_t *word, int64_t ns)
{
    size_t n = (size_t)f->shop.n_nodes;
    if (f->n_elite == SCHEDULE_ELITE && ns >= f->elite[SCHEDULE_ELITE - 1].makespan_ns) return;
    uint64_t hash = rng_hash_bytes(1, word, n);
    for (int32_t i = 0; i < f->n_elite; i++) {
        if (f->elite[i].hash == hash) return;
        if (f->elite[i].makespan_ns != ns) continue;
        memcpy(f->elite[i].word, word, n);
        f->elite[i].hash = hash;
        return;
    }
    int32_t at = f->n_elite < SCHEDULE_ELITE ? f->n_elite++ : SCHEDULE_ELITE - 1;
    uint8_t *room = f->elite[at].word;
    for (; at && f->elite[at - 1].makespan_ns > ns; at--) f->elite[at] = f->elite[at - 1];
    memcpy(room, word, n);
    f->elite[at].word = room, f->elite[at].makespan_ns = ns, f->elite[at].hash = hash;
}

/* Times a word within memory; -1: deadlock. */
static int64_t try_word(struct find *f, const uint8_t *word)
{
    charge(f, 1);
    if (!shop_time(&f->shop, word, &f->times)) return -1;
    insert_elite(f, word, f->times.makespan_ns);
    return f->times.makespan_ns;
}

/* --- starts --- */

static void try_schedule(struct find *f, const struct schedule *s)
{
    const struct shop *z = &f->shop;
    for (int32_t d = 0; d < z->n_devices; d++) {
        uint8_t *word = &f->word[d * z->length];
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
            const struct schedule_op *o = &s->lanes[d].ops[i];
            uint8_t chunk = (uint8_t)(o->chunk * SHOP_KINDS);
            *word++ = (uint8_t)(chunk + (o->phase == PHASE_F   ? SHOP_F
                                         : o->phase == PHASE_W ? SHOP_W
                                                               : SHOP_I));
            if (o->phase == PHASE_B) *word++ = (uint8_t)(chunk + SHOP_W);
        }
        if (!shop_fits(z, d, &f->word[d * z->length])) return;
    }
    try_word(f, f->word);
}

/* Stage and message times for the schedules that depend on them. */
static void set_prices(struct arena *a, const struct pipeline *p, struct schedule_spec *out)
{
    double *time = ARENA_ARRAY(a, double, (size_t)p->n_devices),
           *transfer = ARENA_ARRAY(a, double, (size_t)p->n_devices);
    for (int32_t d = 0; d < p->n_devices; d++) {
        const struct pipeline_stage *x = &p->stages[d];
        time[d] =
            (double)(x->forward_ns + (x->fused_ns ? x->fused_ns : x->input_ns + x->weight_ns));
        if (p->links && d + 1 < p->n_devices)
            transfer[d] = (double)(p->links[d].occupancy_ns[0] + p->links[d].latency_ns[0]);
    }
    out->time = time, out->transfer = transfer;
}

/* The named schedules of this placement, and of one chunk a device the zero-bubble authors' scheduler. */
static void try_names(struct find *f)
{
    struct arena *scratch = arena_new();
    int32_t chunks = f->shape->n_chunks, n = f->p->n_devices;
    struct schedule s;
    int64_t ns;
    for (int k = 0; k < SCHEDULE_KIND_COUNT && !over(f); k++) {
        struct schedule_spec spec = {.kind = (enum schedule_kind)k,
                                     .n_devices = n,
                                     .n_chunks = chunks,
                                     .n_microbatches = f->shape->n_microbatches,
                                     .split = true};
        int32_t own = schedule_kind_chunks(spec.kind);
        if (own ? own != chunks : chunks < 2) continue;
        if (own == 1) set_prices(scratch, f->p, &spec);
        if (schedule_make(scratch, &spec, &s, NULL) == OK &&
            !memcmp(s.stage, f->shape->stage, (size_t)(n * chunks) * sizeof *s.stage))
            try_schedule(f, &s);
        arena_reset(scratch);
    }
    if (chunks == 1 && !over(f) &&
        zero_bubble_make(scratch, f->p, f->shape->n_microbatches, true, &s, &ns, NULL) == OK) {
        try_schedule(f, &s);
        charge(f, ZERO_BUBBLE_COST);
    }
    arena_free(scratch);
}

/* --- the list scheduler --- */

static bool dispatch(struct find *f, bool turned, int32_t patience, const int32_t *flight,
                     uint8_t *word)
{
    struct shop_rule rule = {.priority = f->priority, .patience = patience, .flight = flight};
    charge(f, DISPATCH_COST);
    return shop_dispatch(turned ? f->turned_list : f->list, &rule, word);
}

/* Priorities: backward, forward, then operations without successors on other devices. */
static void plain_priority(struct find *f)
{
    const struct shop *z = &f->shop;
    static const int64_t class[SHOP_KINDS] = {[SHOP_I] = 0, [SHOP_F] = 1, [SHOP_W] = 2};
    for (int64_t i = 0; i < z->n_nodes; i++) {
        int64_t kind = i / z->microbatches % SHOP_KINDS, j = i % z->microbatches;
        int64_t chunk = i / z->microbatches % z->n_types / SHOP_KINDS;
        f->priority[i] =
            (class[kind] * 1000 - (kind == SHOP_F ? chunk : -chunk)) * z->microbatches + j;
    }
}

/* Input gradients before forwards before weight gradients, without delay: W deferred where memory admits it, and of one chunk a device
 * forwards in flight as in eager 1F1B. And 1F1B, which this order of unequal stages may exceed. */
static void try_eager(struct find *f)
{
    bool one = f->shape->n_chunks == 1;
    int32_t *flight = ARENA_ARRAY(f->arena, int32_t, (size_t)f->shop.n_devices);
    struct schedule_spec spec = {.kind = SCHEDULE_EAGER,
                                 .n_devices = f->p->n_devices,
                                 .n_chunks = 1,
                                 .n_microbatches = f->shape->n_microbatches,
                                 .split = true};
    struct schedule s;
    schedule_warmup(&spec, flight);
    plain_priority(f);
    if (dispatch(f, false, 0, one ? flight : NULL, f->word)) try_word(f, f->word);
    spec.kind = SCHEDULE_1F1B;
    if (one && schedule_make(f->arena, &spec, &s, NULL) == OK) try_schedule(f, &s);
}

/* --- turning --- */

static void reverse(const struct shop *z, uint8_t *word)
{
    for (int32_t d = 0; d < z->n_devices; d++)
        for (int64_t i = d * z->length, k = i + z->length - 1; i < k; i++, k--) {
            uint8_t x = word[i];
            word[i] = word[k], word[k] = x;
        }
}

/* f->times: of the word to improve. noise_ns: amplitude of the noise on priorities. */
static void remaining_priority(struct find *f, bool turned, int64_t noise_ns)
{
    const struct shop *z = &f->shop;
    int32_t m = z->microbatches;
    for (int32_t g = 0; g < z->n_devices * z->n_types; g++)
        for (int32_t j = 0; j < m; j++) {
            int64_t node = (int64_t)g * m + j, to = turned ? (int64_t)g * m + m - 1 - j : node;
            f->priority[to] = turned ? -f->times.end[node] : -f->times.rest[node];
            if (noise_ns) f->priority[to] += (int64_t)draw(f, (uint64_t)noise_ns);
        }
}

static int64_t longest_type(const struct shop *z)
{
    int64_t most = 1;
    for (int32_t g = 0; g < z->n_devices * z->n_types; g++)
        if (z->type[g].ns > most) most = z->type[g].ns;
    return most;
}

/* Rounds of forward-backward improvement from f->word (timed in f->times), each from the result of the last. */
static void turn_rounds(struct find *f, int64_t noise_ns, int32_t patience)
{
    for (int32_t k = 0; k < SCHEDULE_ELITE && !over(f); k++) {
        bool turned = k % 2 == 0;
        shop_rest(&f->shop, &f->times);
        remaining_priority(f, turned, noise_ns);
        if (!dispatch(f, turned, patience, NULL, f->word)) return;
        if (turned) reverse(&f->shop, f->word);
        if (try_word(f, f->word) < 0) BUG("the list scheduler made a word that cannot be executed");
    }
}

static void turn(struct find *f, int32_t times)
{
    int64_t longest = longest_type(&f->shop);
    for (int32_t k = 0; k < times && !over(f); k++) {
        int32_t i = (int32_t)draw(f, (uint64_t)f->n_elite);
        memcpy(f->word, f->elite[i].word, (size_t)f->shop.n_nodes);
        if (!shop_time(&f->shop, f->word, &f->times)) BUG("a kept word");
        int64_t noise = k % 3 == 0 ? 0 : (int64_t)draw(f, (uint64_t)(4 * longest));
        turn_rounds(f, noise, (int32_t)draw(f, 1024));
    }
}

/* --- moves --- */

static void move(struct find *f, int32_t i, int64_t steps)
{
    if (over(f)) return;
    memcpy(f->trial, f->elite[i].word, (size_t)f->shop.n_nodes);
    int64_t ns = tabu_run(f->tabu, f->trial, steps, f->bound.lower_bound_ns, &f->left, f->o->stop,
                          f->o->user);
    insert_elite(f, f->trial, ns);
}

/* --- bounds --- */

static bool any_fused(const struct pipeline *p)
{
    for (int32_t v = 0; v < p->n_stages; v++)
        if (p->stages[v].fused_ns > 0) return true;
    return false;
}

/* steps: of the deep bound; an earlier bound is never weakened. */
static void find_bound(struct find *f, enum bound_depth depth, int64_t steps)
{
    if (f->shape->n_chunks > 1 || (depth == BOUND_DEEP && f->o->cheap)) return;
    if (depth == BOUND_DEEP && over(f)) {
        if (f->stopped || f->elite[0].makespan_ns <= f->bound.lower_bound_ns) return;
        depth = BOUND_CYCLES; /* budget for large pipelines, which spend their operations quickly */
    }
    struct bound_schedule_options o = {.depth = depth,
                                       .orders = any_fused(f->p) ? BOUND_MIXED : BOUND_SPLIT,
                                       .best_ns = f->n_elite ? f->elite[0].makespan_ns : 0,
                                       .steps = steps};
    struct bound_schedule b;
    bound_schedule(f->p, f->shape->n_microbatches, &o, &b);
    if (b.lower_bound_ns > f->bound.lower_bound_ns || depth == BOUND_CHEAP) f->bound = b;
}

static void search_words(struct find *f)
{
    try_eager(f);
    if (!f->n_elite || f->o->eager) return;
    find_bound(f, BOUND_CHEAP, 0);
    try_names(f);
    turn(f, 10);
    move(f, 0, 500);
    find_bound(f, BOUND_DEEP, BOUND_SCHEDULE_STEPS / 3);
    int64_t proved = f->left / 8, best = f->elite[0].makespan_ns;
    while (!over(f)) {
        move(f, (int32_t)draw(f, (uint64_t)f->n_elite), 2000);
        turn(f, 30);
        if (f->left > proved || proved < 0) continue;
        proved = -1; /* repeated with the better schedule, then the rest of the search */
        find_bound(f, BOUND_DEEP,
                   BOUND_SCHEDULE_STEPS / 3 * (f->elite[0].makespan_ns < best ? 3 : 2));
    }
}

/* --- result --- */

void schedule_shape(struct arena *a, int32_t devices, int32_t chunks, int32_t microbatches,
                    bool v_shaped, struct schedule *out)
{
    *out = (struct schedule){.name = "searched",
                             .n_devices = devices,
                             .n_chunks = chunks,
                             .n_microbatches = microbatches};
    out->stage = ARENA_ARRAY(a, int32_t, (size_t)devices * (size_t)chunks);
    for (int32_t d = 0; d < devices; d++)
        for (int32_t c = 0; c < chunks; c++)
            out->stage[d * chunks + c] = c * devices + (v_shaped && c % 2 ? devices - 1 - d : d);
}

static void write_schedule(struct arena *a, struct find *f, const uint8_t *word,
                           struct schedule *out)
{
    const struct shop *z = &f->shop;
    static const enum phase phase[SHOP_KINDS] = {'F', 'I', 'W'};
    *out = *f->shape;
    out->name = "searched";
    out->stage = ARENA_ARRAY(a, int32_t, (size_t)z->n_devices * (size_t)f->shape->n_chunks);
    memcpy(out->stage, f->shape->stage,
           (size_t)z->n_devices * (size_t)f->shape->n_chunks * sizeof *out->stage);
    out->lanes = ARENA_ARRAY(a, struct schedule_lane, (size_t)z->n_devices);
    for (int32_t d = 0; d < z->n_devices; d++) {
        int32_t done[SHOP_TYPES_MAX] = {0};
        struct schedule_lane *l = &out->lanes[d];
        l->ops = ARENA_ARRAY(a, struct schedule_op, (size_t)z->length);
        for (int64_t i = 0; i < z->length; i++) {
            uint8_t t = word[d * z->length + i];
            int32_t chunk = t / SHOP_KINDS;
            bool fused = f->p->stages[f->shape->stage[d * f->shape->n_chunks + chunk]].fused_ns > 0;
            if (fused && t % SHOP_KINDS == SHOP_W) continue;
            l->ops[l->n_ops++] = (struct schedule_op){
                fused && t % SHOP_KINDS == SHOP_I ? 'B' : phase[t % SHOP_KINDS], chunk, done[t]++};
        }
    }
}

static enum status prepare(struct find *f, struct error *err)
{
    struct arena *a = f->arena;
    TRY(shop_make(a, f->p, f->shape, &f->shop, err));
    f->shop.rings = f->o->rings;
    shop_turn(a, &f->shop, &f->turned);
    f->list = shop_list_new(a, &f->shop), f->turned_list = shop_list_new(a, &f->turned);
    shop_times_new(a, &f->shop, &f->times);
    f->tabu = tabu_new(a, &f->shop, f->o->seed);
    size_t n = (size_t)f->shop.n_nodes;
    f->priority = ARENA_ARRAY(a, int64_t, n);
    f->word = ARENA_ARRAY(a, uint8_t, n), f->trial = ARENA_ARRAY(a, uint8_t, n);
    for (int i = 0; i < SCHEDULE_ELITE; i++) f->elite[i].word = ARENA_ARRAY(a, uint8_t, n);
    f->left = f->o->operations ? f->o->operations : BOUND_SCHEDULE_STEPS;
    return OK;
}

/* The result is timed by sim/pipeline/static, so its makespan is the simulator's. */
static enum status describe(struct arena *a, const struct pipeline *p, struct schedule_found *out,
                            struct error *err)
{
    struct static_timer *t;
    struct arena *scratch = arena_new();
    int64_t ns = 0;
    out->peak_bytes = ARENA_ARRAY(a, int64_t, (size_t)p->n_devices);
    enum status st = static_new(scratch, &out->schedule, &t, err);
    if (st == OK && (!static_time(t, p, &ns) || ns != out->makespan_ns ||
                     !static_memory(t, p, out->peak_bytes)))
        BUG("the searched schedule of %" PRId64
            " ns is not what sim/pipeline/static makes of it: %" PRId64 " ns",
            out->makespan_ns, ns);
    arena_free(scratch);
    return st;
}

enum status schedule_find(struct arena *a, const struct pipeline *p, const struct schedule *shape,
                          const struct schedule_find_options *o, struct schedule_found *out,
                          struct error *err)
{
    struct find f = {.arena = arena_new(),
                     .p = p,
                     .shape = shape,
                     .o = o,
                     .random = {.seed = o->seed, .stream = 11}};
    enum status st = prepare(&f, err);
    if (st == OK) {
        int64_t budget = f.left;
        search_words(&f);
        if (f.n_elite) {
            *out = (struct schedule_found){.makespan_ns = f.elite[0].makespan_ns,
                                           .bound = f.bound,
                                           .operations = budget - f.left};
            write_schedule(a, &f, f.elite[0].word, &out->schedule);
            st = describe(a, p, out, err);
        } else
            st = error_set(err, ERR_INFEASIBLE,
                           "no order fits the memory: some device cannot hold one microbatch");
    }
    arena_free(f.arena);
    return st;
}
