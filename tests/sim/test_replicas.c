/* Replicas that do the same: which ones they are, and that the deadlock check of one of them holds for all. */
#include "core/program/replicas.h"

#include "tests/support/suites.h"
#include "tests/support/symmetric.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static int32_t kept(const struct program *p, bool **keep)
{
    int32_t n = 0, replicas = p->stages[p->n_stages - 1].replica + 1;
    *keep = ARENA_ARRAY(arena, bool, (size_t)replicas);
    bool fewer = program_unlike_replicas(arena, p, *keep);
    for (int32_t r = 0; r < replicas; r++) n += (*keep)[r] |= !fewer;
    if (!fewer) return replicas;
    ck_assert(n > 0 && n < replicas && (*keep)[0]);
    return n;
}

/* Exchanges two instructions of one procedure that are not operators; false: it has no two different ones. */
static bool disturb(struct symmetric *c, int32_t stage)
{
    struct program_stage *s = &c->program.stages[stage];
    s->procedures =
        arena_copy(arena, s->procedures, (size_t)s->n_procedures * sizeof *s->procedures);
    struct procedure *q = &s->procedures[symmetric_draw(c, 0, s->n_procedures - 1)];
    q->instrs = arena_copy(arena, q->instrs, (size_t)q->n_instrs * sizeof *q->instrs);
    int32_t at[2] = {-1, -1}, n = 0;
    for (int32_t i = 0; i < q->n_instrs; i++)
        if (q->instrs[i].kind != INSTR_COMPUTE && !symmetric_draw(c, 0, n++ / 2)) at[n % 2] = i;
    if (at[0] < 0 || at[1] < 0) return false;
    struct instr x = q->instrs[at[0]], y = q->instrs[at[1]];
    q->instrs[at[0]] = y, q->instrs[at[1]] = x;
    return x.kind != y.kind || x.arg != y.arg;
}

/* Replica r has r operators more in each stage: no two are taken for equal ones, and the game is the same. */
static struct program apart(const struct program *p)
{
    struct program out = *p;
    bool *keep;
    out.stages = arena_copy(arena, p->stages, (size_t)p->n_stages * sizeof *p->stages);
    for (int32_t i = 0; i < p->n_stages; i++) {
        struct program_stage *s = &out.stages[i];
        s->procedures =
            arena_copy(arena, s->procedures, (size_t)s->n_procedures * sizeof *s->procedures);
        struct procedure *q = &s->procedures[0];
        int32_t n = q->n_instrs;
        struct instr *more = ARENA_ARRAY(arena, struct instr, (size_t)(n + s->replica + 1));
        if (n) memcpy(more, q->instrs, (size_t)n * sizeof *more);
        for (int32_t k = n; k < n + s->replica; k++) more[k].kind = INSTR_COMPUTE;
        q->instrs = more, q->n_instrs += s->replica;
    }
    ck_assert_int_eq(kept(&out, &keep), p->stages[p->n_stages - 1].replica + 1);
    return out;
}

/* The same verdict and words as with all replicas in the game, and a replica that differs is in it. */
START_TEST(the_check_of_one_replica_holds_for_those_that_do_the_same)
{
    int32_t fewer = 0, refused = 0, accepted = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 10000 : 300); seed++) {
        struct symmetric c;
        struct error err = {0}, why = {0};
        bool *keep;
        arena_reset(arena);
        if (symmetric_make(&c, arena, seed) != OK) continue;
        int32_t before = kept(&c.program, &keep);
        fewer += before < c.program.stages[c.program.n_stages - 1].replica + 1;
        ck_assert_int_eq(program_check(arena, &c.program, &err), OK);
        int32_t stage = symmetric_draw(&c, 0, c.program.n_stages - 1),
                replica = c.program.stages[stage].replica;
        bool represented = !keep[replica];
        if (!disturb(&c, stage)) continue;
        kept(&c.program, &keep);
        ck_assert_msg(keep[replica] || !represented, "seed %lu: stage %d", (unsigned long)seed,
                      (int)stage);
        struct program all = apart(&c.program);
        bool fine = program_check(arena, &c.program, &err) == OK;
        ck_assert_msg(fine == (program_check(arena, &all, &why) == OK), "seed %lu: %s%s",
                      (unsigned long)seed, err.text, why.text);
        ck_assert_str_eq(err.text, why.text);
        refused += !fine, accepted += fine;
    }
    ck_assert_msg(fewer > 40 && refused > 20 && accepted > 20,
                  "%d with like replicas, %d refused, %d accepted", (int)fewer, (int)refused,
                  (int)accepted);
}
END_TEST

START_TEST(collectives_keep_the_members_of_kept_replicas)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct symmetric c;
        struct program few;
        bool *keep;
        int32_t *of, members = 0, expected = 0;
        arena_reset(arena);
        if (symmetric_make(&c, arena, seed) != OK) continue;
        if (kept(&c.program, &keep) > c.program.stages[c.program.n_stages - 1].replica) continue;
        program_keep_replicas(arena, &c.program, keep, &few, &of);
        for (int32_t i = 0; i < few.n_collectives; i++) members += few.collectives[i].n_members;
        for (int32_t i = 0; i < c.program.n_collectives; i++)
            for (int32_t m = 0; m < c.program.collectives[i].n_members; m++)
                expected +=
                    keep[c.program.stages[c.program.collectives[i].members[m].stage].replica];
        ck_assert_int_eq(members, expected);
        for (int32_t i = 0; i < few.n_collectives; i++)
            ck_assert_str_eq(few.collectives[i].name, c.program.collectives[of[i]].name);
    }
}
END_TEST

Suite *replicas_suite(void)
{
    Suite *s = suite_create("core/program/replicas");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_check_of_one_replica_holds_for_those_that_do_the_same);
    tcase_add_test(t, collectives_keep_the_members_of_kept_replicas);
    suite_add_tcase(s, t);
    return s;
}
