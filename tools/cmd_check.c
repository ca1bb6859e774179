#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/units.h"
#include "exec/backend.h"
#include "exec/comm/launch.h"
#include "exec/device_check.h"
#include "profiles/catalogue.h"
#include "tools/check_devices.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/classes.h"

#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FINDINGS_MAX = 160, GPUS_SHOWN = 16, KINDS_HERE_MAX = 8, REPLICAS_SHOWN = 24 };

struct finding {
    const char *what, *state; /* state: "ok", "warning", "missing", "wrong" */
    const char *text;
};
struct findings {
    struct arena *arena;
    struct finding items[FINDINGS_MAX];
    int32_t n;
    bool strict; /* --here: a device on another machine is a failure too */
    enum status
        worst; /* status of the findings: ERR_RESOURCE or ERR_INPUT; ERR_NO_DEVICE takes precedence */
    struct devices_here here[KINDS_HERE_MAX]; /* (n_kinds) each device class that has a plugin */
    int32_t n_kinds;
};

struct request {
    const char *plan;
    bool cuda, here;
};

static void add(struct findings *f, const char *what, const char *state, const char *text)
{
    if (f->n == FINDINGS_MAX) BUG("too many findings");
    f->items[f->n++] = (struct finding){what, state, text};
    if (!strcmp(state, "missing") && f->worst == OK) f->worst = ERR_RESOURCE;
}

/* Whether PATH has the program. */
static bool on_path(struct arena *a, const char *name)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t n = strcspn(path, ":");
        if (n && access(arena_printf(a, "%.*s/%s", (int)n, path, name), X_OK) == 0) return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static enum status check_host(struct findings *f, struct error *err)
{
    struct backend b;
    struct sched_param rt = {.sched_priority = 1}, normal = {0};
    backend_host(&b);
    TRY(b.open(&b, 0, err));
    b.close(&b);
    add(f, "host backend", "ok", common_machine(f->arena));
    if (on_path(f->arena, "mpirun"))
        add(f, "mpirun", "ok", "ranks of several hosts can be started");
    else
        add(f, "mpirun", "missing", "plans over several hosts, or of more than 64 devices, cannot run: run tools/setup.sh");
    if (sched_setscheduler(0, SCHED_FIFO, &rt) == 0) {
        sched_setscheduler(0, SCHED_OTHER, &normal);
        add(f, "real-time priority", "ok", "emulated devices keep good time");
    } else {
        add(f, "real-time priority", "warning",
            "unavailable: measured times of emulated devices are noisier");
    }
    return OK;
}

/* Finding of a GPU that was opened. */
static void tell_open(struct findings *f, const struct devices_here *c, int32_t gpu,
                      const struct catalogue_device *row)
{
    const struct device_here *d = &c->devices[gpu];
    const char *what = arena_printf(f->arena, "%s %d", c->kind, (int)gpu);
    char left[32], context[32];
    if (d->why_not) add(f, what, "warning", d->why_not);
    if (d->free_bytes >= 0)
        add(f, what, "ok",
            arena_printf(f->arena,
                         "%s free beside this program's context; plans reserve %s for a context",
                         units_print_bytes(left, (double)d->free_bytes),
                         units_print_bytes(context, row->context_bytes.value)));
    if (*d->parts) add(f, what, "ok", d->parts);
}

/* wanted: a device is required, so its absence is a failure. row: a catalogue row of the backend. */
static void check_kind(struct findings *f, const struct catalogue_device *row, bool wanted)
{
    struct devices_here *c = &f->here[f->n_kinds++];
    check_devices(f->arena, row->backend, wanted, c);
    if (*c->plugin) {
        add(f, arena_printf(f->arena, "%s plugin", c->kind), "ok", c->plugin);
        if (*c->comm) add(f, "nccl", c->comm_version ? "ok" : "warning", c->comm);
    }
    if (c->status != OK) {
        add(f, c->kind, wanted ? "missing" : "warning", c->reason);
        if (wanted) f->worst = c->status;
        return;
    }
    add(f, "driver", "ok", c->devices[0].about.version);
    for (int32_t i = 0; i < c->n && i < GPUS_SHOWN; i++) {
        const struct device_here *d = &c->devices[i];
        char memory[32];
        add(f, arena_printf(f->arena, "%s %d", c->kind, (int)i), "ok",
            arena_printf(f->arena, "%s, sm_%d, %s, %s, PCI %s%s%s", d->about.name,
                         (int)d->about.capability,
                         units_print_bytes(memory, (double)d->about.memory_bytes),
                         check_devices_dtypes(f->arena, d->about.dtypes), d->pci,
                         *d->reaches ? "; reaches " : "", d->reaches));
        tell_open(f, c, i, row);
    }
}

/* The devices of every backend in the catalogue. */
static void check_kinds(struct findings *f, bool wanted)
{
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const struct catalogue_device *row = catalogue_at(i);
        bool known = !strcmp(row->backend, "host") || !strcmp(row->backend, "none");
        for (int32_t k = 0; k < f->n_kinds; k++) known |= !strcmp(f->here[k].kind, row->backend);
        if (!known && f->n_kinds < KINDS_HERE_MAX) check_kind(f, row, wanted);
    }
}

static const struct devices_here *here_of(const struct findings *f, const char *kind)
{
    static const struct devices_here none = {.status = ERR_NO_DEVICE,
                                             .reason = "no backend runs these devices"};
    for (int32_t k = 0; k < f->n_kinds; k++)
        if (!strcmp(f->here[k].kind, kind)) return &f->here[k];
    return &none;
}

/* A valid plan that `run` would refuse on this machine: a warning, with --here a failure. */
static void not_here(struct findings *f, const char *what, const char *text)
{
    add(f, what, f->strict ? "missing" : "warning", text);
    if (f->strict && (f->worst == OK || f->worst == ERR_RESOURCE)) f->worst = ERR_NO_DEVICE;
}

/* Why a plan's device of this machine cannot be had; NULL where it can, or is elsewhere. Where there are GPUs at all this machine
 * is meant, so that is a failure. */
static const char *check_gpu(struct findings *f, const struct program *p,
                              const struct program_device *d, bool *no_driver)
{
    struct error why = {0};
    if (program_device_is_host(d) || !launch_host_is_here(d->host)) return NULL;
    const struct devices_here *c = here_of(f, d->kind);
    *no_driver = c->status != OK;
    if (*no_driver) return c->reason;
    if (d->index >= c->n) {
        f->worst = ERR_NO_DEVICE;
        return arena_printf(f->arena, "no %s device %d: there are %d, counted from 0", d->kind,
                            (int)d->index, (int)c->n);
    }
    enum status st = device_check_gpu(p, d, &c->devices[d->index].about, &why);
    if (st == OK) return NULL;
    if (f->worst == OK) f->worst = st;
    return arena_strdup(f->arena, why.text);
}

static void check_gpus(struct findings *f, const struct program *p)
{
    size_t room = (size_t)p->n_devices + 1;
    const char **names = ARENA_ARRAY(f->arena, const char *, room),
               **texts = ARENA_ARRAY(f->arena, const char *, room);
    bool *no_driver = ARENA_ARRAY(f->arena, bool, room);
    struct print_class *x;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        texts[n] = check_gpu(f, p, &p->devices[i], &no_driver[n]);
        names[n] = p->devices[i].name;
        n += texts[n] != NULL;
    }
    int32_t classes = print_classes(f->arena, n, names, texts, false, &x);
    for (int32_t i = 0; i < classes && f->n < FINDINGS_MAX - 8; i++)
        if (no_driver[x[i].rows[0]])
            not_here(f, x[i].names, x[i].text);
        else
            add(f, x[i].names, "missing", x[i].text);
}

static bool resolves(const char *host)
{
    struct addrinfo *found = NULL;
    bool yes = getaddrinfo(host, NULL, NULL, &found) == 0;
    if (yes) freeaddrinfo(found);
    return yes;
}

/* The plan's other hosts. Only few are resolved, because a name server may be slow. */
static void check_hosts(struct findings *f, const struct program *p)
{
    enum { LOOKED_UP = 3, RUNS_SHOWN = 6 };
    const char **away = ARENA_ARRAY(f->arena, const char *, (size_t)p->n_devices + 1);
    size_t n = 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        const char *host = p->devices[i].host;
        if (launch_host_is_here(host) || (n && !strcmp(away[n - 1], host))) continue;
        size_t k = 0;
        while (k < n && strcmp(away[k], host) != 0) k++;
        if (k == n) away[n++] = host;
    }
    for (size_t i = 0; i < n && i < LOOKED_UP; i++)
        if (!resolves(away[i])) {
            not_here(f, "run",
                     arena_printf(f->arena, "host %s does not resolve; hosts elsewhere: %s",
                                  away[i], ranges_of_names(f->arena, away, n, RUNS_SHOWN)));
            return;
        }
    if (n)
        not_here(f, "run",
                 arena_printf(f->arena,
                              "host%s %s: not this machine; mpirun starts the ranks there",
                              n > 1 ? "s" : "", ranges_of_names(f->arena, away, n, RUNS_SHOWN)));
}

/* One row a class of devices of equal demand and equal memory. */
static void check_lanes(struct findings *f, const struct program *p)
{
    enum { SHOWN = 48 };
    size_t n = (size_t)p->n_devices;
    const char **names = ARENA_ARRAY(f->arena, const char *, n + 1),
               **texts = ARENA_ARRAY(f->arena, const char *, n + 1);
    struct print_class *x;
    for (int32_t i = 0; i < p->n_devices; i++) {
        char need[32], of[64];
        names[i] = p->devices[i].name;
        texts[i] = arena_printf(f->arena, "%s of %s",
                                units_print_bytes(need, (double)program_lane_bytes(p, i)),
                                units_print_capacity(of, (double)p->devices[i].memory_bytes));
    }
    int32_t classes = print_classes(f->arena, p->n_devices, names, texts, false, &x);
    for (int32_t i = 0; i < classes && i < SHOWN; i++)
        add(f, x[i].names, "ok",
            x[i].n > 1 ? arena_printf(f->arena, "%s (%d devices)", x[i].text, (int)x[i].n)
                       : x[i].text);
    if (classes > SHOWN)
        add(f, "devices", "ok",
            arena_printf(f->arena, "and %d more classes fit: musher memory lists them",
                         (int)(classes - SHOWN)));
}

static enum status check_plan(struct findings *f, const char *path, struct error *err)
{
    struct plan p;
    struct program program;
    double cores = 0;
    long have = sysconf(_SC_NPROCESSORS_ONLN);
    TRY(common_plan(f->arena, path, &p, err));
    TRY(common_lower(f->arena, &p, true, &program, err));
    int32_t lines;
    const char **replicas = plan_describe_classes(f->arena, &p, &lines, NULL);
    for (int32_t i = 0; i < lines && i < REPLICAS_SHOWN; i++)
        add(f, i ? "" : "plan", "ok", replicas[i]);
    if (lines > REPLICAS_SHOWN)
        add(f, "", "ok",
            arena_printf(f->arena, "and %d more classes of replicas: musher show lists them",
                         (int)(lines - REPLICAS_SHOWN)));
    check_lanes(f, &program);
    for (int32_t i = 0; i < program.n_devices; i++) {
        const struct program_device *d = &program.devices[i];
        if (d->slowdown > 0) cores += 1 / d->slowdown;
    }
    const char *why = common_never_run(f->arena, &p);
    if (why)
        not_here(f, "run", why);
    else
        check_hosts(f, &program), check_gpus(f, &program);
    if (cores > 0.8 * (double)have)
        add(f, "emulation", "warning",
            arena_printf(f->arena,
                         "emulated devices need %.2f of %ld processors; above 80 %% they are late",
                         cores, have));
    return OK;
}

static void print(struct findings *f, bool as_json)
{
    struct json j;
    if (!as_json) {
        for (int32_t i = 0; i < f->n; i++)
            printf("%-8s %-20s %s\n", f->items[i].state, f->items[i].what, f->items[i].text);
        return;
    }
    common_json_begin(&j);
    json_put_list(&j, "findings");
    for (int32_t i = 0; i < f->n; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "what", f->items[i].what);
        json_put_text(&j, "state", f->items[i].state);
        json_put_text(&j, "text", f->items[i].text);
        json_close(&j);
    }
    json_close(&j);
    for (int32_t i = 0; i < f->n_kinds; i++) check_devices_json(&j, f->arena, &f->here[i]);
    common_json_end(&j);
}

static enum status check(struct arena *a, void *request, const struct common *common,
                         struct error *err)
{
    const struct request *q = request;
    struct findings f = {.arena = a, .strict = q->here};
    TRY(check_host(&f, err));
    check_kinds(&f, q->cuda);
    if (q->plan) TRY(check_plan(&f, q->plan, err));
    print(&f, common->json);
    if (f.worst != OK)
        return error_set(err, f.worst, "this machine lacks the items marked missing");
    return OK;
}

static const struct option options[] = {
    {.name = "PLAN",
     ARGUMENT_AT(plan),
     .min = -1,
     .help = "plan whose devices and memory are compared with this machine"},
    {.name = "cuda",
     FLAG_AT(cuda),
     .help = "exit with code 8 if there is no CUDA device, instead of a warning"},
    {.name = "here",
     FLAG_AT(here),
     .help = "exit with code 8 if run would refuse PLAN on this machine for want of a host or GPU, "
             "instead of a warning"},
    {0}};

const struct verb cmd_check = {
    .name = "check",
    .summary = "report what this machine can run: processor, MPI, CUDA devices, NCCL",
    .options = options,
    .examples = {"musher check", "musher check --cuda", "musher check plan.yaml", "musher check plan.yaml --here"},
    REQUEST(0),
    .run = check,
};
