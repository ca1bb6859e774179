/* Suite of exec/checkpoint/checkpoint. */
#include "exec/checkpoint/files.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/rng.h"

#include "tests/support/suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct arena *a;
static char dir[64];
static struct checkpoint_store store;

/* renameat2 of a file system that cannot exchange. */
static bool no_exchange;
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (!no_exchange) return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    errno = EINVAL;
    return -1;
}

/* A run begins: behind the newest generation that is whole where there is one. Its step, or 0. */
static int64_t begins(void)
{
    struct checkpoint c;
    struct error err = {0};
    checkpoint_leave(&store);
    ck_assert_msg(checkpoint_enter(a, dir, &store, &err) == OK, "%s", err.text);
    bool found = checkpoint_find(a, dir, &c, NULL) == OK;
    int64_t step = found ? c.step : 0;
    ck_assert_msg(checkpoint_follow(a, &store, found ? dir : NULL, step, &err) == OK, "%s",
                  err.text);
    return step;
}

static void setup(void)
{
    a = arena_new();
    log_set_level(LOG_LEVEL_ERROR);
    snprintf(dir, sizeof dir, "/tmp/musher-checkpoint-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    store.lock = -1;
    no_exchange = false;
    begins();
}

static void teardown(void)
{
    char command[128];
    checkpoint_leave(&store);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    ck_assert_int_eq(system(command), 0);
    arena_free(a);
}

static const float w_values[6] = {1, 2, 3, 4, 5, 6};

static struct checkpoint_tensor tensor(const char *name, int64_t rows, int64_t columns)
{
    struct checkpoint_tensor t = {
        .shape = {2, {rows, columns}}, .dtype = DTYPE_fp32, .bytes = rows * columns * 4};
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

/* Generation `step`: w (2, 3) and, in a second file, b (1, 1) = step. stop_after: calls to make
 * before the process would have died; 9: all. */
static enum status save(int64_t step, int stop_after, struct error *err)
{
    const char *temporary;
    struct checkpoint_tensor t[2] = {tensor("w", 2, 3), tensor("b", 1, 1)};
    float b = (float)step;
    const void *data[2] = {w_values, &b};
    struct checkpoint c = {.step = step,
                           .sequences = 6 * step,
                           .global_batch = 6,
                           .data_bytes = 1000,
                           .data_crc = 77,
                           .seed = 42,
                           .optimizer = OPTIMIZER_SGD,
                           .dtype = DTYPE_fp32,
                           .n_tensors = 2,
                           .tensors = t};
    if (stop_after < 1) return OK;
    TRY(checkpoint_begin(a, &store, step, &temporary, err));
    if (stop_after < 2) return OK;
    TRY(checkpoint_write(a, temporary, "stage-0000.safetensors", &t[0], &data[0], 1, err));
    if (stop_after < 3) return OK;
    TRY(checkpoint_write(a, temporary, "stage-0001.safetensors", &t[1], &data[1], 1, err));
    if (stop_after < 4) return OK;
    return checkpoint_commit(a, &store, temporary, &c, err);
}

static void saved(int64_t step)
{
    struct error err = {0};
    ck_assert_msg(save(step, 9, &err) == OK, "%s", err.text);
}

static struct checkpoint found(int64_t step)
{
    struct checkpoint c;
    struct error err = {0};
    float b = -1;
    ck_assert_msg(checkpoint_find(a, dir, &c, &err) == OK, "%s", err.text);
    ck_assert_int_eq(c.step, step);
    ck_assert_int_eq(c.seed, 42);
    ck_assert_int_eq(c.sequences, 6 * step);
    ck_assert_int_eq(c.global_batch, 6);
    ck_assert_int_eq(c.data_bytes, 1000);
    ck_assert_uint_eq(c.data_crc, 77);
    ck_assert_int_eq(c.optimizer, OPTIMIZER_SGD);
    struct shape one = {2, {1, 1}};
    ck_assert_msg(checkpoint_load(&c, "b", &one, DTYPE_fp32, &b, &err) == OK, "%s", err.text);
    ck_assert(b == (float)step);
    return c;
}

static bool exists(const char *name) { return !access(arena_printf(a, "%s/%s", dir, name), F_OK); }

START_TEST(what_was_saved_is_loaded_bit_for_bit)
{
    saved(50);
    struct checkpoint c = found(50);
    struct error err = {0};
    struct shape shape = {2, {2, 3}};
    float w[6];
    ck_assert_int_eq(checkpoint_load(&c, "w", &shape, DTYPE_fp32, w, &err), OK);
    ck_assert_mem_eq(w, w_values, sizeof w);
    ck_assert(exists("step-00000050/manifest.json"));
}
END_TEST

START_TEST(the_newest_two_generations_stay)
{
    for (int step = 10; step <= 50; step += 10) saved(step);
    ck_assert(!exists("step-00000030") && exists("step-00000040") && exists("step-00000050"));
    saved(50); /* the same again replaces it */
    found(50);
    ck_assert(exists("step-00000040"));
}
END_TEST

START_TEST(a_death_between_any_two_writes_leaves_the_old_generation)
{
    saved(10);
    for (int stop = 0; stop < 4; stop++) {
        pid_t child = fork();
        if (child == 0) {
            if (save(20, stop, NULL) != OK) _exit(1);
            raise(SIGKILL);
        }
        int how;
        ck_assert_int_eq(waitpid(child, &how, 0), child);
        ck_assert(WIFSIGNALED(how));
        found(10);
    }
    saved(20);
    found(20);
    ck_assert(!exists(".step-00000020.tmp"));
}
END_TEST

/* Something is done to one file of generation 20; 10 must be found, and the reason be known. */
static void falls_back(const char *file, const char *shell, const char *why)
{
    struct checkpoint c;
    struct error err = {0};
    saved(10);
    saved(20);
    const char *path = arena_printf(a, "%s/step-00000020/%s", dir, file);
    ck_assert_int_eq(system(arena_printf(a, "f='%s'; %s", path, shell)), 0);
    ck_assert_int_eq(checkpoint_open(a, arena_printf(a, "%s/step-00000020", dir), true, &c, &err),
                     ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
    found(10);
    ck_assert_int_eq(system(arena_printf(a, "rm -r '%s/step-00000010'", dir)), 0);
    ck_assert_int_eq(checkpoint_find(a, dir, &c, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

static const char *const damages[][3] = {
    {"stage-0000.safetensors", "truncate -s 20 \"$f\"", "w is incomplete"},
    {"stage-0000.safetensors", "printf x | dd of=\"$f\" bs=1 seek=$(($(stat -c %s \"$f\") - 17)) conv=notrunc 2>/dev/null",
     "w is damaged"},
    {"stage-0000.safetensors", "printf x | dd of=\"$f\" bs=1 seek=12 conv=notrunc 2>/dev/null", "stage-0000.safetensors"},
    {"stage-0001.safetensors", "rm \"$f\"", "stage-0001.safetensors"},
    {"stage-0001.safetensors", "rm \"$f\" && mkdir \"$f\"", "stage-0001.safetensors"},
    {"stage-0001.safetensors", "rm \"$f\" && mkfifo \"$f\"", "not a regular file"},
    {"manifest.json", "rm \"$f\" && mkfifo \"$f\"", "not a regular file"},
    {"manifest.json", "rm \"$f\" && ln -s manifest.json \"$f\"", "manifest.json"},
    {"manifest.json", "rm \"$f\"", "manifest.json"},
    {"manifest.json", "truncate -s 100 \"$f\"", "manifest.json"},
    {"manifest.json", "sed -i 's/musher checkpoint/some checkpoint/' \"$f\"", "magic"},
    {"manifest.json", "sed -i 's/\"version\": 3/\"version\": 4/' \"$f\"",
     "checkpoint version 4; this musher reads version 3"},
    {"manifest.json", "sed -i 's/\"version\": 3/\"version\": 1/' \"$f\"",
     "checkpoint version 1, which has no data position"},
    {"manifest.json", "sed -i 's/sgd/adamw/' \"$f\"", "the manifest is damaged"},
    {"manifest.json", "sed -i 's/sgd/tiger/' \"$f\"", "'tiger' is not known"},
    {"manifest.json", "sed -i 's/philox4x32-10/mt19937/' \"$f\"", "'mt19937'"},
    {"manifest.json", "sed -i 's/\"counter\": 120/\"counter\": 6/' \"$f\"", "counter: 6"},
    {"manifest.json", "sed -i 's/\"global_batch\": 6/\"global_batch\": 7/' \"$f\"",
     "the manifest is damaged"},
    {"manifest.json", "sed -i 's/\"crc32\": 77/\"crc32\": 78/' \"$f\"", "the manifest is damaged"},
    {"manifest.json", "sed -i 's/little/big/' \"$f\"", "byte_order"},
    {"manifest.json", "sed -i 's/\"seed\": 42/\"seed\": 43/' \"$f\"", "the manifest is damaged"},
    {"manifest.json", "sed -i 's/stage-0000.safetensors/..\\/..\\/other/' \"$f\"", "not in this folder"},
};
enum { DAMAGES = sizeof damages / sizeof *damages };
START_TEST(damage_is_seen_and_the_generation_before_is_taken)
{
    const char *const *c = damages[_i];
    falls_back(c[0], c[1], c[2]);
}
END_TEST

START_TEST(a_tensor_that_does_not_fit_is_named)
{
    saved(10);
    struct checkpoint c = found(10);
    struct error err = {0};
    double out[6];
    struct shape shape = {2, {2, 3}}, turned = {2, {3, 2}};
    ck_assert_int_eq(checkpoint_load(&c, "v", &shape, DTYPE_fp32, out, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "no tensor v"));
    ck_assert_int_eq(checkpoint_load(&c, "w", &turned, DTYPE_fp32, out, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "tensor w"));
    ck_assert_int_eq(checkpoint_load(&c, "w", &shape, DTYPE_fp64, out, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "fp64"));
}
END_TEST

START_TEST(a_full_disk_leaves_the_old_generation_and_names_the_file)
{
    saved(10);
    pid_t child = fork();
    if (child == 0) {
        struct error err = {0};
        struct rlimit limit = {8, 8};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(save(20, 9, &err) == ERR_RESOURCE && strstr(err.text, "stage-0000.safetensors") ? 0 : 1);
    }
    int how;
    waitpid(child, &how, 0);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    found(10);
}
END_TEST

START_TEST(two_runs_do_not_save_into_one_folder)
{
    struct error err = {0};
    struct checkpoint_store second;
    ck_assert_int_eq(checkpoint_enter(a, dir, &second, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "in use by another run"));
    saved(10);
    ck_assert_int_eq(checkpoint_follow(a, &store, NULL, 0, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "holds step 10"));
    ck_assert_int_eq(checkpoint_follow(a, &store, "/tmp", 9, &err), ERR_INPUT);
    ck_assert_int_eq(checkpoint_follow(a, &store, "/tmp", 10, &err), OK);
    ck_assert_int_eq(checkpoint_follow(a, &store, arena_printf(a, "%s/.", dir), 9, &err), OK);
}
END_TEST

START_TEST(a_folder_that_a_run_made_goes_with_it_where_it_is_empty)
{
    struct error err = {0};
    struct checkpoint_store s;
    const char *inside = arena_printf(a, "%s/inside", dir);
    ck_assert_int_eq(checkpoint_enter(a, inside, &s, &err), OK);
    ck_assert(exists("inside"));
    checkpoint_leave(&s);
    ck_assert(!exists("inside"));
    saved(10);
    const char *whole = arena_printf(a, "%s/step-00000010", dir);
    ck_assert_int_eq(checkpoint_enter(a, whole, &s, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "is itself a checkpoint"));
    checkpoint_leave(&s);
    ck_assert(exists("step-00000010/manifest.json"));
}
END_TEST

static void sh(const char *commands)
{
    ck_assert_int_eq(system(arena_printf(a, "cd '%s' && %s", dir, commands)), 0);
}

/* Nothing behind a link is touched, whatever the link is called. _i: a file system that cannot exchange. */
START_TEST(links_are_removed_and_never_followed)
{
    no_exchange = _i;
    sh("mkdir outside && echo text > outside/keep && ln -s outside .step-00000009.tmp && "
       "ln -s outside step-00000000 && ln -s outside step-00000020 && "
       "ln -s nowhere .step-00000010.tmp");
    sh("mkdir -p .step-00000003.tmp && ln -s ../outside .step-00000003.tmp/link && "
       "ln -s ../outside/keep .step-00000003.tmp/keep && touch .step-00000003.tmp/file");
    for (int step = 10; step <= 30; step += 10) saved(step);
    sh("grep -qx text outside/keep && [ ! -L step-00000020 ] && [ ! -L step-00000000 ] && "
       "[ \"$(echo .step-*)\" = '.step-*' ]");
    found(30);
    sh("ln -s outside step-00000040 && rm -r step-00000030 && ln -s outside step-00000030");
    saved(40); /* a link is where a generation of the same step was */
    saved(50);
    sh("grep -qx text outside/keep && [ ! -L step-00000040 ] && [ ! -L step-00000030 ]");
    found(50);
}
END_TEST

/* Names of generations and of hidden folders that are neither folders nor links. */
START_TEST(what_is_no_folder_is_no_generation_and_stays)
{
    sh("echo text > step-00000010 && echo text > .step-00000010.tmp && mkfifo step-00000020 && "
       "mkdir step-0000000030 step-99999999999999999999 && mkdir -p .step-00000020.tmp/inside");
    ck_assert_int_eq(checkpoint_follow(a, &store, NULL, 0, NULL), OK);
    for (int step = 10; step <= 40; step += 10) saved(step);
    found(40);
    sh("grep -qx text .step-00000010.tmp && grep -qx text .step-00000010.1.tmp && "
       "[ -p .step-00000020.1.tmp ] && [ -d .step-00000020.tmp/inside ] && "
       "[ -d step-0000000030 ] && [ -d step-99999999999999999999 ]");
}
END_TEST

START_TEST(a_generation_under_the_name_of_another_step_is_not_taken)
{
    saved(10);
    sh("cp -r step-00000010 step-00000011");
    struct checkpoint c = found(10);
    struct error err = {0};
    sh("rm -r step-00000010");
    ck_assert_int_eq(checkpoint_find(a, dir, &c, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "step: 10 is not the step of the folder's name"));
}
END_TEST

/* Data may lie elsewhere; what is removed is the link. */
START_TEST(a_data_file_may_be_a_link)
{
    saved(10);
    sh("mkdir away && mv step-00000010/stage-0001.safetensors away && "
       "ln -s ../away/stage-0001.safetensors step-00000010/stage-0001.safetensors");
    found(10);
    saved(20);
    saved(30);
    ck_assert(!exists("step-00000010") && exists("away/stage-0001.safetensors"));
}
END_TEST

static void damage(int64_t step)
{
    sh(arena_printf(a,
                    "f=step-%08d/stage-0000.safetensors; printf x | dd of=$f bs=1 seek=$(($(stat -c %%s $f) - 17)) conv=notrunc 2> /dev/null",
                    (int)step));
}

START_TEST(a_damaged_generation_is_not_among_those_kept)
{
    saved(10);
    saved(20);
    damage(20);
    ck_assert_int_eq(begins(), 10);
    saved(25);
    ck_assert(exists("step-00000010") && exists("step-00000025"));
    damage(25); /* killed, and what was written last did not reach the disk */
    ck_assert_int_eq(begins(), 10);
    saved(15); /* killed at once */
    ck_assert(exists("step-00000010"));
    ck_assert_int_eq(begins(), 15);
    saved(26);
    ck_assert(exists("step-00000015") && !exists("step-00000010"));
    saved(27);
    sh("[ \"$(echo step-*)\" = 'step-00000026 step-00000027' ]");
}
END_TEST

/* Of what nothing is known, nothing is removed before two are whole. */
START_TEST(generations_of_another_run_stay_until_two_newer_are_written)
{
    saved(10);
    saved(20);
    damage(20);
    checkpoint_leave(&store);
    struct error err = {0};
    ck_assert_int_eq(checkpoint_enter(a, dir, &store, &err), OK);
    ck_assert_int_eq(checkpoint_follow(a, &store, "/tmp", 20, &err), OK);
    saved(30);
    ck_assert(exists("step-00000010") && exists("step-00000030"));
    saved(40);
    sh("[ \"$(echo step-*)\" = 'step-00000030 step-00000040' ]");
    ck_assert_int_eq(
        checkpoint_follow(a, &store, arena_printf(a, "%s/step-00000040", dir), 40, &err), OK);
    ck_assert_int_eq(store.whole[0], 40);
}
END_TEST

/* Runs that end anywhere, each of which may take the newest generation with it: one that is whole is always left. */
START_TEST(however_runs_end_a_whole_generation_is_left)
{
    int64_t last = 0;
    struct error err = {0};
    saved(++last);
    saved(++last);
    for (uint64_t run = 0; run < (suites_long() ? 500 : 20); run++) {
        int64_t first = begins();
        ck_assert_int_gt(first, 0);
        last = first;
        for (uint64_t n = rng_below(1, 0, run, 3); n > 0; n--)
            saved(last += 1 + (int64_t)rng_below(1, 1, 4 * run + n, 3));
        int stop = (int)rng_below(1, 2, run, 5);
        ck_assert_int_eq(save(last + 1, stop < 4 ? stop : 0, &err), OK);
        if (last > first && rng_below(1, 3, run, 4)) damage(last);
    }
}
END_TEST

START_TEST(room_is_looked_for)
{
    ck_assert(checkpoint_fits(&store, 1));
    ck_assert(!checkpoint_fits(&store, INT64_MAX));
}
END_TEST

START_TEST(an_empty_folder_has_no_checkpoint)
{
    struct checkpoint c;
    struct error err = {0};
    ck_assert_int_eq(checkpoint_find(a, dir, &c, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "no checkpoint in"));
    ck_assert_int_eq(checkpoint_find(a, "/nowhere/at/all", &c, &err), ERR_INPUT);
}
END_TEST

Suite *checkpoint_suite(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *c = tcase_create("checkpoint");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, what_was_saved_is_loaded_bit_for_bit);
    tcase_add_test(c, the_newest_two_generations_stay);
    tcase_add_test(c, a_death_between_any_two_writes_leaves_the_old_generation);
    tcase_add_loop_test(c, damage_is_seen_and_the_generation_before_is_taken, 0, DAMAGES);
    tcase_add_test(c, a_tensor_that_does_not_fit_is_named);
    tcase_add_test(c, a_full_disk_leaves_the_old_generation_and_names_the_file);
    tcase_add_test(c, two_runs_do_not_save_into_one_folder);
    tcase_add_test(c, a_folder_that_a_run_made_goes_with_it_where_it_is_empty);
    tcase_add_loop_test(c, links_are_removed_and_never_followed, 0, 2);
    tcase_add_test(c, what_is_no_folder_is_no_generation_and_stays);
    tcase_add_test(c, a_generation_under_the_name_of_another_step_is_not_taken);
    tcase_add_test(c, a_data_file_may_be_a_link);
    tcase_add_test(c, a_damaged_generation_is_not_among_those_kept);
    tcase_add_test(c, generations_of_another_run_stay_until_two_newer_are_written);
    tcase_add_test(c, however_runs_end_a_whole_generation_is_left);
    tcase_add_test(c, room_is_looked_for);
    tcase_add_test(c, an_empty_folder_has_no_checkpoint);
    suite_add_tcase(suite, c);
    return suite;
}
