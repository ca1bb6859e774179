/* exec/device_transport/plan.h - communicators, ordered channel groups and forms of collectives, derived from the
 * program alone, so that all ranks agree. */
#ifndef EXEC_DEVICE_TRANSPORT_PLAN_H
#define EXEC_DEVICE_TRANSPORT_PLAN_H

#include "core/base/arena.h"
#include "core/program/device_memory.h"
#include "core/program/program.h"

#include <stdbool.h>
#include <stdint.h>

struct talk {                 /* specification of a communicator */
    const char *name, *phase; /* phase: label while it is created */
    int32_t n;
    const int32_t *device; /* (n) device of each rank */
    int32_t max_ctas;      /* as its links specify; 0, NULL: the library's choice */
    const char *net_name;
    bool clash;                 /* two links specify different net_names: it is NULL */
    bool pairs, gathers, roots; /* operations used besides messages from 0 to 1 and sums */
};

struct
    channel_group { /* channels of two stages whose messages have one order: by number, then as listed */
    int32_t talk;
    int32_t n;
    int32_t *channel; /* (n) */
};

struct talks {
    int32_t n, n_channel_groups;
    struct talk *talk;
    struct channel_group *channel_group;
    int32_t *channel_group_of; /* (n_channels) -1: another transport */
    int32_t *place;            /* (n_channels) index in its ordered channel group */
    int32_t *talk_of;          /* (n_groups) -1 */
    int32_t **rank_of;         /* (n_groups) of each member in the communicator; NULL */
};

void plan_talks(struct arena *a, const struct program *p, const unsigned char *channel,
                       const unsigned char *group, struct talks *out);

enum device_form { DEVICE_FORM_PADDED, DEVICE_FORM_ROOTS, DEVICE_FORM_PAIRS, DEVICE_FORM_ROUNDS };
/* The form of a collective; all_reduce by ring is PADDED: the library's own, without padding. */
enum device_form device_form(const struct collective *m);
/* Whether segments k and k + 1 of a gradient all-reduce are adjacent on all members. */
bool plan_segments_join(const struct program *p, const struct collective *g, int32_t k);
static inline bool plan_segment_is_cut(const struct collective_member *m, int32_t k)
{
    return m->within && m->within[k].n_dims;
}
static inline const struct slot *plan_segment(const struct program *p,
                                                     const struct collective_member *m, int32_t k)
{
    return &p->stages[m->stage].slots[m->segments[k]];
}
static inline int64_t plan_align(int64_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
