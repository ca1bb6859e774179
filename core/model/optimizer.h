/* core/model/optimizer.h - `optimizer` of a job file, and the learning rate of a batch.
 *
 * lr_rule: the stated rate is for `batch` sequences a step; a job of B has
 *   linear  lr · B / batch      Krizhevsky 2014 (arXiv 1404.5997), Goyal et al. 2017 (arXiv 1706.02677): B small steps of SGD and one
 *                               large step change the parameters alike, while the gradient changes little; with a warm-up, up to a batch
 *                               that the gradient noise scale bounds
 *   sqrt    lr · √(B / batch)   Krizhevsky 2014, Hoffer et al. 2017 (arXiv 1705.08741): the variance of a step stays the same; for Adam
 *                               Malladi et al. 2022 (arXiv 2205.10287), who also change the betas, which this rule does not
 */
#ifndef CORE_MODEL_OPTIMIZER_H
#define CORE_MODEL_OPTIMIZER_H

#include "core/base/error.h"
#include "core/document/document.h"
#include "core/graph/op.h"
#include "core/model/lr_schedule.h"

#include <stdint.h>
#include <stdio.h>

struct arena;

/* Name in files, state tensors, operator, operator over a flat run of parameters; sgd with momentum has one state tensor and operators of
 * its own (optimizer_op). Lion: Chen et al. 2023 (arXiv 2302.06675). LAMB (You et al. 2020) and LARS (You et al. 2017) scale the
 * rate of each parameter by its trust ratio, the norm of the parameter over that of its change or gradient. */
#define OPTIMIZERS(X) X(ADAMW, adamw, 2, flat_adamw) X(SGD, sgd, 0, flat_sgd) X(LION, lion, 1, flat_lion) X(LAMB, lamb, 2, lamb) X(LARS, lars, 1, lars)
enum optimizer_kind {
#define X(name, text, states, flat) OPTIMIZER_##name,
    OPTIMIZERS(X)
#undef X
        OPTIMIZER_COUNT
};
enum lr_rule { LR_RULE_NONE, LR_RULE_LINEAR, LR_RULE_SQRT };
struct optimizer {
    enum optimizer_kind kind;
    double lr, beta1, beta2, eps, weight_decay; /* SGD, LARS: beta1 is the momentum */
    bool nesterov;                              /* SGD: Nesterov's momentum */
    bool decay_all;                             /* weight decay also of biases and gains; else of matrices only */
    double max_grad_norm;                       /* gradients of a larger norm, over all parameters, are scaled to this one; 0: none */
    double trust;                               /* LARS: the trust coefficient */
    enum lr_rule rule;
    int64_t rule_batch; /* sequences a step for which lr is stated; of a rule */
    struct lr_schedule schedule;
};

/* `optimizer` of the map; adamw with its defaults if the key is absent. ERR_INPUT. */
MUST_CHECK enum status optimizer_read(const struct node *root, struct optimizer *out, struct error *err);
void optimizer_write(FILE *out, const struct optimizer *o, int indent); /* its line */
const char *optimizer_name(enum optimizer_kind kind);                   /* as in files */
int64_t optimizer_state_tensors(const struct optimizer *o);
static inline bool optimizer_has_momentum(const struct optimizer *o) { return o->kind == OPTIMIZER_SGD && o->beta1 > 0; }
/* The operator of an update; `flat`: of many parameters in one run. Operands: parameter, gradient, state; results: parameter, state,
 * gradient. Without a flat operator (trust ratios): the same. */
enum op_kind optimizer_op(const struct optimizer *o, bool flat);
/* Whether an update reads norms of whole parameters. ZeRO and sharded stages have shards of them. */
static inline bool optimizer_needs_norms(const struct optimizer *o)
{
    return o->kind == OPTIMIZER_LAMB || o->kind == OPTIMIZER_LARS;
}
/* The rate of a step of so many sequences; of a schedule, the peak. */
double optimizer_lr(const struct optimizer *o, int64_t batch);
/* The optimizer of a program: its rates are those of steps of so many sequences, without a rule. */
struct optimizer optimizer_of_batch(const struct optimizer *o, int64_t batch);
/* "0.0012: 0.0003 for 256 sequences a step, linear rule, here 1024"; with a schedule, what it does; NULL: neither. */
const char *optimizer_describe_lr(struct arena *a, const struct optimizer *o, int64_t batch);

#endif
