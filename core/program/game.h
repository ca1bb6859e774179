/* core/program/game.h - state of the deadlock check (token game); private to core/program/check.c and
 * core/program/orders.c. */
#ifndef CORE_PROGRAM_GAME_H
#define CORE_PROGRAM_GAME_H

#include "core/program/ahead.h"
#include "core/program/internal.h"

enum { POSTED = 1, LEFT = 2 };
enum wait { WAIT_NONE, WAIT_MESSAGE, WAIT_LEFT, WAIT_GROUP };

struct game_channel {
    int64_t n;      /* messages in the game */
    uint8_t *state; /* (n) */
    int32_t *queue; /* (n) issued messages, in order */
    int64_t head, tail;
    int64_t n_sent, n_received; /* in one step, to compare orders */
    int64_t sent_ahead, received_ahead; /* of them, by calls ahead: the step's first */
    int32_t *sent, *received;   /* (microbatches) */
};

struct game_lane {
    int32_t device;
    const struct program_stage *s; /* of the current call */
    struct cursor cursor;
    int32_t step, instr; /* step: pass over the order, -1 in front of the first step; instr: into the reduced procedure; -1 before the call has started */
    struct call call;
    bool done, queued;
    enum wait wait;
    int32_t wait_index; /* channel or group */
    int64_t wait_seq;
    int32_t *stream, n_stream; /* groups in the launch order of one step */
    int32_t *microbatch;       /* (n_stream) microbatch of the launching call */
    bool met;                  /* the current instruction has launched its collective */
    /* (n_divided) groups that may be launched several times a step, ascending, and their number of launches */
    int32_t n_divided, *divided;
    int64_t *launched;
    int64_t handed, ended; /* of the collective stream, over all steps */
};

struct boiled {
    int32_t n;
    struct instr *instrs;
};

struct game {
    struct arena *a;
    const struct program *p;
    int32_t steps;
    struct game_lane *lanes;
    int32_t *lane_of_stage;
    bool every;                 /* with all collectives */
    const bool *follows;        /* (n_collectives) left out: it always follows another one directly; NULL: none */
    struct boiled **procedures; /* (n_stages) of (n_procedures) */
    int64_t ***holders;         /* (n_stages)(n_buffer_rings)(count): sequence number, -1 free */
    struct game_channel *channels;
    struct offload_state *offloads; /* (n_stages) */
    int32_t *at_head, *group_ended; /* (n_groups) */
    int32_t *launched_by;           /* (n_groups) last lane that launched it, + 1 */
    int32_t *launched_times;        /* (n_groups) launches by the last lane in one step */
    int32_t *ready, n_ready;        /* (n_lanes) stack */
    int32_t *ending, n_ending;      /* (n_groups) stack */
    struct error *err;
};

/* Of the current call. */
static inline int32_t game_step(const struct game_lane *l)
{
    return l->step + ahead_steps(&l->s->procedures[l->call.procedure]);
}
/* For messages: "a.0", "activation 0→1", "F2 of step 1"; "1F2" if the device has several chunks. */
const char *game_device(const struct game *g, int32_t stage);
const char *game_channel(const struct game *g, int32_t channel);
const char *game_call(const struct game *g, const struct game_lane *l);
/* Number of launches of a repeating group by the lane; NULL: it is not a member. */
int64_t *game_launched(const struct game_lane *l, int32_t group);

/* check_offload.c: OFFLOAD and FETCH of a call, and the end of a call with FETCH. ERR_INPUT: a buffer in host memory is overwritten while its
 * message waits, or a FETCH that no copy precedes. */
void game_offloads(struct game *g);
MUST_CHECK enum status game_offload(struct game *g, const struct game_lane *l, const struct instr *instr, int64_t seq);
void game_consumed(struct game *g, const struct game_lane *l, int64_t seq);

/* Reduces procedures to communication, and checks one step of every lane statically: every call once, both ends of a
 * channel agree on the order of its messages, one order of groups fits all lanes. Fills the
 * lanes' streams. ERR_INPUT. */
MUST_CHECK enum status game_orders(struct game *g);

#endif
