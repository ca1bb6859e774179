/* Stages that differ in their devices only are lowered once (core/lower/equal_stages.c), from a window of the model
 * (core/sharding/shard_window.c), and a stage's part of that graph is the part of the whole one. */
#include "core/graph/gradient.h"
#include "core/lower/stage_graph.h"
#include "core/sharding/shard.h"
#include "tests/support/replicas.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

#define BATCH REPLICAS_BATCH
#define HEADS REPLICAS_HEADS
#define VOCABULARY REPLICAS_VOCABULARY

static struct sharding *sharding(const char *text, int32_t n)
{
    return replicas_sharding(arena, text, n);
}
static struct plan replicas(int32_t n, const char *text, int32_t zero)
{
    return replicas_llama(arena, n, text, zero);
}

static bool share(const struct program *p, int32_t stage, int32_t other)
{
    const struct program_stage *x = &p->stages[stage], *y = &p->stages[other];
    ck_assert((x->slots == y->slots) == (x->ops == y->ops));
    ck_assert((x->slots == y->slots) == (x->parameters == y->parameters));
    return x->slots == y->slots;
}

static bool is_member(const struct program *p, int32_t stage, int32_t collective)
{
    const struct collective *g = &p->collectives[collective];
    for (int32_t k = 0; k < g->n_members; k++)
        if (g->members[k].stage == stage) return true;
    return false;
}

/* Instructions and rings name the stage's own channels and collectives. */
static void check_own(const struct program *p, int32_t stage)
{
    const struct program_stage *s = &p->stages[stage];
    for (int32_t q = 0; q < s->n_procedures; q++)
        for (int32_t i = 0; i < s->procedures[q].n_instrs; i++) {
            const struct instr *x = &s->procedures[q].instrs[i];
            if (x->kind == INSTR_SEND) ck_assert_int_eq(p->channels[x->arg].from_stage, stage);
            if (x->kind == INSTR_RECEIVE) ck_assert_int_eq(p->channels[x->arg].to_stage, stage);
            if (x->kind == INSTR_COLLECTIVE || x->kind == INSTR_COLLECTIVE_START ||
                x->kind == INSTR_COLLECTIVE_WAIT)
                ck_assert(is_member(p, stage, x->arg));
        }
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        if (r->sent >= 0) ck_assert_int_eq(p->channels[r->sent].from_stage, stage);
        if (r->received >= 0) ck_assert_int_eq(p->channels[r->received].to_stage, stage);
    }
}

START_TEST(equal_stages_share_what_names_no_channel_or_collective)
{
    static const char *const texts[] = {BATCH, HEADS, VOCABULARY};
    struct plan plan = replicas(3, texts[_i], 0);
    struct program *p = plans_lower(arena, &plan, true);
    struct error err = {0};
    ck_assert_msg(program_check(arena, p, &err) == OK, "%s", err.text);
    ck_assert_int_eq(p->n_stages, 12);
    for (int32_t s = 0; s < 12; s++) {
        check_own(p, s);
        for (int32_t other = 0; other < s; other++) {
            ck_assert_int_eq(share(p, s, other), s % 4 == other % 4);
            ck_assert_ptr_ne(p->stages[s].buffer_rings, p->stages[other].buffer_rings);
        }
    }
}
END_TEST

/* Pipelines of more stages than are compared with one another. */
START_TEST(stages_of_long_pipelines_are_lowered_once)
{
    enum { N = 3, STAGES = 12 };
    struct plan plan = plans_new(arena, "llama", 12, N * STAGES);
    int32_t last[STAGES];
    for (int32_t s = 0; s < STAGES; s++)
        last[s] = (s + 1) * plans_layers(arena, &plan) / STAGES - 1;
    for (int32_t r = 0; r < N; r++) plans_replica(arena, &plan, 4, STAGES, last);
    struct program *p = plans_lower(arena, &plan, true);
    struct error err = {0};
    ck_assert_msg(program_check(arena, p, &err) == OK, "%s", err.text);
    ck_assert_int_eq(p->n_stages, N * STAGES);
    for (int32_t s = 0; s < N * STAGES; s++) {
        check_own(p, s);
        for (int32_t other = 0; other < s; other++)
            ck_assert_int_eq(share(p, s, other), s % STAGES == other % STAGES);
    }
}
END_TEST

/* The members of a replica's exchange of a tied parameter, by their places in the replica. */
static void compare_exchanges(const struct program *p, const struct collective *x,
                              const struct collective *y, int32_t stages)
{
    ck_assert_int_eq(x->n_members, y->n_members);
    ck_assert_int_eq(x->elements, y->elements);
    for (int32_t k = 0; k < x->n_members; k++) {
        const struct collective_member *a = &x->members[k], *b = &y->members[k];
        ck_assert_int_eq(a->stage % stages, b->stage % stages);
        ck_assert_ptr_eq(p->stages[a->stage].slots, p->stages[b->stage].slots);
        ck_assert(a->silent == b->silent && a->n_segments == b->n_segments);
        for (int32_t i = 0; i < a->n_segments; i++) {
            ck_assert_int_eq(a->segments[i], b->segments[i]);
            ck_assert_int_eq(region_elements(&a->within[i]), region_elements(&b->within[i]));
            ck_assert(region_valid(&b->within[i]));
        }
    }
}

/* Both uses of the tied embedding are sharded by the vocabulary, unequally in the last stage: cells. */
START_TEST(stages_of_equal_cells_are_lowered_once)
{
    int32_t n = 3, found = 0, each = 0;
    struct plan plan = replicas_of_model(arena, "gpt2", n, VOCABULARY, 0);
    const char *unequal = VOCABULARY "ratios: [[1, 3]]\n";
    for (int32_t r = 0; r < n; r++)
        if (r < 2 || !_i) plan.replicas[r].stages[1].sharding = sharding(unequal, 2);
    struct program *p = plans_lower(arena, &plan, true);
    struct error err = {0};
    ck_assert_msg(program_check(arena, p, &err) == OK, "%s", err.text);
    for (int32_t s = 0; s < 4 * n; s++) check_own(p, s);
    for (int32_t g = 0; g < p->n_collectives; g++) {
        const struct collective *x = &p->collectives[g];
        if (strncmp(x->name, "tied", 4)) continue;
        ck_assert_ptr_nonnull(x->members[0].within);
        each += x->members[0].stage < 4;
        found++;
    }
    ck_assert_int_gt(each, 1);
    for (int32_t g = 0, first = -1, at = 0; g < p->n_collectives && !_i; g++) {
        if (strncmp(p->collectives[g].name, "tied", 4)) continue;
        if (first < 0) first = g;
        compare_exchanges(p, &p->collectives[first + at++ % each], &p->collectives[g], 4);
    }
    if (!_i) ck_assert_int_eq(found, n * each);
    /* groups over replicas of other shards have members of other numbers, whose regions are their own */
    for (int32_t s = 2; s < 4; s++) ck_assert(share(p, s, 4 + s));
    ck_assert(!share(p, 2, 3) && (_i == 0) == share(p, 3, 11));
    for (int32_t g = 0; g < p->n_collectives; g++)
        for (int32_t k = 0; k < p->collectives[g].n_members; k++) {
            const struct collective_member *m = &p->collectives[g].members[k];
            for (int32_t i = 0; m->within && i < m->n_segments; i++)
                ck_assert(shape_equal(&m->within[i].shape,
                                      &p->stages[m->stage].slots[m->segments[i]].shape));
        }
}
END_TEST

static int32_t received_buffers(const struct program_stage *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_buffer_rings; i++)
        if (s->buffer_rings[i].received >= 0) n += s->buffer_rings[i].count;
    return n;
}

/* Messages received ahead change the sizes of rings only, which every stage has for itself. */
START_TEST(stages_of_other_operators_share_nothing)
{
    struct plan plan = replicas(3, HEADS, 0);
    plan.replicas[1].stages[0].recompute = RECOMPUTE_STAGE;
    plan.replicas[2].stages[1].receive_ahead = 3;
    struct program *p = plans_lower(arena, &plan, true);
    struct error err = {0};
    ck_assert_msg(program_check(arena, p, &err) == OK, "%s", err.text);
    for (int32_t k = 0; k < 2; k++) {
        ck_assert(!share(p, k, 4 + k) && share(p, k, 8 + k));
        ck_assert(share(p, 2 + k, 6 + k) && share(p, 2 + k, 10 + k));
        ck_assert_int_gt(received_buffers(&p->stages[10 + k]), received_buffers(&p->stages[2 + k]));
    }
}
END_TEST

/* ZeRO: members of a group own other chunks of the same flat parameters. */
START_TEST(members_of_zero_have_a_chunk_each)
{
    int32_t n = 3;
    struct plan plan = replicas(n, HEADS, _i);
    struct program *p = plans_lower(arena, &plan, true);
    for (int32_t s = 0; s < 4; s++) {
        const struct program_stage *x = &p->stages[s];
        int64_t part = 0;
        uint64_t chunks = 0;
        for (int32_t r = 0; r < n; r++) ck_assert(share(p, s, 4 * r + s));
        for (int32_t i = 0; i < x->n_parameters && !part; i++) {
            const struct program_shard *own = x->parameters[i].shard;
            if (!own) continue;
            part = shape_elements(&x->slots[own->slot].shape);
            for (int32_t r = 0; r < n; r++) {
                const struct program_stage *y = &p->stages[4 * r + s];
                int64_t chunk = own->first - program_shard_first(y, own);
                ck_assert_int_eq(chunk % part, 0);
                ck_assert(!(chunks >> (chunk / part) & 1));
                chunks |= UINT64_C(1) << (chunk / part);
                ck_assert_int_eq(program_slot_offset(y, &y->slots[own->slot]),
                                 y->slots[own->slot].offset_bytes +
                                     chunk / part * y->slots[own->slot].bytes);
            }
        }
        ck_assert_int_gt(part, 0);
    }
}
END_TEST

/* --- windows --- */

static struct graph *training(struct shard_stage *x, int32_t device, int32_t first, int32_t last)
{
    struct graph *g;
    struct error err = {0};
    ck_assert_msg(shard_stage_graph(arena, x, device, &g, &err) == OK, "%s", err.text);
    if (first > 0) g->edge[g->n_edges++] = first - 1;
    if (last + 1 < g->n_layers) g->edge[g->n_edges++] = last;
    ck_assert_msg(gradient_build(g, 0.5, &err) == OK, "%s", err.text);
    return g;
}

static void compare_operands(const struct graph *g, const int32_t *x, const struct graph *h,
                             const int32_t *y, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        const struct tensor *a = &g->tensors[x[k]], *b = &h->tensors[y[k]];
        ck_assert_str_eq(a->name, b->name);
        ck_assert(shape_equal(&a->shape, &b->shape) && a->role == b->role && a->use == b->use);
        ck_assert(a->dtype == b->dtype && a->partial == b->partial);
        ck_assert(a->shard.n_cuts == b->shard.n_cuts);
    }
}

/* The operators of the stage's layers, forward and backward, are the same in both. */
static void compare_stage(const struct graph *g, const struct graph *h, int32_t first, int32_t last)
{
    int32_t at = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (!graph_op_within(g, i, first, last)) continue;
        while (at < h->n_ops && !graph_op_within(h, at, first, last)) at++;
        ck_assert_int_lt(at, h->n_ops);
        const struct graph_op *x = &g->ops[i], *y = &h->ops[at++];
        ck_assert_str_eq(x->name, y->name);
        ck_assert(x->kind == y->kind && x->phase == y->phase && x->layer == y->layer);
        ck_assert(x->n_inputs == y->n_inputs && x->n_outputs == y->n_outputs);
        compare_operands(g, x->input, h, y->input, x->n_inputs);
        compare_operands(g, x->output, h, y->output, x->n_outputs);
    }
    while (at < h->n_ops && !graph_op_within(h, at, first, last)) at++;
    ck_assert_int_eq(at, h->n_ops);
}

START_TEST(a_window_has_the_stage_of_the_whole_model)
{
    static const char *const models[] = {"gpt2", "llama"}, *const texts[] = {BATCH, HEADS,
                                                                             VOCABULARY};
    struct plan p = plans_new(arena, models[_i / 3], 12, 2);
    struct sharding *s = sharding(texts[_i % 3], 2);
    struct graph *whole;
    struct shard_choices *choices;
    struct error err = {0};
    int32_t smaller = 0;
    ck_assert(lower_graph(arena, &p.job, p.microbatch, &whole, &err) == OK);
    ck_assert_msg(shard_choices_new(arena, whole, s, &choices, &err) == OK, "%s", err.text);
    for (int32_t first = 0; first < whole->n_layers; first += 3)
        for (int32_t last = first; last < whole->n_layers; last += 4) {
            struct shard_stage *all, *window;
            ck_assert(shard_stage_new(arena, whole, s, first, last, &all, &err) == OK);
            ck_assert(shard_stage_of(arena, choices, first, last, -1, &window, &err) == OK);
            struct graph *g = training(all, 1, first, last), *h = training(window, 1, first, last);
            compare_stage(g, h, first, last);
            smaller += 3 * h->n_ops < g->n_ops;
        }
    ck_assert_int_gt(smaller, 0);
}
END_TEST

START_TEST(shardings_are_equal_by_contents)
{
    const struct sharding *s = sharding(HEADS, 2);
    ck_assert(sharding_equal(s, sharding(HEADS, 2)));
    ck_assert(sharding_equal(s, sharding_copy(arena, s)));
    ck_assert(!sharding_equal(s, sharding(HEADS, 3)));
    ck_assert(!sharding_equal(s, sharding(BATCH, 2)));
    ck_assert(!sharding_equal(s, sharding(HEADS "ratios: [[1, 2]]\n", 2)));
    ck_assert(!sharding_equal(
        s, sharding(HEADS "parameters: [{match: \"*\", reshard_after_forward: true}]\n", 2)));
    ck_assert(
        !sharding_equal(s, sharding(HEADS "collectives: [{match: \"*\", algorithm: pairs}]\n", 2)));
}
END_TEST

/* A part of all layers refers to nothing of the graph, and has the same tensors and cuts. */
START_TEST(a_part_of_all_layers_is_the_graph)
{
    static const char *const models[] = {"gpt2", "llama"}, *const texts[] = {BATCH, HEADS,
                                                                             VOCABULARY};
    struct plan p = plans_new(arena, models[_i / 3], 6, 2);
    struct arena *own = arena_new();
    struct shard_stage *all;
    struct graph *whole;
    struct error err = {0};
    ck_assert(lower_graph(own, &p.job, p.microbatch, &whole, &err) == OK);
    int32_t last = whole->n_layers - 1;
    ck_assert(shard_stage_new(own, whole, sharding(texts[_i % 3], 2), 0, last, &all, &err) == OK);
    struct graph *g;
    ck_assert(shard_stage_graph(own, all, 1, &g, &err) == OK);
    ck_assert_msg(gradient_build(g, 0.5, &err) == OK, "%s", err.text);
    struct stage_graph part =
        stage_graph_of(stage_graph_pool_new(arena, arena), g, whole->layer_name, 0, last);
    compare_stage(g, part.g, 0, last);
    ck_assert_int_eq(g->n_ops, part.g->n_ops);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *x = &g->tensors[t], *y = &part.g->tensors[part.tensor[t]];
        if (part.tensor[t] < 0) continue;
        ck_assert_ptr_ne(x->name, y->name);
        ck_assert_int_eq(x->of < 0, y->of < 0);
        if (x->of >= 0) ck_assert_str_eq(g->tensors[x->of].name, part.g->tensors[y->of].name);
    }
    for (int32_t k = 0; k < last; k++) {
        ck_assert_int_eq(g->cut[k].n, part.g->cut[k].n);
        compare_operands(g, g->cut[k].tensor, part.g, part.g->cut[k].tensor, g->cut[k].n);
    }
    arena_free(own);
}
END_TEST

/* A stage that ends between the logits and their loss, beside a sharded stage: without padded rows (50,257 is no multiple of 64), also
 * with graphs that were made once for many plans. */
START_TEST(logits_that_cross_to_their_loss_are_not_padded)
{
    static const int32_t devices[] = {0, 1};
    static const enum op_kind fused[] = {OP_logits};
    struct lower_options o = {.n_fused = 1, .fused = fused};
    struct lower_graphs graphs;
    struct program p;
    struct error err = {0};
    struct plan plan = plans_new(arena, "gpt2", 1, 3);
    plan.job.model = plans_model_file(arena, "gpt2");
    int32_t last = plans_layers(arena, &plan) - 1;
    struct plan_replica *r = plans_replica(arena, &plan, 2, 2, (int32_t[]){last - 1, last});
    struct plan_stage *s = &r->stages[0];
    s->n_shards = 2, s->devices = devices, s->sharding = sharding(BATCH, 2), r->stages[1].device = 2;
    ck_assert(lower_graphs_make(arena, &plan.job, plan.microbatch, &o, &graphs, &err) == OK);
    ck_assert_msg(lower_plan_graphs(arena, &plan, &graphs, &o, &p, &err) == OK, "%s", err.text);
    ck_assert_int_eq(p.n_channels, 4); /* of every device, there and back */
    for (int32_t i = 0; i < p.n_channels; i++)
        ck_assert_int_eq(p.channels[i].bytes, plan.job.sequence_length * 50257 * 4);
}
END_TEST

Suite *lower_equal_suite(void)
{
    Suite *s = suite_create("lower_equal");
    TCase *c = tcase_create("lower_equal");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, equal_stages_share_what_names_no_channel_or_collective, 0, 3);
    tcase_add_test(c, stages_of_long_pipelines_are_lowered_once);
    tcase_add_loop_test(c, stages_of_equal_cells_are_lowered_once, 0, 2);
    tcase_add_test(c, stages_of_other_operators_share_nothing);
    tcase_add_loop_test(c, members_of_zero_have_a_chunk_each, 1, 3);
    tcase_add_loop_test(c, a_window_has_the_stage_of_the_whole_model, 0, 6);
    tcase_add_loop_test(c, a_part_of_all_layers_is_the_graph, 0, 6);
    tcase_add_test(c, shardings_are_equal_by_contents);
    tcase_add_test(c, logits_that_cross_to_their_loss_are_not_padded);
    suite_add_tcase(s, c);
    return s;
}
