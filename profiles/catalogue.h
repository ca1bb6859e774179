/* profiles/catalogue.h - data-sheet values of devices: the prior of costs without measurements.
 *
 * Every value is stored with source, date and confidence (docs/reference/devices.md). Peaks are dense and upper
 * bounds only; the prior cost of an operator is its roofline at the efficiencies stated here.
 */
#ifndef PROFILES_CATALOGUE_H
#define PROFILES_CATALOGUE_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stddef.h>
#include <stdint.h>

struct catalogue_value {
    double value; /* SI base units; 0: no source found */
    /* "NVIDIA A100 datasheet"; its date: of a vendor's document the year, of others the month in which they were read, of a price
     * the day; confidence: "high" a vendor's document, "medium" a copy of it or a measurement, "low" assumed, "derived" computed
     * as `source` says because the vendor states no such figure, "unverified" from memory of a document that was not found again */
    const char *source, *date, *confidence;
};
struct catalogue_device {
    const char *id;             /* "host", "A100-SXM4-40" */
    const char *backend;        /* of the executor: "host", "cuda"; "none": for planning only */
    int32_t compute_capability; /* 80; 0: none */
    int32_t pcie_generation;    /* 0: unknown */
    const char *scale_up;       /* "NVLink", "xGMI", "ICI", "RoCE"; NULL: PCIe only */
    /* peaks: tf32 and fp8 are for information, because no job computes in them; scale_up_Bps: all links of a device, one direction;
     * bridge_Bps: of a bridge that joins two cards (A100-PCIe, RTX-A6000), which costs use only if the cluster file has the link;
     * power_w: TDP of one device; price_per_h: USD an hour of one device, on demand */
    struct catalogue_value memory_bytes, memory_Bps, fp64_flops, fp32_flops, tf32_flops, fp16_flops,
        bf16_flops, fp8_flops, scale_up_Bps, bridge_Bps, pcie_Bps, power_w, price_per_h,
        multiprocessors;
    /* memory inside libraries, which cannot be computed: a process's context with its loaded code; each communicator */
    struct catalogue_value context_bytes, communicator_bytes;
    int32_t n_fused;
    const enum op_kind *fused; /* fused kinds that this device type supports */
};
/* A value that `musher devices` and the reference list. */
struct catalogue_column {
    const char *key, *name, *unit; /* "memory_Bps", "memory bandwidth", "GB/s" */
    double scale;                  /* SI base units of one unit */
    size_t offset;                 /* in struct catalogue_device */
};
extern const struct catalogue_column catalogue_columns[]; /* ended by a key of NULL */
const struct catalogue_value *catalogue_value_of(const struct catalogue_device *d,
                                                 const struct catalogue_column *column);

/* ERR_INPUT with the ids that come near ("H100": H100-PCIe, H100-SXM5 or H100-NVL), else with the families. */
MUST_CHECK enum status catalogue_find(const char *id, const struct catalogue_device **out,
                                      struct error *err);
int32_t catalogue_count(void);
const struct catalogue_device *catalogue_at(int32_t i);

/* Prior efficiencies and constants, each with its source in catalogue.c: the share of peak FLOP/s of matmul-like kinds, the share
 * of memory bandwidth of the others, and seconds per operator. */
extern const double CATALOGUE_FLOPS_EFFICIENCY, CATALOGUE_MEMORY_EFFICIENCY, CATALOGUE_OPERATOR_S;
/* Dense peak of a dtype; 0: no source known, or the device does not compute in it. Half precision on the host is its fp32. */
double catalogue_peak_flops(const struct catalogue_device *d, enum dtype t);
/* Roofline seconds of an operator with these FLOPs and bytes on a device of this type, slowdown 1: a constant + the longer of
 * FLOPs ÷ rate and bytes ÷ bandwidth (Williams et al. 2009). NaN if the catalogue has no source for a required rate.
 * profiles/op_prior.h prices operators by kind. */
double catalogue_roofline_seconds(const struct catalogue_device *d, double flops, double bytes,
                                  enum dtype t);

#endif
