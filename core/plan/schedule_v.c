/* core/plan/schedule_v.c - the V-shaped schedules: two chunks per device, the second one coming back.
 *
 * A microbatch goes down the devices through the first chunks and up again through the second ones, and its gradient the
 * same way back. So the last stage sits on the first device, where the first stage sits too: what waits longest for its
 * gradient shares a device with what waits least, and all devices hold equally much (Qi et al., arXiv 2405.15362).
 *
 * V-Half and V-Min repeat a *building block*: the times at which the six operations of one microbatch stand on each
 * device, in units of one operation, repeated every six units. Two operations of a device may not stand on the same unit
 * modulo six. What one block's activations live, over six, is how many chunks are alive: the steps from device to device
 * (1 1 1 1 for V-Min; 1 2 1 2 for V-Half: down, up, and back down, up) decide it. The paper gives offsets by the residue
 * of p; here each operation takes the first free unit at its step or after, which needs no cases. Then the blocks are
 * *squeezed*: F and I keep the block's order and start as soon as they can; a W takes whatever unit is left, and goes
 * before a forward that would exceed the memory which the schedule is named for.
 *
 * ZB-V is composed by hand (arXiv 2401.10241): as many forwards as fit until the first gradient comes, then F I W of the
 * two chunks in turn.
 */
#include "core/plan/schedule_internal.h"

#include "core/base/arena.h"

enum { F0, F1, I1, I0, W1, W0, PARTS };
static const enum phase part_phase[PARTS] = {'F', 'F', 'I', 'I', 'W', 'W'};
static const int8_t part_chunk[PARTS] = {0, 1, 1, 0, 1, 0};

/* --- ZB-V --- */

static void next(struct schedule_lane *l, int32_t m, int32_t count[PARTS], int part)
{
    if (count[part] < m) schedule_append(l, part_phase[part], part_chunk[part], count[part]++);
}

static void zb_v_lane(struct schedule_lane *l, int32_t p, int32_t m, int32_t d)
{
    int32_t count[PARTS] = {0};
    for (int32_t i = 0; i < 2 * (p - d) - 1; i++) next(l, m, count, F0);
    for (int32_t i = 0; i < d; i++) next(l, m, count, F1), next(l, m, count, F0);
    for (int32_t i = 0; i < p - d; i++)
        next(l, m, count, F1), next(l, m, count, I1), next(l, m, count, W1);
    while (count[F1] < m || count[F0] < m) {
        next(l, m, count, F0), next(l, m, count, I0), next(l, m, count, W0);
        next(l, m, count, F1), next(l, m, count, I1), next(l, m, count, W1);
    }
    for (int32_t i = 0; i < d; i++) next(l, m, count, I0), next(l, m, count, I1);
    for (int32_t i = 0; i < p - d; i++) next(l, m, count, I0), next(l, m, count, W0);
    while (count[W1] < m) next(l, m, count, W1);
    while (count[W0] < m) next(l, m, count, W0);
}

void schedule_order_zb_v(struct arena *a, const struct schedule_spec *spec, struct schedule *s)
{
    (void)a, (void)spec;
    for (int32_t d = 0; d < s->n_devices; d++)
        zb_v_lane(&s->lanes[d], s->n_devices, s->n_microbatches, d);
}

/* --- building blocks --- */

struct block {
    int32_t p;
    int32_t (*at)[PARTS]; /* (p) unit of each operation of microbatch 0 */
};

/* The first unit from `earliest` on that no part before this one has, modulo six. */
static int32_t put(int32_t at[PARTS], int part, int32_t earliest)
{
    int32_t t = earliest;
    for (int other = 0; other < part;)
        if ((t - at[other]) % PARTS == 0)
            t++, other = 0;
        else
            other++;
    return at[part] = t;
}

/* Two units are left for two W. Who chooses first is decided by how long both activations then live, which is returned. */
static int32_t put_weights(int32_t at[PARTS])
{
    int32_t life[2];
    for (int swapped = 1; swapped >= 0; swapped--) {
        put(at, W1, at[swapped ? I0 : I1] + 1);
        put(at, W0, at[swapped ? I1 : I0] + 1);
        life[swapped] = at[W1] + at[W0] - at[F1] - at[F0];
    }
    return life[1] < life[0] ? life[1] : life[0];
}

/* Steps down and up, and a pause before the gradient starts back; returns the longest life of a device's two chunks. */
static int32_t place_block(const struct block *b, int32_t down, int32_t up, int32_t pause)
{
    int32_t p = b->p, t = -down, life = 0;
    for (int32_t d = 0; d < p; d++) t = put(b->at[d], F0, t + down);
    t += 1 - up;
    for (int32_t d = p - 1; d >= 0; d--) t = put(b->at[d], F1, t + up);
    t += 1 + pause - down;
    for (int32_t d = 0; d < p; d++) t = put(b->at[d], I1, t + down);
    t += 1 - up;
    for (int32_t d = p - 1; d >= 0; d--) t = put(b->at[d], I0, t + up);
    for (int32_t d = 0; d < p; d++) {
        int32_t mine = put_weights(b->at[d]);
        if (mine > life) life = mine;
    }
    return life;
}

static void best_block(const struct block *b, int32_t down, int32_t up)
{
    int32_t best = 0, least = INT32_MAX;
    for (int32_t pause = 0; pause < PARTS; pause++) {
        int32_t life = place_block(b, down, up, pause);
        if (life < least) least = life, best = pause;
    }
    place_block(b, down, up, best);
}

/* --- squeezing --- */

struct squeeze_lane {
    struct schedule_op *fixed; /* (4 m) F and I in the block's order */
    int32_t n_fixed, taken, weights_due, weights_done, alive;
    struct schedule_op *due; /* (2 m) W that may run, oldest first */
};
struct squeeze {
    struct schedule *s;
    int32_t max_alive;
    struct squeeze_lane *lanes;
    int32_t *end[2]; /* F, I: (2 p, m) unit at whose start the operation is done; 0: not done */
};

/* The block's F and I in order of time: microbatch k stands 6 k units after microbatch 0. */
static void sort_fixed(struct squeeze_lane *l, const int32_t at[PARTS], int32_t m)
{
    int32_t next_of[I0 + 1] = {0};
    while (l->n_fixed < 4 * m) {
        int best = -1;
        for (int part = F0; part <= I0; part++)
            if (next_of[part] < m &&
                (best < 0 || at[part] + PARTS * next_of[part] < at[best] + PARTS * next_of[best]))
                best = part;
        l->fixed[l->n_fixed++] =
            (struct schedule_op){part_phase[best], part_chunk[best], next_of[best]++};
    }
}

static bool may_start(const struct squeeze *q, int32_t d, const struct schedule_op *o, int32_t now)
{
    int32_t p = q->s->n_devices, m = q->s->n_microbatches;
    int32_t stage = q->s->stage[2 * d + o->chunk];
    if (o->phase == PHASE_F && q->lanes[d].alive == q->max_alive) return false;
    if (o->phase == PHASE_F && stage == 0) return true;
    bool last = stage == 2 * p - 1;
    int which = o->phase == PHASE_I && !last, from = stage + (o->phase == PHASE_F ? -1
                                                              : last              ? 0
                                                                                  : 1);
    int32_t end = q->end[which][(int64_t)from * m + o->microbatch];
    return end && end <= now;
}

/* One operation of a device at this unit, if any may start. */
static bool step(struct squeeze *q, int32_t d, int32_t now)
{
    struct squeeze_lane *l = &q->lanes[d];
    const struct schedule_op *o = l->taken < l->n_fixed ? &l->fixed[l->taken] : NULL;
    if (o && may_start(q, d, o, now)) {
        int64_t place =
            (int64_t)q->s->stage[2 * d + o->chunk] * q->s->n_microbatches + o->microbatch;
        q->end[o->phase == PHASE_I][place] = now + 1;
        if (o->phase == PHASE_F) l->alive++;
        if (o->phase == PHASE_I)
            l->due[l->weights_due++] = (struct schedule_op){PHASE_W, o->chunk, o->microbatch};
        l->taken++;
    } else if (l->weights_done < l->weights_due) {
        o = &l->due[l->weights_done++];
        l->alive--;
    } else
        return false;
    schedule_append(&q->s->lanes[d], o->phase, o->chunk, o->microbatch);
    return true;
}

static void squeeze(struct arena *a, struct schedule *s, const struct block *b, int32_t max_alive)
{
    size_t p = (size_t)s->n_devices, m = (size_t)s->n_microbatches;
    struct squeeze q = {.s = s, .max_alive = max_alive};
    q.lanes = ARENA_ARRAY(a, struct squeeze_lane, p);
    for (int i = 0; i < 2; i++) q.end[i] = ARENA_ARRAY(a, int32_t, 2 * p * m);
    for (size_t d = 0; d < p; d++) {
        q.lanes[d].fixed = ARENA_ARRAY(a, struct schedule_op, 4 * m);
        q.lanes[d].due = ARENA_ARRAY(a, struct schedule_op, 2 * m);
        sort_fixed(&q.lanes[d], b->at[d], s->n_microbatches);
    }
    int64_t left = 6 * (int64_t)p * (int64_t)m;
    for (int32_t now = 0; left; now++) {
        int64_t before = left;
        for (int32_t d = 0; d < s->n_devices; d++) left -= step(&q, d, now);
        if (left == before) BUG("%s of %zu devices does not go on", s->name, p);
    }
}

/* half: the steps of V-Half and its memory (p+2)/2, else V-Min's and (p+4)/3, both of two chunks. */
static void blocks(struct arena *a, struct schedule *s, bool half)
{
    int32_t p = s->n_devices;
    struct block b = {.p = p};
    b.at = arena_alloc(a, (size_t)p, sizeof *b.at);
    best_block(&b, 1, half ? 2 : 1);
    squeeze(a, s, &b, 2 * (half ? (p + 2) / 2 : (p + 4) / 3));
}

void schedule_order_v_half(struct arena *a, const struct schedule_spec *spec, struct schedule *s)
{
    (void)spec;
    blocks(a, s, true);
}

void schedule_order_v_min(struct arena *a, const struct schedule_spec *spec, struct schedule *s)
{
    (void)spec;
    blocks(a, s, false);
}
