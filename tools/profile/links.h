/* tools/profile/links.h - measurement of a cluster's links by messages between two ranks, for `musher profile`. */
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
    /* starts a program on another host, as in struct launch_hosts; NULL: links are measured on this machine only */
    const char *agent;
    /* (cluster's links) relative deviation of messages on an emulated link from the stated link; NULL before the measurement */
    double *off;
    int64_t largest_bytes; /* of messages and collectives between GPUs */
    /* (n_sizes) messages measured on links between GPUs */
    struct link_size {
        const char *link;
        int64_t bytes;
        double seconds, spread; /* median; relative */
        int32_t samples;
    } * sizes;
    size_t n_sizes, sizes_capacity;
};

/* Adds each link to *p, measured between the first pair of devices whose messages cross it; with an agent also links of two other hosts,
 * and those at switches (tools/profile/switches.h). A link without both ends on a machine in reach is logged and keeps the prior. */
MUST_CHECK enum status profile_links_measure(struct profile_links *b, int64_t repeats,
                                             struct profile *p, struct error *err);
/* Duration of messages between two devices that can be reached; name: of what they cross, in errors. */
MUST_CHECK enum status profile_link_between(struct profile_links *b, int32_t from, int32_t to, const char *name,
                                            int64_t repeats, const char *folder, struct link_model *out,
                                            struct error *err);
bool profile_reaches(const struct profile_links *b, int32_t device); /* ranks can be started there */
/* Runs a program as ranks of this executable, on the hosts of its devices, with files in `folder`. *out: its trace. */
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
