#include "core/model/checkpoint_interval.h"

#include <math.h>

double checkpoint_interval_young(double C, double M) { return sqrt(2 * C * M); }

double checkpoint_interval_daly(double C, double M)
{
    double x = C / (2 * M);
    return x < 1 ? sqrt(2 * C * M) * (1 + sqrt(x) / 3 + x / 9) - C : M;
}
