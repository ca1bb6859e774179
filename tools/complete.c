#include "tools/complete.h"

#include "core/base/arena.h"
#include "core/plan/plan.h"
#include "tools/cmd.h"

#include <string.h>

struct line {
    struct arena *arena;
    int n;
    char **words;
    FILE *out;
};

static const char *current(const struct line *l) { return l->words[l->n - 1]; }

static bool begins_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* Prints a candidate if it begins with the typed text. */
static void offer(const struct line *l, const char *word, const char *meaning)
{
    if (!begins_with(word, current(l))) return;
    fprintf(l->out, "%s%s%.*s\n", word, meaning ? "\t" : "",
            meaning ? (int)strcspn(meaning, "\n") : 0, meaning ? meaning : "");
}

static void offer_verbs(const struct line *l)
{
    for (int i = 0; verbs[i]; i++) offer(l, verbs[i]->name, verbs[i]->summary);
}

static void offer_options(const struct line *l, const struct option *o)
{
    for (; o->name; o++)
        if (!option_is_argument(o)) offer(l, arena_printf(l->arena, "--%s", o->name), o->help);
}

/* The cluster of the first word that names a cluster or plan file. */
static bool find_cluster(const struct line *l, struct cluster *out)
{
    struct error err;
    for (int i = 1; i + 1 < l->n; i++) {
        struct node *root = NULL;
        struct plan p;
        if (*l->words[i] == '-' || !strchr(l->words[i], '.')) continue;
        if (document_read(l->arena, l->words[i], &root, &err) != OK) continue;
        if (cluster_parse(l->arena, root, out, &err) == OK) return true;
        if (plan_parse(l->arena, root, ".", &p, &err) != OK) continue;
        *out = p.cluster;
        return true;
    }
    return false;
}

/* Of a list only the item behind the last comma is completed. */
static void offer_devices(const struct line *l, bool devices)
{
    struct cluster c;
    const char *comma = strrchr(current(l), ',');
    int kept = comma ? (int)(comma + 1 - current(l)) : 0;
    if (!find_cluster(l, &c)) return;
    for (int32_t i = 0; i < c.n_nodes; i++)
        offer(l, arena_printf(l->arena, "%.*s%s", kept, current(l), c.nodes[i].name), "node");
    for (int32_t i = 0; devices && i < c.n_devices; i++)
        offer(l, arena_printf(l->arena, "%.*s%s", kept, current(l), c.devices[i].name),
              c.types[c.devices[i].type].name);
}

/* The value of an option or argument. */
static void offer_values(const struct line *l, const struct option *o)
{
    static const char *const files[] = {"CLUSTER", "CSV",  "DB",      "FILE", "JOB",
                                        "PATH",    "PLAN", "PROGRAM", NULL};
    const char *unit = option_is_argument(o) || !o->unit ? o->name : o->unit;
    if (o->choices) {
        for (int i = 0; o->choices[i]; i++) offer(l, o->choices[i], NULL);
        return;
    }
    if (!strcmp(unit, "DEVICE,...") || !strcmp(unit, "[NAME=]NODE"))
        offer_devices(l, *unit == 'D');
    else if (!strcmp(unit, "DIR"))
        fputs(":folders\n", l->out);
    else if (strstr(unit, "TRACE"))
        fputs(":files\n", l->out);
    for (int i = 0; files[i]; i++)
        if (!strcmp(unit, files[i])) fputs(":files\n", l->out);
}

/* The option of a word; NULL: not an option. */
static const struct option *option_of(const struct option *o, const char *word)
{
    for (; o->name; o++) {
        if (option_is_argument(o) || *word != '-') continue;
        if (word[1] == '-' ? !strcmp(word + 2, o->name) : o->letter && word[1] == o->letter) return o;
    }
    return NULL;
}

static bool takes_value(const struct option *o) { return o && o->type != OPTION_FLAG; }

static void offer_in_verb(const struct line *l, const struct verb *verb)
{
    const struct option *before = NULL;
    size_t arguments = 0;
    for (int i = 1; i + 1 < l->n; i++) {
        bool value = takes_value(before);
        before = NULL;
        if (value) continue;
        if (*l->words[i] != '-') arguments++;
        before = option_of(verb->options, l->words[i]);
        if (!before) before = option_of(options_common(), l->words[i]);
    }
    if (takes_value(before)) {
        offer_values(l, before);
        return;
    }
    if (*current(l) == '-') {
        offer_options(l, verb->options);
        offer_options(l, options_common());
        return;
    }
    for (const struct option *o = verb->options; o->name; o++) {
        if (!option_is_argument(o)) continue;
        if (arguments < option_most(o)) {
            offer_values(l, o);
            return;
        }
        arguments -= option_most(o);
    }
}

void complete(int n_words, char **words, FILE *out)
{
    const struct verb *verb = NULL;
    struct error err;
    struct line l = {arena_new(), n_words, words, out};
    if (n_words == 1) {
        offer_verbs(&l);
        offer(&l, "help", "help of a verb");
        offer(&l, "--help", "all verbs");
        offer(&l, "--version", NULL);
    } else if (n_words == 2 && !strcmp(words[0], "help")) {
        offer_verbs(&l);
    } else if (n_words > 1 && cmd_verb_find(words[0], &verb, &err) == OK) {
        offer_in_verb(&l, verb);
    }
    arena_free(l.arena);
}
