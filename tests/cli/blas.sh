#!/bin/bash
# tests/cli/blas.sh - the limits of tests of kernels hold with each of OpenBLAS's kernels that this processor can run: another one adds
# the terms of a product in another order, so its results differ in the last bits. The suites of the check run with the kernels that OpenBLAS selects.
set -u
. tests/cli/common.inc
flags=" $(sed -n 's/^flags[[:space:]]*: //p' /proc/cpuinfo 2> /dev/null | head -n 1) "
# core_type NAME FLAG...: the suites with the kernels of that processor, if this one has the instructions
core_type() {
    local flag
    for flag in "${@:2}"; do [[ $flags == *" $flag "* ]] || return 0; done
    OPENBLAS_CORETYPE=$1 says "kernels of $1" 0 " passed, 0 failed" "$BUILD/tests/run" compare_kernels kernels kernel_shards kernel_images fused experts half
}
core_type Nehalem sse4_2
core_type Sandybridge avx
core_type Haswell avx2 fma
[[ ${MUSHER_LONG:-} ]] && core_type Zen avx2 fma # OpenBLAS gives it Haswell's products with other block sizes
core_type SkylakeX avx512f avx512vl avx512bw avx512dq
exit $bad
