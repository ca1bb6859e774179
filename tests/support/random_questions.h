/* tests/support/random_questions.h - random jobs on random clusters of 4 to 512 devices of 1 to 4 types, whose cluster may be written in
 * several ways.
 *
 * Dense models, models with experts and tables of measured layers, of few layers; nodes of 1 to 8 devices; links inside of and between
 * nodes fast or slow; memory ample or tight. The same seed gives the same question.
 */
#ifndef TESTS_SUPPORT_RANDOM_QUESTIONS_H
#define TESTS_SUPPORT_RANDOM_QUESTIONS_H

#include "core/cluster/cluster.h"
#include "core/model/job.h"
#include "profiles/profile.h"

enum { RANDOM_QUESTIONS_KINDS = 4, RANDOM_QUESTIONS_LAYERS = 12 };

/* Equal nodes of equal devices. */
struct random_questions_kind {
    const char *device;
    int32_t nodes, per_node; /* nodes 0: not in the cluster */
    double memory_B; /* 0: the catalogue's */
    double inside_Bps, inside_s, uplink_Bps, uplink_s;
    bool ports; /* the devices of a node are joined by a switch with a link each, not by one bus */
    double slowdown; /* of measured layers */
};
struct random_question {
    uint64_t seed;
    const char *what; /* in a few words */
    const char *job;
    int32_t n_kinds;
    struct random_questions_kind kinds[RANDOM_QUESTIONS_KINDS];
    bool
        halves; /* the first kind's nodes have a switch of their own, joined to the others' by a trunk */
    double trunk_Bps, trunk_s;
    int32_t measured_layers; /* 0: a graph */
    int32_t n_degrees;       /* measured numbers of devices of a stage: 1, 2, 4 */
};

/* Ways to write one cluster: equal nodes counted, every node and link by itself, kinds in the opposite order. */
enum random_questions_words {
    RANDOM_QUESTIONS_COUNTED,
    RANDOM_QUESTIONS_LISTED,
    RANDOM_QUESTIONS_REVERSED
};

/* devices_most: 4 … 512. */
void random_questions_make(struct arena *a, uint64_t seed, int32_t devices_most,
                           struct random_question *out);
int32_t random_questions_devices(const struct random_question *q);
const char *random_questions_cluster(struct arena *a, const struct random_question *q,
                                     enum random_questions_words words);
/* The prior of the cluster, with rows for measured layers. */
void random_questions_profile(struct arena *a, const struct random_question *q,
                              const struct cluster *c, struct profile *out);

#endif
