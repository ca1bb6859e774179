/* The libFuzzer program of `make fuzz`: FUZZ_FORMAT=NAME build-fuzz/tests/fuzz/fuzz [libFuzzer's options] [folders of inputs].
 * FUZZ_FORMAT=list prints the names of the formats. */
#include "tests/fuzz/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct fuzz_format *format;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("FUZZ_FORMAT");
    (void)argc, (void)argv;
    format = name ? fuzz_format_find(name) : NULL;
    if (!format) {
        for (const struct fuzz_format *f = fuzz_formats; f->name; f++) puts(f->name);
        exit(name && !strcmp(name, "list") ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    fuzz_format_prepare();
    atexit(fuzz_format_end);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_format_read(format, "input", data, n);
    return 0;
}
