/* core/base/error.h - error handling: status codes and error messages.
 *
 * A function that can fail returns enum status and takes a struct error * as its last argument. The text is
 * set once, where the cause is detected; callers prepend their context as the error propagates, so
 * the user reads one line: "plan 'a.plan': line 7: unknown device 'A101'".
 * Two failures are not errors: a bug in the program (BUG aborts) and lack of memory (arena.c ends the
 * program with exit code 6).
 * err may be NULL if the caller needs the status only. err is unchanged on success.
 * A text that is longer than ERROR_TEXT ends with "…" behind a whole word.
 */
#ifndef CORE_BASE_ERROR_H
#define CORE_BASE_ERROR_H

#include <stdarg.h>
#include <stddef.h>

/* Failure classes; their values are the program's exit codes. */
enum status {
    OK = 0,
    ERR_INTERNAL = 1, /* an unexpected failure of a library */
    ERR_USAGE = 2,    /* invalid command line */
    ERR_INPUT =
        3, /* a file is missing, malformed or contradictory; text has file:line:column or field path */
    ERR_INFEASIBLE = 4, /* no plan fits, or none was found in time; text has the nearest miss, or the limit */
    ERR_TOLERANCE = 5,     /* a requested tolerance is exceeded */
    ERR_RESOURCE = 6,      /* disk, memory or the operating system failed */
    ERR_RANK = 7,          /* a rank of a run failed */
    ERR_NO_DEVICE = 8,     /* no device of the requested kind: no plugin, no driver or no GPU */
    ERR_LIMIT = 75,        /* a run ended at a limit of its restarts (--min-devices, --max-lost); a later start may go on (EX_TEMPFAIL of sysexits.h) */
    ERR_INTERRUPTED = 130, /* SIGINT, SIGTERM, SIGHUP or SIGUSR1 */
};

/* Bytes of a text with its 0: a deadlock's list of lanes or an infeasible plan's stages take about 500. */
enum { ERROR_TEXT = 1000 };

struct error {
    enum status code;
    char text[ERROR_TEXT];
};

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum status error_set(struct error *err, enum status code, const char *fmt, ...) PRINTF_LIKE(3, 4);
enum status error_wrap(struct error *err, enum status code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* vsnprintf, but a text that does not fit ends with "…" behind a whole word. size > 3. Returns its length. */
size_t error_format(char *out, size_t size, const char *fmt, va_list ap);

/* Returns on failure; functions with resources outside an arena use goto done instead. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum status try_status_ = (call);                                                          \
        if (try_status_ != OK) return try_status_;                                                 \
    } while (0)

#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
__attribute__((noreturn)) void bug_at(const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

#endif
