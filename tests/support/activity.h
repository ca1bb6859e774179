/* tests/support/activity.h - the stand-in's GPU and CUPTI's twin, for the suites of what ran below operators. */
#ifndef TESTS_SUPPORT_ACTIVITY_H
#define TESTS_SUPPORT_ACTIVITY_H

#include "core/base/error.h"

#include "tests/support/suites.h"

#include <limits.h>
#include <stdio.h>

/* Names a file of the build folder; this process has opened none yet. */
static inline void activity_choose(const char *variable, const char *file)
{
    const char *b = getenv("BUILD");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", b && *b ? b : "build", file);
    ck_assert_int_eq(setenv(variable, path, 1), 0);
}

static inline void activity_choose_standins(void)
{
    activity_choose("MUSHER_CUDA_PLUGIN", "libmusher_cuda_standin.so");
    activity_choose("MUSHER_CUPTI_PLUGIN", "libmusher_cupti_standin.so");
    setenv("MUSHER_NCCL", "/nowhere/libnccl.so.2", 1);
    setenv("STANDIN_NAME", "NVIDIA H100", 1);
}

/* Calls whose own failure changes nothing: they end a session, or only ask for less. */
static inline bool activity_may_pass(const char *call, enum status st)
{
    static const char *const those[] = {"Disable", "EnableRuntimeApi", "EnableDriverApi"};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (strstr(call, those[i])) return true;
    return !strcmp(call, "cuptiActivityFlushAll") && st == OK; /* the one of close */
}

#endif
