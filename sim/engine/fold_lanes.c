/* A lane by itself. Its instructions are numbered through its stages and procedures; lanes of one colour have the same numbers,
 * so (colour, number) names the same channel or collective in all of them. */
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

/* Members of collectives by stage. */
struct membership {
    int32_t *first, *group, *member; /* of stage s: from first[s] to first[s + 1] */
    int32_t *of;                     /* (n_collectives) member of the stage last looked at */
};

/* A message on the compute stream is coloured by its bytes and its link's cost, not by the link. */
static uint64_t op_colour(struct folding *f, const struct program_op *op)
{
    int32_t link = op->kind == OP_message ? op->attrs.link : -1;
    if (link < 0 || link >= f->p->n_links) return op->key;
    int32_t path = fold_path(f, link, 0);
    uint64_t h = fold_mix(f->paths[path].cost, (uint64_t)op->dtype);
    return fold_mix(h, (uint64_t)shape_elements(&op->shapes.input[0]));
}

static uint64_t stage_colour(const struct program_stage *s, uint64_t h)
{
    const int64_t numbers[] = {s->microbatches,  s->n_procedures,
                               s->reserve_bytes, s->buffer_bytes, s->n_buffer_rings};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        h = fold_mix(h, (uint64_t)numbers[i]);
    for (int32_t i = 0; i < SLOT_CLASS_COUNT; i++) h = fold_mix(h, (uint64_t)s->class_bytes[i]);
    h = fold_mix(h, (uint64_t)s->offload.count);
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        h = fold_mix(fold_mix(h, (uint64_t)r->count), (uint64_t)r->stride_bytes);
        h = fold_mix(h, (uint64_t)(r->birth << 8 | r->death));
    }
    return h;
}

/* The number of the instruction that names it first, in this lane. */
static uint64_t name_channel(struct folding *f, const struct instr *in, int32_t n, int32_t *n_refs)
{
    bool sends = in->kind == INSTR_SEND;
    int32_t *at = &(sends ? f->sent_at : f->received_at)[in->arg];
    if (*at < 0) *at = n, f->refs[(*n_refs)++] = 2 * in->arg + sends;
    return (uint64_t)*at;
}

static uint64_t name_group(struct folding *f, const struct membership *m, int32_t stage,
                           int32_t group, int32_t n, int32_t *n_refs)
{
    const struct collective *g = &f->p->collectives[group];
    int32_t member = m->of[group];
    if (member >= g->n_members || g->members[member].stage != stage)
        return fold_mix(7, (uint64_t)group); /* not a member: the engine refuses it */
    int32_t *at = &f->member_at[f->first_member[group] + member];
    if (*at < 0) *at = n, f->refs[(*n_refs)++] = -1 - (f->first_member[group] + member);
    return (uint64_t)*at;
}

static uint64_t named_by_ring(const int32_t *at, int32_t channel)
{
    return channel < 0 ? 0 : (uint64_t)at[channel] + 1;
}

static uint64_t lane_colour(struct folding *f, const struct membership *m, int32_t lane,
                            int32_t *n_refs)
{
    const struct program *p = f->p;
    const struct lane *l = &p->lanes[lane];
    uint64_t h = fold_mix(fold_mix(1, (uint64_t)p->devices[lane].type_index), (uint64_t)l->order);
    if (f->scale && f->scale->device) h = fold_mix_double(h, f->scale->device[lane]);
    h = fold_mix(h, (uint64_t)l->n_stages);
    int32_t n = 0;
    for (int32_t c = 0; c < l->n_stages; c++) {
        int32_t stage = l->stages[c];
        const struct program_stage *s = &p->stages[stage];
        h = stage_colour(s, h);
        for (int32_t i = m->first[stage]; i < m->first[stage + 1]; i++)
            m->of[m->group[i]] = m->member[i];
        for (int32_t i = 0; i < s->n_procedures; i++) {
            const struct procedure *x = &s->procedures[i];
            h = fold_mix(rng_hash_text(h, x->variant), (uint64_t)x->phase);
            h = fold_mix(fold_mix(h, (uint64_t)x->period), (uint64_t)x->offset);
            for (int32_t k = 0; k < x->n_instrs; k++, n++) {
                const struct instr *in = &x->instrs[k];
                h = fold_mix(h, (uint64_t)in->kind);
                if (in->kind == INSTR_COMPUTE) h = fold_mix(h, op_colour(f, &s->ops[in->arg]));
                if (in->kind == INSTR_OFFLOAD || in->kind == INSTR_FETCH) h = fold_mix(h, (uint64_t)in->arg);
                if (fold_names_channel(in->kind)) h = fold_mix(h, name_channel(f, in, n, n_refs));
                if (fold_names_group(in->kind))
                    h = fold_mix(h, name_group(f, m, stage, in->arg, n, n_refs));
            }
        }
    }
    for (int32_t c = 0; c < l->n_stages; c++)
        for (int32_t i = 0; i < p->stages[l->stages[c]].n_buffer_rings; i++) {
            const struct buffer_ring *r = &p->stages[l->stages[c]].buffer_rings[i];
            h = fold_mix(h, named_by_ring(f->sent_at, r->sent));
            h = fold_mix(h, named_by_ring(f->received_at, r->received));
        }
    return h;
}

static struct membership find_members(const struct folding *f, struct arena *a)
{
    const struct program *p = f->p;
    size_t stages = (size_t)p->n_stages, members = (size_t)f->first_member[p->n_collectives];
    struct membership m = {ARENA_ARRAY(a, int32_t, stages + 2), ARENA_ARRAY(a, int32_t, members),
                           ARENA_ARRAY(a, int32_t, members),
                           ARENA_ARRAY(a, int32_t, (size_t)p->n_collectives)};
    for (int32_t i = 0; i < p->n_collectives; i++)
        for (int32_t k = 0; k < p->collectives[i].n_members; k++)
            m.first[p->collectives[i].members[k].stage + 2]++;
    for (size_t s = 2; s < stages + 2; s++) m.first[s] += m.first[s - 1];
    for (int32_t i = 0; i < p->n_collectives; i++)
        for (int32_t k = 0; k < p->collectives[i].n_members; k++) {
            int32_t at = m.first[p->collectives[i].members[k].stage + 1]++;
            m.group[at] = i, m.member[at] = k;
        }
    return m;
}

void fold_lanes(struct folding *f)
{
    const struct program *p = f->p;
    size_t members = (size_t)f->first_member[p->n_collectives], channels = (size_t)p->n_channels;
    int32_t *at = ARENA_ARRAY(f->scratch, int32_t, 2 * channels + members), n_refs = 0;
    memset(at, -1, (2 * channels + members) * sizeof *at);
    f->sent_at = at, f->received_at = at + channels, f->member_at = at + 2 * channels;
    f->first_ref = ARENA_ARRAY(f->scratch, int32_t, (size_t)p->n_devices + 1);
    f->refs = ARENA_ARRAY(f->scratch, int32_t, 2 * channels + members);
    struct arena *own = arena_new();
    struct membership m = find_members(f, own);
    for (int32_t i = 0; i < p->n_devices; i++) {
        f->first_ref[i] = n_refs;
        f->colour[i] = lane_colour(f, &m, i, &n_refs);
    }
    f->first_ref[p->n_devices] = n_refs;
    arena_free(own);
}
