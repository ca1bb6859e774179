#include "planner/bound/groups.h"

#include "core/base/arena.h"
#include "planner/lp.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { CUTS = 16 }; /* prices tried for a case; one that needs more is divided */
/* Accuracy of the bound, as a part of the time known; an interval of P that is shorter is not divided. */
#define SHORT 0.01

enum limit { BUSY, FILL, MEMORY, SUMS, LIMITS };
static const char *const bindings[LIMITS] = {
    [BUSY] = "work and collectives of stages of whole layers",
    [FILL] = "work, and fill of pipelines with the microbatches that fit in memory",
    [MEMORY] = "memory of stages",
    [SUMS] = "gradient all-reduces"};

/* Sums over the layers before each, of an option with or without recomputation, its copies on one node or on several. */
struct choice {
    const struct bound_group_option *option;
    bool apart, applies;                 /* applies: to the case */
    double message_ns, reduced, awaited; /* of the case: average; S and S' / g */
    double *all, *forward, *input, *back, *pass, *whole, *divided, *kept, *waiting, *near,
        *far; /* (n_layers + 1) */
    int32_t
        *first;  /* (n_layers + 1) first layer, not 0, of the longest stage that ends before each */
    bool *alone; /* (n_layers + 1) whether the layers before each may be a stage */
};
/* Plans of so many replicas whose pass is such a part of T: from, to. */
struct plans {
    double replicas[2], pass[2];
};
struct groups {
    const struct bound_groups *b;
    struct arena *arena;
    int32_t n_choices;
    struct choice *choices;
    double *hold, *cost;         /* (n_layers + 1) h; price of the layers before each */
    int32_t *by, *start, *queue; /* (n_layers + 1) last stage: choice and first layer; scratch */
    double *price, *used, *due,
        *worth; /* (n_classes + 1) π and λ; GPUs and pass of a replica; what it may have; work of a GPU */
    double T;
    const struct plans *plans; /* the case */
    double m, fewer;           /* its microbatches a replica: the largest share, the smallest */
    enum limit binding;        /* of the last case that is not refuted */
};

/* --- options ----------------------------------------------------------------------------------- */

static void find_hold(struct groups *g)
{
    const struct bound_groups *b = g->b;
    for (int32_t l = b->n_layers - 1; l >= 0; l--) {
        double least = INFINITY;
        for (int32_t o = 0; o < b->n_options; o++) {
            const struct bound_group_layer *x = &b->options[o].layers[l];
            least = fmin(least, x->pass_ns);
        }
        g->hold[l] = g->hold[l + 1] + least;
    }
}

static struct choice choice_of(struct groups *g, const struct bound_group_option *o, bool again)
{
    struct choice c = {.option = o};
    double **sums[] = {&c.all,     &c.forward, &c.input,   &c.back, &c.pass, &c.whole,
                       &c.divided, &c.kept,    &c.waiting, &c.near, &c.far};
    size_t n = (size_t)g->b->n_layers + 1;
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++)
        *sums[k] = ARENA_ARRAY(g->arena, double, n);
    c.first = ARENA_ARRAY(g->arena, int32_t, n), c.alone = ARENA_ARRAY(g->arena, bool, n);
    for (int32_t l = 0; l < g->b->n_layers; l++) {
        const struct bound_group_layer *x = &o->layers[l];
        double back = x->input_ns + x->weight_ns + (again ? x->again_ns : 0);
        double add[] = {x->forward_ns + back,
                        x->forward_ns,
                        back - x->weight_ns,
                        back,
                        x->pass_ns,
                        x->whole_bytes,
                        x->divided_bytes,
                        again ? 0 : x->kept_bytes,
                        again ? 0 : fmin(x->kept_bytes, x->waiting_bytes),
                        x->near_sum_ns,
                        x->far_sum_ns};
        for (size_t k = 0; k < sizeof sums / sizeof *sums; k++)
            (*sums[k])[l + 1] = (*sums[k])[l] + add[k];
    }
    return c;
}

/* Whether an option is as good as another one of its class in every constraint and in price. */
static bool covers(const struct bound_groups *b, const struct bound_group_option *x,
                   const struct bound_group_option *y)
{
    if (x->device_class != y->device_class || x->gpus != y->gpus || x->border_ns > y->border_ns)
        return false;
    for (int32_t l = 0; l < b->n_layers; l++) {
        const struct bound_group_layer *i = &x->layers[l], *k = &y->layers[l];
        if (i->forward_ns > k->forward_ns || i->input_ns > k->input_ns ||
            i->weight_ns > k->weight_ns || i->again_ns > k->again_ns ||
            i->whole_bytes > k->whole_bytes || i->kept_bytes > k->kept_bytes ||
            i->waiting_bytes > k->waiting_bytes || i->pass_ns > k->pass_ns)
            return false;
    }
    return true;
}

static bool is_covered(const struct bound_groups *b, int32_t o)
{
    for (int32_t k = 0; k < b->n_options; k++)
        if (k != o && covers(b, &b->options[k], &b->options[o]) &&
            (k < o || !covers(b, &b->options[o], &b->options[k])))
            return true;
    return false;
}

static void find_choices(struct groups *g)
{
    g->choices = ARENA_ARRAY(g->arena, struct choice, 4 * (size_t)g->b->n_options);
    for (int32_t o = 0; o < g->b->n_options; o++)
        for (int k = 0; k < 4 && !is_covered(g->b, o); k++) {
            g->choices[g->n_choices] = choice_of(g, &g->b->options[o], k & 1);
            g->choices[g->n_choices++].apart = k & 2;
        }
}

/* Models a GPU does in a nanosecond. */
static void find_worth(struct groups *g)
{
    for (int32_t c = 0; c < g->n_choices; c++) {
        const struct bound_group_option *o = g->choices[c].option;
        double *worth = &g->worth[o->device_class];
        *worth = fmax(*worth, 1 / (o->gpus * g->choices[c].all[g->b->n_layers]));
    }
}

/* --- the longest stages ------------------------------------------------------------------------ */

static double part(const double *sum, int32_t first, int32_t end) { return sum[end] - sum[first]; }

/* What the copies of a stage send g of their gradients takes. */
static double sum_ns(const struct choice *c, int32_t first, int32_t end)
{
    return part(c->apart ? c->far : c->near, first, end);
}

/* What stage 0, the layers before `end`, does or awaits between its last I and its next F: W, or longer sums. */
static double late_ns(const struct choice *c, int32_t end)
{
    double input = c->pass[end] - c->forward[end];
    return fmax(c->back[end] - c->input[end], c->awaited * sum_ns(c, 0, end) - input);
}

/* Times of a stage that its replica's microbatches do not fill, because they wait for other stages. */
static double idle_ns(const struct groups *g, const struct choice *c, int32_t first, int32_t end,
                      double room)
{
    double m = g->m, kept = part(c->kept, first, end), waiting = part(c->waiting, first, end);
    double input = part(c->input, first, end), forward = part(c->forward, first, end);
    double inputs = kept > 0 ? fmin(m, floor(room / kept)) : m;
    double weights = waiting > 0 ? fmin(m, floor(room / waiting)) : m;
    double waits = g->T * g->plans->pass[0] - forward - input - (first ? 0 : late_ns(c, end));
    double idle = waits - weights * (part(c->back, first, end) - input);
    if (end < g->b->n_layers) idle -= (inputs - 1) * input;
    if (!first && inputs < m) idle = fmax(0, idle) + fmax(0, waits - (inputs - 1) * forward);
    return fmax(0, idle);
}

/* The tightest constraint of a stage of layers first … end - 1; *use: of it, more than 1 if the stage breaks it. */
static enum limit tightest(const struct groups *g, const struct choice *c, int32_t first,
                           int32_t end, double *use)
{
    int ends = (first > 0) + (end < g->b->n_layers);
    double border = ends * c->option->border_ns, all = part(c->all, first, end) + border, T = g->T,
           work = g->m * all, back = part(c->back, first, end) + border;
    enum limit most = BUSY;
    *use = work / T;
    if (work > T) return BUSY;
    double state =
        part(c->whole, first, end) + part(c->divided, first, end) / g->plans->replicas[1];
    double in_flight = fmax(1, ceil(g->m * g->hold[first] / T - 1e-6));
    double room = c->option->room_bytes - state;
    double idle = room < 0 ? 0 : idle_ns(g, c, first, end, room);
    double sums = c->reduced * sum_ns(c, first, end);
    double uses[LIMITS] = {[FILL] = (work + idle) / T,
                           [MEMORY] = (state + in_flight * part(c->kept, first, end)) /
                                      c->option->room_bytes,
                           [SUMS] = (g->fewer * all - back + sums) / T};
    for (int k = FILL; k < LIMITS; k++)
        if (uses[k] > *use) most = (enum limit)k, *use = uses[k];
    return most;
}

/* What of the case holds for a choice. */
static void set_choice(struct groups *g, struct choice *c)
{
    const struct bound_group_option *o = c->option;
    double D = fmax(g->plans->replicas[0], c->apart ? 2 : 1), on_node = c->apart ? 1 : D;
    double part_of_node = fmin(1, on_node * o->node_part), members = D * o->holders;
    double near = fmin(o->copies * o->holders, members - o->holders);
    double rings = (double)o->gpus / o->holders;
    c->applies = c->apart ? D <= g->plans->replicas[1] : D <= o->copies;
    c->message_ns =
        o->near_message_ns + part_of_node * fmax(0, o->far_message_ns - o->near_message_ns);
    if (c->apart) {
        c->reduced = 2 - (near + 1) / members, c->awaited = 1 - near / members;
    } else {
        c->reduced = fmax(2 * (1 - 1 / members), o->bus ? 0.75 * (members - 1) * rings : 0);
        c->awaited = 1 - 1 / members;
    }
}

static bool fits(const struct groups *g, const struct choice *c, int32_t first, int32_t end)
{
    double use;
    tightest(g, c, first, end, &use);
    return use <= 1;
}

/* Of stages that begin with the first layer; with more layers than one that has too much work they have too much as well. */
static void find_alone(struct groups *g, struct choice *c)
{
    bool busy = false;
    for (int32_t end = 1; end <= g->b->n_layers; end++) {
        double use = 2;
        if (!busy) busy = tightest(g, c, 0, end, &use) == BUSY && use > 1;
        c->alone[end] = use <= 1;
    }
}

static void find_longest(struct groups *g)
{
    for (int32_t k = 0; k < g->n_choices; k++) {
        struct choice *c = &g->choices[k];
        int32_t first = 1;
        set_choice(g, c);
        if (!c->applies) continue;
        find_alone(g, c);
        for (int32_t end = 1; end <= g->b->n_layers; end++) {
            while (first < end && !fits(g, c, first, end)) first++;
            c->first[end] = first;
        }
    }
}

/* --- the cheapest replica ---------------------------------------------------------------------- */

/* What a stage takes of the pass. */
static double passes_ns(const struct choice *c, int32_t first, int32_t end)
{
    return part(c->pass, first, end) + 2 * c->message_ns + (first ? 0 : late_ns(c, end));
}

static void try_stage(struct groups *g, int32_t choice, int32_t first, int32_t end)
{
    const struct choice *c = &g->choices[choice];
    const struct bound_group_option *o = c->option;
    double cost = g->cost[first] + g->price[g->b->n_classes] / g->T * passes_ns(c, first, end) +
                  g->price[o->device_class] * o->gpus;
    if (cost < g->cost[end]) g->cost[end] = cost, g->by[end] = choice, g->start[end] = first;
}

/* Extends the costs by the last stages of a choice: all layers so far, or from the least cost before it in a sliding window, whose
 * beginnings are in the queue. */
static void try_choice(struct groups *g, int32_t choice, int32_t end, int32_t *ends, int32_t *queue)
{
    const struct choice *c = &g->choices[choice];
    double wait = g->price[g->b->n_classes] / g->T,
           new = g->cost[end - 1] - wait * c->pass[end - 1];
    if (c->alone[end]) try_stage(g, choice, 0, end);
    while (ends[1] > ends[0] &&
           g->cost[queue[ends[1] - 1]] - wait * c->pass[queue[ends[1] - 1]] >= new)
        ends[1]--;
    queue[ends[1]++] = end - 1;
    while (ends[0] < ends[1] && queue[ends[0]] < c->first[end]) ends[0]++;
    if (ends[0] < ends[1]) try_stage(g, choice, queue[ends[0]], end);
}

/* The least price of a replica, which is then in g->used. INFINITY: some layer has no stage. */
static double cheapest(struct groups *g)
{
    int32_t n = g->b->n_layers, *ends = g->queue + g->n_choices * n, k = g->b->n_classes;
    memset(ends, 0, 2 * (size_t)g->n_choices * sizeof *ends);
    for (int32_t end = 1; end <= n; end++) {
        g->cost[end] = INFINITY;
        for (int32_t c = 0; c < g->n_choices; c++)
            if (g->choices[c].applies) try_choice(g, c, end, &ends[2 * c], g->queue + c * n);
    }
    if (isinf(g->cost[n])) return INFINITY;
    memset(g->used, 0, ((size_t)k + 1) * sizeof *g->used);
    for (int32_t end = n; end > 0; end = g->start[end]) {
        const struct choice *c = &g->choices[g->by[end]];
        g->used[c->option->device_class] += c->option->gpus;
        g->used[k] += passes_ns(c, g->start[end], end) / g->T;
    }
    return g->cost[n];
}

/* --- refutation -------------------------------------------------------------------------------- */

/* Prices with which all that a replica may have costs 1. Column 0 is the price of the cheapest replica. At first, and nearly always in the
 * end, a GPU is worth the work that it does. */
static struct lp *prices_new(struct groups *g, const struct plans *x)
{
    int32_t n = g->b->n_classes;
    double sum = 0;
    struct lp *lp = lp_new(g->arena, LP_MAX);
    for (int32_t k = 0; k < n; k++) {
        g->due[k] = floor((double)g->b->count[k] / x->replicas[0]);
        sum += g->due[k] * g->worth[k];
    }
    lp_column(lp, 0, INFINITY, 1);
    for (int32_t k = 0; k < n; k++) {
        g->price[k] = sum > 0 ? g->worth[k] / sum : 1;
        lp_column(lp, 0, INFINITY, 0);
    }
    lp_column(lp, 0, INFINITY, 0);
    g->due[n] = x->pass[1] + g->b->far_ns / g->T, g->price[n] = 0;
    for (int32_t k = 0; k <= n; k++) lp_put(lp, k + 1, g->due[k]);
    lp_row(lp, -INFINITY, 1);
    return lp;
}

/* The best prices for all replicas seen so far. false: a mixture of these replicas has no more than it may. */
static bool reprice(struct groups *g, struct lp *lp)
{
    int32_t n = g->b->n_classes + 1;
    lp_put(lp, 0, 1);
    for (int32_t k = 0; k < n; k++) lp_put(lp, k + 1, -g->used[k]);
    lp_row(lp, -INFINITY, 0);
    enum lp_result st = lp_solve(lp, NULL);
    for (int32_t k = 0; k < n; k++)
        if (st == LP_OPTIMAL) g->price[k] = fmax(0, lp_value(lp, k + 1));
    if (st == LP_UNBOUNDED)
        for (int32_t k = 0; k + 1 < n; k++)
            if (!(g->due[k] > 0)) g->price[k] *= 4;
    return st == LP_UNBOUNDED || (st == LP_OPTIMAL && lp_objective(lp) > 1);
}

/* Whether prices prove that no plan of the case takes T. */
static bool priced_out(struct groups *g, const struct plans *x)
{
    struct lp *lp = prices_new(g, x);
    bool yes = false, more = true;
    double M = (double)g->b->microbatches;
    g->plans = x, g->m = ceil(M / x->replicas[1]), g->fewer = floor(M / x->replicas[1]);
    find_longest(g);
    for (int k = 0; k < CUTS && !yes && more; k++) {
        double due = 0, price = cheapest(g);
        for (int32_t i = 0; i <= g->b->n_classes; i++) due += g->price[i] * g->due[i];
        yes = price > due * (1 + 1e-9);
        more = !yes && reprice(g, lp);
    }
    lp_free(lp);
    return yes;
}

/* What limits the stages that cost most of the last replica. */
static enum limit binding_of(const struct groups *g)
{
    double share[LIMITS] = {0}, use;
    enum limit most = BUSY;
    for (int32_t end = g->b->n_layers; end > 0; end = g->start[end]) {
        const struct choice *c = &g->choices[g->by[end]];
        share[tightest(g, c, g->start[end], end, &use)] +=
            g->price[c->option->device_class] * c->option->gpus;
    }
    for (int k = 0; k < LIMITS; k++)
        if (share[k] > share[most]) most = (enum limit)k;
    return most;
}

/* Whether no plan of the case takes T: by prices, or each half of the case. */
static bool refuted(struct groups *g, const struct plans *x)
{
    struct plans half[2] = {*x, *x};
    if (priced_out(g, x)) return true;
    if (x->replicas[1] > x->replicas[0]) {
        half[0].replicas[1] = floor(sqrt(x->replicas[0] * x->replicas[1]));
        half[1].replicas[0] = half[0].replicas[1] + 1;
    } else {
        if (x->pass[1] - x->pass[0] < SHORT) return g->binding = binding_of(g), false;
        half[0].pass[1] = half[1].pass[0] = (x->pass[0] + x->pass[1]) / 2;
    }
    return refuted(g, &half[0]) && refuted(g, &half[1]);
}

/* Whether all parameters and gradients of so many replicas fit in all memory. */
static bool may_fit(const struct groups *g, double replicas)
{
    const struct bound_groups *b = g->b;
    double bytes = INFINITY, room = 0;
    for (int32_t c = 0; c < g->n_choices; c++)
        bytes = fmin(bytes, g->choices[c].option->gpus * g->choices[c].whole[b->n_layers]);
    for (int32_t k = 0; k < b->n_classes; k++) {
        double most = 0;
        for (int32_t o = 0; o < b->n_options; o++)
            if (b->options[o].device_class == k) most = fmax(most, b->options[o].room_bytes);
        room += (double)b->count[k] * most;
    }
    return replicas * bytes <= room;
}

static bool too_short(struct groups *g, double T, int32_t most_replicas)
{
    g->T = T;
    return refuted(g, &(struct plans){{1, most_replicas}, {0, 1}});
}

/* Replicas whose parameters and gradients fit in all memory. */
static int32_t most_replicas(const struct groups *g)
{
    int32_t most = 1;
    while (most < g->b->microbatches && may_fit(g, most + 1)) most++;
    return most;
}

static void make(struct groups *g)
{
    size_t n = (size_t)g->b->n_layers + 1, k = (size_t)g->b->n_classes + 1;
    g->hold = ARENA_ARRAY(g->arena, double, n), g->cost = ARENA_ARRAY(g->arena, double, n);
    g->by = ARENA_ARRAY(g->arena, int32_t, n), g->start = ARENA_ARRAY(g->arena, int32_t, n);
    g->price = ARENA_ARRAY(g->arena, double, k), g->used = ARENA_ARRAY(g->arena, double, k);
    g->due = ARENA_ARRAY(g->arena, double, k), g->worth = ARENA_ARRAY(g->arena, double, k);
    find_hold(g), find_choices(g), find_worth(g);
    g->queue = ARENA_ARRAY(g->arena, int32_t, (n + 1) * (size_t)g->n_choices);
}

double bound_groups_ns(const struct bound_groups *b, double most_ns, const char **binding)
{
    struct groups g = {.b = b, .arena = arena_new()};
    double low = most_ns / 4, high = most_ns, bound = most_ns;
    make(&g);
    int32_t most = most_replicas(&g);
    if (!too_short(&g, most_ns, most)) {
        bound = 0;
        while (high - low > SHORT * most_ns) {
            double middle = (low + high) / 2;
            if (too_short(&g, middle, most))
                bound = low = middle;
            else
                high = middle;
        }
        *binding = bindings[g.binding];
    }
    arena_free(g.arena);
    return bound;
}
