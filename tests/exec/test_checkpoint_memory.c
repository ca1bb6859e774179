/* Suite of exec/checkpoint/memory and of the copies' pace on an emulated link. */
#include "exec/checkpoint/memory.h"

#include "core/base/arena.h"
#include "exec/worker/peer_copy.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct arena *a;
static struct checkpoint_memory *m;
enum { RANKS = 3, VALUES = 1000 };
static const char *const devices[RANKS] = {"x.y.0", "x.y.1", "b.0"};

static void setup(void)
{
    struct error err;
    a = arena_new();
    m = ARENA_ARRAY(a, struct checkpoint_memory, 1);
    ck_assert_int_eq(checkpoint_memory_open(m, RANKS, &err), OK);
}

static void teardown(void)
{
    checkpoint_memory_close(m);
    arena_free(a);
}

static void at_once(void *owner, int64_t bytes) { *(int64_t *)owner += bytes; }

static float value_of(int32_t rank, int64_t step, int tensor, int i) { return (float)(rank * 1000000 + step * 1000 + tensor * 100 + i); }

static void write_rank(int32_t generation, int32_t rank, int64_t step, bool copy)
{
    struct checkpoint_memory_writer w;
    struct checkpoint_tensor rows[2] = {{.shape = {1, {VALUES}}, .dtype = DTYPE_fp32, .bytes = VALUES * 4},
                                        {.shape = {2, {VALUES / 2, 2}}, .dtype = DTYPE_fp32, .bytes = VALUES * 4}};
    float values[2][VALUES];
    const void *data[2] = {values[0], values[1]};
    struct error err;
    int64_t copied = 0;
    bool on_b = rank == 2;
    uint64_t x = checkpoint_memory_node(devices[0]), b = checkpoint_memory_node(devices[2]);
    for (int t = 0; t < 2; t++) {
        snprintf(rows[t].name, sizeof rows[t].name, "t%d-%d", rank, t);
        for (int i = 0; i < VALUES; i++) values[t][i] = value_of(rank, step, t, i);
    }
    ck_assert_int_eq(checkpoint_memory_begin(&w, a, m, generation, rank, on_b ? b : x, on_b ? x : b, &err), OK);
    ck_assert_int_eq(checkpoint_memory_put(&w, a, "", rows, data, 1, &err), OK);
    ck_assert_int_eq(checkpoint_memory_put(&w, a, "", rows + 1, data + 1, 1, &err), OK);
    ck_assert_int_eq(checkpoint_memory_end(&w, step, &err), OK);
    if (!copy) return;
    ck_assert_int_eq(checkpoint_memory_copy(&w, step, 300, at_once, &copied, &err), OK);
    ck_assert_int_eq(copied, 2 * VALUES * 4 + 2 * (int64_t)sizeof *rows);
}

static void write_all(int32_t generation, int64_t step)
{
    for (int32_t i = 0; i < RANKS; i++) write_rank(generation, i, step, true);
    checkpoint_memory_describe(m, generation, &(struct checkpoint){.step = step, .sequences = 7 * step}, RANKS);
}

static void check_values(int64_t step)
{
    struct checkpoint c;
    struct error err;
    float got[VALUES];
    ck_assert_int_eq(checkpoint_memory_read(a, m, step, &c, &err), OK);
    ck_assert_int_eq(c.step, step);
    ck_assert_int_eq(c.sequences, 7 * step);
    ck_assert_int_eq(c.n_tensors, 2 * RANKS);
    for (int32_t rank = 0; rank < RANKS; rank++)
        for (int t = 0; t < 2; t++) {
            char name[16];
            struct shape shape = {1 + t, {t ? VALUES / 2 : VALUES, 2}};
            snprintf(name, sizeof name, "t%d-%d", rank, t);
            ck_assert_msg(checkpoint_load(&c, name, &shape, DTYPE_fp32, got, &err) == OK, "%s", err.text);
            for (int i = 0; i < VALUES; i++) ck_assert_float_eq(got[i], value_of(rank, step, t, i));
        }
}

/* Groups of two, and a ring of the last three of an odd number: each node is the peer of one other. */
START_TEST(peers_are_other_nodes)
{
    ck_assert_int_eq(checkpoint_memory_peer(0, 1), -1);
    for (int32_t n = 2; n < 20; n++) {
        bool is_peer[20] = {false};
        for (int32_t i = 0; i < n; i++) {
            int32_t peer = checkpoint_memory_peer(i, n);
            ck_assert(peer >= 0 && peer < n && peer != i && !is_peer[peer]);
            is_peer[peer] = true;
            if (n % 2 == 0) ck_assert_int_eq(checkpoint_memory_peer(peer, n), i);
        }
    }
    ck_assert(checkpoint_memory_node("x.y.0") == checkpoint_memory_node("x.y.11") && checkpoint_memory_node("x.y.0") != checkpoint_memory_node("x.0"));
}
END_TEST

START_TEST(newest_complete_generation_is_found)
{
    int32_t copies;
    ck_assert_int_eq(checkpoint_memory_find(m, &copies), 0);
    write_all(0, 5);
    write_all(1, 10);
    ck_assert_int_eq(checkpoint_memory_find(m, &copies), 10);
    ck_assert_int_eq(m->first, 0);
    check_values(10);
    check_values(5);
    write_rank(0, 0, 15, true); /* a rank dies while the others write */
    write_rank(0, 1, 15, false);
    checkpoint_memory_describe(m, 0, &(struct checkpoint){.step = 15}, RANKS);
    ck_assert_int_eq(checkpoint_memory_find(m, &copies), 10);
    ck_assert_int_eq(copies, 0);
    struct checkpoint c;
    struct error err;
    ck_assert_int_eq(checkpoint_memory_read(a, m, 15, &c, &err), ERR_INPUT);
    write_rank(0, 2, 15, false);
    ck_assert_int_eq(checkpoint_memory_find(m, &copies), 15); /* the nodes' own parts are enough */
}
END_TEST

START_TEST(lost_node_is_replaced_by_copies)
{
    int32_t copies;
    write_all(0, 5);
    write_all(1, 10);
    checkpoint_memory_lose(m, checkpoint_memory_node("x.y.0"));
    ck_assert_int_eq(checkpoint_memory_find(m, &copies), 10);
    ck_assert_int_eq(copies, 2);
    check_values(10);
    write_all(0, 15);
    checkpoint_memory_lose(m, checkpoint_memory_node("b.0"));
    ck_assert_int_eq(checkpoint_memory_find(m, &copies), 15);
    ck_assert_int_eq(copies, 1);
    check_values(15);
    checkpoint_memory_lose(m, checkpoint_memory_node("x.y.0")); /* its peer too */
    ck_assert_int_eq(checkpoint_memory_find(m, &copies), 0);
}
END_TEST

/* A changed byte of memory is found by the CRC of its tensor. */
START_TEST(damage_is_seen)
{
    struct checkpoint c;
    struct error err;
    float got[VALUES];
    write_all(0, 5);
    ck_assert_int_eq(pwrite(m->generation[0].part[1].own, "damage", 6, 40), 6);
    ck_assert_int_eq(checkpoint_memory_read(a, m, 5, &c, &err), OK);
    ck_assert_int_eq(checkpoint_load(&c, "t1-0", &(struct shape){1, {VALUES}}, DTYPE_fp32, got, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "CRC"));
}
END_TEST

/* A run that ends has its newest generation on disk, beside the newest one there. */
START_TEST(the_newest_is_written_to_disk)
{
    char dir[] = "/tmp/musher-memory-XXXXXX";
    const char *below = arena_printf(a, "%s/saved", mkdtemp(dir));
    struct checkpoint c;
    struct error err;
    float got[VALUES];
    write_all(0, 5);
    write_all(1, 10);
    checkpoint_memory_lose(m, checkpoint_memory_node("x.y.0")); /* the copies are written then */
    ck_assert_msg(checkpoint_memory_write(a, m, 5, below, 0, 2, NULL, &err) == OK, "%s", err.text);
    ck_assert_msg(checkpoint_memory_write(a, m, 10, below, 5, 2, NULL, &err) == OK, "%s", err.text);
    ck_assert_msg(checkpoint_find(a, below, &c, &err) == OK, "%s", err.text);
    ck_assert_int_eq(c.step, 10);
    ck_assert_int_eq(c.sequences, 70);
    ck_assert_int_eq(c.n_tensors, 2 * RANKS);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        ck_assert_msg(checkpoint_load(&c, arena_printf(a, "t%d-0", (int)rank), &(struct shape){1, {VALUES}}, DTYPE_fp32, got, &err) == OK, "%s", err.text);
        for (int i = 0; i < VALUES; i++) ck_assert_float_eq(got[i], value_of(rank, 10, 0, i));
    }
    ck_assert_int_eq(checkpoint_newest(a, below), 10);
    /* one whose memory is damaged leaves the disk as it was */
    write_all(0, 15);
    ck_assert_int_eq(pwrite(m->generation[0].part[1].own, "damage", 6, 40), 6);
    ck_assert_int_eq(checkpoint_memory_write(a, m, 15, below, 10, 2, NULL, &err), ERR_INPUT);
    ck_assert_int_eq(checkpoint_newest(a, below), 10);
    ck_assert_int_eq(system(arena_printf(a, "test $(ls -A %s | wc -l) = 2 && rm -r %s", below, dir)), 0);
}
END_TEST

/* Bytes leave when the link is idle, one chunk after the other; a message's reservation is not moved. */
START_TEST(copies_take_an_idle_link)
{
    struct link_clock clock;
    struct program_link link = {.bandwidth_Bps = 1e6};
    _Atomic double slower = 1;
    struct wire wire = {.link = &link, .clock = &clock, .slower = &slower};
    struct wires w = {.n = 1, .wire = &wire, .zero_ns = clock_wall_ns()};
    int64_t until;
    ck_assert_int_eq(link_clock_init(&clock), 0);
    ck_assert(wires_fill(&w, 0, 1000000000, &until)); /* 1000 s */
    ck_assert_int_ge(until, INT64_C(1000000000000));
    int64_t busy = until;
    ck_assert(!wires_fill(&w, 0, 1000, &until));
    ck_assert_int_eq(until, busy);
    ck_assert_int_eq(link_clock_reserve(&clock, 0, 5), busy); /* a message is behind the chunk */
    clock.free_ns = 0;
    slower = 3;
    ck_assert(wires_fill(&w, 0, 1000000, &until));
    ck_assert_int_ge(until, INT64_C(3000000000));
}
END_TEST

START_TEST(peers_of_a_program)
{
    struct program_device d[4] = {{.name = "a.0"}, {.name = "a.1"}, {.name = "b.0"}, {.name = "c.0"}};
    struct program p = {.n_devices = 4, .devices = d};
    uint64_t home, peer;
    peer_copy_nodes(&p, 1, &home, &peer);
    ck_assert(home == checkpoint_memory_node("a.7") && peer == checkpoint_memory_node("b.0"));
    peer_copy_nodes(&p, 3, &home, &peer);
    ck_assert(home == checkpoint_memory_node("c.0") && peer == checkpoint_memory_node("a.0"));
    p.n_devices = 2;
    peer_copy_nodes(&p, 1, &home, &peer);
    ck_assert(peer == 0);
}
END_TEST

Suite *checkpoint_memory_suite(void)
{
    Suite *s = suite_create("checkpoint_memory");
    TCase *c = tcase_create("checkpoint_memory");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, peers_are_other_nodes);
    tcase_add_test(c, newest_complete_generation_is_found);
    tcase_add_test(c, lost_node_is_replaced_by_copies);
    tcase_add_test(c, damage_is_seen);
    tcase_add_test(c, the_newest_is_written_to_disk);
    tcase_add_test(c, copies_take_an_idle_link);
    tcase_add_test(c, peers_of_a_program);
    suite_add_tcase(s, c);
    return s;
}
