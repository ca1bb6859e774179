/* What a program takes of a CUDA device beside its slots: every operator's scratch, whole runs on the stand-in within what was
 * counted and not far below it, and what is refused. */
#include "core/program/device_memory.h"

#include "exec/cuda/blas.h"
#include "exec/device_transport/plan.h"
#include "exec/worker/worker.h"
#include "sim/explain/footprint.h"

#include "tests/support/device_ranks.h"
#include "tests/support/plans.h"

#include "tests/standin/standin.h"
#include "tests/support/cuda_rows.h"

#include <sys/mman.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* ---- operators --------------------------------------------------------------------------------- */

static enum status (*run_on_device)(struct backend *b, int32_t on, const struct op_call *call,
                                    struct error *err);
static int64_t requested_in_all[2], counted_in_all[2]; /* 1: in half precision */

/* A stream that has nothing yet asks for what this operator needs, and a quarter and 256 bytes more. */
static enum status run_and_look(struct backend *b, int32_t on, const struct op_call *call,
                                struct error *err)
{
    struct cuda_context *x = cuda_context_of(b, on);
    int64_t counted = op_scratch(call->kind, call->attrs, call->shapes, call->dtype);
    if (x->scratch) (void)cudaFreeAsync(x->scratch, x->stream);
    x->scratch = NULL, x->scratch_bytes = 0;
    enum status st = run_on_device(b, on, call, err);
    int64_t grown = (int64_t)x->scratch_bytes;
    ck_assert_msg(!grown || counted + counted / 4 + 256 >= grown,
                  "%s: %" PRId64 " bytes counted, of %" PRId64 " asked for and a quarter more",
                  op_kind_name(call->kind), counted, grown);
    ck_assert_msg(!x->workspace || op_uses_workspace(call->kind), "%s multiplies",
                  op_kind_name(call->kind));
    cuda_product_close(x);
    if (grown > 256) requested_in_all[dtype_is_half(call->dtype)] += (grown - 256) * 4 / 5;
    counted_in_all[dtype_is_half(call->dtype)] += counted;
    return st;
}

static void open_looking(void)
{
    cuda_rows_open();
    run_on_device = device.run;
    device.run = run_and_look;
}

START_TEST(no_operator_takes_more_scratch_than_is_counted_and_little_less)
{
    for (int i = 0; i < N_KERNEL_ROWS; i++)
        cuda_rows_compare(&kernel_rows[i], all_dtypes[i % N_DTYPES], i / N_DTYPES % 2, 3);
    for (int half = 0; half < 2;
         half++) { /* where half operands may be fp32 they are counted as such */
        ck_assert_int_gt(requested_in_all[half], 100000);
        ck_assert_int_le(counted_in_all[half], requested_in_all[half] * (half ? 21 : 11) / 10);
    }
}
END_TEST

START_TEST(operators_of_nothing_are_counted_too)
{
    for (int i = 0; i < N_EMPTY_KERNEL_ROWS; i++)
        cuda_rows_compare(&empty_kernel_rows[i], all_dtypes[i % N_DTYPES], false, 3);
}
END_TEST

/* ---- a prepared device ------------------------------------------------------------------------- */

static enum status add_columns(int64_t rows, struct error *err)
{
    struct op_attrs attrs = {.accumulate = false};
    struct op_shapes shapes = {.n_inputs = 1, .input = {{2, {rows, 8}}}};
    void *x = NULL, *y = NULL;
    ck_assert_int_eq(op_infer(OP_bias_grad, &attrs, &shapes, err), OK);
    ck_assert_int_eq(device.allocate(&device, rows * 32, &x, err), OK);
    ck_assert_int_eq(device.allocate(&device, 32, &y, err), OK);
    const struct op_call c = {.kind = OP_bias_grad,
                              .dtype = DTYPE_fp32,
                              .attrs = &attrs,
                              .shapes = &shapes,
                              .input = {x},
                              .output = {y}};
    enum status st = device.run(&device, STREAM_COMPUTE, &c, err);
    if (st == OK) st = device.finish(&device, err);
    device.release(&device, x);
    device.release(&device, y);
    return st;
}

START_TEST(a_prepared_device_refuses_what_was_not_planned_by_name)
{
    struct error err = {0};
    struct cuda_context *x = cuda_context_of(&device, STREAM_COMPUTE);
    struct cuda_product p = {.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1, .batch = 1};
    ck_assert_int_eq(device.prepare(&device, 2 * 8 * 4, 0, &err), OK);
    ck_assert_int_eq(add_columns(20, &err), OK);
    ck_assert_int_eq(add_columns(4000, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "bias_grad on ") && strstr(err.text, "where 64 were planned"),
                  "%s", err.text);
    ck_assert_int_eq(cuda_product(x, &p, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "a matrix product, but the program planned no workspace for one") != NULL, "%s", err.text);
}
END_TEST

/* ---- whole programs ---------------------------------------------------------------------------- */

static const enum op_kind fused_here[] = {OP_linear, OP_swiglu, OP_flat_adamw, OP_flat_sgd};

static struct program *lowered(const struct plan *p)
{
    const struct lower_options o = {.n_fused = 4, .fused = fused_here};
    struct program *out = ARENA_ARRAY(arena, struct program, 1);
    struct error err = {0};
    ck_assert_msg(lower_plan(arena, p, &o, out, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < out->n_devices; i++) out->devices[i].gpu = "";
    return out;
}

static struct plan on_gpus(const char *model, int32_t n, enum dtype t)
{
    struct plan p = plans_new(arena, "gpt2", 2, n);
    if (strcmp(model, "gpt2") != 0) p.job.model = plans_model_file(arena, model);
    if (!strcmp(model, "tiny-vgg")) p.job.sequence_length = 1;
    p.job.precision = t;
    p.cluster.types[0].catalogue = "H200-SXM";
    p.cluster.types[0].backend = "cuda";
    p.cluster.types[0].memory_bytes = INT64_C(100) << 30;
    return p;
}

struct memory_case {
    const char *name, *model;
    enum dtype t;
    int32_t replicas, stages, zero;
};
static const struct memory_case cases[] = {
    {"one device", "tiny-gpt2", DTYPE_fp32, 1, 1, 0},
    {"four stages", "tiny-llama", DTYPE_fp32, 1, 4, 0},
    {"two replicas of two stages, bf16", "tiny-gpt2", DTYPE_bf16, 2, 2, 0},
    {"zero 2", "tiny-gpt2", DTYPE_fp32, 2, 1, 2},
    {"zero 3, bf16", "tiny-llama", DTYPE_bf16, 2, 1, 3},
    {"experts", "tiny-mixtral", DTYPE_fp32, 2, 1, 0},
    {"convolutions", "tiny-vgg", DTYPE_fp32, 1, 2, 0},
    {"convolutions in fp16", "tiny-vgg", DTYPE_fp16, 1, 1, 0},
    {"one device, bf16", "tiny-gpt2", DTYPE_bf16, 1, 1, 0}, /* of less than the third: under MUSHER_LONG */
};
enum { N_CASES = sizeof cases / sizeof *cases };

static struct program *program_of(const struct memory_case *c)
{
    struct plan p = on_gpus(c->model, c->replicas * c->stages, c->t);
    int32_t n = plans_layers(arena, &p), last[8];
    for (int32_t s = 0; s < c->stages; s++) last[s] = (s + 1) * n / c->stages - 1;
    for (int32_t r = 0; r < c->replicas; r++) {
        struct plan_replica *x = plans_replica(arena, &p, 3, c->stages, last);
        for (int32_t s = 0; s < c->stages; s++) x->stages[s].zero = c->zero;
    }
    return lowered(&p);
}

struct measured_run { /* by rank, in memory that all share */
    const struct program *p;
    int64_t less; /* bytes by which GPUs are smaller than the plan's figure */
    int64_t *peak;
};

static int run_within(void *owner, int32_t rank)
{
    struct measured_run *m = owner;
    struct arena *a = arena_new();
    const struct run_options o = {.steps = 2};
    struct run_result r;
    struct error err = {0};
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, program_lane_bytes(m->p, rank) - m->less);
    setenv("STANDIN_MEMORY", text, 1);
    for (int32_t i = 0; i < m->p->n_devices; i++) m->p->devices[i].memory_bytes = 1;
    enum status st = worker_run(a, m->p, &o, &r, &err);
    m->peak[rank] = standin_peak(m->p->devices[rank].index);
    if (st != OK && !m->less) fprintf(stderr, "rank %" PRId32 ": %s\n", rank, err.text);
    if (st == ERR_RESOURCE && !strstr(err.text, "bytes of memory")) st = ERR_INPUT;
    return (int)st;
}

static enum status run_all(const struct program *p, int64_t less, int64_t *peak)
{
    struct error err = {0};
    int64_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct measured_run m = {p, less, shared};
    device_ranks_environment(p->n_devices);
    setenv("STANDIN_GRANULE", "2097152", 1);
    enum status st = launch_local(p->n_devices, run_within, &m, (double)DEVICE_RANKS_LIMIT_S, &err);
    memcpy(peak, shared, sizeof *peak * (size_t)p->n_devices);
    munmap(shared, 4096);
    return st;
}

START_TEST(a_run_stays_within_the_plan_and_comes_near_it)
{
    const struct memory_case *c = &cases[_i];
    const struct program *p = program_of(c);
    int64_t peak[8];
    ck_assert_int_eq(run_all(p, 0, peak), OK);
    for (int32_t i = 0; i < p->n_devices; i++) {
        int64_t planned = program_lane_bytes(p, i);
        if (getenv("MUSHER_LONG"))
            printf("%s, device %" PRId32 ": %" PRId64 " of %" PRId64 " bytes planned, %.3f\n",
                   c->name, i, peak[i], planned, (double)peak[i] / (double)planned);
        ck_assert_int_le(peak[i], planned);
        ck_assert_int_ge(10 * peak[i], 8 * planned);
    }
}
END_TEST

START_TEST(a_gpu_that_is_a_byte_too_small_is_refused_before_anything_runs)
{
    int64_t peak[8];
    ck_assert_int_eq(run_all(program_of(&cases[1]), 1, peak), ERR_RESOURCE);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(peak[i], 0);
}
END_TEST

/* ---- what lowering counts ---------------------------------------------------------------------- */

START_TEST(the_reserve_is_what_is_counted_and_stated_and_never_less_than_the_types)
{
    struct plan p = on_gpus("tiny-gpt2", 2, DTYPE_fp32);
    int32_t n = plans_layers(arena, &p), last[] = {n / 2, n - 1};
    plans_replica(arena, &p, 3, 2, last);
    struct device_memory m[2];
    const struct program *bare = lowered(&p);
    device_memory_of(arena, bare, m);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(m[i].workspace, DEVICE_WORKSPACE);
        ck_assert_int_eq(m[i].communicators, 3); /* forwards, back, the tied embedding */
        ck_assert_ptr_nonnull(m[i].largest);
        ck_assert_int_eq(bare->stages[i].reserve_bytes, device_memory_known(&m[i]));
    }
    p.cluster.types[0].context_bytes = 1000, p.cluster.types[0].communicator_bytes = 100;
    ck_assert_int_eq(lowered(&p)->stages[0].reserve_bytes, device_memory_known(&m[0]) + 1300);
    p.cluster.types[0].reserve_bytes = INT64_C(1) << 30;
    ck_assert_int_eq(lowered(&p)->stages[0].reserve_bytes, INT64_C(1) << 30);
    p.cluster.types[0].reserve_bytes = 0;
    p.cluster.types[0].backend = "host";
    ck_assert_int_eq(lowered(&p)->stages[0].reserve_bytes, 1000); /* nothing of a host is counted */
}
END_TEST

START_TEST(the_footprint_tells_the_parts)
{
    static const char *const parts[] = {"matmul workspace", "operator scratch", "rounding",
                                        "reserve"};
    struct plan p = on_gpus("tiny-gpt2", 1, DTYPE_fp32);
    int32_t last = plans_layers(arena, &p) - 1;
    struct footprint f;
    const struct footprint_options o = {.shards = 1};
    struct error err = {0};
    p.cluster.types[0].context_bytes = 1000;
    plans_replica(arena, &p, 3, 1, &last);
    const struct program *x = lowered(&p);
    ck_assert_int_eq(footprint_stages(arena, x, &o, &f, &err), OK);
    ck_assert_int_eq(f.total_bytes, program_lane_bytes(x, 0));
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        int found = 0;
        for (int32_t i = 0; i < f.n; i++) found += !strcmp(f.memory_breakdown[i].name, parts[k]);
        ck_assert_msg(found == 1, "%s", parts[k]);
    }
}
END_TEST

/* As many communicators as devices will make, or a few more. */
START_TEST(communicators_are_no_fewer_than_those_that_are_made)
{
    int made = 0, counted = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct plan p = plans_random_any(arena, seed);
        struct lower_options o = {.fused = plans_fused};
        struct program x;
        struct error err = {0};
        p.cluster.types[0].catalogue = "H200-SXM";
        p.cluster.types[0].backend = "cuda";
        for (int32_t r = 0; seed % 3 && r < p.n_replicas; r++)
            for (int32_t s = 0; s < p.replicas[r].n_stages; s++) p.replicas[r].stages[s].zero = 1;
        if (lower_plan(arena, &p, &o, &x, &err) != OK || x.emulated) continue;
        struct device_memory *m = ARENA_ARRAY(arena, struct device_memory, (size_t)x.n_devices);
        unsigned char *by =
            ARENA_ARRAY(arena, unsigned char, (size_t)(x.n_channels + x.n_collectives) + 2);
        struct talks t;
        memset(by, TRANSPORT_DEVICE, (size_t)(x.n_channels + x.n_collectives));
        for (int32_t i = 0; i < x.n_channels; i++)
            if (x.channels[i].link < 0) by[i] = TRANSPORT_LOCAL;
        for (int32_t g = 0; g < x.n_collectives; g++)
            if (x.collectives[g].n_members < 2 || x.collectives[g].algorithm == ALGORITHM_LOCAL)
                by[x.n_channels + g] = TRANSPORT_HOST;
        plan_talks(arena, &x, by, by + x.n_channels, &t);
        device_memory_of(arena, &x, m);
        for (int32_t i = 0; i < x.n_devices; i++) {
            int32_t mine = 0;
            for (int32_t k = 0; k < t.n; k++)
                for (int32_t q = 0; q < t.talk[k].n; q++) mine += t.talk[k].device[q] == i;
            ck_assert_int_le(mine, m[i].communicators);
            made += mine, counted += m[i].communicators;
        }
    }
    ck_assert_int_gt(made, 100);
    ck_assert_int_le(counted, made + made / 4);
}
END_TEST

Suite *device_memory_suite(void)
{
    Suite *s = suite_create("device_memory");
    TCase *c = tcase_create("operators");
    tcase_add_checked_fixture(c, open_looking, cuda_rows_close);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, no_operator_takes_more_scratch_than_is_counted_and_little_less);
    tcase_add_test(c, operators_of_nothing_are_counted_too);
    suite_add_tcase(s, c);
    c = tcase_create("prepared");
    tcase_add_checked_fixture(c, cuda_rows_open, cuda_rows_close);
    tcase_add_test(c, a_prepared_device_refuses_what_was_not_planned_by_name);
    suite_add_tcase(s, c);
    c = tcase_create("programs");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, DEVICE_RANKS_LIMIT_S / TEST_SLOWDOWN + 20);
    tcase_add_loop_test(c, a_run_stays_within_the_plan_and_comes_near_it, 0,
                        N_CASES - (getenv("MUSHER_LONG") ? 0 : 1));
    tcase_add_test(c, a_gpu_that_is_a_byte_too_small_is_refused_before_anything_runs);
    tcase_add_test(c, the_reserve_is_what_is_counted_and_stated_and_never_less_than_the_types);
    tcase_add_test(c, the_footprint_tells_the_parts);
    tcase_add_test(c, communicators_are_no_fewer_than_those_that_are_made);
    suite_add_tcase(s, c);
    return s;
}
