/* tests/programs/mutate.c - mutants of C sources (gate R22): one operator, constant or statement changed.
 *
 * mutate sites FILE…         number of sites of each file, a line each
 * mutate at FILE SITE        the file with its site changed, SITE from 0, on stdout; "FILE:LINE: was -> is" on stderr
 *
 * Sites: + and -, * and /, < and <=, > and >=, == and !=, && and || (each becomes the other), += and -=, an integer constant (n becomes n + 1, and 1 becomes 0), a
 * statement of one line that is an assignment or a call (it becomes empty). Comments, texts, characters and lines of the preprocessor have none. Whether * is a
 * product or a pointer is not decided: such mutants do not compile. Ends with 2 if the site is not there.
 */
#include "core/base/arena.h"
#include "core/base/file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_MAX = 1 << 22 };

struct site {
    size_t at, length;
    char is[32];
};
struct scan {
    const char *text;
    size_t n, at;
    struct arena *a;
    struct site *sites;
    size_t n_sites, capacity;
    char before;      /* last character that is not blank, 0: none */
    size_t statement; /* where the one begins that this may be in */
};

static void add(struct scan *s, size_t at, size_t length, const char *is)
{
    struct site x = {at, length, ""};
    snprintf(x.is, sizeof x.is, "%s", is);
    s->sites = arena_grow(s->a, s->sites, s->n_sites, &s->capacity, sizeof *s->sites);
    s->sites[s->n_sites++] = x;
}

static bool starts(const struct scan *s, const char *with) { return !strncmp(s->text + s->at, with, strlen(with)); }
static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Behind a comment, text, character or line of the preprocessor, if one begins here. */
static bool skip(struct scan *s)
{
    const char *t = s->text;
    size_t begin = s->at;
    if (starts(s, "/*")) {
        const char *end = strstr(t + s->at + 2, "*/");
        s->at = end ? (size_t)(end - t) + 2 : s->n;
    } else if (starts(s, "//")) {
        s->at += strcspn(t + s->at, "\n");
    } else if (t[s->at] == '#' && (!s->at || t[s->at - 1] == '\n')) {
        do s->at += strcspn(t + s->at, "\n") + 1;
        while (s->at < s->n && s->at > 1 && t[s->at - 2] == '\\');
    } else if (t[s->at] == '"' || t[s->at] == '\'') {
        char quote = t[s->at++];
        while (s->at < s->n && t[s->at] != quote) s->at += t[s->at] == '\\' ? 2 : 1;
        s->at++;
        s->before = quote;
    }
    return s->at > begin;
}

static const char *const operators[][2] = {{"&&", "||"}, {"||", "&&"}, {"==", "!="}, {"!=", "=="}, {"<=", "<"}, {">=", ">"}, {"+=", "-="}, {"-=", "+="},
                                           {"++", NULL}, {"--", NULL}, {"->", NULL}, {"<<", NULL}, {">>", NULL}, {"*=", "/="}, {"/=", "*="},
                                           {"<", "<="}, {">", ">="}, {"+", "-"}, {"-", "+"}, {"*", "/"}, {"/", "*"}};
enum { N_OPERATORS = sizeof operators / sizeof *operators };

static bool take_operator(struct scan *s)
{
    bool operand = is_word(s->before) || s->before == ')' || s->before == ']'; /* in front: else it is unary */
    for (int i = 0; i < N_OPERATORS; i++) {
        if (!starts(s, operators[i][0])) continue;
        size_t length = strlen(operators[i][0]);
        if (operand && operators[i][1]) add(s, s->at, length, operators[i][1]);
        s->before = s->text[s->at + length - 1];
        s->at += length;
        return true;
    }
    return false;
}

static void take_word(struct scan *s)
{
    size_t begin = s->at;
    bool number = isdigit((unsigned char)s->text[begin]), plain = number;
    while (s->at < s->n && (is_word(s->text[s->at]) || (number && s->text[s->at] == '.'))) plain &= isdigit((unsigned char)s->text[s->at++]) != 0;
    s->before = s->text[s->at - 1];
    if (!plain || s->at - begin > 9) return;
    char is[32];
    long value = strtol(s->text + begin, NULL, 10);
    snprintf(is, sizeof is, "%ld", value == 1 ? 0 : value + 1);
    add(s, begin, s->at - begin, is);
}

/* The text from the last ; { or } to this ; is one line, and an assignment or a call. */
static void take_statement(struct scan *s)
{
    static const char *const others[] = {"return", "break", "continue", "goto", "static", "const", "struct", "enum", "typedef", "extern", "else", "case", "default", "if", "for", "while", "do", "switch"};
    const char *t = s->text;
    size_t begin = s->statement, words = 0;
    while (begin < s->at && isspace((unsigned char)t[begin])) begin++;
    if (begin == s->at || !isalpha((unsigned char)t[begin]) || memchr(t + begin, '\n', s->at - begin) || memchr(t + begin, '{', s->at - begin)) return;
    size_t length = strcspn(t + begin, " (.-[=+*;");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (length == strlen(others[i]) && !strncmp(t + begin, others[i], length)) return;
    for (size_t i = begin; i < s->at && t[i] != '=' && t[i] != '('; i++) words += t[i] == ' ' && is_word(t[i + 1]); /* "int x": a declaration */
    size_t pointer = begin + length + 1;
    if (words || t[pointer] == '*' || length == s->at - begin) return;
    add(s, begin, s->at - begin, "");
}

static void scan(struct scan *s)
{
    int depth = 0; /* of parentheses */
    while (s->at < s->n) {
        char c = s->text[s->at];
        if (isspace((unsigned char)c)) {
            s->at++;
            continue;
        }
        if (skip(s)) continue;
        if (is_word(c)) {
            take_word(s);
            continue;
        }
        if (take_operator(s)) continue;
        depth += (c == '(') - (c == ')');
        if (c == ';' && !depth) take_statement(s);
        if ((c == ';' && !depth) || c == '{' || c == '}') s->statement = s->at + 1;
        s->before = c;
        s->at++;
    }
}

static struct scan scanned(struct arena *a, const char *path)
{
    struct error err;
    char *text;
    struct scan s = {.a = a};
    if (file_read(a, path, SOURCE_MAX, &text, &s.n, &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    s.text = text;
    scan(&s);
    return s;
}

int main(int argc, char **argv)
{
    struct arena *a = arena_new();
    if (argc > 2 && !strcmp(argv[1], "sites")) {
        for (int i = 2; i < argc; i++) printf("%zu %s\n", scanned(a, argv[i]).n_sites, argv[i]);
        return 0;
    }
    if (argc != 4 || strcmp(argv[1], "at") != 0) {
        fprintf(stderr, "usage: mutate sites FILE... | mutate at FILE SITE\n");
        return 1;
    }
    struct scan s = scanned(a, argv[2]);
    size_t site = strtoul(argv[3], NULL, 10);
    if (site >= s.n_sites) return 2;
    const struct site *x = &s.sites[site];
    int line = 1;
    for (size_t i = 0; i < x->at; i++) line += s.text[i] == '\n';
    fprintf(stderr, "%s:%d: %.*s -> %s\n", argv[2], line, (int)x->length, s.text + x->at, *x->is ? x->is : "nothing");
    fwrite(s.text, 1, x->at, stdout);
    fputs(x->is, stdout);
    fwrite(s.text + x->at + x->length, 1, s.n - x->at - x->length, stdout);
    arena_free(a);
    return 0;
}
