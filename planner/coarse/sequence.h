/* planner/coarse/sequence.h - stages of a pipeline in any order of classes and numbers of GPUs.
 *
 * A replica has floor(N / D) GPUs of each class. A dynamic program over (GPUs used of each class, class and degree of the stage) minimises
 * the layers that remain in front, at a given pace, from the last stage to the first; the least pace is found by bisection.
 * O(bisection steps · states · degrees² · log layers), states = Π (GPUs + 1), at most SEQUENCE_STATES.
 */
#ifndef PLANNER_COARSE_SEQUENCE_H
#define PLANNER_COARSE_SEQUENCE_H

#include "planner/coarse/line.h"

enum { SEQUENCE_STATES = 128, SEQUENCE_STAGES = 12 };

/* Offers a line with stages, without devices and layers. */
typedef void sequence_found(void *of, const struct coarse_stage *stages, int32_t n);
/* Sequences of stages of the classes: the least pace, and a little more with fewer stages; each also without stages of one GPU. */
void coarse_sequences(struct coarse *q, uint32_t classes, int32_t replicas, sequence_found *found,
                      void *of);

#endif
