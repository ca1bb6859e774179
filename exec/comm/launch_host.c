/* exec/comm/launch_host.c - this host's name, and the states of its processes. */
#include "exec/comm/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool launch_host_is_here(const char *host)
{
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    size_t n = strcspn(own, ".");
    return !host || !*host || !strcmp(host, "localhost") || !strcmp(host, own) ||
           (!strncmp(host, own, n) && (host[n] == 0 || host[n] == '.'));
}

char launch_process_state(int32_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%" PRId32 "/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT || errno == ESRCH ? 'X' : 'R';
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *end = strrchr(line, ')'); /* a process name may contain any character */
    return end && end[1] == ' ' ? end[2] : n ? 'R' : 'X';
}

bool launch_process_ended(char state) { return strchr("ZXx", state) != NULL; }
