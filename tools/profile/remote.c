#include "tools/profile/remote.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "tools/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPIES_MAX = 1 << 16 };

static const char *file_of(struct arena *a, const char *folder, int32_t bench, const char *ending)
{
    return arena_printf(a, "%s/bench.%" PRId32 ".%s", folder, bench, ending);
}

/* Writes the names of the first n benchmarks. */
static enum status write_list(struct arena *a, const char *folder, int32_t n, struct error *err)
{
    struct file f = {0};
    TRY(file_open(&f, arena_printf(a, "%s/benches", folder), err));
    for (int32_t i = 0; i < n; i++) fprintf(f.stream, "bench.%" PRId32 "\n", i);
    return file_commit(&f, err);
}

enum status profile_away_begin(struct arena *a, struct profile_away *x, struct error *err)
{
    x->n = 0;
    if (!x->emit) return OK;
    if (mkdir(x->emit, 0777) != 0 && errno != EEXIST)
        return error_set(err, ERR_RESOURCE, "%s: %s", x->emit, strerror(errno));
    return write_list(a, x->emit, 0, err);
}

static enum status write_bench(struct arena *a, const char *folder, int32_t bench,
                               const struct program *p, struct error *err)
{
    struct file f = {0};
    TRY(file_open(&f, file_of(a, folder, bench, "program"), err));
    program_write(f.stream, p);
    TRY(file_commit(&f, err));
    return write_list(a, folder, bench + 1, err);
}

static int64_t samples_of(const struct trace *t, uint64_t key)
{
    int64_t n = 0;
    for (size_t i = 0; i < t->n_spans; i++)
        n += t->spans[i].kind == SPAN_COMPUTE && t->spans[i].key == key;
    return n;
}

/* The trace must have a sample of each operator in each round. */
static enum status check_trace(const struct program *p, const struct trace *t, const char *path,
                               struct error *err)
{
    const struct program_stage *s = &p->stages[0];
    for (int32_t i = 0; i < s->n_ops; i++) {
        int64_t n = s->ops[i].key ? samples_of(t, s->ops[i].key) : s->microbatches;
        if (n != s->microbatches)
            return error_set(err, ERR_INPUT,
                             "%s: %" PRId64 " samples of %s, not %" PRId32
                             ": do job, cluster and --repeats equal those of --emit?",
                             path, n, s->ops[i].name, s->microbatches);
    }
    return OK;
}

enum status profile_away_bench(struct arena *a, struct profile_away *x, const struct program *p,
                               struct trace **out, struct error *err)
{
    int32_t bench = x->n++;
    *out = NULL;
    if (x->emit) return write_bench(a, x->emit, bench, p, err);
    const char *path = file_of(a, x->from, bench, "trace");
    TRY(trace_read(a, path, out, err));
    return check_trace(p, *out, path, err);
}

enum status profile_away_copies(struct arena *a, const struct profile_away *x,
                                struct copy_sample **out, int32_t *n, struct error *err)
{
    const char *path = arena_printf(a, "%s/copies", x->from);
    char *text, *line;
    size_t size, capacity = 0;
    *out = NULL, *n = 0;
    if (access(path, F_OK) != 0) return OK;
    TRY(file_read(a, path, COPIES_MAX, &text, &size, err));
    while ((line = strsep(&text, "\n"))) {
        struct copy_sample s;
        if (!*line) continue;
        if (sscanf(line, "%" SCNd64 " %lf %lf %lf %lf", &s.bytes, &s.up_s, &s.up_spread, &s.down_s,
                   &s.down_spread) != 5 ||
            !(s.bytes > 0 && s.up_s > 0 && s.down_s > 0))
            return error_set(err, ERR_INPUT,
                             "%s:%" PRId32
                             ": expected bytes, and seconds and spread of copies up and down",
                             path, *n + 1);
        *out = arena_grow(a, *out, (size_t)*n, &capacity, sizeof **out);
        (*out)[(*n)++] = s;
    }
    return OK;
}

void profile_away_report(const struct profile_away *x, size_t operators, bool as_json)
{
    struct json j;
    if (!as_json) {
        printf("%" PRId32 " benchmarks of %zu distinct operators are in %s: run gpu-run on the "
                          "machine with the GPU, then profile --from\n",
               x->n, operators, x->emit);
        return;
    }
    common_json_begin(&j);
    json_put_int(&j, "benches", x->n);
    json_put_int(&j, "operators", (int64_t)operators);
    common_json_end(&j);
}
