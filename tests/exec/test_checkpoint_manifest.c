/* Suite of exec/checkpoint/manifest: manifests whose crc32 fits, and whose numbers do not. */
#include "exec/checkpoint/files.h"
#include "exec/checkpoint/manifest.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"

#include "tests/support/suites.h"

#include <stdio.h>
#include <unistd.h>

enum { TENSORS = 3 };
static struct arena *a;
static char dir[64];
static struct checkpoint_tensor tensors[TENSORS];
static struct checkpoint whole;

/* A generation whose manifest is whole, and is then written again. */
static void setup(void)
{
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    const void *data[TENSORS] = {values, values, values};
    struct error err = {0};
    a = arena_new();
    snprintf(dir, sizeof dir, "/tmp/musher-manifest-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    memset(tensors, 0, sizeof tensors);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(tensors[i].name, sizeof tensors[i].name, "w%d", i);
        tensors[i].shape = (struct shape){2, {2, 3}};
        tensors[i].bytes = sizeof values;
    }
    ck_assert_int_eq(checkpoint_write(a, dir, "stage-0000.safetensors", tensors, data, TENSORS, &err), OK);
    whole = (struct checkpoint){.step = 50,
                                .sequences = 300,
                                .global_batch = 6,
                                .data_bytes = 1000,
                                .seed = 42,
                                .optimizer = OPTIMIZER_ADAMW,
                                .scale = {1024, 3, 2},
                                .n_tensors = TENSORS,
                                .tensors = tensors};
}

static void teardown(void)
{
    ck_assert_int_eq(system(arena_printf(a, "rm -r '%s'", dir)), 0);
    arena_free(a);
}

static enum status written_and_read(const struct checkpoint *c, struct checkpoint *out,
                                    struct error *err)
{
    ck_assert_int_eq(checkpoint_write_manifest(a, dir, c, NULL), OK);
    *err = (struct error){0};
    return checkpoint_open(a, dir, true, out, err);
}

/* clang-format off */
#define BAD_NUMBERS(X) \
    X(c->step = INT64_MAX, "step: must be a whole number from 0 to 9007199254740992, found '9223372036854775807'") \
    X(c->step = -1, "step: must be a whole number") \
    X(c->sequences = INT64_MAX, "data.sequences: must be") \
    X(c->sequences = INT64_MIN, "data.sequences: must be") \
    X(c->data_bytes = INT64_MAX, "data.bytes: must be") \
    X(c->global_batch = INT64_MAX, "global_batch: must be") \
    X(c->scale[1] = 51, "loss_scale.good: must be") \
    X(c->scale[2] = 1e30f, "loss_scale.skipped: must be") \
    X(c->scale[2] = 0.5f, "loss_scale.skipped: 0.5 is not a number of steps") \
    X(c->scale[0] = -1, "loss_scale.now: must be") \
    X((c->n_islands = 2, c->island_sequences = no_sequences), "islands[0]: must be a whole number from 1") \
    X(t->shape.dim[0] = INT64_MAX, "tensors[1].shape[0]: must be") \
    X(t->shape.dim[1] = -3, "tensors[1].shape[1]: must be") \
    X(t->shape.dim[0] = t->shape.dim[1] = INT64_C(1) << 40, "tensors[1].shape: more than 9007199254740992 elements") \
    X((t->shape = (struct shape){3, {INT64_C(1) << 53, INT64_C(1) << 53, 0}}, t->bytes = 0), "tensors[1].shape: more than") \
    X(t->shape.dim[0] = INT64_C(1) << 51, "tensors[1]: bytes: 24 is not what its shape takes in fp32, 27021597764222976") \
    X(t->shape.dim[0] = 3, "bytes: 24 is not what its shape takes in fp32, 36") \
    X(t->dtype = DTYPE_fp64, "bytes: 24 is not what its shape takes in fp64, 48") \
    X(t->bytes = -24, "tensors[1].bytes: must be") \
    X(t->bytes = INT64_MAX, "tensors[1]: bytes: 9223372036854775807 is not") \
    X(t->offset = INT64_MAX, "tensors[1].offset: must be") \
    X(t->offset = -4, "tensors[1].offset: must be") \
    X(t->offset = INT64_C(1) << 53, "tensor w1 is incomplete") \
    X(memcpy(t->name, "w0", 3), "tensors: tensor w0 is listed twice") \
    X(memcpy(t->name, "w2", 3), "tensors: tensor w2 is listed twice") \
    X(t->name[0] = 0, "tensors[1]: name: it is empty") \
    X(t->file[0] = 0, "tensors[1]: file: '' is not in this folder") \
    X(memcpy(t->file, "..", 3), "tensors[1]: file: '..' is not in this folder") \
    X(memcpy(t->file, ".", 2), "file: '.' is not in this folder") \
    X(memcpy(t->file, "/etc/passwd", 12), "file: '/etc/passwd' is not in this folder") \
    X(memcpy(t->file, "../w", 5), "file: '../w' is not in this folder") \
    X(memcpy(t->file, "sub/w", 6), "file: 'sub/w' is not in this folder")
/* clang-format on */
static int64_t no_sequences[2];
static const char *const bad_numbers[] = {
#define X(change, why) why,
    BAD_NUMBERS(X)
#undef X
};
enum { N_BAD = sizeof bad_numbers / sizeof *bad_numbers };

static void make_bad(int number, struct checkpoint *c, struct checkpoint_tensor *t)
{
    int at = 0;
#define X(change, why)                                                                             \
    if (at++ == number) change;
    BAD_NUMBERS(X)
#undef X
}

START_TEST(a_number_that_cannot_be_is_named)
{
    struct checkpoint out, c = whole;
    struct error err;
    ck_assert_msg(written_and_read(&c, &out, &err) == OK, "%s", err.text);
    make_bad(_i, &c, &tensors[1]);
    ck_assert_int_eq(written_and_read(&c, &out, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad_numbers[_i]) && strstr(err.text, dir), "'%s' in: %s",
                  bad_numbers[_i], err.text);
}
END_TEST

START_TEST(the_largest_numbers_are_read)
{
    const int64_t most = INT64_C(1) << 53;
    struct checkpoint out, c = whole;
    struct error err;
    c.step = c.sequences = c.global_batch = c.data_bytes = most;
    c.scale[2] = 0x1p53f;
    tensors[1].shape = (struct shape){4, {most, 0, most, most}};
    tensors[1].bytes = 0;
    tensors[2].shape.rank = 0;
    tensors[2].bytes = 4;
    tensors[2].crc = tensors[0].crc;
    ck_assert_int_eq(written_and_read(&c, &out, &err), ERR_INPUT); /* of what is there no more */
    ck_assert_msg(strstr(err.text, "w2 is damaged") || strstr(err.text, "w1 is damaged"), "%s",
                  err.text);
    c.n_tensors = 1;
    ck_assert_msg(written_and_read(&c, &out, &err) == OK, "%s", err.text);
    ck_assert(out.step == most && out.sequences == most && out.scale[2] == 0x1p53f);
}
END_TEST

/* A run that would save a step that cannot be read back is refused before it begins. */
START_TEST(a_run_ends_at_a_step_that_a_manifest_can_hold)
{
    struct checkpoint c = whole;
    struct error err;
    c.folder = "x", c.step = CHECKPOINT_COUNT_MAX - 3, c.sequences = 0;
    ck_assert_int_eq(checkpoint_continues(&c, 3, 8, &err), OK);
    ck_assert_int_eq(checkpoint_continues(&c, 4, 8, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "4 more steps of 8 sequences") != NULL, "%s", err.text);
    c.step = 0, c.sequences = CHECKPOINT_COUNT_MAX - 20;
    ck_assert_int_eq(checkpoint_continues(&c, 2, 8, &err), OK);
    ck_assert_int_eq(checkpoint_continues(&c, 3, 8, &err), ERR_INPUT);
}
END_TEST

/* ---- any field, any value ---------------------------------------------------------------------
 */

static const int64_t extremes[] = {INT64_MIN,
                                   INT64_MIN + 1,
                                   -(INT64_C(1) << 32),
                                   -24,
                                   -1,
                                   0,
                                   1,
                                   2,
                                   3,
                                   6,
                                   24,
                                   INT32_MAX,
                                   INT64_C(1) << 31,
                                   UINT32_MAX,
                                   INT64_C(1) << 40,
                                   INT64_C(1) << 53,
                                   (INT64_C(1) << 53) + 1,
                                   INT64_MAX / 4,
                                   INT64_MAX / 2,
                                   INT64_MAX - 1,
                                   INT64_MAX};
static const float floats[] = {0, 1, 0.5f, -1, 50, 51, 1e-45f, 0x1p63f, 0x1p96f, 3e38f};
static const char *const names[] = {
    "", "w0", "w2", ".", "..", "stage-0000.safetensors", "manifest.json", "/tmp", "a|b", "\n"};

#define PICK(list) list[drawn() % (sizeof list / sizeof *(list))]
static uint64_t draws;
static uint64_t drawn(void) { return rng_u64(7, 1, draws++); }

static void change_field(struct checkpoint *c)
{
    struct checkpoint_tensor *t = &tensors[drawn() % TENSORS];
    int64_t *numbers[] = {&c->step,         &c->sequences,   &c->global_batch, &c->data_bytes,
                          &t->offset,       &t->bytes,       &t->shape.dim[0], &t->shape.dim[1],
                          &t->shape.dim[2], &t->shape.dim[3]};
    switch (drawn() % 8) {
    case 0:
        c->scale[drawn() % 3] = PICK(floats);
        break;
    case 1:
        snprintf(t->name, sizeof t->name, "%s", PICK(names));
        break;
    case 2:
        snprintf(t->file, sizeof t->file, "%s", PICK(names));
        break;
    case 3:
        t->shape.rank = (int32_t)(drawn() % (SHAPE_RANK_MAX + 1));
        break;
    case 4:
        t->dtype = (int32_t)(drawn() % DTYPE_COUNT);
        break;
    case 5: /* the same elements in another shape */
        t->shape = (struct shape){3, {3, 1, 2}};
        break;
    default:
        *numbers[drawn() % (sizeof numbers / sizeof *numbers)] = PICK(extremes);
    }
}

/* What a run does with a checkpoint's numbers; sanitizers look on. */
static void consume(const struct checkpoint *c)
{
    const int64_t steps = 1000000000;
    ck_assert_int_gt(c->step + steps - (int64_t)c->scale[2], 0);
    ck_assert_int_ge(c->sequences + steps * INT32_MAX, c->sequences);
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        enum dtype type = (enum dtype)t->dtype;
        int64_t bytes = shape_elements(&t->shape) * dtype_bytes(type);
        ck_assert_int_eq(bytes, t->bytes);
        ck_assert_int_ge(shape_rows(&t->shape) * shape_last(&t->shape), 0);
        char *out = arena_alloc(a, (size_t)bytes + 1, 1);
        ck_assert_int_eq(checkpoint_load(c, t->name, &t->shape, type, out, NULL), OK);
    }
}

static void is_clean(enum status status, const struct error *err)
{
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_msg(strstr(err->text, dir) != NULL, "%s", err->text);
}

START_TEST(any_manifest_is_read_or_refused)
{
    const struct checkpoint_tensor before[TENSORS] = {tensors[0], tensors[1], tensors[2]};
    int good = 0, n = suites_long() ? 5000 : 200;
    draws = 0;
    for (int i = 0; i < n; i++) {
        struct checkpoint out, c = whole;
        struct error err;
        memcpy(tensors, before, sizeof tensors);
        for (uint64_t changes = drawn() % 3 + 1; changes > 0; changes--) change_field(&c);
        enum status status = written_and_read(&c, &out, &err);
        if (status != OK) {
            is_clean(status, &err);
            continue;
        }
        consume(&out);
        good++;
    }
    ck_assert_int_gt(good, n / 20);
    ck_assert_int_lt(good, n / 2);
}
END_TEST

/* Where a value of the text begins, and where it ends. */
static void find_value(const char *text, size_t n, size_t *first, size_t *end)
{
    do {
        *first = drawn() % n;
        while (*first < n && !strchr(":[,", text[*first])) ++*first;
        *first += strspn(text + *first, ":[, \n");
        *end = *first + strcspn(text + *first, ",]}\n");
    } while (*first >= n || *end <= *first);
}

/* What no struct holds: any value of the text becomes another text. */
START_TEST(any_text_for_a_value_is_refused)
{
    static const char *const texts[] = {"99999999999999999999",
                                        "-1",
                                        "1e308",
                                        "1e999",
                                        "0.5",
                                        "\"\"",
                                        "null",
                                        "true",
                                        "[]",
                                        "{}",
                                        "[[[[]]]]",
                                        "\"x\"",
                                        "\"..\"",
                                        "NaN",
                                        "[1, 2, 3, 4, 5]",
                                        "\"\\u0000\"",
                                        "",
                                        "-",
                                        "\"\\n\"",
                                        "00"};
    struct checkpoint out;
    struct error err;
    char *text;
    size_t n, first, end;
    ck_assert_msg(written_and_read(&whole, &out, &err) == OK, "%s", err.text);
    const char *path = arena_printf(a, "%s/" CHECKPOINT_MANIFEST, dir);
    ck_assert_int_eq(file_read(a, path, 100000, &text, &n, &err), OK);
    draws = 1000000;
    for (int i = 0; i < (suites_long() ? 20000 : 500); i++) {
        find_value(text, n, &first, &end);
        FILE *f = fopen(path, "w");
        ck_assert_ptr_nonnull(f);
        fprintf(f, "%.*s%s%s", (int)first, text, PICK(texts), text + end);
        ck_assert_int_eq(fclose(f), 0);
        is_clean(checkpoint_open(a, dir, true, &out, &err), &err);
    }
}
END_TEST

Suite *checkpoint_manifest_suite(void)
{
    Suite *suite = suite_create("checkpoint_manifest");
    TCase *c = tcase_create("checkpoint_manifest");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, a_number_that_cannot_be_is_named, 0, N_BAD);
    tcase_add_test(c, the_largest_numbers_are_read);
    tcase_add_test(c, a_run_ends_at_a_step_that_a_manifest_can_hold);
    tcase_add_test(c, any_manifest_is_read_or_refused);
    tcase_add_test(c, any_text_for_a_value_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
