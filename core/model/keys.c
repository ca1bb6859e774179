#include "core/model/keys.h"

/* the file */
const struct document_key job_keys[] = {
    {"version", "1", NULL, "version of the format"},
    {"model", "path or map", NULL,
     "config.json of a Hugging Face model, relative to the job file; its content as a map; or "
     "MODEL.layers.json, a table of measured layers"},
    {"sequence_length", "number of tokens", "fixed by an image model",
     "tokens of a training sequence; required for text models"},
    {"global_batch", "number of sequences", NULL, "sequences (or images) of one optimizer step"},
    {"microbatch", "number, or list of numbers", "chosen by the planner",
     "sequences of a microbatch; each must divide global_batch"},
    {"layers", "coarse, fine or number", "the default cuts",
     "granularity of the layers that stages consist of: coarse (one per transformer block), fine (as "
     "many as possible within blocks), or their number"},
    {"precision", "fp32, fp64, bf16 or fp16", "fp32",
     "type of weights and activations; bf16 and fp16 keep fp32 master weights"},
    {"loss_scale", "map or number", "{initial: 65536, grows_after: 2000}",
     "loss scale of fp16; one number is a constant scale"},
    {"optimizer", "map", "{kind: adamw}", "optimizer and its constants: adamw, sgd, lion, lamb or lars"},
    {"dropout", "config or rate", "none",
     "dropout: as the config.json states it, or one rate from 0 to 1 everywhere"},
    {"balance", "number", "0",
     "coefficient of the load-balancing loss of a mixture of experts, e.g. 0.01"},
    {"expert_imbalance", "number from 1", "none: every expert has room for all tokens",
     "largest load of an expert, as a multiple of the even share, that memory is sized for, of a "
     "model without capacity_factor; a run would skip further tokens"},
    {"tokens", "count", "none",
     "tokens of the whole training run, e.g. 1T: outputs then state days, cost and energy of it"},
    {"images", "count", "none", "the same for an image model, e.g. 90M"},
    {"data", "path or map", "none", "training data: one file, whose form is found from its content, or a map; `run --data` overrides it"},
    {"init", "path", "random values", "folder of weights to start from, relative to the job file: safetensors as transformers writes them, or a checkpoint; `run --init` overrides it"},
    {"seed", "number", "1", "seed of weights, batches and dropout"},
    {0}};

/* data */
const struct document_key job_data_keys[] = {
    {"files", "list of paths or maps", NULL, "the files; without weights an epoch has every sample of all of them once"},
    {"form", "auto, bytes, uint16, uint32, llmc, megatron, cifar10, cifar100 or mnist", "auto",
     "layout of the files: bytes as tokens or pixels; tokens of 16 or 32 bits without a header (nanoGPT); llm.c's token files; Megatron-LM's .idx and .bin; "
     "CIFAR's binary versions; MNIST's IDX files. auto: from the magic number of the file; without one, bytes, but .bin and .npy are refused"},
    {"validation", "fraction, path or list of paths", "none",
     "samples that training never reads, for `run --eval-every`: a fraction from 0 to 1 of each file, its end; or files of the same form"},
    {0}};

/* data.files, an entry */
const struct document_key job_data_file_keys[] = {
    {"path", "path", NULL, "the file, relative to the job's folder"},
    {"weight", "number above 0", "none", "samples in proportion, in each 4,096 samples of the run, at least one; of all files or of none"},
    {0}};

/* loss_scale */
const struct document_key job_loss_scale_keys[] = {
    {"initial", "number", "65536", "first loss scale"},
    {"grows_after", "number of steps", "2000",
     "steps without overflow after which the scale doubles"},
    {0}};

#define DECAY                                                                                                             \
    {"decay", "matrices or all", "matrices", "parameters with weight decay: those of two and more dimensions, or biases and gains of norms too"}
#define MAX_GRAD_NORM                                                                                                     \
    {"max_grad_norm", "number", "none",                                                                                   \
     "gradient clipping: if the norm of the gradients of all parameters is larger, they are scaled to this norm before the update"}

/* optimizer with kind: adamw */
const struct document_key job_adamw_keys[] = {
    {"kind", "adamw", "adamw", "AdamW (Loshchilov and Hutter)"},
    {"lr", "number", "1e-3", "learning rate"},
    {"lr_rule", "map", "none: lr whatever the batch", "scales lr from a reference batch to the job's global_batch"},
    {"schedule", "map", "none: lr in every step", "learning-rate schedule and warm-up"},
    {"beta1", "number", "0.9", "decay of the first moment"},
    {"beta2", "number", "0.999", "decay of the second moment"},
    {"eps", "number", "1e-8", "term added to the denominator"},
    {"weight_decay", "number", "0.01", "decoupled weight decay"},
    DECAY,
    MAX_GRAD_NORM,
    {0}};

/* optimizer with kind: sgd */
const struct document_key job_sgd_keys[] = {
    {"kind", "sgd", NULL, "stochastic gradient descent, as torch.optim.SGD has it"},
    {"lr", "number", "1e-3", "learning rate"},
    {"lr_rule", "map", "none: lr whatever the batch", "scales lr from a reference batch to the job's global_batch"},
    {"schedule", "map", "none: lr in every step", "learning-rate schedule and warm-up"},
    {"momentum", "number", "0", "momentum; above 0 each parameter has a state tensor"},
    {"nesterov", "true or false", "false", "Nesterov's momentum"},
    {"weight_decay", "number", "0", "weight decay, added to the gradient"},
    DECAY,
    MAX_GRAD_NORM,
    {0}};

/* optimizer with kind: lion */
const struct document_key job_lion_keys[] = {
    {"kind", "lion", NULL, "Lion (Chen et al. 2023): the sign of an interpolated momentum; one state tensor"},
    {"lr", "number", "1e-4", "learning rate; 3 to 10 times smaller than AdamW's"},
    {"lr_rule", "map", "none: lr whatever the batch", "scales lr from a reference batch to the job's global_batch"},
    {"schedule", "map", "none: lr in every step", "learning-rate schedule and warm-up"},
    {"beta1", "number", "0.9", "weight of the momentum in the change"},
    {"beta2", "number", "0.99", "decay of the momentum"},
    {"weight_decay", "number", "0", "decoupled weight decay; 3 to 10 times AdamW's"},
    DECAY,
    MAX_GRAD_NORM,
    {0}};

/* optimizer with kind: lamb */
const struct document_key job_lamb_keys[] = {
    {"kind", "lamb", NULL, "LAMB (You et al. 2020): Adam, with the rate of each parameter scaled by its norm over that of its change"},
    {"lr", "number", "1e-3", "learning rate"},
    {"lr_rule", "map", "none: lr whatever the batch", "scales lr from a reference batch to the job's global_batch"},
    {"schedule", "map", "none: lr in every step", "learning-rate schedule and warm-up"},
    {"beta1", "number", "0.9", "decay of the first moment"},
    {"beta2", "number", "0.999", "decay of the second moment"},
    {"eps", "number", "1e-6", "term added to the denominator"},
    {"weight_decay", "number", "0.01", "weight decay, a part of the change"},
    DECAY,
    MAX_GRAD_NORM,
    {0}};

/* optimizer with kind: lars */
const struct document_key job_lars_keys[] = {
    {"kind", "lars", NULL, "LARS (You et al. 2017): SGD with momentum, with the rate of each parameter scaled by its norm over that of its gradient"},
    {"lr", "number", "1", "learning rate"},
    {"lr_rule", "map", "none: lr whatever the batch", "scales lr from a reference batch to the job's global_batch"},
    {"schedule", "map", "none: lr in every step", "learning-rate schedule and warm-up"},
    {"momentum", "number", "0.9", "momentum"},
    {"weight_decay", "number", "5e-4", "weight decay, added to the gradient"},
    DECAY,
    MAX_GRAD_NORM,
    {"trust", "number", "1e-3", "trust coefficient: the change of a parameter in its norm at lr 1, without momentum"},
    {0}};

#define WARMUP {"warmup", "number of steps", "0", "steps in which the rate rises linearly from 0; the last of them has lr"}
#define MIN_LR {"min_lr", "number", "0", "rate at the end and after it; scaled like lr by an lr_rule"}

/* optimizer.schedule */
const struct document_key job_constant_lr_keys[] = {{"kind", "constant", NULL, "lr after the warm-up"}, WARMUP, {0}};
const struct document_key job_linear_lr_keys[] = {
    {"kind", "linear or cosine", NULL, "linearly, or by half a cosine, from lr after the warm-up to min_lr"},
    WARMUP,
    {"steps", "number of steps", NULL, "steps of the whole training, the warm-up included"},
    MIN_LR,
    {0}};
const struct document_key job_wsd_lr_keys[] = {
    {"kind", "wsd", NULL, "warmup-stable-decay: lr, and a decay to min_lr in the last steps"},
    WARMUP,
    {"steps", "number of steps", NULL, "steps of the whole training, the warm-up included"},
    {"decay_steps", "number of steps", NULL, "steps of the decay"},
    {"decay", "linear, cosine or sqrt", "linear", "form of the decay; sqrt: 1 - sqrt(part of the decay that is over)"},
    MIN_LR,
    {0}};
const struct document_key job_inverse_sqrt_lr_keys[] = {
    {"kind", "inverse_sqrt", NULL, "lr times sqrt(warmup / step)"}, WARMUP, {"min_lr", "number", "0", "lowest rate; scaled like lr by an lr_rule"}, {0}};

/* optimizer.lr_rule */
const struct document_key job_lr_rule_keys[] = {
    {"kind", "linear or sqrt", NULL,
     "the rate is lr times the ratio of global_batch and batch (Goyal et al. 2017; for SGD, with a warm-up), or times its square root "
     "(Hoffer et al. 2017; Malladi et al. 2022 for Adam)"},
    {"batch", "number of sequences", NULL, "global_batch for which lr is stated"},
    {0}};

/* MODEL.layers.json, the file */
const struct document_key measured_keys[] = {
    {"model_type", "measured_layers", NULL, "marks the file as a table of measured layers"},
    {"version", "1", NULL, "version of the format"},
    {"_name_or_path", "text", "the name of the file", "name of the model"},
    {"sequence_length", "number of tokens", NULL, "sequence length of the measurement"},
    {"tensor_parallel", "list of numbers", NULL,
     "tensor-parallel degrees of the measurement, the order of the lists below"},
    {"layers", "list of maps", NULL, "layers from first to last"},
    {0}};

/* MODEL.layers.json, an entry of layers */
const struct document_key measured_layer_keys[] = {
    {"name", "text", NULL, "name of the layer"},
    {"cost", "text", NULL, "name of its measured times in the profile; equal layers share one"},
    {"output", "number of elements", NULL,
     "activation of one sequence at the cut after the layer; 0 for the last layer"},
    {"parameters", "list of numbers", NULL,
     "parameters on one GPU, for each tensor-parallel degree"},
    {"kept", "list of numbers", NULL,
     "elements of one sequence kept for the backward on one GPU, for each degree"},
    {0}};
