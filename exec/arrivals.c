#include "exec/arrivals.h"

#include "core/base/arena.h"
#include "core/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARRIVALS_MAX_BYTES ((size_t)1 << 30)

void arrivals_add(struct arrivals *x, struct arrival one)
{
    x->list = arena_grow(x->a, x->list, (size_t)x->n, &x->capacity, sizeof *x->list);
    x->list[x->n++] = one;
}

enum status arrivals_write(const char *path, const struct arrivals *x, uint64_t plan_hash, int64_t first_step, struct error *err)
{
    struct file f;
    TRY(file_open(&f, path, err));
    fprintf(f.stream, "musher-arrivals 1 %016" PRIx64 " %" PRId64 "\n", plan_hash, first_step);
    for (int64_t i = 0; i < x->n; i++)
        fprintf(f.stream, "%" PRId32 " %" PRId32 " %" PRId64 " %" PRId64 " %s\n", x->list[i].server, x->list[i].worker, x->list[i].step,
                x->list[i].staleness, x->list[i].dropped ? "dropped" : "applied");
    enum status status = file_commit(&f, err);
    file_abandon(&f);
    return status;
}

static enum status read_head(const char *path, const char *line, uint64_t plan_hash, int64_t first_step, struct error *err)
{
    uint64_t hash;
    int64_t first;
    if (sscanf(line, "musher-arrivals 1 %" SCNx64 " %" SCNd64, &hash, &first) != 2)
        return error_set(err, ERR_INPUT, "%s:1: not a log of arrivals; run --arrivals writes one", path);
    if (hash != plan_hash) return error_set(err, ERR_INPUT, "%s:1: a log of another plan, which has other arrivals", path);
    if (first != first_step)
        return error_set(err, ERR_INPUT, "%s:1: a log of a run after %" PRId64 " steps; this one starts after %" PRId64, path, first, first_step);
    return OK;
}

enum status arrivals_read(struct arena *a, const char *path, uint64_t plan_hash, int64_t first_step, int32_t server, struct arrivals *out,
                          struct error *err)
{
    char *text, *next, what[16];
    size_t n;
    *out = (struct arrivals){.a = a};
    TRY(file_read(a, path, ARRIVALS_MAX_BYTES, &text, &n, err));
    for (int number = 1; *text; text = next, number++) {
        struct arrival x;
        next = text + strcspn(text, "\n");
        if (*next) *next++ = 0;
        if (number == 1) {
            TRY(read_head(path, text, plan_hash, first_step, err));
            continue;
        }
        int fields = sscanf(text, "%" SCNd32 " %" SCNd32 " %" SCNd64 " %" SCNd64 " %15s", &x.server, &x.worker, &x.step, &x.staleness, what);
        x.dropped = fields == 5 && !strcmp(what, "dropped");
        if (fields != 5 || (!x.dropped && strcmp(what, "applied") != 0) || x.server < 0 || x.worker < 0 || x.step < 1)
            return error_set(err, ERR_INPUT, "%s:%d: must be: server worker step staleness applied|dropped", path, number);
        if (server < 0 || x.server == server) arrivals_add(out, x);
    }
    return out->n || server >= 0 ? OK : error_set(err, ERR_INPUT, "%s: has no arrivals", path);
}
