#include "tools/profile/cuda.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/lower/lower.h"
#include "exec/comm/launch.h"
#include "exec/plugin.h"
#include "profiles/op_prior.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COPY_SIZES = 8, WARM_MAX = 2000 };

static bool is_gpu(const struct cluster *c, int32_t device)
{
    struct program_device d = lower_device(c, device);
    return !program_device_is_host(&d);
}

void profile_gpus_find(struct arena *a, const struct cluster *c, double warm_s,
                       struct profile_gpus *out)
{
    bool *asked = ARENA_ARRAY(a, bool, (size_t)c->n_types + 1);
    *out = (struct profile_gpus){.cluster = c, .warm_s = warm_s, .reason = ""};
    out->n = ARENA_ARRAY(a, int32_t, (size_t)c->n_types + 1);
    for (int32_t i = 0; i < c->n_devices; i++) {
        struct backend b;
        struct error why = {0};
        int32_t type = c->devices[i].type;
        if (asked[type] || !is_gpu(c, i)) continue;
        asked[type] = true;
        enum status st = plugin_open_backend(lower_device(c, i).kind, &b, &why);
        if (st == OK) st = b.count(&b, &out->n[type], &why);
        if (st == OK) continue;
        out->n[type] = 0;
        out->reason = arena_strdup(a, why.text);
    }
}

bool profile_is_here(const struct profile_gpus *k, int32_t device)
{
    struct program_device d = lower_device(k->cluster, device);
    return launch_host_is_here(d.host) &&
           (program_device_is_host(&d) || !k->n || d.index < k->n[d.type_index]);
}

bool profile_same_gpu(const struct cluster *c, int32_t one, int32_t other)
{
    struct program_device x = lower_device(c, one), y = lower_device(c, other);
    return is_gpu(c, one) && !strcmp(x.kind, y.kind) && x.index == y.index &&
           !strcmp(x.host, y.host);
}

int32_t profile_gpu_of(const struct profile_gpus *k, const char *base)
{
    const struct cluster *c = k->cluster;
    for (int32_t i = 0; i < c->n_devices; i++)
        if (is_gpu(c, i) && !strcmp(c->types[c->devices[i].type].catalogue, base) &&
            profile_is_here(k, i))
            return i;
    return -1;
}

int32_t profile_warm_rounds(const struct profile_gpus *k, const char *base,
                            const struct program_op *ops, size_t n)
{
    const struct catalogue_device *d = NULL;
    struct op_prior prior = op_prior_default(base);
    double round_s = 0;
    if (catalogue_find(base, &d, NULL) != OK) return 1;
    for (size_t i = 0; i < n; i++) {
        double s =
            op_prior_seconds(&prior, d, ops[i].kind, &ops[i].attrs, &ops[i].shapes, ops[i].dtype);
        if (s > 0) round_s += s; /* NaN is not */
    }
    double rounds = round_s > 0 ? ceil(k->warm_s / round_s) : 1;
    return rounds < 1 ? 1 : rounds < WARM_MAX ? (int32_t)rounds : WARM_MAX;
}

enum status profile_copies(struct arena *a, struct profile_gpus *k, int32_t repeats,
                           struct error *err)
{
    int64_t bytes[COPY_SIZES];
    struct backend b;
    int32_t gpu = -1;
    for (int32_t i = 0; i < k->cluster->n_devices && gpu < 0; i++)
        if (is_gpu(k->cluster, i) && profile_is_here(k, i)) gpu = i;
    if (gpu < 0) return OK;
    for (int32_t i = 0; i < COPY_SIZES; i++) bytes[i] = (int64_t)4096 << 2 * i; /* 4 KiB … 64 MiB */
    TRY(plugin_open_backend(lower_device(k->cluster, gpu).kind, &b, err));
    TRY(b.open(&b, k->cluster->devices[gpu].index, err));
    k->copies = ARENA_ARRAY(a, struct copy_sample, COPY_SIZES);
    enum status st = bench_copies(a, &b, bytes, COPY_SIZES, repeats, k->copies, err);
    if (st == OK) k->n_copies = COPY_SIZES;
    b.close(&b);
    return st;
}

/* The largest size, which is limited by bandwidth. */
void profile_copies_print(const struct profile_gpus *k)
{
    char size[32], up[32], down[32];
    if (!k->n_copies) return;
    const struct copy_sample *s = &k->copies[k->n_copies - 1];
    printf("  copies     pinned memory, %s: host to device %s (spread %.1f %%), device to host %s "
           "(%.1f %%)\n",
           units_print_bytes(size, (double)s->bytes),
           units_print_bytes_per_s(up, (double)s->bytes / s->up_s), 100 * s->up_spread,
           units_print_bytes_per_s(down, (double)s->bytes / s->down_s), 100 * s->down_spread);
}

void profile_copies_json(struct json *j, const struct profile_gpus *k)
{
    json_put_list(j, "copies");
    for (int32_t i = 0; i < k->n_copies; i++) {
        const struct copy_sample *s = &k->copies[i];
        json_put_object_line(j, NULL);
        json_put_int(j, "bytes", s->bytes);
        json_put_double(j, "up_s", s->up_s);
        json_put_double(j, "up_spread", s->up_spread);
        json_put_double(j, "down_s", s->down_s);
        json_put_double(j, "down_spread", s->down_spread);
        json_close(j);
    }
    json_close(j);
}
