/* exec/plugin.c - finds, opens and checks the CUDA plugin, once for the whole program. */
#include "exec/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "libmusher_cuda.so"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct plugin *opened; /* under the lock; set once */
static char opened_path[PATH_MAX + 64];

/* Of this program's file, without a slash at the end; "." where the system does not say. */
static void own_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n > 0) out[n] = 0;
    char *slash = n > 0 ? strrchr(out, '/') : NULL;
    if (slash)
        *slash = 0;
    else
        snprintf(out, PATH_MAX, ".");
}

/* The first place where the file is; ERR_NO_DEVICE names all of them. */
static enum status find(char *path, size_t n, struct error *err)
{
    static const char *const places[] = {"", "/../lib/musher"};
    const char *named = getenv("MUSHER_CUDA_PLUGIN");
    char folder[PATH_MAX];
    if (named && *named) {
        snprintf(path, n, "%s", named);
        if (access(path, R_OK) == 0) return OK;
        return error_set(err, ERR_NO_DEVICE,
                         "no CUDA plugin: MUSHER_CUDA_PLUGIN names %s, which is not there", named);
    }
    own_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, n, "%s%s/" FILE_NAME, folder, places[i]);
        if (access(path, R_OK) == 0) return OK;
    }
    return error_set(err, ERR_NO_DEVICE,
                     "no CUDA plugin: " FILE_NAME " is neither beside this program nor in "
                     "../lib/musher; make builds it where nvcc, cuBLAS and NCCL are found, "
                     "MUSHER_CUDA_PLUGIN names one that lies elsewhere");
}

static enum status check(const struct plugin *p, const char *path, struct error *err)
{
    static const struct plugin own = {PLUGIN_NUMBERS};
    if (!p || p->abi != PLUGIN_ABI)
        return error_set(err, ERR_NO_DEVICE,
                         "CUDA plugin %s has ABI %d, this program %d: build both from the same "
                         "sources",
                         path, p ? (int)p->abi : 0, (int)PLUGIN_ABI);
    if (p->backend_abi != own.backend_abi)
        return error_set(err, ERR_NO_DEVICE,
                         "CUDA plugin %s has a backend of ABI %d, this program %d: build both from "
                         "the same sources",
                         path, (int)p->backend_abi, (int)own.backend_abi);
    if (p->kinds != own.kinds || p->attrs_bytes != own.attrs_bytes ||
        p->call_bytes != own.call_bytes || p->backend_bytes != own.backend_bytes ||
        p->plugin_bytes != own.plugin_bytes)
        return error_set(err, ERR_NO_DEVICE,
                         "CUDA plugin %s knows other operators (%d kinds) than this program (%d): "
                         "build both from the same sources",
                         path, (int)p->kinds, (int)own.kinds);
    return OK;
}

static enum status open_at(const char *path, const struct plugin **out, struct error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(err, ERR_NO_DEVICE,
                         "the CUDA plugin cannot be opened: %s (are cuBLAS and the CUDA runtime "
                         "installed here?)",
                         dlerror());
    /* POSIX makes functions of what dlsym gives; ISO C has no word for it. */
    plugin_entry *entry = NULL;
    void *symbol = dlsym(library, PLUGIN_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    enum status st = OK;
    if (!entry)
        st = error_set(err, ERR_NO_DEVICE,
                       "%s is no plugin of this program: it has no " PLUGIN_ENTRY, path);
    else
        st = check(*out = entry(), path, err);
    if (st != OK) dlclose(library);
    return st;
}

static enum status open_once(struct error *err)
{
    char path[sizeof opened_path];
    const struct plugin *p = NULL;
    if (opened) return OK;
    TRY(find(path, sizeof path, err));
    TRY(open_at(path, &p, err));
    memcpy(opened_path, path, sizeof path);
    opened = p;
    return OK;
}

enum status plugin_cuda(const struct plugin **out, struct error *err)
{
    pthread_mutex_lock(&lock);
    enum status st = open_once(err);
    *out = opened;
    pthread_mutex_unlock(&lock);
    return st;
}

const char *plugin_path(void) { return opened_path; }

enum status plugin_open_backend(const char *kind, struct backend *out, struct error *err)
{
    const struct plugin *p = NULL;
    if (!strcmp(kind, "host")) {
        backend_host(out);
        return OK;
    }
    if (strcmp(kind, "cuda") != 0)
        return error_set(err, ERR_INPUT, "no devices of kind '%s'; there are host, cuda", kind);
    TRY(plugin_cuda(&p, err));
    p->backend(out);
    return OK;
}
