/* core/plan/schedule_parse.c - "F0,F1,B0|F0,B0 …": the text form, with the place of what is wrong with it. */
#include "core/plan/schedule_internal.h"

#include "core/base/arena.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

struct reader {
    struct arena *a;
    const char *file, *at;
    int line, column;
    struct schedule *s;
    size_t lane_capacity, op_capacity;
    bool with_chunk, without_chunk;
    struct error *err;
};

#define COMPLAIN(r, column_, fmt, ...)                                                             \
    error_set((r)->err, ERR_INPUT, "%s:%d:%d: " fmt, (r)->file, (r)->line, (column_), __VA_ARGS__)

static char take(struct reader *r)
{
    char c = *r->at++;
    r->column++;
    if (c == '\n') r->line++, r->column = 1;
    return c;
}

/* Digits at the reader, or -1 where there are none. */
static enum status number(struct reader *r, const char *what, int64_t most, int64_t *out)
{
    int column = r->column;
    *out = -1;
    while (isdigit((unsigned char)*r->at)) {
        *out = (*out < 0 ? 0 : *out) * 10 + (take(r) - '0');
        if (*out > most) return COMPLAIN(r, column, "%s: more than %" PRId64, what, most);
    }
    return OK;
}

static enum status read_op(struct reader *r, struct schedule_op *out)
{
    int column = r->column;
    int64_t chunk, microbatch;
    TRY(number(r, "chunk", SCHEDULE_MAX_CHUNKS - 1, &chunk));
    (chunk < 0 ? &r->without_chunk : &r->with_chunk)[0] = true;
    if (r->with_chunk && r->without_chunk)
        return COMPLAIN(r, column,
                        "%s chunk before the letter, unlike the operations before: expected "
                        "chunks for all (1F0) or for none (F0)",
                        chunk < 0 ? "no" : "a");
    char letter = *r->at;
    if (!letter || !strchr("FBIW", letter)) {
        if (letter == 'U')
            return COMPLAIN(r, r->column, "%s",
                            "U: updates are implied after the last operation");
        char shown[8] = {letter, 0};
        if (!isprint((unsigned char)letter))
            snprintf(shown, sizeof shown, letter ? "\\x%02x" : "the end", (unsigned char)letter);
        return COMPLAIN(r, r->column,
                        "'%s': expected F, B (fused backward), I (input gradient) or W "
                        "(weight gradient)",
                        shown);
    }
    take(r);
    TRY(number(r, "microbatch", SCHEDULE_MAX_MICROBATCHES - 1, &microbatch));
    if (microbatch < 0)
        return COMPLAIN(r, r->column, "expected the number of a microbatch after %c", letter);
    if (*r->at && !strchr(" \t\r\n,|#", *r->at))
        return COMPLAIN(r, r->column, "'%c' after %c%" PRId64 ": expected a comma, a blank or '|'",
                        *r->at, letter, microbatch);
    *out = (struct schedule_op){(enum phase)letter, chunk < 0 ? 0 : (int32_t)chunk,
                                (int32_t)microbatch};
    return OK;
}

static enum status add_op(struct reader *r, struct schedule_lane *l)
{
    struct schedule_op o;
    TRY(read_op(r, &o));
    l->ops = arena_grow(r->a, l->ops, (size_t)l->n_ops, &r->op_capacity, sizeof *l->ops);
    l->ops[l->n_ops++] = o;
    if (o.chunk >= r->s->n_chunks) r->s->n_chunks = o.chunk + 1;
    if (o.microbatch >= r->s->n_microbatches) r->s->n_microbatches = o.microbatch + 1;
    return OK;
}

/* Up to the separator, which is taken; *closed_by says which it was: '|', '\n' or 0. */
static enum status read_lane(struct reader *r, struct schedule_lane *l, char *closed_by)
{
    bool comma = false;
    *l = (struct schedule_lane){0};
    r->op_capacity = 0;
    for (;;) {
        char c = *r->at;
        if (c == '#')
            while (*r->at && *r->at != '\n') take(r);
        else if (c == ' ' || c == '\t' || c == '\r')
            take(r);
        else if (c == ',') {
            if (comma || !l->n_ops)
                return COMPLAIN(r, r->column, "%s", "a comma without an operation before it");
            comma = true;
            take(r);
        } else if (!c || c == '|' || c == '\n') {
            if (comma) return COMPLAIN(r, r->column, "%s", "expected an operation after the comma");
            *closed_by = c;
            if (c) take(r);
            return OK;
        } else {
            TRY(add_op(r, l));
            comma = false;
        }
    }
}

static enum status read_lanes(struct reader *r)
{
    char closed_by = 0, before;
    do {
        struct schedule_lane l;
        before = closed_by;
        int column = r->column;
        TRY(read_lane(r, &l, &closed_by));
        if (!l.n_ops) {
            if (closed_by == '|' || before == '|')
                return COMPLAIN(r, column, "device %" PRId32 " has no operations", r->s->n_devices);
            continue; /* an empty line */
        }
        if (r->s->n_devices == SCHEDULE_MAX_DEVICES)
            return COMPLAIN(r, column, "more than %d devices", SCHEDULE_MAX_DEVICES);
        r->s->lanes = arena_grow(r->a, r->s->lanes, (size_t)r->s->n_devices, &r->lane_capacity,
                                 sizeof *r->s->lanes);
        r->s->lanes[r->s->n_devices++] = l;
    } while (closed_by);
    if (!r->s->n_devices) return COMPLAIN(r, 1, "%s", "no operation found");
    return OK;
}

enum status schedule_parse(struct arena *a, const char *file, const char *text, bool v_shaped,
                           struct schedule *out, struct error *err)
{
    struct schedule s = {.name = file, .n_chunks = 1};
    struct reader r = {
        .a = a, .file = file, .at = text, .line = 1, .column = 1, .s = &s, .err = err};
    TRY(read_lanes(&r));
    schedule_place(a, &s, v_shaped);
    enum status st = schedule_check(a, &s, NULL, err);
    if (st != OK) return error_wrap(err, st, "%s", file);
    *out = s;
    return OK;
}
