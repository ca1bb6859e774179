#include "tools/observe.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "exec/clock.h"
#include "exec/comm/launch.h"
#include "sim/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of the moving mean of a step's time: about the last twenty steps. */
#define NEWEST 0.1

static double elapsed_s(const struct observe *x) { return units_s_from_ns(clock_wall_ns() - x->begun_ns); }

/* MFU of a step of one second; 0: not known. */
static double mfu_of(const struct observe *x)
{
    struct metrics m;
    struct error why;
    const struct metrics_input in = {.plan = x->plan, .program = x->program, .iteration_ns = 1000000000};
    if (!x->plan || metrics_of(x->a, &in, &m, &why) != OK || m.failed || m.no_flops || m.no_peak) return 0;
    return m.mfu;
}

static enum status begin(void *owner, int64_t first_step, struct error *err)
{
    struct observe *x = owner;
    x->begun_ns = clock_wall_ns();
    x->validation_loss = NAN;
    x->step_s = 0;
    x->mfu_s = mfu_of(x);
    if (x->log) TRY(run_log_open(&x->file, x->log, first_step, x->images ? 0 : x->tokens, err));
    return x->tensorboard ? tensorboard_open(&x->events, x->a, x->tensorboard, first_step, err) : OK;
}

static const char *duration(char text[32], double s)
{
    int64_t n = (int64_t)s;
    if (n >= 3600)
        snprintf(text, 32, "%" PRId64 " h %02" PRId64 " min", n / 3600, n / 60 % 60);
    else if (n >= 60)
        snprintf(text, 32, "%" PRId64 " min %02" PRId64 " s", n / 60, n % 60);
    else
        snprintf(text, 32, "%" PRId64 " s", n);
    return text;
}

static void show(const struct observe *x, const struct step_report *r, double samples)
{
    char left[32], mfu[32] = "", validation[48] = "";
    if (x->mfu_s > 0) snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * x->mfu_s / x->step_s);
    if (!isnan(x->validation_loss)) snprintf(validation, sizeof validation, ", validation %.4f", x->validation_loss);
    log_progress("step %" PRId64 " of %" PRId64 ", loss %.4f%s, %.0f %s/s%s, %s left", r->step, r->of, r->loss, validation,
                 samples * (double)x->tokens / x->step_s, x->images ? "images" : "tokens", mfu, duration(left, x->step_s * (double)(r->of - r->step)));
}

static void note_step(void *owner, const struct step_report *r)
{
    struct observe *x = owner;
    double seconds = r->ns > 0 ? units_s_from_ns(r->ns) : 1e-9, samples = (double)x->batch;
    x->step_s = x->step_s > 0 ? x->step_s + NEWEST * (seconds - x->step_s) : seconds;
    run_log_step(&x->file, r, elapsed_s(x));
    tensorboard_scalar(&x->events, r->step, "train/loss", r->loss);
    tensorboard_scalar(&x->events, r->step, "train/learning_rate", r->learning_rate);
    if (!isnan(r->gradient_norm)) tensorboard_scalar(&x->events, r->step, "train/gradient_norm", r->gradient_norm);
    if (r->loss_scale > 0) tensorboard_scalar(&x->events, r->step, "train/loss_scale", r->loss_scale);
    tensorboard_scalar(&x->events, r->step, x->images ? "speed/images_per_s" : "speed/tokens_per_s", samples * (double)x->tokens / seconds);
    if (x->mfu_s > 0) tensorboard_scalar(&x->events, r->step, "speed/mfu", x->mfu_s / seconds);
    tensorboard_flush(&x->events);
    show(x, r, samples);
}

static void note_evaluation(void *owner, const struct evaluation_report *r)
{
    struct observe *x = owner;
    x->validation_loss = r->loss;
    run_log_evaluated(&x->file, r, elapsed_s(x));
    tensorboard_scalar(&x->events, r->step, "validation/loss", r->loss);
    if (!x->images) tensorboard_scalar(&x->events, r->step, "validation/perplexity", exp(r->loss));
    tensorboard_flush(&x->events);
}

enum status observe_check(const struct observe *x, const struct program *p, const struct run_options *o, struct error *err)
{
    if ((x->log || x->tensorboard) && parameter_server_by_arrival(&p->server))
        return error_set(err, ERR_USAGE, "--log and --tensorboard: workers of ssp and asp do not end a step together");
    if (x->log && !strcmp(x->log, "-")) return error_set(err, ERR_USAGE, "--log -: a log is a file, which a resumed run goes on with; expected --log FILE");
    return x->log && launch_rank() == 0 && !o->resume && !o->continues ? run_log_unused(x->log, err) : OK;
}

struct run_observer *observe_with(struct observe *x, const struct program *p, const struct plan *plan, bool line)
{
    if (!x->log && !x->tensorboard && !(line && log_shows(LOG_LEVEL_INFO) && isatty(STDERR_FILENO))) return NULL;
    x->program = p;
    x->plan = plan;
    x->images = p->pixels > 0;
    x->tokens = x->images ? 1 : p->sequence_length;
    x->batch = p->microbatches * p->microbatch;
    x->observer = (struct run_observer){.owner = x, .begin = begin, .step = note_step, .evaluated = note_evaluation};
    return &x->observer;
}
