/* tools/team/edit.h - a cluster as it would be without some devices, with a node more, with another link.
 *
 * Every change takes a cluster and makes another one; the first is left as it is and shares its names with it. What
 * stays keeps its name and its order, so that plans and profiles of the old cluster can be matched by name.
 *
 *   without  DEVICE[,DEVICE...]   "b.0", or a node's name for all its devices. Nodes without devices go, and links that
 *                                 have lost an end. Switches stay.
 *   add      [NAME=]NODE          another node like NODE of the cluster. Its links are like the model's: to the same
 *                                 nodes, devices and switches, and inside itself. Between the model and the new node goes
 *                                 a copy of the model's fastest link to another node, unless switches join them. Switches
 *                                 of the model's own (no other node ends at them, such as NVLink switches inside) are copied.
 *                                 A link of every two devices is the new ones' too, and then joins model and new node.
 *            [NAME=]FILE:NODE     NODE of another cluster file, with its device types and with those links whose other
 *                                 end is in this cluster too, by name. Where this cluster has a node NODE, it and the new one
 *                                 are joined as the model and its like above. Links of every two devices stay the other file's.
 *            NAME: of the new node; default: NODE where no such node is there yet, else NODE2, NODE3 ...
 *   link     A:B=25GB/s[,50us]    the link between A and B (nodes, devices, switches; A:A inside node A), or LINK=25GB/s by the
 *                                 link's name, with another bandwidth and latency; without a latency the old one stays. Where
 *                                 nothing joins A and B yet, a new link, which needs a latency. Where a link of every two devices joins
 *                                 them, a link of their own beside it, else like it. A changed link gets a new name:
 *                                 what a profile knows of the old one does not hold for it.
 *
 * Links that are measured, not stated, have no numbers to copy: team_state_links writes a profile's into the cluster.
 * Errors: ERR_INPUT with the valid choices. Memory: the arena's; what is not changed is shared with the old cluster.
 * Cost: O(devices + links), switches squared where a node is added.
 */
#ifndef TOOLS_TEAM_EDIT_H
#define TOOLS_TEAM_EDIT_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "profiles/profile.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum team_change_kind { TEAM_WITHOUT, TEAM_ADD, TEAM_LINK };
struct team_change {
    enum team_change_kind kind;
    const char *text;
    const char *latency; /* TEAM_LINK: where the text names none; NULL: the old link's */
};

/* Links without a bandwidth of their own get what the profile measured (the line, where it is a curve): the copies of
 * such links need numbers. No other link is touched, nor one of every two devices: it is never copied, and its curve is
 * each pair's own. */
MUST_CHECK enum status team_state_links(struct arena *a, const struct profile *p, struct cluster *c,
                                        struct error *err);

/* One change; *out may be the same struct as *c. */
MUST_CHECK enum status team_edit(struct arena *a, const struct cluster *c,
                                 const struct team_change *change, struct cluster *out,
                                 struct error *err);

/* The devices with keep[device], their nodes, and the links that still have both ends. At least one is kept. */
void team_part(struct arena *a, const struct cluster *c, const bool *keep, struct cluster *out);

/* team_edit's third kind of change has no need of files; the second is in tools/team/add.c. */
MUST_CHECK enum status team_add(struct arena *a, const struct cluster *c, const char *text,
                                struct cluster *out, struct error *err);

/* Helpers of both files. A name that no node, switch or link of the cluster has: the word itself, else word2, word3 ... */
const char *team_free_name(struct arena *a, const struct cluster *c, const char *word);
int32_t team_node(const struct cluster *c, const char *name);          /* -1 where unknown */
const char *team_node_names(struct arena *a, const struct cluster *c); /* "a, b, c" */

#endif
