/* tests/support/small_teams.h - a small Llama and nodes of two host devices; what a search answers about them. */
#ifndef TESTS_SUPPORT_SMALL_TEAMS_H
#define TESTS_SUPPORT_SMALL_TEAMS_H

#include "core/base/arena.h"
#include "core/document/document.h"
#include "planner/search.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static void small_team_setup(void) { arena = arena_new(); }
static void small_team_teardown(void) { arena_free(arena); }

static struct node *small_team_parse(const char *name, const char *text)
{
    struct node *root = NULL;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, name, text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    return root;
}

static struct job small_team_job(int layers, int batch, const char *microbatch)
{
    struct job j;
    struct error err = {0};
    const char *text = arena_printf(
        arena,
        "version: 1\nmodel: {model_type: llama, hidden_size: 32, intermediate_size: 48, "
        "num_hidden_layers: %d, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 64, "
        "max_position_embeddings: 32, rms_norm_eps: 1e-5, tie_word_embeddings: false, "
        "hidden_act: silu}\nsequence_length: 16\nglobal_batch: %d\n%s",
        layers, batch, microbatch);
    ck_assert_msg(job_parse(arena, small_team_parse("job", text), ".", &j, &err) == OK, "%s",
                  err.text);
    return j;
}

/* Nodes of two equal GPUs; links inside of 1 GB/s, between of `between` MB/s. */
static struct cluster small_team(int nodes, const char *slowdowns, int between)
{
    struct cluster c;
    struct error err = {0};
    const char *text = "version: 1\nname: c\ndevice_types:\n";
    for (int i = 0; i < nodes; i++)
        text = arena_printf(arena, "%s  - {name: t%d, device: host, slowdown: %c, memory: 1 GiB}\n",
                            text, i, slowdowns[i]);
    text = arena_printf(arena, "%snodes:\n", text);
    for (int i = 0; i < nodes; i++)
        text = arena_printf(
            arena, "%s  - {name: n%d, host: localhost, devices: [{type: t%d, count: 2}]}\n", text,
            i, i);
    text = arena_printf(arena, "%slinks:\n", text);
    for (int i = 0; i < nodes; i++)
        for (int k = 0; k <= i; k++)
            text = k < i ? arena_printf(arena,
                                        "%s  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d "
                                        "MB/s, latency: 20 us}\n",
                                        text, k, i, k, i, between)
                         : arena_printf(arena,
                                        "%s  - {name: i%d, between: [n%d], bandwidth: 1 GB/s, "
                                        "latency: 5 us}\n",
                                        text, i, i);
    ck_assert_msg(cluster_parse(arena, small_team_parse("cluster", text), &c, &err) == OK, "%s",
                  err.text);
    return c;
}

static struct search_result small_team_search(const struct job *j, const struct cluster *c,
                                              const struct search_options *o)
{
    struct search_result r;
    struct error err = {0};
    struct profile *p = ARENA_ARRAY(arena, struct profile, 1);
    ck_assert_msg(profile_prior(arena, c, p, &err) == OK, "%s", err.text);
    ck_assert_msg(search_plans(arena, j, c, p, o, &r, &err) == OK, "%s", err.text);
    return r;
}

#endif
