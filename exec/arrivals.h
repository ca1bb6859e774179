/* exec/arrivals.h - the order in which parameter servers handled the pushes of their workers, and its file.
 *
 * A text file: "musher-arrivals 1", the plan's hash and the steps before the run in the first line, then a line for each push, in the order
 * of each server: server, worker, step (from 1 over the whole training), staleness, "applied" or "dropped". */
#ifndef EXEC_ARRIVALS_H
#define EXEC_ARRIVALS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

struct arrival {
    int32_t server, worker; /* from 0 */
    bool dropped;
    int64_t step, staleness;
};
struct arrivals {
    struct arena *a;
    struct arrival *list;
    int64_t n;
    size_t capacity;
};

void arrivals_add(struct arrivals *x, struct arrival one);
MUST_CHECK enum status arrivals_write(const char *path, const struct arrivals *x, uint64_t plan_hash, int64_t first_step, struct error *err);
/* Those of one server; server -1: of all. ERR_INPUT with file:line: not such a file, or of another plan or first step. */
MUST_CHECK enum status arrivals_read(struct arena *a, const char *path, uint64_t plan_hash, int64_t first_step, int32_t server,
                                     struct arrivals *out, struct error *err);

#endif
