/* core/base/sorted.h - binary search in rising numbers. */
#ifndef CORE_BASE_SORTED_H
#define CORE_BASE_SORTED_H

#include <stdint.h>

/* The first of n rising numbers that is at least `number`; n: none. O(log n). */
static inline int32_t sorted_place(const int32_t *numbers, int32_t n, int32_t number)
{
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (numbers[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
