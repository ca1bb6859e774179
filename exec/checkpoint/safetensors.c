#include "exec/checkpoint/safetensors.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/document/document.h"
#include "core/document/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define METADATA "__metadata__"
enum { LENGTH_BYTES = 8, ALIGN = 8 };
#define OFFSET_MAX (INT64_C(1) << 53) /* a double represents it exactly */

/* clang-format off */
/*    name, bits, dtype of a tensor with it; -1: none */
#define STORED(X) \
    X(F32, 32, DTYPE_fp32) X(F64, 64, DTYPE_fp64) X(BF16, 16, DTYPE_bf16) X(F16, 16, DTYPE_fp16) X(I32, 32, DTYPE_int32) \
    X(BOOL, 8, -1) X(U8, 8, -1) X(I8, 8, -1) X(I16, 16, -1) X(U16, 16, -1) X(U32, 32, -1) X(I64, 64, -1) X(U64, 64, -1) X(C64, 64, -1) \
    X(F8_E5M2, 8, -1) X(F8_E4M3, 8, -1) X(F8_E8M0, 8, -1) X(F8_E5M2FNUZ, 8, -1) X(F8_E4M3FNUZ, 8, -1) \
    X(F4, 4, -1) X(F6_E2M3, 6, -1) X(F6_E3M2, 6, -1)
/* clang-format on */
static const struct {
    const char *name;
    int32_t bits, dtype;
} stored[] = {
#define X(name, bits, dtype) {#name, bits, dtype},
    STORED(X)
#undef X
};
static const char *const stored_names[] = {
#define X(name, bits, dtype) #name,
    STORED(X)
#undef X
        NULL};

const char *safetensors_dtype(enum dtype t)
{
    int i = 0;
    while (stored[i].dtype != (int32_t)t) i++;
    return stored[i].name;
}

/* ---- in --------------------------------------------------------------------------------------- */

static enum status read_dtype(const struct node *n, int *out, struct error *err)
{
    const struct node *dtype;
    TRY(node_need(n, "dtype", &dtype, err));
    return node_choice(dtype, stored_names, out, err);
}

static enum status read_shape(const struct node *n, struct shape *out, int64_t *elements, struct error *err)
{
    const struct node *shape;
    *elements = 1;
    TRY(node_need(n, "shape", &shape, err));
    TRY(node_is(shape, NODE_LIST, err));
    if (shape->count > SHAPE_RANK_MAX) return node_error(shape, err, "more than %d dimensions", SHAPE_RANK_MAX);
    out->rank = (int32_t)shape->count;
    for (size_t k = 0; k < shape->count; k++) {
        TRY(node_int(shape->members[k], 0, OFFSET_MAX, &out->dim[k], err));
        if (out->dim[k] && *elements > OFFSET_MAX / 8 / out->dim[k]) return node_error(shape, err, "more than %" PRId64 " elements", OFFSET_MAX / 8);
        *elements *= out->dim[k];
    }
    return OK;
}

static enum status read_offsets(const struct node *n, int64_t offset[2], struct error *err)
{
    const struct node *offsets;
    TRY(node_need(n, "data_offsets", &offsets, err));
    TRY(node_is(offsets, NODE_LIST, err));
    if (offsets->count != 2) return node_error(offsets, err, "must be [begin, end], found %zu numbers", offsets->count);
    TRY(node_int(offsets->members[0], 0, OFFSET_MAX, &offset[0], err));
    return node_int(offsets->members[1], offset[0], OFFSET_MAX, &offset[1], err);
}

static enum status read_tensor(const struct node *n, struct safetensors_tensor *t, struct error *err)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets", NULL};
    int kind;
    int64_t elements, offset[2];
    TRY(node_is(n, NODE_MAP, err));
    TRY(node_keys(n, keys, err));
    TRY(read_dtype(n, &kind, err));
    TRY(read_shape(n, &t->shape, &elements, err));
    TRY(read_offsets(n, offset, err));
    int64_t bits = elements * stored[kind].bits;
    t->name = n->key, t->stored = stored[kind].name, t->dtype = stored[kind].dtype;
    t->offset = offset[0], t->bytes = offset[1] - offset[0];
    if (bits % 8) return node_error(n, err, "shape: its elements in %s end within a byte", t->stored);
    if (t->bytes != bits / 8)
        return node_error(n, err, "data_offsets: %" PRId64 " bytes are not what its shape takes in %s, %" PRId64, t->bytes, t->stored, bits / 8);
    return OK;
}

static enum status check_metadata(const struct node *n, struct error *err)
{
    TRY(node_is(n, NODE_MAP, err));
    for (size_t i = 0; i < n->count; i++)
        if (n->members[i]->kind != NODE_SCALAR || !n->members[i]->quoted) return node_error(n->members[i], err, "must be a text");
    return OK;
}

static int by_offset(const void *x, const void *y)
{
    const struct safetensors_tensor *a = x, *b = y;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Every byte of the data belongs to one tensor. */
static enum status check_places(struct safetensors *f, int64_t data, struct error *err)
{
    int64_t end = 0, room = f->bytes - data;
    for (int32_t i = 0; i < f->n; i++) {
        struct safetensors_tensor *t = &f->tensors[i];
        if (t->offset < end)
            return error_set(err, ERR_INPUT, "'%s': tensor %s begins at byte %" PRId64 " of the data, inside tensor %s, which ends at %" PRId64, f->path,
                             t->name, t->offset, f->tensors[i - 1].name, end);
        if (t->offset > end)
            return error_set(err, ERR_INPUT, "'%s': tensor %s begins at byte %" PRId64 " of the data; bytes %" PRId64 " to that belong to no tensor", f->path,
                             t->name, t->offset, end);
        end += t->bytes;
        if (end > room)
            return error_set(err, ERR_INPUT, "'%s' is truncated: tensor %s ends at byte %" PRId64 " of the data, of which the file has %" PRId64, f->path,
                             t->name, end, room);
        t->offset += data;
    }
    if (end != room)
        return error_set(err, ERR_INPUT, "'%s': its tensors end at byte %" PRId64 " of the data, and the file has %" PRId64 " of it", f->path, end, room);
    return OK;
}

static enum status read_header(struct arena *a, int fd, struct safetensors *f, struct error *err)
{
    unsigned char length[LENGTH_BYTES];
    struct node *root;
    uint64_t n = 0;
    if (f->bytes < LENGTH_BYTES) return error_set(err, ERR_INPUT, "'%s': %" PRId64 " bytes are not a safetensors file", f->path, f->bytes);
    TRY(file_read_at(fd, f->path, 0, length, sizeof length, err));
    for (int i = LENGTH_BYTES; i-- > 0;) n = n << 8 | length[i];
    if (n > SAFETENSORS_HEADER_MAX)
        return error_set(err, ERR_INPUT, "'%s': a header of %" PRIu64 " bytes is not a safetensors file, or larger than the %d that are accepted", f->path, n,
                         SAFETENSORS_HEADER_MAX);
    if ((int64_t)n > f->bytes - LENGTH_BYTES)
        return error_set(err, ERR_INPUT, "'%s' is truncated, or not a safetensors file: its header of %" PRIu64 " bytes ends behind its %" PRId64 " bytes", f->path,
                         n, f->bytes);
    char *text = arena_alloc(a, (size_t)n + 1, 1);
    TRY(file_read_at(fd, f->path, LENGTH_BYTES, text, (int64_t)n, err));
    if (*text != '{') return error_set(err, ERR_INPUT, "'%s' is not a safetensors file: its header does not begin with '{'", f->path);
    TRY(document_parse(a, f->path, text, (size_t)n, &root, err));
    TRY(node_is(root, NODE_MAP, err));
    f->tensors = ARENA_ARRAY(a, struct safetensors_tensor, root->count + 1);
    for (size_t i = 0; i < root->count; i++)
        if (!strcmp(root->members[i]->key, METADATA))
            TRY(check_metadata(root->members[i], err));
        else
            TRY(read_tensor(root->members[i], &f->tensors[f->n++], err));
    qsort(f->tensors, (size_t)f->n, sizeof *f->tensors, by_offset);
    return check_places(f, LENGTH_BYTES + (int64_t)n, err);
}

enum status safetensors_read(struct arena *a, const char *path, struct safetensors *out, struct error *err)
{
    int fd;
    *out = (struct safetensors){.path = arena_strdup(a, path)};
    TRY(file_open_regular(path, &fd, &out->bytes, err));
    enum status status = read_header(a, fd, out, err);
    close(fd);
    return status;
}

/* ---- out -------------------------------------------------------------------------------------- */

char *safetensors_head(struct arena *a, struct safetensors_tensor *tensors, int32_t n, int64_t *bytes)
{
    struct text made;
    struct json j;
    size_t length;
    int64_t at = 0;
    json_begin(&j, text_begin(&made), JSON_LINE);
    json_put_object(&j, NULL);
    json_put_object(&j, METADATA);
    json_put_text(&j, "format", "pt");
    json_close(&j);
    for (int32_t i = 0; i < n; i++) {
        struct safetensors_tensor *t = &tensors[i];
        t->stored = safetensors_dtype((enum dtype)t->dtype);
        t->bytes = shape_elements(&t->shape) * dtype_bytes((enum dtype)t->dtype);
        t->offset = at;
        json_put_object(&j, t->name);
        json_put_text(&j, "dtype", t->stored);
        json_put_list(&j, "shape");
        for (int32_t k = 0; k < t->shape.rank; k++) json_put_int(&j, NULL, t->shape.dim[k]);
        json_close(&j);
        json_put_list(&j, "data_offsets");
        json_put_int(&j, NULL, at);
        json_put_int(&j, NULL, at += t->bytes);
        json_close(&j);
        json_close(&j);
    }
    json_close(&j);
    json_end(&j);
    char *text = text_end(a, &made, &length);
    length--; /* the line break */
    size_t whole = (length + ALIGN - 1) / ALIGN * ALIGN;
    char *head = arena_alloc(a, LENGTH_BYTES + whole + 1, 1);
    for (int i = 0; i < LENGTH_BYTES; i++) head[i] = (char)((uint64_t)whole >> (8 * i) & 0xff);
    memcpy(head + LENGTH_BYTES, text, length);
    memset(head + LENGTH_BYTES + length, ' ', whole - length);
    *bytes = LENGTH_BYTES + (int64_t)whole;
    for (int32_t i = 0; i < n; i++) tensors[i].offset += *bytes;
    return head;
}
