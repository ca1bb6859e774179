/* exec/worker/saved_tensor.h - the checkpoint tensors of a parameter: names, slots, owner.
 *
 * The parameter itself has its own name; its fp32 master is saved if it has one, so that a run in either precision
 * can resume. The optimizer state has the names "name#m" and "name#v". With local SGD each island has parameters and state of its own:
 * those of island k > 0 have the names "name@k", "name#m@k"; all islands have the same anchor "name#anchor" and velocity
 * "name#velocity". Between the start of a delayed sum of changes and its use the sum is complete when a checkpoint is written, and saved as
 * "name#sum". With two weight versions the one before the last update is "name#previous", in fp32 of a half-precision parameter. With a
 * parameter server (by arrival or not) the servers' parameters have these names, and those of worker k, counted from 1,
 * the names "name@k". */
#ifndef EXEC_WORKER_SAVED_TENSOR_H
#define EXEC_WORKER_SAVED_TENSOR_H

#include "core/program/program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct checkpoint;
struct checkpoint_tensor;
struct chunk;
struct rank;

/* of a parameter; `which` below: 0 itself, 1 m, 2 v, 3 anchor, 4 velocity, 5 sum, 6 the version before the last update */
enum { SAVED_PREVIOUS = 6, SAVED_TENSORS };

/* ERR_INPUT: the name is too long. */
MUST_CHECK enum status saved_tensor_name(char *out, size_t n, const struct program_parameter *p,
                                         int32_t island, int which, struct error *err);
int32_t saved_tensor_slot(const struct program_parameter *p, int which); /* with ZeRO of the shard; -1: none */
/* Whether an island saves it after so many steps of the whole training. */
bool saved_tensor_kept(const struct program *p, const struct program_parameter *x, int32_t island, int which,
                       int64_t steps);
/* The stage's parameter of this name; NULL: none. */
const struct program_parameter *saved_tensor_parameter(const struct program_stage *s,
                                                       const char *name);
/* Whether this stage saves the parameter: the first stage of its island that has it. */
bool saved_tensor_owned(const struct program *p, const struct program_stage *owner,
                        const char *name);
/* Loads a whole tensor of the stage's island. If the checkpoint has another number of islands than the program, what each of them has of
 * its own (parameter, m, v) is the mean of the checkpoint's, weighted by their sequences a step. Without local SGD a checkpoint has no
 * anchor, which is the parameter then, as is the previous of two weight versions, and no velocity or sum, which are zero: *out is left as it is, all zero. Weights (exec/checkpoint/weights.h) have no m and v either, which are zero. A worker has its own
 * parameters only if saved_tensor_serves and the checkpoint has them, else the servers'. */
MUST_CHECK enum status saved_tensor_load(struct arena *a, const struct checkpoint *c, const struct program *p,
                                         const struct program_parameter *x, int32_t island, int which,
                                         const struct shape *whole, enum dtype t, void *out, struct error *err);
/* The name of a parameter server's n numbers of versions (serve_state). */
void saved_tensor_versions(char *out, size_t n, int32_t server, int64_t numbers);
/* Those of a server, counted from 1; NULL: the checkpoint has none, because its training had no such server by arrival. */
const struct checkpoint_tensor *saved_tensor_find_versions(const struct checkpoint *c, int32_t server);
bool saved_tensor_is_versions(const char *name);
/* Whether workers continue with their own parameters and pulls: program and checkpoint have servers by arrival, as many of them, and as
 * many workers. */
bool saved_tensor_serves(const struct checkpoint *c, const struct program *p);
bool saved_tensor_is_sum(const char *name);
bool saved_tensor_is_previous(const char *name);
bool saved_tensor_finite(const void *values, enum dtype t, int64_t n);
/* Writes fp32 values to elements [at, at + n) of a half-precision slot. */
MUST_CHECK enum status saved_tensor_narrow(struct rank *r, struct arena *a, const struct chunk *k,
                                           int32_t slot, int64_t at, const void *values, int64_t n,
                                           struct error *err);

#endif
