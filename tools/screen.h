/* tools/screen.h - the stream through which everything goes to standard output.
 *
 * Names come from files of any origin: tables, traces, databases, the command line. Behind screen_open every control character
 * but line end and tab, and every byte that is no UTF-8, leaves the process as \xNN (core/base/log.h), whoever printed it and in
 * whatever form, so that no name commands a terminal. Formats that musher writes escape such characters by their own rules and
 * pass unchanged.
 */
#ifndef TOOLS_SCREEN_H
#define TOOLS_SCREEN_H

#include <stdbool.h>

void screen_open(void); /* replaces stdout; once, before anything is printed */
bool screen_flush(
    void); /* what stdout holds goes out, a character that was cut short too; false where any write failed: errno is the first failure's */

#endif
