/* core/program/io_training.c - how a program's parameters are updated: optimizer, outer optimizer, loss scale, measurement of the gradient
 * noise scale; written, read, checked. */
#include "core/base/arena.h"
#include "core/program/lines.h"
#include "core/program/period.h"
#include "core/program/valid.h"
#include "core/program/words.h"

#include <inttypes.h>

#define X(name, text, states, flat) #text,
static const char *const optimizers[] = {OPTIMIZERS(X)};
#undef X
static const char *const outers[] = {"average", "nesterov"};

/* --- writing --- */

static void put(struct lines *out, const double *x, int n)
{
    for (int i = 0; i < n; i++) lines_double(out, x[i]);
}

static void put_word(struct lines *out, const char *word) { lines_char(out, ' '), lines_text(out, word); }

void program_write_training(struct lines *out, const struct program *p)
{
    const struct optimizer *o = &p->optimizer;
    const struct outer_optimizer *x = &p->outer;
    if (p->loss_scale.initial > 0) {
        lines_text(out, "\nloss_scale");
        put(out, &p->loss_scale.initial, 1), lines_int(out, p->loss_scale.grows_after);
    }
    lines_text(out, "\noptimizer"), put_word(out, optimizers[o->kind]);
    put(out, (const double[]){o->lr, o->beta1, o->beta2, o->eps, o->weight_decay}, 5);
    if (o->kind == OPTIMIZER_LARS) put(out, &o->trust, 1);
    if (o->kind == OPTIMIZER_SGD) lines_int(out, o->nesterov);
    if (o->max_grad_norm > 0) lines_text(out, "\nmax_grad_norm"), put(out, &o->max_grad_norm, 1);
    if (o->schedule.kind != LR_SCHEDULE_CONSTANT || o->schedule.warmup) {
        lines_text(out, "\nlr_schedule"), put_word(out, lr_schedule_kinds[o->schedule.kind]);
        lines_int(out, o->schedule.warmup), lines_int(out, o->schedule.steps), lines_int(out, o->schedule.decay_steps);
        put_word(out, lr_schedule_decays[o->schedule.decay]), put(out, &o->schedule.min_lr, 1);
    }
    if (x->every) {
        lines_text(out, "\nouter"), lines_int(out, x->every), put_word(out, outers[x->kind]);
        put(out, (const double[]){x->lr, x->momentum}, 2);
        lines_int(out, x->fragments), lines_int(out, x->delay), put(out, &x->alpha, 1);
        lines_int(out, x->n_updates);
        for (int32_t i = 0; i < x->n_updates; i++) lines_int(out, x->updates[i]);
    }
    if (p->gradient_noise) lines_text(out, "\ngradient_noise");
}

void program_write_stage_training(struct lines *out, const struct program *p, const struct program_stage *s)
{
    if (p->loss_scale.initial > 0) lines_text(out, "scale"), lines_int(out, s->scale_slot), lines_char(out, '\n');
    if (p->optimizer.max_grad_norm > 0) lines_text(out, "clip"), lines_int(out, s->clip_slot), lines_char(out, '\n');
    if (!p->gradient_noise) return;
    lines_text(out, "squares");
    for (int k = 0; k < GRADIENT_SQUARES; k++) lines_int(out, s->squares_slot[k]);
    lines_char(out, '\n');
}

/* --- reading --- */

static enum status read_outer(struct reader *r, struct outer_optimizer *o)
{
    int kind;
    TRY(words_start(r, "outer"));
    TRY(words_int(r, 1, PROGRAM_PERIOD_MAX, &o->every));
    TRY(words_choice(r, outers, 2, &kind));
    o->kind = (enum outer_kind)kind;
    TRY(words_double(r, &o->lr));
    TRY(words_double(r, &o->momentum));
    TRY(words_int(r, 1, o->every, &o->fragments));
    TRY(words_int(r, 0, o->every - 1, &o->delay));
    TRY(words_double(r, &o->alpha));
    TRY(words_count(r, &o->n_updates));
    int32_t *updates = ARENA_ARRAY(r->a, int32_t, (size_t)o->n_updates + 1);
    o->updates = updates;
    return words_list(r, o->n_updates, o->every, updates);
}

static enum status read_schedule(struct reader *r, struct lr_schedule *x)
{
    int kind, decay;
    TRY(words_start(r, "lr_schedule"));
    TRY(words_choice(r, lr_schedule_kinds, LR_SCHEDULE_COUNT, &kind));
    TRY(words_int64(r, 0, LR_STEPS_MAX, &x->warmup));
    TRY(words_int64(r, 0, LR_STEPS_MAX, &x->steps));
    TRY(words_int64(r, 0, x->steps, &x->decay_steps));
    TRY(words_choice(r, lr_schedule_decays, LR_DECAY_COUNT, &decay));
    x->kind = (enum lr_schedule_kind)kind;
    x->decay = (enum lr_decay)decay;
    return words_double(r, &x->min_lr);
}

enum status program_read_training(struct reader *r, struct program *p)
{
    int kind;
    if (words_next_is(r, "loss_scale")) {
        TRY(words_start(r, "loss_scale"));
        TRY(words_double(r, &p->loss_scale.initial));
        TRY(words_int64(r, 0, 1 << 24, &p->loss_scale.grows_after));
    }
    TRY(words_start(r, "optimizer"));
    TRY(words_choice(r, optimizers, OPTIMIZER_COUNT, &kind));
    p->optimizer.kind = (enum optimizer_kind)kind;
    TRY(words_double(r, &p->optimizer.lr));
    TRY(words_double(r, &p->optimizer.beta1));
    TRY(words_double(r, &p->optimizer.beta2));
    TRY(words_double(r, &p->optimizer.eps));
    TRY(words_double(r, &p->optimizer.weight_decay));
    if (p->optimizer.kind == OPTIMIZER_LARS) TRY(words_double(r, &p->optimizer.trust));
    if (p->optimizer.kind == OPTIMIZER_SGD) TRY(words_bool(r, &p->optimizer.nesterov));
    if (words_next_is(r, "max_grad_norm")) {
        TRY(words_start(r, "max_grad_norm"));
        TRY(words_double(r, &p->optimizer.max_grad_norm));
    }
    if (words_next_is(r, "lr_schedule")) TRY(read_schedule(r, &p->optimizer.schedule));
    if (words_next_is(r, "outer")) TRY(read_outer(r, &p->outer));
    p->gradient_noise = words_next_is(r, "gradient_noise");
    return p->gradient_noise ? words_start(r, "gradient_noise") : OK;
}

enum status program_read_stage_training(struct reader *r, const struct program *p, struct program_stage *s)
{
    if (p->loss_scale.initial > 0) {
        TRY(words_start(r, "scale"));
        TRY(words_int(r, 0, s->n_slots - 1, &s->scale_slot));
    }
    if (p->optimizer.max_grad_norm > 0) {
        TRY(words_start(r, "clip"));
        TRY(words_int(r, 0, s->n_slots - 1, &s->clip_slot));
    }
    if (!p->gradient_noise) return OK;
    TRY(words_start(r, "squares"));
    for (int k = 0; k < GRADIENT_SQUARES; k++) TRY(words_int(r, 0, s->n_slots - 1, &s->squares_slot[k]));
    return OK;
}

/* --- checks --- */

enum status valid_training(struct valid *c)
{
    const struct program *p = c->p;
    NEED(valid_index(p->optimizer.kind, OPTIMIZER_COUNT), "unknown optimizer");
    NEED(p->loss_scale.initial >= 0 && p->loss_scale.initial <= (double)LOSS_SCALE_MAX &&
             p->loss_scale.grows_after >= 0,
         "loss scale out of range");
    NEED(p->optimizer.max_grad_norm >= 0, "max_grad_norm below 0");
    const struct outer_optimizer *o = &p->outer;
    NEED(o->every >= 0 && valid_index(o->kind, OUTER_NESTEROV + 1), "unknown outer optimizer");
    NEED(!o->n_updates || o->n_updates >= program_islands(p), "outer optimizer: no number of updates of some island");
    for (int32_t i = 0; i < o->n_updates; i++)
        NEED(o->updates[i] > 0 && o->every % o->updates[i] == 0, "outer optimizer: %" PRId32 " updates of an island in %" PRId32 " steps", o->updates[i],
             o->every);
    return OK;
}

/* With a loss scale every stage has its numbers; without one no operator is scaled. */
enum status valid_stage_training(struct valid *c)
{
    const struct program_stage *s = c->s;
    const struct shape numbers = {1, {LOSS_SCALE_NUMBERS}}, one = {1, {1}}, two = {1, {2}};
    bool has = c->p->loss_scale.initial > 0, clips = c->p->optimizer.max_grad_norm > 0;
    int32_t u = program_procedure(s, PHASE_U, ""), steps = period_of_update(&c->p->outer, s->island);
    NEED(!c->p->outer.every || u < 0 || s->procedures[u].period == (steps > 1 ? steps : 0),
         "stage: its update has a period of %" PRId32 ", and its island updates in every %" PRId32 " steps", s->procedures[u].period, steps);
    NEED(!has || (valid_slot(c, s->scale_slot, SLOT_STATE, &numbers) &&
                  s->slots[s->scale_slot].dtype == DTYPE_fp32),
         "stage: no slot for its loss scale");
    NEED(!clips || (valid_slot(c, s->clip_slot, SLOT_GRADIENT, &two) && s->slots[s->clip_slot].dtype == dtype_master(c->p->dtype)),
         "stage: no slot for the norm of the gradients");
    for (int32_t i = 0; i < s->n_ops; i++)
        NEED(clips || !s->ops[i].attrs.clipped, "operator %s: clipped, but the program has no max_grad_norm", s->ops[i].name);
    for (int32_t i = 0; i < s->n_ops; i++)
        NEED(has || !s->ops[i].attrs.scaled, "operator %s: scaled, but the program has no loss scale",
             s->ops[i].name);
    for (int k = 0; k < GRADIENT_SQUARES && c->p->gradient_noise; k++)
        NEED(valid_slot(c, s->squares_slot[k], SLOT_GRADIENT, &one) &&
                 s->slots[s->squares_slot[k]].dtype == dtype_master(c->p->dtype),
             "stage: no slots for the squares of its gradients");
    return OK;
}
