/* sim/engine/fold_internal.h - the state of one folding; for sim/engine/fold*.c alone.
 *
 *   fold.c           order of the steps; lanes that must stay separate
 *   fold_lanes.c     a lane by itself: its instructions, and where they name channels and collectives
 *   fold_rounds.c    members of collectives in rounds, and whom they send to
 *   fold_flows.c     paths of messages over links, and who sends there
 *   fold_colours.c   refinement
 *   fold_links.c     links of the folded program, and how many messages one stands for
 *   fold_quotient.c  the folded program
 */
#ifndef SIM_ENGINE_FOLD_INTERNAL_H
#define SIM_ENGINE_FOLD_INTERNAL_H

#include "sim/engine/fold.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct folding_name { /* one place in an open hash by key */
    uint64_t key;
    int32_t index; /* + 1; 0: empty */
};
struct folding_names {
    struct folding_name *at;
    size_t capacity; /* a power of two */
    int32_t count;
};

/* A direction of a link (both, if half duplex), or a route in one direction. */
struct folding_path {
    int32_t link, direction;
    int32_t n_hops, *hop; /* of a route: paths of its links; 0: a link */
    const int32_t *messages; /* of the route of a ring that is one flow: (n_hops) messages on each; else NULL */
    int32_t other;        /* of a link: the path of its other direction; -1: half duplex, a route */
    bool fair;            /* of a link: shared fairly */
    int32_t n_senders, *senders; /* of a FIFO link with several: its lanes, ascending */
    size_t capacity;
    uint64_t cost; /* colour by its price alone */
    uint64_t colour, next;
    uint64_t sum,
        load; /* of the colours of all messages on this path; of a link: on all paths over it */
};

/* One message of the program, by who sends it: a channel, or a member of a collective to another one. */
struct folding_flow {
    uint64_t colour;
    int32_t path, group, sender,
        receiver; /* group -1: sender is a channel; else members of the collective */
    int32_t from_lane, to_lane;
};

/* The messages of the members of a collective in rounds, shared by all collectives of equal rounds. */
struct folding_rounds {
    int32_t *first_to,
        *to; /* members to which member i sends, in the order of its rounds: to[first_to[i]] … */
    int32_t *first_from, *from;
    uint64_t *
        colour; /* (n_members) bytes and partners of each round, the partners by their places in these lists */
    uint64_t partners; /* hash of these lists */
};

struct folding {
    struct arena *arena;   /* of the result */
    struct arena *scratch; /* freed at the end */
    const struct program *p;
    const struct sim_scale *scale;
    struct cost *cost;
    struct fold *out;
    int32_t *lane_of_stage, *chunk_of_stage; /* (n_stages) */
    int32_t *path_of;                        /* (n_links, 2) */
    struct folding_path *paths;
    int32_t n_paths;
    size_t path_capacity;
    int64_t *price_ns;       /* (n_collectives) collective_price_ns */
    uint64_t *fixed;         /* (n_collectives) colour of a collective by itself */
    uint64_t *colour, *next; /* (n_devices) */
    uint64_t *channel;       /* (n_channels) colours */
    uint64_t *base;          /* (members of the current collective) a member by itself … */
    uint64_t *member;        /* (members of all collectives) … as it sees all others */
    const struct folding_rounds **rounds; /* (n_collectives) in rounds, except rings; else NULL */
    /* (n_collectives) The first collective of the same members, who send to the same partners on the same links: a sharded stage has
     * hundreds of them. Their messages are coloured together, as flows of the first one. */
    int32_t *first_alike;
    int32_t *first_traffic; /* (n_collectives) where the first_alike's members begin in: */
    /* the links to and from their partners; the colours of all collectives like it */
    uint64_t *sends, *receives, *traffic;
    /* Position in its lane of the first instruction that names a channel, (n_channels), or a collective, (its members from
     * first_member[group] on); -1. */
    int32_t *sent_at, *received_at, *member_at, *first_member;
    /* What a lane names, in the order of first names, from first_ref[lane] on: 2 · channel + (1 where it sends), or -1 - member */
    int32_t *first_ref, *refs;
    int32_t *rep; /* (n_devices) first lane of the same colour; as many for counting */
    bool *pinned; /* (n_devices) keeps a colour of its own */
    int32_t n_pinned;
    struct folding_names colours;
};

static inline uint64_t fold_mix(uint64_t h, uint64_t x)
{
    x *= UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return h ^ h >> 32;
}
static inline uint64_t fold_mix_double(uint64_t h, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return fold_mix(h, bits);
}
static inline int32_t fold_lane_of(const struct folding *f, const struct collective *g, int32_t m)
{
    return f->lane_of_stage[g->members[m].stage];
}
/* The collective's messages move on links. */
static inline bool fold_moves(const struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    return f->price_ns[group] < 0 && g->n_members > 1 && g->algorithm != ALGORITHM_LOCAL &&
           (!g->each_call || collective_of_tensor(g));
}
/* Its members only meet: where the last one arrives it starts for all, and it ends for all. */
static inline bool fold_meets(const struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    if (program_collective_in_rounds(g)) return false;
    if (g->algorithm == ALGORITHM_LOCAL && !g->each_call) return false;
    return g->each_call || f->price_ns[group] >= 0 || g->flow_link;
}
static inline bool fold_names_channel(enum instr_kind k)
{
    return k == INSTR_RECEIVE || k == INSTR_SEND;
}
static inline bool fold_names_group(enum instr_kind k)
{
    return k == INSTR_COLLECTIVE_START || k == INSTR_COLLECTIVE_WAIT || k == INSTR_COLLECTIVE;
}

static inline int32_t fold_classes(const struct folding *f)
{
    int32_t n = 0;
    for (int32_t i = 0; i < f->p->n_devices; i++) n += f->rep[i] == i;
    return n;
}

/* fold.c: the index of this key, or the next free one */
void fold_names_new(struct arena *a, size_t most, struct folding_names *out);
void fold_names_clear(struct folding_names *n);
int32_t fold_name(struct folding_names *n, uint64_t key);
int32_t fold_find(const struct folding_names *n, uint64_t key); /* -1 */

/* fold_lanes.c: first colours, positions and refs. After fold_paths. */
void fold_lanes(struct folding *f);

/* fold_rounds.c: after first_member and price_ns */
void fold_rounds(struct folding *f);

/* fold_flows.c */
void fold_paths(struct folding *f);
int32_t fold_path(struct folding *f, int32_t link, int32_t direction); /* -1 for link -1 */
/* The colour of a path as its sender sees it: with the lane's place among those that queue there. */
uint64_t fold_sent_on(const struct folding *f, int32_t path, int32_t lane);
/* Path of member i's message to member k; in a ring k is i + 1, in a chain i + 1 or i - 1. */
int32_t fold_member_path(struct folding *f, const struct collective *g, int32_t i, int32_t k);
typedef void fold_visit(struct folding *f, const struct folding_flow *x, void *with);
/* Messages of one collective and of those like it: the colour of each is that of its member, and for several messages of one member
 * that of the message among them. */
void fold_visit_group(struct folding *f, int32_t group, fold_visit *visit, void *with);
void fold_visit_channel(struct folding *f, int32_t channel, fold_visit *visit, void *with);
void fold_visit_all(struct folding *f, fold_visit *visit, void *with);
static inline int32_t fold_path_links(const struct folding *f, int32_t path)
{
    return f->paths[path].n_hops ? f->paths[path].n_hops : 1;
}
static inline int32_t fold_path_messages(const struct folding *f, int32_t path, int32_t i)
{
    return f->paths[path].messages ? f->paths[path].messages[i] : 1;
}
static inline int32_t fold_path_link(const struct folding *f, int32_t path, int32_t i)
{
    return f->paths[path].n_hops ? f->paths[path].hop[i] : path;
}

/* fold_colours.c */
void fold_refine(struct folding *f); /* until stable; all colours are then those of the partition */
uint64_t fold_group_colour(const struct folding *f, int32_t group);

/* fold_links.c. All flows of the folded program are announced; then its links are made. */
struct folding_links;
struct folding_links *fold_links_new(struct folding *f, size_t most);
fold_visit fold_links_want; /* with: the links */
void fold_links_count(struct folding *f, struct folding_links *l);
/* The link of the folded program, and its direction, for a message of this colour on this path; colour 0: without others. */
int32_t fold_links_get(struct folding *f, struct folding_links *l, uint64_t colour, int32_t path,
                       int32_t *direction);
void fold_links_done(struct folding *f,
                     struct folding_links *l); /* into the folded program and its scale */

/* fold_quotient.c */
void fold_quotient(struct folding *f);

#endif
