/* Collectives between devices: every kind, every form, for random cuts, against results computed from the members'
 * operands by hand. */
#include "tests/support/device_ranks.h"
#include "tests/support/tensor_collectives.h"

#include "exec/device_transport/device_region.h"
#include "exec/device_transport/plan.h"

/* ---- regions ---------------------------------------------------------------------------------- */

enum { REGIONS = 300 };

static int64_t draw(uint64_t seed, uint64_t *at, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(3, seed, (*at)++, (uint64_t)(high - low + 1));
}

static void random_region(struct arena *a, uint64_t seed, struct region *r)
{
    uint64_t at = 0;
    *r = (struct region){.shape.rank = (int32_t)draw(seed, &at, 1, 4)};
    for (int32_t d = 0; d < r->shape.rank; d++) {
        r->shape.dim[d] = draw(seed, &at, 0, 12) ? draw(seed, &at, 1, 7) : 0;
        if (draw(seed, &at, 0, 1)) continue;
        int32_t n = (int32_t)draw(seed, &at, 0, 3);
        int64_t *first = ARENA_ARRAY(a, int64_t, 4), *count = ARENA_ARRAY(a, int64_t, 4), from = 0;
        for (int32_t k = 0; k < n; k++) {
            first[k] = draw(seed, &at, from, r->shape.dim[d]);
            count[k] = draw(seed, &at, 0, r->shape.dim[d] - first[k]);
            from = first[k] + count[k];
        }
        r->dim[r->n_dims].dimension = d, r->dim[r->n_dims].n_runs = n;
        r->dim[r->n_dims].first = first, r->dim[r->n_dims++].count = count;
    }
}

/* A backend's rows where it has a call for them. */
static enum status rows_on_host(struct backend *b, int32_t stream, void *to, int64_t to_stride,
                                const void *from, int64_t from_stride, int64_t row_bytes,
                                int64_t rows, struct error *err)
{
    for (int64_t i = 0; i < rows; i++)
        TRY(b->copy(b, stream, (char *)to + i * to_stride, (const char *)from + i * from_stride,
                    row_bytes, err));
    return OK;
}

START_TEST(a_region_is_packed_and_unpacked_on_a_stream_as_on_the_host)
{
    struct arena *a = arena_new();
    struct backend b;
    struct error err;
    struct region r;
    enum { MOST = 7 * 7 * 7 * 7 };
    static float operand[MOST], back[2][MOST], packed[2][MOST];
    backend_host(&b);
    ck_assert_int_eq(b.open(&b, 0, &err), OK);
    b.copy_rows = _i % 2 ? rows_on_host : NULL;
    for (uint64_t seed = 0; seed < REGIONS; seed++) {
        random_region(a, seed + REGIONS * (uint64_t)_i, &r);
        int64_t n = region_elements(&r), first, in_one = 0;
        for (int32_t i = 0; i < MOST; i++) {
            operand[i] = (float)i;
            for (int k = 0; k < 2; k++) back[k][i] = packed[k][i] = -1;
        }
        region_copy(&r, DTYPE_fp32, operand, packed[0], REGION_PACK);
        ck_assert_int_eq(
            device_region_copy(&b, 0, &r, DTYPE_fp32, operand, packed[1], REGION_PACK, &err), OK);
        ck_assert_mem_eq(packed[0], packed[1], sizeof packed[0]);
        region_copy(&r, DTYPE_fp32, back[0], packed[0], REGION_UNPACK);
        ck_assert_int_eq(
            device_region_copy(&b, 0, &r, DTYPE_fp32, back[1], packed[1], REGION_UNPACK, &err), OK);
        ck_assert_mem_eq(back[0], back[1], sizeof back[0]);
        for (int64_t i = 1; i < n; i++) in_one += packed[0][i] != packed[0][i - 1] + 1;
        ck_assert_int_eq(device_region_in_one(&r, &first), in_one == 0);
        if (n && in_one == 0) ck_assert_int_eq(first, (int64_t)packed[0][0]);
    }
    b.close(&b);
    arena_free(a);
}
END_TEST

/* ---- collectives --------------------------------------------------------------------------------- */

/* Element of a member's result, as the whole says. */
static void check_out(struct met *m, int32_t group, int32_t member, const void *out)
{
    const struct collective *x = &m->p.collectives[group];
    struct shape s = collective_out(x, member);
    int64_t at[SHAPE_RANK_MAX] = {0}, own[SHAPE_RANK_MAX], n = shape_elements(&x->whole);
    double limit = m->p.dtype == DTYPE_fp32 ? 1e-5 : 1e-12;
    for (int64_t e = 0; e < n; e++) {
        memcpy(own, at, sizeof own);
        bool here = !collective_has_to(x->kind) || met_owner(&x->to, x->n_members, at[x->to.dimension],
                                                          &own[x->to.dimension]) == member;
        if (here) {
            int64_t i = met_flat(&s, own);
            double got = m->p.dtype == DTYPE_fp32 ? (double)((const float *)out)[i]
                                                  : ((const double *)out)[i],
                   want = met_whole(m, x, group, at);
            NEED(fabs(got - want) <= limit * (1 + fabs(want)),
                 "seed %" PRIu64 ", collective %d %s %s of %d, member %d: element %" PRId64
                 " is %g, not %g",
                 m->seed, (int)group, collective_kind_word(x->kind),
                 collective_algorithm_name(x->algorithm), (int)x->n_members, (int)member, i, got,
                 want);
        }
        for (int32_t d = x->whole.rank - 1; d >= 0 && ++at[d] == x->whole.dim[d]; d--) at[d] = 0;
    }
}

static int32_t member_here(const struct collective *g, int32_t stage)
{
    for (int32_t i = 0; i < g->n_members; i++)
        if (g->members[i].stage == stage) return i;
    return -1;
}

/* All collectives of the program, twice, one after the other; then what came of the second time. */
static int collective(void *owner, int32_t rank)
{
    struct met *m = owner;
    struct arena *a = arena_new();
    struct device_rank r;
    NEED(device_rank_open(&r, a, &m->p, -1) == OK, "%s", r.err.text);
    NEED(lane_memory_init(&r.memory[rank], m->p.seed, 1, &r.err) == OK, "%s", r.err.text);
    NEED(device_rank_join(&r) == OK, "%s", r.err.text);
    for (int64_t number = 0; number < 2; number++)
        for (int32_t g = 0; g < m->p.n_collectives; g++) {
            if (!collective_of_tensor(&m->p.collectives[g]) ||
                member_here(&m->p.collectives[g], rank) < 0)
                continue;
            NEED(device_transport_reduce(r.t, g, number, 0, (int32_t)number, number, 'F', &r.err) ==
                     OK,
                 "%s", r.err.text);
            NEED(device_transport_await(r.t, g, number, &r.err) == OK, "%s", r.err.text);
        }
    NEED(device_rank_wait(&r) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_collectives; g++) {
        const struct collective *x = &m->p.collectives[g];
        int32_t member = collective_of_tensor(x) ? member_here(x, rank) : -1;
        if (member < 0) continue;
        struct shape s = collective_out(x, member);
        int64_t bytes = shape_elements(&s) * dtype_bytes(x->dtype);
        void *out = ARENA_ARRAY(a, double, (size_t)bytes / sizeof(double) + 1);
        if (!bytes) continue;
        NEED(r.backend.download(&r.backend, out,
                                lane_memory_slot(&r.memory[rank], x->out[member], 1), bytes,
                                &r.err) == OK,
             "%s", r.err.text);
        check_out(m, g, member, out);
    }
    device_rank_close(&r);
    arena_free(a);
    return 0;
}

START_TEST(collectives_of_all_kinds_leave_everybody_what_the_operands_say)
{
    struct arena *a = arena_new();
    int32_t n = 2 + _i % 3;
    struct met *m = tensor_collectives_make(a, 1000 + (uint64_t)_i, n, false);
    device_ranks_run(collective, m, n);
    arena_free(a);
}
END_TEST

/* ---- forms ------------------------------------------------------------------------------------ */

static struct collective gathering(struct arena *a, enum collective_algorithm algorithm,
                                   const int64_t *count, int32_t n)
{
    struct collective m = {
        .kind = COLLECTIVE_ALL_GATHER, .algorithm = algorithm, .n_members = n, .whole = {2, {0, 3}}};
    int64_t *first = ARENA_ARRAY(a, int64_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) first[i] = m.whole.dim[0], m.whole.dim[0] += count[i];
    m.from = (struct collective_cut){0, 1, first, arena_copy(a, count, (size_t)n * sizeof *count)};
    m.to.dimension = -1;
    m.most = collective_max(&m);
    return m;
}

START_TEST(a_plan_that_says_pairs_gets_roots_while_shards_are_of_like_size)
{
    struct arena *a = arena_new();
    const int64_t like[] = {2, 8, 5}, unlike[] = {2, 9, 5}, empty[] = {0, 1, 1};
    struct collective ring = gathering(a, ALGORITHM_RING, unlike, 3),
                      roots = gathering(a, ALGORITHM_PAIRS, like, 3),
                      pairs = gathering(a, ALGORITHM_PAIRS, unlike, 3),
                      none = gathering(a, ALGORITHM_PAIRS, empty, 3);
    ck_assert_int_eq(device_form(&ring), DEVICE_FORM_PADDED);
    ck_assert_int_eq(device_form(&roots), DEVICE_FORM_ROOTS);
    ck_assert_int_eq(device_form(&pairs), DEVICE_FORM_PAIRS);
    ck_assert_int_eq(device_form(&none), DEVICE_FORM_PAIRS);
    arena_free(a);
}
END_TEST

Suite *device_transport_collectives_suite(void)
{
    Suite *s = suite_create("device_transport_collectives");
    TCase *t = tcase_create("device_transport_collectives");
    tcase_add_loop_test(t, a_region_is_packed_and_unpacked_on_a_stream_as_on_the_host, 0, 2);
    tcase_add_loop_test(t, collectives_of_all_kinds_leave_everybody_what_the_operands_say, 0,
                        suites_long() ? 60 : 9);
    tcase_add_test(t, a_plan_that_says_pairs_gets_roots_while_shards_are_of_like_size);
    suite_add_tcase(s, t);
    return s;
}
