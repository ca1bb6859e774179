/* The JobSet of `musher launch kubernetes`, read back by the YAML parser; which nodes form a group. */
#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/document/document.h"
#include "tools/common.h"
#include "tools/launch/launch.h"

#include <check.h>
#include <string.h>

static struct arena *a;
static struct error err;
#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static struct launch laid_out(const struct launch_request *q, bool gpus)
{
    struct plan *plan = ARENA_ARRAY(a, struct plan, 1);
    struct program *program = ARENA_ARRAY(a, struct program, 1);
    struct launch l;
    MUST(common_plan(a, "examples/three-hosts.yaml", plan, &err));
    MUST(common_lower(a, plan, true, program, &err));
    for (int32_t i = 0; gpus && i < program->n_devices; i++) program->devices[i].kind = "cuda";
    MUST(launch_layout(a, "plan.yaml", plan, program, q, &l, &err));
    return l;
}

static const struct node *at(const struct node *n, const char *key)
{
    const struct node *out;
    MUST(node_need(n, key, &out, &err));
    return out;
}

static const char *text_at(const struct node *n, const char *key)
{
    const char *out;
    MUST(node_lines(at(n, key), &out, &err));
    return out;
}

static const struct node *read_back(const struct launch *l)
{
    struct text t;
    struct node *root;
    size_t n;
    MUST(launch_kubernetes(text_begin(&t), l, &err));
    const char *text = text_end(a, &t, &n);
    MUST(document_parse(a, "jobset", text, n, &root, &err));
    return root;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) n++;
    return n;
}

static const struct node *pod_of(const struct node *job) { return at(at(at(at(at(job, "template"), "spec"), "template"), "spec"), "containers"); }

START_TEST(jobset)
{
    const char *labels[] = {"fast=gpu.product=A", "slow=gpu.product=B"}, *run[] = {"--steps", "5"};
    const struct launch_request q = {.program = "musher", .image = "registry/x:1", .claim = "work", .folder = "/work", .save = "ckpt", .restarts = 7,
                                     .grace_s = 60, .labels = {2, labels}, .run = {2, run}};
    struct launch l = laid_out(&q, true);
    const struct node *root = read_back(&l), *spec = at(root, "spec"), *jobs = at(spec, "replicatedJobs");
    ck_assert_str_eq(text_at(root, "apiVersion"), "jobset.x-k8s.io/v1alpha2");
    ck_assert_str_eq(text_at(root, "kind"), "JobSet");
    ck_assert_str_eq(text_at(at(root, "metadata"), "name"), "three-hosts");
    ck_assert_str_eq(text_at(at(spec, "failurePolicy"), "maxRestarts"), "7");
    ck_assert_str_eq(text_at(at(spec, "network"), "enableDNSHostnames"), "true");
    static const struct {
        const char *name, *gpus, *product;
    } wanted[] = {{"leader", "2", "A"}, {"nodes1", "1", "B"}, {"nodes2", "1", "A"}};
    ck_assert_uint_eq(jobs->count, 3);
    for (size_t i = 0; i < jobs->count; i++) {
        const struct node *job = jobs->members[i], *containers = pod_of(job), *pod = at(at(at(at(job, "template"), "spec"), "template"), "spec");
        const struct node *box = containers->members[0];
        ck_assert_str_eq(text_at(job, "name"), wanted[i].name);
        ck_assert_str_eq(text_at(at(pod, "nodeSelector"), "gpu.product"), wanted[i].product);
        ck_assert_str_eq(text_at(at(at(box, "resources"), "limits"), "nvidia.com/gpu"), wanted[i].gpus);
        ck_assert_str_eq(text_at(box, "image"), q.image);
        ck_assert_str_eq(text_at(at(at(job, "template"), "spec"), "completions"), "1");
        const char *script;
        MUST(node_lines(at(box, "args")->members[0], &script, &err));
        ck_assert_int_eq(count(script, "three-hosts-leader-0-0.three-hosts\n"), i ? 0 : 2); /* a line a rank */
        ck_assert_int_eq(count(script, "three-hosts-nodes1-0-0.three-hosts\n"), i ? 0 : 1);
        ck_assert_int_eq(count(script, "run plan.yaml --any-host --save ckpt --continue --steps 5"), i ? 0 : 1);
        ck_assert_int_eq(count(script, "sshd -D"), i ? 1 : 0);
    }
}
END_TEST

START_TEST(types_need_labels)
{
    struct launch_request q = {.program = "musher", .image = "i", .claim = "c", .folder = "/work"};
    struct launch l = laid_out(&q, true);
    struct text t;
    ck_assert_int_eq(launch_kubernetes(text_begin(&t), &l, &err), ERR_USAGE);
    text_end(a, &t, NULL);
    ck_assert_ptr_nonnull(strstr(err.text, "KEY=VALUE"));
    l = laid_out(&q, false);
    ck_assert_ptr_null(node_get(pod_of(at(at(read_back(&l), "spec"), "replicatedJobs")->members[0])->members[0], "resources"));
}
END_TEST

/* Nodes that are equal and neighbours are one group; idle devices have no rank. */
START_TEST(groups)
{
    const struct launch_request q = {.program = "musher"};
    struct launch l = laid_out(&q, false);
    ck_assert_int_eq(l.n_ranks, 4);
    ck_assert_int_eq(l.n_nodes, 3);
    ck_assert_int_eq(l.n_groups, 3);
    ck_assert_int_eq(l.nodes[1].n_ranks, 1);
    ck_assert_int_eq(l.nodes[1].part[0].n, 1);
    ck_assert_str_eq(l.nodes[1].host, "gamma");
}
END_TEST

Suite *launch_suite(void)
{
    Suite *s = suite_create("launch");
    TCase *c = tcase_create("files");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, jobset);
    tcase_add_test(c, types_need_labels);
    tcase_add_test(c, groups);
    suite_add_tcase(s, c);
    return s;
}
