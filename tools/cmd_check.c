#include "core/arena.h"
#include "core/units.h"
#include "exec/backend.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct finding {
    const char *what, *state; /* state: "ok", "warning", "missing" */
    const char *text;
};
struct findings {
    struct arena *arena;
    struct finding items[32];
    int32_t n;
    bool fatal;
};

static void add(struct findings *f, const char *what, const char *state, const char *text)
{
    if (f->n == 32) BUG("too many findings");
    f->items[f->n++] = (struct finding){what, state, text};
    f->fatal |= !strcmp(state, "missing");
}

/* Is there such a program on PATH? */
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
        add(f, "mpirun", "ok", "ranks can be started");
    else
        add(f, "mpirun", "missing", "plans of more than one device cannot run: run tools/setup.sh");
    if (sched_setscheduler(0, SCHED_FIFO, &rt) == 0) {
        sched_setscheduler(0, SCHED_OTHER, &normal);
        add(f, "real-time priority", "ok", "emulated devices keep good time");
    } else {
        add(f, "real-time priority", "warning",
            "not to be had: measured times of emulated devices are noisier");
    }
    add(f, "cuda", "warning", "no CUDA device: this build has the host backend only");
    return OK;
}

static enum status check_plan(struct findings *f, const char *path, struct error *err)
{
    struct plan p;
    struct program program;
    double cores = 0;
    long have = sysconf(_SC_NPROCESSORS_ONLN);
    TRY(common_plan(f->arena, path, &p, err));
    TRY(common_lower(f->arena, &p, true, &program, err));
    add(f, "plan", "ok", plan_describe(f->arena, &p));
    for (int32_t i = 0; i < program.n_devices; i++) {
        const struct program_device *d = &program.devices[i];
        char need[32], of[32];
        add(f, d->name, "ok",
            arena_printf(f->arena, "%s of %s",
                         units_print_bytes(need, (double)program_lane_bytes(&program, i)),
                         units_print_bytes(of, (double)d->memory_bytes)));
        if (d->slowdown > 0) cores += 1 / d->slowdown;
        if (f->n > 24) break;
    }
    if (cores > 0.8 * (double)have)
        add(f, "emulation", "warning",
            arena_printf(f->arena,
                         "devices ask for %.2f of %ld processors; above 80 %% they run late", cores,
                         have));
    return OK;
}

static void print(const struct findings *f, bool as_json)
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
    common_json_end(&j);
}

enum status cmd_check(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    const char *plan = NULL;
    const struct option options[] = {{.name = "PLAN",
                                      .type = OPTION_ARGUMENT,
                                      .value = &plan,
                                      .min = -1,
                                      .help = "also: does this plan fit this machine"},
                                     {0}};
    const struct command command = {
        "check", "what this machine can run", options, {"musher check", "musher check plan.yaml"}};
    struct arena *a = arena_new();
    struct findings f = {.arena = a};
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    if (st == OK && !common.help) {
        st = check_host(&f, err);
        if (st == OK && plan) st = check_plan(&f, plan, err);
        if (st == OK) print(&f, common.json);
        if (st == OK && f.fatal)
            st = error_set(err, ERR_RESOURCE, "this machine lacks what is marked missing");
    }
    arena_free(a);
    return st;
}
