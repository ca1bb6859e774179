#include "tools/import/topology.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/document/document.h"
#include "tools/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compute capability, GB/s of a link after headers, links. The last column is public of each part (P100 4, V100 6, A100 12,
 * H100 and B200 18; GA102 has one bridge of 4). */
static const struct {
    int32_t capability;
    double GBps;
    int32_t links;
} nvlinks[] = {{60, 18, 4},    {70, 20, 6},     {80, 20, 12},   {86, 12, 4},
               {90, 20.6, 18}, {100, 40.1, 18}, {103, 40.1, 18}};

/* An unlisted generation has the values of its predecessor; consumer parts such as GA102 are matched exactly. */
double topology_nvlink_Bps(int32_t capability)
{
    double GBps = 0;
    for (size_t i = 0; i < sizeof nvlinks / sizeof *nvlinks; i++)
        if (nvlinks[i].capability == capability ||
            (nvlinks[i].capability < capability && nvlinks[i].capability != 86))
            GBps = nvlinks[i].GBps;
    return GBps * 1e9;
}

int32_t topology_nvlinks(int32_t capability)
{
    for (size_t i = 0; i < sizeof nvlinks / sizeof *nvlinks; i++)
        if (nvlinks[i].capability == capability) return nvlinks[i].links;
    return 0;
}

int32_t topology_switch(struct topology *b, const char *name)
{
    struct cluster *c = &b->c;
    c->switches =
        arena_grow(b->a, c->switches, (size_t)c->n_switches, &b->switches, sizeof *c->switches);
    c->switches[c->n_switches] = name;
    return c->n_switches++;
}

/* An end inside a link's name: names have no dots. */
static const char *plain(struct arena *a, const char *name)
{
    char *copy = arena_strdup(a, name);
    for (char *at = copy; *at; at++)
        if (*at == '.') *at = '-';
    return copy;
}

void topology_link(struct topology *b, enum link_end kind, int32_t from, enum link_end to_kind,
                   int32_t to, double bandwidth_Bps, double latency_s)
{
    struct cluster *c = &b->c;
    c->links = arena_grow(b->a, c->links, (size_t)c->n_links, &b->links, sizeof *c->links);
    struct link *l = &c->links[c->n_links++];
    *l = (struct link){
        .bandwidth_Bps = bandwidth_Bps,
        .latency_s = units_s_from_ns(units_ns_from_s(latency_s)), /* whole nanoseconds, which print short */
        .stated = true,
        .sharing = LINK_FAIR,
        .n_ends = 2,
        .kind = {kind, to_kind},
        .end = {from, to}};
    l->name = arena_printf(b->a, "%s_%s", plain(b->a, cluster_link_end(c, l, 0)),
                           plain(b->a, cluster_link_end(c, l, 1)));
}

/* The cluster file's text, checked by cluster_parse. */
static enum status as_text(struct topology *b, const char **out, struct error *err)
{
    struct text text;
    size_t n = 0;
    struct node *root;
    struct cluster again;
    cluster_write(text_begin(&text), &b->c, 0);
    *out = text_end(b->a, &text, &n);
    TRY(document_parse(b->a, "the cluster", *out, n, &root, err));
    return cluster_parse(b->a, root, &again, err);
}

enum status topology_save(struct topology *b, const struct import_request *q, struct error *err)
{
    struct file f = {0};
    const char *text;
    if (!q->out) return error_set(err, ERR_USAGE, "-o FILE is missing: the cluster file to write");
    TRY(common_not_stdout(q->json, "--out", q->out, err));
    TRY(as_text(b, &text, err));
    TRY(file_open(&f, q->out, err));
    fputs(text, f.stream);
    TRY(file_commit(&f, err));
    if (q->json) {
        struct json out;
        common_json_begin(&out);
        json_put_text(&out, "kind", "topology");
        json_put_text(&out, "cluster", b->c.name);
        json_put_text(&out, "out", q->out);
        json_put_int(&out, "devices", b->c.n_devices);
        json_put_int(&out, "nodes", b->c.n_nodes);
        json_put_int(&out, "switches", b->c.n_switches);
        json_put_int(&out, "links", b->c.n_links);
        common_json_end(&out);
    } else if (strcmp(q->out, "-") != 0) {
        printf("%s: %d devices on %d nodes, %d switches, %d links; bandwidths and latencies are "
               "NCCL's priors, not measured\n",
               q->out, (int)b->c.n_devices, (int)b->c.n_nodes, (int)b->c.n_switches,
               (int)b->c.n_links);
    }
    return OK;
}
