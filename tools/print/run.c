#include "tools/print/run.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "core/program/server_order.h"
#include "tools/adapt.h"
#include "tools/common.h"
#include "tools/restart.h"
#include "tools/saves.h"

#include <math.h>
#include <stdio.h>

/* Share of the samples whose gradients no server has dropped. */
static double applied(const struct program *p, const struct run_result *r)
{
    int64_t all = 0, dropped = 0;
    for (int64_t i = 0; i < r->arrivals.n; i++) {
        const struct arrival *x = &r->arrivals.list[i];
        all += p->stages[x->worker].microbatches;
        dropped += x->dropped ? p->stages[x->worker].microbatches : 0;
    }
    return all ? 1 - (double)dropped / (double)all : 1;
}

/* Unit of throughput: tokens, or images; of applied gradients. */
static double samples_per_s(const struct program *p, const struct run_result *r)
{
    return applied(p, r) * (p->pixels ? r->tokens_per_s / (double)p->sequence_length : r->tokens_per_s);
}

static void print_training(const struct program *p, const struct plan *plan, const struct run_result *r, struct json *json)
{
    struct arena *a = arena_new();
    struct server_counts counts = {0};
    for (int64_t i = 0; i < r->arrivals.n; i++)
        server_order_count(&counts, &p->server, r->arrivals.list[i].staleness, r->arrivals.list[i].dropped);
    if (plan) {
        common_print_training(a, plan, &counts, json);
    } else { /* what a program file states */
        common_print_local_sgd(a, &p->outer, &p->optimizer, program_islands(p), json);
        common_print_servers(a, &p->server, &counts, json);
    }
    arena_free(a);
}

static void print_noise_json(const struct program *p, const struct gradient_noise *x, struct json *j)
{
    json_put_object(j, "gradient_noise");
    json_put_int(j, "steps", x->steps);
    json_put_int(j, "batch", p->microbatches * p->microbatch);
    json_put_double(j, "variance", x->variance);
    json_put_double(j, "square", x->square);
    if (x->scale > 0) {
        json_put_double(j, "scale", x->scale);
        json_put_double(j, "standard_error", x->error);
        json_put_int(j, "recommended_batch", (int64_t)fmax(1, round(x->scale)));
    }
    json_close(j);
}

/* McCandlish et al. 2018, equations 2.11 and 5.1: to reach a loss, B sequences a step take 1 + scale / B times the minimum number of steps,
 * and 1 + B / scale times the minimum number of samples. */
static void print_noise(const struct program *p, const struct gradient_noise *x)
{
    double batch = (double)(p->microbatches * p->microbatch);
    const char *unit = p->pixels ? "images" : "sequences";
    if (!x->steps) {
        printf("  gradient noise scale: no step had finite gradients\n");
    } else if (x->steps < GRADIENT_NOISE_STEPS_MIN) {
        printf("  gradient noise scale: not known after %lld step%s; run %d or more\n", (long long)x->steps, x->steps > 1 ? "s" : "",
               GRADIENT_NOISE_STEPS_MIN);
    } else if (!(x->scale > 0)) {
        printf("  gradient noise scale: not known after %lld steps, because |G|^2 is within two standard errors of 0; run more steps\n",
               (long long)x->steps);
    } else {
        printf("  gradient noise scale %.3g %s, standard error %.2g: the critical batch size (B_simple): at this batch, training needs twice the "
               "minimum number of steps and twice the minimum number of samples\n",
               x->scale, unit, x->error);
        printf("  the batch of %g takes %.3g times the minimum number of steps and %.3g times the minimum number of samples: %s\n", batch,
               1 + x->scale / batch, 1 + batch / x->scale,
               batch > 2 * x->scale   ? "a smaller batch costs few steps and saves training"
               : 2 * batch < x->scale ? "a larger batch, with more replicas, costs little and saves time"
                                      : "it is about right");
    }
}

static void print_validation(const struct program *p, const struct run_result *r, const struct run_options *o)
{
    if (!r->n_evaluations) return;
    const struct evaluated *last = &r->evaluations[r->n_evaluations - 1];
    printf("  validation loss %.6f", last->loss);
    if (!p->pixels) printf(" (perplexity %.6g)", exp(last->loss));
    printf(" at step %lld; best %.6f at step %lld", (long long)last->step, r->best_loss, (long long)r->best_step);
    if (o->save) printf(", whose checkpoint is kept in %s", o->save);
    putchar('\n');
}

static void print_validation_json(const struct program *p, const struct run_result *r, struct json *j)
{
    if (!r->n_evaluations) return;
    json_put_list(j, "validation");
    for (int32_t i = 0; i < r->n_evaluations; i++) {
        json_put_object_line(j, NULL);
        json_put_int(j, "step", r->evaluations[i].step);
        json_put_double(j, "loss", r->evaluations[i].loss);
        if (!p->pixels) json_put_double(j, "perplexity", exp(r->evaluations[i].loss));
        json_close(j);
    }
    json_close(j);
    if (!r->best_step) return;
    json_put_object_line(j, "best");
    json_put_int(j, "step", r->best_step);
    json_put_double(j, "loss", r->best_loss);
    json_close(j);
}

void print_run_json(const struct run_report *x)
{
    const struct program *p = x->program;
    const struct plan *plan = x->plan;
    const struct run_result *r = x->result;
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "plan", p->name);
    json_put_bool(&j, "emulated", p->emulated);
    json_put_bool(&j, "real_time", r->real_time);
    json_put_int(&j, "iteration_ns", r->iteration_ns);
    json_put_int(&j, "first_step", r->first_step);
    json_put_int(&j, "steps", r->steps);
    struct arena *a = arena_new(); /* print_training prints a rate of a rule */
    if (!plan || !optimizer_describe_lr(a, &plan->job.optimizer, plan->job.global_batch)) json_put_double(&j, "learning_rate", p->optimizer.lr);
    arena_free(a);
    if (p->optimizer.schedule.kind || p->optimizer.schedule.warmup)
        json_put_double(&j, "last_learning_rate", lr_schedule_rate(&p->optimizer.schedule, p->optimizer.lr, r->first_step + r->steps));
    print_training(p, plan, r, &j);
    restart_print(x->restart, &j);
    adapt_print(x->adapt, &j);
    saves_print(r, x->options, &j);
    if (r->n_ended_workers) {
        json_put_list_line(&j, "ended_workers");
        for (int32_t i = 0; i < r->n_ended_workers; i++) json_put_int(&j, NULL, r->ended_workers[i]);
        json_close(&j);
    }
    json_put_list_line(&j, "losses");
    for (int64_t i = 0; i < r->steps; i++) json_put_double(&j, NULL, r->losses[i]);
    json_close(&j);
    if (r->gradient_norms) {
        json_put_list_line(&j, "gradient_norm");
        for (int64_t i = 0; i < r->steps; i++) json_put_double(&j, NULL, r->gradient_norms[i]);
        json_close(&j);
    }
    print_validation_json(p, r, &j);
    if (r->loss_scale > 0) {
        json_put_double(&j, "loss_scale", r->loss_scale);
        json_put_list_line(&j, "skipped");
        for (int64_t i = 0; i < r->n_skipped; i++) json_put_int(&j, NULL, r->skipped[i]);
        json_close(&j);
    }
    if (p->gradient_noise) print_noise_json(p, &r->noise, &j);
    json_put_double(&j, p->pixels ? "images_per_s" : "tokens_per_s", samples_per_s(p, r));
    if (applied(p, r) < 1) json_put_double(&j, "applied", applied(p, r));
    if (r->blas_share > 0) json_put_double(&j, "blas_share", r->blas_share);
    common_json_end(&j);
}

static const char *loss_text(char buffer[32], double loss)
{
    if (isfinite(loss))
        snprintf(buffer, 32, "%.6f", loss);
    else
        snprintf(buffer, 32, "not finite");
    return buffer;
}

static void print_scale(const struct run_result *r)
{
    enum { NAMED = 8 };
    printf("  loss scale %g at the end", r->loss_scale);
    for (int64_t i = 0; i < r->n_skipped && i < NAMED; i++)
        printf("%s%lld", i ? ", " : "; steps skipped because gradients overflowed: ",
               (long long)r->skipped[i]);
    if (r->n_skipped > NAMED) printf(" and %lld more", (long long)r->n_skipped - NAMED);
    putchar('\n');
}

static void print_norms(const struct optimizer *o, const struct run_result *r)
{
    int64_t clipped = 0;
    for (int64_t i = 0; i < r->steps; i++) clipped += r->gradient_norms[i] > o->max_grad_norm;
    printf("  gradient norm %.4g at step %lld, %.4g at step %lld; clipped to %g in %lld of %lld step%s\n", r->gradient_norms[0],
           (long long)r->first_step + 1, r->gradient_norms[r->steps - 1], (long long)(r->first_step + r->steps), o->max_grad_norm,
           (long long)clipped, (long long)r->steps, r->steps > 1 ? "s" : "");
}

void print_run(const struct run_report *x)
{
    const struct program *p = x->program;
    const struct plan *plan = x->plan;
    const struct run_result *r = x->result;
    char text[32], first[32], last[32];
    const char *of = r->steps < 2 ? "" : parameter_server_by_arrival(&p->server) ? "mean of each worker's " : "median of ";
    printf("%s: %s per iteration (measured, %s%lld step%s%s), %.0f %s/s%s\n", p->name,
           units_print_ns(text, r->iteration_ns), of, (long long)r->steps, r->steps > 1 ? "s" : "",
           p->emulated ? ", emulated devices" : "", samples_per_s(p, r),
           p->pixels ? "images" : "tokens", applied(p, r) < 1 ? " of applied gradients" : "");
    printf("  loss %s at step %lld, %s at step %lld\n", loss_text(first, r->losses[0]),
           (long long)r->first_step + 1, loss_text(last, r->losses[r->steps - 1]),
           (long long)(r->first_step + r->steps));
    if (r->gradient_norms) print_norms(&p->optimizer, r);
    print_validation(p, r, x->options);
    if (r->loss_scale > 0) print_scale(r);
    if (p->gradient_noise) print_noise(p, &r->noise);
    print_training(p, plan, r, NULL);
    for (int32_t i = 0; i < r->n_ended_workers; i++)
        printf(i ? ", %d" : "  workers that ended before the others: %d", (int)r->ended_workers[i]);
    if (r->n_ended_workers) puts("; losses of all steps leave them out");
    restart_print(x->restart, NULL);
    adapt_print(x->adapt, NULL);
    saves_print(r, x->options, NULL);
    if (p->emulated && !r->real_time) log_warn("no real-time priority: measured times are noisier");
}
