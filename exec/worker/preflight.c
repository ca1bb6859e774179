#include "exec/worker/preflight.h"

#include "core/base/log.h"
#include "core/collective/tensor_shard.h"
#include "core/program/device_memory.h"
#include "exec/comm/launch.h"
#include "exec/device_check.h"
#include "exec/worker/chunks.h"
#include "exec/worker/pinned.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the place and its device -----------------------------------------------------------------
 */

enum status preflight_place(const struct rank *r, struct error *err)
{
    const struct program_device *d = rank_device(r);
    char here[256] = "";
    gethostname(here, sizeof here - 1);
    if (!launch_host_is_here(d->host))
        return error_set(err, ERR_INPUT,
                         "device %s is on host '%s', but rank %" PRId32 " runs on '%s'", d->name,
                         d->host, r->index, here);
    if (r->p->emulated && !comm_one_host(r->comm))
        return error_set(err, ERR_INPUT, "emulated devices must all be on one host");
    return OK;
}

/* MemAvailable: memory without swapping; total memory if it is not reported. */
static int64_t memory_here(void)
{
    int64_t kib = -1;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNd64, &kib) != 1) kib = -1;
    if (f) fclose(f);
    return kib >= 0 ? kib * 1024 : (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

/* Host memory: host lanes, and pinned memory of discrete devices' lanes. */
static enum status check_host_memory(const struct rank *r, const struct transports *t,
                                     struct error *err)
{
    const struct program *p = r->p;
    int64_t needed = 0, there = memory_here();
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        if (!rank_shares_host(r, i)) continue;
        int64_t bytes = program_device_is_host(&p->devices[i]) ? program_lane_bytes(p, i) : pinned_bytes(r, t, i);
        n++;
        if (__builtin_add_overflow(needed, bytes, &needed)) needed = INT64_MAX;
    }
    if (needed <= there) return OK;
    return error_set(err, ERR_RESOURCE,
                     "%" PRId32 " device%s on this host need%s %" PRId64
                     " bytes of memory; %" PRId64 " are available",
                     n, n == 1 ? "" : "s", n == 1 ? "s" : "", needed, there);
}

/* Without the libraries' memory: their contexts exist already. Saturates. */
static int64_t lane_known(const struct program *p, int32_t lane, const struct device_memory *m)
{
    int64_t bytes = program_lane_bytes(p, lane);
    if (bytes == INT64_MAX) return bytes;
    bytes -= p->stages[p->lanes[lane].stages[0]].reserve_bytes;
    return __builtin_add_overflow(bytes, device_memory_known(m), &bytes) ? INT64_MAX : bytes;
}

/* Free memory of the GPU, if reported, must hold all lanes on it: every rank has its context, none has allocated. */
static enum status check_gpu_free(struct rank *r, const struct backend_device *gpu,
                                   int64_t needed, struct error *err)
{
    const struct program_device *mine = rank_device(r);
    int64_t left = 0;
    if (!r->backend.free_bytes) return OK;
    TRY(r->backend.free_bytes(&r->backend, &left, err));
    if (needed <= left) return OK;
    return error_set(err, ERR_RESOURCE,
                     "device %s (%s, number %" PRId32 "): its lanes need %" PRId64
                     " bytes of memory; of its %" PRId64 " are %" PRId64 " free",
                     mine->name, gpu->name, mine->index, needed, gpu->memory_bytes, left);
}

/* Of this rank's GPU: all lanes on it. */
static enum status check_gpu_memory(struct rank *r, struct error *err)
{
    const struct program *p = r->p;
    const struct program_device *mine = &p->devices[r->index];
    struct backend_device gpu;
    struct device_memory *m = ARENA_ARRAY(r->run, struct device_memory, (size_t)p->n_devices + 1);
    int64_t needed = 0, known = 0;
    int32_t n = 0;
    device_memory_of(r->run, p, m);
    TRY(r->backend.describe(&r->backend, mine->index, &gpu, err));
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct program_device *d = &p->devices[i];
        if (!rank_shares_host(r, i) || strcmp(d->kind, mine->kind) != 0 || d->index != mine->index)
            continue;
        int64_t bytes = program_lane_bytes(p, i), own = lane_known(p, i, &m[i]);
        if (bytes < own) bytes = own; /* a hand-written program has no count */
        n++;
        if (__builtin_add_overflow(needed, bytes, &needed)) needed = INT64_MAX;
        if (__builtin_add_overflow(known, own, &known)) known = INT64_MAX;
    }
    if (needed <= gpu.memory_bytes) return check_gpu_free(r, &gpu, known, err);
    return error_set(err, ERR_RESOURCE,
                     "device %s (%s, number %" PRId32 "): %" PRId32 " lane%s need%s %" PRId64
                     " bytes of memory; it has %" PRId64,
                     mine->name, gpu.name, mine->index, n, n == 1 ? "" : "s", n == 1 ? "s" : "",
                     needed, gpu.memory_bytes);
}

enum status preflight_memory(struct rank *r, const struct transports *t, struct error *err)
{
    TRY(check_host_memory(r, t, err));
    return r->discrete ? check_gpu_memory(r, err) : OK;
}

enum status preflight_device(struct rank *r, struct error *err)
{
    const struct program_device *d = rank_device(r);
    struct backend_device is;
    int32_t n;
    if (program_device_is_host(d)) return OK;
    TRY(r->backend.count(&r->backend, &n, err));
    if (d->index >= n)
        return error_set(err, ERR_INPUT,
                         "device %s is number %" PRId32 " of its host, which has %" PRId32
                         " %s device%s",
                         d->name, d->index, n, d->kind, n == 1 ? "" : "s");
    TRY(r->backend.describe(&r->backend, d->index, &is, err));
    return device_check_gpu(r->p, d, &is, err);
}

/* ---- the program ------------------------------------------------------------------------------
 */

/* Of an unsharded row. */
static int64_t input_length(const struct slot *s)
{
    struct shape whole = tensor_shard_whole(&s->shape, s->shard);
    return shape_last(&whole);
}

static enum status check_inputs(const struct rank *r, const struct program_stage *s,
                                struct error *err)
{
    for (int32_t i = 0; r->o->data.n_files && i < s->n_slots; i++)
        if (s->slots[i].input >= 0 && !graph_input_is_of_images(s->slots[i].input) &&
            input_length(&s->slots[i]) != r->p->sequence_length)
            return error_set(err, ERR_INPUT, "input %s is not of the program's sequence length",
                             s->slots[i].name);
    return OK;
}

static enum status check_kernels(const struct program_stage *s, struct error *err)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        if (op_is_measured(s->ops[i].kind))
            return error_set(err, ERR_INPUT,
                             "%s: measured layers have no kernels: this program can be "
                             "simulated, not run",
                             s->ops[i].name);
    return OK;
}

static enum status check_servers(const struct program *p, struct error *err)
{
    for (int32_t i = 0; p->server.n && i < p->n_devices; i++)
        if (!program_device_is_host(&p->devices[i]))
            return error_set(err, ERR_INPUT,
                             "device %s: workers and servers of a parameter_server run on host devices only; on GPUs they are simulated",
                             p->devices[i].name);
    return OK;
}

enum status preflight_program(const struct rank *r, const struct chunks *c, struct error *err)
{
    TRY(check_servers(r->p, err));
    for (int32_t i = 0; i < c->n; i++) TRY(check_inputs(r, c->at[i].stage, err));
    for (int32_t i = 0; i < c->n; i++) TRY(check_kernels(c->at[i].stage, err));
    for (int32_t i = 0; r->p->emulated && i < r->p->n_links; i++)
        if (r->p->links[i].n_hops)
            return error_set(err, ERR_INPUT,
                             "route %s goes through switches; on an emulated cluster switches "
                             "can be simulated, not run",
                             r->p->links[i].name);
    for (int32_t i = 0; i < r->p->n_channels; i++)
        if (r->p->channels[i].bytes > INT32_MAX)
            return error_set(err, ERR_INPUT,
                             "channel %" PRId32 ": a message of %" PRId64
                             " bytes; the limit is 2 GiB",
                             i, r->p->channels[i].bytes);
    for (int32_t i = 0; i < r->p->n_collectives; i++) {
        const struct collective *g = &r->p->collectives[i];
        if (program_collective_incoming_bytes(g) > INT32_MAX)
            return error_set(err, ERR_INPUT,
                             "collective %s: more than 2 GiB; use smaller buckets", g->name);
    }
    return OK;
}

/* Emulated devices compute for real, in turns if cores are few: beyond this share of the cores, or of the turns on a
 * GPU, wall time falls behind the virtual clocks. */
#define CROWDED 0.8

static double busy_like(const struct program *p, const struct program_device *like)
{
    double busy = 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct program_device *d = &p->devices[i];
        if (d->slowdown > 0 && !strcmp(d->kind, like->kind) &&
            (program_device_is_host(like) || d->index == like->index))
            busy += 1 / d->slowdown;
    }
    return busy;
}

void preflight_warn_if_crowded(const struct program *p)
{
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), worst = 0;
    for (int32_t i = 0; p->emulated && p->n_devices > 1 && i < p->n_devices; i++) {
        const struct program_device *d = &p->devices[i];
        double busy = busy_like(p, d), there = program_device_is_host(d) ? cores : 1;
        if (busy / there <= CROWDED || busy / there <= worst) continue;
        worst = busy / there;
        if (program_device_is_host(d))
            log_warn("the emulated devices together need %.1f cores of this host, which "
                     "has %.0f; measured times will be too long",
                     busy, there);
        else
            log_warn("the devices emulated on GPU %" PRId32
                     " together need %.1f times its speed; "
                     "measured times will be too long",
                     d->index, busy);
    }
}

void preflight_warn_of_schedule(const struct program *p, int64_t before, int64_t steps)
{
    const struct lr_schedule *x = &p->optimizer.schedule;
    int64_t first = before < x->steps ? x->steps + 1 : before + 1;
    if (!x->steps || before + steps <= x->steps) return;
    log_warn("the schedule of the learning rate ends with step %" PRId64 ": the learning rate stays at its minimum, %.4g, in steps %" PRId64 " to %" PRId64 "%s", x->steps,
             x->min_lr, first, before + steps, x->min_lr > 0 ? "" : ", which change nothing");
}
