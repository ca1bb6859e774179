#include "exec/bench/bench.h"

#include "core/base/arena.h"
#include "core/lower/lower.h"

#include <inttypes.h>

/* Operators are measured cold, as kernel benchmarks usually do: no operand is in a cache. Operands are consecutive in
 * a region longer than the caches, which wraps around; outputs likewise in scratch; each round ends with a sweep
 * through memory that no operator uses. One large parameter fills the region with random numbers. Updates have
 * operands of their own after it, because a second moment must not be negative, and their outputs must not become
 * other operators' inputs. In a real run much of an operator's input is warm, because the operator before has just
 * written it. Calibration learns this: it depends on the plan, and the error is on the slow side. Measured on a small
 * GPT's iteration: cold 4 to 5 % too slow, all operands warm 6 to 8 % too fast, only the first operand warm within 2
 * % there and 10 % too fast in fp64. */

enum { ALIGN = 64, REGION_MAX = 64 << 20, UPDATE_MAX = 32 << 20, SWEEP = 32 << 20 };
static int64_t align(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

struct maker {
    struct arena *a;
    struct program_stage *s;
    enum dtype dtype;
    size_t slot_capacity;
    int64_t operands, ids, outputs; /* bytes of the regions */
    int64_t operand_next, output_next, update_next;
    int64_t update; /* bytes of one operand of all updates */
    int64_t hosted; /* place of offloaded operands in the state's region */
    int64_t gates;  /* bytes of all gates, after the sweep in scratch; each operator has its own */
    int64_t gates_next;
    int32_t n_made; /* operators that compute gates */
};

static bool is_update(enum op_kind kind)
{
    return op_is_update(kind);
}

static int64_t bytes_of(const struct shape *s, enum dtype t)
{
    return shape_elements(s) * dtype_bytes(t);
}

/* In half precision some operands are fp32 (program_op.wide_input), and so are all operands of updates except the
 * narrow copy. */
static enum dtype input_type(const struct program_op *op, int32_t input)
{
    if (op_input_is_int32(op->kind, input)) return DTYPE_int32;
    return op->wide_input >> input & 1 ? dtype_master(op->dtype) : op->dtype;
}

static enum dtype output_type(const struct maker *m, const struct program_op *op, int32_t output)
{
    if (op->attrs.narrows && output == op->shapes.n_outputs - 1) return m->dtype;
    if (op_output_is_int32(op->kind, output)) return DTYPE_int32;
    return op->wide_output >> output & 1 ? dtype_master(op->dtype) : op->dtype;
}

/* The region with one more operator; beyond its bound operators share it. */
static int64_t extended(int64_t region, int64_t bytes, int64_t bound)
{
    int64_t both = region + bytes, most = region > bytes ? region : bytes;
    return both <= bound ? both : most;
}

/* Offset of an operator's `bytes` in a region. */
static int64_t taken(int64_t *next, int64_t bytes, int64_t region)
{
    int64_t at = *next + bytes <= region ? *next : 0;
    *next = at + bytes;
    return at;
}

/* Gates of some of the model's experts are a shard of the gates of all. */
static bool has_shard_of_gates(const struct program_op *op, int32_t input)
{
    return input == op_gates_input(op->kind) && op->attrs.experts > op->shapes.input[input].dim[2];
}

/* Codes are no ids: they lie beside results, and are 0. */
static bool is_codes(const struct program_op *op, int32_t input) { return op->kind == OP_decode && input == 1; }

/* The source of an input: itself, or the gates of all experts. */
static struct shape source_of(const struct program_op *op, int32_t input)
{
    struct shape s = op->shapes.input[input];
    if (has_shard_of_gates(op, input)) s.dim[2] = op->attrs.experts;
    return s;
}

static void measure(struct maker *m, const struct program_op *op)
{
    int64_t operands = 0, ids = 0, outputs = 0, update = 0;
    for (int32_t i = 0; i < op->shapes.n_inputs; i++) {
        bool whole = op_input_is_int32(op->kind, i);
        struct shape source = source_of(op, i);
        int64_t bytes = align(bytes_of(&source, input_type(op, i)));
        *(is_codes(op, i) ? &outputs : whole ? &ids : &operands) += bytes;
        if (bytes > update) update = bytes;
    }
    for (int32_t i = 0; i < op->shapes.n_outputs; i++)
        outputs += align(bytes_of(&op->shapes.output[i], output_type(m, op, i)));
    if (is_update(op->kind)) {
        m->update = extended(m->update, update, UPDATE_MAX);
        if (!op->attrs.narrows) outputs = 0;
    } else {
        m->operands = extended(m->operands, operands, REGION_MAX);
    }
    m->outputs = extended(m->outputs, outputs, REGION_MAX);
    if (ids > m->ids) m->ids = ids;
    int32_t gates = op_gates_input(op->kind);
    if (gates >= 0) {
        struct shape source = source_of(op, gates);
        bool part = has_shard_of_gates(op, gates);
        m->gates += align(bytes_of(&source, op->dtype));
        if (part) m->gates += align(bytes_of(&op->shapes.input[gates], op->dtype));
        m->n_made += part ? 2 : 1;
    }
}

static int32_t add_slot(struct maker *m, enum slot_class class, const char *name,
                        const struct shape *shape, enum dtype t, int64_t offset)
{
    struct program_stage *s = m->s;
    s->slots = arena_grow(m->a, s->slots, (size_t)s->n_slots, &m->slot_capacity, sizeof *s->slots);
    s->slots[s->n_slots] = (struct slot){.name = name,
                                         .class = class,
                                         .dtype = t,
                                         .shape = *shape,
                                         .buffer_ring = class == SLOT_BUFFER_RING ? 0 : -1,
                                         .offset_bytes = offset,
                                         .bytes = bytes_of(shape, t),
                                         .parameter = -1,
                                         .input = -1};
    return s->n_slots++;
}

/* In half precision with a master, like every parameter; never updated. */
static void add_parameter(struct maker *m, const char *name, enum tensor_init init, enum dtype t,
                          int64_t offset, int64_t bytes)
{
    struct program_stage *s = m->s;
    struct shape shape = {1, {bytes / dtype_bytes(t)}};
    int32_t slot = add_slot(m, SLOT_PARAMETER, name, &shape, t, offset), master = -1;
    if (dtype_is_half(t)) {
        master = add_slot(m, SLOT_STATE, name, &shape, dtype_master(t), s->class_bytes[SLOT_STATE]);
        s->slots[master].parameter = s->n_parameters;
        s->class_bytes[SLOT_STATE] += align(s->slots[master].bytes);
    }
    s->slots[slot].parameter = s->n_parameters;
    s->parameters[s->n_parameters++] = (struct program_parameter){.name = name,
                                                                  .shape = shape,
                                                                  .init = init,
                                                                  .init_std = 1.0,
                                                                  .slot = slot,
                                                                  .gradient = {-1, -1},
                                                                  .state = {-1, -1},
                                                                  .master = master};
}

/* Parameters p, g, m, v of updates; the narrow copy of p, if any, is an output. Those in host memory are state without a parameter, and 0. */
static void place_update(struct maker *m, struct program_op *op)
{
    static const int adamw[] = {0, 2, 3, 1}; /* outputs p, m, v, g */
    bool moments = op->shapes.n_inputs == 4;
    int32_t in_place = op->shapes.n_inputs;
    int64_t at =
        taken(&m->update_next, align(bytes_of(&op->shapes.input[0], op->dtype)), m->update);
    for (int32_t i = 0; i < op->shapes.n_inputs; i++) {
        bool hosted = op->attrs.hosted && (i ? i > 1 : op->attrs.narrows);
        op->input[i] = add_slot(m, hosted ? SLOT_STATE : SLOT_PARAMETER, "operand", &op->shapes.input[i], op->dtype,
                                (hosted ? m->hosted : m->operands) + i * m->update + at);
    }
    for (int32_t i = 0; i < in_place; i++) op->output[i] = op->input[moments ? adamw[i] : i];
    if (op->shapes.n_outputs == in_place) return;
    const struct shape *copy = &op->shapes.output[in_place];
    op->output[in_place] =
        add_slot(m, SLOT_SCRATCH, "copy", copy, m->dtype,
                 taken(&m->output_next, align(bytes_of(copy, m->dtype)), m->outputs));
}

/* An untimed operator before the timed ones; key 0: no sample. */
static int32_t make(struct maker *m, struct program_op op, int32_t from)
{
    op.phase = PHASE_F;
    op.n_inputs = op.n_outputs = op.shapes.n_inputs = op.shapes.n_outputs = 1;
    op.input[0] = from;
    op.output[0] = add_slot(m, SLOT_SCRATCH, op.name, &op.shapes.output[0], op.dtype,
                            m->outputs + SWEEP + m->gates_next);
    m->gates_next += align(bytes_of(&op.shapes.output[0], op.dtype));
    m->s->ops[m->s->n_ops++] = op;
    return op.output[0];
}

/* The distribution of rows determines an expert operator's work: its gates are not random numbers but computed from
 * them by a gating operator in the same round. A shard of the experts gets the first of the gates of all, because
 * gates over its own experts alone would give each of them the rows of all. */
static int32_t made_gates(struct maker *m, const struct program_op *op, int32_t input,
                          int32_t logits)
{
    struct shape all = source_of(op, input), part = op->shapes.input[input];
    int32_t chosen = op->attrs.chosen > 0 ? op->attrs.chosen : 1;
    if (chosen > all.dim[2]) chosen = (int32_t)all.dim[2];
    int32_t gates = make(m,
                         (struct program_op){.kind = OP_gating,
                                             .phase = PHASE_F,
                                             .dtype = op->dtype,
                                             .name = "gates",
                                             .attrs = {.chosen = chosen, .renormalise = true},
                                             .shapes = {.input = {all}, .output = {all}}},
                         logits);
    if (!has_shard_of_gates(op, input)) return gates;
    return make(m,
                (struct program_op){.kind = OP_slice,
                                    .phase = PHASE_F,
                                    .dtype = op->dtype,
                                    .name = "some gates",
                                    .attrs = {.dim = 2, .sequences = part.dim[2]},
                                    .shapes = {.input = {all}, .output = {part}}},
                gates);
}

static void place_op(struct maker *m, struct program_op *op)
{
    int64_t operands = 0, outputs = 0, id = 0;
    for (int32_t i = 0; i < op->shapes.n_inputs; i++) {
        struct shape source = source_of(op, i);
        if (!op_input_is_int32(op->kind, i) || is_codes(op, i))
            *(is_codes(op, i) ? &outputs : &operands) += align(bytes_of(&source, input_type(op, i)));
    }
    for (int32_t i = 0; i < op->shapes.n_outputs; i++)
        outputs += align(bytes_of(&op->shapes.output[i], output_type(m, op, i)));
    int64_t operand = taken(&m->operand_next, operands, m->operands),
            output = taken(&m->output_next, outputs, m->outputs);
    for (int32_t i = 0; i < op->shapes.n_inputs; i++) {
        bool codes = is_codes(op, i), whole = op_input_is_int32(op->kind, i) && !codes;
        enum dtype t = input_type(op, i);
        struct shape source = source_of(op, i);
        int64_t *at = codes ? &output : whole ? &id : &operand;
        op->input[i] = add_slot(m, codes ? SLOT_SCRATCH : whole ? SLOT_BUFFER_RING : SLOT_PARAMETER,
                                codes ? "codes" : whole ? "ids" : "operand", &source, t, *at);
        if (whole) m->s->slots[op->input[i]].input = INPUT_TOKENS;
        *at += align(bytes_of(&source, t));
        if (i == op_gates_input(op->kind)) op->input[i] = made_gates(m, op, i, op->input[i]);
    }
    for (int32_t i = 0; i < op->shapes.n_outputs; i++) {
        enum dtype t = output_type(m, op, i);
        op->output[i] = add_slot(m, SLOT_SCRATCH, "result", &op->shapes.output[i], t, output);
        output += align(bytes_of(&op->shapes.output[i], t));
    }
}

/* A vocabulary for which every operator has a row. */
static int64_t min_vocabulary(const struct program_op *ops, int32_t n, int64_t vocabulary)
{
    int64_t least = vocabulary > 0 ? vocabulary : INT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        const struct program_op *op = &ops[i];
        int64_t rows = INT64_MAX;
        if (op->kind == OP_embedding) rows = op->shapes.input[1].dim[0];
        if (op->kind == OP_embedding_grad) rows = op->attrs.vocabulary;
        if (op->kind == OP_cross_entropy || op->kind == OP_cross_entropy_grad)
            rows = op_logits(&op->attrs, &op->shapes.input[0]);
        if (rows < least) least = rows;
    }
    return least;
}

/* Every microbatch calls procedure 0 once. */
static void make_order(struct arena *a, struct program *p, int32_t repeats)
{
    p->n_orders = 1;
    p->orders = ARENA_ARRAY(a, struct order, 1);
    p->orders[0] = (struct order){
        .n_runs = 1, .n_calls = repeats, .runs = ARENA_ARRAY(a, struct order_run, 1)};
    p->orders[0].runs[0] = (struct order_run){
        .repeat = repeats, .n_calls = 1, .calls = ARENA_ARRAY(a, struct call, 1)};
    p->lanes = ARENA_ARRAY(a, struct lane, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++) {
        p->lanes[i] = (struct lane){.n_stages = 1, .stages = ARENA_ARRAY(a, int32_t, 1)};
        p->lanes[i].stages[0] = i;
    }
}

static struct program start(struct arena *a, const char *name, int32_t n_devices, int32_t repeats)
{
    struct program p = {
        .name = name,
        .seed = 1,
        .steps = 1,
        .microbatch = 1,
        .sequence_length = 1,
        .vocabulary = 1,
        .microbatches = repeats,
        .n_devices = n_devices,
        .n_stages = n_devices,
        .dtype = DTYPE_fp32,
        .optimizer = {
            .kind = OPTIMIZER_ADAMW, .lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}};
    p.devices = ARENA_ARRAY(a, struct program_device, (size_t)n_devices);
    p.stages = ARENA_ARRAY(a, struct program_stage, (size_t)n_devices);
    for (int32_t i = 0; i < n_devices; i++) {
        p.stages[i] = (struct program_stage){
            .stage = i, .device = i, .first_layer = i, .last_layer = i, .microbatches = repeats};
        p.stages[i].n_procedures = 1;
        p.stages[i].procedures = ARENA_ARRAY(a, struct procedure, 1);
        p.stages[i].procedures[0] = (struct procedure){.phase = PHASE_F, .variant = ""};
    }
    make_order(a, &p, repeats);
    return p;
}

static void one_buffer_ring(struct maker *m)
{
    m->s->n_buffer_rings = 1;
    m->s->buffer_rings = ARENA_ARRAY(m->a, struct buffer_ring, 1);
    m->s->buffer_rings[0] = (struct buffer_ring){.count = 1,
                                                 .stride_bytes = m->ids,
                                                 .sent = -1,
                                                 .received = -1,
                                                 .birth = PHASE_F,
                                                 .death = PHASE_F};
}

/* Touches twice SWEEP bytes at the end of each round; key 0: no sample. */
static void add_sweep(struct maker *m)
{
    struct program_op *op = &m->s->ops[m->s->n_ops++];
    enum dtype t = dtype_master(m->dtype);
    struct shape all = {1, {SWEEP / dtype_bytes(t)}};
    *op = (struct program_op){.kind = OP_add,
                              .phase = PHASE_F,
                              .dtype = t,
                              .name = "sweep",
                              .n_inputs = 2,
                              .n_outputs = 1,
                              .shapes = {.n_inputs = 2, .n_outputs = 1, .input = {all, all}}};
    op->shapes.output[0] = all;
    op->input[0] = op->input[1] =
        add_slot(m, SLOT_PARAMETER, "sweep", &all, t, m->operands + 4 * m->update);
    op->output[0] = add_slot(m, SLOT_SCRATCH, "swept", &all, t, m->outputs);
}

/* One precision, or half precision with the fp32 of updates. */
static enum status choose_dtype(const struct program_op *ops, int32_t n, enum dtype *out,
                                struct error *err)
{
    *out = ops[0].dtype;
    for (int32_t i = 0; i < n; i++)
        if (dtype_is_half(ops[i].dtype)) *out = ops[i].dtype;
    for (int32_t i = 0; i < n; i++)
        if (ops[i].dtype != *out && ops[i].dtype != dtype_master(*out))
            return error_set(err, ERR_INPUT, "a bench has one precision, not %s and %s",
                             dtype_name(ops[i].dtype), dtype_name(*out));
    return OK;
}

static void add_parameters(struct maker *m)
{
    enum dtype wide = dtype_master(m->dtype);
    m->s->parameters = ARENA_ARRAY(m->a, struct program_parameter, 6);
    if (m->operands) add_parameter(m, "bench.operands", INIT_NORMAL, m->dtype, 0, m->operands);
    for (int32_t k = 0; k < 4 && m->update; k++) /* p, g, m, v */
        add_parameter(m, arena_printf(m->a, "bench.update.%c", "pgmv"[k]),
                      k < 2 ? INIT_NORMAL : INIT_ZEROS, wide, m->operands + k * m->update,
                      m->update);
    add_parameter(m, "bench.sweep", INIT_ONES, wide, m->operands + 4 * m->update, SWEEP);
}

static void make_procedure(struct maker *m, int32_t n)
{
    struct procedure *f = &m->s->procedures[0];
    f->instrs = ARENA_ARRAY(m->a, struct instr, (size_t)m->s->n_ops + 1);
    if (m->ids) f->instrs[f->n_instrs++] = (struct instr){INSTR_LOAD, -1};
    for (int32_t i = n; i < n + m->n_made; i++)
        f->instrs[f->n_instrs++] = (struct instr){INSTR_COMPUTE, i};
    for (int32_t i = 0; i < n; i++) f->instrs[f->n_instrs++] = (struct instr){INSTR_COMPUTE, i};
    f->instrs[f->n_instrs++] = (struct instr){INSTR_COMPUTE, n + m->n_made}; /* the sweep */
}

enum status bench_ops(struct arena *a, const struct program_op *ops, int32_t n,
                      const struct program_device *device, int32_t repeats, int64_t vocabulary,
                      struct program *out, struct error *err)
{
    if (n < 1 || repeats < 1)
        return error_set(err, ERR_INPUT, "a bench needs operators and repeats, not %" PRId32 " and %" PRId32, n, repeats);
    *out = start(a, "bench of operators", 1, repeats);
    out->devices[0] = *device;
    out->emulated = device->slowdown > 0;
    TRY(choose_dtype(ops, n, &out->dtype, err));
    out->vocabulary = min_vocabulary(ops, n, vocabulary);
    struct maker m = {.a = a, .s = &out->stages[0], .dtype = out->dtype};
    for (int32_t i = 0; i < n; i++) measure(&m, &ops[i]);
    add_parameters(&m);
    m.hosted = m.s->class_bytes[SLOT_STATE];
    for (int32_t i = 0; i < n; i++) m.s->offloads |= ops[i].attrs.hosted;
    if (m.s->offloads) m.s->class_bytes[SLOT_STATE] += 4 * m.update;
    if (m.ids) one_buffer_ring(&m);
    m.s->n_ops = n;
    m.s->ops = ARENA_ARRAY(a, struct program_op, (size_t)(n + m.n_made) + 1);
    for (int32_t i = 0; i < n; i++) {
        m.s->ops[i] = ops[i];
        if (!ops[i].name) m.s->ops[i].name = op_kind_name(ops[i].kind);
        m.s->ops[i].n_inputs = ops[i].shapes.n_inputs;
        m.s->ops[i].n_outputs = ops[i].shapes.n_outputs;
        if (is_update(ops[i].kind))
            place_update(&m, &m.s->ops[i]);
        else
            place_op(&m, &m.s->ops[i]);
    }
    add_sweep(&m);
    m.s->class_bytes[SLOT_PARAMETER] = m.operands + 4 * m.update + SWEEP;
    m.s->class_bytes[SLOT_SCRATCH] = m.outputs + SWEEP + m.gates;
    m.s->class_bytes[SLOT_BUFFER_RING] = m.ids;
    make_procedure(&m, n);
    return OK;
}

/* ---- link -------------------------------------------------------------------------------------
 */

enum { AHEAD = 2 };

/* A slot in a ring of its own with the same index. */
static void place_message(struct program_stage *s, int32_t index, int64_t bytes, int32_t channel,
                          bool sent)
{
    s->slots[index] = (struct slot){.name = sent ? "out" : "in",
                                    .class = SLOT_BUFFER_RING,
                                    .dtype = DTYPE_fp32,
                                    .shape = {1, {bytes / dtype_bytes(DTYPE_fp32)}},
                                    .buffer_ring = index,
                                    .bytes = bytes,
                                    .parameter = -1,
                                    .input = -1};
    s->buffer_rings[index] = (struct buffer_ring){.count = AHEAD,
                                                  .stride_bytes = align(bytes),
                                                  .sent = sent ? channel : -1,
                                                  .received = sent ? -1 : channel,
                                                  .birth = sent ? 'F' : 'R',
                                                  .death = sent ? 'S' : 'F'};
    s->class_bytes[SLOT_BUFFER_RING] += AHEAD * align(bytes);
}

/* Each size goes there and back before the next one starts, so that messages never share the link. */
static void make_ends(struct arena *a, struct program *p, const int64_t *bytes, int32_t n)
{
    p->n_channels = 2 * n;
    p->channels = ARENA_ARRAY(a, struct channel, 2 * (size_t)n);
    for (int32_t e = 0; e < 2; e++) {
        struct program_stage *s = &p->stages[e];
        struct procedure *f = &s->procedures[0];
        s->n_slots = s->n_buffer_rings = 2 * n;
        s->slots = ARENA_ARRAY(a, struct slot, 2 * (size_t)n);
        s->buffer_rings = ARENA_ARRAY(a, struct buffer_ring, 2 * (size_t)n);
        f->instrs = ARENA_ARRAY(a, struct instr, 2 * (size_t)n);
        for (int32_t i = 0; i < n; i++) {
            int64_t size = (bytes[i] + 3) / 4 * 4;
            place_message(s, 2 * i, size, 2 * i, e == 0);
            place_message(s, 2 * i + 1, size, 2 * i + 1, e == 1);
            f->instrs[f->n_instrs++] = (struct instr){e ? INSTR_RECEIVE : INSTR_SEND, 2 * i};
            f->instrs[f->n_instrs++] = (struct instr){e ? INSTR_SEND : INSTR_RECEIVE, 2 * i + 1};
        }
    }
}

enum status bench_link(struct arena *a, const struct cluster *c, int32_t from, int32_t to,
                       const int64_t *bytes, int32_t n, int32_t repeats, struct program *out,
                       struct error *err)
{
    int32_t link[2], direction[2];
    link[0] = cluster_link(c, from, to, &direction[0]);
    link[1] = cluster_link(c, to, from, &direction[1]);
    if (link[0] < 0 || link[1] < 0)
        return error_set(err, ERR_INPUT, "no link joins %s and %s", c->devices[from].name, c->devices[to].name);
    if (n < 1 || repeats < 1)
        return error_set(err, ERR_INPUT, "a bench needs sizes and repeats, not %" PRId32 " and %" PRId32, n, repeats);
    for (int32_t i = 0; i < n; i++)
        if (bytes[i] < 1 || bytes[i] > INT32_MAX - 3)
            return error_set(err, ERR_INPUT, "messages of %" PRId64 " bytes cannot be timed",
                             bytes[i]);
    *out = start(a, "bench of a link", 2, repeats);
    out->emulated = c->emulated;
    out->devices[0] = lower_device(c, from);
    out->devices[1] = lower_device(c, to);
    out->n_links = c->n_links;
    out->links = lower_cluster_links(a, c);
    make_ends(a, out, bytes, n);
    for (int32_t i = 0; i < 2 * n; i++)
        out->channels[i] = (struct channel){.from_stage = i % 2,
                                            .to_stage = 1 - i % 2,
                                            .from_slot = i,
                                            .to_slot = i,
                                            .link = link[i % 2],
                                            .direction = direction[i % 2],
                                            .bytes = out->stages[0].slots[i].bytes,
                                            .receive_ahead = AHEAD,
                                            .gradient = i % 2};
    return OK;
}
