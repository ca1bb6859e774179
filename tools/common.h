/* tools/common.h - what several verbs need: the profile a prediction rests on, programs, names for people. */
#ifndef TOOLS_COMMON_H
#define TOOLS_COMMON_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/document/json.h"
#include "core/lower/lower.h"
#include "core/plan/plan.h"
#include "core/program/program.h"
#include "profiles/profile.h"
#include "sim/engine/sim.h"

#include <signal.h>

struct arena;

/* SIGINT, SIGTERM and SIGHUP ask the program to end. A SIGHUP that was ignored when the program began (nohup) stays ignored. */
typedef void signal_handler(int number);
void common_on_end_signals(signal_handler *handler);
/* From now on the first of them sets the flag that is returned, so that a search ends with what it has found. SIGTERM and SIGHUP may
 * come again, because batch systems and terminals send them more than once; a second SIGINT ends the program at once. */
volatile sig_atomic_t *common_stop_on_end_signals(void);

/* Until hold is false again those signals wait: between two acts of which both must happen or neither. */
void common_hold_end_signals(bool hold);

/* What was printed reaches stdout, or ERR_RESOURCE says why not. */
MUST_CHECK enum status common_flush(struct error *err);

/* Of the cluster's canonical text: which profiles belong to it. */
uint64_t common_cluster_hash(struct arena *a, const struct cluster *c);
const char *common_plan_text(struct arena *a, const struct plan *p); /* what plan_write writes */

/* db NULL: the catalogue's prior. Otherwise profile `id` of the database, the newest of this cluster where id is 0. */
MUST_CHECK enum status common_profile(struct arena *a, const struct cluster *c, const char *db,
                                      int64_t id, struct profile *out, struct error *err);
/* "profile 3 (calibrated on even-pipeline)", "catalogue prior, nothing measured" */
const char *common_profile_label(struct arena *a, const struct profile *p);

/* plan_read, with the catalogue's memory where the plan states none. */
MUST_CHECK enum status common_plan(struct arena *a, const char *path, struct plan *out,
                                   struct error *err);
/* Why a plan is for the simulator alone; NULL where it may be run. */
const char *common_never_run(struct arena *a, const struct plan *p);
/* Does the file start with the magic word of a program? What else may be wrong with it is said by its reader. */
bool common_is_program(const char *path);
/* Does it start as a trace does, with a header on one line? */
bool common_is_trace(const char *path);
MUST_CHECK enum status common_lower(struct arena *a, const struct plan *p, bool check_memory,
                                    struct program *out, struct error *err);
MUST_CHECK enum status common_simulate(struct arena *a, const struct plan *p,
                                       const struct profile *profile, const struct sim_options *o,
                                       struct sim_result *out, struct program *program,
                                       struct error *err);

/* By replica, which ones a trace keeps: the first of each class (plan_classes); of[]: the one that stands for each. */
bool *common_one_of_each(struct arena *a, const struct plan *p, int32_t *of);
/* Leaves those replicas' devices in the trace, each with the names of the devices that it stands for. */
void common_keep_classes(struct arena *a, const struct program *p, const bool *keep,
                         const int32_t *of, struct trace *t);

/* host name and processor, for the record of measurements */
const char *common_machine(struct arena *a);

/* Opens {"schema": 1; common_json_end closes the object and puts it on stdout. */
void common_json_begin(struct json *j);
void common_json_end(struct json *j);
bool common_json_printed(
    void); /* an object went to stdout: main adds no second one for a failure after it */

/* Fails now, not after minutes of work, where path cannot be written (ERR_RESOURCE). NULL is fine. */
MUST_CHECK enum status common_writable(const char *path, struct error *err);
/* With --json stdout is one object: no output of a verb may go there too (ERR_USAGE). */
MUST_CHECK enum status common_not_stdout(bool as_json, const char *option, const char *path,
                                         struct error *err);

#endif
