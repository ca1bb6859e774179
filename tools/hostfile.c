#include "tools/hostfile.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "exec/clock.h"

#include <string.h>

#define LOOK_NS INT64_C(1000000000)
enum { BYTES_MAX = 1 << 20, MISSING_LOOKS = 3 };

/* All devices of that name, node or host. */
static bool list_name(const struct cluster *c, const char *name, bool *listed)
{
    bool found = false;
    for (int32_t d = 0; d < c->n_devices; d++) {
        const struct node_spec *n = &c->nodes[c->devices[d].node];
        if (strcmp(name, c->devices[d].name) != 0 && strcmp(name, n->name) != 0 && strcmp(name, n->host) != 0) continue;
        found = listed[d] = true;
    }
    return found;
}

static enum status unknown(const struct hostfile *h, int line, const char *name, struct error *err)
{
    const struct cluster *c = h->cluster;
    char hint[NEAREST_HINT];
    struct nearest near = nearest_to(name);
    for (int32_t i = 0; i < c->n_nodes; i++) nearest_try(&near, c->nodes[i].name);
    for (int32_t i = 0; i < c->n_devices; i++) nearest_try(&near, c->devices[i].name);
    return error_set(err, ERR_INPUT, "%s:%d: the plan's cluster has no node, host or device '%s'%s", h->path, line, name, nearest_hint(&near, hint));
}

static enum status read_names(const struct hostfile *h, bool *listed, struct error *err)
{
    struct arena *a = arena_new();
    char *text, *rest;
    size_t n;
    int line = 0;
    enum status status = file_read(a, h->path, BYTES_MAX, &text, &n, err);
    for (char *at = text, *end; status == OK && at; at = end) {
        line++;
        if ((end = strchr(at, '\n'))) *end++ = 0;
        at[strcspn(at, "#")] = 0;
        const char *name = strtok_r(at, " \t\r", &rest);
        if (name && !list_name(h->cluster, name, listed)) status = unknown(h, line, name, err);
        const char *more = name ? strtok_r(NULL, " \t\r", &rest) : NULL;
        if (status == OK && more && !strchr(more, '='))
            status = error_set(err, ERR_INPUT, "%s:%d: one name a line, found '%s' after '%s'", h->path, line, more, name);
    }
    arena_free(a);
    return status;
}

static enum status read_list(const struct hostfile *h, bool *listed, struct error *err)
{
    bool any = false;
    memset(listed, 0, (size_t)h->cluster->n_devices * sizeof *listed);
    TRY(read_names(h, listed, err));
    for (int32_t d = 0; d < h->cluster->n_devices; d++) any |= listed[d];
    return any ? OK : error_set(err, ERR_INPUT, "%s: no device is listed; expected a node, host or device of the plan's cluster a line", h->path);
}

enum status hostfile_open(struct arena *a, const char *path, const struct cluster *c, struct hostfile *out, struct error *err)
{
    *out = (struct hostfile){.a = a, .path = path, .cluster = c, .listed = ARENA_ARRAY(a, bool, (size_t)c->n_devices + 1), .looked_ns = clock_wall_ns()};
    (void)stat(path, &out->seen); /* before the file is read, so that a later change is not missed */
    return read_list(out, out->listed, err);
}

bool hostfile_look(struct hostfile *h)
{
    struct stat now;
    struct error err;
    if (clock_wall_ns() - h->looked_ns < LOOK_NS) return false;
    h->looked_ns = clock_wall_ns();
    if (stat(h->path, &now) != 0) { /* it may be being replaced */
        if (++h->missing == MISSING_LOOKS) log_warn("the list of devices stays: there is no '%s'", h->path);
        return false;
    }
    h->missing = 0;
    if (now.st_mtim.tv_sec == h->seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == h->seen.st_mtim.tv_nsec && now.st_size == h->seen.st_size &&
        now.st_ino == h->seen.st_ino)
        return false;
    h->seen = now;
    size_t bytes = (size_t)h->cluster->n_devices * sizeof(bool);
    bool *listed = ARENA_ARRAY(h->a, bool, (size_t)h->cluster->n_devices + 1);
    if (read_list(h, listed, &err) != OK) {
        log_warn("the list of devices stays: %s", err.text);
        return false;
    }
    if (!memcmp(listed, h->listed, bytes)) return false;
    memcpy(h->listed, listed, bytes);
    return true;
}
