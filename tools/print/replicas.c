#include "tools/print/replicas.h"

#include "core/base/arena.h"
#include "tools/print/classes.h"

#include <stdio.h>

void print_replicas(struct arena *a, const struct plan *p, int indent, bool all)
{
    int32_t n = p->n_replicas;
    const char **lines = all ? NULL : plan_describe_classes(a, p, &n);
    int32_t shown = all || n <= PRINT_CLASSES_MOST ? n : PRINT_CLASSES_MOST;
    for (int32_t i = 0; i < shown; i++)
        printf("%*s%s\n", indent, "", all ? plan_describe_replica(a, p, i) : lines[i]);
    if (shown < n)
        printf("%*sand %d more classes of replicas (musher show --all)\n", indent, "",
               (int)(n - shown));
}
