#include "tools/saves.h"

#include "core/base/units.h"
#include "core/document/json.h"
#include "sim/goodput/goodput.h"
#include "tools/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FAILURE_NODE = 8 }; /* devices that the failure of a node takes, as in goodput */
#define SAVE_EVERY_MAX 1e9

enum status saves_choose(struct arena *a, const char *every, const char *mtbf, int32_t n_devices, struct run_options *o, struct error *err)
{
    struct goodput_cause *causes;
    double steps = 0;
    int64_t mtbf_ns = 0;
    o->save_auto = !strcmp(every, "auto");
    if (mtbf && !o->save_auto) return error_set(err, ERR_USAGE, "--mtbf is for --save-every auto");
    if (!o->save_auto) {
        if (!units_parse_number(every, &steps) || !(steps >= 0 && steps <= SAVE_EVERY_MAX) || floor(steps) < steps)
            return error_set(err, ERR_USAGE, "--save-every %s: not a number of steps from 0 to %.0f, or auto", every, SAVE_EVERY_MAX);
        o->save_every = (int64_t)steps;
    } else if (mtbf) {
        TRY(common_duration("mtbf", mtbf, &mtbf_ns, err));
        if (!mtbf_ns) return error_set(err, ERR_USAGE, "--mtbf %s: not above 0", mtbf);
        o->mtbf_s = units_s_from_ns(mtbf_ns);
    } else {
        struct goodput_job job = {.n_causes = goodput_llama3(a, n_devices, FAILURE_NODE, &causes)};
        job.causes = causes;
        o->mtbf_s = goodput_mtbf(&job);
    }
    return OK;
}

static void put_cost(struct json *json, const struct saves_cost *x)
{
    json_put_int(json, "count", x->n);
    json_put_int(json, "snapshot_ns", x->snapshot_ns);
    json_put_int(json, "write_ns", x->write_ns);
    json_put_int(json, "wait_ns", x->wait_ns);
    json_put_int(json, "slowdown_ns", x->slowdown_ns);
    json_put_double(json, "share", x->share);
}

static void say_cost(const struct saves_cost *x)
{
    char pause[32], write[32], wait[32], slow[32];
    printf(": %.2f %% of the time; each stops all ranks for %s, is then written in %s, and slows the steps meanwhile by %s", 100 * x->share,
           units_print_ns(pause, x->snapshot_ns), units_print_ns(write, x->write_ns), units_print_ns(slow, x->slowdown_ns));
    if (x->wait_ns) printf("; waits %s for the write before it", units_print_ns(wait, x->wait_ns));
}

static void print_memory(const struct run_result *r, const struct run_options *o, struct json *json)
{
    const struct saves_cost *x = &r->memory.cost;
    char bytes[32];
    if (!x->n) return;
    if (json) {
        json_put_object(json, "memory_checkpoints");
        put_cost(json, x);
        json_put_int(json, "every", o->memory_every);
        json_put_int(json, "snapshot_bytes", r->memory.bytes);
        json_close(json);
        return;
    }
    printf("  in memory  %lld, every %lld step%s", (long long)x->n, (long long)o->memory_every, o->memory_every > 1 ? "s" : "");
    say_cost(x);
    printf("; up to %s for a rank's snapshot\n", units_print_bytes(bytes, (double)r->memory.bytes));
}

void saves_print(const struct run_result *r, const struct run_options *o, struct json *json)
{
    const struct saves_cost *x = &r->saves.cost;
    print_memory(r, o, json);
    char pause[32], bytes[32];
    if (!x->n) return;
    if (json) {
        json_put_object(json, "checkpoints");
        json_put_text(json, "mode", o->save_mode == SAVE_SYNC ? "sync" : "async");
        put_cost(json, x);
        json_put_int(json, "every", r->saves.every);
        json_put_int(json, "snapshot_bytes", r->saves.bytes);
        json_close(json);
        return;
    }
    printf("  checkpoints %lld", (long long)x->n);
    if (r->saves.every) printf(", every %lld step%s", (long long)r->saves.every, r->saves.every > 1 ? "s" : "");
    if (o->save_mode == SAVE_SYNC)
        printf(": %.2f %% of the time; each stops all ranks for %s", 100 * x->share, units_print_ns(pause, x->snapshot_ns));
    else
        say_cost(x);
    printf("; up to %s of host memory on a rank\n", units_print_bytes(bytes, (double)r->saves.bytes));
}

void saves_print_trace(const struct trace *t, struct json *json)
{
    const struct saves_cost x = saves_of_trace(t);
    if (!x.n) return;
    if (json) {
        json_put_object(json, "checkpoints");
        put_cost(json, &x);
        json_close(json);
        return;
    }
    printf("  checkpoints %lld", (long long)x.n);
    say_cost(&x);
    putchar('\n');
}
