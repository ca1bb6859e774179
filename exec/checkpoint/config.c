#include "exec/checkpoint/config.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/model/model.h"

#include <string.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX ((size_t)1 << 26)

enum status checkpoint_config_read(struct arena *a, const char *folder, struct node **out, struct error *err)
{
    const char *path = arena_printf(a, "%s/config.json", folder);
    char *text;
    size_t n;
    *out = NULL;
    if (access(path, F_OK)) return OK;
    TRY(file_read(a, path, CONFIG_BYTES_MAX, &text, &n, err));
    size_t blank = strspn(text, " \t\r\n");
    if (blank >= n || text[blank] != '{') return error_set(err, ERR_INPUT, "%s: it is not a JSON object, which begins with {", path);
    TRY(document_parse(a, path, text, n, out, err));
    return node_is(*out, NODE_MAP, err);
}

static const char *text_of(struct arena *a, const struct node *n)
{
    if (!n || n->kind == NODE_NULL) return "none";
    if (n->kind == NODE_SCALAR) return n->text;
    const char *text = "";
    for (size_t i = 0; i < n->count; i++) {
        const struct node *x = n->members[i];
        text = arena_printf(a, "%s%s%s%s%s", text, i ? ", " : "", n->kind == NODE_MAP ? x->key : "", n->kind == NODE_MAP ? ": " : "", text_of(a, x));
    }
    return arena_printf(a, n->kind == NODE_MAP ? "{%s}" : "[%s]", text);
}

/* Whether a key changes what the weights compute. */
static bool counts(const char *key)
{
    static const char *const others[] = {"_name_or_path", "architectures", "attn_implementation", "initializer_range", "pad_token_id"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(key, others[i])) return false;
    return !strstr(key, "drop");
}

static bool warn_of(struct arena *a, const char *folder, const char *key, const struct node *theirs, const struct node *ours)
{
    const char *x = text_of(a, node_get(theirs, key)), *y = text_of(a, node_get(ours, key));
    if (!counts(key) || !strcmp(x, y)) return false;
    log_warn("'%s/config.json' has %s %s, the plan's model %s: the weights were trained with the former, and are trained on with the latter", folder, key, x, y);
    return true;
}

static enum status compare(struct arena *a, const char *folder, const char *config, struct error *err)
{
    struct node *read, *theirs, *ours;
    struct model m;
    TRY(checkpoint_config_read(a, folder, &read, err));
    if (!read) return OK;
    TRY(model_read(read, folder, &m, err));
    const char *canonical = model_config(a, &m);
    TRY(document_parse(a, "config.json", canonical, strlen(canonical), &theirs, err));
    TRY(document_parse(a, "config.json", config, strlen(config), &ours, err));
    if (warn_of(a, folder, "model_type", theirs, ours)) return OK; /* its keys are others */
    for (size_t i = 0; i < theirs->count; i++) (void)warn_of(a, folder, theirs->members[i]->key, theirs, ours);
    for (size_t i = 0; i < ours->count; i++)
        if (!node_get(theirs, ours->members[i]->key)) (void)warn_of(a, folder, ours->members[i]->key, theirs, ours);
    return OK;
}

void checkpoint_config_compare(struct arena *a, const char *folder, const char *config)
{
    struct error why;
    if (config && compare(a, folder, config, &why) != OK) log_warn("the model of '%s' is not compared with the plan's: %s", folder, why.text);
}
