/* An execution whose members begin as in the one before it, up to a common shift, ends as that one did. It is only compared, not computed
 * and not copied: of sharded stages most executions are such ones, and their state leaves the caches between two of them. */
#include "sim/engine/ahead_internal.h"

bool ahead_known_repeats(const struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    int64_t first = ahead_member(e, group, 0)->begin_ns;
    bool same = r->known;
    for (int32_t i = 0; same && i < r->n; i++)
        same = ahead_member(e, group, i)->begin_ns - first == r->known_members[i].begin_ns;
    r->repeats = same && ahead_queues_known(e, group);
    if (!r->repeats) return false;
    r->repeats_ns = first, r->repeats_seen_ns = e->now_ns;
    r->steady_ns = 0;
    for (int32_t i = 0; i < r->n_queues; i++) r->free_ns[i] = first + r->known_left_ns[i];
    return true;
}

void ahead_known_keep(struct ahead *r)
{
    int64_t first = r->members[0].began_ns;
    r->known = true;
    for (int32_t i = 0; i < r->n; i++) {
        const struct ahead_member *x = &r->ahead[i];
        r->known &= x->part == r->parts;
        r->known_members[i] = (struct ahead_known){
            .begin_ns = r->members[i].began_ns - first,
            .end = {x->began_ns - first, x->seen_ns - first, x->order}};
    }
    for (int32_t i = 0; i < r->n_queues; i++) r->known_left_ns[i] = r->free_ns[i] - first;
}

void ahead_known_write(struct ahead *r)
{
    for (int32_t i = 0; r->repeats && i < r->n; i++) {
        int64_t begin_ns = r->repeats_ns + r->known_members[i].begin_ns;
        struct ahead_end x = ahead_end_of(r, i);
        r->members[i] = (struct ahead_member){
            .began_ns = begin_ns, .ends_ns = begin_ns, .seen_ns = r->repeats_seen_ns};
        r->ahead[i] = (struct ahead_member){.part = r->parts,
                                            .began_ns = x.end_ns,
                                            .ends_ns = x.end_ns,
                                            .seen_ns = x.seen_ns,
                                            .order = x.order};
    }
    r->repeats = false;
}
