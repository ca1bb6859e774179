#include "exec/device_check.h"

#include "core/base/settings.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The dtypes of a device, by name. */
static const char *dtypes_of(uint32_t bits, char *out, size_t room)
{
    size_t n = 0;
    out[0] = 0;
    for (int t = 0; t < DTYPE_COUNT && n < room; t++)
        if (bits & 1u << t && (enum dtype)t != DTYPE_int32)
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "",
                                  dtype_name((enum dtype)t));
    return out;
}

/* Whether the text at `at` begins with the GPU's name, ignoring separators, and no further digit follows. The name ends at the
 * first separator behind a digit: "A100", "RTX-2080". */
static bool begins(const char *at, const char *gpu)
{
    bool digit = false;
    for (; *gpu && !(digit && *gpu == '-'); gpu++) {
        if (*gpu == '-') continue;
        while (*at == ' ' || *at == '-') at++;
        if (tolower((unsigned char)*at) != tolower((unsigned char)*gpu)) return false;
        digit |= isdigit((unsigned char)*gpu) != 0;
        at++;
    }
    return !isdigit((unsigned char)*at);
}

/* Whether a device's name matches the catalogue's type: "A100-SXM4-40" is an A100 and no A1000. */
static bool is_called(const char *name, const char *gpu)
{
    for (const char *at = name; *at; at++)
        if ((at == name || !isalnum((unsigned char)at[-1])) && begins(at, gpu)) return true;
    return false;
}

/* Usable fraction of a type's nominal memory, after ECC and the driver's reserve. */
#define NOMINAL 0.9

enum status device_check_gpu(const struct program *p, const struct program_device *d,
                                          const struct backend_device *is, struct error *err)
{
    char can[96];
    if (!(is->dtypes & 1u << p->dtype))
        return error_set(err, ERR_INPUT, "device %s is %s, which does not support %s, only %s",
                         d->name, is->name, dtype_name(p->dtype),
                         dtypes_of(is->dtypes, can, sizeof can));
    if (p->emulated) return OK;
    if (settings_on("MUSHER_ANY_GPU")) return OK;
    if (d->gpu && *d->gpu && !is_called(is->name, d->gpu))
        return error_set(err, ERR_INPUT,
                         "device %s is to be %s (type %s), but number %" PRId32
                         " of this host is %s",
                         d->name, d->gpu, d->type, d->index, is->name);
    if ((double)is->memory_bytes < NOMINAL * (double)d->memory_bytes)
        return error_set(err, ERR_INPUT,
                         "device %s is to have %" PRId64
                         " bytes of memory (type %s); number %" PRId32
                         " of this host, %s, has %" PRId64,
                         d->name, d->memory_bytes, d->type, d->index, is->name, is->memory_bytes);
    return OK;
}
