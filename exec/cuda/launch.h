/* exec/cuda/launch.h - kernel launches; included by .cu files only.
 *
 * LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...) evaluates to the cudaError_t of this launch alone,
 * so that no cudaGetLastError is needed. A template instance is written in parentheses: LAUNCH((scale<T, 4>), ...).
 * Arguments are converted to the kernel's parameter types, as in a call. DYNAMIC_SHARED(type, name) declares the
 * launch's shared_bytes, aligned to 16, as an array inside a kernel. (An `extern __shared__` array of a template type
 * is impossible, because all instances would share one symbol of different types.) With tests/standin in place of the
 * toolkit, a kernel is C++ that runs on CPU threads; its header defines STANDIN.
 */
#ifndef EXEC_CUDA_LAUNCH_H
#define EXEC_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#ifdef STANDIN

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    standin_launch(#kernel, kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)
#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(standin_dynamic_shared())

#else

template <class... P> struct kernel_call {
    static cudaError_t go(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                          cudaStream_t stream, P... arguments)
    {
        void *at[] = {const_cast<void *>(static_cast<const void *>(&arguments))..., nullptr};
        return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, at,
                                shared_bytes, stream);
    }
};

template <class... P, class... A>
inline cudaError_t launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                                 cudaStream_t stream, A... arguments)
{
    return kernel_call<P...>::go(kernel, grid, block, shared_bytes, stream, arguments...);
}

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    launch_kernel(kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes_[];                         \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes_)

#endif

#endif
