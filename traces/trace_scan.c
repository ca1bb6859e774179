/* The scanner of span lines: a flat JSON object of known keys, in any order, integers and short strings.
 *
 * It accepts a subset of JSON: keys and all strings but `name` without escapes, integers without a fraction. A name with an
 * escape is rare (a link's name with a quote in it) and is parsed by core/document/document.
 */
#include "traces/trace_scan.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/utf8.h"
#include "core/document/document.h"

#include <inttypes.h>
#include <string.h>

/* clang-format off */
/*    key, smallest, needed */
#define FIELDS(X) \
    X(kind, 0, 1) X(stream, 0, 1) X(device, 0, 1) X(peer, -1, 0) X(stage, -1, 1) X(phase, 0, 1) X(step, 0, 1) \
    X(microbatch, -1, 1) X(op, -1, 1) X(part, 0, 0) X(uneven_ppm, 0, 0) X(begin_ns, 0, 1) X(end_ns, 0, 1) X(bytes, 0, 0) X(key, 0, 0) \
    X(name, 0, 1) X(collective, 0, 0)
/* clang-format on */
enum field {
#define X(key, smallest, needed) FIELD_##key,
    FIELDS(X)
#undef X
        FIELD_COUNT
};
static const struct {
    const char *key;
    size_t length;
    int64_t smallest;
    bool needed;
} fields[FIELD_COUNT] = {
#define X(key, smallest, needed) {#key, sizeof #key - 1, smallest, needed},
    FIELDS(X)
#undef X
};

struct name {
    const char *text; /* NULL: an empty slot */
    size_t length;
    uint64_t hash;
};

struct trace_scan {
    struct trace *trace;
    struct arena *scratch;
    struct name *names; /* open hash; capacity a power of two, at most half full */
    size_t n_names, capacity;
};

struct cursor_in { /* a position in the line */
    const char *line, *at, *end;
    struct error *err;
};

struct piece { /* the inside of a string */
    const char *text;
    size_t n;
    bool escaped;
};

struct trace_scan *trace_scan_new(struct trace *t, struct arena *scratch)
{
    struct trace_scan *s = ARENA_ARRAY(scratch, struct trace_scan, 1);
    *s = (struct trace_scan){.trace = t, .scratch = scratch, .capacity = 256};
    s->names = ARENA_ARRAY(scratch, struct name, s->capacity);
    return s;
}

bool trace_scan_hex(const char *text, size_t n, uint64_t *out)
{
    uint64_t value = 0;
    if (n != 16) return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

/* --- names: one copy each -------------------------------------------------------------------- */

static struct name *place_of(const struct trace_scan *s, const char *text, size_t n, uint64_t hash)
{
    for (size_t at = (size_t)hash;; at++) {
        struct name *e = &s->names[at & (s->capacity - 1)];
        if (!e->text || (e->hash == hash && e->length == n && !memcmp(e->text, text, n))) return e;
    }
}

static void grow_names(struct trace_scan *s)
{
    struct trace_scan old = *s;
    s->capacity *= 2;
    s->names = ARENA_ARRAY(s->scratch, struct name, s->capacity);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.names[i].text)
            *place_of(s, old.names[i].text, old.names[i].length, old.names[i].hash) = old.names[i];
}

static const char *intern(struct trace_scan *s, const char *text, size_t n)
{
    uint64_t hash = rng_hash_bytes(0, text, n);
    struct name *e = place_of(s, text, n, hash);
    if (e->text) return e->text;
    if (2 * ++s->n_names > s->capacity) {
        grow_names(s);
        e = place_of(s, text, n, hash);
    }
    *e = (struct name){arena_strndup(s->trace->arena, text, n), n, hash};
    return e->text;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static void skip_space(struct cursor_in *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r')) c->at++;
}

static enum status expected(struct cursor_in *c, const char *what)
{
    int column = (int)(c->at - c->line) + 1;
    if (c->at >= c->end)
        return error_set(c->err, ERR_INPUT, "the line ends where %s should be", what);
    return error_set(c->err, ERR_INPUT, "column %d: %s should be here", column, what);
}

static bool take(struct cursor_in *c, char wanted)
{
    skip_space(c);
    if (c->at >= c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static enum status take_text(struct cursor_in *c, struct piece *out)
{
    if (!take(c, '"')) return expected(c, "a text in quotes");
    *out = (struct piece){.text = c->at};
    while (c->at < c->end && *c->at != '"') {
        unsigned char byte = (unsigned char)*c->at;
        uint32_t code = byte;
        size_t length = byte >= 0x80 ? utf8_next(c->at, (size_t)(c->end - c->at), &code) : 1;
        if (!length || utf8_is_control(code)) return expected(c, "a printable UTF-8 character");
        if (byte == '\\') {
            out->escaped = true;
            length += c->end - c->at > 1 && (c->at[1] == '"' || c->at[1] == '\\');
        }
        c->at += length;
    }
    out->n = (size_t)(c->at - out->text);
    return take(c, '"') ? OK : expected(c, "the closing quote");
}

static enum status take_int(struct cursor_in *c, int64_t *out)
{
    skip_space(c);
    bool negative = c->at < c->end && *c->at == '-';
    const char *first = c->at += negative;
    uint64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        value = value * 10 + (uint64_t)(*c->at - '0');
        if (value > (uint64_t)INT64_MAX) return expected(c, "an integer of 64 bits");
    }
    if (c->at == first || (c->at - first > 1 && *first == '0')) return expected(c, "an integer");
    *out = negative ? -(int64_t)value : (int64_t)value;
    return OK;
}

/* --- fields ---------------------------------------------------------------------------------- */

static enum status field_of(struct cursor_in *c, const struct piece *key, uint32_t seen,
                            enum field *out)
{
    for (int f = 0; f < FIELD_COUNT; f++) {
        if (fields[f].length != key->n || memcmp(fields[f].key, key->text, key->n) != 0) continue;
        if (seen >> f & 1)
            return error_set(c->err, ERR_INPUT, "the key '%s' is given twice", fields[f].key);
        *out = (enum field)f;
        return OK;
    }
    if (key->n == 6 && !memcmp(key->text, "schema", 6))
        return error_set(c->err, ERR_INPUT, "a second header");
    return error_set(c->err, ERR_INPUT, "unknown key '%.*s'", key->n > 60 ? 60 : (int)key->n,
                     key->text);
}

static bool is(const struct piece *p, const char *name)
{
    return p->n == strlen(name) && !memcmp(p->text, name, p->n);
}

static enum status unknown(struct cursor_in *c, const char *what, const struct piece *p)
{
    return error_set(c->err, ERR_INPUT, "unknown %s '%.*s'", what, p->n > 60 ? 60 : (int)p->n,
                     p->text);
}

static enum status escaped_name(struct trace_scan *s, struct cursor_in *c, const struct piece *p,
                                struct span *out)
{
    struct arena *scratch = arena_new();
    struct node *root = NULL;
    const char *text = NULL;
    const char *list =
        arena_printf(scratch, "[\"%.*s\"]", (int)p->n, p->text); /* a complete document */
    enum status st = document_parse(scratch, "name", list, strlen(list), &root, c->err);
    if (st == OK) st = node_text(root->members[0], &text, c->err);
    if (st == OK) out->name = intern(s, text, strlen(text));
    arena_free(scratch);
    return st;
}

static enum status take_word(struct trace_scan *s, struct cursor_in *c, enum field f,
                             struct span *out)
{
    struct piece p;
    TRY(take_text(c, &p));
    if (f == FIELD_name && p.escaped) return escaped_name(s, c, &p, out);
    if (f == FIELD_name) {
        out->name = intern(s, p.text, p.n);
        return OK;
    }
    if (f == FIELD_key)
        return trace_scan_hex(p.text, p.n, &out->key)
                   ? OK
                   : expected(c, "a key of 16 hexadecimal digits");
    if (f == FIELD_phase) {
        if (p.n != 1 || !memchr("FBIWUS", p.text[0], 6)) return unknown(c, "phase", &p);
        out->phase = (enum phase)p.text[0];
        return OK;
    }
    if (f == FIELD_kind) {
        for (int k = 0; k < SPAN_KIND_COUNT; k++)
            if (is(&p, span_kind_name((enum span_kind)k))) return out->kind = (enum span_kind)k, OK;
        return unknown(c, "kind", &p);
    }
    if (f == FIELD_collective) {
        for (int k = 0; k < COLLECTIVE_CALL_KINDS; k++)
            if (is(&p, collective_kind_word((enum collective_kind)k)))
                return out->collective = k + 1, OK;
        return unknown(c, "collective", &p);
    }
    for (int k = 0; k < STREAM_COUNT; k++)
        if (is(&p, stream_name((enum stream)k))) return out->stream = (enum stream)k, OK;
    return unknown(c, "stream", &p);
}

static int64_t largest(const struct trace *t, enum field f)
{
    switch (f) {
    case FIELD_device:
    case FIELD_peer:
        return (int64_t)t->n_devices - 1;
    case FIELD_stage:
        return (int64_t)t->n_stages - 1;
    case FIELD_begin_ns:
    case FIELD_end_ns:
    case FIELD_bytes:
        return INT64_MAX;
    default:
        return INT32_MAX;
    }
}

static enum status take_number(struct trace_scan *s, struct cursor_in *c, enum field f,
                               struct span *out)
{
    int64_t value = 0, most = largest(s->trace, f);
    TRY(take_int(c, &value));
    if (value < fields[f].smallest || value > most)
        return error_set(c->err, ERR_INPUT, "%s %" PRId64 " is outside %" PRId64 " ... %" PRId64,
                         fields[f].key, value, fields[f].smallest, most);
    switch (f) {
    case FIELD_device:
        out->device = (int32_t)value;
        break;
    case FIELD_peer:
        out->peer = (int32_t)value;
        break;
    case FIELD_stage:
        out->stage = (int32_t)value;
        break;
    case FIELD_step:
        out->step = (int32_t)value;
        break;
    case FIELD_microbatch:
        out->microbatch = (int32_t)value;
        break;
    case FIELD_op:
        out->op = (int32_t)value;
        break;
    case FIELD_part:
        out->part = (int32_t)value;
        break;
    case FIELD_uneven_ppm:
        out->uneven_ppm = (int32_t)value;
        break;
    case FIELD_begin_ns:
        out->begin_ns = value;
        break;
    case FIELD_end_ns:
        out->end_ns = value;
        break;
    case FIELD_bytes:
        out->bytes = value;
        break;
    default:
        BUG("field %d is no number", (int)f);
    }
    return OK;
}

static enum status check_whole(struct cursor_in *c, uint32_t seen, const struct span *s,
                               bool kernels)
{
    for (int f = 0; f < FIELD_COUNT; f++)
        if (fields[f].needed && !(seen >> f & 1))
            return error_set(c->err, ERR_INPUT, "the key '%s' is missing", fields[f].key);
    if (s->end_ns < s->begin_ns)
        return error_set(c->err, ERR_INPUT,
                         "the span ends (%" PRId64 " ns) before it begins (%" PRId64 " ns)",
                         s->end_ns, s->begin_ns);
    if (s->kind == SPAN_COMPUTE && s->stage < 0)
        return error_set(c->err, ERR_INPUT, "a compute span has no stage");
    if (s->kind == SPAN_KERNEL && !kernels)
        return error_set(c->err, ERR_INPUT, "a kernel span in a trace of schema 1; kernels need schema 2");
    if (s->kind == SPAN_KERNEL && (s->stage < 0) != (s->op < 0))
        return error_set(c->err, ERR_INPUT,
                         "a kernel span has a stage and no operator, or no stage");
    if ((s->kind == SPAN_KERNEL) != (s->stream == STREAM_kernel))
        return error_set(c->err, ERR_INPUT, "a %s span on stream %s", span_kind_name(s->kind),
                         stream_name(s->stream));
    if ((s->kind >= SPAN_TRAIN) != (s->stream == STREAM_run))
        return error_set(c->err, ERR_INPUT, "a %s span on stream %s", span_kind_name(s->kind), stream_name(s->stream));
    if (s->kind != SPAN_REDUCE && s->collective)
        return error_set(c->err, ERR_INPUT, "a %s span cannot have a collective", span_kind_name(s->kind));
    return OK;
}

enum status trace_scan_span(struct trace_scan *s, const char *text, size_t n, struct span *out,
                            struct error *err)
{
    struct cursor_in c = {text, text, text + n, err};
    uint32_t seen = 0;
    *out = (struct span){.peer = -1};
    if (!take(&c, '{')) return expected(&c, "a span, a JSON object,");
    do {
        struct piece key;
        enum field f = FIELD_COUNT;
        TRY(take_text(&c, &key));
        TRY(field_of(&c, &key, seen, &f));
        seen |= UINT32_C(1) << f;
        if (!take(&c, ':')) return expected(&c, "a colon");
        bool word = f == FIELD_kind || f == FIELD_stream || f == FIELD_phase || f == FIELD_key ||
                    f == FIELD_name || f == FIELD_collective;
        TRY(word ? take_word(s, &c, f, out) : take_number(s, &c, f, out));
    } while (take(&c, ','));
    if (!take(&c, '}')) return expected(&c, "a comma or the closing brace");
    skip_space(&c);
    if (c.at != c.end) return expected(&c, "the end of the line");
    return check_whole(&c, seen, out, s->trace->kernels);
}
