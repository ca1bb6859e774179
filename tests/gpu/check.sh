#!/bin/bash
# tests/gpu/check.sh BUILD - the checks, and the kernels under compute-sanitizer in what they leave of GPU_SECONDS (420), within which all
# ends by itself. GPU_LATER=1: without compute-sanitizer, which will have a call of its own.
set -u
BUILD=${1:?usage: check.sh BUILD}
. tests/gpu/common.inc
needs gpu-check cases
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
export GPU_SECONDS=$(seconds 420)
status=0
timeout $((GPU_SECONDS + 15)) "$BUILD/gpu-check" "$BUILD/gpu" || status=$?
left=$(((GPU_SECONDS - SECONDS) / 2))
if [[ -z ${GPU_LATER:-}${GPU_SMALL:-} ]] && ((left < 30)); then
    echo "compute-sanitizer: no time is left: make gpu-sanitize"
elif [[ -z ${GPU_LATER:-}${GPU_SMALL:-} ]]; then
    tests/gpu/sanitize.sh "$BUILD" $((left < 100 ? left : 100)) || status=1
fi
exit $status
