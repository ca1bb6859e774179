/* tools/print/run.h - the result of `run`: times, losses, what changed on the way. */
#ifndef TOOLS_PRINT_RUN_H
#define TOOLS_PRINT_RUN_H

struct adapt;
struct plan;
struct program;
struct restart;
struct run_options;
struct run_result;

struct run_report {
    const struct program *program;
    const struct plan *plan; /* NULL: a program file was run */
    const struct run_result *result;
    const struct run_options *options;
    struct restart *restart;
    const struct adapt *adapt;
};
void print_run(const struct run_report *x);
void print_run_json(const struct run_report *x);

#endif
