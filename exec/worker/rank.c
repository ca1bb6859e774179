#include "exec/worker/rank.h"

#include "core/base/parallel.h"
#include "exec/device_transport/nccl_env.h"
#include "exec/plugin.h"
#include "exec/worker/hosts.h"

#include <string.h>
#include <unistd.h>

/* Names of ranks in errors. */
static void call_ranks(const struct rank *r)
{
    const char **names = ARENA_ARRAY(r->run, const char *, (size_t)r->p->n_devices);
    for (int32_t i = 0; i < r->p->n_devices; i++)
        names[i] = arena_strdup(r->run, program_device_label(r->p, i).text);
    comm_call_ranks(r->comm, names);
}

enum status rank_join(struct rank *r, struct arena *run, const struct program *p,
                      const struct run_options *o, struct error *err)
{
    *r = (struct rank){.run = run, .p = p, .o = o};
    TRY(comm_open(run, p->n_devices, &r->comm, err));
    r->index = comm_rank(r->comm);
    if (o->any_host) TRY(hosts_take(r, err));
    call_ranks(r);
    /* Servers are the first ranks; a worker that ends delays no other worker if pushes are handled by arrival. */
    if (parameter_server_by_arrival(&p->server) && r->comm && comm_size(r->comm) > 1) comm_expendable(r->comm, p->server.n);
    nccl_env_set(r->p, r->index); /* before the backend, whose communication library is NCCL */
    return OK;
}

bool rank_shares_host(const struct rank *r, int32_t device)
{
    const char *host = rank_device(r)->host, *other = r->p->devices[device].host;
    return r->p->emulated || device == r->index || (host && other && !strcmp(host, other));
}

int32_t rank_threads(const struct rank *r)
{
    int32_t ranks = 0, mine = parallel_processors();
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    for (int32_t i = 0; i < r->p->n_devices; i++)
        ranks += comm_one_host(r->comm) || rank_shares_host(r, i);
    int32_t part = (int32_t)(all / ranks);
    return part < 1 ? 1 : part < mine ? part : mine;
}

enum status rank_find_backend(struct rank *r, struct error *err)
{
    nccl_env_before(r->p);
    return (r->o->backends ? r->o->backends : plugin_open_backend)(rank_device(r)->kind,
                                                                   &r->backend, err);
}

enum status rank_open_device(struct rank *r, struct error *err)
{
    r->backend.multiprocessors = rank_device(r)->multiprocessors;
    TRY(r->backend.open(&r->backend, rank_device(r)->index, err));
    r->open = true;
    r->discrete = r->backend.discrete_memory;
    return OK;
}

void rank_close_device(struct rank *r)
{
    if (!r->open) return;
    if (r->backend.unfinished && r->backend.unfinished(&r->backend)) comm_note_unfinished();
    r->backend.close(&r->backend);
    r->open = false;
}
