#include "core/base/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS "seconds above 0"
#define FILE_NAME "path of a file"
#define TRANSPORTS "host or devices"
enum { TIMEOUT_S = 120 };

const struct setting settings[] = {
    {"MUSHER_TIMEOUT", SECONDS, "seconds without a sign of life after which a rank counts as failed (120)"},
    {"MUSHER_TRANSPORT", TRANSPORTS,
     "path of messages between GPUs: through host memory, or by NCCL (devices)"},
    {"MUSHER_NCCL", FILE_NAME, "NCCL library (libnccl.so.2 of the library path)"},
    {"MUSHER_CUDA_PLUGIN", FILE_NAME, "CUDA plugin (libmusher_cuda.so beside the program, or in ../lib/musher)"},
    {"MUSHER_CUPTI_PLUGIN", FILE_NAME, "CUPTI plugin (libmusher_cupti.so, likewise)"},
    {"MUSHER_ANY_GPU", "1", "accepts a GPU that differs from the cluster file (refused)"},
    {"MUSHER_CUDA_WAIT", "1", "synchronises after every operator, so that an error names the right one (off)"},
    {"MUSHER_BLAS_CLOCK", "1", "measures the time inside BLAS, at some cost (off)"},
    {"MUSHER_LAUNCHED", "1", "internal: set by the launcher for its ranks"},
    {0}};

static const char *value_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* 0: it is none. */
static double seconds(const char *text)
{
    char *end;
    double s = strtod(text, &end);
    return end != text && !*end && isfinite(s) && s > 0 && s < 1e9 ? s : 0;
}

static bool may_be(const struct setting *s, const char *text)
{
    if (!strcmp(s->values, FILE_NAME)) return true; /* who opens it says what is wrong with it */
    if (!strcmp(s->values, SECONDS)) return seconds(text) > 0;
    if (!strcmp(s->values, TRANSPORTS)) return !strcmp(text, "host") || !strcmp(text, "devices");
    return !strcmp(s->values, text);
}

enum status settings_check(struct error *err)
{
    for (const struct setting *s = settings; s->name; s++) {
        const char *text = value_of(s->name);
        if (text && !may_be(s, text))
            return error_set(err, ERR_USAGE, "environment variable %s: '%s', expected %s", s->name,
                             text, s->values);
    }
    return OK;
}

bool settings_on(const char *name)
{
    const char *text = value_of(name);
    return text && !strcmp(text, "1");
}

bool settings_host_transport(void)
{
    const char *text = value_of("MUSHER_TRANSPORT");
    return text && !strcmp(text, "host");
}

double settings_timeout_s(void)
{
    const char *text = value_of("MUSHER_TIMEOUT");
    double s = text ? seconds(text) : 0;
    return s > 0 ? s : TIMEOUT_S;
}
