/* musher import topo: the matrix of `nvidia-smi topo -m` becomes switches and links of a cluster.
 *
 * The matrix has the distances of devices, not their types. These come from --cluster FILE: one node whose devices are in
 * the order of GPU0, GPU1, …; its links are replaced.
 *   NV#        # NVLinks: through one switch if their sum exceeds the device's number of links, else between the two
 *   PIX PXB    one PCIe switch (pcie#), several in a row (bridge#)
 *   PHB NODE   one host bridge (root#), one NUMA node (cpu#)
 *   SYS SOC    across sockets: the cpu# are joined pairwise
 * Devices at the same level share the switch of that level; nearer ones have a switch below it. NV# hides the PCIe
 * distance of two devices; it is derived from the NICs and the NUMA column if possible.
 * Bandwidths are not in the matrix: PCIe has three quarters of the catalogue's value for the device type (as in NCCL),
 * or of third generation and 16 lanes; sockets exchange 10 GB/s (NCCL's figure for Skylake); the ports of NICs are unknown and
 * have no link.
 * Skipped: terminal escape sequences, prefixes of mpirun and srun, columns that depend on the driver.
 */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "profiles/catalogue.h"
#include "tools/import/import.h"
#include "tools/import/topology.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 256, WORDS_MAX = ITEMS_MAX + 64, BYTES_MAX = 1 << 22 };
enum near { NEAR_SELF, NEAR_PIX, NEAR_PXB, NEAR_PHB, NEAR_NODE, NEAR_SYS, NEAR_UNKNOWN };
#define SOCKETS_BPS 10e9
#define PCIE_SHARE 0.75 /* of the nominal rate of a generation */

struct matrix {
    struct arena *a;
    const char *path;
    struct error *err;
    int line;
    int32_t n, n_gpus; /* GPUs first */
    const char *name[ITEMS_MAX];
    int row[ITEMS_MAX]; /* line of the row; 0: none yet */
    int32_t nvlinks[ITEMS_MAX][ITEMS_MAX];
    enum near near[ITEMS_MAX][ITEMS_MAX];
    bool has_numa;
    int32_t numa[ITEMS_MAX]; /* -1: unknown */
};

static enum status broken(const struct matrix *m, const char *fmt, const char *word)
{
    char text[300];
    int n = snprintf(text, sizeof text, "%s:%d: ", m->path, m->line);
    if (n > 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, "%s '%.60s'", fmt, word);
    return error_set(m->err, ERR_INPUT, "%s", text);
}

/* --- words of a line --- */

/* Removes escape sequences and carriage returns in place. */
static void make_plain(char *line)
{
    char *to = line;
    for (const char *at = line; *at; at++) {
        if (*at == '\x1b' && at[1] == '[') {
            for (at += 2; *at && !isalpha((unsigned char)*at); at++) {
            }
            if (!*at) break;
        } else if (*at != '\r') {
            *to++ = *at;
        }
    }
    *to = 0;
}

/* Behind "[1,0]<stdout>:" or "3: ". */
static char *behind_prefix(char *line)
{
    char *at = line;
    if (*at == '[') {
        char *end = strstr(at, ">:");
        return end ? end + 2 : line;
    }
    while (isdigit((unsigned char)*at)) at++;
    return at > line && at[0] == ':' && (at[1] == ' ' || at[1] == '\t') ? at + 1 : line;
}

static int32_t split(char *line, char *words[WORDS_MAX])
{
    int32_t n = 0;
    for (char *at = line; n < WORDS_MAX;) {
        at += strspn(at, " \t");
        if (!*at) break;
        words[n++] = at;
        at += strcspn(at, " \t");
        if (*at) *at++ = 0;
    }
    return n;
}

/* --- header and rows --- */

static bool is_gpu(const char *word, int32_t index)
{
    char name[16];
    snprintf(name, sizeof name, "GPU%" PRId32, index);
    return !strcmp(word, name);
}

static enum status read_header(struct matrix *m, char **words, int32_t n)
{
    int32_t i = 0;
    for (; i < n && is_gpu(words[i], i); i++) {
    }
    m->n_gpus = i;
    for (; i < n && strcmp(words[i], "CPU") != 0; i++)
        if (!strncmp(words[i], "GPU", 3))
            return broken(m, "column numbers are not ascending at", words[i]);
    if (i > ITEMS_MAX)
        return error_set(m->err, ERR_INPUT, "%s:%d: more than %d columns", m->path, m->line,
                         ITEMS_MAX);
    m->n = i;
    for (int32_t k = 0; k < m->n; k++) m->name[k] = arena_strdup(m->a, words[k]);
    for (; i < n; i++) m->has_numa |= !strcmp(words[i], "NUMA") && strcmp(words[i - 1], "GPU") != 0;
    return OK;
}

static enum status read_relation(struct matrix *m, const char *word, int32_t from, int32_t to)
{
    static const struct {
        const char *word;
        enum near near;
    } known[] = {{"X", NEAR_SELF},    {"PIX", NEAR_PIX}, {"PXB", NEAR_PXB}, {"PHB", NEAR_PHB},
                 {"NODE", NEAR_NODE}, {"SYS", NEAR_SYS}, {"SOC", NEAR_SYS}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(word, known[i].word) != 0) continue;
        if ((known[i].near == NEAR_SELF) != (from == to))
            return broken(m, "expected X in the column of the row's own device, not", word);
        m->near[from][to] = known[i].near;
        return OK;
    }
    char *end;
    long count = strncmp(word, "NV", 2) == 0 ? strtol(word + 2, &end, 10) : 0;
    if (count < 1 || count > 1024 || *end || from >= m->n_gpus || to >= m->n_gpus || from == to)
        return broken(m, "unknown relation (known: X, NV#, PIX, PXB, PHB, NODE, SYS):", word);
    m->nvlinks[from][to] = (int32_t)count;
    m->near[from][to] = NEAR_UNKNOWN;
    return OK;
}

static enum status read_row(struct matrix *m, char **words, int32_t n, int32_t item)
{
    if (m->row[item]) return broken(m, "a second row of", m->name[item]);
    m->row[item] = m->line;
    if (n - 1 < m->n) return broken(m, "fewer cells than columns in the row of", m->name[item]);
    for (int32_t i = 0; i < m->n; i++) TRY(read_relation(m, words[1 + i], item, i));
    m->numa[item] = -1;
    if (!m->has_numa || item >= m->n_gpus || n < m->n + 3) return OK;
    char *end;
    long numa = strtol(words[m->n + 2], &end, 10);
    if (!*end && numa >= 0 && numa < 65536) m->numa[item] = (int32_t)numa;
    return OK;
}

static enum status read_line(struct matrix *m, char *line, bool *legend)
{
    char *words[WORDS_MAX];
    make_plain(line);
    int32_t n = split(behind_prefix(line), words);
    if (n && !strcmp(words[0], "Legend:")) *legend = true;
    if (!n) return OK;
    if (!m->n) return is_gpu(words[0], 0) ? read_header(m, words, n) : OK;
    for (int32_t i = 0; i < m->n && !*legend; i++)
        if (!strcmp(words[0], m->name[i])) return read_row(m, words, n, i);
    /* "NIC0: mlx5_0" behind "NIC Legend:" */
    size_t length = strlen(words[0]);
    if (n != 2 || length < 2 || words[0][length - 1] != ':') return OK;
    words[0][length - 1] = 0;
    for (int32_t i = m->n_gpus; i < m->n; i++)
        if (!strcmp(words[0], m->name[i])) m->name[i] = arena_strdup(m->a, words[1]);
    return OK;
}

static enum status check_matrix(struct matrix *m)
{
    for (int32_t i = 0; i < m->n; i++) {
        if (!m->row[i])
            return error_set(m->err, ERR_INPUT, "%s:%d: the row of %s is missing", m->path, m->line,
                             m->name[i]);
        for (int32_t j = 0; j < i; j++)
            if (m->nvlinks[i][j] != m->nvlinks[j][i] || m->near[i][j] != m->near[j][i])
                return error_set(
                    m->err, ERR_INPUT, "%s:%d: %s to %s differs from %s to %s in line %d", m->path,
                    m->row[i], m->name[i], m->name[j], m->name[j], m->name[i], m->row[j]);
    }
    return OK;
}

static enum status read_matrix(struct matrix *m)
{
    char *text;
    size_t n;
    bool legend = false;
    TRY(file_read(m->a, m->path, BYTES_MAX, &text, &n, m->err));
    if (strlen(text) != n)
        return error_set(m->err, ERR_INPUT, "%s: not a text file: it has NUL bytes", m->path);
    for (char *at = text; *at;) {
        char *end = at + strcspn(at, "\n");
        bool last = !*end;
        *end = 0;
        m->line++;
        TRY(read_line(m, at, &legend));
        at = last ? end : end + 1;
    }
    if (!m->n)
        return error_set(
            m->err, ERR_INPUT,
            "%s: no header line that begins with GPU0; expected the output of nvidia-smi topo -m",
            m->path);
    return check_matrix(m);
}

/* --- the cluster --- */

struct maker {
    struct topology b;
    const struct matrix *m;
    const struct catalogue_device *types[ITEMS_MAX]; /* of each GPU */
    int32_t parent[ITEMS_MAX];                       /* union-find of the items at one level */
    /* Representative of each item's group. */
    enum link_end kind[ITEMS_MAX];
    int32_t index[ITEMS_MAX];
    double up_Bps[ITEMS_MAX];
};

static int32_t group_of(struct maker *k, int32_t item)
{
    while (k->parent[item] != item) item = k->parent[item] = k->parent[k->parent[item]];
    return item;
}

/* The smallest index represents the group. */
static void join(struct maker *k, int32_t a, int32_t b)
{
    a = group_of(k, a), b = group_of(k, b);
    if (a < b)
        k->parent[b] = a;
    else
        k->parent[a] = b;
}

static void attach(struct maker *k, int32_t item, int32_t to)
{
    topology_link(&k->b, k->kind[item], k->index[item], END_SWITCH, to, k->up_Bps[item],
                  TOPOLOGY_PCIE_S / 2);
}

/* Merges all items at this distance or nearer; groups that merge get a switch above them. */
static void make_level(struct maker *k, enum near level, const char *name)
{
    const struct matrix *m = k->m;
    int32_t before[ITEMS_MAX], count = 0;
    for (int32_t i = 0; i < m->n; i++) before[i] = group_of(k, i);
    for (int32_t i = 0; i < m->n; i++)
        for (int32_t j = 0; j < i; j++)
            if (m->near[i][j] <= level ||
                (level == NEAR_NODE && m->numa[i] >= 0 && m->numa[i] == m->numa[j]))
                join(k, i, j);
    for (int32_t i = 0; i < m->n; i++) {
        if (group_of(k, i) != i) continue;
        int32_t members = 0;
        double up = 0;
        for (int32_t j = i; j < m->n; j++) {
            if (before[j] != j || group_of(k, j) != i) continue;
            members++;
            if (k->up_Bps[j] > up) up = k->up_Bps[j];
        }
        if (members < 2) continue;
        int32_t to = topology_switch(&k->b, arena_printf(k->b.a, "%s%" PRId32, name, count++));
        for (int32_t j = i; j < m->n; j++)
            if (before[j] == j && group_of(k, j) == i) attach(k, j, to);
        k->kind[i] = END_SWITCH, k->index[i] = to, k->up_Bps[i] = up;
    }
}

static void join_sockets(struct maker *k)
{
    int32_t sockets[ITEMS_MAX], n = 0, named = 0;
    for (int32_t i = 0; i < k->m->n; i++)
        if (group_of(k, i) == i) sockets[n++] = i;
    if (n < 2) return;
    for (int32_t s = 0; s < n; s++) {
        int32_t i = sockets[s];
        if (k->kind[i] == END_SWITCH && !strncmp(k->b.c.switches[k->index[i]], "cpu", 3)) continue;
        int32_t to = topology_switch(&k->b, arena_printf(k->b.a, "socket%" PRId32, named++));
        attach(k, i, to);
        k->kind[i] = END_SWITCH, k->index[i] = to;
    }
    for (int32_t s = 0; s < n; s++)
        for (int32_t t = s + 1; t < n; t++)
            topology_link(&k->b, END_SWITCH, k->index[sockets[s]], END_SWITCH, k->index[sockets[t]],
                          SOCKETS_BPS, TOPOLOGY_PCIE_S / 2);
}

static enum status link_nvlinks(struct maker *k, struct error *err)
{
    const struct matrix *m = k->m;
    int32_t nvswitch = -1;
    for (int32_t i = 0; i < m->n_gpus; i++) {
        int32_t sum = 0, most = 0, capability = k->types[i]->compute_capability;
        double each = topology_nvlink_Bps(capability);
        for (int32_t j = 0; j < m->n_gpus; j++) {
            sum += m->nvlinks[i][j];
            if (m->nvlinks[i][j] > most) most = m->nvlinks[i][j];
        }
        if (!sum) continue;
        if (!(each > 0))
            return error_set(err, ERR_INPUT,
                             "%s:%d: %s has NVLinks, but %s, its type in --cluster, has none",
                             m->path, m->row[i], m->name[i], k->types[i]->id);
        int32_t links = topology_nvlinks(capability);
        if (links && sum > links) {
            if (nvswitch < 0) nvswitch = topology_switch(&k->b, "nvswitch");
            topology_link(&k->b, END_DEVICE, i, END_SWITCH, nvswitch, most * each,
                          TOPOLOGY_NVLINK_S / 2);
            continue;
        }
        for (int32_t j = i + 1; j < m->n_gpus; j++)
            if (m->nvlinks[i][j])
                topology_link(&k->b, END_DEVICE, i, END_DEVICE, j, m->nvlinks[i][j] * each,
                              TOPOLOGY_NVLINK_S);
    }
    return OK;
}

static enum status make_items(struct maker *k, struct error *err)
{
    const struct cluster *c = &k->b.c;
    double fastest = 0;
    for (int32_t i = 0; i < k->m->n; i++) {
        double Bps = 0;
        k->parent[i] = i;
        if (i < k->m->n_gpus) {
            TRY(catalogue_find(c->types[c->devices[i].type].catalogue, &k->types[i], err));
            Bps = PCIE_SHARE * k->types[i]->pcie_Bps.value;
            k->kind[i] = END_DEVICE, k->index[i] = i;
        } else {
            char *name = arena_printf(k->b.a, "nic-%.60s", k->m->name[i]);
            for (char *at = name; *at; at++)
                if (*at == '.') *at = '-';
            k->kind[i] = END_SWITCH, k->index[i] = topology_switch(&k->b, name);
            Bps = fastest;
        }
        k->up_Bps[i] = Bps > 0 ? Bps : TOPOLOGY_PCIE_BPS;
        if (k->up_Bps[i] > fastest) fastest = k->up_Bps[i];
    }
    return OK;
}

static enum status devices_of(struct maker *k, const struct import_request *q, struct error *err)
{
    struct cluster *c = &k->b.c;
    if (!q->cluster)
        return error_set(
            err, ERR_USAGE,
            "import topo needs --cluster CLUSTER, because nvidia-smi topo -m has no device types");
    TRY(cluster_read(k->b.a, q->cluster, c, err));
    if (c->n_nodes != 1 || c->n_devices != k->m->n_gpus)
        return error_set(err, ERR_INPUT,
                         "%s: one node with the %" PRId32
                         " devices of %s is needed; it has %" PRId32 " on %" PRId32 " node%s",
                         q->cluster, k->m->n_gpus, q->path, c->n_devices, c->n_nodes,
                         c->n_nodes == 1 ? "" : "s");
    c->n_links = c->n_switches = 0;
    c->links = NULL, c->switches = NULL;
    return OK;
}

enum status import_topo(struct arena *a, const struct import_request *q, struct error *err)
{
    struct matrix *m = ARENA_ARRAY(a, struct matrix, 1);
    struct maker *k = ARENA_ARRAY(a, struct maker, 1);
    *m = (struct matrix){.a = a, .path = q->path, .err = err};
    k->b.a = a, k->m = m;
    TRY(read_matrix(m));
    TRY(devices_of(k, q, err));
    TRY(make_items(k, err));
    TRY(link_nvlinks(k, err));
    make_level(k, NEAR_PIX, "pcie");
    make_level(k, NEAR_PXB, "bridge");
    make_level(k, NEAR_PHB, "root");
    make_level(k, NEAR_NODE, "cpu");
    join_sockets(k);
    return topology_save(&k->b, q, err);
}
