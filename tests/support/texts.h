/* tests/support/texts.h - clusters and jobs of a suite from their text. */
#ifndef TESTS_SUPPORT_TEXTS_H
#define TESTS_SUPPORT_TEXTS_H

#include "core/cluster/cluster.h"
#include "core/document/document.h"
#include "core/model/job.h"
#include "profiles/team.h"

#include <check.h>
#include <string.h>

static inline struct node *texts_parse(struct arena *a, const char *text)
{
    struct node *root = NULL;
    struct error err = {0};
    ck_assert_msg(document_parse(a, "text", text, strlen(text), &root, &err) == OK, "%s", err.text);
    return root;
}

static inline struct cluster texts_cluster(struct arena *a, const char *text)
{
    struct cluster c;
    struct error err = {0};
    ck_assert_msg(cluster_parse(a, texts_parse(a, text), &c, &err) == OK, "%s", err.text);
    ck_assert_msg(team_complete(&c, &err) == OK, "%s", err.text);
    return c;
}

static inline struct job texts_job(struct arena *a, const char *text)
{
    struct job j;
    struct error err = {0};
    ck_assert_msg(job_parse(a, texts_parse(a, text), ".", &j, &err) == OK, "%s", err.text);
    return j;
}

#endif
