#include "tests/support/disk_model.h"

#include "core/base/arena.h"
#include "core/base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SECTOR = 512, BYTES_MAX = 1 << 30, FILES_MAX = 10000 };

static struct arena *all, *scratch; /* for the log; for a state */

static void broken(const char *what, const char *about)
{
    fprintf(stderr, "disk_model: %s: %s\n", what, about);
    exit(2);
}

static uint64_t draws;
static uint64_t draw(uint64_t n) /* SplitMix64 */
{
    uint64_t z = draws += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % n;
}

/* ---- files and folders ------------------------------------------------------------------------ */

/* Of a file: data at `from`, or a size. Of a folder: one or two names that get a node, or none (-1). */
struct disk_change {
    bool size;
    int64_t from;
    const char *data;
    size_t n;
    struct disk_name names[2];
};
static struct disk_object *nodes;
static size_t n_nodes, nodes_capacity;

static int32_t object_new(bool folder, uint64_t inode)
{
    nodes = arena_grow(all, nodes, n_nodes, &nodes_capacity, sizeof *nodes);
    nodes[n_nodes] = (struct disk_object){.folder = folder, .inode = inode};
    return (int32_t)n_nodes++;
}

static void bytes_resize(struct arena *a, struct disk_bytes *b, size_t n)
{
    if (n > b->capacity) {
        size_t capacity = 2 * n + 64;
        char *data = arena_alloc(a, capacity, 1);
        if (b->n) memcpy(data, b->data, b->n);
        b->data = data, b->capacity = capacity;
    }
    if (n > b->n) memset(b->data + b->n, 0, n - b->n);
    b->n = n;
}

static void bytes_put(struct arena *a, struct disk_bytes *b, int64_t at, const char *data, size_t n)
{
    if ((size_t)at + n > b->n) bytes_resize(a, b, (size_t)at + n);
    memcpy(b->data + at, data, n);
}

static struct disk_bytes bytes_copy(struct arena *a, const struct disk_bytes *b)
{
    return (struct disk_bytes){arena_copy(a, b->data, b->n), b->n, b->n};
}

static int32_t *name_of(struct disk_names *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->at[i].name, name)) return &s->at[i].object;
    return NULL;
}

static void names_set(struct arena *a, struct disk_names *s, const struct disk_name *x)
{
    int32_t *node = name_of(s, x->name);
    if (!node) {
        s->at = arena_grow(a, s->at, s->n, &s->capacity, sizeof *s->at);
        node = &s->at[s->n++].object;
        s->at[s->n - 1].name = x->name;
    }
    *node = x->object;
}

struct disk_names disk_model_names(struct arena *a, const struct disk_names *s)
{
    return (struct disk_names){arena_copy(a, s->at, s->n * sizeof *s->at), s->n, s->n};
}

static void change(int32_t node, struct disk_change c)
{
    struct disk_object *x = &nodes[node];
    x->pending = arena_grow(all, x->pending, x->n_pending, &x->capacity, sizeof c);
    x->pending[x->n_pending++] = c;
    if (x->folder)
        for (int i = 0; i < 2 && c.names[i].name; i++) names_set(all, &x->named, &c.names[i]);
    else if (c.size)
        bytes_resize(all, &x->now, (size_t)c.from);
    else
        bytes_put(all, &x->now, c.from, c.data, c.n);
}

static void sync_node(int32_t node)
{
    struct disk_object *x = &nodes[node];
    x->safe = bytes_copy(all, &x->now);
    x->safely = disk_model_names(all, &x->named);
    x->n_pending = 0;
}

/* What BEFORE contains is on the disk. */
static int32_t load(const char *path)
{
    struct stat about;
    struct error err;
    if (stat(path, &about)) broken("no such file", path);
    int32_t node = object_new(S_ISDIR(about.st_mode), 0);
    if (nodes[node].folder) {
        DIR *d = opendir(path);
        if (!d) broken("cannot open", path);
        for (struct dirent *e; (e = readdir(d));) {
            if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
            struct disk_name x = {arena_strdup(all, e->d_name), load(arena_printf(all, "%s/%s", path, e->d_name))};
            names_set(all, &nodes[node].named, &x);
        }
        closedir(d);
    } else {
        struct disk_bytes *b = &nodes[node].now;
        if (file_read(all, path, BYTES_MAX, &b->data, &b->n, &err) != OK) broken("cannot read", err.text);
        b->capacity = b->n;
    }
    sync_node(node);
    return node;
}

static const char *root; /* object 0 */

/* The folder of a path in ROOT, or -1; *last: the name in it. */
int32_t disk_model_folder(const char *path, const char **last)
{
    size_t n = strlen(root);
    int32_t node = 0;
    if (strncmp(path, root, n) || path[n] != '/') return -1;
    for (path += n + 1;; path = *last + 1) {
        *last = strchr(path, '/');
        if (!*last) break;
        int32_t *next = name_of(&nodes[node].named, arena_strndup(all, path, (size_t)(*last - path)));
        if (!next || *next < 0 || !nodes[*next].folder) return -1;
        node = *next;
    }
    *last = arena_strdup(all, path);
    return node;
}

int32_t disk_model_at(const char *path)
{
    const char *last;
    if (!strcmp(path, root)) return 0;
    int32_t folder = disk_model_folder(path, &last), *node = folder < 0 ? NULL : name_of(&nodes[folder].named, last);
    return node ? *node : -1;
}

/* The newest node with the number, because numbers are used again. */
static int32_t node_numbered(uint64_t inode, const char *path)
{
    for (size_t i = n_nodes; i-- > 0;)
        if (nodes[i].inode == inode) return (int32_t)i;
    int32_t node = disk_model_at(path);
    if (node >= 0 && !nodes[node].inode) nodes[node].inode = inode;
    return node >= 0 && nodes[node].inode == inode ? node : -1;
}

/* ---- the log ---------------------------------------------------------------------------------- */

static void rename_node(const struct disk_record *r, const char *from, const char *to)
{
    const char *last[2];
    bool swap = r->operation == DISK_EXCHANGE;
    int32_t x = disk_model_at(from), y = disk_model_at(to), old = disk_model_folder(from, &last[0]), new = disk_model_folder(to, &last[1]);
    struct disk_change leave = {.names = {{last[0], swap ? y : -1}}}, enter = {.names = {{last[1], x}}};
    if (old < 0 || new < 0) return;
    if (old == new) {
        leave.names[1] = enter.names[0];
        change(old, leave);
    } else {
        change(new, enter);
        change(old, leave);
    }
}

void disk_model_apply(const struct disk_record *r, const char *first, const char *second, const char *data, const char *without)
{
    const char *last = NULL;
    bool named = r->operation == DISK_CREATE || r->operation == DISK_MKDIR || r->operation == DISK_UNLINK || r->operation == DISK_RMDIR;
    int32_t folder = named ? disk_model_folder(first, &last) : -1;
    int32_t node = named || !r->inode ? -1 : node_numbered(r->inode, first);
    switch ((enum disk_operation)r->operation) {
    case DISK_TOLD: break;
    case DISK_CREATE:
    case DISK_MKDIR:
        if (folder < 0) break;
        node = object_new(r->operation == DISK_MKDIR, r->inode);
        change(folder, (struct disk_change){.names = {{last, node}}});
        break;
    case DISK_UNLINK:
    case DISK_RMDIR:
        if (folder >= 0) change(folder, (struct disk_change){.names = {{last, -1}}});
        break;
    case DISK_WRITE:
        if (node >= 0) change(node, (struct disk_change){.from = r->at, .data = data, .n = r->data});
        break;
    case DISK_TRUNCATE:
        if (node >= 0) change(node, (struct disk_change){.size = true, .from = r->at});
        break;
    case DISK_SYNC:
        if (node >= 0 && strcmp(without, nodes[node].folder ? "folders" : "data")) sync_node(node);
        break;
    case DISK_LINK:
        node = disk_model_at(first), folder = disk_model_folder(second, &last);
        if (folder >= 0) change(folder, (struct disk_change){.names = {{last, node}}});
        break;
    case DISK_RENAME:
    case DISK_EXCHANGE: rename_node(r, first, second); break;
    }
}

/* ---- a state ---------------------------------------------------------------------------------- */

/* The parts of a write that are there. */
static void put_some(struct disk_bytes *b, const struct disk_change *c, int chance)
{
    for (size_t at = 0, n; at < c->n; at += n) {
        size_t to_edge = SECTOR - (size_t)(c->from + (int64_t)at) % SECTOR;
        n = to_edge < c->n - at ? to_edge : c->n - at;
        if ((int)draw(8) < chance) bytes_put(scratch, b, c->from + (int64_t)at, c->data + at, n);
    }
}

static struct disk_bytes file_state(const struct disk_object *x, enum disk_state mode)
{
    struct disk_bytes b = bytes_copy(scratch, mode == DISK_NEW || mode == DISK_NAMELESS ? &x->now : &x->safe);
    int chance = (int)draw(10) - 1; /* of eight; often none or all */
    if (mode == DISK_ZEROS) bytes_resize(scratch, &b, x->now.n);
    for (size_t i = 0; mode >= DISK_TORN && i < x->n_pending; i++) {
        const struct disk_change *c = &x->pending[i];
        bool last = mode == DISK_TORN && i + 1 == x->n_pending;
        if (c->size) {
            if (mode == DISK_TORN ? !last : draw(2)) bytes_resize(scratch, &b, (size_t)c->from);
        } else if (mode == DISK_DRAWN) {
            put_some(&b, c, chance);
        } else {
            size_t half = (c->n / 2 + SECTOR - 1) / SECTOR * SECTOR;
            bytes_put(scratch, &b, c->from, c->data, last && half < c->n ? half : last ? 0 : c->n);
        }
    }
    if (mode == DISK_DRAWN && !draw(3)) bytes_resize(scratch, &b, x->now.n);
    return b;
}

static struct disk_names folder_state(const struct disk_object *x, enum disk_state mode)
{
    bool none = mode == DISK_OLD || mode == DISK_NAMELESS;
    size_t kept = mode == DISK_DRAWN ? draw(x->n_pending + 1) : x->n_pending;
    int order = (int)draw(2); /* 0: the first ones, 1: any */
    struct disk_names s = disk_model_names(scratch, &x->safely);
    for (size_t i = 0; !none && i < x->n_pending; i++)
        if (mode != DISK_DRAWN || (order ? draw(2) : i < kept))
            for (int k = 0; k < 2 && x->pending[i].names[k].name; k++) names_set(scratch, &s, &x->pending[i].names[k]);
    return s;
}

static struct disk_made *made;
static size_t n_made, made_capacity;

/* A file with two names has one content. */
static struct {
    bool done;
    struct disk_bytes data;
} *states;

static void make(int32_t node, const char *path, enum disk_state mode)
{
    const struct disk_object *x = &nodes[node];
    if (!x->folder && !states[node].done) states[node].data = file_state(x, mode), states[node].done = true;
    made = arena_grow(scratch, made, n_made, &made_capacity, sizeof *made);
    made[n_made++] = (struct disk_made){path, x->folder, x->folder ? (struct disk_bytes){0} : states[node].data};
    struct disk_names s = x->folder ? folder_state(x, mode) : (struct disk_names){0};
    for (size_t i = 0; i < s.n && n_made < FILES_MAX; i++)
        if (s.at[i].object >= 0) make(s.at[i].object, arena_printf(scratch, "%s/%s", path, s.at[i].name), mode);
}

const struct disk_object *disk_model_object(int32_t object) { return &nodes[object]; }

void disk_model_open(struct arena *a, const char *log_root, const char *before, uint64_t seed)
{
    all = a;
    root = log_root;
    draws = seed;
    load(before);
}

struct disk_made *disk_model_state(struct arena *a, const char *top, enum disk_state state, size_t *n)
{
    scratch = a;
    made = NULL, n_made = made_capacity = 0;
    states = arena_alloc(scratch, n_nodes, sizeof *states);
    make(0, top, state);
    *n = n_made;
    return made;
}
