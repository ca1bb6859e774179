/* tests/programs/power_loss.c - every state in which a power loss may leave the files of a recorded run.
 *
 * power_loss checkpoints|profiles LOG ROOT BEFORE NAME WORK SEED DRAWS [data|folders]
 * LOG: of tests/preload/disk.c (DISK_LOG), of a run that wrote into the folder ROOT; BEFORE: a copy of ROOT from before the run; NAME: in ROOT, the
 * folder of checkpoints or the profile database; WORK: the folder in which states are made.
 *
 * After each operation of the log each state of tests/support/disk_model.h is made, and DRAWS that a generator of SEED draws.
 * Checkpoints: checkpoint_find has to find a generation that the run has published, with its bytes, and not before the last one that the run has
 * reported. Profiles: the database has to open, and its rows have to be those before the run or those after it, which it has
 * to be from the run's report on.
 * data, folders: the log's syncs of files, or of folders, are left out, as if the program did not have them; a run has to fail then.
 * Prints "N operations, N different states, N lost"; a state is lost once behind each operation where it is possible. Exit code 1 if states are lost.
 */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/hash_map.h"
#include "core/base/log.h"
#include "exec/checkpoint/checkpoint.h"
#include "profiles/store.h"

#include "tests/support/disk_model.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN = 5, GARBAGE = -2, NOTHING = -1, BYTES_MAX = 1 << 30 };

static struct arena *all, *scratch;

static void broken(const char *what, const char *about)
{
    fprintf(stderr, "power_loss: %s: %s\n", what, about);
    exit(2);
}

/* ---- what a run has published and reported ---------------------------------------------------- */

static bool of_profiles;
static const char *root, *name, *work;

static struct published {
    int64_t number;      /* step, or number of profiles */
    struct disk_names files;  /* of a generation */
    uint64_t rows;       /* of a database */
} *published;
static size_t n_published, published_capacity;
static int64_t reported = NOTHING;

static void publish(int64_t number, const struct disk_names *files, uint64_t rows)
{
    published = arena_grow(all, published, n_published, &published_capacity, sizeof *published);
    published[n_published++] = (struct published){number, disk_model_names(all, files), rows};
}

/* A folder that gets the name of a generation. */
static void see_name(int32_t folder, const char *last, int32_t node)
{
    if (of_profiles || node < 0 || strncmp(last, "step-", 5)) return;
    if (folder == disk_model_at(arena_printf(all, "%s/%s", root, name))) publish(strtoll(last + 5, NULL, 10), &disk_model_object(node)->named, 0);
}

static void see_text(const char *text)
{
    const char *begin = of_profiles ? "profile " : "checkpoint of step ", *at = strstr(text, begin);
    if (!at || (!of_profiles && !strstr(at, " in '"))) return;
    int64_t number = strtoll(at + strlen(begin), NULL, 10);
    if (number > reported) reported = number;
}

static struct disk_made *made;
static size_t n_made;

static uint64_t made_hash(void)
{
    uint64_t h = 1;
    for (size_t i = 0; i < n_made; i++) {
        h = hash_map_key(h + made[i].folder, made[i].path, strlen(made[i].path) + 1);
        h = hash_map_key(h, made[i].data.data ? made[i].data.data : "", made[i].data.n);
    }
    return h ? h : 1;
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *at)
{
    (void)about, (void)type, (void)at;
    return remove(path);
}

static void write_made(void)
{
    nftw(work, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < n_made; i++) {
        const struct disk_made *m = &made[i];
        int fd = m->folder ? mkdir(m->path, 0777) : open(m->path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || (!m->folder && m->data.n && write(fd, m->data.data, m->data.n) != (ssize_t)m->data.n)) broken("cannot write", m->path);
        if (!m->folder) close(fd);
    }
}

/* ---- what a reader finds in it ---------------------------------------------------------------- */

static bool same_generation(const struct published *p, const char *folder)
{
    for (size_t i = 0; i < p->files.n; i++) {
        const struct disk_name *x = &p->files.at[i];
        struct disk_bytes b;
        if (x->object < 0) continue;
        if (file_read(scratch, arena_printf(scratch, "%s/%s", folder, x->name), BYTES_MAX, &b.data, &b.n, NULL) != OK) return false;
        const struct disk_bytes *now = &disk_model_object(x->object)->now;
        if (b.n != now->n || memcmp(b.data, now->data, b.n)) return false;
    }
    return true;
}

static int64_t find_checkpoint(void)
{
    struct checkpoint c;
    const char *dir = arena_printf(scratch, "%s/%s", work, name);
    if (checkpoint_find(scratch, dir, &c, NULL) != OK) return NOTHING;
    for (size_t i = n_published; i-- > 0;)
        if (published[i].number == c.step && same_generation(&published[i], c.folder)) return c.step;
    return GARBAGE;
}

/* Of all rows of all tables; 0: the database cannot be read. */
static uint64_t hash_rows(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *tables = NULL, *rows = NULL;
    uint64_t h = 1;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_prepare_v2(db, "select name from sqlite_schema where type = 'table' order by name", -1, &tables, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(tables)) == SQLITE_ROW) {
        const char *sql = arena_printf(scratch, "select * from \"%s\" order by rowid", (const char *)sqlite3_column_text(tables, 0));
        if (sqlite3_prepare_v2(db, sql, -1, &rows, NULL) != SQLITE_OK) sql = "";
        while (*sql && sqlite3_step(rows) == SQLITE_ROW)
            for (int i = 0; i < sqlite3_column_count(rows); i++) {
                const char *text = (const char *)sqlite3_column_text(rows, i);
                h = hash_map_key(h, text ? text : "", text ? strlen(text) + 1 : 1);
            }
        sqlite3_finalize(rows);
        rc = *sql ? SQLITE_OK : SQLITE_ERROR;
    }
    sqlite3_finalize(tables);
    sqlite3_close(db);
    return rc == SQLITE_DONE ? h : 0;
}

static int64_t count_profiles(const char *path)
{
    struct store *s;
    struct profile p;
    int64_t n = 0;
    struct stat about;
    bool opened = !access(path, F_OK) && store_open(scratch, path, false, &s, NULL) == OK;
    /* A file of no bytes is no database yet (store.h); it is also what remains of an unfinished one, when that is rolled back. */
    if (!opened) return stat(path, &about) || !about.st_size ? 0 : GARBAGE;
    while (store_load(s, scratch, n + 1, &p, NULL) == OK) n++;
    store_close(s);
    return n;
}

static int64_t find_profiles(void)
{
    const char *path = arena_printf(scratch, "%s/%s", work, name);
    int64_t n = count_profiles(path);
    for (size_t i = 0; n > 0 && i < n_published; i++)
        if (published[i].number == n) return hash_rows(path) == published[i].rows ? n : GARBAGE;
    return n;
}

static struct hash_map seen;
static size_t n_states, n_lost, n_operations;

static void look(const char *operation, enum disk_state mode)
{
    arena_reset(scratch);
    made = disk_model_state(scratch, work, mode, &n_made);
    struct hash_entry *e = hash_map_at(&seen, made_hash());
    if (!e->number) {
        write_made();
        e->number = 100 + (of_profiles ? find_profiles() : find_checkpoint());
        n_states++;
    }
    int64_t found = e->number - 100;
    if (found != GARBAGE && found >= reported) return;
    if (n_lost++ < SHOWN)
        fprintf(stderr, "power loss behind operation %zu (%s), state %d: %s %" PRId64 ", reported: %" PRId64 "\n", n_operations, operation,
                (int)mode, found == GARBAGE ? "garbage" : "found", found, reported);
}

/* Every state behind the operation. */
static void look_all(const char *operation, int draws_each)
{
    n_operations++;
    for (int mode = DISK_OLD; mode < DISK_DRAWN + draws_each; mode++) look(operation, mode < DISK_DRAWN ? (enum disk_state)mode : DISK_DRAWN);
}

/* The generations or profiles before the run, which are reported ones, and the profiles after it. */
static void see_before(const char *before)
{
    const char *path = arena_printf(all, "%s/%s", before, name);
    int32_t node = disk_model_at(arena_printf(all, "%s/%s", root, name));
    if (of_profiles) {
        int64_t n[2] = {count_profiles(path), count_profiles(arena_printf(all, "%s/%s", root, name))};
        if (n[0] == GARBAGE || n[1] <= n[0]) broken("the run has written no profile", root);
        if (n[0]) publish(n[0], &(struct disk_names){0}, hash_rows(path));
        publish(n[1], &(struct disk_names){0}, hash_rows(arena_printf(all, "%s/%s", root, name)));
        reported = n[0];
        return;
    }
    const struct disk_names *before_run = node < 0 ? NULL : &disk_model_object(node)->named;
    for (size_t i = 0; before_run && i < before_run->n; i++) {
        const struct disk_name *x = &before_run->at[i];
        struct checkpoint c;
        if (checkpoint_open(scratch, arena_printf(scratch, "%s/%s", path, x->name), true, &c, NULL) == OK) see_name(node, x->name, x->object);
    }
    for (size_t i = 0; i < n_published; i++)
        if (published[i].number > reported) reported = published[i].number;
}

int main(int argc, char **argv)
{
    static const char *const operations[] = {"create", "write", "truncate", "sync", "rename", "exchange", "link", "unlink", "mkdir", "rmdir", "report"};
    char *log;
    size_t n;
    struct error err;
    if (argc < 9) broken("usage", "power_loss checkpoints|profiles LOG ROOT BEFORE NAME WORK SEED DRAWS [data|folders]");
    all = arena_new(), scratch = arena_new();
    seen.arena = all;
    log_set_level(LOG_LEVEL_ERROR);
    of_profiles = !strcmp(argv[1], "profiles");
    int draws_each = (int)strtol(argv[8], NULL, 10);
    if (file_read(all, argv[2], BYTES_MAX, &log, &n, &err) != OK) broken("cannot read the log", err.text);
    root = argv[3], name = argv[5], work = argv[6];
    disk_model_open(all, root, argv[4], strtoull(argv[7], NULL, 10));
    see_before(argv[4]);
    for (size_t at = 0; at < n;) {
        struct disk_record r;
        memcpy(&r, log + at, sizeof r);
        at += sizeof r;
        const char *first = arena_strndup(all, log + at, r.first), *second = arena_strndup(all, log + at + r.first, r.second);
        at += r.first + r.second;
        const char *data = arena_strndup(all, log + at, r.data), *last;
        at += r.data;
        disk_model_apply(&r, first, second, data, argc > 9 ? argv[9] : "");
        if (r.operation == DISK_TOLD) see_text(data);
        if (r.operation == DISK_RENAME || r.operation == DISK_EXCHANGE) {
            int32_t folder = disk_model_folder(second, &last);
            if (folder >= 0) see_name(folder, last, disk_model_at(second));
        }
        look_all(operations[r.operation], draws_each);
    }
    if (reported == NOTHING || n_operations == 0) broken("the run has reported nothing", argv[2]);
    printf("%zu operations, %zu different states, %zu lost\n", n_operations, n_states, n_lost);
    return n_lost > 0;
}
