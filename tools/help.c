#include "tools/help.h"

#include "core/base/error.h"
#include "tools/wrap.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { COLUMN = 28 }; /* first column of an option's help text */

const char help_purpose[] =
    "Plans, simulates and runs the training of one model on a cluster of different GPUs.";

const struct help_code help_codes[] = {
    {OK, "success"},
    {ERR_INTERNAL, "internal error: a defect of musher"},
    {ERR_USAGE, "wrong command line or environment variable"},
    {ERR_INPUT, "invalid input file"},
    {ERR_INFEASIBLE, "no plan fits the devices, or none was found within --time-limit"},
    {ERR_TOLERANCE, "prediction error above the stated tolerance"},
    {ERR_RESOURCE, "missing resource: memory, disk, a file, a library"},
    {ERR_RANK, "a rank of a run failed; with a parameter server (ssp, asp) that goes on without a worker, the result is printed first"},
    {ERR_NO_DEVICE, "device not found"},
    {ERR_LIMIT, "a run ended at --min-devices or --max-lost; its newest checkpoint is in --save, and the same command with --continue goes on"},
    {ERR_INTERRUPTED, "interrupted by SIGINT, SIGTERM, SIGHUP or SIGUSR1"},
    {0}};

const char *help_head(const struct option *o, char *buffer, size_t size)
{
    char choices[128] = "", phase[8] = "";
    if (option_is_argument(o)) {
        snprintf(buffer, size, "%s", o->name);
        return buffer;
    }
    if (o->letter) snprintf(phase, sizeof phase, "-%c, ", o->letter);
    const char *unit = o->unit ? o->unit : "VALUE";
    if (o->type == OPTION_FLAG) unit = "";
    if (o->type == OPTION_CHOICE) {
        size_t used = 0;
        for (int i = 0; o->choices[i] && used < sizeof choices; i++)
            used += (size_t)snprintf(choices + used, sizeof choices - used, "%s%s", i ? "|" : "",
                                     o->choices[i]);
        unit = choices;
    }
    snprintf(buffer, size, "%s--%s%s%s", phase, o->name, *unit ? " " : "", unit);
    return buffer;
}

static void value_text(const struct option *o, const void *value, char *buffer, size_t size)
{
    *buffer = 0;
    if (o->type == OPTION_INT)
        snprintf(buffer, size, "default %" PRId64, *(const int64_t *)value);
    else if (o->type == OPTION_DOUBLE)
        snprintf(buffer, size, "default %g", *(const double *)value);
    else if (o->type == OPTION_CHOICE)
        snprintf(buffer, size, "default %s", o->choices[*(const int *)value]);
    else if (o->type == OPTION_TEXT && *(const char *const *)value)
        snprintf(buffer, size, "default %s", *(const char *const *)value);
    else if (o->type == OPTION_TEXTS)
        snprintf(buffer, size, "repeatable");
}

const char *help_preset(const struct option *o, const void *defaults, char *buffer, size_t size)
{
    *buffer = 0;
    if (o->required)
        snprintf(buffer, size, "required");
    else if (o->preset)
        snprintf(buffer, size, "default%s %s", isdigit((unsigned char)*o->preset) ? "" : ":",
                 o->preset);
    else if (defaults)
        value_text(o, (const char *)defaults + o->at, buffer, size);
    return buffer;
}

static void print_row(const struct option *o, const void *defaults, FILE *out)
{
    char head[200], preset[256], text[1600];
    help_head(o, head, sizeof head);
    help_preset(o, defaults, preset, sizeof preset);
    snprintf(text, sizeof text, "%s%s%s%s", o->help, *preset ? " (" : "", preset,
             *preset ? ")" : "");
    int indent = option_is_argument(o) || o->letter ? 2 : 6,
        at = fprintf(out, "%*s%s", indent, "", head);
    if (at > COLUMN - 2) at = fprintf(out, "\n") - 1;
    fprintf(out, "%*s", COLUMN - at, "");
    wrap_text(out, text, COLUMN, COLUMN, HELP_WIDTH);
    fputc('\n', out);
}

static void print_rows(const char *title, const struct option *o, const void *defaults,
                       bool arguments, FILE *out)
{
    bool titled = false;
    for (; o->name; o++) {
        if (option_is_argument(o) != arguments) continue;
        if (!titled) fprintf(out, "\n%s:\n", title);
        titled = true;
        print_row(o, defaults, out);
    }
}

void help_arguments(const struct verb *verb, FILE *out)
{
    fputs("[options]", out);
    for (const struct option *o = verb->options; o->name; o++)
        if (option_is_argument(o))
            fprintf(out, option_least(o) ? " %s%s" : " [%s%s]", o->name,
                    option_most(o) > 1 ? "..." : "");
}

void help_verb(const struct verb *verb, FILE *out)
{
    static const struct common common;
    fprintf(out, "usage: %s%s ", verb->program ? verb->program : "musher ",
            verb->program ? "" : verb->name);
    help_arguments(verb, out);
    fprintf(out, "\n\n");
    wrap_text(out, verb->summary, 0, 0, HELP_WIDTH);
    if (verb->about) fputs("\n\n", out), wrap_text(out, verb->about, 0, 0, HELP_WIDTH);
    fputc('\n', out);
    print_rows("arguments", verb->options, verb->defaults, true, out);
    print_rows("options", verb->options, verb->defaults, false, out);
    print_rows("options of every verb", options_common(), &common, false, out);
    fputs("\nexamples:\n", out);
    for (int i = 0; verb->examples[i]; i++) fprintf(out, "  %s\n", verb->examples[i]);
}
