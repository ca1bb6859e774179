/* tests/programs/standin_race.c - two streams that share a number, with and without what orders them.
 *
 * usage: standin_race CASE...     runs each; the thread sanitizer is what tells them apart (tests/cli/standin.sh)
 *   event        the reader waits for the writer's event           no-event       it does not
 *   early-event  it waits for an event recorded before the writing
 *   host         the host reads what a copy wrote, after a wait    no-wait        without
 *   asked        as no-wait, but something else is asked of the same stream in between: that orders nothing
 *   upload       the host writes before it asks for the copy       late-upload    and again before the copy is done
 */
#include "tests/standin/standin.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 12 };

static void good(cudaError_t e)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "standin_race: %s\n", cudaGetErrorString(e));
    exit(1);
}

struct bench {
    cudaStream_t writer, reader;
    cudaEvent_t event;
    void *device, *copy;
    volatile float *host; /* pinned */
};

static struct bench bench_make(void)
{
    struct bench b;
    void *p;
    good(cudaStreamCreateWithFlags(&b.writer, cudaStreamNonBlocking));
    good(cudaStreamCreateWithFlags(&b.reader, cudaStreamNonBlocking));
    good(cudaEventCreateWithFlags(&b.event, cudaEventDisableTiming));
    good(cudaMalloc(&b.device, N));
    good(cudaMalloc(&b.copy, N));
    good(cudaMallocHost(&p, N));
    b.host = p;
    return b;
}

static void bench_free(struct bench *b)
{
    good(cudaDeviceSynchronize());
    good(cudaFree(b->device));
    good(cudaFree(b->copy));
    good(cudaFreeHost((void *)(uintptr_t)b->host));
    good(cudaEventDestroy(b->event));
    good(cudaStreamDestroy(b->writer));
    good(cudaStreamDestroy(b->reader));
}

static void between_streams(struct bench *b, const char *name)
{
    if (!strcmp(name, "early-event")) good(cudaEventRecord(b->event, b->writer));
    good(cudaMemsetAsync(b->device, 0, N, b->writer));
    if (!strcmp(name, "event")) good(cudaEventRecord(b->event, b->writer));
    if (strcmp(name, "no-event")) good(cudaStreamWaitEvent(b->reader, b->event, 0));
    good(cudaMemcpyAsync(b->copy, b->device, N, cudaMemcpyDeviceToDevice, b->reader));
}

static void with_the_host(struct bench *b, const char *name)
{
    void *host = (void *)(uintptr_t)b->host;
    good(cudaMemsetAsync(b->device, 0, N, b->writer));
    good(cudaMemcpyAsync(host, b->device, N, cudaMemcpyDeviceToHost, b->writer));
    if (!strcmp(name, "asked")) good(cudaMemsetAsync(b->copy, 0, N, b->writer));
    if (!strcmp(name, "host")) good(cudaStreamSynchronize(b->writer));
    if (b->host[0] > 0) puts("more than was written");
}

static void up(struct bench *b, const char *name)
{
    b->host[0] = 1;
    good(cudaMemcpyAsync(b->device, (void *)(uintptr_t)b->host, N, cudaMemcpyHostToDevice,
                         b->writer));
    if (!strcmp(name, "late-upload")) b->host[0] = 2;
}

static const struct {
    const char *name;
    void (*run)(struct bench *b, const char *name);
} cases[] = {
    {"event", between_streams},
    {"no-event", between_streams},
    {"early-event", between_streams},
    {"host", with_the_host},
    {"no-wait", with_the_host},
    {"asked", with_the_host},
    {"upload", up},
    {"late-upload", up},
};

static bool run(const char *name)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name)) continue;
        struct bench b = bench_make();
        cases[i].run(&b, name);
        bench_free(&b);
        printf("%s: done\n", name);
        return true;
    }
    fprintf(stderr, "standin_race: no case '%s'; there are:", name);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) fprintf(stderr, " %s", cases[i].name);
    fputc('\n', stderr);
    return false;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!run(argv[i])) return 2;
    return argc < 2 ? 2 : 0;
}
