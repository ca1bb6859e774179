/* tools/launch/shell.h - parts of files that several engines have: words, variables, the command of the ranks. */
#ifndef TOOLS_LAUNCH_SHELL_H
#define TOOLS_LAUNCH_SHELL_H

#include "tools/launch/launch.h"

/* As one word of a POSIX shell: as it is, or between single quotes. */
void shell_word(FILE *out, const char *text);
/* The first n bytes as a double-quoted text of YAML and Python. They have no control characters. */
void shell_text(FILE *out, const char *text, size_t n);
/* `export NAME='VALUE'` for --env, and one BLAS thread a rank unless the environment states another number. */
void shell_env(FILE *out, const struct launch *l);
/* `run=(musher run PLAN …)`: with checkpoints, it continues from the newest one. any_host: the plan's host names do not count. */
void shell_run(FILE *out, const struct launch *l, bool any_host);
/* The options of mpirun before the program, but for how it reaches hosts: ranks in the order of the lines of "$here/hosts", one line a
 * rank (the sequential mapper), and the variables of shell_env. */
void shell_mpirun(FILE *out, const struct launch *l);

#endif
