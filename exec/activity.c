#include "exec/activity.h"

#include "exec/plugin_file.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct activity *opened; /* protected by the lock; set once, because a host has one vendor's profiler */

static enum status check(const struct activity *p, const char *path, struct error *err)
{
    static const struct activity own = {ACTIVITY_NUMBERS};
    if (!p || p->abi != own.abi)
        return error_set(
            err, ERR_NO_DEVICE,
            "CUPTI plugin %s has ABI %d, this program %d: build both from the same sources", path,
            p ? (int)p->abi : 0, (int)own.abi);
    if (p->record_bytes != own.record_bytes || p->log_bytes != own.log_bytes ||
        p->activity_bytes != own.activity_bytes)
        return error_set(err, ERR_NO_DEVICE,
                         "CUPTI plugin %s has other record sizes than this program: build both from the "
                         "same sources",
                         path);
    return OK;
}

static enum status open_once(const char *name, struct error *err)
{
    char path[PLUGIN_PATH_MAX];
    void *library = NULL, *symbol = NULL;
    activity_entry *entry = NULL;
    if (opened) return OK;
    TRY(plugin_file_open(name, ACTIVITY_ENTRY, path, &library, &symbol, err));
    /* POSIX allows the conversion of dlsym's result to a function; ISO C has no cast for it. */
    memcpy(&entry, &symbol, sizeof entry);
    const struct activity *p = entry();
    enum status st = check(p, path, err);
    if (st == OK)
        opened = p;
    else
        dlclose(library);
    return st;
}

enum status activity_plugin(const char *name, const struct activity **out, struct error *err)
{
    pthread_mutex_lock(&lock);
    enum status st = open_once(name, err);
    *out = opened;
    pthread_mutex_unlock(&lock);
    return st;
}
