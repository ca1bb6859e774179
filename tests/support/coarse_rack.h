/* tests/support/coarse_rack.h - a coarse search up to its prices: of Llama on a rack of three nodes, or of another job and cluster. */
#ifndef TESTS_SUPPORT_COARSE_RACK_H
#define TESTS_SUPPORT_COARSE_RACK_H

#include "planner/coarse/internal.h"

struct coarse_rack {
    struct cluster cluster;
    struct job job;
    struct profile profile;
    struct lower_options lower;
    struct search_options options;
    struct search_context context;
    struct search_task task;
    int64_t sizes[3];
    struct coarse coarse;
};

extern const char *const coarse_rack_job;
/* 8 H100 and two nodes of 8 A100. */
struct cluster coarse_rack_cluster(struct arena *a);
/* A search of microbatches of 1, 2 and 4 sequences, without classes. */
void coarse_rack_make(struct arena *a, struct coarse_rack *m, struct cluster c, const char *job);
/* The job on the rack, with the prices of the first microbatch size. */
void coarse_rack_priced(struct arena *a, struct coarse_rack *m);
/* A replica of four stages of two H100, for so many sequences. */
struct plan coarse_rack_four_stages(struct arena *a, struct coarse_rack *m, int64_t batch, struct space *s);
void coarse_rack_end(struct coarse_rack *m);

#endif
