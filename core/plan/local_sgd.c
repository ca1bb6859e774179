/* core/plan/local_sgd.c - `local_sgd` of a plan file: read, checked and written. */
#include "core/base/arena.h"
#include "core/document/canonical.h"
#include "core/plan/internal.h"
#include "core/plan/keys.h"

#include <inttypes.h>
#include <string.h>

enum { EVERY_MAX = 100000 }; /* steps */
static const double ALPHA = 0.5; /* Streaming DiLoCo's, section 3.3 */
static const char *const outer_names[] = {"average", "nesterov", NULL};

int64_t plan_island_microbatches(const struct plan *p, int32_t island)
{
    int64_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (plan_island(p, r) == island) n += p->replicas[r].microbatches;
    return n;
}

static enum status read_island(const struct node *list, int32_t island, int32_t n_replicas,
                               int32_t *out, struct error *err)
{
    TRY(node_is(list, NODE_LIST, err));
    if (!list->count) return node_error(list, err, "must not be empty");
    for (size_t i = 0; i < list->count; i++) {
        int64_t replica;
        TRY(node_int(list->members[i], 0, n_replicas - 1, &replica, err));
        if (out[replica] >= 0)
            return node_error(list->members[i], err, "replica %" PRId64 " is in island %" PRId32 " already",
                              replica, out[replica]);
        out[replica] = island;
    }
    return OK;
}

static enum status read_islands(struct arena *a, const struct node *map, struct plan *p, struct error *err)
{
    struct plan_local_sgd *x = &p->local_sgd;
    const struct node *n = node_get(map, "islands");
    int32_t *island = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas);
    x->island = island, x->n_islands = p->n_replicas;
    for (int32_t r = 0; r < p->n_replicas; r++) island[r] = n ? -1 : r;
    if (!n) return OK;
    TRY(node_is(n, NODE_LIST, err));
    if (n->count > (size_t)p->n_replicas)
        return node_error(n, err, "%zu islands of %" PRId32 " replicas", n->count, p->n_replicas);
    x->n_islands = (int32_t)n->count;
    for (size_t i = 0; i < n->count; i++)
        TRY(read_island(n->members[i], (int32_t)i, p->n_replicas, island, err));
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (island[r] < 0) return node_error(n, err, "replica %" PRId32 " is in no island", r);
    return OK;
}

/* Streaming: keys of the exchanges in turns, and of their delay. */
static enum status read_streaming(const struct node *map, struct outer_optimizer *o, struct error *err)
{
    const struct node *alpha = node_get(map, "alpha");
    int64_t fragments = 1, delay = 0;
    TRY(node_get_int(map, "fragments", 1, o->every, &fragments, err));
    TRY(node_get_int(map, "delay", 0, o->every - 1, &delay, err));
    if (alpha && !delay)
        return node_error(alpha, err, "without a delay there are no steps between a sum and its use whose change could be kept");
    o->fragments = (int32_t)fragments, o->delay = (int32_t)delay;
    if (delay) o->alpha = ALPHA;
    return node_get_double(map, "alpha", 0, 0.999999, &o->alpha, err);
}

/* A number of all islands, or a list of one for each: H is the largest. */
static enum status read_every(struct arena *a, const struct node *n, struct outer_optimizer *o, struct error *err)
{
    int64_t every;
    if (n->kind != NODE_LIST) {
        TRY(node_int(n, 1, EVERY_MAX, &every, err));
        o->every = (int32_t)every;
        return OK;
    }
    int32_t *updates = ARENA_ARRAY(a, int32_t, n->count + 1);
    if (n->count > INT32_MAX) return node_error(n, err, "too long");
    for (size_t i = 0; i < n->count; i++) {
        TRY(node_int(n->members[i], 1, EVERY_MAX, &every, err));
        updates[i] = (int32_t)every;
        if (updates[i] > o->every) o->every = updates[i];
    }
    for (size_t i = 0; i < n->count; i++)
        if (o->every % updates[i])
            return node_error(n->members[i], err, "must divide the largest number, %" PRId32 ", which is the number of steps of all islands; found %" PRId32,
                              o->every, updates[i]);
    o->n_updates = (int32_t)n->count, o->updates = updates;
    return n->count ? OK : node_error(n, err, "must not be empty");
}

/* One number for each island; equal ones are those of all. */
static enum status check_updates(const struct node *n, struct plan_local_sgd *x, struct error *err)
{
    struct outer_optimizer *o = &x->outer;
    bool equal = true;
    if (o->n_updates && o->n_updates != x->n_islands)
        return node_error(n, err, "has %" PRId32 "; must be one number, or one for each of the %" PRId32 " islands", o->n_updates, x->n_islands);
    for (int32_t i = 0; i < o->n_updates; i++) equal &= o->updates[i] == o->every;
    if (equal) o->n_updates = 0;
    return OK;
}

enum status plan_read_local_sgd(struct arena *a, const struct node *root, struct plan *p,
                                struct error *err)
{
    const struct node *map = node_get(root, "local_sgd"), *n;
    struct outer_optimizer *o = &p->local_sgd.outer;
    const struct node *every;
    int kind = OUTER_AVERAGE;
    if (!map || map->kind == NODE_NULL) return OK;
    TRY(document_keys(map, plan_local_sgd_keys, err));
    TRY(node_need(map, "every", &every, err));
    TRY(read_every(a, every, o, err));
    if ((n = node_get(map, "outer"))) TRY(node_choice(n, outer_names, &kind, err));
    o->kind = (enum outer_kind)kind;
    for (int i = 0; kind == OUTER_AVERAGE && i < 2; i++)
        if ((n = node_get(map, i ? "momentum" : "lr")))
            return node_error(n, err, "outer: average has none; outer: nesterov has");
    if (kind == OUTER_NESTEROV) o->lr = 0.7, o->momentum = 0.9;
    TRY(node_get_double(map, "lr", 1e-9, 1e6, &o->lr, err));
    TRY(node_get_double(map, "momentum", 0, 0.999999, &o->momentum, err));
    TRY(read_streaming(map, o, err));
    TRY(read_islands(a, map, p, err));
    return check_updates(every, &p->local_sgd, err);
}

/* What the exchange between islands does not cover. */
enum status plan_check_local_sgd(const struct plan *p, struct error *err)
{
    struct plan_place whole = {p, -1, -1, err};
    if (!p->local_sgd.outer.every) return OK;
    if (p->local_sgd.n_islands < 2)
        return plan_complain(&whole, "local_sgd: one island; it takes two, with a replica each at least");
    if (p->deterministic)
        return plan_complain(&whole, "deterministic: promises the same bits for every plan, and with local_sgd they depend on which replicas form an island");
    if (p->job.precision == DTYPE_fp16)
        return plan_complain(&whole, "local_sgd: fp16 has a loss scale, which all replicas would have to agree on in every step; bf16 has none");
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].hybrid_shard)
                return plan_complain(&(struct plan_place){p, r, i, err},
                                     "hybrid_shard: with local_sgd zero shards over the replicas of an island; leave hybrid_shard out");
    return OK;
}

void plan_write_local_sgd(FILE *out, const struct plan *p)
{
    const struct plan_local_sgd *x = &p->local_sgd;
    if (!x->outer.every) return;
    fputs("local_sgd:\n  every: ", out);
    if (!x->outer.n_updates) fprintf(out, "%" PRId32, x->outer.every);
    for (int32_t i = 0; i < x->outer.n_updates; i++) fprintf(out, "%s%" PRId32, i ? ", " : "[", x->outer.updates[i]);
    fputs(x->outer.n_updates ? "]\n  islands: [" : "\n  islands: [", out);
    for (int32_t i = 0; i < x->n_islands; i++) {
        bool first = true;
        fputs(i ? ", [" : "[", out);
        for (int32_t r = 0; r < p->n_replicas; r++) {
            if (x->island[r] != i) continue;
            fprintf(out, "%s%" PRId32, first ? "" : ", ", r);
            first = false;
        }
        fputc(']', out);
    }
    fprintf(out, "]\n  outer: %s\n", outer_names[x->outer.kind]);
    if (x->outer.kind == OUTER_NESTEROV)
        fprintf(out, "  lr: %.17g\n  momentum: %.17g\n", x->outer.lr, x->outer.momentum);
    if (x->outer.fragments > 1) fprintf(out, "  fragments: %" PRId32 "\n", x->outer.fragments);
    if (x->outer.delay)
        fprintf(out, "  delay: %" PRId32 "\n  alpha: %.17g\n", x->outer.delay, x->outer.alpha);
}

bool plan_local_sgd_equivalent(const struct outer_optimizer *o, const struct optimizer *inner)
{
    return o->every == 1 && o->kind == OUTER_AVERAGE && inner->kind == OPTIMIZER_SGD && !optimizer_has_momentum(inner) &&
           !(inner->max_grad_norm > 0);
}

/* "16, 8 and 4 updates"; of more than eight islands "8 to 16 updates". */
static const char *updates_text(struct arena *a, const struct outer_optimizer *o)
{
    const char *text = "";
    int32_t n = o->n_updates, least = o->every;
    for (int32_t i = 0; i < n; i++) {
        if (o->updates[i] < least) least = o->updates[i];
        text = arena_printf(a, "%s%s%" PRId32, text, !i ? "" : i + 1 < n ? ", " : " and ", o->updates[i]);
    }
    return n <= 8 ? arena_join(a, text, " updates") : arena_printf(a, "%" PRId32 " to %" PRId32 " updates", least, o->every);
}

const char *plan_describe_local_sgd(struct arena *a, const struct outer_optimizer *o, int32_t n_islands)
{
    if (!o->every) return NULL;
    const char *every = o->every == 1 ? "every step" : arena_printf(a, "every %" PRId32 " steps", o->every);
    const char *outer = o->kind == OUTER_AVERAGE
                            ? "mean of their parameters"
                            : arena_printf(a, "outer SGD with Nesterov momentum, lr %g, momentum %g", o->lr, o->momentum);
    const char *turns = o->fragments > 1 ? arena_printf(a, ", in %" PRId32 " fragments in turns", o->fragments) : "";
    const char *late = !o->delay ? ""
                                 : arena_printf(a, ", applied %" PRId32 " step%s later with %g of the local parameters",
                                                o->delay, o->delay > 1 ? "s" : "", o->alpha);
    const char *numbers = o->n_updates ? arena_join(a, " after ", updates_text(a, o)) : "";
    return arena_printf(a, "%s between %" PRId32 " islands of replicas%s, %s%s%s", every, n_islands, numbers, outer, turns, late);
}
