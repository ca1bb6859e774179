/* tests/standin/launches.c - kernels and host functions get onto their streams.
 *
 * A launch is refused where the real runtime refuses it: a grid or block of nothing or too much, more shared memory than
 * the kernel was allowed. (There a kernel's own __shared__ variables are counted when it is compiled, here as well.)
 * STANDIN_LAZY=1: the first launch of each kernel waits until the device is idle, which is what lazy loading may do there.
 */
#include "tests/standin/standin_launch.h"

#include "tests/standin/activity.h"
#include "tests/standin/internal.h"
#include "tests/standin/shared_memory.h"

#include <stdlib.h>
#include <string.h>

struct function_work {
    struct work w;
    cudaHostFn_t function;
    void *argument;
};

static void run_function(struct work *w)
{
    struct function_work *f = (struct function_work *)w;
    standin_in_host_function(true);
    f->function(f->argument);
    standin_in_host_function(false);
}

/* --- shared memory that a kernel may have --- */

static struct {
    struct {
        const void *function;
        int bytes;
    } of[512];
    int n;
} allowed; /* under the books */

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    ENTER();
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > standin_shared_max(standin_device()))
        return standin_leave(cudaErrorInvalidValue);
    books_open();
    int i = 0;
    while (i < allowed.n && allowed.of[i].function != function) i++;
    if (i == (int)(sizeof allowed.of / sizeof *allowed.of)) abort();
    if (i == allowed.n) allowed.n++;
    allowed.of[i].function = function;
    allowed.of[i].bytes = value;
    books_close();
    return cudaSuccess;
}

size_t standin_shared_limit(const void *function)
{
    size_t bytes = 49152;
    books_open();
    for (int i = 0; i < allowed.n; i++)
        if (allowed.of[i].function == function && (size_t)allowed.of[i].bytes > bytes)
            bytes = (size_t)allowed.of[i].bytes;
    books_close();
    return bytes;
}

/* --- streams --- */

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    ENTER();
    cudaStream_t s;
    cudaError_t e = stream_find(stream, false, &s);
    if (e == cudaSuccess && !function) e = cudaErrorInvalidValue;
    if (e != cudaSuccess) return standin_leave(e);
    struct function_work *f = work_new(sizeof *f, run_function);
    f->function = function;
    f->argument = argument;
    stream_push(s, &f->w);
    return cudaSuccess;
}

struct kernel_work {
    struct work w;
    struct standin_kernel k;
    int device;
    void (*drop)(void *arguments);
};

static void run_kernel(struct work *w)
{
    struct kernel_work *k = (struct kernel_work *)w;
    int failed = standin_run(&k->k);
    if (failed) standin_lose(k->device, (cudaError_t)failed);
}

static void drop_kernel(struct work *w)
{
    struct kernel_work *k = (struct kernel_work *)w;
    k->drop(k->k.arguments);
}

static cudaError_t check_launch(const struct standin_kernel *k)
{
    struct standin_index g = k->grid, b = k->block;
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535 || !threads ||
        b.x > 1024 || b.y > 1024 || b.z > 64 || threads > STANDIN_BLOCK_MAX)
        return cudaErrorInvalidConfiguration;
    size_t own = shared_variables_bytes(shared_variables_of(k->function));
    return own + k->shared_bytes > standin_shared_limit(k->function) ? cudaErrorInvalidValue
                                                                     : cudaSuccess;
}

static bool is_lazy(void)
{
    const char *lazy = getenv("STANDIN_LAZY"), *loading = getenv("CUDA_MODULE_LOADING");
    return lazy && !strcmp(lazy, "1") && !(loading && !strcmp(loading, "EAGER"));
}

/* Of this process, whose devices all load together. */
static bool is_first(const void *function)
{
    enum { MOST = 2048 };
    static const void *launched[MOST];
    static int n;
    int i = 0;
    books_open();
    while (i < n && launched[i] != function) i++;
    bool first = i == n;
    if (first && n == MOST) abort();
    if (first) launched[n++] = function;
    books_close();
    return first;
}

cudaError_t standin_launch_kernel(const struct standin_kernel *k, void (*drop)(void *arguments),
                                  cudaStream_t stream)
{
    cudaStream_t s;
    cudaError_t e = standin_enter("LAUNCH");
    if (e == cudaSuccess) e = stream_find(stream, true, &s);
    if (e == cudaSuccess) e = check_launch(k);
    if (e != cudaSuccess) {
        drop(k->arguments);
        return standin_leave(e);
    }
    if (is_lazy() && is_first(k->function)) streams_wait(stream_device(s));
    struct kernel_work *w = work_new(sizeof *w, run_kernel);
    w->w.drop = drop_kernel;
    w->k = *k;
    w->device = stream_device(s);
    w->drop = drop;
    w->w.noted = activity_requested(ACTIVITY_REQUESTED_KERNEL, k->name, 0, 0, w->device);
    stream_push(s, &w->w);
    return cudaSuccess;
}
