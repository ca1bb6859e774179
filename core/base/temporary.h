/* Temporary files of this process: the table of those that exist, so that an abnormal exit removes them.
 *
 * A change of names (a file created, renamed or removed) and of the table stands between temporary_begin_change and
 * temporary_end_change: no signal interrupts it, and a thread that ends the program lets the others complete theirs. */
#ifndef CORE_BASE_TEMPORARY_H
#define CORE_BASE_TEMPORARY_H

#include <signal.h>

/* before receives the signal mask that temporary_end_change restores. Does not return in a thread of a program that another thread
 * ends. */
void temporary_begin_change(sigset_t *before);
void temporary_end_change(const sigset_t *before);

/* Adds path to the table; back: what path is renamed to at an abnormal exit, "" if path is removed then. At most 32 entries. */
void temporary_remember(const char *path, const char *back);
void temporary_forget(const char *path);
/* Removes path, or renames it to back unless that is "". Async-signal-safe. */
void temporary_undo(const char *path, const char *back);

/* Undoes every entry of this process: for a signal handler or just before _exit. Async-signal-safe. Other threads create no
 * temporary afterwards. */
void temporary_remove_all(void);

#endif
