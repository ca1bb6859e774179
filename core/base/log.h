/* core/base/log.h - messages on stderr; stdout is for data only.
 *
 * A message is one line. Text from files and names is escaped before it is printed:
 * control characters and broken UTF-8 become \xNN, so that a device called "\033[2J" cannot clear the terminal.
 * Colour only on a terminal and without NO_COLOR. May be called from any thread.
 */
#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level); /* -q: error; default: info; -v: debug */
bool log_shows(enum log_level level);     /* whether the level is printed, for messages that are costly to make */

void log_error(const char *fmt, ...) PRINTF_LIKE(1, 2); /* "musher: ..." */
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);  /* "musher: warning: ..." */
void log_info(const char *fmt, ...) PRINTF_LIKE(1, 2);  /* "musher: ..." */
void log_debug(const char *fmt, ...) PRINTF_LIKE(1, 2); /* "musher: debug: ..." */

/* A progress line that the next one replaces: only on a terminal, at most ten times a second. */
void log_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_progress_end(void); /* clears the line; every other message does so itself */

/* Escapes text into out (n bytes with the final 0; truncated if longer). Returns out. */
const char *log_safe(char *out, size_t n, const char *text);

#endif
