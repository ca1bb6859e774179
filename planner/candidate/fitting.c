#include "planner/candidate/fitting.h"

#include "core/base/arena.h"
#include "core/program/program.h"

int64_t fitting_missing(const struct program *p, int32_t device)
{
    return program_lane_bytes(p, device) - p->devices[device].memory_bytes;
}

enum measure { MEASURE_NONE, MEASURE_BLOCKS, MEASURE_RECOMPUTE, MEASURE_RECEIVE, MEASURE_WARMUP, MEASURE_END };

struct repairs { /* of one stage */
    enum measure last;
    int64_t missing, rings; /* bytes before it: missing, and of all buffer rings */
    struct plan_stage before;
};

static int64_t buffers_bytes(const struct program_stage *s)
{
    int64_t bytes = 1;
    for (int32_t i = 0; i < s->n_buffer_rings; i++) bytes += s->buffer_rings[i].stride_bytes;
    return bytes;
}

/* Microbatches between I and W: what I recomputes for W is kept for as many. 0: the backward is not divided, or no ring tells. */
static int32_t between_i_and_w(const struct program_stage *s)
{
    int32_t least = 0;
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        if (r->birth == PHASE_I && r->death == PHASE_W && (!least || r->count < least)) least = r->count;
    }
    return least;
}

/* Bytes of the buffer rings that recomputation of the whole stage frees at most: activations from F to the backward. */
static int64_t recomputable_bytes(const struct program_stage *s)
{
    int32_t delayed = between_i_and_w(s);
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        int32_t kept = r->death == PHASE_W && delayed < r->count ? delayed : 0;
        if ((r->birth == PHASE_F && r->death != PHASE_SEND) || r->birth == PHASE_HOST) bytes += r->stride_bytes * (r->count - kept);
    }
    return bytes;
}

/* Bytes that repairs of the stage free at most; INT64_MAX: unknown while they are under way. warmup: as for fewer_warmups. */
static int64_t freed_at_most(const struct repairs *f, const struct plan_stage *x, int32_t warmup,
                             const struct program_stage *s)
{
    int64_t bytes = x->recompute == RECOMPUTE_STAGE ? 0 : recomputable_bytes(s);
    if (f->last == MEASURE_END) return 0;
    if (f->last != MEASURE_NONE) return INT64_MAX;
    if (!x->order && warmup > 1) return s->class_bytes[SLOT_BUFFER_RING];
    for (int32_t i = 0; i < s->n_buffer_rings && x->receive_ahead > 1; i++)
        if (s->buffer_rings[i].birth == PHASE_RECEIVE)
            bytes += s->buffer_rings[i].stride_bytes * s->buffer_rings[i].count;
    return bytes;
}

/* Reduction of warm-ups that frees the missing bytes, if each frees one buffer of every buffer ring. now 0: the replica has a
 * schedule or orders of its own, which no warm-up may contradict. */
static bool fewer_warmups(struct plan_stage *x, int32_t now, int64_t missing, int64_t bytes)
{
    if (x->order || now <= 1) return false;
    int64_t fewer = missing / bytes > 1 ? missing / bytes : 1;
    x->warmup = fewer < now ? now - (int32_t)fewer : 1;
    return true;
}

/* As many more blocks recomputed as free the missing bytes. Each frees as many as one did in the step before; in the first step its part of
 * what all free, and one block at a time takes memory while it is recomputed. blocks: of the stage. false: all are recomputed. */
static bool more_blocks(struct plan_stage *x, const struct plan_stage *before, int64_t rings_before, int32_t blocks, int64_t missing,
                        const struct program_stage *s)
{
    bool none = x->recompute == RECOMPUTE_NONE;
    int32_t now = x->recompute_blocks, step = now - before->recompute_blocks;
    if (blocks < 2 || now >= blocks || !(none || now)) return false;
    if (none) missing += buffers_bytes(s) / blocks;
    int64_t each = step > 0 && rings_before ? (rings_before - s->class_bytes[SLOT_BUFFER_RING]) / step
                                            : recomputable_bytes(s) / (blocks - now);
    int64_t n = each > 0 ? now + (missing - 1) / each + 1 : blocks;
    x->recompute = RECOMPUTE_BLOCKS, x->recompute_blocks = n < blocks ? (int32_t)n : 0;
    return true;
}

/* Next repair of a stage that is too large; false: none is left. blocks: of the stage; s: of its fullest device. */
static bool next_measure(struct repairs *f, struct plan_stage *x, int32_t warmup, int64_t missing,
                         int32_t blocks, const struct program_stage *s)
{
    bool helped = f->last == MEASURE_NONE || missing < f->missing, blocks_first = f->last == MEASURE_BLOCKS;
    struct repairs before = *f;
    if (!helped) {
        *x = f->before;
        if (f->last == MEASURE_WARMUP) f->last = MEASURE_END;
    } else {
        f->missing = missing;
    }
    f->before = *x, f->rings = s->class_bytes[SLOT_BUFFER_RING];
    if (helped && f->last <= MEASURE_BLOCKS && more_blocks(x, &before.before, before.rings, blocks, missing, s)) {
        f->last = MEASURE_BLOCKS;
        return true;
    }
    while (f->last < MEASURE_WARMUP) {
        f->last++;
        if (f->last == MEASURE_RECOMPUTE && (!x->recompute || blocks_first)) {
            x->recompute = RECOMPUTE_STAGE, x->recompute_blocks = 0, x->offload = false;
            return true;
        }
        if (f->last == MEASURE_RECEIVE && x->receive_ahead > 1) {
            x->receive_ahead = 1;
            return true;
        }
    }
    if (f->last == MEASURE_WARMUP && fewer_warmups(x, warmup, f->missing, buffers_bytes(s))) return true;
    f->last = MEASURE_END;
    return false;
}

static int32_t warmup_of(const struct plan_replica *r, int32_t stage)
{
    if (r->schedule || r->orders) return 0;
    int32_t w = r->stages[stage].warmup ? r->stages[stage].warmup : r->n_stages - stage;
    return w < r->microbatches ? w : r->microbatches;
}

/* A stage with more warm-ups than the stage above would deadlock. */
static void follow_warmups(struct plan_replica *r)
{
    for (int32_t i = 1; i < r->n_stages; i++)
        if (!r->stages[i].order && !r->stages[i - 1].order && warmup_of(r, i) > warmup_of(r, i - 1))
            r->stages[i].warmup = warmup_of(r, i - 1);
}

/* Bytes missing on the fullest device of a plan stage, and its stage of the program, from `first` on. */
static int64_t fullest_of(const struct program *program, const struct plan_stage *x, int32_t first,
                          int32_t *fullest)
{
    int64_t most = INT64_MIN;
    for (int32_t k = first; k < first + plan_stage_devices(x); k++) {
        int64_t missing = fitting_missing(program, program->stages[k].device);
        if (missing > most) most = missing, *fullest = k;
    }
    return most;
}

/* Whether some device lacks more bytes than all repairs of its stages free. */
static bool is_hopeless(struct arena *a, const struct program *program, const struct plan *p, const struct repairs *f)
{
    int64_t *freed = ARENA_ARRAY(a, int64_t, (size_t)program->n_devices);
    int32_t at = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++, f++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            for (int32_t k = plan_stage_devices(x); k > 0; k--, at++) {
                int64_t *sum = &freed[program->stages[at].device],
                        most = freed_at_most(f, x, warmup_of(&p->replicas[r], i), &program->stages[at]);
                *sum = most < INT64_MAX - *sum ? *sum + most : INT64_MAX;
            }
        }
    for (int32_t i = 0; i < program->n_devices; i++)
        if (fitting_missing(program, i) > freed[i]) return true;
    return false;
}

static bool change_stages(const struct space *s, const struct program *program, struct plan *p,
                          struct repairs *f)
{
    bool changed = false;
    int32_t at = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++, f++) {
            struct plan_stage *x = &p->replicas[r].stages[i];
            int32_t fullest = at;
            int64_t missing = fullest_of(program, x, at, &fullest);
            at += plan_stage_devices(x);
            if (missing <= 0 || f->last == MEASURE_END) continue;
            changed |= next_measure(f, x, warmup_of(&p->replicas[r], i), missing,
                                    layer_classes_blocks(s->classes, x->first_layer, x->last_layer),
                                    &program->stages[fullest]);
        }
        follow_warmups(&p->replicas[r]);
    }
    return changed;
}

/* A move that takes layers from a stage may leave fewer blocks than are recomputed: then all are. */
void fitting_bound_blocks(const struct space *s, struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *x = &p->replicas[r].stages[i];
            if (x->recompute_blocks >= layer_classes_blocks(s->classes, x->first_layer, x->last_layer))
                x->recompute_blocks = 0;
        }
}

struct fitting {
    struct repairs *stages; /* of all replicas */
};

struct fitting *fitting_new(struct arena *a, const struct plan *p)
{
    struct fitting *f = ARENA_ARRAY(a, struct fitting, 1);
    int32_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) n += p->replicas[r].n_stages;
    f->stages = ARENA_ARRAY(a, struct repairs, (size_t)n);
    return f;
}

bool fitting_next(struct fitting *f, struct arena *a, const struct space *s, const struct program *program, struct plan *p)
{
    return !is_hopeless(a, program, p, f->stages) && change_stages(s, program, p, f->stages);
}

/* --- offloading instead of recomputation --- */

bool fitting_offers(const struct space *s)
{
    for (int32_t i = 0; i < s->cluster->n_types; i++)
        if (s->cluster->types[i].offloads_activations) return true;
    return false;
}

/* search_check_offload has found that the types have a bandwidth. */
bool fitting_may_offload(const struct space *s, const struct plan_stage *x)
{
    for (int32_t k = 0; k < plan_stage_devices(x); k++)
        if (!s->cluster->types[s->cluster->devices[plan_stage_device(x, k)].type].offloads_activations) return false;
    return !x->offload;
}

void fitting_set_offload(struct plan_stage *x)
{
    x->offload = true;
    x->recompute = RECOMPUTE_NONE, x->recompute_blocks = 0;
}

bool fitting_offload(const struct space *s, const struct plan *fitted, bool all, struct plan *out)
{
    bool any = false;
    for (int32_t r = 0; r < out->n_replicas; r++)
        for (int32_t i = 0; i < out->replicas[r].n_stages; i++) {
            struct plan_stage *x = &out->replicas[r].stages[i];
            bool recomputes = fitted->replicas[r].stages[i].recompute != RECOMPUTE_NONE;
            if (!(all || recomputes) || !fitting_may_offload(s, x)) continue;
            fitting_set_offload(x);
            any = true;
        }
    return any;
}

void fitting_take(struct plan *p, const struct plan *other)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *to = &p->replicas[r].stages[i];
            const struct plan_stage *from = &other->replicas[r].stages[i];
            to->recompute = from->recompute, to->recompute_blocks = from->recompute_blocks, to->offload = from->offload;
            to->receive_ahead = from->receive_ahead, to->warmup = from->warmup;
        }
}
