#include "exec/kernel_name.h"

#include <stdbool.h>
#include <string.h>

enum { DEPTH_MAX = 12 };

struct reader {
    const char *at;
    char *out;
    size_t n, used; /* of out */
    bool odd;       /* an unsupported construct: the rest is dropped */
};

static void append(struct reader *r, const char *text, size_t length)
{
    for (size_t i = 0; i < length && r->used + 1 < r->n; i++)
        r->out[r->used++] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    r->out[r->used] = 0;
}

static void append_text(struct reader *r, const char *text) { append(r, text, strlen(text)); }

static void give_up(struct reader *r)
{
    if (!r->odd) append_text(r, "...");
    r->odd = true;
}

static bool take(struct reader *r, char c)
{
    if (r->odd || *r->at != c) return false;
    r->at++;
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A length and that number of characters; NULL if malformed. */
static const char *take_word(struct reader *r, size_t *length)
{
    *length = 0;
    while (is_digit(*r->at) && *length < 100000) *length = *length * 10 + (size_t)(*r->at++ - '0');
    if (!*length || strnlen(r->at, *length) < *length) return NULL;
    const char *word = r->at;
    r->at += *length;
    return word;
}

static void arguments(struct reader *r, int depth);

/* One component of a name; false for a file's internal namespace, which is dropped. */
static bool part(struct reader *r, const char *before, int depth)
{
    static const char own[] = "_GLOBAL__N_";
    size_t length;
    (void)take(r, 'L'); /* internal linkage */
    const char *word = take_word(r, &length);
    if (!word) {
        give_up(r);
        return false;
    }
    if (length >= sizeof own - 1 && !memcmp(word, own, sizeof own - 1)) return false;
    append_text(r, before);
    append(r, word, length);
    if (*r->at == 'I') arguments(r, depth + 1);
    return true;
}

static void name(struct reader *r, int depth)
{
    bool some = false;
    if (depth > DEPTH_MAX) give_up(r);
    if (!take(r, 'N')) {
        if (!r->odd) (void)part(r, "", depth);
        return;
    }
    while (take(r, 'K') || take(r, 'V')) {
    }
    while (!r->odd && !take(r, 'E')) some |= part(r, some ? "::" : "", depth);
}

static const char *plain_type(char c)
{
    static const char letters[] = "vbcahstijlmxyfd";
    static const char *const names[] = {"void", "bool",     "char",      "signed char",
                                        "unsigned char",    "short",     "unsigned short",
                                        "int",  "unsigned", "long",      "unsigned long",
                                        "long long",        "unsigned long long",
                                        "float", "double"};
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? names[at - letters] : NULL;
}

/* After its L: a type, digits, E. Numbers are printed without their type; enumerators with its name. */
static void literal(struct reader *r, int depth)
{
    bool truth = *r->at == 'b';
    if (plain_type(*r->at)) {
        r->at++;
    } else {
        name(r, depth + 1);
        if (!r->odd) append_text(r, " ");
    }
    if (take(r, 'n')) append_text(r, "-");
    const char *digits = r->at;
    while (is_digit(*r->at)) r->at++;
    size_t length = (size_t)(r->at - digits);
    if (r->odd || !length || !take(r, 'E'))
        give_up(r);
    else if (truth)
        append_text(r, *digits == '0' ? "false" : "true");
    else
        append(r, digits, length);
}

static void argument(struct reader *r, int depth)
{
    int pointers = 0;
    while (*r->at == 'P' || *r->at == 'K') pointers += *r->at++ == 'P';
    const char *type = plain_type(*r->at);
    if (take(r, 'L')) {
        literal(r, depth);
    } else if (type) {
        r->at++;
        append_text(r, type);
    } else if (is_digit(*r->at) || *r->at == 'N') {
        name(r, depth + 1);
    } else {
        give_up(r);
    }
    while (!r->odd && pointers-- > 0) append_text(r, "*");
}

/* I … E; packs, J … E, are flattened. */
static void arguments(struct reader *r, int depth)
{
    int open = 1;
    bool some = false;
    if (depth > DEPTH_MAX) give_up(r);
    if (!take(r, 'I')) return;
    append_text(r, "<");
    while (!r->odd && open) {
        if (take(r, 'J')) {
            open++;
        } else if (take(r, 'E')) {
            open--;
        } else {
            if (some) append_text(r, ", ");
            some = true;
            argument(r, depth);
        }
    }
    if (!r->odd) append_text(r, ">");
}

/* "(rows<T, 4>)" is how a macro received it. */
static void as_it_is(struct reader *r, const char *symbol)
{
    size_t length = strlen(symbol);
    bool wrapped = length > 2 && symbol[0] == '(' && symbol[length - 1] == ')';
    append(r, symbol + wrapped, length - (wrapped ? 2 : 0));
}

const char *kernel_name(const char *symbol, char *out, size_t n)
{
    struct reader r = {.at = symbol + 2, .out = out, .n = n};
    if (!n) return out;
    *out = 0;
    if (strncmp(symbol, "_Z", 2) != 0) {
        as_it_is(&r, symbol);
        return out;
    }
    name(&r, 0);
    if (r.used && strcmp(out, "...") != 0) return out;
    r = (struct reader){.out = out, .n = n};
    as_it_is(&r, symbol); /* nothing could be demangled */
    return out;
}
