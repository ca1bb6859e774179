#include "tools/common.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/ranges.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "core/lower/lower.h"
#include "core/program/server_order.h"
#include "profiles/device_speed.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "tools/screen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The output of write(out, what) as a text in the arena. */
static char *text_of(struct arena *a, void (*write)(FILE *out, struct arena *a, const void *what),
                     const void *what)
{
    struct text text;
    write(text_begin(&text), a, what);
    return text_end(a, &text, NULL);
}

static void write_cluster(FILE *out, struct arena *a, const void *c)
{
    (void)a;
    cluster_write(out, c, 0);
}

static void write_plan(FILE *out, struct arena *a, const void *p) { plan_write(out, a, p); }

uint64_t common_cluster_hash(struct arena *a, const struct cluster *c)
{
    struct cluster measured = *c;
    measured.nccl = NULL; /* of predictions alone: what was measured stays what it was */
    return rng_hash_text(0, text_of(a, write_cluster, &measured));
}

const char *common_plan_text(struct arena *a, const struct plan *p)
{
    return text_of(a, write_plan, p);
}

static enum status load(struct store *s, struct arena *a, const struct cluster *c, int64_t id,
                        struct profile *out, struct error *err)
{
    bool exact = true;
    if (!id) TRY(store_latest(s, common_cluster_hash(a, c), c, &id, &exact, err));
    TRY(store_load(s, a, id, out, err));
    /* An imported profile belongs to every cluster of its name (tools/import/sailor.c). */
    if (!exact && out->cluster_hash != rng_hash_text(0, out->cluster))
        log_warn("profile %lld was measured on another version of cluster %s: the same base "
                 "devices, but names, slowdowns or links differ",
                 (long long)id, c->name);
    return OK;
}

enum status common_profile(struct arena *a, const struct cluster *c, const char *db, int64_t id,
                           struct profile *out, struct error *err)
{
    struct store *s = NULL;
    if (!db && id) return error_set(err, ERR_USAGE, "--profile needs --db");
    if (!db) return profile_prior(a, c, out, err);
    enum status st = store_open(a, db, false, &s, err);
    if (st == OK) st = load(s, a, c, id, out, err);
    store_close(s);
    return st;
}

const char *common_profile_label(struct arena *a, const struct profile *p)
{
    if (!p->id) return "the catalogue's prior, nothing measured";
    if (p->calibrated_on && *p->calibrated_on)
        return arena_printf(a, "profile %lld, calibrated on %s", (long long)p->id,
                            p->calibrated_on);
    if (!(p->n_ops + p->n_fits + p->n_factors + p->n_scales + p->n_collectives))
        return arena_printf(a, "the catalogue's prior: profile %lld holds no measured operator", (long long)p->id);
    return arena_printf(a, "profile %lld, measured", (long long)p->id);
}

enum status common_plan(struct arena *a, const char *path, struct plan *out, struct error *err)
{
    TRY(plan_read(a, path, out, err));
    return team_complete(&out->cluster, err);
}

enum status common_old_plan(struct arena *a, const char *path, struct plan *out, struct error *err)
{
    TRY(common_plan(a, path, out, err));
    if (out->local_sgd.outer.every)
        log_warn("%s: local_sgd is not planned again: new plans, and the time of this one here, add every gradient in every step", path);
    for (int of = 0, warned = 0; of < COMPRESSIONS; of++)
        if (plan_compressor(&out->compression, of)->kind && !warned++)
            log_warn("%s: compression is not planned again: sums and messages have their own precision here", path);
    out->gradient_noise_scale = false; /* a measurement, which the plans compared have not */
    if (out->servers.rule.n)
        log_warn("%s: parameter_server is not planned again: new plans, and the time of this one here, add all gradients by all-reduces", path);
    if (plan_delays_gradients(out))
        log_warn("%s: weight_versions is not planned again: new plans, and the time of this one here, flush their pipelines in every step", path);
    out->weight_versions = 0;
    out->servers = (struct plan_servers){0};
    out->local_sgd = (struct plan_local_sgd){0};
    out->compression = (struct plan_compression){0};
    return OK;
}

enum status common_trace_plan(struct arena *a, const struct trace *t, const char *path,
                              struct plan *out, struct error *err)
{
    struct node *root;
    if (!t->plan_text)
        return error_set(err, ERR_INPUT, "%s: has no plan (a run of a program file?)", path);
    TRY(document_parse(a, path, t->plan_text, strlen(t->plan_text), &root, err));
    TRY(plan_parse(a, root, ".", out, err));
    return team_complete(&out->cluster, err);
}

const char *common_never_run(struct arena *a, const struct plan *p)
{
    if (!p->job.model.measured) return NULL;
    return arena_printf(a,
                        "model %s is a table of measured layers: it has no operators to run; "
                        "musher simulate predicts the plan",
                        p->job.model.name);
}

bool common_is_program(const char *path)
{
    static const char magic[] = "musher-program";
    char head[sizeof magic] = {0};
    return file_head(path, head, sizeof head - 1) == sizeof head - 1 && !strcmp(head, magic);
}

bool common_is_trace(const char *path)
{
    char head[128] = {0};
    if (file_head(path, head, sizeof head - 1) == 0) return false;
    return !strncmp(head, "\x1f\x8b", 2) || /* nothing else of musher's is gzip */
           (head[0] == '{' && strstr(head, "\"musher-trace\"") != NULL);
}

enum status common_lower_with(struct arena *a, const struct plan *p, struct lower_options o,
                              struct program *out, struct error *err)
{
    TRY(team_precision(&p->cluster, p->job.precision, err));
    TRY(team_fused(a, &p->cluster, &o, err));
    return lower_plan(a, p, &o, out, err);
}

enum status common_lower(struct arena *a, const struct plan *p, bool check_memory,
                         struct program *out, struct error *err)
{
    return common_lower_with(a, p, (struct lower_options){.check_memory = check_memory}, out, err);
}

enum status common_simulate(struct arena *a, const struct plan *p, const struct profile *profile,
                            const struct sim_options *o, struct sim_result *out,
                            struct program *program, struct error *err)
{
    const struct plan *now = device_speed_plan(a, p, profile);
    TRY(common_lower(a, now, true, program, err));
    TRY(sim_run(a, program, cost_new(a, profile, &now->cluster), o, out, err));
    if (!out->trace) return OK;
    out->trace->profile_id = profile->id;
    out->trace->plan_text = common_plan_text(a, p);
    return OK;
}

int32_t common_classes(struct arena *a, const struct plan *p, struct plan_class **out)
{
    if (p->n_replicas > COMMON_REPLICAS_ONE_BY_ONE) return plan_classes(a, p, out);
    struct plan_class *x = ARENA_ARRAY(a, struct plan_class, (size_t)p->n_replicas + 1);
    for (int32_t i = 0; i < p->n_replicas; i++) {
        x[i] = (struct plan_class){1, ARENA_ARRAY(a, int32_t, 1)};
        x[i].replicas[0] = i;
    }
    *out = x;
    return p->n_replicas;
}

/* The first replica of each class represents the others; of[]: the class of each replica. */
bool *common_one_of_each(struct arena *a, const struct plan *p, int32_t *of)
{
    struct plan_class *x;
    int32_t n = common_classes(a, p, &x);
    bool *keep = ARENA_ARRAY(a, bool, (size_t)p->n_replicas + 1);
    for (int32_t k = 0; k < n; k++) {
        keep[x[k].replicas[0]] = true;
        for (int32_t i = 0; i < x[k].n; i++) of[x[k].replicas[i]] = x[k].replicas[0];
    }
    return keep;
}

/* Removes the replicas that another represents. A device's index in its replica is its index among the replica's lanes. */
void common_keep_classes(struct arena *a, const struct program *p, const bool *keep,
                         const int32_t *of, struct trace *t)
{
    const size_t n = (size_t)p->n_devices;
    bool *kept = ARENA_ARRAY(a, bool, n + 1);
    const char **alike = ARENA_ARRAY(a, const char *, n + 1);
    int32_t *first = ARENA_ARRAY(
        a, int32_t,
        n + 1); /* by replica: its first lane + 1; there are no more of them than lanes */
    for (size_t i = 0; i < n; i++) {
        int32_t r = p->stages[p->lanes[i].stages[0]].replica;
        if (!first[r]) first[r] = (int32_t)i + 1;
        kept[i] = keep[r];
    }
    for (size_t i = 0; i < n; i++) {
        size_t count = 0;
        int32_t r = p->stages[p->lanes[i].stages[0]].replica, place = (int32_t)i + 1 - first[r];
        for (int32_t q = r; kept[i] && (size_t)q < n && first[q]; q++)
            if (of[q] == r) alike[count++] = p->devices[first[q] - 1 + place].name;
        if (count < 2) continue;
        t->devices[i].stands_for = (int32_t)count;
        t->devices[i].alike = ranges_of_names(a, alike, count, SIZE_MAX);
    }
    t->equal_shape = true;
    trace_keep_devices(t, kept);
}

const char *common_machine(struct arena *a)
{
    struct utsname u;
    char line[256], model[200] = "unknown processor";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %199[^\n]", model) == 1) break;
    if (f) fclose(f);
    if (uname(&u) != 0) return arena_strdup(a, model);
    return arena_printf(a, "%s, %s, %ld processors", u.nodename, model,
                        sysconf(_SC_NPROCESSORS_ONLN));
}

/* The object is complete before its first byte is printed, so that a failure before that can print its own. */
static struct text json_text;
static bool json_printed;
bool common_json_printed(void) { return json_printed; }
void common_json_by_another(void) { json_printed = true; }

enum status common_flush(struct error *err)
{
    errno = 0;
    if (screen_flush()) return OK;
    return error_set(err, ERR_RESOURCE, "cannot write standard output: %s",
                     errno ? strerror(errno) : "an earlier write failed");
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { N_ENDS = sizeof ends / sizeof *ends };

void common_hold_end_signals(bool hold)
{
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < N_ENDS; i++) sigaddset(&held, ends[i]);
    pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &held, NULL);
}

void common_on_end_signals(signal_handler *handler)
{
    struct sigaction old;
    for (size_t i = 0; i < N_ENDS; i++) {
        sigaction(ends[i], NULL, &old);
        if (ends[i] != SIGHUP || old.sa_handler != SIG_IGN) signal(ends[i], handler);
    }
}

static volatile sig_atomic_t stop, timed_out;
static signal_handler *end_at_once;

static void stop_search(int number)
{
    stop = 1;
    if (number == SIGINT) signal(SIGINT, end_at_once);
}

volatile sig_atomic_t *common_stop_on_end_signals(void)
{
    struct sigaction old;
    sigaction(SIGINT, NULL, &old);
    end_at_once = old.sa_handler;
    common_on_end_signals(stop_search);
    return &stop;
}

static void on_alarm(int number)
{
    (void)number;
    timed_out = stop = 1;
}

void common_stop_after(double seconds)
{
    struct itimerval x = {.it_value = {.tv_sec = (time_t)seconds}};
    x.it_value.tv_usec = (suseconds_t)(1e6 * (seconds - (double)x.it_value.tv_sec));
    if (seconds > 0 && !x.it_value.tv_sec && !x.it_value.tv_usec) x.it_value.tv_usec = 1; /* 0 is never */
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &x, NULL);
}

bool common_timed_out(void) { return timed_out; }

enum status common_writable(const char *path, struct error *err)
{
    struct file f = {0};
    if (!path || !strcmp(path, "-")) return OK;
    TRY(file_open(&f, path, err));
    file_abandon(&f);
    return OK;
}

enum status common_not_stdout(bool as_json, const char *option, const char *path, struct error *err)
{
    if (!as_json || !path || strcmp(path, "-") != 0) return OK;
    return error_set(err, ERR_USAGE, "%s -: with --json stdout holds the JSON object alone",
                     option);
}

void common_json_begin(struct json *j)
{
    json_begin(j, text_begin(&json_text), JSON_INDENTED);
    json_put_object(j, NULL);
    json_put_int(j, "schema", 1);
}

void common_json_end(struct json *j)
{
    struct arena *a = arena_new();
    size_t n = 0;
    json_close(j);
    json_end(j);
    const char *text = text_end(a, &json_text, &n);
    static char room[BUFSIZ]; /* so that no allocation follows */
    setvbuf(stdout, room, _IOFBF, sizeof room);
    json_printed = true;
    fwrite(text, 1, n, stdout);
    fflush(stdout); /* a failure is reported at the end of the program */
    arena_free(a);
}

void common_warn_of_period(const struct outer_optimizer *o, int64_t steps)
{
    if (o->every > steps)
        log_warn("local SGD has exchanged all parameters in step %" PRId32 ", after the %" PRId64
                 " counted here: the time of an iteration leaves out what is exchanged later",
                 o->every, steps);
}

void common_print_local_sgd(struct arena *a, const struct outer_optimizer *o, const struct optimizer *inner, int32_t n_islands,
                            struct json *json)
{
    const char *text = plan_describe_local_sgd(a, o, n_islands);
    if (!text) return;
    bool same = plan_local_sgd_equivalent(o, inner);
    if (!json) {
        printf("  local SGD  %s: %s\n", text,
               same ? "the same training as with every gradient added, to rounding"
                    : "other training than with every gradient added, more steps may be needed for the same loss");
        return;
    }
    json_put_object(json, "local_sgd");
    json_put_int(json, "every", o->every);
    json_put_int(json, "islands", n_islands);
    json_put_text(json, "outer", o->kind == OUTER_AVERAGE ? "average" : "nesterov");
    json_put_int(json, "fragments", o->fragments);
    json_put_int(json, "delay", o->delay);
    json_put_bool(json, "equivalent", same);
    json_close(json);
}

static void print_staleness(const struct parameter_server *x, const struct server_counts *c, struct json *json)
{
    double mean = (double)c->staleness / (double)c->pushes;
    if (!json) {
        printf("  staleness  mean %.2f, largest %" PRId64 ", of %" PRId64 " gradients", mean, c->most, c->pushes);
        if (x->rate == SERVER_INVERSE) printf("; %" PRId64 " applied at a smaller rate", c->slowed);
        if (x->drop_above >= 0) printf("; %" PRId64 " dropped", c->dropped);
        putchar('\n');
        return;
    }
    json_put_object(json, "staleness");
    json_put_int(json, "gradients", c->pushes);
    json_put_double(json, "mean", mean);
    json_put_int(json, "largest", c->most);
    json_put_int(json, "slowed", c->slowed);
    json_put_int(json, "dropped", c->dropped);
    json_close(json);
}

void common_print_servers(struct arena *a, const struct parameter_server *x, const struct server_counts *counts, struct json *json)
{
    static const char *const modes[] = {"bsp", "ssp", "asp"};
    const char *text = plan_describe_servers(a, x);
    bool same = !parameter_server_by_arrival(x);
    if (!text) return;
    if (!json)
        printf("  parameter server  %s: %s\n", text,
               same ? "the same training as with gradients added by all-reduces, to rounding"
                    : "other training than with all gradients added in a step, more samples may be needed for the same loss");
    if (json) {
        json_put_object(json, "parameter_server");
        json_put_int(json, "servers", x->n);
        json_put_text(json, "mode", modes[x->mode]);
        if (x->mode == SERVER_SSP) json_put_int(json, "bound", x->bound);
        json_put_text(json, "rate", x->rate == SERVER_INVERSE ? "inverse" : "constant");
        if (x->drop_above >= 0) json_put_int(json, "drop_above", x->drop_above);
        json_put_bool(json, "equivalent", same);
        json_close(json);
    }
    if (counts && counts->pushes) print_staleness(x, counts, json);
}

static void print_versions(struct arena *a, const struct plan *p, struct json *json)
{
    const char *text = plan_describe_versions(a, p);
    if (text && !json) printf("  pipeline  %s: other training than with a flush in every step, gradients are delayed by one step\n", text);
    if (!text || !json) return;
    json_put_object(json, "weight_versions");
    json_put_int(json, "versions", p->weight_versions);
    json_put_int(json, "delay", p->weight_versions - 1);
    json_put_bool(json, "equivalent", false);
    json_close(json);
}

static void print_compression(struct arena *a, const struct plan *p, struct json *json)
{
    static const char *const keys[] = {"gradients", "outer", "forward", "backward"};
    bool any = false, same = true;
    for (int of = 0; of < COMPRESSIONS; of++) {
        const char *text = plan_describe_compressor(a, &p->compression, of), *idle = plan_compressor_idle(p, of);
        if (!text) continue;
        any = true, same &= idle != NULL;
        if (!json) printf("  compression  %s: %s%s\n", text, idle ? "no effect, because " : "other training than without", idle ? idle : "");
    }
    if (!json || !any) return;
    json_put_object(json, "compression");
    for (int of = 0; of < COMPRESSIONS; of++) json_put_text(json, keys[of], plan_describe_compressor(a, &p->compression, of));
    json_put_bool(json, "equivalent", same);
    json_close(json);
}

/* Of a job whose updates keep nothing: no tensor of the optimizer and no fp32 masters. */
const char *common_offload_idle(struct arena *a, const struct job *j, const struct cluster *c)
{
    bool any = false;
    for (int32_t t = 0; t < c->n_types; t++) any |= c->types[t].offloads;
    if (!any || optimizer_state_tensors(&j->optimizer) || dtype_is_half(j->precision)) return NULL;
    return arena_printf(a, "no effect, because %s in %s has no state", optimizer_name(j->optimizer.kind), dtype_name(j->precision));
}

void common_print_lr(struct arena *a, const struct job *j, struct json *json)
{
    const char *text = optimizer_describe_lr(a, &j->optimizer, j->global_batch);
    if (text && json) json_put_double(json, "learning_rate", optimizer_lr(&j->optimizer, j->global_batch));
    if (text && !json) printf("  learning rate  %s\n", text);
}

void common_print_training(struct arena *a, const struct plan *p, const struct server_counts *counts, struct json *json)
{
    common_print_lr(a, &p->job, json);
    common_print_local_sgd(a, &p->local_sgd.outer, &p->job.optimizer, p->local_sgd.n_islands, json);
    common_print_servers(a, &p->servers.rule, counts, json);
    print_versions(a, p, json);
    print_compression(a, p, json);
    const char *idle = common_offload_idle(a, &p->job, &p->cluster);
    if (idle && json) json_put_text(json, "offload", idle);
    if (idle && !json) printf("  offload  optimizer: %s\n", idle);
}

enum status common_duration(const char *option, const char *text, int64_t *out_ns, struct error *err)
{
    double s = 0;
    char hint[UNITS_HINT], days[32];
    size_t n = strlen(text);
    bool ok = units_parse_seconds(text, &s);
    if (!ok && n > 1 && n < sizeof days && text[n - 1] == 'd') {
        memcpy(days, text, n - 1);
        for (n--; n && days[n - 1] == ' ';) n--;
        days[n] = 0;
        ok = units_parse_number(days, &s);
        s *= 86400;
    }
    if (!ok || !(s >= 0 && s <= 1e9))
        return error_set(err, ERR_USAGE, "--%s %s: not a time between 0 and 1e9 s, such as 60s, 5min, 3h or 2d%s", option, text,
                         ok ? "" : units_hint(hint, QUANTITY_SECONDS, text));
    *out_ns = units_ns_from_s(s);
    return OK;
}
