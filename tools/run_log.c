#include "tools/run_log.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/document/document.h"
#include "core/document/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_BYTES_MAX ((size_t)1 << 31)
static const char begins[] = "{\"step\":"; /* every line */

/* ---- writing ---------------------------------------------------------------------------------- */

static void give_up(struct run_log *l, int why)
{
    log_warn("the log %s ends here: %s", l->path, strerror(why));
    run_log_close(l);
}

static void begin(struct run_log *l, struct json *j, int64_t step)
{
    json_begin(j, l->file, JSON_LINE);
    json_put_object(j, NULL);
    json_put_int(j, "step", step);
}

static void end(struct run_log *l, struct json *j)
{
    json_close(j);
    errno = 0;
    json_end(j);
    if (fflush(l->file) || ferror(l->file)) give_up(l, errno ? errno : EIO);
}

static void put_times(struct json *j, const struct step_report *r)
{
    json_put_double(j, "seconds", units_s_from_ns(r->ns));
    json_put_double(j, "data_s", units_s_from_ns(r->data_ns));
    if (r->compute_ns < 0) return;
    int64_t waits_ns = r->ns - r->data_ns - r->compute_ns;
    json_put_double(j, "compute_s", units_s_from_ns(r->compute_ns));
    json_put_double(j, "wait_s", units_s_from_ns(waits_ns > 0 ? waits_ns : 0));
}

void run_log_step(struct run_log *l, const struct step_report *r, double elapsed_s)
{
    struct json j;
    if (!l->file) return;
    begin(l, &j, r->step);
    json_put_double(&j, "loss", r->loss);
    json_put_double(&j, "learning_rate", r->learning_rate);
    if (!isnan(r->gradient_norm)) json_put_double(&j, "gradient_norm", r->gradient_norm);
    json_put_int(&j, "samples", r->samples);
    if (l->sequence_length) json_put_int(&j, "tokens", r->samples * l->sequence_length);
    json_put_double(&j, "elapsed_s", l->elapsed_s + elapsed_s);
    put_times(&j, r);
    json_put_int(&j, "memory_bytes", r->memory_bytes);
    if (r->loss_scale > 0) json_put_double(&j, "loss_scale", r->loss_scale);
    if (r->loss_scale > 0) json_put_bool(&j, "skipped", r->skipped);
    end(l, &j);
}

void run_log_evaluated(struct run_log *l, const struct evaluation_report *r, double elapsed_s)
{
    struct json j;
    if (!l->file) return;
    begin(l, &j, r->step);
    json_put_double(&j, "validation_loss", r->loss);
    if (l->sequence_length) json_put_double(&j, "perplexity", exp(r->loss));
    json_put_int(&j, "samples", r->samples);
    json_put_double(&j, "elapsed_s", l->elapsed_s + elapsed_s);
    json_put_double(&j, "seconds", units_s_from_ns(r->ns));
    json_put_bool(&j, "best", r->best);
    end(l, &j);
}

/* ---- going on --------------------------------------------------------------------------------- */

/* The bytes up to the first line of a later step, or without an end. */
static enum status kept(struct run_log *l, char *text, size_t n, int64_t first_step, size_t *out, struct error *err)
{
    size_t at = 0;
    for (int64_t line = 1; at < n; line++) {
        char *stop = memchr(text + at, '\n', n - at);
        if (strncmp(text + at, begins, sizeof begins - 1) != 0) {
            if (!stop && !strncmp(text + at, begins, n - at)) break;
            return error_set(err, ERR_INPUT, "%s:%" PRId64 ": this is no log of `run --log`, which would continue it; name another file", l->path, line);
        }
        if (!stop || strtoll(text + at + sizeof begins - 1, NULL, 10) > first_step) break;
        *stop = 0;
        const char *elapsed = strstr(text + at, "\"elapsed_s\":");
        if (elapsed) l->elapsed_s = strtod(elapsed + strlen("\"elapsed_s\":"), NULL);
        at = (size_t)(stop - text) + 1;
    }
    *out = at;
    return OK;
}

static enum status cut(struct run_log *l, int64_t first_step, struct error *err)
{
    struct arena *a = arena_new();
    char *text;
    size_t n, keep = 0;
    enum status status = file_read(a, l->path, LOG_BYTES_MAX, &text, &n, err);
    if (status == OK) status = kept(l, text, n, first_step, &keep, err);
    if (status == OK && keep < n && truncate(l->path, (off_t)keep)) status = error_set(err, ERR_RESOURCE, "cannot shorten %s: %s", l->path, strerror(errno));
    arena_free(a);
    return status;
}

enum status run_log_unused(const char *path, struct error *err)
{
    struct arena *a = arena_new();
    char *text = NULL;
    size_t n = 0;
    int64_t step = 0;
    enum status status = access(path, F_OK) ? OK : file_read(a, path, LOG_BYTES_MAX, &text, &n, err);
    if (status == OK && n)
        for (const char *at = text, *stop; (stop = memchr(at, '\n', n - (size_t)(at - text))); at = stop + 1)
            if (!strncmp(at, begins, sizeof begins - 1)) step = strtoll(at + sizeof begins - 1, NULL, 10);
    arena_free(a);
    if (step > 0)
        return error_set(err, ERR_INPUT, "--log %s holds step %" PRId64 " of an earlier run; name another file, or go on with that run by --continue or --resume DIR",
                         path, step);
    return status;
}

enum status run_log_open(struct run_log *l, const char *path, int64_t first_step, int64_t sequence_length, struct error *err)
{
    *l = (struct run_log){.path = path, .sequence_length = sequence_length};
    if (!access(path, F_OK)) TRY(cut(l, first_step, err));
    l->file = fopen(path, "ae");
    return l->file ? OK : error_set(err, ERR_RESOURCE, "cannot write %s: %s", path, strerror(errno));
}

void run_log_close(struct run_log *l)
{
    if (l->file) fclose(l->file);
    l->file = NULL;
}

/* ---- reading ---------------------------------------------------------------------------------- */

bool run_log_is(const char *path)
{
    char head[sizeof begins];
    return file_head(path, head, sizeof begins - 1) == sizeof begins - 1 && !memcmp(head, begins, sizeof begins - 1);
}

static enum status number(const struct node *of, const char *key, double *out, struct error *err)
{
    const struct node *n;
    TRY(node_need(of, key, &n, err));
    *out = NAN;
    return n->kind == NODE_NULL ? OK : node_double(n, -1e300, 1e300, out, err);
}

static enum status read_row(const struct node *of, const struct run_log_row *before, struct run_log_row *out, bool *images, struct error *err)
{
    const struct node *n;
    TRY(node_is(of, NODE_MAP, err));
    TRY(node_need(of, "step", &n, err));
    TRY(node_int(n, 1, INT64_MAX, &out->step, err));
    TRY(number(of, "elapsed_s", &out->elapsed_s, err));
    out->validation = node_get(of, "validation_loss") != NULL;
    TRY(number(of, out->validation ? "validation_loss" : "loss", &out->loss, err));
    if (out->validation) {
        out->tokens = before ? before->tokens : 0;
        return OK;
    }
    *images = !node_get(of, "tokens");
    return number(of, *images ? "samples" : "tokens", &out->tokens, err);
}

static enum status read_line(const char *path, int64_t line, const char *text, size_t bytes, const struct run_log_row *before, struct run_log_row *out,
                             bool *images, struct error *err)
{
    struct arena *a = arena_new();
    struct node *root;
    struct error why;
    enum status status = document_parse(a, arena_printf(a, "%s:%" PRId64, path, line), text, bytes, &root, &why);
    if (status == OK) status = read_row(root, before, out, images, &why);
    arena_free(a);
    return status == OK ? OK : error_set(err, status, "%s", why.text);
}

enum status run_log_read(struct arena *a, const char *path, struct run_log_row **rows, size_t *n, bool *images, struct error *err)
{
    char *text;
    size_t bytes, capacity = 0;
    TRY(file_read(a, path, LOG_BYTES_MAX, &text, &bytes, err));
    *rows = NULL, *n = 0;
    for (size_t at = 0, line = 1; at < bytes; line++) {
        const char *stop = memchr(text + at, '\n', bytes - at);
        if (!stop) break; /* a run that is still writing, or was killed */
        size_t length = (size_t)(stop - (text + at));
        *rows = arena_grow(a, *rows, *n, &capacity, sizeof **rows);
        TRY(read_line(path, (int64_t)line, text + at, length, *n ? *rows + *n - 1 : NULL, *rows + *n, images, err));
        ++*n;
        at += length + 1;
    }
    return *n ? OK : error_set(err, ERR_INPUT, "%s has no steps", file_label(path));
}
