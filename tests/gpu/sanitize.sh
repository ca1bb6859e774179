#!/bin/bash
# tests/gpu/sanitize.sh BUILD SECONDS - all kernels under compute-sanitizer, memcheck and racecheck, so long each at most.
set -u
BUILD=$1 seconds=$2 status=0
. tests/gpu/common.inc
needs gpu-sanitize cases
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[[ -n $sanitizer ]] || { echo "compute-sanitizer is not installed: left out" && exit 0; }
for tool in memcheck racecheck; do
    timeout "$seconds" "$sanitizer" --target-processes all --tool $tool --error-exitcode 9 "$BUILD/gpu-check" --kernels "$BUILD/gpu" >"$BUILD/gpu-$tool.log" 2>&1
    code=$?
    ((code == 124)) && what="did not come to its end in $seconds s, no error until then" || what="exit $code: $(tail -n 1 "$BUILD/gpu-$tool.log")"
    ((code == 124)) && grep -q '^========= \(Invalid\|Race\|Error\|Program hit\)' "$BUILD/gpu-$tool.log" && what="found errors: $BUILD/gpu-$tool.log" && code=9
    echo "compute-sanitizer $tool: $what"
    ((code && code != 124)) && status=1
done
exit $status
