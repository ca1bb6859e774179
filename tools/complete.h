/* tools/complete.h - what a shell may offer for the word under the cursor (tools/completion).
 *
 * `musher --complete WORD...`: the words of the line behind the program's name, the last one as far as it is typed. Output, a line
 * each: a candidate, then a tab and its meaning where there is one; ":files" or ":folders" where the shell completes paths.
 * Verbs, options, choices, and the devices and nodes of the cluster or plan file on the line. Nothing fails.
 */
#ifndef TOOLS_COMPLETE_H
#define TOOLS_COMPLETE_H

#include <stdio.h>

void complete(int n_words, char **words, FILE *out);

#endif
