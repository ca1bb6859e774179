/* core/plan/internal.h - shared by core/plan/plan*.c and core/lower/lower*.c; private to them. */
#ifndef CORE_PLAN_INTERNAL_H
#define CORE_PLAN_INTERNAL_H

#include "core/plan/plan.h"
#include "core/plan/schedule.h"

/* The canonical text from `microbatch:` on: all that is executed, without the seed. */
void plan_write_executed(FILE *out, struct arena *a, const struct plan *p);

/* `local_sgd` of a plan's head: reads it, behind the replicas; checks it against them; its line in a plan file, if there is one. */
MUST_CHECK enum status plan_read_local_sgd(struct arena *a, const struct node *root, struct plan *p,
                                           struct error *err);
MUST_CHECK enum status plan_check_local_sgd(const struct plan *p, struct error *err);
void plan_write_local_sgd(FILE *out, const struct plan *p);

/* `compression`, the same way. */
MUST_CHECK enum status plan_read_compression(const struct node *root, struct plan *p, struct error *err);
MUST_CHECK enum status plan_check_compression(const struct plan *p, struct error *err);
void plan_write_compression(FILE *out, const struct plan *p);

/* `parameter_server`, the same way; find: read.c's look-up of a device by name. owner: (n_devices), not 0 for devices with a stage. */
typedef enum status plan_find_device(const void *reader, const struct node *n, int32_t *device);
MUST_CHECK enum status plan_read_servers(struct arena *a, const struct node *root, plan_find_device *find, const void *reader,
                                         struct plan *p, struct error *err);
MUST_CHECK enum status plan_check_servers(const struct plan *p, const int32_t *owner, struct error *err);
void plan_write_servers(FILE *out, const struct plan *p);

/* `experts`: after the job, whose model it belongs to. */
MUST_CHECK enum status plan_read_experts(struct arena *a, const struct node *root, struct plan *p, struct error *err);
MUST_CHECK enum status plan_check_experts(const struct plan *p, struct error *err);
void plan_write_experts(FILE *out, const struct plan *p);

/* `weight_versions`. */
MUST_CHECK enum status plan_check_versions(const struct plan *p, struct error *err);
/* Of a stage: recompute, recompute_blocks, offload. before: what precedes each. */
enum { RECOMPUTE_BLOCKS_MAX = 1 << 24 };
MUST_CHECK enum status plan_read_activations(const struct node *stage, struct plan_stage *s, struct error *err);
MUST_CHECK enum status plan_check_activations(const struct plan *p, struct error *err);
void plan_write_activations(FILE *out, const struct plan_stage *s, const char *before);

/* Position of an error: stage -1: the replica; replica -1: the plan. */
struct plan_place {
    const struct plan *p;
    int32_t replica, stage;
    struct error *err;
};
/* ERR_INPUT with the position in the file if there is one. */
enum status plan_complain(const struct plan_place *at, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A device of a replica and its chunks. */
struct plan_lane {
    int32_t device, n_stages;
    int32_t *stages; /* (n_stages) of the replica, ascending: chunk c is stages[c] */
};
/* In order of first appearance. Returns their number. O(stages · devices of the replica). */
int32_t plan_lanes(struct arena *a, const struct plan_replica *r, struct plan_lane **out);

/* Parses the next call of an order's text and advances past it. chunk: -1 if not stated. */
enum plan_word { PLAN_WORD_CALL, PLAN_WORD_END, PLAN_WORD_BAD };
enum plan_word plan_next_call(const char **text, struct schedule_op *out);

/* The replica's named schedule, devices as plan_lanes orders them. ERR_INPUT: schedule_make's errors, devices with
 * different numbers of chunks, stages on other devices than the schedule requires. O(operations). */
MUST_CHECK enum status plan_schedule(struct arena *a, const struct plan_place *at,
                                     struct schedule *out);
/* Checks warm-up counts, orders and schedule of a replica. */
MUST_CHECK enum status plan_check_orders(struct arena *a, struct plan_place *at);

#endif
