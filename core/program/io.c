/* core/program/io.c - reads the output of program_write, treating it as untrusted.
 *
 * Records are in the order of core/program/write.c. An index may point to a record that has not been read
 * yet: program_valid checks those, with the records' lines.
 */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/cluster/cluster.h"
#include "core/program/internal.h"
#include "core/program/servers.h"
#include "core/program/words.h"

#include <inttypes.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 30)

static enum status read_head(struct reader *r, struct program *p)
{
    int32_t version;
    TRY(words_start(r, "musher-program"));
    TRY(words_int(r, INT32_MIN, INT32_MAX, &version));
    if (version != PROGRAM_VERSION)
        return words_broken(r,
                            "program version %" PRId32 "; this musher reads version %d: lower the "
                            "plan again",
                            version, PROGRAM_VERSION);
    TRY(words_start(r, "program"));
    TRY(words_name(r, &p->name));
    TRY(words_uint64(r, 16, &p->plan_hash));
    TRY(words_uint64(r, 10, &p->seed));
    TRY(words_dtype(r, &p->dtype));
    TRY(words_bool(r, &p->emulated));
    TRY(words_bool(r, &p->deterministic));
    TRY(words_int(r, 1, INT32_MAX, &p->steps));
    TRY(words_int64(r, 1, INT64_C(1) << 31, &p->microbatch));
    TRY(words_int64(r, 1, INT64_C(1) << 31, &p->sequence_length));
    TRY(words_int64(r, 0, INT64_C(1) << 40, &p->vocabulary));
    TRY(words_int(r, 1, PROGRAM_MICROBATCHES_MAX, &p->microbatches));
    if (words_next_is(r, "images")) {
        TRY(words_start(r, "images"));
        TRY(words_int64(r, 1, INT64_C(1) << 31, &p->pixels));
    }
    TRY(program_read_training(r, p));
    if (words_next_is(r, "parameter_server")) TRY(program_read_server(r, &p->server));
    TRY(program_read_experts(r, p));
    TRY(words_start(r, "counts"));
    int32_t *counts[] = {&p->n_devices,  &p->n_links,       &p->n_stages,
                         &p->n_channels, &p->n_collectives, &p->n_orders};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) TRY(words_count(r, counts[i]));
    const int32_t of[SECTION_COUNT] = {
        1, p->n_devices, p->n_links, p->n_stages, p->n_channels, p->n_collectives, p->n_orders};
    for (int i = 0; i < SECTION_COUNT; i++) r->lines[i] = ARENA_ARRAY(r->a, int, (size_t)of[i] + 1);
    r->lines[SECTION_HEAD][0] = 2;
    return OK;
}

static enum status read_device(struct reader *r, struct program *p, int32_t i)
{
    struct program_device *d = &p->devices[i];
    TRY(words_start(r, "device"));
    TRY(words_name(r, &d->name));
    TRY(words_name(r, &d->type));
    TRY(words_name(r, &d->host));
    TRY(words_name(r, &d->kind));
    TRY(words_name(r, &d->gpu));
    TRY(words_int(r, 0, INT32_MAX, &d->index));
    TRY(words_int(r, 0, INT32_MAX, &d->type_index));
    TRY(words_double(r, &d->slowdown));
    TRY(words_int64(r, 0, INT64_MAX, &d->memory_bytes));
    TRY(words_int(r, 0, INT32_MAX, &d->multiprocessors));
    TRY(words_double(r, &d->host_Bps));
    TRY(words_int(r, 0, p->n_orders - 1, &p->lanes[i].order));
    TRY(words_count(r, &p->lanes[i].n_stages));
    p->lanes[i].stages = ARENA_ARRAY(r->a, int32_t, (size_t)p->lanes[i].n_stages);
    return words_list(r, p->lanes[i].n_stages, p->n_stages - 1, p->lanes[i].stages);
}

static enum status read_nccl(struct reader *r, struct program_link *k)
{
    TRY(words_int(r, 0, LINK_CTAS_MAX, &k->max_ctas));
    TRY(words_name(r, &k->net_name));
    if (strlen(k->net_name) > LINK_NET_MAX)
        return words_broken(r, "link %s: a net name of more than %d bytes", k->name, LINK_NET_MAX);
    if (!*k->net_name) k->net_name = NULL;
    return OK;
}

static enum status read_route(struct reader *r, const struct program *p, struct program_link *k)
{
    *k = (struct program_link){.emulated = p->emulated, .sharing = LINK_FAIR};
    TRY(words_start(r, "route"));
    TRY(words_name(r, &k->name));
    TRY(words_count(r, &k->n_hops));
    k->hop = ARENA_ARRAY(r->a, int32_t, (size_t)k->n_hops);
    k->hop_direction = ARENA_ARRAY(r->a, int32_t, (size_t)k->n_hops);
    TRY(words_list(r, k->n_hops, INT32_MAX, k->hop));
    TRY(words_list(r, k->n_hops, 1, k->hop_direction));
    return read_nccl(r, k);
}

static enum status read_link(struct reader *r, struct program *p, int32_t i)
{
    struct program_link *k = &p->links[i];
    if (words_next_is(r, "route")) return read_route(r, p, k);
    k->paired = words_next_is(r, "pair");
    TRY(words_start(r, k->paired ? "pair" : "link"));
    if (k->paired) {
        TRY(words_int(r, 0, INT32_MAX, &k->of));
        TRY(words_list(r, 2, INT32_MAX, k->type));
        TRY(words_list(r, 2, INT32_MAX, k->gpus));
        TRY(words_int(r, 1, INT32_MAX, &k->gpus_at_once));
    }
    TRY(words_name(r, &k->name));
    TRY(words_double(r, &k->bandwidth_Bps));
    TRY(words_double(r, &k->latency_s));
    TRY(words_bool(r, &k->half_duplex));
    TRY(words_bool(r, &k->emulated));
    TRY(words_int(r, 0, LINK_FLUID, &k->sharing));
    TRY(words_double(r, &k->compute_slowdown));
    return read_nccl(r, k);
}

static enum status read_slot(struct reader *r, const struct program_stage *s, struct slot *x)
{
    static const char *const classes[] = {"parameter", "gradient", "state", "feedback", "buffer_ring",
                                          "scratch"};
    int class;
    TRY(words_start(r, "slot"));
    TRY(words_name(r, &x->name));
    TRY(words_choice(r, classes, SLOT_CLASS_COUNT, &class));
    x->class = (enum slot_class) class;
    TRY(words_dtype(r, &x->dtype));
    TRY(words_int(r, -1, s->n_buffer_rings - 1, &x->buffer_ring));
    TRY(words_int64(r, 0, INT64_MAX, &x->offset_bytes));
    TRY(words_int(r, -1, s->n_parameters - 1, &x->parameter));
    TRY(words_int(r, -1, INPUT_COUNT - 1, &x->input));
    TRY(words_shape(r, &x->shape));
    x->bytes = dtype_bytes(x->dtype);
    for (int32_t i = 0; i < x->shape.rank; i++)
        if (__builtin_mul_overflow(x->bytes, x->shape.dim[i], &x->bytes))
            return words_broken(r, "slot %s is too large", x->name);
    return OK;
}

static enum status read_buffer_ring(struct reader *r, const struct program *p,
                                    struct buffer_ring *x)
{
    TRY(words_start(r, "buffer_ring"));
    TRY(words_phase(r, "RFBIWH", &x->birth));
    TRY(words_phase(r, "FBIWSUH", &x->death));
    TRY(words_int(r, 1, PROGRAM_BUFFER_RING_MAX, &x->count));
    TRY(words_int64(r, 0, INT64_MAX, &x->stride_bytes));
    TRY(words_int(r, -1, p->n_channels - 1, &x->sent));
    return words_int(r, -1, p->n_channels - 1, &x->received);
}

static enum status read_offload(struct reader *r, struct program_stage *s)
{
    if (!words_next_is(r, "offload")) return OK;
    TRY(words_start(r, "offload"));
    TRY(words_int(r, 0, s->n_buffer_rings - 1, &s->offload.out));
    TRY(words_int(r, 0, s->n_buffer_rings - 1, &s->offload.in));
    return words_int(r, 1, PROGRAM_BUFFER_RING_MAX, &s->offload.count);
}

static enum status read_shape_attrs(struct reader *r, struct op_attrs *a)
{
    enum { MOST = 1 << 24 };
    struct stencil *k = &a->stencil;
    int32_t *pairs[] = {k->kernel, k->stride, k->padding, k->size};
    TRY(words_int(r, 0, SHAPE_RANK_MAX - 1, &a->dim));
    TRY(words_int(r, 0, SHAPE_RANK_MAX, &a->dims));
    TRY(words_bool(r, &a->blank));
    TRY(words_bool(r, &a->flat));
    TRY(words_int(r, 0, MOST, &a->groups));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int axis = 0; axis < 2; axis++) TRY(words_int(r, 0, MOST, &pairs[i][axis]));
    return OK;
}

static enum status read_code(struct reader *r, struct op_attrs *a)
{
    struct encoding *c = &a->code;
    int32_t kind, feedback;
    TRY(words_int(r, ENCODING_INT8, ENCODING_RANDOM_K, &kind));
    TRY(words_int(r, FEEDBACK_NONE, FEEDBACK_EF21, &feedback));
    c->kind = (enum encoding_kind)kind, c->feedback = (enum encoding_feedback)feedback;
    TRY(words_bool(r, &c->stochastic));
    TRY(words_int(r, 1, ENCODING_BLOCK_MAX, &c->block));
    bool sparse = encoding_is_sparse(c->kind);
    TRY(words_int(r, sparse, sparse ? c->block : 0, &c->kept));
    TRY(words_int(r, 1, 2, &c->value_words));
    return words_int64(r, 0, INT64_MAX, &a->stream);
}

static enum status read_attrs(struct reader *r, enum op_kind kind, struct op_attrs *a)
{
    int32_t flags;
    TRY(words_int(r, 0, 16383, &flags));
    a->trans_a = flags & 1, a->trans_b = flags & 2, a->accumulate = flags & 4,
    a->gelu_erf = flags & 8;
    a->inverse = flags & 16, a->decay = flags & 32, a->narrows = flags & 256,
    a->scaled = flags & 512, a->hosted = flags & 1024;
    a->bidirectional = flags & 64, a->unit_offset = flags & 2048, a->interleaved = flags & 4096,
    a->clipped = flags & 8192;
    int32_t *numbers[] = {&a->heads, &a->kv_heads, &a->head_dim, &a->window};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TRY(words_int(r, 0, 1 << 24, numbers[i]));
    TRY(words_int64(r, 0, INT64_C(1) << 40, &a->vocabulary));
    double *doubles[] = {&a->eps,
                         &a->theta,
                         &a->rope.factor,
                         &a->rope.low_freq_factor,
                         &a->rope.high_freq_factor,
                         &a->rope.original_max_position,
                         &a->scale};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) TRY(words_double(r, doubles[i]));
    if (kind == OP_slice || kind == OP_paste) {
        TRY(words_int64(r, 0, INT64_MAX, &a->start));
        TRY(words_int64(r, 0, INT64_MAX, &a->sequences));
    }
    if (kind == OP_rotary) TRY(words_int(r, 0, 1 << 24, &a->rotary_dim));
    if (kind == OP_attention || kind == OP_attention_grad) TRY(words_double(r, &a->softcap));
    if (flags & 128) TRY(read_shape_attrs(r, a));
    if (kind == OP_encode || kind == OP_decode) return read_code(r, a);
    if (kind == OP_rescale) return words_int64(r, 0, 1 << 24, &a->grows_after);
    if (kind == OP_dropout) {
        TRY(words_int64(r, 0, INT64_MAX, &a->stream));
        return words_double(r, &a->rate);
    }
    if (kind == OP_cross_entropy || kind == OP_cross_entropy_grad ||
        kind == OP_cross_entropy_shard || kind == OP_cross_entropy_join)
        return words_int64(r, 0, INT64_C(1) << 40, &a->counted);
    if (op_is_routed(kind)) {
        TRY(words_int(r, 0, 1 << 24, &a->chosen));
        TRY(words_int(r, 0, 1 << 24, &a->experts));
        TRY(words_int(r, 0, INT32_MAX, &a->load_ppm));
        TRY(words_int(r, 0, 1 << 24, &a->block));
        TRY(words_int64(r, 0, INT64_C(1) << 40, &a->capacity));
        TRY(words_bool(r, &a->weighted));
        return words_bool(r, &a->renormalise);
    }
    if (!op_is_measured(kind)) return OK;
    int64_t *sizes[] = {&a->row, &a->sequences, &a->out, &a->kept};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        TRY(words_int64(r, 0, INT64_MAX, sizes[i]));
    TRY(words_bool(r, &a->first));
    TRY(words_int(r, 0, INT32_MAX, &a->link));
    return words_int(r, 0, INT32_MAX, &a->tp);
}

static enum status read_op(struct reader *r, const struct program_stage *s, struct program_op *op)
{
    char kind[64];
    TRY(words_start(r, "op"));
    TRY(words_name(r, &op->name));
    TRY(words_short(r, kind, sizeof kind));
    if (!op_kind_parse(kind, &op->kind)) return words_broken(r, "unknown operator kind '%s'", kind);
    TRY(words_phase(r, "FIWU", &op->phase));
    TRY(words_dtype(r, &op->dtype));
    TRY(words_int(r, 0, INT32_MAX, &op->layer));
    TRY(read_attrs(r, op->kind, &op->attrs));
    TRY(words_int(r, 0, OP_OPERANDS_MAX, &op->n_inputs));
    for (int32_t i = 0; i < op->n_inputs; i++) TRY(words_int(r, 0, s->n_slots - 1, &op->input[i]));
    TRY(words_int(r, 0, OP_OPERANDS_MAX, &op->n_outputs));
    for (int32_t i = 0; i < op->n_outputs; i++)
        TRY(words_int(r, 0, s->n_slots - 1, &op->output[i]));
    op->shapes = (struct op_shapes){.n_inputs = op->n_inputs, .n_outputs = op->n_outputs};
    for (int32_t i = 0; i < op->n_inputs; i++) op->shapes.input[i] = s->slots[op->input[i]].shape;
    for (int32_t i = 0; i < op->n_outputs; i++)
        op->shapes.output[i] = s->slots[op->output[i]].shape;
    return OK;
}

static enum status read_parameter(struct reader *r, const struct program_stage *s,
                                  struct program_parameter *x)
{
    int32_t init;
    TRY(words_start(r, "parameter"));
    TRY(words_name(r, &x->name));
    TRY(words_int(r, 0, INIT_NORMAL, &init));
    x->init = (enum tensor_init)init;
    TRY(words_double(r, &x->init_std));
    TRY(words_bool(r, &x->decay));
    TRY(words_int(r, -1, s->n_slots - 1, &x->slot));
    TRY(words_list(r, 2, s->n_slots - 1, x->gradient));
    TRY(words_list(r, 2, s->n_slots - 1, x->state));
    TRY(words_int(r, -1, s->n_slots - 1, &x->master));
    for (int k = 0; k < PROGRAM_OUTER_SLOTS; k++) TRY(words_int(r, 0, s->n_slots, &x->outer[k]));
    TRY(words_int(r, 0, PROGRAM_PERIOD_MAX, &x->fragment));
    TRY(words_int(r, 0, s->n_slots, &x->previous));
    for (int k = 0; k < FEEDBACK_SLOTS; k++) TRY(words_int(r, 0, s->n_slots, &x->feedback[k]));
    return words_shape(r, &x->shape);
}

static enum status read_shard(struct reader *r, struct program_stage *s)
{
    int32_t parameter;
    struct program_shard *x = ARENA_ARRAY(r->a, struct program_shard, 1);
    TRY(words_start(r, "flat_shard"));
    TRY(words_int(r, 0, s->n_parameters - 1, &parameter));
    if (s->parameters[parameter].shard)
        return words_broken(r, "parameter %d has two shards", (int)parameter);
    TRY(words_int(r, 0, s->n_slots - 1, &x->slot));
    TRY(words_list(r, 2, s->n_slots - 1, x->state));
    TRY(words_int(r, -1, s->n_slots - 1, &x->master));
    for (int k = 0; k < PROGRAM_OUTER_SLOTS; k++) TRY(words_int(r, 0, s->n_slots, &x->outer[k]));
    s->parameters[parameter].shard = x;
    return words_int64(r, -(INT64_C(1) << 60), INT64_C(1) << 60, &x->first);
}

static enum status read_procedure(struct reader *r, struct procedure *p)
{
    static const char *const names[] = {
#define X(name) #name,
        INSTR_KINDS(X)
#undef X
    };
    TRY(words_start(r, "procedure"));
    TRY(words_phase(r, "FBIWU", &p->phase));
    TRY(words_name(r, &p->variant));
    TRY(words_int(r, 0, PROGRAM_PERIOD_MAX, &p->period));
    if (p->period) TRY(words_int(r, 1, 2 * PROGRAM_PERIOD_MAX, &p->offset));
    TRY(words_count(r, &p->n_instrs));
    p->instrs = ARENA_ARRAY(r->a, struct instr, (size_t)p->n_instrs);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        int kind;
        TRY(words_choice(r, names, INSTR_KIND_COUNT, &kind));
        p->instrs[i].kind = (enum instr_kind)kind;
        TRY(words_int(r, -1, INT32_MAX, &p->instrs[i].arg));
    }
    return OK;
}

static enum status read_stage_head(struct reader *r, const struct program *p,
                                   struct program_stage *s)
{
    TRY(words_start(r, "stage"));
    TRY(words_int(r, 0, INT32_MAX, &s->replica));
    TRY(words_int(r, 0, INT32_MAX, &s->stage));
    TRY(words_int(r, 0, p->n_devices - 1, &s->device));
    TRY(words_int(r, 0, INT32_MAX, &s->first_layer));
    TRY(words_int(r, 0, INT32_MAX, &s->last_layer));
    TRY(words_int(r, 1, p->microbatches, &s->microbatches));
    TRY(words_int(r, 0, p->microbatches, &s->first_microbatch));
    TRY(words_bool(r, &s->recompute));
    TRY(words_bool(r, &s->offloads));
    int32_t *counts[] = {&s->n_slots, &s->n_buffer_rings, &s->n_ops, &s->n_parameters,
                         &s->n_procedures};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) TRY(words_count(r, counts[i]));
    for (int i = 0; i < SLOT_CLASS_COUNT; i++)
        TRY(words_int64(r, 0, INT64_MAX, &s->class_bytes[i]));
    TRY(words_int64(r, 0, INT64_MAX, &s->buffer_bytes));
    return words_int64(r, 0, INT64_MAX, &s->reserve_bytes);
}

static enum status read_stage(struct reader *r, const struct program *p, struct program_stage *s)
{
    TRY(read_stage_head(r, p, s));
    s->slots = ARENA_ARRAY(r->a, struct slot, (size_t)s->n_slots);
    s->buffer_rings = ARENA_ARRAY(r->a, struct buffer_ring, (size_t)s->n_buffer_rings);
    s->ops = ARENA_ARRAY(r->a, struct program_op, (size_t)s->n_ops);
    s->parameters = ARENA_ARRAY(r->a, struct program_parameter, (size_t)s->n_parameters);
    s->procedures = ARENA_ARRAY(r->a, struct procedure, (size_t)s->n_procedures);
    for (int32_t i = 0; i < s->n_slots; i++) TRY(read_slot(r, s, &s->slots[i]));
    for (int32_t i = 0; i < s->n_buffer_rings; i++)
        TRY(read_buffer_ring(r, p, &s->buffer_rings[i]));
    TRY(read_offload(r, s));
    for (int32_t i = 0; i < s->n_ops; i++) TRY(read_op(r, s, &s->ops[i]));
    for (int32_t i = 0; i < s->n_parameters; i++) TRY(read_parameter(r, s, &s->parameters[i]));
    while (words_next_is(r, "flat_shard")) TRY(read_shard(r, s));
    while (words_next_is(r, "local")) TRY(program_read_local(r, s));
    while (words_next_is(r, "within")) TRY(program_read_within(r, s));
    while (words_next_is(r, "of")) TRY(program_read_tensor_shard(r, p, s));
    for (int32_t i = 0; i < s->n_procedures; i++) TRY(read_procedure(r, &s->procedures[i]));
    if (words_next_is(r, "shard")) {
        TRY(words_start(r, "shard"));
        TRY(words_int64(r, 0, p->microbatch - 1, &s->first_sequence));
        TRY(words_int64(r, 1, p->microbatch, &s->sequences));
    }
    if (p->outer.every) {
        TRY(words_start(r, "island"));
        TRY(words_int(r, 0, INT32_MAX, &s->island));
    }
    TRY(program_read_server_stage(r, p, s));
    TRY(program_read_stage_training(r, p, s));
    s->shares_loss = words_next_is(r, "loss");
    if (!s->shares_loss) return OK;
    TRY(words_start(r, "loss"));
    return words_double(r, &s->loss_share);
}

static enum status read_channel(struct reader *r, struct channel *c)
{
    TRY(words_start(r, "channel"));
    int32_t *numbers[] = {&c->from_stage, &c->to_stage, &c->from_slot,
                          &c->to_slot,    &c->link,     &c->direction};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TRY(words_int(r, -1, INT32_MAX, numbers[i]));
    TRY(words_int64(r, 0, INT64_MAX, &c->bytes));
    TRY(words_int(r, 1, PROGRAM_BUFFER_RING_MAX, &c->receive_ahead));
    TRY(words_bool(r, &c->gradient));
    return words_bool(r, &c->by_step);
}

static enum status read_order(struct reader *r, struct order *o)
{
    TRY(words_start(r, "order"));
    TRY(words_count(r, &o->n_runs));
    o->runs = ARENA_ARRAY(r->a, struct order_run, (size_t)o->n_runs);
    for (int32_t i = 0; i < o->n_runs; i++) {
        struct order_run *x = &o->runs[i];
        TRY(words_start(r, "run"));
        TRY(words_int(r, 1, PROGRAM_ITEMS_MAX, &x->repeat));
        TRY(words_count(r, &x->n_calls));
        x->calls = ARENA_ARRAY(r->a, struct call, (size_t)x->n_calls);
        for (int32_t k = 0; k < x->n_calls; k++) {
            TRY(words_int(r, 0, INT32_MAX, &x->calls[k].procedure));
            TRY(words_int(r, -1, PROGRAM_MICROBATCHES_MAX, &x->calls[k].microbatch));
            TRY(words_int(r, 0, INT32_MAX, &x->calls[k].chunk));
        }
        o->n_calls += (int64_t)x->repeat * x->n_calls;
    }
    return OK;
}

#define READ_ALL(section, n, call)                                                                 \
    for (int32_t i = 0; i < (n); i++) {                                                            \
        r->lines[section][i] = r->line + 1;                                                        \
        TRY(call);                                                                                 \
    }

static enum status read_program(struct reader *r, struct program *p)
{
    TRY(read_head(r, p));
    p->devices = ARENA_ARRAY(r->a, struct program_device, (size_t)p->n_devices);
    p->lanes = ARENA_ARRAY(r->a, struct lane, (size_t)p->n_devices);
    p->links = ARENA_ARRAY(r->a, struct program_link, (size_t)p->n_links);
    p->stages = ARENA_ARRAY(r->a, struct program_stage, (size_t)p->n_stages);
    p->channels = ARENA_ARRAY(r->a, struct channel, (size_t)p->n_channels);
    p->collectives = ARENA_ARRAY(r->a, struct collective, (size_t)p->n_collectives);
    p->orders = ARENA_ARRAY(r->a, struct order, (size_t)p->n_orders);
    READ_ALL(SECTION_DEVICE, p->n_devices, read_device(r, p, i));
    READ_ALL(SECTION_LINK, p->n_links, read_link(r, p, i));
    READ_ALL(SECTION_STAGE, p->n_stages, read_stage(r, p, &p->stages[i]));
    READ_ALL(SECTION_CHANNEL, p->n_channels, read_channel(r, &p->channels[i]));
    READ_ALL(SECTION_COLLECTIVE, p->n_collectives, program_read_collective(r, &p->collectives[i]));
    READ_ALL(SECTION_ORDER, p->n_orders, read_order(r, &p->orders[i]));
    TRY(words_start(r, "end"));
    return r->end - r->at == 1 && *r->at == '\n' ? OK : words_broken(r, "nothing may follow 'end'");
}

/* After program_valid: the keys of operators whose shapes are known to be good. */
static void make_keys(struct program *p)
{
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t i = 0; i < p->stages[s].n_ops; i++) {
            struct program_op *op = &p->stages[s].ops[i];
            op->key = op_key(op->kind, &op->attrs, &op->shapes, op->dtype);
        }
}

enum status program_parse(struct arena *a, const char *name, const char *text, size_t n,
                          struct program *out, struct error *err)
{
    struct reader r = {.a = a, .file = name, .at = text, .end = text + n, .err = err};
    struct program_place where;
    struct error why = {0};
    *out = (struct program){0};
    TRY(read_program(&r, out));
    if (program_valid(out, &where, &why) != OK)
        return error_set(err, ERR_INPUT, "%s:%d: %s", name,
                         r.lines[where.section][where.index] + where.item, why.text);
    make_keys(out);
    return OK;
}

enum status program_read(struct arena *a, const char *path, struct program *out, struct error *err)
{
    char *text;
    size_t n;
    TRY(file_read(a, path, FILE_BYTES_MAX, &text, &n, err));
    return program_parse(a, path, text, n, out, err);
}
