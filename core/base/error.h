/* core/base/error.h - how every function of this program says that it failed.
 *
 * A function that can fail returns enum status and takes a struct error * last. The text is
 * written once, where the cause is known; callers add where they were as the failure rises, so
 * the user reads one line: "plan 'a.plan': line 7: unknown device 'A101'".
 * Two things are not errors: a bug of ours (BUG aborts) and running out of memory (arena.c ends the
 * program with exit code 6).
 * err may be NULL: the caller wants the status alone. err is untouched on success.
 */
#ifndef CORE_BASE_ERROR_H
#define CORE_BASE_ERROR_H

/* The classes of failure are the exit codes of the program, so that a status needs no translation. */
enum status {
    OK = 0,
    ERR_INTERNAL = 1, /* a library said no in a way that no input explains */
    ERR_USAGE = 2,    /* the command line asks for something impossible */
    ERR_INPUT =
        3, /* a file is missing, malformed or contradictory; text has file:line:column or field path */
    ERR_INFEASIBLE = 4,    /* no plan fits; text has the nearest miss */
    ERR_TOLERANCE = 5,     /* a tolerance that was asked for is exceeded */
    ERR_RESOURCE = 6,      /* disk, memory or the operating system gave out */
    ERR_RANK = 7,          /* a rank of a run failed */
    ERR_NO_DEVICE = 8,     /* no device of the kind asked for: no plugin, no driver or no GPU */
    ERR_INTERRUPTED = 130, /* SIGINT, SIGTERM or SIGHUP */
};

struct error {
    enum status code;
    char text[480];
};

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum status error_set(struct error *err, enum status code, const char *fmt, ...) PRINTF_LIKE(3, 4);
enum status error_wrap(struct error *err, enum status code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* For callers that own nothing; one that owns something outside an arena uses goto done. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum status try_status_ = (call);                                                          \
        if (try_status_ != OK) return try_status_;                                                 \
    } while (0)

#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
__attribute__((noreturn)) void bug_at(const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

#endif
