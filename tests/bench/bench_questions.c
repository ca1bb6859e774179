/* tests/bench/bench_questions.c - questions to the planner: models of 1 to 405 billion parameters, dense and with experts, on 8 to
 * 102,400 GPUs of one to six types. CPU time, memory, plan and gap of each, in a process of its own. */
#include "core/base/arena.h"
#include "planner/search.h"
#include "profiles/team.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void bench_questions(void);

#define FOLDER "tests/bench/questions/"

static const struct question {
    const char *job, *cluster;
} questions[] = {
    {"gpt-1.5b", "a4-v4"},    {"llama-8b-4k", "h8-a8"},       {"qwen2-7b-8k", "h8-b16-v16"},
    {"mistral-7b-4k", "g48"}, {"mistral-7b-4k", "l40s-48"},   {"mixtral-4k", "a32-v32"},
    {"llama-8b-128k", "h32"}, {"qwen2-7b-8k", "a32-v32"},     {"llama-70b-4k", "h256-a256"},
    {"llama-70b-4k", "h32"},  {"llama-405b-8k", "h512-a512"}, {"gpt-175b", "four-4096"},
    {"gpt-175b-131072", "six-102400"}};

static enum status ask(struct arena *a, const struct question *q, struct search_result *r,
                       struct error *err)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_options o = {.top = 1};
    TRY(job_read(a, arena_printf(a, FOLDER "%s.yaml", q->job), &job, err));
    TRY(cluster_read(a, arena_printf(a, FOLDER "%s.yaml", q->cluster), &cluster, err));
    TRY(team_complete(&cluster, err));
    TRY(profile_prior(a, &cluster, &profile, err));
    return search_plans(a, &job, &cluster, &profile, &o, r, err);
}

/* In a child, so that its memory is counted alone. */
static int answer(const struct question *q)
{
    struct search_result r;
    struct error err = {0};
    struct rusage used;
    char name[64];
    enum status st = ask(arena_new(), q, &r, &err);
    snprintf(name, sizeof name, "%s_%s", q->job, q->cluster);
    if (st != OK) {
        fprintf(stderr, "bench: %s: %s\n", name, err.text);
        return st;
    }
    getrusage(RUSAGE_SELF, &used);
    double cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    printf("bench plan_seconds_%s %.3g cpu_s\n", name, cpu_s);
    printf("bench plan_memory_%s %.3g MB\n", name, (double)used.ru_maxrss * 1024e-6);
    printf("bench plan_iteration_%s %.6g s\n", name, (double)r.plans[0].iteration_ns * 1e-9);
    printf("bench plan_gap_%s %.4g ratio\n", name, r.gap);
    fflush(stdout);
    return 0;
}

void bench_questions(void)
{
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        fflush(stdout);
        pid_t child = fork();
        int how = 0;
        if (child < 0) return perror("bench: fork");
        if (!child) _exit(answer(&questions[i]));
        waitpid(child, &how, 0);
        if (!WIFEXITED(how) || WEXITSTATUS(how))
            fprintf(stderr, "bench: question %zu ended with %d\n", i + 1, how);
    }
}
