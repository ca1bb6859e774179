#include "core/base/log.h"

#include "core/base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_INTERVAL_NS                                                                       \
    100000000 /* 10 Hz: faster than reading, slower than a terminal minds */
#define MESSAGE_BYTES 1024

static atomic_int level_now = LOG_LEVEL_INFO;
static atomic_bool progress_shown;
static atomic_llong progress_last_ns;

void log_set_level(enum log_level level) { atomic_store(&level_now, (int)level); }
bool log_shows(enum log_level level) { return (int)level <= atomic_load(&level_now); }

const char *log_safe(char *out, size_t n, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t used = 0, left = strlen(text);
    while (left) {
        uint32_t c = 0;
        size_t length = utf8_next(text, left, &c);
        bool plain = length && !utf8_is_control(c);
        if (!length) length = 1;
        size_t need = plain ? length : 4 * length;
        if (used + need >= n) break;
        for (size_t i = 0; i < length; i++) {
            unsigned char byte = (unsigned char)text[i];
            if (plain)
                out[used++] = text[i];
            else {
                out[used++] = '\\';
                out[used++] = 'x';
                out[used++] = hex[byte >> 4];
                out[used++] = hex[byte & 15];
            }
        }
        text += length;
        left -= length;
    }
    if (n) out[used] = 0;
    return out;
}

static bool colourful(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDERR_FILENO) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

/* One fwrite a line, so that ranks and threads do not mix within it. */
static void say(enum log_level level, const char *label, const char *colour, const char *fmt,
                va_list ap)
{
    if (!log_shows(level)) return;
    char text[MESSAGE_BYTES], safe[4 * MESSAGE_BYTES], line[4 * MESSAGE_BYTES + 64];
    vsnprintf(text, sizeof text, fmt, ap);
    log_safe(safe, sizeof safe, text);
    bool paint = *label && colourful(), wipe = atomic_exchange(&progress_shown, false);
    int n = snprintf(line, sizeof line, "%smusher: %s%s%s%s\n", wipe ? "\r\033[K" : "",
                     paint ? colour : "", label, paint ? "\033[0m" : "", safe);
    if (n > 0) fwrite(line, 1, (size_t)n, stderr);
}

#define MESSAGE(name, level, label, colour)                                                        \
    void name(const char *fmt, ...)                                                                \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        say(level, label, colour, fmt, ap);                                                        \
        va_end(ap);                                                                                \
    }

MESSAGE(log_error, LOG_LEVEL_ERROR, "", "")
MESSAGE(log_warn, LOG_LEVEL_WARN, "warning: ", "\033[33m")
MESSAGE(log_info, LOG_LEVEL_INFO, "", "")
MESSAGE(log_debug, LOG_LEVEL_DEBUG, "debug: ", "\033[2m")

void log_progress(const char *fmt, ...)
{
    if (!log_shows(LOG_LEVEL_INFO) || !isatty(STDERR_FILENO)) return;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long now = t.tv_sec * 1000000000LL + t.tv_nsec, last = atomic_load(&progress_last_ns);
    if (last && now - last < PROGRESS_INTERVAL_NS) return;
    if (!atomic_compare_exchange_strong(&progress_last_ns, &last, now)) return;
    char text[200], safe[256], line[sizeof safe + 16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int n = snprintf(line, sizeof line, "\r\033[K%s", log_safe(safe, sizeof safe, text));
    if (n > 0) fwrite(line, 1, (size_t)n, stderr);
    atomic_store(&progress_shown, true);
}

void log_progress_end(void)
{
    if (atomic_exchange(&progress_shown, false)) fputs("\r\033[K", stderr);
}
