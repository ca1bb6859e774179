/* Every call that the plugin makes of CUDA fails once, in turn: opening, operators, messages' copies, closing. Each failure
 * is told with what failed, none is passed over, nothing is left behind. Then: what only the device can see is wrong. */
#include "core/base/rng.h"
#include "exec/plugin.h"

#include "tests/standin/standin.h"
#include "tests/support/suites.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct backend device;
static struct error err;

static void need(enum status st) { ck_assert_msg(st == OK, "%s", err.text); }

static void find_plugin(void)
{
    const char *b = getenv("BUILD");
    char path[512];
    snprintf(path, sizeof path, "%s/libmusher_cuda_standin.so", b && *b ? b : "build");
    setenv("MUSHER_CUDA_PLUGIN", path, 1);
    /* What is looked at here are CUDA's calls alone. */
    setenv("MUSHER_NCCL", "/nowhere/libnccl.so.2", 1);
    need(plugin_open_backend("cuda", &device, &err));
}

/* ---- a session of everything ------------------------------------------------------------------ */

enum { N = 6, K = 5 };

struct session {
    void *memory, *pinned;
    int32_t stream, begin, end;
    bool open;
};

static enum status run_op(enum op_kind kind, struct op_shapes *shapes, const void *a, const void *b,
                          void *y)
{
    const struct op_attrs attrs = {0};
    struct op_call c = {.kind = kind,
                        .dtype = DTYPE_fp32,
                        .attrs = &attrs,
                        .shapes = shapes,
                        .input = {a, b},
                        .output = {y}};
    TRY(op_infer(kind, &attrs, shapes, &err));
    return device.run(&device, STREAM_COMPUTE, &c, &err);
}

static enum status open_and_make(struct session *s)
{
    struct backend *b = &device;
    int32_t n = 0;
    TRY(b->count(b, &n, &err));
    TRY(b->open(b, 0, &err));
    s->open = true;
    TRY(b->stream_make(b, &s->stream, &err));
    TRY(b->event_make(b, true, &s->begin, &err));
    TRY(b->event_make(b, true, &s->end, &err));
    TRY(b->allocate(b, 4096, &s->memory, &err));
    return b->allocate_pinned(b, 4096, &s->pinned, &err);
}

/* A product and a sum, their result to pinned memory by another stream, behind an event. */
static enum status work(struct session *s, float *out)
{
    struct backend *b = &device;
    struct op_shapes product = {.n_inputs = 2, .input = {{2, {N, K}}, {2, {K, N}}}},
                     sum = {.n_inputs = 2, .input = {{2, {N, N}}, {2, {N, N}}}};
    float *x = s->memory, *w = x + N * K, *y = w + K * N, *z = y + N * N, host[2 * N * K];
    bool done = false;
    int64_t at = 0;
    for (int i = 0; i < 2 * N * K; i++) host[i] = (float)(i % 7 - 3);
    TRY(b->upload(b, x, host, sizeof host, &err));
    TRY(b->event_record(b, s->begin, STREAM_COMPUTE, &err));
    TRY(run_op(OP_matmul, &product, x, w, y));
    TRY(run_op(OP_add, &sum, y, y, z));
    TRY(b->event_record(b, s->end, STREAM_COMPUTE, &err));
    TRY(b->event_wait(b, s->stream, s->end, &err));
    TRY(b->copy(b, s->stream, s->pinned, z, N * N * sizeof *z, &err));
    TRY(b->copy_rows(b, s->stream, y, 64, z, 128, 4, 2, &err));
    TRY(b->finish(b, &err));
    TRY(b->event_done(b, s->end, &done, &err));
    TRY(b->event_wait_here(b, s->end, &err));
    TRY(b->event_at(b, s->begin, &at, &err));
    TRY(b->event_at(b, s->end, &at, &err));
    TRY(b->download(b, out, z, N * N * sizeof *z, &err));
    return memcmp(out, s->pinned, N * N * sizeof *z)
               ? error_set(&err, ERR_INTERNAL, "the copies differ")
               : OK;
}

static enum status whole_session(float *out)
{
    struct session s = {0};
    enum status st = open_and_make(&s);
    if (st == OK) st = work(&s, out);
    if (s.pinned) device.release_pinned(&device, s.pinned);
    if (s.memory) device.release(&device, s.memory);
    if (s.open) device.close(&device);
    ck_assert_ptr_null(device.state);
    return st;
}

START_TEST(a_session_computes_and_leaves_nothing)
{
    float out[N * N];
    char left[200];
    find_plugin();
    for (int turn = 0; turn < 2; turn++) {
        need(whole_session(out));
        for (int r = 0; r < N; r++)
            for (int c = 0; c < N; c++) {
                float sum = 0;
                for (int k = 0; k < K; k++)
                    sum += (float)((r * K + k) % 7 - 3) * (float)((N * K + k * N + c) % 7 - 3);
                ck_assert_float_eq(out[r * N + c], 2 * sum);
            }
        ck_assert_msg(standin_left(left, sizeof left) == 0, "not given back: %s", left);
    }
}
END_TEST

/* ---- each call fails once --------------------------------------------------------------------- */

/* Calls whose own failure changes nothing: they take back, wait at the end, or only ask what a failure was called. */
static bool may_pass(const char *call)
{
    static const char *const those[] = {"Destroy", "Free", "GetLastError", "StreamSynchronize"};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (strstr(call, those[i])) return true;
    return false;
}

struct outcome { /* of a session whose n-th call failed */
    enum status status;
    char call[64]; /* "": the session has fewer calls */
    char text[480], left[200];
};

static void fail_at(int64_t n, cudaError_t with, struct outcome *o)
{
    float out[N * N];
    err = (struct error){0};
    standin_fail_at(n, with);
    o->status = whole_session(out);
    const char *call = standin_failed_call();
    snprintf(o->call, sizeof o->call, "%s", call ? call : "");
    snprintf(o->text, sizeof o->text, "%s", err.text);
    standin_fail_at(0, cudaSuccess);
    (void)standin_left(o->left, sizeof o->left);
}

/* True where it told of its failure. */
static bool judge(int64_t n, const struct outcome *o)
{
    ck_assert_msg(!o->left[0], "call %d, %s: not given back: %s", (int)n, o->call, o->left);
    if (o->status == OK) {
        ck_assert_msg(may_pass(o->call), "call %d, %s, failed and nobody said so", (int)n, o->call);
        return false;
    }
    ck_assert_msg(o->status == ERR_RESOURCE && strlen(o->text) > 10, "call %d, %s: status %d: %s",
                  (int)n, o->call, o->status, o->text);
    return true;
}

/* Calls that failed, and how many of them were told; the session has about as many as this suite was written with. */
static void enough(int64_t calls, int64_t told)
{
    ck_assert_int_gt(calls, 60);
    ck_assert_int_gt(told, 45);
}

START_TEST(every_single_call_that_fails_is_told_and_leaves_nothing)
{
    struct outcome o;
    int64_t n = 0, told = 0;
    find_plugin();
    for (;; told += judge(n, &o)) {
        fail_at(++n, cudaErrorMemoryAllocation, &o);
        if (!o.call[0]) break;
    }
    ck_assert_msg(o.status == OK, "%s", o.text);
    enough(n, told);
}
END_TEST

/* A lost device stays lost for its process, so each has one of its own. */
START_TEST(a_device_lost_at_any_call_is_told_and_leaves_nothing)
{
    struct outcome *o =
        mmap(NULL, sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int64_t n = 0, told = 0;
    ck_assert_ptr_ne(o, MAP_FAILED);
    find_plugin();
    for (;; told += judge(n, o)) {
        int how = -1;
        n++;
        memset(o, 0, sizeof *o);
        pid_t child = fork();
        if (child == 0) {
            fail_at(n, cudaErrorLaunchFailure, o);
            _exit(0);
        }
        ck_assert_int_gt(child, 0);
        ck_assert_int_eq(waitpid(child, &how, 0), child);
        ck_assert_msg(how == 0, "call %d: the process ended with %d", (int)n, how);
        if (!o->call[0]) break;
        if (o->status != OK) /* cuBLAS has names of its own for it */
            ck_assert_msg(strstr(o->text, "(719)") != NULL || strstr(o->text, "cublas") != NULL,
                          "call %d, %s: %s", (int)n, o->call, o->text);
    }
    enough(n, told);
    munmap(o, sizeof *o);
}
END_TEST

START_TEST(a_lost_device_names_the_call_and_what_was_asked_last)
{
    float out[N * N];
    struct session s = {0};
    find_plugin();
    need(open_and_make(&s));
    need(work(&s, out));
    standin_fail_at(1, cudaErrorIllegalAddress);
    enum status st = device.finish(&device, &err);
    ck_assert_int_eq(st, ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "(device 0): cudaStreamSynchronize: ") != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "(700); last issued: add (stream 0)") != NULL, "%s", err.text);
    st = device.upload(&device, s.memory, out, 4, &err);
    ck_assert_msg(st == ERR_RESOURCE && strstr(err.text, "(700)") != NULL, "%s", err.text);
    device.close(&device);
}
END_TEST

/* ---- what only the device sees ---------------------------------------------------------------- */

enum { IDS = 3000, ROWS = 11 };

/* The host's sentence; found at the next wait, whatever that is. */
START_TEST(a_bad_token_id_is_told_at_the_next_wait_as_the_host_tells_it)
{
    static const int bad[] = {0, 1, 1023, 1024, 2048, IDS - 1};
    const struct op_attrs attrs = {0};
    struct op_shapes shapes = {.n_inputs = 2, .input = {{2, {1, IDS}}, {2, {ROWS, 2}}}};
    static int32_t ids[IDS];
    static float table[ROWS * 2], y[IDS * 2];
    struct backend *both[2], host;
    char said[2][sizeof err.text];
    find_plugin();
    backend_host(&host);
    both[0] = &host, both[1] = &device;
    need(op_infer(OP_embedding, &attrs, &shapes, &err));
    for (int i = 0; i < IDS; i++) ids[i] = (int32_t)rng_below(1, 1, (uint64_t)i, ROWS);
    for (int i = bad[_i]; i < IDS; i += 1 + IDS / 3) ids[i] = _i % 2 ? -1 : ROWS + i;
    for (int k = 0; k < 2; k++) {
        struct backend *b = both[k];
        void *d_ids, *d_table, *d_y;
        need(b->open(b, 0, &err));
        need(b->allocate(b, sizeof ids, &d_ids, &err));
        need(b->allocate(b, sizeof table, &d_table, &err));
        need(b->allocate(b, sizeof y, &d_y, &err));
        need(b->upload(b, d_ids, ids, sizeof ids, &err));
        struct op_call c = {.kind = OP_embedding,
                            .dtype = DTYPE_fp32,
                            .attrs = &attrs,
                            .shapes = &shapes,
                            .input = {d_ids, d_table},
                            .output = {d_y}};
        enum status st = b->run(b, STREAM_COMPUTE, &c, &err);
        if (st == OK) st = b->finish(b, &err);
        ck_assert_int_eq(st, ERR_INPUT);
        memcpy(said[k], err.text, sizeof said[k]);
        b->release(b, d_ids);
        b->release(b, d_table);
        b->release(b, d_y);
        b->close(b);
    }
    ck_assert_str_eq(said[0], said[1]);
}
END_TEST

Suite *cuda_failures_suite(void)
{
    Suite *s = suite_create("cuda_failures");
    TCase *c = tcase_create("cuda_failures");
    tcase_add_test(c, a_session_computes_and_leaves_nothing);
    tcase_add_test(c, every_single_call_that_fails_is_told_and_leaves_nothing);
    tcase_add_test(c, a_device_lost_at_any_call_is_told_and_leaves_nothing);
    tcase_add_test(c, a_lost_device_names_the_call_and_what_was_asked_last);
    tcase_add_loop_test(c, a_bad_token_id_is_told_at_the_next_wait_as_the_host_tells_it, 0, 6);
    suite_add_tcase(s, c);
    return s;
}
