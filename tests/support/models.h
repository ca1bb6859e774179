/* tests/support/models.h - models from tests/data/models or from text, and their graphs, for one suite's arena and error. */
#ifndef TESTS_SUPPORT_MODELS_H
#define TESTS_SUPPORT_MODELS_H

#include "core/base/arena.h"
#include "core/model/model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct arena *arena;
static struct error err;

static inline void models_setup(void) { arena = arena_new(); }
static inline void models_teardown(void) { arena_free(arena); }

static inline enum status models_read_file(const char *name, struct model *m)
{
    char path[128];
    struct node *config;
    snprintf(path, sizeof path, "tests/data/models/%s.json", name);
    enum status status = document_read(arena, path, &config, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    return model_read(config, arena_strdup(arena, name), m, &err);
}

static inline enum status models_read_text(const char *text, struct model *m)
{
    struct node *config;
    enum status status = document_parse(arena, "config", text, strlen(text), &config, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    return model_read(config, "config", m, &err);
}

static inline struct model model(const char *name)
{
    struct model m;
    ck_assert_msg(models_read_file(name, &m) == OK, "%s", err.text);
    return m;
}

static inline struct graph *models_graph(const char *name, int64_t microbatch, int64_t length)
{
    struct model m = model(name);
    struct graph *g;
    enum status status = model_graph(arena, &m, DTYPE_fp32, microbatch, length, &g, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    graph_find_layers(g);
    return g;
}

#endif
