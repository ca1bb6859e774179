/* core/model/checkpoint_interval.h - the interval of work between checkpoints that loses the least time to checkpoints and failures.
 *
 * Seconds: C of training lost to one checkpoint, M mean time between failures (exponential), or INFINITY. */
#ifndef CORE_MODEL_CHECKPOINT_INTERVAL_H
#define CORE_MODEL_CHECKPOINT_INTERVAL_H

double checkpoint_interval_young(double C, double M); /* √(2CM): Young, CACM 17 (1974) 530 */
/* √(2CM) (1 + ⅓√(C/2M) + ⅑ C/2M) − C for C < 2M, else M: Daly, FGCS 22 (2006) 303. */
double checkpoint_interval_daly(double C, double M);

#endif
