/* core/sharding/shard_place.c - placements, their shards on each device, and the steps from one to another.
 *
 * Both axes may shard one dimension: then axis 0 deals out the whole and axis 1 each of those shards, which is why nothing
 * may be done along axis 0 to a dimension while axis 1 splits it. The conversion between two placements takes one axis at a
 * time, what makes tensors smaller before what makes them larger, and undoes the inner split where it is in the way.
 */
#include "core/sharding/shard.h"

#include "core/base/arena.h"
#include "core/sharding/shard_internal.h"

#include <string.h>

/* --- units and elements --- */

static bool shards_along(const struct on_axis *x, int32_t dim)
{
    return x->how == PLACED_SHARDED && x->dim == dim;
}

/* Units of axis x's dimension that the device's group along x deals out, and the extents of its members. */
static int64_t group_extents(struct arena *a, const struct sharding *s, const struct placement *p,
                             int32_t x, int32_t device, int64_t **out)
{
    const struct on_axis *on = &p->axis[x];
    int64_t n = on->grain.n_units;
    if (x == 1 && shards_along(&p->axis[0], on->dim)) {
        int64_t *outer;
        group_extents(a, s, p, 0, device, &outer);
        n = outer[sharding_place(s, device, 0)];
    }
    double *ratios = ARENA_ARRAY(a, double, (size_t)s->mesh[x]);
    *out = ARENA_ARRAY(a, int64_t, (size_t)s->mesh[x]);
    sharding_axis_ratios(s, on->ratio, x, ratios);
    sharding_extents(n, ratios, s->mesh[x], *out);
    return n;
}

struct dealt { /* a group's extents along an axis; those of the next device are often the same */
    int32_t outer;    /* its place along axis 0 */
    int64_t *extents; /* NULL: none yet */
};

static void units_of(struct arena *a, const struct sharding *s, const struct placement *p,
                     int32_t x, int32_t device, struct dealt *dealt, int64_t *first, int64_t *n)
{
    int32_t place = sharding_place(s, device, x), outer = x ? sharding_place(s, device, 0) : 0;
    if (!dealt->extents || dealt->outer != outer)
        group_extents(a, s, p, x, device, &dealt->extents);
    dealt->outer = outer;
    *first = 0, *n = dealt->extents[place];
    for (int32_t k = 0; k < place; k++) *first += dealt->extents[k];
}

void shard_units(struct arena *a, const struct sharding *s, const struct placement *p, int32_t x,
                 int32_t device, int64_t *first, int64_t *n)
{
    struct dealt dealt = {0, NULL};
    units_of(a, s, p, x, device, &dealt, first, n);
}

/* Runs of units [first, first + n) of n_units. */
static void runs_of(const struct grain *g, int64_t n_units, int64_t first, int64_t n,
                    struct run *out)
{
    int64_t offset = 0;
    for (int32_t s = 0; s < g->n_sections; s++) {
        out[s] = (struct run){offset + first * g->unit[s], n * g->unit[s]};
        offset += n_units * g->unit[s];
    }
}

struct division *shard_division(struct arena *a, const struct sharding *s,
                                const struct placement *p, int32_t x, int32_t device)
{
    const struct grain *grain = &p->axis[x].grain;
    struct division *d = ARENA_ARRAY(a, struct division, 1);
    struct run *run = ARENA_ARRAY(a, struct run, (size_t)(s->mesh[x] * grain->n_sections));
    int64_t *e, n = group_extents(a, s, p, x, device, &e), first = 0;
    struct grain all = *grain;
    all.n_units = n;
    *d = (struct division){
        .n = s->mesh[x], .n_runs = grain->n_sections, .whole = grain_elements(&all), .run = run};
    for (int32_t k = 0; k < s->mesh[x]; k++) {
        runs_of(grain, n, first, e[k], run + k * grain->n_sections);
        first += e[k];
    }
    return d;
}

static struct shape local_of(struct arena *a, const struct sharding *s, const struct placement *p,
                             const struct shape *whole, int32_t device,
                             struct dealt dealt[MESH_AXES_MAX], struct tensor_shard *shard)
{
    struct shape local = *whole;
    struct tensor_shard cuts = {0};
    for (int32_t x = 0; x < s->n_axes; x++) {
        const struct on_axis *on = &p->axis[x];
        int64_t first, n, inner_first;
        if (on->how != PLACED_SHARDED) continue;
        if (x == 1 && shards_along(&p->axis[0], on->dim)) continue; /* done together with axis 0 */
        units_of(a, s, p, x, device, &dealt[x], &first, &n);
        if (x == 0 && s->n_axes > 1 && shards_along(&p->axis[1], on->dim)) {
            units_of(a, s, p, 1, device, &dealt[1], &inner_first, &n);
            first += inner_first;
        }
        struct run *run = cuts.cut[cuts.n_cuts].run;
        cuts.cut[cuts.n_cuts].dim = on->dim;
        cuts.cut[cuts.n_cuts].whole = whole->dim[on->dim];
        cuts.cut[cuts.n_cuts++].n_runs = on->grain.n_sections;
        runs_of(&on->grain, on->grain.n_units, first, n, run);
        local.dim[on->dim] = 0;
        for (int32_t r = 0; r < on->grain.n_sections; r++) local.dim[on->dim] += run[r].n;
    }
    *shard = cuts;
    return local;
}

struct shape placement_local(struct arena *a, const struct sharding *s, const struct placement *p,
                             const struct shape *whole, int32_t device, struct tensor_shard *shard)
{
    struct dealt dealt[MESH_AXES_MAX] = {{0, NULL}};
    struct tensor_shard unread;
    return local_of(a, s, p, whole, device, dealt, shard ? shard : &unread);
}

void placement_shards(struct arena *a, const struct sharding *s, const struct placement *p,
                     const struct shape *whole, struct shape *local, struct tensor_shard *shard)
{
    struct dealt dealt[MESH_AXES_MAX] = {{0, NULL}};
    for (int32_t d = 0; d < s->n_devices; d++)
        local[d] = local_of(a, s, p, whole, d, dealt, &shard[d]);
}

/* --- equality --- */

bool on_axis_said_alike(const struct on_axis *a, const struct on_axis *b)
{
    if (a->how != b->how) return false;
    return a->how != PLACED_SHARDED ||
           (a->dim == b->dim && a->ratio == b->ratio && grain_equal(&a->grain, &b->grain));
}

bool placement_said_alike(const struct placement *a, const struct placement *b)
{
    for (int32_t x = 0; x < MESH_AXES_MAX; x++)
        if (!on_axis_said_alike(&a->axis[x], &b->axis[x])) return false;
    return true;
}

/* The same runs on every device, however they are said. */
static bool same_shards(const struct sharding *s, const struct placement *a,
                       const struct placement *b, int32_t x)
{
    struct arena *scratch = arena_new();
    bool same = true;
    for (int32_t d = 0; d < s->n_devices && same; d++) {
        if (sharding_place(s, d, x)) continue; /* a group's devices share a division */
        const struct division *y = shard_division(scratch, s, a, x, d),
                              *z = shard_division(scratch, s, b, x, d);
        same = y->n_runs == z->n_runs && y->whole == z->whole;
        for (int32_t i = 0; same && i < y->n * y->n_runs; i++)
            same = y->run[i].n == z->run[i].n && y->run[i].first == z->run[i].first;
    }
    arena_free(scratch);
    return same;
}

static bool same_on(const struct sharding *s, const struct placement *a, const struct placement *b,
                    int32_t x)
{
    const struct on_axis *y = &a->axis[x], *z = &b->axis[x];
    if (on_axis_said_alike(y, z)) return true;
    if (y->how != PLACED_SHARDED || z->how != PLACED_SHARDED || y->dim != z->dim) return false;
    return grain_elements(&y->grain) == grain_elements(&z->grain) && same_shards(s, a, b, x);
}

bool placement_equal(const struct sharding *s, const struct placement *a, const struct placement *b)
{
    for (int32_t x = 0; x < s->n_axes; x++)
        if (!same_on(s, a, b, x)) return false;
    return true;
}

/* --- what a choice makes of operands --- */

enum status op_placements_of(const struct sharding *s, const struct graph *g,
                             const struct graph_op *op, const struct grain *grains,
                             const struct op_choice *choice, struct op_placements *out,
                             struct error *err)
{
    *out = (struct op_placements){0};
    for (int32_t x = 0; x < s->n_axes; x++) {
        struct op_sharding sharded;
        TRY(op_sharding_by(g, op, grains, choice->index[x], &sharded, err));
        for (int32_t k = 0; k < op->n_inputs + op->n_outputs; k++) {
            bool in = k < op->n_inputs;
            int32_t j = in ? k : k - op->n_inputs;
            const struct operand_sharding *y = in ? &sharded.input[j] : &sharded.output[j];
            struct on_axis *on = in ? &out->input[j].axis[x] : &out->output[j].axis[x];
            *on = (struct on_axis){.how = y->how};
            if (y->how == PLACED_SHARDED)
                *on = (struct on_axis){y->how, y->dim, choice->ratio[x], y->grain};
            if (in && y->gradient_partial) out->gradient_partial[j] |= (uint8_t)(1 << x);
        }
    }
    return OK;
}

/* --- conversions --- */

/* OP_KIND_COUNT where there is no such step. */
static enum op_kind step_kind(const struct on_axis *from, const struct on_axis *to)
{
    if (from->how == PLACED_OWN || to->how == PLACED_OWN || to->how == PLACED_PARTIAL)
        return OP_KIND_COUNT;
    bool sharded = to->how == PLACED_SHARDED;
    if (from->how == PLACED_REPLICATED) return sharded ? OP_local_slice : OP_KIND_COUNT;
    if (from->how == PLACED_PARTIAL) return sharded ? OP_group_reduce_scatter : OP_group_all_reduce;
    return sharded ? OP_group_all_to_all : OP_group_all_gather;
}

/* Smaller first: what shrinks a tensor before what everybody must have whole. */
static int32_t step_rank(enum op_kind kind)
{
    static const enum op_kind order[] = {OP_local_slice, OP_group_reduce_scatter, OP_group_all_to_all,
                                         OP_group_all_reduce, OP_group_all_gather};
    int32_t rank = 0;
    while (rank < 5 && order[rank] != kind) rank++;
    return rank;
}

/* Does the inner axis split a dimension that the outer one is about to change? */
static bool inner_blocks(const struct on_axis *inner, const struct on_axis *from,
                         const struct on_axis *to)
{
    if (inner->how != PLACED_SHARDED) return false;
    return shards_along(from, inner->dim) || shards_along(to, inner->dim);
}

/* The next step of two axes: which, and to what. */
static int32_t next_step(const struct sharding *s, const struct placement *now,
                         const struct placement *to, struct on_axis *target)
{
    bool outer = !on_axis_said_alike(&now->axis[0], &to->axis[0]),
         inner = s->n_axes > 1 && !same_on(s, now, to, 1);
    if (outer && s->n_axes > 1 && inner_blocks(&now->axis[1], &now->axis[0], &to->axis[0])) {
        bool conflicts = inner_blocks(&to->axis[1], &now->axis[0], &to->axis[0]);
        *target = inner && !conflicts ? to->axis[1] : (struct on_axis){.how = PLACED_REPLICATED};
        return 1;
    }
    int32_t axis = outer ? 0 : 1;
    if (outer && inner && !inner_blocks(&to->axis[1], &now->axis[0], &to->axis[0]) &&
        step_rank(step_kind(&now->axis[1], &to->axis[1])) <
            step_rank(step_kind(&now->axis[0], &to->axis[0])))
        axis = 1;
    *target = to->axis[axis];
    return axis;
}

/* An inner split counts in the units of the outer one: where that is there already, it is said as the target says it. */
static void reword(const struct sharding *s, struct placement *now, const struct placement *to)
{
    const struct on_axis *inner = &now->axis[1];
    bool counted = s->n_axes > 1 && inner->how == PLACED_SHARDED && shards_along(&now->axis[0], inner->dim);
    if (!counted && same_on(s, now, to, 0)) now->axis[0] = to->axis[0];
}

static const char *how_text(enum placing how)
{
    static const char *const text[] = {"replicated", "sharded", "partial", "local to each device"};
    return text[how];
}

enum status shard_conversions(const struct sharding *s, const struct placement *from,
                                const struct placement *to, int32_t *n,
                                struct conversion out[CONVERSIONS_MAX], struct error *err)
{
    struct placement now = *from;
    for (*n = 0;; ++*n) {
        struct on_axis target;
        if (placement_equal(s, &now, to)) return OK;
        reword(s, &now, to);
        if (*n == CONVERSIONS_MAX) BUG("no end of conversions");
        int32_t axis = next_step(s, &now, to, &target);
        struct conversion *c = &out[*n];
        *c = (struct conversion){
            .kind = step_kind(&now.axis[axis], &target), .axis = axis, .before = now, .after = now};
        if (c->kind == OP_KIND_COUNT)
            return error_set(err, ERR_INPUT, "no conversion from %s to %s",
                             how_text(now.axis[axis].how), how_text(target.how));
        c->after.axis[axis] = target;
        now = c->after;
    }
}

enum op_kind conversion_dual(enum op_kind kind, bool partial)
{
    switch (kind) {
    case OP_local_slice:
        return OP_group_all_gather;
    case OP_group_all_gather:
        return partial ? OP_group_reduce_scatter : OP_local_slice;
    case OP_group_reduce_scatter:
        return OP_group_all_gather;
    case OP_group_all_to_all:
        return OP_group_all_to_all;
    default:
        return partial ? OP_group_all_reduce : OP_KIND_COUNT;
    }
}

void conversion_elements(const struct sharding *s, const struct conversion *c,
                         const struct shape *whole, int32_t device, int64_t *before, int64_t *after)
{
    struct arena *scratch = arena_new();
    struct shape x = placement_local(scratch, s, &c->before, whole, device, NULL),
                 y = placement_local(scratch, s, &c->after, whole, device, NULL);
    *before = shape_elements(&x), *after = shape_elements(&y);
    arena_free(scratch);
}

/* --- exchanges --- */

struct exchange *shard_group(struct arena *a, const struct sharding *s, int32_t axis,
                             int32_t device)
{
    struct exchange *e = ARENA_ARRAY(a, struct exchange, 1);
    int32_t *member = ARENA_ARRAY(a, int32_t, (size_t)s->mesh[axis]);
    sharding_group(s, device, axis, member);
    *e = (struct exchange){.axis = axis,
                           .n = s->mesh[axis],
                           .self = sharding_place(s, device, axis),
                           .member = member};
    return e;
}

const struct exchange *shard_exchange(struct arena *a, const struct sharding *s,
                                      const struct conversion *c, int32_t device)
{
    struct exchange *e = shard_group(a, s, c->axis, device);
    const struct on_axis *from = &c->before.axis[c->axis], *to = &c->after.axis[c->axis];
    bool gives = from->how == PLACED_SHARDED, takes = to->how == PLACED_SHARDED;
    if (gives) e->dim = from->dim, e->shards = shard_division(a, s, &c->before, c->axis, device);
    if (!takes) return e;
    const struct division *after = shard_division(a, s, &c->after, c->axis, device);
    if (gives)
        e->to_dim = to->dim, e->to = after;
    else
        e->dim = to->dim, e->shards = after;
    return e;
}
