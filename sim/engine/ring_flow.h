/* sim/engine/ring_flow.h - rings of many ranks as one flow.
 *
 * A ring all-reduce over n ranks has 2 n (n - 1) messages, a reduce-scatter or an all-gather n (n - 1): sixty thousand for the gradients of
 * one stage in 174 replicas. After the last rank has arrived all ranks send chunk after chunk at the pace of the slowest hop (Patarasuk and
 * Yuan 2009), so a ring of more than RING_FLOW_RANKS ranks is one fluid with one rate: it loads every link by as many times its rate as hops
 * cross the link, and shares the links with all other messages (max-min fair). A hop sends its next chunk when its receiver has the one
 * before, so without other traffic a step takes the largest o + l of the hops, the occupancy of a chunk and the latency (maximum cycle mean
 * of the steps' recurrence): the ring's rate is at most one chunk in that time (program_link.pace_Bps). With other traffic half of the
 * latencies are behind the messages of others: none are if the rings of a node's GPUs run in step, all if their steps are spread. All ranks
 * end together, although those far from the slowest hop may end earlier: with few slow hops the flow is late.
 * A collective of more than RING_FLOW_RANKS ranks (RING_FLOW_GROUPED in a ring over groups of equal lanes) whose chunks are short against the latency of every hop, as the all-reduce of the overflow
 * flag in fp16, takes what its chunks take without other traffic, and loads no link.
 * Applies where all hops share their links fairly and no link slows down computing; on FIFO links, with jitter and in smaller rings every
 * message is simulated. Lanes of one colour fold whatever their places in such a ring (fold.h).
 * Error of the iteration against messages one by one: 0.0, 0.0, 0.9 and 3.9 % in plans for 192, 1,008, 2,016 and 10,200 GPUs
 * (docs/measurements.md, 2026-11-23); mostly below 10 %, at most 29 % where slow rings are most of the iteration (265 random plans, 2026-11-26).
 * Cost: one flow over the ring's links instead of its messages; O(members * hops of a route) once a simulation.
 */
#ifndef SIM_ENGINE_RING_FLOW_H
#define SIM_ENGINE_RING_FLOW_H

#include "core/program/program.h"
#include "sim/cost.h"
#include "sim/engine/sim.h"

struct arena;

/* Ranks above which a ring is one flow: 33 ranks have 2,112 messages, about a millisecond of simulation. */
enum { RING_FLOW_RANKS = 32 };
/* A ring with short chunks over several devices of each of several replicas takes that time from more than this many ranks on. It adds the
 * norms of tensor-sharded stages, and the place of a GPU among the others of its node would keep all lanes separate: 405B on 1,008 GPUs
 * in meshes of 2 by 4 folds to 252 lanes instead of 1,008 (2026-11-26). */
enum { RING_FLOW_GROUPED = 8 };
/* Short: a chunk occupies every hop for less than this fraction of the hop's latency. */
enum { RING_FLOW_LATENCIES = 16 };

/* p, or a copy in which such rings have their flows (collective.flow_link) and a route each, behind the links of p. */
const struct program *ring_flow_make(struct arena *a, const struct program *p, struct cost *k,
                                     const struct sim_scale *scale);

#endif
