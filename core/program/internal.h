/* core/program/internal.h - shared by program_read, program_check and lowering; private to core/.
 */
#ifndef CORE_PROGRAM_INTERNAL_H
#define CORE_PROGRAM_INTERNAL_H

#include "core/program/program.h"

/* Above any realistic plan; bounds the cost of hostile files. */
enum {
    PROGRAM_MICROBATCHES_MAX = 1 << 20,
    PROGRAM_BUFFER_RING_MAX = 1 << 21,
    PROGRAM_ITEMS_MAX = 1 << 24,
    PROGRAM_PERIOD_MAX = 1 << 20, /* steps */
};

/* Every index in range, every slot inside its region, every operator's operands of the shapes that its
 * kind requires: afterwards interpreters need no checks. ERR_INPUT. O(size of the
 * program). */
enum program_section {
    SECTION_HEAD,
    SECTION_DEVICE,
    SECTION_LINK,
    SECTION_STAGE,
    SECTION_CHANNEL,
    SECTION_COLLECTIVE,
    SECTION_ORDER,
    SECTION_COUNT
};
struct program_place { /* which record of the file is meant: the item-th line after the index-th
                          record's first */
    enum program_section section;
    int32_t index, item;
};
/* where: NULL, or the record that the message concerns. */
MUST_CHECK enum status program_valid(const struct program *p, struct program_place *where,
                                     struct error *err);

struct blocked_buffer_ring {
    int32_t stage, buffer_ring;
};
/* program_check without program_valid; on deadlock *blocked gets the sent buffer rings that lanes wait for
 * (may be NULL). */
MUST_CHECK enum status program_play(struct arena *a, const struct program *p,
                                    struct blocked_buffer_ring **blocked, int32_t *n_blocked,
                                    struct error *err);

#endif
