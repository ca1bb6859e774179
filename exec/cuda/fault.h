/* exec/cuda/fault.h - the first invalid value that a kernel found; written by the device, read by the host. */
#ifndef EXEC_CUDA_FAULT_H
#define EXEC_CUDA_FAULT_H

#include <stdint.h>

struct cuda_fault {
    volatile int32_t set;  /* 1: the other fields are valid; the first fault stays */
    volatile int32_t kind; /* enum op_kind */
    volatile int32_t id;
    volatile int64_t index, vocabulary;
};

#endif
