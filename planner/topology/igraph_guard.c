/* igraph's handlers take no user pointer, so the last message is a file-scope variable under the same lock. */
#include "planner/topology/igraph_guard.h"

#include <igraph.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char reason[200];

static void on_error(const char *text, const char *file, int line, igraph_error_t code)
{
    (void)file, (void)line, (void)code;
    snprintf(reason, sizeof reason, "%s", text);
    IGRAPH_FINALLY_FREE();
}

/* Warnings concern arguments that igraph corrects (a negative zero, a solver's tolerance), so they are dropped. */
static void on_warning(const char *text, const char *file, int line)
{
    (void)text, (void)file, (void)line;
}

/* A failed assertion inside igraph is a bug like one of this program. */
static void on_fatal(const char *text, const char *file, int line)
{
    BUG("igraph, %s:%d: %s", file, line, text);
}

void igraph_guard_enter(void)
{
    pthread_mutex_lock(&lock);
    reason[0] = '\0';
    igraph_set_error_handler(on_error);
    igraph_set_warning_handler(on_warning);
    igraph_set_fatal_handler(on_fatal);
}

void igraph_guard_leave(void) { pthread_mutex_unlock(&lock); }

enum status igraph_guard(int code, const char *what, struct error *err)
{
    if (code == IGRAPH_SUCCESS) return OK;
    enum status status = code == IGRAPH_ENOMEM ? ERR_RESOURCE : ERR_INTERNAL;
    return error_set(err, status, "%s: igraph: %s", what, reason[0] ? reason : "no reason given");
}
