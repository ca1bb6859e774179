/* core/program/valid.h - shared by core/program/valid*.c, private to them. */
#ifndef CORE_PROGRAM_VALID_H
#define CORE_PROGRAM_VALID_H

#include "core/program/internal.h"

enum { VALID_ALIGN_BYTES = 64 };

struct valid {
    const struct program *p;
    const struct program_stage *s; /* the current stage */
    struct program_place where;
    struct error *err;
};

enum status valid_complain(const struct valid *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) return valid_complain(c, __VA_ARGS__);                                   \
    } while (0)

static inline bool valid_index(int64_t i, int64_t n) { return i >= 0 && i < n; }
static inline bool valid_index_or_none(int64_t i, int64_t n) { return i >= -1 && i < n; }

/* Whether the stage has the slot, with this class and shape. */
static inline bool valid_slot(const struct valid *c, int32_t slot, enum slot_class class, const struct shape *shape)
{
    return valid_index(slot, c->s->n_slots) && c->s->slots[slot].class == class && shape_equal(&c->s->slots[slot].shape, shape);
}

/* core/program/io_training.c: the program's optimizers and loss scale; of the current stage, the slots that they need. */
MUST_CHECK enum status valid_training(struct valid *c);
MUST_CHECK enum status valid_stage_training(struct valid *c);
/* A collective of the program: indices, sizes, links, classes and dtypes of its segments. */
MUST_CHECK enum status valid_collective(struct valid *c, int32_t index);

/* Of the current stage. */
MUST_CHECK enum status valid_offload(const struct valid *c);

/* core/program/servers.c: a channel `by_step`; stages and lanes of parameter servers and their workers, after all else. */
MUST_CHECK enum status valid_server_channel(struct valid *c, int32_t index);
MUST_CHECK enum status valid_servers(struct valid *c);

#endif
