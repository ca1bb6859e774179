#include "core/base/nearest.h"

#include <ctype.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_LETTERS = 3 }; /* at least, before a dash: shorter ones are near to many words */

static int at_most(int x, int y) { return x < y ? x : y; }
static bool differ(char x, char y) { return tolower((unsigned char)x) != tolower((unsigned char)y); }

/* Damerau's distance (insert, delete, change, swap neighbours) from `a` to the first j letters of b, for each j; O(length^2).
 * Returns the last row of the table, in `row`; NULL: too long. */
static const int *distances(const char *a, const char *b, int row[3][NEAREST_WORD + 1])
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > NEAREST_WORD || m > NEAREST_WORD) return NULL;
    for (int j = 0; j <= m; j++) row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *before = row[(i + 2) % 3], *two_before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int cost = differ(a[i - 1], b[j - 1]);
            now[j] = at_most(at_most(before[j] + 1, now[j - 1] + 1), before[j - 1] + cost);
            if (i > 1 && j > 1 && !differ(a[i - 1], b[j - 2]) && !differ(a[i - 2], b[j - 1]))
                now[j] = at_most(now[j], two_before[j - 2] + 1);
        }
    }
    return row[n % 3];
}

/* Twice the distance to the name, or once more than twice that to its part before a dash: "H101" is near to "H100-SXM5". */
static int distance(const char *word, const char *name)
{
    int row[3][NEAREST_WORD + 1];
    const int *to = distances(word, name, row);
    if (!to) return 2 * NEAREST_WORD;
    int least = 2 * to[strlen(name)];
    for (int j = 0; name[j]; j++)
        if (j >= HEAD_LETTERS && name[j] == '-') least = at_most(least, 2 * to[j] + 1);
    return least;
}

static int common_prefix(const char *a, const char *b)
{
    int n = 0;
    while (a[n] && b[n] && !differ(a[n], b[n])) n++;
    return n;
}

struct nearest nearest_to(const char *word)
{
    int limit = (int)strlen(word) / 3 + 1;
    return (struct nearest){.word = word, .distance = limit < 3 ? 2 * limit + 2 : 8};
}

void nearest_try(struct nearest *q, const char *name)
{
    int d = distance(q->word, name), prefix = common_prefix(q->word, name);
    if (d > q->distance || (d == q->distance && (!q->best || prefix <= q->prefix))) return;
    q->distance = d, q->prefix = prefix, q->best = name;
}

const char *nearest_hint(const struct nearest *q, char buffer[NEAREST_HINT])
{
    buffer[0] = 0;
    if (q->best) snprintf(buffer, NEAREST_HINT, "; did you mean '%s'?", q->best);
    return buffer;
}

const char *nearest_name(const char *word, const char *const *names)
{
    struct nearest q = nearest_to(word);
    for (; *names; names++) nearest_try(&q, *names);
    return q.best;
}

const char *nearest_name_hint(const char *word, const char *const *names, char buffer[NEAREST_HINT])
{
    struct nearest q = nearest_to(word);
    for (; *names; names++) nearest_try(&q, *names);
    return nearest_hint(&q, buffer);
}
