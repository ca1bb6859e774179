/* core/program/io_collectives.c - reads collectives: of segments once a step, and of tensors inside calls. */
#include "core/base/arena.h"
#include "core/collective/rounds.h"
#include "core/program/words.h"

static enum status read_member(struct reader *r, struct collective *g, int32_t i)
{
    struct collective_member *m = &g->members[i];
    int32_t back_link, back_direction;
    TRY(words_start(r, "member"));
    TRY(words_int(r, 0, INT32_MAX, &m->stage));
    TRY(words_int(r, -1, INT32_MAX, &m->chain_ring));
    TRY(words_int(r, -1, INT32_MAX, &g->link[i]));
    TRY(words_int(r, 0, 1, &g->direction[i]));
    TRY(words_int(r, -1, INT32_MAX, &back_link));
    TRY(words_int(r, 0, 1, &back_direction));
    if (g->back_link) g->back_link[i] = back_link, g->back_direction[i] = back_direction;
    TRY(words_count(r, &m->n_segments));
    m->segments = ARENA_ARRAY(r->a, int32_t, (size_t)m->n_segments);
    TRY(words_list(r, m->n_segments, INT32_MAX, m->segments));
    bool own = false;
    if (m->chain_ring >= 0) {
        m->chain_segments = ARENA_ARRAY(r->a, int32_t, (size_t)m->n_segments);
        TRY(words_list(r, m->n_segments, INT32_MAX, m->chain_segments));
    }
    if (program_collective_divides(g)) TRY(words_bool(r, &own));
    if (!own) return OK;
    m->own = ARENA_ARRAY(r->a, int32_t, (size_t)m->n_segments + 1);
    return words_list(r, m->n_segments, INT32_MAX, m->own);
}

static enum status read_within(struct reader *r, const struct collective *g)
{
    int32_t member, segment;
    TRY(words_start(r, "within"));
    TRY(words_int(r, 0, g->n_members - 1, &member));
    struct collective_member *m = &g->members[member];
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

static enum status read_silent(struct reader *r, const struct collective *g)
{
    int32_t member;
    TRY(words_start(r, "silent"));
    TRY(words_int(r, 0, g->n_members - 1, &member));
    g->members[member].silent = true;
    return OK;
}

static enum status read_cut(struct reader *r, const struct collective *m, struct collective_cut *c)
{
    TRY(words_start(r, "cut"));
    TRY(words_int(r, 0, m->whole.rank - 1, &c->dimension));
    TRY(words_int(r, 1, COLLECTIVE_RUNS_MAX, &c->n_runs));
    /* Each of them takes at least four bytes of the file. */
    if (m->n_members > (r->end - r->at) / 4 / c->n_runs + 1) return words_broken(r, "too few runs");
    size_t n = (size_t)m->n_members * (size_t)c->n_runs;
    c->first = ARENA_ARRAY(r->a, int64_t, n), c->count = ARENA_ARRAY(r->a, int64_t, n);
    for (size_t i = 0; i < n; i++) {
        TRY(words_int64(r, 0, INT64_C(1) << 40, &c->first[i]));
        TRY(words_int64(r, 0, INT64_C(1) << 40, &c->count[i]));
    }
    return OK;
}

static enum status read_tensor_member(struct reader *r, struct collective *m, int32_t *tier,
                                      int32_t i)
{
    TRY(words_start(r, "member"));
    m->members[i].chain_ring = -1;
    TRY(words_int(r, 0, INT32_MAX, &m->members[i].stage));
    TRY(words_int(r, 0, INT32_MAX, &m->in[i]));
    TRY(words_int(r, 0, INT32_MAX, &m->out[i]));
    TRY(words_int(r, -1, INT32_MAX, &m->link[i]));
    TRY(words_int(r, 0, 1, &m->direction[i]));
    if (m->tier) TRY(words_int(r, 0, m->n_members - 1, &tier[i]));
    for (int32_t k = 0; m->pair_link && k < m->n_members; k++) {
        TRY(words_int(r, -1, INT32_MAX, &m->pair_link[i * m->n_members + k]));
        TRY(words_int(r, 0, 1, &m->pair_direction[i * m->n_members + k]));
    }
    return OK;
}

static enum status read_tensor(struct reader *r, struct collective *m)
{
    const struct collective_rounds *by = collective_rounds_of(m->algorithm);
    bool ring = m->algorithm == ALGORITHM_RING;
    if (!collective_in_calls(m->kind, m->algorithm))
        return words_broken(r, "collective %s: %s inside calls does not support algorithm %s", m->name,
                            collective_kind_word(m->kind), collective_algorithm_name(m->algorithm));
    m->each_call = true;
    m->from.dimension = m->to.dimension = -1;
    TRY(words_dtype(r, &m->dtype));
    TRY(words_shape(r, &m->whole));
    TRY(words_count(r, &m->n_members));
    if (!ring && m->n_members > (r->end - r->at) / 4 / (m->n_members ? m->n_members : 1) + 1)
        return words_broken(r, "too few pairs");
    size_t n = (size_t)m->n_members;
    m->members = ARENA_ARRAY(r->a, struct collective_member, n);
    m->link = ARENA_ARRAY(r->a, int32_t, n), m->direction = ARENA_ARRAY(r->a, int32_t, n);
    m->in = ARENA_ARRAY(r->a, int32_t, n), m->out = ARENA_ARRAY(r->a, int32_t, n);
    int32_t *tier = ARENA_ARRAY(r->a, int32_t, n);
    if (by->tiers) m->tier = tier;
    if (!ring)
        m->pair_link = ARENA_ARRAY(r->a, int32_t, n * n),
        m->pair_direction = ARENA_ARRAY(r->a, int32_t, n * n);
    for (int32_t i = 0; i < m->n_members; i++) TRY(read_tensor_member(r, m, tier, i));
    if (collective_has_from(m->kind)) TRY(read_cut(r, m, &m->from));
    if (collective_has_to(m->kind)) TRY(read_cut(r, m, &m->to));
    struct error why = {0};
    if (collective_valid(m, &why) != OK)
        return words_broken(r, "collective %s: %s", m->name, why.text);
    if (m->tier) collective_set_tiers(r->a, m);
    m->most = collective_max(m);
    m->elements = shape_elements(&m->whole);
    return OK;
}

/* Of segments in rounds: each member's tier, if the algorithm has tiers, and the links of its messages. */
static enum status read_rounds(struct reader *r, struct collective *g)
{
    struct error why = {0};
    size_t n = (size_t)g->n_members;
    bool tiers = collective_rounds_of(g->algorithm)->tiers;
    if (g->n_members > COLLECTIVE_ROUNDS_MEMBERS)
        return words_broken(r, "collective %s: more than %d members in rounds", g->name, (int)COLLECTIVE_ROUNDS_MEMBERS);
    int32_t *tier = ARENA_ARRAY(r->a, int32_t, n);
    g->pair_link = ARENA_ARRAY(r->a, int32_t, n * n), g->pair_direction = ARENA_ARRAY(r->a, int32_t, n * n);
    for (size_t i = 0; i < n * n; i++) g->pair_link[i] = -1;
    for (int32_t i = 0; i < g->n_members; i++) {
        int32_t n_links, to;
        TRY(words_start(r, "rounds"));
        if (tiers) TRY(words_int(r, 0, g->n_members - 1, &tier[i]));
        TRY(words_int(r, 0, g->n_members, &n_links));
        for (int32_t k = 0; k < n_links; k++) {
            TRY(words_int(r, 0, g->n_members - 1, &to));
            TRY(words_int(r, 0, INT32_MAX, &g->pair_link[i * g->n_members + to]));
            TRY(words_int(r, 0, 1, &g->pair_direction[i * g->n_members + to]));
        }
    }
    if (tiers) g->tier = tier;
    if (collective_rounds_valid(g, &why) != OK) return words_broken(r, "collective %s: %s", g->name, why.text);
    if (tiers) collective_set_tiers(r->a, g);
    g->most = collective_max(g);
    return OK;
}

static enum status read_segments(struct reader *r, struct collective *g)
{
    TRY(words_dtype(r, &g->dtype));
    TRY(words_int64(r, 0, INT64_MAX, &g->elements));
    TRY(words_count(r, &g->n_members));
    size_t n = (size_t)g->n_members;
    g->members = ARENA_ARRAY(r->a, struct collective_member, n);
    g->link = ARENA_ARRAY(r->a, int32_t, n), g->direction = ARENA_ARRAY(r->a, int32_t, n);
    if (g->algorithm == ALGORITHM_CHAIN)
        g->back_link = ARENA_ARRAY(r->a, int32_t, n),
        g->back_direction = ARENA_ARRAY(r->a, int32_t, n);
    for (int32_t i = 0; i < g->n_members; i++) TRY(read_member(r, g, i));
    if (program_collective_in_rounds(g)) return read_rounds(r, g);
    for (;;) {
        if (words_next_is(r, "silent"))
            TRY(read_silent(r, g));
        else if (words_next_is(r, "within"))
            TRY(read_within(r, g));
        else
            return OK;
    }
}

enum status program_read_collective(struct reader *r, struct collective *g)
{
    static const char *const when[] = {"step", "call", "repeated"};
    const char *kinds[COLLECTIVE_KIND_COUNT];
    int kind, algorithm, call;
    for (int k = 0; k < COLLECTIVE_KIND_COUNT; k++)
        kinds[k] = collective_kind_word((enum collective_kind)k);
    TRY(words_start(r, "collective"));
    TRY(words_name(r, &g->name));
    TRY(words_choice(r, kinds, COLLECTIVE_KIND_COUNT, &kind));
    TRY(words_choice(r, collective_algorithm_names, COLLECTIVE_ALGORITHM_COUNT, &algorithm));
    TRY(words_choice(r, when, 3, &call));
    g->kind = (enum collective_kind)kind, g->algorithm = (enum collective_algorithm)algorithm;
    g->repeated = call == 2;
    return call == 1 ? read_tensor(r, g) : read_segments(r, g);
}
