#include "tools/restart_memory.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "exec/worker/peer_copy.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum status restart_memory_begin(struct restart_memory *m, const struct program *p, int32_t n, struct run_options *o, struct error *err)
{
    uint64_t home, peer;
    if (!o->memory_every) return OK;
    void *shared = mmap(NULL, sizeof *m->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return error_set(err, ERR_RESOURCE, "cannot share memory with the ranks: %s", strerror(errno));
    m->shared = o->memory = shared;
    peer_copy_nodes(p, 0, &home, &peer);
    if (!peer) log_info("--memory-every: all devices are of one node, so that no other node has copies");
    if (n > CHECKPOINT_MEMORY_RANKS_MAX && p->n_devices <= CHECKPOINT_MEMORY_RANKS_MAX) n = CHECKPOINT_MEMORY_RANKS_MAX;
    return checkpoint_memory_open(m->shared, n, err);
}

static void lose_nodes(struct restart_memory *m, struct arena *a, const struct fault_script *script, const struct faults *faults)
{
    for (int32_t i = 0; i < script->n; i++) {
        const struct fault *f = &script->faults[i];
        if (f->kind != FAULT_host_lost || m->lost[i] || faults->state[i].phase < FAULT_HAPPENED) continue;
        checkpoint_memory_lose(m->shared, checkpoint_memory_node(arena_printf(a, "%s.0", f->place)));
        m->lost[i] = true;
    }
}

int64_t restart_memory_step(struct restart_memory *m, struct arena *a, const struct fault_script *script, const struct faults *faults, const char *folder,
                            int32_t *copies)
{
    *copies = 0;
    if (!m->shared) return 0;
    lose_nodes(m, a, script, faults);
    int64_t step = checkpoint_memory_find(m->shared, copies);
    return step && step >= checkpoint_newest(a, folder) ? step : 0;
}

void restart_memory_write(struct restart_memory *m, struct arena *a, const struct fault_script *script, const struct faults *faults, const struct run_options *o,
                          int64_t *step, int64_t *lost, struct error *err)
{
    struct checkpoint c = {0};
    struct error none;
    bool found = false;
    int32_t copies;
    int64_t memory = 0;
    *step = *lost = 0;
    if (!o->save) return;
    if (m->shared) lose_nodes(m, a, script, faults), memory = checkpoint_memory_find(m->shared, &copies);
    if (checkpoint_find_any(a, o->save, &found, &c, &none) == OK && found) *step = c.step;
    if (memory <= *step) return;
    enum status st = checkpoint_memory_write(a, m->shared, memory, o->save, *step, o->save_keep > 0 ? (int32_t)o->save_keep : CHECKPOINTS_KEPT, o->config, err);
    *(st == OK ? step : lost) = memory;
}

void restart_memory_end(struct restart_memory *m)
{
    if (!m->shared) return;
    checkpoint_memory_close(m->shared);
    munmap(m->shared, sizeof *m->shared);
    m->shared = NULL;
}
