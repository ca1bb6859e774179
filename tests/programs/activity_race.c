/* tests/programs/activity_race.c - two threads ask for copies while CUPTI's buffers come and go on a third: everything comes back under
 * its number, and nothing of the plugin is a race or an address that is gone.
 *
 * Built a second time, with the CUPTI plugin's sources inside and a sanitizer, by tests/cli/standin.sh; as `make` builds it, it has
 * no plugin and says so.
 */
#include "exec/activity.h"
#include "tests/standin/standin.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 64, COPIES = 300, THREADS = 2, TURNS = 3 };

extern activity_entry musher_activity __attribute__((weak));

static void good(enum status st, const struct error *err)
{
    if (st == OK) return;
    fprintf(stderr, "activity_race: %s\n", err->text);
    exit(1);
}

static void done(cudaError_t e)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "activity_race: %s\n", cudaGetErrorString(e));
    exit(1);
}

struct asking {
    pthread_t thread;
    const struct activity *activity;
    uint64_t first; /* number of its first copy */
    cudaStream_t stream;
    void *from, *to;
};

/* By the first thread: the stand-in bears nobody who destroys a stream while another frees memory. */
static void make(struct asking *x)
{
    done(cudaStreamCreateWithFlags(&x->stream, cudaStreamNonBlocking));
    done(cudaMalloc(&x->from, BYTES));
    done(cudaMalloc(&x->to, BYTES));
}

static void take_back(const struct asking *x)
{
    done(cudaFree(x->from));
    done(cudaFree(x->to));
    done(cudaStreamDestroy(x->stream));
}

static void *ask(void *p)
{
    const struct asking *x = p;
    struct error err;
    done(cudaMemsetAsync(x->from, 0, BYTES, x->stream));
    for (uint64_t i = 0; i < COPIES; i++) {
        good(x->activity->enter(x->first + i, &err), &err);
        done(cudaMemcpyAsync(x->to, x->from, BYTES, cudaMemcpyDeviceToDevice, x->stream));
        good(x->activity->leave(&err), &err);
    }
    done(cudaStreamSynchronize(x->stream));
    return NULL;
}

static bool each_once(const struct activity_log *log)
{
    int seen[THREADS * COPIES + 1] = {0};
    for (size_t i = 0; i < log->n; i++)
        if (log->records[i].under <= THREADS * COPIES) seen[log->records[i].under]++;
    for (int i = 1; i <= THREADS * COPIES; i++)
        if (seen[i] != 1) return false;
    return seen[0] == THREADS && log->lost == 0; /* fills */
}

static bool session(const struct activity *a)
{
    struct asking x[THREADS];
    struct activity_log log;
    struct error err;
    good(a->open(&err), &err);
    for (int i = 0; i < THREADS; i++) {
        x[i] = (struct asking){.activity = a, .first = 1 + (uint64_t)i * COPIES};
        make(&x[i]);
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&x[i].thread, NULL, ask, &x[i])) exit(1);
    for (int i = 0; i < THREADS; i++) pthread_join(x[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) take_back(&x[i]);
    good(a->collect(&log, &err), &err);
    bool whole = each_once(&log);
    a->close();
    return whole;
}

int main(void)
{
    if (!musher_activity) {
        fprintf(stderr, "activity_race: built without the CUPTI plugin\n");
        return 2;
    }
    for (int i = 0; i < TURNS; i++)
        if (!session(musher_activity())) {
            fprintf(stderr, "activity_race: not every copy came back once\n");
            return 1;
        }
    puts("every copy came back once");
    return 0;
}
