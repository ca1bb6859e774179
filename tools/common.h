/* tools/common.h - functions of several verbs: signals, the profile of a prediction, plans, programs, folding, JSON output. */
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

/* Installs the handler of SIGINT, SIGTERM, SIGHUP and SIGUSR1. A SIGHUP that was ignored at program start (nohup) stays ignored. */
typedef void signal_handler(int number);
void common_on_end_signals(signal_handler *handler);
/* From now on the first of these signals sets the returned flag, and a search ends with its best result so far. Repeated SIGTERM and
 * SIGHUP are ignored, because batch systems and terminals send them more than once; a second SIGINT ends the program at once. */
volatile sig_atomic_t *common_stop_on_end_signals(void);
/* Sets the same flag after so many seconds of wall time; 0: never, also where a time was set before. */
void common_stop_after(double seconds);
bool common_timed_out(void); /* whether that time has passed */

/* Blocks these signals until it is called with false: for two steps that must both happen or neither. */
void common_hold_end_signals(bool hold);

/* Flushes stdout. ERR_RESOURCE with the cause if a write failed. */
MUST_CHECK enum status common_flush(struct error *err);

/* Hash of the cluster's canonical text; it identifies the profiles of the cluster. */
uint64_t common_cluster_hash(struct arena *a, const struct cluster *c);
const char *common_plan_text(struct arena *a, const struct plan *p); /* the text of plan_write */

/* db NULL: the catalogue's prior. Otherwise profile `id` of the database; 0: the newest of this cluster. */
MUST_CHECK enum status common_profile(struct arena *a, const struct cluster *c, const char *db,
                                      int64_t id, struct profile *out, struct error *err);
/* "profile 3 (calibrated on even-pipeline)", "catalogue prior, nothing measured" */
const char *common_profile_label(struct arena *a, const struct profile *p);

/* plan_read, with device memory from the catalogue if the plan states none. */
MUST_CHECK enum status common_plan(struct arena *a, const char *path, struct plan *out,
                                   struct error *err);
/* The plan of a trace, which its text is in. ERR_INPUT: the trace has none. */
/* The same, to be planned again: without local SGD and compression, which are not planned; a warning if it has them. */
MUST_CHECK enum status common_old_plan(struct arena *a, const char *path, struct plan *out, struct error *err);
MUST_CHECK enum status common_trace_plan(struct arena *a, const struct trace *t, const char *path,
                                         struct plan *out, struct error *err);
/* The reason why a plan can only be simulated; NULL if it can be run. */
const char *common_never_run(struct arena *a, const struct plan *p);
/* Whether the file starts with the magic word of a program. Its reader reports any other defect. */
bool common_is_program(const char *path);
/* Whether the file starts with the header line of a trace, or is gzip. */
bool common_is_trace(const char *path);
MUST_CHECK enum status common_lower(struct arena *a, const struct plan *p, bool check_memory,
                                    struct program *out, struct error *err);
/* With other options; those that depend on the cluster are set. */
MUST_CHECK enum status common_lower_with(struct arena *a, const struct plan *p,
                                         struct lower_options o, struct program *out,
                                         struct error *err);
MUST_CHECK enum status common_simulate(struct arena *a, const struct plan *p,
                                       const struct profile *profile, const struct sim_options *o,
                                       struct sim_result *out, struct program *program,
                                       struct error *err);

/* Classes of replicas of which one is simulated or kept for all (plan_classes); of up to COMMON_REPLICAS_ONE_BY_ONE replicas each is
 * its own, because all of them cost little and their links differ. */
enum { COMMON_REPLICAS_ONE_BY_ONE = 8 };
int32_t common_classes(struct arena *a, const struct plan *p, struct plan_class **out);
/* The replicas that a trace keeps: the first of each class (common_classes). of[]: the representative of each replica. */
bool *common_one_of_each(struct arena *a, const struct plan *p, int32_t *of);
/* Removes the other replicas from the trace; each device left is labelled with the names of its whole class. */
void common_keep_classes(struct arena *a, const struct program *p, const bool *keep,
                         const int32_t *of, struct trace *t);

/* Host name and processor, for the provenance of measurements. */
const char *common_machine(struct arena *a);

/* "  local SGD  every 16 steps …: …"; json: the key "local_sgd" instead. Nothing where there is none. */
struct optimizer;
struct outer_optimizer;
struct parameter_server;
struct server_counts;
void common_print_local_sgd(struct arena *a, const struct outer_optimizer *o, const struct optimizer *inner, int32_t n_islands,
                            struct json *json);
/* "  learning rate  0.0012: 0.0003 for 256 sequences a step …" of a job with an lr_rule; key "learning_rate". Else nothing. */
struct job;
void common_print_lr(struct arena *a, const struct job *j, struct json *json);
/* "  parameter server  asynchronous on 1 server: …", with counts of handled gradients "  staleness …"; keys "parameter_server" and
 * "staleness". counts: NULL, or pushes 0: none. */
void common_print_servers(struct arena *a, const struct parameter_server *x, const struct server_counts *counts, struct json *json);
/* These, and "  compression  gradients exchanged as …: …", of a plan; key "compression". */
void common_print_training(struct arena *a, const struct plan *p, const struct server_counts *counts, struct json *json);
/* Why `offload: optimizer` of the cluster changes nothing; NULL: it does, or no type has it. */
const char *common_offload_idle(struct arena *a, const struct job *j, const struct cluster *c);
/* Warns if so many steps, simulated or measured, are no whole period of exchanges. */
void common_warn_of_period(const struct outer_optimizer *o, int64_t steps);
/* The time of an option: seconds with any unit of core/base/units, or days as "3 d". ERR_USAGE: no time from 0 to 1e9 s. */
MUST_CHECK enum status common_duration(const char *option, const char *text, int64_t *out_ns, struct error *err);
/* Opens {"schema": 1; common_json_end closes the object and prints it on stdout. */
void common_json_begin(struct json *j);
void common_json_end(struct json *j);
bool common_json_printed(
    void); /* an object was printed: main prints no second one for a later failure */
void common_json_by_another(void); /* another process printed it */

/* ERR_RESOURCE if path cannot be written: an early check, before minutes of work. NULL is accepted. */
MUST_CHECK enum status common_writable(const char *path, struct error *err);
/* ERR_USAGE if an option names standard output although --json prints its object there. */
MUST_CHECK enum status common_not_stdout(bool as_json, const char *option, const char *path,
                                         struct error *err);

#endif
