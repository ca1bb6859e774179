/* tests/support/sailor_referee.h - Sailor's closed form for the time of a step: a rival's model that judges our plans, and nothing else.
 *
 * Facts from its public simulator (github eth-easl/sailor, sailor/Planner/simulations; SOSP'25). One pipeline of S stages; every
 * stage has D replicas, each with a GPU type and a number of GPUs; M = ceil(B / (microbatch · D · pipelines)):
 *   T = Σ_s c_s + Σ_s p_s + (M − 1) · max_s (c_s + p_s) + max update + max_s all-reduce_s
 *   c_s  slowest replica's sum of its layers' measured forward and backward seconds
 *   p_s  slowest replica's messages: activation to the next stage and gradient to the one before, each on the curve of (type, GPUs) at both
 *        ends; the last stage's gradient counts twice, the first one's activation twice where there are more than three stages
 *   all-reduce: a ring in buckets of 500 MB, 2 (D − 1) steps of bucket / D at the pace of the curve of ONE GPU between nodes, the slowest
 *        pair of neighbours; the stage's parameters (fp32) divided by its least number of GPUs
 *   curves: seconds of x bytes = x / 1e9 / (a·y² + b·y + c), y = log2(x / 1e6); between two types or tensor-parallel degrees the one of
 *        the lower measured most (that is what its file of mixed curves holds for these types)
 * With several pipelines the slowest counts, and one more ring over the pipelines with whole stages is added.
 * Memory, bytes of one GPU: 24 a parameter (fp32 copy, gradient, two moments, two copies of DeepSpeed) + 4 · activations · microbatch ·
 * (S − s) + 2 GB on one GPU, 3 GB where GPUs share, at most 40 or 16 GiB (A100-40, V100-16).
 *
 * Its replicas all have the same share and its stages meet at every microbatch. `own_shares` is the same form for plans that differ
 * there: each replica is a pipeline of its own with its own M (the export's `microbatches`), the slowest counts, and the all-reduce
 * is one ring over all replicas. For one pipeline of equal shares and equal replicas both give the same.
 */
#ifndef TESTS_SUPPORT_SAILOR_REFEREE_H
#define TESTS_SUPPORT_SAILOR_REFEREE_H

#include "core/base/error.h"
#include "core/document/document.h"

struct sailor_score {
    double total_s;
    double compute_s, messages_s, straggler_s, update_s, reduce_s; /* its parts */
    bool fits;
    double worst_bytes_over; /* largest excess bytes of a GPU; <= 0: all fit */
};

/* folder: profiles_tmp.json, llm_info.json, network_coeffs_all_homo.json; plan: what musher export --format sailor writes. ERR_INPUT: a
 * layer that was not measured so, a plan that makes no sense (layers missing). */
MUST_CHECK enum status sailor_referee(struct arena *a, const char *folder, const char *model,
                                      const struct node *plan, bool own_shares,
                                      struct sailor_score *out, struct error *err);

#endif
