/* core/program/io_groups.c - reads collectives: sums of gradients, and meetings inside calls. */
#include "core/base/arena.h"
#include "core/program/words.h"

static enum status read_member(struct reader *r, struct group *g, int32_t i)
{
    struct group_member *m = &g->members[i];
    int32_t back_link, back_direction;
    TRY(words_start(r, "member"));
    TRY(words_int(r, 0, INT32_MAX, &m->stage));
    TRY(words_int(r, -1, INT32_MAX, &m->apart));
    TRY(words_int(r, -1, INT32_MAX, &g->link[i]));
    TRY(words_int(r, 0, 1, &g->direction[i]));
    TRY(words_int(r, -1, INT32_MAX, &back_link));
    TRY(words_int(r, 0, 1, &back_direction));
    if (g->back_link) g->back_link[i] = back_link, g->back_direction[i] = back_direction;
    TRY(words_count(r, &m->n_segments));
    m->segments = ARENA_ARRAY(r->a, int32_t, (size_t)m->n_segments);
    TRY(words_list(r, m->n_segments, INT32_MAX, m->segments));
    bool own = false;
    if (m->apart >= 0) {
        m->apart_segments = ARENA_ARRAY(r->a, int32_t, (size_t)m->n_segments);
        TRY(words_list(r, m->n_segments, INT32_MAX, m->apart_segments));
    }
    if (group_divides(g)) TRY(words_bool(r, &own));
    if (!own) return OK;
    m->own = ARENA_ARRAY(r->a, int32_t, (size_t)m->n_segments + 1);
    return words_list(r, m->n_segments, INT32_MAX, m->own);
}

static enum status read_within(struct reader *r, const struct group *g)
{
    int32_t member, segment;
    TRY(words_start(r, "within"));
    TRY(words_int(r, 0, g->n_members - 1, &member));
    struct group_member *m = &g->members[member];
    if (!m->n_segments) return words_broken(r, "a region of a member without segments");
    TRY(words_int(r, 0, m->n_segments - 1, &segment));
    if (!m->within) m->within = ARENA_ARRAY(r->a, struct region, (size_t)m->n_segments);
    struct region *x = &m->within[segment];
    TRY(words_shape(r, &x->shape));
    TRY(words_int(r, 1, SHAPE_RANK_MAX, &x->n_dims));
    for (int32_t d = 0; d < x->n_dims; d++) {
        TRY(words_int(r, 0, SHAPE_RANK_MAX - 1, &x->dim[d].dimension));
        TRY(words_count(r, &x->dim[d].n_runs));
        size_t n = (size_t)x->dim[d].n_runs;
        int64_t *first = ARENA_ARRAY(r->a, int64_t, n), *count = ARENA_ARRAY(r->a, int64_t, n);
        for (size_t i = 0; i < n; i++) {
            TRY(words_int64(r, 0, INT64_C(1) << 40, &first[i]));
            TRY(words_int64(r, 0, INT64_C(1) << 40, &count[i]));
        }
        x->dim[d].first = first, x->dim[d].count = count;
    }
    return OK;
}

static enum status read_silent(struct reader *r, const struct group *g)
{
    int32_t member;
    TRY(words_start(r, "silent"));
    TRY(words_int(r, 0, g->n_members - 1, &member));
    g->members[member].silent = true;
    return OK;
}

static enum status read_cut(struct reader *r, const struct meeting *m, struct meeting_cut *c)
{
    TRY(words_start(r, "cut"));
    TRY(words_int(r, 0, m->whole.rank - 1, &c->dimension));
    TRY(words_int(r, 1, MEETING_RUNS_MAX, &c->n_runs));
    /* Each of them takes at least four bytes of the file. */
    if (m->n > (r->end - r->at) / 4 / c->n_runs + 1) return words_broken(r, "too few runs");
    size_t n = (size_t)m->n * (size_t)c->n_runs;
    c->first = ARENA_ARRAY(r->a, int64_t, n), c->count = ARENA_ARRAY(r->a, int64_t, n);
    for (size_t i = 0; i < n; i++) {
        TRY(words_int64(r, 0, INT64_C(1) << 40, &c->first[i]));
        TRY(words_int64(r, 0, INT64_C(1) << 40, &c->count[i]));
    }
    return OK;
}

static enum status read_meeting_member(struct reader *r, struct group *g, struct meeting *m,
                                       int32_t *tier, int32_t i)
{
    TRY(words_start(r, "member"));
    g->members[i].apart = -1;
    TRY(words_int(r, 0, INT32_MAX, &g->members[i].stage));
    TRY(words_int(r, 0, INT32_MAX, &m->in[i]));
    TRY(words_int(r, 0, INT32_MAX, &m->out[i]));
    TRY(words_int(r, -1, INT32_MAX, &g->link[i]));
    TRY(words_int(r, 0, 1, &g->direction[i]));
    if (m->way == MEETING_BY_hierarchical) TRY(words_int(r, 0, m->n - 1, &tier[i]));
    for (int32_t k = 0; m->way != MEETING_BY_ring && k < m->n; k++) {
        TRY(words_int(r, -1, INT32_MAX, &m->pair_link[i * m->n + k]));
        TRY(words_int(r, 0, 1, &m->pair_direction[i * m->n + k]));
    }
    return OK;
}

static enum status read_meeting(struct reader *r, struct group *g)
{
    static const char *const kinds[] = {
#define X(name) #name,
        MEETING_KINDS(X)};
    static const char *const ways[] = {MEETING_WAYS(X)
#undef X
    };
    struct meeting *m = ARENA_ARRAY(r->a, struct meeting, 1);
    int kind, way;
    g->meeting = m, g->each_call = true;
    TRY(words_start(r, "meeting"));
    TRY(words_name(r, &g->name));
    TRY(words_choice(r, kinds, MEETING_KIND_COUNT, &kind));
    TRY(words_choice(r, ways, MEETING_WAY_COUNT, &way));
    m->kind = (enum meeting_kind)kind, m->way = (enum meeting_way)way;
    m->from.dimension = m->to.dimension = -1;
    TRY(words_dtype(r, &g->dtype));
    TRY(words_shape(r, &m->whole));
    TRY(words_count(r, &m->n));
    if (m->way != MEETING_BY_ring && m->n > (r->end - r->at) / 4 / (m->n ? m->n : 1) + 1)
        return words_broken(r, "too few pairs");
    size_t n = (size_t)m->n;
    g->n_members = m->n;
    g->members = ARENA_ARRAY(r->a, struct group_member, n);
    g->link = ARENA_ARRAY(r->a, int32_t, n), g->direction = ARENA_ARRAY(r->a, int32_t, n);
    m->in = ARENA_ARRAY(r->a, int32_t, n), m->out = ARENA_ARRAY(r->a, int32_t, n);
    int32_t *tier = ARENA_ARRAY(r->a, int32_t, n);
    if (m->way == MEETING_BY_hierarchical) m->tier = tier;
    if (m->way != MEETING_BY_ring)
        m->pair_link = ARENA_ARRAY(r->a, int32_t, n * n),
        m->pair_direction = ARENA_ARRAY(r->a, int32_t, n * n);
    for (int32_t i = 0; i < m->n; i++) TRY(read_meeting_member(r, g, m, tier, i));
    if (meeting_has_from(m->kind)) TRY(read_cut(r, m, &m->from));
    if (meeting_has_to(m->kind)) TRY(read_cut(r, m, &m->to));
    struct error why = {0};
    if (meeting_valid(m, &why) != OK) return words_broken(r, "meeting %s: %s", g->name, why.text);
    if (m->tier) meeting_set_tiers(r->a, m);
    m->most = meeting_most(m);
    g->elements = shape_elements(&m->whole);
    return OK;
}

enum status program_read_group(struct reader *r, struct group *g)
{
    if (words_next_is(r, "meeting")) return read_meeting(r, g);
    static const char *const algorithms[] = {"ring", "chain", "local", "scatter", "gather"};
    int algorithm;
    TRY(words_start(r, "group"));
    TRY(words_name(r, &g->name));
    TRY(words_choice(r, algorithms, 5, &algorithm));
    g->algorithm = (enum group_algorithm)algorithm;
    TRY(words_dtype(r, &g->dtype));
    TRY(words_int64(r, 0, INT64_MAX, &g->elements));
    TRY(words_count(r, &g->n_members));
    size_t n = (size_t)g->n_members;
    g->members = ARENA_ARRAY(r->a, struct group_member, n);
    g->link = ARENA_ARRAY(r->a, int32_t, n), g->direction = ARENA_ARRAY(r->a, int32_t, n);
    if (algorithm == GROUP_CHAIN)
        g->back_link = ARENA_ARRAY(r->a, int32_t, n),
        g->back_direction = ARENA_ARRAY(r->a, int32_t, n);
    for (int32_t i = 0; i < g->n_members; i++) TRY(read_member(r, g, i));
    for (;;) {
        if (words_next_is(r, "silent"))
            TRY(read_silent(r, g));
        else if (words_next_is(r, "within"))
            TRY(read_within(r, g));
        else
            return OK;
    }
}
