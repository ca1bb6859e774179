/* Rows that give the parts of a step - F, B (input gradient), W, transfer - and what four schedules made of them.
 *
 * Each schedule is built by name or by the zero-bubble authors' scheduler (core/schedule, sim/zero_bubble) and timed by
 * sim/static: an iteration is what the busiest device takes from its first operation to its last. Real iterations are longer:
 * optimizer, sums of embeddings' gradients, kernels that wait; fit zero-bubble-1 has that ratio, from every second row's 1F1B.
 * Memory is the closed form of sim/footprint on the schedule's own order, 16 bytes a parameter: Megatron-LM's fp16 with
 * gradients summed in half precision (2 + 2 + 4 + 4 + 4). First and last stage have one layer fewer, and the embedding.
 */
#include "core/arena.h"
#include "core/schedule.h"
#include "sim/footprint.h"
#include "sim/static.h"
#include "sim/zero_bubble.h"
#include "tools/published_internal.h"

#include <inttypes.h>
#include <math.h>

enum { STAGES_MAX = 4096, BLOCKS_MAX = 1 << 20, WORDS = 51200, PARAMETER_BYTES = 16 };
static const double GB = 1e9;

/*      enumerator    suffix of the columns */
#define MEASURED(X) X(ONE, "1F1B") X(INTERLEAVED, "1F1B-I") X(ZB1, "ZB-1p") X(ZB2, "ZB-2p")
enum measured {
#define X(name, text) MEASURED_##name,
    MEASURED(X)
#undef X
        MEASURED_COUNT
};
static const char *const suffixes[] = {
#define X(name, text) text,
    MEASURED(X)
#undef X
};

struct bubbles {
    struct arena *a;
    int64_t layers, heads, hidden, sequence, stages, gpus, microbatch, microbatches;
    double ns[4]; /* F, I, W, transfer */
};

static enum status read_row(const struct csv *c, int32_t row, struct bubbles *b, struct error *err)
{
    const struct {
        const char *name;
        int64_t *out;
    } counts[] = {{"layers", &b->layers}, {"heads", &b->heads},
                  {"hidden", &b->hidden}, {"seq", &b->sequence},
                  {"stages", &b->stages}, {"gpus", &b->gpus},
                  {"microbatch_size", &b->microbatch}, {"microbatches", &b->microbatches}};
    static const char *const times[] = {"T_F_ms", "T_B_ms", "T_W_ms", "T_comm_ms"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        TRY(csv_count(c, row, counts[i].name, BLOCKS_MAX, counts[i].out, err));
    for (int i = 0; i < 4; i++) {
        TRY(csv_number(c, row, times[i], &b->ns[i], err));
        if (!(b->ns[i] >= 0 && b->ns[i] < 1e6))
            return error_set(err, ERR_INPUT, "%s:%" PRId32 ": %s: no time between 0 and 1000 s",
                             c->file, c->line[row], times[i]);
        b->ns[i] *= 1e6;
    }
    if (b->stages <= STAGES_MAX && (b->layers + 2) % b->stages == 0) return OK;
    return error_set(err, ERR_INPUT,
                     "%s:%" PRId32 ": layers: %" PRId64 " and two do not divide over %" PRId64
                     " stages",
                     c->file, c->line[row], b->layers, b->stages);
}

/* Times and bytes of each virtual stage. */
static struct pipeline pipeline_of(const struct bubbles *b, int32_t chunks)
{
    int32_t d = (int32_t)b->stages, n = d * chunks;
    struct pipeline p = {.n_devices = d, .n_stages = n};
    struct footprint_block block = {
        .sequence = b->sequence, .microbatch = b->microbatch, .hidden = b->hidden, .heads = b->heads};
    int64_t blocks = (b->layers + 2) / b->stages / chunks;
    p.stages = ARENA_ARRAY(b->a, struct pipeline_stage, (size_t)n);
    p.links = ARENA_ARRAY(b->a, struct pipeline_link, (size_t)n);
    p.devices = ARENA_ARRAY(b->a, struct pipeline_device, (size_t)d);
    for (int32_t v = 0; v < n; v++) {
        bool end = v == 0 || v == n - 1;
        double kept = (double)(blocks - end) * footprint_block(&block),
               weights = (double)(blocks - end) * footprint_block_weights(&block),
               parameters = (double)(blocks - end) * 12 * (double)b->hidden * (double)b->hidden +
                            (end ? WORDS * (double)b->hidden : 0);
        p.stages[v] = (struct pipeline_stage){.forward_ns = (int64_t)(b->ns[0] / chunks),
                                              .input_ns = (int64_t)(b->ns[1] / chunks),
                                              .weight_ns = (int64_t)(b->ns[2] / chunks),
                                              .forward_bytes = (int64_t)kept,
                                              .input_bytes = -(int64_t)(kept - weights),
                                              .weight_bytes = -(int64_t)weights};
        p.links[v].latency_ns[0] = p.links[v].latency_ns[1] = (int64_t)b->ns[3];
        p.devices[v % d].resident_bytes += (int64_t)(parameters * PARAMETER_BYTES);
        p.devices[v % d].limit_bytes = PIPELINE_NO_LIMIT;
    }
    return p;
}

/* The authors' scheduler with room for `most` microbatches of activations on every device. */
static enum status automatic(const struct bubbles *b, int32_t most, struct schedule *out,
                             struct error *err)
{
    struct pipeline p = pipeline_of(b, 1);
    int64_t makespan;
    for (int32_t v = 0; v < p.n_stages; v++) {
        p.stages[v].forward_bytes = 2;
        p.stages[v].input_bytes = p.stages[v].weight_bytes = -1;
        p.devices[v].resident_bytes = 0;
        p.devices[v].limit_bytes = 2 * most;
    }
    return zero_bubble_make(b->a, &p, (int32_t)b->microbatches, false, out, &makespan, err);
}

static enum status schedule_of(const struct bubbles *b, enum measured kind, int32_t chunks,
                               struct schedule *out, struct error *err)
{
    struct schedule_spec spec = {.kind = chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B,
                                 .n_devices = (int32_t)b->stages,
                                 .n_chunks = chunks,
                                 .n_microbatches = (int32_t)b->microbatches};
    if (kind == MEASURED_ZB1 || kind == MEASURED_ZB2)
        return automatic(b, (int32_t)b->stages * (kind == MEASURED_ZB2 ? 2 : 1), out, err);
    return schedule_make(b->a, &spec, out, err);
}

static enum status predict(const struct bubbles *b, enum measured kind, double *seconds,
                           double *bytes, struct error *err)
{
    int32_t chunks =
        kind == MEASURED_INTERLEAVED ? (int32_t)((b->layers + 2) / b->stages) : 1; /* a layer each */
    struct schedule s;
    struct static_timer *t;
    struct static_report r;
    struct pipeline p = pipeline_of(b, chunks);
    int64_t longest = 0, most = 0;
    TRY(schedule_of(b, kind, chunks, &s, err));
    TRY(pipeline_check(&p, &s, err));
    TRY(static_new(b->a, &s, &t, err));
    if (!static_report(t, &p, b->a, &r)) BUG("latency alone contends");
    for (int32_t d = 0; d < s.n_devices; d++) {
        int64_t ns = r.devices[d].end_ns - r.devices[d].begin_ns;
        if (ns > longest) longest = ns;
        if (r.devices[d].peak_bytes > most) most = r.devices[d].peak_bytes;
    }
    *seconds = (double)longest / 1e9;
    *bytes = (double)most;
    return OK;
}

static enum status add_cell(struct bubbles *b, const struct csv *c, int32_t row, enum measured kind,
                            const struct published_fit *fit, struct published_report *out,
                            struct error *err)
{
    double rate, memory, seconds, bytes;
    const char *suffix = suffixes[kind];
    TRY(csv_number(c, row, arena_printf(b->a, "measured_samples_per_gpu_s_%s", suffix), &rate, err));
    TRY(csv_number(c, row, arena_printf(b->a, "memory_GB_%s", suffix), &memory, err));
    if (isnan(rate)) return OK;
    if (!(rate > 0))
        return error_set(err, ERR_INPUT, "%s:%" PRId32 ": %s: throughput must be positive", c->file,
                         c->line[row], suffix);
    TRY(predict(b, kind, &seconds, &bytes, err));
    struct published_line line = {
        .line = c->line[row],
        .name = arena_printf(b->a, "%s m%" PRId64 " %s", csv_text(c, row, "model"), b->microbatches,
                             suffix),
        .part = suffix,
        .measured = (double)(b->microbatch * b->microbatches) / (rate * (double)b->gpus),
        .predicted = seconds * fit->overhead_ratio,
        .trained = kind == MEASURED_ONE && published_trains(out, fit, row)};
    out->lines[out->n++] = line;
    if (!(memory > 0)) return OK;
    line.measured = memory * GB;
    line.predicted = bytes;
    line.trained = false;
    out->memory[out->n_memory++] = line;
    return OK;
}

enum status published_bubbles(struct arena *a, const struct csv *c, const struct published_fit *fit,
                              int32_t every, struct published_report *out, struct error *err)
{
    size_t cells = MEASURED_COUNT * (size_t)c->n_rows;
    out->lines = ARENA_ARRAY(a, struct published_line, cells);
    out->memory = ARENA_ARRAY(a, struct published_line, cells);
    for (int32_t row = 0; row < c->n_rows; row += every) {
        struct bubbles b = {.a = a};
        TRY(read_row(c, row, &b, err));
        for (int kind = 0; kind < MEASURED_COUNT; kind++)
            TRY(add_cell(&b, c, row, (enum measured)kind, fit, out, err));
    }
    return OK;
}
