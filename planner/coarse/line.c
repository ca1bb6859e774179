/* planner/coarse/line.c - layers of a pipeline's stages, their recomputation, and its time. */
#include "planner/coarse/line.h"

#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/schedule/refine.h"
#include "planner/spmd_stage/spmd_stage.h"

#include <string.h>

enum { PACE_GRAIN = 256 }; /* the pace is found to this part of it, a quarter of a layer of 64 */

const struct coarse_degree *coarse_line_degree(const struct coarse_line *l, int32_t i)
{
    return &l->q->classes[l->stage[i].of].degree[l->stage[i].degree];
}

const struct stage_cost *coarse_line_cost(const struct coarse_line *l, int32_t i, int32_t first,
                                          int32_t last)
{
    return space_stage_type(l->s, coarse_line_degree(l, i)->type, first, last);
}

/* Activations of the stage's layers from `from` to `to`, as far as it has them. */
static int64_t activations(const struct coarse_line *l, int32_t i, int32_t first, int32_t last,
                           int32_t from, int32_t to)
{
    if (from < first) from = first;
    if (to > last) to = last;
    return from <= to ? coarse_line_cost(l, i, from, to)->activation_bytes : 0;
}

/* Bytes kept for a microbatch in flight if each block recomputes from its input: layers outside the blocks keep their activations. -1: no
 * blocks. */
static int64_t block_inputs(const struct coarse_line *l, int32_t i, int32_t first, int32_t last,
                            int64_t *largest)
{
    const struct layer_classes *c = l->s->classes;
    if (!c->n_repeats) return -1;
    int32_t period = c->repeats[0].period, from = c->repeats[0].first,
            end = from + period * c->repeats[0].copies;
    const struct stage_cost *block = coarse_line_cost(l, i, from, from + period - 1);
    *largest = block->activation_bytes;
    return block->input_bytes * ((last - first) / period + 1) +
           activations(l, i, first, last, 0, from - 1) +
           activations(l, i, first, last, end, l->s->n_layers - 1);
}

/* Bytes for the context and the communicators of a GPU: with its group, the neighbours' groups and the other replicas. */
static int64_t reserve_of(const struct coarse_line *l, int32_t i)
{
    int32_t n = coarse_line_degree(l, i)->n, before = i ? coarse_line_degree(l, i - 1)->n : 0,
            behind = i + 1 < l->n ? coarse_line_degree(l, i + 1)->n : 0;
    int32_t communicators =
        (n > 1) + (l->replicas > 1) + spmd_stage_beside(n, before) + spmd_stage_beside(n, behind);
    const struct cluster *c = l->s->cluster;
    if (l->s->job->model.measured) return 0; /* communicators are part of what was measured */
    return spmd_stage_reserve(&c->types[coarse_line_degree(l, i)->type], communicators, c->emulated);
}

/* What a stage's time and memory depend on beside its layers. */
struct fitted {
    int64_t ns;
    enum recompute recompute;
    int32_t recompute_blocks;
    int64_t bucket_bytes;
    int64_t missing; /* bytes with the most recomputation, if none fits */
};

/* As many of the stage's blocks as free the bytes of a microbatch, if all free `most`. */
static void recompute_some(const struct coarse_line *l, int32_t i, int32_t first, int32_t last, int64_t bytes,
                           int64_t most, struct fitted *out)
{
    int64_t all = layer_classes_blocks(l->s->classes, first, last),
            some = units_min(all, (bytes * all + most - 1) / units_max(1, most));
    out->recompute = RECOMPUTE_BLOCKS;
    out->recompute_blocks = some < all ? (int32_t)some : 0;
    int64_t again = coarse_line_cost(l, i, first, last)->recompute_ns;
    out->ns += some < all ? again * some / all : again;
}

static int64_t work_ns(const struct stage_cost *c)
{
    return c->forward_ns + c->input_ns + c->weight_ns;
}

/* Microbatches whose activations a GPU holds. apart: weight gradients follow the whole backward, and read what it recomputed. */
struct flight {
    int64_t n;
    bool apart;
};

/* The least recomputation with which the microbatches in flight take at most `room` bytes; false: none. A backward recomputes block after
 * block in the memory of one; if weight gradients are apart, all its blocks stay until these are computed. */
static bool least_recompute(const struct coarse_line *l, const struct stage_cost *c, int32_t i,
                            int32_t first, int32_t last, struct flight f, int64_t room,
                            struct fitted *out)
{
    int64_t largest = 0;
    out->recompute = RECOMPUTE_NONE, out->recompute_blocks = 0;
    out->ns = work_ns(c);
    if (!l->recompute && f.n * c->activation_bytes <= room) return true;
    int64_t kept = block_inputs(l, i, first, last, &largest), most = c->activation_bytes - kept;
    int64_t blocks = l->recompute != RECOMPUTE_STAGE && kept >= 0
                         ? f.n * kept + (f.apart ? most : largest)
                         : INT64_MAX,
            stage = (f.n + 1) * c->input_bytes + c->activation_bytes;
    if (blocks <= room) {
        int64_t lacks = f.n * c->activation_bytes + (f.apart ? 0 : largest) - room,
                each = lacks / units_max(1, f.n - f.apart) + 1;
        recompute_some(l, i, first, last, l->recompute ? most : each, most, out);
        return true;
    }
    out->ns += c->recompute_ns;
    out->recompute = RECOMPUTE_STAGE;
    out->missing = units_min(blocks, stage) - room;
    return stage <= room;
}

/* Gradients as they are sent, and what of them is in flight; as many of the bytes are needed at a time as a bucket has. */
static int64_t packed_bytes(const struct coarse_line *l, int32_t i, const struct stage_cost *c)
{
    int64_t holders = l->replicas * units_max(1, coarse_line_degree(l, i)->copies);
    bool joins = holders > 1 || (l->q->n_classes > 1 && !l->alone);
    if (!joins || !dtype_is_half(l->s->graph->dtype)) return 0;
    int64_t wire = coarse_line_wire_bytes(l, c);
    return wire + wire / units_max(2, holders);
}

int64_t coarse_line_state_bytes(const struct coarse_line *l, int32_t i, int32_t first, int32_t last)
{
    const struct stage_cost *c = coarse_line_cost(l, i, first, last);
    int32_t n = l->shards ? l->shards : l->replicas;
    return l->gathered_bytes + (l->zero >= 3 ? c->parameter_bytes / n : c->parameter_bytes) +
           (l->zero >= 2 ? c->gradient_bytes / n : c->gradient_bytes) +
           (l->zero >= 1 ? group_zero_bytes(l->s, coarse_line_degree(l, i)->type, first, last, n) : c->state_bytes);
}

/* Time of stage i for these layers and microbatches in flight with the least recomputation that fits, in buckets only if it does not fit
 * without; false: none fits. */
static bool stage_time_of(const struct coarse_line *l, int32_t i, int32_t first, int32_t last,
                          struct flight f, struct fitted *out)
{
    const struct stage_cost *c = coarse_line_cost(l, i, first, last);
    int64_t memory = l->s->cluster->types[coarse_line_degree(l, i)->type].memory_bytes;
    int64_t room = memory - memory / 100 * l->q->spare_percent - reserve_of(l, i) -
                   coarse_line_state_bytes(l, i, first, last) - c->scratch_bytes -
                   4 * c->input_bytes;
    int64_t packed = packed_bytes(l, i, c);
    *out = (struct fitted){.bucket_bytes = 0};
    if (least_recompute(l, c, i, first, last, f, room - packed, out) &&
        out->recompute == RECOMPUTE_NONE)
        return true;
    int64_t parts = refine_bucket_parts[REFINE_EIGHTHS];
    out->bucket_bytes = packed ? c->gradient_bytes / parts : 0;
    return least_recompute(l, c, i, first, last, f, room - packed / parts, out);
}

/* With the microbatches in flight of 1F1B or of eager 1F1B, and one more where weight gradients are apart: its output gradients are kept.
 * Interleaved chunks have 2 · (n - i - 1) + (chunks - 1) · n + 1 of a chunk (Narayanan et al. 2021). */
static bool stage_time(const struct coarse_line *l, int32_t i, int32_t first, int32_t last,
                       struct fitted *out)
{
    int32_t v = l->chunks, in_flight = l->eager ? 2 * (l->n - i) - 1 : l->n - i + l->split;
    if (v > 1) in_flight = (2 * (l->n - i - 1) + (v - 1) * l->n + v) / v;
    if (l->in_flight) in_flight = l->in_flight;
    return stage_time_of(l, i, first, last, (struct flight){in_flight, l->split}, out);
}

int64_t coarse_line_missing(struct coarse_line *l, int32_t i)
{
    struct fitted t;
    bool fits = stage_time(l, i, l->stage[i].first, l->stage[i].last, &t);
    l->stage[i].recompute = t.recompute;
    return fits ? 0 : t.missing;
}

static int64_t busy_beside(const struct coarse_line *l, int32_t i, int32_t first, int32_t last)
{
    return coarse_line_busy_ns(l, i - 1, first - 1) + coarse_line_busy_ns(l, i, last);
}

/* Of a stage within a pace: what it depends on beside its layers, and its time with the messages that keep its GPUs from computing. */
struct paced {
    struct fitted fitted;
    int64_t ns;
};

/* *out is set if the stage keeps the pace. */
static bool keeps_pace(const struct coarse_line *l, int32_t i, int32_t first, int32_t last,
                       int64_t pace_ns, struct paced *out)
{
    struct paced x;
    if (work_ns(coarse_line_cost(l, i, first, last)) > pace_ns) return false; /* for most, without their memory */
    if (!stage_time(l, i, first, last, &x.fitted)) return false;
    x.ns = x.fitted.ns + busy_beside(l, i, first, last);
    if (x.ns > pace_ns) return false;
    *out = x;
    return true;
}

/* As coarse_line_longest, from layer `least` on. likely: its length, if it is as the one behind it; 0: unknown. *out: of the stage, if there
 * is one. */
static int32_t longest(const struct coarse_line *l, int32_t i, int32_t least, int32_t end,
                       int32_t likely, int64_t pace_ns, struct paced *out)
{
    int32_t low = least, high = end, guess = end - likely;
    if (likely > 0 && guess >= low) {
        if (!keeps_pace(l, i, guess, end - 1, pace_ns, out))
            low = guess + 1;
        else if (guess == low || !keeps_pace(l, i, guess - 1, end - 1, pace_ns, out))
            return guess;
        else
            high = guess - 1;
    }
    while (low < high) {
        int32_t first = low + (high - low) / 2;
        if (keeps_pace(l, i, first, end - 1, pace_ns, out))
            high = first;
        else
            low = first + 1;
    }
    return low;
}

int32_t coarse_line_longest(const struct coarse_line *l, int32_t i, int32_t end, int64_t pace_ns)
{
    struct paced ignored;
    return longest(l, i, 0, end, 0, pace_ns, &ignored);
}

/* Longest stages within the pace, from the last one backwards; *slowest_ns: of them. false: layers are left. */
static bool fill_back(struct coarse_line *l, int64_t pace_ns, int64_t *slowest_ns)
{
    int32_t end = l->s->n_layers, likely = 0;
    *slowest_ns = 0;
    for (int32_t i = l->n - 1; i >= 0; i--) {
        struct paced x;
        struct coarse_stage *y = &l->stage[i];
        int32_t first = longest(l, i, i, end, likely, pace_ns, &x);
        l->laid++;
        if (first >= end || (i == 0 && first > 0)) return false;
        y->recompute = x.fitted.recompute, y->recompute_blocks = x.fitted.recompute_blocks;
        y->bucket_bytes = x.fitted.bucket_bytes, y->first = first, y->last = end - 1;
        *slowest_ns = units_max(*slowest_ns, x.ns);
        likely = end - first, end = first;
    }
    return end == 0;
}

bool coarse_line_balance(struct coarse_line *l)
{
    double rate = 0; /* models a nanosecond, if work could be divided at will */
    if (l->n > l->s->n_layers) return false;
    for (int32_t i = 0; i < l->n; i++) {
        const struct stage_cost *c = coarse_line_cost(l, i, 0, l->s->n_layers - 1);
        rate += 1 / (double)(work_ns(c) + 1);
    }
    int64_t low = (int64_t)(1 / rate), high = l->most_ns ? l->most_ns : INT64_MAX;
    if (low >= high || !fill_back(l, high, &high)) return false;
    struct coarse_stage best[COARSE_LINE];
    memcpy(best, l->stage, (size_t)l->n * sizeof *best);
    while (high - low > low / PACE_GRAIN) {
        int64_t middle = low + (high - low) / 2, slowest;
        if (fill_back(l, middle, &slowest)) {
            high = slowest;
            memcpy(best, l->stage, (size_t)l->n * sizeof *best);
        } else {
            low = middle + 1;
        }
    }
    memcpy(l->stage, best, (size_t)l->n * sizeof *best);
    return true;
}

/* --- estimates --- */

/* The pace that messages and dependencies allow with `each` more forwards before the first backward than at the next stage: a microbatch
 * passes stages i … j forwards and backwards while each · (j - i) + 1 of them are in flight between them, so the pace is at least the
 * maximum mean of these cycles (max-plus algebra; Baccelli et al. 1992). O(stages²), O(stages) where messages are short. */
static int64_t cycle_ns(const struct coarse_passage *x, int32_t n, int32_t each, int64_t pace_ns)
{
    int64_t least = pace_ns;
    bool hidden = true;
    for (int32_t i = 0; i + 1 < n; i++)
        hidden &= x[i].chain_ns + x[i].after_ns + x[i].back_ns <= each * pace_ns;
    for (int32_t i = 0; i < n && !hidden; i++) {
        int64_t sum = x[i].chain_ns;
        for (int32_t j = i + 1; j < n; j++) {
            sum += x[j - 1].after_ns + x[j - 1].back_ns + x[j].chain_ns;
            least = units_max(least, sum / (each * (j - i) + 1));
        }
    }
    return least;
}

/* Whether `each` times as many microbatches in flight as with 1F1B fit without more recomputation if weight gradients are apart. The stages
 * receive the buckets with which they fit. */
static bool make_room(struct coarse_line *l, int32_t each)
{
    int64_t bucket[COARSE_LINE];
    for (int32_t i = 0; i < l->n; i++) {
        struct fitted t;
        struct flight f = {each * (l->n - 1 - i) + 2, true};
        if (!stage_time_of(l, i, l->stage[i].first, l->stage[i].last, f, &t) ||
            t.recompute != l->stage[i].recompute || t.recompute_blocks != l->stage[i].recompute_blocks)
            return false;
        bucket[i] = t.bucket_bytes;
    }
    for (int32_t i = 0; i < l->n; i++) l->stage[i].bucket_bytes = bucket[i];
    return true;
}

/* The pace with so many microbatches in flight beyond 1F1B's: that of the messages, or the mean with the slowest stage's, because orders of the
 * stages' F, I and W come to lie between them (planner/schedule/plan.h). Measured layers have no such orders. */
static int64_t pace_of(const struct coarse_line *l, const struct coarse_passage *met, int32_t each, int64_t slowest)
{
    int64_t cycle = cycle_ns(met, l->n, each, slowest);
    return l->s->job->model.measured ? cycle : (slowest + cycle) / 2;
}

/* Sets the pace from the slowest stage's to that of the messages, which are hidden as far as memory allows. */
static void set_pace(struct coarse_line *l, struct coarse_passage *x, struct coarse_template *out)
{
    int64_t slowest = out->pace_ns;
    struct coarse_passage met[COARSE_LINE];
    if (l->in_flight) return; /* messages are hidden */
    if (l->textbook) {
        int64_t longest = 0; /* interleaved chunks wait for one message of theirs each way */
        for (int32_t i = 0; i < l->n && l->chunks > 1; i++)
            longest = units_max(longest, x[i].after_ns + x[i].back_ns);
        out->pace_ns = l->chunks > 1 ? slowest + l->chunks * longest : cycle_ns(x, l->n, 1, slowest);
        return;
    }
    out->schedule = l->eager                      ? COARSE_EAGER
                    : l->split || make_room(l, 1) ? COARSE_1F1B_SPLIT
                                                  : COARSE_1F1B;
    for (int32_t i = 0; i < l->n && out->schedule == COARSE_1F1B_SPLIT; i++) {
        const struct coarse_stage *y = &l->stage[i];
        x[i].chain_ns -= coarse_line_cost(l, i, y->first, y->last)->weight_ns;
    }
    memcpy(met, x, (size_t)l->n * sizeof *x);
    for (int32_t i = 0; i + 1 < l->n && !l->s->job->model.measured; i++) {
        met[i].after_ns = coarse_line_meeting_ns(l, i, false, x[i].after_ns);
        met[i].back_ns = coarse_line_meeting_ns(l, i, true, x[i].back_ns);
    }
    out->pace_ns = pace_of(l, met, l->eager ? 2 : 1, slowest);
    if (out->pace_ns == slowest || l->eager || !make_room(l, 2)) return;
    out->schedule = COARSE_EAGER_SPLIT;
    out->pace_ns = pace_of(l, met, 2, slowest);
}

/* The first microbatch down and up, and the weight gradients of the first stage. */
static int64_t fill_ns(const struct coarse_line *l, const struct coarse_passage *x,
                       enum coarse_schedule schedule)
{
    const struct coarse_stage *y = &l->stage[0];
    bool undivided = schedule == COARSE_1F1B || schedule == COARSE_EAGER;
    int64_t sum = undivided ? 0 : coarse_line_cost(l, 0, y->first, y->last)->weight_ns, slowest = 0;
    for (int32_t i = 0; i < l->n; i++) {
        sum += x[i].chain_ns + x[i].after_ns + x[i].back_ns;
        slowest = units_max(slowest, x[i].chain_ns);
    }
    return l->chunks > 1 ? slowest + (sum - slowest) / l->chunks : sum;
}

void coarse_line_measure(struct coarse_line *l, struct coarse_template *out)
{
    int64_t lead = 0, chunks = l->chunks > 1 ? l->chunks : 1;
    struct coarse_passage passage[COARSE_LINE], none = {0}, before = none;
    *out = (struct coarse_template){.replicas = l->replicas,
                                    .zero = l->zero,
                                    .by_stage = l->by_stage,
                                    .n_stages = l->n,
                                    .stages = l->stage,
                                    .pace_ns = 1};
    for (int32_t i = 0; i < l->n; i++) {
        struct coarse_stage *x = &l->stage[i];
        struct coarse_passage *y = &passage[i];
        struct fitted fitted;
        stage_time(l, i, x->first, x->last, &fitted);
        const struct stage_cost *c = coarse_line_cost(l, i, x->first, x->last);
        *y = none;
        y->chain_ns = fitted.ns;
        if (i + 1 < l->n) {
            y->after_ns = coarse_line_transfer_ns(l, i, x->last, false);
            y->back_ns = coarse_line_transfer_ns(l, i, x->last, true);
        }
        coarse_line_set_rings(l, i);
        x->update_ns = c->update_ns;
        /* its own gradients are complete one after the other */
        x->lead_ns = lead + (fitted.ns - c->forward_ns) / 2;
        lead += c->input_ns + y->back_ns;
        int64_t links = coarse_line_links_ns(l, i, &before, y);
        int64_t work = fitted.ns + chunks * busy_beside(l, i, x->first, x->last);
        out->pace_ns = units_max(out->pace_ns, units_max(work, chunks * links));
        before = *y;
    }
    if (!l->s->job->model.measured) set_pace(l, passage, out);
    out->fill_ns = fill_ns(l, passage, out->schedule);
}
