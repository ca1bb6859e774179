/* Green contexts: valid numbers of multiprocessors, streams, errors, and every call that can fail. */
#include "core/cluster/cluster.h"
#include "exec/cuda/context.h"
#include "exec/worker/worker.h"
#include "profiles/team.h"

#include "tests/support/plans.h"

#include "tests/standin/standin.h"
#include "tests/support/cuda_rows.h"

static struct error err;

static enum status open_part(int32_t n)
{
    calls_begin();
    musher_plugin()->backend(&device);
    device.multiprocessors = n;
    return device.open(&device, 0, &err);
}

static void nothing_left(void)
{
    char left[200];
    ck_assert_msg(standin_left(left, sizeof left) == 0, "not given back: %s", left);
}

START_TEST(streams_and_grids_are_of_the_part)
{
    int32_t second;
    setenv("STANDIN_MULTIPROCESSORS", "32", 1);
    ck_assert_msg(open_part(16) == OK, "%s", err.text);
    ck_assert_int_eq(device.stream_make(&device, &second, &err), OK);
    ck_assert_int_eq(cuda_context_of(&device, STREAM_COMPUTE)->multiprocessors, 16);
    ck_assert_int_eq(cuda_context_of(&device, second)->multiprocessors, 16);
    for (int i = 0; i < 12; i++) cuda_rows_compare(&kernel_rows[i], DTYPE_fp32, false, 1);
    void *never;
    ck_assert_int_eq(device.allocate(&device, INT64_C(1) << 50, &never, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "(device 0, 16 of 32 multiprocessors)") != NULL, "%s", err.text);
    cuda_rows_close();
    nothing_left();
}
END_TEST

START_TEST(all_of_a_gpu_is_no_part)
{
    setenv("STANDIN_MULTIPROCESSORS", "36", 1); /* no multiple of 8 */
    ck_assert_msg(open_part(36) == OK, "%s", err.text);
    ck_assert_int_eq(cuda_context_of(&device, STREAM_COMPUTE)->multiprocessors, 36);
    cuda_rows_close();
    nothing_left();
}
END_TEST

static const struct {
    const char *capability;
    int32_t part;
    const char *text;
} parts[] = {
    {"90", 12, "multiples of 8, from 8 on; the nearest are 8 and 16"},
    {"90", 4, "from 8 on; the nearest are 8 and 8"},
    {"90", 40, "the nearest are 32 and 32"},
    {"90", 31, "the nearest are 24 and 32"},
    {"80", 7, "multiples of 2, from 4 on; the nearest are 6 and 8"},
    {"80", 6, NULL},
    {"75", 2, NULL},
    {"90", 24, NULL},
};

START_TEST(a_gpu_parts_as_its_generation_does)
{
    setenv("STANDIN_MULTIPROCESSORS", "32", 1);
    setenv("STANDIN_CAPABILITY", parts[_i].capability, 1);
    enum status st = open_part(parts[_i].part);
    ck_assert_msg(st == (parts[_i].text ? ERR_INPUT : OK), "%s", err.text);
    if (parts[_i].text)
        ck_assert_msg(strstr(err.text, parts[_i].text) != NULL, "%s", err.text);
    else
        device.close(&device);
    nothing_left();
    calls_end();
}
END_TEST

START_TEST(an_older_driver_is_told_with_what_is_left)
{
    char text[400] = "";
    setenv("STANDIN_DRIVER_VERSION", "12040", 1);
    ck_assert_int_eq(open_part(8), ERR_NO_DEVICE);
    ck_assert_msg(strstr(err.text, "cuGreenCtxStreamCreate") && strstr(err.text, "CUDA 12.5") &&
                      strstr(err.text, "virtual clock"),
                  "%s", err.text);
    nothing_left();
    musher_plugin()->parts(0, text, sizeof text);
    ck_assert_msg(strstr(text, "cuGreenCtxStreamCreate") != NULL, "%s", text);
    calls_end();
    ck_assert_int_eq(open_part(0), OK); /* all of the GPU needs none of it */
    cuda_rows_close();
}
END_TEST

START_TEST(what_is_offered_is_told)
{
    char text[400] = "";
    setenv("STANDIN_MULTIPROCESSORS", "132", 1);
    musher_plugin()->parts(0, text, sizeof text);
    ck_assert_str_eq(text, "132 multiprocessors, in parts that are multiples of 8, from 8 on");
}
END_TEST

/* Opening and closing a part makes some thirty calls. */
START_TEST(whichever_call_fails_nothing_is_left)
{
    static const cudaError_t how[] = {cudaErrorMemoryAllocation, cudaErrorNotSupported,
                                      cudaErrorInvalidValue};
    int failed = 0, named = 0;
    setenv("STANDIN_MULTIPROCESSORS", "32", 1);
    for (int n = 1;; n++) {
        standin_fail_at(n, how[n % 3]);
        bool opened = open_part(16) == OK;
        if (opened) device.close(&device);
        failed += !opened;
        const char *call = standin_failed_call();
        standin_fail_at(0, cudaSuccess);
        named += call && !strncmp(call, "cu", 2) && strncmp(call, "cuda", 4) != 0 && !opened;
        nothing_left();
        calls_end();
        if (!call) break;
    }
    ck_assert_int_gt(failed, 10);
    ck_assert_int_ge(named, 6); /* of the driver's calls */
}
END_TEST

/* ---- clusters ---------------------------------------------------------------------------------- */

#define CLUSTER                                                                                    \
    "version: 1\nname: part\ndevice_types:\n  - {name: half, device: %s, memory: 30 GiB%s}\n"      \
    "nodes:\n  - {name: a, host: localhost, devices: [{type: half}]}\n"

static enum status read_cluster(struct arena *a, const char *gpu, const char *more,
                                struct cluster *out)
{
    struct node *root;
    const char *text = arena_printf(a, CLUSTER, gpu, more);
    ck_assert_int_eq(document_parse(a, "c.yaml", text, strlen(text), &root, &err), OK);
    TRY(cluster_parse(a, root, out, &err));
    return team_complete(out, &err);
}

static const struct {
    const char *gpu, *more, *text;
} refusals[] = {
    {"H200-SXM", ", multiprocessors: 64", "a partial GPU is emulated and needs a slowdown"},
    {"host", ", slowdown: 2, multiprocessors: 64", "multiprocessors apply to GPUs only"},
    {"H200-SXM", ", slowdown: 2, multiprocessors: 0", "multiprocessors"},
    {"H200-SXM", ", slowdown: 2, multiprocessors: 140", "of which H200-SXM has 132"},
    {"RTX-3080", ", slowdown: 2, multiprocessors: 8", "has no number of multiprocessors"},
};

START_TEST(a_part_that_cannot_be_is_refused_where_it_stands)
{
    struct arena *a = arena_new();
    struct cluster c;
    ck_assert_int_eq(read_cluster(a, refusals[_i].gpu, refusals[_i].more, &c), ERR_INPUT);
    ck_assert_msg(strstr(err.text, refusals[_i].text) != NULL, "%s", err.text);
    arena_free(a);
}
END_TEST

START_TEST(a_part_goes_from_file_to_file_and_to_the_program)
{
    struct arena *a = arena_new();
    struct cluster c, again;
    struct node *root;
    char *text = NULL;
    size_t n = 0;
    ck_assert_msg(read_cluster(a, "H200-SXM", ", slowdown: 2, multiprocessors: 64", &c) == OK, "%s",
                  err.text);
    ck_assert_int_eq(c.types[0].multiprocessors, 64);
    ck_assert(c.emulated);
    ck_assert_double_eq_tol(team_slower(&c.types[0]), 132.0 / 64, 1e-12);
    ck_assert_int_eq(lower_device(&c, 0).multiprocessors, 64);
    FILE *f = open_memstream(&text, &n);
    cluster_write(f, &c, 0);
    fclose(f);
    ck_assert_int_eq(document_parse(a, "w.yaml", text, n, &root, &err), OK);
    ck_assert_msg(cluster_parse(a, root, &again, &err) == OK, "%s", err.text);
    ck_assert_int_eq(again.types[0].multiprocessors, 64);
    free(text);
    arena_free(a);
}
END_TEST

/* Training on a part of a GPU gives what training on all of it gives, on the device's own clock. */
START_TEST(a_part_trains_as_the_whole_does)
{
    struct arena *a = arena_new();
    struct run_result r[2];
    setenv("STANDIN_MULTIPROCESSORS", "32", 1);
    const char *b = getenv("BUILD");
    setenv("MUSHER_CUDA_PLUGIN",
           arena_printf(a, "%s/libmusher_cuda_standin.so", b && *b ? b : "build"), 1);
    for (int part = 0; part < 2; part++) {
        struct plan p = plans_new(a, "gpt2", 1, 1);
        int32_t last = plans_layers(a, &p) - 1;
        p.cluster.types[0].catalogue = "H200-SXM";
        p.cluster.types[0].backend = "cuda";
        p.cluster.types[0].memory_bytes = INT64_C(30) << 30;
        p.cluster.types[0].slowdown = part, p.cluster.emulated = part;
        p.cluster.types[0].multiprocessors = 8 * part;
        plans_replica(a, &p, 2, 1, &last);
        struct program *x = plans_lower(a, &p, false);
        const struct run_options o = {.steps = 2, .keep_trace = true};
        x->devices[0].gpu = "";
        ck_assert_int_eq(x->devices[0].multiprocessors, 8 * part);
        ck_assert_msg(worker_run(a, x, &o, &r[part], &err) == OK, "%s", err.text);
        ck_assert_int_eq(r[part].trace->emulated, part);
    }
    for (int i = 0; i < 2; i++)
        ck_assert_double_eq_tol(r[0].losses[i], r[1].losses[i], 1e-5 * r[0].losses[i]);
    arena_free(a);
}
END_TEST

Suite *green_context_suite(void)
{
    Suite *s = suite_create("green_context");
    TCase *c = tcase_create("green contexts");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, streams_and_grids_are_of_the_part);
    tcase_add_test(c, all_of_a_gpu_is_no_part);
    tcase_add_loop_test(c, a_gpu_parts_as_its_generation_does, 0, sizeof parts / sizeof *parts);
    tcase_add_test(c, an_older_driver_is_told_with_what_is_left);
    tcase_add_test(c, what_is_offered_is_told);
    tcase_add_test(c, whichever_call_fails_nothing_is_left);
    tcase_add_loop_test(c, a_part_that_cannot_be_is_refused_where_it_stands, 0,
                        sizeof refusals / sizeof *refusals);
    tcase_add_test(c, a_part_goes_from_file_to_file_and_to_the_program);
    tcase_add_test(c, a_part_trains_as_the_whole_does);
    suite_add_tcase(s, c);
    return s;
}
