#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/nearest.h"
#include "core/document/json.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/launch/launch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct request {
    const char *engine, *plan, *out;
    struct launch_request about;
};

enum { GRACE_S = 120 };
enum { TIME_DIGITS = 8 }; /* of a number in --time: more overflow Slurm's count of minutes */

static const char *const engines[] = {
#define X(name, help) #name,
    LAUNCH_ENGINES(X)
#undef X
        NULL};

static enum status (*const writers[])(FILE *out, const struct launch *l, struct error *err) = {
#define X(name, help) launch_##name,
    LAUNCH_ENGINES(X)
#undef X
};

static enum status find(const char *word, size_t *out, struct error *err)
{
    for (*out = 0; engines[*out]; ++*out)
        if (!strcmp(engines[*out], word)) return OK;
    char hint[NEAREST_HINT];
#define X(name, help) " " #name
    return error_set(err, ERR_USAGE, "unknown engine '%.60s'; known:" LAUNCH_ENGINES(X) "%s", word, nearest_name_hint(word, engines, hint));
#undef X
}

/* The forms of sbatch: digits with colons; in front of them days and a dash. *out_s: seconds; 0: no limit, as for sbatch. */
static enum status read_time(const char *time, int64_t *out_s, struct error *err)
{
    /* seconds of each field: of one, two and three fields; behind days hours come first */
    static const int64_t alone[3][3] = {{60}, {60, 1}, {3600, 60, 1}}, behind_days[3] = {3600, 60, 1};
    int64_t field[3] = {0}, days = 0;
    *out_s = 0;
    if (!time) return OK;
    const char *at = time, *dash = strchr(time, '-');
    size_t n = strspn(at, "0123456789");
    int fields = 0;
    bool has_days = dash && n && n <= TIME_DIGITS && at + n == dash;
    if (has_days) days = strtoll(at, NULL, 10), at += n + 1, n = strspn(at, "0123456789");
    while (n && n <= TIME_DIGITS) {
        field[fields++] = strtoll(at, NULL, 10);
        if (at[n] != ':' || fields == 3) break;
        at += n + 1, n = strspn(at, "0123456789");
    }
    if (!n || n > TIME_DIGITS || at[n])
        return error_set(err, ERR_USAGE,
                         "--time '%.60s': expected minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, e.g. 30, 12:00:00 or 2-12 for two days and a half", time);
    *out_s = 86400 * days;
    for (int i = 0; i < fields; i++) *out_s += field[i] * (has_days ? behind_days[i] : alone[fields - 1][i]);
    return OK;
}

/* Slurm sends its signal --grace seconds before the limit, and at once if the limit is nearer. */
static enum status check_grace(const struct launch_request *q, struct error *err)
{
    int64_t limit_s;
    TRY(read_time(q->time, &limit_s, err));
    if (!q->save || !limit_s || q->grace_s < limit_s) return OK;
    return error_set(err, ERR_USAGE,
                     "--grace %" PRId64 "%s: the time limit --time %s is %" PRId64 " s, so that every start would end as it begins: pass less than %" PRId64 " with --grace",
                     q->grace_s, q->grace_s == GRACE_S ? " (the default)" : "", q->time, limit_s, limit_s);
}

/* The options of run are checked here, where a wrong one costs no queueing. */
static enum status check_run(struct arena *a, const struct request *q, struct error *err)
{
    const struct texts *given = &q->about.run;
    struct common none = {0};
    char **argv = ARENA_ARRAY(a, char *, given->count + 5);
    int n = 0;
    argv[n++] = arena_strdup(a, "run");
    argv[n++] = arena_strdup(a, q->plan);
    for (size_t i = 0; i < given->count; i++) {
        static const char *const ours[] = {"--save", "--continue", "--any-host", "--launcher", NULL};
        /* of forked ranks; the engine starts a job again, and the newest checkpoint decides where */
        static const char *const others[] = {"--adapt", "--faults", "--max-restarts", "--elastic", "--resume", NULL};
        for (int k = 0; others[k]; k++)
            if (!strncmp(given->items[i], others[k], strlen(others[k])) && strchr("=", given->items[i][strlen(others[k])]))
                return error_set(err, ERR_USAGE, "%s behind --: ranks that another program starts do not have it", others[k]);
        for (int k = 0; ours[k]; k++)
            if (!strncmp(given->items[i], ours[k], strlen(ours[k])) && strchr("=", given->items[i][strlen(ours[k])]))
                return error_set(err, ERR_USAGE, "%s behind --: %s", ours[k], k ? "launch states it" : "pass it to launch itself");
        argv[n++] = arena_strdup(a, given->items[i]);
    }
    if (q->about.save) argv[n++] = arena_strdup(a, "--save"), argv[n++] = arena_strdup(a, q->about.save);
    void *request = arena_alloc(a, cmd_run.request_bytes, 16);
    memcpy(request, cmd_run.defaults, cmd_run.request_bytes);
    TRY(options_parse(a, &cmd_run, request, &none, n, argv, err));
    if (none.help) return error_set(err, ERR_USAGE, "--help behind --: see musher run --help");
    return OK;
}

static enum status launch(struct arena *a, void *request, const struct common *common, struct error *err)
{
    const struct request *q = request;
    struct plan plan;
    struct program program;
    struct launch l;
    struct file f = {0};
    size_t engine;
    TRY(find(q->engine, &engine, err));
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    if (!strcmp(q->plan, "-")) return error_set(err, ERR_USAGE, "launch -: each rank reads the plan; pass it as a file");
    TRY(check_grace(&q->about, err));
    TRY(check_run(a, q, err));
    TRY(common_plan(a, q->plan, &plan, err));
    const char *why = common_never_run(a, &plan);
    if (why) return error_set(err, ERR_INPUT, "%s: %s", q->plan, why);
    TRY(common_lower(a, &plan, true, &program, err));
    if (program.emulated && plan.cluster.n_nodes > 1)
        return error_set(err, ERR_INPUT, "%s: emulated devices must all be on one host: musher run %s starts them", q->plan, q->plan);
    TRY(launch_layout(a, q->plan, &plan, &program, &q->about, &l, err));
    TRY(file_open(&f, q->out, err));
    enum status st = writers[engine](f.stream, &l, err);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    if (st != OK || !common->json) return st;
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "file", q->out);
    json_put_text(&j, "engine", q->engine);
    json_put_int(&j, "ranks", l.n_ranks);
    json_put_int(&j, "nodes", l.n_nodes);
    json_put_int(&j, "groups", l.n_groups);
    common_json_end(&j);
    return OK;
}

static const struct option options[] = {
    {.name = "ENGINE",
     ARGUMENT_AT(engine),
     .choices = engines,
     .help = "what starts the ranks:"
#define X(name, help) "\n" #name ": " help
     LAUNCH_ENGINES(X)
#undef X
    },
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, under the name that it has on every node"},
    {.name = "RUN", ARGUMENTS_AT(about.run), .min = 0, .max = 64, .help = "options of run, behind --, e.g. -- --steps 1000 --data text.txt"},
    {.name = "out", .letter = 'o', TEXT_AT(out), .unit = "FILE", .writes = true, .help = "file to write, or - for standard output", .required = true},
    {.name = "save",
     TEXT_AT(about.save),
     .unit = "DIR",
     .help = "folder for checkpoints, which every node reaches; each start continues from the newest one"},
    {.name = "program", TEXT_AT(about.program), .unit = "PATH", .help = "musher on the nodes, e.g. /opt/bin/musher"},
    {.name = "name", .only = "slurm|kubernetes", TEXT_AT(about.name), .unit = "NAME", .help = "name of the job, e.g. training", .preset = "the plan's"},
    {.name = "env", TEXTS_AT(about.env), .unit = "NAME=VALUE", .help = "environment variable of every rank, e.g. NCCL_DEBUG=WARN; repeatable"},
    {.name = "label",
     .only = "slurm|kubernetes|ray",
     TEXTS_AT(about.labels),
     .unit = "TYPE=TEXT",
     .help = "what the engine calls a device type of the plan: Slurm's gres, e.g. h100=gpu:h100; Kubernetes' node label, e.g. "
             "h100=nvidia.com/gpu.product=NVIDIA-H100; Ray's resource, e.g. h100=accelerator_type:H100; repeatable",
     .preset = "Slurm: gpu:TYPE for GPUs"},
    {.name = "grace",
     .only = "slurm|kubernetes",
     INT_AT(about.grace_s),
     .unit = "SECONDS",
     .min = 1,
     .max = 65535,
     .help = "time for a last step and a checkpoint: Slurm signals so long before the time limit; Kubernetes kills so long after its signal"},
    {.name = "time", .only = "slurm", TEXT_AT(about.time), .unit = "LIMIT", .help = "Slurm: time limit, e.g. 12:00:00", .preset = "the partition's"},
    {.name = "partition", .only = "slurm", TEXT_AT(about.partition), .unit = "NAME", .help = "Slurm: partition, e.g. gpu", .preset = "Slurm's"},
    {.name = "account", .only = "slurm", TEXT_AT(about.account), .unit = "NAME", .help = "Slurm: account, e.g. physics", .preset = "the user's"},
    {.name = "directive",
     .only = "slurm",
     TEXTS_AT(about.directives),
     .unit = "TEXT",
     .help = "Slurm: another option of sbatch, for each kind of node, e.g. --directive=--cpus-per-task=8; repeatable"},
    {.name = "agent", .only = "ssh", TEXT_AT(about.agent), .unit = "COMMAND", .help = "ssh: what reaches a host in place of ssh, e.g. \"ssh -p 2222\""},
    {.name = "image", .only = "kubernetes", TEXT_AT(about.image), .unit = "IMAGE", .help = "Kubernetes: image with musher, Open MPI and sshd, e.g. registry/musher:1"},
    {.name = "claim", .only = "kubernetes", TEXT_AT(about.claim), .unit = "NAME", .help = "Kubernetes: persistent volume claim with plan, data and checkpoints, e.g. work"},
    {.name = "folder", .only = "kubernetes", TEXT_AT(about.folder), .unit = "PATH", .help = "Kubernetes: where pods mount the claim, and their working folder, e.g. /data"},
    {.name = "restarts",
     .only = "slurm|kubernetes|ray",
     INT_AT(about.restarts),
     .unit = "N",
     .min = 0,
     .max = 1e6,
     .needs = "save",
     .help = "Slurm, Kubernetes, Ray: times that all ranks start again after one has failed, e.g. 10"},
    {0}};

const struct verb cmd_launch = {
    .name = "launch",
    .summary = "write the file with which a scheduler runs a plan",
    .about = "Nodes and ranks a node are those of the plan's devices, in their order; idle devices get none. With Slurm and Kubernetes the "
             "hosts are not known ahead: the nodes of the plan get hosts of their types (run --any-host). The file is written, not submitted.",
    .options = options,
    .examples = {"musher launch slurm plan.yaml -o job.sh --save ckpt -- --steps 1000 --data text.txt",
                 "musher launch ssh plan.yaml -o run.sh -- --steps 1000 --data text.txt"},
    REQUEST(.about = {.program = "musher", .grace_s = GRACE_S, .folder = "/work", .restarts = 3}),
    .run = launch,
};
