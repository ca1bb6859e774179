/* core/plan/compression.c - `compression` of a plan file: read, checked and written; the codes of its compressors. */
#include "core/base/arena.h"
#include "core/document/canonical.h"
#include "core/plan/internal.h"
#include "core/plan/keys.h"

#include <inttypes.h>
#include <math.h>

/* Elements of a block: QSGD's bucket of one scale; a selection that one GPU thread block makes out of its cache. */
enum { SCALE_BLOCK = 256, SELECTION_BLOCK = 65536 };
/* Of 16-bit numbers, which need no blocks: a GPU thread block's work, two words a thread. */
enum { HALF_BLOCK = 1024 };
/* Vogels et al. 2019 train ResNet18 with rank 2 and an LSTM with rank 4 to the quality of SGD. */
enum { POWER_RANK = 4, POWER_RANK_MAX = 1024 };

static const char *const names[] = {"none", "bf16", "fp16", "int8", "fp8-e4m3", "fp8-e5m2", "sign", "top-k", "random-k", "power-sgd", NULL};
static const char *const feedbacks[] = {"none", "ef", "ef21", NULL};
static const char *const roundings[] = {"nearest", "stochastic", NULL};
static const char *const betweens[] = {"devices", "nodes", NULL};

static bool is_pipeline(enum compression_of of) { return of >= COMPRESSION_OF_FORWARD; }
static bool is_half(enum compression k) { return k == COMPRESSION_BF16 || k == COMPRESSION_FP16; }
/* Bytes, with a scale for a block. */
static bool is_bytes(enum compression k) { return k >= COMPRESSION_INT8 && k <= COMPRESSION_FP8_E5M2; }
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
    } keys[] = {{"block", "int8, fp8-e4m3, fp8-e5m2, sign, top-k and random-k", plan_compressor_codes(x)},
                {"feedback", "int8, fp8-e4m3, fp8-e5m2, sign, top-k, random-k and power-sgd", x->kind >= COMPRESSION_INT8},
                {"rank", "power-sgd", x->kind == COMPRESSION_POWER_SGD},
                {"rounding", "int8, fp8-e4m3 and fp8-e5m2", is_bytes(x->kind)},
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

/* What a name alone has. Messages of pipelines have no feedback, because every microbatch has other activations, and are rounded to
 * nearest, because no sum over them takes the mean of their errors. */
static struct compressor defaults_of(enum compression kind, enum compression_of of)
{
    struct compressor x = {.kind = kind};
    bool keeps = kind >= COMPRESSION_INT8 && !is_bytes(kind) && !is_pipeline(of);
    x.feedback = keeps ? FEEDBACK_EF : FEEDBACK_NONE;
    x.stochastic = is_bytes(kind) && !is_pipeline(of);
    if (plan_compressor_codes(&x)) x.block = is_sparse(kind) ? SELECTION_BLOCK : SCALE_BLOCK;
    if (kind == COMPRESSION_POWER_SGD) x.rank = POWER_RANK;
    return x;
}

static enum status read_choice(const struct node *map, const char *key, const char *const *choices, int *out, struct error *err)
{
    const struct node *n = node_get(map, key);
    return n ? node_choice(n, choices, out, err) : OK;
}

static enum status read_map(const struct node *map, enum compression_of of, struct compressor *x, struct error *err)
{
    const struct node *n;
    int kind;
    TRY(document_keys(map, plan_compressor_keys, err));
    TRY(node_need(map, "kind", &n, err));
    TRY(node_choice(n, names, &kind, err));
    *x = defaults_of((enum compression)kind, of);
    TRY(check_keys(map, x, err));
    int64_t block = x->block, rank = x->rank;
    int rounding = x->stochastic, feedback = (int)x->feedback, between = BETWEEN_DEVICES;
    TRY(node_get_int(map, "block", 1, ENCODING_BLOCK_MAX, &block, err));
    TRY(read_choice(map, "feedback", feedbacks, &feedback, err));
    TRY(read_choice(map, "rounding", roundings, &rounding, err));
    TRY(read_choice(map, "between", betweens, &between, err));
    TRY(node_get_int(map, "rank", 1, POWER_RANK_MAX, &rank, err));
    if (x->kind == COMPRESSION_POWER_SGD && feedback == FEEDBACK_EF21)
        return node_error(node_get(map, "feedback"), err, "power-sgd has none or ef");
    if (is_pipeline(of) && feedback)
        return node_error(node_get(map, "feedback"), err, "messages of pipelines have none, because every microbatch has other activations");
    x->block = (int32_t)block, x->rank = (int32_t)rank, x->stochastic = rounding;
    x->feedback = (enum encoding_feedback)feedback, x->between = (enum compression_between)between;
    return is_sparse(x->kind) ? read_fraction(map, &x->fraction, err) : OK;
}

/* A name alone has the defaults. */
static enum status read_one(const struct node *n, enum compression_of of, struct compressor *out, struct error *err)
{
    int kind;
    if (!n) return OK;
    if (n->kind == NODE_MAP) return read_map(n, of, out, err);
    TRY(node_choice(n, names, &kind, err));
    if (is_sparse((enum compression)kind))
        return node_error(n, err, "needs a fraction of the elements: {kind: %s, fraction: 0.01}", names[kind]);
    *out = defaults_of((enum compression)kind, of);
    return OK;
}

/* A kind for both directions, or one for each. */
static enum status read_pipeline(const struct node *n, struct plan_compression *x, struct error *err)
{
    const struct node *both = n && n->kind == NODE_MAP && !node_get(n, "kind") ? NULL : n;
    if (!n) return OK;
    if (!both) TRY(document_keys(n, plan_pipeline_keys, err));
    TRY(read_one(both ? both : node_get(n, "forward"), COMPRESSION_OF_FORWARD, &x->forward, err));
    return read_one(both ? both : node_get(n, "backward"), COMPRESSION_OF_BACKWARD, &x->backward, err);
}

enum status plan_read_compression(const struct node *root, struct plan *p, struct error *err)
{
    const struct node *map = node_get(root, "compression");
    if (!map || map->kind == NODE_NULL) return OK;
    TRY(document_keys(map, plan_compression_keys, err));
    TRY(read_one(node_get(map, "gradients"), COMPRESSION_OF_GRADIENTS, &p->compression.gradients, err));
    TRY(read_one(node_get(map, "outer"), COMPRESSION_OF_OUTER, &p->compression.outer, err));
    return read_pipeline(node_get(map, "pipeline"), &p->compression, err);
}

struct encoding plan_compressor_code(const struct plan_compression *all, enum compression_of of, enum dtype t)
{
    static const enum encoding_kind kinds[] = {[COMPRESSION_INT8] = ENCODING_INT8,
                                           [COMPRESSION_BF16] = ENCODING_BF16,
                                           [COMPRESSION_FP16] = ENCODING_FP16,
                                           [COMPRESSION_FP8_E4M3] = ENCODING_FP8_E4M3,
                                           [COMPRESSION_FP8_E5M2] = ENCODING_FP8_E5M2,
                                           [COMPRESSION_SIGN] = ENCODING_SIGN,
                                           [COMPRESSION_TOP_K] = ENCODING_TOP_K,
                                           [COMPRESSION_RANDOM_K] = ENCODING_RANDOM_K};
    const struct compressor *x = plan_compressor(all, of);
    bool half = is_pipeline(of) && is_half(x->kind) && t == DTYPE_fp32;
    if (half) return (struct encoding){.kind = kinds[x->kind], .block = HALF_BLOCK, .value_words = 1};
    if (!plan_compressor_codes(x)) return (struct encoding){0};
    double kept = ceil(x->fraction * x->block * (1 - 1e-12)); /* 0.07 · 100 is 7 */
    return (struct encoding){.kind = kinds[x->kind],
                         .feedback = x->feedback,
                         .stochastic = x->stochastic,
                         .block = x->block,
                         .kept = is_sparse(x->kind) ? (int32_t)(kept < 1 ? 1 : kept) : 0,
                         .value_words = (int32_t)(dtype_bytes(dtype_master(t)) / 4)};
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
            if (p->replicas[r].stages[i].zero && !(x->between && p->replicas[r].stages[i].hybrid_shard))
                return plan_complain(&(struct plan_place){p, r, i, err},
                                     "zero: its reduce-scatter adds shards of gradients on their way; %s exchanges codes or factors of whole gradients, bf16 and fp16 numbers to be added",
                                     names[x->kind]);
    return OK;
}

static enum status check_pipeline(const struct plan *p, struct error *err)
{
    const struct plan_compression *x = &p->compression;
    struct plan_place whole = {p, -1, -1, err};
    if (!x->forward.kind && !x->backward.kind) return OK;
    if (x->forward.kind == COMPRESSION_POWER_SGD || x->backward.kind == COMPRESSION_POWER_SGD)
        return plan_complain(&whole, "compression.pipeline: power-sgd is for gradients; messages of pipelines have the other kinds");
    if (p->job.model.measured)
        return plan_complain(&whole, "compression.pipeline: the messages of measured layers were measured as they are");
    return OK;
}

/* Gradients between nodes only: hybrid_shard has collectives there. */
static enum status check_between(const struct plan *p, struct error *err)
{
    const struct plan_compression *x = &p->compression;
    struct plan_place whole = {p, -1, -1, err};
    if (x->outer.between)
        return plan_complain(&whole, "compression.outer: islands exchange everything at once; leave between out");
    if (!x->gradients.between) return OK;
    if (x->gradients.feedback)
        return plan_complain(&whole, "compression.gradients: between nodes shards of sums are encoded, which have no feedback: feedback: none");
    if (x->gradients.kind == COMPRESSION_POWER_SGD)
        return plan_complain(&whole, "compression.gradients: between nodes shards of buckets are exchanged, which are no matrices; power-sgd has all devices");
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (!p->replicas[r].stages[i].hybrid_shard)
                return plan_complain(&(struct plan_place){p, r, i, err},
                                     "compression.gradients: between nodes needs hybrid_shard: true beside zero: 1, 2 or 3 on every stage, whose sums are taken inside nodes first");
    return OK;
}

enum status plan_check_compression(const struct plan *p, struct error *err)
{
    const struct plan_compression *x = &p->compression;
    struct plan_place whole = {p, -1, -1, err};
    bool any = false, half = false;
    for (int of = 0; of < COMPRESSIONS; of++) {
        any |= plan_compressor(x, of)->kind > 0;
        half |= is_half(plan_compressor(x, of)->kind);
    }
    if (!any) return OK;
    if (p->job.precision == DTYPE_fp64 && half)
        return plan_complain(&whole, "compression: sums and messages of fp64 are fp64; bf16 and fp16 take precision: fp32, bf16 or fp16");
    if (p->deterministic)
        return plan_complain(&whole, "compression: a deterministic plan's sums and messages keep every bit; leave one of the two out");
    if (x->outer.kind && !p->local_sgd.outer.every)
        return plan_complain(&whole, "compression.outer: there is no local_sgd whose exchanges it is for");
    if (x->outer.kind == COMPRESSION_POWER_SGD)
        return plan_complain(&whole, "compression.outer: power-sgd is for gradients; exchanges of islands have the other kinds");
    TRY(check_pipeline(p, err));
    TRY(check_between(p, err));
    TRY(check_codes(p, &x->gradients, err));
    if (p->local_sgd.outer.delay && x->outer.kind && !is_half(x->outer.kind))
        return plan_complain(&whole, "compression.outer: with local_sgd.delay exchanges have the kinds bf16 and fp16 only");
    return check_codes(p, &x->outer, err);
}

static void write_one(FILE *out, const struct compressor *x)
{
    if (x->kind < COMPRESSION_INT8 && !x->between) {
        fputs(names[x->kind], out);
        return;
    }
    fprintf(out, "{kind: %s", names[x->kind]);
    if (x->kind == COMPRESSION_POWER_SGD) fprintf(out, ", rank: %" PRId32, x->rank);
    if (plan_compressor_codes(x)) fprintf(out, ", block: %" PRId32, x->block);
    if (x->kind >= COMPRESSION_INT8) fprintf(out, ", feedback: %s", feedbacks[x->feedback]);
    if (is_bytes(x->kind)) fprintf(out, ", rounding: %s", roundings[x->stochastic]);
    if (is_sparse(x->kind)) fprintf(out, ", fraction: %.17g", x->fraction);
    if (x->between) fprintf(out, ", between: %s", betweens[x->between]);
    fputc('}', out);
}

void plan_write_compression(FILE *out, const struct plan *p)
{
    const struct plan_compression *x = &p->compression;
    bool pipeline = x->forward.kind || x->backward.kind;
    if (!x->gradients.kind && !x->outer.kind && !pipeline) return;
    fputs("compression:\n  gradients: ", out);
    write_one(out, &x->gradients);
    fputs("\n  outer: ", out);
    write_one(out, &x->outer);
    if (pipeline) {
        fputs("\n  pipeline: {forward: ", out);
        write_one(out, &x->forward);
        fputs(", backward: ", out);
        write_one(out, &x->backward);
        fputc('}', out);
    }
    fputc('\n', out);
}

/* --- described --- */

const char *plan_describe_compressor(struct arena *a, const struct plan_compression *all, enum compression_of of)
{
    static const char *const what[] = {"gradients", "exchanges of islands", "activations", "gradients of activations"},
                      *const how[] = {"", ", error feedback", ", EF21 feedback"};
    const struct compressor *x = plan_compressor(all, of);
    const char *verb = is_pipeline(of) ? "sent as" : plan_compressor_codes(x) ? "exchanged as" : "summed in", *kind = names[x->kind];
    if (!x->kind) return NULL;
    if (x->kind == COMPRESSION_POWER_SGD)
        verb = "summed", kind = arena_printf(a, "as factors of rank %" PRId32 " (PowerSGD%s)", x->rank, how[x->feedback]);
    else if (is_sparse(x->kind))
        kind = arena_printf(a, "%s of %g %% in blocks of %" PRId32 "%s", kind, 100 * x->fraction, x->block, how[x->feedback]);
    else if (plan_compressor_codes(x))
        kind = arena_printf(a, "%s with a scale for %" PRId32 "%s", kind, x->block, how[x->feedback]);
    return arena_printf(a, "%s %s %s%s", what[of], verb, kind, x->between ? " between nodes" : "");
}

const char *plan_compressor_label(struct arena *a, const struct compressor *x)
{
    if (x->kind == COMPRESSION_POWER_SGD) return arena_printf(a, "%s:%" PRId32, names[x->kind], x->rank);
    if (!is_sparse(x->kind)) return arena_printf(a, "%s:%" PRId32, names[x->kind], x->block);
    return arena_printf(a, "%s:%g:%" PRId32, names[x->kind], x->fraction, x->block);
}

static bool are_apart(const struct plan *p, const struct plan_stage *a, const struct plan_stage *b, enum compression_between between)
{
    const struct device *d = p->cluster.devices;
    for (int32_t i = 0; i < plan_stage_devices(a); i++)
        for (int32_t k = 0; k < plan_stage_devices(b); k++) {
            int32_t x = plan_stage_device(a, i), y = plan_stage_device(b, k);
            if (x != y && (!between || d[x].node != d[y].node)) return true;
        }
    return false;
}

/* Whether two devices of an island, or two on different nodes, hold the same layers. Quadratic in the stages where there are none. */
static bool adds_gradients(const struct plan *p, enum compression_between between)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t q = 0; q <= r; q++)
            for (int32_t i = 0; plan_island(p, q) == plan_island(p, r) && i < p->replicas[r].n_stages; i++)
                for (int32_t k = 0; k < p->replicas[q].n_stages; k++) {
                    const struct plan_stage *a = &p->replicas[r].stages[i], *b = &p->replicas[q].stages[k];
                    if (a->first_layer <= b->last_layer && b->first_layer <= a->last_layer && are_apart(p, a, b, between)) return true;
                }
    return false;
}

/* Whether messages between stages cross devices, or nodes. */
static bool crosses(const struct plan *p, enum compression_between between)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i + 1 < p->replicas[r].n_stages; i++)
            if (are_apart(p, &p->replicas[r].stages[i], &p->replicas[r].stages[i + 1], between)) return true;
    return false;
}

const char *plan_compressor_idle(const struct plan *p, enum compression_of of)
{
    const struct compressor *x = plan_compressor(&p->compression, of);
    enum dtype t = p->job.precision;
    if (is_half(x->kind) && is_pipeline(of) && dtype_is_half(t)) return "these messages have 16 bits without it";
    if ((x->kind == COMPRESSION_BF16 && t == DTYPE_bf16) || (x->kind == COMPRESSION_FP16 && t == DTYPE_fp16))
        return "messages of these sums have this type without it";
    if (of == COMPRESSION_OF_GRADIENTS && !adds_gradients(p, x->between)) return x->between ? "no sum of gradients crosses nodes" : "no two devices add gradients";
    if (is_pipeline(of) && !crosses(p, x->between)) return x->between ? "no message between stages crosses nodes" : "no message between stages crosses devices";
    return NULL;
}
