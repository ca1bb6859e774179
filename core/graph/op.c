/* core/graph/op.c - the functions of op.h, from the rows of the operator table. */
#include "core/graph/op.h"

#include "core/base/rng.h"
#include "core/graph/gradient_rules.h"
#include "core/graph/op_schema.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct op_schema table[OP_KIND_COUNT] = {
#define OP_EVERY(name, ...) [OP_##name] = {__VA_ARGS__},
#include "core/graph/op_rows.inc"
};

const struct op_schema *op_schema(enum op_kind kind) { return &table[kind]; }

enum status op_infer(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *shapes,
                     struct error *err)
{
    const struct op_schema *row = &table[kind];
    int32_t n = shapes->n_inputs;
    if (n != row->n_inputs && !(row->n_inputs_or && n == row->n_inputs_or) && !row->any_inputs)
        return error_set(err, ERR_INPUT, "%s: takes %d operands, not %d", op_kind_name(kind),
                         row->n_inputs, n);
    shapes->n_outputs = row->n_outputs + attrs->narrows;
    return row->infer(kind, attrs, shapes, err);
}

double op_flops(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes)
{
    const struct op_schema *row = &table[kind];
    if (row->flops) return row->flops(attrs, shapes);
    return shapes->n_inputs ? row->flops_per_element * (double)shape_elements(&shapes->input[0])
                            : 0;
}

double op_model_flops(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes)
{
    struct op_attrs plain;
    if (kind != OP_attention && kind != OP_attention_grad) return op_flops(kind, attrs, shapes);
    plain = *attrs;
    plain.eager = false;
    double flops = op_flops(kind, &plain, shapes);
    return kind == OP_attention ? flops : flops * 4 / 5; /* of five products one is again */
}

static void bytes_of(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *s,
                     enum dtype t, int64_t *read, int64_t *written)
{
    int64_t b = dtype_bytes(t);
    if (table[kind].bytes) {
        table[kind].bytes(attrs, s, b, read, written);
        return;
    }
    *read = *written = 0;
    for (int32_t i = 0; i < s->n_inputs; i++)
        *read += shape_elements(&s->input[i]) * (op_input_is_int32(kind, i) ? 4 : b);
    for (int32_t i = 0; i < s->n_outputs; i++)
        *written += shape_elements(&s->output[i]) * (op_output_is_int32(kind, i)                   ? 4
                                                     : attrs->narrows && i == s->n_outputs - 1 ? b / 2
                                                                                               : b);
    if (attrs->accumulate) *read += *written;
}

int64_t op_bytes_read(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes, enum dtype t)
{
    int64_t read, written;
    bytes_of(kind, attrs, shapes, t, &read, &written);
    return read;
}

int64_t op_bytes_written(enum op_kind kind, const struct op_attrs *attrs,
                         const struct op_shapes *shapes, enum dtype t)
{
    int64_t read, written;
    bytes_of(kind, attrs, shapes, t, &read, &written);
    return written;
}

/* Inputs are p, g and the moments: all but g, and p where it is no master, are state; each is written back. */
void op_bytes_hosted(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                     enum dtype t, int64_t *read, int64_t *written)
{
    int64_t n = shapes->n_inputs - 2 + attrs->narrows;
    *read = *written = 0;
    if (!attrs->hosted || !(table[kind].key_attrs & A_HOSTED)) return;
    *read = *written = n * shape_elements(&shapes->input[0]) * dtype_bytes(t);
}

/* An operator whose operands are all wide runs in fp32. */
int64_t op_scratch(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                   enum dtype t)
{
    scratch_rule *rule = table[kind].scratch;
    int64_t bytes = rule ? rule(attrs, shapes, t) : 0;
    int64_t wide = rule && dtype_is_half(t) ? rule(attrs, shapes, DTYPE_fp32) : 0;
    return bytes > wide ? bytes : wide;
}

bool op_is_update(enum op_kind kind) { return table[kind].key_attrs & A_DECAY; }

bool op_uses_workspace(enum op_kind kind) { return table[kind].workspace; }

bool op_is_product(enum op_kind kind) { return table[kind].product; }

bool op_input_is_int32(enum op_kind kind, int32_t input)
{
    return table[kind].int32_inputs >> input & 1;
}

bool op_output_is_int32(enum op_kind kind, int32_t output)
{
    return table[kind].int32_outputs >> output & 1;
}

bool op_output_is_wide(enum op_kind kind, int32_t output)
{
    return table[kind].wide_outputs >> output & 1;
}

bool op_is_routed(enum op_kind kind) { return kind == OP_gating || table[kind].gates; }

int32_t op_gates_input(enum op_kind kind) { return table[kind].gates - 1; }

int32_t op_fuses(enum op_kind kind, enum op_kind out[2])
{
    for (int32_t i = 0; i < table[kind].n_fuses; i++) out[i] = table[kind].fuses[i];
    return table[kind].n_fuses;
}

bool op_fused_keeps(enum op_kind kind) { return table[kind].keeps; }

op_gradient_rule *op_gradient(enum op_kind kind) { return table[kind].gradient; }

/* --- the structural key: number and text are generated from one list --- */

struct key_attr {
    const char *name;
    int64_t value; /* 0: not printed; the number itself only where the name ends in '=' */
};
enum { KEY_ATTRS_MAX = 32 };

static int32_t stencil_attrs(uint32_t has, const struct op_attrs *a,
                             struct key_attr out[KEY_ATTRS_MAX], int32_t n)
{
    const struct {
        uint32_t flag;
        const char *name[2];
        const int32_t *value;
    } pairs[] = {{A_KERNEL, {"kernel_h=", "kernel_w="}, a->stencil.kernel},
                 {A_STRIDE, {"stride_h=", "stride_w="}, a->stencil.stride},
                 {A_STRIDE, {"padding_h=", "padding_w="}, a->stencil.padding},
                 {A_SIZE, {"h=", "w="}, a->stencil.size}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int k = 0; k < 2; k++)
            if (has & pairs[i].flag)
                out[n++] = (struct key_attr){pairs[i].name[k], pairs[i].value[k]};
    return n;
}

static int32_t code_attrs(const struct encoding *c, struct key_attr out[KEY_ATTRS_MAX], int32_t n)
{
    out[n++] = (struct key_attr){"code=", c->kind};
    out[n++] = (struct key_attr){"block=", c->block};
    out[n++] = (struct key_attr){"kept=", c->kept};
    out[n++] = (struct key_attr){"feedback=", c->feedback};
    out[n++] = (struct key_attr){"stochastic", c->stochastic};
    return n;
}

static int32_t key_attrs(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s,
                         struct key_attr out[KEY_ATTRS_MAX])
{
    uint32_t has = table[kind].key_attrs;
    int32_t n = 0;
    if (has & A_ROW) {
        out[n++] = (struct key_attr){"row=", a->row};
        out[n++] = (struct key_attr){"sequences=", a->sequences};
        if (a->tp > 1) out[n++] = (struct key_attr){"tp=", a->tp};
        return n;
    }
    if (has & A_LINK) out[n++] = (struct key_attr){"link=", a->link};
    out[n++] = (struct key_attr){"ta", (has & A_TRANS) && a->trans_a};
    out[n++] = (struct key_attr){"tb", (has & A_TRANS) && a->trans_b};
    out[n++] = (struct key_attr){"acc", a->accumulate};
    out[n++] = (struct key_attr){"erf", (has & A_ERF) && a->gelu_erf};
    out[n++] = (struct key_attr){"decay", (has & A_DECAY) && a->decay};
    if (has & A_NARROWS) out[n++] = (struct key_attr){"narrows", a->narrows};
    out[n++] = (struct key_attr){"heads=", has & A_HEADS ? a->heads : 0};
    out[n++] = (struct key_attr){"head_dim=", has & A_HEAD_DIM ? a->head_dim : 0};
    out[n++] = (struct key_attr){"window=", has & A_HEADS ? op_work_attention_window(a, s) : 0};
    out[n++] = (struct key_attr){"V=", has & A_VOCABULARY ? a->vocabulary : 0};
    /* Newer than stored profiles: part of the key only if set. */
    if ((has & A_HOSTED) && a->hosted) out[n++] = (struct key_attr){"hosted", 6};
    if ((has & A_HEADS) && a->eager) out[n++] = (struct key_attr){"eager", 1};
    if ((has & A_HEADS) && a->softcap > 0) out[n++] = (struct key_attr){"softcap", 8};
    /* names are no part of the number: another one than eager's */
    if ((has & A_HEADS) && a->bidirectional) out[n++] = (struct key_attr){"bidirectional", 2};
    if (has & A_PART) out[n++] = (struct key_attr){"sequences=", a->sequences};
    if ((has & A_TP) && a->tp > 1) out[n++] = (struct key_attr){"tp=", a->tp};
    /* Causal: later queries see more keys than there are queries. */
    if ((has & A_HEADS) && a->start + a->lines.first) {
        out[n++] = (struct key_attr){"from", 4};
        out[n++] = (struct key_attr){"start=", a->start + a->lines.first};
    }
    /* Shard of an operator with full operands; the number of slots shows in an operand. */
    if (a->lines.of || ((has & A_EXPERTS) && a->columns.first)) {
        out[n++] = (struct key_attr){"part", 5};
        out[n++] = (struct key_attr){"n=", a->lines.n};
        out[n++] = (struct key_attr){"slot=", has & A_EXPERTS ? a->columns.first : 0};
    }
    /* A part is as much work as is copied, which its operand does not tell. */
    if (a->exchange && s->n_outputs)
        out[n++] = (struct key_attr){"to=", shape_elements(&s->output[0])};
    if ((has & (A_PART | A_DIM)) && (a->dim || a->blank)) {
        out[n++] = (struct key_attr){"dim=", a->dim};
        out[n++] = (struct key_attr){"dims=", has & A_DIM ? a->dims : 0};
        out[n++] = (struct key_attr){"blank", (has & A_PART) && a->blank};
    }
    if (has & A_GROUPS) out[n++] = (struct key_attr){"groups=", a->groups};
    if (has & A_TURN) out[n++] = (struct key_attr){"inverse", a->inverse};
    if (has & A_TURN) out[n++] = (struct key_attr){"flat", a->flat};
    if (has & A_EXPERTS) out[n++] = (struct key_attr){"chosen=", a->chosen};
    if (has & A_EXPERTS) out[n++] = (struct key_attr){"experts=", a->experts};
    if ((has & A_EXPERTS) && a->load_ppm) out[n++] = (struct key_attr){"load_ppm=", a->load_ppm};
    if (has & A_CAPACITY) out[n++] = (struct key_attr){"capacity=", a->capacity};
    if (has & A_WEIGHTED) out[n++] = (struct key_attr){"weighted", a->weighted};
    if (has & A_RENORMALISE) out[n++] = (struct key_attr){"renormalise", a->renormalise};
    if ((has & A_RENORMALISE) && a->scale != 0) out[n++] = (struct key_attr){"balanced", 7};
    if (has & A_CODE) n = code_attrs(&a->code, out, n);
    return stencil_attrs(has, a, out, n);
}

/* The part of a shape that determines the cost. kv_heads shows in attention's operands. */
static struct shape key_shape(enum op_kind kind, const struct op_attrs *a, const struct shape *s)
{
    if ((table[kind].key_attrs & A_DIM) && a->dim) return *s; /* no rows */
    if (table[kind].layout == LAYOUT_FLAT)
        return (struct shape){.rank = 1, .dim = {shape_elements(s)}};
    if (table[kind].layout == LAYOUT_ROWS && s->rank > 2)
        return (struct shape){.rank = 2, .dim = {shape_rows(s), shape_last(s)}};
    return *s;
}

/* Inputs determine outputs; zero has none and shows its output. */
static int32_t n_key_shapes(enum op_kind kind, const struct op_shapes *s)
{
    return table[kind].key_attrs & A_ROW ? 0 : s->n_inputs ? s->n_inputs : s->n_outputs;
}

static const struct shape *nth_key_shape(const struct op_shapes *s, int32_t i)
{
    return s->n_inputs ? &s->input[i] : &s->output[i];
}

/* The kind enters by name, because its number may change between versions while profiles persist. */
static uint64_t key_start(enum op_kind kind, enum dtype t)
{
    static _Thread_local uint64_t known[OP_KIND_COUNT][DTYPE_COUNT]; /* 0: not yet */
    uint64_t *start = &known[kind][t];
    if (!*start) *start = rng_hash_text(rng_hash_text(0, op_kind_name(kind)), dtype_name(t));
    return *start;
}

uint64_t op_key(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                enum dtype t)
{
    enum { WORDS_MAX = 3 + OP_OPERANDS_MAX * (SHAPE_RANK_MAX + 1) + KEY_ATTRS_MAX };
    struct key_attr attr[KEY_ATTRS_MAX];
    int32_t n_attrs = key_attrs(kind, attrs, shapes, attr), n = n_key_shapes(kind, shapes);
    int64_t words[WORDS_MAX];
    size_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        struct shape shape = key_shape(kind, attrs, nth_key_shape(shapes, i));
        words[used++] = shape.rank;
        for (int32_t d = 0; d < shape.rank; d++) words[used++] = shape.dim[d];
    }
    for (int32_t i = 0; i < n_attrs; i++) words[used++] = attr[i].value;
    return rng_hash_bytes(key_start(kind, t), words, used * sizeof *words);
}

PRINTF_LIKE(4, 5) static void append(char *buffer, size_t n, size_t *used, const char *fmt, ...)
{
    if (*used >= n) return;
    va_list ap;
    va_start(ap, fmt);
    int wrote = vsnprintf(buffer + *used, n - *used, fmt, ap);
    va_end(ap);
    *used += wrote > 0 ? (size_t)wrote : 0;
}

const char *op_key_text(char *buffer, size_t n, enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, enum dtype t)
{
    struct key_attr attr[KEY_ATTRS_MAX];
    struct shape shape[OP_OPERANDS_MAX];
    int32_t n_attrs = key_attrs(kind, attrs, shapes, attr), n_shapes;
    char text[SHAPE_TEXT_MAX];
    size_t used = 0;
    append(buffer, n, &used, "%s %s ", op_kind_name(kind), dtype_name(t));
    n_shapes = n_key_shapes(kind, shapes);
    for (int32_t i = 0; i < n_shapes; i++)
        shape[i] = key_shape(kind, attrs, nth_key_shape(shapes, i));
    for (int32_t i = 0; i < n_shapes; i++)
        append(buffer, n, &used, "%s%s", i ? "x" : "", op_shapes_text(text, &shape[i]));
    for (int32_t i = 0; i < n_attrs; i++) {
        if (!attr[i].value) continue;
        bool number = attr[i].name[strlen(attr[i].name) - 1] == '=';
        append(buffer, n, &used, " %s", attr[i].name);
        if (number) append(buffer, n, &used, "%" PRId64, attr[i].value);
    }
    return buffer;
}
