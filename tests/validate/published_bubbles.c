/* Rows with the times of F, B (input gradient), W and a transfer, and the iteration times of four schedules.
 *
 * Each schedule is built by name or by the zero-bubble authors' scheduler (core/plan/schedule, sim/pipeline/zero_bubble) and timed by
 * sim/pipeline/static: an iteration is the time of the busiest device from its first operation to its last. Real iterations are
 * longer: kernels run slower than profiled alone, and every F and B waits for a host handshake with its neighbours, which
 * costs interleaved schedules most. Fit zero-bubble-1 has these two constants. The order is that of the authors' scheduler.
 * Memory is the closed form of sim/explain/footprint on the schedule's own order, 16 bytes per parameter: Megatron-LM's fp16 with
 * gradients summed in half precision (2 + 2 + 4 + 4 + 4). First and last stage have one layer fewer, and the embedding.
 */
#include "core/base/arena.h"
#include "core/plan/schedule.h"
#include "sim/explain/footprint.h"
#include "sim/pipeline/static.h"
#include "sim/pipeline/zero_bubble.h"
#include "tests/validate/published_internal.h"

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

struct published_parts {
    struct arena *a;
    enum measured kind;
    int32_t chunks;
    struct schedule schedule;
    struct static_timer *timer;
    int64_t layers, heads, hidden, sequence, stages, gpus, microbatch, microbatches;
    double ns[4]; /* F, I, W, transfer */
};

static enum status read_row(const struct csv *c, int32_t row, struct published_parts *b,
                            struct error *err)
{
    const struct {
        const char *name;
        int64_t *out;
    } counts[] = {{"layers", &b->layers},
                  {"heads", &b->heads},
                  {"hidden", &b->hidden},
                  {"seq", &b->sequence},
                  {"stages", &b->stages},
                  {"gpus", &b->gpus},
                  {"microbatch_size", &b->microbatch},
                  {"microbatches", &b->microbatches}};
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
static struct pipeline pipeline_of(const struct published_parts *b, struct arena *a, int32_t chunks,
                                   const struct published_fit *fit)
{
    int32_t d = (int32_t)b->stages, n = d * chunks;
    struct pipeline p = {.n_devices = d, .n_stages = n};
    struct footprint_block block = {.sequence = b->sequence,
                                    .microbatch = b->microbatch,
                                    .hidden = b->hidden,
                                    .heads = b->heads};
    int64_t blocks = (b->layers + 2) / b->stages / chunks;
    double ratio = fit ? fit->parts_ratio : 1, message = fit ? fit->message_s * 1e9 : 0;
    p.stages = ARENA_ARRAY(a, struct pipeline_stage, (size_t)n);
    p.links = ARENA_ARRAY(a, struct pipeline_link, (size_t)n);
    p.devices = ARENA_ARRAY(a, struct pipeline_device, (size_t)d);
    for (int32_t v = 0; v < n; v++) {
        bool end = v == 0 || v == n - 1;
        double kept = (double)(blocks - end) * footprint_block(&block),
               weights = (double)(blocks - end) * footprint_block_weights(&block),
               parameters = (double)(blocks - end) * 12 * (double)b->hidden * (double)b->hidden +
                            (end ? WORDS * (double)b->hidden : 0);
        p.stages[v] =
            (struct pipeline_stage){.forward_ns = (int64_t)(b->ns[0] / chunks * ratio + message),
                                    .input_ns = (int64_t)(b->ns[1] / chunks * ratio + message),
                                    .weight_ns = (int64_t)(b->ns[2] / chunks * ratio),
                                    .forward_bytes = (int64_t)kept,
                                    .input_bytes = -(int64_t)(kept - weights),
                                    .weight_bytes = -(int64_t)weights};
        p.links[v].latency_ns[0] = p.links[v].latency_ns[1] = (int64_t)b->ns[3];
        p.devices[v % d].resident_bytes += (int64_t)(parameters * PARAMETER_BYTES);
        p.devices[v % d].limit_bytes = PIPELINE_NO_LIMIT;
    }
    return p;
}

/* The authors' scheduler with memory for `most` microbatches of activations on every device. */
static enum status automatic(const struct published_parts *b, int32_t most, struct schedule *out,
                             struct error *err)
{
    struct pipeline p = pipeline_of(b, b->a, 1, NULL);
    int64_t makespan;
    for (int32_t v = 0; v < p.n_stages; v++) {
        p.stages[v].forward_bytes = 2;
        p.stages[v].input_bytes = p.stages[v].weight_bytes = -1;
        p.devices[v].resident_bytes = 0;
        p.devices[v].limit_bytes = 2 * most;
    }
    return zero_bubble_make(b->a, &p, (int32_t)b->microbatches, false, out, &makespan, err);
}

static enum status make_schedule(struct published_parts *b, struct error *err)
{
    struct schedule_spec spec = {.kind = b->chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B,
                                 .n_devices = (int32_t)b->stages,
                                 .n_chunks = b->chunks,
                                 .n_microbatches = (int32_t)b->microbatches};
    if (b->kind == MEASURED_ZB1 || b->kind == MEASURED_ZB2)
        return automatic(b, (int32_t)b->stages * (b->kind == MEASURED_ZB2 ? 2 : 1), &b->schedule,
                         err);
    return schedule_make(b->a, &spec, &b->schedule, err);
}

static enum status report_of(struct published_parts *b, struct arena *a,
                             const struct published_fit *fit, struct static_report *out,
                             struct error *err)
{
    struct pipeline p = pipeline_of(b, a, b->chunks, fit);
    TRY(pipeline_check(&p, &b->schedule, err));
    if (!static_report(b->timer, &p, a, out)) BUG("latency alone contends");
    return OK;
}

enum status published_parts_seconds(struct published_parts *b, const struct published_fit *fit,
                                    double *out_s, struct error *err)
{
    struct arena *scratch = arena_new();
    struct static_report r;
    int64_t longest = 0;
    enum status status = report_of(b, scratch, fit, &r, err);
    for (int32_t d = 0; status == OK && d < b->schedule.n_devices; d++)
        if (r.devices[d].end_ns - r.devices[d].begin_ns > longest)
            longest = r.devices[d].end_ns - r.devices[d].begin_ns;
    *out_s = (double)longest / 1e9;
    arena_free(scratch);
    return status;
}

static enum status peak_of(struct published_parts *b, double *out, struct error *err)
{
    struct static_report r;
    TRY(report_of(b, b->a, NULL, &r, err));
    *out = 0;
    for (int32_t d = 0; d < b->schedule.n_devices; d++)
        *out = fmax(*out, (double)r.devices[d].peak_bytes);
    return OK;
}

int32_t published_parts_schedules(void) { return MEASURED_COUNT; }

enum status published_parts_case(struct arena *a, const struct csv *c, int32_t row,
                                 int32_t schedule, struct published_case *out,
                                 struct published_line *line, struct published_line *memory,
                                 bool *measured, struct error *err)
{
    const char *suffix = suffixes[schedule];
    struct published_parts *b = ARENA_ARRAY(a, struct published_parts, 1);
    double rate, gigabytes;
    TRY(csv_number(c, row, arena_printf(a, "measured_samples_per_gpu_s_%s", suffix), &rate, err));
    TRY(csv_number(c, row, arena_printf(a, "memory_GB_%s", suffix), &gigabytes, err));
    *measured = !isnan(rate);
    if (isnan(rate)) return OK;
    if (!(rate > 0))
        return error_set(err, ERR_INPUT, "%s:%" PRId32 ": %s: throughput must be positive", c->file,
                         c->line[row], suffix);
    *b = (struct published_parts){.a = a, .kind = (enum measured)schedule, .chunks = 1};
    TRY(read_row(c, row, b, err));
    if (b->kind == MEASURED_INTERLEAVED)
        b->chunks = (int32_t)((b->layers + 2) / b->stages); /* a layer each */
    TRY(make_schedule(b, err));
    TRY(static_new(a, &b->schedule, &b->timer, err));
    *out = (struct published_case){.parts = b,
                                   .measured_s = (double)(b->microbatch * b->microbatches) /
                                                 (rate * (double)b->gpus)};
    *line = *memory = (struct published_line){.line = c->line[row],
                                              .name = arena_printf(a, "%s m%" PRId64 " %s",
                                                                   csv_text(c, row, "model"),
                                                                   b->microbatches, suffix),
                                              .part = suffix,
                                              .measured = out->measured_s};
    memory->measured = gigabytes * GB;
    return peak_of(b, &memory->predicted, err);
}
