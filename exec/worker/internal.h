/* exec/worker/internal.h - one rank's run, shared by worker*.c alone. */
#ifndef EXEC_WORKER_INTERNAL_H
#define EXEC_WORKER_INTERNAL_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "exec/activity.h"
#include "exec/backend.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/clock.h"
#include "exec/comm/comm.h"
#include "exec/data.h"
#include "exec/device_transport/device_transport.h"
#include "exec/host_transport/bounce.h"
#include "exec/host_transport/comm_thread.h"
#include "exec/host_transport/memory.h"
#include "exec/host_transport/spans.h"
#include "exec/worker/async_issue.h"
#include "exec/worker/worker.h"

struct prepared_op { /* an operator with its operands' places */
    struct op_call call;
    struct place input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
};

struct prepared_procedure {
    int32_t n_rooms, n_receives;
    int32_t *rooms;    /* (n_rooms) rings with `sent` that it writes: the implied wait */
    int32_t *receives; /* (n_receives) channels */
    bool reads_inputs; /* an operator of it reads what LOAD fills */
};

/* An input of a lane apart: filled in pinned memory, while the one before it is on its way, and copied on a stream of its own. */
enum { INPUT_BUFFERS = 2 };
/* The first numbers of a loss scale, which all devices have alike. */
enum { WORKER_SCALE = LOSS_SCALE_SKIPPED + 1 };
struct prepared_input {
    int32_t slot;
    struct place place;
    char *pinned[INPUT_BUFFERS];
    int32_t copied[INPUT_BUFFERS]; /* events */
    bool filled[INPUT_BUFFERS];
    uint32_t next; /* buffer, modulo INPUT_BUFFERS */
};

/* One stage of this rank's lane. */
struct chunk {
    const struct program_stage *stage;
    int32_t index; /* of the stage in the program */
    struct lane_memory memory;
    struct prepared_op *ops;               /* (n_ops) of the stage */
    struct prepared_procedure *procedures; /* (n_procedures) */
    /* a lane apart */
    int32_t n_inputs;
    struct prepared_input *inputs; /* (n_inputs) */
    int64_t reading;               /* buffers of the longest ring of an input */
    int32_t
        *read; /* (reading) events: the last call that read the inputs of seq, at seq mod reading */
    int64_t *read_seq; /* (reading) which seq that was, -1 none */
};

/* A LOCAL sum of a lane apart: the device adds its chunks itself, piece by piece. */
struct local_sum {
    int32_t n; /* of calls: first what is added, then the copies */
    struct local_piece {
        char *to, *from;
        int64_t elements;
        bool adds;
        struct op_shapes shapes;
    } * pieces; /* (n) */
};

/* A channel's end as the compute thread sees it. Messages go in the order of their numbers,
 * whatever the order of the calls: what comes early is kept until its turn. at_ns: (window)
 * instants, -1 unknown. Between two chunks of this device there is one end for both: message seq is copied when it is
 * handed over and its receive is posted, handed[seq mod window] and posted[…] then being seq. */
struct channel_end {
    int64_t next; /* to be handed over (sender), to be posted (receiver) */
    int64_t window, *at_ns;
    int32_t *after;           /* (window) a lane apart: event + 1 of that instant */
    struct place place, to;   /* to: local, place is the source then */
    int64_t *handed, *posted; /* (window) local, NULL otherwise */
};

/* of a group by this rank: how many, and of the last one the step and how many of it were before */
struct launches {
    int64_t number, step;
    int32_t times;
};

/* Kernels below operators (exec/worker/activity.c). */
struct worker_activity {
    const struct activity *of; /* NULL: nobody asked, or this device has none */
    uint64_t entered;          /* operators asked for so far */
    size_t n_seen, capacity;
    struct activity_seen {
        size_t span;              /* of the compute thread's */
        int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC, by its events */
    } * seen;                     /* (n_seen) number n at n - 1 */
    struct span_list spans;
    struct span_names names;
};

struct worker {
    struct arena *a;      /* the caller's: results */
    struct arena *run;    /* ends with the run */
    struct arena *moving; /* the communication thread's */
    const struct program *p;
    const struct run_options *o;
    int32_t rank;
    int32_t n_chunks;
    struct chunk *chunks; /* (n_chunks) */
    struct comm *comm;
    struct backend backend;
    bool backend_open, comm_thread_made;
    bool apart;                           /* the backend's memory is its own */
    unsigned char *channel_by, *group_by; /* enum transport, alike on all ranks */
    struct device_transport *transport;   /* NULL: nothing goes by devices alone */
    struct async_issue ahead;             /* a lane apart */
    struct bounce bounce;
    char *pinned;             /* all of it; parts of it: */
    char *staging, *mirror;   /* of collectives */
    int32_t loading;          /* stream */
    struct local_sum *sums;   /* (n_groups) */
    struct link_clock *cards; /* (n_devices) shared; emulated */
    struct data data;
    struct comm_thread comm_thread;
    struct device_clock clock;
    struct span_list spans;
    struct worker_activity activity;
    struct channel_end *ends;  /* (n_channels) */
    struct launches *launches; /* (n_groups) */
    struct optimizer_step optimizer;
    int64_t first_step, step;         /* step: of this run, 0-based */
    float scale_before[WORKER_SCALE]; /* the loss scale before this run; 0: there was none */
    float *scales;                /* (steps, WORKER_SCALE) after each; NULL: the program has none */
    int64_t first_sequence;       /* sequences consumed before this run */
    int64_t global_batch;         /* sequences a step */
    uint32_t data_crc;            /* rank 0, where checkpoints are written or read */
    double *losses;               /* (steps, microbatches of the whole step) */
    int64_t *step_end_ns;         /* (steps) */
    int64_t cpu_start_ns, cpu_ns; /* of the compute thread while stepping */
    int64_t longest_bytes;        /* of an input's sequence or image */
    void *row;                    /* (longest_bytes) */
    int64_t bad_step;             /* of this run: the first whose loss here is not finite, -1 */
    bool told_of_bad_loss;
    struct checkpoint_store store; /* rank 0: the folder of --save */
    bool agreed; /* the failure that ends the steps is that of every rank, in the same words */
    bool real_time;
};

/* exec/worker/check.c */
MUST_CHECK enum status worker_check_place(const struct worker *w, struct error *err);
MUST_CHECK enum status worker_check_program(const struct worker *w, struct error *err);
/* The backend is there, its device not opened. */
MUST_CHECK enum status worker_check_device(struct worker *w, struct error *err);
/* What lanes need is there; transports are chosen. */
MUST_CHECK enum status worker_check_memory(struct worker *w, struct error *err);
void worker_warn_if_crowded(const struct worker *w);

/* exec/worker/transport.c: how each channel and group moves, from what all ranks' backends can (together); bytes that devices of
 * this host take of its memory, and the lanes of this rank's device of its own. */
void worker_choose_transports(struct worker *w);
int64_t worker_pinned_bytes(const struct worker *w, int32_t device);
/* Pinned memory, streams and events of a lane apart; then its part in channels and groups that the host carries. */
MUST_CHECK enum status worker_open_apart(struct worker *w, struct error *err);
MUST_CHECK enum status worker_open_transport(struct worker *w, struct error *err);
/* Whether any of its messages or sums goes between devices on their streams; transports are chosen. Alike on all ranks. */
bool worker_goes_by_devices(const struct worker *w);

/* worker_staging.c: what a lane apart has in pinned memory of a collective while it runs. */
struct worker_staging {
    char *segments, *own,
        *ring; /* of a sum: segment after segment, each at a multiple of 64 bytes */
};
int64_t worker_staging_bytes(const struct program *p, int32_t group, int32_t member);
struct worker_staging worker_staging_of(const struct worker *w, const struct chunk *k,
                                        int32_t group, int32_t member);
void worker_staging_group(struct worker *w, const struct chunk *k, int32_t group, int32_t member,
                          struct bounce_group *out);
void worker_staging_meeting(struct worker *w, const struct chunk *k, int32_t group, int32_t member,
                            struct bounce_group *out);

/* exec/worker/local.c: sums of this device's own chunks, asked of the device itself. */
void worker_local_prepare(struct worker *w, int32_t group);
MUST_CHECK enum status worker_local_sum(struct worker *w, int32_t group, struct error *err);

/* exec/worker/prepare.c */
MUST_CHECK enum status worker_prepare(struct worker *w, struct error *err);
/* Operator `op` of the chunk's stage with the places of its operands; the chunk has its memory. */
struct prepared_op worker_prepared_op(const struct worker *w, const struct chunk *k, int32_t op);
/* worker_preload.c: each operator of the chunk once; what its memory holds afterwards means nothing. */
MUST_CHECK enum status worker_preload(struct worker *w, const struct chunk *k, struct error *err);
/* The chunk of this rank that is the stage; NULL where it is another rank's. */
struct chunk *worker_chunk(const struct worker *w, int32_t stage);
/* exec/worker/steps.c */
MUST_CHECK enum status worker_step(struct worker *w, struct error *err);
/* The receives that may be posted from the start. */
MUST_CHECK enum status worker_post_first(struct worker *w, struct error *err);
/* value: of the loss slot, as it stood there. */
void worker_note_loss(struct worker *w, int64_t step, const struct async_issue_loss *l,
                      const void *value);

/* exec/worker/scale.c: before the first step, once a checkpoint was read; numbers of a step that was seen; the same of a host lane;
 * after so many steps of this run; do all devices have had the same? */
float *worker_scale_at(const struct chunk *k);
MUST_CHECK enum status worker_scale_open(struct worker *w, struct error *err);
void worker_note_scale(struct worker *w, int64_t step, const float *numbers);
MUST_CHECK enum status worker_see_scale(struct worker *w, struct error *err);
void worker_scale_after(const struct worker *w, int64_t steps, float out[WORKER_SCALE]);
MUST_CHECK enum status worker_scale_agreed(struct worker *w, struct error *err);
void worker_scale_report(const struct worker *w, struct run_result *out);

/* exec/worker/activity.c: before the device is opened, and the end of it; around an operator; its span is about to be added; once no device
 * has anything to do, as spans of this rank. */
MUST_CHECK enum status worker_activity_open(struct worker *w, struct error *err);
void worker_activity_close(struct worker *w);
MUST_CHECK enum status worker_activity_enter(struct worker *w, struct error *err);
MUST_CHECK enum status worker_activity_leave(struct worker *w, struct error *err);
void worker_activity_seen(struct worker *w, int64_t begin_ns, int64_t end_ns);
MUST_CHECK enum status worker_activity_collect(struct worker *w, struct error *err);

/* exec/worker/routing.c: of a call of gating that has ended, variance ÷ mean² of the rows of its experts, in millionths. The device's
 * clock stands still meanwhile. */
MUST_CHECK enum status worker_routing(struct worker *w, const struct op_call *c, int32_t *out_ppm,
                                      struct error *err);
/* The same of gates that are here already. */
int32_t worker_uneven(const struct op_call *c, const void *gates);
/* exec/worker/load.c: number, among all sequences that are trained on, of the first one that the stage has of a microbatch; its
 * inputs, into the buffers of sequence number seq. */
int64_t worker_first_sequence(const struct worker *w, const struct program_stage *s,
                              int32_t microbatch);
MUST_CHECK enum status worker_load(struct worker *w, const struct chunk *k, int32_t microbatch,
                                   int64_t seq, struct error *err);

/* exec/worker/save.c: all ranks together; the communication thread parked or not running. */
MUST_CHECK enum status worker_resume(struct worker *w, struct error *err);
/* The folder of --save: before what is resumed is looked for, and once it is known from where the run goes on. ERR_RESOURCE: a rank
 * cannot write into it. */
MUST_CHECK enum status worker_enter(struct worker *w, struct error *err);
MUST_CHECK enum status worker_follow(struct worker *w, struct error *err);
/* Says once from which step on the losses of all ranks are not finite; false then. */
bool worker_losses_finite(struct worker *w);
/* Nothing is written, with a warning, where losses or tensors are not finite: what was saved before
 * is worth more. */
MUST_CHECK enum status worker_save(struct worker *w, int64_t step, struct error *err);
/* Of a parameter: itself (its master where it has one), m and v of the optimizer; and what a checkpoint calls them. ERR_INPUT: too long a name. */
enum { WORKER_PARTS = 3 };
MUST_CHECK enum status worker_part_name(char *out, size_t n, const struct program_parameter *p,
                                        int part, struct error *err);
int32_t worker_part_slot(const struct program_parameter *p, int part); /* -1: none */
const struct program_parameter *worker_parameter(const struct program_stage *s, const char *name);
/* fp32 values to elements [at, at + n) of a slot in half precision. */
MUST_CHECK enum status worker_narrow(struct worker *w, struct arena *a, const struct chunk *k,
                                     int32_t slot, int64_t at, const void *values, int64_t n,
                                     struct error *err);
/* Whether the parameter is this stage's to save: the first of replica 0 that has it. */
bool worker_owns(const struct program *p, const struct program_stage *owner, const char *name);
bool worker_all_finite(const void *values, enum dtype t, int64_t n);

#endif
