#include "exec/worker/hosts.h"

#include "exec/worker/rank.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { HOST_BYTES = 256 };

/* Length of the node's name in a device's: "a" of "a.0". */
static size_t node_length(const char *device)
{
    const char *dot = strrchr(device, '.');
    return dot ? (size_t)(dot - device) : strlen(device);
}

static bool same_node(const struct program_device *x, const struct program_device *y)
{
    size_t n = node_length(x->name);
    return n == node_length(y->name) && !strncmp(x->name, y->name, n);
}

/* The first device of the same node. */
static int32_t first_of_node(const struct program_device *d, int32_t i)
{
    int32_t k = 0;
    while (k < i && !same_node(&d[i], &d[k])) k++;
    return k;
}

static enum status check(const struct program_device *d, int32_t n, struct error *err)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t k = first_of_node(d, i);
        if (strcmp(d[i].host, d[k].host) != 0)
            return error_set(err, ERR_INPUT,
                             "node %.*s: rank %" PRId32 " (%s) runs on '%s' and rank %" PRId32 " (%s) on '%s'; start as many ranks on each host as "
                             "the plan's nodes have devices, in their order",
                             (int)node_length(d[i].name), d[i].name, k, d[k].name, d[k].host, i, d[i].name, d[i].host);
    }
    for (int32_t i = 0; i < n; i++) {
        if (program_device_is_host(&d[i]) || first_of_node(d, i) < i) continue;
        for (int32_t k = 0; k < i; k++)
            if (!program_device_is_host(&d[k]) && !same_node(&d[i], &d[k]) && !strcmp(d[i].host, d[k].host))
                return error_set(err, ERR_INPUT, "rank %" PRId32 " (%s) and rank %" PRId32 " (%s) run on '%s'; GPUs of two nodes need two hosts", k,
                                 d[k].name, i, d[i].name, d[i].host);
    }
    return OK;
}

enum status hosts_take(struct rank *r, struct error *err)
{
    char here[HOST_BYTES] = "";
    int32_t n = r->p->n_devices;
    gethostname(here, sizeof here - 1);
    char *all = comm_gather_each(r->comm, r->run, here, sizeof here);
    if (!all) all = arena_alloc(r->run, (size_t)n * sizeof here, 1);
    comm_broadcast(r->comm, all, n * (int64_t)sizeof here);
    struct program *own = ARENA_ARRAY(r->run, struct program, 1);
    *own = *r->p;
    own->devices = ARENA_ARRAY(r->run, struct program_device, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        own->devices[i] = r->p->devices[i];
        own->devices[i].host = all + (size_t)i * sizeof here;
    }
    r->p = own;
    return check(own->devices, n, err);
}
