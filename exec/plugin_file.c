#include "exec/plugin_file.h"

#include "core/base/file.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
static enum status find(const struct plugin_file *f, char *path, struct error *err)
{
    static const char *const places[] = {"", "/../lib/musher"};
    const char *named = getenv(f->variable);
    char folder[PATH_MAX];
    if (named && *named) {
        /* a name without a slash would be looked for where libraries are */
        snprintf(path, PLUGIN_PATH_MAX, "%s%s", strchr(named, '/') ? "" : "./", named);
        if (access(path, R_OK) == 0) return OK;
        return error_set(err, ERR_NO_DEVICE, "no %s: %s names %s, which is not there", f->what,
                         f->variable, named);
    }
    own_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, PLUGIN_PATH_MAX, "%s%s/%s", folder, places[i], f->name);
        if (access(path, R_OK) == 0) return OK;
    }
    return error_set(err, ERR_NO_DEVICE,
                     "no %s: %s is neither beside this program nor in ../lib/musher; %s, %s names "
                     "one that lies elsewhere",
                     f->what, f->name, f->made, f->variable);
}

/* The loader waits for a pipe's writer, and touches a file that was cut off and dies of it: its table of sections ends behind its end. */
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
    return error_set(err, ERR_NO_DEVICE, "%s is cut off", path);
}

enum status plugin_file_open(const struct plugin_file *f, char *path, void **library, void **entry,
                             struct error *err)
{
    struct error why;
    TRY(find(f, path, err));
    if (look(path, &why) != OK)
        return error_set(err, ERR_NO_DEVICE, "the %s cannot be opened: %s", f->what, why.text);
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library)
        return error_set(err, ERR_NO_DEVICE, "the %s cannot be opened: %s (%s)", f->what, dlerror(),
                         f->needs);
    *entry = dlsym(*library, f->entry);
    if (*entry) return OK;
    dlclose(*library);
    return error_set(err, ERR_NO_DEVICE, "%s is no plugin of this program: it has no %s", path,
                     f->entry);
}
