/* core/lower/launches.h - which gradient groups a stage's last weight gradients launch. */
#ifndef CORE_LOWER_LAUNCHES_H
#define CORE_LOWER_LAUNCHES_H

#include <stdbool.h>
#include <stdint.h>

struct lowering;
struct stage_scratch;

struct stage_launches {
    int32_t n, *group; /* of the device, ascending */
    bool late;         /* all of them when its last weight gradients are all there */
};

/* Once groups and orders stand. O(devices² + groups of a device · log). */
void lower_launches(struct lowering *l);
/* Instruction after which a group may be launched by the stage, at most `end`; another chunk's has long been complete. */
int32_t lower_complete_at(const struct stage_scratch *h, int32_t group, int32_t end);

#endif
