/* tools/main.c - finds the verb, and turns its failure into a line and an exit code.
 *
 * setlocale is never called: numbers are read and written the same everywhere. A reader that goes
 * away (SIGPIPE) ends the program quietly; SIGINT and SIGTERM leave no temporary file behind.
 */
#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/version.h"
#include "exec/comm.h"
#include "exec/launch.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"
#include "tools/screen.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct verb {
    const char *name, *help;
    enum status (*run)(int argc, char **argv, struct error *err);
} verbs[] = {
#define X(name, help) {#name, help, cmd_##name},
    VERBS(X)
#undef X
};

#define N_VERBS (sizeof verbs / sizeof *verbs)

static void print_settings(FILE *out)
{
    fputs("\nEnvironment (what holds without it):\n", out);
    for (const struct setting *s = settings; s->name; s++)
        fprintf(out, "  %s=%s\n      %s\n", s->name, s->values, s->help);
}

static void print_usage(FILE *out)
{
    fputs(
        "usage: musher VERB [options] [arguments]\n\n"
        "Plans, simulates and runs the training of one model on a mixed team of GPUs.\n\nverbs:\n",
        out);
    for (size_t i = 0; i < N_VERBS; i++) fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].help);
    fputs("\n'musher VERB --help' tells more. Exit codes: 0 done, 1 internal, 2 usage, 3 input,\n"
          "4 no plan fits, 5 tolerance exceeded, 6 resources, 7 a rank failed, 8 no such device,\n"
          "130 interrupted.\n",
          out);
    print_settings(out);
}

/* A variable that is nearly one of ours is a slip. */
static void warn_of_slips(void)
{
    const char *names[32] = {0};
    for (size_t i = 0; settings[i].name && i < 31; i++) names[i] = settings[i].name;
    for (char **e = environ; *e; e++) {
        char name[64] = "";
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "MUSHER_", 7) || n >= sizeof name) continue;
        memcpy(name, *e, n);
        const char *near = options_nearest(name, names);
        if (near && strcmp(near, name))
            log_warn("environment variable %s is none of ours; is %s meant?", name, near);
    }
}

static enum status find_verb(const char *name, const struct verb **out, struct error *err)
{
    const char *names[N_VERBS + 1] = {0};
    for (size_t i = 0; i < N_VERBS; i++) {
        names[i] = verbs[i].name;
        if (strcmp(verbs[i].name, name)) continue;
        *out = &verbs[i];
        return OK;
    }
    const char *near = options_nearest(name, names);
    if (near) return error_set(err, ERR_USAGE, "unknown verb '%s'; did you mean '%s'?", name, near);
    return error_set(err, ERR_USAGE, "unknown verb '%s'; 'musher --help' lists them", name);
}

static bool asks_for_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--json")) return true;
    return false;
}

static void print_error_json(enum status code, const char *message)
{
    struct json j;
    json_begin(&j, stdout, JSON_LINE);
    json_put_object(&j, NULL);
    json_put_int(&j, "schema", 1);
    json_put_object(&j, "error");
    json_put_int(&j, "code", code);
    json_put_text(&j, "message", message);
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

/* For the signal handler. silent: whoever started this rank tells how the run ended, and a rank that is told to end because
 * another one failed was not interrupted. */
static bool wants_json, silent;

static void on_signal(int number)
{
    static const char line[] = "musher: interrupted\n";
    static const char object[] =
        "{\"schema\":1,\"error\":{\"code\":130,\"message\":\"interrupted\"}}\n";
    (void)number;
    file_remove_temporaries();
    if (silent) _exit(ERR_INTERRUPTED);
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0) _exit(ERR_INTERRUPTED);
    if (wants_json && !common_json_printed() && write(STDOUT_FILENO, object, sizeof object - 1) < 0)
        _exit(ERR_INTERRUPTED);
    _exit(ERR_INTERRUPTED);
}

static void prepare(void)
{
    screen_open();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of write, not a death */
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    arena_on_exhaustion(file_remove_temporaries);
}

/* Data that did not reach its reader (a full disk behind stdout) is a failure like any other. */
static enum status flush_data(enum status status, struct error *err)
{
    errno = 0;
    if (screen_flush()) return status;
    if (status != OK) return status;
    return error_set(err, ERR_RESOURCE, "cannot write standard output: %s",
                     errno ? strerror(errno) : "an earlier write failed");
}

static int run_verb(int argc, char **argv)
{
    struct error err = {0};
    const struct verb *verb = NULL;
    prepare();
    wants_json = asks_for_json(argc, argv);
    silent = launch_is_ours();
    if (argc < 2) {
        print_usage(stderr);
        return ERR_USAGE;
    }
    const char *first = argv[1];
    char help[] = "--help", *help_of[] = {argc > 2 ? argv[2] : NULL, help, NULL};
    enum status status = OK;
    if (!strcmp(first, "--version"))
        printf("musher %s\n", MUSHER_VERSION);
    else if (!strcmp(first, "--help") || !strcmp(first, "-h") ||
             (!strcmp(first, "help") && argc < 3))
        print_usage(stdout);
    else if (!strcmp(first, "help")) {
        status = find_verb(argv[2], &verb, &err);
        if (status == OK) status = verb->run(2, help_of, &err);
    } else {
        status = find_verb(first, &verb, &err);
        if (!silent && !launch_rank()) warn_of_slips();
        if (status == OK) status = settings_check(&err);
        if (status == OK) status = verb->run(argc - 1, argv + 1, &err);
    }
    status = flush_data(status, &err);
    log_progress_end();
    if (status == OK) return OK;
    if (launch_report(&err)) return status;
    if (asks_for_json(argc, argv) && !common_json_printed()) print_error_json(status, err.text);
    log_error("%s", err.text);
    return status;
}

int main(int argc, char **argv) { return comm_end(run_verb(argc, argv)); }
