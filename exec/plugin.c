/* exec/plugin.c - finds, opens and checks the CUDA plugin, once for the whole program. */
#include "exec/plugin.h"

#include "exec/plugin_file.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct plugin *opened; /* under the lock; set once */
static char opened_path[PLUGIN_PATH_MAX];

static const struct plugin_file file = {
    .what = "CUDA plugin",
    .name = "libmusher_cuda.so",
    .variable = "MUSHER_CUDA_PLUGIN",
    .made = "make builds it where nvcc, cuBLAS and NCCL are found",
    .needs = "are cuBLAS and the CUDA runtime installed here?",
    .entry = PLUGIN_ENTRY};

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

static enum status open_once(struct error *err)
{
    char path[PLUGIN_PATH_MAX];
    void *library = NULL, *symbol = NULL;
    plugin_entry *entry = NULL;
    if (opened) return OK;
    TRY(plugin_file_open(&file, path, &library, &symbol, err));
    /* POSIX makes functions of what dlsym gives; ISO C has no word for it. */
    memcpy(&entry, &symbol, sizeof entry);
    const struct plugin *p = entry();
    enum status st = check(p, path, err);
    if (st != OK) {
        dlclose(library);
        return st;
    }
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
