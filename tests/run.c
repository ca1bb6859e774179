/* tests/run.c - runs every suite, or those named on the command line.
 *
 * Last line: "N passed, N failed". CK_RUN_SUITE and the other variables of Check work; `--list`
 * names the suites. Each test has a process and a time limit of its own (CK_DEFAULT_TIMEOUT).
 */
#include "tests/support/suites.h"

#include <stdio.h>

/* A limit only ends a test that hangs: on a busy machine each may take many times its own few seconds. */
#define TIMEOUT_S 600

#define X(name) Suite *name##_suite(void);
#include "suites.inc"
#undef X

static const struct {
    const char *name;
    Suite *(*make)(void);
} suites[] = {
#define X(name) {#name, name##_suite},
#include "suites.inc"
#undef X
};

#define N_SUITES (sizeof suites / sizeof *suites)

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name)) return true;
    return argc < 2;
}

static bool known(const char *name)
{
    for (size_t i = 0; i < N_SUITES; i++)
        if (!strcmp(suites[i].name, name)) return true;
    return false;
}

/* Where the test that ends by this signal was: the place of the last assertion that held. */
static void tell_place(int signal_number)
{
    if (suites_place.file) (_mark_point)(suites_place.file, suites_place.line);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (size_t i = 0; i < N_SUITES; i++) puts(suites[i].name);
        return EXIT_SUCCESS;
    }
    for (int i = 1; i < argc; i++)
        if (!known(argv[i])) {
            fprintf(stderr, "no suite '%s'; --list names them\n", argv[i]);
            return EXIT_FAILURE;
        }
    char limit[16];
    snprintf(limit, sizeof limit, "%d", TIMEOUT_S * TEST_SLOWDOWN);
    setenv("CK_DEFAULT_TIMEOUT", limit, 0);
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; TEST_SLOWDOWN == 1 && i < sizeof deadly / sizeof *deadly; i++) signal(deadly[i], tell_place); /* sanitizers report these */
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < N_SUITES; i++)
        if (wanted(suites[i].name, argc, argv)) srunner_add_suite(runner, suites[i].make());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    printf("%d passed, %d failed\n", run - failed, failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
