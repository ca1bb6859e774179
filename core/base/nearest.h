/* core/base/nearest.h - "did you mean": the known name nearest to a mistyped word.
 *
 * Damerau-Levenshtein distance: insertions, deletions, substitutions and transpositions of neighbours; case does not count. The
 * distance to the part of a name before a dash counts half an error more. Of equally near names the one with the longest common
 * prefix, then the first. At most a third of the letters may be wrong, and never all of them; words of more than NEAREST_WORD
 * letters have no nearest name. O(length²) a name.
 */
#ifndef CORE_BASE_NEAREST_H
#define CORE_BASE_NEAREST_H

enum { NEAREST_WORD = 40, NEAREST_HINT = NEAREST_WORD + 24 };

struct nearest {
    const char *word, *best; /* best: NULL while no name is near enough */
    int distance, prefix; /* half errors; common letters */
};

struct nearest nearest_to(const char *word);
void nearest_try(struct nearest *q, const char *name);
/* "; did you mean 'NAME'?" in buffer, or "". */
const char *nearest_hint(const struct nearest *q, char buffer[NEAREST_HINT]);
/* The same in one call, for the names of a NULL-ended list: the name or NULL, and the hint. */
const char *nearest_name(const char *word, const char *const *names);
const char *nearest_name_hint(const char *word, const char *const *names,
                              char buffer[NEAREST_HINT]);

#endif
