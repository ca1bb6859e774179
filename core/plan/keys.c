#include "core/plan/keys.h"

/* the file */
const struct document_key plan_keys[] = {
    {"version", "1", NULL, "version of the format"},
    {"name", "text", "plan", "name of the plan in outputs and traces"},
    {"made_by", "map", "none", "origin of the plan"},
    {"microbatch", "number of sequences", NULL, "sequences of one microbatch"},
    {"deterministic", "true or false", "false",
     "gradients summed in the global order of microbatches: the same bits for every plan"},
    {"steps", "number", "1", "optimizer steps of `run` without --steps"},
    {"compression", "map", "none: sums and messages have their own precision",
     "what devices exchange in place of whole gradients and activations. The training is another one than without"},
    {"local_sgd", "map", "none: gradients of all replicas are added in every step",
     "local SGD, DiLoCo: islands of replicas exchange parameters instead of gradients, every so many steps. "
     "The training is another one than with every gradient added"},
    {"parameter_server", "map", "none: replicas add their gradients by all-reduces",
     "servers that hold parameters and optimizer state; replicas are workers that push gradients and pull parameters"},
    {"gradient_noise_scale", "true or false", "false",
     "`run` estimates the gradient noise scale (McCandlish et al. 2018), the batch that it suggests, from the squared norms of every "
     "replica's gradient and of their sum. Two replicas or more, with whole gradients: no zero, sharding, local_sgd or deterministic"},
    {"weight_versions", "1 or 2", "1",
     "2: pipelines without a flush between steps (PipeDream-2BW): gradients are taken at the parameters of one step before, of which each "
     "device keeps both versions. The training is another one than without"},
    {"experts", "list of maps", "the model's order, equal shares of the tokens",
     "placement of a mixture's experts by popularity, block by block; `plan --routing` writes it. The training is the same"},
    {"replicas", "list of maps", NULL, "pipelines (data-parallel replicas); they may differ"},
    {"job", "map", NULL, "the job, as in a job file"},
    {"cluster", "map", NULL, "the cluster, as in a cluster file"},
    {0}};

/* made_by */
const struct document_key plan_made_by_keys[] = {
    {"musher", "text", "none", "version of musher"},
    {"profile", "number", "0: device catalogue", "profile version that the search used"},
    {"seed", "number", "the job's", "seed of the search"},
    {"predicted_ns", "number of ns", "0", "predicted time of one step"},
    {0}};

/* compression */
const struct document_key plan_compression_keys[] = {
    {"gradients", "name of a kind, or map", "none", "gradient all-reduces; bf16 and fp16 also ZeRO's reduce-scatters"},
    {"outer", "name of a kind, or map", "none", "the same for the changes of parameters of local_sgd"},
    {"pipeline", "name of a kind, or map", "none", "messages between stages on different devices; a map has one kind (kind), or one for each direction (forward, backward). "
     "Without feedback; of int8 and 8-bit floats rounding is nearest by default"},
    {0}};

/* compression.pipeline */
const struct document_key plan_pipeline_keys[] = {
    {"forward", "name of a kind, or map", "none", "activations"},
    {"backward", "name of a kind, or map", "none", "gradients of activations"},
    {0}};

/* compression.gradients, compression.outer, compression.pipeline */
const struct document_key plan_compressor_keys[] = {
    {"kind", "none, bf16, fp16, int8, fp8-e4m3, fp8-e5m2, sign, top-k, random-k or power-sgd", NULL,
     "bf16, fp16: messages are rounded to it, sums are fp32. power-sgd: matrices are summed as two factors of a low rank; only of gradients. The others are codes, which all devices gather and add after "
     "decoding: int8, fp8-e4m3, fp8-e5m2 and sign, bytes, 8-bit floats and signs with a scale for each block; top-k, the largest elements of a block; random-k, "
     "consecutive elements from a random one on"},
    {"block", "number of elements", "256; top-k and random-k: 65536", "elements with one scale, or of one selection"},
    {"fraction", "number above 0, at most 1", "required by top-k and random-k", "elements of a block that are exchanged"},
    {"rank", "number", "4", "of power-sgd; at most the matrix's"},
    {"rounding", "nearest or stochastic", "stochastic", "of int8, fp8-e4m3 and fp8-e5m2; stochastic has no bias"},
    {"between", "devices or nodes", "devices",
     "nodes: only messages that cross nodes. Of gradients it needs hybrid_shard, whose sums are taken inside nodes first, and has no feedback; not of outer"},
    {"feedback", "none, ef or ef21", "ef; int8, fp8-e4m3 and fp8-e5m2: none",
     "what a code leaves out is added in the next step (ef: error feedback), or changes of gradients are encoded (ef21; not power-sgd)"},
    {0}};

/* local_sgd */
const struct document_key plan_local_sgd_keys[] = {
    {"every", "number of steps, or list of numbers of updates", NULL,
     "optimizer steps from one exchange to the next (H); of a list, e.g. [16, 8], each island's updates between two exchanges: the largest "
     "number is H, the others divide it, and their islands accumulate the gradients of several steps for an update"},
    {"islands", "list of lists of replicas", "every replica alone",
     "replicas whose gradients are added in every step, e.g. [[0, 1], [2, 3]]"},
    {"outer", "average or nesterov", "average",
     "outer optimizer: the parameters become their mean, or the mean change is the gradient of SGD with Nesterov "
     "momentum (DiLoCo)"},
    {"lr", "number", "0.7", "learning rate of outer: nesterov"},
    {"momentum", "number", "0.9", "momentum of outer: nesterov"},
    {"fragments", "number", "1",
     "intervals of layers that are exchanged in turns, each once in `every` steps (Streaming DiLoCo)"},
    {"delay", "number of steps", "0",
     "steps from the start of a sum of changes to its use, during which it overlaps with computation; less than `every`"},
    {"alpha", "number", "0.5 with a delay",
     "weight of the local parameters when a delayed sum is applied: p = alpha p + (1 - alpha) anchor"},
    {0}};

/* parameter_server */
const struct document_key plan_server_keys[] = {
    {"servers", "list of device names", NULL,
     "devices without a stage, over which the parameters are divided by whole tensors, balanced by bytes"},
    {"mode", "bsp, ssp or asp", "bsp",
     "bsp: one update a step with the sum of all gradients. ssp, asp: an update for each arriving gradient; in ssp no worker is more "
     "than `bound` steps in front of the slowest. The training is another one than without, except with bsp and ssp of bound 0"},
    {"bound", "number of steps", "required by ssp", "of ssp: a worker begins its step c, counted from 0, when every worker has finished c - bound"},
    {"rate", "constant or inverse", "constant",
     "of ssp and asp: learning rate of an arriving gradient; inverse: lr / (staleness + 1), staleness in updates since its worker pulled"},
    {"drop_above", "number of updates", "none is dropped", "of ssp and asp: gradients of a larger staleness change nothing"},
    {0}};

/* an entry of experts */
const struct document_key plan_experts_keys[] = {
    {"block", "number", NULL, "transformer block, from 0"},
    {"order", "list of numbers", "0, 1, 2 ...",
     "the expert at each place: devices of a stage with `shard: experts` hold contiguous places, as many as their ratios say. Checkpoints "
     "have the model's own order"},
    {"tokens", "list of numbers", "equal shares",
     "tokens routed to each expert, of which the ratios matter: a shard's operators take time by the share of its experts"},
    {0}};

/* an entry of replicas */
const struct document_key plan_replica_keys[] = {
    {"microbatches", "number", NULL, "this replica's share of the global batch, in microbatches"},
    {"schedule", "text", "1F1B by the stages' warmup or order",
     "pipeline schedule by name, e.g. zb-v (`musher schedule --help` lists them)"},
    {"split", "true or false", "false",
     "separate input and weight gradients (I, W), if the schedule allows both"},
    {"orders", "map or text", "none",
     "order of the operations on each device instead of a schedule, e.g. {a.0: \"0F0 1F0 1B0 "
     "0B0\"}"},
    {"stages", "list of maps", NULL, "pipeline stages in the order of the layers"},
    {0}};

/* an entry of stages */
const struct document_key plan_stage_keys[] = {
    {"layers", "[first, last]", NULL, "layers of the stage, inclusive"},
    {"device", "device name", "none", "device of the stage, e.g. a.0"},
    {"devices", "list of device names", "none", "devices of a sharded stage, instead of device"},
    {"sequences", "list of numbers", "none",
     "sequences of a microbatch on each device: the stage is sharded along the batch"},
    {"sharding", "map", "none",
     "sharding of each operator over devices (intra-operator parallelism), instead of "
     "sequences"},
    {"warmup", "number of forwards", "1F1B: stages from this one to the last",
     "forwards before the first backward"},
    {"order", "text", "none", "order of the operations, e.g. F0 F1 B0 B1, instead of warmup"},
    {"recompute", "false, true, blocks or selective", "false",
     "activation recomputation: the whole stage, block by block, or attention scores only"},
    {"recompute_blocks", "number of blocks", "all",
     "with recompute: blocks, only the stage's first ones; the activations of the others are kept"},
    {"offload", "none or activations", "none",
     "activations: what the forward keeps for the backward waits in page-locked host memory, copied there and back block by block "
     "during computation; not with recompute: true"},
    {"bucket", "size", "one bucket after the last backward",
     "bucket of the gradient all-reduce, e.g. 25 MiB; parameters that the same devices hold share it"},
    {"receive_ahead", "number of microbatches", "2", "receive buffers posted ahead"},
    {"zero", "0, 1, 2 or 3", "0",
     "ZeRO stage over the replicas: 1 shards optimizer state, 2 also gradients, 3 also parameters"},
    {"hybrid_shard", "true or false", "false",
     "with zero: shards over the replicas' GPUs of one node, each shard all-reduced between nodes (HSDP)"},
    {"all_reduce", "ring, hierarchical, halving-doubling or double-tree", "ring",
     "algorithm of the gradient all-reduces whose devices fit it, with hybrid_shard of those between nodes; the others are rings. hierarchical: "
     "reduce-scatter inside nodes, rings between them, all-gather; halving-doubling and double-tree: few messages one after the other"},
    {0}};
