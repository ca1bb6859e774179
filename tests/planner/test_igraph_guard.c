/* igraph_guard: a failed igraph call becomes an error, and the next call works. */
#include "core/base/error.h"
#include "planner/topology/igraph_guard.h"

#include "tests/support/suites.h"

#include <igraph.h>
#include <pthread.h>
#include <string.h>

START_TEST(what_igraph_refuses_becomes_an_error_with_its_words)
{
    struct error err = {0};
    igraph_t g;
    igraph_guard_enter();
    int code = igraph_empty(&g, -3, IGRAPH_DIRECTED);
    ck_assert_int_eq(igraph_guard(code, "a graph of minus three", &err), ERR_INTERNAL);
    igraph_guard_leave();
    ck_assert_ptr_nonnull(strstr(err.text, "a graph of minus three: igraph: "));
    ck_assert_ptr_null(strstr(err.text, "no reason"));
}
END_TEST

/* Edges of a ring of n: n of them, counted by igraph. */
static int ring_edges(int n)
{
    igraph_t g;
    struct error err = {0};
    igraph_guard_enter();
    int code = igraph_ring(&g, n, IGRAPH_UNDIRECTED, 0, 1);
    ck_assert_int_eq(igraph_guard(code, "a ring", &err), OK);
    int edges = (int)igraph_ecount(&g);
    igraph_destroy(&g);
    igraph_guard_leave();
    return edges;
}

static void *rings(void *sum)
{
    for (int n = 3; n < 60; n++) {
        igraph_t g;
        igraph_guard_enter();
        *(long *)sum += igraph_guard(igraph_empty(&g, -n, 0), "none", NULL) == ERR_INTERNAL;
        igraph_guard_leave();
        *(long *)sum += ring_edges(n);
    }
    return NULL;
}

START_TEST(threads_take_turns_and_failures_leave_nothing_behind)
{
    pthread_t thread[4];
    long sum[4] = {0}, expected = 0;
    for (int n = 3; n < 60; n++) expected += n + 1;
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, rings, &sum[i]);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(sum[i], expected);
}
END_TEST

SUITE_OF(igraph_guard, what_igraph_refuses_becomes_an_error_with_its_words,
         threads_take_turns_and_failures_leave_nothing_behind)
