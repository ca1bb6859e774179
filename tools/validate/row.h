/* tools/validate/row.h - conversion of one CSV row of measured plans to a cluster and a plan, for tools/validate/plans.c. */
#ifndef TOOLS_VALIDATE_ROW_H
#define TOOLS_VALIDATE_ROW_H

#include "core/plan/plan.h"
#include "profiles/profile.h"

struct arena;

enum { ROW_STAGES_MAX = 256, ROW_REPLICAS_MAX = 512 };

struct row_text { /* the fields (tools/validate/plans.h); "": absent */
    const char *model, *set, *nodes, *pp, *dp, *tp, *mbs, *gbs, *layers_per_stage,
        *gpu_per_stage_replica;
};

struct spot { /* one stage of one replica */
    const char *gpu;
    int32_t tp, type, node;
    int32_t *devices; /* (tp) of the cluster */
};

struct row_plan {
    struct arena *a;
    const struct profile *profile;
    const struct model *models;
    int32_t n_models;
    const struct model *model;
    int32_t n_stages, n_replicas;
    int64_t layers[ROW_STAGES_MAX];
    struct spot *spots;               /* (n_replicas, n_stages) */
    int64_t microbatch, batch, nodes; /* nodes 0: absent in the row */
    struct plan plan;
    const char *note;
};

/* Fills *r from its members a, profile, models and n_models. ERR_INPUT, with the column if one is at fault. */
MUST_CHECK enum status row_plan_make(struct row_plan *r, const struct row_text *t, const char *name,
                                     struct error *err);

#endif
