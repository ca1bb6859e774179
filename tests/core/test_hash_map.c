/* A key keeps its value, whatever keys come after it. */
#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "tests/support/suites.h"

START_TEST(every_key_keeps_its_value)
{
    enum { N = 5000 }; /* the map grows several times */
    struct hash_map x = {.arena = arena_new()};
    for (uint64_t key = 0; key < N; key++) {
        struct hash_entry *e = hash_map_at(&x, key << 32);
        ck_assert_int_eq(e->number, 0);
        e->number = (int64_t)key + 1;
    }
    ck_assert_uint_eq(x.n, N);
    ck_assert_uint_ge(x.capacity, 2 * x.n);
    for (uint64_t key = 0; key < N; key++)
        ck_assert_int_eq(hash_map_at(&x, key << 32)->number, (int64_t)key + 1);
    ck_assert_uint_eq(x.n, N);
    arena_free(x.arena);
}
END_TEST

Suite *hash_map_suite(void)
{
    Suite *s = suite_create("hash_map");
    TCase *t = tcase_create("hash_map");
    tcase_add_test(t, every_key_keeps_its_value);
    suite_add_tcase(s, t);
    return s;
}
