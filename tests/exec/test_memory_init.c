/* Initial parameters: every slot has the value of its element in the full tensor, for any number of threads, drawn once. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/graph/half.h"
#include "exec/host_transport/memory.h"
#include "tests/support/suites.h"

#include <string.h>

enum { SEED = 5, SLOTS = 8 };

static struct arena *arena;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

static int32_t uploads; /* of the backend */
static enum status count_upload(struct backend *b, void *to, const void *from, int64_t bytes,
                                struct error *err)
{
    (void)b, (void)err;
    uploads++;
    memcpy(to, from, (size_t)bytes);
    return OK;
}
static enum status fail_upload(struct backend *b, void *to, const void *from, int64_t bytes,
                               struct error *err)
{
    (void)b, (void)to, (void)from, (void)bytes;
    return ++uploads < 2 ? OK : error_set(err, ERR_RESOURCE, "the device is gone");
}

struct world {
    struct program_stage stage;
    struct slot slots[SLOTS];
    struct program_parameter parameter;
    struct lane_memory memory;
    struct backend backend;
};

static int32_t add_slot(struct world *w, enum slot_class class, enum dtype t, struct shape shape)
{
    struct program_stage *s = &w->stage;
    int64_t bytes = shape_elements(&shape) * dtype_bytes(t);
    w->slots[s->n_slots] = (struct slot){.class = class,
                                         .dtype = t,
                                         .shape = shape,
                                         .bytes = bytes,
                                         .buffer_ring = -1,
                                         .offset_bytes = s->class_bytes[class]};
    s->class_bytes[class] += (bytes + 63) / 64 * 64;
    return s->n_slots++;
}

static struct world *make(struct shape shape)
{
    struct world *w = ARENA_ARRAY(arena, struct world, 1);
    w->stage.slots = w->slots;
    w->stage.parameters = &w->parameter;
    w->stage.n_parameters = 1;
    w->parameter = (struct program_parameter){.name = "w",
                                              .shape = shape,
                                              .init = INIT_NORMAL,
                                              .init_std = 0.5,
                                              .slot = -1,
                                              .master = -1};
    return w;
}

static void init(struct world *w, int32_t threads)
{
    struct error err = {0};
    uploads = 0;
    w->backend.upload = count_upload;
    w->memory = (struct lane_memory){.backend = &w->backend, .stage = &w->stage};
    for (int c = 0; c < SLOT_CLASS_COUNT; c++)
        w->memory.region[c] = ARENA_ARRAY(arena, char, (size_t)w->stage.class_bytes[c] + 1);
    ck_assert_msg(lane_memory_init(&w->memory, SEED, threads, &err) == OK, "%s", err.text);
}

static double drawn(int64_t element)
{
    return 0.5 * rng_normal(SEED, rng_hash_text(0, "w"), (uint64_t)element);
}

static double held(const struct world *w, int32_t slot, int64_t i)
{
    const void *p = lane_memory_slot(&w->memory, slot, 0);
    float single;
    switch (w->slots[slot].dtype) {
    case DTYPE_fp64:
        return ((const double *)p)[i];
    case DTYPE_fp32:
        return ((const float *)p)[i];
    default:
        half_widen(w->slots[slot].dtype, (const uint16_t *)p + i, &single, 1);
        return single;
    }
}

static double rounded(enum dtype t, double x)
{
    uint16_t half;
    float single = (float)x;
    if (t == DTYPE_fp64) return x;
    if (!dtype_is_half(t)) return single;
    half_narrow(t, &single, &half, 1);
    half_widen(t, &half, &single, 1);
    return single;
}

/* Elements first … first + n - 1 of the slot are elements `element` and following of the full tensor. */
static void check(const struct world *w, int32_t slot, int64_t first, int64_t n, int64_t element)
{
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(held(w, slot, first + i) == rounded(w->slots[slot].dtype, drawn(element + i)),
                      "slot %d, element %d", (int)slot, (int)(first + i));
}

/* More than one batch (2^20), which ends in a piece that is not full. */
START_TEST(a_parameter_and_its_master_are_of_one_draw)
{
    const int64_t n = (1 << 20) + 5000;
    for (int32_t threads = 1; threads <= 5; threads += 2) {
        struct world *w = make((struct shape){1, {n}});
        w->parameter.slot = add_slot(w, SLOT_PARAMETER, DTYPE_bf16, w->parameter.shape);
        w->parameter.master = add_slot(w, SLOT_STATE, DTYPE_fp32, w->parameter.shape);
        init(w, threads);
        ck_assert_int_eq(uploads, 4);
        check(w, w->parameter.slot, 0, n, 0);
        check(w, w->parameter.master, 0, n, 0);
    }
}
END_TEST

START_TEST(values_are_rounded_to_the_precision_of_their_slot)
{
    static const enum dtype dtypes[] = {DTYPE_fp64, DTYPE_fp32, DTYPE_fp16, DTYPE_bf16};
    for (int i = 0; i < 4; i++) {
        struct world *w = make((struct shape){2, {3, 7}});
        w->parameter.slot = add_slot(w, SLOT_PARAMETER, dtypes[i], w->parameter.shape);
        init(w, 2);
        check(w, w->parameter.slot, 0, 21, 0);
    }
}
END_TEST

/* Columns 2-3 and 6-8 of 10: runs of 2 and 3 elements. */
static struct world *make_columns(int64_t rows)
{
    static struct tensor_shard columns = {
        .n_cuts = 1, .cut = {{.dim = 1, .n_runs = 2, .whole = 10, .run = {{2, 2}, {6, 3}}}}};
    struct world *w = make((struct shape){2, {rows, 5}});
    w->parameter.slot = add_slot(w, SLOT_PARAMETER, DTYPE_bf16, w->parameter.shape);
    w->slots[w->parameter.slot].shard = &columns;
    return w;
}

static int64_t of_columns(int64_t packed)
{
    static const int64_t column[] = {2, 3, 6, 7, 8};
    return packed / 5 * 10 + column[packed % 5];
}

START_TEST(a_shard_has_the_elements_of_the_full_tensor)
{
    struct world *w = make_columns(3000);
    w->parameter.master = add_slot(w, SLOT_STATE, DTYPE_fp32, w->parameter.shape);
    w->slots[w->parameter.master].shard = w->slots[w->parameter.slot].shard;
    init(w, 3);
    for (int64_t i = 0; i < 15000; i++) {
        check(w, w->parameter.slot, i, 1, of_columns(i));
        check(w, w->parameter.master, i, 1, of_columns(i));
    }
}
END_TEST

static void divide(struct world *w, int64_t first, int64_t room, bool whole)
{
    struct program_shard *shard = ARENA_ARRAY(arena, struct program_shard, 1);
    *shard = (struct program_shard){.slot = -1, .state = {-1, -1}, .master = -1, .first = first};
    if (!whole) shard->slot = add_slot(w, SLOT_PARAMETER, DTYPE_bf16, (struct shape){1, {room}});
    shard->master = add_slot(w, SLOT_STATE, DTYPE_fp32, (struct shape){1, {room}});
    w->parameter.shard = shard;
}

/* A shard of 100 elements that begins 30 before the parameter, or 40 after its first element. */
START_TEST(a_shard_of_zero_has_its_part)
{
    for (int whole = 0; whole < 2; whole++) {
        struct world *before = make((struct shape){1, {500}}),
                     *after = make((struct shape){1, {500}});
        if (whole) {
            before->parameter.slot =
                add_slot(before, SLOT_PARAMETER, DTYPE_bf16, before->parameter.shape);
            after->parameter.slot =
                add_slot(after, SLOT_PARAMETER, DTYPE_bf16, after->parameter.shape);
        }
        divide(before, 30, 100, whole);
        divide(after, -40, 100, whole);
        init(before, 2), init(after, 2);
        ck_assert_int_eq(uploads, 2);
        check(before, before->parameter.shard->master, 30, 70, 0);
        ck_assert(held(before, before->parameter.shard->master, 29) == 0);
        check(after, after->parameter.shard->master, 0, 100, 40);
        if (whole)
            check(after, after->parameter.slot, 0, 500, 0);
        else
            check(after, after->parameter.shard->slot, 0, 100, 40);
    }
}
END_TEST

START_TEST(zero_shards_a_shard)
{
    struct world *w = make_columns(30);
    divide(w, -37, 50, true);
    init(w, 2);
    for (int64_t i = 0; i < 150; i++) check(w, w->parameter.slot, i, 1, of_columns(i));
    for (int64_t i = 0; i < 50; i++) check(w, w->parameter.shard->master, i, 1, of_columns(37 + i));
}
END_TEST

START_TEST(a_failed_upload_ends_it)
{
    struct world *w = make((struct shape){1, {3 << 20}});
    struct error err = {0};
    w->parameter.slot = add_slot(w, SLOT_PARAMETER, DTYPE_fp32, w->parameter.shape);
    init(w, 1);
    w->backend.upload = fail_upload, uploads = 0;
    ck_assert_int_eq(lane_memory_init(&w->memory, SEED, 2, &err), ERR_RESOURCE);
    ck_assert_str_eq(err.text, "the device is gone");
    ck_assert_int_eq(uploads, 2);
}
END_TEST

Suite *memory_init_suite(void)
{
    Suite *s = suite_create("exec/host_transport/memory_init");
    TCase *t = tcase_create("values");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, a_parameter_and_its_master_are_of_one_draw);
    tcase_add_test(t, values_are_rounded_to_the_precision_of_their_slot);
    tcase_add_test(t, a_shard_has_the_elements_of_the_full_tensor);
    tcase_add_test(t, a_shard_of_zero_has_its_part);
    tcase_add_test(t, zero_shards_a_shard);
    tcase_add_test(t, a_failed_upload_ends_it);
    suite_add_tcase(s, t);
    return s;
}
