/* Suite of exec/checkpoint/safetensors: the header that is written, and what is refused. */
#include "exec/checkpoint/safetensors.h"

#include "core/base/arena.h"

#include "tests/support/suites.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static char dir[64];

static void setup(void)
{
    a = arena_new();
    snprintf(dir, sizeof dir, "/tmp/musher-safetensors-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
    ck_assert_int_eq(system(arena_printf(a, "rm -r '%s'", dir)), 0);
    arena_free(a);
}

/* A file of a length, a header and so many bytes of data. */
static const char *file_of(uint64_t length, const char *header, size_t n, size_t data)
{
    const char *path = arena_printf(a, "%s/w.safetensors", dir);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 8; i++) fputc((int)(length >> (8 * i) & 0xff), f);
    fwrite(header, 1, n, f);
    for (size_t i = 0; i < data; i++) fputc((int)i, f);
    ck_assert_int_eq(fclose(f), 0);
    return path;
}

START_TEST(the_header_of_two_tensors)
{
    static const char text[] = "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                               "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[8,14]}}  ";
    struct safetensors_tensor t[2] = {{.name = "a", .dtype = DTYPE_fp32, .shape = {2, {2, 1}}}, {.name = "b", .dtype = DTYPE_bf16, .shape = {1, {3}}}};
    int64_t bytes;
    const char *head = safetensors_head(a, t, 2, &bytes);
    ck_assert_int_eq(bytes, 8 + 144);
    ck_assert_mem_eq(head, "\x90\0\0\0\0\0\0\0", 8);
    ck_assert_mem_eq(head + 8, text, 144);
    ck_assert_int_eq(t[1].offset, 152 + 8);
    struct safetensors f;
    struct error err = {0};
    ck_assert_msg(safetensors_read(a, file_of(144, text, 144, 14), &f, &err) == OK, "%s", err.text);
    ck_assert_int_eq(f.n, 2);
    ck_assert_int_eq(f.bytes, 166);
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(f.tensors[i].name, t[i].name);
        ck_assert(f.tensors[i].dtype == t[i].dtype && shape_equal(&f.tensors[i].shape, &t[i].shape));
        ck_assert(f.tensors[i].offset == t[i].offset && f.tensors[i].bytes == t[i].bytes);
    }
}
END_TEST

#define TENSOR(name, dtype, shape, begin, end) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"
static const struct {
    const char *header;
    size_t data;
    const char *why; /* NULL: accepted */
} files[] = {
    {"{" TENSOR("a", "F32", "2", 0, 8) "}", 8, NULL},
    {"{}", 0, NULL},
    {"{" TENSOR("a", "F32", "", 0, 4) "," TENSOR("b", "BOOL", "1,0,7", 4, 4) "}   ", 4, NULL},
    {"{" TENSOR("b", "I64", "1", 4, 12) "," TENSOR("a", "F32", "1", 0, 4) "}", 12, NULL}, /* in another order than the data */
    {"{" TENSOR("a", "F4", "3", 0, 1) "}", 1, "end within a byte"},
    {"{" TENSOR("a", "F32", "2", 0, 8) "," TENSOR("b", "F32", "2", 4, 12) "}", 12, "tensor b begins at byte 4 of the data, inside tensor a, which ends at 8"},
    {"{" TENSOR("a", "F32", "2", 0, 8) "," TENSOR("b", "F32", "1", 12, 16) "}", 16, "tensor b begins at byte 12 of the data; bytes 8 to that belong to no tensor"},
    {"{" TENSOR("a", "F32", "2", 4, 12) "}", 12, "bytes 0 to that"},
    {"{" TENSOR("a", "F32", "2", 0, 8) "}", 9, "its tensors end at byte 8 of the data, and the file has 9"},
    {"{" TENSOR("a", "F32", "2", 0, 8) "}", 7, "is truncated: tensor a"},
    {"{" TENSOR("a", "F32", "3", 0, 8) "}", 8, "8 bytes are not what its shape takes in F32, 12"},
    {"{" TENSOR("a", "F32", "2", 0, 8) "," TENSOR("a", "F32", "2", 8, 16) "}", 16, "duplicate"},
    {"{" TENSOR("a", "F33", "2", 0, 8) "}", 8, "did you mean 'F32'?"},
    {"{" TENSOR("a", "F32", "-2", 0, 8) "}", 8, "a.shape[0]"},
    {"{" TENSOR("a", "F32", "2.5", 0, 8) "}", 8, "a.shape[0]"},
    {"{" TENSOR("a", "F32", "1,1,1,1,2", 0, 8) "}", 8, "more than 4 dimensions"},
    {"{" TENSOR("a", "F32", "4294967296,4294967296", 0, 8) "}", 8, "elements"},
    {"{" TENSOR("a", "F32", "2", 8, 0) "}", 8, "data_offsets[1]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", 8, "must be [begin, end]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offset\":[0,8]}}", 8, "did you mean 'data_offsets'?"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "shape"},
    {"{\"a\":7}", 0, "a"},
    {"{\"__metadata__\":{\"format\":7}}", 0, "must be a text"},
    {"{\"a\":", 0, "w.safetensors"},
    {"[1]", 0, "does not begin with '{'"},
    {"", 0, "does not begin with '{'"},
};
START_TEST(files_are_accepted_or_refused)
{
    struct safetensors f;
    struct error err = {0};
    size_t n = strlen(files[_i].header);
    enum status status = safetensors_read(a, file_of(n, files[_i].header, n, files[_i].data), &f, &err);
    ck_assert_msg(status == (files[_i].why ? ERR_INPUT : OK), "%s", err.text);
    if (!files[_i].why) return;
    ck_assert_msg(strstr(err.text, files[_i].why) && strstr(err.text, "w.safetensors"), "'%s' is not in: %s", files[_i].why, err.text);
}
END_TEST

START_TEST(a_length_that_is_none)
{
    static const uint64_t lengths[] = {3, SAFETENSORS_HEADER_MAX + UINT64_C(1), UINT64_C(1) << 63, UINT64_MAX};
    struct safetensors f;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct error err = {0};
        ck_assert_int_eq(safetensors_read(a, file_of(lengths[i], "{}", 2, 0), &f, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, "not a safetensors file") != NULL, "%s", err.text);
    }
    struct error err = {0};
    const char *path = file_of(2, "", 0, 0);
    ck_assert_int_eq(truncate(path, 5), 0);
    ck_assert_int_eq(safetensors_read(a, path, &f, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "5 bytes are not a safetensors file"));
}
END_TEST

Suite *safetensors_suite(void)
{
    Suite *s = suite_create("safetensors");
    TCase *c = tcase_create("safetensors");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, the_header_of_two_tensors);
    tcase_add_loop_test(c, files_are_accepted_or_refused, 0, sizeof files / sizeof *files);
    tcase_add_test(c, a_length_that_is_none);
    suite_add_tcase(s, c);
    return s;
}
