/* core/program/write.c - writes a program as lines of words.
 *
 * One record a line: a keyword, numbers, names. Counts precede their items. A name is a word in which spaces, percent signs and control
 * bytes are written %XX; the empty name is a single percent sign. Doubles have 17 digits, which restore every bit. Derived values are
 * omitted: bytes of slots, shapes and keys of operators. program_parse (core/program/io.c) reads the same records in the same order.
 */
#include "core/base/arena.h"
#include "core/program/lines.h"
#include "core/program/servers.h"

#include <inttypes.h>

static void put_name(struct lines *out, const char *name) { lines_name(out, name); }
static void put(struct lines *out, int64_t x) { lines_int(out, x); }
static void put_double(struct lines *out, double x) { lines_double(out, x); }
static void put_word(struct lines *out, const char *word) { lines_char(out, ' '), lines_text(out, word); }
static void put_char(struct lines *out, char c) { lines_char(out, ' '), lines_char(out, c); }
static void end_line(struct lines *out) { lines_char(out, '\n'); }

static void put_list(struct lines *out, const int32_t *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) put(out, x[i]);
}

static void put_shape(struct lines *out, const struct shape *s)
{
    put(out, s->rank);
    for (int32_t i = 0; i < s->rank; i++) put(out, s->dim[i]);
}

static void write_head(struct lines *out, const struct program *p)
{
    char text[64];
    lines_text(out, "musher-program"), put(out, PROGRAM_VERSION), lines_text(out, "\nprogram");
    put_name(out, p->name);
    snprintf(text, sizeof text, " %016" PRIx64 " %" PRIu64, p->plan_hash, p->seed);
    lines_text(out, text), put_word(out, dtype_name(p->dtype));
    put(out, p->emulated), put(out, p->deterministic);
    put(out, p->steps), put(out, p->microbatch), put(out, p->sequence_length), put(out, p->vocabulary), put(out, p->microbatches);
    if (p->pixels) lines_text(out, "\nimages"), put(out, p->pixels);
    program_write_training(out, p);
    program_write_server(out, &p->server);
    program_write_experts(out, p);
    lines_text(out, "\ncounts");
    put(out, p->n_devices), put(out, p->n_links), put(out, p->n_stages), put(out, p->n_channels), put(out, p->n_collectives), put(out, p->n_orders);
    end_line(out);
}

static void write_devices(struct lines *out, const struct program *p)
{
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct program_device *d = &p->devices[i];
        lines_text(out, "device");
        put_name(out, d->name), put_name(out, d->type), put_name(out, d->host),
            put_name(out, d->kind), put_name(out, d->gpu ? d->gpu : "");
        put(out, d->index), put(out, d->type_index), put_double(out, d->slowdown),
            put(out, d->memory_bytes), put(out, d->multiprocessors), put_double(out, d->host_Bps);
        put(out, p->lanes[i].order), put(out, p->lanes[i].n_stages),
            put_list(out, p->lanes[i].stages, p->lanes[i].n_stages);
        end_line(out);
    }
    for (int32_t i = 0; i < p->n_links; i++) {
        const struct program_link *k = &p->links[i];
        if (k->n_hops) {
            lines_text(out, "route");
            put_name(out, k->name), put(out, k->n_hops);
            put_list(out, k->hop, k->n_hops), put_list(out, k->hop_direction, k->n_hops);
            put(out, k->max_ctas), put_name(out, k->net_name ? k->net_name : "");
            end_line(out);
            continue;
        }
        lines_text(out, k->paired ? "pair" : "link");
        if (k->paired)
            put(out, k->of), put_list(out, k->type, 2), put_list(out, k->gpus, 2),
                put(out, k->gpus_at_once);
        put_name(out, k->name), put_double(out, k->bandwidth_Bps), put_double(out, k->latency_s);
        put(out, k->half_duplex), put(out, k->emulated), put(out, k->sharing);
        put_double(out, k->compute_slowdown);
        put(out, k->max_ctas), put_name(out, k->net_name ? k->net_name : "");
        end_line(out);
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

static void write_shape_attrs(struct lines *out, const struct op_attrs *a)
{
    const struct stencil *k = &a->stencil;
    put(out, a->dim), put(out, a->dims), put(out, a->blank), put(out, a->flat), put(out, a->groups);
    put_list(out, k->kernel, 2), put_list(out, k->stride, 2), put_list(out, k->padding, 2),
        put_list(out, k->size, 2);
}

static void write_encoding(struct lines *out, const struct op_attrs *a)
{
    const struct encoding *c = &a->code;
    const int64_t numbers[] = {c->kind, c->feedback, c->stochastic, c->block, c->kept, c->value_words, a->stream};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) put(out, numbers[i]);
}

static void write_op(struct lines *out, const struct program_op *op)
{
    const struct op_attrs *a = &op->attrs;
    lines_text(out, "op");
    put_name(out, op->name);
    put_word(out, op_kind_name(op->kind)), put_char(out, (char)op->phase),
        put_word(out, dtype_name(op->dtype));
    put(out, op->layer);
    put(out, a->trans_a | a->trans_b << 1 | a->accumulate << 2 | a->gelu_erf << 3 |
                 a->inverse << 4 | a->decay << 5 | a->bidirectional << 6 | has_shape_attrs(a) << 7 |
                 a->narrows << 8 | a->scaled << 9 | a->hosted << 10 | a->unit_offset << 11 |
                 a->interleaved << 12 | a->clipped << 13);
    put(out, a->heads), put(out, a->kv_heads), put(out, a->head_dim), put(out, a->window),
        put(out, a->vocabulary);
    put_double(out, a->eps), put_double(out, a->theta), put_double(out, a->rope.factor),
        put_double(out, a->rope.low_freq_factor);
    put_double(out, a->rope.high_freq_factor), put_double(out, a->rope.original_max_position),
        put_double(out, a->scale);
    if (op_is_measured(op->kind))
        put(out, a->row), put(out, a->sequences), put(out, a->out), put(out, a->kept),
            put(out, a->first), put(out, a->link), put(out, a->tp);
    if (op->kind == OP_slice || op->kind == OP_paste) put(out, a->start), put(out, a->sequences);
    if (op->kind == OP_rotary) put(out, a->rotary_dim);
    if (op->kind == OP_attention || op->kind == OP_attention_grad) put_double(out, a->softcap);
    if (op->kind == OP_encode || op->kind == OP_decode) write_encoding(out, a);
    if (op->kind == OP_rescale) put(out, a->grows_after);
    if (op->kind == OP_dropout) put(out, a->stream), put_double(out, a->rate);
    if (op->kind == OP_cross_entropy || op->kind == OP_cross_entropy_grad ||
        op->kind == OP_cross_entropy_shard || op->kind == OP_cross_entropy_join)
        put(out, a->counted);
    if (op_is_routed(op->kind))
        put(out, a->chosen), put(out, a->experts), put(out, a->load_ppm), put(out, a->block), put(out, a->capacity),
            put(out, a->weighted), put(out, a->renormalise);
    if (has_shape_attrs(a)) write_shape_attrs(out, a);
    put(out, op->n_inputs), put_list(out, op->input, op->n_inputs);
    put(out, op->n_outputs), put_list(out, op->output, op->n_outputs);
    end_line(out);
}

static void write_procedure(struct lines *out, const struct procedure *p)
{
    static const char *const names[] = {
#define X(name) #name,
        INSTR_KINDS(X)
#undef X
    };
    lines_text(out, "procedure"), put_char(out, (char)p->phase);
    put_name(out, p->variant), put(out, p->period);
    if (p->period) put(out, p->offset);
    put(out, p->n_instrs);
    for (int32_t i = 0; i < p->n_instrs; i++) put_word(out, names[p->instrs[i].kind]), put(out, p->instrs[i].arg);
    end_line(out);
}

static void write_slot(struct lines *out, const struct program_stage *s, const struct slot *x)
{
    static const char *const classes[] = {"parameter", "gradient", "state", "feedback", "buffer_ring",
                                          "scratch"};
    lines_text(out, "slot");
    put_name(out, x->name), put_word(out, classes[x->class]), put_word(out, dtype_name(x->dtype));
    put(out, x->buffer_ring), put(out, program_slot_offset(s, x)), put(out, x->parameter),
        put(out, x->input), put_shape(out, &x->shape);
    end_line(out);
}

static void write_rings(struct lines *out, const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        lines_text(out, "buffer_ring"), put_char(out, (char)r->birth), put_char(out, (char)r->death);
        put(out, r->count), put(out, r->stride_bytes), put(out, r->sent), put(out, r->received);
        end_line(out);
    }
    if (!s->offload.count) return;
    lines_text(out, "offload"), put(out, s->offload.out), put(out, s->offload.in), put(out, s->offload.count);
    end_line(out);
}

/* After all parameters, and only if there are any. */
static void write_shards(struct lines *out, const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_shard *x = s->parameters[i].shard;
        if (!x) continue;
        lines_text(out, "flat_shard");
        put(out, i), put(out, x->slot), put_list(out, x->state, 2), put(out, x->master),
            put_list(out, x->outer, PROGRAM_OUTER_SLOTS), put(out, program_shard_first(s, x));
        end_line(out);
    }
}

static void write_runs(struct lines *out, const struct run *run, int32_t n)
{
    for (int32_t i = 0; i < n; i++) put(out, run[i].first), put(out, run[i].n);
}

/* Shards of operators and slots in sharded stages; after the ZeRO shards, and only if there are any. */
static void write_tensor_shards(struct lines *out, const struct program *p, const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct op_attrs *a = &s->ops[i].attrs;
        bool pieces = s->ops[i].kind == OP_slice || s->ops[i].kind == OP_paste;
        if (pieces || (!a->start && !a->whole && !a->mean_rows && !a->exchange)) continue;
        lines_text(out, "local");
        put(out, i), put(out, a->start), put(out, a->whole), put(out, a->mean_rows);
        const struct exchange *e = a->exchange;
        put(out, e != NULL);
        if (e) {
            put(out, e->dim), put(out, e->n), put(out, e->self), put(out, e->shards->whole);
            put(out, e->shards->n_runs), write_runs(out, e->shards->run, e->n * e->shards->n_runs);
        }
        end_line(out);
    }
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct op_shard *x = &s->ops[i].attrs.lines, *y = &s->ops[i].attrs.columns;
        if (!x->of && !y->of) continue;
        lines_text(out, "within");
        put(out, i), put(out, x->first), put(out, x->n), put(out, x->of);
        put(out, y->first), put(out, y->n), put(out, y->of);
        end_line(out);
    }
    for (int32_t i = 0; i < s->n_slots; i++)
        if (s->slots[i].shard) program_write_tensor_shard(out, p, i, s->slots[i].shard);
}

static void write_code(struct lines *out, const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_ops; i++) write_op(out, &s->ops[i]);
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *x = &s->parameters[i];
        lines_text(out, "parameter");
        put_name(out, x->name), put(out, x->init), put_double(out, x->init_std), put(out, x->decay),
            put(out, x->slot);
        put_list(out, x->gradient, 2), put_list(out, x->state, 2), put(out, x->master), put_list(out, x->outer, PROGRAM_OUTER_SLOTS);
        put(out, x->fragment), put(out, x->previous), put_list(out, x->feedback, FEEDBACK_SLOTS), put_shape(out, &x->shape);
        end_line(out);
    }
}

/* --- stages that share their lists --- */

enum { KEPT_BYTES = 1 << 26 }; /* of text kept, as much as the lists of some hundred distinct stages */

struct shared_text { /* of the stages with one list of slots, one of operators and one of parameters */
    const struct program_stage *first;
    int32_t n_stages;
    bool recorded;
    struct lines_piece *slots; /* between the slots of ZeRO chunks, whose offsets differ */
    struct lines_piece code, shards;
};

struct shared_texts {
    struct arena *a;
    struct shared_text *texts;
    int32_t n, *of_stage; /* (n_stages) index into texts */
    int32_t *hash;        /* (n_hash) index + 1, open */
    size_t n_hash, bytes;
};

static bool shares(const struct program_stage *x, const struct program_stage *y)
{
    return x->slots == y->slots && x->ops == y->ops && x->parameters == y->parameters;
}

static struct shared_texts find_shared(struct arena *a, const struct program *p)
{
    size_t n = (size_t)p->n_stages;
    struct shared_texts x = {.a = a,
                             .texts = ARENA_ARRAY(a, struct shared_text, n),
                             .of_stage = ARENA_ARRAY(a, int32_t, n),
                             .n_hash = 2};
    while (x.n_hash < 2 * n) x.n_hash *= 2;
    x.hash = ARENA_ARRAY(a, int32_t, x.n_hash);
    for (int32_t i = 0; i < p->n_stages; i++) {
        const struct program_stage *s = &p->stages[i];
        size_t at = (size_t)((uintptr_t)s->ops * UINT64_C(0x9E3779B97F4A7C15) >> 20);
        while (x.hash[at & (x.n_hash - 1)] && !shares(x.texts[x.hash[at & (x.n_hash - 1)] - 1].first, s)) at++;
        int32_t *known = &x.hash[at & (x.n_hash - 1)];
        if (!*known) {
            x.texts[x.n++].first = s;
            *known = x.n;
        }
        x.of_stage[i] = *known - 1;
        x.texts[*known - 1].n_stages++;
    }
    return x;
}

/* Writes and records. */
static void record_slots(struct lines *out, struct arena *a, const struct program_stage *s,
                         struct shared_text *t)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_slots; i++) n += s->slots[i].own > 0;
    t->slots = ARENA_ARRAY(a, struct lines_piece, (size_t)n + 1);
    n = 0;
    lines_record(out);
    for (int32_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].own) t->slots[n++] = lines_recorded(out);
        write_slot(out, s, &s->slots[i]);
        if (s->slots[i].own) lines_record(out);
    }
    t->slots[n] = lines_recorded(out);
}

static void put_piece(struct lines *out, struct lines_piece x) { lines_bytes(out, x.text, x.n); }

static void write_slots(struct lines *out, const struct program_stage *s, const struct shared_text *t)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_slots; i++) {
        if (t->recorded && !s->slots[i].own) continue;
        if (t->recorded) put_piece(out, t->slots[n++]);
        write_slot(out, s, &s->slots[i]);
    }
    if (t->recorded) put_piece(out, t->slots[n]);
}

static void write_lists(struct lines *out, const struct program *p, struct shared_texts *x, const struct program_stage *s,
                        struct shared_text *t)
{
    bool record = !t->recorded && t->n_stages > 1 && x->bytes < KEPT_BYTES;
    if (record)
        record_slots(out, x->a, s, t);
    else
        write_slots(out, s, t);
    write_rings(out, s);
    if (record) lines_record(out);
    if (t->recorded)
        put_piece(out, t->code);
    else
        write_code(out, s);
    if (record) t->code = lines_recorded(out);
    write_shards(out, s);
    if (record) lines_record(out);
    if (t->recorded)
        put_piece(out, t->shards);
    else
        write_tensor_shards(out, p, s);
    if (record) t->shards = lines_recorded(out), x->bytes += 2 * t->code.n;
    t->recorded |= record;
}

static void write_stage(struct lines *out, const struct program *p, struct shared_texts *x, int32_t index)
{
    const struct program_stage *s = &p->stages[index];
    lines_text(out, "stage");
    put(out, s->replica), put(out, s->stage), put(out, s->device), put(out, s->first_layer), put(out, s->last_layer);
    put(out, s->microbatches), put(out, s->first_microbatch), put(out, s->recompute), put(out, s->offloads);
    put(out, s->n_slots), put(out, s->n_buffer_rings), put(out, s->n_ops),
        put(out, s->n_parameters), put(out, s->n_procedures);
    for (int i = 0; i < SLOT_CLASS_COUNT; i++) put(out, s->class_bytes[i]);
    put(out, s->buffer_bytes), put(out, s->reserve_bytes);
    end_line(out);
    write_lists(out, p, x, s, &x->texts[x->of_stage[index]]);
    for (int32_t i = 0; i < s->n_procedures; i++) write_procedure(out, &s->procedures[i]);
    if (s->sequences) {
        lines_text(out, "shard");
        put(out, s->first_sequence), put(out, s->sequences);
        end_line(out);
    }
    if (p->outer.every) lines_text(out, "island"), put(out, s->island), end_line(out);
    program_write_server_stage(out, p, s);
    program_write_stage_training(out, p, s);
    if (!s->shares_loss) return;
    lines_text(out, "loss");
    put_double(out, s->loss_share);
    end_line(out);
}

static void write_channel(struct lines *out, const struct channel *c)
{
    lines_text(out, "channel");
    put(out, c->from_stage), put(out, c->to_stage), put(out, c->from_slot), put(out, c->to_slot), put(out, c->link);
    put(out, c->direction), put(out, c->bytes), put(out, c->receive_ahead), put(out, c->gradient), put(out, c->by_step);
    end_line(out);
}

static void write_cut(struct lines *out, const struct collective_cut *c, int32_t n)
{
    lines_text(out, "\ncut");
    put(out, c->dimension), put(out, c->n_runs);
    for (int32_t i = 0; i < n * c->n_runs; i++) put(out, c->first[i]), put(out, c->count[i]);
}

static void write_tensor(struct lines *out, const struct collective *m)
{
    put_shape(out, &m->whole), put(out, m->n_members);
    for (int32_t i = 0; i < m->n_members; i++) {
        lines_text(out, "\nmember");
        put(out, m->members[i].stage), put(out, m->in[i]), put(out, m->out[i]), put(out, m->link[i]), put(out, m->direction[i]);
        if (m->tier) put(out, m->tier[i]);
        for (int32_t k = 0; m->algorithm != ALGORITHM_RING && k < m->n_members; k++)
            put(out, m->pair_link[i * m->n_members + k]), put(out, m->pair_direction[i * m->n_members + k]);
    }
    if (collective_has_from(m->kind)) write_cut(out, &m->from, m->n_members);
    if (collective_has_to(m->kind)) write_cut(out, &m->to, m->n_members);
    end_line(out);
}

/* Regions of a member's segments, if not all of them, and whether it contributes zero. */
static void write_regions(struct lines *out, const struct collective *g, int32_t i)
{
    const struct collective_member *m = &g->members[i];
    if (m->silent) lines_text(out, "silent"), put(out, i), end_line(out);
    for (int32_t k = 0; m->within && k < m->n_segments; k++) {
        const struct region *r = &m->within[k];
        if (!r->n_dims) continue;
        lines_text(out, "within");
        put(out, i), put(out, k), put_shape(out, &r->shape), put(out, r->n_dims);
        for (int32_t d = 0; d < r->n_dims; d++) {
            put(out, r->dim[d].dimension), put(out, r->dim[d].n_runs);
            for (int32_t x = 0; x < r->dim[d].n_runs; x++)
                put(out, r->dim[d].first[x]), put(out, r->dim[d].count[x]);
        }
        end_line(out);
    }
}

/* Links of the messages of segments in rounds: few of each member. */
static void write_rounds(struct lines *out, const struct collective *g, int32_t i)
{
    const int32_t *link = &g->pair_link[i * g->n_members], *direction = &g->pair_direction[i * g->n_members];
    int32_t n = 0;
    for (int32_t k = 0; k < g->n_members; k++) n += link[k] >= 0;
    lines_text(out, "rounds");
    if (g->tier) put(out, g->tier[i]);
    put(out, n);
    for (int32_t k = 0; k < g->n_members; k++)
        if (link[k] >= 0) put(out, k), put(out, link[k]), put(out, direction[k]);
    end_line(out);
}

static void write_group(struct lines *out, const struct collective *g)
{
    lines_text(out, "collective"), put_name(out, g->name);
    put_word(out, collective_kind_word(g->kind)), put_word(out, collective_algorithm_name(g->algorithm));
    put_word(out, collective_of_tensor(g) ? "call" : g->repeated ? "repeated" : "step"), put_word(out, dtype_name(g->dtype));
    if (collective_of_tensor(g)) {
        write_tensor(out, g);
        return;
    }
    put(out, g->elements), put(out, g->n_members);
    for (int32_t i = 0; i < g->n_members; i++) {
        const struct collective_member *m = &g->members[i];
        lines_text(out, "\nmember");
        put(out, m->stage), put(out, m->chain_ring), put(out, g->link[i]), put(out, g->direction[i]);
        put(out, g->back_link ? g->back_link[i] : -1), put(out, g->back_link ? g->back_direction[i] : 0);
        put(out, m->n_segments), put_list(out, m->segments, m->n_segments);
        if (m->chain_ring >= 0) put_list(out, m->chain_segments, m->n_segments);
        if (!program_collective_divides(g)) continue;
        put(out, m->own != NULL);
        if (m->own) put_list(out, m->own, m->n_segments);
    }
    end_line(out);
    for (int32_t i = 0; program_collective_in_rounds(g) && i < g->n_members; i++) write_rounds(out, g, i);
    for (int32_t i = 0; i < g->n_members; i++) write_regions(out, g, i);
}

static void write_order(struct lines *out, const struct order *o)
{
    lines_text(out, "order");
    put(out, o->n_runs);
    for (int32_t i = 0; i < o->n_runs; i++) {
        lines_text(out, "\nrun");
        put(out, o->runs[i].repeat), put(out, o->runs[i].n_calls);
        for (int32_t k = 0; k < o->runs[i].n_calls; k++)
            put(out, o->runs[i].calls[k].procedure), put(out, o->runs[i].calls[k].microbatch),
                put(out, o->runs[i].calls[k].chunk);
    }
    end_line(out);
}

void program_write(FILE *file, const struct program *p)
{
    struct arena *a = arena_new();
    struct lines *out = lines_new(a, file);
    struct shared_texts shared = find_shared(a, p);
    write_head(out, p);
    write_devices(out, p);
    for (int32_t i = 0; i < p->n_stages; i++) write_stage(out, p, &shared, i);
    for (int32_t i = 0; i < p->n_channels; i++) write_channel(out, &p->channels[i]);
    for (int32_t i = 0; i < p->n_collectives; i++) write_group(out, &p->collectives[i]);
    for (int32_t i = 0; i < p->n_orders; i++) write_order(out, &p->orders[i]);
    lines_text(out, "end\n");
    lines_end(out);
    arena_free(a);
}
