/* profiles/catalogue.h - data-sheet values of devices: the prior of costs without measurements.
 *
 * Every value is stored with source, date and confidence (docs/reference/devices.md). Peaks are dense and upper
 * bounds only; the prior cost of an operator is its roofline at the efficiencies stated here.
 */
#ifndef PROFILES_CATALOGUE_H
#define PROFILES_CATALOGUE_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdint.h>

struct catalogue_value {
    double value; /* SI base units; 0: no source found */
    /* "datasheet via …", "2026-08", "high" | "medium" | "low" */
    const char *source, *date, *confidence;
};
struct catalogue_device {
    const char *id;             /* "host", "A100-SXM4-40" */
    const char *backend;        /* of the executor: "host", "cuda"; "none": for planning only */
    int32_t compute_capability; /* 80; 0: none */
    struct catalogue_value memory_bytes, memory_Bps, fp64_flops, fp32_flops, fp16_flops, bf16_flops,
        fp8_flops, nvlink_Bps, pcie_Bps, watts, multiprocessors;
    /* memory inside libraries, which cannot be computed: a process's context with its loaded code; each communicator */
    struct catalogue_value context_bytes, communicator_bytes;
    int32_t n_fused;
    const enum op_kind *fused; /* fused kinds that this device type supports */
};
/* ERR_INPUT with the known ids. */
MUST_CHECK enum status catalogue_find(const char *id, const struct catalogue_device **out,
                                      struct error *err);
int32_t catalogue_count(void);
const struct catalogue_device *catalogue_at(int32_t i);

/* Prior efficiencies and constants, each with its source in catalogue.c: the share of peak FLOP/s of matmul-like kinds, the share
 * of memory bandwidth of the others, and seconds per operator. */
extern const double CATALOGUE_FLOPS_EFFICIENCY, CATALOGUE_MEMORY_EFFICIENCY, CATALOGUE_OPERATOR_S;
/* Dense peak of a dtype, including the stated substitute for fp32; 0: no source known. */
double catalogue_peak_flops(const struct catalogue_device *d, enum dtype t);
/* Roofline seconds of an operator with these FLOPs and bytes on a device of this type, slowdown 1: a constant + the longer of
 * FLOPs ÷ rate and bytes ÷ bandwidth (Williams et al. 2009). NaN if the catalogue has no source for a required rate.
 * profiles/op_prior.h prices operators by kind. */
double catalogue_roofline_seconds(const struct catalogue_device *d, double flops, double bytes,
                                  enum dtype t);

#endif
