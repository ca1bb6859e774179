/* Baselines: each plan has the properties of its family and is the best of it, compared with brute force over the settings. */
#include "core/base/rng.h"
#include "planner/baseline/harp.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "profiles/team.h"

#include "tests/support/small_teams.h"

static const struct plan *one(const struct job *j, const struct cluster *c, const char *name)
{
    struct search_options o = {.top = 1, .baseline = name};
    struct search_result r = small_team_search(j, c, &o);
    struct plan *p = ARENA_ARRAY(arena, struct plan, 1);
    *p = r.plans[0].plan;
    ck_assert_str_eq(p->name, name);
    ck_assert_int_gt(r.plans[0].iteration_ns, 0);
    return p;
}

/* --- what their names say --- */
START_TEST(data_parallel_families_have_a_replica_on_each_device)
{
    static const struct {
        const char *name;
        int32_t zero;
    } want[] = {{"data-parallel", 0}, {"ddp", 0}, {"horovod-ring", 0}, {"hierarchical", 0}, {"tf-mirrored", 0}, {"zero-1", 1}, {"zero-2", 2},
                {"zero-3", 3}, {"fsdp", 3}, {"hsdp", 3}};
    struct job j = small_team_job(4, 16, "");
    struct cluster c = small_team(2, "22", 100);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct plan *p = one(&j, &c, want[i].name);
        ck_assert_int_eq(p->n_replicas, 4);
        for (int32_t r = 0; r < 4; r++) {
            ck_assert_int_eq(p->replicas[r].n_stages, 1);
            ck_assert_int_eq(p->replicas[r].stages[0].zero, want[i].zero);
            ck_assert_int_eq(p->replicas[r].stages[0].device, r);
            ck_assert_int_eq(p->replicas[r].stages[0].hybrid_shard, !strcmp(want[i].name, "hsdp"));
            ck_assert_int_eq(p->replicas[r].stages[0].all_reduce, strcmp(want[i].name, "hierarchical") ? ALGORITHM_RING : ALGORITHM_HIERARCHICAL);
        }
        if (!strcmp(want[i].name, "ddp")) ck_assert_int_gt(p->replicas[0].stages[0].bucket_bytes, 0);
        if (!strcmp(want[i].name, "data-parallel"))
            ck_assert_int_eq(p->replicas[0].stages[0].bucket_bytes, 0);
    }
}
END_TEST

START_TEST(gpipe_runs_all_forwards_first_and_uses_every_device)
{
    struct job j = small_team_job(4, 16, "");
    struct cluster c = small_team(2, "22", 100);
    const struct plan *p = one(&j, &c, "gpipe");
    int32_t devices = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++, devices++) {
            ck_assert_int_gt(p->replicas[r].n_stages, 1);
            ck_assert_int_eq(p->replicas[r].stages[s].warmup, p->replicas[r].microbatches);
        }
    ck_assert_int_eq(devices, 4);
}
END_TEST

/* 70B parameters with their state take 1.1 TB: 32 GPUs of 80 GB hold no replica in which every GPU has whole layers and its copy of
 * the state, so stages of several GPUs are the ones that fit. */
START_TEST(megatron_shards_operators_over_gpus_of_a_node_where_that_is_fastest)
{
    struct job j;
    struct cluster c;
    struct profile profile;
    struct error err = {0};
    struct search_result r;
    struct search_options o = {.top = 1, .baseline = "megatron"};
    ck_assert_int_eq(job_read(arena, "tests/bench/questions/llama-70b-4k.yaml", &j, &err), OK);
    ck_assert_int_eq(cluster_read(arena, "tests/bench/questions/h32.yaml", &c, &err), OK);
    ck_assert_int_eq(team_complete(&c, &err), OK);
    ck_assert_int_eq(profile_prior(arena, &c, &profile, &err), OK);
    ck_assert_msg(search_plans(arena, &j, &c, &profile, &o, &r, &err) == OK, "%s", err.text);
    const struct plan *p = &r.plans[0].plan;
    int32_t devices = 0;
    ck_assert_int_eq(p->cluster.n_types, c.n_types);
    for (int32_t i = 0; i < p->n_replicas; i++)
        for (int32_t s = 0; s < p->replicas[i].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[i].stages[s];
            devices += plan_stage_devices(x);
            ck_assert_int_ge(plan_stage_devices(x), 2);
            ck_assert_ptr_nonnull(x->sharding);
            for (int32_t k = 1; k < plan_stage_devices(x); k++)
                ck_assert_int_eq(c.devices[plan_stage_device(x, k)].node,
                                 c.devices[x->device].node);
        }
    ck_assert_int_eq(devices % 32, 0); /* interleaved chunks count again */
}
END_TEST

/* A whole model of 1.5B parameters on V100s of 32 GB: its activations fit block by block only. */
START_TEST(data_parallel_recomputes_blocks_where_activations_do_not_fit)
{
    struct job j;
    struct cluster c;
    struct profile profile;
    struct error err = {0};
    struct search_result r;
    struct search_options o = {.top = 1, .baseline = "ddp"};
    ck_assert_int_eq(job_read(arena, "tests/bench/questions/gpt-1.5b.yaml", &j, &err), OK);
    ck_assert_int_eq(cluster_read(arena, "tests/bench/questions/a4-v4.yaml", &c, &err), OK);
    ck_assert_int_eq(team_complete(&c, &err), OK);
    ck_assert_int_eq(profile_prior(arena, &c, &profile, &err), OK);
    ck_assert_msg(search_plans(arena, &j, &c, &profile, &o, &r, &err) == OK, "%s", err.text);
    ck_assert_int_eq(r.plans[0].plan.replicas[0].stages[0].recompute, RECOMPUTE_BLOCKS);
    ck_assert(!r.baselines[0].estimated && !r.baselines[0].sampled);
}
END_TEST

START_TEST(harp_takes_every_device_in_order_in_meshes_of_one_node)
{
    struct job j = small_team_job(6, 16, "microbatch: 2\n");
    struct cluster c = small_team(3, "124", 50);
    const struct plan *p = one(&j, &c, "harp-published");
    int32_t next = 0, last = -1;
    ck_assert_int_eq(p->n_replicas, 1);
    for (int32_t s = 0; s < p->replicas[0].n_stages; s++) {
        const struct plan_stage *x = &p->replicas[0].stages[s];
        for (int32_t k = 0; k < plan_stage_devices(x); k++) {
            ck_assert_int_eq(plan_stage_device(x, k), next++);
            ck_assert_int_eq(p->cluster.devices[plan_stage_device(x, k)].node,
                             p->cluster.devices[x->device].node);
        }
        ck_assert_int_eq(x->first_layer, last + 1);
        last = x->last_layer;
    }
    ck_assert_int_eq(next, 6);
}
END_TEST

static void zero_2_is_refused(struct cluster *c, int64_t batch, const char *text, const char *why)
{
    struct job j = small_team_job(2, batch, text);
    struct search_result r = small_team_search(&j, c, &(struct search_options){.top = 1});
    for (int32_t i = 0; i < r.n_baselines; i++)
        if (!strcmp(r.baselines[i].name, "zero-2")) ck_assert_str_eq(r.baselines[i].why, why);
}

START_TEST(what_cannot_be_says_why)
{
    static const struct {
        const char *name, *why;
    } want[] = {{"ddp", "a single device has no gradients to all-reduce"},
                {"zero-3", "a single device has no replicas to shard over"},
                {"gpipe", "a single device is no pipeline"}};
    struct job j = small_team_job(2, 3, "");
    struct cluster team = small_team(1, "2", 1), c = team;
    c.n_devices = c.nodes[0].n_devices = 1;
    struct search_result r = small_team_search(&j, &c, &(struct search_options){.top = 1});
    for (size_t k = 0; k < sizeof want / sizeof *want; k++)
        for (int32_t i = 0; i < r.n_baselines; i++)
            if (!strcmp(r.baselines[i].name, want[k].name)) {
                ck_assert_int_eq(r.baselines[i].iteration_ns, INT64_MAX);
                ck_assert_str_eq(r.baselines[i].why, want[k].why);
            }
    team = small_team(2, "22", 100);
    zero_2_is_refused(&team, 3, "", "3 microbatches cannot fill 4 replicas");
    zero_2_is_refused(&team, 6, "microbatch: [1, 2, 6]\n", "3 microbatches cannot fill 4 replicas"); /* 3 of 6, 3, 1 lack least */
    zero_2_is_refused(&team, 6, "microbatch: [1]\n", "6 microbatches cannot be divided equally among 4 replicas, as this baseline does");
}
END_TEST

/* Stages of two GPUs are priced at the first microbatch sizes only: that is no reason, what lacks memory is. */
START_TEST(a_preset_that_lacks_memory_says_how_much)
{
    struct job j;
    struct cluster c;
    struct profile profile;
    struct error err = {0};
    struct search_result r;
    struct search_options o = {.top = 1, .evaluations = 100};
    struct node *text = small_team_parse(
        "cluster", "version: 1\nname: c\ndevice_types: [{name: t, device: RTX-4090}]\n"
                   "nodes: [{name: n, count: 4, devices: {type: t, count: 2}}]\nswitches: [{name: core}]\n"
                   "links:\n  - {name: in, count: 4, between: [n], bandwidth: 25 GB/s, latency: 2 us}\n"
                   "  - {name: up, count: 4, between: [n, core], bandwidth: 12.5 GB/s, latency: 10 us}\n");
    ck_assert_int_eq(job_read(arena, "tests/bench/questions/llama-8b-4k.yaml", &j, &err), OK);
    ck_assert_msg(cluster_parse(arena, text, &c, &err) == OK, "%s", err.text);
    ck_assert(team_complete(&c, &err) == OK && profile_prior(arena, &c, &profile, &err) == OK);
    ck_assert_msg(search_plans(arena, &j, &c, &profile, &o, &r, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < r.n_baselines; i++)
        if (!strcmp(r.baselines[i].name, "alpa-coarse"))
            ck_assert_msg(strstr(r.baselines[i].why, " GiB of 22.35 GiB") != NULL, "%s", r.baselines[i].why);
}
END_TEST

/* --- brute force --- */

struct bench {
    struct baseline_task k;
    struct search_context tries;
    struct search_options options;
    struct search_task task;
    struct lower_options lower;
    struct profile profile;
    int64_t sizes[3];
};

static void set_bench(struct bench *b, const struct job *j, const struct cluster *c)
{
    struct error err = {0};
    *b = (struct bench){.options = {.top = 1}, .sizes = {1, 2, 4}};
    ck_assert_int_eq(profile_prior(arena, c, &b->profile, &err), OK);
    ck_assert_int_eq(team_fused(arena, c, &b->lower, &err), OK);
    b->lower.check_memory = true;
    b->tries = (struct search_context){.arena = arena,
                                       .o = &b->options,
                                       .lower = &b->lower,
                                       .scorer = scorer_new(&b->lower),
                                       .budget = 1, .evaluations_left = INT64_MAX};
    b->tries.spmd_stage = spmd_stage_new();
    b->task = (struct search_task){j, c, &b->profile, b->sizes, 3, NULL};
    b->k = (struct baseline_task){.arena = arena,
                                  .t = &b->tries,
                                  .coarse = coarse_new(&b->tries, &b->task, true),
                                  .n_grouped = 3,
                                  .job = j,
                                  .cluster = c,
                                  .profile = &b->profile,
                                  .sizes = b->sizes,
                                  .n_sizes = 3};
    ck_assert_int_eq(baseline_degrees(&b->k, &err), OK);
}

static void end_bench(struct bench *b)
{
    coarse_free(b->k.coarse);
    spmd_stage_free(b->tries.spmd_stage);
    scorer_free(b->tries.scorer);
}

/* Every setting of the family simulated. */
static int64_t best_of_all(struct bench *b, int32_t family)
{
    struct error err = {0};
    int64_t best = INT64_MAX;
    b->k.n_settings = 0;
    ck_assert_int_eq(baseline_settings(family)(&b->k, &err), OK);
    for (int32_t i = 0; i < b->k.n_settings; i++) {
        const struct baseline_setting *x = &b->k.settings[i];
        struct arena *a = arena_new();
        struct space *s;
        struct plan p;
        int64_t ns;
        ck_assert_int_eq(baseline_space(&b->k, x->size, &s, &err), OK);
        ck_assert_int_eq(baseline_make(&b->k, x, "x", a, &p, &err), OK);
        ck_assert_int_eq(search_context_score(&b->tries, s, &p, &ns, &err), OK);
        if (ns < best) best = ns;
        arena_free(a);
    }
    return best;
}

static int32_t megatron(void)
{
    int32_t i = 0;
    while (strcmp(baseline_name(i), "megatron") != 0) i++;
    return i;
}

/* Fewer warm-ups are no repair of a plan whose schedule determines them. */
START_TEST(a_schedule_that_does_not_fit_lacks_memory)
{
    struct job j = small_team_job(8, 16, "");
    struct cluster c = small_team(2, "22", 100);
    struct bench b;
    struct error err = {0};
    int32_t n = 0;
    c.types[0].memory_bytes = c.types[1].memory_bytes = 430000;
    set_bench(&b, &j, &c);
    ck_assert_int_eq(baseline_settings(megatron())(&b.k, &err), OK);
    for (int32_t i = 0; i < b.k.n_settings; i++) {
        struct space *s;
        struct plan p;
        int64_t ns;
        if (b.k.settings[i].chunks == 1) continue;
        ck_assert_int_eq(baseline_space(&b.k, b.k.settings[i].size, &s, &err), OK);
        ck_assert_int_eq(baseline_make(&b.k, &b.k.settings[i], "x", arena, &p, &err), OK);
        ck_assert_msg(scorer_fit(b.tries.scorer, s, &p, &ns, &err) == OK, "%s", err.text);
        n += ns == INT64_MAX;
        for (int32_t k = 0; k < p.replicas[0].n_stages; k++)
            ck_assert_int_eq(p.replicas[0].stages[k].warmup, 0);
    }
    ck_assert(n > 0 && strstr(scorer_why(b.tries.scorer), "lacks"));
    end_bench(&b);
}
END_TEST

/* However many settings with better estimates lack memory. */
START_TEST(a_preset_that_fits_in_some_setting_is_found)
{
    int fits = 0;
    for (int64_t memory = 1000000; memory < 6000000; memory += memory / 12) {
        struct job j = small_team_job(8, 64, "microbatch: [1, 2, 4]\n");
        j.model.vocabulary = 4096;
        struct cluster c = small_team(2, "22", 100);
        struct search_options o = {.top = 1, .baseline = "megatron"};
        struct search_result r;
        struct bench b;
        struct error err = {0};
        c.types[0].memory_bytes = c.types[1].memory_bytes = memory;
        set_bench(&b, &j, &c);
        int possible = best_of_all(&b, megatron()) < INT64_MAX;
        enum status st = search_plans(arena, &j, &c, &b.profile, &o, &r, &err);
        fits += possible;
        ck_assert_msg((st == OK) == possible, "%ld bytes: %s", (long)memory, err.text);
        end_bench(&b);
    }
    ck_assert_int_gt(fits, 8);
}
END_TEST

static struct cluster random_team(uint64_t seed)
{
    char slowdowns[4];
    for (int i = 0; i < 3; i++) slowdowns[i] = (char)('1' + rng_below(seed, 1, (uint64_t)i, 5));
    return small_team(2 + (int)(seed % 2), slowdowns, 5 + (int)rng_below(seed, 2, 0, 200));
}

START_TEST(a_preset_is_nearly_the_best_setting_of_its_family)
{
    double sum = 0;
    int32_t n = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 12 : 4); seed++) {
        struct job j = small_team_job(3 + (int)(seed % 3), 24, "microbatch: [1, 2, 4]\n");
        struct cluster c = random_team(seed);
        struct search_options o = {.top = 1, .evaluations = 8};
        struct search_result r = small_team_search(&j, &c, &o);
        struct bench b;
        set_bench(&b, &j, &c);
        for (int32_t i = 0; i < r.n_baselines; i++) {
            int64_t ns = r.baselines[i].iteration_ns;
            ck_assert_int_le(r.plans[0].iteration_ns, ns);
            if (!baseline_settings(i)) continue;
            int64_t best = best_of_all(&b, i);
            ck_assert_int_eq(ns == INT64_MAX, best == INT64_MAX);
            if (best == INT64_MAX) continue;
            double regret = (double)ns / (double)best - 1;
            ck_assert_msg(regret < 0.1, "%s: %.1f %% above the best of its settings",
                          r.baselines[i].name, 100 * regret);
            sum += regret, n++;
        }
        end_bench(&b);
    }
    ck_assert_int_gt(n, 30);
    ck_assert_msg(sum / n < 0.01, "mean regret %.2f %%", 100 * sum / n);
}
END_TEST

/* Beside a search of more than 8 devices settings are fewer where they would take long, and then it is said. */
START_TEST(a_preset_beside_a_search_is_what_it_is_alone)
{
    int32_t whole = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 24 : 5); seed++) {
        char slowdowns[9] = "";
        int nodes = 5 + (int)(seed % 4);
        for (int i = 0; i < nodes; i++)
            slowdowns[i] = (char)('1' + rng_below(seed, 4, (uint64_t)i, 9));
        struct job j = small_team_job(2 + (int)(seed % 3), 8 << seed % 2, "microbatch: [1, 2]\n");
        struct cluster c = small_team(nodes, slowdowns, 1 + (int)rng_below(seed, 5, 0, 100));
        struct search_options o = {.top = 1, .evaluations = 1};
        struct search_result beside = small_team_search(&j, &c, &o);
        for (int32_t i = 0; i < beside.n_baselines; i++) {
            const struct search_baseline *b = &beside.baselines[i];
            struct profile p;
            struct search_result alone;
            struct error err = {0};
            o.baseline = b->name;
            ck_assert_int_eq(profile_prior(arena, &c, &p, &err), OK);
            enum status st = search_plans(arena, &j, &c, &p, &o, &alone, &err);
            int64_t ns = st == OK ? alone.plans[0].iteration_ns : INT64_MAX;
            whole += !b->quick && st == OK;
            if (b->quick)
                ck_assert_int_ge(b->iteration_ns, ns);
            else
                ck_assert_msg(b->iteration_ns == ns, "%s: %ld beside, %ld alone", b->name,
                              (long)b->iteration_ns, (long)ns);
        }
    }
    ck_assert_int_gt(whole, 20);
}
END_TEST

/* Of more than 32 devices families are not all made as if alone. On HAP's cluster the first setting of a pipeline is far from its
 * best one, by estimate and simulated; still none that may win is passed over. */
START_TEST(no_search_of_up_to_64_devices_ends_above_a_preset_made_alone)
{
    static const char *const few[] = {"zero-2", "gpipe", "alpa-coarse"};
    struct job j;
    struct cluster c;
    struct profile p;
    struct error err = {0};
    ck_assert_int_eq(job_read(arena, "tests/data/jobs/hap-vit.yaml", &j, &err), OK);
    ck_assert_int_eq(cluster_read(arena, "tests/data/clusters/hap64.yaml", &c, &err), OK);
    ck_assert_int_eq(team_complete(&c, &err), OK);
    struct search_options o = {.top = 1, .no_sharding = true};
    struct search_result beside = small_team_search(&j, &c, &o);
    for (int32_t i = 0; i < (suites_long() ? beside.n_baselines : 3); i++) {
        struct search_result alone;
        o.baseline = suites_long() ? beside.baselines[i].name : few[i];
        ck_assert_int_eq(profile_prior(arena, &c, &p, &err), OK);
        if (search_plans(arena, &j, &c, &p, &o, &alone, &err) != OK) continue;
        ck_assert_msg(beside.plans[0].iteration_ns <= alone.plans[0].iteration_ns,
                      "%s alone takes %ld, found %ld", o.baseline,
                      (long)alone.plans[0].iteration_ns, (long)beside.plans[0].iteration_ns);
    }
}
END_TEST

/* Closed form of every assignment to all devices of three one-GPU nodes, in order, some of the layers. */
START_TEST(harps_plan_is_the_best_of_its_closed_form)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct job j = small_team_job(3, 8, "");
        struct cluster c = random_team(2 * seed + 1);
        struct bench b;
        struct error err = {0};
        struct harp_plan found;
        struct space *s;
        for (int32_t i = 0; i < 3; i++) { /* one GPU a node */
            c.devices[i] = c.devices[2 * i];
            c.nodes[i].first_device = i, c.nodes[i].n_devices = 1;
        }
        c.n_devices = 3;
        set_bench(&b, &j, &c);
        ck_assert_int_eq(baseline_space(&b.k, 1, &s, &err), OK);
        ck_assert_int_eq(harp_plan_make(&b.k, 1, &found, &err), OK);
        int64_t best = INT64_MAX;
        for (int32_t x = 0; x + 2 < s->n_layers; x++)
            for (int32_t y = x + 1; y + 1 < s->n_layers; y++) {
                int32_t first[3] = {0, x + 1, y + 1}, last[3] = {x, y, s->n_layers - 1};
                int64_t total = 0, most = 0;
                for (int32_t d = 0; d < 3; d++) {
                    const struct stage_cost *t = space_stage(s, d, first[d], last[d]);
                    int64_t ns = t->forward_ns + t->input_ns + t->weight_ns;
                    int64_t cut = d < 2 ? space_transfer_ns(s, d, d + 1, last[d]) : 0;
                    total += ns + cut;
                    most = ns > most ? ns : most, most = cut > most ? cut : most;
                }
                int64_t closed = total + (s->microbatches - 1) * most;
                best = closed < best ? closed : best;
            }
        ck_assert_int_ge(found.closed_ns, best);
        ck_assert_msg((double)found.closed_ns <= 1.005 * (double)best, "%ld, best %ld",
                      (long)found.closed_ns, (long)best);
        end_bench(&b);
    }
}
END_TEST

/* w_S = 1; + 1 inside a node; across one + 1, 2 or 3 by the message's part of the slowest stage. */
START_TEST(harps_warm_ups_follow_the_published_rule)
{
    static const int32_t megabytes[] = {100000, 60, 2};
    int32_t before = 0;
    for (int i = 0; i < 3; i++) {
        struct job j = small_team_job(6, 64, "microbatch: 2\n");
        struct cluster c = small_team(2, "99", megabytes[i]);
        const struct plan *p = one(&j, &c, "harp-published");
        const struct plan_replica *r = &p->replicas[0];
        ck_assert_int_eq(r->stages[r->n_stages - 1].warmup, 1);
        for (int32_t s = 0; s + 1 < r->n_stages; s++) {
            int32_t more = r->stages[s].warmup - r->stages[s + 1].warmup;
            ck_assert(more >= 1 && more <= 3);
            bool near = p->cluster.devices[r->stages[s].device].node ==
                        p->cluster.devices[r->stages[s + 1].device].node;
            if (near) ck_assert_int_eq(more, 1);
        }
        ck_assert_int_ge(r->stages[0].warmup, i ? 1 : 0);
        before = r->stages[0].warmup > before ? r->stages[0].warmup : before;
    }
    ck_assert_int_gt(before, 1);
}
END_TEST

Suite *baselines_suite(void)
{
    Suite *s = suite_create("baselines");
    TCase *t = tcase_create("baselines");
    tcase_add_checked_fixture(t, small_team_setup, small_team_teardown);
    tcase_add_test(t, data_parallel_families_have_a_replica_on_each_device);
    tcase_add_test(t, gpipe_runs_all_forwards_first_and_uses_every_device);
    tcase_add_test(t, megatron_shards_operators_over_gpus_of_a_node_where_that_is_fastest);
    tcase_add_test(t, data_parallel_recomputes_blocks_where_activations_do_not_fit);
    tcase_add_test(t, harp_takes_every_device_in_order_in_meshes_of_one_node);
    tcase_add_test(t, what_cannot_be_says_why);
    tcase_add_test(t, a_preset_that_lacks_memory_says_how_much);
    tcase_add_test(t, a_schedule_that_does_not_fit_lacks_memory);
    tcase_add_test(t, a_preset_that_fits_in_some_setting_is_found);
    tcase_add_test(t, a_preset_is_nearly_the_best_setting_of_its_family);
    tcase_add_test(t, a_preset_beside_a_search_is_what_it_is_alone);
    tcase_add_test(t, no_search_of_up_to_64_devices_ends_above_a_preset_made_alone);
    tcase_add_test(t, harps_plan_is_the_best_of_its_closed_form);
    tcase_add_test(t, harps_warm_ups_follow_the_published_rule);
    suite_add_tcase(s, t);
    return s;
}
