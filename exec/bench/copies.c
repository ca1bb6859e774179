#include "exec/bench/copies.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "traces/quantile.h"

#include <inttypes.h>

struct copies {
    struct backend *b;
    void *device, *pinned;
    int32_t stream, begin, end;
};

static enum status prepare(struct copies *c, int64_t bytes, struct error *err)
{
    struct backend *b = c->b;
    TRY(b->allocate(b, bytes, &c->device, err));
    TRY(b->allocate_pinned(b, bytes, &c->pinned, err));
    TRY(b->stream_make(b, &c->stream, err));
    TRY(b->event_make(b, true, &c->begin, err));
    return b->event_make(b, true, &c->end, err);
}

static enum status time_one(const struct copies *c, int64_t bytes, bool up, double *out_s,
                            struct error *err)
{
    struct backend *b = c->b;
    int64_t begin = 0, end = 0;
    TRY(b->event_record(b, c->begin, c->stream, err));
    TRY(b->copy(b, c->stream, up ? c->device : c->pinned, up ? c->pinned : c->device, bytes, err));
    TRY(b->event_record(b, c->end, c->stream, err));
    TRY(b->event_wait_here(b, c->end, err));
    TRY(b->event_at(b, c->begin, &begin, err));
    TRY(b->event_at(b, c->end, &end, err));
    *out_s = units_s_from_ns(end - begin);
    return OK;
}

static enum status time_all(const struct copies *c, const int64_t *bytes, int32_t n,
                            int32_t repeats, double *up, double *down, struct error *err)
{
    double unused = 0;
    for (int32_t r = -1; r < repeats; r++)
        for (int32_t i = 0; i < n; i++) {
            TRY(time_one(c, bytes[i], true, r < 0 ? &unused : &up[i * repeats + r], err));
            TRY(time_one(c, bytes[i], false, r < 0 ? &unused : &down[i * repeats + r], err));
        }
    return OK;
}

static double median(double *v, int32_t n, double *spread)
{
    double low = quantile(v, (size_t)n, 0.25), high = quantile(v, (size_t)n, 0.75);
    double m = quantile(v, (size_t)n, 0.5);
    *spread = m > 0 ? (high - low) / 2 / m : 0;
    return m;
}

enum status bench_copies(struct arena *a, struct backend *b, const int64_t *bytes, int32_t n,
                         int32_t repeats, struct copy_sample *out, struct error *err)
{
    struct copies c = {.b = b};
    size_t samples = (size_t)n * (size_t)repeats;
    double *up = ARENA_ARRAY(a, double, samples + 1), *down = ARENA_ARRAY(a, double, samples + 1);
    int64_t most = 0;
    if (n < 1 || repeats < 1)
        return error_set(err, ERR_INPUT,
                         "a bench needs sizes and repeats, not %" PRId32 " and %" PRId32, n,
                         repeats);
    for (int32_t i = 0; i < n; i++) most = bytes[i] > most ? bytes[i] : most;
    enum status st = prepare(&c, most, err);
    if (st == OK) st = time_all(&c, bytes, n, repeats, up, down, err);
    for (int32_t i = 0; st == OK && i < n; i++) {
        out[i].bytes = bytes[i];
        out[i].up_s = median(&up[i * repeats], repeats, &out[i].up_spread);
        out[i].down_s = median(&down[i * repeats], repeats, &out[i].down_spread);
    }
    if (c.pinned) b->release_pinned(b, c.pinned);
    if (c.device) b->release(b, c.device);
    return st;
}
