#include "core/faults/script.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/rng.h"
#include "core/document/canonical.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWN = 16, DRAWN_MAX = FAULTS_MAX }; /* faults of one entry with mtbf */
#define TIME_MAX_S 1e9
#define STEP_MAX INT64_C(1000000000)

const struct document_key fault_script_keys[] = {
    {"version", "1", NULL, "version of the format"},
    {"faults", "list of maps", NULL, "faults, each of which happens once"},
    {0}};

const struct document_key fault_keys[] = {
    {"kind", "kill, stop, exit, slow, link_slow, disk_full or host_lost", NULL,
     "SIGKILL or SIGSTOP of a device's rank, or its end with `code`; an emulated device or link `factor` times slower; checkpoints that "
     "cannot be written; SIGKILL of all ranks of a node"},
    {"device", "name", "none; with mtbf each device", "device of kill, stop, exit and slow, e.g. a.1"},
    {"link", "name", "none", "link of link_slow, as the cluster names it"},
    {"node", "name", "none; with mtbf each node", "node of host_lost"},
    {"at_step", "number of a step", "none", "the fault comes before this step of the training, counted from 1"},
    {"at", "time", "none", "the fault comes this long after the first step of the run began, while ranks train, e.g. 30 s"},
    {"mtbf", "time", "none", "mean time between failures of each place: faults at random times, exponentially distributed, in place of at and at_step"},
    {"seed", "number", "0", "of the draw of mtbf"},
    {"count", "number", "16", "faults drawn by mtbf, the first ones of all places"},
    {"factor", "number above 1", "none", "of slow and link_slow: how many times slower"},
    {"steps", "number", "none; one checkpoint of disk_full", "executed steps that slow, link_slow and disk_full last; repeated steps count"},
    {"code", "1, or 9 to 255", "1", "exit code of exit; 2 to 8 are musher's own errors, after which a run does not start again"},
    {"back", "time", "never", "of host_lost: time from the loss to the return of the node"},
    {"back_at_step", "number of a step", "never", "of host_lost with --elastic: the node returns before this step"},
    {0}};

static const char *const kind_names[] = {
#define X(name, help) #name,
    FAULT_KINDS(X)
#undef X
        NULL};

const char *fault_kind_name(enum fault_kind k) { return kind_names[k]; }

bool fault_ends_ranks(const struct fault *f)
{
    return f->kind == FAULT_kill || f->kind == FAULT_stop || f->kind == FAULT_exit || f->kind == FAULT_host_lost;
}

bool fault_exit_code(int64_t code) { return code > 0 && code <= 255 && (code < ERR_USAGE || code > ERR_NO_DEVICE); }

static bool on_node(const char *device, const char *node, size_t n)
{
    return strlen(device) > n && !strncmp(device, node, n) && device[n] == '.';
}

bool fault_hits(const struct fault *f, const char *device)
{
    if (f->kind == FAULT_host_lost) return on_node(device, f->place, strlen(f->place));
    return (fault_ends_ranks(f) || f->kind == FAULT_slow) && !strcmp(f->place, device);
}

const char *fault_text(struct arena *a, const struct fault *f)
{
    switch (f->kind) {
    case FAULT_kill:
        return arena_printf(a, "killed %s", f->place);
    case FAULT_stop:
        return arena_printf(a, "stopped %s", f->place);
    case FAULT_exit:
        return arena_printf(a, "%s ended with exit code %" PRId64, f->place, f->code);
    case FAULT_slow:
    case FAULT_link_slow:
        return arena_printf(a, "%s is %g times slower for %" PRId64 " step%s", f->place, f->factor, f->steps, f->steps > 1 ? "s" : "");
    case FAULT_disk_full:
        return f->steps ? arena_printf(a, "no space for checkpoints for %" PRId64 " step%s", f->steps, f->steps > 1 ? "s" : "")
                        : "no space for one checkpoint";
    case FAULT_host_lost:
        return arena_printf(a, "lost node %s", f->place);
    case FAULT_KIND_COUNT:
        break;
    }
    BUG("fault of kind %d", (int)f->kind);
}

/* --- places ----------------------------------------------------------------------------------- */

struct reading {
    struct arena *a;
    const struct program *p;
    struct fault_script *out;
    int32_t n_nodes;
    const char **nodes; /* (n_nodes) of the program's devices */
};

static void find_nodes(struct reading *r)
{
    r->nodes = ARENA_ARRAY(r->a, const char *, (size_t)r->p->n_devices + 1);
    for (int32_t d = 0; d < r->p->n_devices; d++) {
        char *name = arena_strdup(r->a, r->p->devices[d].name), *dot = strrchr(name, '.');
        int32_t i = 0;
        if (dot) *dot = 0;
        while (i < r->n_nodes && strcmp(r->nodes[i], name) != 0) i++;
        if (i == r->n_nodes) r->nodes[r->n_nodes++] = name;
    }
}

static const char *device_name(const struct reading *r, int32_t i) { return r->p->devices[i].name; }
static const char *link_name(const struct reading *r, int32_t i) { return r->p->links[i].name; }
static const char *node_name(const struct reading *r, int32_t i) { return r->nodes[i]; }

struct places { /* of a kind of fault */
    const char *key;
    int32_t n;
    const char *(*name)(const struct reading *r, int32_t i);
};

static struct places places_of(const struct reading *r, enum fault_kind k)
{
    if (k == FAULT_link_slow) return (struct places){"link", r->p->n_links, link_name};
    if (k == FAULT_host_lost) return (struct places){"node", r->n_nodes, node_name};
    if (k == FAULT_disk_full) return (struct places){0};
    return (struct places){"device", r->p->n_devices, device_name};
}

static enum status find_place(const struct reading *r, const struct node *n, const struct places *s, int32_t *out, struct error *err)
{
    char hint[NEAREST_HINT];
    const char *name;
    TRY(node_text(n, &name, err));
    struct nearest near = nearest_to(name);
    for (*out = 0; *out < s->n; ++*out) {
        if (!strcmp(s->name(r, *out), name)) return OK;
        nearest_try(&near, s->name(r, *out));
    }
    return node_error(n, err, "the plan uses no %s '%s'; it has %" PRId32 ", the first is '%s'%s", s->key, name, s->n,
                      s->n ? s->name(r, 0) : "", nearest_hint(&near, hint));
}

/* Emulated devices and links have times of their own that can be multiplied. */
static enum status check_place(const struct reading *r, const struct node *n, const struct fault *f, int32_t place, struct error *err)
{
    if (f->kind == FAULT_slow && !(r->p->devices[place].slowdown > 0))
        return node_error(n, err, "slow: %s is a real device; only emulated ones (`slowdown` in the cluster) can be made slower", f->place);
    if (f->kind == FAULT_link_slow && (!r->p->emulated || !(r->p->links[place].bandwidth_Bps > 0)))
        return node_error(n, err, "link_slow: %s is no emulated link with a stated bandwidth", f->place);
    return OK;
}

/* --- entries ---------------------------------------------------------------------------------- */

/* A key that the kind does not have would do nothing. */
static enum status check_keys(const struct node *n, enum fault_kind k, struct error *err)
{
    static const struct {
        const char *key;
        unsigned kinds;
    } rows[] = {{"device", 1u << FAULT_kill | 1u << FAULT_stop | 1u << FAULT_exit | 1u << FAULT_slow},
                {"link", 1u << FAULT_link_slow},
                {"node", 1u << FAULT_host_lost},
                {"factor", 1u << FAULT_slow | 1u << FAULT_link_slow},
                {"steps", 1u << FAULT_slow | 1u << FAULT_link_slow | 1u << FAULT_disk_full},
                {"code", 1u << FAULT_exit},
                {"back", 1u << FAULT_host_lost},
                {"back_at_step", 1u << FAULT_host_lost}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct node *x = node_get(n, rows[i].key);
        if (x && !(rows[i].kinds & 1u << k)) return node_error(x, err, "a fault of kind %s has no '%s'", kind_names[k], rows[i].key);
    }
    return OK;
}

static enum status read_seconds(const struct node *n, const char *key, int64_t *out_ns, struct error *err)
{
    double s = 0;
    TRY(node_get_quantity(n, key, QUANTITY_SECONDS, 0, TIME_MAX_S, &s, err));
    *out_ns = units_ns_from_s(s);
    return OK;
}

static enum status read_details(const struct node *n, struct fault *f, struct error *err)
{
    const struct node *factor = node_get(n, "factor");
    bool slows = f->kind == FAULT_slow || f->kind == FAULT_link_slow;
    if (slows) {
        TRY(node_need(n, "factor", &factor, err));
        TRY(node_double(factor, 1, 1e6, &f->factor, err));
        TRY(node_need(n, "steps", &factor, err));
    }
    f->code = 1;
    TRY(node_get_int(n, "steps", 1, STEP_MAX, &f->steps, err));
    TRY(node_get_int(n, "code", INT64_MIN / 2, INT64_MAX / 2, &f->code, err));
    if (!fault_exit_code(f->code))
        return node_error(node_get(n, "code"), err, "%" PRId64 " must be 1, or 9 to 255: exit codes 2 to 8 are musher's own errors, after which a run does not start again", f->code);
    TRY(read_seconds(n, "back", &f->back_ns, err));
    TRY(node_get_int(n, "back_at_step", 1, STEP_MAX, &f->back_at_step, err));
    if (f->back_ns && f->back_at_step) return node_error(node_get(n, "back"), err, "back and back_at_step exclude each other");
    return OK;
}

static enum status add(struct reading *r, const struct node *n, const struct fault *f, struct error *err)
{
    if (r->out->n == FAULTS_MAX) return node_error(n, err, "more than %d faults", FAULTS_MAX);
    r->out->faults[r->out->n++] = *f;
    return OK;
}

static int by_time(const void *x, const void *y)
{
    int64_t a = ((const struct fault *)x)->at_ns, b = ((const struct fault *)y)->at_ns;
    return (a > b) - (a < b);
}

/* The first `count` failures of all places; each place has its own sequence of draws. */
static enum status draw(struct reading *r, const struct node *n, const struct places *s, int32_t only, struct fault f, double mtbf_s,
                        struct error *err)
{
    int64_t seed = 0, count = DRAWN;
    int32_t first = only < 0 ? 0 : only, end = only < 0 ? s->n : only + 1;
    TRY(node_get_int(n, "seed", 0, INT64_MAX / 2, &seed, err));
    TRY(node_get_int(n, "count", 1, DRAWN_MAX, &count, err));
    struct fault *all = ARENA_ARRAY(r->a, struct fault, (size_t)count * (size_t)(end - first));
    size_t n_all = 0;
    for (int32_t i = first; i < end; i++) {
        double at_s = 0;
        f.place = s->name(r, i);
        TRY(check_place(r, n, &f, i, err));
        for (int64_t k = 0; k < count; k++) {
            at_s += -log1p(-rng_uniform((uint64_t)seed, rng_hash_text(1, f.place), (uint64_t)k)) * mtbf_s;
            f.at_ns = units_ns_from_s(fmin(at_s, TIME_MAX_S));
            all[n_all++] = f;
        }
    }
    qsort(all, n_all, sizeof *all, by_time);
    for (int64_t k = 0; k < count; k++) TRY(add(r, n, &all[k], err));
    return OK;
}

static enum status read_fault(struct reading *r, const struct node *n, struct error *err)
{
    struct fault f = {.place = ""};
    const struct node *kind, *at, *step, *mtbf;
    int k = 0;
    TRY(document_keys(n, fault_keys, err));
    TRY(node_need(n, "kind", &kind, err));
    TRY(node_choice(kind, kind_names, &k, err));
    f.kind = (enum fault_kind)k;
    TRY(check_keys(n, f.kind, err));
    TRY(read_details(n, &f, err));
    at = node_get(n, "at"), step = node_get(n, "at_step"), mtbf = node_get(n, "mtbf");
    if (!!at + !!step + !!mtbf != 1) return node_error(n, err, "a fault has one of at_step, at and mtbf");
    for (int i = 0; i < 2 && !mtbf; i++) {
        const struct node *x = node_get(n, i ? "seed" : "count");
        if (x) return node_error(x, err, "'%s' needs mtbf", x->key);
    }
    struct places s = places_of(r, f.kind);
    const struct node *place = s.key ? node_get(n, s.key) : NULL;
    int32_t which = -1;
    if (s.key && !place && (!mtbf || f.kind == FAULT_link_slow)) return node_error(n, err, "a fault of kind %s needs '%s'", kind_names[k], s.key);
    if (place) TRY(find_place(r, place, &s, &which, err));
    if (mtbf) {
        double mtbf_s;
        TRY(node_quantity(mtbf, QUANTITY_SECONDS, 1e-3, TIME_MAX_S, &mtbf_s, err));
        if (!s.key) return node_error(mtbf, err, "mtbf is of devices, links and nodes");
        f.drawn = true;
        return draw(r, n, &s, which, f, mtbf_s, err);
    }
    if (place) {
        f.place = s.name(r, which);
        TRY(check_place(r, place, &f, which, err));
    }
    TRY(node_get_int(n, "at_step", 1, STEP_MAX, &f.at_step, err));
    TRY(read_seconds(n, "at", &f.at_ns, err));
    if (f.back_at_step && f.back_at_step <= f.at_step)
        return node_error(node_get(n, "back_at_step"), err, "the node is lost at step %" PRId64 ": it returns at a later step", f.at_step);
    return add(r, n, &f, err);
}

enum status fault_script_read(struct arena *a, const char *path, const struct program *p, struct fault_script *out, struct error *err)
{
    struct node *root;
    const struct node *list;
    *out = (struct fault_script){.faults = ARENA_ARRAY(a, struct fault, FAULTS_MAX)};
    struct reading r = {.a = a, .p = p, .out = out};
    TRY(document_read(a, path, &root, err));
    TRY(document_keys(root, fault_script_keys, err));
    TRY(canonical_version(root, err));
    TRY(node_need(root, "faults", &list, err));
    TRY(node_is(list, NODE_LIST, err));
    find_nodes(&r);
    for (size_t i = 0; i < list->count; i++) TRY(read_fault(&r, list->members[i], err));
    return out->n ? OK : node_error(list, err, "no faults");
}
