/* core/cluster/write.c - a cluster as canonical YAML, that cluster_parse reads back. */
#include "core/base/arena.h"
#include "core/cluster/cluster.h"
#include "core/document/canonical.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static void write_rates(FILE *out, const struct device_rates *r)
{
    bool any = false;
    for (int p = 0; p < DEVICE_PEAK_COUNT; p++) {
        if (!(r->peak_flops[p] > 0)) continue;
        fprintf(out, "%s%s: ", any ? ", " : ", peak: {", device_peak_name((enum device_peak)p));
        canonical_quantity(out, QUANTITY_FLOPS, r->peak_flops[p]);
        any = true;
    }
    if (any) fputc('}', out);
    if (r->memory_Bps > 0) {
        fputs(", memory_bandwidth: ", out);
        canonical_quantity(out, QUANTITY_BYTES_PER_S, r->memory_Bps);
    }
    if (r->power_w > 0) {
        fputs(", power: ", out);
        canonical_quantity(out, QUANTITY_WATTS, r->power_w);
    }
}

static void write_type(FILE *out, const struct device_type *t)
{
    fputs("{name: ", out);
    canonical_text(out, t->name);
    fputs(", device: ", out);
    canonical_text(out, t->catalogue);
    if (t->slowdown > 0) {
        fputs(", slowdown: ", out);
        canonical_double(out, t->slowdown);
    }
    if (t->multiprocessors) fprintf(out, ", multiprocessors: %" PRId32, t->multiprocessors);
    if (t->memory_bytes > 0) {
        fputs(", memory: ", out);
        canonical_quantity(out, QUANTITY_BYTES, (double)t->memory_bytes);
    }
    write_rates(out, &t->stated);
    if (t->reserve_bytes > 0) {
        fputs(", reserve: ", out);
        canonical_quantity(out, QUANTITY_BYTES, (double)t->reserve_bytes);
    }
    if (t->parameter_copies) fprintf(out, ", parameter_copies: %" PRId32, t->parameter_copies);
    if (t->offloads && t->offloads_activations)
        fputs(", offload: [optimizer, activations]", out);
    else if (t->offloads || t->offloads_activations)
        fputs(t->offloads ? ", offload: optimizer" : ", offload: activations", out);
    if (t->host_Bps > 0) {
        fputs(", host_bandwidth: ", out);
        canonical_quantity(out, QUANTITY_BYTES_PER_S, t->host_Bps);
    }
    if (t->priced) {
        fputs(", price: ", out);
        canonical_double(out, t->price_per_h);
        fputs("/h", out);
    }
    fputs("}\n", out);
}

/* Runs of one type with ascending numbers as {type, count}. */
static void write_node(FILE *out, const struct cluster *c, const struct node_spec *n)
{
    const struct device *d = &c->devices[n->first_device];
    fputs("{name: ", out);
    canonical_text(out, n->name);
    fputs(", host: ", out);
    canonical_text(out, n->host);
    fputs(", devices: [", out);
    for (int32_t i = 0, count; i < n->n_devices; i += count) {
        for (count = 1; i + count < n->n_devices; count++)
            if (d[i + count].type != d[i].type || d[i + count].index != d[i].index + count) break;
        fprintf(out, "%s{type: ", i ? ", " : "");
        canonical_text(out, c->types[d[i].type].name);
        if (d[i].index != (i ? d[i - 1].index + 1 : 0))
            fprintf(out, ", index: %" PRId32, d[i].index);
        if (count > 1) fprintf(out, ", count: %" PRId32, count);
        fputc('}', out);
    }
    fputs("]}\n", out);
}

static void write_link(FILE *out, const struct cluster *c, const struct link *l)
{
    fputs("{name: ", out);
    canonical_text(out, l->name);
    fputs(link_of_every_pair(l) ? ", every: " : ", between: [", out);
    for (int32_t i = 0; i < l->n_ends || i < 1; i++) {
        if (i) fputs(", ", out);
        canonical_text(out, cluster_link_end(c, l, i));
    }
    if (!link_of_every_pair(l)) fputc(']', out);
    if (l->stated) {
        fputs(", bandwidth: ", out);
        canonical_quantity(out, QUANTITY_BYTES_PER_S, l->bandwidth_Bps);
        fputs(", latency: ", out);
        canonical_quantity(out, QUANTITY_SECONDS, l->latency_s);
    }
    if (l->half_duplex) fputs(", duplex: half", out);
    if (l->sharing == LINK_FAIR) fputs(", sharing: fair", out);
    if (l->sharing == LINK_FLUID) fputs(", sharing: fluid", out);
    if (l->blocking) fputs(", overlap: false", out);
    if (l->compute_slowdown > 0) {
        fputs(", compute_slowdown: ", out);
        canonical_double(out, l->compute_slowdown);
    }
    if (l->max_ctas) fprintf(out, ", maxCTAs: %" PRId32, l->max_ctas);
    if (l->net_name) {
        fputs(", netName: ", out);
        canonical_text(out, l->net_name);
    }
    fputs("}\n", out);
}

static void write_key(FILE *out, int indent, const char *key)
{
    canonical_indent(out, indent);
    fputs(key, out);
}

void cluster_write(FILE *out, const struct cluster *c, int indent)
{
    write_key(out, indent, "version: 1\n");
    write_key(out, indent, "name: ");
    canonical_text(out, c->name);
    fputc('\n', out);
    if (c->nccl) {
        write_key(out, indent, "nccl: ");
        canonical_text(out, c->nccl);
        fputc('\n', out);
    }
    write_key(out, indent, "device_types:\n");
    for (int32_t i = 0; i < c->n_types; i++) {
        write_key(out, indent, "  - ");
        write_type(out, &c->types[i]);
    }
    write_key(out, indent, "nodes:\n");
    for (int32_t i = 0; i < c->n_nodes; i++) {
        write_key(out, indent, "  - ");
        write_node(out, c, &c->nodes[i]);
    }
    if (c->n_switches) write_key(out, indent, "switches:\n");
    for (int32_t i = 0; i < c->n_switches; i++) {
        write_key(out, indent, "  - {name: ");
        canonical_text(out, c->switches[i]);
        fputs("}\n", out);
    }
    if (c->n_links) write_key(out, indent, "links:\n");
    for (int32_t i = 0; i < c->n_links; i++) {
        write_key(out, indent, "  - ");
        write_link(out, c, &c->links[i]);
    }
}
