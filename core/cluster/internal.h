/* core/cluster/internal.h - what reading a cluster's parts shares; for core/cluster/cluster.c and core/cluster/links.c. */
#ifndef CORE_CLUSTER_INTERNAL_H
#define CORE_CLUSTER_INTERNAL_H

#include "core/base/arena.h"
#include "core/cluster/cluster.h"
#include "core/document/canonical.h"

enum { CLUSTER_DEVICES_MAX = 65536 };
#define CLUSTER_SLOWDOWN_MAX 1e6

struct cluster_reader {
    struct arena *a;
    struct cluster *c;
    struct error *err;
    const struct node **node_names; /* (n_nodes): where the file names each */
    size_t device_capacity;
};

/* The member where it is there and not null, else NULL. */
const struct node *cluster_given(const struct node *map, const char *key);
enum status cluster_need_name(const struct node *map, const char **out, struct error *err);
enum status cluster_unique_names(struct cluster_reader *r, const struct node *list,
                                 const char *what);
/* "a, b, c", as much as an error has room for. */
const char *cluster_join(struct arena *a, const char *list, const char *name);
/* The list with every entry that has a `count` written out. */
enum status cluster_repeat(struct cluster_reader *r, const struct node *list,
                           const struct node **out);
/* How many of the nodes and switches NAME0, NAME1 … there are: what `count:` makes of NAME. */
int64_t cluster_numbered(const struct cluster_reader *r, const char *name);
/* After types, nodes and switches. */
enum status cluster_read_links(struct cluster_reader *r, const struct node *root);

#endif
