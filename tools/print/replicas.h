/* tools/print/replicas.h - the replicas of a plan: a paragraph each, or one for each class of equal replicas. */
#ifndef TOOLS_PRINT_REPLICAS_H
#define TOOLS_PRINT_REPLICAS_H

#include "core/plan/plan.h"

struct arena;

/* From column `at` on, wrapped at the terminal's width and continued at column `indent`. One class ends its line; several begin with
 * their number and then stand one below the other. More than PRINT_CLASSES_MOST are cut, with their number. all: every replica, with
 * all names. devices: the devices of a class follow it. */
struct print_replicas {
    int at, indent;
    bool all, devices;
};
void print_replicas(struct arena *a, const struct plan *p, struct print_replicas how);

#endif
