/* planner/coarse/internal.h - classes, templates and candidates, shared by the files of the folder. */
#ifndef PLANNER_COARSE_INTERNAL_H
#define PLANNER_COARSE_INTERNAL_H

#include "planner/candidate/plan_set.h"
#include "planner/candidate/space.h"
#include "planner/coarse/coarse.h"
#include "planner/spmd_stage/group_rules.h"
#include "planner/topology/device_graph.h"

enum {
    COARSE_CLASSES = 8,  /* more classes: those of the fewest GPUs are left to other searches */
    COARSE_GPUS = 128,   /* of a stage */
    COARSE_DEGREES = 32, /* 1, 2, 4 … COARSE_GPUS, of each kind of rules */
    COARSE_STAGES = 64,  /* of a template */
    COARSE_LINE = 256,   /* of a preset's pipeline */
    COARSE_REPLICAS = 256, /* numbers of replicas tried for a team */
    COARSE_TEAM = 3, /* classes of a team (one of all classes is tried in any case), and teams of a candidate */
    COARSE_KEPT = 64,     /* candidates by estimate */
    COARSE_EACH = 8,      /* of them of one division into teams */
    COARSE_ALIKE = 3, /* templates of a team, and candidates of a division, with one number of replicas */
    COARSE_FAR = 160, /* percent of the best estimate, also of the best trial: candidates above are not tried */
    COARSE_OFFERS = 11,   /* 1, 2, 4 … 128 GPUs, any of them, and any of divided nodes */
    COARSE_TEMPLATE_LISTS = 4 /* of a team: ZeRO 0 and 1, replicas side by side or stage by stage */
};

struct coarse_degree {
    int32_t n, type;       /* GPUs of a stage, and the type that prices them in every space */
    enum group_rules kind; /* all stages of a template on several GPUs have rules of one kind */
    bool usable;           /* at the current size */
    int32_t copies;        /* GPUs of a stage that hold one parameter, rounded */
    const struct sharding *sharding; /* NULL: one GPU, or not yet solved */
};
struct coarse_class {
    int32_t type, per_node, n;
    int32_t *device; /* (n) node by node, nodes in the order of the device graph */
    int32_t n_degrees;
    struct coarse_degree degree[COARSE_DEGREES];
    double speed; /* whole models a second on one GPU, to order classes */
};
/* Schedules of templates, as numbered by refine_schedule. Weight gradients apart shorten the fill and hide messages; eager 1F1B hides longer
 * ones. COARSE_EAGER: by warm-up counts, with the backward undivided, where memory is short. */
enum coarse_schedule { COARSE_1F1B = 0, COARSE_1F1B_SPLIT = 1, COARSE_EAGER_SPLIT = 4, COARSE_EAGER };

struct coarse_stage {
    int32_t of, degree; /* class, and index of its degree */
    int32_t first, last;
    enum recompute recompute;
    int32_t recompute_blocks; /* as in struct plan_stage */
    int64_t bucket_bytes; /* of its gradient all-reduce where a single bucket does not fit in memory; else 0 */
    /* Gradient all-reduce in the limit of many replicas; its earliest start before the end of the last backward; optimizer update. */
    int64_t reduce_ns, lead_ns, update_ns;
    int64_t step_ns; /* latency of a step of the ring */
    int32_t sums;        /* all-reduces of its gradients on a GPU, one after the other */
    int32_t copies;      /* GPUs of the stage that hold the same parameters */
    int32_t rings, ring_gpus; /* rings of a replica's stages of this class; GPUs from the first of one to the first of the next */
    double ring_bytes; /* from the stage to another node in its gradient all-reduce, in the limit of many replicas */
};
/* A team: `replicas` equal pipelines. A replica takes fill + (m - 1) · pace + tail for m microbatches; the tail depends on the
 * replicas of all teams (coarse_tail_ns). */
struct coarse_template {
    uint32_t classes; /* set, by bit */
    bool idle;        /* a part of a class is left idle */
    bool by_stage;    /* the same stage of all replicas is on neighbouring GPUs, else all stages of a replica */
    enum coarse_schedule schedule; /* of its pace; it fits in memory */
    int32_t replicas, zero, n_stages;
    struct coarse_stage *stages;
    int64_t pace_ns, fill_ns;
    int64_t tail_ns; /* at least, beside any other teams */
};
/* A required rate: so many microbatches within `ns` after the first of a replica. ns <= 0: none. */
struct coarse_need {
    int64_t ns;
    double microbatches;
};
struct coarse_candidate {
    int32_t size, n_teams;
    bool apart; /* of measured layers with ZeRO */
    const struct coarse_template *team[COARSE_CLASSES];
    int32_t share[COARSE_CLASSES]; /* microbatches of all replicas of the team */
    int64_t estimate_ns;
};

/* The candidates whose stages all have n GPUs, or any of the offered numbers (0). Each list is kept and tried by itself, because the
 * estimates of different numbers have different errors: what a search with a narrower offer tries is tried with a wider one too. */
struct coarse_offer {
    int32_t n;
    struct coarse *of; /* whose classes the candidates have: the search's own, or divided nodes */
    bool ended; /* a microbatch size brought no better estimate, so larger ones are left out */
    int32_t n_kept;
    struct coarse_candidate kept[COARSE_KEPT]; /* by estimate */
};

struct coarse {
    struct search_context *t;
    const struct search_task *task;
    struct arena *arena, *templates; /* templates: those of the current size and offer */
    struct cluster priced; /* the task's, with one more type for each class and degree */
    struct cost *cost;
    struct device_graph *graph;
    const struct device_route *crossing[COARSE_CLASSES][COARSE_CLASSES]; /* between GPUs of two classes; NULL: none */
    int32_t n_classes;
    struct coarse_class classes[COARSE_CLASSES];
    int32_t size, n_tried; /* the current one; the first ones that were tried */
    struct space *spaces;  /* (n_sizes) */
    struct coarse_class **at_size; /* (n_sizes) the classes with the degrees of a size; NULL: not priced */
    struct coarse *whole;          /* of a part of the cluster: whose prices these are; NULL: own ones */
    int32_t of_whole[COARSE_CLASSES]; /* class of the whole search, or of the undivided nodes */
    int64_t most_ns;       /* of an estimate: candidates that take longer are of no use; 0: no limit */
    int64_t stages_laid, sets_made; /* work of the estimates: stages of the lines that were balanced; sets of teams */
    int64_t trial_ns;      /* counted work of a trial */
    bool all_replicas;     /* trials leave none out: a sample of them took another time */
    int32_t spare_percent; /* of every memory, left for bytes known only to lowering; less than 0 where nothing fits otherwise, because bytes are
                              estimated and lowering repairs plans */
    struct trial *trials;  /* (n_listed) the candidates' plans; the first n_trials were tried, by this work; NULL: not listed */
    int32_t n_listed, n_trials;
    int64_t trials_work_ns;
    struct plan_set ordered; /* plans whose orders were searched */
    struct plan_set simulated; /* times of plans simulated whole */
    int32_t n_offers;
    struct coarse_offer offers[COARSE_OFFERS], *offer; /* the current one */
    bool parameters_only; /* as in coarse_new */
    bool divided;         /* as by coarse_divided */
};

/* Two parts of a node whose number of GPUs is no power of two: 4 + 3 of 7, 4 + 1 of 5; or, where it is odd, its halves: 3 + 2 of 5. */
enum coarse_halving { COARSE_BY_POWER, COARSE_BY_HALF, COARSE_HALVINGS };

/* Groups of n GPUs that the class has, each on one node. */
int32_t coarse_class_groups(const struct coarse_class *k, int32_t n);
/* Classes of the cluster, with degrees but without rules. */
MUST_CHECK enum status coarse_classes(struct coarse *q, struct error *err);
/* The space of a size, with the prices of all degrees; degrees without rules are dropped. */
MUST_CHECK enum status coarse_space(struct coarse *q, int32_t size, struct error *err);
/* The space of a size, made on first use; groups: with the prices of all degrees, else those of single GPUs. */
MUST_CHECK enum status coarse_priced(struct coarse *q, int32_t size, bool groups,
                                     struct space **out, struct error *err);
/* Routes between classes. */
void coarse_find_crossings(struct coarse *q);
/* Space and degrees of a size as the whole cluster's; false: it has none. */
bool coarse_take_priced(struct coarse *q, int32_t size);
/* The same GPUs, the two parts of each node being in two classes as if they were two nodes; in q's arena. NULL: no node is divided in this
 * way; measured layers and stages without sharding have no use for it. */
struct coarse *coarse_divided(struct coarse *q, enum coarse_halving how);
/* Sets its current size, with the prices and rules of q. */
void coarse_divided_take(struct coarse *divided, const struct coarse *q);
/* Templates of a team of these classes by estimate for m microbatches a replica, best first: at most `most` for each of ZeRO 0 and 1 and
 * each placement. Their stages are valid until the next coarse_combine. any_order: also of classes and degrees that change from stage to stage.
 * need: slower templates may be left out. */
int32_t coarse_templates(struct coarse *q, uint32_t classes, int32_t replicas, int32_t most,
                         bool any_order, struct coarse_need need, struct coarse_template *out);
/* The time of the rings of a stage, and of those beside it, over a route between nodes. O(hops). */
int64_t coarse_ring_ns(const struct coarse *q, const struct coarse_stage *x, const struct device_route *r);
/* The part of the gradient all-reduces of n teams, of so many replicas together, that is not behind backwards of earlier stages, and the
 * update. Rings cross the links between the teams' classes. O(n² · stages). */
int64_t coarse_tail_ns(const struct coarse *q, const struct coarse_template *const *team, int32_t n,
                       int32_t replicas);
/* Candidates of the current size and offer to its list. */
void coarse_combine(struct coarse *q);
/* Number of better kept candidates with the same division into teams. */
int32_t coarse_rank(const struct coarse_offer *o, int32_t candidate);
/* The plan of a candidate; false: the GPUs are spread over too many nodes. */
bool coarse_place(struct coarse *q, const struct coarse_candidate *c, struct arena *a,
                  struct plan *out);
/* The schedule of a template's estimate, for a replica of it that has none. */
void coarse_set_schedule(const struct coarse_template *t, struct plan_replica *r);

/* Iteration time of a plan from simulations of a part of its microbatches; *p is modified until it fits. INT64_MAX: it does not. */
MUST_CHECK enum status coarse_trial(struct coarse *q, const struct space *s, struct plan *p,
                                    int64_t *ns, struct error *err);
/* kept.c: a candidate of the offer, if it is among the best. */
void coarse_offer_keep(struct coarse_offer *q, const struct coarse_candidate *c);
/* Keeps a plan of a stopped search by the time of its sample. */
void coarse_keep_sample(struct coarse *q, const struct plan *p, int64_t ns);
/* The best of all offers to the search's incumbents, with their simulated times. */
MUST_CHECK enum status coarse_trials(struct coarse *q, struct error *err);

#endif
