#include "tests/fuzz/formats.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/cluster/cluster.h"
#include "core/document/document.h"
#include "core/faults/script.h"
#include "core/model/job.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/program/program.h"
#include "exec/arrivals.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/weights.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "sim/goodput/goodput.h"
#include "tests/validate/published.h"
#include "tools/common.h"
#include "tools/import/import.h"
#include "tools/schedule/cases.h"
#include "tools/sweep/axis.h"
#include "tools/sweep/table.h"
#include "traces/import_nccl_tests.h"
#include "traces/trace.h"
#include "traces/xml.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Plans and programs up to this size are lowered, simulated and checked: milliseconds, under sanitizers too. */
enum { SMALL_LAYERS = 12, SMALL_MICROBATCHES = 64, SMALL_DEVICES = 16, SMALL_CALLS = 4096 };

__attribute__((noreturn)) static void violation(const char *label, const char *what, const char *text)
{
    fprintf(stderr, "%s: %s: %s\n", label, what, text);
    abort();
}

/* ---- documents -------------------------------------------------------------------------------- */

static enum status parse(struct fuzz_input *in, struct node **root, struct error *err)
{
    return document_parse(in->a, "input", in->data, in->n, root, err);
}

/* What was accepted is read again from the text that musher writes, and written the same. `read` leaves in *text what it writes. */
static void again(struct fuzz_input *in, enum status (*read)(struct fuzz_input *in, char **text, struct error *err), const char *first)
{
    struct error why = {0};
    char *second = NULL;
    struct fuzz_input next = *in;
    next.data = first, next.n = strlen(first);
    if (read(&next, &second, &why) != OK) violation("round trip", why.text, first);
    if (strcmp(first, second) != 0) violation("round trip differs", first, second);
}

static size_t walk(const struct node *n)
{
    char path[256];
    size_t sum = strlen(node_path(n, path, sizeof path));
    for (size_t i = 0; i < n->count; i++) sum += walk(n->members[i]);
    return sum;
}

static enum status read_document(struct fuzz_input *in, struct error *err)
{
    struct node *root;
    TRY(parse(in, &root, err));
    if (root) walk(root);
    return OK;
}

static enum status model_of(struct fuzz_input *in, char **text, struct error *err)
{
    struct node *root;
    struct model m;
    TRY(parse(in, &root, err));
    TRY(model_parse(in->a, root, "input", &m, err));
    *text = arena_strdup(in->a, model_write(in->a, &m));
    return OK;
}

static enum status read_model(struct fuzz_input *in, struct error *err)
{
    char *text = NULL;
    TRY(model_of(in, &text, err));
    again(in, model_of, text);
    return OK;
}

static enum status job_of(struct fuzz_input *in, char **text, struct error *err)
{
    struct node *root;
    struct job j;
    struct text t;
    TRY(parse(in, &root, err));
    TRY(job_parse(in->a, root, "tests/data/jobs", &j, err));
    job_write(text_begin(&t), in->a, &j, 0);
    *text = text_end(in->a, &t, NULL);
    return OK;
}

static enum status read_job(struct fuzz_input *in, struct error *err)
{
    char *text = NULL;
    TRY(job_of(in, &text, err));
    again(in, job_of, text);
    return OK;
}

/* Whether no `count` is above 64: a few bytes may state 131072 devices, which take seconds under sanitizers. */
static bool counts_are_small(const char *text)
{
    for (const char *at = strstr(text, "count"); at; at = strstr(at, "count")) {
        at += strlen("count");
        if (strtod(at + strcspn(at, "0123456789.+-\n"), NULL) > 64) return false;
    }
    return true;
}

static enum status cluster_of(struct fuzz_input *in, char **text, struct error *err)
{
    struct node *root;
    struct cluster c;
    struct text t;
    TRY(parse(in, &root, err));
    TRY(cluster_parse(in->a, root, &c, err));
    cluster_write(text_begin(&t), &c, 0);
    *text = text_end(in->a, &t, NULL);
    return OK;
}

static enum status read_cluster(struct fuzz_input *in, struct error *err)
{
    char *text = NULL;
    if (!counts_are_small(in->data)) return error_set(err, ERR_RESOURCE, "too large to fuzz");
    TRY(cluster_of(in, &text, err));
    again(in, cluster_of, text);
    return OK;
}

static enum status plan_text_of(struct fuzz_input *in, struct plan *p, char **text, struct error *err)
{
    struct node *root;
    struct text t;
    TRY(parse(in, &root, err));
    TRY(plan_parse(in->a, root, "tests/data/plans", p, err));
    plan_write(text_begin(&t), in->a, p);
    *text = text_end(in->a, &t, NULL);
    return OK;
}

static enum status plan_of(struct fuzz_input *in, char **text, struct error *err)
{
    struct plan p;
    return plan_text_of(in, &p, text, err);
}

static enum status read_plan(struct fuzz_input *in, struct error *err)
{
    struct plan p;
    struct profile prior;
    struct program program;
    struct sim_result result;
    char *text = NULL;
    if (!counts_are_small(in->data)) return error_set(err, ERR_RESOURCE, "too large to fuzz");
    TRY(plan_text_of(in, &p, &text, err));
    again(in, plan_of, text);
    if (p.job.model.layers > SMALL_LAYERS || p.job.global_batch > SMALL_MICROBATCHES || p.cluster.n_devices > SMALL_DEVICES)
        return OK;
    TRY(team_complete(&p.cluster, err));
    TRY(common_profile(in->a, &p.cluster, NULL, 0, &prior, err));
    return common_simulate(in->a, &p, &prior, &(struct sim_options){.steps = 2}, &result, &program, err);
}

/* Two nodes of two emulated devices, and a link. */
static enum status read_faults(struct fuzz_input *in, struct error *err)
{
    static struct program_device devices[] = {
        {.name = "a.0", .slowdown = 2}, {.name = "a.1", .slowdown = 2}, {.name = "b.0", .slowdown = 2}, {.name = "b.1"}};
    static struct program_link links[] = {{.name = "bus", .bandwidth_Bps = 1e9}};
    static const struct program program = {.emulated = true, .n_devices = 4, .devices = devices, .n_links = 1, .links = links};
    struct fault_script s;
    TRY(fault_script_read(in->a, in->path, &program, &s, err));
    for (int32_t i = 0; i < s.n; i++)
        if (!fault_text(in->a, &s.faults[i])) violation("input", "a fault without a text", in->data);
    return OK;
}

/* ---- musher's own formats ---------------------------------------------------------------------- */

static enum status read_program(struct fuzz_input *in, struct error *err)
{
    struct program p, q;
    struct text t;
    char *first, *second;
    size_t n;
    int64_t calls = 0;
    TRY(program_parse(in->a, "input", in->data, in->n, &p, err));
    program_write(text_begin(&t), &p);
    first = text_end(in->a, &t, &n);
    struct error why = {0};
    if (program_parse(in->a, "again", first, n, &q, &why) != OK) violation("round trip", why.text, first);
    program_write(text_begin(&t), &q);
    second = text_end(in->a, &t, NULL);
    if (strcmp(first, second) != 0) violation("round trip differs", first, second);
    for (int32_t i = 0; i < p.n_orders && calls <= SMALL_CALLS; i++) calls += p.orders[i].n_calls;
    return calls <= SMALL_CALLS ? program_check(in->a, &p, err) : OK;
}

static enum status read_schedule(struct fuzz_input *in, struct error *err)
{
    struct schedule s;
    struct text t;
    TRY(schedule_parse(in->a, "input", in->data, false, &s, err));
    schedule_write(text_begin(&t), &s, '\n');
    struct error why = {0};
    const char *text = text_end(in->a, &t, NULL);
    if (schedule_parse(in->a, "again", text, false, &s, &why) != OK) violation("round trip", why.text, text);
    return OK;
}

static enum status read_trace(struct fuzz_input *in, struct error *err)
{
    struct trace *t;
    TRY(trace_read(in->a, in->path, &t, err));
    if (trace_iteration(t) < 0) violation("input", "a negative iteration", in->data);
    trace_order(in->a, t);
    return OK;
}

static enum status read_checkpoint(struct fuzz_input *in, struct error *err)
{
    struct checkpoint c;
    TRY(checkpoint_open(in->a, in->folder, false, &c, err));
    return checkpoint_open(in->a, in->folder, true, &c, NULL) == ERR_INTERNAL ? ERR_INTERNAL : OK; /* there are no data files */
}

/* What is accepted has every value that its header states. */
static enum status read_weights(struct fuzz_input *in, struct error *err)
{
    struct weights w;
    struct weight_wanted wanted = {"transformer.wte.weight", {2, {2, 3}}};
    TRY(weights_open(in->a, in->folder, &w, err));
    for (int32_t i = 0; i < w.n; i++) {
        const struct weight *x = &w.tensors[i];
        int64_t n = shape_elements(&x->at->shape);
        if (x->at->dtype < 0 || x->at->dtype == DTYPE_int32) continue;
        struct error why = {0};
        struct arena *values = arena_new();
        enum status st = weights_read(&w, x, 0, n, DTYPE_fp64, arena_alloc(values, (size_t)n + 1, sizeof(double)), &why);
        arena_free(values);
        if (st != OK && !strstr(why.text, "as a finite number")) violation("input", why.text, in->data);
    }
    return weights_match(in->a, &w, &wanted, 1, NULL) == ERR_INTERNAL ? ERR_INTERNAL : OK; /* it may be those of any model */
}

/* There is one file with the input's name beside it, and no other. */
static enum status read_index(struct fuzz_input *in, struct error *err)
{
    static const char file[] = "@\0\0\0\0\0\0\0{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} data";
    struct weights w;
    struct file f = {0};
    unlink(arena_join(in->a, in->folder, "/model.safetensors"));
    TRY(file_open(&f, arena_join(in->a, in->folder, "/model-00001-of-00001.safetensors"), err));
    fwrite(file, 1, sizeof file - 1, f.stream);
    TRY(file_commit(&f, err));
    return weights_open(in->a, in->folder, &w, err);
}

static enum status read_database(struct fuzz_input *in, struct error *err)
{
    struct store *s = NULL;
    struct profile p;
    enum status st = store_open(in->a, in->path, false, &s, err);
    if (st == OK) st = store_load(s, in->a, 1, &p, err);
    if (st == OK) st = store_load(s, in->a, 2, &p, NULL) == ERR_INTERNAL ? ERR_INTERNAL : OK; /* there may be no second profile */
    store_close(s);
    return st;
}

static enum status read_arrivals(struct fuzz_input *in, struct error *err)
{
    struct arrivals x;
    return arrivals_read(in->a, in->path, 7, 0, -1, &x, err);
}

static enum status read_axis(struct fuzz_input *in, struct error *err)
{
    struct axis x;
    return axis_parse(in->a, in->data, &x, err);
}

/* ---- formats of other tools --------------------------------------------------------------------- */

static enum status read_nccl_tests(struct fuzz_input *in, struct error *err)
{
    struct nccl_tests t;
    TRY(import_nccl_tests_read(in->a, in->path, &t, err));
    for (size_t i = 0; i < t.n; i++)
        if (t.samples[i].bytes <= 0 || !(t.samples[i].seconds > 0)) violation("input", "a sample of no bytes or time", in->data);
    return OK;
}

static enum status read_xml(struct fuzz_input *in, struct error *err)
{
    struct xml *root;
    return xml_parse(in->a, "input", in->data, in->n, &root, err);
}

static enum status read_nccl_topology(struct fuzz_input *in, struct error *err)
{
    const char *out = arena_join(in->a, in->folder, "/cluster.yaml");
    return import_nccl_topology(in->a, &(struct import_request){.path = in->path, .out = out}, err);
}

/* The cluster has as many GPUs as the matrix has names GPU0, GPU1 … */
static enum status read_topo(struct fuzz_input *in, struct error *err)
{
    const char *out = arena_join(in->a, in->folder, "/cluster.yaml"), *team = arena_join(in->a, in->folder, "/team.yaml");
    struct file f = {0};
    int n = 0;
    while (n < 64 && strstr(in->data, arena_printf(in->a, "GPU%d", n))) n++;
    TRY(file_open(&f, team, err));
    fprintf(f.stream,
            "version: 1\nname: t\ndevice_types: [{name: g, device: H100-SXM5}]\n"
            "nodes: [{name: n, host: localhost, devices: [{type: g, count: %d}]}]\nlinks: [{name: l, between: [n]}]\n",
            n ? n : 1);
    TRY(file_commit(&f, err));
    return import_topo(in->a, &(struct import_request){.path = in->path, .out = out, .cluster = team}, err);
}

/* The five files of the folder, one behind the other, each behind a line "--- NAME". */
static enum status read_sailor(struct fuzz_input *in, struct error *err)
{
    static const char *const names[] = {"profiles_tmp.json", "llm_info.json", "network_coeffs_all_homo.json",
                                        "intra_node_bandwidths.json", "cluster_config.json"};
    const char *folder = arena_join(in->a, in->folder, "/sailor"), *db = arena_join(in->a, folder, "/profiles.db");
    const char *at = in->data;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *end = strstr(at, "\n---\n");
        struct file f = {0};
        TRY(file_open(&f, arena_printf(in->a, "%s/%s", folder, names[i]), err));
        fwrite(at, 1, end ? (size_t)(end - at) : strlen(at), f.stream);
        TRY(file_commit(&f, err));
        at = end ? end + 5 : at + strlen(at);
    }
    unlink(db);
    return import_sailor(in->a, &(struct import_request){.path = folder, .db = db, .out = folder}, err);
}

static enum status read_failures(struct fuzz_input *in, struct error *err)
{
    size_t n;
    struct goodput_cause *causes;
    return goodput_read_failures(in->a, in->path, 64, 8, &n, &causes, err);
}

static enum status read_spot(struct fuzz_input *in, struct error *err)
{
    struct goodput_spot s;
    return goodput_read_spot(in->a, in->path, &s, err);
}

static enum status read_sweep(struct fuzz_input *in, struct error *err)
{
    struct sweep_table t;
    table_is(in->path);
    return table_read(in->a, in->path, &t, err);
}

static enum status read_cases(struct fuzz_input *in, struct error *err)
{
    struct schedule_cases c;
    return schedule_cases_read(in->a, in->path, &c, err);
}

static enum status read_published(struct fuzz_input *in, struct error *err)
{
    struct csv c;
    enum published_format format;
    TRY(csv_read(in->a, in->path, &c, err));
    TRY(published_recognise(&c, &format, err));
    if (format == PUBLISHED_ZERO_BUBBLE) return OK;
    for (int32_t i = 0; i < c.n_rows; i++) {
        struct published_row row;
        TRY(published_row(in->a, &c, format, i, &row, err));
    }
    return OK;
}

/* ---- the table ----------------------------------------------------------------------------------- */

const struct fuzz_format fuzz_formats[] = {
    {"document", false, NULL, read_document},
    {"model", false, NULL, read_model},
    {"job", false, NULL, read_job},
    {"cluster", false, NULL, read_cluster},
    {"plan", false, NULL, read_plan},
    {"faults", true, "faults.yaml", read_faults},
    {"program", false, NULL, read_program},
    {"schedule", false, NULL, read_schedule},
    {"trace", true, "run.trace", read_trace},
    {"checkpoint", true, "manifest.json", read_checkpoint},
    {"safetensors", true, "model.safetensors", read_weights},
    {"weights-index", true, "model.safetensors.index.json", read_index},
    {"database", true, "profiles.db", read_database},
    {"arrivals", true, "arrivals.txt", read_arrivals},
    {"axis", false, NULL, read_axis},
    {"nccl-tests", true, "all_reduce.txt", read_nccl_tests},
    {"xml", false, NULL, read_xml},
    {"nccl-topology", true, "topology.xml", read_nccl_topology},
    {"topo", true, "topo.txt", read_topo},
    {"sailor", false, NULL, read_sailor},
    {"failures", true, "failures.csv", read_failures},
    {"spot", true, "spot.csv", read_spot},
    {"sweep", true, "sweep.csv", read_sweep},
    {"cases", true, "cases.csv", read_cases},
    {"published", true, "published.csv", read_published},
    {0}};

const struct fuzz_format *fuzz_format_find(const char *name)
{
    for (const struct fuzz_format *f = fuzz_formats; f->name; f++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

/* ---- one input ------------------------------------------------------------------------------------ */

static char folder[] = "/dev/shm/musher-fuzz-XXXXXX";
static const char *reading = "input";

/* A request that no allocator meets ends the program; here it is a finding. */
static void exhausted(const char *message) { violation(reading, "memory", message); }

void fuzz_format_prepare(void)
{
    char sub[sizeof folder + 8];
    int null = open("/dev/null", O_WRONLY);
    if (!mkdtemp(folder)) {
        snprintf(folder, sizeof folder, "/tmp/musher-fuzz-XXXXXX");
        if (!mkdtemp(folder)) violation("prepare", "mkdtemp", folder);
    }
    snprintf(sub, sizeof sub, "%s/sailor", folder);
    if (mkdir(sub, 0700) || null < 0 || dup2(null, STDOUT_FILENO) < 0) violation("prepare", "no folder or no /dev/null", sub);
    close(null);
    log_set_level(LOG_LEVEL_ERROR);
    arena_on_exhaustion(exhausted);
}

void fuzz_format_end(void)
{
    char command[sizeof folder + 16];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) fprintf(stderr, "%s was not removed\n", folder);
}

static const char *put(struct arena *a, const struct fuzz_format *f, const uint8_t *data, size_t n)
{
    const char *path = arena_printf(a, "%s/%s", folder, f->file_name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) violation("input", "cannot be written", path);
    close(fd);
    return path;
}

enum status fuzz_format_read(const struct fuzz_format *f, const char *label, const uint8_t *data, size_t n)
{
    struct arena *a = arena_new();
    struct error err = {0};
    struct fuzz_input in = {.a = a, .data = arena_strndup(a, (const char *)data, n), .n = n, .folder = folder};
    reading = label;
    if (f->file) in.path = put(a, f, data, n);
    enum status st = f->read(&in, &err);
    bool allowed = st == OK || st == ERR_INPUT || st == ERR_USAGE || st == ERR_INFEASIBLE || st == ERR_RESOURCE;
    if (!allowed) violation(label, "an unexpected exit code with", err.text);
    if (st != OK && (!err.text[0] || err.code != st)) violation(label, "an error without its text or code", err.text);
    if (arena_used(a) > ((size_t)64 << 20) + 8 * n) violation(label, "more memory than 64 MiB and 8 bytes per byte", f->name);
    arena_free(a);
    return st;
}
