#include "core/model/optimizer.h"

#include "core/base/arena.h"
#include "core/document/canonical.h"
#include "core/model/keys.h"

#include <inttypes.h>
#include <math.h>

enum { RULE_BATCH_MAX = 1 << 24 }; /* as global_batch */
#define LR_MAX 1000.0
#define GRAD_NORM_MAX 1e9 /* a norm beyond it clips nothing */

#define X(name, text, states, flat) #text,
static const char *const kinds[] = {OPTIMIZERS(X) NULL};
#undef X
static const char *const decays[] = {"matrices", "all", NULL};
static const char *const rules[] = {"linear", "sqrt", NULL};

/* *out keeps its default if the key is absent. > 0, or >= 0; not above max, or below it. */
static enum status read_number(const struct node *map, const char *key, bool zero, double max,
                               bool below, double *out, struct error *err)
{
    const struct node *n = node_get(map, key);
    if (!n || n->kind == NODE_NULL) return OK;
    TRY(node_double(n, 0, max, out, err));
    if (!zero && *out <= 0) return node_error(n, err, "must be above 0, found '%s'", n->text);
    if (below && *out >= max)
        return node_error(n, err, "must be below %g, found '%s'", max, n->text);
    return OK;
}

static enum status read_rule(const struct node *map, struct optimizer *o, struct error *err)
{
    const struct node *n = node_get(map, "lr_rule"), *kind, *batch;
    int rule;
    if (!n || n->kind == NODE_NULL) return OK;
    TRY(node_is(n, NODE_MAP, err));
    TRY(document_keys(n, job_lr_rule_keys, err));
    TRY(node_need(n, "kind", &kind, err));
    TRY(node_choice(kind, rules, &rule, err));
    TRY(node_need(n, "batch", &batch, err));
    o->rule = LR_RULE_LINEAR + (enum lr_rule)rule;
    return node_int(batch, 1, RULE_BATCH_MAX, &o->rule_batch, err);
}

/* LAMB, Lion: eps and betas as in the authors' code. LARS: as in the paper, for ResNet-50. */
static const struct optimizer defaults[] = {
    [OPTIMIZER_ADAMW] = {.kind = OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
    [OPTIMIZER_SGD] = {.kind = OPTIMIZER_SGD, .lr = 1e-3},
    [OPTIMIZER_LION] = {.kind = OPTIMIZER_LION, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99},
    [OPTIMIZER_LAMB] = {.kind = OPTIMIZER_LAMB, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.01},
    [OPTIMIZER_LARS] = {.kind = OPTIMIZER_LARS, .lr = 1, .beta1 = 0.9, .weight_decay = 5e-4, .trust = 1e-3}};

static enum status read_momentum(const struct node *map, struct optimizer *o, struct error *err)
{
    const struct node *n = node_get(map, "nesterov");
    TRY(read_number(map, "momentum", true, 1, true, &o->beta1, err));
    if (!n || n->kind == NODE_NULL) return OK;
    TRY(node_bool(n, &o->nesterov, err));
    if (o->nesterov && o->beta1 <= 0) return node_error(n, err, "nesterov needs a momentum above 0, e.g. momentum: 0.9");
    return OK;
}

static enum status read_decay(const struct node *map, struct optimizer *o, struct error *err)
{
    const struct node *n = node_get(map, "decay");
    int decay;
    TRY(read_number(map, "weight_decay", true, 10, false, &o->weight_decay, err));
    if (!n || n->kind == NODE_NULL) return OK;
    TRY(node_choice(n, decays, &decay, err));
    o->decay_all = decay;
    return OK;
}

enum status optimizer_read(const struct node *root, struct optimizer *o, struct error *err)
{
    const struct node *n = node_get(root, "optimizer"), *named;
    int kind = OPTIMIZER_ADAMW;
    *o = defaults[OPTIMIZER_ADAMW];
    if (!n || n->kind == NODE_NULL) return OK;
    TRY(node_is(n, NODE_MAP, err));
    named = node_get(n, "kind");
    if (named && named->kind != NODE_NULL) TRY(node_choice(named, kinds, &kind, err));
    static const struct document_key *const keys[] = {job_adamw_keys, job_sgd_keys, job_lion_keys, job_lamb_keys, job_lars_keys};
    TRY(document_keys(n, keys[kind], err));
    *o = defaults[kind];
    TRY(read_number(n, "lr", false, LR_MAX, false, &o->lr, err));
    TRY(read_number(n, "beta1", true, 1, true, &o->beta1, err));
    TRY(read_momentum(n, o, err));
    TRY(read_number(n, "trust", false, 1, false, &o->trust, err));
    TRY(read_number(n, "beta2", true, 1, true, &o->beta2, err));
    TRY(read_number(n, "eps", false, 1, false, &o->eps, err));
    TRY(read_decay(n, o, err));
    TRY(read_number(n, "max_grad_norm", false, GRAD_NORM_MAX, false, &o->max_grad_norm, err));
    TRY(lr_schedule_read(n, o->lr, &o->schedule, err));
    return read_rule(n, o, err);
}

void optimizer_write(FILE *out, const struct optimizer *o, int indent)
{
    bool lars = o->kind == OPTIMIZER_LARS, sgd = o->kind == OPTIMIZER_SGD, adam = o->kind == OPTIMIZER_ADAMW || o->kind == OPTIMIZER_LAMB,
         lion = o->kind == OPTIMIZER_LION;
    const struct {
        const char *key;
        bool has;
        double value;
    } fields[] = {{"lr", true, o->lr},
                  {"beta1", adam || lion, o->beta1},
                  {"momentum", lars || (sgd && o->beta1 > 0), o->beta1},
                  {"beta2", adam || lion, o->beta2},
                  {"eps", adam, o->eps},
                  {"weight_decay", !sgd || o->weight_decay > 0, o->weight_decay},
                  {"trust", lars, o->trust},
                  {"max_grad_norm", o->max_grad_norm > 0, o->max_grad_norm}};
    canonical_indent(out, indent);
    fprintf(out, "optimizer: {kind: %s", optimizer_name(o->kind));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].has) continue;
        fprintf(out, ", %s: ", fields[i].key);
        canonical_double(out, fields[i].value);
    }
    if (o->nesterov) fputs(", nesterov: true", out);
    if (o->decay_all) fputs(", decay: all", out);
    if (o->rule) fprintf(out, ", lr_rule: {kind: %s, batch: %" PRId64 "}", rules[o->rule - LR_RULE_LINEAR], o->rule_batch);
    lr_schedule_write(out, &o->schedule);
    fputs("}\n", out);
}

const char *optimizer_name(enum optimizer_kind kind) { return kinds[kind]; }

int64_t optimizer_state_tensors(const struct optimizer *o)
{
#define X(name, text, states, flat) states,
    static const int8_t tensors[] = {OPTIMIZERS(X)};
#undef X
    return optimizer_has_momentum(o) ? 1 : tensors[o->kind];
}

enum op_kind optimizer_op(const struct optimizer *o, bool flat)
{
#define X(name, text, states, flat_op) {OP_##text, OP_##flat_op},
    static const enum op_kind ops[][2] = {OPTIMIZERS(X)};
#undef X
    if (optimizer_has_momentum(o)) return flat ? OP_flat_momentum : OP_momentum;
    return ops[o->kind][flat];
}

double optimizer_lr(const struct optimizer *o, int64_t batch)
{
    double ratio = o->rule ? (double)batch / (double)o->rule_batch : 1;
    return o->lr * (o->rule == LR_RULE_SQRT ? sqrt(ratio) : ratio);
}

struct optimizer optimizer_of_batch(const struct optimizer *o, int64_t batch)
{
    struct optimizer x = *o;
    x.lr = optimizer_lr(o, batch);
    x.schedule.min_lr = o->lr > 0 ? o->schedule.min_lr * (x.lr / o->lr) : 0;
    x.rule = LR_RULE_NONE;
    x.rule_batch = 0;
    return x;
}

const char *optimizer_describe_lr(struct arena *a, const struct optimizer *o, int64_t batch)
{
    struct optimizer x = optimizer_of_batch(o, batch);
    const char *schedule = lr_schedule_describe(a, &x.schedule, x.lr);
    if (!o->rule) return schedule;
    return arena_printf(a, "%.4g: %g for %" PRId64 " sequences a step, %s rule, here %" PRId64 "%s%s", x.lr, o->lr, o->rule_batch,
                        rules[o->rule - LR_RULE_LINEAR], batch, schedule ? "; " : "", schedule ? schedule : "");
}
