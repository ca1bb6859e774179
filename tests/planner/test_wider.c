/* Who asks for more gets no slower plan: wider offers, more budget, more memory, more devices, the same cluster in other words. No preset
 * and no plan given as a start is better than the answer, and no answer by time is cheaper than that by cost. The answer is the same on any number
 * of threads. On random questions. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/search.h"
#include "planner/search_check.h"
#include "profiles/team.h"
#include "tests/support/random_questions.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <stdio.h>
#include <time.h>

/* The questions are numbered by their seeds. MUSHER_WIDER=FIRST:LAST[:PROPERTIES] prints each comparison on those of that range;
 * PROPERTIES: letters of `properties`. */
enum { QUESTIONS = 300, DEVICES = 512 };
/* Without `make check-long`: a property each of questions that take little time. The last SLOW ones are for it: seven searches each, of up to 60,000 simulations. */
static const struct {
    int seed;
    char property;
} quick[] = {{12, 'o'}, {20, 'b'}, {39, 'm'}, {7, 'd'}, {39, 'd'}, {37, 'w'}, {27, 'p'}, {27, 'f'}, {34, 't'}, {9, 'e'}, {10, 'e'}, {373, 'b'}, {377, 'b'}};
enum { SLOW = 2, QUICK = sizeof quick / sizeof *quick - SLOW };
#define TOLERANCE 0.005

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct asked {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result r;
    int64_t ns; /* INT64_MAX: no plan */
    double cpu_s;
};

struct comparing {
    struct random_question q;
    struct asked *answer; /* to the question as it is */
    bool print;
    char failed[2000];
    size_t n;
};

/* sizes: of microbatches, the smallest ones; 0: all that the job allows. */
static struct asked *ask_of(const struct random_question *q, enum random_questions_words words,
                            int32_t sizes, const struct search_options *o)
{
    struct asked *x = ARENA_ARRAY(arena, struct asked, 1);
    struct error err = {0};
    const char *text = random_questions_cluster(arena, q, words);
    clock_t start = clock();
    x->job = texts_job(arena, q->job);
    x->cluster = texts_cluster(arena, text);
    random_questions_profile(arena, q, &x->cluster, &x->profile);
    for (int32_t i = 0; i < x->cluster.n_types; i++)
        x->cluster.types[i].priced = true, x->cluster.types[i].price_per_h = 0.25 + 4 * rng_uniform(q->seed, 91, (uint64_t)i);
    int32_t all = search_check_sizes(&x->job, NULL, x->job.microbatch_sizes);
    x->job.n_microbatches_sizes = sizes && sizes < all ? sizes : all;
    struct search_options own = *o;
    own.fastest = true; /* of measured layers a slower but more robust plan would be first */
    enum status st = search_plans(arena, &x->job, &x->cluster, &x->profile, &own, &x->r, &err);
    ck_assert_msg(st == OK || st == ERR_INFEASIBLE, "%s\n%s%s", err.text, q->job, text);
    x->ns = st == OK ? x->r.plans[0].iteration_ns : INT64_MAX;
    x->cpu_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    return x;
}

static struct asked *ask(const struct random_question *q, enum random_questions_words words,
                         const struct search_options *o)
{
    return ask_of(q, words, 0, o);
}

/* The second one has asked for more. */
static void compare(struct comparing *c, char property, const char *what, int64_t less_ns,
                    int64_t more_ns, double tolerance, double cpu_s)
{
    bool fails = less_ns < INT64_MAX &&
                 (more_ns == INT64_MAX || (double)more_ns > (double)less_ns * (1 + tolerance));
    double percent = less_ns < INT64_MAX ? 100 * ((double)more_ns / (double)less_ns - 1) : 0;
    if (c->print) {
        printf("%s %d %c %s: %.3f, then %.3f ms: %+.3f %% (%.2f s; %s)\n",
               fails ? "FAILS" : "holds", (int)c->q.seed, property, what, (double)less_ns * 1e-6,
               (double)more_ns * 1e-6, percent, cpu_s, c->q.what);
        fflush(stdout);
    }
    if (fails && c->n < sizeof c->failed)
        c->n += (size_t)snprintf(c->failed + c->n, sizeof c->failed - c->n, "%c %s: %+.3f %%\n",
                                 property, what, percent);
}

/* --- properties ------------------------------------------------------------------------------ */

static void offers(struct comparing *c)
{
    struct asked *x;
    int64_t before = INT64_MAX;
    for (int32_t n = 1; n <= 4 && n < c->answer->job.n_microbatches_sizes; n *= 2) {
        x = ask_of(&c->q, RANDOM_QUESTIONS_COUNTED, n, &(struct search_options){.top = 1});
        if (n > 1)
            compare(c, 'o', arena_printf(arena, "fewer microbatch sizes, then %d", (int)n), before,
                    x->ns, TOLERANCE, x->cpu_s);
        compare(c, 'o', arena_printf(arena, "%d microbatch sizes, then all", (int)n), x->ns,
                c->answer->ns, TOLERANCE, x->cpu_s);
        before = x->ns;
    }
    x = ask(&c->q, RANDOM_QUESTIONS_COUNTED,
            &(struct search_options){.top = 1, .no_sharding = true});
    compare(c, 'o', "no sharding, then any", x->ns, c->answer->ns, TOLERANCE, x->cpu_s);
}

/* One simulation gives a plan where there is one. A search that ended by itself finds nothing more with more. */
static void budgets(struct comparing *c)
{
    static const int64_t of[] = {1, 5, 50, 300, 1000, 5000, 60000};
    int64_t before = INT64_MAX;
    for (int i = 0; i < 7; i++) {
        struct asked *x = ask(&c->q, RANDOM_QUESTIONS_COUNTED,
                              &(struct search_options){.top = 1, .evaluations = of[i]});
        if (!i && c->answer->ns < INT64_MAX)
            compare(c, 'b', "a plan by one simulation", 1, x->ns < INT64_MAX ? 1 : INT64_MAX, 0,
                    x->cpu_s);
        if (of[i] < 20000)
            compare(c, 'b', arena_printf(arena, "%d simulations, then the default", (int)of[i]),
                    x->ns, c->answer->ns, TOLERANCE, x->cpu_s);
        else
            compare(c, 'b', arena_printf(arena, "the default, then %d", (int)of[i]), c->answer->ns,
                    x->ns, TOLERANCE, x->cpu_s);
        if (i)
            compare(c, 'b', arena_printf(arena, "%d, then %d", (int)of[i - 1], (int)of[i]), before,
                    x->ns, TOLERANCE, x->cpu_s);
        before = x->ns;
        if (of[i] > 20000 && !strcmp(c->answer->r.stopped, "end"))
            compare(c, 'b', "more by a larger budget than by a search that ended", x->ns,
                    c->answer->ns, 0, x->cpu_s);
    }
}

static void memory(struct comparing *c)
{
    struct random_question q = c->q;
    int32_t k = (int32_t)(q.seed % (uint64_t)q.n_kinds);
    for (int i = 0; i < 2; i++) {
        double times = i ? 2 : 1.25;
        int32_t type = c->answer->cluster.devices[0].type;
        while (strcmp(c->answer->cluster.types[type].name, arena_printf(arena, "t%d", (int)k)) != 0)
            type = (type + 1) % c->answer->cluster.n_types;
        q.kinds[k].memory_B = times * (double)c->answer->cluster.types[type].memory_bytes;
        struct asked *x = ask(&q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1});
        compare(c, 'm',
                arena_printf(arena, "%.2f times the memory of %s", times, q.kinds[k].device),
                c->answer->ns, x->ns, TOLERANCE, x->cpu_s);
    }
}

static void devices(struct comparing *c)
{
    struct random_question q = c->q;
    q.kinds[q.seed / 3 % (uint64_t)q.n_kinds].nodes++;
    struct asked *x = ask(&q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1});
    compare(
        c, 'd',
        arena_printf(arena, "another node of %s", q.kinds[q.seed / 3 % (uint64_t)q.n_kinds].device),
        c->answer->ns, x->ns, TOLERANCE, x->cpu_s);
    q = c->q;
    if (q.n_kinds == RANDOM_QUESTIONS_KINDS || q.measured_layers) return;
    q.kinds[q.n_kinds++] = (struct random_questions_kind){.device = "T4",
                                                          .nodes = 1,
                                                          .per_node = 1,
                                                          .uplink_Bps = 1e9,
                                                          .uplink_s = 5e-5,
                                                          .slowdown = 4};
    x = ask(&q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1});
    compare(c, 'd', "a T4 more", c->answer->ns, x->ns, TOLERANCE, x->cpu_s);
}

static void classes(struct comparing *c)
{
    for (int32_t k = 0; k < c->q.n_kinds && c->q.n_kinds > 1; k++) {
        struct random_question q = c->q;
        q.kinds[k].nodes = 0;
        struct asked *x = ask(&q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1});
        compare(c, 'c', arena_printf(arena, "without %s, then with", q.kinds[k].device), x->ns,
                c->answer->ns, TOLERANCE, x->cpu_s);
    }
}

static void words(struct comparing *c)
{
    struct asked *x = ask(&c->q, RANDOM_QUESTIONS_LISTED, &(struct search_options){.top = 1});
    compare(c, 'w', "each node listed, then counted", x->ns, c->answer->ns, TOLERANCE, x->cpu_s);
    compare(c, 'w', "counted, then each node listed", c->answer->ns, x->ns, TOLERANCE, x->cpu_s);
    x = ask(&c->q, RANDOM_QUESTIONS_REVERSED, &(struct search_options){.top = 1});
    compare(c, 'w', "types reversed, then in order", x->ns, c->answer->ns, TOLERANCE, x->cpu_s);
    compare(c, 'w', "in order, then types reversed", c->answer->ns, x->ns, TOLERANCE, x->cpu_s);
}

static void presets(struct comparing *c)
{
    for (int32_t i = 0; i < c->answer->r.n_baselines; i++) {
        const char *name = c->answer->r.baselines[i].name;
        struct asked *x = ask(&c->q, RANDOM_QUESTIONS_COUNTED,
                              &(struct search_options){.top = 1, .baseline = name});
        compare(c, 'p', name, x->ns, c->answer->ns, 0, x->cpu_s);
    }
}

/* The answers to narrower and wider questions about the same cluster, as starts. */
static void starts(struct comparing *c)
{
    struct search_options o[] = {{.top = 1},
                                 {.top = 1, .no_sharding = true},
                                 {.top = 1, .baseline = "harp-published"},
                                 {.top = 1, .baseline = "zero-1"},
                                 {.top = 1, .baseline = "megatron"}};
    static const char *const name[] = {"answer", "answer without sharding", "harp-published",
                                       "zero-1", "megatron"};
    for (int i = 0; i < 5; i++) {
        struct asked *x = i ? ask(&c->q, RANDOM_QUESTIONS_COUNTED, &o[i]) : c->answer;
        if (x->ns == INT64_MAX) continue;
        struct asked *y = ask(&c->q, RANDOM_QUESTIONS_COUNTED,
                              &(struct search_options){.top = 1, .from = &x->r.plans[0].plan});
        compare(c, 'f', arena_printf(arena, "from %s", name[i]), x->ns, y->ns, 0, y->cpu_s);
        /* beyond eight devices only repairs follow, unless a budget is stated */
        y = ask(
            &c->q, RANDOM_QUESTIONS_COUNTED,
            &(struct search_options){.top = 1, .from = &x->r.plans[0].plan, .evaluations = 20000});
        compare(c, 'f', arena_printf(arena, "from %s with a search", name[i]), x->ns, y->ns, 0,
                y->cpu_s);
        compare(c, 'f', arena_printf(arena, "without a start, then from %s", name[i]),
                c->answer->ns, y->ns, TOLERANCE, y->cpu_s);
    }
}

static const char *text_of(const struct asked *x)
{
    char *text = NULL;
    size_t n = 0;
    if (x->ns == INT64_MAX) return "";
    FILE *f = open_memstream(&text, &n);
    ck_assert_ptr_nonnull(f);
    plan_write(f, arena, &x->r.plans[0].plan);
    fclose(f);
    const char *kept = arena_strdup(arena, text);
    free(text);
    return kept;
}

static void threads(struct comparing *c)
{
    const char *one = text_of(c->answer);
    for (int32_t n = 2; n <= 3; n++) {
        struct asked *x =
            ask(&c->q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1, .threads = n});
        bool same = !strcmp(one, text_of(x));
        compare(
            c, 't',
            arena_printf(arena, "%d threads: %s", (int)n, same ? "the same bytes" : "other bytes"),
            1, same ? 1 : 2, 0, x->cpu_s);
    }
}

static int64_t cost_of(const struct asked *x)
{
    return x->ns < INT64_MAX ? (int64_t)(1e15 * x->r.plans[0].cost) : INT64_MAX;
}

/* The default's plan is a candidate of every search by money. Costs are in 1e-15 of the currency. */
static void money(struct comparing *c)
{
    if (c->answer->ns == INT64_MAX) return;
    double cost = c->answer->r.plans[0].cost, rate = 0.999999e9 / (double)c->answer->ns;
    struct search_options o[] = {{.top = 1, .objective = OBJECTIVE_COST},
                                 {.top = 1, .objective = OBJECTIVE_COST, .min_rate = rate},
                                 {.top = 1, .max_cost = cost}};
    struct asked *x = ask(&c->q, RANDOM_QUESTIONS_COUNTED, &o[0]);
    compare(c, 'e', "cost of the default, then by cost", cost_of(c->answer), cost_of(x), 0, x->cpu_s);
    x = ask(&c->q, RANDOM_QUESTIONS_COUNTED, &o[1]);
    compare(c, 'e', "cost of the default, then by cost at its rate", cost_of(c->answer), cost_of(x), 0, x->cpu_s);
    x = ask(&c->q, RANDOM_QUESTIONS_COUNTED, &o[2]);
    compare(c, 'e', "the default, then by time at its cost", c->answer->ns, x->ns, 0, x->cpu_s);
}

static const struct {
    char letter;
    void (*of)(struct comparing *c);
} properties[] = {{'o', offers}, {'b', budgets}, {'m', memory}, {'d', devices},
                  {'c', classes}, {'w', words},  {'p', presets}, {'f', starts}, {'t', threads}, {'e', money}};
enum { PROPERTIES = sizeof properties / sizeof *properties };

/* --- questions ------------------------------------------------------------------------------- */

/* Its files in that folder. */
static void write_files(const struct random_question *q, const char *folder)
{
    const char *const text[] = {q->job,
                                random_questions_cluster(arena, q, RANDOM_QUESTIONS_COUNTED)};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(
            arena_printf(arena, "%s/%d-%s.yaml", folder, (int)q->seed, i ? "cluster" : "job"), "w");
        ck_assert_ptr_nonnull(f);
        fputs(text[i], f), fclose(f);
    }
}

static void question(uint64_t seed, int32_t devices_most, const char *which, bool print)
{
    struct comparing c = {.print = print};
    random_questions_make(arena, seed, devices_most, &c.q);
    if (getenv("MUSHER_WIDER_FILES")) write_files(&c.q, getenv("MUSHER_WIDER_FILES"));
    c.answer = ask(&c.q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1});
    if (print)
        printf("answer %d: %.3f ms in %.2f s (%s)\n", (int)seed, (double)c.answer->ns * 1e-6,
               c.answer->cpu_s, c.q.what);
    for (int i = 0; i < PROPERTIES; i++)
        if (strchr(which, properties[i].letter)) properties[i].of(&c);
    ck_assert_msg(!c.n, "question %d (%s):\n%s", (int)seed, c.q.what, c.failed);
}

START_TEST(who_asks_for_more_gets_no_slower_plan)
{
    const char *range = getenv("MUSHER_WIDER");
    char which[16] = "obmdcwpft";
    int first = 1, last = QUESTIONS;
    if (range) {
        ck_assert_int_ge(sscanf(range, "%d:%d:%15[a-z]", &first, &last, which), 2);
        if (first + _i > last) return;
        question((uint64_t)(first + _i), DEVICES, which, true);
    } else if (suites_long() && _i < QUESTIONS) {
        question((uint64_t)(1 + _i), DEVICES, which, false);
    } else {
        int k = suites_long() ? QUICK + _i - QUESTIONS : _i;
        which[0] = quick[k].property, which[1] = 0;
        question((uint64_t)quick[k].seed, DEVICES, which, false);
    }
}
END_TEST

/* ZeRO 3 on the four fast devices, which no pipeline over both classes reaches, and a preset that uses every device even less. */
START_TEST(a_class_that_slows_the_plan_is_idle)
{
    struct random_question q = {
        .what = "4 H100 and 8 T4",
        .job = "version: 1\nmodel: {model_type: qwen2, hidden_size: 3584, intermediate_size: 18944, num_hidden_layers: 28, "
               "num_attention_heads: 28, num_key_value_heads: 4, vocab_size: 152064, max_position_embeddings: 32768, "
               "tie_word_embeddings: false}\nsequence_length: 8192\nglobal_batch: 192\nprecision: fp16\n"
               "optimizer: {kind: adamw, lr: 1e-4}\n",
        .n_kinds = 2,
        .kinds = {{"H100-SXM5", 1, 4, 0, 450e9, 1e-6, 1.25e9, 8e-6, true, 1},
                  {"T4", 2, 4, 0, 12e9, 2e-6, 0.3e9, 8e-6, false, 1}}};
    struct comparing c = {.q = q};
    c.answer = ask(&q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1});
    q.kinds[1].nodes = 0;
    struct asked *x = ask(&q, RANDOM_QUESTIONS_COUNTED, &(struct search_options){.top = 1});
    compare(&c, 'c', "without T4, then with", x->ns, c.answer->ns, TOLERANCE, x->cpu_s);
    ck_assert_msg(!c.n, "%s", c.failed);
}
END_TEST

/* Two classes behind slow links, where a search with a twentieth of the default budget comes upon a plan that one with all of it passes by. */
START_TEST(a_larger_budget_gives_no_slower_plan)
{
    static const int64_t of[] = {1, 1000, 20000, 40000};
    struct random_question q = {
        .what = "8 RTX 4090 and 8 RTX 3090",
        .job = "version: 1\nmodel: {model_type: llama, hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32, "
               "num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 128256, max_position_embeddings: 131072, "
               "tie_word_embeddings: false}\nsequence_length: 4096\nglobal_batch: 64\nprecision: bf16\n"
               "optimizer: {kind: adamw, lr: 1e-4}\n",
        .n_kinds = 2,
        .kinds = {{"RTX-4090", 2, 4, 0, 25e9, 2e-6, 3e9, 3e-5, false, 1},
                  {"RTX-3090", 2, 4, 0, 12e9, 2e-6, 1.25e9, 3e-5, false, 1}}};
    struct comparing c = {.q = q};
    int64_t before = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        struct asked *x = ask(&q, RANDOM_QUESTIONS_COUNTED,
                              &(struct search_options){.top = 1, .evaluations = of[i]});
        compare(&c, 'b', arena_printf(arena, "%d simulations", (int)of[i]), before, x->ns, 0,
                x->cpu_s);
        before = x->ns;
    }
    ck_assert_msg(!c.n, "%s", c.failed);
}
END_TEST

Suite *wider_suite(void)
{
    Suite *suite = suite_create("wider");
    TCase *c = tcase_create("wider");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 3600);
    bool all = suites_long() || getenv("MUSHER_WIDER");
    tcase_add_loop_test(c, who_asks_for_more_gets_no_slower_plan, 0, all ? QUESTIONS + SLOW : QUICK);
    suite_add_tcase(suite, c);
    c = tcase_create("idle");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, a_class_that_slows_the_plan_is_idle);
    suite_add_tcase(suite, c);
    c = tcase_create("budget");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, a_larger_budget_gives_no_slower_plan);
    suite_add_tcase(suite, c);
    return suite;
}
