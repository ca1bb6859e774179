/* tests/gpu/plain/zlib.h - the checksum that data and checkpoints use, for machines without zlib. */
#ifndef TESTS_GPU_PLAIN_ZLIB_H
#define TESTS_GPU_PLAIN_ZLIB_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long uLong;
typedef unsigned char Bytef;

/* CRC-32 (ISO 3309: reflected, polynomial 0xEDB88320), a bit at a time. */
static inline uLong crc32_z(uLong crc, const Bytef *p, size_t n)
{
    uint32_t c = ~(uint32_t)crc;
    if (!p) return 0;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (UINT32_C(0xEDB88320) & -(c & 1));
    }
    return ~c;
}

#endif
