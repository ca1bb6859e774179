/* The catalogue: public numbers, each with its source.
 *
 * Peaks are dense (without structured sparsity), tensor cores with fp32 accumulation; link rates are one direction;
 * GB is 1e9, GiB 2^30, as in the source. A value without a source is absent and 0, never a guess; if sources
 * disagree, a comment states it. docs/reference/devices.md is generated from this table.
 */
#include "profiles/catalogue.h"

#include "core/base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Share of peak of a matrix product of about 1 GFLOP: Calculon's efficiency table (1 GFLOP: 0.6; 16: 0.9;
 * 128: 0.95). */
const double CATALOGUE_FLOPS_EFFICIENCY = 0.6;
/* aiconfigurator's share of memory bandwidth, and its constant of 3 us per memory-bound operation. */
const double CATALOGUE_MEMORY_EFFICIENCY = 0.8;
const double CATALOGUE_OPERATOR_S = 3e-6;
/* fp32 without tensor cores if no data sheet was found, as a share of the fp16 peak: the smallest known ratio
 * (A100 1/16, H100 1/15, V100 1/8, L4 1/4). */
static const double fp32_share = 1.0 / 16;

static const enum op_kind fused[] = {OP_bias_gelu, OP_swiglu, OP_flat_adamw, OP_flat_sgd},
                          /* cuBLASLt adds a bias as it writes a product */
    /* and GELU with it, or its slope; logits begin where wide loads can */
    fused_cuda[] = {OP_linear,     OP_linear_gelu,         OP_matmul_gelu_grad,
                    OP_logits,     OP_layer_norm_grad_add, OP_swiglu,
                    OP_flat_adamw, OP_flat_sgd};

#define AIC "aiconfigurator systems (cites NVIDIA datasheets)"
#define PL "pytorch-lightning throughput.py (cites NVIDIA datasheets)"
#define LA "llm-analysis gpu_configs"
#define TT "torchtitan utils.py (cites vendor pages)"
#define LC "llm.c mfu.h (tensor cores x clock)"
#define PRESS "press pages"
#define LIST "secondary list"
#define AIC_PL AIC "; " PL
#define AIC_TT AIC "; " TT
#define PL_LA PL "; " LA
#define LA_PL LA "; " PL
#define GENERATION "PCIe generation, 16 lanes"
#define SAILOR "Sailor's artifact, cluster_config.json"
#define GH "NVIDIA GH200 white paper via datacrunch.io"
#define HARP "HARP's repository: A100 with locked clocks that stands for a V100"
#define LOCKED "assumed: slowed by the locked clock as the peak is"
#define VOLTA "NVIDIA white paper: Volta V100"
#define TURING "NVIDIA white paper: Turing"
#define AMPERE "NVIDIA white paper: Ampere A100"
#define HOPPER "NVIDIA white paper: Hopper H100"
#define SAME_CHIP "H100-SXM5: same chip and clock"
#define ASSUMED "assumed: one core of a server"

#define SEEN "2026-08"
#define HIGH(value, source)                                                                        \
    {                                                                                              \
        (value), source, SEEN, "high"                                                              \
    }
#define MEDIUM(value, source)                                                                      \
    {                                                                                              \
        (value), source, SEEN, "medium"                                                            \
    }
#define LOW(value, source)                                                                         \
    {                                                                                              \
        (value), source, SEEN, "low"                                                               \
    }
#define GB 1e9
#define GIB 1073741824.0
#define MIB 1048576.0
#define TERA 1e12
#define BACKEND(name, list)                                                                        \
    .backend = name, .n_fused = (int32_t)(sizeof list / sizeof *list), .fused = list
/* 426 MiB of a bare context on an RTX 6000 Ada (CUDA 13.0, unslothai/unsloth-zoo #1053), 300 to 400 with loaded kernels elsewhere
 * (pytorch #107667, #109888); the value is above all observations. */
#define CONTEXT                                                                                    \
    MEDIUM(512.0 * MIB, "processes seen by nvidia-smi: unsloth-zoo #1053, pytorch #107667")
/* 8 H100: 32 channels to a neighbour, each with 10 MiB to receive in and 2 MiB to send from (NVIDIA/nccl #1685). */
#define COMMUNICATOR                                                                               \
    LOW(32.0 * (10 + 2) * MIB, "allocations of a ring on H100: NVIDIA/nccl #1685")
#define CUDA(capability)                                                                           \
    BACKEND("cuda", fused_cuda), .compute_capability = capability, .context_bytes = CONTEXT,        \
                                 .communicator_bytes = COMMUNICATOR

static const struct catalogue_device table[] = {
    {.id = "host",
     BACKEND("host", fused),
     .memory_bytes = LOW(4.0 * GB, ASSUMED),
     .memory_Bps = LOW(10.0 * GB, ASSUMED),
     .fp64_flops = LOW(0.025 * TERA, ASSUMED),
     .fp32_flops = LOW(0.05 * TERA, ASSUMED)},
    /* no tensor cores, no bf16; other sources: memory bandwidth 732 */
    {.id = "P100-SXM2-16",
     CUDA(60),
     .memory_bytes = MEDIUM(16.0 * GB, PRESS),
     .memory_Bps = MEDIUM(720.0 * GB, PRESS),
     .fp32_flops = MEDIUM(10.6 * TERA, PRESS),
     .fp16_flops = MEDIUM(21.2 * TERA, PRESS),
     .nvlink_Bps = MEDIUM(80.0 * GB, PRESS),
     .watts = MEDIUM(300.0, PRESS)},
    {.id = "P100-PCIe-16",
     CUDA(60),
     .memory_bytes = MEDIUM(16.0 * GB, PRESS),
     .memory_Bps = MEDIUM(720.0 * GB, PRESS),
     .fp32_flops = MEDIUM(9.3 * TERA, PRESS),
     .fp16_flops = MEDIUM(18.7 * TERA, PRESS),
     .pcie_Bps = MEDIUM(16.0 * GB, GENERATION),
     .watts = MEDIUM(250.0, PRESS)},
    /* no bf16; NVLink is 150 per direction, 300 in data sheets */
    {.id = "V100-SXM2-16",
     CUDA(70),
     .multiprocessors = HIGH(80, VOLTA),
     .memory_bytes = HIGH(16.0 * GB, PL_LA),
     .memory_Bps = HIGH(900.0 * GB, PL_LA),
     .fp32_flops = HIGH(15.7 * TERA, PL_LA),
     .fp16_flops = HIGH(125.0 * TERA, PL_LA),
     .nvlink_Bps = HIGH(150.0 * GB, PL_LA),
     .watts = HIGH(300.0, PL_LA)},
    {.id = "V100-SXM2-32",
     CUDA(70),
     .multiprocessors = HIGH(80, VOLTA),
     .memory_bytes = HIGH(32.0 * GB, PL_LA),
     .memory_Bps = HIGH(900.0 * GB, PL_LA),
     .fp32_flops = HIGH(15.7 * TERA, PL_LA),
     .fp16_flops = HIGH(125.0 * TERA, PL_LA),
     .nvlink_Bps = HIGH(150.0 * GB, PL_LA),
     .watts = HIGH(300.0, PL_LA)},
    {.id = "V100-PCIe-16",
     CUDA(70),
     .multiprocessors = HIGH(80, VOLTA),
     .memory_bytes = HIGH(16.0 * GB, PL),
     .memory_Bps = HIGH(900.0 * GB, PL),
     .fp32_flops = HIGH(14.0 * TERA, PL),
     .fp16_flops = HIGH(112.0 * TERA, PL),
     .pcie_Bps = MEDIUM(16.0 * GB, GENERATION)},
    {.id = "V100-PCIe-32",
     CUDA(70),
     .multiprocessors = HIGH(80, VOLTA),
     .memory_bytes = HIGH(32.0 * GB, PL),
     .memory_Bps = HIGH(900.0 * GB, PL),
     .fp32_flops = HIGH(14.0 * TERA, PL),
     .fp16_flops = HIGH(112.0 * TERA, PL),
     .pcie_Bps = MEDIUM(16.0 * GB, GENERATION)},
    /* no bf16 */
    {.id = "T4",
     CUDA(75),
     .multiprocessors = HIGH(40, TURING),
     .memory_bytes = HIGH(16.0 * GB, PL),
     .memory_Bps = HIGH(320.0 * GB, PL),
     .fp32_flops = HIGH(8.1 * TERA, PL),
     .fp16_flops = HIGH(65.0 * TERA, PL),
     .pcie_Bps = MEDIUM(16.0 * GB, GENERATION),
     .watts = HIGH(70.0, PL)},
    {.id = "RTX-2080-Ti",
     CUDA(75),
     .memory_bytes = LOW(11.0 * GB, LIST),
     .memory_Bps = LOW(616.0 * GB, LIST),
     .pcie_Bps = MEDIUM(16.0 * GB, GENERATION),
     .watts = LOW(250.0, LIST)},
    /* no sheet seen for the rest; memory as its owners state it in bytes */
    {.id = "Titan-RTX", CUDA(75), .memory_bytes = MEDIUM(25769803776.0, SAILOR)},
    {.id = "A100-SXM4-40",
     CUDA(80),
     .multiprocessors = HIGH(108, AMPERE),
     .memory_bytes = HIGH(40.0 * GB, LA_PL),
     .memory_Bps = HIGH(1555.0 * GB, LA_PL),
     .fp32_flops = HIGH(19.5 * TERA, LA_PL),
     .fp16_flops = HIGH(312.0 * TERA, LA_PL),
     .bf16_flops = HIGH(312.0 * TERA, LA_PL),
     .nvlink_Bps = HIGH(300.0 * GB, LA_PL),
     .pcie_Bps = HIGH(32.0 * GB, LA_PL),
     .watts = HIGH(400.0, LA_PL)},
    /* NVLink as measured by its authors: bus bandwidth of all-reduce */
    {.id = "A100-SXM4-40-locked",
     CUDA(80),
     .memory_bytes = MEDIUM(32.0 * GB, HARP),
     .memory_Bps = LOW(632.7 * GB, LOCKED),
     .fp16_flops = MEDIUM(126.95 * TERA, HARP),
     .nvlink_Bps = MEDIUM(113.6 * GB, HARP)},
    {.id = "A100-SXM4-80",
     CUDA(80),
     .multiprocessors = HIGH(108, AMPERE),
     .memory_bytes = HIGH(80.0 * GIB, AIC_PL),
     .memory_Bps = HIGH(2039.0 * GB, AIC_PL),
     .fp32_flops = HIGH(19.5 * TERA, AIC_PL),
     .fp16_flops = HIGH(312.0 * TERA, AIC_PL),
     .bf16_flops = HIGH(312.0 * TERA, AIC_PL),
     .nvlink_Bps = HIGH(300.0 * GB, AIC_PL),
     .pcie_Bps = HIGH(32.0 * GB, AIC_PL),
     .watts = HIGH(400.0, AIC_PL)},
    {.id = "A100-PCIe-80",
     CUDA(80),
     .multiprocessors = HIGH(108, AMPERE),
     .memory_bytes = HIGH(80.0 * GIB, AIC_PL),
     .memory_Bps = HIGH(1935.0 * GB, AIC_PL),
     .fp32_flops = HIGH(19.5 * TERA, AIC_PL),
     .fp16_flops = HIGH(312.0 * TERA, AIC_PL),
     .bf16_flops = HIGH(312.0 * TERA, AIC_PL),
     .pcie_Bps = HIGH(32.0 * GB, AIC_PL),
     .watts = HIGH(300.0, AIC_PL)},
    {.id = "A30",
     CUDA(80),
     .memory_bytes = HIGH(24.0 * GIB, AIC),
     .memory_Bps = HIGH(933.0 * GB, AIC),
     .fp16_flops = HIGH(165.0 * TERA, AIC),
     .bf16_flops = HIGH(165.0 * TERA, AIC),
     .pcie_Bps = HIGH(32.0 * GB, AIC),
     .watts = HIGH(165.0, AIC)},
    /* PL's value stands under the name a10g but cites the A10's sheet; 62.5 TFLOP/s in a secondary list */
    {.id = "A10",
     CUDA(86),
     .memory_bytes = HIGH(24.0 * GB, PL),
     .memory_Bps = HIGH(600.0 * GB, PL),
     .fp32_flops = HIGH(31.2 * TERA, PL),
     .fp16_flops = MEDIUM(125.0 * TERA, PL),
     .bf16_flops = MEDIUM(125.0 * TERA, PL),
     .pcie_Bps = MEDIUM(32.0 * GB, GENERATION),
     .watts = HIGH(150.0, PL)},
    {.id = "RTX-3090",
     CUDA(86),
     .memory_bytes = MEDIUM(24.0 * GB, LC),
     .memory_Bps = MEDIUM(936.0 * GB, LIST),
     .fp16_flops = MEDIUM(71.2 * TERA, LC),
     .bf16_flops = MEDIUM(71.2 * TERA, LC),
     .pcie_Bps = MEDIUM(32.0 * GB, GENERATION),
     .watts = LOW(350.0, LIST)},
    /* TT: 154.85, LC's rule: 77.4; the higher one is kept as an upper bound */
    {.id = "RTX-A6000",
     CUDA(86),
     .memory_bytes = MEDIUM(48.0 * GB, TT),
     .fp16_flops = LOW(154.85 * TERA, TT),
     .bf16_flops = LOW(154.85 * TERA, TT)},
    /* sheets quote 242 and 485, with sparsity */
    {.id = "L4",
     CUDA(89),
     .memory_bytes = HIGH(24.0 * GIB, AIC),
     .memory_Bps = HIGH(300.0 * GB, AIC),
     .fp32_flops = HIGH(30.3 * TERA, AIC),
     .fp16_flops = HIGH(121.0 * TERA, AIC),
     .bf16_flops = HIGH(121.0 * TERA, AIC),
     .fp8_flops = HIGH(242.0 * TERA, AIC),
     .pcie_Bps = HIGH(32.0 * GB, AIC),
     .watts = HIGH(72.0, AIC)},
    /* sheets quote rates with sparsity, AIC halves them; 46068 MiB are usable */
    {.id = "L40S",
     CUDA(89),
     .memory_bytes = HIGH(46068.0 * MIB, AIC),
     .memory_Bps = HIGH(864.0 * GB, AIC),
     .fp16_flops = HIGH(362.0 * TERA, AIC_TT),
     .bf16_flops = HIGH(362.0 * TERA, AIC_TT),
     .fp8_flops = HIGH(733.0 * TERA, AIC),
     .pcie_Bps = HIGH(32.0 * GB, AIC),
     .watts = HIGH(350.0, AIC)},
    /* 330.3 with fp16 accumulation */
    {.id = "RTX-4090",
     CUDA(89),
     .memory_bytes = MEDIUM(24.0 * GB, LC),
     .memory_Bps = MEDIUM(1008.0 * GB, LC),
     .fp32_flops = MEDIUM(82.6 * TERA, PRESS),
     .fp16_flops = MEDIUM(165.2 * TERA, LC),
     .bf16_flops = MEDIUM(165.2 * TERA, LC),
     .fp8_flops = MEDIUM(330.3 * TERA, LC),
     .pcie_Bps = MEDIUM(32.0 * GB, GENERATION),
     .watts = MEDIUM(450.0, PRESS)},
    /* sheets quote rates with sparsity, AIC halves them */
    {.id = "H100-PCIe",
     CUDA(90),
     .multiprocessors = HIGH(114, HOPPER),
     .memory_bytes = HIGH(80.0 * GIB, AIC_PL),
     .memory_Bps = HIGH(2000.0 * GB, AIC_PL),
     .fp32_flops = HIGH(51.0 * TERA, PL),
     .fp16_flops = HIGH(756.5 * TERA, AIC_PL),
     .bf16_flops = HIGH(756.5 * TERA, AIC_PL),
     .fp8_flops = HIGH(1513.0 * TERA, AIC_PL),
     .pcie_Bps = HIGH(64.0 * GB, AIC),
     .watts = HIGH(350.0, AIC)},
    {.id = "H100-SXM5",
     CUDA(90),
     .multiprocessors = HIGH(132, HOPPER),
     .memory_bytes = HIGH(80.0 * GIB, AIC_PL),
     .memory_Bps = HIGH(3350.0 * GB, AIC_PL),
     .fp32_flops = HIGH(67.0 * TERA, PL),
     .fp16_flops = HIGH(989.0 * TERA, AIC_PL),
     .bf16_flops = HIGH(989.0 * TERA, AIC_PL),
     .fp8_flops = HIGH(1978.0 * TERA, AIC_PL),
     .nvlink_Bps = HIGH(450.0 * GB, AIC_PL),
     .pcie_Bps = HIGH(64.0 * GB, AIC),
     .watts = HIGH(700.0, AIC)},
    {.id = "H100-NVL",
     CUDA(90),
     .fp16_flops = MEDIUM(835.0 * TERA, TT),
     .bf16_flops = MEDIUM(835.0 * TERA, TT)},
    /* memory bandwidth up to 4000 */
    {.id = "GH200-96",
     CUDA(90),
     .memory_bytes = MEDIUM(102625181696.0, SAILOR),
     .memory_Bps = MEDIUM(4000.0 * GB, GH),
     .fp32_flops = MEDIUM(67.0 * TERA, SAME_CHIP),
     .nvlink_Bps = MEDIUM(450.0 * GB, SAME_CHIP)},
    /* no sheet seen for fp32: the chip and clock are the H100-SXM5's */
    {.id = "H200-SXM",
     CUDA(90),
     .multiprocessors = MEDIUM(132, SAME_CHIP),
     .memory_bytes = HIGH(141.0 * GIB, AIC),
     .memory_Bps = HIGH(4800.0 * GB, AIC),
     .fp32_flops = MEDIUM(67.0 * TERA, SAME_CHIP),
     .fp16_flops = HIGH(989.0 * TERA, AIC),
     .bf16_flops = HIGH(989.0 * TERA, AIC),
     .fp8_flops = HIGH(1978.0 * TERA, AIC),
     .nvlink_Bps = HIGH(450.0 * GB, AIC),
     .pcie_Bps = HIGH(64.0 * GB, AIC),
     .watts = HIGH(700.0, AIC)},
    /* TT cites press reports */
    {.id = "H20",
     CUDA(90),
     .fp16_flops = LOW(148.0 * TERA, TT),
     .bf16_flops = LOW(148.0 * TERA, TT)},
    {.id = "B200-SXM",
     CUDA(100),
     .memory_bytes = HIGH(180.0 * GIB, AIC),
     .memory_Bps = HIGH(7700.0 * GB, AIC),
     .fp16_flops = HIGH(2250.0 * TERA, AIC),
     .bf16_flops = HIGH(2250.0 * TERA, AIC),
     .fp8_flops = HIGH(4500.0 * TERA, AIC),
     .nvlink_Bps = HIGH(900.0 * GB, AIC),
     .pcie_Bps = HIGH(128.0 * GB, AIC),
     .watts = HIGH(1000.0, AIC)},
    {.id = "B300-SXM",
     CUDA(103),
     .memory_bytes = HIGH(275040.0 * MIB, AIC),
     .memory_Bps = HIGH(7750.0 * GB, AIC),
     .fp16_flops = HIGH(2250.0 * TERA, AIC),
     .bf16_flops = HIGH(2250.0 * TERA, AIC),
     .fp8_flops = HIGH(4500.0 * TERA, AIC),
     .nvlink_Bps = HIGH(900.0 * GB, AIC),
     .pcie_Bps = HIGH(128.0 * GB, AIC),
     .watts = HIGH(1100.0, AIC)},
    {.id = "GB200",
     CUDA(100),
     .memory_bytes = HIGH(189471.0 * MIB, AIC),
     .memory_Bps = HIGH(8000.0 * GB, AIC),
     .fp16_flops = HIGH(2500.0 * TERA, AIC_TT),
     .bf16_flops = HIGH(2500.0 * TERA, AIC_TT),
     .fp8_flops = HIGH(5000.0 * TERA, AIC),
     .nvlink_Bps = HIGH(900.0 * GB, AIC),
     .pcie_Bps = HIGH(64.0 * GB, AIC),
     .watts = HIGH(1200.0, AIC)},
    {.id = "GB300",
     CUDA(103),
     .memory_bytes = HIGH(284208.0 * MIB, AIC),
     .memory_Bps = HIGH(8000.0 * GB, AIC),
     .fp16_flops = HIGH(2500.0 * TERA, AIC),
     .bf16_flops = HIGH(2500.0 * TERA, AIC),
     .fp8_flops = HIGH(5000.0 * TERA, AIC),
     .nvlink_Bps = HIGH(900.0 * GB, AIC),
     .pcie_Bps = HIGH(64.0 * GB, AIC),
     .watts = HIGH(1400.0, AIC)},
    /* rates scaled to the clock of 2430 MHz that was measured */
    {.id = "RTX-PRO-6000-BSE",
     CUDA(120),
     .memory_bytes = HIGH(97887.0 * MIB, AIC),
     .memory_Bps = HIGH(1792.0 * GB, AIC),
     .fp16_flops = MEDIUM(467.8 * TERA, AIC),
     .bf16_flops = MEDIUM(467.8 * TERA, AIC),
     .fp8_flops = MEDIUM(935.6 * TERA, AIC),
     .pcie_Bps = HIGH(64.0 * GB, AIC),
     .watts = HIGH(600.0, AIC)},
    /* other sources: 330.6 and 2615 TFLOP/s; no backend of ours, for planning only */
    {.id = "MI300X",
     BACKEND("none", fused),
     .memory_bytes = MEDIUM(192.0 * GB, PRESS),
     .memory_Bps = MEDIUM(5300.0 * GB, PRESS),
     .fp16_flops = LOW(1300.0 * TERA, TT),
     .bf16_flops = LOW(1300.0 * TERA, TT),
     .watts = MEDIUM(750.0, PRESS)},
    /* one of its two dies */
    {.id = "MI250X",
     BACKEND("none", fused),
     .fp16_flops = MEDIUM(191.5 * TERA, TT),
     .bf16_flops = MEDIUM(191.5 * TERA, TT)},
    {.id = "MI355X",
     BACKEND("none", fused),
     .fp16_flops = MEDIUM(2500.0 * TERA, TT),
     .bf16_flops = MEDIUM(2500.0 * TERA, TT)},
};

int32_t catalogue_count(void) { return (int32_t)(sizeof table / sizeof *table); }

const struct catalogue_device *catalogue_at(int32_t i)
{
    if (i < 0 || i >= catalogue_count()) BUG("catalogue entry %d", (int)i);
    return &table[i];
}

enum status catalogue_find(const char *id, const struct catalogue_device **out, struct error *err)
{
    char known[440] = "", hint[NEAREST_HINT];
    size_t used = 0;
    struct nearest near = nearest_to(id);
    for (int32_t i = 0; i < catalogue_count(); i++) {
        nearest_try(&near, table[i].id);
        if (strcmp(table[i].id, id) != 0) continue;
        *out = &table[i];
        return OK;
    }
    for (int32_t i = 0; i < catalogue_count(); i++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", i ? " " : "", table[i].id);
        if (n > 0 && used + (size_t)n < sizeof known) used += (size_t)n;
    }
    return error_set(err, ERR_INPUT, "no device '%.24s'; known: %s%s", id, known,
                     nearest_hint(&near, hint));
}

double catalogue_peak_flops(const struct catalogue_device *d, enum dtype t)
{
    if (!strcmp(d->backend, "host") && dtype_is_half(t)) t = DTYPE_fp32; /* converts to fp32, computes, and rounds */
    switch (t) {
    case DTYPE_fp64:
        return d->fp64_flops.value;
    case DTYPE_bf16:
        return d->bf16_flops.value;
    case DTYPE_fp16:
        return d->fp16_flops.value;
    default:
        return d->fp32_flops.value > 0 ? d->fp32_flops.value : d->fp16_flops.value * fp32_share;
    }
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
