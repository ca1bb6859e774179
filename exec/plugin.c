/* exec/plugin.c - finds, opens and checks plugins, each once for the whole program. */
#include "exec/plugin.h"

#include "exec/plugin_file.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { PLUGINS_MAX = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { /* protected by the lock; set once */
    const struct plugin *plugin;
    char path[PLUGIN_PATH_MAX];
} opened[PLUGINS_MAX];

static enum status check(const char *kind, const struct plugin *p, const char *path,
                         struct error *err)
{
    static const struct plugin own = {PLUGIN_NUMBERS};
    char title[PLUGIN_TITLE_MAX];
    plugin_file_title(title, kind);
    if (!p || p->abi != PLUGIN_ABI)
        return error_set(err, ERR_NO_DEVICE,
                         "%s %s has ABI %d, this program %d: build both from the same "
                         "sources",
                         title, path, p ? (int)p->abi : 0, (int)PLUGIN_ABI);
    if (p->backend_abi != own.backend_abi)
        return error_set(err, ERR_NO_DEVICE,
                         "%s %s has a backend of ABI %d, this program %d: build both from "
                         "the same sources",
                         title, path, (int)p->backend_abi, (int)own.backend_abi);
    if (p->kinds != own.kinds || p->attrs_bytes != own.attrs_bytes ||
        p->call_bytes != own.call_bytes || p->backend_bytes != own.backend_bytes ||
        p->plugin_bytes != own.plugin_bytes)
        return error_set(err, ERR_NO_DEVICE,
                         "%s %s has other operators (%d kinds) than this program (%d): "
                         "build both from the same sources",
                         title, path, (int)p->kinds, (int)own.kinds);
    if (!p->kind || strcmp(p->kind, kind) != 0)
        return error_set(err, ERR_NO_DEVICE, "%s %s is for backend '%s'", title, path,
                         p->kind ? p->kind : "");
    return OK;
}

/* The backend's index in `opened`; a new one if it is not open. */
static int32_t place_of(const char *kind)
{
    int32_t i = 0;
    while (i < PLUGINS_MAX && opened[i].plugin && strcmp(opened[i].plugin->kind, kind) != 0) i++;
    return i;
}

static enum status open_once(const char *kind, const struct plugin **out, struct error *err)
{
    char path[PLUGIN_PATH_MAX];
    void *library = NULL, *symbol = NULL;
    plugin_entry *entry = NULL;
    int32_t at = place_of(kind);
    if (at == PLUGINS_MAX)
        return error_set(err, ERR_RESOURCE, "%s: %d plugins are open already", kind, PLUGINS_MAX);
    if (!opened[at].plugin) {
        TRY(plugin_file_open(kind, PLUGIN_ENTRY, path, &library, &symbol, err));
        /* POSIX allows the conversion of dlsym's result to a function; ISO C has no cast for it. */
        memcpy(&entry, &symbol, sizeof entry);
        const struct plugin *p = entry();
        enum status st = check(kind, p, path, err);
        if (st != OK) {
            dlclose(library);
            return st;
        }
        memcpy(opened[at].path, path, sizeof path);
        opened[at].plugin = p;
    }
    *out = opened[at].plugin;
    return OK;
}

enum status plugin_of(const char *kind, const struct plugin **out, struct error *err)
{
    pthread_mutex_lock(&lock);
    enum status st = open_once(kind, out, err);
    pthread_mutex_unlock(&lock);
    return st;
}

const char *plugin_path(const char *kind)
{
    int32_t at = place_of(kind);
    return at < PLUGINS_MAX ? opened[at].path : "";
}

enum status plugin_open_backend(const char *kind, struct backend *out, struct error *err)
{
    const struct plugin *p = NULL;
    if (!strcmp(kind, "host")) {
        backend_host(out);
        return OK;
    }
    if (!strcmp(kind, "none"))
        return error_set(err, ERR_INPUT,
                         "these devices have no backend: they can be planned and simulated, not run");
    TRY(plugin_of(kind, &p, err));
    p->backend(out);
    return OK;
}
