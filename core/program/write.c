/* core/program/write.c - writes a program as lines of words.
 *
 * One record a line: a keyword, numbers, names. Counts precede their items.
 * A name is a word in which spaces, percent signs and control bytes are written %XX; the
 * empty name is a single percent sign. Doubles have 17 digits, which restore every bit. Derived
 * values are omitted: bytes of slots, shapes and keys of operators.
 * program_parse (core/program/io.c) reads the same records in the same order.
 */
#include "core/program/program.h"

#include <inttypes.h>

static void put_name(FILE *out, const char *name)
{
    fputc(' ', out);
    if (!*name) fputc('%', out);
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c <= ' ' || *c == '%' || *c == 0x7f)
            fprintf(out, "%%%02X", *c);
        else
            fputc(*c, out);
}

static void put(FILE *out, int64_t x) { fprintf(out, " %" PRId64, x); }
static void put_double(FILE *out, double x) { fprintf(out, " %.17g", x); }

static void put_list(FILE *out, const int32_t *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) put(out, x[i]);
}

static void put_shape(FILE *out, const struct shape *s)
{
    put(out, s->rank);
    for (int32_t i = 0; i < s->rank; i++) put(out, s->dim[i]);
}

static void write_head(FILE *out, const struct program *p)
{
    fprintf(out, "musher-program %d\nprogram", PROGRAM_VERSION);
    put_name(out, p->name);
    fprintf(out, " %016" PRIx64 " %" PRIu64 " %s %d %d", p->plan_hash, p->seed,
            dtype_name(p->dtype), p->emulated, p->deterministic);
    put(out, p->steps), put(out, p->microbatch), put(out, p->sequence_length),
        put(out, p->vocabulary), put(out, p->microbatches);
    if (p->pixels) fprintf(out, "\nimages %" PRId64, p->pixels);
    if (p->loss_scale.initial > 0) {
        fprintf(out, "\nloss_scale");
        put_double(out, p->loss_scale.initial), put(out, p->loss_scale.grows_after);
    }
    const struct optimizer *o = &p->optimizer;
    fprintf(out, "\noptimizer %s", o->kind == OPTIMIZER_ADAMW ? "adamw" : "sgd");
    put_double(out, o->lr), put_double(out, o->beta1), put_double(out, o->beta2),
        put_double(out, o->eps), put_double(out, o->weight_decay);
    fprintf(out, "\ncounts");
    put(out, p->n_devices), put(out, p->n_links), put(out, p->n_stages), put(out, p->n_channels),
        put(out, p->n_collectives), put(out, p->n_orders);
    fputc('\n', out);
}

static void write_devices(FILE *out, const struct program *p)
{
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct program_device *d = &p->devices[i];
        fprintf(out, "device");
        put_name(out, d->name), put_name(out, d->type), put_name(out, d->host),
            put_name(out, d->kind), put_name(out, d->gpu ? d->gpu : "");
        put(out, d->index), put(out, d->type_index), put_double(out, d->slowdown),
            put(out, d->memory_bytes), put(out, d->multiprocessors);
        put(out, p->lanes[i].order), put(out, p->lanes[i].n_stages),
            put_list(out, p->lanes[i].stages, p->lanes[i].n_stages);
        fputc('\n', out);
    }
    for (int32_t i = 0; i < p->n_links; i++) {
        const struct program_link *k = &p->links[i];
        if (k->n_hops) {
            fprintf(out, "route");
            put_name(out, k->name), put(out, k->n_hops);
            put_list(out, k->hop, k->n_hops), put_list(out, k->hop_direction, k->n_hops);
            put(out, k->max_ctas), put_name(out, k->net_name ? k->net_name : "");
            fputc('\n', out);
            continue;
        }
        fprintf(out, k->paired ? "pair" : "link");
        if (k->paired) put(out, k->of), put(out, k->type[0]), put(out, k->type[1]);
        put_name(out, k->name), put_double(out, k->bandwidth_Bps), put_double(out, k->latency_s);
        put(out, k->half_duplex), put(out, k->emulated), put(out, k->sharing);
        put_double(out, k->compute_slowdown);
        put(out, k->max_ctas), put_name(out, k->net_name ? k->net_name : "");
        fputc('\n', out);
    }
}

/* Attributes of image kinds; a flag marks their presence, so that other operators have shorter records. */
static bool has_shape_attrs(const struct op_attrs *a)
{
    const struct stencil *k = &a->stencil;
    for (int i = 0; i < 2; i++)
        if (k->kernel[i] || k->stride[i] || k->padding[i] || k->size[i]) return true;
    return a->dim || a->dims || a->blank || a->flat || a->groups;
}

static void write_shape_attrs(FILE *out, const struct op_attrs *a)
{
    const struct stencil *k = &a->stencil;
    put(out, a->dim), put(out, a->dims), put(out, a->blank), put(out, a->flat), put(out, a->groups);
    put_list(out, k->kernel, 2), put_list(out, k->stride, 2), put_list(out, k->padding, 2),
        put_list(out, k->size, 2);
}

static void write_op(FILE *out, const struct program_op *op)
{
    const struct op_attrs *a = &op->attrs;
    fprintf(out, "op");
    put_name(out, op->name);
    fprintf(out, " %s %c %s", op_kind_name(op->kind), op->phase, dtype_name(op->dtype));
    put(out, op->layer);
    put(out, a->trans_a | a->trans_b << 1 | a->accumulate << 2 | a->gelu_erf << 3 |
                 a->inverse << 4 | a->decay << 5 | a->bidirectional << 6 | has_shape_attrs(a) << 7 |
                 a->narrows << 8 | a->scaled << 9);
    put(out, a->heads), put(out, a->kv_heads), put(out, a->head_dim), put(out, a->window),
        put(out, a->vocabulary);
    put_double(out, a->eps), put_double(out, a->theta), put_double(out, a->rope.factor),
        put_double(out, a->rope.low_freq_factor);
    put_double(out, a->rope.high_freq_factor), put_double(out, a->rope.original_max_position),
        put_double(out, a->scale);
    if (op_is_measured(op->kind))
        put(out, a->row), put(out, a->sequences), put(out, a->out), put(out, a->kept),
            put(out, a->first), put(out, a->link);
    if (op->kind == OP_slice || op->kind == OP_paste) put(out, a->start), put(out, a->sequences);
    if (op->kind == OP_rescale) put(out, a->grows_after);
    if (op->kind == OP_dropout) put(out, a->stream), put_double(out, a->rate);
    if (op->kind == OP_cross_entropy || op->kind == OP_cross_entropy_grad ||
        op->kind == OP_cross_entropy_shard || op->kind == OP_cross_entropy_join)
        put(out, a->counted);
    if (op_is_routed(op->kind))
        put(out, a->chosen), put(out, a->experts), put(out, a->capacity), put(out, a->weighted),
            put(out, a->renormalise);
    if (has_shape_attrs(a)) write_shape_attrs(out, a);
    put(out, op->n_inputs), put_list(out, op->input, op->n_inputs);
    put(out, op->n_outputs), put_list(out, op->output, op->n_outputs);
    fputc('\n', out);
}

static void write_procedure(FILE *out, const struct procedure *p)
{
    static const char *const names[] = {
#define X(name) #name,
        INSTR_KINDS(X)
#undef X
    };
    fprintf(out, "procedure %c", p->phase);
    put_name(out, p->variant), put(out, p->n_instrs);
    for (int32_t i = 0; i < p->n_instrs; i++)
        fprintf(out, " %s %" PRId32, names[p->instrs[i].kind], p->instrs[i].arg);
    fputc('\n', out);
}

static void write_memory(FILE *out, const struct program_stage *s)
{
    static const char *const classes[] = {"parameter", "gradient", "state", "buffer_ring",
                                          "scratch"};
    for (int32_t i = 0; i < s->n_slots; i++) {
        const struct slot *x = &s->slots[i];
        fprintf(out, "slot");
        put_name(out, x->name);
        fprintf(out, " %s %s", classes[x->class], dtype_name(x->dtype));
        put(out, x->buffer_ring), put(out, program_slot_offset(s, x)), put(out, x->parameter),
            put(out, x->input), put_shape(out, &x->shape);
        fputc('\n', out);
    }
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        fprintf(out, "buffer_ring %c %c", r->birth, r->death);
        put(out, r->count), put(out, r->stride_bytes), put(out, r->sent), put(out, r->received);
        fputc('\n', out);
    }
}

/* After all parameters, and only if there are any. */
static void write_shards(FILE *out, const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_shard *x = s->parameters[i].shard;
        if (!x) continue;
        fprintf(out, "flat_shard");
        put(out, i), put(out, x->slot), put_list(out, x->state, 2), put(out, x->master),
            put(out, program_shard_first(s, x));
        fputc('\n', out);
    }
}

static void write_runs(FILE *out, const struct run *run, int32_t n)
{
    for (int32_t i = 0; i < n; i++) put(out, run[i].first), put(out, run[i].n);
}

/* Shards of operators and slots in sharded stages; after the ZeRO shards, and only if there are any. */
static void write_tensor_shards(FILE *out, const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct op_attrs *a = &s->ops[i].attrs;
        bool pieces = s->ops[i].kind == OP_slice || s->ops[i].kind == OP_paste;
        if (pieces || (!a->start && !a->whole && !a->mean_rows && !a->exchange)) continue;
        fprintf(out, "local");
        put(out, i), put(out, a->start), put(out, a->whole), put(out, a->mean_rows);
        const struct exchange *e = a->exchange;
        put(out, e != NULL);
        if (e) {
            put(out, e->dim), put(out, e->n), put(out, e->self), put(out, e->shards->whole);
            put(out, e->shards->n_runs), write_runs(out, e->shards->run, e->n * e->shards->n_runs);
        }
        fputc('\n', out);
    }
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct op_shard *x = &s->ops[i].attrs.lines, *y = &s->ops[i].attrs.columns;
        if (!x->of && !y->of) continue;
        fprintf(out, "within");
        put(out, i), put(out, x->first), put(out, x->n), put(out, x->of);
        put(out, y->first), put(out, y->n), put(out, y->of);
        fputc('\n', out);
    }
    for (int32_t i = 0; i < s->n_slots; i++) {
        const struct tensor_shard *x = s->slots[i].shard;
        if (!x) continue;
        fprintf(out, "of");
        put(out, i), put(out, x->n_cuts);
        for (int32_t c = 0; c < x->n_cuts; c++) {
            put(out, x->cut[c].dim), put(out, x->cut[c].whole), put(out, x->cut[c].n_runs);
            write_runs(out, x->cut[c].run, x->cut[c].n_runs);
        }
        fputc('\n', out);
    }
}

static void write_stage(FILE *out, const struct program *p, const struct program_stage *s)
{
    fprintf(out, "stage");
    put(out, s->replica), put(out, s->stage), put(out, s->device), put(out, s->first_layer),
        put(out, s->last_layer);
    put(out, s->microbatches), put(out, s->first_microbatch), put(out, s->recompute);
    put(out, s->n_slots), put(out, s->n_buffer_rings), put(out, s->n_ops),
        put(out, s->n_parameters), put(out, s->n_procedures);
    for (int i = 0; i < SLOT_CLASS_COUNT; i++) put(out, s->class_bytes[i]);
    put(out, s->buffer_bytes), put(out, s->tp), put(out, s->reserve_bytes);
    fputc('\n', out);
    write_memory(out, s);
    for (int32_t i = 0; i < s->n_ops; i++) write_op(out, &s->ops[i]);
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *x = &s->parameters[i];
        fprintf(out, "parameter");
        put_name(out, x->name), put(out, x->init), put_double(out, x->init_std), put(out, x->decay),
            put(out, x->slot);
        put_list(out, x->gradient, 2), put_list(out, x->state, 2), put(out, x->master),
            put_shape(out, &x->shape);
        fputc('\n', out);
    }
    write_shards(out, s);
    write_tensor_shards(out, s);
    for (int32_t i = 0; i < s->n_procedures; i++) write_procedure(out, &s->procedures[i]);
    if (s->sequences) {
        fprintf(out, "shard");
        put(out, s->first_sequence), put(out, s->sequences);
        fputc('\n', out);
    }
    if (p->loss_scale.initial > 0) fprintf(out, "scale %" PRId32 "\n", s->scale_slot);
    if (!s->shares_loss) return;
    fprintf(out, "loss");
    put_double(out, s->loss_share);
    fputc('\n', out);
}

static void write_channel(FILE *out, const struct channel *c)
{
    fprintf(out, "channel");
    put(out, c->from_stage), put(out, c->to_stage), put(out, c->from_slot), put(out, c->to_slot),
        put(out, c->link);
    put(out, c->direction), put(out, c->bytes), put(out, c->receive_ahead), put(out, c->gradient);
    fputc('\n', out);
}

static void write_cut(FILE *out, const struct collective_cut *c, int32_t n)
{
    fprintf(out, "\ncut");
    put(out, c->dimension), put(out, c->n_runs);
    for (int32_t i = 0; i < n * c->n_runs; i++) put(out, c->first[i]), put(out, c->count[i]);
}

static void write_tensor(FILE *out, const struct collective *m)
{
    put_shape(out, &m->whole), put(out, m->n_members);
    for (int32_t i = 0; i < m->n_members; i++) {
        fprintf(out, "\nmember");
        put(out, m->members[i].stage), put(out, m->in[i]), put(out, m->out[i]);
        put(out, m->link[i]), put(out, m->direction[i]);
        if (m->tier) put(out, m->tier[i]);
        for (int32_t k = 0; m->algorithm != ALGORITHM_RING && k < m->n_members; k++)
            put(out, m->pair_link[i * m->n_members + k]),
                put(out, m->pair_direction[i * m->n_members + k]);
    }
    if (collective_has_from(m->kind)) write_cut(out, &m->from, m->n_members);
    if (collective_has_to(m->kind)) write_cut(out, &m->to, m->n_members);
    fputc('\n', out);
}

/* Regions of a member's segments, if not all of them, and whether it contributes zero. */
static void write_regions(FILE *out, const struct collective *g, int32_t i)
{
    const struct collective_member *m = &g->members[i];
    if (m->silent) fprintf(out, "silent %" PRId32 "\n", i);
    for (int32_t k = 0; m->within && k < m->n_segments; k++) {
        const struct region *r = &m->within[k];
        if (!r->n_dims) continue;
        fprintf(out, "within");
        put(out, i), put(out, k), put_shape(out, &r->shape), put(out, r->n_dims);
        for (int32_t d = 0; d < r->n_dims; d++) {
            put(out, r->dim[d].dimension), put(out, r->dim[d].n_runs);
            for (int32_t x = 0; x < r->dim[d].n_runs; x++)
                put(out, r->dim[d].first[x]), put(out, r->dim[d].count[x]);
        }
        fputc('\n', out);
    }
}

static void write_group(FILE *out, const struct collective *g)
{
    fprintf(out, "collective");
    put_name(out, g->name);
    fprintf(out, " %s %s %s %s", collective_kind_word(g->kind),
            collective_algorithm_name(g->algorithm), collective_of_tensor(g) ? "call" : "step",
            dtype_name(g->dtype));
    if (collective_of_tensor(g)) {
        write_tensor(out, g);
        return;
    }
    put(out, g->elements), put(out, g->n_members);
    for (int32_t i = 0; i < g->n_members; i++) {
        const struct collective_member *m = &g->members[i];
        fprintf(out, "\nmember");
        put(out, m->stage), put(out, m->chain_ring), put(out, g->link[i]),
            put(out, g->direction[i]);
        put(out, g->back_link ? g->back_link[i] : -1),
            put(out, g->back_link ? g->back_direction[i] : 0);
        put(out, m->n_segments), put_list(out, m->segments, m->n_segments);
        if (m->chain_ring >= 0) put_list(out, m->chain_segments, m->n_segments);
        if (!program_collective_divides(g)) continue;
        put(out, m->own != NULL);
        if (m->own) put_list(out, m->own, m->n_segments);
    }
    fputc('\n', out);
    for (int32_t i = 0; i < g->n_members; i++) write_regions(out, g, i);
}

static void write_order(FILE *out, const struct order *o)
{
    fprintf(out, "order");
    put(out, o->n_runs);
    for (int32_t i = 0; i < o->n_runs; i++) {
        fprintf(out, "\nrun");
        put(out, o->runs[i].repeat), put(out, o->runs[i].n_calls);
        for (int32_t k = 0; k < o->runs[i].n_calls; k++)
            put(out, o->runs[i].calls[k].procedure), put(out, o->runs[i].calls[k].microbatch),
                put(out, o->runs[i].calls[k].chunk);
    }
    fputc('\n', out);
}

void program_write(FILE *out, const struct program *p)
{
    write_head(out, p);
    write_devices(out, p);
    for (int32_t i = 0; i < p->n_stages; i++) write_stage(out, p, &p->stages[i]);
    for (int32_t i = 0; i < p->n_channels; i++) write_channel(out, &p->channels[i]);
    for (int32_t i = 0; i < p->n_collectives; i++) write_group(out, &p->collectives[i]);
    for (int32_t i = 0; i < p->n_orders; i++) write_order(out, &p->orders[i]);
    fprintf(out, "end\n");
}
