/* tools/print/links.h - links of a cluster, equal ones as one class. */
#ifndef TOOLS_PRINT_LINKS_H
#define TOOLS_PRINT_LINKS_H

#include "core/cluster/cluster.h"
#include "tools/print/classes.h"

const char *links_sharing(enum link_sharing s); /* "fifo", as in files */
/* Classes of links of equal text: "25 GB/s, 50 us, half duplex, fifo". all: one by one. Returns their number. */
int32_t links_classes(struct arena *a, const struct cluster *c, bool all, struct print_class **out);
/* "a - b", "h0-319": the ends of the links of a class. */
const char *links_ends(struct arena *a, const struct cluster *c, const struct print_class *x);

#endif
