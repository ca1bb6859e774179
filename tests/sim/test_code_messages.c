/* Messages between stages as codes (compression.pipeline): bytes, memory, operators and times by closed forms; the program file; folding;
 * random plans through the deadlock check. */
#include "sim/engine/sim.h"
#include "tests/support/plans.h"

#include "core/lower/slots.h"
#include "core/program/program.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const struct compressor compressors[] = {
    {.kind = COMPRESSION_BF16},
    {.kind = COMPRESSION_INT8, .block = 100},
    {.kind = COMPRESSION_FP8_E5M2, .block = 64, .stochastic = true},
    {.kind = COMPRESSION_SIGN, .block = 256},
    {.kind = COMPRESSION_TOP_K, .block = 128, .fraction = 0.25},
};
enum { N_COMPRESSORS = sizeof compressors / sizeof *compressors };

static struct plan pipelines(int32_t n, const struct compressor *forward, const struct compressor *backward)
{
    struct plan p = plans_new(arena, "llama", 2, 2 * n);
    int32_t layers = plans_layers(arena, &p), last[2] = {layers / 2 - 1, layers - 1};
    for (int32_t r = 0; r < n; r++) plans_replica(arena, &p, 4, 2, last);
    if (forward) p.compression.forward = *forward;
    if (backward) p.compression.backward = *backward;
    return p;
}

/* Of n elements, written down a second time. */
static int64_t words_of(const struct compressor *x, int64_t n)
{
    int64_t words = 0, block = x->kind == COMPRESSION_BF16 ? n : x->block;
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < block ? n - at : block;
        words += x->kind == COMPRESSION_BF16    ? (m + 1) / 2
                 : x->kind == COMPRESSION_SIGN  ? 1 + (m + 31) / 32
                 : x->kind == COMPRESSION_TOP_K ? 2 * ((m + 3) / 4)
                                                : 1 + (m + 3) / 4;
    }
    return words;
}

static int32_t count(const struct program_stage *s, enum phase phase, enum op_kind kind)
{
    const struct procedure *f = &s->procedures[program_procedure(s, phase, "")];
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_instrs; i++)
        n += f->instrs[i].kind == INSTR_COMPUTE && s->ops[f->instrs[i].arg].kind == kind;
    return n;
}

static struct sim_result simulate(const struct plan *p, const struct program *x, bool trace, bool fold)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    struct sim_options o = {.keep_trace = trace, .fold = fold};
    struct sim_result r;
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p->cluster, f, &err) == OK, "%s", err.text);
    ck_assert_msg(sim_run(arena, x, cost_new(arena, f, &p->cluster), &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Of the forward direction alone, so that gradients stay as they are. At 1 GB/s; a send ends when the message has left. */
START_TEST(activations_are_sent_as_codes)
{
    const struct compressor *x = &compressors[_i];
    struct plan plain = pipelines(1, NULL, NULL), coded = pipelines(1, x, NULL);
    const struct program *a = plans_lower(arena, &plain, true), *b = plans_lower(arena, &coded, true);
    int32_t forward = 0;
    ck_assert_int_eq(a->n_channels, b->n_channels);
    for (int32_t i = 0; i < a->n_channels; i++) {
        const struct channel *c = &a->channels[i];
        ck_assert_int_eq(b->channels[i].bytes, c->gradient ? c->bytes : 4 * words_of(x, c->bytes / 4));
        forward += !c->gradient;
    }
    ck_assert_int_gt(forward, 0);
    ck_assert_int_eq(count(&b->stages[0], PHASE_F, OP_encode), forward);
    ck_assert_int_eq(count(&b->stages[1], PHASE_F, OP_decode), forward);
    ck_assert_int_eq(count(&b->stages[1], PHASE_B, OP_encode) + count(&b->stages[0], PHASE_B, OP_decode), 0);
    struct sim_result r = simulate(&coded, b, true, false);
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *s = &r.trace->spans[i];
        if (s->kind != SPAN_SEND) continue;
        ck_assert_int_eq(s->bytes, b->channels[s->op].bytes);
        ck_assert_int_le(llabs(s->end_ns - s->begin_ns - s->bytes), 1);
    }
}
END_TEST

/* The ring that a receiver had for a message is now of codes, and one of numbers more lives from F to B. */
START_TEST(buffers_hold_codes_and_numbers)
{
    const struct compressor *x = &compressors[_i];
    struct plan plain = pipelines(1, NULL, NULL), coded = pipelines(1, x, x);
    const struct program *a = plans_lower(arena, &plain, true), *b = plans_lower(arena, &coded, true);
    for (int32_t i = 0; i < a->n_channels; i++) {
        const struct program_stage *from = &b->stages[b->channels[i].from_stage], *to = &b->stages[b->channels[i].to_stage];
        const struct slot *out = &from->slots[b->channels[i].from_slot], *in = &to->slots[b->channels[i].to_slot];
        ck_assert(out->dtype == DTYPE_int32 && in->dtype == DTYPE_int32);
        ck_assert_int_eq(out->bytes, 4 * words_of(x, a->channels[i].bytes / 4));
        ck_assert(from->buffer_rings[out->buffer_ring].death == PHASE_SEND && to->buffer_rings[in->buffer_ring].birth == PHASE_RECEIVE);
        ck_assert_int_eq(from->buffer_rings[out->buffer_ring].stride_bytes, slot_align(out->bytes));
    }
}
END_TEST

START_TEST(equal_pipelines_fold_and_files_read_back)
{
    struct plan plan = pipelines(3, &compressors[_i], &compressors[(_i + 1) % N_COMPRESSORS]);
    const struct program *p = plans_lower(arena, &plan, true);
    ck_assert_int_eq(simulate(&plan, p, false, true).iteration_ns, simulate(&plan, p, false, false).iteration_ns);
    struct program again;
    struct error err = {0};
    size_t n1, n2;
    char *first = plans_text(p, &n1), *second;
    ck_assert_msg(program_parse(arena, "text", first, n1, &again, &err) == OK, "%s", err.text);
    second = plans_text(&again, &n2);
    ck_assert(n1 == n2 && !memcmp(first, second, n1));
    free(first), free(second);
}
END_TEST

/* Pieces of sequences, several chunks, recomputation, tensors that pass through. */
START_TEST(random_plans_have_codes)
{
    int coded = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct plan plan = plans_random_any(arena, seed), plain = plan;
        if (plan.deterministic) continue;
        plan.compression.forward = compressors[seed % N_COMPRESSORS], plan.compression.backward = compressors[seed / 2 % N_COMPRESSORS];
        const struct program *a = plans_lower(arena, &plain, true), *p = plans_lower(arena, &plan, true);
        ck_assert_int_gt(simulate(&plan, p, false, false).iteration_ns, 0);
        for (int32_t i = 0; i < p->n_channels; i++) {
            const struct channel *c = &p->channels[i];
            bool code = p->stages[c->from_stage].slots[c->from_slot].dtype == DTYPE_int32;
            ck_assert(code || c->bytes == a->channels[i].bytes);
            ck_assert(!code || p->stages[c->from_stage].device != p->stages[c->to_stage].device);
            coded += code;
        }
    }
    ck_assert_int_gt(coded, 100);
}
END_TEST

START_TEST(a_plan_file_states_both_directions)
{
    for (int k = 0; k < 2 * N_COMPRESSORS; k++) {
        struct plan p = pipelines(2, &compressors[k % N_COMPRESSORS], k < N_COMPRESSORS ? NULL : &compressors[(k + 1) % N_COMPRESSORS]), again;
        char *text;
        size_t n;
        struct node *root;
        struct error err = {0};
        p.compression.forward.between = k % 2 ? BETWEEN_NODES : BETWEEN_DEVICES;
        FILE *f = open_memstream(&text, &n);
        plan_write(f, arena, &p);
        fclose(f);
        ck_assert_msg(document_parse(arena, "plan", text, n, &root, &err) == OK, "%s", err.text);
        ck_assert_msg(plan_parse(arena, root, ".", &again, &err) == OK, "%s", err.text);
        ck_assert_mem_eq(&p.compression, &again.compression, sizeof p.compression);
        ck_assert_uint_eq(plan_hash(arena, &p), plan_hash(arena, &again));
        free(text);
    }
}
END_TEST

Suite *code_messages_suite(void)
{
    Suite *s = suite_create("code_messages");
    TCase *t = tcase_create("code_messages");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, activations_are_sent_as_codes, 0, N_COMPRESSORS);
    tcase_add_loop_test(t, buffers_hold_codes_and_numbers, 0, N_COMPRESSORS);
    tcase_add_loop_test(t, equal_pipelines_fold_and_files_read_back, 0, N_COMPRESSORS);
    tcase_add_test(t, random_plans_have_codes);
    tcase_add_test(t, a_plan_file_states_both_directions);
    suite_add_tcase(s, t);
    return s;
}
