/* tests/plugins/old_activity.c - a CUPTI plugin of another time: of it no more than the first number may be read. */
#include <stdint.h>

const int32_t *musher_activity(void);

const int32_t *musher_activity(void)
{
    static const int32_t abi[1] = {99};
    return abi;
}
