/* tests/validate/published.h - tables of published measurements (tests/validate/published/README.md) and predictions of their rows.
 *
 * A table is a CSV file, recognised by its header. A row that states the layout of a training step becomes a plan (model, cluster,
 * stages, replicas, schedule), which is lowered and simulated like every plan (core/lower/lower, sim/engine/sim). Facts that the
 * tables do not state are set here, once:
 *   GPUs        A100 SXM 80 GB, eight a node, NVLink inside, one 200 Gb/s port each between nodes
 *   ranks        tensor-parallel GPUs adjacent, then replicas, then stages (Megatron-LM's order); each stage is sharded over its GPUs
 *                by tests/support/tensor_rules.h
 *   model        gpt2's graph with eager attention, 51200 words, fp16
 *   update       AdamW; one gradient all-reduce, after the last backward
 */
#ifndef TESTS_VALIDATE_PUBLISHED_H
#define TESTS_VALIDATE_PUBLISHED_H

#include "core/base/error.h"
#include "core/lower/lower.h"
#include "core/plan/plan.h"
#include "core/program/program.h"
#include "profiles/profile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

/*      enumerator   name in reports */
#define PUBLISHED_FORMATS(X)                                                                       \
    X(MEGATRON, "megatron_sc21")                                                                   \
    X(KORTHIKANTI, "korthikanti")                                                                  \
    X(VTRAIN, "vtrain_single")                                                                     \
    X(ZERO_BUBBLE, "zero_bubble")
enum published_format {
#define X(name, text) PUBLISHED_##name,
    PUBLISHED_FORMATS(X)
#undef X
        PUBLISHED_FORMAT_COUNT
};
const char *published_format_name(enum published_format f);

/* CSV: fields may stand in double quotes, a quote inside doubled; the first line is the header. */
struct csv {
    const char *file;
    int32_t n_columns, n_rows;
    const char **header;
    const char **field; /* (n_rows, n_columns) */
    int32_t *line;      /* (n_rows) of the file, from 1 */
};
/* ERR_INPUT with file:line: a row with too many or too few fields, an open quote. */
MUST_CHECK enum status csv_read(struct arena *a, const char *path, struct csv *out,
                                struct error *err);
int32_t csv_column(const struct csv *c, const char *name); /* -1 */
/* An empty cell is NAN. ERR_INPUT with file:line and column: not a number, missing column. */
MUST_CHECK enum status csv_number(const struct csv *c, int32_t row, const char *column, double *out,
                                  struct error *err);
MUST_CHECK enum status csv_count(const struct csv *c, int32_t row, const char *column, int64_t most,
                                 int64_t *out, struct error *err);          /* >= 1 */
const char *csv_text(const struct csv *c, int32_t row, const char *column); /* "" where absent */

/* The format of a table, from its header. ERR_INPUT lists the formats. */
MUST_CHECK enum status published_recognise(const struct csv *c, enum published_format *out,
                                           struct error *err);

struct published_row { /* a step as the table lays it out */
    const char *name;
    int64_t hidden, heads, layers, sequence, vocabulary;
    /* tensor, pipeline, data parallel; chunks of layers a stage */
    int64_t tp, stages, replicas, chunks;
    int64_t global_batch, microbatch;
    enum recompute recompute;
    bool sequence_parallel;
    double measured_s; /* of one iteration */
    /* Of one GPU by the paper's own figure, NAN where the table has none: bytes. */
    double parameters_bytes, activations_none_bytes, activations_selective_bytes;
};
/* Not for PUBLISHED_ZERO_BUBBLE, whose rows have times within a step. ERR_INPUT with file:line and column. */
MUST_CHECK enum status published_row(struct arena *a, const struct csv *c, enum published_format f,
                                     int32_t row, struct published_row *out, struct error *err);

/* Network overheads of a row beside bandwidth; constants of a fit. */
struct published_wires {
    double message_s;          /* from stage to stage: handshake and waiting of the framework */
    double network_efficiency; /* share of a port's rate */
};
/* A fit: constants of one base device, some of them fitted on every n-th row of a table. */
enum { PUBLISHED_FITTED_MAX = 12 };
struct published_fit {
    struct op_prior prior;
    /* what a message from stage to stage takes beside its bytes: the framework's handshake. A step that is given by
     * its parts has it in every F and B, on the device */
    double message_s;
    /* parts of a step in a real iteration to the profiled ones; 1 for plans, that nobody profiled */
    double parts_ratio;
    const char *trained_on; /* file name of the table */
    /* trained on its rows 1, 1 + every … (from 1, the header not counted); 0: nothing fitted */
    int32_t every;
    int32_t n_fitted;
    const char *fitted[PUBLISHED_FITTED_MAX]; /* names of constants */
};
/* From tests/validate/published/fits.csv: fit, base, constant, value, every, source; a constant with an `every` was fitted on those rows of
 * the table `source`, one without was taken from it. ERR_INPUT: an unknown constant (lists them), none of this id. */
MUST_CHECK enum status published_fit_read(struct arena *a, const char *path, const char *id,
                                          struct published_fit *out, struct error *err);
MUST_CHECK enum status published_plan(struct arena *a, const struct published_row *row,
                                      const struct published_fit *fit, struct plan *out,
                                      struct error *err);
/* A case to predict: built once in an arena, timed repeatedly with different constants. */
struct published_case {
    double measured_s;
    /* a plan, lowered; NULL: parts of a step in some schedule (tests/validate/published_bubbles.c) */
    const struct published_row *row;
    struct plan plan;
    struct program program;
    struct published_parts *parts;
};
/* The operator fusion of Megatron-LM and frameworks based on it, for predictions of their measurements: elementwise operators and
 * updates, no matmul with its bias. */
void published_fused(struct lower_options *o);
/* *out points to row. */
MUST_CHECK enum status published_case(struct arena *a, const struct published_row *row,
                                      const struct published_fit *fit, struct published_case *out,
                                      struct error *err);
/* Simulated seconds of one iteration. Deterministic to the bit. */
MUST_CHECK enum status published_seconds(struct published_case *c, const struct published_fit *fit,
                                         double *out_s, struct error *err);

/* --- fitting (tests/validate/published_fit.c) --- */

/* The constant of this name in a fit; NULL: unknown name. */
double *published_constant(struct published_fit *f, const char *name);
const char *published_constants(struct arena *a); /* all names, for messages */
/* Least squares of log(predicted / measured) over the cases, in the logarithms of fit's fitted constants, which start above 0:
 * Gauss-Newton steps on forward differences, halved until they help (Nocedal and Wright 2006, chapter 10). left_out
 * (n, may be NULL): each case's log ratio had it not been trained on, to first order: r / (1 - leverage) (Allen 1974, PRESS); rounds 0
 * fits nothing and only fills left_out. O(rounds · constants · cases) simulations. */
MUST_CHECK enum status published_fit(struct published_case *cases, int32_t n,
                                     struct published_fit *fit, int32_t rounds, double *left_out,
                                     struct error *err);

#endif
