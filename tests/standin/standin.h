/* tests/standin/standin.h - test hooks of the stand-in, beside CUDA's own API.
 *
 * The environment, read at the first call:
 *   STANDIN_DEVICES=n        number of devices (1); 0: cudaErrorNoDevice
 *   STANDIN_DRIVER=n         35: no driver, 34: the toolkit's stub; every call that needs a device fails
 *   STANDIN_CAPABILITY=90,75 major·10 + minor of each device, the last for the rest (90)
 *   STANDIN_MEMORY=bytes     of each device (141 GiB)
 *   STANDIN_GRANULE=bytes    allocation granularity (1)
 *   STANDIN_QUEUE=n          kernels, copies and records that a stream queues (1024); one more blocks, as on a GPU
 *   STANDIN_PITCH=bytes      largest row pitch of a copy (2147483647)
 *   STANDIN_LT=none|unsure   cuBLASLt's heuristic finds nothing, or an algorithm whose state is "not supported"
 *   STANDIN_MULTIPROCESSORS=n  of each device (4)
 *   STANDIN_DRIVER_VERSION=n   of the driver (13000); before 12050 it has no green contexts with streams
 *   STANDIN_NAME=text        device name, before " sm_90" ("stand-in")
 *   STANDIN_FAIL_AT=n[:e]    call n fails with error e (719). 2, 1, 9, 701 and 801 concern that call only; any other
 *                            makes the device lost: it does nothing more and every later call returns e
 *   STANDIN_LOSE_AT=n[:e]    item n of the streams (kernel, copy, product, host function) makes its device lost with error e
 *                            instead of running; the next call that checks returns it
 *   STANDIN_SIGNAL_AT=n:s[:r] before its call n the process (only mpirun's rank r) gets signal s: 9 kills it, 19 stops it
 *   STANDIN_ORDER=seed       order of blocks and threads (emulator.h)
 *   STANDIN_LAZY=1           the first launch of each kernel waits until the device is idle, unless CUDA_MODULE_LOADING=EAGER
 *   STANDIN_LEAKS=1          prints unreleased resources on stderr at the end of the process
 */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include "cuda_runtime_api.h"

#include <stddef.h>
#include <stdint.h>

/* Like STANDIN_FAIL_AT; the next call is number 1; n = 0: none fails. */
void standin_fail_at(int64_t n, cudaError_t e);
/* Like STANDIN_LOSE_AT, counted from now on. */
void standin_lose_at(int64_t n, cudaError_t e);
/* Calls since the start of the process, or since standin_fail_at, without event and stream queries, whose number
 * depends on timing. */
int64_t standin_calls(void);
/* Name of the call that failed by request; NULL: none yet. */
const char *standin_failed_call(void);
/* Peak memory of a device in bytes. */
int64_t standin_peak(int device);
/* Writes "2 streams, 1 event, …", or "" if nothing is left; returns the number of unreleased resources. */
int64_t standin_left(char *out, size_t bytes);

#endif
