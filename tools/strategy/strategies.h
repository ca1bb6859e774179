/* tools/strategy/strategies.h - plans whose training is not the synchronous one: local SGD over islands, compressed sums, stale gradients
 * (`plan --allow`).
 *
 * Such a plan is made from synchronous ones, never ranked among them, and covered by none of their bounds. Its iteration time is
 * simulated. Its *progress* is how much a sample contributes to the loss, compared with synchronous training: a stated assumption with its
 * source, because no simulation predicts it. Effective rate = samples/s · progress. Of stale gradients it depends on the simulated
 * staleness (tools/strategy/served_plans.h).
 *
 * Islands (tools/strategy/islands.h): each division of the cluster is tried. Every island has the plan that the search finds for it alone,
 * with its share of the batch: in proportion to the islands' peak FLOP/s first, then, if islands differ, to the samples/s of these plans. Alike
 * islands are searched once. All have the microbatch size of the fastest one. With local SGD they shard state inside an island where that is
 * faster or needed, and slower islands make fewer updates between two exchanges, in proportion to their samples a step, so that an update
 * of every island has about as many samples as one of the fastest. A number of islands that a strategy's source covers precedes a larger one.
 */
#ifndef TOOLS_STRATEGY_STRATEGIES_H
#define TOOLS_STRATEGY_STRATEGIES_H

#include "planner/search.h"

#include <stdbool.h>

struct arena;

/* Sets of strategies that a user may allow: id, word, what changes. */
#define STRATEGY_SETS(X)                                                                           \
    X(LOCAL_SGD, "local-sgd", "islands exchange parameters every few steps")                       \
    X(COMPRESS, "compress", "gradients are rounded or approximated before they are added")         \
    X(STALE, "stale",                                                                              \
      "gradients of older parameters: parameter servers apply each when it arrives, pipelines "    \
      "are not flushed")
enum strategy_set {
#define X(id, word, help) STRATEGY_SET_##id,
    STRATEGY_SETS(X)
#undef X
        STRATEGY_SET_COUNT
};
extern const char *const strategy_set_names[]; /* NULL-ended */

/* The option --allow, of struct texts. */
#define STRATEGY_SET_HELP(id, word, help) " " word " (" help ")"
#define OPTION_ALLOW(member, text)                                                                 \
    {                                                                                              \
        .name = "allow", TEXTS_AT(member), .unit = "SET,...",                                      \
        .help = text STRATEGY_SETS(STRATEGY_SET_HELP)                                              \
    }

/* Strategies: id, set (COUNT: of presets only), name, what it does, progress (of stale gradients the largest), its assumption and source. */
#define STRATEGIES(X)                                                                              \
    X(local_sgd, LOCAL_SGD, "local-sgd",                                                           \
      "islands average their parameters every 8 steps (Stich 2019)", 1,                            \
      "assumed 1: Lin et al. 2020 report the accuracy of synchronous SGD with up to 16 local "     \
      "steps, of image models after a synchronous start")                                          \
    X(diloco, LOCAL_SGD, "diloco",                                                                 \
      "islands exchange every 500 steps, Nesterov momentum 0.9 and rate 0.7 outside", 1,           \
      "assumed 1: Douillard et al. 2023 report the loss of synchronous training for 8 islands, "   \
      "500 steps and models of up to 400M parameters")                                             \
    X(streaming_diloco, LOCAL_SGD, "streaming-diloco",                                             \
      "DiLoCo every 100 steps in 4 fragments in turn, applied one step late", 1,                   \
      "assumed 1: Douillard et al. 2025 report the quality of DiLoCo, with billions of "           \
      "parameters")                                                                                \
    X(bf16_sums, COMPRESS, "bf16-sums", "gradient sums in bf16 (PyTorch's bf16_compress_hook)", 1, \
      "assumed 1: messages have 8 significant bits, sums are fp32")                                \
    X(fp16_sums, COMPRESS, "fp16-sums", "gradient sums in fp16 (Horovod's Compression.fp16)", 1,   \
      "assumed 1: messages have 11 significant bits and overflow above 65,504, sums are fp32")      \
    X(int8_sums, COMPRESS, "int8-sums",                                                            \
      "gradients in int8 with a scale for 256 elements, rounded stochastically (QSGD)", 1,         \
      "assumed 1: Alistarh et al. 2017 report the accuracy of fp32 with 8 bits, of image and "     \
      "speech models")                                                                             \
    X(power_sgd, COMPRESS, "power-sgd", "gradients of matrices of rank 4 with error feedback", 1,  \
      "assumed 1: Vogels et al. 2019 report the accuracy of SGD with rank 4, of a ResNet and an "  \
      "LSTM")                                                                                      \
    X(ssp, STALE, "ssp",                                                                           \
      "parameter servers apply each gradient; no worker is more than 3 steps ahead (Ho et al. "    \
      "2013)", 1, STALE_SOURCE)                                                                    \
    X(asp, STALE, "asp",                                                                           \
      "parameter servers apply each gradient; no worker waits for another (Dean et al. 2012)", 1,  \
      STALE_SOURCE)                                                                                \
    X(pipedream_2bw, STALE, "pipedream-2bw",                                                       \
      "pipelines without a flush: gradients are of the parameters of one step before, of which "   \
      "devices keep two versions (Narayanan et al. 2021)", 1,                                      \
      "assumed 1: Narayanan et al. 2021 report the loss of synchronous training, of BERT and GPT " \
      "models of 355M parameters with Adam; of plain SGD on quadratics the largest stable rate "   \
      "is half the synchronous one")                                                               \
    X(bsp, COUNT, "bsp", "parameter servers apply the sum of all gradients in each step", 1,       \
      "the synchronous training, to rounding")
#define STALE_SOURCE                                                                               \
    "assumed from the simulated mean staleness: the largest stable rate of gradients so late over " \
    "that of synchronous ones (Giladi et al. 2020, on quadratics without momentum); Dai et al. "   \
    "2019 report that Adam and momentum suffer more"
enum strategy_id {
#define X(id, set, name, help, progress, source) STRATEGY_##id,
    STRATEGIES(X)
#undef X
        STRATEGY_COUNT
};

/* Presets of another training (`plan --baseline`): name, strategy, the textbook plans that it changes (planner/candidate/types.h), what it is. With
 * local SGD they are the plans of every island. A preset whose training is the synchronous one is a row of BASELINES instead, and ranks there;
 * one of another training is a row here: what it changes of a plan is its strategy's. */
#define PRESETS(X)                                                                                 \
    X("diloco", diloco, "data-parallel ddp",                                                       \
      "data parallel in every island, DiLoCo between them every 500 steps")                        \
    X("powersgd", power_sgd, "ddp data-parallel",                                                  \
      "ddp with PowerSGD of rank 4 in place of the all-reduce (PyTorch's powerSGD_hook)")          \
    X("horovod-fp16", fp16_sums, "horovod-ring", "horovod-ring with Compression.fp16")             \
    X("ps-sync", bsp, "data-parallel",                                                             \
      "parameter servers, one update a step with the sum of all gradients")                        \
    X("ps-async", asp, "data-parallel", "parameter servers, an update for each gradient")          \
    X("tf-parameter-server", asp, "data-parallel",                                                 \
      "ps-async, as TensorFlow 2's ParameterServerStrategy")                                       \
    X("ssp", ssp, "data-parallel",                                                                 \
      "ps-async in which no worker is more than 3 steps ahead (stale synchronous)")                \
    X("pipedream-2bw", pipedream_2bw, "even-pipeline gpipe",                                       \
      "balanced pipelines without a flush, two weight versions")

struct strategy_plan {
    const char *name, *help, *source;
    double progress;
    double staleness; /* mean, in updates, of gradients that a parameter server applies when they arrive; else 0 */
    bool synchronous; /* the training is the synchronous one, to rounding */
    const char *why; /* there is no plan, with the reason of each division of the cluster; NULL: there is one */
    struct plan plan;
    int64_t iteration_ns;
    bool outside; /* the limits of the objective */
    int32_t covered; /* islands that its source covers; 0: any number */
    struct strategy_beyond { /* the fastest plan of more islands; 0 islands: none was made */
        int32_t islands;
        int64_t iteration_ns;
    } beyond;
};
struct strategies {
    int32_t n;
    struct strategy_plan *list; /* (n) those of the allowed sets, the best first, those without a plan last */
    int64_t evaluated;          /* plans simulated for them */
};

/* Samples/s times progress; 0: no plan. */
double strategy_rate(const struct strategy_plan *x);
/* Time and money of an iteration of synchronous training that contributes as much: both divided by progress. Of a strategy with a plan. */
struct search_plan strategy_effective(const struct strategy_plan *x);
/* The sets that texts name, several in one with commas between them. ERR_USAGE: unknown, with the nearest name. */
struct texts;
MUST_CHECK enum status strategy_sets(struct arena *a, const struct texts *words, uint32_t *out, struct error *err);

/* sets: 1 << strategy_set each. sync: the fastest synchronous plan. o: of its search. Cost: a search for every island of each division that
 * no earlier one is like. */
MUST_CHECK enum status strategies_find(struct arena *a, const struct job *j, const struct cluster *c, const struct profile *p,
                                       const struct search_options *o, uint32_t sets, const struct search_plan *sync,
                                       struct strategies *out, struct error *err);

/* The index of a preset of another training; -1: none has the name. */
int32_t strategies_preset(const char *name);
/* The plan of a preset: the best setting of each of its textbook plans, found as a synchronous one, with the strategy's change; the best of them
 * by the objective. evaluated: plans simulated. ERR_INFEASIBLE: none fits, with the reasons. */
MUST_CHECK enum status strategies_preset_find(struct arena *a, const struct job *j, const struct cluster *c, const struct profile *p,
                                              const struct search_options *o, int32_t preset, struct strategy_plan *out,
                                              int64_t *evaluated, struct error *err);

#endif
