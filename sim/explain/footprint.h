/* sim/explain/footprint.h - memory of one GPU over a step, entry by entry, with the reason for each.
 *
 * Two independent methods. footprint_stages reads a lowered program: its regions and buffer rings are what the simulator plays
 * and an executor allocates. On top come what-ifs that the program does not contain: optimizer state, gradients and parameters
 * sharded over data-parallel GPUs (ZeRO 1, 2, 3; Rajbhandari et al. 2020), evenly or by shares, and a framework's
 * reserve. footprint_block and footprint_step are the closed forms of Megatron-LM's transformer, with dropout masks, which
 * our graphs do not have (Korthikanti et al. 2023, equations 1 to 6): for other frameworks, and as a cross-check.
 * All figures are bytes of one GPU.
 */
#ifndef SIM_EXPLAIN_FOOTPRINT_H
#define SIM_EXPLAIN_FOOTPRINT_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/program/program.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

/* --- of a program --- */

struct footprint_options {
    int32_t zero; /* ZeRO stage. 0: nothing sharded; 1: optimizer state; 2: and gradients; 3: and parameters */
    int32_t shards; /* GPUs of the sharding group, >= 1; 1: no sharding */
    double share;   /* of this GPU, 0 < share <= 1; 0: 1 / shards */
    /* memory that a framework holds besides tensors: contexts, allocator overhead, communicators */
    int64_t reserve_bytes;
};
struct footprint_entry {
    const char *name;
    int64_t bytes;
    /* "4 of 8 microbatches in flight on stage 0, from F to B, all first at F3"; "" if the name is sufficient */
    const char *why;
};
struct footprint { /* of one device, all its stages together */
    const char *device;
    int32_t n;
    struct footprint_entry *memory_breakdown; /* largest first; none of 0 bytes */
    int64_t total_bytes, memory_bytes;
};
/* For every device of the program, out: (n_devices). ERR_INPUT: options out of range. ZeRO 3 counts the parameters of the
 * largest operator twice: those in use and those gathered meanwhile. O(slots + buffer rings · calls). */
MUST_CHECK enum status footprint_stages(struct arena *a, const struct program *p,
                                        const struct footprint_options *o, struct footprint *out,
                                        struct error *err);
/* "needs 93.1 GiB, has 80 GiB, lacks 13.1 GiB: activations 60.2 GiB (8 microbatches …), …": the three largest. */
const char *footprint_verdict(struct arena *a, const struct footprint *f);

/* --- closed forms --- */

struct footprint_block {
    int64_t sequence, microbatch, hidden, heads;
    int32_t tp; /* tensor parallel */
    bool sequence_parallel;
    enum recompute recompute; /* NONE, BLOCKS or SELECTIVE */
};
/* Activation bytes that one transformer block keeps per microbatch, 2 bytes an element, 1 a mask element. s·b·h times
 *   none       10 + 24/t + 5as/(ht);  34/t + 5as/(ht) with sequence parallelism
 *   selective  10 + 24/t;             34/t
 *   blocks     2;                     2/t
 * (equations 2, 4 and table 2; BLOCKS with sequence parallelism keeps a GPU's positions). */
double footprint_block(const struct footprint_block *b);
/* The share of it that the weight gradients still need after the input gradients (Qi et al. 2024: 32 s·b·h of a block). */
double footprint_block_weights(const struct footprint_block *b);

struct footprint_step {
    struct footprint_block block;
    int64_t layers, stages, chunks; /* blocks of the model; pipeline stages; chunks of each */
};
/* Activations of the first stage: `stages` microbatches in flight, L layers in total for any number of stages, and
 * (stages - 1) / (stages · chunks) more if stages are interleaved (chunks > 1). */
double footprint_activations(const struct footprint_step *s);
/* Parameters, gradients and optimizer state of a stage's blocks, 12 h² parameters each. bytes: per parameter, 18 in half
 * precision with accumulated gradients and an fp32 copy of the parameters (2 + 4 + 4 + 4 + 4). */
double footprint_parameters(const struct footprint_step *s, double bytes);

#endif
