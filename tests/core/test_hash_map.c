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

/* Of 100,000 contents that differ in a bit or in their length. */
START_TEST(contents_that_differ_have_keys_of_their_own)
{
    enum { WORDS = 100, EACH = 1000 };
    struct hash_map x = {.arena = arena_new()};
    unsigned char bytes[8 * WORDS] = {0};
    for (size_t k = 0; k < WORDS; k++)
        for (size_t bit = 0; bit < EACH; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            hash_map_at(&x, hash_map_key(1, bytes, sizeof bytes - k))->number++;
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    ck_assert_uint_eq(x.n, WORDS * EACH);
    ck_assert_uint_ne(hash_map_key(1, bytes, 3), hash_map_key(2, bytes, 3));
    ck_assert_uint_ne(hash_map_key(hash_map_key(0, "a", 1), "bc", 2),
                      hash_map_key(hash_map_key(0, "ab", 2), "c", 1));
    arena_free(x.arena);
}
END_TEST

Suite *hash_map_suite(void)
{
    Suite *s = suite_create("hash_map");
    TCase *t = tcase_create("hash_map");
    tcase_add_test(t, every_key_keeps_its_value);
    tcase_add_test(t, contents_that_differ_have_keys_of_their_own);
    suite_add_tcase(s, t);
    return s;
}
