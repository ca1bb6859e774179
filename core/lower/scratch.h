/* core/lower/scratch.h - offsets of slots whose lifetime is one procedure. */
#ifndef CORE_LOWER_SCRATCH_H
#define CORE_LOWER_SCRATCH_H

struct stage_scratch;

void lower_scratch(const struct stage_scratch *h); /* requires the procedures */

#endif
