/* core/faults/script.h - fault scripts: which faults a run gets, at which devices, links and nodes, and when.
 *
 * `musher run --faults` injects them (exec/worker/faults.h), `musher goodput --faults` predicts their cost
 * (sim/goodput/goodput.h). Each fault happens once. A time is a step of the whole training, counted from 1, or wall time since the first
 * step of the run began. Faults drawn at random (`mtbf`) form a Poisson process (exponential times between failures) at each device or
 * node; draws are functions of (seed, place, number), so a script is the same in every run and in the prediction. O(faults · places).
 */
#ifndef CORE_FAULTS_SCRIPT_H
#define CORE_FAULTS_SCRIPT_H

#include "core/base/error.h"
#include "core/document/keys.h"
#include "core/program/program.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* Names in files, what they do in a log line */
#define FAULT_KINDS(X)                                                                                                                     \
    X(kill, "SIGKILL of a device's rank")                                                                                                  \
    X(stop, "SIGSTOP of a device's rank, which its peers notice after MUSHER_TIMEOUT")                                                    \
    X(exit, "the rank of a device ends with an exit code")                                                                                 \
    X(slow, "operators of an emulated device take `factor` times as long")                                                                 \
    X(link_slow, "messages occupy an emulated link `factor` times as long")                                                                \
    X(disk_full, "checkpoints cannot be written (ENOSPC)")                                                                                 \
    X(host_lost, "SIGKILL of all ranks of a node")
enum fault_kind {
#define X(name, help) FAULT_##name,
    FAULT_KINDS(X)
#undef X
        FAULT_KIND_COUNT
};
const char *fault_kind_name(enum fault_kind k);

enum { FAULTS_MAX = 256 };
struct fault {
    enum fault_kind kind;
    bool drawn;        /* at random */
    const char *place; /* name of a device, link or node; "" of disk_full */
    int64_t at_step;   /* before this step; 0: at_ns counts */
    int64_t at_ns;
    double factor;        /* of slow, link_slow */
    int64_t steps;        /* executed steps that slow, link_slow, disk_full last, repeated ones too; 0 of disk_full: one checkpoint */
    int64_t code;         /* of exit */
    int64_t back_ns;      /* of host_lost: time from the loss to the return; 0: see back_step */
    int64_t back_at_step; /* of host_lost: the step in front of which it returns; 0: see back_ns; both 0: it does not */
};
struct fault_script {
    int32_t n;
    struct fault *faults; /* (n), in the order of the file; drawn ones by time */
};

extern const struct document_key fault_script_keys[]; /* the file */
extern const struct document_key fault_keys[];        /* an entry of faults */

/* The script of a program's devices and links. ERR_INPUT with file:line:column: unknown keys and places, a fault that the place cannot
 * have, more than FAULTS_MAX. */
MUST_CHECK enum status fault_script_read(struct arena *a, const char *path, const struct program *p, struct fault_script *out,
                                         struct error *err);
/* Whether the fault ends ranks, so that the run starts again. */
bool fault_ends_ranks(const struct fault *f);
/* Whether the device ("a.1") is the fault's, or of its node ("a"). */
bool fault_hits(const struct fault *f, const char *device);
/* Whether a run can end by this exit code of a rank and start again: not 0, and no error of musher's own. */
bool fault_exit_code(int64_t code);
/* "killed a.1", "a.0 is 3 times slower for 10 steps": what a log line says of a fault that happens. */
const char *fault_text(struct arena *a, const struct fault *f);

#endif
