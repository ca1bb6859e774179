/* tools/main.c - runs the verb, and converts its failure to a message and an exit code.
 *
 * setlocale is never called, so that numbers are read and written the same everywhere. SIGPIPE (a closed reader) ends the
 * program without a message; SIGINT, SIGTERM and SIGHUP leave no temporary file behind.
 */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "core/base/sanitized.h"
#include "core/base/settings.h"
#include "core/base/temporary.h"
#include "core/base/version.h"
#include "core/document/json.h"
#include "exec/comm/comm.h"
#include "exec/comm/launch.h"
#include "exec/comm/launch_local.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/complete.h"
#include "tools/help.h"
#include "tools/screen.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_help(FILE *out)
{
    fprintf(out, "usage: musher VERB [options] [arguments]\n\n%s\n\nverbs:\n", help_purpose);
    for (int i = 0; verbs[i]; i++) fprintf(out, "  %-11s %s\n", verbs[i]->name, verbs[i]->summary);
    fputs("\n'musher VERB --help' shows arguments, options and examples of a verb.\n"
          "\nexit codes:\n",
          out);
    for (const struct help_code *c = help_codes; c->meaning; c++)
        fprintf(out, "  %3d  %s\n", c->code, c->meaning);
    fputs("\nEnvironment (default in parentheses):\n", out);
    for (const struct setting *s = settings; s->name; s++)
        fprintf(out, "  %s=%s\n      %s\n", s->name, s->values, s->help);
}

/* A variable close to one of ours is probably a typing error. */
static void warn_of_slips(void)
{
    const char *names[32] = {0};
    for (size_t i = 0; settings[i].name && i < 31; i++) names[i] = settings[i].name;
    for (char **e = environ; *e; e++) {
        char name[64] = "";
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "MUSHER_", 7) || n >= sizeof name) continue;
        memcpy(name, *e, n);
        const char *near = nearest_name(name, names);
        if (near && strcmp(near, name))
            log_warn("unknown environment variable %s; did you mean %s?", name, near);
    }
}

static bool json_requested(int argc, char **argv)
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

/* State for the signal handler. silent: the launcher of this rank reports the end of the run; a rank that is ended because another
 * one failed was not interrupted. A rank that this process has forked finds out by itself. */
static bool wants_json, silent;
static bool is_silent(void) { return silent || launch_local_rank() >= 0; }

/* Async-signal-safe: no allocation, and no lock that the interrupted program may hold. */
static void last_act(enum status code, const char *message)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    char object[200];
    temporary_remove_all();
    if (is_silent() || !wants_json || common_json_printed() || atomic_flag_test_and_set(&done)) return;
    int n =
        snprintf(object, sizeof object,
                 "{\"schema\":1,\"error\":{\"code\":%d,\"message\":\"%s\"}}\n", (int)code, message);
    if (write(STDOUT_FILENO, object, (size_t)n) < 0) _exit(code);
}

/* If musher launched this rank, the launcher prints the message and adds it to the object of --json. */
static void on_exhaustion(const char *message)
{
    struct error err;
    last_act(ERR_RESOURCE, message);
    if (!is_silent()) return;
    error_set(&err, ERR_RESOURCE, "rank %d: %s", (int)launch_rank(), message);
    launch_report_alone(&err);
    _exit(ERR_RESOURCE);
}

static void on_signal(int number)
{
    static const char line[] = "musher: interrupted\n";
    (void)number;
    last_act(ERR_INTERRUPTED, "interrupted");
    if (!is_silent() && write(STDERR_FILENO, line, sizeof line - 1) < 0) _exit(ERR_INTERRUPTED);
    _exit(ERR_INTERRUPTED);
}

/* Runs before the constructors of libraries, because BLAS allocates much memory in one of them. */
static void before_libraries(int argc, char **argv, char **environment)
{
    (void)environment;
    wants_json = json_requested(argc, argv);
    arena_on_exhaustion(on_exhaustion);
}
#if defined(__GLIBC__) && !SANITIZED_ADDRESS && !SANITIZED_THREAD
__attribute__((section(".preinit_array"),
               used)) static void (*const first_call)(int, char **, char **) = before_libraries;
#endif

static void prepare(int argc, char **argv)
{
    before_libraries(argc, argv, environ);
    silent = launch_is_ours();
    screen_open();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit becomes an error of write */
    common_on_end_signals(on_signal);
}

/* Output that was not written (a full disk behind stdout) is a failure like any other. */
static enum status flush_data(enum status status, struct error *err)
{
    enum status flushed = common_flush(status == OK ? err : NULL);
    return status != OK ? status : flushed;
}

static int run_verb(int argc, char **argv)
{
    struct error err = {0};
    const struct verb *verb = NULL;
    prepare(argc, argv);
    if (argc < 2) {
        print_help(stderr);
        return ERR_USAGE;
    }
    const char *first = argv[1];
    enum status status = OK;
    if (!strcmp(first, "--complete"))
        complete(argc - 2, argv + 2, stdout);
    else if (!strcmp(first, "--version"))
        printf("musher %s\n", MUSHER_VERSION);
    else if (!strcmp(first, "--help") || !strcmp(first, "-h") ||
             (!strcmp(first, "help") && argc < 3))
        print_help(stdout);
    else if (!strcmp(first, "help")) {
        status = cmd_verb_find(argv[2], &verb, &err);
        if (status == OK) help_verb(verb, stdout);
    } else {
        status = cmd_verb_find(first, &verb, &err);
        if (!silent && !launch_rank()) warn_of_slips();
        if (status == OK) status = settings_check(&err);
        if (status == OK) status = cmd_verb_run(verb, argc - 1, argv + 1, &err);
    }
    status = flush_data(status, &err);
    log_progress_end();
    if (status == OK) return OK;
    if (launch_report(&err)) return status;
    if (wants_json && !common_json_printed()) print_error_json(status, err.text);
    log_error("%s", err.text);
    return status;
}

int main(int argc, char **argv) { return comm_end(run_verb(argc, argv)); }
