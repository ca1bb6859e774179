/* core/plan/compression.c - `compression` of a plan file: read, checked and written; the codes of its compressors. */
#include "core/base/arena.h"
#include "core/document/canonical.h"
#include "core/plan/internal.h"
#include "core/plan/keys.h"

#include <inttypes.h>
#include <math.h>

/* Elements of a block: QSGD's bucket of one scale; a selection that one GPU thread block makes out of its cache. */
enum { SCALE_BLOCK = 256, SELECTION_BLOCK = 65536 };
/* Vogels et al. 2019 train ResNet18 with rank 2 and an LSTM with rank 4 to the quality of SGD. */
enum { POWER_RANK = 4, POWER_RANK_MAX = 1024 };

static const char *const names[] = {"none", "bf16", "fp16", "int8", "sign", "top-k", "random-k", "power-sgd", NULL};
static const char *const feedbacks[] = {"none", "ef", "ef21", NULL};
static const char *const roundings[] = {"nearest", "stochastic", NULL};

static bool is_sparse(enum compression k) { return k == COMPRESSION_TOP_K || k == COMPRESSION_RANDOM_K; }
bool plan_compressor_codes(const struct compressor *x)
{
    return x->kind >= COMPRESSION_INT8 && x->kind <= COMPRESSION_RANDOM_K;
}

/* The keys that a kind has none of. */
static enum status check_keys(const struct node *map, const struct compressor *x, struct error *err)
{
    const struct {
        const char *key, *of;
        bool has;
    } keys[] = {{"block", "int8, sign, top-k and random-k", plan_compressor_codes(x)},
                {"feedback", "int8, sign, top-k, random-k and power-sgd", x->kind >= COMPRESSION_INT8},
                {"rank", "power-sgd", x->kind == COMPRESSION_POWER_SGD},
                {"rounding", "int8", x->kind == COMPRESSION_INT8},
                {"fraction", "top-k and random-k", is_sparse(x->kind)}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct node *n = node_get(map, keys[i].key);
        if (n && !keys[i].has)
            return node_error(n, err, "%s has none; only %s", names[x->kind], keys[i].of);
    }
    return OK;
}

static enum status read_fraction(const struct node *map, double *out, struct error *err)
{
    const struct node *n;
    TRY(node_need(map, "fraction", &n, err));
    TRY(node_double(n, 0, 1, out, err));
    return *out > 0 ? OK : node_error(n, err, "must be above 0: a code has an element at least; kind: none exchanges everything");
}

static enum status read_map(const struct node *map, struct compressor *x, struct error *err)
{
    const struct node *n;
    int kind, rounding = 1, feedback;
    int64_t block, rank = POWER_RANK;
    TRY(document_keys(map, plan_compressor_keys, err));
    TRY(node_need(map, "kind", &n, err));
    TRY(node_choice(n, names, &kind, err));
    x->kind = (enum compression)kind;
    TRY(check_keys(map, x, err));
    block = is_sparse(x->kind) ? SELECTION_BLOCK : SCALE_BLOCK;
    feedback = x->kind == COMPRESSION_INT8 ? FEEDBACK_NONE : FEEDBACK_EF;
    TRY(node_get_int(map, "block", 1, ENCODING_BLOCK_MAX, &block, err));
    if ((n = node_get(map, "feedback"))) TRY(node_choice(n, feedbacks, &feedback, err));
    if ((n = node_get(map, "rounding"))) TRY(node_choice(n, roundings, &rounding, err));
    TRY(node_get_int(map, "rank", 1, POWER_RANK_MAX, &rank, err));
    if (x->kind == COMPRESSION_POWER_SGD && feedback == FEEDBACK_EF21)
        return node_error(node_get(map, "feedback"), err, "power-sgd has none or ef");
    if (x->kind >= COMPRESSION_INT8) x->feedback = (enum encoding_feedback)feedback;
    if (x->kind == COMPRESSION_POWER_SGD) x->rank = (int32_t)rank;
    if (!plan_compressor_codes(x)) return OK;
    x->block = (int32_t)block;
    x->stochastic = x->kind == COMPRESSION_INT8 && rounding;
    return is_sparse(x->kind) ? read_fraction(map, &x->fraction, err) : OK;
}

/* A name alone has the defaults. */
static enum status read_one(const struct node *map, const char *key, struct compressor *out, struct error *err)
{
    const struct node *n = node_get(map, key);
    int kind;
    if (!n) return OK;
    if (n->kind == NODE_MAP) return read_map(n, out, err);
    TRY(node_choice(n, names, &kind, err));
    if (is_sparse((enum compression)kind))
        return node_error(n, err, "needs a fraction of the elements: {kind: %s, fraction: 0.01}", names[kind]);
    *out = (struct compressor){.kind = (enum compression)kind};
    if (kind == COMPRESSION_POWER_SGD) out->rank = POWER_RANK, out->feedback = FEEDBACK_EF;
    if (!plan_compressor_codes(out)) return OK;
    out->block = SCALE_BLOCK;
    out->stochastic = kind == COMPRESSION_INT8;
    out->feedback = kind == COMPRESSION_INT8 ? FEEDBACK_NONE : FEEDBACK_EF;
    return OK;
}

enum status plan_read_compression(const struct node *root, struct plan *p, struct error *err)
{
    const struct node *map = node_get(root, "compression");
    if (!map || map->kind == NODE_NULL) return OK;
    TRY(document_keys(map, plan_compression_keys, err));
    TRY(read_one(map, "gradients", &p->compression.gradients, err));
    return read_one(map, "outer", &p->compression.outer, err);
}

struct encoding plan_compressor_code(const struct compressor *x, enum dtype t)
{
    static const enum encoding_kind kinds[] = {[COMPRESSION_INT8] = ENCODING_INT8,
                                           [COMPRESSION_SIGN] = ENCODING_SIGN,
                                           [COMPRESSION_TOP_K] = ENCODING_TOP_K,
                                           [COMPRESSION_RANDOM_K] = ENCODING_RANDOM_K};
    if (!plan_compressor_codes(x)) return (struct encoding){0};
    double kept = ceil(x->fraction * x->block * (1 - 1e-12)); /* 0.07 · 100 is 7 */
    return (struct encoding){.kind = kinds[x->kind],
                         .feedback = x->feedback,
                         .stochastic = x->stochastic,
                         .block = x->block,
                         .kept = is_sparse(x->kind) ? (int32_t)(kept < 1 ? 1 : kept) : 0,
                         .value_words = (int32_t)(dtype_bytes(dtype_master(t)) / 4)};
}

static bool is_half(const struct compressor *x)
{
    return x->kind == COMPRESSION_BF16 || x->kind == COMPRESSION_FP16;
}

/* ZeRO's sums and a loss scale, which codes do not cover. */
static enum status check_codes(const struct plan *p, const struct compressor *x, struct error *err)
{
    struct plan_place whole = {p, -1, -1, err};
    if (x->kind < COMPRESSION_INT8) return OK;
    if (x->feedback && p->job.precision == DTYPE_fp16)
        return plan_complain(&whole, "compression: feedback is kept from step to step and the loss scale of fp16 changes between them; bf16 has none, or take feedback: none");
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].zero)
                return plan_complain(&(struct plan_place){p, r, i, err},
                                     "zero: its reduce-scatter adds shards of gradients on their way; %s exchanges codes or factors of whole gradients, bf16 and fp16 numbers to be added",
                                     names[x->kind]);
    return OK;
}

enum status plan_check_compression(const struct plan *p, struct error *err)
{
    const struct plan_compression *x = &p->compression;
    struct plan_place whole = {p, -1, -1, err};
    if (!x->gradients.kind && !x->outer.kind) return OK;
    if (p->job.precision == DTYPE_fp64 && (is_half(&x->gradients) || is_half(&x->outer)))
        return plan_complain(&whole, "compression: sums of fp64 gradients are fp64; bf16 and fp16 take precision: fp32, bf16 or fp16");
    if (p->deterministic)
        return plan_complain(&whole, "compression: a deterministic plan's sums keep every bit; leave one of the two out");
    if (x->outer.kind && !p->local_sgd.outer.every)
        return plan_complain(&whole, "compression.outer: there is no local_sgd whose exchanges it is for");
    if (x->outer.kind == COMPRESSION_POWER_SGD)
        return plan_complain(&whole, "compression.outer: power-sgd is for gradients; exchanges of islands have the other kinds");
    TRY(check_codes(p, &x->gradients, err));
    if (p->local_sgd.outer.delay && x->outer.kind && !is_half(&x->outer))
        return plan_complain(&whole, "compression.outer: with local_sgd.delay exchanges have the kinds bf16 and fp16 only");
    return check_codes(p, &x->outer, err);
}

static void write_one(FILE *out, const struct compressor *x)
{
    if (x->kind == COMPRESSION_POWER_SGD)
        fprintf(out, "{kind: %s, rank: %" PRId32 ", feedback: %s}", names[x->kind], x->rank, feedbacks[x->feedback]);
    else if (!plan_compressor_codes(x))
        fputs(names[x->kind], out);
    if (!plan_compressor_codes(x)) return;
    fprintf(out, "{kind: %s, block: %" PRId32 ", feedback: %s", names[x->kind], x->block, feedbacks[x->feedback]);
    if (x->kind == COMPRESSION_INT8) fprintf(out, ", rounding: %s", roundings[x->stochastic]);
    if (is_sparse(x->kind)) fprintf(out, ", fraction: %.17g", x->fraction);
    fputc('}', out);
}

void plan_write_compression(FILE *out, const struct plan *p)
{
    const struct plan_compression *x = &p->compression;
    if (!x->gradients.kind && !x->outer.kind) return;
    fputs("compression:\n  gradients: ", out);
    write_one(out, &x->gradients);
    fputs("\n  outer: ", out);
    write_one(out, &x->outer);
    fputc('\n', out);
}

const char *plan_describe_compressor(struct arena *a, const struct compressor *x)
{
    static const char *const how[] = {"", ", error feedback", ", EF21 feedback"};
    if (!x->kind) return NULL;
    if (x->kind == COMPRESSION_POWER_SGD)
        return arena_printf(a, "summed as factors of rank %" PRId32 " (PowerSGD%s)", x->rank, how[x->feedback]);
    if (!plan_compressor_codes(x)) return arena_printf(a, "summed in %s", names[x->kind]);
    const char *kind = is_sparse(x->kind)
                           ? arena_printf(a, "%s of %g %% in blocks of %" PRId32, names[x->kind], 100 * x->fraction, x->block)
                           : arena_printf(a, "%s with a scale for %" PRId32, names[x->kind], x->block);
    return arena_printf(a, "exchanged as %s%s", kind, how[x->feedback]);
}
