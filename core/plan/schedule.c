/* core/plan/schedule.c - named schedules by one rule: warm-up forwards, a steady pattern, the remaining backwards. */
#include "core/plan/schedule_internal.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int32_t chunks;
    unsigned traits;
    void (*order)(struct arena *a, const struct schedule_spec *spec, struct schedule *s);
} kinds[] = {
#define X(name, text, chunks, traits, order) {text, chunks, traits, schedule_order_##order},
    SCHEDULES(X)
#undef X
};

const char *schedule_name(enum schedule_kind k) { return kinds[k].name; }
int32_t schedule_kind_chunks(enum schedule_kind k) { return kinds[k].chunks; }
bool schedule_kind_has(enum schedule_kind k, enum schedule_trait trait)
{
    return kinds[k].traits & trait;
}

enum status schedule_kind_parse(const char *name, enum schedule_kind *out, struct error *err)
{
    char list[256] = "", hint[NEAREST_HINT];
    struct nearest near = nearest_to(name);
    for (int k = 0; k < SCHEDULE_KIND_COUNT; k++) {
        if (!strcmp(kinds[k].name, name)) {
            *out = (enum schedule_kind)k;
            return OK;
        }
        size_t n = strlen(list);
        nearest_try(&near, kinds[k].name);
        snprintf(list + n, sizeof list - n, "%s%s", k ? ", " : "", kinds[k].name);
    }
    return error_set(err, ERR_INPUT, "unknown schedule '%s'; known: %s%s", name, list,
                     nearest_hint(&near, hint));
}

int64_t schedule_ops(const struct schedule *s)
{
    int64_t n = 0;
    for (int32_t d = 0; d < s->n_devices; d++) n += s->lanes[d].n_ops;
    return n;
}

void schedule_place(struct arena *a, struct schedule *s, bool v_shaped)
{
    s->stage = ARENA_ARRAY(a, int32_t, (size_t)s->n_devices * (size_t)s->n_chunks);
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t c = 0; c < s->n_chunks; c++) {
            int32_t place = v_shaped && c % 2 ? s->n_devices - 1 - d : d;
            s->stage[d * s->n_chunks + c] = c * s->n_devices + place;
        }
}

const char *schedule_op_text(char buffer[32], const struct schedule *s, const struct schedule_op *o)
{
    if (s->n_chunks > 1)
        snprintf(buffer, 32, "%" PRId32 "%c%" PRId32, o->chunk, o->phase, o->microbatch);
    else
        snprintf(buffer, 32, "%c%" PRId32, o->phase, o->microbatch);
    return buffer;
}

void schedule_write(FILE *out, const struct schedule *s, char separator)
{
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (d) fputc(separator, out);
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
            char text[32];
            fprintf(out, "%s%s", i ? "," : "", schedule_op_text(text, s, &s->lanes[d].ops[i]));
        }
    }
    if (separator == '\n') fputc('\n', out);
}

/* --- warm-up counts --- */

/* HARP's published rule, from the authors' code: a transfer that is cheap relative to the slowest stage adds one
 * microbatch in flight to those of the next stage, an expensive one three. */
static int32_t step_published(double transfer, double t_max)
{
    return transfer * 10 < t_max ? 1 : transfer * 2 < t_max ? 2 : 3;
}

/* A microbatch is away from stage i for t of stage i+1 and both transfers, in which so many periods pass. The sliver
 * keeps a quotient that is whole on paper from becoming the next whole number by rounding. */
static int32_t step_ceil(double next_time, double transfer, double period)
{
    double n = ceil((next_time + 2 * transfer) / period - 1e-9);
    return n < 1 ? 1 : n > SCHEDULE_MAX_MICROBATCHES ? SCHEDULE_MAX_MICROBATCHES : (int32_t)n;
}

void schedule_warmup(const struct schedule_spec *s, int32_t *out)
{
    int32_t p = s->n_devices, m = s->n_microbatches;
    double t_max = 0, c_max = 0;
    for (int32_t d = 0; d < p; d++) {
        t_max = fmax(t_max, s->time ? s->time[d] : 1);
        if (d + 1 < p) c_max = fmax(c_max, s->transfer ? s->transfer[d] : 0);
    }
    int64_t w = 1;
    for (int32_t d = p - 1; d >= 0; d--) {
        double c = d + 1 < p && s->transfer ? s->transfer[d] : 0;
        if (d + 1 < p && s->kind == SCHEDULE_1F1B) w += 1;
        if (d + 1 < p && s->kind == SCHEDULE_EAGER) w += 2;
        if (d + 1 < p && s->kind == SCHEDULE_H1F1B_PUBLISHED) w += step_published(c, t_max);
        if (d + 1 < p && s->kind == SCHEDULE_H1F1B)
            w += step_ceil(s->time ? s->time[d + 1] : 1, c, fmax(t_max, c_max));
        if (s->kind == SCHEDULE_GPIPE || w > m) w = m;
        out[d] = s->warmup ? (s->warmup[d] < m ? s->warmup[d] : m) : (int32_t)w;
    }
}

/* --- orders --- */

static void backward(struct schedule_lane *l, bool split, int32_t chunk, int32_t microbatch)
{
    schedule_append(l, split ? 'I' : 'B', chunk, microbatch);
    if (split) schedule_append(l, PHASE_W, chunk, microbatch);
}

/* w-1 forwards, then a forward and a backward in turn, then w-1 backwards; w = m is GPipe. */
static void warmup_lane(struct schedule_lane *l, int32_t m, int32_t w, bool split)
{
    for (int32_t i = 0; i < w - 1; i++) schedule_append(l, PHASE_F, 0, i);
    for (int32_t i = w - 1; i < m; i++) {
        schedule_append(l, PHASE_F, 0, i);
        backward(l, split, 0, i - (w - 1));
    }
    for (int32_t i = m - (w - 1); i < m; i++) backward(l, split, 0, i);
}

void schedule_order_warmup(struct arena *a, const struct schedule_spec *spec, struct schedule *s)
{
    int32_t *w = ARENA_ARRAY(a, int32_t, (size_t)s->n_devices);
    schedule_warmup(spec, w);
    for (int32_t d = 0; d < s->n_devices; d++)
        warmup_lane(&s->lanes[d], s->n_microbatches, w[d], spec->split);
}

/* Megatron-LM's order: microbatches go through the chunks in groups of p, forwards from the first chunk on, backwards
 * from the last. */
static void interleaved_lane(const struct schedule *s, int32_t d, bool split)
{
    struct schedule_lane *l = &s->lanes[d];
    int64_t p = s->n_devices, v = s->n_chunks, total = (int64_t)s->n_microbatches * v;
    int64_t w = (p - d - 1) * 2 + (v - 1) * p;
    if (w > total) w = total;
    for (int64_t k = 0; k < total + w; k++) {
        int64_t f = k, b = k - w;
        if (f < total)
            schedule_append(l, PHASE_F, (int32_t)(f / p % v), (int32_t)(f / (p * v) * p + f % p));
        if (b >= 0)
            backward(l, split, (int32_t)(v - 1 - b / p % v), (int32_t)(b / (p * v) * p + b % p));
    }
}

void schedule_order_interleaved(struct arena *a, const struct schedule_spec *spec,
                                struct schedule *s)
{
    (void)a;
    for (int32_t d = 0; d < s->n_devices; d++) interleaved_lane(s, d, spec->split);
}

/* ZB-H1 and ZB-H2 by hand: device d has `w` forwards in flight like (eager) 1F1B, and puts its weight gradients off by
 * `late` microbatches, so that those of the last device fill the time in which gradients travel to the first. */
static void zero_bubble_lane(struct schedule_lane *l, int32_t m, int32_t w, int32_t late)
{
    int32_t f = 0, done = 0;
    while (f < w && f < m) schedule_append(l, PHASE_F, 0, f++);
    for (int32_t i = 0; i < m; i++) {
        schedule_append(l, PHASE_I, 0, i);
        if (i >= late) schedule_append(l, PHASE_W, 0, done++);
        if (f < m) schedule_append(l, PHASE_F, 0, f++);
    }
    while (done < m) schedule_append(l, PHASE_W, 0, done++);
}

void schedule_order_zb_h1(struct arena *a, const struct schedule_spec *spec, struct schedule *s)
{
    (void)a, (void)spec;
    for (int32_t d = 0, p = s->n_devices; d < p; d++)
        zero_bubble_lane(&s->lanes[d], s->n_microbatches, p - d, d);
}

void schedule_order_zb_h2(struct arena *a, const struct schedule_spec *spec, struct schedule *s)
{
    (void)a, (void)spec;
    for (int32_t d = 0, p = s->n_devices; d < p; d++)
        zero_bubble_lane(&s->lanes[d], s->n_microbatches, 2 * (p - d) - 1, 2 * d);
}

static enum status check_numbers(const struct schedule_spec *s, struct error *err)
{
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (s->time && !(s->time[d] > 0 && isfinite(s->time[d])))
            return error_set(err, ERR_INPUT, "device %" PRId32 ": time %g: expected more than 0", d,
                             s->time[d]);
        if (s->transfer && d + 1 < s->n_devices &&
            !(s->transfer[d] >= 0 && isfinite(s->transfer[d])))
            return error_set(err, ERR_INPUT, "link %" PRId32 ": transfer %g: expected 0 or more", d,
                             s->transfer[d]);
        if (s->warmup && s->warmup[d] < 1)
            return error_set(err, ERR_INPUT,
                             "device %" PRId32 ": warm-up %" PRId32 ": expected 1 or more", d,
                             s->warmup[d]);
    }
    return OK;
}

static enum status check_spec(const struct schedule_spec *s, int32_t *chunks, struct error *err)
{
    if ((int)s->kind < 0 || s->kind >= SCHEDULE_KIND_COUNT) BUG("schedule kind %d", (int)s->kind);
    const char *name = kinds[s->kind].name;
    int32_t own = kinds[s->kind].chunks;
    *chunks = s->n_chunks ? s->n_chunks : own ? own : 2;
    if (s->n_devices < 1 || s->n_devices > SCHEDULE_MAX_DEVICES)
        return error_set(err, ERR_INPUT, "%s: %" PRId32 " devices: expected 1 … %d", name,
                         s->n_devices, SCHEDULE_MAX_DEVICES);
    if (s->n_microbatches < 1 || s->n_microbatches > SCHEDULE_MAX_MICROBATCHES)
        return error_set(err, ERR_INPUT, "%s: %" PRId32 " microbatches: expected 1 … %d", name,
                         s->n_microbatches, SCHEDULE_MAX_MICROBATCHES);
    if (own ? *chunks != own : *chunks < 2 || *chunks > SCHEDULE_MAX_CHUNKS)
        return error_set(err, ERR_INPUT, "%s: %" PRId32 " chunks per device: expected %s", name,
                         *chunks,
                         own == 1   ? "1"
                         : own == 2 ? "2"
                                    : "2 … 1000");
    if (schedule_kind_has(s->kind, SCHEDULE_GROUPS) && s->n_microbatches % s->n_devices)
        return error_set(err, ERR_INPUT,
                         "%s: %" PRId32 " microbatches are not a multiple of %" PRId32
                         " devices; its order alternates chunks in groups of as many "
                         "microbatches as there are devices",
                         name, s->n_microbatches, s->n_devices);
    if (s->warmup && !schedule_kind_has(s->kind, SCHEDULE_WARMUPS))
        return error_set(err, ERR_INPUT, "%s accepts no warm-up counts", name);
    if (3 * (int64_t)s->n_devices * *chunks > SCHEDULE_MAX_OPS / s->n_microbatches)
        return error_set(err, ERR_INPUT,
                         "%s: %" PRId32 " devices × %" PRId32 " chunks × %" PRId32
                         " microbatches are more than %" PRId64 " operations",
                         name, s->n_devices, *chunks, s->n_microbatches, SCHEDULE_MAX_OPS);
    return check_numbers(s, err);
}

enum status schedule_make(struct arena *a, const struct schedule_spec *spec, struct schedule *out,
                          struct error *err)
{
    int32_t chunks;
    TRY(check_spec(spec, &chunks, err));
    struct schedule s = {.name = kinds[spec->kind].name,
                         .n_devices = spec->n_devices,
                         .n_chunks = chunks,
                         .n_microbatches = spec->n_microbatches};
    schedule_place(a, &s, schedule_kind_has(spec->kind, SCHEDULE_V));
    s.lanes = ARENA_ARRAY(a, struct schedule_lane, (size_t)s.n_devices);
    size_t parts = spec->split || schedule_kind_has(spec->kind, SCHEDULE_SPLITS) ? 3 : 2;
    for (int32_t d = 0; d < s.n_devices; d++)
        s.lanes[d].ops = ARENA_ARRAY(a, struct schedule_op,
                                     parts * (size_t)chunks * (size_t)spec->n_microbatches);
    kinds[spec->kind].order(a, spec, &s);
    if (spec->warmup) TRY(schedule_check(a, &s, NULL, err));
    *out = s;
    return OK;
}
