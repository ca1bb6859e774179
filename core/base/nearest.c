#include "core/base/nearest.h"

#include <ctype.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int at_most(int x, int y) { return x < y ? x : y; }
static bool differ(char x, char y) { return tolower((unsigned char)x) != tolower((unsigned char)y); }

/* Damerau's distance (insert, delete, change, swap neighbours), O(length^2). */
static int distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    int row[3][NEAREST_WORD + 1];
    if (n > NEAREST_WORD || m > NEAREST_WORD) return NEAREST_WORD;
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
    return row[n % 3][m];
}

struct nearest nearest_to(const char *word)
{
    int limit = (int)strlen(word) / 3 + 1;
    return (struct nearest){.word = word, .distance = limit < 3 ? limit + 1 : 4};
}

void nearest_try(struct nearest *q, const char *name)
{
    int d = distance(q->word, name);
    if (d < q->distance) q->distance = d, q->best = name;
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
