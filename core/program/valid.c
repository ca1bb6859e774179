/* core/program/valid.c - static validation of a program: indices, sizes, shapes and links, once, in the order of the file, so that
 * interpreters need no checks. Dynamic errors (deadlock, overwritten buffers) are found by the token game.
 */
#include "core/program/valid.h"

#include "core/cluster/cluster.h"
#include "core/collective/tensor_shard.h"
#include "core/program/ahead.h"
#include "core/program/offload.h"

#include <inttypes.h>
#include <string.h>

/* bytes of a shape; -1: invalid or too large */
static int64_t shape_bytes(const struct shape *s, enum dtype t)
{
    if (s->rank < 0 || s->rank > SHAPE_RANK_MAX) return -1;
    int64_t bytes = dtype_bytes(t);
    for (int32_t i = 0; i < s->rank; i++)
        if (s->dim[i] < 0 || __builtin_mul_overflow(bytes, s->dim[i], &bytes)) return -1;
    return bytes;
}

static enum status check_slot(const struct valid *c, const struct slot *x)
{
    NEED(valid_index(x->dtype, DTYPE_COUNT) && valid_index(x->class, SLOT_CLASS_COUNT),
         "slot of unknown class or dtype");
    NEED((x->class == SLOT_BUFFER_RING) == (x->buffer_ring >= 0) &&
             valid_index_or_none(x->buffer_ring, c->s->n_buffer_rings),
         "slot %s: no buffer ring %" PRId32, x->name, x->buffer_ring);
    int64_t region = x->class == SLOT_BUFFER_RING ? c->s->buffer_rings[x->buffer_ring].stride_bytes
                                                  : c->s->class_bytes[x->class];
    NEED(x->bytes == shape_bytes(&x->shape, x->dtype),
         "slot %s: %" PRId64 " bytes do not fit its shape", x->name, x->bytes);
    int64_t offset = program_slot_offset(c->s, x);
    NEED(offset >= 0 && offset % VALID_ALIGN_BYTES == 0 && offset <= region &&
             x->bytes <= region - offset,
         "slot %s: %" PRId64 " bytes at %" PRId64 " are outside of its region of %" PRId64, x->name,
         x->bytes, offset, region);
    NEED(!x->shard || tensor_shard_valid(&x->shape, x->shard), "slot %s: not a shard of a tensor",
         x->name);
    NEED(valid_index_or_none(x->parameter, c->s->n_parameters), "slot %s: no parameter %" PRId32,
         x->name, x->parameter);
    NEED(valid_index_or_none(x->input, INPUT_COUNT), "slot %s: no input %" PRId32, x->name,
         x->input);
    if (x->input < 0) return OK;
    bool pixels = x->input == INPUT_PIXELS;
    struct shape whole = tensor_shard_whole(&x->shape, x->shard);
    NEED(x->class == SLOT_BUFFER_RING && x->dtype == (pixels ? c->p->dtype : DTYPE_int32),
         "slot %s: an input is %s in a buffer ring", x->name,
         pixels ? "of the program's dtype" : "int32");
    NEED(!graph_input_is_of_images(x->input) || (c->p->pixels > 0 && x->shape.rank > 0),
         "slot %s: the program has no images", x->name);
    NEED(!graph_input_is_of_images(x->input) ||
             shape_elements(&whole) == whole.dim[0] * (pixels ? c->p->pixels : 1),
         "slot %s: not of the program's images", x->name);
    return OK;
}

static enum status check_buffer_ring(const struct valid *c, int32_t index, int64_t *bytes,
                                     int64_t *buffers)
{
    const struct buffer_ring *r = &c->s->buffer_rings[index];
    int64_t size;
    NEED(r->count >= 1 && (*buffers += r->count) <= PROGRAM_BUFFER_RING_MAX,
         "buffer ring %" PRId32 ": %" PRId32 " buffers", index, r->count);
    NEED(r->stride_bytes >= 0 && r->stride_bytes % VALID_ALIGN_BYTES == 0 &&
             !__builtin_mul_overflow(r->stride_bytes, r->count, &size) &&
             !__builtin_add_overflow(*bytes, size, bytes),
         "buffer ring %" PRId32 ": %" PRId64 " bytes", index, r->stride_bytes);
    NEED(r->birth && strchr("RFBIWH", r->birth) && r->death && strchr("FBIWSUH", r->death) &&
             (r->birth == PHASE_HOST) == (r->death == PHASE_HOST),
         "buffer ring %" PRId32 ": lives from '%c' to '%c'", index, r->birth, r->death);
    NEED(r->birth != PHASE_HOST || (c->s->offload.count && (index == c->s->offload.out || index == c->s->offload.in)),
         "buffer ring %" PRId32 ": H means a ring of the stage's offload", index);
    NEED(valid_index_or_none(r->sent, c->p->n_channels) &&
             valid_index_or_none(r->received, c->p->n_channels),
         "buffer ring %" PRId32 ": no such channel", index);
    NEED((r->birth == PHASE_RECEIVE) == (r->received >= 0) &&
             (r->birth != PHASE_RECEIVE || r->sent < 0),
         "buffer ring %" PRId32 ": R means a received channel", index);
    NEED(r->death != PHASE_SEND || r->sent >= 0, "buffer ring %" PRId32 ": S means a sent channel",
         index);
    const struct channel *sent = r->sent >= 0 ? &c->p->channels[r->sent] : NULL,
                         *received = r->received >= 0 ? &c->p->channels[r->received] : NULL;
    NEED(!sent ||
             (sent->from_stage == c->where.index && valid_index(sent->from_slot, c->s->n_slots) &&
              c->s->slots[sent->from_slot].buffer_ring == index),
         "buffer ring %" PRId32 ": does not hold the source of channel %" PRId32, index, r->sent);
    NEED(!received || (received->to_stage == c->where.index &&
                       valid_index(received->to_slot, c->s->n_slots) &&
                       c->s->slots[received->to_slot].buffer_ring == index),
         "buffer ring %" PRId32 ": does not hold the destination of channel %" PRId32, index,
         r->received);
    return OK;
}

/* Half precision operators may have fp32 operands: gradients and updates. */
static bool fits(const struct valid *c, enum dtype slot, enum dtype op)
{
    return slot == op ||
           (dtype_is_half(c->p->dtype) && (slot == c->p->dtype || slot == DTYPE_fp32));
}

/* Output slots must have the shapes that the kind infers from its input slots. */
static enum status check_op(const struct valid *c, const struct program_op *op)
{
    NEED(valid_index(op->kind, OP_KIND_COUNT) && phase_is_valid(op->phase) &&
             op->phase != PHASE_B && valid_index(op->dtype, DTYPE_COUNT) &&
             op->dtype != DTYPE_int32,
         "operator %s: unknown kind, phase or dtype", op->name);
    NEED(valid_index(op->n_inputs, OP_OPERANDS_MAX + 1) && valid_index(op->n_outputs, OP_OPERANDS_MAX + 1),
         "operator %s: too many operands", op->name);
    struct op_shapes shapes = {.n_inputs = op->n_inputs, .n_outputs = op->n_outputs};
    for (int32_t i = 0; i < op->n_inputs; i++) {
        NEED(valid_index(op->input[i], c->s->n_slots), "operator %s: no slot %" PRId32, op->name, op->input[i]);
        const struct slot *x = &c->s->slots[op->input[i]];
        NEED(op_input_is_int32(op->kind, i) ? x->dtype == DTYPE_int32
                                            : fits(c, x->dtype, op->dtype),
             "operator %s: input %s is %s", op->name, x->name, dtype_name(x->dtype));
        shapes.input[i] = x->shape;
    }
    for (int32_t i = 0; i < op->n_outputs; i++) {
        NEED(valid_index(op->output[i], c->s->n_slots), "operator %s: no slot %" PRId32, op->name, op->output[i]);
        NEED(op_output_is_int32(op->kind, i) ? c->s->slots[op->output[i]].dtype == DTYPE_int32
                                             : fits(c, c->s->slots[op->output[i]].dtype, op->dtype),
             "operator %s: output %s is %s", op->name, c->s->slots[op->output[i]].name,
             dtype_name(c->s->slots[op->output[i]].dtype));
        shapes.output[i] = c->s->slots[op->output[i]].shape;
    }
    NEED(!op_is_group(op->kind), "operator %s: a collective cannot be an operator of one device",
         op->name);
    const struct encoding *k = &op->attrs.code;
    NEED((op->kind != OP_encode && op->kind != OP_decode) || k->value_words * 4 == dtype_bytes(dtype_master(op->dtype)),
         "operator %s: values of %" PRId32 " words", op->name, k->value_words);
    const struct exchange *e = op->attrs.exchange;
    NEED((op->kind != OP_local_slice && op->kind != OP_add_to_slice) ||
             (e && e->shards && valid_index(e->dim, op->n_inputs ? shapes.input[0].rank : 0) &&
              valid_index(e->self, e->n)),
         "operator %s: its shard is not stated", op->name);
    struct error why = {0};
    if (op_infer(op->kind, &op->attrs, &shapes, &why) != OK)
        return valid_complain(c, "operator %s: %s", op->name, why.text);
    NEED(shapes.n_outputs == op->n_outputs, "operator %s: %" PRId32 " outputs", op->name,
         op->n_outputs);
    for (int32_t i = 0; i < op->n_outputs; i++)
        NEED(shape_equal(&shapes.output[i], &c->s->slots[op->output[i]].shape),
             "operator %s: output %" PRId32 " has another shape", op->name, i);
    return OK;
}

/* Whether the operator has a record of its own after the parameters. */
static bool op_is_local(const struct program_op *op)
{
    const struct op_attrs *a = &op->attrs;
    return op->kind != OP_slice && op->kind != OP_paste &&
           (a->start || a->whole || a->mean_rows || a->exchange);
}

static bool op_is_within(const struct program_op *op)
{
    return op->attrs.lines.of || op->attrs.columns.of;
}

/* Half precision needs a master, other precisions have none. */
static bool is_master(const struct valid *c, int32_t slot, int32_t master,
                      const struct shape *shape)
{
    if (!dtype_is_half(c->s->slots[slot].dtype)) return master == -1;
    return valid_slot(c, master, SLOT_STATE, shape) && c->s->slots[master].dtype == DTYPE_fp32;
}

static enum status check_parameter(const struct valid *c, const struct program_parameter *x)
{
    const struct program_shard *shard = x->shard;
    NEED(valid_index(x->init, INIT_NORMAL + 1) &&
             ((shard && x->slot == -1) || valid_slot(c, x->slot, SLOT_PARAMETER, &x->shape)),
         "parameter %s: no such slot or init", x->name);
    if (shard) {
        NEED(valid_index(shard->slot, c->s->n_slots) && c->s->slots[shard->slot].shape.rank == 1 &&
                 valid_slot(c, shard->slot, SLOT_PARAMETER, &c->s->slots[shard->slot].shape),
             "parameter %s: no such shard", x->name);
        for (int i = 0; i < 2; i++)
            NEED(shard->state[i] == -1 ||
                     valid_slot(c, shard->state[i], SLOT_STATE, &c->s->slots[shard->slot].shape),
                 "parameter %s: no such state of its shard", x->name);
        NEED(is_master(c, shard->slot, shard->master, &c->s->slots[shard->slot].shape),
             "parameter %s: no such master of its shard", x->name);
        for (int i = 0; i < PROGRAM_OUTER_SLOTS; i++)
            NEED(!shard->outer[i] || (c->p->outer.every && valid_slot(c, shard->outer[i] - 1, SLOT_STATE, &c->s->slots[shard->slot].shape)),
                 "parameter %s: no such anchor, velocity or sum of its shard", x->name);
    }
    for (int i = 0; i < 2; i++)
        NEED((x->gradient[i] == -1 || valid_slot(c, x->gradient[i], SLOT_GRADIENT, &x->shape)) &&
                 (x->state[i] == -1 || valid_slot(c, x->state[i], SLOT_STATE, &x->shape)),
             "parameter %s: no such gradient or state", x->name);
    for (int i = 0; i < PROGRAM_OUTER_SLOTS; i++)
        NEED(!x->outer[i] || (c->p->outer.every && valid_slot(c, x->outer[i] - 1, SLOT_STATE, &x->shape)),
             "parameter %s: no such anchor, velocity or sum", x->name);
    NEED(!x->previous || valid_slot(c, x->previous - 1, SLOT_PARAMETER, &x->shape), "parameter %s: no such previous version", x->name);
    NEED(!x->fragment || x->fragment < c->p->outer.fragments, "parameter %s: no such fragment", x->name);
    for (int i = 0; i < FEEDBACK_SLOTS; i++)
        NEED(!x->feedback[i] || valid_index(x->feedback[i] - 1, c->s->n_slots), "parameter %s: no such feedback", x->name);
    NEED(shard ? x->master == -1 : is_master(c, x->slot, x->master, &x->shape),
         "parameter %s: no such master", x->name);
    return OK;
}

/* A device may launch and await collectives of any of its stages. */
static bool is_member(const struct program *p, const struct collective *g, int32_t device)
{
    for (int32_t i = 0; i < g->n_members; i++)
        if (valid_index(g->members[i].stage, p->n_stages) &&
            p->stages[g->members[i].stage].device == device)
            return true;
    return false;
}

/* A collective of a tensor belongs to the stage of its slots. */
static bool is_participant(const struct collective *g, int32_t stage)
{
    for (int32_t i = 0; i < g->n_members; i++)
        if (g->members[i].stage == stage) return true;
    return false;
}

static enum status check_instr(const struct valid *c, const struct instr *x)
{
    const struct program *p = c->p;
    static const char *const names[] = {
#define X(name) #name,
        INSTR_KINDS(X)
#undef X
    };
    NEED(valid_index(x->kind, INSTR_KIND_COUNT), "unknown instruction");
    bool good = false;
    switch (x->kind) {
    case INSTR_COMPUTE:
        good = valid_index(x->arg, c->s->n_ops);
        break;
    case INSTR_RECEIVE:
        good = valid_index(x->arg, p->n_channels) && p->channels[x->arg].to_stage == c->where.index;
        break;
    case INSTR_SEND:
        good =
            valid_index(x->arg, p->n_channels) && p->channels[x->arg].from_stage == c->where.index;
        break;
    case INSTR_COLLECTIVE_START:
    case INSTR_COLLECTIVE_WAIT:
        good = valid_index(x->arg, p->n_collectives) && !p->collectives[x->arg].each_call &&
               is_member(p, &p->collectives[x->arg], c->s->device);
        break;
    case INSTR_LOAD:
        good = x->arg == -1;
        break;
    case INSTR_OFFLOAD:
    case INSTR_FETCH:
        good = c->s->offload.count && valid_index(x->arg, offload_parts(c->s));
        break;
    case INSTR_LOSS:
        good =
            valid_index(x->arg, c->s->n_slots) && shape_elements(&c->s->slots[x->arg].shape) == 1;
        break;
    case INSTR_COLLECTIVE: /* without a collective: simulated only */
        good = valid_index(x->arg, p->n_collectives) &&
               collective_of_tensor(&p->collectives[x->arg]) &&
               is_participant(&p->collectives[x->arg], c->where.index);
        break;
    case INSTR_KIND_COUNT:
        break;
    }
    NEED(good, "%s %" PRId32 ": not this stage's", names[x->kind], x->arg);
    return OK;
}

static enum status check_procedure(const struct valid *c, const struct procedure *x)
{
    NEED(x->phase && strchr("FBIWU", x->phase), "procedure '%c'", x->phase);
    NEED(!ahead_steps(x) || (program_procedure(c->s, PHASE_F, "") >= 0 && !x->period), "procedure F %s: there is no plain F", x->variant);
    for (int32_t i = 0; i < x->n_instrs; i++) {
        TRY(check_instr(c, &x->instrs[i]));
        enum instr_kind k = x->instrs[i].kind;
        NEED(!ahead_steps(x) || (k != INSTR_COLLECTIVE && k != INSTR_COLLECTIVE_START && k != INSTR_COLLECTIVE_WAIT),
             "procedure F %s: a collective", x->variant);
    }
    return OK;
}

static enum status check_regions(const struct valid *c, int64_t buffer_ring_bytes)
{
    int64_t sum = c->s->buffer_bytes;
    NEED(sum >= 0 && c->s->reserve_bytes >= 0 &&
             !__builtin_add_overflow(sum, c->s->reserve_bytes, &sum),
         "negative bytes");
    for (int i = 0; i < SLOT_CLASS_COUNT; i++)
        NEED(c->s->class_bytes[i] >= 0 && !__builtin_add_overflow(sum, c->s->class_bytes[i], &sum),
             "regions of impossible size");
    NEED(c->s->class_bytes[SLOT_BUFFER_RING] == buffer_ring_bytes,
         "buffer rings need %" PRId64 " bytes, the region has %" PRId64, buffer_ring_bytes,
         c->s->class_bytes[SLOT_BUFFER_RING]);
    return OK;
}

static enum status check_stage(struct valid *c, int32_t index, int64_t *buffers)
{
    const struct program_stage *s = c->s = &c->p->stages[index];
    c->where = (struct program_place){SECTION_STAGE, index, 0};
    NEED(valid_index(s->device, c->p->n_devices), "stage %" PRId32 ": no device %" PRId32, index,
         s->device);
    NEED(s->replica >= 0 && s->stage >= 0 && s->first_layer >= 0 && s->last_layer >= s->first_layer,
         "stage %" PRId32 ": bad numbers", index);
    NEED(s->microbatches >= 1 && s->first_microbatch >= 0 &&
             s->first_microbatch <= c->p->microbatches - s->microbatches,
         "stage %" PRId32 ": %" PRId32 " microbatches from %" PRId32, index, s->microbatches,
         s->first_microbatch);
    NEED(s->sequences >= 0 && s->first_sequence >= 0 &&
             s->first_sequence <= c->p->microbatch - s->sequences,
         "stage %" PRId32 ": sequences out of range", index);
    int64_t buffer_ring_bytes = 0;
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        c->where.item = 1 + s->n_slots + i;
        TRY(check_buffer_ring(c, i, &buffer_ring_bytes, buffers));
    }
    c->where.item = 0;
    TRY(valid_offload(c));
    TRY(check_regions(c, buffer_ring_bytes));
    int32_t at = 0; /* lines after the stage's own */
    TRY(valid_stage_training(c));
#define CHECK_EACH(n, call)                                                                        \
    for (int32_t i = 0; i < (n); i++) {                                                            \
        c->where.item = ++at;                                                                      \
        TRY(call);                                                                                 \
    }
    CHECK_EACH(s->n_slots, check_slot(c, &s->slots[i]));
    at += s->n_buffer_rings + (s->offload.count > 0);
    CHECK_EACH(s->n_ops, check_op(c, &s->ops[i]));
    CHECK_EACH(s->n_parameters, check_parameter(c, &s->parameters[i]));
    for (int32_t i = 0; i < s->n_parameters; i++) at += s->parameters[i].shard != NULL;
    for (int32_t i = 0; i < s->n_ops; i++) at += op_is_local(&s->ops[i]) + op_is_within(&s->ops[i]);
    for (int32_t i = 0; i < s->n_slots; i++) at += s->slots[i].shard != NULL;
    CHECK_EACH(s->n_procedures, check_procedure(c, &s->procedures[i]));
#undef CHECK_EACH
    return OK;
}

/* Indices of channels, checked before their use. */
static enum status check_channel(struct valid *c, int32_t index, int64_t *messages)
{
    const struct channel *x = &c->p->channels[index];
    c->where = (struct program_place){SECTION_CHANNEL, index, 0};
    NEED(valid_index(x->from_stage, c->p->n_stages) && valid_index(x->to_stage, c->p->n_stages) &&
             x->from_stage != x->to_stage,
         "channel %" PRId32 ": no such stage", index);
    const struct program_stage *from = &c->p->stages[x->from_stage],
                               *to = &c->p->stages[x->to_stage];
    NEED(valid_index(x->from_slot, from->n_slots) && valid_index(x->to_slot, to->n_slots),
         "channel %" PRId32 ": no such slot", index);
    const struct slot *a = &from->slots[x->from_slot], *b = &to->slots[x->to_slot];
    if (x->by_step) TRY(valid_server_channel(c, index));
    NEED(x->by_step || (valid_index(a->buffer_ring, from->n_buffer_rings) && from->buffer_rings[a->buffer_ring].sent == index),
         "channel %" PRId32 ": its source is in no buffer ring that sends it", index);
    NEED(x->by_step || (valid_index(b->buffer_ring, to->n_buffer_rings) && to->buffer_rings[b->buffer_ring].received == index),
         "channel %" PRId32 ": its destination is in no buffer ring that receives it", index);
    NEED((a->bytes > b->bytes ? a->bytes : b->bytes) == x->bytes &&
             a->bytes == b->bytes,
         "channel %" PRId32 ": sizes differ", index);
    NEED(valid_index_or_none(x->link, c->p->n_links) && valid_index(x->direction, 2),
         "channel %" PRId32 ": no such link", index);
    NEED(x->receive_ahead >= 1, "channel %" PRId32 ": receive_ahead %" PRId32, index,
         x->receive_ahead);
    NEED((*messages += program_channel_messages(c->p, x)) <= 1 << 25,
         "channel %" PRId32 ": too many messages a step to check", index);
    NEED(x->by_step || from->microbatches == to->microbatches,
         "channel %" PRId32 ": its ends differ in microbatches", index);
    NEED(from->device == to->device ? x->link < 0
                                    : x->link >= 0 || program_stage_carries(to, x->to_slot),
         "channel %" PRId32 ": needs a link between devices, and none within one", index);
    return OK;
}

static enum status check_link(struct valid *c, int32_t index)
{
    const struct program *p = c->p;
    const struct program_link *k = &p->links[index];
    c->where = (struct program_place){SECTION_LINK, index, 0};
    NEED(k->bandwidth_Bps >= 0 && k->latency_s >= 0 && valid_index(k->sharing, LINK_FLUID + 1) &&
             !(k->emulated && k->sharing == LINK_FLUID),
         "link %s: out of range", k->name);
    NEED(k->n_hops == 0 || (k->n_hops > 1 && !k->paired), "route %s: of %" PRId32 " links", k->name,
         k->n_hops);
    for (int32_t i = 0; i < k->n_hops; i++)
        NEED(valid_index(k->hop[i], p->n_links) && !p->links[k->hop[i]].n_hops &&
                 valid_index(k->hop_direction[i], 2),
             "route %s: hop %" PRId32 " is not a plain link", k->name, i);
    return OK;
}

/* A lane's calls, without expanding runs. */
static enum status check_lane(struct valid *c, int32_t device)
{
    const struct lane *l = &c->p->lanes[device];
    const struct order *o = &c->p->orders[l->order];
    int64_t microbatches = 0, procedures = 0;
    for (int32_t i = 0; i < l->n_stages; i++)
        microbatches += c->p->stages[l->stages[i]].microbatches, procedures += c->p->stages[l->stages[i]].n_procedures;
    c->where = (struct program_place){SECTION_ORDER, l->order, 0};
    NEED(o->n_calls <= 8 * microbatches + procedures,
         "order %" PRId32 ": more calls than %" PRId64 " microbatches can have", l->order,
         microbatches);
    for (int32_t i = 0; i < o->n_runs; i++)
        for (int32_t k = 0; k < o->runs[i].n_calls; k++) {
            const struct call *x = &o->runs[i].calls[k];
            c->where.item = 1 + i;
            NEED(valid_index(x->chunk, l->n_stages), "device %s has no chunk %" PRId32,
                 c->p->devices[device].name, x->chunk);
            const struct program_stage *s = program_called(c->p, device, x);
            NEED(valid_index(x->procedure, s->n_procedures), "no procedure %" PRId32, x->procedure);
            bool update = s->procedures[x->procedure].phase == PHASE_U;
            int64_t last = (int64_t)x->microbatch + o->runs[i].repeat - 1;
            NEED(update ? x->microbatch == -1 && o->runs[i].repeat == 1
                        : x->microbatch >= 0 && last < s->microbatches,
                 "%c of microbatch %" PRId32 ": this stage has %" PRId32,
                 s->procedures[x->procedure].phase, x->microbatch, s->microbatches);
        }
    return OK;
}

static enum status check_order(struct valid *c, int32_t index)
{
    const struct order *o = &c->p->orders[index];
    int64_t calls = 0;
    for (int32_t i = 0; i < o->n_runs; i++) {
        c->where = (struct program_place){SECTION_ORDER, index, 1 + i};
        NEED(o->runs[i].repeat >= 1 && o->runs[i].n_calls >= 0,
             "run of %" PRId32 " calls, %" PRId32 " times", o->runs[i].n_calls, o->runs[i].repeat);
        calls += (int64_t)o->runs[i].repeat * o->runs[i].n_calls;
        NEED(calls <= PROGRAM_ITEMS_MAX, "order %" PRId32 ": too long", index);
    }
    c->where.item = 0;
    NEED(calls == o->n_calls, "order %" PRId32 ": %" PRId64 " calls, not %" PRId64, index, calls,
         o->n_calls);
    return OK;
}

/* Together with the count of all lanes' stages: every stage is in exactly one lane. */
static enum status check_stages_of(const struct valid *c, int32_t device)
{
    const struct lane *l = &c->p->lanes[device];
    bool good = l->n_stages >= 1 && valid_index(l->order, c->p->n_orders);
    for (int32_t i = 0; good && i < l->n_stages; i++)
        good = valid_index(l->stages[i], c->p->n_stages) &&
               c->p->stages[l->stages[i]].device == device &&
               (!i || l->stages[i - 1] < l->stages[i]);
    NEED(good, "device %s: its lane has no order, or its stages are not its device's in ascending order",
         c->p->devices[device].name);
    return OK;
}

static enum status check_all(struct valid *c)
{
    const struct program *p = c->p;
    int64_t stages = 0;
    for (int32_t i = 0; i < p->n_devices; i++) stages += p->lanes[i].n_stages;
    NEED(p->steps >= 1 && p->microbatches >= 1 && p->microbatches <= PROGRAM_MICROBATCHES_MAX &&
             stages == p->n_stages,
         "steps, microbatches, devices or stages out of range");
    NEED(valid_index(p->dtype, DTYPE_COUNT) && p->dtype != DTYPE_int32 && p->microbatch >= 1 &&
             p->sequence_length >= 1,
         "sizes out of range");
    TRY(valid_training(c));
    for (int32_t i = 0; i < p->n_devices; i++) {
        c->where = (struct program_place){SECTION_DEVICE, i, 0};
        NEED(p->devices[i].slowdown >= 0 && p->devices[i].memory_bytes >= 0, "device %s: negative",
             p->devices[i].name);
        TRY(check_stages_of(c, i));
    }
    for (int32_t i = 0; i < p->n_links; i++) TRY(check_link(c, i));
    int64_t buffers = 0, messages = 0;
    for (int32_t i = 0; i < p->n_channels; i++) TRY(check_channel(c, i, &messages));
    for (int32_t i = 0; i < p->n_stages; i++) TRY(check_stage(c, i, &buffers));
    for (int32_t i = 0; i < p->n_collectives; i++) TRY(valid_collective(c, i));
    for (int32_t i = 0; i < p->n_orders; i++) TRY(check_order(c, i));
    for (int32_t i = 0; i < p->n_devices; i++) TRY(check_lane(c, i));
    return valid_servers(c);
}

enum status program_valid(const struct program *p, struct program_place *where, struct error *err)
{
    struct valid c = {.p = p, .err = err};
    enum status status = check_all(&c);
    if (where) *where = c.where;
    return status;
}
