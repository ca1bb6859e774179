#include "tools/mpi_hosts.h"

#include "core/base/arena.h"
#include "core/program/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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

#define PREFIX "musher-hosts-"
enum { TRIES = 100 }; /* to lock a new file before another process takes it for one that was left */

static const char *folder(void)
{
    const char *base = getenv("TMPDIR");
    return base && *base ? base : "/tmp";
}

/* The kernel releases a lock with its owner, whatever ended it, so that no number of a process is compared. */
static void remove_left(struct arena *a)
{
    DIR *d = opendir(folder());
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat s;
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        const char *path = arena_printf(a, "%s/%s", folder(), e->d_name);
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        if (!fstat(fd, &s) && S_ISREG(s.st_mode) && s.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB)) unlink(path);
        close(fd);
    }
    closedir(d);
}

/* A locked file that has a name: another process may have removed it before the lock. */
static int make_file(struct arena *a, char **path)
{
    for (int i = 0; i < TRIES; i++) {
        struct stat s;
        *path = arena_printf(a, "%s/" PREFIX "XXXXXX", folder());
        int fd = mkostemp(*path, O_CLOEXEC);
        if (fd < 0) return -1;
        if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &s) && s.st_nlink) return fd;
        close(fd);
    }
    errno = EAGAIN;
    return -1;
}

enum status mpi_hosts_write(struct arena *a, const struct program *p, const char *agent, struct launch_hosts *out, struct error *err)
{
    char *path;
    TRY(check(p, err));
    remove_left(a);
    int fd = make_file(a, &path);
    if (fd < 0) return error_set(err, ERR_RESOURCE, "%s: %s", path, strerror(errno));
    *out = (struct launch_hosts){.file = path, .agent = agent, .lock = fd};
    bool written = true;
    for (int32_t i = 0; i < p->n_devices && written; i++) {
        written = dprintf(fd, "%s\n", p->devices[i].host) > 0;
        out->here |= launch_host_is_here(p->devices[i].host);
    }
    if (written) return OK;
    error_set(err, ERR_RESOURCE, "%s: %s", path, strerror(errno));
    mpi_hosts_remove(out);
    return ERR_RESOURCE;
}

void mpi_hosts_remove(struct launch_hosts *on)
{
    if (!on->file) return;
    unlink(on->file);
    close(on->lock);
    on->file = NULL;
}
