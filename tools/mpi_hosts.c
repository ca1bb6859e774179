#include "tools/mpi_hosts.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/program/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool mpi_hosts_name(const char *host) { return *host && !strpbrk(host, " #\t\n\r"); }

static enum status check(const struct program *p, struct error *err)
{
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct program_device *d = &p->devices[i];
        if (!mpi_hosts_name(d->host)) return error_set(err, ERR_INPUT, "device %s: '%.200s' is no name of a host", d->name, d->host);
        if (!strcmp(d->host, "localhost") && strcmp(d->host, p->devices[i ? 0 : p->n_devices - 1].host) != 0)
            return error_set(err, ERR_INPUT, "device %s: its host is localhost; name the host of each node in the cluster file, e.g. host: gpu1", d->name);
    }
    return OK;
}

enum status mpi_hosts_write(struct arena *a, const struct program *p, const char *agent, struct launch_hosts *out, struct error *err)
{
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(a, "%s/musher-hosts-XXXXXX", base && *base ? base : "/tmp");
    struct file f = {0};
    TRY(check(p, err));
    int fd = mkstemp(path);
    if (fd < 0) return error_set(err, ERR_RESOURCE, "%s: %s", path, strerror(errno));
    close(fd);
    *out = (struct launch_hosts){.file = path, .agent = agent};
    TRY(file_open(&f, path, err));
    for (int32_t i = 0; i < p->n_devices; i++) {
        fprintf(f.stream, "%s\n", p->devices[i].host);
        out->here |= launch_host_is_here(p->devices[i].host);
    }
    return file_commit(&f, err);
}
