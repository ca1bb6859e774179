#!/bin/bash
# tests/gpu/sanitize.sh BUILD SECONDS - all kernels under compute-sanitizer, memcheck and racecheck, so long each at most. Exit 1:
# something was found, or one did not come to its end, which shows nothing of what it did not reach.
set -u
BUILD=${1:?usage: sanitize.sh BUILD SECONDS} seconds=${2:?usage: sanitize.sh BUILD SECONDS} status=0
. tests/gpu/common.inc
needs gpu-sanitize cases
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[[ -n $sanitizer ]] || { echo "compute-sanitizer is not installed: left out" && exit 0; }
export GPU_SMALL=1 # each row in one of its forms: the tool makes kernels many times slower
for tool in memcheck racecheck; do
    log=$BUILD/gpu-$tool.log
    GPU_SECONDS=$seconds timeout "$seconds" "$sanitizer" --target-processes all --tool $tool --error-exitcode 9 "$BUILD/gpu-check" --kernels "$BUILD/gpu" >"$log" 2>&1
    code=$?
    what="exit $code: $(tail -n 1 "$log")"
    ((code == 124)) && what="did not come to its end in $seconds s; no error until then"
    grep -q '^========= \(Invalid\|Race\|Error\|Program hit\)' "$log" && what="found errors: $log" && code=9
    ((code)) && status=1 && what="not ok: $what"
    echo "compute-sanitizer $tool: $what"
done
exit $status
