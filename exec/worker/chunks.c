#include "exec/worker/chunks.h"

#include "core/program/offload.h"

void chunks_find(struct chunks *c, const struct rank *r)
{
    const struct lane *lane = &r->p->lanes[r->index];
    c->n = lane->n_stages;
    c->at = ARENA_ARRAY(r->run, struct chunk, (size_t)lane->n_stages);
    for (int32_t i = 0; i < lane->n_stages; i++) {
        c->at[i].index = lane->stages[i];
        c->at[i].stage = &r->p->stages[lane->stages[i]];
    }
}

enum status chunks_open_memory(struct chunk *k, struct rank *r, bool staging, struct error *err)
{
    lane_memory_close(&k->memory);
    return lane_memory_open(&k->memory, r->run, r->p, k->index, &r->backend, staging, err);
}

void chunks_close(struct chunks *c)
{
    for (int32_t i = 0; i < c->n; i++) lane_memory_close(&c->at[i].memory);
}

const struct chunk *chunks_of_stage(const struct chunks *c, int32_t stage)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->at[i].index == stage) return &c->at[i];
    return NULL;
}

float *chunks_scale(const struct chunk *k)
{
    return lane_memory_slot(&k->memory, k->stage->scale_slot, 0);
}

/* ---- operators and procedures ----------------------------------------------------------------- */

void chunks_set_optimizer(struct chunks *c, const struct program *p, int32_t device)
{
    const struct optimizer *x = &p->optimizer;
    c->optimizer = (struct optimizer_step){.lr = x->lr,
                                           .beta1 = x->beta1,
                                           .beta2 = x->beta2,
                                           .eps = x->eps,
                                           .weight_decay = x->weight_decay,
                                           .trust = x->trust,
                                           .max_grad_norm = x->max_grad_norm,
                                           .nesterov = x->nesterov,
                                           .device = device,
                                           .outer_lr = p->outer.lr,
                                           .outer_momentum = p->outer.momentum};
}

void chunks_set_step(struct chunks *c, int64_t step) { c->optimizer.step = step; }

/* In half precision some operands are fp32: statistics, gradients, masters. An operator with fp32 operands only has
 * dtype fp32. */
static void prepare_dtypes(const struct program_stage *s, const struct program_op *x,
                           struct op_call *c)
{
    uint32_t wide_input = 0, wide_output = 0;
    enum dtype half = DTYPE_COUNT;
    for (int32_t i = 0; i < x->n_inputs; i++) {
        enum dtype t = s->slots[x->input[i]].dtype;
        if (dtype_is_half(t)) half = t;
        wide_input |= (uint32_t)(t == DTYPE_fp32) << i;
    }
    for (int32_t i = 0; i < x->n_outputs; i++) {
        enum dtype t = s->slots[x->output[i]].dtype;
        if (dtype_is_half(t)) half = t;
        wide_output |= (uint32_t)(t == DTYPE_fp32) << i;
    }
    if (half == DTYPE_COUNT) {
        if (dtype_is_half(c->dtype)) c->dtype = DTYPE_fp32;
        return;
    }
    c->dtype = half, c->wide_input = wide_input, c->wide_output = wide_output;
}

/* The second of the two numbers. */
static const void *clip_factor(const struct rank *r, const struct chunk *k)
{
    return (const char *)lane_memory_slot(&k->memory, k->stage->clip_slot, 0) + dtype_bytes(dtype_master(r->p->dtype));
}

struct prepared_op chunks_op(const struct chunks *c, const struct rank *r, const struct chunk *k,
                             int32_t op)
{
    const struct program_op *x = &k->stage->ops[op];
    struct prepared_op o = {.call = {.kind = x->kind,
                                     .dtype = x->dtype,
                                     .attrs = &x->attrs,
                                     .shapes = &x->shapes,
                                     .optimizer = x->phase == PHASE_U ? &c->optimizer : NULL,
                                     .seed = r->p->seed,
                                     .scale = x->attrs.scaled && r->p->loss_scale.initial > 0
                                                  ? chunks_scale(k)
                                                  : NULL,
                                     .clip = x->attrs.clipped ? clip_factor(r, k) : NULL}};
    prepare_dtypes(k->stage, x, &o.call);
    for (int32_t i = 0; i < x->n_inputs; i++)
        o.input[i] = lane_memory_place(&k->memory, x->input[i]);
    for (int32_t i = 0; i < x->n_outputs; i++)
        o.output[i] = lane_memory_place(&k->memory, x->output[i]);
    return o;
}

static bool reads_input(const struct program_stage *s, const struct program_op *x)
{
    for (int32_t i = 0; i < x->n_inputs; i++)
        if (s->slots[x->input[i]].input >= 0) return true;
    return false;
}

static void prepare_procedure(const struct rank *r, struct chunk *k, int32_t procedure)
{
    const struct program_stage *s = k->stage;
    const struct procedure *f = &s->procedures[procedure];
    struct prepared_procedure *x = &k->procedures[procedure];
    x->rooms = ARENA_ARRAY(r->run, int32_t, (size_t)s->n_buffer_rings + 1);
    x->receives = ARENA_ARRAY(r->run, int32_t, (size_t)f->n_instrs + 1);
    x->offloads = offload_has(f, INSTR_OFFLOAD), x->consumes = offload_consumes(f);
    for (int32_t i = 0; i < s->n_buffer_rings; i++)
        if (s->buffer_rings[i].sent >= 0 && procedure_writes_buffer_ring(s, f, i))
            x->rooms[x->n_rooms++] = i;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind == INSTR_RECEIVE) x->receives[x->n_receives++] = f->instrs[i].arg;
        if (f->instrs[i].kind == INSTR_COMPUTE && reads_input(s, &s->ops[f->instrs[i].arg]))
            x->reads_inputs = true;
    }
}

void chunks_prepare(struct chunks *c, const struct rank *r)
{
    for (int32_t i = 0; i < c->n; i++) {
        struct chunk *k = &c->at[i];
        const struct program_stage *s = k->stage;
        k->ops = ARENA_ARRAY(r->run, struct prepared_op, (size_t)s->n_ops + 1);
        k->procedures = ARENA_ARRAY(r->run, struct prepared_procedure, (size_t)s->n_procedures + 1);
        for (int32_t x = 0; x < s->n_ops; x++) k->ops[x] = chunks_op(c, r, k, x);
        for (int32_t x = 0; x < s->n_procedures; x++) prepare_procedure(r, k, x);
    }
}
