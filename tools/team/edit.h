/* tools/team/edit.h - changes of a cluster for `whatif` and `plan`: devices removed or slowed down, a node added, a link changed, state
 * offloaded.
 *
 * Every change takes a cluster and returns another one; the old one is not modified. Devices, nodes and links that remain keep
 * name and order, so that plans and profiles of the old cluster are matched by name.
 *
 *   without  DEVICE[,DEVICE...]   "b.0", or a node's name for all its devices. Nodes without devices and links without one of
 *                                 their ends are removed too. Switches stay.
 *   add      [NAME=]NODE          a copy of the cluster's node NODE, the model. Its links are copies of the model's: to the same
 *                                 nodes, devices and switches, and inside itself. Model and new node are joined by a copy of the
 *                                 model's fastest link to another node, unless switches join them. Switches that belong to the
 *                                 model alone (such as NVLink switches inside) are copied. A link of every pair of devices includes
 *                                 the new devices, and then joins model and new node.
 *            [NAME=]FILE:NODE     NODE of another cluster file, with its device types and with the links whose other end is,
 *                                 by name, in this cluster too. If this cluster has a node NODE, the two are joined as above.
 *                                 Links of every pair of devices of the other file are not copied.
 *            NAME: of the new node; default: NODE if free, else NODE2, NODE3 ...
 *   link     A:B=25GB/s[,50us]    another bandwidth and latency of the link between A and B (nodes, devices, switches; A:A inside
 *                                 node A), or of the link with a name, LINK=25GB/s, or, if no link has that name, of the links
 *                                 LINK0, LINK1 ... (`count: N` in the file); the default is the old latency. A and B without
 *                                 a link get a new one, which needs a latency. If only a link of every pair of devices joins them,
 *                                 they get a link of their own in addition. A changed link gets a new name, because
 *                                 measurements of the old one in a profile do not apply to it.
 *
 *   offload  TYPE[:activations]   `offload: optimizer` (activations) of the device type, or of `all` types; `activations` and
 *                                 `optimizer` alone: of all types.
 *   slow     DEVICE=FACTOR        each operator of the device, or of all devices of a node, takes FACTOR times as long, 0.01 to 100: a GPU that
 *                                 is throttled or shared. FACTOR below 1: faster
 *
 * A link that is measured, not stated, has no numbers to copy: team_state_links writes the profile's into the cluster.
 * Errors: ERR_INPUT with the valid choices. Memory: the arena's; unchanged parts are shared with the old cluster.
 * Cost: O(devices + links); O(switches²) in addition for a new node.
 */
#ifndef TOOLS_TEAM_EDIT_H
#define TOOLS_TEAM_EDIT_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "profiles/profile.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* The option --offload, of struct texts. */
#define OPTION_OFFLOAD(member)                                                                     \
    {                                                                                              \
        .name = "offload", TEXTS_AT(member), .unit = "TYPE",                                       \
        .help = "device type, or all, whose optimizer state is in host memory, which updates "     \
                "access over PCIe, e.g. a100; TYPE:activations, or activations of all types: a "   \
                "stage's activations may wait there for the backward"                              \
    }

enum team_change_kind { TEAM_WITHOUT, TEAM_ADD, TEAM_LINK, TEAM_OFFLOAD, TEAM_SLOW };
struct team_change {
    enum team_change_kind kind;
    const char *text;
    const char *latency; /* TEAM_LINK: default of a text without latency; NULL: the old link's */
};

/* Writes the profile's bandwidth and latency (of a curve: its line fit) into links that state no bandwidth, because copies of them
 * need numbers. Other links do not change, nor does a link of every pair of devices: it is never copied, and each pair has its own
 * curve. */
MUST_CHECK enum status team_state_links(struct arena *a, const struct profile *p, struct cluster *c,
                                        struct error *err);

/* One change; *out may be the same struct as *c. */
MUST_CHECK enum status team_edit(struct arena *a, const struct cluster *c,
                                 const struct team_change *change, struct cluster *out,
                                 struct error *err);

/* TEAM_LINK on a cluster whose links may be measured, not stated: a changed link keeps its measured latency, the other links keep
 * their curves. */
MUST_CHECK enum status team_relink(struct arena *a, const struct profile *profile,
                                   const struct cluster *c, const struct team_change *change,
                                   struct cluster *out, struct error *err);

/* The cluster of the devices with keep[device], their nodes, and the links with both ends left. At least one is kept. */
void team_part(struct arena *a, const struct cluster *c, const bool *keep, struct cluster *out);

/* TEAM_ADD of team_edit. */
MUST_CHECK enum status team_add(struct arena *a, const struct cluster *c, const char *text,
                                struct cluster *out, struct error *err);

/* Helpers of edit.c and add.c. A name that no node, switch or link of the cluster has: word, else word2, word3 ... */
const char *team_free_name(struct arena *a, const struct cluster *c, const char *word);
int32_t team_node(const struct cluster *c, const char *name);          /* -1 where unknown */
bool team_in_family(const char *name, const char *family); /* "h12" of "h": the family and a number */
const char *team_node_names(struct arena *a, const struct cluster *c); /* "a, b, c" */

#endif
