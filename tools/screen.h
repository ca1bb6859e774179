/* tools/screen.h - the filter in front of standard output: control characters are escaped.
 *
 * Names come from files of any origin (tables, traces, databases) and from the command line; an escape sequence in one of them could
 * control the terminal. After screen_open every control character except line end and tab, and every byte that is not UTF-8, is
 * printed as \xNN (core/base/log.h). Formats that musher writes escape such characters by their own rules and pass unchanged.
 */
#ifndef TOOLS_SCREEN_H
#define TOOLS_SCREEN_H

#include <stdbool.h>

void screen_open(void); /* replaces stdout; once, before anything is printed */
bool screen_flush(
    void); /* flushes stdout, an incomplete character too; false if any write so far failed, with errno of the first failure */

#endif
