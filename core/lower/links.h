/* core/lower/links.h - links of the program: the cluster's, then routes and instances of `every` links in order of first use. */
#ifndef CORE_LOWER_LINKS_H
#define CORE_LOWER_LINKS_H

#include "core/lower/stages.h"

/* Fills the program's links with the cluster's; the cluster and the program must outlive it. */
struct links *links_new(struct arena *a, const struct cluster *c, struct program *p);
/* The link or route from one stage's device to another's; a new route is added. ERR_INPUT naming
 * both devices if they are not connected. */
MUST_CHECK enum status lower_link(struct lowering *l, const struct stage_build *from,
                                  const struct stage_build *to, int32_t *link, int32_t *direction,
                                  struct error *err);
/* Whether the link's transport blocks the compute stream; a route's if one of its hops does. */
bool lower_blocking(const struct lowering *l, int32_t link);

#endif
