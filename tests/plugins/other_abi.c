/* tests/plugins/other_abi.c - a plugin of another time: of it no more than the first number may be read. */
#include <stdint.h>

const int32_t *musher_plugin(void);

const int32_t *musher_plugin(void)
{
    static const int32_t abi[1] = {99};
    return abi;
}
