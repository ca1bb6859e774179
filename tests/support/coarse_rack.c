#include "tests/support/coarse_rack.h"

#include "core/base/arena.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "profiles/team.h"

#include "tests/support/suites.h"
#include "tests/support/texts.h"

/* NVSwitch with a port for each GPU, and the network link at the node. */
static const char *rack =
    "version: 1\n"
    "name: rack\n"
    "device_types: [{name: h, device: H100-SXM5}, {name: a, device: A100-SXM4-40}]\n"
    "nodes:\n"
    "  - {name: h, devices: {type: h, count: 8}}\n"
    "  - {name: a0, devices: {type: a, count: 8}}\n"
    "  - {name: a1, devices: {type: a, count: 8}}\n"
    "switches: [{name: core}, {name: sh}, {name: s0}, {name: s1}]\n"
    "links:\n%s"
    "  - {name: uh, between: [h, core], bandwidth: 100 GB/s, latency: 5 us}\n"
    "  - {name: u0, between: [a0, core], bandwidth: 50 GB/s, latency: 5 us}\n"
    "  - {name: u1, between: [a1, core], bandwidth: 50 GB/s, latency: 5 us}\n";

const char *const coarse_rack_job =
    "version: 1\n"
    "model: {model_type: llama, vocab_size: 128256, tie_word_embeddings: false, hidden_size: 4096, "
    "intermediate_size: 14336, num_hidden_layers: 32, num_attention_heads: 32, "
    "num_key_value_heads: 8, "
    "max_position_embeddings: 131072}\n"
    "sequence_length: 4096\nglobal_batch: 256\nprecision: bf16\n"
    "optimizer: {kind: adamw, lr: 3e-4}\n";

void coarse_rack_make(struct arena *a, struct coarse_rack *m, struct cluster c, const char *job)
{
    struct error err = {0};
    *m = (struct coarse_rack){.cluster = c, .lower = {.check_memory = true}, .sizes = {1, 2, 4}};
    m->job = texts_job(a, job);
    ck_assert_msg(profile_prior(a, &m->cluster, &m->profile, &err) == OK, "%s", err.text);
    ck_assert_int_eq(team_fused(a, &m->cluster, &m->lower, &err), OK);
    m->options = (struct search_options){.top = 1};
    m->context = (struct search_context){.arena = a,
                                         .o = &m->options,
                                         .lower = &m->lower,
                                         .scorer = scorer_new(&m->lower),
                                         .spmd_stage = spmd_stage_new(),
                                         .evaluations_left = 20000};
    incumbents_init(&m->context.incumbents, a, 32, &m->options, &m->cluster);
    m->task = (struct search_task){&m->job, &m->cluster, &m->profile, m->sizes, 3, NULL};
    m->coarse = (struct coarse){.t = &m->context,
                                .task = &m->task,
                                .arena = a,
                                .templates = a,
                                .spare_percent = 2,
                                .spaces = ARENA_ARRAY(a, struct space, 3),
                                .at_size = ARENA_ARRAY(a, struct coarse_class *, 3)};
}

void coarse_rack_end(struct coarse_rack *m)
{
    spmd_stage_free(m->context.spmd_stage);
    scorer_free(m->context.scorer);
}

struct cluster coarse_rack_cluster(struct arena *a)
{
    const char *ports = "";
    static const struct {
        const char *node, *sw, *rate;
    } of[] = {{"h", "sh", "450 GB/s"}, {"a0", "s0", "300 GB/s"}, {"a1", "s1", "300 GB/s"}};
    for (int n = 0; n < 3; n++)
        for (int i = 0; i < 8; i++)
            ports = arena_printf(
                a,
                "%s  - {name: p-%s-%d, between: [%s.%d, %s], bandwidth: %s, latency: 1 us}\n",
                ports, of[n].node, i, of[n].node, i, of[n].sw, of[n].rate);
    return texts_cluster(a, arena_printf(a, rack, ports));
}

void coarse_rack_priced(struct arena *a, struct coarse_rack *m)
{
    struct error err = {0};
    coarse_rack_make(a, m, coarse_rack_cluster(a), coarse_rack_job);
    ck_assert_msg(coarse_classes(&m->coarse, &err) == OK, "%s", err.text);
    ck_assert_msg(coarse_space(&m->coarse, 0, &err) == OK, "%s", err.text);
}

struct plan coarse_rack_four_stages(struct arena *a, struct coarse_rack *m, int64_t batch, struct space *s)
{
    struct error err = {0};
    struct plan p;
    m->job.global_batch = batch;
    ck_assert_int_eq(coarse_classes(&m->coarse, &err), OK);
    ck_assert_int_eq(coarse_space(&m->coarse, 0, &err), OK);
    *s = m->coarse.spaces[0];
    struct coarse_stage stages[4];
    for (int32_t i = 0; i < 4; i++)
        stages[i] = (struct coarse_stage){
            .degree = 1, .first = 16 * i, .last = i < 3 ? 16 * i + 15 : s->n_layers - 1};
    struct coarse_template t = {.replicas = 1, .n_stages = 4, .stages = stages};
    struct coarse_candidate c = {.n_teams = 1, .team = {&t}, .share = {(int32_t)batch}};
    ck_assert(coarse_place(&m->coarse, &c, a, &p));
    s->cluster = &m->cluster;
    return p;
}
