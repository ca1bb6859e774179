/* core/cluster/internal.h - shared by the readers cluster.c, links.c and repeat.c. */
#ifndef CORE_CLUSTER_INTERNAL_H
#define CORE_CLUSTER_INTERNAL_H

#include "core/base/arena.h"
#include "core/cluster/cluster.h"
#include "core/document/canonical.h"

enum { CLUSTER_DEVICES_MAX = 131072 };
#define CLUSTER_SLOWDOWN_MAX 1e6

struct cluster_reader {
    struct arena *a;
    struct cluster *c;
    struct error *err;
    const struct node **node_names; /* (n_nodes): position of each name in the file */
    size_t device_capacity;
};

/* The member, or NULL if it is absent or null. */
const struct node *cluster_given(const struct node *map, const char *key);
enum status cluster_need_name(const struct node *map, const char **out, struct error *err);
enum status cluster_unique_names(struct cluster_reader *r, const struct node *list,
                                 const char *what);
/* "a, b, c", limited to the room in an error. */
const char *cluster_join(struct arena *a, const char *list, const char *name);
/* Of the nodes and switches that are known so far. */
void cluster_index_names(struct arena *a, struct cluster *c);
/* The node or switch named by the first `length` bytes of name; false: none is indexed. O(1), also for names that are unknown. */
bool cluster_indexed(const struct cluster *c, const char *name, size_t length, enum link_end *kind,
                     int32_t *out);
/* The list with every `count` entry expanded. */
enum status cluster_repeat(struct cluster_reader *r, const struct node *list,
                           const struct node **out);
/* Number of nodes and switches NAME0, NAME1 … that `count:` made of NAME. */
int64_t cluster_numbered(const struct cluster_reader *r, const char *name);
/* Requires types, nodes and switches. */
enum status cluster_read_links(struct cluster_reader *r, const struct node *root);

#endif
