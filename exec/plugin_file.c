#include "exec/plugin_file.h"

#include "core/base/file.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Folder of this program's file, without a trailing slash; "." if unknown. */
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

/* Hints for a plugin that is missing or cannot be opened. */
static const struct hint {
    const char *name, *made, *needs;
} hints[] = {{"cuda", "`make` builds it where it finds nvcc, cuBLAS and NCCL",
              "are cuBLAS and the CUDA runtime installed here?"},
             {"cupti",
              "`make` builds it with the CUDA plugin if it finds CUPTI in the toolkit",
              "is CUPTI installed here?"},
             {NULL, "build it from the sources of this program",
              "are the libraries it needs installed here?"}};

static const struct hint *hint_of(const char *name)
{
    const struct hint *h = hints;
    while (h->name && strcmp(h->name, name) != 0) h++;
    return h;
}

const char *plugin_file_title(char out[PLUGIN_TITLE_MAX], const char *name)
{
    snprintf(out, PLUGIN_TITLE_MAX, "%s plugin", name);
    for (char *c = out; *c != ' '; c++) *c = (char)toupper((unsigned char)*c);
    return out;
}

/* The first place that has the file; ERR_NO_DEVICE lists all places. */
static enum status find(const char *name, char *path, struct error *err)
{
    static const char *const places[] = {"", "/../lib/musher"};
    char folder[PATH_MAX], title[PLUGIN_TITLE_MAX], variable[64];
    plugin_file_title(title, name);
    snprintf(variable, sizeof variable, "MUSHER_%.*s_PLUGIN", (int)strlen(name), title);
    const char *named = getenv(variable);
    if (named && *named) {
        /* because dlopen searches the library path for a name without a slash */
        snprintf(path, PLUGIN_PATH_MAX, "%s%s", strchr(named, '/') ? "" : "./", named);
        if (access(path, R_OK) == 0) return OK;
        return error_set(err, ERR_NO_DEVICE, "no %s: %s names %s, which does not exist", title,
                         variable, named);
    }
    own_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, PLUGIN_PATH_MAX, "%s%s/libmusher_%s.so", folder, places[i], name);
        if (access(path, R_OK) == 0) return OK;
    }
    return error_set(err, ERR_NO_DEVICE,
                     "no %s: libmusher_%s.so is neither beside this program nor in ../lib/musher; "
                     "%s, and %s can give its path",
                     title, name, hint_of(name)->made, variable);
}

/* Checks the file first, because dlopen blocks on a pipe and crashes on a truncated file, whose section table ends
 * beyond the file. */
static enum status look(const char *path, struct error *err)
{
    Elf64_Ehdr h;
    int fd;
    int64_t bytes;
    TRY(file_open_regular(path, &fd, &bytes, err));
    bool elf = read(fd, &h, sizeof h) == (ssize_t)sizeof h && !memcmp(h.e_ident, ELFMAG, SELFMAG) &&
               h.e_ident[EI_CLASS] == ELFCLASS64;
    close(fd);
    if (!elf || h.e_shoff + (uint64_t)h.e_shentsize * h.e_shnum <= (uint64_t)bytes) return OK;
    return error_set(err, ERR_NO_DEVICE, "%s is truncated", path);
}

enum status plugin_file_open(const char *name, const char *entry, char *path, void **library,
                             void **symbol, struct error *err)
{
    struct error why;
    char title[PLUGIN_TITLE_MAX];
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (!n || name[n] || n + sizeof " plugin" > sizeof title)
        return error_set(err, ERR_INPUT, "'%.40s' is not a plugin name", name);
    TRY(find(name, path, err));
    plugin_file_title(title, name);
    if (look(path, &why) != OK)
        return error_set(err, ERR_NO_DEVICE, "the %s cannot be opened: %s", title, why.text);
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library)
        return error_set(err, ERR_NO_DEVICE, "the %s cannot be opened: %s (%s)", title, dlerror(),
                         hint_of(name)->needs);
    *symbol = dlsym(*library, entry);
    if (*symbol) return OK;
    dlclose(*library);
    return error_set(err, ERR_NO_DEVICE, "%s is not a plugin of this program: it does not export %s", path,
                     entry);
}
