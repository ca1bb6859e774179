/* The catalogue: public numbers, each with its source. The rows are in catalogue_rows.inc.
 *
 * Peaks are dense (without structured sparsity), tensor cores with fp32 accumulation; link rates are one direction;
 * GB is 1e9, GiB 2^30, as in the source. A value without a source is absent and 0, never a guess; a value that was computed
 * because its vendor states none says from what. docs/reference/devices.md is generated from this table.
 */
#include "profiles/catalogue.h"

#include "core/base/nearest.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Share of peak of a matrix product of about 1 GFLOP: Calculon's efficiency table (1 GFLOP: 0.6; 16: 0.9;
 * 128: 0.95). */
const double CATALOGUE_FLOPS_EFFICIENCY = 0.6;
/* aiconfigurator's share of memory bandwidth, and its constant of 3 us per memory-bound operation. */
const double CATALOGUE_MEMORY_EFFICIENCY = 0.8;
const double CATALOGUE_OPERATOR_S = 3e-6;

static const enum op_kind fused[] = {OP_bias_gelu, OP_swiglu, OP_flat_adamw, OP_flat_sgd, OP_flat_momentum, OP_flat_lion},
                          /* cuBLASLt adds a bias as it writes a product */
    /* and GELU with it, or its slope; logits begin where wide loads can */
    fused_cuda[] = {OP_linear,     OP_linear_gelu,         OP_matmul_gelu_grad,
                    OP_logits,     OP_layer_norm_grad_add, OP_swiglu,
                    OP_flat_adamw, OP_flat_sgd, OP_flat_momentum, OP_flat_lion};

/* Sources of single values. */
#define SEEN "2026-08"
#define FOUND "2026-11"
#define AIC "aiconfigurator systems: what the driver shows"
#define SAILOR "Sailor's artifact, cluster_config.json"
#define HARP "HARP's repository: A100 with locked clocks that stands for a V100"
#define H20_PRESS "press reports of NVIDIA's partner sheet, November 2023"
#define VOLTA "NVIDIA white paper: Volta V100"
#define TURING "NVIDIA white paper: Turing"
#define AMPERE "NVIDIA white paper: Ampere A100"
#define GA102 "NVIDIA white paper: Ampere GA102"
#define ADA "NVIDIA white paper: Ada"
#define HOPPER "NVIDIA white paper: Hopper H100"
#define CORE "assumed: one core of a server"
#define DIMMS "assumed: one module of 32 GB in every memory channel"
#define LANES "PCIe generation, 16 lanes"
/* and reasons of derived ones */
#define TURING_FP64 "1/32 of fp32 (Turing white paper)"
#define AMPERE_FP64 "1/64 of fp32 (GA102 white paper)"
#define ADA_FP64 "1/64 of fp32 (Ada white paper)"
#define BLACKWELL_FP64 "1/64 of fp32 (RTX Blackwell white paper)"
#define GEFORCE_TF32 "the fp32 rate, as of the cards in the architecture's white paper"
#define GEFORCE_HALF "twice fp32, as of the cards in the architecture's white paper"
#define HALF_OF_FP16 "half of fp16, as of the cards in the architecture's white paper"
#define TWICE_HALF "twice fp16, as of the cards in the architecture's white paper"
#define EIGHTH_OF_FP4 "an eighth of the sheet's fp4 with sparsity"
#define DIE "half of the module: one of its two dies"
#define GAUDI_CLOCK "8 engines x 256 x 256 x 2 x 1600 MHz, the clock of the cards that are sold"
#define TURING_HALF "four times fp32: sums in fp32 at half of the rate of Titan-RTX"
#define QUADRO_PAGE "geektopia.es, Quadro RTX 5000, 6000 and 8000: table"
#define HALF_OF_FP16_MI300X "half of fp16, as of MI300X"
#define MI350X_CLOCK "MI355X x 2.2 GHz / 2.4 GHz, the clocks of Hot Chips 2025 (wccftech.com)"
#define FOUR_FP32 "four times fp32, as of RTX-A4000"
#define TPU_FP32 "a sixth of bf16: XLA computes an fp32 product in six passes"
/* Prices: USD an hour of one device without a commitment, and the day they were listed. */
#define RUNPOD "RunPod secure cloud, runpod.io/pricing", "2026-09-25"
#define RUNPOD_AUGUST "RunPod secure cloud, runpod.io/pricing", "2026-08-19"
#define LAMBDA "Lambda on demand, lambda.ai/pricing", "2026-09-25"
#define AKASH "Akash marketplace, lowest, akash.network/pricing/gpus", "2026-09-20"
#define SERVERLESS "RunPod serverless, active worker, docs.runpod.io/serverless/pricing", "2026-11-26"
#define TENSORWAVE "TensorWave on demand (cliffcenter.com, AMD inference economics)", "2026-05-18"
#define EC2_G5 "Amazon EC2 g5.xlarge on demand, us-east-1, host included", "2026-06-17"
#define VERDA "Verda on demand, verda.com/pricing", "2026-10-29"

/* clang-format off */
#define GB(x) x##e9
#define GIB * 1073741824.0
#define MIB * 1048576.0
#define TERA(x) x##e12
#define HIGH(x, from, when) {(x), from, when, "high"}
#define COPY(x, from, when) {(x), from, when, "medium"}
#define ASSUMED(x, why) {(x), why, SEEN, "low"}
#define DERIVED(x, why) {(x), why, YEAR, "derived"}
/* of a document that was not consulted again */
#define RECALLED(x) {(x), "from memory: " SHEET, YEAR, "unverified"}
/* of the row's sheet, or of its page, a copy of the sheet's values */
#define OF_SHEET(x) HIGH(x, SHEET, YEAR)
#define OF_PAGE(x) COPY(x, PAGE, FOUND)
#define STATED OF_SHEET
#define MEMORY(x) .memory_bytes = STATED(x)
#define BANDWIDTH(x) .memory_Bps = STATED(GB(x))
#define FP64(x) .fp64_flops = STATED(TERA(x))
#define FP32(x) .fp32_flops = STATED(TERA(x))
#define TF32(x) .tf32_flops = STATED(TERA(x))
#define FP16(x) .fp16_flops = STATED(TERA(x))
#define BF16(x) .bf16_flops = STATED(TERA(x))
#define HALF(x) FP16(x), BF16(x)
#define HALF_DERIVED(x, why) .fp16_flops = DERIVED(TERA(x), why), .bf16_flops = DERIVED(TERA(x), why)
#define FP8(x) .fp8_flops = STATED(TERA(x))
#define NVLINK(x) .scale_up = "NVLink", .scale_up_Bps = STATED(GB(x))
#define XGMI(x) .scale_up = "xGMI", .scale_up_Bps = STATED(GB(x))
#define ICI(x) .scale_up = "ICI", .scale_up_Bps = STATED(GB(x))
#define BRIDGE(x) .bridge_Bps = STATED(GB(x))
#define PCIE(n) .pcie_generation = n, .pcie_Bps = HIGH((1 << (n + 1)) * 1e9, LANES, YEAR)
#define WATTS(x) .power_w = STATED(x)
#define SMS(x, from) .multiprocessors = HIGH(x, from, YEAR)
#define UNITS(x) .multiprocessors = STATED(x)
#define PRICE(x, where) .price_per_h = {(x), where, "medium"}
#define BACKEND(name, list) \
    .backend = name, .n_fused = (int32_t)(sizeof list / sizeof *list), .fused = list
#define PLANNED BACKEND("none", fused)
/* 426 MiB of a bare context on an RTX 6000 Ada (CUDA 13.0, unslothai/unsloth-zoo #1053), 300 to 400 with loaded kernels elsewhere
 * (pytorch #107667, #109888); the value is above all observations. */
#define CONTEXT COPY(512 MIB, "processes seen by nvidia-smi: unsloth-zoo #1053, pytorch #107667", SEEN)
/* 8 H100: 32 channels to a neighbour, each with 10 MiB to receive in and 2 MiB to send from (NVIDIA/nccl #1685). */
#define COMMUNICATOR {32 * (10 + 2) MIB, "allocations of a ring on H100: NVIDIA/nccl #1685", SEEN, "low"}
#define CUDA(capability) \
    BACKEND("cuda", fused_cuda), .compute_capability = capability, .context_bytes = CONTEXT, \
    .communicator_bytes = COMMUNICATOR

static const struct catalogue_device table[] = {
#include "profiles/catalogue_rows.inc"
};
/* clang-format on */

#define AT(member) offsetof(struct catalogue_device, member)
const struct catalogue_column catalogue_columns[] = {
    {"memory_bytes", "memory", "GB", 1e9, AT(memory_bytes)},
    {"memory_Bps", "memory bandwidth", "GB/s", 1e9, AT(memory_Bps)},
    {"fp64_flops", "fp64", "TFLOP/s", 1e12, AT(fp64_flops)},
    {"fp32_flops", "fp32", "TFLOP/s", 1e12, AT(fp32_flops)},
    {"tf32_flops", "tf32", "TFLOP/s", 1e12, AT(tf32_flops)},
    {"fp16_flops", "fp16", "TFLOP/s", 1e12, AT(fp16_flops)},
    {"bf16_flops", "bf16", "TFLOP/s", 1e12, AT(bf16_flops)},
    {"fp8_flops", "fp8", "TFLOP/s", 1e12, AT(fp8_flops)},
    {"scale_up_Bps", "scale-up link", "GB/s", 1e9, AT(scale_up_Bps)},
    {"bridge_Bps", "bridge", "GB/s", 1e9, AT(bridge_Bps)},
    {"pcie_Bps", "PCIe", "GB/s", 1e9, AT(pcie_Bps)},
    {"power_w", "power", "W", 1, AT(power_w)},
    {"price_per_h", "price", "USD/h", 1, AT(price_per_h)},
    {"multiprocessors", "multiprocessors", "SMs", 1, AT(multiprocessors)},
    {0}};

const struct catalogue_value *catalogue_value_of(const struct catalogue_device *d,
                                                 const struct catalogue_column *column)
{
    return (const struct catalogue_value *)((const char *)d + column->offset);
}

int32_t catalogue_count(void) { return (int32_t)(sizeof table / sizeof *table); }

const struct catalogue_device *catalogue_at(int32_t i)
{
    if (i < 0 || i >= catalogue_count()) BUG("catalogue entry %d", (int)i);
    return &table[i];
}

/* Whether the id has the word in it, ignoring case and what stands between letters and digits: "rtx 3090" in RTX-3090-Ti. */
static bool has(const char *id, const char *word)
{
    for (; *id; id++) {
        const char *at = id, *w = word;
        while (*w) {
            if (!isalnum((unsigned char)*w)) {
                w++;
            } else if (*at && !isalnum((unsigned char)*at)) {
                at++;
            } else if (tolower((unsigned char)*at) != tolower((unsigned char)*w)) {
                break;
            } else {
                at++, w++;
            }
        }
        if (!*w) return true;
    }
    return false;
}

/* "; did you mean A, B or C?": the ids that have the word in them, else the nearest one, else "". */
static const char *hint_of(const char *word, char *text, size_t room)
{
    enum { MOST = 8 };
    const char *like[MOST];
    int n = 0;
    struct nearest near = nearest_to(word);
    size_t letters = 0;
    for (const char *at = word; *at; at++) letters += isalnum((unsigned char)*at) != 0;
    for (int32_t i = 0; i < catalogue_count(); i++) {
        nearest_try(&near, table[i].id);
        if (letters > 1 && n < MOST && has(table[i].id, word)) like[n++] = table[i].id;
    }
    if (!n && near.best) like[n++] = near.best;
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, room - used, "%s%s%s",
                 i == 0       ? "; did you mean "
                 : i == n - 1 ? " or "
                              : ", ",
                 like[i], i == n - 1 ? "?" : "");
    }
    return text;
}

/* "; known: host, Xeon, …, A100, …": the ids up to their first dash, each once. */
static const char *families(char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "; known: ");
    for (int32_t i = 0; i < catalogue_count(); i++) {
        int length = (int)strcspn(table[i].id, "-");
        bool seen = false;
        for (int32_t k = 0; k < i && !seen; k++)
            seen = (int)strcspn(table[k].id, "-") == length &&
                   !strncmp(table[k].id, table[i].id, (size_t)length);
        if (seen || used >= room) continue;
        used += (size_t)snprintf(text + used, room - used, "%s%.*s", i ? ", " : "", length,
                                 table[i].id);
    }
    return text;
}

enum status catalogue_find(const char *id, const struct catalogue_device **out, struct error *err)
{
    char hint[360];
    for (int32_t i = 0; i < catalogue_count(); i++) {
        if (strcmp(table[i].id, id) != 0) continue;
        *out = &table[i];
        return OK;
    }
    return error_set(err, ERR_INPUT,
                     "no device '%.24s' in the catalogue%s ('musher devices' lists all)", id,
                     *hint_of(id, hint, sizeof hint) ? hint : families(hint, sizeof hint));
}

double catalogue_peak_flops(const struct catalogue_device *d, enum dtype t)
{
    const struct catalogue_value *v = t == DTYPE_fp64   ? &d->fp64_flops
                                      : t == DTYPE_bf16 ? &d->bf16_flops
                                      : t == DTYPE_fp16 ? &d->fp16_flops
                                                        : &d->fp32_flops;
    /* the host converts to fp32, computes, and rounds */
    if (!(v->value > 0) && !strcmp(d->backend, "host") && dtype_is_half(t)) v = &d->fp32_flops;
    return v->value;
}

double catalogue_roofline_seconds(const struct catalogue_device *d, double flops, double bytes,
                                  enum dtype t)
{
    double peak = catalogue_peak_flops(d, t), rate = d->memory_Bps.value;
    if (!(peak > 0) || !(rate > 0)) return NAN;
    double memory_s = bytes / (rate * CATALOGUE_MEMORY_EFFICIENCY);
    double compute_s = flops / (peak * CATALOGUE_FLOPS_EFFICIENCY);
    return CATALOGUE_OPERATOR_S + fmax(compute_s, memory_s);
}
