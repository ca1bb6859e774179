/* Layers over a line of sharded groups: optimal split, correct costs and memory limits. */
#include "core/graph/gradient.h"
#include "core/program/device_memory.h"
#include "planner/search.h"
#include "planner/spmd/spmd.h"
#include "planner/spmd_stage/groups_internal.h"

#include "tests/support/spmd_stage_cases.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { SPLIT_LAYERS = 7, SPLIT_GROUPS = 4, SPLIT_DEVICES = 2 };

/* A line of random groups of one or two modes, some of which have little room: layer by layer, as a line has it in sums. */
struct split_case {
    struct spmd_stage_line line;
    int32_t n[SPLIT_GROUPS];
    struct spmd_stage_layers layers[SPLIT_GROUPS][SPMD_STAGE_MODES_MAX];
    int64_t room[SPLIT_GROUPS][SPLIT_DEVICES];
};

static int32_t in_flight(const struct spmd_stage_line *l, int32_t i)
{
    int32_t left = l->n - i;
    return left < l->microbatches ? left : l->microbatches;
}

static int64_t *random_numbers(struct draw *d, int32_t n, int64_t most)
{
    int64_t *out = ARENA_ARRAY(arena, int64_t, (size_t)n);
    for (int32_t k = 0; k < n; k++) out[k] = random_teams_below(d, most);
    return out;
}

static int64_t *sums(const int64_t *x, int32_t n)
{
    int64_t *out = ARENA_ARRAY(arena, int64_t, (size_t)n + 1);
    for (int32_t k = 0; k < n; k++) out[k + 1] = out[k] + x[k];
    return out;
}

static void random_line(struct draw *d, struct split_case *c)
{
    struct spmd_stage_line *l = &c->line;
    *l = (struct spmd_stage_line){.n = 1 + (int32_t)random_teams_below(d, SPLIT_GROUPS)};
    l->n_layers = 3 + (int32_t)random_teams_below(d, SPLIT_LAYERS - 2);
    l->microbatches = 1 + (int32_t)random_teams_below(d, 6);
    for (int32_t i = 0; i < l->n; i++) {
        struct spmd_stage_member *m = ARENA_ARRAY(arena, struct spmd_stage_member, 1);
        c->n[i] = 1 + (int32_t)random_teams_below(d, SPLIT_DEVICES), m->n_modes = 1 + (int32_t)random_teams_below(d, 2);
        for (int32_t k = 0; k < c->n[i]; k++) c->room[i][k] = 10 + random_teams_below(d, 90);
        for (int32_t k = 0; k < m->n_modes; k++) {
            int64_t *call = random_numbers(d, l->n_layers, 40),
                    *step = random_numbers(d, l->n_layers, 20),
                    *fixed = random_numbers(d, l->n_layers * c->n[i], 20),
                    *kept = random_numbers(d, l->n_layers * c->n[i], 10);
            struct spmd_stage_layers *x = &c->layers[i][k];
            *x = (struct spmd_stage_layers){call, step, fixed, kept, NULL};
            m->mode[k] =
                (struct spmd_stage_mode){sums(call, l->n_layers), sums(step, l->n_layers), NULL};
            l->far[i][k] =
                spmd_stage_far(arena, x, l->n_layers, c->n[i], c->room[i], in_flight(l, i));
        }
        l->member[i] = m, l->cross_ns[i] = random_numbers(d, l->n_layers, 30);
    }
}

/* Of layers first … last on group i, from each layer's own numbers; INT64_MAX: no room. */
static int64_t range_by_layers(const struct split_case *c, int32_t i, int32_t first, int32_t last)
{
    int64_t best = INT64_MAX;
    for (int32_t m = 0; m < c->line.member[i]->n_modes; m++) {
        const struct spmd_stage_layers *x = &c->layers[i][m];
        int64_t call = 0, step = 0, bytes[SPLIT_DEVICES] = {0};
        bool fits = true;
        for (int32_t l = first; l <= last; l++) {
            call += x->call_ns[l], step += x->step_ns[l];
            for (int32_t k = 0; k < c->n[i]; k++)
                bytes[k] += x->fixed_bytes[l * c->n[i] + k] +
                            in_flight(&c->line, i) * x->kept_bytes[l * c->n[i] + k];
        }
        for (int32_t k = 0; k < c->n[i]; k++) fits &= bytes[k] <= c->room[i][k];
        int64_t ns = call + step / c->line.microbatches;
        if (fits && ns < best) best = ns;
    }
    return best;
}

/* The best of all cuts of what is left from group i and layer `first` on; what is before takes `sum`, at the slowest `slowest`. */
static int64_t best_by_layers(const struct split_case *c, int32_t i, int32_t first, int64_t slowest,
                              int64_t sum)
{
    const struct spmd_stage_line *l = &c->line;
    int64_t best = INT64_MAX;
    bool ends = i + 1 == l->n;
    for (int32_t e = ends ? l->n_layers - 1 : first; e < l->n_layers - !ends; e++) {
        int64_t ns = range_by_layers(c, i, first, e), x = ends ? 0 : l->cross_ns[i][e];
        if (ns == INT64_MAX) continue;
        int64_t slow = ns > slowest ? ns : slowest, all = sum + ns + 2 * x;
        slow = x > slow ? x : slow;
        int64_t replicated =
            ends ? (l->microbatches - 1) * slow + all : best_by_layers(c, i + 1, e + 1, slow, all);
        if (replicated < best) best = replicated;
    }
    return best;
}

START_TEST(a_split_over_groups_is_the_best_of_all_in_its_accounts)
{
    int32_t possible = 0, tight = 0, cases = suites_long() ? 20000 : 2000;
    for (uint64_t seed = 1; seed <= (uint64_t)cases; seed++, arena_reset(arena)) {
        struct draw d = {seed, 7000};
        struct split_case c;
        struct spmd_stage_cut cut;
        random_line(&d, &c);
        spmd_stage_split(&c.line, &cut);
        int64_t best = c.line.n <= c.line.n_layers ? best_by_layers(&c, 0, 0, 0, 0) : INT64_MAX;
        ck_assert_msg(cut.ns == best, "seed %d: %lld, best %lld", (int)seed, (long long)cut.ns,
                      (long long)best);
        if (best == INT64_MAX) continue;
        ck_assert_int_eq(spmd_stage_line_ns(&c.line, cut.last), best);
        possible++;
        for (int32_t i = 0; i < c.line.n; i++)
            for (int32_t k = 0; k < c.n[i]; k++) c.room[i][k] = 1 << 20;
        tight += best_by_layers(&c, 0, 0, 0, 0) < best;
    }
    ck_assert_int_gt(possible, cases / 4);
    ck_assert_int_gt(tight, cases / 20); /* room changes the best cut */
}
END_TEST

enum { SHARERS = 3 };

/* Three devices that share a model, and what they answer for all of it. */
struct shared_case {
    struct small x;
    struct space s;
    struct graph *forward, *training;
    struct spmd_stage_team team;
    struct spmd_stage_answer answer;
};

/* GPT-2 whose parameters are each read once. */
static void untied_job(struct job *out, int width, int blocks, int vocabulary, int batch)
{
    struct yaml_text j = {.n = 0};
    struct error err = {0};
    random_teams_put(&j,
        "version: 1\nmodel: {model_type: gpt2, n_embd: %d, n_layer: %d, n_head: 4, n_positions: "
        "64, "
        "vocab_size: %d, tie_word_embeddings: false}\nsequence_length: 64\nglobal_batch: %d\n",
        width, blocks, vocabulary, batch);
    ck_assert_msg(job_parse(arena, random_teams_parsed(arena, &j), ".", out, &err) == OK, "%s", err.text);
}

static void shared_case_make(struct draw *d, struct shared_case *c)
{
    struct error err = {0};
    int blocks = 1 + (int)random_teams_below(d, 2);
    int64_t size = INT64_C(3) << random_teams_below(d, 3);
    spmd_stage_cases_near(arena, d, &c->x);
    untied_job(&c->x.job, 64, blocks, 64, 48);
    ck_assert_int_eq(profile_prior(arena, &c->x.cluster, &c->x.profile, &err), OK);
    c->x.cost = cost_new(arena, &c->x.profile, &c->x.cluster);
    ck_assert_int_eq(
        space_make(arena, &c->x.job, &c->x.cluster, c->x.cost, size, &c->x.lower, &c->s, &err), OK);
    ck_assert_int_eq(lower_graph(arena, &c->x.job, size, &c->forward, &err), OK);
    ck_assert_int_eq(lower_graph(arena, &c->x.job, size, &c->training, &err), OK);
    double part = (double)size / (double)c->x.job.global_batch;
    ck_assert_int_eq(gradient_build(c->training, part, &err), OK);
}

static void query_all(struct draw *d, struct spmd_stage *j, struct shared_case *c)
{
    static const int32_t all[SHARERS] = {0, 1, 2};
    struct error err = {0};
    c->team = (struct spmd_stage_team){.s = &c->s,
                                       .last_layer = c->s.n_layers - 1,
                                       .n = SHARERS,
                                       .device = all,
                                       .microbatches = c->s.microbatches,
                                       .in_flight = 1 + (int32_t)random_teams_below(d, 3)};
    ck_assert_int_eq(spmd_stage_solve(j, NULL, &c->team, false, &c->answer, &err), OK);
    ck_assert(c->answer.ns < INT64_MAX && c->answer.layers);
}

static struct cost_link near_hop(const void *of, int32_t from, int32_t to)
{
    return *space_link((const struct space *)of, from, to);
}

/* What planner/spmd/spmd says of the answer's choices for the first layers alone. */
static int64_t prefix_ns(const struct shared_case *c, int32_t last, int64_t *bytes)
{
    static const int32_t node[SHARERS];
    static const bool bus[SHARERS] = {true, true, true};
    struct error err = {0};
    int32_t type[SHARERS];
    struct spmd_tables *tables;
    const struct op_choice *choices;
    const bool *gathered;
    for (int k = 0; k < SHARERS; k++) type[k] = c->x.cluster.devices[k].type;
    struct spmd_question q = {.g = c->training,
                              .last_layer = last,
                              .s = c->answer.sharding,
                              .cost = c->x.cost,
                              .type = type,
                              .hop = near_hop,
                              .of = &c->s,
                              .node = node,
                              .bus = bus,
                              .microbatches = c->team.microbatches,
                              .in_flight = c->team.in_flight,
                              .optimizer = &c->x.job.optimizer,
                              .algorithms = 1U << ALGORITHM_RING | 1U << ALGORITHM_PAIRS |
                                      1U << ALGORITHM_HIERARCHICAL};
    ck_assert_msg(spmd_tables_new(arena, &q, &tables, &err) == OK, "%s", err.text);
    ck_assert_msg(sharding_resolve(arena, q.s, c->forward, &choices, &gathered, &err) == OK, "%s",
                  err.text);
    return spmd_choices_ns(arena, tables, &q, choices, gathered, bytes);
}

/* From the first layer to each behind which nothing is converted: the time, to the rounding of a division a layer, and no more
 * bytes than planner/spmd/spmd counts, so that nothing is refused that fits. How many such places there are. */
static int32_t check_prefixes(const struct shared_case *c, uint64_t seed)
{
    const struct spmd_stage_layers *x = c->answer.layers;
    int32_t n = 0, layers = c->s.n_layers;
    int64_t took = 0, counted[SHARERS] = {0};
    for (int32_t l = 0; l < layers; l++) {
        int64_t bytes[SHARERS];
        took += x->call_ns[l] * c->team.microbatches + x->step_ns[l];
        for (int k = 0; k < SHARERS; k++)
            counted[k] += x->fixed_bytes[SHARERS * l + k] +
                          c->team.in_flight * x->kept_bytes[SHARERS * l + k];
        if (l + 1 < layers && x->replicated[l]) continue;
        int64_t ns = prefix_ns(c, l, bytes);
        ck_assert_msg(llabs(ns - took) <= (l + 1) * (int64_t)c->team.microbatches,
                      "seed %d, layers 0 to %d: %lld ns, by layers %lld", (int)seed, (int)l,
                      (long long)ns, (long long)took);
        for (int k = 0; k < SHARERS; k++) ck_assert_int_le(counted[k], bytes[k]);
        if (l + 1 == layers) ck_assert_int_eq(ns, c->answer.ns);
        n += l + 1 < layers;
    }
    return n;
}

START_TEST(layers_of_an_answer_take_what_spmd_says_of_them_alone)
{
    int32_t prefixes = 0, cases = suites_long() ? 60 : 6;
    for (uint64_t seed = 1; seed <= (uint64_t)cases; seed++, arena_reset(arena)) {
        struct draw d = {seed, 7100};
        struct shared_case *c = ARENA_ARRAY(arena, struct shared_case, 1);
        struct spmd_stage *j = spmd_stage_new();
        shared_case_make(&d, c);
        query_all(&d, j, c);
        prefixes += check_prefixes(c, seed);
        spmd_stage_free(j);
    }
    ck_assert_int_gt(prefixes, cases);
}
END_TEST

enum { GPUS = 9, STAGES = 3, LINE = 4 };

/* Nodes of so many GPUs each. */
static struct small *gpus_on(struct space *s, int32_t nodes, int32_t n)
{
    struct small *x = ARENA_ARRAY(arena, struct small, 1);
    struct error err = {0};
    struct yaml_text c = {.n = 0};
    random_teams_put(&c,
        "version: 1\nname: c\ndevice_types: [{name: t, device: V100-SXM2-16}]\nnodes:\n"
        "  - {name: n, count: %d, devices: {type: t, count: %d}}\nlinks:\n"
        "  - {name: in, every: inside, bandwidth: 1 GB/s, latency: 5 us}\n"
        "  - {name: out, every: across, bandwidth: 1 GB/s, latency: 9 us}\n",
        (int)nodes, (int)n);
    ck_assert_msg(cluster_parse(arena, random_teams_parsed(arena, &c), &x->cluster, &err) == OK, "%s", err.text);
    ck_assert_int_eq(team_complete(&x->cluster, &err), OK);
    untied_job(&x->job, 128, 3, 64, 96);
    ck_assert_int_eq(profile_prior(arena, &x->cluster, &x->profile, &err), OK);
    x->cost = cost_new(arena, &x->profile, &x->cluster);
    ck_assert_msg(space_make(arena, &x->job, &x->cluster, x->cost, 24, &x->lower, s, &err) == OK,
                  "%s", err.text);
    return x;
}

static struct search_context tries_of(struct small *x, const struct search_options *o)
{
    return (struct search_context){.arena = arena,
                                   .o = o,
                                   .lower = &x->lower,
                                   .scorer = scorer_new(&x->lower),
                                   .evaluations_left = 1000,
                                   .spmd_stage = spmd_stage_new()};
}

/* Stages of one to three GPUs, each of which has a way of its own to shard its operators. */
static int32_t random_stages(struct draw *d, const struct space *s, struct plan *out,
                             int32_t n[STAGES])
{
    static const enum op_index algorithms[] = {INDEX_batch, INDEX_positions, INDEX_features};
    int32_t stages = 2 + (int32_t)random_teams_below(d, STAGES - 1), at = 0;
    plan_skeleton(arena, s, "line", 1, &stages, out);
    out->replicas[0].microbatches = s->microbatches;
    for (int32_t i = 0; i < stages; i++) {
        struct plan_stage *y = &out->replicas[0].stages[i];
        int32_t device[STAGES],
            end = i + 1 == stages ? s->n_layers : s->n_layers / stages * (i + 1);
        double ratios[STAGES];
        n[i] = 1 + (int32_t)random_teams_below(d, STAGES);
        for (int k = 0; k < n[i]; k++) device[k] = at++, ratios[k] = (double)(1 + random_teams_below(d, 2));
        struct sharding *how =
            sharding_of_index(arena, INDEX_batch, arena_copy(arena, ratios, sizeof ratios), n[i]);
        struct sharding_rule rule = {.match = "*"};
        rule.choice.index[0] = algorithms[random_teams_below(d, 3)];
        how->operators = arena_copy(arena, &rule, sizeof rule), how->n_operators = 1;
        struct spmd_stage_team t = {.first_layer = i ? y[-1].last_layer + 1 : 0,
                                    .last_layer = end - 1,
                                    .n = n[i],
                                    .device = device};
        spmd_stage_put(arena, &t, &(struct spmd_stage_answer){.ns = 1, .sharding = how}, y);
        if (n[i] == 1) y->sharding = NULL, y->n_shards = 0;
    }
    return stages;
}

START_TEST(no_gpu_makes_fewer_communicators_than_are_reserved_for_it)
{
    struct space s;
    struct small *x = gpus_on(&s, 1, GPUS);
    struct scorer *w = scorer_new(&x->lower);
    int32_t exact = 0, gpus = 0;
    for (uint64_t seed = 1; seed <= (suites_long() ? 400 : 40); seed++) {
        struct draw d = {seed, 7200};
        struct error err = {0};
        struct plan p;
        int32_t n[STAGES], stages = random_stages(&d, &s, &p, n);
        const struct program *program;
        struct device_memory memory[GPUS];
        ck_assert_msg(scorer_program(w, &s, &p, &program, &err) == OK && program, "%s", err.text);
        device_memory_of(arena, program, memory);
        for (int32_t i = 0, gpu = 0; i < stages; i++)
            for (int k = 0; k < n[i]; k++, gpu++) {
                int32_t least = (n[i] > 1) + spmd_stage_beside(n[i], i ? n[i - 1] : 0) +
                                spmd_stage_beside(n[i], i + 1 < stages ? n[i + 1] : 0);
                ck_assert_msg(memory[gpu].communicators >= least,
                              "seed %d: GPU %d has %d, not %d", (int)seed, (int)gpu,
                              (int)memory[gpu].communicators, (int)least);
                exact += memory[gpu].communicators == least, gpus++;
            }
    }
    ck_assert_msg(exact > gpus / 10, "%d of %d", exact, gpus);
    scorer_free(w);
}
END_TEST

/* Whether a group's devices have room for layers first … last in one of its modes, layer by layer. */
static bool has_room(const struct device_group *x, const struct device_type *t, int32_t mode,
                     int32_t first, int32_t last, int32_t flight, int32_t communicators)
{
    const struct spmd_stage_layers *y = x->layers[mode];
    for (int32_t k = 0; k < x->n; k++) {
        int64_t bytes = spmd_stage_reserve(t, communicators, false);
        for (int32_t l = first; l <= last; l++)
            bytes += y->fixed_bytes[l * x->n + k] + flight * y->kept_bytes[l * x->n + k];
        if (bytes > t->memory_bytes) return false;
    }
    return true;
}

/* Every group of a line holds its layers, with as many microbatches in flight and in as many communicators as it has at its place. */
static void check_places(const struct groups *g, const struct device_line *l,
                         const struct line_cut *p)
{
    const struct device_type *t = &g->cluster->types[0];
    for (int32_t k = 0; k < p->n; k++) {
        const struct device_group *x = l->device_group[p->first[k]][p->last[k]];
        int32_t left = p->n - k, flight = left < p->microbatches ? left : p->microbatches;
        int32_t before = k ? p->last[k - 1] - p->first[k - 1] + 1 : 0,
                behind = k + 1 < p->n ? p->last[k + 1] - p->first[k + 1] + 1 : 0;
        int32_t communicators =
            (x->n > 1) + spmd_stage_beside(x->n, before) + spmd_stage_beside(x->n, behind);
        bool room = false;
        for (int32_t mode = 0; mode < x->member.n_modes; mode++)
            room |= has_room(x, t, mode, k ? p->cut.last[k - 1] + 1 : 0, p->cut.last[k], flight,
                             communicators);
        ck_assert_msg(room, "group %d of %d, %d in flight", (int)k, (int)p->n, (int)flight);
    }
}

/* Every line that can be made of four GPUs with room for two or four communicators and a part of the model or more. A group gets a second
 * way to share where its first one has room for all layers with one microbatch in flight and not for what a line may give it
 * with more. */
START_TEST(groups_hold_their_layers_at_every_place_of_a_line)
{
    static const int32_t device[LINE] = {0, 1, 2, 3};
    static const struct search_options o = {.top = 4};
    int32_t lines = 0, refused = 0, two = 0;
    for (int32_t step = 0; step < 40; step++, arena_reset(arena)) {
        struct space s;
        struct error err = {0};
        struct small *x = gpus_on(&s, 1, LINE);
        struct device_type *type = &x->cluster.types[0];
        struct search_context t = tries_of(x, &o);
        struct groups g = {
            .t = &t, .arena = arena, .cluster = &x->cluster, .tables_end = INT64_MAX};
        type->memory_bytes =
            spmd_stage_reserve(type, 2 + step % 2 * 2, false) + ((INT64_C(6) + step) << 20);
        groups_begin(&g, &s);
        struct device_line *l = groups_device_line(&g, LINE, 1);
        for (int32_t u = 0; u < LINE; u++) l->n[u] = 1, l->device[u] = &device[u];
        for (int32_t mask = 0; mask < 1 << (LINE - 1); mask++) {
            const struct line_cut *p;
            ck_assert_msg(groups_line_cut(&g, l, 0, LINE - 1, mask, &p, &err) == OK, "%s",
                          err.text);
            refused += !p, lines += p != NULL;
            if (p) check_places(&g, l, p);
        }
        for (int32_t last = 1; last < LINE; last++) {
            const struct device_group *c = l->device_group[0][last];
            two += c && c->member.n_modes > 1 &&
                   has_room(c, type, 0, 0, s.n_layers - 1, 1, 1 + spmd_stage_beside(c->n, 1));
        }
        spmd_stage_free(t.spmd_stage);
        scorer_free(t.scorer);
    }
    if (getenv("MUSHER_PRINT"))
        printf("%d lines, %d refused, %d groups of two modes\n", lines, refused, two);
    ck_assert(lines > 0 && refused > 0 && two > 0);
}
END_TEST

/* Nodes that a group stands on, and its devices. */
static void size_of(const struct groups *g, const struct device_line *l, int32_t first,
                    int32_t last, int32_t size[2])
{
    int32_t node = -1;
    size[0] = size[1] = 0;
    for (int32_t u = first; u <= last; u++)
        for (int32_t k = 0; k < l->n[u]; k++, size[1]++) {
            int32_t at = g->cluster->devices[l->device[u][k]].node;
            size[0] += at != node, node = at;
        }
}

/* With work for some groups, none has been asked for while one on fewer nodes, or on as many and of fewer devices, has not. */
START_TEST(groups_near_one_another_are_asked_for_first_then_small_ones)
{
    static const struct search_options o = {.top = 4};
    int32_t left = 0, queried = 0;
    for (int32_t step = 1; step <= 6; step++, arena_reset(arena)) {
        struct space s;
        struct error err = {0};
        struct small *x = gpus_on(&s, 3, 2);
        struct search_context t = tries_of(x, &o);
        struct groups g = {.t = &t, .arena = arena, .cluster = &x->cluster};
        int32_t least[2] = {INT32_MAX, 0}, most[2] = {0, 0}, size[2];
        g.mine = step * INT64_C(20000000);
        g.layouts = ARENA_ARRAY(arena, struct layout, LAYOUTS_MAX + 1);
        groups_begin(&g, &s);
        ck_assert_msg(groups_layouts(&g, &err) == OK, "%s", err.text);
        for (int32_t i = 0; i < g.n_lineups; i++)
            for (int32_t first = 0; first < g.device_line[i].n_units; first++)
                for (int32_t last = first; last < g.device_line[i].n_units; last++) {
                    bool done = g.device_line[i].queried[first][last];
                    size_of(&g, &g.device_line[i], first, last, size);
                    queried += done && size[1] > 1, left += !done;
                    if (done && (size[0] > most[0] || (size[0] == most[0] && size[1] > most[1])))
                        memcpy(most, size, sizeof size);
                    if (!done &&
                        (size[0] < least[0] || (size[0] == least[0] && size[1] < least[1])))
                        memcpy(least, size, sizeof size);
                }
        ck_assert_msg(most[0] < least[0] || (most[0] == least[0] && most[1] <= least[1]),
                      "%d devices of %d nodes were asked for, %d of %d not", (int)most[1],
                      (int)most[0], (int)least[1], (int)least[0]);
        spmd_stage_free(t.spmd_stage);
        scorer_free(t.scorer);
    }
    ck_assert_msg(left > 0 && queried > 0, "%d asked for, %d left", queried, left);
}
END_TEST

Suite *spmd_stage_groups_suite(void)
{
    Suite *s = suite_create("spmd_stage_groups");
    TCase *t = tcase_create("spmd_stage_groups");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_split_over_groups_is_the_best_of_all_in_its_accounts);
    tcase_add_test(t, layers_of_an_answer_take_what_spmd_says_of_them_alone);
    tcase_add_test(t, no_gpu_makes_fewer_communicators_than_are_reserved_for_it);
    tcase_add_test(t, groups_hold_their_layers_at_every_place_of_a_line);
    tcase_add_test(t, groups_near_one_another_are_asked_for_first_then_small_ones);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
