#include "tools/check_devices.h"

#include "core/base/arena.h"
#include "exec/device_transport/device_comm.h"

#include <inttypes.h>
#include <string.h>

const char *check_devices_dtypes(struct arena *a, uint32_t dtypes)
{
    const char *all = "";
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (dtypes >> t & 1)
            all = arena_printf(a, "%s%s%s", all, *all ? ", " : "", dtype_name((enum dtype)t));
    return all;
}

/* A device's routes to all others, grouped by route. */
static enum status find_reach(struct arena *a, const struct plugin *p, struct devices_here *c,
                              int32_t device, struct error *err)
{
    static const char *const algorithms[] = {"by NVLink", "by PCIe", "by the host"};
    const char *those[] = {"", "", ""}, *all = "";
    struct plugin_joined with;
    if (!p->joined) return OK;
    TRY(p->joined(device, device, &with, err));
    memcpy(c->devices[device].pci, with.pci[0], sizeof with.pci[0]);
    for (int32_t i = 0; i < c->n; i++) {
        if (i == device) continue;
        TRY(p->joined(device, i, &with, err));
        int algorithm = with.atomics ? 0 : with.reach ? 1 : 2;
        those[algorithm] = arena_printf(a, "%s %" PRId32, those[algorithm], i);
    }
    for (int i = 0; i < 3; i++)
        if (*those[i]) all = arena_printf(a, "%s%s%s%s", all, *all ? ", " : "", algorithms[i], those[i]);
    c->devices[device].reaches = all;
    return OK;
}

/* Facts that need an open device. A device that cannot be opened (held exclusively by another process) is no failure of the others. */
static void look_inside(struct arena *a, const struct plugin *p, int32_t device,
                        struct device_here *gpu)
{
    struct backend b;
    struct error why = {0};
    char parts[400] = "";
    p->backend(&b);
    enum status st = b.open(&b, device, &why);
    if (st == OK) {
        if (b.free_bytes) st = b.free_bytes(&b, &gpu->free_bytes, &why);
        if (p->parts) p->parts(device, parts, (int32_t)sizeof parts);
        gpu->parts = arena_strdup(a, parts);
        b.close(&b);
    }
    if (st != OK) gpu->free_bytes = -1, gpu->why_not = arena_strdup(a, why.text);
}

static enum status find_gpus(struct arena *a, const struct plugin *p, struct devices_here *c,
                              bool open, struct error *err)
{
    struct backend b;
    int32_t n = 0;
    p->backend(&b);
    TRY(b.count(&b, &n, err));
    c->devices = ARENA_ARRAY(a, struct device_here, (size_t)n);
    c->n = n;
    for (int32_t i = 0; i < n; i++) {
        c->devices[i].free_bytes = -1;
        c->devices[i].parts = c->devices[i].reaches = "";
        TRY(b.describe(&b, i, &c->devices[i].about, err));
        if (open) look_inside(a, p, i, &c->devices[i]);
        TRY(find_reach(a, p, c, i, err));
    }
    return OK;
}

static void find_comm(struct arena *a, const struct plugin *p, struct devices_here *c)
{
    struct error why = {0};
    if (!p->comm) return;
    const struct device_comm *comm = p->comm(&why);
    c->comm_version = comm ? comm->version : 0;
    int v = (int)c->comm_version;
    c->comm = comm ? arena_printf(a, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100)
                   : arena_strdup(a, why.text);
}

void check_devices(struct arena *a, const char *kind, bool open, struct devices_here *out)
{
    const struct plugin *p = NULL;
    struct error why = {0};
    *out = (struct devices_here){.kind = kind, .plugin = "", .comm = "", .reason = ""};
    out->status = plugin_of(kind, &p, &why);
    if (out->status == OK) {
        out->plugin = arena_strdup(a, plugin_path(kind));
        find_comm(a, p, out);
        out->status = find_gpus(a, p, out, open, &why);
    }
    if (out->status != OK) out->reason = arena_strdup(a, why.text);
}

void check_devices_json(struct json *j, struct arena *a, const struct devices_here *c)
{
    json_put_object(j, c->kind);
    json_put_text(j, "plugin", c->plugin);
    json_put_text(j, "reason", c->reason);
    json_put_int(j, "nccl_version", c->comm_version);
    json_put_list(j, "devices");
    for (int32_t i = 0; i < c->n; i++) {
        const struct device_here *d = &c->devices[i];
        json_put_object_line(j, NULL);
        json_put_int(j, "index", i);
        json_put_text(j, "name", d->about.name);
        json_put_int(j, "capability", d->about.capability);
        json_put_int(j, "memory_bytes", d->about.memory_bytes);
        json_put_text(j, "dtypes", check_devices_dtypes(a, d->about.dtypes));
        json_put_text(j, "version", d->about.version);
        json_put_text(j, "pci", d->pci);
        json_put_text(j, "reaches", d->reaches ? d->reaches : "");
        if (d->free_bytes >= 0) json_put_int(j, "free_bytes", d->free_bytes);
        if (*d->parts) json_put_text(j, "parts", d->parts);
        json_close(j);
    }
    json_close(j);
    json_close(j);
}
