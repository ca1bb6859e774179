#include "tools/launch/shell.h"

#include <inttypes.h>
#include <string.h>

void shell_word(FILE *out, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=,+@%";
    if (*text && strspn(text, plain) == strlen(text)) {
        fputs(text, out);
        return;
    }
    putc('\'', out);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else
            putc(*text, out);
    putc('\'', out);
}

void shell_text(FILE *out, const char *text, size_t n)
{
    putc('"', out);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\') putc('\\', out);
        putc(text[i], out);
    }
    putc('"', out);
}

void shell_env(FILE *out, const struct launch *l)
{
    fputs("export OPENBLAS_NUM_THREADS=\"${OPENBLAS_NUM_THREADS:-1}\" OMP_NUM_THREADS=\"${OMP_NUM_THREADS:-1}\"\n", out);
    for (size_t i = 0; i < l->q->env.count; i++) {
        const char *text = l->q->env.items[i];
        size_t n = strcspn(text, "=");
        fprintf(out, "export %.*s=", (int)n, text);
        shell_word(out, text + n + 1);
        putc('\n', out);
    }
}

void shell_run(FILE *out, const struct launch *l, bool any_host)
{
    const struct launch_request *q = l->q;
    fputs("run=(", out);
    shell_word(out, q->program);
    fputs(" run ", out);
    shell_word(out, l->plan_path);
    if (any_host) fputs(" --any-host", out);
    if (q->save) {
        fputs(" --save ", out);
        shell_word(out, q->save);
        fputs(" --continue", out);
    }
    for (size_t i = 0; i < q->run.count; i++) {
        putc(' ', out);
        shell_word(out, q->run.items[i]);
    }
    fputs(")\n", out);
}

void shell_mpirun(FILE *out, const struct launch *l)
{
    fprintf(out, "--hostfile \"$here/hosts\" --map-by seq --oversubscribe --bind-to none -np %" PRId32 " -x PATH -x OPENBLAS_NUM_THREADS -x OMP_NUM_THREADS",
            l->n_ranks);
    for (size_t i = 0; i < l->q->env.count; i++) fprintf(out, " -x %.*s", (int)strcspn(l->q->env.items[i], "="), l->q->env.items[i]);
}
