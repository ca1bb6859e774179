/* plan.yaml: round trips, what is refused and where, the hash.
 */
#include "core/base/arena.h"
#include "core/plan/plan.h"

#include "tests/support/suites.h"

#include <stdio.h>

enum { N_LAYERS = 6 }; /* of the plans in tests/data/plans */

static struct arena *arena;
static struct error err;

static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

/* tests/data/plans/bad/NAME.yaml, the place in it and what the message says there. */
static const struct {
    const char *name;
    int line, column;
    const char *says, *message_too;
} bad[] = {
    {"unknown-key", 6, 8, "speed: unknown key", ""},
    {"unknown-stage-key", 13, 50, "replicas[1].stages[0].recompile: unknown key", ""},
    {"unknown-made-by-key", 3, 32, "made_by.profil: unknown key", ""},
    {"no-microbatch", 1, 1, "'microbatch' is missing", ""},
    {"no-job", 15, 3, "jobs: unknown key", ""},
    {"bad-job", 17, 20, "job.sequence_length: 17 is longer", ""},
    {"bad-cluster", 30, 32, "cluster.links[1].between[1]: unknown node 'z'", ""},
    {"no-replicas", 8, 3, "x: unknown key", ""},
    {"unknown-device", 13, 34,
     "replicas[1].stages[0].device: unknown device 'a.7'; known: a.0, a.1, b.0; did you mean 'a.0'?", ""},
    {"duplicate-device", 13, 9,
     "replicas[1].stages[0].device: b.0 already has replicas[0].stages[1]", ""},
    {"gap-in-layers", 10, 9,
     "replicas[0].stages[1].layers: starts at 5, expected 4 (stage 0 ends at 3)", ""},
    {"overlap-of-layers", 10, 9, "replicas[0].stages[1].layers: starts at 3, expected 4", ""},
    {"layers-start-late", 13, 9, "replicas[1].stages[0].layers: starts at 1, expected 0", ""},
    {"layers-end-early", 13, 9,
     "replicas[1].stages[0].layers: the last stage ends at 4, expected 5", ""},
    {"too-many-layers", 13, 9,
     "replicas[1].stages[0].layers: ends at 6, but the model has 6 layers, 0 to 5", ""},
    {"layers-backwards", 10, 18, "replicas[0].stages[1].layers: ends at 4, before it starts at 5",
     ""},
    {"layers-of-one", 10, 18, "layers: must be [first, last], found 1", ""},
    {"negative-layer", 13, 19, "layers[0]: must be a whole number from 0", ""},
    {"shares-too-few", 7, 3,
     "replicas: have 7 microbatches in total, but global_batch 16 / microbatch 2 is 8", ""},
    {"shares-too-many", 7, 3, "replicas: have 9 microbatches in total", ""},
    {"microbatch-does-not-divide", 7, 3, "microbatch: 3 does not divide global_batch 16", ""},
    {"zero-share", 11, 19, "replicas[1].microbatches: must be a whole number from 1", ""},
    {"warmup-too-high", 9, 9, "replicas[0].stages[0].warmup: 6, but the replica has 5 microbatches",
     ""},
    {"zero-warmup", 9, 47, "warmup: must be a whole number from 1", ""},
    {"warmup-and-order", 10, 9, "has both a warmup and an order", ""},
    {"zero-receive-ahead", 10, 109, "receive_ahead: must be a whole number from 1", ""},
    {"zero-bucket", 9, 58, "bucket: must be a quantity from 1", ""},
    {"zero-steps", 5, 8, "steps: must be a whole number from 1", ""},
    {"order-letter", 10, 9, "order: 'J1' is not F, B, I or W", ""},
    {"order-no-number", 10, 9, "order: 'F' is not F, B, I or W", ""},
    {"order-glued", 10, 9, "order: 'F1I1' is not F, B, I or W", ""},
    {"order-number-too-high", 10, 9, "order: 'F5': this replica has microbatches 0 to 4", ""},
    {"order-number-huge", 10, 9, "microbatches 0 to 4", ""},
    {"order-twice", 10, 9, "order: F0 occurs twice", ""},
    {"order-missing", 10, 9, "order: W4 is missing", ""},
    {"order-forward-missing", 10, 9, "order: F4 is missing", ""},
    {"order-backward-first", 10, 9, "order: I3 comes before F3; it needs F3 before I3", ""},
    {"order-weight-first", 10, 9, "order: W3 comes before I3; it needs I3 before W3", ""},
    {"order-mixed", 10, 9, "order: B3 in an order with I: a stage has either B or I and W", ""},
    {"order-fused-and-split", 10, 9, "order: I1 in an order with B", ""},
    {"order-empty", 10, 9, "order: F0 is missing", ""},
    {"version-0", 1, 10, "version: version 0 is not supported", ""},
};

START_TEST(a_bad_plan_is_refused_with_its_place_and_the_reason)
{
    char path[160], place[200];
    struct plan x;
    snprintf(path, sizeof path, "tests/data/plans/bad/%s.yaml", bad[_i].name);
    snprintf(place, sizeof place, "%s:%d:%d: ", path, bad[_i].line, bad[_i].column);
    enum status status = plan_read(arena, path, &x, &err);
    if (status == OK) status = plan_check(&x, N_LAYERS, &err);
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_msg(strstr(err.text, place) == err.text, "%s\nexpected at %s", err.text, place);
    ck_assert_msg(strstr(err.text, bad[_i].says) && strstr(err.text, bad[_i].message_too),
                  "%s\nexpected: %s %s", err.text, bad[_i].says, bad[_i].message_too);
    ck_assert_int_eq(plan_read(arena, path, &x, NULL) == OK,
                     plan_read(arena, path, &x, &err) == OK);
}
END_TEST

static enum status parse(const char *text, struct plan *out)
{
    struct node *root;
    ck_assert_msg(document_parse(arena, "text", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    return plan_parse(arena, root, ".", out, &err);
}

static struct plan good(void)
{
    struct plan p;
    ck_assert_msg(plan_read(arena, "tests/data/plans/team4.yaml", &p, &err) == OK, "%s", err.text);
    ck_assert_msg(plan_check(&p, N_LAYERS, &err) == OK, "%s", err.text);
    return p;
}

static const char *written(const struct plan *p)
{
    char *buffer = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&buffer, &n);
    plan_write(out, arena, p);
    fclose(out);
    char *text = arena_strdup(arena, buffer);
    free(buffer);
    return text;
}

START_TEST(a_plan_is_read_as_written)
{
    struct plan p = good();
    ck_assert_str_eq(p.name, "two-replicas");
    ck_assert(p.profile_id == 3 && p.seed == 11 && p.predicted_ns == 81250000 &&
              p.microbatch == 2 && p.deterministic);
    ck_assert(p.steps == 1 && p.n_replicas == 2 && p.replicas[0].microbatches == 5 &&
              p.replicas[0].n_stages == 2);
    const struct plan_stage *s = p.replicas[0].stages;
    ck_assert(s[0].first_layer == 0 && s[0].last_layer == 3 && s[0].device == 0 &&
              s[0].warmup == 2 && !s[0].order);
    ck_assert(s[0].bucket_bytes == 1 << 20 && s[0].receive_ahead == 2 && s[0].line == 9 &&
              s[0].column == 9);
    ck_assert(s[1].device == 2 && s[1].order && s[1].receive_ahead == 3 && s[1].warmup == 0 &&
              !s[1].recompute);
    ck_assert(p.replicas[1].stages[0].recompute && p.replicas[1].stages[0].device == 1);
    ck_assert(p.job.global_batch == 16 && p.cluster.n_devices == 3);
}
END_TEST

START_TEST(a_plan_is_described_in_one_line)
{
    struct plan p = good();
    ck_assert_str_eq(
        plan_describe(arena, &p),
        "1 replica of 5 microbatches: layers 0-3 on a.0, bucket 1 MiB | 4-5 on b.0, ordered; "
        "1 replica of 3 microbatches: layers 0-5 on a.1, recompute");
    p.n_replicas = 1;
    ck_assert_str_eq(
        plan_describe(arena, &p),
        "1 replica of 5 microbatches: layers 0-3 on a.0, bucket 1 MiB | 4-5 on b.0, ordered");
}
END_TEST

#define HEAD "version: 1\nmicrobatch: 6\nreplicas:\n"
#define TAIL                                                                                       \
    "job: {version: 1, model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: " \
    "16, vocab_size: 256}, sequence_length: 16, global_batch: 48}\n"                               \
    "cluster: {version: 1, name: team, device_types: [{name: a, device: A100-SXM4-40}, {name: b, " \
    "device: H100-SXM5}], nodes: [{name: a, devices: {type: a, count: 8}}, {name: b, devices: "     \
    "{type: b, count: 4}}]}\n"
#define ONE(stages) HEAD "  - {microbatches: 4, stages: [" stages "]}\n" TAIL
#define TWO_OF(stage, x, y)                                                                        \
    HEAD "  - {microbatches: 4, stages: [" stage(x) "]}\n"                                         \
         "  - {microbatches: 4, stages: [" stage(y) "]}\n" TAIL
#define SHARDED(device) "{layers: [0, 5], devices: [" device "], zero: 1, sharding: {operators: [{match: \"*\", shard: batch}]}}"
#define SINGLE(device) "{layers: [0, 3], device: a." device "}, {layers: [4, 5], device: b." device ", recompute: true}"
#define SHARDED_BY(rules) ONE("{layers: [0, 5], devices: [a.0, a.1], sharding: {operators: [" rules "]}}")
static const struct {
    const char *plan, *line;
} described[] = {
    /* equal replicas are one class, and their devices counts */
    {TWO_OF(SINGLE, "0", "1"), "2 replicas of 4 microbatches: layers 0-3 on 1 a | 4-5 on 1 b, recompute"},
    {TWO_OF(SHARDED, "a.0, b.0", "a.1, b.1"), "2 replicas of 4 microbatches: layers 0-5 on 1 a + 1 b (batch), zero 1"},
    /* the same rules on other types are two classes */
    {TWO_OF(SHARDED, "a.0, a.1", "b.0, b.1"), "1 replica of 4 microbatches: layers 0-5 on a.0-1 (batch), zero 1; "
                                              "1 replica of 4 microbatches: layers 0-5 on b.0-1 (batch), zero 1"},
    /* equal stages, with one setting in front; devices in the order of the stages */
    {ONE("{layers: [0, 1], device: a.0, zero: 1}, {layers: [2, 3], device: a.1, zero: 1}, {layers: [4, 5], device: a.2, zero: 1}"),
     "1 replica of 4 microbatches, zero 1: layers 0-5 in 3 stages on a.0-2"},
    {ONE("{layers: [0, 1], device: a.2}, {layers: [2, 2], device: a.0}, {layers: [3, 5], device: b.0}"),
     "1 replica of 4 microbatches: layers 0-1, 2 on a.2, a.0 | 3-5 on b.0"},
    {ONE("{layers: [0, 5], devices: [b.1, b.0, a.1], sequences: [1, 2, 3]}"),
     "1 replica of 4 microbatches: layers 0-5 on b.1, b.0, a.1 (batch 1+2+3)"},
    {ONE("{layers: [0, 5], devices: [b.0, b.1, a.1], sequences: [2, 2, 2]}"),
     "1 replica of 4 microbatches: layers 0-5 on b.0-1, a.1 (batch 2 each)"},
    /* what the rules amount to */
    {SHARDED_BY("{match: \"*.attn.attention\", shard: heads}, {match: \"*\", shard: positions}"),
     "1 replica of 4 microbatches: layers 0-5 on a.0-1 (sequence)"},
    {SHARDED_BY("{match: \"*\", shard: positions}"), "1 replica of 4 microbatches: layers 0-5 on a.0-1 (context)"},
    {SHARDED_BY("{match: \"*.attn.*\", shard: heads}, {match: \"*.mlp.c_fc*\", shard: features}, {match: \"*.mlp.c_proj*\", shard: inputs}"),
     "1 replica of 4 microbatches: layers 0-5 on a.0-1 (tensor)"},
    {SHARDED_BY("{match: \"*.attn.*\", shard: heads}, {match: \"*.mlp.*\", shard: features}, {match: \"*\", shard: positions}"),
     "1 replica of 4 microbatches: layers 0-5 on a.0-1 (tensor, sequence)"},
    {SHARDED_BY("{match: \"*.experts.*\", shard: experts}, {match: \"*\", shard: positions}"),
     "1 replica of 4 microbatches: layers 0-5 on a.0-1 (context, expert)"},
    {SHARDED_BY("{match: \"*.experts.*\", shard: experts}, {match: \"*\", shard: batch}"),
     "1 replica of 4 microbatches: layers 0-5 on a.0-1 (expert)"},
    {SHARDED_BY("{match: \"*.attn.*\", shard: heads}, {match: \"*\", shard: batch}"),
     "1 replica of 4 microbatches: layers 0-5 on a.0-1 (mixed: batch, tensor)"},
    {ONE("{layers: [0, 5], devices: [a.0, a.1, a.2, a.3], sharding: {mesh: [2, 2], operators: [{match: \"*.attn.*\", shard: [batch, heads]}, "
         "{match: \"*\", shard: [batch, features]}], parameters: [{match: \"*\", reshard_after_forward: true}]}}"),
     "1 replica of 4 microbatches: layers 0-5 on a.0-3 (batch 2 x tensor 2, fsdp)"},
};

START_TEST(equal_replicas_and_stages_are_described_once)
{
    struct plan p;
    ck_assert_msg(parse(described[_i].plan, &p) == OK, "%s", err.text);
    ck_assert_str_eq(plan_describe(arena, &p), described[_i].line);
}
END_TEST

START_TEST(classes_name_what_they_have_in_common_once)
{
    struct plan p;
    int32_t n;
    size_t devices;
    const char *common;
    struct plan_class *classes;
    ck_assert_msg(parse(TWO_OF(SHARDED, "a.0, a.1", "b.0, b.1"), &p) == OK, "%s", err.text);
    const char **lines = plan_describe_classes(arena, &p, &n, &common);
    ck_assert_int_eq(n, 2);
    ck_assert_str_eq(common, ", sharded (batch), zero 1");
    ck_assert_str_eq(lines[1], "1 replica of 4 microbatches: layers 0-5 on b.0-1");
    ck_assert_str_eq(plan_describe_replica(arena, &p, 1),
                     "replica 1 of 4 microbatches: layers 0-5 on b.0-1 (batch), zero 1");
    ck_assert_msg(parse(TWO_OF(SHARDED, "a.0, a.1", "a.2, a.4"), &p) == OK, "%s", err.text);
    ck_assert_str_eq(plan_describe_classes(arena, &p, &n, &common)[0],
                     "2 replicas of 4 microbatches: layers 0-5 on 2 a (batch), zero 1");
    ck_assert(n == 1 && !*common);
    plan_classes(arena, &p, &classes);
    ck_assert_str_eq(plan_class_devices(arena, &p, classes, &devices), "a.[0-2,4]");
    ck_assert_uint_eq(devices, 4);
}
END_TEST

static void same_plan(const struct plan *a, const struct plan *b)
{
    ck_assert_str_eq(a->name, b->name);
    ck_assert(a->profile_id == b->profile_id && a->seed == b->seed &&
              a->microbatch == b->microbatch && a->deterministic == b->deterministic &&
              a->steps == b->steps && a->n_replicas == b->n_replicas &&
              a->predicted_ns == b->predicted_ns);
    for (int32_t r = 0; r < a->n_replicas; r++) {
        const struct plan_replica *x = &a->replicas[r], *y = &b->replicas[r];
        ck_assert(x->microbatches == y->microbatches && x->n_stages == y->n_stages);
        for (int32_t i = 0; i < x->n_stages; i++) {
            const struct plan_stage *s = &x->stages[i], *t = &y->stages[i];
            ck_assert(s->first_layer == t->first_layer && s->last_layer == t->last_layer &&
                      s->device == t->device && s->warmup == t->warmup &&
                      s->recompute == t->recompute && s->bucket_bytes == t->bucket_bytes &&
                      s->receive_ahead == t->receive_ahead && !s->order == !t->order);
            if (s->order) ck_assert_str_eq(s->order, t->order);
        }
    }
    ck_assert(a->job.global_batch == b->job.global_batch && a->job.seed == b->job.seed);
    ck_assert_int_eq(a->cluster.n_devices, b->cluster.n_devices);
}

START_TEST(what_is_written_reads_back_to_the_same_plan_and_the_same_text)
{
    struct plan p = good(), again;
    const char *text = written(&p);
    ck_assert_msg(parse(text, &again) == OK, "%s\n%s", err.text, text);
    same_plan(&p, &again);
    ck_assert_str_eq(written(&again), text);
    ck_assert_uint_eq(plan_hash(arena, &p), plan_hash(arena, &again));
}
END_TEST

START_TEST(an_order_of_many_calls_survives_writing_with_single_spaces)
{
    struct plan p = good(), again;
    int32_t n = 4000;
    char *order = arena_alloc(arena, 80000, 1), *at = order;
    for (int32_t i = 0; i < n; i++) at += snprintf(at, 24, " \tF%d  B%d\n", (int)i, (int)i);
    p.job.global_batch = 2 * n;
    p.n_replicas = 1;
    p.replicas[0].microbatches = n;
    p.replicas[0].stages[1].order = order;
    ck_assert_msg(plan_check(&p, N_LAYERS, &err) == OK, "%s", err.text);
    ck_assert_msg(parse(written(&p), &again) == OK, "%s", err.text);
    ck_assert_msg(plan_check(&again, N_LAYERS, &err) == OK, "%s", err.text);
    ck_assert(!strncmp(again.replicas[0].stages[1].order, "F0 B0 F1 B1 F2", 14));
    ck_assert_uint_eq(plan_hash(arena, &p), plan_hash(arena, &again));
    ck_assert_str_eq(written(&p), written(&again));
}
END_TEST

START_TEST(a_plan_by_hand_needs_no_head)
{
    struct plan p, q = good();
    char *text = strstr(written(&q), "microbatch:");
    ck_assert_msg(parse(arena_printf(arena, "version: 1\n%s", text), &p) == OK, "%s", err.text);
    ck_assert_str_eq(p.name, "plan");
    ck_assert(p.profile_id == 0 && p.predicted_ns == 0 && p.seed == p.job.seed);
}
END_TEST

START_TEST(the_hash_does_not_see_who_made_the_plan)
{
    struct plan p = good();
    uint64_t hash = plan_hash(arena, &p);
    p.name = "another";
    p.file = NULL;
    p.profile_id = 99;
    p.predicted_ns = 1;
    p.replicas[0].stages[0].line = 77;
    p.job.data = data_source_of(arena, "/elsewhere/text.txt", DATA_AUTO);
    ck_assert_uint_eq(plan_hash(arena, &p), hash);
}
END_TEST

START_TEST(the_hash_sees_everything_that_is_executed)
{
    uint64_t seen[40];
    size_t n = 0;
    struct plan p = good();
    seen[n++] = plan_hash(arena, &p);
#define CHANGED(field, value)                                                                      \
    do {                                                                                           \
        p = good();                                                                                \
        p.field = (value);                                                                         \
        seen[n++] = plan_hash(arena, &p);                                                          \
    } while (0)
    CHANGED(seed, 12);
    CHANGED(microbatch, 4);
    CHANGED(deterministic, false);
    CHANGED(steps, 2);
    CHANGED(n_replicas, 1);
    CHANGED(replicas[0].microbatches, 6);
    CHANGED(replicas[0].n_stages, 1);
    CHANGED(replicas[0].stages[0].first_layer, 1);
    CHANGED(replicas[0].stages[0].last_layer, 2);
    CHANGED(replicas[0].stages[0].device, 1);
    CHANGED(replicas[0].stages[0].warmup, 3);
    CHANGED(replicas[0].stages[0].warmup, 0);
    CHANGED(replicas[0].stages[1].order, "F0 B0");
    CHANGED(replicas[0].stages[1].order, NULL);
    CHANGED(replicas[0].stages[0].recompute, true);
    CHANGED(replicas[0].stages[0].bucket_bytes, 2 << 20);
    CHANGED(replicas[0].stages[0].receive_ahead, 1);
    CHANGED(job.seed, 12);
    CHANGED(job.sequence_length, 8);
    CHANGED(job.global_batch, 32);
    CHANGED(job.precision, DTYPE_fp64);
    CHANGED(job.optimizer.kind, OPTIMIZER_SGD);
    CHANGED(job.optimizer.lr, 2e-3);
    CHANGED(job.optimizer.beta1, 0.8);
    CHANGED(job.optimizer.eps, 1e-7);
    CHANGED(job.optimizer.weight_decay, 0.1);
    CHANGED(job.model.layers, 3);
    CHANGED(cluster.types[0].slowdown, 2);
    CHANGED(cluster.types[0].memory_bytes, 1 << 20);
    CHANGED(cluster.links[1].bandwidth_Bps, 4e8 + 1);
    CHANGED(cluster.links[1].latency_s, 1e-3);
    CHANGED(cluster.links[1].half_duplex, false);
    CHANGED(cluster.links[1].sharing, LINK_FAIR);
#undef CHANGED
    ck_assert(n <= sizeof seen / sizeof *seen);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(seen[i] != seen[k], "changes %zu and %zu", i, k);
}
END_TEST

START_TEST(a_made_plan_is_checked_without_a_file)
{
    struct plan p = good();
    p.file = NULL;
    p.replicas[0].stages[1].device = 9;
    ck_assert_int_eq(plan_check(&p, N_LAYERS, &err), ERR_INPUT);
    ck_assert_str_eq(err.text,
                     "replicas[0].stages[1].device: there is no device 9; the cluster has 3");
    ck_assert_int_eq(plan_check(&p, N_LAYERS, NULL), ERR_INPUT);
    p = good();
    p.n_replicas = 0;
    ck_assert_int_eq(plan_check(&p, N_LAYERS, &err), ERR_INPUT);
    p = good();
    p.replicas[1].n_stages = 0;
    ck_assert_int_eq(plan_check(&p, N_LAYERS, &err), ERR_INPUT);
    p = good();
    p.microbatch = 0;
    ck_assert_int_eq(plan_check(&p, N_LAYERS, &err), ERR_INPUT);
}
END_TEST

Suite *plan_suite(void)
{
    Suite *s = suite_create("core/plan/plan");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_bad_plan_is_refused_with_its_place_and_the_reason, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(t, a_plan_is_read_as_written);
    tcase_add_test(t, a_plan_is_described_in_one_line);
    tcase_add_loop_test(t, equal_replicas_and_stages_are_described_once, 0,
                        (int)(sizeof described / sizeof *described));
    tcase_add_test(t, classes_name_what_they_have_in_common_once);
    tcase_add_test(t, what_is_written_reads_back_to_the_same_plan_and_the_same_text);
    tcase_add_test(t, an_order_of_many_calls_survives_writing_with_single_spaces);
    tcase_add_test(t, a_plan_by_hand_needs_no_head);
    tcase_add_test(t, the_hash_does_not_see_who_made_the_plan);
    tcase_add_test(t, the_hash_sees_everything_that_is_executed);
    tcase_add_test(t, a_made_plan_is_checked_without_a_file);
    suite_add_tcase(s, t);
    return s;
}
