/* tests/standin/standin.h - what tests ask of the stand-in beside CUDA's own calls.
 *
 * The environment, read at the first call:
 *   STANDIN_DEVICES=n        devices there are (1); 0: cudaErrorNoDevice
 *   STANDIN_DRIVER=n         35: no driver, 34: a stub of one; every call that needs a device fails so
 *   STANDIN_CAPABILITY=90,75 major·10 + minor of each device, the last for the rest (90)
 *   STANDIN_MEMORY=bytes     of each device (141 GiB)
 *   STANDIN_GRANULE=bytes    every allocation takes a multiple of it, as a GPU gives (1)
 *   STANDIN_QUEUE=n          a stream takes so many kernels, copies and records (1024); who asks for one more waits, as on a GPU
 *   STANDIN_PITCH=bytes      from one row of a copy to the next at most (2147483647)
 *   STANDIN_LT=none|unsure   cuBLASLt's heuristic finds nothing, or something that its own state calls not supported
 *   STANDIN_MULTIPROCESSORS=n  of each device (4)
 *   STANDIN_DRIVER_VERSION=n   of the driver (13000); before 12050 it has no green contexts with streams
 *   STANDIN_NAME=text        what each calls itself, before " sm_90" ("stand-in")
 *   STANDIN_FAIL_AT=n[:e]    the n-th call fails with error e (719). 2, 1, 9, 701 and 801 are that call's own; with any
 *                            other the device is lost: nothing is done on it any more and every later call says e
 *   STANDIN_LOSE_AT=n[:e]    the n-th thing that streams do (kernel, copy, product, host function) loses its device with error e
 *                            instead; nobody is told before the next call that asks
 *   STANDIN_SIGNAL_AT=n:s[:r] before its n-th call the process (of mpirun's rank r alone) gets signal s: 9 kills it, 19 stops it
 *   STANDIN_ORDER=seed       blocks and threads in another order (emulator.h)
 *   STANDIN_LAZY=1           the first launch of each kernel waits until the device is idle, unless CUDA_MODULE_LOADING=EAGER
 *   STANDIN_LEAKS=1          at the end of the process, what was not given back is told on stderr
 */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include "cuda_runtime_api.h"

#include <stddef.h>
#include <stdint.h>

/* As the environment says, from the next call on, which is number 1; n = 0: none fails. */
void standin_fail_at(int64_t n, cudaError_t e);
/* As STANDIN_LOSE_AT, counted from now on. */
void standin_lose_at(int64_t n, cudaError_t e);
/* Calls since the process began, or since standin_fail_at. Queries of events and streams are not counted: how often they
 * are made depends on time. */
int64_t standin_calls(void);
/* The name of the call that was made to fail; NULL: none yet. */
const char *standin_failed_call(void);
/* The most bytes of a device that were ever taken at once. */
int64_t standin_peak(int device);
/* Writes "2 streams, 1 event, …", "" where nothing is left; returns how many things. */
int64_t standin_left(char *out, size_t bytes);

#endif
