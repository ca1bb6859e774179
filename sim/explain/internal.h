/* sim/explain/internal.h - a simulation reconstructed from its trace, for reading backwards. Included by the .c files of this folder only.
 *
 * Each lane becomes a list of records in the order of its compute stream; messages and collectives become tables with
 * indices into these lists. Instants without spans (copies inside a device, collectives of one member) follow
 * from the program's rules.
 */
#ifndef SIM_EXPLAIN_INTERNAL_H
#define SIM_EXPLAIN_INTERNAL_H

#include "sim/explain/explain.h"

enum record_kind {
    RECORD_COMPUTE,          /* arg: operator of the stage */
    RECORD_RECEIVE,          /* a wait of non-zero length: arg channel, seq */
    RECORD_ROOM,             /* likewise: arg channel, seq of the message whose buffer was needed */
    RECORD_COLLECTIVE_WAIT,  /* likewise: arg collective, seq the launch */
    RECORD_COPY,             /* a wait for a copy to or from host memory */
    RECORD_LATE,             /* expected lateness before a collective: arg collective */
    RECORD_SEND,             /* no duration: arg channel, seq */
    RECORD_COLLECTIVE_START, /* no duration: arg collective, seq the launch */
    RECORD_END,              /* no duration: end of the call */
};
struct record {
    enum record_kind kind;
    enum phase phase;
    int32_t arg, stage, step, call; /* call: ordinal in the step */
    int64_t seq, begin_ns, end_ns;
};

struct collective_run { /* one launch of one collective by one lane */
    int32_t group, member, launch;
    size_t record;                      /* its COLLECTIVE_START */
    int64_t begin_ns, end_ns;           /* on the collective stream */
    int64_t wait_begin_ns, wait_end_ns; /* COLLECTIVE_WAIT on the compute stream; equal: no wait */
};
struct explained_lane {
    struct record *records;
    size_t n_records, capacity;
    struct collective_run *runs; /* in the order of the collective stream */
    size_t n_runs, run_capacity;
    struct explain_live *live;
    int32_t last_forward; /* ordinal of the step's last F call, -1 */
};

/* Memory of a lane without messages, followed change by change, because buffers of zero lifetime count towards its peak. NULL
 * for the other lanes: their releases come first at each instant, so counting up to the peak's instant is enough. */
struct explain_live {
    int64_t bytes, peak_bytes; /* of buffer rings */
};

struct explained_message { /* -1: not known */
    int64_t handed_ns, start_ns, left_ns, arrival_ns, consumed_ns;
    int64_t before, after;                 /* messages handed over around it on this channel, -1 */
    size_t handed_record, consumed_record; /* SEND at the sender, END of the call at the receiver */
};
struct explained_channel {
    int32_t from_lane, to_lane, resource; /* resource: link · 2 + direction; -1: inside a device */
    int32_t ahead;
    int64_t alone_ns; /* occupancy of one message on an otherwise idle link */
    int64_t n_messages;
    struct explained_message *messages;
    int64_t last_handed, head; /* seq, -1; head: inside a device, the first that has not been passed on */
};

struct explained_part {              /* one REDUCE span */
    int64_t begin_ns, end_ns, bytes; /* begin -1: there is none */
};
struct explained_group {
    enum collective_price price; /* by no messages, but where it is LINKS */
    int32_t n_parts,
        times; /* launches by each member in a step; launch index: step · times + launches before */
    int32_t *launched;            /* (n_members) launches so far, during reconstruction */
    struct explained_part *parts; /* (launches, n_members, n_parts) */
    size_t *run;                  /* (launches, n_members): into the lane's runs */
};

struct on_resource { /* a message on a link's direction */
    int32_t channel;
    int64_t seq, start_ns, left_ns;
};

struct explanation {
    struct arena *arena;
    const struct program *program;
    struct cost *cost;
    const struct trace *trace;
    const struct sim_result *result;
    int32_t steps;
    int32_t *lane_of_stage;
    struct explained_lane *lanes;       /* (n_devices) */
    struct explained_channel *channels; /* (n_channels) */
    struct explained_group *groups;     /* (n_groups) */
    struct cost_link *links;            /* (n_links), filled for links in use */
    struct on_resource **line;          /* (2 n_links) by start */
    size_t *n_line;
    /* (n_stages, 256) allocations - releases by phase until the device's peak; see sim/explain/memory.c */
    int64_t *alive;
};

struct explained_part *explain_part_at(const struct explanation *t, int32_t group, int32_t launch,
                                       int32_t member, int32_t part);
size_t *explain_run_at(const struct explanation *t, int32_t group, int32_t launch, int32_t member);
int32_t explain_member(const struct explanation *t, int32_t group, int32_t lane); /* -1 */
/* sim/explain/tables.c: everything; sim/explain/label.c: the lanes' records */
MUST_CHECK enum status explain_label(struct explanation *t, struct error *err);
MUST_CHECK enum status explain_label_lanes(struct explanation *t, struct error *err);
/* sim/explain/size.c: upper bound for one step */
double explain_records(const struct program *p, int32_t lane);
/* sim/explain/path.c: pieces of the window into x, time on all steps' paths into the three arrays (ns) */
struct explain_presence {
    int64_t *device, *link, *kind;
};
MUST_CHECK enum status explain_path(const struct explanation *t, struct explain *x,
                                    struct explain_presence *all, struct error *err);
/* sim/explain/use.c: devices, links */
void explain_use(const struct explanation *t, struct explain *x);
/* sim/explain/memory.c: allocations and releases during reconstruction, then the live buffers at the peak */
void explain_memory_start(struct explanation *t);
void explain_born(struct explanation *t, int32_t lane, int32_t stage, enum phase phase,
                  int64_t now_ns);
void explain_dead(struct explanation *t, int32_t lane, int32_t stage, enum phase phase,
                  int64_t now_ns);
void explain_memory(const struct explanation *t, struct explain *x);

#endif
