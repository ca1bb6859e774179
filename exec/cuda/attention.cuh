/* exec/cuda/attention.cuh - the attention mask, shared by all attention kernels; for .cu files. */
#ifndef EXEC_CUDA_ATTENTION_CUH
#define EXEC_CUDA_ATTENTION_CUH

#include "exec/cuda/dtypes.cuh"
#include "exec/cuda/kernels_attention.h"
#include "exec/cuda/launch.h"

#include <math.h>

/* One past the last key that a query sees. */
static __device__ __forceinline__ int end_key(const attention_call &a, int query)
{
    return a.bidirectional ? a.keys : a.start + query + 1;
}

/* The first key that a query sees. */
static __device__ __forceinline__ int first_key(const attention_call &a, int query)
{
    int first = a.window > 0 ? a.start + query - a.window + 1 : 0;
    return first > 0 ? first : 0;
}

/* The first query that sees a key, and one past the last. */
static __device__ __forceinline__ int first_query(const attention_call &a, int key)
{
    int first = a.bidirectional ? 0 : key - a.start;
    return first > 0 ? first : 0;
}
static __device__ __forceinline__ int end_query(const attention_call &a, int key)
{
    int end = a.window > 0 ? key - a.start + a.window : a.queries;
    return end < a.queries ? end > 0 ? end : 0 : a.queries;
}

static __device__ __forceinline__ bool sees(const attention_call &a, int query, int key)
{
    return key >= first_key(a, query) && key < end_key(a, query) && key < a.keys;
}

/* lse as stored: of T, or fp32 beside a half-precision T. */
template <class T>
static __device__ __forceinline__ typename dtype_traits<T>::wide read_lse(const attention_call &a, int64_t i)
{
    using wide = typename dtype_traits<T>::wide;
    return a.wide_lse ? static_cast<const wide *>(a.lse)[i]
                      : dtype_traits<T>::get(static_cast<const T *>(a.lse)[i]);
}
template <class T>
static __device__ __forceinline__ void write_lse(const attention_call &a, int64_t i,
                                                 typename dtype_traits<T>::wide v)
{
    using wide = typename dtype_traits<T>::wide;
    if (a.wide_lse)
        static_cast<wide *>(a.lse)[i] = v;
    else
        static_cast<T *>(a.lse)[i] = dtype_traits<T>::put(v);
}

#endif
