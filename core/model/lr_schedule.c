#include "core/model/lr_schedule.h"

#include "core/base/arena.h"
#include "core/document/canonical.h"
#include "core/model/keys.h"

#include <inttypes.h>
#include <math.h>

#define X(name, text) #text,
const char *const lr_schedule_kinds[] = {LR_SCHEDULES(X) NULL};
const char *const lr_schedule_decays[] = {LR_DECAYS(X) NULL};
#undef X

static bool has_end(const struct lr_schedule *x) { return x->kind == LR_SCHEDULE_LINEAR || x->kind == LR_SCHEDULE_COSINE || x->kind == LR_SCHEDULE_WSD; }

static const struct node *given(const struct node *map, const char *key)
{
    const struct node *n = node_get(map, key);
    return n && n->kind != NODE_NULL ? n : NULL;
}

static enum status read_steps(const struct node *n, struct lr_schedule *x, struct error *err)
{
    const struct node *steps, *decay;
    if (!has_end(x)) return OK;
    TRY(node_need(n, "steps", &steps, err));
    TRY(node_int(steps, 1, LR_STEPS_MAX, &x->steps, err));
    if (x->steps <= x->warmup) return node_error(steps, err, "must be more than the %" PRId64 " warm-up steps, found %" PRId64, x->warmup, x->steps);
    if (x->kind != LR_SCHEDULE_WSD) return OK;
    TRY(node_need(n, "decay_steps", &decay, err));
    return node_int(decay, 1, x->steps - x->warmup, &x->decay_steps, err);
}

enum status lr_schedule_read(const struct node *optimizer, double lr, struct lr_schedule *out, struct error *err)
{
    static const struct document_key *const keys[] = {job_constant_lr_keys, job_linear_lr_keys, job_linear_lr_keys, job_wsd_lr_keys, job_inverse_sqrt_lr_keys};
    const struct node *n = given(optimizer, "schedule"), *kind, *least, *warmup, *form;
    struct lr_schedule x = {0};
    int choice;
    *out = x;
    if (!n) return OK;
    TRY(node_is(n, NODE_MAP, err));
    TRY(node_need(n, "kind", &kind, err));
    TRY(node_choice(kind, lr_schedule_kinds, &choice, err));
    x.kind = (enum lr_schedule_kind)choice;
    TRY(document_keys(n, keys[choice], err));
    warmup = given(n, "warmup");
    if (warmup) TRY(node_int(warmup, 0, LR_STEPS_MAX, &x.warmup, err));
    if (x.kind == LR_SCHEDULE_INVERSE_SQRT && !x.warmup) return node_error(warmup ? warmup : kind, err, "inverse_sqrt needs a warm-up of at least one step");
    TRY(read_steps(n, &x, err));
    least = given(n, "min_lr");
    if (least) TRY(node_double(least, 0, lr, &x.min_lr, err));
    form = given(n, "decay");
    if (form) {
        TRY(node_choice(form, lr_schedule_decays, &choice, err));
        x.decay = (enum lr_decay)choice;
    }
    *out = x;
    return OK;
}

static bool is_absent(const struct lr_schedule *x) { return x->kind == LR_SCHEDULE_CONSTANT && !x->warmup; }

void lr_schedule_write(FILE *out, const struct lr_schedule *x)
{
    if (is_absent(x)) return;
    fprintf(out, ", schedule: {kind: %s", lr_schedule_kinds[x->kind]);
    if (x->warmup) fprintf(out, ", warmup: %" PRId64, x->warmup);
    if (has_end(x)) fprintf(out, ", steps: %" PRId64, x->steps);
    if (x->kind == LR_SCHEDULE_WSD) fprintf(out, ", decay_steps: %" PRId64 ", decay: %s", x->decay_steps, lr_schedule_decays[x->decay]);
    if (x->min_lr > 0) fputs(", min_lr: ", out), canonical_double(out, x->min_lr);
    fputc('}', out);
}

/* Part of the way down that is left after part p of it, 0 <= p <= 1. */
static double left_after(enum lr_decay decay, double p)
{
    if (decay == LR_DECAY_COSINE) return (1 + cos(M_PI * p)) / 2;
    return 1 - (decay == LR_DECAY_SQRT ? sqrt(p) : p);
}

double lr_schedule_rate(const struct lr_schedule *x, double lr, int64_t step)
{
    double s = (double)step, w = (double)x->warmup;
    if (step <= x->warmup) return lr * (s / w);
    if (x->kind == LR_SCHEDULE_CONSTANT) return lr;
    if (x->kind == LR_SCHEDULE_INVERSE_SQRT) return fmax(x->min_lr, lr * sqrt(w / s));
    if (step >= x->steps) return x->min_lr;
    int64_t begin = x->kind == LR_SCHEDULE_WSD ? x->steps - x->decay_steps : x->warmup;
    if (step <= begin) return lr;
    enum lr_decay decay = x->kind == LR_SCHEDULE_WSD ? x->decay : x->kind == LR_SCHEDULE_COSINE ? LR_DECAY_COSINE : LR_DECAY_LINEAR;
    return x->min_lr + (lr - x->min_lr) * left_after(decay, (double)(step - begin) / (double)(x->steps - begin));
}

const char *lr_schedule_describe(struct arena *a, const struct lr_schedule *x, double lr)
{
    if (is_absent(x)) return NULL;
    const char *warmup = x->warmup ? arena_printf(a, "%" PRId64 " of warm-up", x->warmup) : "no warm-up";
    if (!has_end(x)) return arena_printf(a, "%s, %.4g at the peak, steps: %s", lr_schedule_kinds[x->kind], lr, warmup);
    return arena_printf(a, "%s from %.4g to %.4g in %" PRId64 " steps, %s", lr_schedule_kinds[x->kind], lr, x->min_lr, x->steps, warmup);
}
