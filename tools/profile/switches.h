/* tools/profile/switches.h - measurement of links that end at a switch, for `musher profile --agent`.
 *
 * A message from one device of a switch to another crosses both their links: its duration is the sum of the two latencies plus its bytes over
 * the smaller bandwidth. Measured are the links of devices and nodes; those between switches keep what the file states. Of the links of a
 * switch in the order of the file, each is measured with its two neighbours, and these with each other:
 *   latency of i = (t(i, i + 1) + t(i, i - 1) - t(i - 1, i + 1)) / 2, where t is the latency of a pair, and not below 0
 *   bandwidth of i = the largest of its pairs; links faster than both neighbours are taken for as fast as these
 * Two links alone have half of their latency each. A single one cannot be measured.
 * Cost: two runs of two ranks a link, for at most SWITCH_LINKS links of a switch, some seconds each on a network of 100 Mbit/s.
 */
#ifndef TOOLS_PROFILE_SWITCHES_H
#define TOOLS_PROFILE_SWITCHES_H

#include "tools/profile/links.h"

enum { SWITCH_LINKS = 16 }; /* the others of a switch keep what the file states, with a warning */

/* Adds the links in reach to *p. b->agent is given. ERR_RANK: the ranks of a benchmark failed. */
MUST_CHECK enum status profile_switches_measure(struct profile_links *b, int64_t repeats, const char *folder, struct profile *p,
                                                struct error *err);

#endif
