/* tools/profile/links.h - the links of a cluster, measured by messages between two ranks, for `musher profile`. */
#ifndef TOOLS_PROFILE_LINKS_H
#define TOOLS_PROFILE_LINKS_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "profiles/profile.h"

#include <stdint.h>

struct arena;
struct profile_gpus;
struct program;
struct trace;

struct profile_links {
    struct arena *arena;
    const struct cluster *cluster;
    const struct profile_gpus *gpus;
    /* (cluster's links) emulated: share by which messages were not as stated; NULL before they are measured */
    double *off;
    int64_t largest_bytes; /* of messages and collectives between GPUs */
    /* (n_sizes) messages of links between GPUs, as measured */
    struct link_size {
        const char *link;
        int64_t bytes;
        double seconds, spread; /* median; relative */
        int32_t samples;
    } * sizes;
    size_t n_sizes, sizes_capacity;
};

/* Each link between the first pair of devices whose messages cross it, into *p. Links of which this machine has not both
 * ends are told and left to the prior. */
MUST_CHECK enum status profile_links_measure(struct profile_links *b, int64_t repeats,
                                             struct profile *p, struct error *err);
/* A program as so many ranks of this very program run it, in a folder of ours; its trace. */
MUST_CHECK enum status profile_run_bench(struct profile_links *b, const struct program *program,
                                         const char *folder, struct trace **out, struct error *err);
MUST_CHECK enum status profile_bench_folder(struct profile_links *b, const char **out,
                                            struct error *err);
void profile_bench_folder_gone(const char *folder);
void profile_sizes_print(const struct profile_links *b);
struct json;
void profile_sizes_json(struct json *j, const struct profile_links *b);
double profile_link_off(const struct profile_links *b, const char *link); /* 0: not measured */

#endif
