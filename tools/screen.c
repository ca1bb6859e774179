#include "tools/screen.h"

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHARACTER_MAX = 4, ESCAPED_MAX = 4 * CHARACTER_MAX + 1, BLOCK = 8192 };

/* The first bytes of a character that two writes divide. Guarded by the lock of the stream. */
static char cut[CHARACTER_MAX];
static size_t n_cut;
static int why; /* errno of the first failed write; 0: none */

static bool put(const char *text, size_t n)
{
    while (n) {
        ssize_t written = write(STDOUT_FILENO, text, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            if (!why) why = errno;
            return false;
        }
        text += written, n -= (size_t)written;
    }
    return true;
}

/* Length of the prefix of text that needs no escape. */
static size_t run_of(const char *text, size_t n)
{
    size_t i = 0;
    while ((i += utf8_plain(text + i, n - i)) < n && (text[i] == '\n' || text[i] == '\t')) i++;
    return i;
}

static bool put_escaped(const char *text, size_t n)
{
    char one[CHARACTER_MAX + 1] = "", safe[ESCAPED_MAX] = "\\x00";
    memcpy(one, text, n);
    if (*one) log_safe(safe, sizeof safe, one);
    return put(safe, strlen(safe));
}

/* Returns the bytes of text written: n, less an incomplete character at the end, or all up to a failure. */
static size_t pass(const char *text, size_t n, bool last, bool *bad)
{
    size_t at = 0;
    while (at < n && !*bad) {
        size_t run = run_of(text + at, n - at);
        *bad = run && !put(text + at, run);
        at += run;
        if (at == n || *bad) break;
        size_t length = utf8_next(text + at, n - at, NULL);
        if (!length && !last && n - at < CHARACTER_MAX && (unsigned char)text[at] >= 0xC2) break;
        if (!length) length = 1;
        *bad = !put_escaped(text + at, length);
        at += length;
    }
    return at;
}

static ssize_t write_screen(void *unused, const char *text, size_t n)
{
    char block[CHARACTER_MAX + BLOCK];
    bool bad = false;
    (void)unused;
    for (size_t at = 0; at < n && !bad;) {
        size_t take = n - at < BLOCK ? n - at : BLOCK, have = n_cut + take;
        memcpy(block, cut, n_cut);
        memcpy(block + n_cut, text + at, take);
        size_t done = pass(block, have, false, &bad);
        n_cut = bad ? 0 : have - done;
        memcpy(cut, block + done, n_cut);
        at += take;
    }
    return bad ? 0 : (ssize_t)n; /* 0 is the error return of a cookie's write */
}

void screen_open(void)
{
    static char buffer[BLOCK];
    const cookie_io_functions_t functions = {.write = write_screen};
    FILE *screen = fopencookie(NULL, "w", functions);
    if (!screen) BUG("fopencookie: %s", strerror(errno));
    setvbuf(screen, buffer, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, sizeof buffer);
    stdout = screen;
}

bool screen_flush(void)
{
    bool bad = fflush(stdout) || ferror(stdout);
    pass(cut, n_cut, true, &bad);
    n_cut = 0;
    if (bad && why) errno = why;
    return !bad;
}
