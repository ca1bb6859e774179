/* core/lower/links.h - links of the program: the cluster's, then routes and links of single pairs in the order of first use. */
#ifndef CORE_LOWER_LINKS_H
#define CORE_LOWER_LINKS_H

#include "core/lower/stages.h"

/* Fills the program's links with the cluster's; the cluster and the program must outlive it. */
struct links *links_new(struct arena *a, const struct cluster *c, struct program *p);
/* The link that carries from one stage's device to another's, or the route, which is added where it is new. ERR_INPUT naming
 * both devices where neither is. */
MUST_CHECK enum status lower_link(struct lowering *l, const struct stage_build *from,
                                  const struct stage_build *to, int32_t *link, int32_t *direction,
                                  struct error *err);
/* Whether the compute stream waits for the link's transport; a route's where it waits for one of its hops. */
bool lower_blocking(const struct lowering *l, int32_t link);

#endif
