/* tools/complete.h - shell completion: the candidates for the word under the cursor (tools/completion).
 *
 * `musher --complete WORD...` takes the words after the program's name; the last one may be incomplete. Each line of output is a
 * candidate, followed by a tab and its meaning if it has one; ":files" or ":folders" leaves paths to the shell. Candidates are verbs,
 * options, choices, and the devices and nodes of the cluster or plan file on the line. There are no errors: an unreadable file gives
 * no candidates.
 */
#ifndef TOOLS_COMPLETE_H
#define TOOLS_COMPLETE_H

#include <stdio.h>

void complete(int n_words, char **words, FILE *out);

#endif
