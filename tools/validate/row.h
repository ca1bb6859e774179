/* tools/validate/row.h - one row of measured plans as a plan; for tools/validate/plans.c. */
#ifndef TOOLS_VALIDATE_ROW_H
#define TOOLS_VALIDATE_ROW_H

#include "core/plan/plan.h"
#include "profiles/profile.h"

struct arena;

enum { ROW_STAGES_MAX = 256, ROW_REPLICAS_MAX = 512 };

struct row_text { /* the fields, "" where there is none (tools/validate/plans.h) */
    const char *model, *set, *nodes, *pp, *dp, *tp, *mbs, *gbs, *layers_per_stage,
        *gpu_per_stage_replica;
};

struct spot { /* one stage of one replica */
    const char *gpu;
    int32_t tp, type, node;
};

struct row_plan {
    struct arena *a;
    const struct profile *profile;
    const struct model *models;
    int32_t n_models;
    const struct model *model;
    int32_t n_stages, n_replicas;
    int64_t layers[ROW_STAGES_MAX];
    struct spot *diverse_starts;               /* (n_replicas, n_stages) */
    int32_t *device;                  /* (n_replicas, n_stages), of the cluster */
    int64_t microbatch, batch, nodes; /* nodes: 0 where the row does not say */
    struct plan plan;
    const char *note;
};

/* Fills everything of *r but a, profile, models, n_models, which are given. ERR_INPUT with the column where it has one. */
MUST_CHECK enum status row_plan_make(struct row_plan *r, const struct row_text *t, const char *name,
                                     struct error *err);

#endif
