/* core/lower/launches.h - the gradient groups that a stage's last weight gradients launch. */
#ifndef CORE_LOWER_LAUNCHES_H
#define CORE_LOWER_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lowering;
struct stage_scratch;

struct stage_launches {
    int32_t n, *group; /* of the device, ascending */
    bool late;         /* all at the end of its last weight gradients */
    size_t capacity;
};

/* Requires groups and orders. O(groups of the devices of a stage · log) a device. */
void lower_launches(struct lowering *l);
/* Instruction after which the stage may launch a group, at most `end`; groups of another chunk are complete long before. */
int32_t lower_complete_at(const struct stage_scratch *h, int32_t group, int32_t end);

#endif
