/* Conversion of each table format to one struct. A format is recognised by columns that no other has. */
#include "core/base/arena.h"
#include "tests/validate/published.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    TP_MAX = 1024,
    DEVICES_MAX = 1 << 14,
    LAYERS_MAX = 1 << 12,
    COUNT_MAX = 1 << 20,
    WORDS = 51200
};
static const double GIB = 1073741824.0;

static const char *const names[] = {
#define X(name, text) text,
    PUBLISHED_FORMATS(X)
#undef X
};
static const char *const marks[PUBLISHED_FORMAT_COUNT][3] = {
    {"layers_per_virtual_stage", "activation_recompute", "iter_time_s_derived"},
    {"interleave", "mode", "iter_time_s"},
    {"# GPUs", "tensor parallelism", "iteration time (ms)"},
    {"T_F_ms", "T_comm_ms", "measured_samples_per_gpu_s_1F1B"},
};

const char *published_format_name(enum published_format f) { return names[f]; }

enum status published_recognise(const struct csv *c, enum published_format *out, struct error *err)
{
    for (int f = 0; f < PUBLISHED_FORMAT_COUNT; f++) {
        bool all = true;
        for (int i = 0; i < 3; i++) all = all && csv_column(c, marks[f][i]) >= 0;
        if (all) return *out = (enum published_format)f, OK;
    }
    return error_set(
        err, ERR_INPUT,
        "%s:1: the header is of no table that is known: megatron_sc21 "
        "(layers_per_virtual_stage …), korthikanti (interleave, mode …), vtrain_single "
        "(# GPUs …), zero_bubble (T_F_ms …)",
        c->file);
}

struct column {
    const char *name;
    int64_t *out;
};

static enum status read_counts(const struct csv *c, int32_t row, const struct column *columns,
                               size_t n, struct error *err)
{
    for (size_t i = 0; i < n; i++)
        TRY(csv_count(c, row, columns[i].name, COUNT_MAX, columns[i].out, err));
    return OK;
}
#define COUNTS(...)                                                                                \
    (const struct column[]){__VA_ARGS__},                                                          \
        sizeof((const struct column[]){__VA_ARGS__}) / sizeof(struct column)

static enum status read_megatron(const struct csv *c, int32_t row, struct published_row *r,
                                 struct error *err)
{
    int64_t per_chunk = 0;
    r->name = csv_text(c, row, "model");
    r->recompute = RECOMPUTE_BLOCKS;
    TRY(read_counts(c, row,
                    COUNTS({"hidden", &r->hidden}, {"heads", &r->heads}, {"layers", &r->layers},
                           {"seq", &r->sequence}, {"vocab", &r->vocabulary}, {"tp", &r->tp},
                           {"pp", &r->stages}, {"dp", &r->replicas},
                           {"global_batch", &r->global_batch}, {"micro_batch", &r->microbatch}),
                    err));
    if (*csv_text(c, row, "layers_per_virtual_stage")) {
        TRY(csv_count(c, row, "layers_per_virtual_stage", COUNT_MAX, &per_chunk, err));
        r->chunks = r->layers / r->stages / per_chunk;
        if (r->chunks < 1 || r->chunks * per_chunk * r->stages != r->layers)
            return error_set(err, ERR_INPUT,
                             "%s:%" PRId32 ": layers_per_virtual_stage: %" PRId64
                             " do not divide the %" PRId64 " layers of %" PRId64 " stages",
                             c->file, c->line[row], per_chunk, r->layers, r->stages);
    }
    return csv_number(c, row, "iter_time_s_derived", &r->measured_s, err);
}

static enum status read_korthikanti(const struct csv *c, int32_t row, struct published_row *r,
                                    struct error *err)
{
    const struct {
        const char *column;
        double *out;
    } bytes[] = {{"weights_opt_GiB", &r->parameters_bytes},
                 {"act_none_GiB", &r->activations_none_bytes},
                 {"act_seqsel_GiB", &r->activations_selective_bytes}};
    const char *mode = csv_text(c, row, "mode");
    r->name = csv_text(c, row, "model");
    r->vocabulary = WORDS;
    TRY(read_counts(c, row,
                    COUNTS({"hidden", &r->hidden}, {"heads", &r->heads}, {"layers", &r->layers},
                           {"seq", &r->sequence}, {"tp", &r->tp}, {"pp", &r->stages},
                           {"dp", &r->replicas}, {"interleave", &r->chunks},
                           {"global_batch", &r->global_batch}, {"micro_batch", &r->microbatch}),
                    err));
    if (!strcmp(mode, "full recompute"))
        r->recompute = RECOMPUTE_BLOCKS;
    else if (!strcmp(mode, "sequence parallel + selective recompute"))
        r->recompute = RECOMPUTE_SELECTIVE, r->sequence_parallel = true;
    else if (!strcmp(mode, "selective recompute"))
        r->recompute = RECOMPUTE_SELECTIVE;
    else if (!strcmp(mode, "sequence parallel"))
        r->sequence_parallel = true;
    else if (strcmp(mode, "no recompute") != 0)
        return error_set(
            err, ERR_INPUT,
            "%s:%" PRId32 ": mode: '%.40s' is none of full recompute, selective "
            "recompute, sequence parallel, sequence parallel + selective recompute, no "
            "recompute",
            c->file, c->line[row], mode);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        TRY(csv_number(c, row, bytes[i].column, bytes[i].out, err));
        *bytes[i].out *= GIB;
    }
    return csv_number(c, row, "iter_time_s", &r->measured_s, err);
}

static enum status read_vtrain(struct arena *a, const struct csv *c, int32_t row,
                               struct published_row *r, struct error *err)
{
    int64_t tp;
    r->vocabulary = WORDS;
    TRY(read_counts(c, row,
                    COUNTS({"# GPUs", &tp}, {"hidden size", &r->hidden},
                           {"attention heads", &r->heads}, {"# layers", &r->layers},
                           {"sequence length", &r->sequence}, {"tensor parallelism", &r->tp},
                           {"pipeline parallelism", &r->stages}, {"data parallelism", &r->replicas},
                           {"global batch", &r->global_batch}, {"micro batch", &r->microbatch}),
                    err));
    r->name = arena_printf(a, "h%" PRId64 " l%" PRId64, r->hidden, r->layers);
    if (tp != r->tp * r->stages * r->replicas)
        return error_set(err, ERR_INPUT,
                         "%s:%" PRId32 ": # GPUs: %" PRId64 " are not tensor x data x pipeline",
                         c->file, c->line[row], tp);
    TRY(csv_number(c, row, "iteration time (ms)", &r->measured_s, err));
    r->measured_s /= 1e3;
    return OK;
}

static enum status check_row(const struct csv *c, int32_t row, const struct published_row *r,
                             struct error *err)
{
    const char *why = NULL;
    if (!(r->measured_s > 0)) why = "the measured time is not positive";
    if (r->layers % (r->stages * r->chunks))
        why = "layers do not divide over the stages and their chunks";
    if (r->global_batch % (r->microbatch * r->replicas))
        why = "the global batch does not divide over replicas and microbatches";
    if (r->heads < 1 || r->hidden % r->heads) why = "heads do not divide hidden";
    if (r->tp > TP_MAX || r->tp * r->stages * r->replicas > DEVICES_MAX)
        why = "more than 16384 GPUs";
    if (r->layers > LAYERS_MAX) why = "more than 4096 layers";
    return why ? error_set(err, ERR_INPUT, "%s:%" PRId32 ": %s", c->file, c->line[row], why) : OK;
}

enum status published_row(struct arena *a, const struct csv *c, enum published_format f,
                          int32_t row, struct published_row *out, struct error *err)
{
    *out = (struct published_row){.chunks = 1,
                                  .recompute = RECOMPUTE_NONE,
                                  .parameters_bytes = NAN,
                                  .activations_none_bytes = NAN,
                                  .activations_selective_bytes = NAN};
    switch (f) {
    case PUBLISHED_MEGATRON:
        TRY(read_megatron(c, row, out, err));
        break;
    case PUBLISHED_KORTHIKANTI:
        TRY(read_korthikanti(c, row, out, err));
        break;
    case PUBLISHED_VTRAIN:
        TRY(read_vtrain(a, c, row, out, err));
        break;
    default:
        BUG("rows of %s are no plans", published_format_name(f));
    }
    return check_row(c, row, out, err);
}
