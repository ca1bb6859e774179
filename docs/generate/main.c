/* usage: build/docs/generate FOLDER - writes the files of docs/reference to FOLDER. From the root of the tree. */
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "docs/generate/generate.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*write)(struct arena *a, FILE *out);
} files[] = {{"commands.md", generate_commands},
             {"formats.md", generate_formats},
             {"metrics.md", generate_metrics},
             {"operators.md", generate_operators},
             {"devices.md", generate_devices},
             {"musher.1", generate_man}};

static void fail(const struct error *err)
{
    fprintf(stderr, "generate: %s\n", err->text);
    exit(1);
}

const char *generate_source_text(struct arena *a, const char *path)
{
    struct error err;
    char *text = NULL;
    if (file_read(a, path, 1 << 22, &text, NULL, &err) != OK) fail(&err);
    return text;
}

void generate_cell(const char *text, FILE *out)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\n')
            fputs("<br>", out);
        else if (*c == '|' || *c == '*' || *c == '<')
            fprintf(out, "\\%c", *c);
        else
            fputc(*c, out);
    }
}

int main(int argc, char **argv)
{
    struct error err;
    struct arena *a = arena_new();
    if (argc != 2) {
        fputs("usage: generate FOLDER\n", stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct file f = {0};
        if (file_open(&f, arena_printf(a, "%s/%s", argv[1], files[i].name), &err) != OK) fail(&err);
        files[i].write(a, f.stream);
        if (file_commit(&f, &err) != OK) fail(&err);
    }
    arena_free(a);
    return 0;
}
